"""An execution on SageMaker in the form of a local run (execution_record.py): the same records, gates, exit codes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import execution_record as states
from pipeline.conditions import evaluate
from pipeline.execution_record import GateResult, RunResult, StepRecord
from pipeline.lint.steps import in_order, list_steps
from pipeline.local.selection import ancestors
from pipeline.references import Scope
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.executions import execution_id, started_with, step_rows
from pipeline.remote.live_figures import LiveFigures
from pipeline.remote.step_outputs import function_outputs, output_uris, read_object, sealed_metrics, step_job
from pipeline.step_graph import Node
from steps.contract import EXIT_DONE, EXIT_GATE_CLOSED, EXIT_TERMINATED, EXIT_USER_ERROR, StepError

STATES = {
    "Starting": states.EXECUTING, "Executing": states.EXECUTING, "Stopping": states.EXECUTING,
    "Stopped": states.STOPPED, "Failed": states.FAILED, "Succeeded": states.SUCCEEDED,
}  # fmt: skip
ENDED = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")


class ExecutionView:
    """folder: an empty one, for the small files that tell what was measured. notes: what could not be looked at.
    output_uris: of each finished job, by output.

    Making one asks for the definition and the parameters that the execution was started with. Raises AwsError.
    """

    def __init__(self, account: Account, arn: str, folder: Path) -> None:
        self.account, self.arn, self.folder = account, arn, folder
        definition, parameters = started_with(account, arn)
        self.graph = graph_of(definition)
        pipeline = arn.split("/")[1]
        records = {name: StepRecord(name, node.type, needs=node.needs) for name, node in self.graph.items()}
        self.result = RunResult(folder, execution_id(arn), pipeline, parameters, records)
        variables = {"PipelineExecutionId": execution_id(arn), "PipelineExecutionArn": arn, "PipelineName": pipeline}
        self.scope = Scope(parameters, variables)
        self.notes: list[str] = []
        self.output_uris: dict[str, dict[str, str]] = {}
        self._figures = LiveFigures(account, self.notes)
        self._selected: set[str] = set()
        self._read: set[str] = set()
        self._sources: dict[str, dict[str, dict[str, Any]]] = {}

    def look(self) -> None:
        """Brings the result up to date. Raises AwsError; what one look did not get, the next one does."""
        described = self.account.call("sagemaker", "DescribePipelineExecution", PipelineExecutionArn=self.arn)
        # After the status: once that has ended, the list is whole.
        rows = step_rows(self.account, self.arn)
        self._select(described)
        rows |= {name: row for name, row in self._borrowed(described).items() if name not in rows}
        for name, node in self.graph.items():
            if name in rows:
                self._take(node, self.result.steps[name], rows[name])
        status = described["PipelineExecutionStatus"]
        self._settle_others(rows, has_ended=status in ENDED)
        self._end(described, status)

    def _select(self, described: Mapping[str, Any]) -> None:
        chosen = described.get("SelectiveExecutionConfig", {}).get("SelectedSteps", [])
        self._selected = {step["StepName"] for step in chosen}
        self.result.selection = " ".join(f"--only {step['StepName']}" for step in chosen)

    def _source_rows(self, arn: str) -> dict[str, dict[str, Any]]:
        """The steps of an execution that has ended, asked for once; none of one that cannot be looked at."""
        if arn not in self._sources:
            try:
                self._sources[arn] = step_rows(self.account, arn)
            except AwsError as error:
                self._note(f"source {execution_id(arn)}", error)
                self._sources[arn] = {}
        return self._sources[arn]

    def _borrowed(self, described: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """What a selective execution takes from another one: the finished steps before those that are selected."""
        source = described.get("SelectiveExecutionConfig", {}).get("SourcePipelineExecutionArn")
        if not source:
            return {}
        taken = ancestors(self.graph, self._selected) - self._selected
        mark = {"SelectiveExecutionResult": {"SourcePipelineExecutionArn": source}}
        return {
            name: row | mark
            for name, row in self._source_rows(source).items()
            if name in taken and row["StepStatus"] == "Succeeded"
        }

    def _take(self, node: Node, record: StepRecord, row: Mapping[str, Any]) -> None:
        """One step as the service tells it; what it left is read when it is done."""
        record.attempts = row.get("AttemptCount") or 0
        record.reason = f"attempt {record.attempts}" if record.attempts > 1 else ""
        began, ended = row.get("StartTime"), row.get("EndTime")
        state = STATES.get(row["StepStatus"], states.EXECUTING)
        if state == states.SUCCEEDED and (row.get("CacheHitResult") or row.get("SelectiveExecutionResult")):
            state = states.CACHED
        if state in states.DONE_STATES and node.name not in self._read:
            self._read_outcome(node, record, row)
            self._read.add(node.name)
        if began is not None:
            now = datetime.now(UTC)
            record.seconds = max(0.0, ((ended or now) - began).total_seconds())
            record.started = time.monotonic() - record.seconds
        failed_by = row.get("Metadata", {}).get("Fail", {}).get("ErrorMessage")
        if state == states.EXECUTING and (job := step_job(row)) is not None:
            self._figures.look(record, job)
        elif state != states.EXECUTING:
            record.progress = record.seconds_left = None
        record.error = (failed_by or row.get("FailureReason") or "no reason told") if state == states.FAILED else ""
        record.state = state

    def _read_outcome(self, node: Node, record: StepRecord, row: Mapping[str, Any]) -> None:
        """What a finished step tells: its metrics, a condition's outcome, a version's number, a function's outputs.

        Of a step from the cache that may stand in the execution that it comes from alone.
        """
        from_elsewhere = row.get("CacheHitResult") or row.get("SelectiveExecutionResult") or {}
        if not row.get("Metadata") and (source := from_elsewhere.get("SourcePipelineExecutionArn")):
            row = self._source_rows(source).get(node.name, row)
        metadata = row.get("Metadata", {})
        match node.type:
            case "Processing" | "Training":
                self._read_job(node, record, row)
            case "Lambda":
                record.values = function_outputs(node.definition, row)
                self.scope.steps[node.name] = {"OutputParameters": record.values}
            case "Condition":
                self._judge(node, record, is_open=metadata.get("Condition", {}).get("Outcome") == "True")
            case "RegisterModel":
                self._read_version(node, record, metadata.get("RegisterModel", {}).get("Arn", ""))

    def _read_job(self, node: Node, record: StepRecord, row: Mapping[str, Any]) -> None:
        """Metrics and warnings of the job's seal, and the property files that conditions may look into."""
        job = step_job(row)
        if job is None:
            return
        try:
            described = job.describe(self.account)
            self.scope.steps[node.name] = described
            uris = self.output_uris[node.name] = output_uris(described)
            record.metric, record.warnings = sealed_metrics(self.account, uris)
            for file in node.definition.get("PropertyFiles", []):
                output, name = file["OutputName"], file["FilePath"]
                if output not in uris:
                    raise StepError(output, f"no output of {job.name}", remedy="Correct the definition.")
                path = self.folder / node.name / output / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(read_object(self.account, f"{uris[output]}/{name}"))
                self.scope.property_files[node.name, file["PropertyFileName"]] = path
                record.outputs[output] = self.folder / node.name / output
        except StepError as error:
            self._note(node.name, error)

    def _judge(self, node: Node, record: StepRecord, *, is_open: bool) -> None:
        """The conditions again, as the service tells only whether all of them held."""
        try:
            results = tuple(evaluate(condition, self.scope) for condition in node.arguments["Conditions"])
        except StepError as error:
            results = ()
            self.notes.append(f"{node.name}: which conditions hold is not known: {error}")
        if results and all(result.holds for result in results) != is_open:
            told, found = ("open", "closed") if is_open else ("closed", "open")
            self.notes.append(f"{node.name}: the service says {told}, what is in S3 now says {found}")
        self.result.gates[node.name] = GateResult(is_open, results)
        failed = "; ".join(str(result) for result in results if not result.holds)
        record.metric = "open" if is_open else failed or "closed"

    def _read_version(self, node: Node, record: StepRecord, arn: str) -> None:
        record.values = {"ModelPackageArn": arn}
        record.metric = f"version {arn.rpartition('/')[2]}"
        try:
            status = self.account.call("sagemaker", "DescribeModelPackage", ModelPackageName=arn)
            record.metric += f" {status.get('ModelApprovalStatus', '')}"
        except AwsError as error:
            self._note(node.name, error)

    def _note(self, step: str, error: StepError) -> None:
        """Keeps why something of a step cannot be told. Raises what may pass, for the next look."""
        if isinstance(error, AwsError) and (error.may_pass or error.kind == "credentials"):
            raise error
        self.notes.append(f"{step}: {error}")

    def _settle_others(self, rows: Mapping[str, Any], *, has_ended: bool) -> None:
        """The steps that the service does not list: of a branch not taken, not selected, not come to."""
        for name, node in self.graph.items():
            record = self.result.steps[name]
            if name in rows:
                continue
            gate = self.result.gates.get(node.branch[0]) if node.branch else None
            needs_skipped = any(self.result.steps[other].state == states.SKIPPED for other in node.needs)
            if needs_skipped or (gate is not None and node.branch is not None and gate.open != node.branch[1]):
                record.state = states.SKIPPED
            elif has_ended or (self._selected and not self._takes_part(node)):
                record.state = states.NOT_RUN
            else:
                record.state = states.WAITING

    def _takes_part(self, node: Node) -> bool:
        """Whether a selective execution runs a step: a selected one, or one of a selected condition's branch."""
        return node.name in self._selected or (node.branch is not None and node.branch[0] in self._selected)

    def _end(self, described: Mapping[str, Any], status: str) -> None:
        result = self.result
        began, changed = described.get("CreationTime"), described.get("LastModifiedTime")
        if began is not None and changed is not None:
            result.seconds = max(0.0, (changed - began).total_seconds())
        if status not in ENDED:
            result.exit_code = None
            return
        failed = [name for name, record in result.steps.items() if record.state == states.FAILED]
        if status == "Succeeded":
            result.exit_code = EXIT_DONE
        elif status == "Stopped":
            result.exit_code, result.failure = EXIT_TERMINATED, "the execution was stopped"
        elif failed and all(self.graph[name].type == "Fail" for name in failed):
            result.exit_code = EXIT_GATE_CLOSED
        else:
            result.exit_code = EXIT_USER_ERROR
        if failed:
            result.failure = f"{failed[0]}: {result.steps[failed[0]].error}"
        elif result.exit_code == EXIT_USER_ERROR:
            result.failure = described.get("FailureReason") or "no reason told"


def graph_of(definition: Mapping[str, Any]) -> dict[str, Node]:
    """The steps by name, each after all that it needs, of any type that the service knows."""
    listed = {step.name: step for step in list_steps(definition)}
    graph = {}
    for step in in_order(listed)[0]:
        # Such as $.Steps[3].Arguments.IfSteps[0].
        outcome = step.path.rpartition(".Arguments.")[2].startswith("IfSteps")
        needs = frozenset(name for name in step.needs() if name in listed)
        branch = (step.inside, outcome) if step.inside else None
        graph[step.name] = Node(step.name, step.type, step.definition, needs, branch)
    return graph
