"""Model versions in the SageMaker Model Registry: listed, shown with their evidence, approved, rejected.

A version's evidence lies where its execution left it: the metrics name a file of Evaluate's output folder, beside
which evaluation.json lies. What the registry itself keeps for good are the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.model_versions import Approval, Status, damage_error
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.writes import Writes
from steps.contract import ConfigError, size_text

EVALUATION_NAME = "evaluation.json"
MAX_COMMENT_CHARACTERS = 1_024
FIRST_STATUS: Status = "PendingManualApproval"


@dataclass(frozen=True)
class PackageVersion:
    """A version as DescribeModelPackage tells it; as ListModelPackages does, without metadata and metrics.

    evidence: content of the kept files that could be read, by name. model_bytes: of the files at the model's URI; None
    where they may not be listed, or were not. damage: what is wrong with them, in words.
    """

    request: Mapping[str, Any]
    evidence: Mapping[str, bytes] = field(default_factory=dict)
    model_bytes: int | None = None
    damage: str | None = None

    @property
    def arn(self) -> str:
        return self.request["ModelPackageArn"]

    @property
    def group(self) -> str:
        return self.request["ModelPackageGroupName"]

    @property
    def version(self) -> int:
        return self.request["ModelPackageVersion"]

    @property
    def status(self) -> Status:
        return self.request["ModelApprovalStatus"]

    @property
    def created_at(self) -> float:
        return self.request["CreationTime"].timestamp()

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.request.get("CustomerMetadataProperties", {}))

    @property
    def model_folder(self) -> str:
        """URI of the model's folder; empty where the package has none, or as a list tells it."""
        containers = self.request.get("InferenceSpecification", {}).get("Containers") or [{}]
        source = containers[0].get("ModelDataSource", {}).get("S3DataSource", {})
        return source.get("S3Uri") or containers[0].get("ModelDataUrl") or ""

    @property
    def model_digest(self) -> str:
        """The registry keeps none."""
        return ""

    @property
    def kept_at(self) -> str:
        size = "size not known" if self.model_bytes is None else f"{size_text(self.model_bytes)} of model"
        return f"{self.model_folder} ({size})"

    @property
    def approvals(self) -> list[Approval]:
        """The registry keeps the last decision alone."""
        if self.status == FIRST_STATUS:
            return [Approval(status=self.status, at=self.created_at)]
        by = self.request.get("LastModifiedBy", {})
        name = by.get("UserProfileName") or str(by.get("IamIdentity", {}).get("Arn", "")).rpartition("/")[2]
        at = self.request.get("LastModifiedTime", self.request["CreationTime"]).timestamp()
        return [Approval(status=self.status, comment=self.request.get("ApprovalDescription", ""), by=name, at=at)]

    def evidence_named(self, name: str) -> Iterator[bytes]:
        if name in self.evidence:
            yield self.evidence[name]


@dataclass(frozen=True)
class ModelPackages:
    """The versions of one group. warn: gets a line about what could not be looked at."""

    account: Account
    group: str
    warn: Callable[[str], None]

    def list_versions(self) -> list[PackageVersion]:
        """All versions, the lowest number first. Raises AwsError."""
        entries = self.account.pages("sagemaker", "ListModelPackages", "ModelPackageSummaryList",
                                     ModelPackageGroupName=self.group)  # fmt: skip
        return sorted(map(PackageVersion, entries), key=lambda entry: entry.version)

    def described(self, entry: PackageVersion) -> PackageVersion:
        """The version with its metadata, its metrics and its model's place. Raises AwsError."""
        return PackageVersion(self.account.call("sagemaker", "DescribeModelPackage", ModelPackageName=entry.arn))

    def find(self, version: int) -> PackageVersion:
        """One version, described. Raises ConfigError where the group has none of this number."""
        known = self.list_versions()
        for entry in known:
            if entry.version == version:
                return self.described(entry)
        limit = f"one of {', '.join(str(entry.version) for entry in known)}" if known else "none is registered"
        remedy = "List them with `langadapt models list --remote`."
        raise ConfigError("version", version, limit=limit, remedy=remedy)

    def show(self, version: int) -> PackageVersion:
        """One version with its evidence and its model's size. Raises ConfigError as `find`."""
        entry = self.find(version)
        model_bytes, damage = self._model(entry)
        return PackageVersion(entry.request, self._evidence(entry), model_bytes, damage)

    def approve(
        self, version: int, comment: str = "", writes: Writes | None = None
    ) -> tuple[PackageVersion, PackageVersion]:
        """The version before and after; approving an approved one changes nothing.

        writes: what sends the request, or keeps it; default: it is sent.

        Raises ConfigError for a rejected one without a comment that says what has changed, StepError for one whose
        model is not there any more.
        """
        entry = self.find(version)
        if entry.status == "Rejected" and not comment.strip():
            raise ConfigError("comment", "empty", limit="a reason, as the version was rejected",
                              remedy="Say why it is approved after all.")  # fmt: skip
        if damage := self._model(entry)[1]:
            raise damage_error(damage)
        return entry, self._decided(entry, "Approved", comment, writes)

    def reject(self, version: int, comment: str, writes: Writes | None = None) -> tuple[PackageVersion, PackageVersion]:
        """The version before and after. writes: as of `approve`. Raises ConfigError for an empty reason."""
        if not comment.strip():
            raise ConfigError("comment", "empty", remedy="Say why the version is rejected.")
        entry = self.find(version)
        return entry, self._decided(entry, "Rejected", comment, writes)

    def _decided(self, entry: PackageVersion, status: Status, comment: str, writes: Writes | None) -> PackageVersion:
        if entry.status == status:
            return entry
        # The service takes one line.
        line = " ".join(comment.split())
        if len(line) > MAX_COMMENT_CHARACTERS:
            limit = f"{MAX_COMMENT_CHARACTERS} characters"
            raise ConfigError("comment", f"{len(line)} characters", limit=limit, remedy="Shorten it.")
        described = {"ApprovalDescription": line} if line else {}
        writes = writes or Writes(self.account)
        writes.send(
            "sagemaker", "UpdateModelPackage", ModelPackageArn=entry.arn, ModelApprovalStatus=status, **described
        )
        return entry if writes.dry_run else self.described(entry)

    def _model(self, entry: PackageVersion) -> tuple[int | None, str | None]:
        """Size of the model's files and what is wrong with them; both None where they may not be listed."""
        if not entry.model_folder.startswith("s3://"):
            return None, "it names no model"
        bucket, _, prefix = entry.model_folder.removeprefix("s3://").partition("/")
        found = self._tried(
            lambda: list(self.account.pages("s3", "ListObjectsV2", "Contents", Bucket=bucket, Prefix=prefix))
        )
        if found is None:
            return None, None
        return sum(item["Size"] for item in found), None if found else f"nothing lies at {entry.model_folder}"

    def _evidence(self, entry: PackageVersion) -> dict[str, bytes]:
        statistics = (
            entry.request.get("ModelMetrics", {}).get("ModelQuality", {}).get("Statistics", {}).get("S3Uri", "")
        )
        if not statistics.startswith("s3://"):
            return {}
        bucket, _, key = statistics.removeprefix("s3://").partition("/")
        content = self._tried(lambda: self._content(bucket, f"{key.rpartition('/')[0]}/{EVALUATION_NAME}"))
        return {} if content is None else {EVALUATION_NAME: content}

    def _content(self, bucket: str, key: str) -> bytes:
        answer = self.account.call("s3", "GetObject", Bucket=bucket, Key=key)
        with self.account.told("s3", "GetObject"):
            return answer["Body"].read()

    def _tried(self, look: Callable[[], Any]) -> Any:
        """What is found; None, and a warning, where it is gone or may not be read."""
        try:
            return look()
        except AwsError as error:
            if error.kind not in ("permission", "not_found"):
                raise
            self.warn(str(error))
            return None


def version_json(entry: PackageVersion) -> dict[str, Any]:
    """What `models show --json` gives: the members that a local version has, and the ARN."""
    return {
        "arn": entry.arn,
        "group": entry.group,
        "version": entry.version,
        "metadata": entry.metadata,
        "metrics": entry.request.get("ModelMetrics", {}),
        "request": {"InferenceSpecification": entry.request.get("InferenceSpecification", {})},
        "created_at": entry.created_at,
        "model_digest": entry.model_digest,
        "model_bytes": entry.model_bytes,
        "model_folder": entry.model_folder,
        "approvals": [approval.model_dump(mode="json") for approval in entry.approvals],
        "evidence": {name: json.loads(content) for name, content in entry.evidence.items()},
        "damage": entry.damage,
    }
