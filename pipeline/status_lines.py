"""What `langadapt status` says below the rows of an execution, be it of this machine or of SageMaker."""

from __future__ import annotations

import pydantic

from pipeline.execution_record import FAILED, NOT_RUN, RunResult
from pipeline.summary import ablation_line, bits_per_byte_line, fertility_line, gate_line, warning_lines

# How an execution has ended, by its exit code.
ENDS = {None: "executing", 0: "succeeded", 1: "failed", 2: "the gate is closed", 130: "interrupted", 143: "stopped"}


def status_lines(result: RunResult, place: str) -> list[str]:
    """Warnings, why steps failed, what was measured, the gate with the conditions that failed marked, how it ended.

    place: where the execution is, such as its ARN or run folder.
    """
    lines = [*warning_lines(result), *failure_lines(result)]
    if result.selection:
        left_out = sum(step.state == NOT_RUN for step in result.steps.values())
        lines.append(f"selected:       {result.selection}; {left_out} of {len(result.steps)} steps not run")
    lines += measured_lines(result)
    if any(gate.conditions for gate in result.gates.values()):
        lines.append(gate_line(result))
    lines += (f"model version:  {step.metric.removeprefix('version ')}" for step in result.steps.values()
              if step.type == "RegisterModel" and step.metric)  # fmt: skip
    return [*lines, f"execution:      {ENDS.get(result.exit_code, 'failed')}; {place}"]


def measured_lines(result: RunResult) -> list[str]:
    """What was measured, as far as it is there. An execution may be of another version of langadapt, or none of its."""
    try:
        return list(filter(None, (fertility_line(result), bits_per_byte_line(result), ablation_line(result))))
    except pydantic.ValidationError:
        return ["figures:        not shown, evaluation.json or fertility.json is of another version"]


def failure_lines(result: RunResult) -> list[str]:
    """`<step>: <reason>` of each step that failed; where none did, why the execution failed."""
    lines = [
        f"{name}: {' '.join(step.error.removeprefix('error: ').split())}"
        for name, step in result.steps.items()
        if step.state == FAILED and step.error
    ]
    return lines or ([result.failure] if result.failure else [])
