"""Runs a compiled SageMaker Pipelines definition on this machine, step by step as processes.

It reads nothing but the definition's JSON and knows no step of langadapt: any definition runs whose images map to a
local command and whose Lambda functions map to a Python function. What is in a run folder:

    execution.json, executions/<id>.json     what happened (pipeline/execution_record.py)
    outputs/<step>/<key>/<output>/           sealed outputs, by content key (pipeline/local/cache.py)
    jobs/<step>/<key>/                       /opt/ml as the step saw it, and log.txt (pipeline/local/jobs.py)
    s3/<bucket>/<key>                        what stands for s3:// URIs: checkpoints, TensorBoard events, ...

A run that was killed is gone on with by running again: sealed steps are kept, what was half-written is cleared, a
training step finds its checkpoints.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pipeline import execution_record as states
from pipeline.execution_record import RunResult, StepRecord, keep_definition
from pipeline.local.execution import Execution, LocalFunction, StepFailedError, StepStoppedError
from pipeline.local.images import LocalImage, check_command
from pipeline.local.orphans import end_orphans
from pipeline.local.run_lock import RunLock
from pipeline.local.selection import select
from pipeline.local.step_runners import run_step
from pipeline.local.step_watch import StepWatch
from pipeline.local.stopping import noting_signals
from pipeline.local.uri_folders import UriFolders
from pipeline.progress import Progress, progress_for
from pipeline.reference_checks import check_references
from pipeline.references import Scope, parameter_values, referenced_steps
from pipeline.registry import LocalRegistry
from pipeline.step_graph import Node, build_graph
from pipeline.step_support import check_steps
from pipeline.time_left import earlier_seconds
from steps.contract import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_GATE_CLOSED,
    EXIT_USER_ERROR,
    ConfigError,
    UserError,
    mendable_error,
    nearest_name,
)

REFRESH_SECONDS = 0.2
EXECUTION_ID_CHARACTERS = 12
# Fixed, as the number of threads changes the last bits of sums; each can be set by `environment`.
JOB_ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",
    # A waiting thread soon gives its core away: steps run side by side, and the machine may be busy with other work.
    "GOMP_SPINCOUNT": "10000",
    "RAYON_NUM_THREADS": "2",
    "TOKENIZERS_PARALLELISM": "true",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}
IMAGE_PLACES = {"Processing": ("AppSpecification", "ImageUri"), "Training": ("AlgorithmSpecification", "TrainingImage")}
STABLE_VARIABLES = (
    "PipelineExecutionId", "PipelineExecutionArn", "PipelineName", "PipelineArn", "StartDateTime", "CurrentDateTime",
    "TrainingJobName", "ProcessingJobName",
)  # fmt: skip


def run_definition(
    definition: Mapping[str, Any],
    *,
    run_folder: Path,
    registry: LocalRegistry,
    images: Mapping[str, LocalImage] | None = None,
    default_image: LocalImage | None = None,
    parameters: Mapping[str, str] | None = None,
    functions: Mapping[str, LocalFunction] | None = None,
    uris: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
    pipeline_name: str = "pipeline",
    max_parallel: int = 2,
    force: bool = False,
    from_step: str | None = None,
    only: Sequence[str] = (),
    limit_settings: Mapping[str, str] | None = None,
    kept_texts: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Runs a definition and tells how it ended; a step that fails is no exception but an exit code.

    images: local command by image URI, default_image: for those not named.  functions: by Lambda ARN or function name.
    uris: what a URI, and everything below it, stands for.  environment: variables of every job, part of the cache key.
    parameters: texts by name.  max_parallel: steps at a time.  force: run all, whatever is cached.
    from_step, only: see pipeline/local/selection.py.  limit_settings: the setting of each step's time limit, by step.
    kept_texts: by file name, what a registered version keeps beside the run's record.
    Where the result says `left_working`, the caller is to end by `stopping.leave_at_once`, once it has told of it.
    Raises ConfigError before anything runs: a wrong parameter, a step that cannot run here, a folder in use; StepError
    where a process of an earlier run cannot be ended.
    """
    graph, declared = checked_graph(definition), definition.get("Parameters", [])
    selection = select(graph, from_step, only)
    values = parameter_values(declared, parameters or {})
    run_folder = run_folder.resolve()
    progress = progress if progress is not None else progress_for()
    execution_id = uuid.uuid4().hex[:EXECUTION_ID_CHARACTERS]
    folders = UriFolders(run_folder, uris or {})
    records = {name: StepRecord(name, node.type, needs=node.needs) for name, node in graph.items()}
    execution = Execution(
        result=RunResult(run_folder, execution_id, pipeline_name, values, records, str(selection or "")),
        scope=Scope(values, execution_variables(pipeline_name, execution_id), find_file=folders.find),
        stable=Scope(values, {name: f"{{{name}}}" for name in STABLE_VARIABLES}, find_file=folders.find),
        uris=folders, images=images or {}, default_image=default_image, functions=functions or {}, registry=registry,
        environment=JOB_ENVIRONMENT | dict(environment or {}), progress=progress, force=force,
        selection=selection, limit_settings=limit_settings or {}, definition=definition, kept_texts=kept_texts or {},
    )  # fmt: skip
    check_everything_is_here(graph, execution)
    _run_locked(graph, execution, max_parallel)
    return execution.result


def checked_graph(definition: Mapping[str, Any]) -> dict[str, Node]:
    """The steps by name, each after what it needs. Raises ConfigError for what this machine does not run."""
    graph = build_graph(definition)
    check_steps(graph)
    parameters = definition.get("Parameters", [])
    check_references(graph, {parameter["Name"]: parameter["Type"] for parameter in parameters})
    return graph


def _run_locked(graph: Mapping[str, Node], execution: Execution, max_parallel: int) -> None:
    """Runs the steps as the only run in its folder, stopped or killed by signals."""
    result, stopping = execution.result, execution.stopping
    with RunLock(execution.run_folder, execution.progress.line), noting_signals(stopping):
        end_orphans(execution.run_folder, stopping, execution.progress.line)
        _run_graph(graph, execution, max_parallel)
        # A signal behind the last step stopped nothing.
        unfinished = any(record.state in (states.STOPPED, states.NOT_RUN) and execution.takes_part(name)
                         for name, record in result.steps.items())  # fmt: skip
        if stopping.signals and unfinished:
            result.exit_code, result.failure = stopping.exit_code, f"stopped by {stopping.name}"
        _write_record(execution)
    result.left_working = stopping.is_overdue


def execution_variables(pipeline_name: str, execution_id: str) -> dict[str, str]:
    """The variables of Execution.*, in the forms of the service."""
    arn = f"arn:aws:sagemaker:local:000000000000:pipeline/{pipeline_name}"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "PipelineExecutionId": execution_id, "PipelineExecutionArn": f"{arn}/execution/{execution_id}",
        "PipelineName": pipeline_name, "PipelineArn": arn, "StartDateTime": now, "CurrentDateTime": now,
    }  # fmt: skip


def check_everything_is_here(graph: Mapping[str, Node], execution: Execution) -> None:
    """Raises ConfigError for the first image or Lambda function that nothing on this machine stands for."""
    for node in graph.values():
        if node.type in IMAGE_PLACES:
            application, name = IMAGE_PLACES[node.type]
            container = node.arguments[application]
            # An image that an earlier step tells is looked for when that step is done.
            if not referenced_steps(container[name]):
                uri = execution.scope.resolve(container[name])
                image = execution.required_image(node.name, uri)
                check_command(node.name, uri, container.get("ContainerEntrypoint", []), image)
        if node.type == "Lambda" and execution.function(arn := node.definition["FunctionArn"]) is None:
            raise ConfigError(node.name, f"{arn} has no local function", remedy=nearest_name(arn, execution.functions))


def _run_graph(graph: Mapping[str, Node], execution: Execution, max_parallel: int) -> None:
    """Runs the steps and leaves how the run ended in its result."""
    result = execution.result
    result.began = time.monotonic()
    execution.progress.start(result.steps, earlier_seconds(execution.run_folder))
    _write_record(execution)
    pool = ThreadPoolExecutor(max_parallel)
    try:
        _run_steps(graph, execution, pool, max_parallel)
    finally:
        # Where this loop itself failed, the steps end too.
        execution.stopping.asked.set()
        pool.shutdown(wait=not execution.stopping.is_overdue)
    for record in result.steps.values():
        if record.state == states.WAITING:
            record.state = states.NOT_RUN
        elif record.state == states.EXECUTING:
            record.end(states.STOPPED)
    result.seconds = time.monotonic() - result.began
    if result.exit_code is None:
        closed = closed_gate(graph, result)
        result.exit_code = EXIT_GATE_CLOSED if closed else EXIT_DONE
        result.failure = f"{closed}: closed" if closed else ""
    execution.progress.refresh()
    execution.progress.stop()


def closed_gate(graph: Mapping[str, Node], result: RunResult) -> str:
    """The Condition step whose outcome leads to a Fail step that the selection leaves out; empty where none does.

    So a gate that ends the whole run ends its parts too.
    """
    for name, node in graph.items():
        if node.type == "Fail" and node.branch and result.steps[name].state == states.NOT_RUN:
            gate, outcome = node.branch
            if gate in result.gates and result.gates[gate].open == outcome:
                return gate
    return ""


def _run_steps(graph: Mapping[str, Node], execution: Execution, pool: ThreadPoolExecutor, max_parallel: int) -> None:
    """Starts each step as soon as what it needs is there, until all are done or one fails."""
    result, stopping = execution.result, execution.stopping
    running: dict[Future[None], str] = {}
    watch = StepWatch(result, execution.progress.line)
    told = _states(result)
    while not stopping.is_overdue:
        if not stopping.asked.is_set():
            for name in _ready(graph, execution, set(running.values())):
                if len(running) < max_parallel:
                    running[pool.submit(_run_recorded, graph[name], execution)] = name
        if not running:
            return
        finished, _ = wait(running, timeout=REFRESH_SECONDS, return_when=FIRST_COMPLETED)
        if news := stopping.news():
            execution.progress.line(news)
        # Before the ends are noted: what a step warned about comes before why it failed.
        watch.look()
        for future in finished:
            _settle(running.pop(future), future, execution)
        result.seconds = time.monotonic() - result.began
        execution.progress.refresh()
        if (now := _states(result)) != told:
            told = now
            _write_record(execution)


def _write_record(execution: Execution) -> None:
    """Writes execution.json, and once the definition that it names. Where a full disk refuses that, the run fails as
    when a step does, if it has not already: what nobody can read about has not been done.
    """
    result = execution.result
    try:
        result.definition = result.definition or keep_definition(execution.run_folder, execution.definition)
        result.write()
    except OSError as error:
        fault = mendable_error(error, execution.run_folder)
        if fault is None:
            raise
        if result.exit_code in (None, EXIT_DONE):
            result.exit_code, result.failure = EXIT_USER_ERROR, str(fault)
            execution.stopping.asked.set()
            execution.progress.line(f"error: {fault}")


def _states(result: RunResult) -> list[str]:
    return [record.state for record in result.steps.values()]


def _ready(graph: Mapping[str, Node], execution: Execution, running: set[str]) -> list[str]:
    """Steps that can start now. Those of a branch not taken, and those that need a skipped step, become Skipped."""
    records, ready, selection = execution.result.steps, [], execution.selection
    ended = {name for name, record in records.items() if record.state in (*states.DONE_STATES, states.SKIPPED)}
    for name, node in graph.items():
        if records[name].state != states.WAITING or name in running:
            continue
        if selection is not None and (not selection.takes_part(name) or selection.must_wait(name, ended)):
            continue
        needed = [records[other].state for other in node.needs]
        if states.SKIPPED in needed:
            records[name].state = states.SKIPPED
        elif all(state in states.DONE_STATES for state in needed):
            if node.branch and execution.result.gates[node.branch[0]].open != node.branch[1]:
                records[name].state = states.SKIPPED
            else:
                ready.append(name)
    return ready


def _run_recorded(node: Node, execution: Execution) -> None:
    record = execution.result.steps[node.name]
    try:
        run_step(node, record, execution)
    except BaseException:
        record.end(states.STOPPED if execution.stopping.asked.is_set() else states.FAILED)
        raise


def _settle(name: str, future: Future[None], execution: Execution) -> None:
    """Notes how a step ended. The first failure stops the others and becomes the run's."""
    error, record, result = future.exception(), execution.result.steps[name], execution.result
    if error is None or isinstance(error, StepStoppedError):
        return
    if isinstance(error, StepFailedError):
        line, code = error.line, error.exit_code
    elif fault := mendable_error(error, execution.run_folder):
        line, code = str(fault), EXIT_USER_ERROR
    else:
        line, code = f"{type(error).__name__}: {error}", EXIT_BUG
        traceback.print_exception(error)
    record.error = line
    if result.exit_code is None and not execution.stopping.asked.is_set():
        record.state = states.FAILED
        subject = "" if isinstance(error, UserError) and error.subject == name else f"{name}: "
        result.exit_code, result.failure = code, subject + line.removeprefix("error: ")
        if code != EXIT_GATE_CLOSED and record.log is not None and record.attempts:
            result.failure += f" (log: {record.log})"
        execution.stopping.asked.set()
        execution.progress.line(result.failure if code == EXIT_GATE_CLOSED else f"error: {result.failure}")
