"""The preset aws-smoke run whole on this machine, on the sample: what the first hour in an account starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from workplace import JOB_STEPS, Workplace, prove

from steps.contract import EXIT_DONE, read_seal

pytestmark = pytest.mark.verify


def test_the_smoke_preset_runs_whole_and_again_from_the_cache(tmp_path: Path) -> None:
    place = Workplace(tmp_path)

    def run() -> dict[str, Any]:
        finished = place.langadapt("run", "--preset", "aws-smoke", "--registry", str(tmp_path / "registry"))
        assert finished.returncode == EXIT_DONE, finished.stderr
        return json.loads((tmp_path / "runs" / "aws-smoke" / "execution.json").read_text())

    first = run()
    succeeded = [name for name in JOB_STEPS if first["steps"][name]["state"] == "Succeeded"]
    prove("jobs of aws-smoke that succeeded here", len(succeeded), "7", succeeded == JOB_STEPS)
    gate = first["gates"]["QualityGate"]
    candidate = gate["conditions"][0]["value"]
    prove("bits per byte after its twenty steps", round(candidate, 3), "4.0, the gate's", gate["open"])
    (folder,) = first["steps"]["ContinuedPretraining"]["outputs"].values()
    config = read_seal(Path(folder)).config
    steps = config["phase_1_steps"] + config["phase_2_steps"]
    prove("optimizer steps of its pretraining", steps, "20", steps == 20)
    again = run()
    cached = [name for name in JOB_STEPS if again["steps"][name]["state"] == "Cached"]
    prove("jobs of a second run that come from the cache", len(cached), "7", cached == JOB_STEPS)
