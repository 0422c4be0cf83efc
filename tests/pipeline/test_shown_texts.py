"""What Studio shows: complete, within the service's limits, in the README's words, and no part of any cache key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cache_explanation import Side, explain
from pipeline.parameters import Parameters
from pipeline.service_shapes import service_model
from pipeline.shown_texts import PARAMETER_TEXTS, STEP_TEXTS
from pipeline.step_graph import build_graph

README = Path(__file__).parents[2] / "README.md"
EVERYTHING = (
    "ablation=true", "data.source_corpus=s3://somewhere/english/", "thresholds.max_retention_loss=0.1",
    "data.extra_heldout=s3://somewhere/heldout/", "data.accuracy=s3://somewhere/questions/",
)  # fmt: skip


@pytest.fixture
def definition(compiled_text: Callable[..., str]) -> dict[str, Any]:
    """With every step and every parameter."""
    return json.loads(compiled_text("laptop", *EVERYTHING))


def test_every_step_and_parameter_has_its_text_and_no_other_has(definition: dict[str, Any]) -> None:
    steps = {name: node.definition for name, node in build_graph(definition).items()}
    assert {name: (step["DisplayName"], step["Description"]) for name, step in steps.items()} == STEP_TEXTS
    assert {entry["Name"]: entry["Description"] for entry in definition["Parameters"]} == PARAMETER_TEXTS
    assert len(PARAMETER_TEXTS) == len(Parameters.__dataclass_fields__)


def test_texts_fit_what_the_service_shows() -> None:
    shape = service_model("sagemaker").shape_for("PipelineExecutionStep")
    limits = [shape.members[name].metadata["max"] for name in ("StepDisplayName", "StepDescription")]
    assert limits == [256, 3072]
    for texts in STEP_TEXTS.values():
        assert all(len(text) <= limit for text, limit in zip(texts, limits, strict=True))


def test_descriptions_begin_as_the_readme_draws_the_step() -> None:
    drawn = dict(re.findall(r"[\[{](\w+)<br/>([^\]]+)\]", README.read_text("utf-8")))
    assert drawn.keys() == STEP_TEXTS.keys() - {"QualityGate", "GateClosed"}
    for name, words in drawn.items():
        assert STEP_TEXTS[name][1].lower().startswith(f"{words.lower()}: "), name


def test_no_cache_key_depends_on_them(definition: dict[str, Any]) -> None:
    other = json.loads(json.dumps(definition))
    for step in other["Steps"]:
        step.update(DisplayName="Another name", Description="Another text.")
    for parameter in other["Parameters"]:
        parameter["Description"] = "Another text."
    values = {entry["Name"]: entry["DefaultValue"] for entry in definition["Parameters"]}
    found = explain(Side("before", definition, values), Side("after", other, values))
    assert len(found) == 9
    assert [each.changed for each in found] == [()] * 9
