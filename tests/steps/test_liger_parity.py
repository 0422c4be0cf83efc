"""Liger's kernels give the loss and gradients that transformers' own layers give."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MISSING = [name for name in ("liger_kernel", "triton") if importlib.util.find_spec(name) is None]
# A relative difference that float32 may make over two layers.
LIMIT = 1e-5


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; both come with langadapt[dev]")
def test_loss_and_gradients_are_those_of_the_eager_model():
    """In a process of its own: Liger replaces functions of transformers, and the interpreter is chosen at import."""
    command = [sys.executable, str(Path(__file__).with_name("liger_on_cpu.py"))]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
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
