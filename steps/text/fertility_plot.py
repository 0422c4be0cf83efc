"""fertility.json drawn: what each candidate costs in tokens against the size of its vocabulary."""

from __future__ import annotations

import io
from pathlib import Path

from steps.contract import write_atomically
from steps.schemas.fertility import MEASURE_NAMES, FertilityCandidate, FertilityReport

COLOURS = {"bbpe": "#0072b2", "unigram": "#009e73", "extended": "#d55e00", "replaced": "#cc79a7", "base": "#000000"}
FAR = 2.0
MARKERS = {"bbpe": "o", "unigram": "s", "extended": "^", "replaced": "D", "base": "X"}


def draw_fertility(report: FertilityReport, path: Path) -> None:
    """An SVG of the held-out text: the leading measure with its 95% interval by vocabulary size, a line a series."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    series: dict[str, list[FertilityCandidate]] = {}
    for candidate in report.candidates:
        # bbpe-apostrophe-8192 belongs to bbpe-apostrophe.
        series.setdefault(candidate.name.rstrip("0123456789").rstrip("-"), []).append(candidate)
    # Text stays text, and neither dates nor random names go into the file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "langadapt", "font.size": 10}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        shown = [candidate for name in series if name != "base" for candidate in series[name]]
        values = [getattr(candidate.texts["heldout"], report.leads) for candidate in shown]
        for name, candidates in series.items():
            if name == "base" and (far := _far(candidates[0], report, values)):
                # Drawn, it would press all the others into a line.
                axes.plot([], [], " ", label=far)
                continue
            _draw_series(axes, name, sorted(candidates, key=lambda one: one.vocab_size), report)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens:,.0f}"))
        axes.set_xlabel("tokens in the vocabulary")
        axes.set_ylabel(f"{MEASURE_NAMES[report.leads]}, held-out text (95% interval)")
        axes.set_title(f"{report.headline()}; the chosen one is circled")
        axes.grid(alpha=0.3)
        axes.legend()
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    write_atomically(path, drawn.getvalue())


def _far(base: FertilityCandidate, report: FertilityReport, values: list[float]) -> str:
    """The base in words, where it lies more than FAR times beyond what the others span; else empty."""
    value = getattr(base.texts["heldout"], report.leads)
    beyond = max(value - max(values), min(values) - value)
    is_far = beyond > FAR * max(max(values) - min(values), 0.05 * max(values))
    return f"base: {value:.2f} at {base.vocab_size:,} tokens" if is_far else ""


def _draw_series(axes, name: str, candidates: list[FertilityCandidate], report: FertilityReport) -> None:
    kind = candidates[0].kind
    sizes = [candidate.vocab_size for candidate in candidates]
    values, below, above = [], [], []
    for candidate in candidates:
        text = candidate.texts["heldout"]
        value = getattr(text, report.leads)
        low, high = (text.ci95 if report.leads == "tokens_per_word" else text.bytes_per_token_ci95) or (value, value)
        values.append(value)
        below.append(max(0.0, value - low))
        above.append(max(0.0, high - value))
    is_variant = name not in COLOURS
    axes.errorbar(
        sizes, values, yerr=[below, above], label=name, color=COLOURS[kind], marker=MARKERS[kind], capsize=3,
        linestyle="--" if is_variant else "-", markerfacecolor="white" if is_variant else COLOURS[kind],
    )  # fmt: skip
    for candidate, value in zip(candidates, values, strict=True):
        if candidate.name == report.chosen:
            axes.plot([candidate.vocab_size], [value], "o", ms=16, mfc="none", mec="#333333", mew=1.5)
