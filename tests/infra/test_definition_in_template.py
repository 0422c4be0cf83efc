"""The definition inside the template is the compiled one with the account's names; what it points to is put there."""

import json
import re

import pytest
from environments import BARE, FULL, resources
from policy_simulation import ResolvedTemplate
from template_definition import BUILT_IMAGE, built, definition, definition_text, names_of, placed_archives

from pipeline.compile import compile_definition
from pipeline.config import load_config
from pipeline.lint import check_definition
from pipeline.remote.placeholders import refuse_placeholders
from pipeline.remote.upsert import pipeline_settings

STACKS = ("langadapt-bare", "langadapt-dev", "langadapt-full")
STEPS = [
    "ResolveInputs", "PrepareCorpus", "TrainTokenizer", "TokenizeCorpus", "AdaptVocabulary", "ContinuedPretraining",
    "FineTune", "Evaluate", "QualityGate",
]  # fmt: skip
# What Studio's form shows (without a source corpus).
PARAMETERS = [
    "CorpusUri", "ConversationsUri", "BaseModelUri", "ImageUri", "ModelApprovalStatus", "MaxBitsPerByte",
    "MinImprovement", "ContinuedPretrainingInstanceType", "ContinuedPretrainingInstanceCount", "FineTuneInstanceType",
    "EvaluateInstanceType", "AllowConcurrent",
]  # fmt: skip


@pytest.mark.parametrize("stack", STACKS)
def test_it_passes_the_lint(stack_templates, stack):
    text = definition_text(stack_templates[stack])
    assert "placeholder" not in text
    check_definition(text)


def test_steps_and_parameters_are_kept(stack_templates):
    deployed = definition(stack_templates["langadapt-dev"])
    assert [step["Name"] for step in deployed["Steps"]] == STEPS
    defaults = {one["Name"]: one.get("DefaultValue") for one in deployed["Parameters"]}
    assert list(defaults) == PARAMETERS
    assert defaults["ImageUri"] == BUILT_IMAGE
    assert defaults["CorpusUri"] == f"s3://{names_of(stack_templates['langadapt-dev'])[0]}/langadapt/inputs/corpus/"


def test_jobs_use_key_network_and_a_role_that_is_not_the_pipelines(stack_templates):
    template = stack_templates["langadapt-full"]
    text = definition_text(template)
    [pipeline] = resources(template, "AWS::SageMaker::Pipeline").values()
    roles = {step["Arguments"]["RoleArn"] for step in json.loads(text)["Steps"] if "RoleArn" in step["Arguments"]}
    assert len(roles) == 1
    assert pipeline["RoleArn"]["Fn::GetAtt"][0] not in roles.pop()
    jobs = [step["Arguments"] for step in json.loads(text)["Steps"] if step["Type"] in ("Processing", "Training")]
    assert len(jobs) == 9
    for job in jobs:
        network = job.get("VpcConfig") or job["NetworkConfig"]["VpcConfig"]
        assert len(network["Subnets"]) == 2
        assert len(network["SecurityGroupIds"]) == 1
        assert re.search(r'"(Output)?KmsKeyId": "arn:aws:kms:', json.dumps(job))


@pytest.mark.parametrize("stack", ["langadapt-bare", "langadapt-full"])
def test_every_archive_that_it_names_is_placed_under_that_key(assembly, stack_templates, stack):
    template = stack_templates[stack]
    bucket, _ = names_of(template)
    named = set(re.findall(rf"s3://{bucket}/langadapt/code/([0-9a-f]+\.zip)", definition_text(template)))
    assert len(named) == 7
    assert named == set(placed_archives(assembly, template))


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_expires_that_a_cache_or_a_model_version_points_to(stack_templates, stack):
    template = stack_templates[stack]
    [rules] = [bucket["LifecycleConfiguration"]["Rules"] for bucket in resources(template, "AWS::S3::Bucket").values()
               if "VersioningConfiguration" in bucket]  # fmt: skip
    expiring = {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule}
    assert set(expiring) == {"langadapt/runs/", "langadapt/checkpoints/"}
    caches = [step["CacheConfig"]["ExpireAfter"] for step in definition(template)["Steps"] if "CacheConfig" in step]
    longest = max(int(re.fullmatch(r"P(\d+)D", text)[1]) for text in caches)
    # A result that is found on the last day is read by an execution that may take the longest job's 28 days.
    assert expiring["langadapt/runs/"] >= longest + 28
    assert expiring["langadapt/checkpoints/"] >= 2 * 28
    for rule in rules:
        keeps_all = "ExpirationInDays" not in rule and "NoncurrentVersionExpiration" not in rule
        assert keeps_all or not "langadapt/models/".startswith(rule["Prefix"])
    assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)
    models = [step for step in definition(template)["Steps"] if step["Name"] == "FineTune"]
    assert "/langadapt/models" in json.dumps(models[0]["Arguments"]["OutputDataConfig"])


@pytest.mark.parametrize("environment", [BARE, FULL], ids=lambda environment: environment["name"])
def test_the_command_line_that_it_tells_makes_the_pipeline_that_it_deploys(stack_templates, environment):
    template = stack_templates[environment["name"]]
    words = built(template, ResolvedTemplate(template).resolved(template["Outputs"]["CommandLine"]["Value"])).split(" ")
    assert words[:2] == ["--preset", environment["preset"]]
    config = load_config(environment["preset"], overrides=[word for word in words[2:] if word != "--set"])
    refuse_placeholders(config)
    assert json.loads(compile_definition(config)) == definition(template)
    [pipeline] = ResolvedTemplate(template).of_type("AWS::SageMaker::Pipeline").values()
    assert config.aws.pipeline_name == config.aws.model_package_group == environment["name"]
    settings = {name: value for name, value in pipeline_settings(config).items() if name != "PipelineDescription"}
    assert settings == {name: pipeline[name] for name in settings}
