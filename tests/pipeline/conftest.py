"""Compiled definitions that tests share: compiling one takes a second or two."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from pipeline.compile import compile_definition
from pipeline.config import load_config


@pytest.fixture(scope="session")
def compiled_text() -> Callable[..., str]:
    """The definition's JSON text of a preset with overrides, each compiled once a session."""

    @functools.cache
    def text(preset: str = "laptop", *overrides: str) -> str:
        return compile_definition(load_config(preset, overrides=overrides))

    return text
