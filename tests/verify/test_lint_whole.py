"""Every single mistake that can be made of a kind in the published definition, named by its place."""

import json

import pytest
from mutated_definitions import KINDS, disagreements
from workplace import prove

from pipeline.compile import compile_definition
from pipeline.config import load_config
from pipeline.lint import lint_definition

pytestmark = pytest.mark.verify


@pytest.mark.parametrize("kind", KINDS)
def test_every_mistake_of_a_kind(kind):
    definition = json.loads(compile_definition(load_config("azerbaijani-1b-p4d")))
    make, _ = KINDS[kind]
    mutations = [*make(definition), *disagreements(definition)] if kind == "reference" else make(definition)
    named = sum(mutation.path in {found.path for found in lint_definition(mutation.text)} for mutation in mutations)
    prove(f"mistakes of kind {kind} that the lint names by JSON path", f"{named} of {len(mutations)}", "all",
          named == len(mutations) > 0)  # fmt: skip
