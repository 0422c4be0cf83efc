"""What the step caches make of a change: of SageMaker Pipelines, and of a run on this machine.

Both compare a job's arguments. They differ in what an earlier step's output counts for: the service compares where it
lies, so a step whose source ran again runs again too; here its content is compared, so a step may be served although
its source ran again, where that gave the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

from pipeline.local.job_key import job_members
from pipeline.local.job_spec import JobInput, job_spec
from pipeline.references import Scope, as_text, member_path, referenced_steps, walk_references
from pipeline.service_cache import KEY_MEMBERS, VOLATILE_VARIABLES
from pipeline.step_graph import Node, build_graph

# runs: it is not cached at all. depends: on whether what an earlier step writes, or what lies under a URI, is the same.
Outcome = Literal["hit", "miss", "runs", "depends"]
SHA256 = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Side:
    """A definition, and what is known of an execution of it.

    parameters: their values. outputs: of functions, by step and name. key_members: of jobs that ran here, by step.
    """

    name: str
    definition: Mapping[str, Any]
    parameters: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    key_members: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """What becomes of one step of the new side. changed: each argument that differs, with both values."""

    step: str
    service: Outcome
    service_reason: str
    local: Outcome
    local_reason: str
    changed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "step": self.step, "changed": list(self.changed),
            "sagemaker": {"outcome": self.service, "reason": self.service_reason},
            "local": {"outcome": self.local, "reason": self.local_reason},
        }  # fmt: skip


def explain(old: Side, new: Side) -> list[Explanation]:
    """Each job step of the new side, in the order in which they run.

    Raises ConfigError for a definition that does not hang together.
    """
    before, after = build_graph(old.definition), build_graph(new.definition)
    # Outputs that one side alone knows would differ from their names on the other.
    both_known = set(old.outputs) & set(new.outputs)
    explained: dict[str, Explanation] = {}
    for name, node in after.items():
        if node.type not in KEY_MEMBERS:
            continue
        earlier = before.get(name)
        if not node.definition.get("CacheConfig", {}).get("Enabled"):
            explained[name] = Explanation(name, "runs", "it is not cached", "runs", "it is not cached")
        elif earlier is None or earlier.type != node.type:
            explained[name] = Explanation(name, "miss", "it is new", "miss", "it is new")
        else:
            one, other = (
                Symbols(side.parameters, {}, outputs={step: side.outputs[step] for step in both_known})
                for side in (old, new)
            )
            changed = differences(service_key(earlier, one), service_key(node, other))
            service, service_reason = service_outcome(node, changed, explained)
            local, local_reason = local_outcome(earlier, node, (old, new), (one, other), explained)
            shown = tuple(f"{path}: {' -> '.join(told_apart(was, now))}" for path, was, now in changed)
            explained[name] = Explanation(name, service, service_reason, local, local_reason, shown)
    return list(explained.values())


# --- values before anything ran ---------------------------------------------------------------------------------------


@dataclass
class Symbols(Scope):
    """Resolves references as far as they are known; what only an execution knows becomes its reference's text.

    outputs: of functions, by step and name.
    """

    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def _get(self, reference: str) -> Any:
        kind, _, rest = reference.partition(".")
        if kind == "Parameters" and rest in self.parameters:
            return self.parameters[rest]
        step, _, path = rest.partition(".")
        output = re.fullmatch(r"OutputParameters\['([^']+)'\]", path)
        if kind == "Steps" and output and output[1] in self.outputs.get(step, {}):
            return self.outputs[step][output[1]]
        return f"{{{reference}}}"

    def _json_get(self, arguments: Mapping[str, Any]) -> Any:
        return f"{{{as_text(arguments)}}}"


# --- SageMaker --------------------------------------------------------------------------------------------------------


def service_key(node: Node, symbols: Symbols) -> dict[str, Any]:
    """What the service compares of a step, by the JSON path below its arguments."""
    key: dict[str, Any] = {}
    for name in KEY_MEMBERS[node.type]:
        if name in node.arguments:
            key |= dict(_leaves(symbols.resolve(node.arguments[name]), name))
    return key


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, member_path(path, name))
    elif isinstance(value, list) and value:
        flags = [item.partition("=")[0] for item in value if isinstance(item, str) and item.startswith("--")]
        if flags:
            yield f"{path}, order", " ".join(flags)
        for index, item in enumerate(value):
            # A flag by its name: what stands before it changes its place, not the flag.
            flag, equals, given = item.partition("=") if isinstance(item, str) else ("", "", "")
            named = flag.startswith("--") and equals
            yield from _leaves(given if named else item, f"{path} {flag}" if named else member_path(path, index))
    else:
        yield path, value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Path, old and new value of each member that differs; None for one that is not there."""
    paths = [*new, *(path for path in old if path not in new)]
    return [(path, old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)]


def told_apart(was: Any, now: Any) -> tuple[str, str]:
    """Two values as far as a line has room for them, from a little before the place where they begin to differ."""
    texts = ["none" if value is None else as_text(value) for value in (was, now)]
    if max(map(len, texts)) <= SHOWN_CHARACTERS:
        return texts[0], texts[1]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    begin = max(0, same - SHOWN_CHARACTERS // 4)
    cut = [text[begin : begin + SHOWN_CHARACTERS] for text in texts]
    ends = ["…" if begin + SHOWN_CHARACTERS < len(text) else "" for text in texts]
    first, second = (f"{'…' if begin else ''}{part}{end}" for part, end in zip(cut, ends, strict=True))
    return first, second


def service_outcome(
    node: Node, changed: list[tuple[str, Any, Any]], explained: Mapping[str, Explanation]
) -> tuple[Outcome, str]:
    if changed:
        return "miss", f"changed: {', '.join(path for path, _, _ in changed[:3])}" + _more(len(changed) - 3)
    references = walk_references({name: node.arguments.get(name) for name in KEY_MEMBERS[node.type]})
    anew = [reference["Get"] for reference in references
            if str(reference.get("Get", "")).removeprefix("Execution.") in VOLATILE_VARIABLES]  # fmt: skip
    if anew:
        return "miss", f"each execution has another {anew[0]}"
    read = referenced_steps({name: node.arguments.get(name) for name in KEY_MEMBERS[node.type]})
    again = sorted(name for name in read if name in explained and explained[name].service != "hit")
    if again:
        return "miss", f"runs again before it: {', '.join(again)}"
    return "hit", "as long as the data are the same"


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


# --- this machine -----------------------------------------------------------------------------------------------------


def local_outcome(
    before: Node, after: Node, sides: tuple[Side, Side], symbols: tuple[Symbols, Symbols],
    explained: Mapping[str, Explanation],
) -> tuple[Outcome, str]:  # fmt: skip
    """By what both executions were seen to read, where both ran it here; else by the definitions."""
    recorded = [side.key_members.get(after.name) for side in sides]
    if recorded[0] and recorded[1]:
        changed = [path for path, _, _ in differences(recorded[0], recorded[1])]
        return ("miss", f"changed: {', '.join(changed[:3])}{_more(len(changed) - 3)}") if changed else ("hit", "")
    old, new = (local_members(node, known) for node, known in zip((before, after), symbols, strict=True))
    changed = [path for path, _, _ in differences(old, new)]
    moved = [
        path for path in changed if re.fullmatch(r"input [\w.-]+", path) and not SHA256.fullmatch(new.get(path, ""))
    ]
    if certain := [path for path in changed if path not in moved]:
        return "miss", f"changed: {', '.join(certain[:3])}{_more(len(certain) - 3)}"
    sources = referenced_steps(after.arguments.get("ProcessingInputs", after.arguments.get("InputDataConfig", [])))
    again = sorted(name for name in sources if name in explained and explained[name].local != "hit")
    reasons = [f"the output of {name}" for name in again] + [f"what lies under {new.get(path)}" for path in moved]
    if reasons:
        are = "are" if len(reasons) > 1 else "is"
        return "depends", f"served where {' and '.join(reasons)} {are} the same as before"
    return "hit", "as long as the data are the same"


def local_members(node: Node, symbols: Symbols) -> dict[str, str]:
    """The members of the local cache key, inputs by their URIs; one that is named by a digest by the digest alone."""
    spec = job_spec(node.name, node.type, symbols.resolve(node.arguments), f"{{{node.name} job}}")

    def content(entry: JobInput) -> str:
        digest = SHA256.search(entry.uri.rpartition("/")[2])
        return digest[0] if digest else entry.uri

    return job_members(spec, spec, {"image": spec.image}, {}, lambda text, stable: stable, content)
