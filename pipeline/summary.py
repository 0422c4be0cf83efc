"""The summary that a run ends with: what was gained, whether the gate opened, what to do next."""

from __future__ import annotations

from pathlib import Path

from pipeline.conditions import condition_text
from pipeline.execution_record import NOT_RUN, RunResult
from pipeline.local.run import DEFAULT_REGISTRY
from steps.schemas.evaluation import Evaluation
from steps.schemas.fertility import MEASURE_NAMES, FertilityReport


def summary_lines(result: RunResult, registry_folder: Path) -> list[str]:
    """The warnings, and then the last lines of a run that reached its gate, five of them and one for an ablation; fewer
    where a step failed before."""
    lines = warning_lines(result)
    if result.selection:
        left_out = sum(step.state == NOT_RUN for step in result.steps.values())
        lines.append(f"selected:       {result.selection}; {left_out} of {len(result.steps)} steps not run")
    if fertility := fertility_line(result):
        lines.append(fertility)
    if bits := bits_per_byte_line(result):
        lines.append(bits)
    if ablated := ablation_line(result):
        lines.append(ablated)
    if result.gates:
        lines.append(gate_line(result))
    if result.registered is not None:
        version = result.registered
        option = "" if registry_folder == DEFAULT_REGISTRY else f" --registry {registry_folder}"
        existing = "" if result.registered_is_new else ", registered before"
        waiting = version.status == "PendingManualApproval"
        approve = f"; approve it: langadapt models approve {version.version}{option}" if waiting else ""
        lines.append(f"model version:  {version.version}, {version.status}{existing}{approve}")
        following = f"langadapt models show {version.version}{option}"
    elif any(not gate.open for gate in result.gates.values()):
        lines.append(f"model version:  none registered, {why_closed(result)}")
        following = "change a limit or the training, then the same command again"
    elif result.selection and not result.exit_code:
        following = "the same command without the selection brings the rest up to date"
    else:
        if result.gates:
            lines.append("model version:  none registered, the run ended before")
        following = "the same command again goes on from here"
    lines.append(f"run folder:     {shown(result.run_folder)}; next: {following}")
    return lines


def warning_lines(result: RunResult) -> list[str]:
    """`2 warnings:` and one line each, those of steps that came from the cache as well."""
    warned = [f"  {name}: {warning}" for name, step in result.steps.items() for warning in step.warnings]
    return [f"{len(warned)} warning{'' if len(warned) == 1 else 's'}:", *warned] if warned else []


def shown(path: Path) -> str:
    """A path as a user would type it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def tokenizer_lines(result: RunResult) -> list[str]:
    """The tokenizer candidates side by side and why one was chosen; empty where the step did not finish."""
    report = fertility_of(result)
    if report is None:
        return []
    why = [f"read {MEASURE_NAMES[report.leads]} first: {report.leads_why}"] if report.leads_why else []
    return [*why, *report.table(), f"{report.chosen}: {report.reason}", ""]


def fertility_line(result: RunResult) -> str:
    """Tokens a word, base and chosen, or what leads in its place; empty where the step did not finish."""
    report = fertility_of(result)
    return "" if report is None else f"fertility:      {report.headline()}"


def fertility_of(result: RunResult) -> FertilityReport | None:
    """What TrainTokenizer measured; None where it did not finish."""
    for folder in output_folders(result):
        if (folder / "fertility.json").is_file():
            return FertilityReport.model_validate_json((folder / "fertility.json").read_bytes())
    return None


def bits_per_byte_line(result: RunResult) -> str:
    """Bits per byte of base, pretrained model and candidate; empty where Evaluate did not finish."""
    evaluation = evaluation_of(result)
    if evaluation is None:
        return ""
    measured = evaluation.bits_per_byte
    return (
        f"bits per byte:  base {measured.base:.4f} -> pretrained {measured.pretrained:.4f} "
        f"-> candidate {measured.candidate:.4f}"
    )


def ablation_line(result: RunResult) -> str:
    """What the new tokenizer alone brought, after the same pretraining; empty without an ablation."""
    evaluation = evaluation_of(result)
    if evaluation is None or evaluation.ablation is None:
        return ""
    measured = evaluation.ablation.equal_bytes
    low, high = measured.improvement_ci95
    return (
        f"tokenizer:      base's own {measured.base_tokenizer:.4f} -> new {measured.new_tokenizer:.4f} bits per byte, "
        f"both pretrained on the same text; {measured.improvement:.4f} (95%: {low:.4f} to {high:.4f}) from it alone"
    )


def why_closed(result: RunResult) -> str:
    """That the gate is closed; and where it measured the approved version itself, trained again, that too."""
    evaluation = evaluation_of(result)
    if evaluation is not None and evaluation.champion.present:
        champion = evaluation.champion
        if champion.improvement == 0 and champion.improvement_ci95 == (0, 0):
            return "the candidate equals the approved version in every document"
    return "the gate is closed"


def evaluation_of(result: RunResult) -> Evaluation | None:
    """What Evaluate measured; None where it did not finish."""
    for folder in output_folders(result):
        if (folder / "evaluation.json").is_file():
            return Evaluation.model_validate_json((folder / "evaluation.json").read_bytes())
    return None


def gate_line(result: RunResult) -> str:
    """Every condition of the gate with its value and limit, those that failed marked."""
    gate = next(iter(result.gates.values()))
    label = "gate open:" if gate.open else "gate closed:"
    return f"{label:<16}{'; '.join(condition_text(condition) for condition in gate.conditions)}"


def output_folders(result: RunResult) -> list[Path]:
    return [folder for outputs in result.outputs.values() for folder in outputs.values()]
