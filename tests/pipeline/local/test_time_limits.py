"""StoppingCondition.MaxRuntimeInSeconds on this machine: an attempt that goes on for longer is ended."""

import json
import time

import pytest
from small_jobs import SmallRuns, policy, processing, states, training

from pipeline.config import load_config
from pipeline.local.retries import CAPACITY_ERROR, JOB_INTERNAL_ERROR, RESOURCE_LIMIT, SERVICE_FAULT, THROTTLING
from pipeline.local.run import time_limit_settings

ALL_CLASSES = (SERVICE_FAULT, THROTTLING, JOB_INTERNAL_ERROR, CAPACITY_ERROR, RESOURCE_LIMIT)
FIRST = processing("First", "(output / 'a.txt').write_text('a')")
HANGS = "import threading; threading.Event().wait()"
# Counts on from its checkpoint, one a tenth of a second, for two minutes, or a little where it goes on; SIGTERM ends it
# behind a checkpoint.
COUNTS = """
class Stopped(Exception):
    pass
def stop(number, frame):
    raise Stopped
signal.signal(signal.SIGTERM, stop)
kept = checkpoints / "count.txt"
count = began = int(kept.read_text()) if kept.exists() else 0
try:
    while count < (began + 5 if began else 1200):
        time.sleep(0.1)
        count += 1
except Stopped:
    kept.write_text(str(count))
    sys.exit(143)
(output / "count.txt").write_text(f"{began} {count}")
"""


@pytest.fixture
def runs(tmp_path):
    return SmallRuns(tmp_path)


def test_a_step_that_hangs_is_ended_in_one_line_and_the_next_run_goes_on(runs):
    began = time.monotonic()
    result = runs.run(FIRST, processing("Slow", HANGS, "First", limit=1, RetryPolicies=[policy(*ALL_CLASSES)]))

    # Left alone it would hang for ever, and a stop that it did not heed would take 45 s.
    assert time.monotonic() - began < 30
    assert (result.exit_code, states(result)) == (1, {"First": "Succeeded", "Slow": "Failed"})
    # No error class covers it, so that no policy retries it.
    assert result.steps["Slow"].attempts == 1
    line, _, log = result.failure.partition(" (log: ")
    ran = float(line.split()[2])
    assert 1 < ran < 30
    assert line == (
        f"Slow: ran {ran:.1f} s; limit 1 s (StoppingCondition.MaxRuntimeInSeconds). Raise it in the definition and run "
        "again: finished steps are kept, and a step that writes checkpoints goes on from them."
    )
    assert log
    assert runs.lines == [f"error: {result.failure}"]
    assert not runs.processes("Slow")

    before = runs.files()
    result = runs.run(FIRST, processing("Slow", HANGS, "First", limit=1), limit_settings={"Slow": "slow.seconds"})
    assert "Raise slow.seconds and run again" in result.failure
    assert runs.files() == before
    # Another limit is no other work: what is kept still serves.
    result = runs.run(FIRST, processing("Slow", "time.sleep(1.2)", "First", limit=20))
    assert states(result) == {"First": "Cached", "Slow": "Succeeded"}


def test_a_limit_is_no_part_of_the_key(runs):
    runs.run(processing("First", "(output / 'a.txt').write_text('a')", limit=20))
    assert states(runs.run(FIRST)) == {"First": "Cached"}


def test_training_writes_its_checkpoint_at_the_limit_and_goes_on_from_it(runs):
    result = runs.run(training("Count", COUNTS, limit=2))
    assert (result.exit_code, states(result)) == (1, {"Count": "Failed"})
    count = int((runs.run_folder / "s3/b/checkpoints/Count/count.txt").read_text())
    assert 0 < count < 1200

    result = runs.run(training("Count", COUNTS, limit=30))
    assert result.exit_code == 0
    assert (result.outputs["Count"]["model"] / "count.txt").read_text() == f"{count} {count + 5}"


def test_each_attempt_has_the_whole_limit(runs):
    """Two attempts of 1.2 s under a limit of 2 s."""
    code = "time.sleep(1.2)\nif not (marker := Path({!r})).exists():\n    marker.touch(); os.kill(os.getpid(), 9)"
    code = code.format(str(runs.folder / "killed"))
    result = runs.run(processing("Twice", code, limit=2, RetryPolicies=[policy(JOB_INTERNAL_ERROR)]))
    assert (result.exit_code, result.steps["Twice"].attempts) == (0, 2)
    assert result.steps["Twice"].seconds > 2.4


def test_the_settings_that_a_line_names_are_those_of_the_definition(compiled_text):
    definition, config = json.loads(compiled_text("azerbaijani-1b-p4d")), load_config("azerbaijani-1b-p4d")
    settings = time_limit_settings(definition)
    limits = {
        step["Name"]: step["Arguments"]["StoppingCondition"]["MaxRuntimeInSeconds"]
        for step in definition["Steps"]
        if step["Type"] in ("Processing", "Training")
    }
    assert set(settings) == set(limits)
    assert settings["ContinuedPretraining"] == "compute.continued_pretraining.max_runtime_seconds"
    for step, setting in settings.items():
        _, section, field = setting.split(".")
        assert getattr(getattr(config.compute, section), field) == limits[step]
