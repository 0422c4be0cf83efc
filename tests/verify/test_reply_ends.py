"""The laptop preset on the sample teaches its model to end its replies, whatever the seed of the fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workplace import Workplace, prove

from steps.contract import EXIT_DONE

pytestmark = pytest.mark.verify

SEEDS = (0, 1, 2, 3, 4)


def test_replies_end_whatever_the_seed(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    worst = {"stop_rate_training": 1.0, "stop_rate_heldout": 1.0}
    for seed in SEEDS:
        finished = place.langadapt("run", "--set", f"fine_tune.seed={seed}")
        assert finished.returncode == EXIT_DONE, finished.stderr
        record = json.loads((tmp_path / "runs" / "laptop" / "execution.json").read_text())
        (folder,) = record["steps"]["FineTune"]["outputs"].values()
        told = json.loads((Path(folder) / "training.json").read_text())
        print(f"\nseed {seed}: {told['stop_rate_training']:.2f} and {told['stop_rate_heldout']:.2f}", flush=True)
        worst = {name: min(value, told[name]) for name, value in worst.items()}
    for name, value in worst.items():
        prove(f"{name}, the smallest of {len(SEEDS)} seeds", round(value, 2), "at least 0.9", value >= 0.9)
