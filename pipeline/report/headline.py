"""The first screen: how the run ended, and the four figures that a person asks for first."""

from __future__ import annotations

from pipeline.conditions import condition_text
from pipeline.execution_record import CACHED, DONE_STATES, EXECUTING, FAILED, NOT_RUN, RunResult
from pipeline.report.blocks import Figure, Verdict
from pipeline.report.facts import Facts
from pipeline.report.wording import counted, interval_text, time_text
from steps.contract import EXIT_GATE_CLOSED, EXIT_INTERRUPTED, EXIT_TERMINATED

NOT_MEASURED = "not measured"


def verdict_of(facts: Facts) -> Verdict:
    """Registered, or why not."""
    result = facts.result
    closed = [gate for gate in result.gates.values() if not gate.open]
    if version := registered_text(result):
        return Verdict("good", f"Registered: {version}")
    if closed or result.exit_code == EXIT_GATE_CLOSED:
        failed = [condition_text(condition) for gate in closed for condition in gate.conditions if not condition.holds]
        # Where it is not known which conditions hold, the step that ends the execution tells.
        return Verdict("bad", "Not registered: the gate is closed", failed or list(filter(None, [result.failure])))
    failed_steps = [step for step in result.steps.values() if step.state == FAILED]
    if failed_steps:
        return Verdict("bad", f"Failed at {failed_steps[0].name}",
                       [one_line(step.error) for step in failed_steps if step.error])  # fmt: skip
    if result.exit_code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
        return Verdict("warn", "Stopped before its end", ["The same command again goes on from here."])
    if result.exit_code is None:
        at_work = [step.name for step in result.steps.values() if step.state == EXECUTING]
        reasons = [f"At work: {', '.join(at_work)}."] if at_work else []
        return Verdict("plain", "Not ended when this was written", reasons)
    if result.exit_code:
        return Verdict("bad", "Failed", list(filter(None, [one_line(result.failure)])))
    if result.selection:
        left_out = sum(step.state == NOT_RUN for step in result.steps.values())
        return Verdict("plain", "Done, a part of it", [f"{result.selection}: {counted(left_out, 'step')} not run."])
    return Verdict("plain", "Done, no version registered")


def registered_text(result: RunResult) -> str:
    """`version 3, PendingManualApproval`; empty for a run that has registered none."""
    if result.registered is not None:
        before = "" if result.registered_is_new else ", registered before"
        return f"version {result.registered.version}, {result.registered.status}{before}"
    # Of an execution on SageMaker the step alone tells: `version 4 PendingManualApproval`.
    told = [step.metric.split() for step in result.steps.values()
            if step.type == "RegisterModel" and step.state in DONE_STATES and step.metric]  # fmt: skip
    return f"{' '.join(told[0][:2])}{''.join(f', {word}' for word in told[0][2:])}" if told else ""


def figures_of(facts: Facts) -> list[Figure]:
    """Bits per byte, fertility, time, cost."""
    return [bits_figure(facts), fertility_figure(facts), time_figure(facts), cost_figure(facts)]


def bits_figure(facts: Facts) -> Figure:
    if facts.evaluation is None:
        return Figure("Bits per byte", NOT_MEASURED, "Evaluate did not finish", "evaluation.json")
    bits = facts.evaluation.bits_per_byte
    value = f"{bits.base:.4f} → {bits.pretrained:.4f} → {bits.candidate:.4f}"
    note = f"base → pretrained → candidate; {bits.improvement:.4f} better ({interval_text(bits.improvement_ci95)})"
    if bits.improvement < 0:
        note = f"base → pretrained → candidate; {-bits.improvement:.4f} worse ({interval_text(bits.improvement_ci95)})"
    return Figure("Bits per byte", value, note, "evaluation.json bits_per_byte")


def fertility_figure(facts: Facts) -> Figure:
    if facts.fertility is None:
        return Figure("Fertility", NOT_MEASURED, "TrainTokenizer did not finish", "fertility.json")
    values, _, rest = facts.fertility.headline().partition(" (")
    before_after, _, unit = values.replace(" -> ", " → ").rpartition(" a ")
    before_after, _, what = before_after.rpartition(" ")
    return Figure("Fertility", before_after, f"{what} a {unit}, base → {rest.rstrip(')')}", "fertility.json")


def time_figure(facts: Facts) -> Figure:
    """Wall-clock time; what came from the cache took none of it."""
    result = facts.result
    cached = sum(step.state == CACHED for step in result.steps.values())
    note = f"{counted(len(result.steps), 'step')}, {cached} from the cache"
    if cached:
        made_in = sum(max((seal.seconds for seal in seals), default=0.0) for seals in facts.manifests.values())
        note += f"; making all of it took {time_text(made_in)}" if made_in else ""
    return Figure("Time", time_text(result.seconds), note, "execution.json seconds")


def cost_figure(facts: Facts) -> Figure:
    return Figure("Cost", facts.cost, facts.cost_note)


def one_line(text: str) -> str:
    return " ".join(text.removeprefix("error: ").split())
