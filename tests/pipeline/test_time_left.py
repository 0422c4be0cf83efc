"""Time left: of a step by its own pace, of a run by that and by earlier runs."""

import json
import os

import pytest

from pipeline.execution_record import StepRecord
from pipeline.time_left import Pace, earlier_seconds, elapsed_text, run_seconds_left, seconds_text


def test_an_even_pace_gives_the_time_that_is_left_and_counts_down():
    pace = Pace()
    for second in range(11):
        pace.tell(100.0 + second, 3 * second)
    assert pace.seconds_left(110.0, 300) == pytest.approx((300 - 30) / 3)
    assert pace.seconds_left(110.5, 300) == pytest.approx((300 - 30) / 3 - 0.5)


def test_there_is_no_estimate_before_it_is_worth_showing():
    pace = Pace()
    pace.tell(0.0, 0)
    pace.tell(20.0, 1)
    assert pace.seconds_left(20.0, 100) is None
    quick = Pace()
    for number in range(10):
        quick.tell(number / 10, number)
    assert quick.seconds_left(0.9, 1_000) is None


def test_what_was_done_before_the_first_telling_does_not_count_as_speed():
    """A training that goes on from step 500 after a minute of imports has not done 500 steps in a minute."""
    pace = Pace()
    for second in range(6):
        pace.tell(60.0 + second, 500 + second)
    assert pace.seconds_left(65.0, 1_000) == pytest.approx(495)


def test_a_new_attempt_begins_anew_and_a_slower_phase_is_followed():
    pace = Pace()
    for second in range(6):
        pace.tell(float(second), 10 * second)
    pace.tell(6.0, 0)
    assert pace.seconds_left(6.0, 100) is None
    for second in range(7, 200):
        pace.tell(float(second), second - 6)
    assert pace.seconds_left(199.0, 300) == pytest.approx(300 - 193, rel=0.01)


def test_work_that_tells_nothing_for_long_is_slower_than_it_was():
    pace = Pace()
    for second in range(5):
        pace.tell(float(second), second)
    soon, late = pace.seconds_left(4.0, 8), pace.seconds_left(24.0, 8)
    assert soon == pytest.approx(4.0)
    assert late == pytest.approx((4 + 19) / 4 * 4 - 1)


def record(name, state, needs=(), kind="Processing", seconds_left=None):
    made = StepRecord(name, kind, state=state, needs=frozenset(needs))
    made.seconds_left = seconds_left
    return made


def test_a_run_takes_its_longest_way():
    steps = {
        "Read": record("Read", "Succeeded"),
        "Cut": record("Cut", "Executing", ["Read"], seconds_left=5.0),
        "Draw": record("Draw", "Waiting", ["Read"]),
        "Train": record("Train", "Waiting", ["Cut", "Draw"]),
        "Gate": record("Gate", "Waiting", ["Train"], kind="Condition"),
    }
    assert run_seconds_left(steps, {"Draw": 20.0, "Train": 100.0}) == pytest.approx(120.0)
    assert run_seconds_left(steps, {"Draw": 1.0, "Train": 100.0}) == pytest.approx(105.0)
    # A job that has never run: no number rather than a wrong one.
    assert run_seconds_left(steps, {"Draw": 20.0}) is None


def test_the_seconds_of_earlier_runs_are_those_of_the_newest_that_ran_the_step(tmp_path):
    folder = tmp_path / "executions"
    folder.mkdir()
    for age, steps in ((30, {"A": ("Succeeded", 7.0), "B": ("Succeeded", 9.0)}), (20, {"A": ("Cached", 0.0)}),
                       (10, {"B": ("Failed", 1.0), "C": ("Succeeded", 3.0)})):  # fmt: skip
        path = folder / f"{age}.json"
        content = {name: {"state": state, "seconds": seconds} for name, (state, seconds) in steps.items()}
        path.write_text(json.dumps({"steps": content}))
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    (folder / "torn.json").write_text("{")
    assert earlier_seconds(tmp_path) == {"A": 7.0, "B": 9.0, "C": 3.0}
    assert earlier_seconds(tmp_path / "new") == {}


def test_times_are_told_no_finer_than_they_are_known():
    shown = [seconds_text(seconds) for seconds in (0.2, 7.4, 43, 59, 199, 597, 3_000, 7_505, 200_000)]
    assert shown == ["1 s", "7 s", "45 s", "60 s", "3 min 20 s", "10 min 00 s", "50 min", "2 h 05 min", "2 d 7 h"]
    assert [elapsed_text(seconds) for seconds in (0.4, 65, 3_661)] == ["0 s", "1 min 05 s", "1 h 01 min"]
