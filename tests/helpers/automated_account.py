"""An account with a registry, an endpoint that takes its time, executions, a corpus folder and a topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from account_stand_in import REGION
from answered_calls import ACCOUNT, AnsweredAccount, RefusedError

NAME = "langadapt-dev"
BUCKET = "langadapt-dev-bucket"
PREFIX = "langadapt/incoming/corpus/"
TOPIC_ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:langadapt-dev"
PIPELINE_ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:pipeline/{NAME}"
ENDPOINT_ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/{NAME}"
# Lists come in pages of this many entries.
PAGE_ENTRIES = 3
BEGAN = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


def package_arn(version: int) -> str:
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:model-package/{NAME}/{version}"


class AutomatedAccount(AnsweredAccount):
    """clock: moves with each decision. told: subject and text of each message to the topic."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = BEGAN
        self.packages: dict[str, dict[str, Any]] = {}
        self.hidden_from_lists: set[str] = set()
        self.models: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.endpoint: dict[str, Any] | None = None
        self.coming_config = ""
        self.tags: dict[str, str] = {}
        self.executions: list[dict[str, Any]] = []
        self.steps: dict[str, list[dict[str, Any]]] = {}
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.topic_arn = TOPIC_ARN
        self.told: list[tuple[str, str]] = []

    # --- what people and the service do

    def register(self, version: int, status: str = "PendingManualApproval", **more: Any) -> None:
        self.packages[package_arn(version)] = {
            "ModelPackageArn": package_arn(version), "ModelPackageGroupName": NAME, "ModelPackageVersion": version,
            "ModelApprovalStatus": status, "CreationTime": self.clock, **more,
        }  # fmt: skip

    def decide(self, version: int, status: str) -> dict[str, Any]:
        """Sets a status and gives the event that tells of it."""
        self.clock += timedelta(minutes=1)
        self.packages[package_arn(version)] |= {"ModelApprovalStatus": status, "LastModifiedTime": self.clock}
        return package_event(version, status)

    def end_deployment(self, failure: str = "") -> None:
        """The endpoint is done with what it was told last, or has gone back to what it served before."""
        assert self.endpoint is not None
        assert self.endpoint["EndpointStatus"] in ("Creating", "Updating")
        if not failure:
            self.endpoint |= {"EndpointStatus": "InService", "EndpointConfigName": self.coming_config}
        elif self.endpoint["EndpointStatus"] == "Creating":
            self.endpoint |= {"EndpointStatus": "Failed", "FailureReason": failure}
        else:
            self.endpoint |= {"EndpointStatus": "InService", "FailureReason": failure}

    def add_execution(self, number: int, status: str, name: str = "by-hand", corpus_digest: str = "") -> dict[str, Any]:
        arn = f"{PIPELINE_ARN}/execution/started{number:05d}"
        execution = {"PipelineExecutionArn": arn, "PipelineExecutionStatus": status, "StartTime": self.clock,
                     "PipelineExecutionDisplayName": name}  # fmt: skip
        self.executions.insert(0, execution)
        told = [{"Name": "corpus_digest", "Value": corpus_digest}]
        resolve = {"StepName": "ResolveInputs", "StepStatus": "Succeeded",
                   "Metadata": {"Lambda": {"OutputParameters": told}}}  # fmt: skip
        self.steps[arn] = [resolve] if corpus_digest else []
        return execution

    def served_version(self) -> int:
        assert self.endpoint is not None
        (container,) = self.models[self.configs[self.endpoint["EndpointConfigName"]]["ModelName"]]["Containers"]
        return int(container["ModelPackageName"].rpartition("/")[2])

    # --- SageMaker: registry

    def _sagemaker_DescribeModelPackage(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if given["ModelPackageName"] not in self.packages:
            raise RefusedError("ValidationException", f"ModelPackage {given['ModelPackageName']} does not exist.")
        return self.packages[given["ModelPackageName"]]

    def _sagemaker_ListModelPackages(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        members = ("ModelPackageArn", "ModelPackageGroupName", "ModelPackageVersion", "ModelApprovalStatus")
        rows = [{member: package[member] for member in members} for arn, package in self.packages.items()
                if arn not in self.hidden_from_lists
                and package["ModelApprovalStatus"] == given.get("ModelApprovalStatus")]  # fmt: skip
        return _page(rows, given, "ModelPackageSummaryList")

    # --- SageMaker: endpoint

    def _sagemaker_DescribeModel(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if given["ModelName"] not in self.models:
            raise RefusedError("ValidationException", f'Could not find model "{given["ModelName"]}".')
        return {"ModelName": given["ModelName"]}

    def _sagemaker_CreateModel(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if given["ModelName"] in self.models:
            raise RefusedError("ValidationException", f'Cannot create already existing model "{given["ModelName"]}".')
        self.models[given["ModelName"]] = given
        return {"ModelArn": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:model/{given['ModelName']}"}

    def _sagemaker_DescribeEndpointConfig(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if given["EndpointConfigName"] not in self.configs:
            name = given["EndpointConfigName"]
            raise RefusedError("ValidationException", f'Could not find endpoint configuration "{name}".')
        return {"EndpointConfigName": given["EndpointConfigName"]}

    def _sagemaker_CreateEndpointConfig(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = given["EndpointConfigName"]
        if name in self.configs:
            raise RefusedError(
                "ValidationException", f'Cannot create already existing endpoint configuration "{name}".'
            )
        self.configs[name] = given["ProductionVariants"][0]
        return {"EndpointConfigArn": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint-config/{name}"}

    def _sagemaker_DescribeEndpoint(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if self.endpoint is None:
            raise RefusedError("ValidationException", f'Could not find endpoint "{given["EndpointName"]}".')
        return self.endpoint

    def _sagemaker_CreateEndpoint(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert self.endpoint is None
        self.tags = {tag["Key"]: tag["Value"] for tag in given.get("Tags", [])}
        self.endpoint = {"EndpointName": given["EndpointName"], "EndpointArn": ENDPOINT_ARN,
                         "EndpointStatus": "Creating"}  # fmt: skip
        self.coming_config = given["EndpointConfigName"]
        return {"EndpointArn": ENDPOINT_ARN}

    def _sagemaker_UpdateEndpoint(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert self.endpoint is not None
        if self.endpoint["EndpointStatus"] != "InService":
            raise RefusedError("ValidationException", "Cannot update in-progress endpoint.")
        if given["EndpointConfigName"] not in self.configs:
            raise RefusedError("ValidationException", "Could not find endpoint configuration.")
        self.endpoint["EndpointStatus"] = "Updating"
        self.coming_config = given["EndpointConfigName"]
        return {"EndpointArn": ENDPOINT_ARN}

    def _sagemaker_ListTags(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert given["ResourceArn"] == ENDPOINT_ARN
        return {"Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()]}

    def _sagemaker_AddTags(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert given["ResourceArn"] == ENDPOINT_ARN
        self.tags |= {tag["Key"]: tag["Value"] for tag in given["Tags"]}
        return {"Tags": given["Tags"]}

    # --- SageMaker: executions

    def _sagemaker_ListPipelineExecutions(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return _page(self.executions, given, "PipelineExecutionSummaries")

    def _sagemaker_ListPipelineExecutionSteps(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return _page(self.steps.get(given["PipelineExecutionArn"], []), given, "PipelineExecutionSteps")

    def _sagemaker_DescribePipelineExecution(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        (found,) = [run for run in self.executions if run["PipelineExecutionArn"] == given["PipelineExecutionArn"]]
        reason = found.get("PipelineExecutionFailureReason", "")
        return {"PipelineExecutionArn": found["PipelineExecutionArn"], "FailureReason": reason}

    def _sagemaker_DescribePipeline(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"PipelineName": given["PipelineName"], "CreationTime": BEGAN}

    def _sagemaker_StartPipelineExecution(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = given["PipelineExecutionDisplayName"]
        return {"PipelineExecutionArn": self.add_execution(len(self.executions), "Executing", name)[
            "PipelineExecutionArn"]}  # fmt: skip

    def _sagemaker_StopPipelineExecution(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        for execution in self.executions:
            if execution["PipelineExecutionArn"] == given["PipelineExecutionArn"]:
                execution["PipelineExecutionStatus"] = "Stopping"
        return {"PipelineExecutionArn": given["PipelineExecutionArn"]}

    # --- S3 and SNS

    def _s3_ListObjectsV2(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert given["Bucket"] == BUCKET
        rows = [{"Key": key, "Size": len(content), "ETag": f'"{sha256(content).hexdigest()}"', "LastModified": at}
                for key, (content, at) in sorted(self.objects.items()) if key.startswith(given["Prefix"])]  # fmt: skip
        first = int(given.get("ContinuationToken") or 0)
        more = {"NextContinuationToken": f"{first + PAGE_ENTRIES}"} if first + PAGE_ENTRIES < len(rows) else {}
        return {"Contents": rows[first : first + PAGE_ENTRIES], "IsTruncated": bool(more), **more}

    def _sns_Publish(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert given["TopicArn"] == self.topic_arn
        self.told.append((given["Subject"], given["Message"]))
        return {"MessageId": f"{len(self.told)}"}


def package_event(version: int, status: str) -> dict[str, Any]:
    return {
        "version": "0", "id": f"of-{version}-{status}", "source": "aws.sagemaker", "account": ACCOUNT, "region": REGION,
        "detail-type": "SageMaker Model Package State Change", "time": "2026-11-30T03:00:00Z",
        "resources": [package_arn(version)],
        "detail": {"ModelPackageGroupName": NAME, "ModelPackageVersion": version, "ModelPackageStatus": "Completed",
                   "ModelPackageArn": package_arn(version), "ModelApprovalStatus": status},
    }  # fmt: skip


def execution_event(execution: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "0", "source": "aws.sagemaker", "account": ACCOUNT, "region": REGION,
        "detail-type": "SageMaker Model Building Pipeline Execution Status Change", "time": "2026-11-30T03:00:00Z",
        "detail": {"pipelineArn": PIPELINE_ARN, "pipelineExecutionArn": execution["PipelineExecutionArn"],
                   "currentPipelineExecutionStatus": execution["PipelineExecutionStatus"],
                   "previousPipelineExecutionStatus": "Executing"},
    }  # fmt: skip


def object_event(key: str, bucket: str = BUCKET) -> dict[str, Any]:
    return {
        "version": "0", "source": "aws.s3", "account": ACCOUNT, "region": REGION, "detail-type": "Object Created",
        "time": "2026-11-30T03:00:00Z", "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": {"version": "0", "bucket": {"name": bucket}, "object": {"key": key, "size": 5, "etag": "e"},
                   "reason": "PutObject"},
    }  # fmt: skip


def _page(rows: list[dict[str, Any]], given: dict[str, Any], member: str) -> dict[str, Any]:
    first = int(given.get("NextToken") or 0)
    more = {"NextToken": f"{first + PAGE_ENTRIES}"} if first + PAGE_ENTRIES < len(rows) else {}
    return {member: rows[first : first + PAGE_ENTRIES], **more}
