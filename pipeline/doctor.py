"""`langadapt doctor`: what this machine has of what a run needs, and what each missing thing would bring.

Nothing is changed, no network is asked, no secret is shown. torch is imported by a process of its own, as pipeline/
imports none; it is started first and works while the rest is looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.doctor_finding import MISSING, OK, WARNING, Finding
from pipeline.doctor_libraries import check_extras, check_python, check_required_libraries
from pipeline.doctor_machine import check_cores, check_folder, check_memory, check_open_files
from pipeline.doctor_surroundings import check_aws, check_locale, check_tools, check_variables

# As pipeline/local/run.py has them, which imports what may be missing.
RUNS, REGISTRY = Path("runs"), Path("runs/registry")
PROBE_SECONDS = 7.0
# Both print one JSON object. -P: a folder named torch or steps in the current folder is none of ours.
TORCH_PROBE = """
import json, torch
cuda = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "mps": torch.backends.mps.is_available(),
    "devices": [[device.name, device.total_memory] for device in cuda],
    "bfloat16": bool(cuda) and torch.cuda.is_bf16_supported(),
}))
"""
SAMPLE_PROBE = """
import json
from steps.make_sample import default_cache, sample_digest
folder = default_cache() / f"sample-{sample_digest()[:16]}"
print(json.dumps({"cache": str(default_cache()), "sample": str(folder), "is_made": folder.is_dir()}))
"""


def examine(run_folder: Path | None = None, registry: Path | None = None) -> list[Finding]:
    """Every check's finding, in the order in which they are shown; takes about as long as importing torch.

    Imports nothing but the standard library, and what else is looked at only where it is there.
    """
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    probes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        )
        for code in (TORCH_PROBE, SAMPLE_PROBE)
    ]  # fmt: skip
    deadline = time.monotonic() + PROBE_SECONDS
    try:
        findings = [check_python(), *check_required_libraries()]
        extras = check_extras()
        surroundings = [*check_aws(), *check_tools(), check_locale(), *check_variables()]
        sample, cache = check_sample(answer(probes[1], deadline))
        machine = [check_cores(), check_memory(), check_open_files()]
        machine += [*check_folder("run folder", run_folder or RUNS), *check_folder("registry", registry or REGISTRY)]
        machine += [*check_folder("cache", cache), *check_folder("temporary folder", None)]
        return [*findings, *check_torch(answer(probes[0], deadline)), *extras, *machine, sample, *surroundings]
    finally:
        for probe in probes:
            probe.kill()
            probe.communicate()


def answer(probe: subprocess.Popen[str], deadline: float) -> dict | str:
    """What a probe printed, or why it printed nothing, in one line."""
    try:
        output, errors = probe.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_SECONDS:g} s"
    if probe.returncode != 0:
        lines = [line for line in errors.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {probe.returncode}"
    return json.loads(output)


def check_torch(found: dict | str) -> Iterator[Finding]:
    """What torch was built for, and the devices that it sees."""
    if isinstance(found, str):
        slow = found.startswith("no answer")
        remedy = "Try again: the machine is busy." if slow else "Install it again: pip install --force-reinstall torch"
        yield Finding("torch works", WARNING if slow else MISSING, found, remedy=remedy, needed=not slow)
        yield Finding("GPU", WARNING, "not known, as torch tells of it")
        return
    build = f"CUDA {found['cuda']}" if found["cuda"] else "no CUDA"
    yield Finding("torch works", OK, f"{found['version']}, built with {build}")
    if found["devices"]:
        names = ", ".join(f"{name} ({memory / 2**30:.0f} GiB)" for name, memory in found["devices"])
        yield Finding("GPU", OK, f"{names}; bfloat16 {'yes' if found['bfloat16'] else 'no'}")
        return
    mps = "MPS is there, but no step uses it; " if found["mps"] else ""
    if Path("/dev/nvidia0").exists() and not found["cuda"]:
        yield Finding(
            "GPU", WARNING, "an NVIDIA GPU, but torch is built without CUDA", remedy="Install torch with CUDA."
        )
        return
    brings = f"{mps}a CUDA GPU brings training on models of billions of parameters; the sample needs none"
    yield Finding("GPU", MISSING, "torch sees no CUDA device", brings=brings)


def check_sample(found: dict | str) -> tuple[Finding, Path | None]:
    """Whether the demonstration's base model is made already, and the folder that it is kept in."""
    if isinstance(found, str):
        return Finding("sample", MISSING, found, remedy="Install langadapt again.", needed=True), None
    if found["is_made"]:
        return Finding("sample", OK, f"made: {found['sample']}"), Path(found["cache"])
    brings = "langadapt run without data of its own makes it, about a minute"
    return Finding("sample", MISSING, f"not in {found['cache']}", brings=brings), Path(found["cache"])


def finding_lines(findings: list[Finding]) -> list[str]:
    """A line a finding, and one that says whether a local run is possible."""
    width = max(len(finding.name) for finding in findings)
    lines = [f"{finding.name:<{width}}  {finding.state:<7}  {finding.text}" for finding in findings]
    stopping = [finding.name for finding in findings if finding.stops]
    verdict = f"a local run is not possible: {', '.join(stopping)}" if stopping else "a local run is possible"
    return [*lines, "", verdict]
