"""Selective execution: --from STEP, and --only STEP repeated."""

import os

import pytest
from small_jobs import SmallRuns, processing, states, training

from pipeline.local.selection import select
from pipeline.step_graph import build_graph
from steps.contract import ConfigError

WRITES = "(output / 'a.txt').write_text({!r})"
# Counts from its checkpoint to five; tells where it began.
COUNTS = """
kept = checkpoints / "count.txt"
began = int(kept.read_text()) if kept.exists() else 0
for count in range(began + 1, 6):
    kept.write_text(str(count))
    if count == 3 and Path({!r}).exists():
        os.kill(os.getpid(), signal.SIGKILL)
(output / "count.txt").write_text(str(began))
"""


@pytest.fixture
def runs(tmp_path):
    return SmallRuns(tmp_path)


def gate(name, step, *, needs=(), then=(), otherwise=()):
    """Open: the text of a property file is ok."""
    value = {"Std:JsonGet": {"PropertyFile": {"Get": f"Steps.{step}.PropertyFiles.Report"}, "Path": "state"}}
    condition = {"Type": "Equals", "LeftValue": value, "RightValue": "ok"}
    arguments = {"Conditions": [condition], "IfSteps": list(then), "ElseSteps": list(otherwise)}
    return {"Name": name, "Type": "Condition", "Arguments": arguments, "DependsOn": list(needs)}


def calling(name):
    return {"Name": name, "Type": "Lambda", "Arguments": {}, "FunctionArn": "call", "OutputParameters": []}


def reports(name, *needs, state="ok", **more):
    files = [{"PropertyFileName": "Report", "OutputName": "out", "FilePath": "report.json"}]
    code = f"(output / 'report.json').write_text('{{\"state\": \"{state}\"}}')"
    return processing(name, code, *needs, PropertyFiles=files, **more)


CLOSED = {"Name": "Closed", "Type": "Fail", "Arguments": {"ErrorMessage": "closed"}}


def dag(middle="b"):
    """Call; A -> B -> C -> Gate -> After or Closed; A -> D -> C; Aside by itself."""
    return [
        calling("Call"),
        processing("A", WRITES.format("a"), DependsOn=["Call"]),
        processing("B", WRITES.format(middle), "A"),
        processing("D", WRITES.format("d"), "A"),
        reports("C", "B", "D"),
        processing("Aside", WRITES.format("aside")),
        gate("Gate", "C", then=[processing("After", WRITES.format("after"))], otherwise=[CLOSED]),
    ]


def run(runs, steps, **options):
    calls = []
    result = runs.run(*steps, functions={"call": lambda event, context: calls.append(1) or {}}, **options)
    assert len(calls) == (0 if result.steps["Call"].state == "NotRun" else 1)
    return result


# --- what is selected -------------------------------------------------------------------------------------------------


def test_from_takes_the_step_and_all_below_it():
    chosen = select(build_graph({"Steps": dag()}), "B", ())
    assert chosen.chosen == {"B", "C", "Gate", "After", "Closed"}
    assert chosen.needed == {"Call", "A", "D"}
    assert chosen.first == chosen.needed
    assert str(chosen) == "--from B"


def test_only_takes_the_steps_named():
    chosen = select(build_graph({"Steps": dag()}), None, ["A", "C"])
    assert chosen.chosen == {"A", "C"}
    assert chosen.needed == {"Call", "B", "D"}
    # B and D are below A: whether the cache has them is known when A is done.
    assert chosen.first == {"Call"}
    assert str(chosen) == "--only A --only C"


@pytest.mark.parametrize(("from_step", "only", "line"), [
    ("Gat", [], "--from: Gat; limit a step of the definition. Did you mean Gate?"),
    (None, ["A", "Asid"], "--only: Asid; limit a step of the definition. Did you mean Aside?"),
    ("A", ["B"], "--from: A with --only B; limit one of the two. Give one of them."),
])  # fmt: skip
def test_refused_before_anything_is_written(runs, from_step, only, line):
    with pytest.raises(ConfigError) as caught:
        runs.run(*dag(), from_step=from_step, only=only, functions={"call": lambda event, context: {}})
    assert str(caught.value) == line
    assert not runs.run_folder.exists()


def test_a_step_that_registers_cannot_come_from_the_cache():
    keep = {"Name": "Keep", "Type": "RegisterModel", "Arguments": {}, "DependsOn": ["A"]}
    steps = [*dag(), keep, processing("Last", "", DependsOn=["Keep"])]
    with pytest.raises(ConfigError, match=r"Keep: a step of type RegisterModel is needed and never cached\. Select it"):
        select(build_graph({"Steps": steps}), None, ["Last"])


# --- runs -------------------------------------------------------------------------------------------------------------


def test_from_runs_what_is_cached_again_and_nothing_else(runs):
    run(runs, dag())
    result = run(runs, dag(), from_step="B")

    assert result.exit_code == 0
    assert states(result) == {
        "Call": "Succeeded", "A": "Cached", "B": "Succeeded", "D": "Cached", "C": "Succeeded", "Gate": "Succeeded",
        "After": "Succeeded", "Closed": "Skipped", "Aside": "NotRun",
    }  # fmt: skip
    assert result.steps["B"].reason == "--from B"
    assert (result.selection, runs.record()["selection"]) == ("--from B", "--from B")


def test_only_runs_the_steps_named_and_takes_what_they_need_from_the_cache(runs):
    run(runs, dag())
    result = run(runs, dag(), only=["C", "Aside"])

    assert result.exit_code == 0
    assert states(result) == {
        "Call": "Succeeded", "A": "Cached", "B": "Cached", "D": "Cached", "C": "Succeeded", "Aside": "Succeeded",
        "Gate": "NotRun", "After": "NotRun", "Closed": "NotRun",
    }  # fmt: skip


def test_a_branch_is_taken_as_ever(runs):
    run(runs, dag())
    result = run(runs, dag(), from_step="Gate")
    ran = {name for name, state in states(result).items() if state == "Succeeded"}
    assert ran == {"Call", "Gate", "After"}
    result = run(runs, dag(), only=["Closed"])
    assert (result.exit_code, result.steps["Closed"].state) == (0, "Skipped")


@pytest.mark.parametrize("options", [{"from_step": "After"}, {"only": ["After"]}, {"only": ["Gate"]}], ids=str)
def test_a_gate_that_ends_the_run_ends_its_parts_as_well(runs, options):
    closing = dag()
    closing[4] = reports("C", "B", "D", state="bad")
    assert run(runs, closing).exit_code == 2
    result = run(runs, closing, **options)
    assert (result.exit_code, result.failure, result.state) == (2, "Gate: closed", "GateClosed")
    assert states(result)["After"] in ("Skipped", "NotRun")


@pytest.mark.parametrize("options", [{"from_step": "C"}, {"only": ["Aside", "C"]}], ids=["from", "only"])
def test_what_is_needed_and_not_current_is_refused_before_any_job_starts(runs, options):
    run(runs, dag())
    before = runs.files()
    result = run(runs, dag(middle="other"), **options)

    assert result.exit_code == 1
    assert result.failure == "B: not current in the cache (changed: argument 0). Run it too: --from B, or everything."
    assert runs.lines == [f"error: {result.failure}"]
    assert all(record.attempts == 0 for name, record in result.steps.items() if name != "Call")
    assert runs.files() == before


def test_on_an_empty_folder_the_first_that_is_needed_is_named(runs):
    result = run(runs, dag(), only=["C"])
    assert result.failure == "A: not current in the cache (first run). Run it too: --from A, or everything."
    assert not list(runs.run_folder.glob("outputs/*"))


def test_a_damaged_output_that_is_needed_is_refused_and_left(runs):
    result = run(runs, dag())
    damaged = result.outputs["B"]["out"] / "a.txt"
    damaged.write_text("xx")
    result = run(runs, dag(), from_step="C")
    assert "B: not current in the cache (out/a.txt has 2 bytes, sealed with 1)" in result.failure
    assert damaged.read_text() == "xx"


def test_one_between_two_that_run_must_be_current_after_the_first(runs):
    run(runs, dag())
    # A gives the same content again: B and D are current.
    assert run(runs, dag(), only=["A", "C"]).exit_code == 0
    changed = dag()
    changed[1] = processing("A", WRITES.format("another"), DependsOn=["Call"])
    result = run(runs, changed, only=["A", "C"])
    assert result.exit_code == 1
    assert "not current in the cache (changed: input A)" in result.failure
    assert states(result)["C"] == "NotRun"


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_what_was_finished_begins_anew_and_what_was_not_goes_on(runs):
    marker = runs.folder / "kill"
    step = training("Count", COUNTS.format(str(marker)))
    checkpoints = runs.run_folder / "s3/b/checkpoints"

    def began(result):
        return (result.outputs["Count"]["model"] / "count.txt").read_text()

    assert began(runs.run(step)) == "0"
    # Finished: begins at its beginning, although its checkpoint stands at five. It is killed at three ...
    marker.touch()
    assert runs.run(step, from_step="Count").exit_code != 0
    marker.unlink()
    # ... and goes on from there, although its earlier output is still sealed.
    result = runs.run(step, only=["Count"])
    assert (result.exit_code, began(result)) == (0, "3")
    assert sorted(os.listdir(checkpoints)) == ["Count"]
    # Finished again, it begins anew again.
    assert began(runs.run(step, from_step="Count")) == "0"
    assert began(runs.run(step, force=True)) == "0"


def test_unfinished_work_goes_on(runs):
    marker = runs.folder / "kill"
    step = training("Count", COUNTS.format(str(marker)))
    marker.touch()
    assert runs.run(step).exit_code != 0
    marker.unlink()
    result = runs.run(step, from_step="Count")
    assert (result.outputs["Count"]["model"] / "count.txt").read_text() == "3"
