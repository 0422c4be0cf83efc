"""langadapt start, stop, retry, executions and logs against a stub of the service."""

import json
import os
import signal

import pytest
from sagemaker_stub import BROKEN, THROTTLED, Fault, SageMakerStub, denied
from stub_executions import GATED, add_execution, ending, job_row, row

GROUP = "/aws/sagemaker/TrainingJobs"


def test_a_start_is_checked_sent_once_and_followed(stub: SageMakerStub, langadapt) -> None:
    stub.deploy(GATED)
    words = ["start", "--name", "nightly", "--param", "MaxBitsPerByte=0.50", "--param", "AllowConcurrent=True"]
    code, first, _ = langadapt(*words)
    assert code == 0
    assert langadapt(*words)[1] == first == f"{stub.executions[0].arn}\n"
    assert len(stub.executions) == 1
    one, other = stub.sent("StartPipelineExecution")
    assert one == other
    assert one["PipelineParameters"] == [
        {"Name": "MaxBitsPerByte", "Value": "0.5"}, {"Name": "AllowConcurrent", "Value": "true"}
    ]  # fmt: skip
    stub.executions[0].frames = ending(stub)[-1:]
    code, output, _ = langadapt(*words, "--follow")
    assert code == 0
    assert output.splitlines()[0] == stub.executions[0].arn
    assert "gate open:" in output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--param", "MaxBitPerByte=1"],
         "error: --param MaxBitPerByte: no such parameter. Did you mean MaxBitsPerByte?"),
        (["--param", "MaxBitsPerByte=low"], "error: --param MaxBitsPerByte: low; limit a finite number."),
        (["--only", "Registre"], "error: --only: Registre; limit a step of the definition."),
        (["--only", "Register"],
         "error: --only: Register stands in a branch of QualityGate. Select QualityGate: it runs the branch."),
        (["--from", "Evaluate"], "error: --source: no execution of langadapt has ended."),
        (["--source", "abcdefabcdef"], "error: --source: abcdefabcdef; limit --from or --only with it."),
        (["--param", f"CorpusUri={'s' * 1_025}"], "error: --param CorpusUri: 1,025 characters; limit 1,024. Shorten"),
        (["--name", "two words"], "error: --name: two words; limit 82 letters, digits and single -."),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_is_refused_before_it_is_sent(
    stub: SageMakerStub, langadapt, words: list[str], line: str
) -> None:
    stub.deploy(GATED)
    code, _, errors = langadapt("start", *words)
    assert code == 1
    assert errors.startswith(line)
    assert stub.sent("StartPipelineExecution") == []


def test_a_value_that_a_step_would_be_refused_for_is_refused_before_it_is_sent(
    stub: SageMakerStub, langadapt, compiled_text
) -> None:
    function = "arn:aws:lambda:us-west-2:123456789012:function:own"
    deployed = compiled_text("laptop", f"aws.resolve_inputs_function_arn={function}")
    elsewhere = f"ImageUri=123456789012.dkr.ecr.eu-west-1.amazonaws.com/own@sha256:{'1' * 64}"
    stub.deploy(json.loads(deployed))
    for words, line in {
        (elsewhere,): f"{elsewhere.partition('=')[2]}; limit region us-west-2, as of $.Steps[0].FunctionArn as",
        ("ContinuedPretrainingInstanceType=ml.foo.large",): "ml.foo.large; limit one of the 225 values of Training",
        ("MaxBitsPerByte=0.9", "ContinuedPretrainingInstanceCount=0"):
            "0; limit 1 to 1000 as $.Steps[5].Arguments.ResourceConfig.InstanceCount (ContinuedPretraining). Change",
        ("EvaluateInstanceType=ml.p5.48xlarge",): "ml.p5.48xlarge; limit one of the 207 values of ProcessingInstance",
        ("CorpusUri=/home/corpus",): "/home/corpus; limit pattern (https|s3)://([^/]+)/?(.*) as $.Steps[1]",
        ("CorpusUri=",): "; limit pattern (https|s3)://([^/]+)/?(.*) as $.Steps[1]",
        ("ImageUri=own:latest",): "own:latest; limit ends in @sha256:<64 hexadecimal digits> as",
    }.items():  # fmt: skip
        code, _, errors = langadapt("start", *(word for value in words for word in ("--param", value)))
        assert code == 1
        assert errors.startswith(f"error: --param {words[-1].partition('=')[0]}: {line}")
    assert stub.sent("StartPipelineExecution") == []
    assert langadapt("start", "--param", "ContinuedPretrainingInstanceType=ml.p4d.24xlarge", "--dry-run")[0] == 0


def test_executions_of_another_region_another_pipeline_and_of_none(stub: SageMakerStub, langadapt) -> None:
    own = add_execution(stub, ending(stub)[-1:])
    there = own.arn.replace("us-west-2", "eu-west-1")
    for command in (["status", there], ["stop", there], ["retry", there], ["logs", "Train", "--execution", there]):
        code, _, errors = langadapt(*command)
        assert (code, errors) == (1, f"error: execution: {there} is in eu-west-1; limit aws.region us-west-2. "
                                     "Set aws.region to eu-west-1.\n")  # fmt: skip
    other = own.arn.replace("pipeline/langadapt", "pipeline/other")
    told = langadapt("start", "--only", "Evaluate", "--source", other)[2]
    assert told == f"error: --source: {other} is of pipeline other; limit langadapt. Name one of its own.\n"
    assert stub.sent("StopPipelineExecution") == stub.sent("StartPipelineExecution") == []
    for command in (["status"], ["executions"], ["stop"], ["retry"], ["logs", "Train"]):
        stub.faults["ListPipelineExecutions"] = [Fault(400, "ResourceNotFound", "Pipeline langadapt does not exist.")]
        code, _, errors = langadapt(*command)
        assert (code, errors) == (1, "error: aws.pipeline_name: langadapt is none in us-west-2. Send it first: "
                                     "langadapt upsert.\n")  # fmt: skip


def test_selected_steps_take_the_others_from_the_newest_execution_that_has_ended(
    stub: SageMakerStub, langadapt
) -> None:
    ended = add_execution(stub, ending(stub, candidate=1.25)[-1:], name="ended0000000")
    add_execution(stub, ending(stub)[:1], name="goes00000000")
    request = json.loads(langadapt("start", "--from", "Evaluate", "--dry-run", "--json")[1])["requests"][0]["request"]
    assert request["SelectiveExecutionConfig"] == {
        "SelectedSteps": [{"StepName": "Evaluate"}, {"StepName": "QualityGate"}],
        "SourcePipelineExecutionArn": ended.arn,
    }
    assert stub.sent("StartPipelineExecution") == []
    assert langadapt("start", "--only", "Resolve")[0] == 0
    (sent,) = stub.sent("StartPipelineExecution")
    assert sent["SelectiveExecutionConfig"] == {"SelectedSteps": [{"StepName": "Resolve"}]}


def test_a_pipeline_that_is_not_there_and_an_action_that_is_not_allowed(stub: SageMakerStub, langadapt) -> None:
    assert "none in us-west-2. Send it first: langadapt upsert." in langadapt("start")[2]
    stub.deploy(GATED)
    stub.faults["StartPipelineExecution"] = [denied("sagemaker:StartPipelineExecution")]
    code, output, _ = langadapt("start", "--json")
    told = json.loads(output)["error"]
    assert code == 1
    assert "assumed-role/reader/somebody may not sagemaker:StartPipelineExecution" in told["value"]
    assert told["remedy"] == "Allow sagemaker:StartPipelineExecution in its policies."


def test_a_start_whose_answer_is_lost_can_be_given_again(stub: SageMakerStub, langadapt) -> None:
    stub.deploy(GATED)
    stub.faults["StartPipelineExecution"] = [BROKEN]
    code, _, errors = langadapt("start")
    assert code == 1
    (lost,) = stub.sent("StartPipelineExecution")
    name = lost["PipelineExecutionDisplayName"]
    assert f"Give the same command with --name {name}: that starts it once." in errors
    assert langadapt("start", "--name", name)[0] == 0
    assert stub.sent("StartPipelineExecution")[1] == lost


def test_ctrl_c_ends_a_command_with_its_code_and_with_json_one_object(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub)[:1])

    def pressed(body: dict) -> Fault:
        os.kill(os.getpid(), signal.SIGINT)
        return Fault(seconds=2.0)

    stub._DescribePipeline = stub._DescribePipelineExecution = pressed  # type: ignore[method-assign]
    assert langadapt("start") == (130, "", "")
    code, output, _ = langadapt("start", "--json")
    assert (code, json.loads(output)["error"]["exit_code"]) == (130, 130)
    code, output, errors = langadapt("status", "--json")
    assert (code, json.loads(output)["error"]["line"]) == (130, errors.strip())
    assert errors.startswith("interrupted: the execution goes on; langadapt status abcdefabcdef shows it")


def test_an_execution_is_stopped_once_and_ends_as_stopped(stub: SageMakerStub, langadapt) -> None:
    execution = add_execution(stub, ending(stub)[:1])
    assert json.loads(langadapt("stop", "--dry-run")[1])["requests"][0]["operation"] == "StopPipelineExecution"
    assert stub.sent("StopPipelineExecution") == []
    assert langadapt("stop")[1] == f"{execution.arn}: stopping\n"
    execution.looks = 2
    assert langadapt("stop", execution.id)[1] == f"{execution.arn}: Stopped already\n"
    assert len(stub.sent("StopPipelineExecution")) == 1
    code, output, _ = langadapt("status", "--interval", "0.1")
    assert code == 143
    assert "Train        Stopped" in output


def test_a_failed_execution_goes_on_after_retry(stub: SageMakerStub, langadapt) -> None:
    execution = add_execution(stub, ending(stub, train="Failed")[-1:], after_retry=ending(stub))
    assert langadapt("status", "--interval", "0.1")[0] == 1
    assert langadapt("retry")[1] == f"{execution.arn}: goes on\n"
    assert langadapt("retry")[1] == f"{execution.arn}: Executing already\n"
    assert len(stub.sent("RetryPipelineExecution")) == 1
    assert langadapt("status", "--interval", "0.1")[0] == 0
    code, _, errors = langadapt("retry")
    assert code == 1
    assert "retry: abcdefabcdef is Succeeded; limit Failed or Stopped. Start a new execution." in errors


def test_executions_are_listed_over_all_pages_and_found_by_id_and_name(stub: SageMakerStub, langadapt) -> None:
    for number in range(8):
        add_execution(stub, ending(stub)[-1:], name=f"number{number:06d}").name = f"run-{number}"
    lines = langadapt("executions", "--limit", "7")[1].splitlines()
    assert [line.split()[1] for line in lines] == [f"run-{number}" for number in range(7, 0, -1)]
    assert len(stub.sent("ListPipelineExecutions")) == 3
    rows = json.loads(langadapt("executions", "--json")[1])
    assert [row["id"] for row in rows] == [f"number{number:06d}" for number in range(7, -1, -1)]
    for named in ("number000000", "run-0", stub.executions[-1].arn):
        assert json.loads(langadapt("stop", named, "--json")[1])["arn"] == stub.executions[-1].arn
    assert "nothing is none of pipeline langadapt. See langadapt executions." in langadapt("stop", "nothing")[2]


@pytest.mark.parametrize(
    "words", [("executions", "--limit", "99999999999999999999"), ("logs", "Train", "--interval", "inf"),
              ("status", "--interval", "nan")]
)  # fmt: skip
def test_numbers_beyond_use_are_refused(stub: SageMakerStub, langadapt, words: tuple[str, ...]) -> None:
    code, _, errors = langadapt(*words)
    assert code == 1
    assert f"Invalid value for '{words[-2]}'" in errors
    assert stub.requests == []


def add_logs(stub: SageMakerStub, hosts: int) -> None:
    for host in range(1, hosts + 1):
        lines = [f"host {host} line {number}" for number in range(1, 6)]
        stub.streams[GROUP, f"job-Train/algo-{host}-1700000000"] = lines
    stub.streams[GROUP, "job-Train-other/algo-1-1700000000"] = ["of another job"]


def test_logs_of_one_host_come_in_pages_and_without_its_name(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub)[1:2])
    add_logs(stub, 1)
    stub.streams[GROUP, "job-Train/algo-1-1700000000"][2] = "a\x1b[31mb"
    code, output, _ = langadapt("logs", "Train")
    assert code == 0
    assert output.splitlines() == ["host 1 line 1", "host 1 line 2", "a\ufffd[31mb", "host 1 line 4", "host 1 line 5"]
    assert [body.get("nextToken") for body in stub.sent("GetLogEvents")] == [None, "f/3", "f/5"]


def test_logs_of_several_hosts_are_told_apart(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub)[1:2])
    add_logs(stub, 4)
    lines = langadapt("logs", "Train")[1].splitlines()
    assert lines[:5] == [*(f"algo-{host}  host {host} line 1" for host in range(1, 5)), "algo-1  host 1 line 2"]
    assert len(lines) == 20
    told = json.loads(langadapt("logs", "Train", "--json")[1])["lines"]
    assert told[1] == {"time": "2026-11-30T00:53:20.000+00:00", "host": "algo-2", "text": "host 2 line 1"}


def test_logs_are_followed_until_the_step_has_ended(stub: SageMakerStub, langadapt) -> None:
    """It waits for the step to begin, lives through throttling, and shows each line once."""
    begun = [row("Resolve"), job_row(stub, "Train", "Training", "Executing")]
    execution = add_execution(stub, [("Executing", [row("Resolve")])], looked_at_by="ListPipelineExecutionSteps")
    add_logs(stub, 2)
    stub.faults["GetLogEvents"] = [THROTTLED]
    stub.faults["ListPipelineExecutionSteps"] = [THROTTLED]
    execution.frames = [execution.frames[0], ("Executing", begun), ("Succeeded", ending(stub)[-1][1])]
    code, output, _ = langadapt("logs", "Train", "--follow", "--interval", "0.1")
    assert code == 0
    assert sorted(output.splitlines()) == [
        f"algo-{host}  host {host} line {number}" for host in (1, 2) for number in range(1, 6)
    ]


def test_logs_of_what_has_none(stub: SageMakerStub, langadapt) -> None:
    add_execution(stub, ending(stub)[:1])
    assert langadapt("logs", "Train") == (0, "", "")
    assert "QualityGate is a step of type Condition and runs no job. Take one of Train, Evaluate." in langadapt(
        "logs", "QualityGate"
    )[2]  # fmt: skip
    assert "step: Trian; limit a step of the execution. Did you mean Train?" in langadapt("logs", "Trian")[2]
    assert "step: Evaluate has not begun." in langadapt("logs", "Evaluate")[2]
    stub.executions[0].frames = ending(stub, train="Failed")[-1:]
    assert "step: Evaluate has not begun." in langadapt("logs", "Evaluate", "--follow")[2]
    stub.faults["DescribeLogStreams"] = [Fault(400, "AccessDeniedException", "no")]
    assert "may not logs:DescribeLogStreams" in langadapt("logs", "Train")[2]
