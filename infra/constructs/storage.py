"""The key, the bucket of data and artefacts, and the bucket of its access logs."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

# Beyond the days of the step cache: an execution may take its cached results on the last of them and then train for
# as long as the service lets a job run, 28 days.
DAYS_AFTER_CACHE = 30
# A job on spot capacity goes on from its checkpoints for at most 28 days; a retry may come some days later.
CHECKPOINT_DAYS = 60
# How long a version that was overwritten or deleted can be had back.
NONCURRENT_DAYS = 30
ACCESS_LOG_DAYS = 90
UNFINISHED_UPLOAD_DAYS = 7


class Storage(Construct):
    """Encrypted with one key, versioned, over TLS alone, closed to the public; what is below models/ never expires."""

    def __init__(
        self, scope: Construct, construct_id: str, *, prefix: str, cache_days: int, removal: RemovalPolicy
    ) -> None:
        """prefix: of every key, without slashes at its ends. cache_days: how long step results are found again."""
        super().__init__(scope, construct_id)
        self.prefix = prefix
        self.key = kms.Key(
            self, "Key", description="langadapt: data, models and messages", enable_key_rotation=True,
            removal_policy=removal,
        )  # fmt: skip
        self.access_logs = s3.Bucket(
            self, "AccessLogs",
            encryption=s3.BucketEncryption.S3_MANAGED,  # the service that writes access logs takes no other
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True, removal_policy=removal,
            lifecycle_rules=[
                s3.LifecycleRule(id="logs", expiration=Duration.days(ACCESS_LOG_DAYS),
                                 abort_incomplete_multipart_upload_after=Duration.days(UNFINISHED_UPLOAD_DAYS)),
            ],
        )  # fmt: skip
        self.bucket = s3.Bucket(
            self, "Bucket",
            encryption=s3.BucketEncryption.KMS, encryption_key=self.key, bucket_key_enabled=True, versioned=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True, removal_policy=removal,
            server_access_logs_bucket=self.access_logs, server_access_logs_prefix="artefacts/",
            lifecycle_rules=lifecycle_rules(prefix, cache_days),
        )  # fmt: skip
        # S3 keeps one policy a bucket: whoever writes or reads data must wait until it is there.
        assert self.bucket.policy is not None
        self.policy = self.bucket.policy

    def objects(self, pattern: str) -> str:
        """ARN of objects below the prefix; pattern: such as runs/*."""
        return self.bucket.arn_for_objects(f"{self.prefix}/{pattern}")

    def let_read(self, role: iam.IRole, *, patterns: Sequence[str], lists: bool = True) -> None:
        """Lets a role read (and list) objects below the prefix, by the bucket's own policy and a grant of the key."""
        self._let(role, ["s3:GetObject"], patterns)
        if lists:
            self._let_list(role)
        self._let_use_key(role, ["kms:Decrypt"])

    def let_write(self, role: iam.IRole, *, patterns: Sequence[str]) -> None:
        """Lets a role write objects below the prefix; nothing can be deleted."""
        self._let(role, ["s3:PutObject", "s3:AbortMultipartUpload"], patterns)
        self._let_use_key(role, ["kms:Decrypt", "kms:GenerateDataKey"])

    def let_encrypt_volumes(self, role: iam.IRole) -> None:
        """Lets a role have the disks of jobs encrypted with the key: the service asks for a grant in its name."""
        role.add_to_principal_policy(iam.PolicyStatement(actions=["kms:DescribeKey"], resources=[self.key.key_arn]))
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["kms:CreateGrant"], resources=[self.key.key_arn],
                conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )  # fmt: skip

    def _let(self, role: iam.IRole, actions: list[str], patterns: Sequence[str]) -> None:
        resources = [self.objects(pattern) for pattern in patterns]
        self._add(role, actions, resources)

    def _let_list(self, role: iam.IRole) -> None:
        self._add(role, ["s3:ListBucket", "s3:GetBucketLocation"], [self.bucket.bucket_arn])

    def _add(self, role: iam.IRole, actions: list[str], resources: list[str]) -> None:
        principals = [iam.ArnPrincipal(role.role_arn)]
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(actions=actions, resources=resources, principals=principals)
        )

    def _let_use_key(self, role: iam.IRole, actions: list[str]) -> None:
        """By the role's own policy, as the key leaves that to the account's IAM."""
        role.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=[self.key.key_arn]))


def lifecycle_rules(prefix: str, cache_days: int) -> list[s3.LifecycleRule]:
    """What expires, and when. models/, inputs/, code/ and definitions/ never do: model versions point into them."""
    return [
        s3.LifecycleRule(
            id="unfinished-uploads", abort_incomplete_multipart_upload_after=Duration.days(UNFINISHED_UPLOAD_DAYS)
        ),
        _expiring("runs", f"{prefix}/runs/", cache_days + DAYS_AFTER_CACHE),
        _expiring("checkpoints", f"{prefix}/checkpoints/", CHECKPOINT_DAYS),
    ]


def _expiring(name: str, prefix: str, days: int) -> s3.LifecycleRule:
    return s3.LifecycleRule(
        id=name, prefix=prefix, expiration=Duration.days(days),
        noncurrent_version_expiration=Duration.days(NONCURRENT_DAYS),
    )  # fmt: skip
