"""Retry policies by error class: who retries what, how often, how long, and after what wait."""

import errno
import os
import subprocess
import sys
import tempfile

import pytest
from small_jobs import ROOT, SmallRuns, policy, processing

from pipeline.local.retries import (
    CAPACITY_ERROR,
    JOB_INTERNAL_ERROR,
    LONGEST_WAIT_SECONDS,
    RESOURCE_LIMIT,
    SERVICE_FAULT,
    THROTTLING,
    Retries,
    call_error_class,
    start_error_class,
)
from steps.contract import StepError


@pytest.fixture
def runs(tmp_path):
    return SmallRuns(tmp_path)


class ThrottledError(Exception):
    """What an AWS client raises, in its form."""

    def __init__(self, code):
        self.response = {"Error": {"Code": code, "Message": "Rate exceeded"}}
        super().__init__(f"An error occurred ({code}): Rate exceeded")


# --- policies ---------------------------------------------------------------------------------------------------------


def waits(retries, error_class=SERVICE_FAULT, times=12):
    """The waits until there is no further attempt."""
    found = []
    while len(found) < times and (seconds := retries.next_wait_seconds(error_class)) is not None:
        found.append(seconds)
    return found


def test_max_attempts_counts_retries():
    assert waits(Retries([policy(SERVICE_FAULT, MaxAttempts=3)])) == [0.1, 0.1, 0.1]


def test_the_interval_grows_by_the_backoff_rate_up_to_five_seconds():
    given = policy(SERVICE_FAULT, IntervalSeconds=1, BackoffRate=1.5, MaxAttempts=6)
    assert waits(Retries([given])) == [1, 1.5, 2.25, 3.375, 5, 5]
    assert LONGEST_WAIT_SECONDS == 5


def test_what_a_policy_leaves_out_is_as_on_the_service():
    assert waits(Retries([{"ExceptionType": [SERVICE_FAULT]}])) == [1, 2, 4, 5, 5]


def test_expire_after_min_counts_from_the_first_attempt():
    now = [1000.0]
    given = policy(SERVICE_FAULT, ExpireAfterMin=2)
    del given["MaxAttempts"]
    retries = Retries([given], clock=lambda: now[0])
    # Without MaxAttempts the time alone counts.
    assert len(waits(retries, times=12)) == 12
    now[0] += 119
    assert retries.next_wait_seconds(SERVICE_FAULT) == 0.1
    now[0] += 2
    assert retries.next_wait_seconds(SERVICE_FAULT) is None


def test_the_first_policy_with_the_class_decides_and_each_counts_its_own():
    retries = Retries([policy(SERVICE_FAULT, MaxAttempts=1), policy(SERVICE_FAULT, THROTTLING, MaxAttempts=2)])
    classes = [THROTTLING, SERVICE_FAULT, THROTTLING]
    assert [retries.next_wait_seconds(error_class) for error_class in classes] == [0.1, 0.1, 0.1]
    assert retries.count == 3
    assert retries.next_wait_seconds(SERVICE_FAULT) is None
    assert retries.next_wait_seconds(THROTTLING) is None


def test_a_kill_is_retried_once_whatever_a_policy_allows():
    assert waits(Retries([policy(JOB_INTERNAL_ERROR, MaxAttempts=9)]), JOB_INTERNAL_ERROR) == [0.1]


def test_what_is_in_no_class_or_no_policy_is_never_retried():
    every = policy(SERVICE_FAULT, THROTTLING, JOB_INTERNAL_ERROR, CAPACITY_ERROR, RESOURCE_LIMIT)
    assert Retries([every]).next_wait_seconds("") is None
    assert Retries([policy(THROTTLING)]).next_wait_seconds(SERVICE_FAULT) is None
    assert Retries([]).next_wait_seconds(SERVICE_FAULT) is None


@pytest.mark.parametrize(("number", "error_class"), [
    (errno.ENOMEM, CAPACITY_ERROR), (errno.EAGAIN, RESOURCE_LIMIT), (errno.EMFILE, RESOURCE_LIMIT),
    (errno.ENFILE, RESOURCE_LIMIT), (errno.EACCES, ""), (errno.ENOSPC, ""),
])  # fmt: skip
def test_the_class_of_what_keeps_a_job_from_starting(number, error_class):
    assert start_error_class(OSError(number, "")) == error_class


@pytest.mark.parametrize(("error", "error_class"), [
    (ConnectionResetError(), SERVICE_FAULT), (TimeoutError(), SERVICE_FAULT),
    (OSError(errno.ESTALE, ""), SERVICE_FAULT), (OSError(errno.ENOSPC, ""), ""),
    (ThrottledError("ThrottlingException"), THROTTLING), (ThrottledError("AccessDenied"), ""),
    (ValueError(), ""), (StepError("a", "b", remedy="C."), ""),
])  # fmt: skip
def test_the_class_of_what_a_call_raises(error, error_class):
    assert call_error_class(error) == error_class


# --- runs -------------------------------------------------------------------------------------------------------------


def calling(*policies):
    outputs = [{"OutputName": "said", "OutputType": "String"}]
    return {"Name": "Call", "Type": "Lambda", "Arguments": {}, "FunctionArn": "call", "OutputParameters": outputs,
            "RetryPolicies": list(policies)}  # fmt: skip


def failing(times, error):
    """A function that fails so often, and the list of its calls."""
    calls = []

    def call(event, context):
        calls.append(event)
        if len(calls) <= times:
            raise error
        return {"said": "done"}

    return call


@pytest.mark.parametrize(("error", "error_class"), [
    (ConnectionRefusedError("nobody listens"), SERVICE_FAULT),
    (TimeoutError("no answer"), SERVICE_FAULT),
    (ThrottledError("TooManyRequestsException"), THROTTLING),
])  # fmt: skip
def test_a_function_is_called_again_as_its_class_allows(runs, error, error_class):
    result = runs.run(calling(policy(error_class, MaxAttempts=2)), functions={"call": failing(2, error)})
    assert (result.exit_code, result.steps["Call"].attempts, result.steps["Call"].values) == (0, 3, {"said": "done"})
    expected = [f"Call: {error}; trying again in 0.1 s ({error_class}, retry {number})" for number in (1, 2)]
    assert runs.lines == expected

    result = runs.run(calling(policy(error_class, MaxAttempts=1)), functions={"call": failing(2, error)})
    assert (result.exit_code, result.steps["Call"].attempts) == (1, 2)
    assert result.failure == f"Call: {type(error).__name__}: {error}"


def test_an_error_of_the_function_itself_is_not_retried(runs):
    error = StepError("corpus", "empty", remedy="Add text.")
    result = runs.run(calling(policy(SERVICE_FAULT, THROTTLING)), functions={"call": failing(1, error)})
    assert (result.exit_code, result.steps["Call"].attempts) == (1, 1)
    assert result.failure == "Call: corpus: empty. Add text."


def test_a_killed_job_is_retried_and_an_error_of_its_own_is_not(runs):
    every = [policy(SERVICE_FAULT, THROTTLING, JOB_INTERNAL_ERROR, CAPACITY_ERROR, RESOURCE_LIMIT)]
    marker = runs.folder / "killed"
    code = f"marker = Path({str(marker)!r})\nif not marker.exists():\n    marker.touch()\n    os.kill(os.getpid(), 9)"
    result = runs.run(processing("Killed", code, RetryPolicies=every))
    assert (result.exit_code, result.steps["Killed"].attempts) == (0, 2)
    result = runs.run(processing("Bad", "sys.exit(1)", RetryPolicies=every))
    assert (result.exit_code, result.steps["Bad"].attempts) == (1, 1)


def test_a_signal_ends_the_wait_for_a_retry(runs):
    given = policy(JOB_INTERNAL_ERROR, IntervalSeconds=300)
    process = runs.start(processing("Killed", "os.kill(os.getpid(), 9)", RetryPolicies=[given]))
    runs.wait_for(lambda: "trying again in 5 s" in runs.stderr)
    process.terminate()
    assert process.wait(60) == 143
    # Behind the wait there would have been a second one.
    assert runs.record()["steps"]["Killed"]["attempts"] == 1


LIMITED = """
import os, resource, sys
from pathlib import Path
from pipeline.local.jobs import LocalImage
from pipeline.local.retries import RESOURCE_LIMIT
from small_jobs import SmallRuns, policy, processing
runs = SmallRuns(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
os.setuid(54321)
step = processing("Work", "", RetryPolicies=[policy(RESOURCE_LIMIT, MaxAttempts=2)])
result = runs.run(step, default_image=LocalImage(["/bin/true"]), max_parallel=1)
print(result.exit_code, result.steps["Work"].attempts, *runs.lines, sep="\\n")
"""


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root may become a user with a limit")
def test_a_user_who_may_start_no_more_processes_is_the_class_of_limits():
    """The run is a process with one thread for its steps; a third would be the job."""
    search = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'helpers'}"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, folder], env={**os.environ, "PYTHONPATH": search}, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, attempts, *lines = done.stdout.splitlines()
    assert (code, attempts) == ("1", "3"), done.stdout
    expected = [f"trying again in 0.1 s (SageMaker.RESOURCE_LIMIT, retry {number})" for number in (1, 2)]
    assert [line.rpartition("; ")[2] for line in lines[:2]] == expected
    assert lines[2].startswith("error: Work: [Errno 11] Resource temporarily unavailable")
