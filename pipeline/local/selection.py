"""Selective execution: `--from STEP` runs a step and all that depends on it, `--only STEP` just the steps named.

What the selected steps need comes from the cache and must be there; Lambda and Condition steps among it, which no run
caches, are called as ever. All else stays as it is: NotRun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.step_graph import JOB_TYPES, Node
from steps.contract import ConfigError, nearest_name


@dataclass(frozen=True)
class Selection:
    """Which steps run, which are taken from the cache, and which of those are known before anything runs.

    chosen: run even if cached.  needed: everything that they depend on.  first: needed, and below none of the chosen,
    so that it can be told before any job starts whether the cache has them.
    """

    text: str
    chosen: frozenset[str]
    needed: frozenset[str]
    first: frozenset[str]

    def __str__(self) -> str:
        return self.text

    def takes_part(self, step: str) -> bool:
        return step in self.chosen or step in self.needed

    def must_wait(self, step: str, done: Collection[str]) -> bool:
        """True for a step that may start a job, or depend on one, while what comes from the cache is not all found."""
        return step not in self.first and not self.first <= set(done)


def select(graph: Mapping[str, Node], from_step: str | None, only: Sequence[str]) -> Selection | None:
    """The selection of `--from` and `--only`, None where neither is given.

    Raises ConfigError where both are given, for a step that the graph has not, and where one that registers a model
    would have to come from the cache.
    """
    if from_step is not None and only:
        raise ConfigError(
            "--from", f"{from_step} with --only {only[0]}", limit="one of the two", remedy="Give one of them."
        )
    if from_step is None and not only:
        return None
    named = [("--from", from_step)] if from_step is not None else [("--only", name) for name in only]
    for option, name in named:
        if name not in graph:
            raise ConfigError(option, name, limit="a step of the definition", remedy=nearest_name(str(name), graph))
    chosen = {str(name) for _, name in named}
    if from_step is not None:
        # The graph has each step after all that it needs.
        for name, node in graph.items():
            if node.needs & chosen:
                chosen.add(name)
    needed = ancestors(graph, chosen) - chosen
    for name in sorted(needed):
        if graph[name].type not in (*JOB_TYPES, "Lambda", "Condition"):
            value = f"a step of type {graph[name].type} is needed and never cached"
            raise ConfigError(name, value, remedy=f"Select it too: --only {name}.")
    first = {name for name in needed if not ancestors(graph, {name}) & chosen}
    return Selection(" ".join(f"{option} {name}" for option, name in named), *map(frozenset, (chosen, needed, first)))


def ancestors(graph: Mapping[str, Node], names: Collection[str]) -> set[str]:
    """All that the named steps depend on, directly or not."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        new = graph[waiting.pop()].needs - found
        found |= new
        waiting += new
    return found
