"""Sealed inputs of ContinuedPretraining, tiny and real."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_pretraining import PretrainingInputs, make_inputs


@pytest.fixture(scope="session")
def make_pretraining_inputs(make_tiny_tokenizer, make_tiny_llama, tmp_path_factory) -> Callable[..., PretrainingInputs]:
    """Builds a model folder and the blocks made by its tokenizer, both sealed."""

    def make(**model_settings) -> PretrainingInputs:
        root = tmp_path_factory.mktemp("pretraining")
        return make_inputs(root, make_tiny_tokenizer, make_tiny_llama, **model_settings)

    return make


@pytest.fixture(scope="session")
def pretraining_inputs(make_pretraining_inputs) -> PretrainingInputs:
    """A tied Llama of two layers and its blocks."""
    return make_pretraining_inputs()
