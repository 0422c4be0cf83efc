"""langadapt status against a stub of the service: rows, gate, failures, exit codes, what it lives through."""

import json
import re
import sys
from pathlib import Path

import pytest
from sagemaker_stub import BROKEN, EXPIRED, THROTTLED, Fault, SageMakerStub, denied
from small_jobs import SmallRuns, processing
from stub_executions import CANDIDATE, add_execution, ending, row, serve_run
from terminal import Terminal

from pipeline.local.execution import LambdaContext
from pipeline.remote.execution_view import graph_of
from pipeline.step_graph import build_graph

STATUS = ("status", "--interval", "0.1")
STEPS = ["Resolve", "Train", "Evaluate", "QualityGate", "Register", "GateClosed"]


def rows_of(output: str) -> list[str]:
    return [line for line in output.split("\n\n")[0].splitlines() if " " in line]


def test_an_execution_is_followed_to_its_open_gate(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub))
    code, output, _ = langadapt(*STATUS)
    assert code == 0
    assert [" ".join(line.split()[:2]) for line in rows_of(output)] == [
        "Resolve Succeeded", "Train Executing", "Train Succeeded", "Evaluate Executing", "Evaluate Succeeded",
        "QualityGate Succeeded", "Register Succeeded", "GateClosed Skipped",
    ]  # fmt: skip
    assert "Train        Succeeded      3.0 s  loss=2.12346 steps=7" in output
    assert "  Train: short: few steps" in output
    assert "gate open:      bits.candidate 0.5000 <= 1.0000; champion_present false == false" in output
    assert "model version:  4 PendingManualApproval" in output
    assert "execution:      succeeded; arn:aws:sagemaker" in output


def test_a_closed_gate_marks_the_condition_that_failed(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub, candidate=1.25))
    code, output, _ = langadapt(*STATUS)
    assert code == 2
    assert "gate closed:    bits.candidate 1.2500 <= 1.0000 FAILED; champion_present false == false" in output
    assert "GateClosed: Quality gate closed. All of these must hold" in output
    assert "Register     Skipped" in output


def test_a_started_parameter_is_the_limit_of_the_gate(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub, candidate=0.5), parameters={"MaxBitsPerByte": "0.75"})
    assert "bits.candidate 0.5000 <= 0.7500;" in langadapt(*STATUS, "--no-follow")[1] + langadapt(*STATUS)[1]


def test_a_failed_step_is_told_with_its_reason(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub, train="Failed"))
    code, output, _ = langadapt(*STATUS, "--json")
    assert code == 1
    told = json.loads(output)
    assert told["state"] == "Failed"
    assert told["failure"]["line"].startswith("Train: AlgorithmError: error: loss: nan")
    assert {name: step["state"] for name, step in told["steps"].items()} == {
        "Resolve": "Succeeded", "Train": "Failed", **dict.fromkeys(STEPS[2:], "NotRun")
    }  # fmt: skip
    assert "Train: AlgorithmError: error: loss: nan. Look" in langadapt(*STATUS)[1]


def test_one_look_at_an_execution_that_goes_on(stub: SageMakerStub, langadapt) -> None:
    execution = add_execution(stub, ending(stub))
    code, output, _ = langadapt(*STATUS, execution.id, "--no-follow")
    assert code == 0
    assert "Train        Executing" in output
    assert "execution:      executing; " in output
    assert execution.looks == 1


def test_cached_steps_are_told_as_such_and_read_where_they_come_from(stub: SageMakerStub, langadapt) -> None:
    """Of a cached step the service may name the execution alone that it comes from."""
    frames = ending(stub)
    source = add_execution(stub, frames[-1:], name="source000000")
    cached = {"CacheHitResult": {"SourcePipelineExecutionArn": source.arn}}
    rows = [row for row in frames[-1][1] if row["StepName"] not in ("Train", "Evaluate")]
    add_execution(stub, [("Succeeded", [*rows, row("Train", **cached), row("Evaluate", **cached)])])
    code, output, _ = langadapt(*STATUS)
    assert code == 0
    assert "Train        Cached         2.0 s  loss=2.12346 steps=7" in output
    assert "gate open:      bits.candidate 0.5000 <= 1.0000" in output


def test_a_selective_execution_shows_what_it_takes_from_another_one(stub: SageMakerStub, langadapt) -> None:
    frames = ending(stub, candidate=1.25)
    source = add_execution(stub, frames[-1:], name="source000000")
    gate = [row for row in frames[-1][1] if row["StepName"] in ("QualityGate", "GateClosed")]
    more = {"parameters": {"MaxBitsPerByte": "1.1"}, "selected": ["QualityGate"], "source": source.arn}
    add_execution(stub, [("Failed", gate)], **more)
    code, output, _ = langadapt(*STATUS, "--json")
    told = json.loads(output)
    assert code == 2
    assert [told["steps"][name]["state"] for name in STEPS] == [*["Cached"] * 3, "Succeeded", "Skipped", "Failed"]
    assert told["selection"] == "--only QualityGate"
    assert [condition["holds"] for condition in told["gates"]["QualityGate"]["conditions"]] == [False, True]
    assert told["notes"] == []
    frames = [("Succeeded", [row for row in ending(stub)[-1][1] if row["StepName"] == "Train"])]
    add_execution(stub, frames, selected=["Train"], source=source.arn, name="train0000000")
    told = json.loads(langadapt(*STATUS, "--json")[1])
    assert [told["steps"][name]["state"] for name in STEPS] == ["Cached", "Succeeded", *["NotRun"] * 4]


def test_a_pipeline_of_others_is_shown_whatever_its_steps_are(stub: SageMakerStub, langadapt) -> None:
    steps = [{"Name": "Search", "Type": "Tuning", "Arguments": {}},
             {"Name": "Score", "Type": "Transform", "Arguments": {}, "DependsOn": ["Search"]},
             {"Name": "Ask", "Type": "Callback", "Arguments": {}, "DependsOn": ["Score"]}]  # fmt: skip
    execution = add_execution(stub, [("Failed", [row("Search"), row("Score", "Failed", FailureReason="no capacity")])])
    execution.definition = {"Version": "2020-12-01", "Steps": steps[::-1]}
    code, output, _ = langadapt(*STATUS)
    assert code == 1
    assert [line.split()[:2] for line in rows_of(output)] == [["Search", "Succeeded"], ["Score", "Failed"]]
    assert "Score: no capacity" in output


def test_figures_that_cannot_be_read_are_told_of(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, [ending(stub, candidate=1.25)[-1]])
    stub.faults["GetObject"] = [Fault(403, "AccessDenied", "Access Denied")] * 2
    code, output, _ = langadapt(*STATUS)
    assert code == 2
    assert "QualityGate: which conditions hold is not known: Evaluate.Evaluation: no such property file." in output
    assert "may not s3:GetObject" in output
    assert "QualityGate  Succeeded      0.0 s  closed" in output


def test_figures_of_another_version_are_no_reason_to_end(stub: SageMakerStub, langadapt) -> None:
    frames = [ending(stub)[-1]]
    execution = add_execution(stub, frames)
    (file,) = execution.definition["Steps"][2]["PropertyFiles"]
    execution.definition = json.loads(json.dumps(execution.definition).replace(file["FilePath"], "evaluation.json"))
    stub.objects["own/Evaluate/evaluation.json"] = stub.objects["own/Evaluate/figures.json"]
    code, output, _ = langadapt(*STATUS)
    assert code == 0
    assert "figures:        not shown, evaluation.json or fertility.json is of another version" in output
    assert "gate open:" in output


def test_logs_that_may_not_be_read_are_told_of_once(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub))
    stub.faults["DescribeLogStreams"] = [
        THROTTLED,
        denied("logs:DescribeLogStreams"),
        denied("logs:DescribeLogStreams"),
    ]
    code, output, _ = langadapt(*STATUS)
    assert code == 0
    assert output.count("figures of steps at work are not shown: logs DescribeLogStreams: ") == 1
    assert len(stub.sent("DescribeLogStreams")) == 2


def test_what_passes_is_lived_through(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub))
    stub.faults["DescribePipelineExecution"] = [THROTTLED, BROKEN]
    stub.faults["DescribePipelineDefinitionForExecution"] = [THROTTLED]
    stub.faults["ListPipelineExecutionSteps"] = [Fault(503, "ServiceUnavailable", "Slow down", seconds=0.3)]
    code, output, _ = langadapt(*STATUS)
    assert code == 0
    assert output.count("Looking again in") == 4
    assert output.count("QualityGate") == 1


def test_throttled_requests_are_sent_again_a_bounded_number_of_times(
    stub: SageMakerStub, langadapt, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_execution(stub, ending(stub))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    stub.faults["ListPipelineExecutions"] = [THROTTLED] * 2
    code, _, errors = langadapt("executions")
    assert code == 1
    assert "sagemaker ListPipelineExecutions: ThrottlingException: Rate exceeded after all attempts" in errors
    assert len(stub.sent("ListPipelineExecutions")) == 2


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (EXPIRED, "error: AWS credentials: ExpiredTokenException: The security token included in the request is"),
        (denied("sagemaker:ListPipelineExecutions"),
         "assumed-role/reader/somebody may not sagemaker:ListPipelineExecutions on arn:aws:sagemaker"),
        (Fault(400, "AccessDeniedException", "Access Denied"),
         "assumed-role/reader/somebody may not sagemaker:ListPipelineExecutions. Allow"),
        (BROKEN, "InternalFailure: An internal error occurred after all attempts. A fault of the service"),
    ],
)  # fmt: skip
def test_what_does_not_pass_is_one_line(stub: SageMakerStub, langadapt, fault: Fault, line: str) -> None:
    stub.faults["ListPipelineExecutions"] = [fault]
    code, output, errors = langadapt(*STATUS)
    assert code == 1
    assert line in errors
    assert len(errors.splitlines()) == 1
    assert "never-shown" not in output + errors


def test_on_a_terminal_the_lines_stay_in_place_and_ctrl_c_leaves_the_execution_running(stub: SageMakerStub) -> None:
    execution = add_execution(stub, ending(stub)[:2])
    logged = ["progress: 10/400 documents", "loading", "metrics: loss=1.5", "progress: 20/400 documents"]
    stub.streams["/aws/sagemaker/ProcessingJobs", "job-Evaluate/algo-1-1700000000"] = logged
    command = [sys.executable, "-m", "pipeline", *STATUS]
    terminal = Terminal(command, 120, 30, typed=True)
    terminal.wait_for("Evaluate     Executing", 60)
    terminal.wait_for("20/400 documents  loss=1.5", 20)
    terminal.wait_for("2 of 6 steps", 10)
    terminal.type("\x03")
    code, _ = terminal.end(60)
    assert code == 130
    told = f"the execution goes on; langadapt status {execution.id} shows it, langadapt stop {execution.id} ends it"
    shown = terminal.screen.lines
    assert sum(told in line for line in shown) == 1
    # Each step has one line, whatever it was before.
    assert [sum(line.startswith(f"{name} ") for line in shown) for name in STEPS] == [1] * 6
    assert stub.sent("StopPipelineExecution") == []


# Prints metrics, seals them as a step of ours does, and writes the figures that the gate looks into.
MEASURE = """
print('metrics: loss=2.5 steps=7')
(output / 'manifest.json').write_text(json.dumps({'metrics': {'loss': 2.5, 'steps': 7}}))
(output / 'figures.json').write_text(json.dumps({'bits': {'candidate': LIMIT}}))
"""


@pytest.mark.parametrize(("candidate", "code"), [(0.5, 0), (1.25, 2)])
def test_a_recorded_execution_and_a_local_run_print_the_same_rows(
    stub: SageMakerStub, langadapt, tmp_path: Path, candidate: float, code: int
) -> None:
    files = [{"PropertyFileName": "Evaluation", "OutputName": "out", "FilePath": "figures.json"}]
    resolve = {"Name": "Resolve", "Type": "Lambda", "FunctionArn": "look", "Arguments": {},
               "OutputParameters": [{"OutputName": "champion_present", "OutputType": "String"}]}  # fmt: skip
    champion = {"Get": "Steps.Resolve.OutputParameters['champion_present']"}
    gate = {"Conditions": [{"Type": "LessThan", "LeftValue": CANDIDATE, "RightValue": 1.0},
                           {"Type": "Equals", "LeftValue": champion, "RightValue": "false"}],
            "IfSteps": [], "ElseSteps": [{"Name": "GateClosed", "Type": "Fail", "Arguments": {"ErrorMessage": "no"}}],
            }  # fmt: skip
    steps = [resolve, processing("Prepare", "(output / 'a').write_text('a')"),
             processing("Evaluate", MEASURE.replace("LIMIT", str(candidate)), "Prepare", PropertyFiles=files),
             {"Name": "QualityGate", "Type": "Condition", "Arguments": gate}]  # fmt: skip

    def look(event: object, context: LambdaContext) -> dict[str, str]:
        return {"champion_present": "false"}

    runs = SmallRuns(tmp_path)
    assert runs.run(*steps, functions={"look": look}, parameters={}).exit_code == code
    serve_run(stub, runs.run_folder, {"Steps": steps})
    stub.deploy({"Steps": steps})
    here, there = langadapt(*STATUS, str(runs.run_folder)), langadapt(*STATUS)
    assert here[0] == there[0] == code
    same = re.compile(r"\n(execution:|run folder).*", re.DOTALL)
    assert same.sub("", here[1]) == same.sub("", there[1])
    assert "loss=2.5 steps=7" in here[1]
    assert ("FAILED" in here[1]) == (code == 2)


def test_steps_stand_in_the_order_of_a_local_run(compiled_text) -> None:
    definition = json.loads(compiled_text("laptop", "ablation=true"))
    here, there = build_graph(definition), graph_of(definition)
    assert list(here) == list(there)
    assert [(node.needs, node.branch) for node in here.values()] == [
        (node.needs, node.branch) for node in there.values()
    ]
