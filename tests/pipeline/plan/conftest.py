"""The command in this process, and a table of prices to spoil."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.__main__ import command_code


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `langadapt plan`; gives exit code, standard output and standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command_code(["plan", *words], as_json="--json" in words)
        output, errors = capsys.readouterr()
        assert code != 70, errors
        return code, output, errors

    return run


@pytest.fixture
def planned(plan: Callable[..., tuple[int, str, str]]) -> Callable[..., dict[str, Any]]:
    """The plan of a preset with overrides, as JSON."""

    def run(preset: str = "azerbaijani-1b-p4d", *overrides: str, words: tuple[str, ...] = ()) -> dict[str, Any]:
        settings = [word for override in overrides for word in ("--set", override)]
        code, output, errors = plan("--preset", preset, *settings, *words, "--json")
        assert code == 0, output + errors
        return json.loads(output)

    return run


@pytest.fixture
def price_file(tmp_path: Path) -> Callable[..., Path]:
    """A file of prices for the region us-west-2."""

    def write(text: str | None = None, region: str = "us-west-2", **prices: float) -> Path:
        path = tmp_path / "prices.yaml"
        rows = [f"  {kind}: {{usd_per_hour: {usd}, date: 2026-11-01, source: a test}}" for kind, usd in prices.items()]
        path.write_text(text or "\n".join([f"region: {region}", "prices:", *rows]), "utf-8")
        return path

    return write
