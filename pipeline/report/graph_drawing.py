"""The steps of a run as a graph drawn from top to bottom: who waits for whom, how each ended and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.execution_record import CACHED, EXECUTING, FAILED, SKIPPED, STOPPED, SUCCEEDED, StepRecord
from pipeline.report.drawing import picture
from pipeline.report.markup import Markup, element, joined
from pipeline.report.wording import time_text
from pipeline.step_graph import Node

NODE_HEIGHT, GAP_Y, GAP_X = 40, 22, 14
# The widest that a letter of a name is, and of the state below it.
LETTER_WIDTH, STATE_WIDTH = 8.2, 6.4
SMALLEST_NODE = 150.0
# Longer names are cut.
MAX_LETTERS = 30
# How each state is called and drawn: its sign, its class.
STATES = {
    SUCCEEDED: ("✓", "good", "succeeded"), CACHED: ("↺", "cached", "from the cache"), FAILED: ("✗", "bad", "failed"),
    STOPPED: ("■", "warn", "stopped"), SKIPPED: ("–", "quiet", "skipped"), EXECUTING: ("…", "plain", "at work"),
}  # fmt: skip
OTHER = ("–", "quiet", "not run")


@dataclass
class _Spot:
    """A step, or where a long edge passes a layer. below: the spots that its edges lead to."""

    name: str
    layer: int
    is_step: bool
    width: float
    x: float = 0.0
    above: list[_Spot] = field(default_factory=list)
    below: list[_Spot] = field(default_factory=list)


def state_words(step: StepRecord) -> tuple[str, str, str]:
    """Sign, class and words of a step's state."""
    return STATES.get(step.state, OTHER)


def graph_picture(graph: Mapping[str, Node], steps: Mapping[str, StepRecord]) -> tuple[Markup, int]:
    """The drawing and its width in pixels. graph: steps that the record knows, each after all that it needs."""
    layers = _laid_out(graph, steps)
    width = _placed(layers)
    height = len(layers) * (NODE_HEIGHT + GAP_Y) - GAP_Y + 4
    spots = [spot for layer in layers for spot in layer]
    edges = [_edge(spot, other) for spot in spots for other in spot.below]
    edges += [_passing(spot) for spot in spots if not spot.is_step]
    nodes = [_node(spot, steps[spot.name]) for spot in spots if spot.is_step]
    told = "; ".join(f"{name} {state_words(steps[name])[2]}" for name in graph)
    return picture(joined(*edges, *nodes), height, "Steps", told, round(width)), round(width)


def direct_needs(graph: Mapping[str, Node]) -> dict[str, set[str]]:
    """What each step waits for, without what one of these waits for itself."""
    before: dict[str, set[str]] = {}
    direct = {}
    for name, node in graph.items():
        needs = {needed for needed in node.needs if needed in before}
        beyond = set().union(*(before[needed] for needed in needs))
        direct[name] = needs - beyond
        before[name] = needs | beyond
    return direct


def _laid_out(graph: Mapping[str, Node], steps: Mapping[str, StepRecord]) -> list[list[_Spot]]:
    """The spots of each layer; a step is one below the lowest that it needs, as an edge of length 1 goes one down."""
    needs = direct_needs(graph)
    spots: dict[str, _Spot] = {}
    layers: list[list[_Spot]] = []

    def add(spot: _Spot) -> _Spot:
        while len(layers) <= spot.layer:
            layers.append([])
        layers[spot.layer].append(spot)
        return spot

    for name in graph:
        layer = 1 + max((spots[needed].layer for needed in needs[name]), default=-1)
        letters = min(len(name), MAX_LETTERS) * LETTER_WIDTH, len(_state_text(steps[name])) * STATE_WIDTH
        width = max(SMALLEST_NODE, 42 + max(letters))
        spots[name] = add(_Spot(name, layer, is_step=True, width=width))
    for name in graph:
        for needed in sorted(needs[name], key=list(graph).index):
            upper = spots[needed]
            for layer in range(upper.layer + 1, spots[name].layer):
                passing = add(_Spot("", layer, is_step=False, width=16.0))
                _connect(upper, passing)
                upper = passing
            _connect(upper, spots[name])
    return layers


def _connect(upper: _Spot, lower: _Spot) -> None:
    upper.below.append(lower)
    lower.above.append(upper)


def _placed(layers: list[list[_Spot]]) -> float:
    """Gives each spot its middle, below the middle of what it comes from; returns the whole width."""
    widths = [sum(spot.width for spot in layer) + GAP_X * (len(layer) - 1) for layer in layers]
    whole = max(widths, default=0.0) + 4
    for layer, width in zip(layers, widths, strict=True):
        # Sorting is stable: those of one parent stay in the definition's order.
        layer.sort(key=lambda spot: sum(one.x for one in spot.above) / len(spot.above) if spot.above else 0.0)
        at = (whole - width) / 2
        for spot in layer:
            spot.x = at + spot.width / 2
            at += spot.width + GAP_X
    return whole


def _top(spot: _Spot) -> float:
    return spot.layer * (NODE_HEIGHT + GAP_Y) + 2.0


def _edge(upper: _Spot, lower: _Spot) -> Markup:
    start, end = _top(upper) + NODE_HEIGHT, _top(lower)
    middle = (start + end) / 2
    path = f"M{upper.x:.1f} {start:.1f}C{upper.x:.1f} {middle:.1f} {lower.x:.1f} {middle:.1f} {lower.x:.1f} {end:.1f}"
    return element("path", class_="edge", d=path)


def _passing(spot: _Spot) -> Markup:
    """Straight down through a layer, so that no step beside it is crossed."""
    return element("path", class_="edge", d=f"M{spot.x:.1f} {_top(spot):.1f}v{NODE_HEIGHT}")


def _state_text(step: StepRecord) -> str:
    """`succeeded, 45 s`."""
    _, kind, words = state_words(step)
    return f"{words}, {time_text(step.seconds)}" if step.seconds and kind not in ("quiet", "cached") else words


def _node(spot: _Spot, step: StepRecord) -> Markup:
    sign, kind, _ = state_words(step)
    left, top = spot.x - spot.width / 2, _top(spot)
    name = spot.name if len(spot.name) <= MAX_LETTERS else f"{spot.name[: MAX_LETTERS - 1]}…"
    return element(
        "g",
        element("rect", class_="node", x=left, y=top, width=spot.width, height=NODE_HEIGHT, rx=6),
        element("rect", class_=f"mark {kind}", x=left, y=top, width=5.0, height=NODE_HEIGHT, rx=2),
        element("text", sign, class_=f"sign {kind}", x=left + 20, y=top + 25, text_anchor="middle"),
        element("text", name, class_="node-name", x=left + 34, y=top + 17),
        element("text", _state_text(step), class_="node-state", x=left + 34, y=top + 32),
        class_=f"step {kind}",
    )
