"""The executor on definitions that are not langadapt's own: one compiled with the SDK, and small ones in JSON."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pipeline.local.cache import content_digest, output_digest, seal_entries
from pipeline.local.executor import run_definition
from pipeline.local.jobs import LocalImage
from pipeline.local.processes import process_identity, recorded_processes
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError, StepConfig, StepError, StepFolders, seal

# A worker that stands for somebody's image: what it does is in its arguments or hyperparameters.
WORKER = """
import json, os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["OPT_ML"])
hyperparameters = root / "input/config/hyperparameters.json"
if hyperparameters.exists():
    settings, inputs, output = json.loads(hyperparameters.read_text()), root / "input/data", root / "model"
    failure = root / "output/failure"
else:
    settings = dict(word[2:].split("=", 1) for word in sys.argv[1:])
    inputs, output, failure = root / "processing/input", root / "processing/output", root / "output/message"
resources = json.loads((next(root.rglob("resourceconfig.json"))).read_text())
began = time.time()
texts = [path.read_text() for path in sorted(inputs.rglob("*.txt"))]
text = settings.get("prefix", "") + "".join(texts)
if not pathlib.Path(settings.get("awake_once_there", "")).is_file():
    if "asleep" in settings:
        pathlib.Path(settings["asleep"]).touch()
    time.sleep(float(settings.get("seconds", 0)))
if "fails" in settings:
    failure.parent.mkdir(parents=True, exist_ok=True)
    failure.write_text(settings["fails"])
    sys.exit(int(settings.get("exit_code", 1)))
if "killed_once" in settings:
    marker = root / "checkpoints/attempts.txt"
    attempts = marker.read_text() if marker.exists() else ""
    marker.write_text(attempts + "x")
    if not attempts:
        (output / "half.txt").write_text("half-written")
        os.kill(os.getpid(), signal.SIGKILL)
print(f"metrics: letters={len(text)}", flush=True)
host = resources["current_host"]
name = "result.txt" if len(resources["hosts"]) == 1 else f"result-{host}.txt"
(output / name).write_text(text)
score = {"letters": len(text), "share": len(text) / 100}
(output / f"score-{host}.json").write_text(json.dumps({"scores": [score]}))
if "report" in settings:
    from steps.contract import StepConfig, StepFolders, seal
    (output / "report.json").write_text(settings["report"])
    seal(StepFolders(output), "worker", StepConfig(), {}, time.time() - began, ["report.json"])
if "log" in settings:
    pathlib.Path(settings["log"]).open("a").write(f"{settings['name']} {began} {time.time()}\\n")
"""
IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/somebody@sha256:" + "1" * 64


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


class Bench:
    """A run folder, a registry, an input text and the worker."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run_folder = folder, folder / "run"
        self.worker = folder / "worker.py"
        self.worker.write_text(WORKER)
        self.text = folder / "input" / "a.txt"
        self.text.parent.mkdir()
        self.text.write_text("hello world")
        self.registry = LocalRegistry(folder / "registry")
        self.progress = Quiet()

    def run(self, definition, **options):
        self.progress = Quiet()
        given = {
            "images": {IMAGE: LocalImage([sys.executable, str(self.worker)])},
            "functions": {},
            "progress": self.progress,
            **options,
        }
        return run_definition(definition, run_folder=self.run_folder, registry=self.registry, **given)

    def states(self, result) -> dict[str, str]:
        return {name: record.state for name, record in result.steps.items()}


def processing(name, inputs=None, cached=True, **settings):
    """A Processing step in the form of a compiled definition. inputs: URI by name."""
    settings.setdefault("name", name)
    step = {
        "Name": name,
        "Type": "Processing",
        "Arguments": {
            "AppSpecification": {
                "ImageUri": IMAGE,
                "ContainerEntrypoint": ["python3", "/opt/worker.py"],
                "ContainerArguments": [f"--{key}={value}" for key, value in settings.items()],
            },
            "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"}},
            "ProcessingInputs": [
                {"InputName": key, "S3Input": {"S3Uri": uri, "LocalPath": f"/opt/ml/processing/input/{key}",
                                               "S3DataType": "S3Prefix"}}
                for key, uri in (inputs or {}).items()
            ],
            "ProcessingOutputConfig": {
                "Outputs": [{"OutputName": "out", "S3Output": {
                    "S3Uri": {"Std:Join": {"On": "/", "Values": [
                        "s3://b", {"Get": "Execution.PipelineExecutionId"}, name]}},
                    "LocalPath": "/opt/ml/processing/output"}}]
            },
        },
        "PropertyFiles": [{"PropertyFileName": "Score", "OutputName": "out", "FilePath": "score-algo-1.json"}],
    }  # fmt: skip
    return step | ({"CacheConfig": {"Enabled": True, "ExpireAfter": "P30D"}} if cached else {})


def output_of(step):
    return {"Get": f"Steps.{step}.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}


def score_of(step, path="scores[0].letters"):
    return {"Std:JsonGet": {"PropertyFile": {"Get": f"Steps.{step}.PropertyFiles.Score"}, "Path": path}}


def two_steps(text_uri="file://", **settings):
    """First reads a text, Second reads First's output."""
    return {
        "Parameters": [{"Name": "TextUri", "Type": "String"}],
        "Steps": [
            processing("First", {"text": {"Get": "Parameters.TextUri"}}),
            processing("Second", {"text": output_of("First")}, **settings),
        ],
    }


def text_parameter(bench):
    return {"TextUri": bench.text.parent.as_uri()}


def test_a_step_whose_report_alone_changed_leaves_the_next_one_cached(bench):
    def definition(report):
        steps = [
            processing("First", {"text": {"Get": "Parameters.TextUri"}}, report=report),
            processing("Second", {"text": output_of("First")}),
        ]
        return {"Parameters": [{"Name": "TextUri", "Type": "String"}], "Steps": steps}

    bench.run(definition("took 1 s"), parameters=text_parameter(bench))
    result = bench.run(definition("took 2 s"), parameters=text_parameter(bench))
    assert bench.states(result) == {"First": "Succeeded", "Second": "Cached"}
    report = result.outputs["First"]["out"] / "report.json"
    assert report.read_text() == "took 2 s"
    # No content, but sealed all the same.
    report.write_text("took 3 s")
    result = bench.run(definition("took 2 s"), parameters=text_parameter(bench))
    assert bench.states(result) == {"First": "Succeeded", "Second": "Cached"}
    assert report.read_text() == "took 2 s"


def test_the_digest_of_an_output_is_that_of_its_folder(tmp_path):
    """With a step's own seal and report, and with a manifest.json that somebody else wrote."""
    (tmp_path / "result.txt").write_text("text")
    (tmp_path / "report.json").write_text("1")
    seal(StepFolders(tmp_path), "step", StepConfig(), {}, 1.0, ["report.json"])
    assert output_digest(seal_entries(tmp_path)) == content_digest(tmp_path)
    (tmp_path / "report.json").write_text("2")
    with pytest.raises(StepError, match=r"report\.json: content differs from its seal"):
        content_digest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"version": 3}')
    assert output_digest(seal_entries(tmp_path)) == content_digest(tmp_path)


# --- a definition that the SDK compiled -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def second_definition():
    """Brew, then Count, Weigh and Mature (a retried training job) side by side, Taste, Choose, Announce or PourAway."""
    from pipeline.compile import offline_sdk
    from pipeline.config import load_config

    with offline_sdk(load_config("laptop")) as session:
        return json.loads(build_second(session).definition())


def build_second(session):
    from sagemaker.core.lambda_helper import Lambda
    from sagemaker.core.processing import Processor
    from sagemaker.core.shapes import (
        Channel,
        CheckpointConfig,
        DataSource,
        OutputDataConfig,
        ProcessingInput,
        ProcessingOutput,
        ProcessingS3Input,
        ProcessingS3Output,
        S3DataSource,
    )
    from sagemaker.core.training.configs import Compute
    from sagemaker.core.workflow.conditions import ConditionGreaterThanOrEqualTo, ConditionIn, ConditionNot
    from sagemaker.core.workflow.execution_variables import ExecutionVariables
    from sagemaker.core.workflow.functions import Join, JsonGet
    from sagemaker.core.workflow.parameters import ParameterFloat, ParameterString
    from sagemaker.core.workflow.properties import PropertyFile
    from sagemaker.mlops.workflow.condition_step import ConditionStep
    from sagemaker.mlops.workflow.fail_step import FailStep
    from sagemaker.mlops.workflow.lambda_step import LambdaOutput, LambdaStep
    from sagemaker.mlops.workflow.pipeline import Pipeline
    from sagemaker.mlops.workflow.retry import SageMakerJobExceptionTypeEnum, SageMakerJobStepRetryPolicy
    from sagemaker.mlops.workflow.steps import CacheConfig, ProcessingStep, TrainingStep
    from sagemaker.train.model_trainer import ModelTrainer

    role = "arn:aws:iam::111122223333:role/somebody"
    water = ParameterString("WaterUri", "s3://somebody/water")
    log = ParameterString("LogFile", "")
    least = ParameterFloat("LeastShare", 0.1)
    cache = CacheConfig(enable_caching=True, expire_after="P1D")
    score = PropertyFile("Score", output_name="out", path="score-algo-1.json")

    def job(name, sources, **settings):
        processor = Processor(
            role=role, image_uri=IMAGE, entrypoint=["python3", "/opt/worker.py"], instance_count=1,
            instance_type="ml.m5.large", sagemaker_session=session,
        )  # fmt: skip
        target = Join("/", ["s3://somebody/runs", ExecutionVariables.PIPELINE_EXECUTION_ID, name])
        inputs = [
            ProcessingInput(input_name=key, s3_input=ProcessingS3Input(
                s3_uri=uri, local_path=f"/opt/ml/processing/input/{key}", s3_data_type="S3Prefix",
                s3_input_mode="File"))
            for key, uri in sources.items()
        ]  # fmt: skip
        output = ProcessingOutput(output_name="out", s3_output=ProcessingS3Output(
            s3_uri=target, local_path="/opt/ml/processing/output", s3_upload_mode="EndOfJob"))  # fmt: skip
        words = [Join("", ["--log=", log]), f"--name={name}", *(f"--{key}={value}" for key, value in settings.items())]
        arguments = processor.run(inputs=inputs, outputs=[output], arguments=words)
        return ProcessingStep(name, step_args=arguments, property_files=[score], cache_config=cache)

    def made_by(step):
        return step.properties.ProcessingOutputConfig.Outputs["out"].S3Output.S3Uri

    brew = job("Brew", {"water": water}, prefix="malt and ")
    count = job("Count", {"beer": made_by(brew)}, seconds=1)
    weigh = job("Weigh", {"beer": made_by(brew)}, seconds=1, prefix="heavy ")
    trainer = ModelTrainer(
        role=role, sagemaker_session=session, base_job_name="Mature", training_image=IMAGE,
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        output_data_config=OutputDataConfig(
            s3_output_path=Join("/", ["s3://somebody/models", ExecutionVariables.PIPELINE_EXECUTION_ID]),
            compression_type="NONE",
        ),
        checkpoint_config=CheckpointConfig(s3_uri="s3://somebody/checkpoints/mature"),
        hyperparameters={"killed_once": "yes"},
    )  # fmt: skip
    channel = Channel(channel_name="beer", data_source=DataSource(s3_data_source=S3DataSource(
        s3_data_type="S3Prefix", s3_uri=made_by(brew), s3_data_distribution_type="FullyReplicated")))  # fmt: skip
    policy = SageMakerJobStepRetryPolicy(
        failure_reason_types=[SageMakerJobExceptionTypeEnum.INTERNAL_ERROR], interval_seconds=1, backoff_rate=1.0,
        max_attempts=1,
    )  # fmt: skip
    mature = TrainingStep(
        "Mature", step_args=trainer.train(input_data_config=[channel]), cache_config=cache, retry_policies=[policy]
    )
    taste = job("Taste", {"wine": mature.properties.ModelArtifacts.S3ModelArtifacts, "other": made_by(count)})
    taste.add_depends_on([weigh])
    share = JsonGet(step_name="Taste", property_file=score, json_path="scores[0].share")
    announce = LambdaStep(
        "Announce",
        lambda_func=Lambda(function_arn="arn:aws:lambda:us-west-2:111122223333:function:announce"),
        inputs={"share": share.to_string(), "beer": made_by(brew)},
        outputs=[LambdaOutput("said")],
    )
    pour_away = FailStep("PourAway", error_message=Join("", ["share ", share, " under ", least.to_string()]))
    choose = ConditionStep(
        "Choose",
        conditions=[ConditionGreaterThanOrEqualTo(share, least), ConditionNot(ConditionIn(log, ["nowhere", "never"]))],
        if_steps=[announce],
        else_steps=[pour_away],
    )
    return Pipeline(
        "somebody",
        parameters=[water, log, least],
        steps=[brew, count, weigh, mature, taste, choose],
        sagemaker_session=session,
        pipeline_experiment_config=None,
    )


def announce(event, context):
    beer = context.find(event["beer"]) / "result.txt"
    return {"said": f"{event['share']}: {beer.read_text()}"}


def run_second(bench, definition, **parameters):
    log = bench.folder / "times.txt"
    given = {"WaterUri": bench.text.parent.as_uri(), "LogFile": str(log), **parameters}
    return bench.run(definition, parameters=given, functions={"announce": announce}, max_parallel=3)


def test_a_definition_of_somebody_else_runs_whole(bench, second_definition):
    result = run_second(bench, second_definition)

    assert bench.states(result) == {
        "Brew": "Succeeded", "Count": "Succeeded", "Weigh": "Succeeded", "Mature": "Succeeded", "Taste": "Succeeded",
        "Choose": "Succeeded", "Announce": "Succeeded", "PourAway": "Skipped",
    }  # fmt: skip
    assert result.exit_code == 0
    assert (result.outputs["Mature"]["model"] / "result.txt").read_text() == "malt and hello world"
    # Two inputs of 20 letters each.
    assert result.steps["Announce"].values == {"said": "0.4: malt and hello world"}
    assert [condition.holds for condition in result.gates["Choose"].conditions] == [True, True]
    assert result.steps["Taste"].metric == "letters=40"


def test_independent_steps_overlap_and_dependent_ones_do_not(bench, second_definition):
    run_second(bench, second_definition)

    rows = [line.split() for line in (bench.folder / "times.txt").read_text().splitlines()]
    times = {name: (float(began), float(ended)) for name, began, ended in rows}
    overlap = min(times["Count"][1], times["Weigh"][1]) - max(times["Count"][0], times["Weigh"][0])
    assert overlap > 0.5
    assert times["Brew"][1] <= min(times["Count"][0], times["Weigh"][0])
    assert times["Taste"][0] >= max(times["Count"][1], times["Weigh"][1])


def test_a_killed_job_is_retried_from_its_checkpoint_without_its_half_written_output(bench, second_definition):
    result = run_second(bench, second_definition)

    assert result.steps["Mature"].attempts == 2
    assert not (result.outputs["Mature"]["model"] / "half.txt").exists()
    assert (bench.run_folder / "s3/somebody/checkpoints/mature/attempts.txt").read_text() == "xx"
    assert any("SageMaker.JOB_INTERNAL_ERROR, retry 1" in line for line in bench.progress.lines)


def test_the_other_branch_ends_with_the_joined_message_and_exit_code_2(bench, second_definition):
    result = run_second(bench, second_definition, LeastShare="0.5")

    assert result.exit_code == 2
    assert result.failure == "PourAway: share 0.4 under 0.5"
    assert bench.states(result)["Announce"] == "Skipped"
    first, second = result.gates["Choose"].conditions
    assert (first.name, first.value, first.operator, first.limit, first.limit_name, first.holds) == (
        "scores[0].share", 0.4, ">=", 0.5, "LeastShare", False,
    )  # fmt: skip
    assert second.holds
    assert str(first) == "scores[0].share 0.4000 >= 0.5000 (LeastShare) FAILS"


def test_a_second_run_takes_every_job_from_the_cache(bench, second_definition):
    run_second(bench, second_definition)
    result = run_second(bench, second_definition)

    jobs = ["Brew", "Count", "Weigh", "Mature", "Taste"]
    assert [result.steps[name].state for name in jobs] == ["Cached"] * 5
    # The limit of the gate is no part of any job.
    result = run_second(bench, second_definition, LeastShare="0.5")
    assert [result.steps[name].state for name in jobs] == ["Cached"] * 5
    assert result.exit_code == 2


# --- the cache --------------------------------------------------------------------------------------------------------


def test_one_changed_byte_of_input_reruns_what_reads_it_and_says_so(bench):
    bench.run(two_steps(), parameters=text_parameter(bench))
    bench.text.write_text("hello xorld")
    result = bench.run(two_steps(), parameters=text_parameter(bench))

    assert bench.states(result) == {"First": "Succeeded", "Second": "Succeeded"}
    assert result.steps["First"].reason == "changed: input text"


def test_the_same_bytes_in_another_place_are_the_same_input(bench):
    bench.run(two_steps(), parameters=text_parameter(bench))
    moved = bench.folder / "elsewhere"
    bench.text.parent.rename(moved)
    result = bench.run(two_steps(), parameters={"TextUri": "s3://texts/mine/"}, uris={"s3://texts/mine": moved})

    assert bench.states(result) == {"First": "Cached", "Second": "Cached"}


def test_a_changed_setting_reruns_its_step_alone(bench):
    bench.run(two_steps(), parameters=text_parameter(bench))
    result = bench.run(two_steps(prefix="now "), parameters=text_parameter(bench))

    assert bench.states(result) == {"First": "Cached", "Second": "Succeeded"}
    assert result.steps["Second"].reason == "changed: argument --prefix"


def test_a_step_below_hits_where_the_rerun_gave_the_same_content(bench):
    definition = two_steps()
    bench.run(definition, parameters=text_parameter(bench))
    # An argument that leaves no trace in the output.
    definition["Steps"][0]["Arguments"]["AppSpecification"]["ContainerArguments"].append("--note=1")
    result = bench.run(definition, parameters=text_parameter(bench))

    assert bench.states(result) == {"First": "Succeeded", "Second": "Cached"}


def test_a_truncated_sealed_file_reruns_its_step_and_says_why(bench):
    result = bench.run(two_steps(), parameters=text_parameter(bench))
    (result.outputs["First"]["out"] / "result.txt").write_text("hello")
    result = bench.run(two_steps(), parameters=text_parameter(bench))

    assert bench.progress.lines == ["First: out/result.txt has 5 bytes, sealed with 11: running it again"]
    assert bench.states(result) == {"First": "Succeeded", "Second": "Cached"}
    assert (result.outputs["First"]["out"] / "result.txt").read_text() == "hello world"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "result.txt").write_text("hello_world"),
         "out/result.txt has other content than sealed"),
        (lambda folder: (folder / "result.txt").unlink(), "out/result.txt is missing"),
        (lambda folder: (folder / "more.txt").write_text("x"), "out/more.txt was added after sealing"),
    ],
    ids=["changed", "missing", "added"],
)  # fmt: skip
def test_other_damage_reruns_too(bench, damage, reason):
    result = bench.run(two_steps(), parameters=text_parameter(bench))
    damage(result.outputs["First"]["out"])
    result = bench.run(two_steps(), parameters=text_parameter(bench))

    assert (result.steps["First"].state, result.steps["First"].reason) == ("Succeeded", reason)


def test_a_folder_in_the_place_of_a_seal_is_no_seal(bench):
    result = bench.run(two_steps(), parameters=text_parameter(bench))
    seal = result.outputs["First"]["out"].parent / "seal.json"
    seal.unlink()
    seal.mkdir()
    result = bench.run(two_steps(), parameters=text_parameter(bench))

    assert bench.states(result) == {"First": "Succeeded", "Second": "Cached"}
    assert seal.is_file()


def test_what_file_browsers_leave_in_an_output_reruns_nothing(bench):
    result = bench.run(two_steps(), parameters=text_parameter(bench))
    for name in (".DS_Store", "._result.txt", "Thumbs.db"):
        (result.outputs["First"]["out"] / name).write_text("x")

    assert bench.states(bench.run(two_steps(), parameters=text_parameter(bench))) == {
        "First": "Cached", "Second": "Cached"
    }  # fmt: skip


def test_without_cache_config_and_with_force_everything_runs(bench):
    definition = two_steps()
    definition["Steps"][0].pop("CacheConfig")
    bench.run(definition, parameters=text_parameter(bench))

    again = bench.run(definition, parameters=text_parameter(bench))
    assert bench.states(again) == {"First": "Succeeded", "Second": "Cached"}
    forced = bench.run(definition, parameters=text_parameter(bench), force=True)
    assert bench.states(forced) == {"First": "Succeeded", "Second": "Succeeded"}
    assert forced.steps["Second"].reason == "forced"


def test_a_seal_older_than_expire_after_does_not_serve(bench):
    definition = two_steps()
    definition["Steps"][0]["CacheConfig"]["ExpireAfter"] = "P1D"
    result = bench.run(definition, parameters=text_parameter(bench))
    path = result.outputs["First"]["out"].parent / "seal.json"
    seal = json.loads(path.read_text())
    path.write_text(json.dumps(seal | {"sealed_at": seal["sealed_at"] - 100_000}))
    result = bench.run(definition, parameters=text_parameter(bench))

    assert result.steps["First"].reason == "sealed longer than P1D ago"


# --- several instances ------------------------------------------------------------------------------------------------


def test_several_instances_share_an_output_and_split_a_sharded_input(bench):
    (bench.text.parent / "b.txt").write_text("second")
    definition = {"Steps": [processing("Split", {"text": bench.text.parent.as_uri()})]}
    arguments = definition["Steps"][0]["Arguments"]
    arguments["ProcessingResources"]["ClusterConfig"]["InstanceCount"] = 2
    arguments["ProcessingInputs"][0]["S3Input"]["S3DataDistributionType"] = "ShardedByS3Key"
    result = bench.run(definition)

    folder = result.outputs["Split"]["out"]
    assert (folder / "result-algo-1.txt").read_text() == "hello world"
    assert (folder / "result-algo-2.txt").read_text() == "second"


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failing_step_tells_its_own_line_and_stops_the_others(bench):
    definition = {
        "Steps": [
            processing("Bad", fails="error: text: 3 lines; limit 5. Add text.", seconds=0.3),
            processing("Slow", seconds=30),
            processing("Later", {"text": output_of("Bad")}),
        ]
    }
    began = time.monotonic()
    result = bench.run(definition)

    assert time.monotonic() - began < 10
    assert result.exit_code == 1
    assert result.failure.startswith("Bad: text: 3 lines; limit 5. Add text. (log: ")
    assert bench.states(result) == {"Bad": "Failed", "Slow": "Stopped", "Later": "NotRun"}
    assert bench.progress.lines == [f"error: {result.failure}"]


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (70, 70), (3, 1), (143, 143), (137, 1), (139, 70)])
def test_exit_codes(bench, code, expected):
    result = bench.run({"Steps": [processing("Bad", fails="why", exit_code=code)]})

    assert result.exit_code == expected


def test_without_a_message_the_last_line_of_the_log_serves(bench):
    bench.worker.write_text("import sys\nprint('fine')\nsys.exit('ValueError: it broke')")
    result = bench.run({"Steps": [processing("Bad")]})

    assert result.failure.startswith("Bad: exit code 1: ValueError: it broke (log: ")


def test_a_user_error_is_never_retried(bench):
    step = processing("Bad", fails="why")
    step["RetryPolicies"] = [
        {"BackoffRate": 1.0, "IntervalSeconds": 0, "MaxAttempts": 3, "ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"]}
    ]
    assert bench.run({"Steps": [step]}).steps["Bad"].attempts == 1


def test_a_missing_input_is_named(bench):
    result = bench.run(two_steps(), parameters={"TextUri": "file:///nowhere/at/all"})

    assert result.exit_code == 1
    assert result.failure.startswith("First: /nowhere/at/all: does not exist. Name an existing file or folder.")


def test_a_number_that_is_not_there_is_named(bench):
    definition = two_steps()
    condition = {"Type": "LessThan", "LeftValue": score_of("Second", "scores[0].leters"), "RightValue": 100}
    gate = {"Conditions": [condition], "IfSteps": [], "ElseSteps": []}
    definition["Steps"].append({"Name": "Gate", "Type": "Condition", "Arguments": gate})
    result = bench.run(definition, parameters=text_parameter(bench))

    assert result.failure == "Gate: score-algo-1.json: scores[0].leters: no 'leters'. Did you mean letters?"


# --- refused before anything runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"Name": "Serve", "Type": "Model", "Arguments": {}}, "Serve: a step of type Model; limit one of Processing"),
        ({"Name": "Train", "Type": "Training", "Arguments": {"OutputDataConfig": {"S3OutputPath": "s3://b/o"}}},
         "Train, AlgorithmSpecification.TrainingImage: is not given."),
        ({"Name": "Call", "Type": "Lambda", "Arguments": {}, "FunctionArn": "arn:f"},
         "Call: arn:f has no local function."),
        ({"Name": "Late", "Type": "Fail", "Arguments": {}, "DependsOn": ["Frist"]},
         "Late: needs step Frist. Did you mean First?"),
        ({"Name": "First", "Type": "Fail", "Arguments": {}}, "First: two steps of this name."),
    ],
    ids=["model step", "no image", "function", "unknown step", "same name"],
)  # fmt: skip
def test_what_cannot_run_is_refused_first(bench, step, message):
    definition = two_steps()
    definition["Steps"].append(step)
    with pytest.raises(ConfigError) as caught:
        bench.run(definition, parameters=text_parameter(bench))

    assert str(caught.value).startswith(message)
    assert not bench.run_folder.exists()


def test_steps_that_wait_for_each_other_are_refused(bench):
    first, second = processing("First"), processing("Second", {"text": output_of("First")})
    first["DependsOn"] = ["Second"]
    with pytest.raises(ConfigError, match="steps wait for each other: First, Second"):
        bench.run({"Steps": [first, second]})


def test_an_image_without_a_command_is_refused(bench):
    with pytest.raises(ConfigError, match="has no local command"):
        bench.run({"Steps": [processing("First")]}, images={})


# --- registering ------------------------------------------------------------------------------------------------------


def registering(uri):
    return {
        "Name": "Keep", "Type": "RegisterModel",
        "Arguments": {
            "ModelPackageGroupName": "texts", "ModelApprovalStatus": "PendingManualApproval",
            "CustomerMetadataProperties": {"letters": {"Std:Join": {"On": "", "Values": [score_of("Second")]}},
                                           "execution": {"Get": "Execution.PipelineExecutionId"}},
            "ModelMetrics": {"ModelQuality": {"Statistics": {"ContentType": "application/json", "S3Uri": {
                "Std:Join": {"On": "/", "Values": [output_of("Second"), "score-algo-1.json"]}}}}},
            "InferenceSpecification": {"Containers": [
                {"Image": IMAGE, "ModelDataSource": {"S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix"}}}]},
        },
    }  # fmt: skip


def test_a_model_is_registered_once_and_outlives_the_run(bench):
    definition = two_steps()
    definition["Steps"].append(registering(output_of("Second")))
    result = bench.run(definition, parameters=text_parameter(bench))
    again = bench.run(definition, parameters=text_parameter(bench))

    assert (result.registered.version, result.registered_is_new) == (1, True)
    assert (again.registered.version, again.registered_is_new) == (1, False)
    assert result.registered.metrics == {"scores": [{"letters": 11, "share": 0.11}]}
    assert result.registered.metadata["letters"] == "11"
    (result.outputs["Second"]["out"] / "result.txt").write_text("cut")
    assert (result.registered.model_folder / "result.txt").read_text() == "hello world"


# --- the run folder ---------------------------------------------------------------------------------------------------


def test_the_record_of_a_run(bench):
    result = bench.run(two_steps(), parameters=text_parameter(bench))

    record = json.loads((bench.run_folder / "execution.json").read_text())
    assert record == json.loads((bench.run_folder / "executions" / f"{result.execution_id}.json").read_text())
    assert (record["state"], record["exit_code"]) == ("Succeeded", 0)
    first = record["steps"]["First"]
    assert (first["state"], first["reason"], first["metric"]) == ("Succeeded", "first run", "letters=11")
    assert Path(first["outputs"]["out"]) == bench.run_folder / "outputs/First" / first["cache_key"][:16] / "out"
    assert "metrics: letters=11" in Path(first["log"]).read_text()


def test_a_job_sees_the_tree_of_the_service(bench):
    bench.run(two_steps(), parameters=text_parameter(bench))

    (root,) = (bench.run_folder / "jobs/First").glob("*/opt/ml")
    job = json.loads((root / "config/processingjobconfig.json").read_text())
    assert job["ProcessingInputs"][0]["S3Input"]["S3Uri"] == bench.text.parent.as_uri()
    assert json.loads((root / "config/resourceconfig.json").read_text()) == {
        "current_host": "algo-1",
        "hosts": ["algo-1"],
    }
    linked = root / "processing/input/text/a.txt"
    assert linked.is_symlink()
    assert linked.resolve() == bench.text.resolve()


RUN_SCRIPT = """
    import json, sys
    from pathlib import Path
    from pipeline.local.executor import run_definition
    from pipeline.local.jobs import LocalImage
    from pipeline.registry import LocalRegistry

    folder, worker = Path(sys.argv[1]), sys.argv[2]
    result = run_definition(json.loads(sys.stdin.read()), run_folder=folder / "run",
                            registry=LocalRegistry(folder / "registry"),
                            default_image=LocalImage([sys.executable, worker]))
    sys.exit(result.exit_code)
"""


def start_run(bench, definition):
    """A run in a process of its own, waited for until its step works."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN_SCRIPT), str(bench.folder), str(bench.worker)],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    process.stdin.write(json.dumps(definition))
    process.stdin.close()
    deadline = time.monotonic() + 20
    while not list(bench.run_folder.glob("jobs/*/*/processes.json")):
        assert time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_steps_and_the_run(bench, number, code):
    process = start_run(bench, {"Steps": [processing("Slow", seconds=60)]})
    process.send_signal(number)

    assert process.wait(20) == code
    record = json.loads((bench.run_folder / "execution.json").read_text())
    assert (record["state"], record["steps"]["Slow"]["state"]) == ("Stopped", "Stopped")
    assert not is_running(bench)
    process.stderr.close()


def test_a_folder_in_use_is_refused_and_a_dead_run_taken_over_with_its_processes(bench):
    marker, asleep = bench.folder / "awake", bench.folder / "asleep"
    definition = {"Steps": [processing("Slow", seconds=60, awake_once_there=marker, asleep=asleep)]}
    process = start_run(bench, definition)
    # It has looked for the marker: what it left must not end by itself before the second run sees it.
    deadline = time.monotonic() + 20
    while not asleep.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(ConfigError, match=f"is in use by process {process.pid}"):
        bench.run(definition)
    process.kill()
    process.wait()
    process.stderr.close()
    # The worker, unlike launch.py, does not notice that the run is gone.
    (orphan,) = json.loads(next(bench.run_folder.glob("jobs/*/*/processes.json")).read_text())
    assert is_running(bench)

    marker.touch()
    result = bench.run(definition)
    assert result.exit_code == 0
    assert bench.progress.lines == [
        f"The run of process {process.pid} in {bench.run_folder} ended without cleaning up: taking it over",
        f"Ending 1 process that an earlier run in {bench.run_folder} left",
    ]
    assert process_identity(orphan["process_id"]) != orphan["identity"]


def is_running(bench) -> bool:
    return any(recorded_processes(path) for path in bench.run_folder.glob("jobs/*/*/processes.json"))
