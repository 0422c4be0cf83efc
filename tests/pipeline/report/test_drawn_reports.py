"""What charts are made of: ticks, thinned series, the graph's layers; and a comparison of two runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_run import DIGEST, MadeRun, definition

from pipeline.__main__ import command_code
from pipeline.execution_record import SUCCEEDED, StepRecord
from pipeline.remote.execution_view import graph_of
from pipeline.report.comparison import comparison_of
from pipeline.report.drawing import Band, Bar, LineChart, Series, bars
from pipeline.report.facts import Token, TokenCuts
from pipeline.report.graph_drawing import direct_needs, graph_picture
from pipeline.report.markdown_text import markdown
from pipeline.report.page import page
from pipeline.report.reading import read_run
from pipeline.report.scales import round_ticks, thinned, tick_text
from pipeline.report.token_cuts import beginning, telling_word


@pytest.mark.parametrize(
    ("low", "high", "ticks", "texts"),
    [
        (0, 10, [0, 5, 10], ["0", "5", "10"]),
        (5.088, 8.62, [5, 6, 7, 8, 9], ["5", "6", "7", "8", "9"]),
        (0, 0.003, [0, 0.001, 0.002, 0.003], ["0.000", "0.001", "0.002", "0.003"]),
        (0, 20_000, [0, 5000, 10_000, 15_000, 20_000], ["0", "5k", "10k", "15k", "20k"]),
        (2.5, 2.5, [1, 2, 3, 4], ["1", "2", "3", "4"]),
        (0, 3e-5, [0, 1e-5, 2e-5, 3e-5], ["0", "1e-5", "2e-5", "3e-5"]),
    ],
)
def test_ticks_are_round_and_hold_the_data(low: float, high: float, ticks: list[float], texts: list[str]) -> None:
    found = round_ticks(low, high)
    assert found == pytest.approx(ticks)
    assert [tick_text(tick, found[1] - found[0]) for tick in found] == texts


def test_a_thinned_series_keeps_ends_order_and_extremes() -> None:
    points = [(float(step), float((step * 7919) % 1000)) for step in range(20_001)]
    points[7_777] = (7_777.0, 5e6)
    points[13_001] = (13_001.0, -5e6)
    kept = thinned(points)
    assert len(kept) <= 500
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert points[7_777] in kept
    assert points[13_001] in kept
    assert kept == sorted(kept)
    assert thinned(points[:500]) == points[:500]


def test_a_line_lies_where_its_values_are() -> None:
    svg = LineChart("Loss", "nats", [Series("", [(0.0, 0.0), (50.0, 1.0), (100.0, 2.0)])], "told",
                    bands=[Band(0.0, 100.0, "phase 1: embeddings")]).svg()  # fmt: skip
    places = [tuple(map(float, pair.split())) for pair in re.search(r'd="M([^"]+)"', svg)[1].split("L")]
    assert places[1] == pytest.approx(((places[0][0] + places[2][0]) / 2, (places[0][1] + places[2][1]) / 2), abs=0.06)
    assert places[0][1] > places[2][1]
    assert ">2.000</text>" in svg
    assert "phase 1: embeddings" in svg


def test_bars_are_as_long_as_their_values() -> None:
    svg = bars("Memory", [Bar("a", 4.0, "4 GiB"), Bar("b", 1.0, "1 GiB", interval=(0.5, 2.0))], "told")
    widths = [float(width) for width in re.findall(r'class="bar series-1"[^>]* width="([0-9.]+)"', svg)]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)


def test_the_graph_draws_each_step_once_and_direct_edges_alone() -> None:
    graph = graph_of(definition())
    assert direct_needs(graph)["TokenizeCorpus"] == {"TrainTokenizer"}
    steps = {name: StepRecord(name, node.type, SUCCEEDED, seconds=1.0) for name, node in graph.items()}
    svg, width = graph_picture(graph, steps)
    assert svg.count('class="node"') == 11
    assert svg.count('class="edge"') == 11
    assert width < 358, "a telephone shows the graph whole"


def test_the_word_that_is_spared_most() -> None:
    text = "Bu kitablardan biri"
    base = [Token(part, len(part)) for part in ("Bu", " k", "it", "ab", "l", "ar", "dan", " b", "iri")]
    new = [Token(part, len(part)) for part in ("Bu", " kitab", "lardan", " biri")]
    found = telling_word(TokenCuts(text, "validation", base, new))
    assert found is not None
    assert found[0] == "kitablardan"
    assert [[token.text for token in tokens] for tokens in found[1:]] == [
        ["k", "it", "ab", "l", "ar", "dan"], ["kitab", "lardan"]
    ]  # fmt: skip
    assert telling_word(TokenCuts(text, "validation", base[1:], new)) is None


def test_a_text_begins_with_whole_sentences() -> None:
    words = [f"söz{number}" for number in range(60)]
    assert beginning(" ".join(words)) == " ".join(words[:45])
    words[29] = "son."
    assert beginning("\n".join(words)) == " ".join(words[:30])


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    first, second = MadeRun(tmp_path / "a", candidate=1.5), MadeRun(tmp_path / "b", candidate=1.25, training_steps=60)
    second.settings = {"ContinuedPretraining": {"seed": 8, "learning_rate": 0.001}}
    second.definition["Steps"][5]["Arguments"] = {"EnableManagedSpotTraining": True, "HyperParameters": {"seed": "8"}}
    second.result.parameters = {"MaxBitsPerByte": 1.0}
    second.set_gate(1.25, 1.0)
    second.result.exit_code = 2
    second.result.steps["RegisterModel"].state = "Skipped"
    second.result.steps["ResolveInputs"].values["corpus_digest"] = "f" * 64
    return first.write(), second.write()


def test_a_comparison_says_what_differed_and_what_came_of_it(two_runs: tuple[Path, Path]) -> None:
    report = comparison_of(*map(read_run, two_runs))
    text = markdown(report)
    for told in (
        "A: Registered: version 3", "B: Not registered: the gate is closed",
        "| ContinuedPretraining.seed | `7` | `8` |",
        "| MaxBitsPerByte | `2` | `1` |", f"| corpus | `{DIGEST[:12]}` | `ffffffffffff` |",
        "| bits per byte, candidate | 1.5000 | 1.2500 | -0.2500 |", "The same in both: code, versions.",
        "| ContinuedPretraining.EnableManagedSpotTraining | `–` | `true` |",
        "✗ 1.2500 \\<= 1.0000", "| Bits per byte, candidate | 1.5000 → 1.2500 | A → B, -0.2500 |", "A: candidate",
    ):  # fmt: skip
        assert told in text.replace("\\_", "_"), told
    assert "HyperParameters" not in text
    assert "learning_rate" not in text.split("## Figures")[0]
    whole = page(report)
    # Six curves and the fine-tuning, each with both runs.
    assert whole.count("<svg") == 7
    assert len(re.findall('class="line series-2"', whole)) == 7


def test_the_command_compares(two_runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_code(["report", *map(str, two_runs)], as_json=False) == 0
    assert (tmp_path / "comparison.html").stat().st_size > 20_000
