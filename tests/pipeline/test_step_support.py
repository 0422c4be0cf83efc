"""What this machine cannot run is refused by step and member, before anything is made."""

import json
from copy import deepcopy

import pytest

from pipeline.local.executor import run_definition
from pipeline.local.images import LocalImage
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry
from pipeline.step_graph import build_graph
from pipeline.step_support import check_steps
from steps.contract import ConfigError

PROCESSING = {
    "Name": "Prepare", "Type": "Processing",
    "Arguments": {
        "AppSpecification": {"ImageUri": "image"},
        "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"}},
        "ProcessingInputs": [{"InputName": "text", "S3Input": {
            "S3Uri": "s3://b/text", "LocalPath": "/opt/ml/processing/input", "S3DataType": "S3Prefix",
            "S3InputMode": "File", "S3CompressionType": "None"}}],
        "ProcessingOutputConfig": {"Outputs": [{"OutputName": "out", "S3Output": {
            "S3Uri": "s3://b/out", "LocalPath": "/opt/ml/processing/output", "S3UploadMode": "Continuous"}}]},
    },
    "PropertyFiles": [{"PropertyFileName": "Report", "OutputName": "out", "FilePath": "report.json"}],
    "CacheConfig": {"Enabled": True, "ExpireAfter": "P30D"},
}  # fmt: skip
TRAINING = {
    "Name": "Fit", "Type": "Training",
    "Arguments": {
        "AlgorithmSpecification": {
            "TrainingImage": "image", "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"},
        "OutputDataConfig": {"S3OutputPath": "s3://b/models"},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {
            "S3DataSource": {"S3Uri": "s3://b/text", "S3DataType": "S3Prefix"}}}],
        "CheckpointConfig": {"S3Uri": "s3://b/checkpoints", "LocalPath": "/opt/ml/checkpoints"},
    },
}  # fmt: skip
REGISTER = {
    "Name": "Keep",
    "Type": "RegisterModel",
    "Arguments": {"InferenceSpecification": {"Containers": [{"Image": "image", "ModelDataUrl": "s3://b/model"}]}},
}


def changed(step, path, value):
    """A copy of a step with the member at a path of names and numbers set, or taken out where the value is None."""
    step = deepcopy(step)
    *before, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    holder = step
    for part in before:
        holder = holder.setdefault(part, {}) if isinstance(holder, dict) else holder[part]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    return step


def test_the_steps_that_these_tests_change_are_run():
    check_steps(build_graph({"Steps": [PROCESSING, TRAINING, REGISTER]}))


INPUT, SOURCE = "Arguments/ProcessingInputs/0", "Arguments/ProcessingInputs/0/S3Input"
OUTPUT, CHANNEL = "Arguments/ProcessingOutputConfig/Outputs/0", "Arguments/InputDataConfig/0"
REFUSED = [
    (PROCESSING, "Name", "../Prepare", "step ../Prepare: '../Prepare'; limit letters, digits and _.:-"),
    (PROCESSING, "Arguments/AppSpecification", {}, "Prepare, AppSpecification.ImageUri: is not given."),
    (PROCESSING, INPUT, {"InputName": "text", "DatasetDefinition": {"AthenaDatasetDefinition": {}}},
     "Prepare, input text: AthenaDatasetDefinition; limit S3Input. Export the data to files first."),
    (PROCESSING, INPUT, {"InputName": "text", "DatasetDefinition": {"RedshiftDatasetDefinition": {}}},
     "Prepare, input text: RedshiftDatasetDefinition; limit S3Input."),
    (PROCESSING, f"{SOURCE}/S3InputMode", "Pipe", "Prepare, input text, S3InputMode: Pipe; limit File."),
    (PROCESSING, f"{SOURCE}/S3CompressionType", "Gzip", "Prepare, input text, S3CompressionType: Gzip; limit None."),
    (PROCESSING, f"{SOURCE}/S3DataType", "Other", "Prepare, input text, S3DataType: Other; limit S3Prefix or Mani"),
    (PROCESSING, f"{SOURCE}/S3DataType", {"Get": "Parameters.Kind"},
     'Prepare, input text, S3DataType: {"Get": "Parameters.Kind"}; limit S3Prefix or ManifestFile.'),
    (PROCESSING, f"{SOURCE}/LocalPath", "/data", "Prepare, input text, LocalPath: /data; limit below /opt/ml."),
    (PROCESSING, f"{SOURCE}/LocalPath", "/opt/ml/../../etc",
     "Prepare, input text, LocalPath: /opt/ml/../../etc; limit below /opt/ml."),
    (PROCESSING, f"{INPUT}/AppManaged", True, "Prepare, input text, AppManaged: true; limit false."),
    (PROCESSING, OUTPUT, {"OutputName": "out", "FeatureStoreOutput": {}},
     "Prepare, output out: FeatureStoreOutput; limit S3Output. Run this definition on SageMaker."),
    (PROCESSING, f"{OUTPUT}/AppManaged", True, "Prepare, output out, AppManaged: true; limit false."),
    (PROCESSING, f"{OUTPUT}/S3Output/LocalPath", None, "Prepare, output out: no LocalPath; limit below /opt/ml."),
    (PROCESSING, f"{OUTPUT}/S3Output/S3UploadMode", "Later",
     "Prepare, output out, S3UploadMode: Later; limit EndOfJob or Continuous."),
    (PROCESSING, "PropertyFiles/0/OutputName", "ot", "Prepare, property file Report: of output ot. Did you mean out?"),
    (PROCESSING, "PropertyFiles/0/FilePath", "../report.json",
     "Prepare, property file Report: ../report.json; limit a path inside its output."),
    (PROCESSING, "CacheConfig/ExpireAfter", "soon",
     "Prepare, CacheConfig.ExpireAfter: soon; limit a duration such as P30D"),
    (PROCESSING, "DependsOn", [{"Step": "Fit", "Trigger": "Failed"}],
     "Prepare, DependsOn: runs when Fit is Failed; limit Completed."),
    (TRAINING, "Arguments/AlgorithmSpecification/AlgorithmName", "arn:a",
     "Fit, AlgorithmSpecification.AlgorithmName: is not run here. Run this definition on SageMaker."),
    (TRAINING, "Arguments/ResourceConfig/InstanceGroups", [],
     "Fit, ResourceConfig.InstanceGroups: is not run here."),
    (TRAINING, "Arguments/ProfilerRuleConfigurations", [{}], "Fit, ProfilerRuleConfigurations: is not run here."),
    (TRAINING, "Arguments/OutputDataConfig/CompressionType", "ZSTD",
     "Fit, CompressionType: ZSTD; limit NONE or GZIP."),
    (TRAINING, "Arguments/AlgorithmSpecification/TrainingInputMode", "Pipe",
     "Fit, TrainingInputMode: Pipe; limit File or FastFile."),
    (TRAINING, f"{CHANNEL}/InputMode", "Pipe", "Fit, input train, InputMode: Pipe; limit File or FastFile."),
    (TRAINING, f"{CHANNEL}/RecordWrapperType", "RecordIO", "Fit, input train, RecordWrapperType: RecordIO; limit"),
    (TRAINING, f"{CHANNEL}/CompressionType", "Gzip", "Fit, input train, CompressionType: Gzip; limit None."),
    (TRAINING, f"{CHANNEL}/DataSource/S3DataSource/S3DataType", "AugmentedManifestFile",
     "Fit, input train, S3DataType: AugmentedManifestFile; limit S3Prefix or ManifestFile."),
    (TRAINING, f"{CHANNEL}/DataSource", {"FileSystemDataSource": {"FileSystemType": "FSxLustre"}},
     "Fit, input train: FSxLustre; limit S3DataSource."),
    (TRAINING, "Arguments/CheckpointConfig/LocalPath", "/checkpoints",
     "Fit, CheckpointConfig, LocalPath: /checkpoints; limit below /opt/ml."),
    (TRAINING, "Arguments/AlgorithmSpecification/MetricDefinitions/0/Regex", "loss=(",
     "Fit, metric loss: loss=( (missing ), unterminated subpattern at position 5). Correct the expression."),
    (TRAINING, "Arguments/AlgorithmSpecification/MetricDefinitions/0/Regex", "loss=.*",
     "Fit, metric loss: loss=.*; limit a group for the number."),
    (REGISTER, "Arguments/InferenceSpecification/Containers", [{}, {}],
     "Keep, InferenceSpecification.Containers: 2 containers; limit 1."),
    (REGISTER, "Arguments/InferenceSpecification/Containers", [{}], "Keep: no model data in its container."),
]  # fmt: skip


@pytest.mark.parametrize(("step", "path", "value", "message"), REFUSED, ids=[row[3][:48] for row in REFUSED])
def test_refused(step, path, value, message):
    others = [other for other in (PROCESSING, TRAINING) if other is not step]
    with pytest.raises(ConfigError) as caught:
        check_steps(build_graph({"Steps": [changed(step, path, value), *others]}))
    assert str(caught.value).startswith(message)


# Every type of the SDK's StepTypeEnum that is not run here, and one that nobody knows.
OTHER_TYPES = (
    "Model", "Transform", "Callback", "Tuning", "QualityCheck", "ClarifyCheck", "EMR", "EMRServerless", "AutoML",
    "EndpointConfig", "Endpoint", "InferenceComponent", "Lineage", "Job", "Cleanup", "ForEach", "Novelty",
)  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_step_type_is_refused_by_name_also_deep_in_a_branch_never_taken(tmp_path, kind):
    unsupported = {"Name": "Odd", "Type": kind, "Arguments": {}}
    closed = {"Type": "Equals", "LeftValue": 1, "RightValue": 2}
    inner = {"Name": "Inner", "Type": "Condition",
             "Arguments": {"Conditions": [closed], "IfSteps": [], "ElseSteps": [unsupported]}}  # fmt: skip
    outer = {"Name": "Outer", "Type": "Condition",
             "Arguments": {"Conditions": [closed], "IfSteps": [inner], "ElseSteps": []}}  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        run_definition(
            {"Steps": [PROCESSING, outer]}, run_folder=tmp_path / "run", registry=LocalRegistry(tmp_path / "registry"),
            default_image=LocalImage(("true",)), progress=Quiet(),
        )  # fmt: skip
    assert str(caught.value) == (
        f"Odd: a step of type {kind}; limit one of Processing, Training, Condition, Fail, Lambda, RegisterModel. "
        "Run this definition on SageMaker."
    )
    assert list(tmp_path.iterdir()) == []


def test_the_types_are_all_that_the_sdk_has():
    """The list above, against the SDK's source: its import takes seconds."""
    import importlib.metadata
    import re

    source = importlib.metadata.distribution("sagemaker-mlops").locate_file("sagemaker/mlops/workflow/steps.py")
    listed = source.read_text().split("class StepTypeEnum", 1)[1].split("class Step(", 1)[0]
    known = set(re.findall(r'= "(\w+)"', listed))
    assert known - set(OTHER_TYPES) == {"Processing", "Training", "Condition", "Fail", "Lambda", "RegisterModel"}


def test_two_writers_of_one_uri_are_refused_unless_only_one_of_them_runs():
    other = PROCESSING | {"Name": "Other"}
    with pytest.raises(ConfigError) as caught:
        check_steps(build_graph({"Steps": [PROCESSING, other]}))
    assert str(caught.value).startswith("Other, output out: s3://b/out; limit one writer; Prepare writes there.")
    condition = {"Type": "Equals", "LeftValue": 1, "RightValue": 2}
    arguments = {"Conditions": [condition], "IfSteps": [PROCESSING], "ElseSteps": [other]}
    check_steps(build_graph({"Steps": [{"Name": "Either", "Type": "Condition", "Arguments": arguments}]}))


def test_names_and_paths_twice_are_refused():
    step = deepcopy(PROCESSING)
    inputs = step["Arguments"]["ProcessingInputs"]
    inputs.append(json.loads(json.dumps(inputs[0])))
    with pytest.raises(ConfigError, match=r"Prepare, input: text; limit one of each\."):
        check_steps(build_graph({"Steps": [step]}))
    inputs[1]["InputName"] = "more"
    with pytest.raises(ConfigError, match=r"Prepare, input path: /opt/ml/processing/input; limit one of each\."):
        check_steps(build_graph({"Steps": [step]}))
