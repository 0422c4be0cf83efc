"""Liger's kernels give the loss and gradients that transformers' own layers give."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MISSING = [name for name in ("liger_kernel", "triton") if importlib.util.find_spec(name) is None]
# A relative difference that float32 may make over two layers.
LIMIT = 1e-5


needs_liger = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; both come with langadapt[dev]"
)


def run_interpreted(script: str) -> dict:
    """What a script beside this one prints, in a process of its own: Liger replaces functions of transformers, and the
    interpreter is chosen at import."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name(script))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_liger
def test_loss_and_gradients_are_those_of_the_eager_model():
    found = run_interpreted("liger_on_cpu.py")
    # Without launches equal figures would prove nothing.
    launches = found["launches"]
    for kernel in ("_rms_norm_forward", "_rms_norm_backward", "_swiglu_forward", "_swiglu_backward"):
        assert launches.get(f"{kernel}_kernel", 0) > 0, launches
    assert launches.get("_triton_rope", 0) > 0, launches
    assert launches.get("liger_cross_entropy_kernel", 0) > 0, launches
    assert len(found["differences"]) == 4
    for case, (of_loss, of_gradients) in found["differences"].items():
        assert of_loss < LIMIT, case
        assert of_gradients < LIMIT, case


@needs_liger
def test_the_check_lets_kernels_pass_and_takes_spoilt_ones_out_again():
    found = run_interpreted("liger_check_on_cpu.py")
    good = found["as they are"]
    assert good["beyond"] is False
    assert good["loss"] < LIMIT
    assert good["gradients"] < LIMIT
    assert good["launches"] > 10
    assert good["launches_after"] > 0
    assert good["gradients_left"] is False
    norm, gradient = found["spoilt norm"], found["spoilt gradient"]
    assert norm["loss"] > 1e-3
    assert gradient["loss"] < LIMIT
    assert gradient["gradients"] == pytest.approx(0.1, rel=0.01)
    assert gradient["parameter"].startswith("model.layers.0.mlp.")
    for spoilt in (norm, gradient):
        assert spoilt["launches"] > 10
        assert [spoilt["beyond"], spoilt["launches_after"], spoilt["same_after"]] == [True, 0, True]
