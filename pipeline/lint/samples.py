"""Resolves a definition before anything ran: references become samples, and each that leads nowhere is found.

What a job's properties are is the service's to say: those that its request gives have the request's values, the others
are looked up in the shape of its Describe call.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.lint.steps import ListedStep
from pipeline.reference_checks import EXECUTION_VARIABLES, JOB_VARIABLES
from pipeline.references import as_text, look_up, member_path, path_parts, reference_kind
from pipeline.service_shapes import Unknown, service_model
from steps.contract import StepError, nearest_name

# The longest that the service makes up from the names of execution and step.
SAMPLE_JOB_NAME = "pipelines-abcdef012345-" + "S" * 40
SAMPLE_DIGEST = "0123456789abcdef" * 4
SAMPLE_NUMBER = 0.123456789012345678
SAMPLE_PIPELINE_ARN = "arn:aws:sagemaker:us-west-2:111122223333:pipeline/pipeline"
SAMPLE_EXECUTION = {
    "PipelineExecutionId": "abcdef012345",
    "PipelineName": "pipeline",
    "PipelineArn": SAMPLE_PIPELINE_ARN,
    "PipelineExecutionArn": f"{SAMPLE_PIPELINE_ARN}/execution/abcdef012345",
    "StartDateTime": "2000-01-01T00:00:00Z",
    "CurrentDateTime": "2000-01-01T00:00:00Z",
    **dict.fromkeys(JOB_VARIABLES, SAMPLE_JOB_NAME),
}
# The call whose answer a step's properties are.
DESCRIBE_CALLS = {
    "Processing": "DescribeProcessingJob",
    "Training": "DescribeTrainingJob",
    "RegisterModel": "DescribeModelPackage",
    "Model": "DescribeModel",
    "Transform": "DescribeTransformJob",
    "Tuning": "DescribeHyperParameterTuningJob",
}
CORRECT = "Correct the reference."


class Samples:
    """Resolves values of a definition, step after step, and keeps what it found wrong.

    parameters: values by name. steps: all steps of the definition by name.
    """

    def __init__(self, parameters: Mapping[str, Any], steps: Mapping[str, ListedStep]) -> None:
        self._parameters, self._steps = parameters, steps
        self._resolved: dict[str, Any] = {}
        self.findings: list[Finding] = []

    def resolve_step(self, step: ListedStep) -> Any:
        """A step's arguments (a condition's without those of its branches), each reference replaced."""
        arguments = step.own_arguments
        resolved = self.resolve(arguments, f"{step.path}.Arguments", step)
        self._resolved[step.name] = resolved if isinstance(resolved, dict) else {}
        return resolved

    def resolve(self, value: Any, path: str, step: ListedStep) -> Any:
        """The value with samples for its references; Unknown for one that leads nowhere, which is found."""
        if isinstance(value, list):
            return [self.resolve(item, member_path(path, index), step) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kind = reference_kind(value)
        if kind is None:
            return {name: self.resolve(item, member_path(path, name), step) for name, item in value.items()}
        if kind == "Get":
            return self._get(value["Get"], path, step)
        return self._join(value, path, step) if kind == "Std:Join" else self._json_get(value, path, step)

    def _join(self, value: dict[str, Any], path: str, step: ListedStep) -> Any:
        join = value["Std:Join"]
        if not isinstance(join, dict) or not isinstance(join.get("Values"), list):
            return self._lost(
                member_path(path, "Std:Join"), as_text(join), "On and a list Values", "Complete it.", step
            )
        parts = self.resolve(join["Values"], f"{path}['Std:Join'].Values", step)
        if any(isinstance(part, Unknown) for part in parts):
            return Unknown()
        return str(join.get("On", "")).join(as_text(part) for part in parts)

    def _json_get(self, value: dict[str, Any], path: str, step: ListedStep) -> Any:
        arguments, inside = value["Std:JsonGet"], f"{path}['Std:JsonGet']"
        if not isinstance(arguments, dict) or not isinstance(arguments.get("Path"), str):
            remedy = "Write the path itself: the service takes no variable there."
            return self._lost(f"{inside}.Path", as_text(arguments), "a text", remedy, step)
        try:
            # Nothing is looked up: only the path's own form counts.
            look_up({}, arguments["Path"], "path", ends_at=lambda found: True)
        except StepError as error:
            return self._lost(f"{inside}.Path", str(error.value), "a path such as a.b[0]", error.remedy, step)
        if "PropertyFile" in arguments:
            if reference_kind(arguments["PropertyFile"]) != "Get":
                shown = as_text(arguments["PropertyFile"])
                return self._lost(f"{inside}.PropertyFile", shown, "a Get of a property file", CORRECT, step)
            found = self._get(arguments["PropertyFile"]["Get"], f"{inside}.PropertyFile", step)
            return Unknown() if isinstance(found, Unknown) else SAMPLE_NUMBER
        self.resolve(arguments.get("S3Uri", ""), f"{inside}.S3Uri", step)
        return SAMPLE_NUMBER

    def _get(self, reference: str, path: str, step: ListedStep) -> Any:
        kind, _, name = reference.partition(".")
        if kind == "Parameters":
            if name in self._parameters:
                return self._parameters[name]
            return self._lost(path, reference, "a declared parameter", nearest_name(name, self._parameters), step)
        if kind == "Execution":
            known = (*EXECUTION_VARIABLES, *(job for job, type_ in JOB_VARIABLES.items() if step.type == type_))
            if name in known:
                return SAMPLE_EXECUTION[name]
            return self._lost(path, reference, "a variable of the execution", nearest_name(name, known), step)
        if kind != "Steps":
            remedy = "Write Parameters.NAME, Execution.NAME or Steps.NAME.PROPERTY."
            return self._lost(path, reference, "a reference", remedy, step)
        name, _, inner = name.partition(".")
        if name not in self._steps:
            return self._lost(path, reference, "a step that exists", nearest_name(name, self._steps), step)
        try:
            return self._property(self._steps[name], inner)
        except StepError as error:
            limit = f"a property of a {self._steps[name].type} step"
            return self._lost(path, f"{reference}: {error.value}", limit, error.remedy, step)

    def _property(self, step: ListedStep, path: str) -> Any:
        """A step's property. Raises StepError where its step has none there."""
        first, _, rest = path.partition(".")
        if first == "PropertyFiles":
            names = step.property_files()
            if rest not in names:
                remedy = nearest_name(rest, names) if names else f"Declare it in PropertyFiles of {step.name}."
                raise StepError(path, "no such property file", remedy=remedy)
            return rest
        if step.type == "Lambda":
            return look_up({"OutputParameters": lambda_samples(step)}, path, path)
        if step.type == "Condition":
            return look_up({"Outcome": True}, path, path)
        if step.type not in DESCRIBE_CALLS:
            return Unknown()
        shape = service_model().operation_model(DESCRIBE_CALLS[step.type]).output_shape
        return described(self._resolved.get(step.name, {}), shape, path)

    def _lost(self, path: str, value: str, limit: str, remedy: str, step: ListedStep) -> Unknown:
        self.findings.append(Finding(path, value, limit, remedy or CORRECT, step.name))
        return Unknown()


def lambda_samples(step: ListedStep) -> dict[str, Any]:
    """A sample of each output of a function, of the type that it declares."""
    samples: dict[str, Any] = {}
    for output in step.definition.get("OutputParameters", []):
        kind, name = output.get("OutputType", "String"), output.get("OutputName", "")
        samples[name] = {"Integer": 1, "Float": 0.5, "Boolean": True}.get(kind, sample_text(name))
    return samples


@functools.cache
def sample_text(name: str) -> str:
    """A text as an output of this name may have it."""
    if name.endswith("_uri"):
        return "s3://langadapt-sample-bucket/langadapt/models/sample/"
    return "false" if name.endswith("_present") else SAMPLE_DIGEST


def described(request: Any, shape: Any, path: str) -> Any:
    """What a Describe call would answer at a path: the request's own value, else Unknown where the shape has the place.

    Raises StepError where neither has it.
    """
    value, is_known = request, True
    for part in path_parts(path, path):
        if is_known and isinstance(value, list):
            # A list of the request is in the answer as it was given.
            value = look_up(value, f"[{part}]" if isinstance(part, int) else f"['{part}']", path)
        elif is_known and isinstance(value, dict) and part in value:
            value = value[part]
        else:
            is_known = False
        if shape is not None and shape.type_name == "structure":
            if part not in shape.members:
                if not is_known:
                    raise StepError(path, f"no {part!r}", remedy=nearest_name(str(part), shape.members))
                shape = None
            else:
                shape = shape.members[part]
        elif shape is not None and shape.type_name == "list":
            shape = shape.member
        elif shape is not None and shape.type_name == "map":
            if not is_known:
                raise StepError(path, f"no {part!r}", remedy=CORRECT)
            shape = shape.value
        elif not is_known:
            raise StepError(path, f"no {part!r}", remedy=CORRECT)
    if not path:
        raise StepError(path, "no property", remedy="Name one: Steps.NAME.PROPERTY.")
    return value if is_known else Unknown()
