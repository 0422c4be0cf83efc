"""How each type of step runs on this machine. One function a type; all work on an Execution, from several threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pipeline import execution_record as states
from pipeline.conditions import evaluate
from pipeline.execution_record import GateResult, StepRecord
from pipeline.local.evidence import gather_evidence
from pipeline.local.execution import Execution, LambdaContext, StepFailedError, StepStoppedError
from pipeline.local.job_steps import run_job
from pipeline.local.retries import Retries, call_error_class
from pipeline.references import typed_value
from pipeline.registry import ModelVersion, WaitStoppedError
from pipeline.step_graph import Node
from steps.contract import EXIT_GATE_CLOSED, EXIT_USER_ERROR, StepError

Returned = TypeVar("Returned")


def run_step(node: Node, record: StepRecord, execution: Execution) -> None:
    """Runs one step to its end and leaves its state in the record.

    Raises StepFailedError, StepStoppedError or a UserError.
    """
    runners = {
        "Processing": run_job, "Training": run_job, "Condition": run_condition, "Fail": run_fail,
        "Lambda": run_lambda, "RegisterModel": run_register_model,
    }  # fmt: skip
    runners[node.type](node, record, execution)


def run_condition(node: Node, record: StepRecord, execution: Execution) -> None:
    """Evaluates every condition, also after one that does not hold, so that a person sees them all."""
    record.begin()
    results = tuple(evaluate(condition, execution.scope) for condition in node.arguments["Conditions"])
    gate = GateResult(all(result.holds for result in results), results)
    execution.result.gates[node.name] = gate
    record.metric = "open" if gate.open else "; ".join(str(result) for result in results if not result.holds)
    execution.finish(node.name, {"Outcome": gate.open}, {"Outcome": gate.open})
    record.end(states.SUCCEEDED)


def run_fail(node: Node, record: StepRecord, execution: Execution) -> None:
    """Ends the run with the definition's message and the exit code of a closed gate."""
    record.begin()
    raise StepFailedError(str(execution.scope.resolve(node.arguments.get("ErrorMessage", ""))), EXIT_GATE_CLOSED)


def run_lambda(node: Node, record: StepRecord, execution: Execution) -> None:
    """Calls the local function, never cached, and checks that it returns what the definition declares."""
    record.begin()
    function = execution.function(node.definition["FunctionArn"])
    assert function is not None, "checked before the run"
    result = execution.result
    context = LambdaContext(execution.uris.find, execution.registry, execution.run_folder, result.execution_id)
    event = execution.scope.resolve(node.arguments)
    returned = _with_retries(lambda: function(event, context), node, record, execution)
    values: dict[str, Any] = {}
    for output in node.definition.get("OutputParameters", []):
        name = output["OutputName"]
        if name not in returned:
            raise StepError(node.name, f"its function returned no {name}", remedy="Return every declared output.")
        values[name] = typed_value(f"{node.name}.{name}", returned[name], output["OutputType"])
    record.values = values
    execution.finish(node.name, {"OutputParameters": values}, {"OutputParameters": values})
    record.end(states.SUCCEEDED)


def _with_retries(call: Callable[[], Returned], node: Node, record: StepRecord, execution: Execution) -> Returned:
    """What a call returns, tried again as the step's policies allow for errors of their classes."""
    retries = Retries(node.definition.get("RetryPolicies", []))
    while True:
        record.attempts += 1
        try:
            return call()
        except Exception as error:
            # Of any type, as a function's AWS client has types of its own; what is in no class goes on as it is.
            error_class = call_error_class(error)
            if not error_class:
                raise
            wait = retries.next_wait_seconds(error_class)
            if wait is None:
                raise StepFailedError(f"{type(error).__name__}: {error}", EXIT_USER_ERROR) from error
            execution.progress.line(retries.told(node.name, str(error), wait, error_class))
            if execution.stopping.asked.wait(wait):
                raise StepStoppedError from error


def run_register_model(node: Node, record: StepRecord, execution: Execution) -> None:
    """Registers the model folder of CreateModelPackage's first container in the local registry."""
    record.begin()
    request = execution.scope.resolve(node.arguments)
    container = request["InferenceSpecification"]["Containers"][0]
    uri = container.get("ModelDataSource", {}).get("S3DataSource", {}).get("S3Uri") or container.get("ModelDataUrl")
    if not uri:
        raise StepError(node.name, "no model data in its first container", remedy="Give it a ModelDataSource.")
    result = execution.result
    metadata = {name: str(value) for name, value in request.get("CustomerMetadataProperties", {}).items()}

    def register() -> tuple[ModelVersion, bool]:
        return execution.registry.register(
            group=request.get("ModelPackageGroupName", result.pipeline).rpartition("/")[2],
            model=execution.uris.find(uri),
            metadata=metadata,
            metrics=_read_metrics(request, execution),
            request=request,
            status=request.get("ModelApprovalStatus", "PendingManualApproval"),
            run_folder=execution.run_folder,
            evidence=gather_evidence(execution),
            stop=execution.stopping.asked,
        )

    try:
        version, is_new = _with_retries(register, node, record, execution)
    except WaitStoppedError as error:
        raise StepStoppedError from error
    result.registered, result.registered_is_new = version, is_new
    arn = f"arn:aws:sagemaker:local:000000000000:model-package/{version.group}/{version.version}"
    properties = {
        "ModelPackageArn": arn, "ModelPackageGroupName": version.group, "ModelPackageVersion": version.version,
        "ModelApprovalStatus": version.status,
    }  # fmt: skip
    record.values = properties
    record.metric = f"version {version.version} {version.status}" + ("" if is_new else ", registered before")
    execution.finish(node.name, properties, properties)
    record.end(states.SUCCEEDED)


def _read_metrics(request: Mapping[str, Any], execution: Execution) -> dict[str, Any]:
    """The file of ModelMetrics.ModelQuality.Statistics, which people approve from; empty where none is named."""
    uri = request.get("ModelMetrics", {}).get("ModelQuality", {}).get("Statistics", {}).get("S3Uri")
    if uri is None:
        return {}
    path = execution.uris.find(uri)
    if not path.is_file():
        raise StepError("ModelMetrics", f"{path} does not exist", remedy="Look at the log of the step that writes it.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StepError("ModelMetrics", f"{path} is no JSON ({error})", remedy="Correct its step.") from error
