"""Progress lines, on a terminal and elsewhere."""

import io
import re

from rich.console import Console

from pipeline.execution_record import StepRecord
from pipeline.progress import LiveLines, PlainLines, progress_for


def steps():
    return {name: StepRecord(name, "Processing") for name in ("PrepareText", "Train")}


def test_plain_lines_tell_each_change_of_state_once():
    stream, records = io.StringIO(), steps()
    progress = PlainLines(stream)
    progress.start(records)
    records["PrepareText"].begin()
    records["PrepareText"].reason = "first run"
    progress.refresh()
    progress.refresh()
    records["PrepareText"].metric = "documents=3"
    records["PrepareText"].end("Succeeded")
    progress.stop()

    lines = [re.sub(r" +", " ", line) for line in stream.getvalue().splitlines()]
    assert lines == ["PrepareText Executing first run", "PrepareText Succeeded 0.0 s documents=3"]


def test_live_lines_keep_name_state_and_seconds_and_cut_the_rest():
    stream, records = io.StringIO(), steps()
    progress = LiveLines(Console(file=stream, force_terminal=True, width=60, no_color=True))
    progress.start(records)
    records["PrepareText"].begin()
    records["PrepareText"].metric = "loss=3.25 " * 30
    progress.refresh()
    progress.line("PrepareText: out/[a] has 5 bytes")
    progress.stop()

    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    shown = re.split(r"[\r\n]+", plain)
    assert "PrepareText: out/[a] has 5 bytes" in shown
    last = [line for line in shown if line.startswith("PrepareText  ")][-1]
    assert re.fullmatch(r"PrepareText  Executing +\d+\.\d s  loss=3\.25 .*…", last)
    assert len(last) == 60


def test_a_stream_that_is_no_terminal_gets_plain_lines():
    assert isinstance(progress_for(io.StringIO()), PlainLines)
