"""The launcher where files may not be read, with variables that are none, and steps that end as none of ours does."""

import ctypes
import json
import os
import signal
from pathlib import Path

import pytest
from container_tree import STEP, Container

from containers.failure_message import describe_end
from containers.launch_errors import STOPPED, Ended

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path)


def without_roots_access() -> None:
    """Root without what lets it read every file; for anybody else nothing changes."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)


@pytest.mark.parametrize(("place", "mode"), [
    ("input/config", 0), ("input/config/hyperparameters.json", 0), ("input/data/code", 0),
    ("input/data/code/*.zip", 0), ("code", 0o500),
])  # fmt: skip
def test_what_may_not_be_read_or_replaced_is_named_whole(container, place, mode):
    container.training()
    (container.root / "code/old").mkdir(parents=True)
    (closed,) = container.root.glob(place)
    closed.chmod(mode)
    process = container.start(before=without_roots_access)
    _, errors = process.communicate(timeout=30)
    closed.chmod(0o700)
    assert (process.returncode, errors.count("\n")) == (1, 1)
    # Where the folder itself is closed, what was looked for in it is named.
    assert errors.startswith(f"error: {closed}")
    assert errors.endswith(
        f" It cannot be read or written by user {os.geteuid()}: give that user access to it, then run again.\n"
    )


def test_a_relative_root_and_empty_variables(container):
    container.training()
    assert container.launch(OPT_ML=os.path.relpath(container.root), LANGADAPT_PARENT_PROCESS="")[0] == 0
    output = container.read("model/seen.json")["arguments"]["output"]
    assert (os.path.isabs(output), os.path.normpath(output)) == (True, str(container.root / "model"))
    code, errors = container.launch(OPT_ML="")
    assert code == 1
    assert errors.startswith("error: /opt/ml/input/config/hyperparameters.json: missing.")


@pytest.mark.parametrize("name", ["PROCESSES", "PARENT_PROCESS", "HEARTBEAT_SECONDS"])
def test_a_number_of_5000_digits_is_refused_in_one_line(container, name):
    container.training()
    code, errors = container.launch(**{f"LANGADAPT_{name}": "9" * 5_000})
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"error: LANGADAPT_{name}: {'9' * 80}; limit ")


def test_a_step_that_ends_by_a_signal_without_a_name(container):
    container.training()
    container_step = STEP.replace("signal.SIGKILL", "40")
    (container.root / "input/data/code").rename(container.root / "old")
    container.code("input/data/code", [("steps/tiny.py", container_step)])
    hyperparameters = container.read("input/config/hyperparameters.json")
    container.write("input/config/hyperparameters.json", {**hyperparameters, "dies": "1"})
    assert container.launch()[0] == 168
    assert (container.root / "output/failure").read_text() == "error: killed by signal 40; the log has what came before"


WORDLESS = Ended(70, "error: ended with exit code 1 and no message; the log has the cause", is_consequence=True)


@pytest.mark.parametrize(("written", "code", "expected"), [
    ({"line": "error: rate: 0", "exit_code": 1}, 1, Ended(1, "error: rate: 0", is_told=True)),
    # It has failed all the same.
    ({"line": "error: rate: 0", "exit_code": 0}, 1, Ended(70, "error: rate: 0", is_told=True)),
    ({"line": "error: rate: 0", "exit_code": 256}, 1, Ended(70, "error: rate: 0", is_told=True)),
    ({"line": "error: rate: 0", "exit_code": "1"}, 1, WORDLESS),
    ({"line": ["error"], "exit_code": 1}, 1, WORDLESS),
    ({}, 1, WORDLESS),
    (["line"], 1, WORDLESS),
    (7, 1, WORDLESS),
    (None, 0, Ended(0)),
])  # fmt: skip
def test_what_a_step_leaves_as_its_error(tmp_path, written, code, expected):
    file: Path = tmp_path / "error.json"
    file.write_text(json.dumps(written))
    assert describe_end(code, file, stopped=None) == expected
    assert not file.exists()


def test_a_stopped_step_without_words(tmp_path):
    assert describe_end(-signal.SIGTERM, tmp_path / "error.json", stopped=STOPPED) == STOPPED
