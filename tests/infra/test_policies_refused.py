"""What nobody needs is allowed to nobody: deleting, others' resources, passing roles on, deciding for people."""

from __future__ import annotations

from typing import Any

import pytest
from environments import ACCOUNT, FULL
from policy_simulation import KEY, REGION, Request, Rights

NAME = FULL["name"]
SAGEMAKER = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
PIPELINE = f"{SAGEMAKER}:pipeline/{NAME}"
EXECUTION = f"{PIPELINE}/execution/abcdefabcdef"
TRAINING_JOB = f"{SAGEMAKER}:training-job/pipelines-abcdefabcdef-FineTune-x1"
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/administrator"
TO_SAGEMAKER = {"iam:PassedToService": "sagemaker.amazonaws.com"}
TO_EC2 = {"iam:PassedToService": "ec2.amazonaws.com"}
DATA = "BUCKET/langadapt"
# Who, what, on what. BUCKET: the bucket of data. JOB_ROLE, SERVING_ROLE, PIPELINE_ROLE: ARNs of these roles.
NOT_ALLOWED = [
    ("JobsRole", "s3:DeleteObject", f"{DATA}/models/1/model.safetensors"),
    ("JobsRole", "s3:DeleteObjectVersion", f"{DATA}/models/1/model.safetensors"),
    ("JobsRole", "s3:PutObject", f"{DATA}/inputs/corpus/a.txt"),
    ("JobsRole", "s3:PutObject", f"{DATA}/code/{'0' * 64}.zip"),
    ("JobsRole", "s3:PutBucketPolicy", "BUCKET"),
    ("JobsRole", "s3:GetObject", "arn:aws:s3:::another-bucket/secret"),
    ("JobsRole", "kms:ScheduleKeyDeletion", KEY),
    ("JobsRole", "kms:Decrypt", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/another"),
    ("JobsRole", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("JobsRole", "sagemaker:CreateTrainingJob", TRAINING_JOB),
    ("JobsRole", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("JobsRole", "ecr:PutImage", f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/any"),
    ("JobsRole", "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "others"}),
    ("JobsRole", "logs:PutLogEvents", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/others:log-stream:a"),
    ("DriverRole", "iam:PassRole", ADMIN, TO_SAGEMAKER),
    ("DriverRole", "iam:PassRole", "JOB_ROLE", TO_EC2),
    ("DriverRole", "sagemaker:CreateTrainingJob", f"{SAGEMAKER}:training-job/of-others"),
    ("DriverRole", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("DriverRole", "sagemaker:CreateModelPackage", f"{SAGEMAKER}:model-package-group/others"),
    ("DriverRole", "sagemaker:CreateEndpoint", f"{SAGEMAKER}:endpoint/{NAME}"),
    ("DriverRole", "lambda:InvokeFunction", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:others"),
    ("DriverRole", "s3:DeleteObject", f"{DATA}/runs/a"),
    ("ResolveInputs", "s3:PutObject", f"{DATA}/inputs/corpus/a.txt"),
    ("ResolveInputs", "s3:GetObject", f"{DATA}/inputs/corpus/a.txt"),
    ("ResolveInputs", "sagemaker:StopPipelineExecution", EXECUTION),
    ("ResolveInputs", "sagemaker:ListPipelineExecutions", f"{SAGEMAKER}:pipeline/others"),
    ("ScheduleRole", "sagemaker:StartPipelineExecution", f"{SAGEMAKER}:pipeline/others"),
    ("ScheduleRole", "sagemaker:StopPipelineExecution", EXECUTION),
    ("NewDataStart", "sagemaker:StartPipelineExecution", f"{SAGEMAKER}:pipeline/others"),
    ("NewDataStart", "sagemaker:StopPipelineExecution", EXECUTION),
    ("NewDataStart", "s3:GetObject", f"{DATA}/incoming/corpus/a.txt"),
    ("NewDataStart", "s3:ListBucket", "BUCKET", {"s3:prefix": "langadapt/models/"}),
    ("NewDataStart", "sns:Publish", f"arn:aws:sns:{REGION}:{ACCOUNT}:any"),
    ("ApprovalDeploy", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("ApprovalDeploy", "sagemaker:DeleteEndpoint", f"{SAGEMAKER}:endpoint/{NAME}"),
    ("ApprovalDeploy", "sagemaker:UpdateEndpoint", f"{SAGEMAKER}:endpoint/others"),
    ("ApprovalDeploy", "sagemaker:CreateModel", f"{SAGEMAKER}:model/others"),
    ("ApprovalDeploy", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("ApprovalDeploy", "iam:PassRole", "SERVING_ROLE", TO_EC2),
    ("ApprovalDeploy", "sagemaker:StartPipelineExecution", PIPELINE),
    ("NotificationsNotify", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("NotificationsNotify", "sns:Publish", f"arn:aws:sns:{REGION}:{ACCOUNT}:others"),
    ("NotificationsNotify", "sagemaker:StopPipelineExecution", EXECUTION),
    ("BudgetStop", "sagemaker:StartPipelineExecution", PIPELINE),
    ("BudgetStop", "sagemaker:StopPipelineExecution", f"{SAGEMAKER}:pipeline/others/execution/a"),
    ("BudgetStop", "sagemaker:StopTrainingJob", TRAINING_JOB),
    ("MonitoringSilence", "cloudwatch:PutMetricData", "*"),
    ("ServingRole", "s3:GetObject", f"{DATA}/inputs/corpus/a.txt"),
    ("ServingRole", "s3:PutObject", f"{DATA}/models/1/model.safetensors"),
    ("ServingRole", "ecr:BatchGetImage", f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/others"),
    ("Operators", "s3:DeleteObject", f"{DATA}/models/1/model.safetensors"),
    ("Operators", "s3:DeleteBucket", "BUCKET"),
    ("Operators", "sagemaker:DeletePipeline", PIPELINE),
    ("Operators", "sagemaker:DeleteModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("Operators", "sagemaker:CreateTrainingJob", TRAINING_JOB),
    ("Operators", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("Operators", "iam:CreateRole", ADMIN),
    ("Operators", "sts:AssumeRole", "JOB_ROLE"),
    ("Operators", "kms:PutKeyPolicy", KEY),
    ("Operators", "sagemaker:StartPipelineExecution", f"{SAGEMAKER}:pipeline/others"),
    ("Operators", "lambda:UpdateFunctionCode", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:any"),
    ("Maintainers", "sagemaker:UpdatePipeline", f"{SAGEMAKER}:pipeline/others"),
    ("Maintainers", "sagemaker:DeletePipeline", PIPELINE),
    ("Maintainers", "iam:PassRole", ADMIN, TO_SAGEMAKER),
    ("Maintainers", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("Maintainers", "iam:PassRole", "PIPELINE_ROLE", TO_EC2),
]  # fmt: skip


@pytest.fixture(scope="module")
def rights(stack_templates: dict[str, Any]) -> Rights:
    return Rights(stack_templates[NAME])


@pytest.mark.parametrize("entry", NOT_ALLOWED, ids=lambda entry: f"{entry[0]}-{entry[1]}")
def test_what_is_not_needed_is_not_allowed(rights: Rights, entry: tuple[Any, ...]) -> None:
    who, action, resource, *context = entry
    for name, stands_for in (("BUCKET", rights.bucket), ("JOB_ROLE", rights.role_arn("JobsRole")),
                             ("SERVING_ROLE", rights.role_arn("ServingRole")),
                             ("PIPELINE_ROLE", rights.role_arn("DriverRole"))):  # fmt: skip
        resource = resource.replace(name, stands_for)
    assert not rights.may(who, Request(action, resource, context[0] if context else {}))


def test_nothing_is_read_or_written_without_tls(rights: Rights) -> None:
    key = rights.objects("langadapt/models/a")
    assert rights.may("JobsRole", Request("s3:GetObject", key))
    assert not rights.may("JobsRole", Request("s3:GetObject", key, {"aws:SecureTransport": "false"}))
