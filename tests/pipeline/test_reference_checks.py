"""References that lead nowhere are found before anything runs, and those that lead somewhere are left alone."""

import pytest

from pipeline.local.executor import run_definition
from pipeline.progress import Quiet
from pipeline.reference_checks import check_references
from pipeline.registry import LocalRegistry
from pipeline.step_graph import build_graph
from steps.contract import ConfigError

PARAMETERS = {"Uri": "String", "Count": "Integer", "Share": "Float", "Flag": "Boolean"}
PREPARE = {
    "Name": "Prepare", "Type": "Processing",
    "Arguments": {
        "ProcessingInputs": [{"InputName": "text", "S3Input": {"S3Uri": {"Get": "Parameters.Uri"}}}],
        "ProcessingOutputConfig": {"Outputs": [
            {"OutputName": "out", "S3Output": {"S3Uri": {"Get": "Parameters.Uri"}}}]},
    },
    "PropertyFiles": [{"PropertyFileName": "Report", "OutputName": "out", "FilePath": "report.json"}],
}  # fmt: skip
FIT = {
    "Name": "Fit", "Type": "Training",
    "Arguments": {
        "AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}]},
        "HyperParameters": {"epochs": {"Get": "Parameters.Count"}},
        "CheckpointConfig": {"S3Uri": {"Get": "Execution.TrainingJobName"}},
    },
}  # fmt: skip
ASK = {"Name": "Ask", "Type": "Lambda", "FunctionArn": "arn:f", "Arguments": {},
       "OutputParameters": [{"OutputName": "answer", "OutputType": "String"}]}  # fmt: skip
GATE = {"Name": "Gate", "Type": "Condition", "Arguments": {"Conditions": [], "IfSteps": [], "ElseSteps": []}}


def check(*references, **gate):
    reader = {"Name": "Read", "Type": "Lambda", "FunctionArn": "arn:f", "Arguments": {"event": list(references)}}
    arguments = GATE["Arguments"] | {"Conditions": gate.get("conditions", [])}
    steps = [PREPARE, FIT, ASK, GATE | {"Arguments": arguments}, reader]
    check_references(build_graph({"Steps": steps}), PARAMETERS)


def json_get(path, name="Report", step="Prepare"):
    return {"Std:JsonGet": {"PropertyFile": {"Get": f"Steps.{step}.PropertyFiles.{name}"}, "Path": path}}


@pytest.mark.parametrize(
    "reference",
    [
        "Parameters.Share", "Execution.CurrentDateTime", "Execution.PipelineExecutionArn",
        "Steps.Prepare.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri",
        "Steps.Prepare.ProcessingInputs[0].S3Input.S3Uri", "Steps.Prepare.ProcessingJobArn",
        "Steps.Fit.ModelArtifacts.S3ModelArtifacts", "Steps.Fit.FinalMetricDataList['loss'].Value",
        "Steps.Fit.FinalMetricDataList[0].Value", "Steps.Fit.HyperParameters['epochs']", "Steps.Fit.TrainingJobName",
        "Steps.Fit.CheckpointConfig.S3Uri", "Steps.Ask.OutputParameters['answer']", "Steps.Gate.Outcome",
    ],
)  # fmt: skip
def test_what_will_be_there_is_left_alone(reference):
    check({"Get": reference}, {"Std:Join": {"On": "", "Values": ["x", {"Get": reference}]}})


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"Get": "Parameters.Shar"}, "Read, Parameters.Shar: no such parameter. Did you mean Share?"),
        ({"Get": "Execution.PipelineNam"}, "Read, Execution.PipelineNam: no such variable. Did you mean PipelineName?"),
        ({"Get": "Execution.TrainingJobName"},
         "Read, Execution.TrainingJobName: in a Lambda step; limit a Training step."),
        ({"Get": "ForEach.CurrentItem"}, "Read, ForEach.CurrentItem: leads nowhere. Write Parameters.NAME"),
        ({"Get": "Steps.Prepare.ProcessingOutputConfig.Outputs['ot'].S3Output.S3Uri"},
         "Read, Steps.Prepare.ProcessingOutputConfig.Outputs['ot'].S3Output.S3Uri: no 'ot'. Correct the path."),
        ({"Get": "Steps.Prepare.ProcessingInputs[1].S3Input"},
         "Read, Steps.Prepare.ProcessingInputs[1].S3Input: no element 1."),
        ({"Get": "Steps.Fit.TrainingEndTime"}, "Read, Steps.Fit.TrainingEndTime: no 'TrainingEndTime'. Did you mean"),
        ({"Get": "Steps.Fit.FinalMetricDataList['los'].Value"},
         "Read, Steps.Fit.FinalMetricDataList['los'].Value: no 'los'."),
        ({"Get": "Steps.Ask.OutputParameters['anser']"},
         "Read, Steps.Ask.OutputParameters['anser']: no 'anser'. Did you mean answer?"),
        (json_get("a.b", name="Reprt"), "Read, Steps.Prepare.PropertyFiles.Reprt: no such property file. Did you"),
        (json_get("a.b", step="Fit"), "Read, Steps.Fit.PropertyFiles.Report: no such property file. Declare it in"),
        (json_get("a[b"), "Read, path: path 'a[b' not understood. Write it as a.b[0]."),
        (json_get({"Get": "Parameters.Uri"}), 'Read, path: {"Get": "Parameters.Uri"}; limit a text.'),
    ],
    ids=str,
)  # fmt: skip
def test_what_will_not_be_there_is_named(reference, message):
    with pytest.raises(ConfigError) as caught:
        check({"deep": [{"Std:Join": {"On": "/", "Values": ["s3://b", reference]}}]})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("left", "right", "value"),
    [
        ({"Get": "Parameters.Count"}, "3", "number against text"),
        ({"Get": "Parameters.Flag"}, 1, "true or false against number"),
        ({"Get": "Execution.PipelineName"}, {"Get": "Parameters.Share"}, "text against number"),
        ({"Std:Join": {"On": "", "Values": [1]}}, 1, "text against number"),
        ({"Get": "Parameters.Count"}, {"Get": "Parameters.Share"}, None),
        (json_get("a"), "3", None),
        ({"Get": "Steps.Ask.OutputParameters['answer']"}, True, None),
    ],
)
def test_sides_that_can_never_be_compared_are_named_also_deep_inside(left, right, value):
    comparison = {"Type": "Equals", "LeftValue": left, "RightValue": right}
    conditions = [{"Type": "Not", "Condition": {"Type": "Or", "Conditions": [comparison]}}]
    if value is None:
        check(conditions=conditions)
        return
    with pytest.raises(ConfigError) as caught:
        check(conditions=conditions)
    assert str(caught.value) == f"Gate, Equals: {value}; limit two values of one type. Correct the condition."


def test_nothing_is_made_for_a_definition_that_leads_nowhere(tmp_path):
    reader = {"Name": "Read", "Type": "Fail", "Arguments": {"ErrorMessage": {"Get": "Parameters.Nowhere"}}}
    with pytest.raises(ConfigError, match=r"Read, Parameters\.Nowhere: no such parameter"):
        run_definition(
            {"Steps": [reader]}, run_folder=tmp_path / "run", registry=LocalRegistry(tmp_path / "registry"),
            progress=Quiet(),
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
