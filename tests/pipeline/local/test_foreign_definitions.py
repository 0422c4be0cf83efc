"""A definition as somebody else writes it with the SageMaker SDK, run whole on this machine.

foreign/churn.json is what the SDK makes of `build_churn` below; the tests run that file, and one compiles it again to
show that it is what the SDK writes. `python tests/pipeline/local/test_foreign_definitions.py` writes it anew.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pipeline.local.executor import run_definition
from pipeline.local.images import LocalImage
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError

FOREIGN = Path(__file__).parent / "foreign"
ACCOUNT = "444455556666.dkr.ecr.eu-west-1.amazonaws.com"
PYTHON_IMAGE, TRAINING_IMAGE = f"{ACCOUNT}/python-tools:3", f"{ACCOUNT}/churn-training:latest"


def build_churn(session):
    """Split -> Train -> Score -> Judge, and in its branches: Register and Tell, or LookAgain with a second choice."""
    from sagemaker.core.lambda_helper import Lambda
    from sagemaker.core.processing import Processor
    from sagemaker.core.shapes import (
        Channel,
        CheckpointConfig,
        DataSource,
        MetricDefinition,
        OutputDataConfig,
        ProcessingInput,
        ProcessingOutput,
        ProcessingS3Input,
        ProcessingS3Output,
        S3DataSource,
    )
    from sagemaker.core.training.configs import Compute
    from sagemaker.core.workflow.conditions import (
        ConditionEquals,
        ConditionGreaterThanOrEqualTo,
        ConditionIn,
        ConditionLessThan,
        ConditionNot,
        ConditionOr,
    )
    from sagemaker.core.workflow.execution_variables import ExecutionVariables
    from sagemaker.core.workflow.functions import Join, JsonGet
    from sagemaker.core.workflow.parameters import (
        ParameterBoolean,
        ParameterFloat,
        ParameterInteger,
        ParameterString,
    )
    from sagemaker.core.workflow.properties import PropertyFile
    from sagemaker.mlops.workflow.condition_step import ConditionStep
    from sagemaker.mlops.workflow.fail_step import FailStep
    from sagemaker.mlops.workflow.lambda_step import LambdaOutput, LambdaOutputTypeEnum, LambdaStep
    from sagemaker.mlops.workflow.model_step import ModelStep
    from sagemaker.mlops.workflow.pipeline import Pipeline
    from sagemaker.mlops.workflow.retry import (
        SageMakerJobExceptionTypeEnum,
        SageMakerJobStepRetryPolicy,
        StepExceptionTypeEnum,
        StepRetryPolicy,
    )
    from sagemaker.mlops.workflow.steps import CacheConfig, ProcessingStep, TrainingStep
    from sagemaker.train.model_trainer import ModelTrainer

    role = "arn:aws:iam::444455556666:role/churn"
    bucket = ParameterString("Bucket", "acme-churn")
    stage = ParameterString("Stage", "dev", enum_values=["dev", "prod"])
    instances = ParameterInteger("Instances", 1)
    epochs = ParameterInteger("Epochs", 4)
    test_share = ParameterFloat("TestShare", 0.25)
    least_accuracy = ParameterFloat("LeastAccuracy", 0.75)
    dry = ParameterBoolean("DryRun", default_value=False)
    cache = CacheConfig(enable_caching=True, expire_after="30d")
    run_prefix = Join("/", ["s3:/", bucket, ExecutionVariables.PIPELINE_NAME, ExecutionVariables.PIPELINE_EXECUTION_ID])

    def source(name, uri, path):
        shape = ProcessingS3Input(s3_uri=uri, local_path=f"/opt/ml/processing/{path}", s3_data_type="S3Prefix",
                                  s3_input_mode="File", s3_data_distribution_type="FullyReplicated",
                                  s3_compression_type="None")  # fmt: skip
        return ProcessingInput(input_name=name, s3_input=shape)

    def target(name, path, step, mode="EndOfJob"):
        shape = ProcessingS3Output(s3_uri=Join("/", [run_prefix, step, name]),
                                   local_path=f"/opt/ml/processing/{path}", s3_upload_mode=mode)  # fmt: skip
        return ProcessingOutput(output_name=name, s3_output=shape)

    def script(name, file, inputs, outputs, arguments, env=None, **options):
        processor = Processor(
            role=role, image_uri=PYTHON_IMAGE, instance_count=instances, instance_type="ml.m5.xlarge", env=env,
            entrypoint=["python3", f"/opt/ml/processing/input/code/{file}"], max_runtime_in_seconds=3600,
            sagemaker_session=session,
        )  # fmt: skip
        code = source("code", f"s3://acme-code/churn/{file}", "input/code")
        step_args = processor.run(inputs=[*inputs, code], outputs=outputs, arguments=arguments)
        return ProcessingStep(name, step_args=step_args, **options)

    facts = PropertyFile("Facts", output_name="facts", path="facts.json")
    split = script(
        "Split", "split.py",
        [source("customers", Join("", ["s3://", bucket, "/raw/customers"]), "input/customers"),
         source("calls", Join("", ["s3://", bucket, "/raw/calls/calls.csv"]), "input/calls")],
        [target("train", "output/train", "split"), target("test", "output/test", "split"),
         target("facts", "output/facts", "split", mode="Continuous")],
        ["--customers", "/opt/ml/processing/input/customers", "--calls=/opt/ml/processing/input/calls",
         "--out", "/opt/ml/processing/output", "--test-share", test_share.to_string(),
         "--tag", Join("-", [ExecutionVariables.PIPELINE_NAME, stage])],
        env={"STAGE": stage, "EXECUTION": ExecutionVariables.PIPELINE_EXECUTION_ARN,
             "BEGAN": ExecutionVariables.START_DATETIME, "NOW": ExecutionVariables.CURRENT_DATETIME,
             "PIPELINE": ExecutionVariables.PIPELINE_ARN, "JOB": ExecutionVariables.PROCESSING_JOB_NAME},
        property_files=[facts], cache_config=cache,
        retry_policies=[StepRetryPolicy(exception_types=[StepExceptionTypeEnum.THROTTLING], max_attempts=2)],
    )  # fmt: skip
    outputs = split.properties.ProcessingOutputConfig.Outputs

    def channel(name, uri):
        return Channel(channel_name=name, content_type="text/csv", input_mode="FastFile", data_source=DataSource(
            s3_data_source=S3DataSource(s3_data_type="S3Prefix", s3_uri=uri,
                                        s3_data_distribution_type="FullyReplicated")))  # fmt: skip

    trainer = ModelTrainer(
        role=role, sagemaker_session=session, base_job_name="churn", training_image=TRAINING_IMAGE,
        compute=Compute(instance_type="ml.m5.xlarge", instance_count=1),
        output_data_config=OutputDataConfig(s3_output_path=Join("/", [run_prefix, "models"])),
        checkpoint_config=CheckpointConfig(
            s3_uri=Join("/", ["s3:/", bucket, "checkpoints", ExecutionVariables.TRAINING_JOB_NAME])),
        environment={"STAGE": stage},
        hyperparameters={"epochs": epochs.to_string(), "optimizer": "none"},
    ).with_metric_definitions([MetricDefinition(name="train:error", regex="train_error=([0-9.]+);")])  # fmt: skip
    train = TrainingStep(
        "Train",
        step_args=trainer.train(
            input_data_config=[channel("train", outputs["train"].S3Output.S3Uri),
                               channel("facts", outputs["facts"].S3Output.S3Uri)]),
        cache_config=cache,
        retry_policies=[SageMakerJobStepRetryPolicy(
            exception_types=[SageMakerJobExceptionTypeEnum.RESOURCE_LIMIT],
            failure_reason_types=[SageMakerJobExceptionTypeEnum.INTERNAL_ERROR], max_attempts=2)],
    )  # fmt: skip
    artifacts = train.properties.ModelArtifacts.S3ModelArtifacts
    report = PropertyFile("Report", output_name="report", path="report.json")
    score = script(
        "Score", "score.py",
        [source("model", artifacts, "model"), source("test", outputs["test"].S3Output.S3Uri, "test")],
        [target("report", "report", "score")],
        ["/opt/ml/processing/model", "/opt/ml/processing/test", "/opt/ml/processing/report"],
        env={"TRAIN_ERROR": train.properties.FinalMetricDataList["train:error"].Value.to_string()},
        property_files=[report], cache_config=cache,
    )  # fmt: skip

    accuracy = JsonGet(step_name="Score", property_file=report, json_path="metrics[0].value")
    rows = JsonGet(step_name="Split", property_file=facts, json_path="rows")
    registering = register_arguments(session, artifacts, score, accuracy)
    register = ModelStep("Register", step_args=registering)
    tell = LambdaStep(
        "Tell",
        lambda_func=Lambda(function_arn="arn:aws:lambda:eu-west-1:444455556666:function:tell"),
        inputs={"accuracy": accuracy, "model": artifacts, "package": register.properties.ModelPackageArn,
                "count": split.properties.ProcessingResources.ClusterConfig.InstanceCount},
        outputs=[LambdaOutput("said"), LambdaOutput("number", LambdaOutputTypeEnum.Integer)],
    )  # fmt: skip
    too_bad = FailStep("TooBad", error_message=Join("", ["accuracy ", accuracy, " in stage ", stage, " of ", rows]))
    dry_run = LambdaStep(
        "OnlyLooked",
        lambda_func=Lambda(function_arn="arn:aws:lambda:eu-west-1:444455556666:function:tell"),
        inputs={"accuracy": accuracy},
        outputs=[LambdaOutput("said")],
    )
    look_again = ConditionStep(
        "LookAgain",
        conditions=[ConditionOr([
            ConditionEquals(dry, True),
            ConditionNot(ConditionEquals(ExecutionVariables.PIPELINE_NAME, "churn")),
        ])],
        if_steps=[dry_run],
        else_steps=[too_bad],
    )  # fmt: skip
    judge = ConditionStep(
        "Judge",
        conditions=[
            ConditionGreaterThanOrEqualTo(accuracy, least_accuracy),
            ConditionOr([
                ConditionIn(JsonGet(step_name="Score", property_file=report, json_path="grade"), ["A", stage]),
                ConditionNot(ConditionOr([ConditionLessThan(rows, 100), ConditionEquals(stage, "prod")])),
                ConditionEquals(train.properties.TrainingJobStatus, "Completed"),
            ]),
            ConditionNot(ConditionEquals(JsonGet(step_name="Score", property_file=report, json_path="final"), dry)),
            ConditionIn(stage, ["dev", "prod"]),
        ],
        if_steps=[register, tell],
        else_steps=[look_again],
        depends_on=["Train", split],
    )  # fmt: skip
    return Pipeline(
        "churn",
        parameters=[bucket, stage, instances, epochs, test_share, least_accuracy, dry],
        steps=[judge, score, train, split],
        sagemaker_session=session,
    )


def register_arguments(session, artifacts, score, accuracy):
    from dataclasses import dataclass
    from typing import Any

    from sagemaker.core.model_registry import create_model_package_from_containers
    from sagemaker.core.workflow.functions import Join

    @dataclass
    class Model:
        sagemaker_session: Any

    uri = Join("/", [score.properties.ProcessingOutputConfig.Outputs["report"].S3Output.S3Uri, "report.json"])
    session.init_model_step_arguments(Model(session))
    create_model_package_from_containers(
        session,
        containers=[{"Image": TRAINING_IMAGE, "ModelDataUrl": artifacts}],
        content_types=["text/csv"], response_types=["text/csv"], inference_instances=["ml.m5.large"],
        model_package_group_name="churn-models", approval_status="PendingManualApproval",
        model_metrics={"ModelQuality": {"Statistics": {"ContentType": "application/json", "S3Uri": uri}}},
        customer_metadata_properties={"accuracy": accuracy},
    )  # fmt: skip
    arguments, session.context = session.context, None
    return arguments


def compile_churn():
    from pipeline.compile import offline_sdk
    from pipeline.config import load_config

    with offline_sdk(load_config("laptop")) as session:
        return json.loads(build_churn(session).definition())


# --- run from the file, without the SDK -------------------------------------------------------------------------------

CUSTOMERS = "id,left\n" + "".join(f"c{number},{int(number % 4 > 1)}\n" for number in range(16))
CALLS = "id,calls\n" + "".join(f"c{number},{number % 4 + 1}\n" for number in range(16))


class Desk:
    """A run folder, a registry, and the folder that stands for the other team's buckets."""

    def __init__(self, folder):
        self.folder, self.run_folder = folder, folder / "run"
        for name, text in (("raw/customers/customers.csv", CUSTOMERS), ("raw/calls/calls.csv", CALLS)):
            path = folder / "bucket" / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
        self.registry = LocalRegistry(folder / "registry")
        self.told = []

    def tell(self, event, context):
        self.told.append(event)
        return {"said": f"accuracy {event['accuracy']}", "number": len(self.told)}

    def run(self, definition, **options):
        given = {
            "images": {
                PYTHON_IMAGE: LocalImage(runs_entrypoint=True),
                TRAINING_IMAGE: LocalImage((sys.executable, str(FOREIGN / "code" / "train.py"))),
            },
            "functions": {"tell": self.tell},
            "uris": {"s3://acme-churn": self.folder / "bucket", "s3://acme-code/churn": FOREIGN / "code"},
            "pipeline_name": "churn", "progress": Quiet(), **options,
        }  # fmt: skip
        return run_definition(definition, run_folder=self.run_folder, registry=self.registry, **given)


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.fixture
def churn():
    return json.loads((FOREIGN / "churn.json").read_text())


def states(result):
    return {name: record.state for name, record in result.steps.items()}


def test_the_file_is_what_the_sdk_compiles(churn):
    assert normal(compile_churn()) == normal(churn)


def normal(value):
    """The SDK collects DependsOn in a set at places."""
    if isinstance(value, dict):
        return {key: sorted(item) if key == "DependsOn" else normal(item) for key, item in value.items()}
    return [normal(item) for item in value] if isinstance(value, list) else value


def test_a_foreign_definition_runs_whole(desk, churn):
    result = desk.run(churn)

    assert (result.failure, result.exit_code) == ("", 0)
    assert states(result) == {
        "Split": "Succeeded", "Train": "Succeeded", "Score": "Succeeded", "Judge": "Succeeded",
        "Register": "Succeeded", "Tell": "Succeeded", "LookAgain": "Skipped", "OnlyLooked": "Skipped",
        "TooBad": "Skipped",
    }  # fmt: skip
    outputs = result.outputs["Split"]
    assert (outputs["train"] / "train.csv").read_text().count("\n") == 12
    facts = json.loads((outputs["facts"] / "facts.json").read_text())
    assert (facts["rows"], facts["tag"], facts["stage"]) == (16, "churn-dev", "dev")
    assert facts["execution"] == f"arn:aws:sagemaker:local:000000000000:pipeline/churn/execution/{result.execution_id}"
    # The last metric of the log, as the definition's expression finds it: three of four epochs err, the last does not.
    report = json.loads((result.outputs["Score"]["report"] / "report.json").read_text())
    assert report == {"metrics": [{"name": "accuracy", "value": 1.0}], "grade": "A", "final": True, "train_error": 0.0}
    assert [str(condition) for condition in result.gates["Judge"].conditions] == [
        "metrics[0].value 1.0000 >= 0.7500 (LeastAccuracy) holds",
        'or(grade A in ["A", "dev"] holds; '
        "not(or(rows 16 < 100 holds; Stage dev == prod FAILS) holds) FAILS; "
        "Train.TrainingJobStatus Completed == Completed holds) holds",
        "not(final true == false (DryRun) FAILS) holds",
        'Stage dev in ["dev", "prod"] holds',
    ]
    (event,) = desk.told
    job = f"pipelines-{result.execution_id}-Train"
    assert event == {
        "accuracy": 1.0, "count": 1, "package": "arn:aws:sagemaker:local:000000000000:model-package/churn-models/1",
        "model": f"s3://acme-churn/churn/{result.execution_id}/models/{job}/output/model.tar.gz",
    }  # fmt: skip
    assert result.steps["Tell"].values == {"said": "accuracy 1.0", "number": 1}
    assert [path.name for path in result.registered.model_folder.iterdir()] == ["model.tar.gz"]
    # A checkpoint URI with the job's own name in it.
    checkpoints = desk.folder / "bucket/checkpoints" / job
    assert sorted(path.name for path in checkpoints.iterdir()) == [f"epoch-{number}.json" for number in range(4)]


def test_a_compressed_model_is_the_same_file_every_time(desk, churn):
    first = desk.run(churn).outputs["Train"]
    archive = (first["model"] / "model.tar.gz").read_bytes()
    with tarfile.open(first["model"] / "model.tar.gz") as tar:
        assert [(entry.name, entry.uid, entry.mtime) for entry in tar] == [
            ("settings.json", 0, 0),
            ("weights/limit.json", 0, 0),
        ]
        assert json.loads(tar.extractfile("weights/limit.json").read()) == {"limit": 2}
    with tarfile.open(first["data"] / "output.tar.gz") as tar:
        assert tar.getnames() == ["curve.txt"]
    again = desk.run(churn, force=True)
    assert states(again)["Train"] == "Succeeded"
    assert (again.outputs["Train"]["model"] / "model.tar.gz").read_bytes() == archive


def test_a_foreign_definition_comes_from_the_cache(desk, churn):
    desk.run(churn)
    result = desk.run(churn)

    assert {name: state for name, state in states(result).items() if name in ("Split", "Train", "Score")} == {
        "Split": "Cached", "Train": "Cached", "Score": "Cached",
    }  # fmt: skip
    # Registered once, told twice: a Lambda function is never cached.
    assert (result.registered.version, result.registered_is_new, len(desk.told)) == (1, False, 2)
    (desk.folder / "bucket/raw/calls/calls.csv").write_text(CALLS.replace("c0,1", "c0,9"))
    result = desk.run(churn)
    assert result.steps["Split"].reason == "changed: input calls"


@pytest.mark.parametrize(
    ("parameters", "expected", "exit_code", "failure"),
    [
        ({"LeastAccuracy": "1.5"}, {"Register": "Skipped", "Tell": "Skipped", "LookAgain": "Succeeded",
                                    "OnlyLooked": "Skipped", "TooBad": "Failed"},
         2, "TooBad: accuracy 1.0 in stage dev of 16"),
        ({"DryRun": "true"}, {"Register": "Skipped", "Tell": "Skipped", "LookAgain": "Succeeded",
                              "OnlyLooked": "Succeeded", "TooBad": "Skipped"}, 0, ""),
    ],
    ids=["closed and closed", "closed and open"],
)  # fmt: skip
def test_nested_conditions_take_one_branch_each(desk, churn, parameters, expected, exit_code, failure):
    result = desk.run(churn, parameters=parameters)

    assert {name: states(result)[name] for name in expected} == expected
    assert (result.exit_code, result.failure) == (exit_code, failure)
    assert result.registered is None


def test_an_entry_point_of_the_definition_is_run_only_where_the_image_says_so(desk, churn):
    marker = desk.folder / "own.py"
    marker.write_text("import sys; sys.exit('the image ran, not the script')")
    images = {
        PYTHON_IMAGE: LocalImage((sys.executable, str(marker))),
        TRAINING_IMAGE: LocalImage((sys.executable, str(FOREIGN / "code" / "train.py"))),
    }
    result = desk.run(churn, images=images)

    assert result.failure.startswith("Split: exit code 1: the image ran, not the script")
    images[TRAINING_IMAGE] = LocalImage(runs_entrypoint=True)
    with pytest.raises(ConfigError, match=r"Train: image .*churn-training:latest has no local command"):
        desk.run(churn, images=images)


def test_the_documented_program_runs(desk):
    page = (Path(__file__).parents[3] / "docs" / "foreign-definitions.md").read_text()
    program = page.split("```python\n", 1)[1].split("```", 1)[0]
    (desk.folder / "code").symlink_to(FOREIGN / "code")
    (desk.folder / "churn.json").symlink_to(FOREIGN / "churn.json")
    root = str(Path(__file__).parents[3])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=desk.folder, env={**os.environ, "PYTHONPATH": root, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Succeeded {desk.folder}/run/outputs/Score/")


def test_files_that_do_not_hold_what_a_condition_asks_end_the_run_in_one_line(desk, churn):
    # Nothing before Score changes; its script is somebody else's now.
    code = desk.folder / "code"
    code.mkdir()
    for path in (FOREIGN / "code").glob("*.py"):
        (code / path.name).write_text(path.read_text())
    uris = {"s3://acme-churn": desk.folder / "bucket", "s3://acme-code/churn": code}
    for text, line in (
        ("", "Judge: {0}: not written by its step. Look at that step's log."),
        ("open(sys.argv[3] + '/report.json', 'w').write('no')", "Judge: {0}: no JSON (Expecting value"),
        ("open(sys.argv[3] + '/report.json', 'w').write('{}')", "Judge: report.json: metrics[0].value: no 'metrics'."),
    ):
        (code / "score.py").write_text(f"import sys\n{text}\n")
        result = desk.run(churn, uris=uris)
        assert result.exit_code == 1
        assert result.failure.startswith(line.format(result.outputs["Score"]["report"] / "report.json"))
        assert states(result)["Register"] == "NotRun"


if __name__ == "__main__":
    (FOREIGN / "churn.json").write_text(json.dumps(compile_churn(), indent=1) + "\n")
