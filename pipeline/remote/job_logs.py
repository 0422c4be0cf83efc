"""What a step's job prints, from CloudWatch Logs: every host's stream, in the order of time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.executions import GOING_ON
from pipeline.remote.step_outputs import StepJob, step_job
from steps.contract import ConfigError, nearest_name

LOG_GROUPS = {"Processing": "/aws/sagemaker/ProcessingJobs", "Training": "/aws/sagemaker/TrainingJobs"}
# States of a step that has ended, as the service calls them.
ENDED = ("Succeeded", "Failed", "Stopped")


@dataclass(frozen=True)
class LogLine:
    """host: such as algo-1.  milliseconds: since 1970, as CloudWatch got it."""

    milliseconds: int
    host: str
    text: str

    def as_json(self) -> dict[str, Any]:
        moment = datetime.fromtimestamp(self.milliseconds / 1000, UTC)
        return {"time": moment.isoformat(timespec="milliseconds"), "host": self.host, "text": self.text}


class JobLog:
    """The log of one job, read on from where the last reading ended. hosts: known so far."""

    def __init__(self, account: Account, job: StepJob) -> None:
        self.account, self.job, self.group = account, job, LOG_GROUPS[job.type]
        self._tokens: dict[str, str] = {}
        # Of the page behind each token: a reading that broke off goes on where it was.
        self._given: dict[str, int] = {}

    @property
    def hosts(self) -> set[str]:
        return {self._host(stream) for stream in self._tokens}

    def read(self) -> Iterator[LogLine]:
        """The lines that are new. Raises AwsError."""
        for stream in self._streams():
            self._tokens.setdefault(stream, "")
            self._given.setdefault(stream, 0)
        yield from heapq.merge(
            *(self._lines(stream) for stream in sorted(self._tokens)), key=lambda line: line.milliseconds
        )

    def _streams(self) -> list[str]:
        """Names of the job's streams; none before it has printed anything."""
        try:
            rows = self.account.pages(
                "logs", "DescribeLogStreams", "logStreams",
                logGroupName=self.group, logStreamNamePrefix=f"{self.job.name}/",
            )  # fmt: skip
            return [row["logStreamName"] for row in rows]
        except AwsError as error:
            if error.kind == "not_found":
                return []
            raise

    def _lines(self, stream: str) -> Iterator[LogLine]:
        while True:
            token = self._tokens[stream]
            page = self.account.call(
                "logs", "GetLogEvents", logGroupName=self.group, logStreamName=stream, startFromHead=True,
                **({"nextToken": token} if token else {}),
            )  # fmt: skip
            for event in page["events"][self._given[stream] :]:
                yield LogLine(event["timestamp"], self._host(stream), event["message"])
                self._given[stream] += 1
            # At its end a stream gives the token back that it was asked with.
            self._tokens[stream], self._given[stream] = page["nextForwardToken"], 0
            if self._tokens[stream] == token:
                return

    def _host(self, stream: str) -> str:
        """`algo-1` of `job/algo-1-1700000000`."""
        return stream.removeprefix(f"{self.job.name}/").rpartition("-")[0]


def find_step(account: Account, arn: str, step: str) -> dict[str, Any] | None:
    """A step of an execution as ListPipelineExecutionSteps tells it; None where it has not come to it yet.

    Raises ConfigError for a step that the definition has not, or that runs no job; AwsError.
    """
    import json

    from pipeline.lint.steps import list_steps

    rows = account.pages("sagemaker", "ListPipelineExecutionSteps", "PipelineExecutionSteps", PipelineExecutionArn=arn,
                         SortOrder="Ascending")  # fmt: skip
    found = next((row for row in reversed(list(rows)) if row["StepName"] == step), None)
    if found is not None and step_job(found) is not None:
        return found
    answer = account.call("sagemaker", "DescribePipelineDefinitionForExecution", PipelineExecutionArn=arn)
    types = {entry.name: entry.type for entry in list_steps(json.loads(answer["PipelineDefinition"]))}
    if step not in types:
        raise ConfigError("step", step, limit="a step of the execution", remedy=nearest_name(step, types))
    if types[step] not in LOG_GROUPS:
        with_jobs = ", ".join(name for name, kind in types.items() if kind in LOG_GROUPS)
        value = f"{step} is a step of type {types[step]} and runs no job"
        raise ConfigError("step", value, remedy=f"Take one of {with_jobs}.")
    return found


def followed_lines(
    account: Account, arn: str, step: str, *, follow: bool, wait_seconds: float
) -> Iterator[tuple[LogLine, int]]:
    """Each line with the number of hosts that have printed so far; with follow until the step has ended.

    A step that is tried again has a new job, whose lines come behind. Raises ConfigError for a step without a job, or
    one that has not begun and is not waited for; AwsError, with follow only for what does not pass by itself.
    """
    log: JobLog | None = None
    while True:
        try:
            found = find_step(account, arn, step)
            job = step_job(found) if found is not None else None
            if job is None and (not follow or execution_has_ended(account, arn)):
                raise ConfigError(
                    "step", f"{step} has not begun", remedy="See langadapt status; --follow waits for it."
                )
            if job is not None and (log is None or log.job != job):
                log = JobLog(account, job)
            if log is not None:
                for line in log.read():
                    yield line, len(log.hosts)
            # As it was before the lines were read: of an ended step nothing comes behind them.
            if not follow or (found is not None and found["StepStatus"] in ENDED):
                return
        except AwsError as error:
            if not follow or not error.may_pass:
                raise
        time.sleep(wait_seconds)


def execution_has_ended(account: Account, arn: str) -> bool:
    """Whether no further step begins. Raises AwsError."""
    described = account.call("sagemaker", "DescribePipelineExecution", PipelineExecutionArn=arn)
    return described["PipelineExecutionStatus"] not in GOING_ON
