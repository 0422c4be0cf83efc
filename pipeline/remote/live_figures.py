"""What a job on SageMaker tells of itself while it works, from the end of its log: figures, progress, time left."""

from __future__ import annotations

import time

from pipeline.execution_record import StepRecord
from pipeline.local.job_log import told_figures
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.job_logs import LOG_GROUPS
from pipeline.remote.step_outputs import StepJob
from pipeline.time_left import Pace

# Of the log's end; progress is told once a second at most.
TAIL_EVENTS = 100


class LiveFigures:
    """Fills the record of a step at work. Where logs may not be read that is told once, and nothing is asked again."""

    def __init__(self, account: Account, notes: list[str]) -> None:
        self.account, self.notes = account, notes
        self._streams: dict[str, str] = {}
        self._paces: dict[str, Pace] = {}
        self._is_refused = False

    def look(self, record: StepRecord, job: StepJob) -> None:
        """Metric, progress and seconds left of a step, as far as its job tells; what is not answered waits."""
        if self._is_refused:
            return
        try:
            lines = self._newest_lines(job)
        except AwsError as error:
            if not error.may_pass:
                self._is_refused = True
                self.notes.append(f"figures of steps at work are not shown: {error}")
            return
        metric, progress = told_figures(lines)
        record.metric, record.progress = metric or record.metric, progress or record.progress
        pace, now = self._paces.setdefault(job.name, Pace()), time.monotonic()
        if record.progress is not None:
            pace.tell(now, record.progress.done)
            record.seconds_left = pace.seconds_left(now, record.progress.total)

    def _newest_lines(self, job: StepJob) -> list[str]:
        """The last lines of the first host, which tells for all; none before it has printed anything."""
        group = LOG_GROUPS[job.type]
        if job.name not in self._streams:
            try:
                named = self.account.call(
                    "logs", "DescribeLogStreams", logGroupName=group, logStreamNamePrefix=f"{job.name}/algo-1"
                )["logStreams"]
            except AwsError as error:
                if error.kind == "not_found":
                    return []
                raise
            # algo-10 and its like begin so, too, and come behind.
            if not named:
                return []
            self._streams[job.name] = min(stream["logStreamName"] for stream in named)
        page = self.account.call(
            "logs", "GetLogEvents", logGroupName=group, logStreamName=self._streams[job.name], startFromHead=False,
            limit=TAIL_EVENTS,
        )  # fmt: skip
        return [event["message"].rstrip() for event in page["events"]]
