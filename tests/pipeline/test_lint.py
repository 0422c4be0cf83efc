"""The lint of whole definitions: each seeded mistake is found, and named so that a person can mend it."""

import copy
import json
import random

import pytest
from mutated_definitions import DROPPED, changed, disagreements, seeded_mutations

from pipeline.instances import has_local_storage
from pipeline.lint import MAX_DEFINITION_CHARACTERS, check_definition, lint_definition
from steps.contract import ConfigError

IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/somebody@sha256:" + "1" * 64
PARAMETER = {"Get": "Parameters.Count"}


def small_definition():
    """A training step, a processing step that reads its model, a gate on the second one's file."""
    training = {
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "HyperParameters": {"count": {"Std:Join": {"On": "", "Values": [PARAMETER]}}},
        "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": PARAMETER, "VolumeSizeInGB": 30},
        "RoleArn": "arn:aws:iam::111122223333:role/some-role",
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/models", "CompressionType": "NONE"},
    }
    model = [{"Get": "Steps.Fit.OutputDataConfig.S3OutputPath"}, {"Get": "Steps.Fit.TrainingJobName"}, "output/model/"]
    model_uri = {"Std:Join": {"On": "/", "Values": model}}
    s3_input = {"S3Uri": model_uri, "LocalPath": "/opt/ml/processing/input/model", "S3DataType": "S3Prefix"}
    s3_output = {"S3Uri": "s3://bucket/runs", "LocalPath": "/opt/ml/processing/output", "S3UploadMode": "EndOfJob"}
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}
    processing = {
        "AppSpecification": {"ImageUri": IMAGE, "ContainerArguments": ["--step=measure"]},
        "ProcessingResources": {"ClusterConfig": cluster},
        "RoleArn": "arn:aws:iam::111122223333:role/some-role",
        "ProcessingInputs": [{"InputName": "model", "S3Input": s3_input}],
        "ProcessingOutputConfig": {"Outputs": [{"OutputName": "output", "S3Output": s3_output}]},
    }
    file = {"PropertyFileName": "Report", "OutputName": "output", "FilePath": "report.json"}
    value = {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.Measure.PropertyFiles.Report"}, "Path": "a.b"}}
    source = {"S3Uri": model_uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {"Image": IMAGE, "ModelDataSource": {"S3DataSource": source}}
    package = {"ModelPackageGroupName": "group", "InferenceSpecification": {"Containers": [container]}}
    gate = {
        "Conditions": [{"Type": "LessThan", "LeftValue": value, "RightValue": 1.0}],
        "IfSteps": [{"Name": "Register", "Type": "RegisterModel", "Arguments": package}],
        "ElseSteps": [{"Name": "Closed", "Type": "Fail", "Arguments": {"ErrorMessage": "closed"}}],
    }
    return {
        "Version": "2020-12-01",
        "Parameters": [{"Name": "Count", "Type": "Integer", "DefaultValue": 1}],
        "Steps": [
            {"Name": "Fit", "Type": "Training", "Arguments": training},
            {"Name": "Measure", "Type": "Processing", "Arguments": processing, "PropertyFiles": [file]},
            {"Name": "Gate", "Type": "Condition", "Arguments": gate},
        ],
    }


def problems_after(change):
    """The texts of the problems of the small definition after one change."""
    definition = small_definition()
    steps = {step["Name"]: step["Arguments"] for step in definition["Steps"]}
    gate = steps["Gate"]
    steps |= {step["Name"]: step["Arguments"] for step in (*gate["IfSteps"], *gate["ElseSteps"])}
    change(definition, steps)
    return [str(problem) for problem in lint_definition(json.dumps(definition))]


def test_the_small_definition_has_no_problem():
    assert problems_after(lambda definition, steps: None) == []


SEEDED = {
    "number among texts": (
        lambda d, s: s["Fit"]["HyperParameters"].update(count=PARAMETER),
        "$.Steps[0].Arguments.HyperParameters.count (Fit): a bare Integer reference; limit a text. Use .to_string().",
    ),
    "number of a file among arguments": (
        lambda d, s: s["Measure"]["AppSpecification"]["ContainerArguments"].append(
            {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.Measure.PropertyFiles.Report"}, "Path": "a"}}
        ),
        "['Std:JsonGet'].PropertyFile (Measure): waits for itself; limit no circle",
    ),
    "unused parameter": (
        lambda d, s: d["Parameters"].append({"Name": "Idle", "Type": "String", "DefaultValue": "x"}),
        "$.Parameters[1]: Idle is used by no step",
    ),
    "no default": (
        lambda d, s: d["Parameters"][0].pop("DefaultValue"),
        "$.Parameters[0].DefaultValue: no default",
    ),
    "parameter that is not declared": (
        lambda d, s: s["Fit"]["HyperParameters"].update(other={"Get": "Parameters.Other"}),
        "$.Steps[0].Arguments.HyperParameters.other (Fit): Parameters.Other; limit a declared parameter",
    ),
    "step that does not exist": (
        lambda d, s: s["Fit"]["HyperParameters"].update(other={"Get": "Steps.Mesure.ProcessingJobName"}),
        "Did you mean Measure?",
    ),
    "output that is not there": (
        lambda d, s: s["Measure"]["AppSpecification"]["ContainerArguments"].append(
            {"Get": "Steps.Fit.OutputDataConfig.S3OutputPaht"}
        ),
        "Did you mean S3OutputPath?",
    ),
    "property file of an output that is not there": (
        lambda d, s: d["Steps"][1]["PropertyFiles"][0].update(OutputName="outputs"),
        "$.Steps[1].PropertyFiles[0].OutputName (Measure): outputs; limit an output of this step. Did you mean output?",
    ),
    "execution in a cache key": (
        lambda d, s: (
            s["Fit"].update(Environment={"RUN": {"Get": "Execution.PipelineExecutionId"}}),
            d["Steps"][0].update(CacheConfig={"Enabled": True, "ExpireAfter": "P1D"}),
        ),
        "$.Steps[0].Arguments.Environment.RUN (Fit): Execution.PipelineExecutionId; limit the same in each execution",
    ),
    "volume key beside local disks": (
        lambda d, s: s["Fit"]["ResourceConfig"].update(VolumeKmsKeyId="key"),
        "$.Steps[0].Arguments.ResourceConfig.VolumeKmsKeyId (Fit): given; limit none with ml.g5.xlarge",
    ),
    "spot capacity without time to wait": (
        lambda d, s: s["Fit"].update(EnableManagedSpotTraining=True),
        "StoppingCondition.MaxWaitTimeInSeconds (Fit): missing; limit at least MaxRuntimeInSeconds 60",
    ),
    "spot capacity with less time to wait than to train": (
        lambda d, s: (
            s["Fit"].update(EnableManagedSpotTraining=True),
            s["Fit"]["StoppingCondition"].update(MaxWaitTimeInSeconds=59),
        ),
        "$.Steps[0].Arguments.StoppingCondition.MaxWaitTimeInSeconds (Fit): 59; limit at least MaxRuntimeInSeconds 60",
    ),
    "time to wait without spot capacity": (
        lambda d, s: s["Fit"]["StoppingCondition"].update(MaxWaitTimeInSeconds=120),
        "StoppingCondition.MaxWaitTimeInSeconds (Fit): 120; limit none without EnableManagedSpotTraining",
    ),
    "model folder without its slash": (
        lambda d, s: s["Register"]["InferenceSpecification"]["Containers"][0]["ModelDataSource"]["S3DataSource"].update(
            S3Uri="s3://bucket/models/output/model"
        ),
        "ModelDataSource.S3DataSource.S3Uri (Register): s3://bucket/models/output/model; limit a final /",
    ),
    "processing image by tag": (
        lambda d, s: s["Measure"]["AppSpecification"].update(ImageUri="somebody:latest"),
        "$.Steps[1].Arguments.AppSpecification.ImageUri (Measure): somebody:latest; limit ends in @sha256:",
    ),
    "training image by a parameter's tag": (
        lambda d, s: (
            d["Parameters"].append({"Name": "Image", "Type": "String", "DefaultValue": "somebody:1.0"}),
            s["Fit"]["AlgorithmSpecification"].update(TrainingImage={"Get": "Parameters.Image"}),
        ),
        "$.Steps[0].Arguments.AlgorithmSpecification.TrainingImage (Fit): somebody:1.0; limit ends in @sha256:",
    ),
    "serving image by a digest cut short": (
        lambda d, s: s["Register"]["InferenceSpecification"]["Containers"][0].update(Image=IMAGE[:-1]),
        "InferenceSpecification.Containers[0].Image (Register): 000000000000",
    ),
    "instance type that processing lacks": (
        lambda d, s: s["Measure"]["ProcessingResources"]["ClusterConfig"].update(InstanceType="ml.p5.48xlarge"),
        "ProcessingResources.ClusterConfig.InstanceType (Measure): ml.p5.48xlarge",
    ),
    "hyperparameter too long": (
        lambda d, s: s["Fit"]["HyperParameters"].update(layers="x" * 2_501),
        "$.Steps[0].Arguments.HyperParameters.layers (Fit): 2501 characters; limit at most 2500 characters",
    ),
    "too many hyperparameters": (
        lambda d, s: s["Fit"]["HyperParameters"].update({f"setting_{index}": "1" for index in range(100)}),
        "$.Steps[0].Arguments.HyperParameters (Fit): 101 entries; limit at most 100 entries",
    ),
    "too many channels": (
        lambda d, s: s["Fit"].update(
            InputDataConfig=[
                {
                    "ChannelName": f"c{index}",
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/x"}},
                }
                for index in range(21)
            ]
        ),
        "$.Steps[0].Arguments.InputDataConfig (Fit): 21 entries; limit at most 20 entries",
    ),
    "message too long": (
        lambda d, s: s["Closed"].update(ErrorMessage="x" * 3_073),
        "$.Steps[2].Arguments.ElseSteps[0].Arguments.ErrorMessage (Closed): 3073 characters; limit 3072 characters",
    ),
    "default of the wrong kind": (
        lambda d, s: d["Parameters"][0].update(DefaultValue="two"),
        "$.Parameters[0].DefaultValue: two; limit a value of type Integer",
    ),
}


@pytest.mark.parametrize("mistake", SEEDED)
def test_each_seeded_mistake_is_found(mistake):
    change, expected = SEEDED[mistake]
    found = problems_after(change)
    assert any(expected in problem for problem in found), found


def test_a_definition_beyond_the_services_limit_is_found():
    definition = small_definition()
    definition["Metadata"] = {"note": "x" * MAX_DEFINITION_CHARACTERS}
    (problem,) = lint_definition(json.dumps(definition))
    assert problem.limit == "1048576 characters"


def test_the_first_problem_is_raised_with_the_number_of_the_others():
    definition = small_definition()
    fit = definition["Steps"][0]["Arguments"]
    fit["HyperParameters"].update(first="x" * 2_501, second="y" * 2_501)
    with pytest.raises(ConfigError, match=r"HyperParameters\.first \(Fit\): 2501 characters; .* \(1 more\)$"):
        check_definition(json.dumps(definition))


def test_instances_with_disks_of_their_own():
    local = [
        "ml.p4d.24xlarge",
        "ml.p4de.24xlarge",
        "ml.p5.48xlarge",
        "ml.p5en.48xlarge",
        "ml.g5.xlarge",
        "ml.g6e.xlarge",
    ]
    assert all(has_local_storage(name) for name in [*local, "ml.m5d.large", "ml.c6gd.large", "ml.r5d.large"])
    assert not any(has_local_storage(name) for name in ["ml.m5.large", "ml.c5n.large", "ml.p3.2xlarge", "ml.r5.large"])


@pytest.fixture(scope="module")
def definition(compiled_text):
    return json.loads(compiled_text("azerbaijani-1b-p4d"))


@pytest.fixture(scope="module")
def disagreeing(definition):
    return disagreements(definition)


def test_two_hundred_mistakes_are_named_by_their_place(definition, disagreeing):
    """These are drawn from 1,499, which `make verify` goes through."""
    mutations = [*seeded_mutations(definition, seed=20), *disagreeing[:25]]
    assert len(mutations) == 200
    assert [f"{mutation.kind} {mutation.path}" for mutation in mutations if not is_named(mutation)] == []


def test_members_that_disagree_are_named_by_their_place(disagreeing):
    assert [mutation.path for mutation in disagreeing[25:] if not is_named(mutation)] == []


def is_named(mutation):
    return mutation.path in {finding.path for finding in lint_definition(mutation.text)}


def test_a_text_that_is_no_definition_is_refused():
    for text, words in (("{", "no JSON"), ("[]", "a list; limit an object with Steps"), ("1", "a int")):
        with pytest.raises(ConfigError, match=words):
            lint_definition(text)


HAND_EDITS = {
    "a step without its name": (lambda d, s: d["Steps"][1].pop("Name"), "$.Steps[1].Name"),
    "a step in a branch without its type": (
        lambda d, s: s["Gate"]["IfSteps"][0].pop("Type"), "$.Steps[2].Arguments.IfSteps[0].Type"),
    "one retry policy in the place of a list": (
        lambda d, s: d["Steps"][0].update(RetryPolicies={"MaxAttempts": 1}), "$.Steps[0].RetryPolicies"),
    "a name in the place of a list": (lambda d, s: d["Steps"][1].update(DependsOn="Fit"), "$.Steps[1].DependsOn"),
    "a number among names": (lambda d, s: d["Steps"][1].update(DependsOn=[5]), "$.Steps[1].DependsOn[0]"),
    "a text in the place of an error's list": (
        lambda d, s: d["Steps"][0].update(RetryPolicies=[{"ExceptionType": "Step.THROTTLING", "MaxAttempts": 1}]),
        "$.Steps[0].RetryPolicies[0].ExceptionType"),
    "a file in the place of a property file": (
        lambda d, s: d["Steps"][1].update(PropertyFiles=["report.json"]), "$.Steps[1].PropertyFiles[0]"),
    "outputs without their configuration": (
        lambda d, s: s["Measure"].update(ProcessingOutputConfig=[]), "$.Steps[1].Arguments.ProcessingOutputConfig"),
    "a URI in the place of an input": (
        lambda d, s: s["Measure"]["ProcessingInputs"][0].update(S3Input="s3://a/b"),
        "$.Steps[1].Arguments.ProcessingInputs[0].S3Input"),
    "arguments that are a number": (lambda d, s: d["Steps"][0].update(Arguments=7), "$.Steps[0].Arguments"),
    "arguments that are a reference": (
        lambda d, s: d["Steps"][0].update(Arguments={"Get": "Parameters.Count"}), "$.Steps[0].Arguments"),
    "allowed values that are a text": (
        lambda d, s: d["Parameters"][0].update(EnumValues="Approved"), "$.Parameters[0].EnumValues"),
    "a misspelt reference": (
        lambda d, s: s["Fit"]["HyperParameters"].update(x={"get": "Parameters.Count"}),
        "$.Steps[0].Arguments.HyperParameters.x.get"),
    "a reference to nothing": (
        lambda d, s: s["Fit"]["HyperParameters"].update(x={"Get": ""}),
        "$.Steps[0].Arguments.HyperParameters.x.Get"),
    "parts that are joined by nothing": (
        lambda d, s: s["Fit"]["HyperParameters"].update(x={"Std:Join": {"On": None, "Values": ["a"]}}),
        "$.Steps[0].Arguments.HyperParameters.x['Std:Join'].On"),
    "a list among parts": (
        lambda d, s: s["Fit"]["HyperParameters"].update(x={"Std:Join": {"On": "", "Values": [[1]]}}),
        "$.Steps[0].Arguments.HyperParameters.x['Std:Join'].Values[0]"),
    "no alternative": (
        lambda d, s: s["Gate"]["Conditions"].append({"Type": "Or", "Conditions": []}),
        "$.Steps[2].Arguments.Conditions[1].Conditions"),
    "a volume of nothing": (
        lambda d, s: s["Fit"]["ResourceConfig"].update(VolumeSizeInGB=0),
        "$.Steps[0].Arguments.ResourceConfig.VolumeSizeInGB"),
    "no instance": (
        lambda d, s: s["Measure"]["ProcessingResources"]["ClusterConfig"].update(InstanceCount=0),
        "$.Steps[1].Arguments.ProcessingResources.ClusterConfig.InstanceCount"),
    "a training of three years": (
        lambda d, s: s["Fit"]["StoppingCondition"].update(MaxRuntimeInSeconds=100_000_000),
        "$.Steps[0].Arguments.StoppingCondition.MaxRuntimeInSeconds"),
    "no steps": (lambda d, s: d.update(Steps="x"), "$.Steps"),
    "a step that is a number": (lambda d, s: d.update(Steps=[1]), "$.Steps[0]"),
}  # fmt: skip


@pytest.mark.parametrize("edit", HAND_EDITS)
def test_what_a_hand_does_wrong_is_told_by_its_place(edit):
    change, path = HAND_EDITS[edit]
    found = problems_after(change)
    assert any(problem.startswith((f"{path}:", f"{path} (")) for problem in found), found
    assert len(found) <= 3, found


def test_nothing_that_stands_anywhere_makes_the_lint_fall_over(definition):
    """Any value of JSON in any place: findings or none, but no error of ours."""
    chance = random.Random(11)
    places = list(every_place(definition, ()))
    values = [None, 1, "x", True, [], {}, [1], {"a": 1}, [None], {"Get": 1}, {"Get": "Steps"}, {"Std:Join": 1},
              {"Std:JsonGet": {"PropertyFile": 1, "Path": "a"}}, -1, 10**400, DROPPED]  # fmt: skip
    for _ in range(250):
        lint_definition(changed(definition, chance.choice(places), chance.choice(values)))


def every_place(value, keys):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*keys, key)
        yield from every_place(item, (*keys, key))


def test_images_and_functions_of_several_regions_are_told(definition):
    elsewhere = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/own@sha256:{'1' * 64}"
    function = "arn:aws:lambda:us-west-2:123456789012:function:own"
    changed = copy.deepcopy(definition)
    # Placeholders may be of any region.
    next(entry for entry in changed["Parameters"] if entry["Name"] == "ImageUri")["DefaultValue"] = elsewhere
    assert lint_definition(json.dumps(changed)) == []
    changed["Steps"][0]["FunctionArn"] = function
    found = lint_definition(json.dumps(changed))
    assert str(found[0]) == (
        f"$.Steps[1].Arguments.AppSpecification.ImageUri (PrepareCorpus): {elsewhere}; limit region us-west-2, as of "
        "$.Steps[0].FunctionArn. Copy or deploy it there."
    )
    assert len(found) == 7
    changed["Steps"][0]["FunctionArn"] = function.replace("us-west-2", "eu-west-1")
    register = changed["Steps"][-1]["Arguments"]["IfSteps"][0]["Arguments"]["InferenceSpecification"]
    register["Containers"][0]["Image"] = elsewhere.replace("eu-west-1", "us-west-2")
    (found,) = lint_definition(json.dumps(changed))
    assert found.path.endswith(".IfSteps[0].Arguments.InferenceSpecification.Containers[0].Image")
    # Without a function, most tell.
    changed["Steps"][0]["FunctionArn"] = definition["Steps"][0]["FunctionArn"]
    assert [found.path for found in lint_definition(json.dumps(changed))] == [found.path]


def test_a_member_that_stands_twice_and_a_text_without_end_are_refused():
    with pytest.raises(ConfigError, match="'Steps' is given twice"):
        lint_definition('{"Version": "2020-12-01", "Steps": [], "Steps": []}')
    with pytest.raises(ConfigError, match=r"report.json: no member Steps; limit an object with Steps"):
        lint_definition('{"steps": {}}', "report.json")
    with pytest.raises(ConfigError, match="nested too deeply"):
        lint_definition('{"Steps": ' + "[" * 100_000 + "]" * 100_000 + "}")


def test_what_stays_the_same_in_every_execution_defeats_no_cache():
    def with_variable(name):
        def change(definition, steps):
            steps["Fit"].update(Environment={"X": {"Get": f"Execution.{name}"}})
            definition["Steps"][0].update(CacheConfig={"Enabled": True})

        return problems_after(change)

    assert with_variable("PipelineName") == []
    assert "the same in each execution" in with_variable("StartDateTime")[0]


def test_properties_that_only_the_service_knows_are_looked_up_in_its_answer():
    def with_argument(reference):
        def change(definition, steps):
            steps["Measure"]["AppSpecification"]["ContainerArguments"].append({"Get": reference})

        return problems_after(change)

    assert with_argument("Steps.Fit.ModelArtifacts.S3ModelArtifacts") == []
    assert with_argument("Steps.Fit.FinalMetricDataList['loss'].Value") == []
    assert "Did you mean S3ModelArtifacts?" in with_argument("Steps.Fit.ModelArtifacts.S3ModelArtefacts")[0]
    assert "no 'Outputs'" in with_argument("Steps.Fit.ModelArtifacts.S3ModelArtifacts.Outputs")[0]
