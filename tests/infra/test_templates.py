"""The synthesised stack, every option on and every option off: judged by checkers, and its promises by number."""

import json
import re
import warnings

import pytest
from cfnlint import api
from environments import BARE, FULL, OPTIONS, environment_file, environment_with, resources, synthesise, templates
from policy_simulation import ResolvedTemplate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # parliament asks for pkg_resources
    from parliament import analyze_policy_string

STACKS = ("langadapt-bare", "langadapt-dev", "langadapt-full")
MOST_ACKNOWLEDGED_RESOURCES = 8
RETAINED = {"AWS::S3::Bucket", "AWS::KMS::Key", "AWS::SageMaker::ModelPackageGroup"}
# Policies of identities, and of what they are used on, by the member that holds them.
POLICIES = {
    "AWS::IAM::Policy": "PolicyDocument",
    "AWS::IAM::ManagedPolicy": "PolicyDocument",
    "AWS::S3::BucketPolicy": "PolicyDocument",
    "AWS::SQS::QueuePolicy": "PolicyDocument",
    "AWS::SNS::TopicPolicy": "PolicyDocument",
    "AWS::KMS::Key": "KeyPolicy",
    "AWS::ECR::Repository": "RepositoryPolicyText",
    "AWS::IAM::Role": "AssumeRolePolicyDocument",
}
# Their policies are about themselves alone: no resource stands in them, or "*" for it.
ABOUT_THEMSELVES = ("AWS::KMS::Key", "AWS::ECR::Repository", "AWS::IAM::Role")
SERVICES_WITHOUT_SOURCE = {"lambda.amazonaws.com"}


def statements(document):
    return document["Statement"] if isinstance(document["Statement"], list) else [document["Statement"]]


def listed(value):
    return value if isinstance(value, list) else [value]


def acknowledged(assembly, stack):
    """Findings of cdk-nag with their reasons, by the path of the resource that they are acknowledged on."""
    found = {}
    metadata = json.loads((assembly / f"{stack}.metadata.json").read_text(encoding="utf-8"))
    for path, entries in metadata.items():
        for entry in entries:
            if entry["type"] == "aws:cdk:acknowledged-rules":
                ours = {rule: reason for rule, reason in entry["data"].items() if "AwsSolutions" in rule}
                found.setdefault(path, {}).update(ours)
    return {path: rules for path, rules in found.items() if rules}


def test_both_extremes_are_synthesised(stack_templates):
    assert tuple(stack_templates) == STACKS
    kinds = {name: {entry["Type"] for entry in template["Resources"].values()}
             for name, template in stack_templates.items()}  # fmt: skip
    optional = {"AWS::EC2::VPC", "AWS::Scheduler::Schedule", "AWS::SNS::Topic", "AWS::CloudWatch::Dashboard",
                "AWS::Budgets::Budget", "AWS::CodeBuild::Project", "AWS::Events::Rule"}  # fmt: skip
    assert optional <= kinds["langadapt-full"]
    assert not optional & kinds["langadapt-bare"]


def test_each_option_alone_is_synthesised_without_a_finding(tmp_path):
    """What one option brings must not lean on what another has brought."""
    files = [environment_file(tmp_path, environment_with(name)) for name in OPTIONS]
    finished = synthesise(files, tmp_path / "cdk.out")
    assert finished.returncode == 0, finished.stderr[-4_000:]
    assert len(templates(tmp_path / "cdk.out")) == len(OPTIONS)


@pytest.mark.parametrize("stack", ["langadapt-full", pytest.param("langadapt-bare", marks=pytest.mark.verify)])
def test_cfn_lint_finds_no_error(assembly, stack, stack_templates):
    text = (assembly / f"{stack}.template.json").read_text(encoding="utf-8")
    region = (FULL if stack == "langadapt-full" else BARE)["region"]
    matches = api.lint(text, regions=[region])
    assert not [str(match) for match in matches if match.rule.id.startswith("E")]


def test_each_acknowledgement_of_cdk_nag_has_a_reason_and_names_one_resource(assembly, stack_templates):
    """The app's own synthesis fails for any other finding: what is left are these."""
    for stack in STACKS:
        found = acknowledged(assembly, stack)
        print(f"{stack}: {len(found)} resources, {sum(map(len, found.values()))} findings")
        assert len(found) <= MOST_ACKNOWLEDGED_RESOURCES
        template = stack_templates[stack]["Resources"]
        for path, rules in found.items():
            logical = re.sub(r"[^A-Za-z0-9]", "", path.removeprefix(f"/{stack}/"))
            # A construct stands for one resource of the template: no stack, and no construct with many below it.
            below = [name for name in template if name.startswith(logical) and name[len(logical) :].isalnum()]
            own = [name for name in below if re.fullmatch(r"[0-9A-F]{8}", name[len(logical) :])]
            assert len(own) == 1, path
            for rule, reason in rules.items():
                assert rule.startswith(("Annotation::AwsSolutions-IAM5[", "Annotation::AwsSolutions-CB3")), rule
                assert len(reason) > 30, reason


@pytest.mark.parametrize("stack", STACKS)
def test_parliament_finds_nothing_in_any_policy(stack_templates, stack):
    template, judged = ResolvedTemplate(stack_templates[stack]), 0
    for kind, member in POLICIES.items():
        for name, properties in template.of_type(kind).items():
            if member not in properties:
                continue
            document = properties[member]
            if kind in ABOUT_THEMSELVES:
                # The account itself may do all with its key, as AWS has it by default: not each takes an ARN.
                judgeable = [one for one in statements(document) if one["Action"] != "kms:*"]
                document |= {"Statement": [one | {"Resource": template.arn(name)} for one in judgeable]}
            findings = analyze_policy_string(json.dumps(document)).findings
            assert not [str(finding) for finding in findings], name
            judged += 1
    assert judged >= 16, "few policies looked at"
    wrong = {"Effect": "Allow", "Action": "s3:GetObjects", "Resource": "*"}
    assert analyze_policy_string(json.dumps({"Version": "2012-10-17", "Statement": [wrong]})).findings


@pytest.mark.parametrize("stack", STACKS)
def test_services_assume_roles_for_this_account_alone(stack_templates, stack):
    for name, properties in resources(stack_templates[stack], "AWS::IAM::Role").items():
        for statement in statements(properties["AssumeRolePolicyDocument"]):
            service = statement["Principal"]["Service"]
            if service in SERVICES_WITHOUT_SOURCE:
                continue
            condition = statement.get("Condition", {})
            assert condition.get("StringEquals", {}).get("aws:SourceAccount") == {"Ref": "AWS::AccountId"}, name
            assert condition["ArnLike"]["aws:SourceArn"], name


@pytest.mark.parametrize("stack", STACKS)
def test_roles_are_passed_to_one_service_and_no_action_has_a_wildcard(stack_templates, stack):
    template = ResolvedTemplate(stack_templates[stack])
    passed = 0
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name, properties in template.of_type(kind).items():
            for statement in statements(properties["PolicyDocument"]):
                actions = listed(statement["Action"])
                assert not [action for action in actions if "*" in action], name
                if "iam:PassRole" in actions:
                    passed += 1
                    assert actions == ["iam:PassRole"]
                    assert "*" not in statement["Resource"]
                    assert statement["Condition"]["StringEquals"] == {"iam:PassedToService": "sagemaker.amazonaws.com"}
    assert passed >= 1


def test_a_boundary_is_on_every_role(stack_templates):
    for name, properties in resources(stack_templates["langadapt-full"], "AWS::IAM::Role").items():
        assert properties["PermissionsBoundary"] == FULL["permissions_boundary"], name
    for properties in resources(stack_templates["langadapt-bare"], "AWS::IAM::Role").values():
        assert "PermissionsBoundary" not in properties


def test_what_an_update_needs_is_ordered_and_has_no_fixed_name(stack_templates):
    template = stack_templates["langadapt-full"]["Resources"]
    [image] = [one for one in template.values() if one["Type"] == "Custom::EnvironmentImage"]
    assert any(name.startswith("ImagePolicy") for name in image["DependsOn"])
    # To change whom it tells is to replace it, and two of one name cannot be.
    [budget] = resources(stack_templates["langadapt-full"], "AWS::Budgets::Budget").values()
    assert "BudgetName" not in budget["Budget"]


def test_data_and_registered_models_stay_when_a_stack_is_deleted_and_nothing_else(stack_templates):
    for stack in STACKS:
        for name, resource in stack_templates[stack]["Resources"].items():
            kept = resource.get("DeletionPolicy") == "RetainExceptOnCreate"
            assert kept == (resource["Type"] in RETAINED), f"{stack} {name}"


def test_buckets_are_closed_encrypted_versioned_and_logged(stack_templates):
    template = stack_templates["langadapt-bare"]
    buckets = resources(template, "AWS::S3::Bucket")
    [data] = [bucket for bucket in buckets.values() if "VersioningConfiguration" in bucket]
    [encryption] = data["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert data["LoggingConfiguration"]["LogFilePrefix"] == "artefacts/"
    for bucket in buckets.values():
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    for policy in resources(template, "AWS::S3::BucketPolicy").values():
        [denied] = [one for one in statements(policy["PolicyDocument"]) if one["Effect"] == "Deny"]
        assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    [key] = resources(template, "AWS::KMS::Key").values()
    assert key["EnableKeyRotation"] is True


def test_the_network_has_no_way_to_the_internet_and_suits_efa(stack_templates):
    template = stack_templates["langadapt-full"]
    kinds = {resource["Type"] for resource in template["Resources"].values()}
    assert not kinds & {"AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::Route"}
    assert "AWS::EC2::FlowLog" in kinds
    endpoints = ResolvedTemplate(template).of_type("AWS::EC2::VPCEndpoint").values()
    names = sorted(".".join(endpoint["ServiceName"].split(".")[3:]) for endpoint in endpoints)
    assert names == ["ecr.api", "ecr.dkr", "kms", "logs", "monitoring", "s3", "sagemaker.api", "sts"]
    [inward] = [rule for rule in resources(template, "AWS::EC2::SecurityGroupIngress").values()
                if rule["IpProtocol"] == "-1"]  # fmt: skip
    [outward] = resources(template, "AWS::EC2::SecurityGroupEgress").values()
    assert inward["SourceSecurityGroupId"] == inward["GroupId"]
    assert outward["IpProtocol"] == "-1"
    assert outward["DestinationSecurityGroupId"] == outward["GroupId"] == inward["GroupId"]
