"""SageMaker Pipelines on loopback as far as executions go, which misbehaves as it is told; CloudWatch, S3 and STS too.

Every request in JSON is held against botocore's model of its service: what that does not know is a violation, which the
fixture asserts that there is none of. So are members of an answer that the service does not give.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from answer_shapes import unknown_members

from pipeline.service_shapes import request_problems, service_model

REGION, ACCOUNT = "us-west-2", "123456789012"
PIPELINE_ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:pipeline/langadapt"
CALLER = f"arn:aws:sts::{ACCOUNT}:assumed-role/reader/somebody"
SERVICES = {"SageMaker": "sagemaker", "Logs_20140328": "logs"}
# Of every list.
PAGE_ENTRIES = 3
# A command that never ends shall not keep the tests waiting for ever.
MOST_REQUESTS = 500
BEGAN = 1_796_000_000.0


@dataclass
class Fault:
    """An answer in the place of the right one. seconds: that it takes."""

    status: int = 400
    code: str = "ThrottlingException"
    message: str = "Rate exceeded"
    seconds: float = 0.0


THROTTLED = Fault()
BROKEN = Fault(500, "InternalFailure", "An internal error occurred")
EXPIRED = Fault(400, "ExpiredTokenException", "The security token included in the request is expired")


def denied(action: str) -> Fault:
    message = f"User: {CALLER} is not authorized to perform: {action} on resource: {PIPELINE_ARN} because no "
    return Fault(400, "AccessDeniedException", f"{message}identity-based policy allows the {action} action")


@dataclass
class StubExecution:
    """frames: the status and the steps that are told, one frame a look, the last one again and again.

    after_retry: the frames from RetryPipelineExecution on.  looked_at_by: the operation that counts as a look.
    """

    id: str
    definition: Mapping[str, Any]
    frames: list[tuple[str, list[dict[str, Any]]]]
    parameters: dict[str, str] = field(default_factory=dict)
    after_retry: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    selected: list[str] = field(default_factory=list)
    source: str = ""
    name: str = "by-hand"
    token: str = ""
    seconds: float = 60.0
    looks: int = 0
    looked_at_by: str = "DescribePipelineExecution"

    @property
    def arn(self) -> str:
        return f"{PIPELINE_ARN}/execution/{self.id}"

    @property
    def frame(self) -> tuple[str, list[dict[str, Any]]]:
        return self.frames[min(max(self.looks - 1, 0), len(self.frames) - 1)]


class SageMakerStub:
    """faults: by operation, what its next requests get. jobs: answers of Describe*Job by job name. streams: the lines
    of each host's log by (group, stream). requests: operation and body of all, in order."""

    def __init__(self) -> None:
        self.url = ""
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.violations: list[str] = []
        self.pipeline: dict[str, Any] | None = None
        self.executions: list[StubExecution] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, bytes] = {}
        self.streams: dict[tuple[str, str], list[str]] = {}
        self.statuses: dict[str, str] = {}
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "stand-in",
            "AWS_SECRET_ACCESS_KEY": "never-shown",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }

    def deploy(self, definition: Mapping[str, Any]) -> None:
        self.pipeline = {"PipelineName": "langadapt", "PipelineArn": PIPELINE_ARN,
                         "PipelineDefinition": json.dumps(definition)}  # fmt: skip

    def sent(self, operation: str) -> list[dict[str, Any]]:
        return [body for name, body in self.requests if name == operation]

    def answer(self, service: str, operation: str, body: dict[str, Any]) -> dict[str, Any] | Fault:
        """What a request in JSON gets."""
        with self.lock:
            self.requests.append((operation, body))
            if len(self.requests) > MOST_REQUESTS:
                return Fault(400, "ValidationException", "asked again and again")
            if self.faults.get(operation):
                return self.faults[operation].pop(0)
            if operation not in service_model(service).operation_names:
                self.violations.append(f"{service} has no {operation}")
                return Fault(400, "UnknownOperationException", operation)
            for path, value, limit in request_problems(service, operation, body):
                self.violations.append(f"{operation}.{path}: {value}; limit {limit}")
            answer = getattr(self, f"_{operation}")(body)
            if not isinstance(answer, Fault):
                shape = service_model(service).operation_model(operation).output_shape
                self.violations += unknown_members(shape, answer, operation)
            return answer

    # --- SageMaker

    def _DescribePipeline(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        missing = Fault(400, "ResourceNotFound", f"Pipeline {body['PipelineName']} does not exist.")
        return self.pipeline or missing

    def _StartPipelineExecution(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert self.pipeline is not None
        known = next((run for run in self.executions if run.token == body["ClientRequestToken"]), None)
        if known is None:
            steps = body.get("SelectiveExecutionConfig", {}).get("SelectedSteps", [])
            known = StubExecution(
                id=f"started{len(self.executions):05d}",
                definition=json.loads(self.pipeline["PipelineDefinition"]),
                frames=[("Executing", []), ("Succeeded", [])],
                name=body["PipelineExecutionDisplayName"],
                token=body["ClientRequestToken"],
                selected=[step["StepName"] for step in steps],
            )
            self.executions.insert(0, known)
        return {"PipelineExecutionArn": known.arn}

    def _ListPipelineExecutions(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        rows = [
            {"PipelineExecutionArn": run.arn, "PipelineExecutionStatus": run.frame[0], "StartTime": BEGAN,
             "PipelineExecutionDisplayName": run.name} for run in self.executions
        ]  # fmt: skip
        return _page(rows, body, "PipelineExecutionSummaries")

    def _DescribePipelineExecution(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        run = self._find(body)
        if isinstance(run, Fault):
            return run
        run.looks += run.looked_at_by == "DescribePipelineExecution"
        config: dict[str, Any] = {"SelectedSteps": [{"StepName": name} for name in run.selected]}
        if run.source:
            config["SourcePipelineExecutionArn"] = run.source
        chosen = {"SelectiveExecutionConfig": config}
        return {"PipelineExecutionArn": run.arn, "PipelineExecutionStatus": run.frame[0], "CreationTime": BEGAN,
                "LastModifiedTime": BEGAN + run.seconds, **(chosen if run.selected else {})}  # fmt: skip

    def _ListPipelineExecutionSteps(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        run = self._find(body)
        if isinstance(run, Fault):
            return run
        run.looks += run.looked_at_by == "ListPipelineExecutionSteps" and not body.get("NextToken")
        return _page(run.frame[1], body, "PipelineExecutionSteps")

    def _DescribePipelineDefinitionForExecution(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        run = self._find(body)
        return run if isinstance(run, Fault) else {"PipelineDefinition": json.dumps(run.definition)}

    def _ListPipelineParametersForExecution(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        run = self._find(body)
        if isinstance(run, Fault):
            return run
        return _page([{"Name": name, "Value": value} for name, value in run.parameters.items()], body,
                     "PipelineParameters")  # fmt: skip

    def _StopPipelineExecution(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        run = self._find(body)
        if isinstance(run, Fault):
            return run
        rows = run.frame[1]
        stopped = [row | {"StepStatus": "Stopped"} if row["StepStatus"] == "Executing" else row for row in rows]
        run.frames, run.looks = [("Stopping", rows), ("Stopped", stopped)], 0
        return {"PipelineExecutionArn": run.arn}

    def _RetryPipelineExecution(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        run = self._find(body)
        if isinstance(run, Fault):
            return run
        run.frames, run.looks = run.after_retry, 0
        return {"PipelineExecutionArn": run.arn}

    def _DescribeProcessingJob(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return self.jobs[body["ProcessingJobName"]]

    def _DescribeTrainingJob(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return self.jobs[body["TrainingJobName"]]

    def _DescribeModelPackage(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"ModelApprovalStatus": self.statuses.get(body["ModelPackageName"], "PendingManualApproval")}

    def _find(self, body: dict[str, Any]) -> StubExecution | Fault:
        found = next((run for run in self.executions if run.arn == body["PipelineExecutionArn"]), None)
        return found or Fault(400, "ResourceNotFound", f"{body['PipelineExecutionArn']} does not exist.")

    # --- CloudWatch Logs

    def _DescribeLogStreams(self, body: dict[str, Any]) -> dict[str, Any] | Fault:  # noqa: N802
        named = [stream for group, stream in self.streams if group == body["logGroupName"]]
        if not named:
            return Fault(400, "ResourceNotFoundException", "The specified log group does not exist.")
        rows = [{"logStreamName": name} for name in named if name.startswith(body["logStreamNamePrefix"])]
        page = _page(rows, body | {"NextToken": body.get("nextToken", "")}, "logStreams")
        return {name[0].lower() + name[1:]: value for name, value in page.items()}

    def _GetLogEvents(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        lines = self.streams[body["logGroupName"], body["logStreamName"]]
        given = len(lines) if body["startFromHead"] is False else 0
        first = int(body["nextToken"].removeprefix("f/")) if "nextToken" in body else max(0, given - PAGE_ENTRIES)
        events = [{"timestamp": int(BEGAN * 1000) + number, "message": lines[number]}
                  for number in range(first, min(first + PAGE_ENTRIES, len(lines)))]  # fmt: skip
        return {"events": events, "nextForwardToken": f"f/{first + len(events)}", "nextBackwardToken": f"b/{first}"}


def _page(rows: list[dict[str, Any]], body: Mapping[str, Any], member: str) -> dict[str, Any]:
    first = int(body.get("NextToken") or 0)
    more = {"NextToken": str(first + PAGE_ENTRIES)} if first + PAGE_ENTRIES < len(rows) else {}
    return {member: rows[first : first + PAGE_ENTRIES], **more}


@contextmanager
def sagemaker_stub() -> Iterator[SageMakerStub]:
    """The stub on a port of its own; at the end every request has been one of the service's."""
    stub = SageMakerStub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub))
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert stub.violations == []


def _handler(stub: SageMakerStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            target = self.headers.get("X-Amz-Target")
            if target is None:
                return self._caller_identity()
            service, _, operation = target.partition(".")
            answer = stub.answer(SERVICES[service], operation, json.loads(content))
            if isinstance(answer, Fault):
                time.sleep(answer.seconds)
                return self._send(
                    answer.status, json.dumps({"__type": answer.code, "message": answer.message}).encode()
                )
            return self._send(200, json.dumps(answer).encode())

        def do_GET(self) -> None:
            """S3's GetObject."""
            stub.requests.append(("GetObject", {"path": self.path}))
            if stub.faults.get("GetObject"):
                fault = stub.faults["GetObject"].pop(0)
                return self._send(fault.status, _xml_error(fault.code, fault.message), "application/xml")
            content = stub.objects.get(self.path.lstrip("/").split("?")[0])
            if content is None:
                return self._send(404, _xml_error("NoSuchKey", "The key does not exist"), "application/xml")
            return self._send(200, content, "binary/octet-stream")

        def _caller_identity(self) -> None:
            stub.requests.append(("GetCallerIdentity", {}))
            result = (
                f"<GetCallerIdentityResult><Arn>{CALLER}</Arn><Account>{ACCOUNT}</Account></GetCallerIdentityResult>"
            )
            xmlns = "https://sts.amazonaws.com/doc/2011-06-15/"
            text = f'<GetCallerIdentityResponse xmlns="{xmlns}">{result}</GetCallerIdentityResponse>'
            self._send(200, text.encode(), "text/xml")

        def _send(self, status: int, content: bytes, kind: str = "application/x-amz-json-1.1") -> None:
            # Who asked may have been interrupted.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None: ...

    return Handler


def _xml_error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
