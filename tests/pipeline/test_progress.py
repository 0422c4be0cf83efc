"""Progress lines, in a real terminal (tests/helpers/terminal.py) and elsewhere."""

import io
import os
import re

import pytest
from terminal import Terminal, python

from pipeline.execution_record import StepRecord
from pipeline.progress import PlainLines, printable, progress_for

# A run whose steps are told by hand: each line on standard input is code, and the screen is painted after it.
SCRIPT = """
import sys
from pipeline.execution_record import StepRecord
from pipeline.local.job_log import Done
from pipeline.progress import progress_for
progress = progress_for()
names = {names!r}
steps = {{name: StepRecord(name, "Processing") for name in names}}
progress.start(steps, {earlier!r})
for line in sys.stdin:
    exec(line)
    progress.refresh()
    print("painted", flush=True)
progress.stop()
print("the end", file=sys.stderr)
"""
DAG = ("PrepareCorpus", "TrainTokenizer", "ContinuedPretraining")


def started(columns, rows, names=DAG, earlier=None, **environment):
    terminal = Terminal(python(SCRIPT.format(names=names, earlier=earlier or {})), columns, rows, **environment)
    terminal.wait_for("0 of ")
    return terminal


def tell(terminal, code):
    """Gives the script a line of code and waits until it has painted."""
    terminal.send(code)
    assert terminal.answer() == "painted"
    terminal.take()


def steps():
    return {name: StepRecord(name, "Processing") for name in ("PrepareText", "Train")}


def test_plain_lines_tell_each_change_of_state_once():
    stream, records = io.StringIO(), steps()
    progress = PlainLines(stream)
    progress.start(records, {})
    records["PrepareText"].begin()
    records["PrepareText"].reason = "first run"
    progress.refresh()
    progress.refresh()
    records["PrepareText"].metric = "documents=3"
    records["PrepareText"].end("Succeeded")
    progress.stop()

    lines = [re.sub(r" +", " ", line) for line in stream.getvalue().splitlines()]
    assert lines == ["PrepareText Executing first run", "PrepareText Succeeded 0.0 s documents=3"]


def test_what_a_step_prints_does_not_steer_the_terminal():
    assert printable("loss=1\x1b[2Jend\r\nə\x07") == "loss=1\ufffd[2Jend  ə\ufffd"
    stream = io.StringIO()
    progress_for(stream).line("warning: \x1b]0;title\x07 tab\there")
    assert stream.getvalue() == "warning: \ufffd]0;title\ufffd tab here\n"


def test_a_reader_that_has_gone_does_not_end_the_run():
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        progress = PlainLines(stream)
        progress.line("nobody reads this")
        progress.line("nor this")
        # What stays in the stream's own buffer is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


def test_live_lines_show_how_far_a_step_is_and_the_time_left_of_step_and_run():
    terminal = started(110, 24, earlier={"TrainTokenizer": 40.0, "ContinuedPretraining": 100.0})
    tell(terminal, "steps['PrepareCorpus'].begin(); steps['PrepareCorpus'].reason = 'first run'")
    assert "PrepareCorpus         Executing" in terminal.screen.visible[0]
    assert terminal.screen.visible[3] == "0 of 3 steps, 0 s"
    done = "s = steps['PrepareCorpus']; s.progress = Done(1200, 5000, 'documents'); s.seconds_left = 62.0"
    tell(terminal, f"{done}; s.metric = 'loss=3.25'")
    first, *_, last = terminal.screen.visible
    assert re.fullmatch(
        r"PrepareCorpus +Executing +\d+\.\d s  1,200/5,000 documents, 1 min 00 s left  loss=3.25", first
    )
    # Nothing waits for anything here, so that the longest step decides.
    assert re.fullmatch(r"0 of 3 steps, \d s, about 1 min 40 s left", last)
    tell(terminal, "s.end('Succeeded')")
    assert terminal.end()[0] == 0
    assert terminal.screen.visible[3].startswith("1 of 3 steps")
    assert terminal.screen.visible[4] == "the end"
    assert len([line for line in terminal.screen.lines if line.startswith("PrepareCorpus")]) == 1


@pytest.mark.parametrize("columns", [40, 24, 9])
def test_a_narrow_terminal_gets_a_line_a_step_and_none_is_wrapped(columns):
    terminal = started(columns, 24)
    code = "s = steps['ContinuedPretraining']; s.begin(); s.progress = Done(20, 400, 'steps'); s.seconds_left = 42.0"
    tell(terminal, f"{code}; s.metric = 'loss=3.25 ' * 30")
    tell(terminal, "s.metric = 'loss=3.50 ' * 30")
    visible = terminal.screen.visible
    assert len(visible) == 4
    assert all(len(line) < columns for line in visible)
    if columns == 40:
        assert visible[2] == "ContinuedPretraining  5%, 40 s"
    assert terminal.end()[0] == 0


def test_more_steps_than_rows_show_those_at_work_and_how_many_are_not_shown():
    names = tuple(f"Step{number:02d}" for number in range(30))
    terminal = started(80, 10, names)
    for number in range(25):
        tell(terminal, f"steps['Step{number:02d}'].begin(); steps['Step{number:02d}'].end('Succeeded')")
    tell(terminal, "steps['Step25'].begin(); steps['Step29'].begin(); steps['Step28'].state = 'Failed'")
    visible = terminal.screen.visible
    assert len(visible) <= 10
    shown = [line.split()[0] for line in visible if line.startswith("Step")]
    assert len(shown) == 8
    assert {"Step25", "Step28", "Step29"} <= set(shown)
    assert shown == sorted(shown)
    assert visible[-1].endswith("22 not shown")
    assert terminal.screen.lines[0].startswith("Step"), "nothing has scrolled off"
    assert terminal.end()[0] == 0
    # At the end every step has its line.
    assert [line.split()[0] for line in terminal.screen.lines if line.startswith("Step")] == list(names)


def test_a_line_of_any_length_stands_above_the_steps():
    terminal = started(50, 12)
    tell(terminal, "progress.line('PrepareCorpus: warning: repeated: ' + 'word ' * 30)")
    tell(terminal, "steps['PrepareCorpus'].begin()")
    tell(terminal, "progress.line('second'); steps['PrepareCorpus'].end('Cached')")
    rows = terminal.screen.lines
    assert "".join(rows[:4]).startswith("PrepareCorpus: warning: repeated: word word")
    assert rows[4] == "second"
    assert [line.split()[0] for line in rows[5:8]] == list(DAG)
    assert len(rows) == 9
    assert terminal.end()[0] == 0


def test_resizing_leaves_no_torn_lines():
    """Wider: painted over. Narrower: the terminal has wrapped the old lines; they stay, and whole new ones follow."""
    terminal = started(60, 20)
    tell(terminal, "s = steps['PrepareCorpus']; s.begin(); s.metric = 'loss=3.25 ' * 30")
    terminal.resize(100, 20)
    for _ in range(3):
        tell(terminal, "s.metric += ' '")
    assert len(terminal.screen.lines) == 4
    assert len(terminal.screen.lines[0]) > 60
    terminal.resize(70, 20)
    for _ in range(4):
        tell(terminal, "s.metric += ' '")
    last = terminal.screen.lines[-4:]
    assert [line.split()[0] for line in last] == [*DAG, "0"]
    assert all(len(line) < 70 for line in last)
    # Its five wrapped rows and the four new ones; every row belongs to the one or the other.
    assert len(terminal.screen.lines) == 9
    assert terminal.end()[0] == 0


def test_a_terminal_gets_colours_and_no_color_takes_them_away():
    coloured = started(80, 24)
    tell(coloured, "steps['PrepareCorpus'].begin(); steps['PrepareCorpus'].end('Succeeded')")
    coloured.end()
    assert "\x1b[32mPrepareCorpus" in coloured.received
    plain = started(80, 24, NO_COLOR="1", FORCE_COLOR="1")
    tell(plain, "steps['PrepareCorpus'].begin(); steps['PrepareCorpus'].end('Succeeded')")
    plain.end()
    assert not re.search(r"\x1b\[[0-9;]*m", plain.received)
    assert "\x1b[J" in plain.received, "the lines still stay in place"


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_dumb_terminal_gets_printed_lines(name):
    terminal = Terminal(python(SCRIPT.format(names=DAG, earlier={})), 80, 24, TERM=name)
    tell(terminal, "steps['PrepareCorpus'].begin(); steps['PrepareCorpus'].reason = 'first run'")
    assert terminal.end()[0] == 0
    assert "\x1b" not in terminal.received
    assert re.search(r"PrepareCorpus +Executing +first run", terminal.received)


def test_the_cursor_is_never_left_hidden():
    terminal = started(80, 24)
    tell(terminal, "steps['PrepareCorpus'].begin()")
    terminal.process.kill()
    terminal.end()
    assert terminal.received.rindex("\x1b[?25h") > terminal.received.rindex("\x1b[?25l")


def test_letters_that_the_terminal_lacks_keep_the_lines_in_their_columns():
    terminal = started(80, 24, PYTHONIOENCODING="ascii")
    tell(terminal, r"s = steps['PrepareCorpus']; s.begin(); s.metric = 's\xf6z=\u0259 ' * 30")
    first = terminal.screen.visible[0]
    assert len(first) == 79
    assert "s?z=?" in first
    assert terminal.end()[0] == 0


def test_a_stream_that_is_no_terminal_gets_plain_lines_whatever_is_forced():
    code = SCRIPT.format(names=DAG, earlier={}).replace("progress_for()", "progress_for(sys.stdout)")
    for environment, expected in (
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ):
        terminal = Terminal(python(code), 80, 24, **environment)
        terminal.send("steps['PrepareCorpus'].begin()")
        code_, output = terminal.end()
        assert code_ == 0
        assert "PrepareCorpus" in output
        assert bool(re.search(r"\x1b\[[0-9;]*m", output)) == expected
        assert not re.search(r"\x1b\[[0-9;?]*[A-LJKhl]", output)


def test_a_passing_line_gives_way_to_the_next_and_leaves_nothing():
    code = """
import sys
from pipeline.progress import progress_for
progress = progress_for()
progress.line("Making the sample's base model")
progress.passing("step=20 loss=5.5")
progress.passing("step=40")
print("shown", flush=True)
sys.stdin.readline()
progress.line("kept")
progress.passing("")
"""
    terminal = Terminal(python(code), 60, 24)
    assert terminal.answer() == "shown"
    terminal.take()
    assert terminal.screen.visible == ["Making the sample's base model", "step=40"]
    terminal.send("go on")
    assert terminal.end()[0] == 0
    assert [line for line in terminal.screen.visible if line] == ["Making the sample's base model", "kept"]
    piped = Terminal(python(code.replace("progress_for()", "progress_for(sys.stdout)")), 60, 24)
    piped.send("go on")
    assert piped.end()[1].splitlines() == ["Making the sample's base model", "shown", "kept"]
