"""What running steps tell: their warnings once, as they appear; their progress; the newest attempt's alone."""

import json
import re

from small_jobs import RUN, SmallRuns, policy, processing
from terminal import Terminal, python

from pipeline.local.job_log import Done, LogFollower
from pipeline.summary import summary_lines

WARNING = "import sys; print('warning: mojibake: 3 of 40 documents. Save them as UTF-8.', file=sys.stderr, flush=True)"
WRITE = "(output / 'a.txt').write_text('a')"


def test_a_warning_is_told_once_and_stands_in_record_json_and_summary(tmp_path):
    runs = SmallRuns(tmp_path)
    step = processing("Read", f"{WARNING}; {WARNING}; time.sleep(0.3); {WARNING}; {WRITE}")
    result = runs.run(step, processing("Quick", f"{WARNING}; {WRITE}", "Read"))
    text = "warning: mojibake: 3 of 40 documents. Save them as UTF-8."
    assert [line for line in runs.lines if "warning" in line] == [f"Read: {text}", f"Quick: {text}"]
    assert runs.record()["steps"]["Read"]["warnings"] == [text.removeprefix("warning: ")]
    assert result.as_json()["warnings"] == [
        {"step": name, "name": "mojibake", "message": "3 of 40 documents. Save them as UTF-8."}
        for name in ("Read", "Quick")
    ]
    expected = [f"  {name}: {text.removeprefix('warning: ')}" for name in ("Read", "Quick")]
    assert summary_lines(result, tmp_path)[:3] == ["2 warnings:", *expected]

    # From the cache: in the summary, told no second time.
    again = runs.run(step, processing("Quick", f"{WARNING}; {WRITE}", "Read"))
    assert {record.state for record in again.steps.values()} == {"Cached"}
    assert not [line for line in runs.lines if "warning" in line]
    assert summary_lines(again, tmp_path)[0] == "2 warnings:"


def test_a_failed_step_s_warning_comes_before_why_it_failed_and_is_recorded(tmp_path):
    runs = SmallRuns(tmp_path)
    line = "error: text: 3 lines; limit 5. Add text."
    message = f"(root / 'output').mkdir(exist_ok=True); (root / 'output/message').write_text({line!r})"
    result = runs.run(processing("Read", f"{WARNING}; {message}; sys.exit(1)"))
    assert runs.lines[0].startswith("Read: warning: mojibake")
    assert "Read: text: 3 lines; limit 5. Add text. (log: " in runs.lines[1]
    failure = json.loads(json.dumps(result.as_json()))["failure"]
    assert failure == {
        "line": result.failure, "subject": "text", "value": "3 lines", "limit": "5", "remedy": "Add text.",
        "exit_code": 1, "step": "Read", "log": str(result.steps["Read"].log),
    }  # fmt: skip
    assert len(result.as_json()["warnings"]) == 1


def test_a_retried_step_tells_a_warning_once(tmp_path):
    runs = SmallRuns(tmp_path)
    mark = tmp_path / "killed"
    kill = f"there = Path({str(mark)!r}); first = not there.exists(); there.touch(); first and os.kill(os.getpid(), 9)"
    step = processing("Read", f"{WARNING}; {kill}; {WRITE}", RetryPolicies=[policy("SageMaker.JOB_INTERNAL_ERROR")])
    result = runs.run(step)
    assert result.exit_code == 0
    assert result.steps["Read"].attempts == 2
    assert len([line for line in runs.lines if line.startswith("Read: warning")]) == 1


def test_the_follower_reads_bit_by_bit_and_only_its_own_execution(tmp_path):
    log = tmp_path / "log.txt"
    follower = LogFollower(log, "abc")
    follower.read()
    log.write_text("--- pipelines-old-Train 2026\nprogress: 90/100 steps\nwarning: old: gone\n")
    follower.read()
    assert (follower.progress, follower.warnings) == (None, [])
    with log.open("a") as stream:
        stream.write("--- pipelines-abc-Train 2026\nprogress: 1/100 steps\nmetrics: loss=3\nprogress: 2/1")
        stream.flush()
        follower.read()
        assert follower.progress == Done(1, 100, "steps")
        stream.write("00 steps\nwarning: new: here\nwarning: new: here\nprogress: 3 of 100\nbar: 5%\r10%")
        stream.flush()
        follower.read()
    assert (follower.progress, follower.metric, follower.warnings) == (Done(2, 100, "steps"), "loss=3", ["new: here"])
    with log.open("a") as stream:
        stream.write("\n--- pipelines-abc-Train 2026\n")
    follower.read()
    assert (follower.progress, follower.metric, follower.warnings) == (None, "", [])


def test_a_run_in_a_terminal_shows_progress_time_left_and_warnings_of_its_steps(tmp_path):
    runs = SmallRuns(tmp_path)
    tell = "[(print(f'progress: {done}/50 parts', flush=True), time.sleep(0.1)) for done in range(51)]"
    definition = {"Steps": [processing("Read", f"{WARNING}; {tell}; {WRITE}")]}
    terminal = Terminal(python(RUN), 100, 24, NO_COLOR="1")
    terminal.send(json.dumps([definition, str(runs.folder), {}, {}]))
    terminal.process.stdin.close()
    terminal.wait_for(" parts, ")
    shown = next(line for line in terminal.screen.visible if " parts, " in line)
    done, left = re.search(r"(\d+)/50 parts, (\d+) s left", shown).groups()
    # A tenth of a second a part, on a machine that may be busy.
    assert (50 - int(done)) * 0.1 - 1 <= int(left) <= (50 - int(done)) * 0.3 + 1
    assert terminal.end()[0] == 0
    assert terminal.screen.lines[0] == "Read: warning: mojibake: 3 of 40 documents. Save them as UTF-8."
    assert terminal.screen.lines[1].startswith("Read  Succeeded")
    assert terminal.screen.lines[2].startswith("1 of 1 steps")
