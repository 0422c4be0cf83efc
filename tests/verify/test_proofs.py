"""The longer proofs, run by `make verify`: each prints claim, number and limit.

They use the laptop preset on the sample and on real text, as a user would, in processes of their own.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from workplace import JOB_STEPS, ROOT, prove

from pipeline.local.run import STEP_MODULES
from steps.contract import EXIT_DONE, EXIT_GATE_CLOSED, read_seal

pytestmark = pytest.mark.verify

# A folder beside the checkout, or the one that the variable names; the README says what is in it.
REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", ROOT.parent / "shared" / "data"))


def langadapt(folder: Path, *arguments: str, source: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def execution(folder: Path, run: str = "runs/laptop") -> dict:
    return json.loads((folder / run / "execution.json").read_text())


def states(folder: Path, run: str = "runs/laptop") -> list[str]:
    steps = execution(folder, run)["steps"]
    return [steps[name]["state"] for name in JOB_STEPS]


def output(folder: Path, step: str, run: str = "runs/laptop") -> Path:
    (path,) = execution(folder, run)["steps"][step]["outputs"].values()
    return Path(path)


def versions(folder: Path) -> list[dict]:
    return json.loads(langadapt(folder, "models", "list", "--json").stdout)


@pytest.fixture(scope="module")
def sample_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `langadapt run` has finished once; the sample's base model may come from the user's cache."""
    folder = tmp_path_factory.mktemp("sample_run")
    began = time.monotonic()
    finished = langadapt(folder, "run")
    assert finished.returncode == EXIT_DONE, finished.stderr
    (folder / "seconds").write_text(str(time.monotonic() - began))
    return folder


def test_the_run_on_the_sample(sample_run: Path) -> None:
    seconds = float((sample_run / "seconds").read_text())
    # Generous: the machine may be shared, and the base model may have to be made first.
    prove("langadapt run on the sample, seconds", round(seconds), "900 (about 300 on two quiet cores)", seconds < 900)
    evaluation = json.loads((output(sample_run, "Evaluate") / "evaluation.json").read_text())["bits_per_byte"]
    ratio = evaluation["candidate"] / evaluation["base"]
    prove("candidate over base, bits per byte", round(ratio, 3), "0.8", ratio < 0.8)
    rates = read_seal(output(sample_run, "FineTune")).metrics
    rate = rates["stop_rate_training"]
    prove("replies to prompts trained on that end at the end of turn", rate, "at least 0.9", rate >= 0.9)
    found = [(version["version"], version["status"]) for version in versions(sample_run)]
    prove("registered versions", found, "1, PendingManualApproval", found == [(1, "PendingManualApproval")])


def test_again_is_cached(sample_run: Path) -> None:
    began = time.monotonic()
    assert langadapt(sample_run, "run").returncode == EXIT_DONE
    seconds = time.monotonic() - began
    prove(
        "job steps from the cache", states(sample_run).count("Cached"), "7 of 7", states(sample_run) == ["Cached"] * 7
    )
    prove("seconds of a cached run", round(seconds, 1), "15", seconds < 15)
    prove("versions after it", len(versions(sample_run)), "1", len(versions(sample_run)) == 1)


def test_a_closed_gate(sample_run: Path) -> None:
    closed = langadapt(sample_run, "run", "--param", "MaxBitsPerByte=0.05")
    prove("exit code of a closed gate", closed.returncode, "2", closed.returncode == EXIT_GATE_CLOSED)
    named = [name for name in ("bits_per_byte.candidate", "bits_per_byte.improvement", "0.05") if name in closed.stdout]
    prove("conditions named", named, "all", len(named) == 3)
    prove("versions after it", len(versions(sample_run)), "1", len(versions(sample_run)) == 1)


def run_with_changed_fine_tune(folder: Path, source: Path, change: Callable[[str], str]) -> list[str]:
    """The states of the steps after a run by a copy of the source in which fine_tune.py is changed."""
    for package in ("pipeline", "steps", "containers"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    module = source / "steps" / "fine_tune.py"
    text = module.read_text()
    module.write_text(change(text))
    assert module.read_text() != text
    assert langadapt(folder, "run", source=source).returncode == EXIT_DONE
    return states(folder)


def test_a_comment_in_fine_tune_py(sample_run: Path, tmp_path: Path) -> None:
    """FineTune runs again and gives the same bytes, so that what follows is cached and no version is added."""
    found = run_with_changed_fine_tune(sample_run, tmp_path / "source", lambda text: text + "\n# one more line\n")
    expected = ["Cached"] * 5 + ["Succeeded", "Cached"]
    prove("steps after a comment in fine_tune.py", found, str(expected), found == expected)
    prove("versions after an equal model", len(versions(sample_run)), "1", len(versions(sample_run)) == 1)


def test_one_line_of_fine_tune_py(sample_run: Path, tmp_path: Path) -> None:
    """A line that changes the model: FineTune and what follows run again, nothing before."""
    line = "    device = choose_device(config.device)\n"
    added = line + '    config = config.model_copy(update={"learning_rate": config.learning_rate / 2})\n'
    found = run_with_changed_fine_tune(sample_run, tmp_path / "source", lambda text: text.replace(line, added, 1))
    expected = ["Cached"] * 5 + ["Succeeded"] * 2
    prove("steps after a changed line of fine_tune.py", found, str(expected), found == expected)
    prove("versions after another model", len(versions(sample_run)), "2", len(versions(sample_run)) == 2)


def test_one_setting_of_fine_tuning(sample_run: Path) -> None:
    assert langadapt(sample_run, "run", "--set", "fine_tune.learning_rate=0.0015").returncode == EXIT_DONE
    expected = ["Cached"] * 5 + ["Succeeded"] * 2
    found = states(sample_run)
    prove("steps after a changed setting of fine-tuning", found, str(expected), found == expected)


def test_approve(sample_run: Path) -> None:
    assert langadapt(sample_run, "models", "approve", "1").returncode == EXIT_DONE
    status = versions(sample_run)[0]["status"]
    prove("status after models approve 1", status, "Approved", status == "Approved")


def wait_for(condition, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def run_killed_in(sample_run: Path, folder: Path, step: str, is_there: Callable[[Path], bool]) -> None:
    """Takes a step's output and all checkpoints away from a copy of the run, kills the new run with kill -9 some
    seconds after its jobs' folder says so, and gives the same command again."""
    shutil.copytree(sample_run / "runs" / "laptop", folder / "runs" / "laptop", symlinks=True)
    shutil.rmtree(folder / "runs" / "laptop" / "outputs" / step)
    shutil.rmtree(folder / "runs" / "laptop" / "s3", ignore_errors=True)
    jobs = folder / "runs" / "laptop" / "jobs" / step
    for log in jobs.glob("*/log.txt"):
        log.unlink()
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "run"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: is_there(jobs))
    time.sleep(3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # The step runs in a group of its own; the next run ends it before it begins.
    assert langadapt(folder, "run").returncode == EXIT_DONE


def prove_same_bytes(sample_run: Path, folder: Path, step: str, *names: str) -> None:
    """The step went on from a checkpoint, and its files are those of the run that was not killed."""
    finished, uninterrupted = output(folder, step), output(sample_run, step)
    resumed = json.loads((finished / "training.json").read_text())["resumed_from_step"]
    prove(f"{step}: step that the killed run went on from", resumed, "above 0", resumed > 0)
    for name in names:
        same = filecmp.cmp(finished / name, uninterrupted / name, shallow=False)
        prove(f"{step}: {name} equals the uninterrupted run's", same, "bit-identical", same)


def test_killed_in_phase_2(sample_run: Path, tmp_path: Path) -> None:
    """kill -9 of the whole process group in phase 2, then the same command: the same bytes as without the kill."""

    def in_phase_2(jobs: Path) -> bool:
        return any("phase=2 " in log.read_text(errors="ignore") for log in jobs.glob("*/log.txt"))

    run_killed_in(sample_run, tmp_path, "ContinuedPretraining", in_phase_2)
    prove_same_bytes(sample_run, tmp_path, "ContinuedPretraining", "model.safetensors")


def test_killed_while_fine_tuning(sample_run: Path, tmp_path: Path) -> None:
    """The same in FineTune, between two checkpoints."""

    def past_a_checkpoint(jobs: Path) -> bool:
        return any("step=50 steps=" in log.read_text(errors="ignore") for log in jobs.glob("*/log.txt"))

    run_killed_in(sample_run, tmp_path, "FineTune", past_a_checkpoint)
    prove_same_bytes(sample_run, tmp_path, "FineTune", "adapter/adapter_model.safetensors", "model.safetensors")


def test_real_text(tmp_path: Path) -> None:
    if not REAL_TEXT.is_dir():
        print(f"\nnot measured: the run on real text: no folder {REAL_TEXT}", flush=True)
        pytest.skip(f"no real text at {REAL_TEXT}")
    settings = [
        f"data.corpus={REAL_TEXT / 'az_laws.jsonl'}",
        f"data.conversations={REAL_TEXT / 'az_qa.jsonl'}",
        f"data.extra_heldout={REAL_TEXT / 'az_heldout_wiki.jsonl'}",
    ]
    began = time.monotonic()
    finished = langadapt(tmp_path, "run", "--run-dir", "real", *[part for s in settings for part in ("--set", s)])
    seconds = time.monotonic() - began
    print(finished.stdout)
    prove("exit code on real text", finished.returncode, "0, gate open", finished.returncode == EXIT_DONE)
    prove("seconds", round(seconds), "900", seconds < 900)
    peaks = {step: read_seal(output(tmp_path, step, "real")).peak_memory_bytes for step in JOB_STEPS}
    highest = max(peaks, key=lambda step: peaks[step])
    prove("peak memory, GB", (highest, round(peaks[highest] / 1e9, 2)), "4 GB", peaks[highest] < 4e9)


def test_compile_is_fast_and_stable(tmp_path: Path) -> None:
    texts = []
    for name in ("one.json", "two.json"):
        began = time.monotonic()
        done = langadapt(tmp_path, "compile", "--preset", "azerbaijani-1b-p4d", "--output", name)
        seconds = time.monotonic() - began
        assert done.returncode == EXIT_DONE, done.stderr
        prove("seconds to compile azerbaijani-1b-p4d", round(seconds, 1), "10", seconds < 10)
        texts.append((tmp_path / name).read_bytes())
    prove("two compilations", f"{len(texts[0]):,} bytes", "identical", texts[0] == texts[1])


def test_help_is_fast(tmp_path: Path) -> None:
    seconds = []
    for _ in range(5):
        began = time.monotonic()
        assert langadapt(tmp_path, "--help").returncode == EXIT_DONE
        seconds.append(time.monotonic() - began)
    prove("seconds of langadapt --help, median of 5", round(sorted(seconds)[2], 2), "0.5", sorted(seconds)[2] < 0.5)


def test_installed_elsewhere(tmp_path: Path) -> None:
    """`pip install .` in a fresh environment, then `langadapt run` from another folder."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    constraints = ROOT / "containers" / "constraints.txt"
    subprocess.run([python, "-m", "pip", "install", "-q", "-c", constraints, str(ROOT)], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = [tmp_path / "env" / "bin" / "langadapt", "run", "--config", ROOT / "tests" / "presets" / "seconds.yaml"]
    finished = subprocess.run(run, cwd=elsewhere, env=environment, capture_output=True, text=True)
    prove("exit code of an installed langadapt run", finished.returncode, "0", finished.returncode == EXIT_DONE)
    found = [name for name in STEP_MODULES if list((elsewhere / "runs").rglob(f"{name}.py"))]
    prove("steps that ran from their archives", len(found), "7", len(found) == 7)
