"""A job's cache key, its retries, and that no process of one attempt goes on beside the next."""

import json
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from small_jobs import SmallRuns, processing, states

from pipeline.local.environment import (
    DISTRIBUTIONS,
    environment_digest,
    installed_versions,
    launcher_texts,
    local_image,
)
from pipeline.local.execution import Execution
from pipeline.local.executor import run_definition
from pipeline.local.job_spec import JobSpec
from pipeline.local.job_steps import key_members
from pipeline.local.jobs import Job, LocalImage
from pipeline.local.orphans import end_orphans
from pipeline.local.processes import has_members, process_identity, record_processes
from pipeline.local.stopping import Stopping
from pipeline.local.uri_folders import UriFolders
from pipeline.progress import Quiet
from pipeline.references import Scope
from pipeline.registry import LocalRegistry

ROOT = Path(__file__).parents[3]
# Starts a step in its own process group, tells its id, and is killed before it can end it.
KILLED_LAUNCHER = """
import os, pathlib, signal, subprocess, sys, time
step = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
place = pathlib.Path(os.environ["OPT_ML"], "step.txt")
place.with_name("aside").write_text(str(step.pid))
place.with_name("aside").rename(place)
os.kill(os.getpid(), signal.SIGKILL)
"""


def job_spec(*arguments):
    return JobSpec(
        step="Work", kind="Processing", job_name="job", image="", arguments=list(arguments), hyperparameters={},
        environment={}, inputs=[], outputs=[], synced=[], instance_type="", instance_count=1, request={},
    )  # fmt: skip


def members(tmp_path, *arguments):
    execution = Execution(
        result=None, scope=Scope({}, {}), stable=Scope({}, {}), uris=UriFolders(tmp_path, {}), images={},
        default_image=None, functions={}, registry=LocalRegistry(tmp_path), environment={}, progress=Quiet(),
        force=False,
    )  # fmt: skip
    found = key_members(job_spec(*arguments), job_spec(*arguments), LocalImage([]), execution)
    return {name: value for name, value in found.items() if name.startswith("argument")}


def test_each_value_of_a_repeated_flag_counts(tmp_path):
    assert members(tmp_path, "--path=a", "--seed=0", "--path=b", "word") == {
        "argument --path": "a", "argument --seed": "0", "argument 2 --path": "b", "argument 3": "word",
    }  # fmt: skip
    keys = [("--path=a", "--path=b"), ("--path=c", "--path=b"), ("--path=b",), ("--path=b", "--path=a")]
    assert len({json.dumps(members(tmp_path, *words), sort_keys=True) for words in keys}) == len(keys)


@pytest.mark.parametrize(
    "change", [{"S3DataDistributionType": "ShardedByS3Key"}, {"LocalPath": "/opt/ml/processing/input/elsewhere"}]
)
def test_an_input_that_is_given_in_another_way_is_another_input(tmp_path, change):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("a")
    lists = "(output / 'names').write_text(str([str(path.relative_to(root)) for path in root.rglob('a.txt')]))"
    step, runs = processing("Lists", lists), SmallRuns(tmp_path)
    source = {"S3Uri": (tmp_path / "text").as_uri(), "LocalPath": "/opt/ml/processing/input/text"}
    step["Arguments"]["ProcessingInputs"] = [{"InputName": "text", "S3Input": source}]
    assert [states(runs.run(step))["Lists"] for _ in range(2)] == ["Succeeded", "Cached"]
    source |= change
    record = runs.run(step).steps["Lists"]
    assert (record.state, record.reason) == ("Succeeded", "changed: input text, as given")


# --- when a step is done ----------------------------------------------------------------------------------------------


def test_the_next_step_begins_when_all_is_known_of_the_one_before_however_long_its_log(tmp_path):
    """Reading such a log takes longer than the executor waits between two looks at the states."""
    runs = SmallRuns(tmp_path)
    first = processing("First", "print('warning: odd: a thing'); print('x\\n' * 1_500_000); (output / 'a').touch()")
    second = processing("Second", "(output / 'b').touch()", "First")
    for state in ("Succeeded", "Cached"):
        result = runs.run(first, second)
        assert (result.exit_code, states(result)) == (0, {"First": state, "Second": state}), result.failure
        # Kept in the seal, so that a cached step's log need not be read.
        assert result.steps["First"].warnings == ["odd: a thing"]


# --- the environment --------------------------------------------------------------------------------------------------


def test_the_environment_is_known_by_every_distribution_that_the_package_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    names = [requirement.split(">")[0].split("=")[0].split("<")[0].strip() for requirement in required]
    assert sorted(DISTRIBUTIONS) == sorted(names)


def test_another_version_is_another_environment():
    versions = installed_versions([*DISTRIBUTIONS, "no-such-distribution-anywhere"])
    assert versions.pop("no-such-distribution-anywhere") is None
    assert versions["pydantic"]
    launcher = launcher_texts()
    digest = environment_digest(versions, launcher)
    assert local_image().digest == digest
    for name in DISTRIBUTIONS:
        assert environment_digest({**versions, name: "0"}, launcher) != digest
    assert set(launcher) == {path.name for path in (ROOT / "containers").glob("*.py")}
    for name, text in launcher.items():
        assert environment_digest(versions, {**launcher, name: text + "\n"}) != digest


# --- retries and what is left of an attempt ---------------------------------------------------------------------------


def test_a_killed_step_is_tried_again_once_whatever_the_policy_allows(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    policy = {"BackoffRate": 1.0, "IntervalSeconds": 0, "MaxAttempts": 5}
    arguments = {
        "AppSpecification": {"ImageUri": "image"},
        "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"}},
    }
    step = {"Name": "Bad", "Type": "Processing", "Arguments": arguments}
    step["RetryPolicies"] = [{**policy, "ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"]}]
    result = run_definition(
        {"Steps": [step]}, run_folder=tmp_path / "run", registry=LocalRegistry(tmp_path / "registry"),
        default_image=LocalImage([sys.executable, str(worker)]), progress=Quiet(),
    )  # fmt: skip
    assert (result.steps["Bad"].attempts, result.exit_code) == (2, 1)
    assert result.failure.startswith("Bad: killed by SIGKILL")


@pytest.fixture
def killed_job(tmp_path):
    worker = tmp_path / "launcher.py"
    worker.write_text(KILLED_LAUNCHER)
    image = LocalImage([sys.executable, str(worker)])
    return Job(job_spec(), tmp_path / "jobs/Work/0123", image, UriFolders(tmp_path, {}), {})


def test_the_step_of_a_killed_launcher_has_ended_before_the_next_attempt(killed_job):
    killed_job.lay_out()
    assert killed_job.run(threading.Event()) == -9
    step = int((killed_job.root("algo-1") / "step.txt").read_text())
    assert process_identity(step) is None


def test_what_a_killed_run_left_of_a_dead_leader_ends_before_the_next_run(killed_job, tmp_path):
    root = tmp_path / "before"
    root.mkdir()
    command = killed_job.image.command
    # The leader waits for a word, so that its identity can be noted while it lives.
    leader = subprocess.Popen(
        [command[0], "-c", f"import sys; sys.stdin.readline(); exec(open({str(command[1])!r}).read())"],
        env={"OPT_ML": str(root)}, stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    killed_job.folder.mkdir(parents=True)
    record_processes(killed_job.folder / "processes.json", [leader.pid])
    leader.communicate(b"go\n")
    assert process_identity(leader.pid) is None
    assert has_members(leader.pid)
    step = int((root / "step.txt").read_text())

    lines = []
    end_orphans(tmp_path, Stopping(), lines.append)
    assert process_identity(step) is None
    assert not has_members(leader.pid)
    assert lines == [f"Ending 1 process that an earlier run in {tmp_path} left"]


def test_waiting_for_what_a_killed_run_left_ends_with_the_first_signal(killed_job, tmp_path):
    ignores = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(120)"
    orphan = subprocess.Popen([sys.executable, "-c", ignores], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert orphan.stdout.readline() == b"on\n"
        killed_job.folder.mkdir(parents=True)
        record_processes(killed_job.folder / "processes.json", [orphan.pid])
        stopping = Stopping()
        stopping.note(2)
        end_orphans(tmp_path, stopping, lambda line: None)
        assert orphan.poll() is None
        stopping.note(2)
        # Killed, it is still to be waited for by this process.
        threading.Thread(target=orphan.wait).start()
        end_orphans(tmp_path, stopping, lambda line: None)
        assert orphan.wait(60) == -9
    finally:
        orphan.kill()
        orphan.wait()
        orphan.stdout.close()


def test_a_group_whose_number_is_somebody_elses_now_is_left_alone(killed_job, tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        killed_job.folder.mkdir(parents=True)
        record = killed_job.folder / "processes.json"
        record.write_text(json.dumps([{"process_id": other.pid, "identity": "another start"}]))
        end_orphans(tmp_path, Stopping(), lambda line: None)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
