"""The section on the tokenizer: fertility against vocabulary size, the candidates, a paragraph cut by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.report.blocks import Block, Cell, Cut, Pair, Paragraph, Picture, Section, Subheading, Table
from pipeline.report.drawing import BOLD_WIDTH, WIDTH, picture
from pipeline.report.facts import Facts
from pipeline.report.markup import Markup, element, joined
from pipeline.report.scales import Scale, round_ticks, tick_text
from pipeline.report.token_cuts import telling_word
from pipeline.report.wording import counted, share_text, size_text
from steps.schemas.fertility import MEASURE_NAMES, FertilityCandidate, FertilityReport

HEIGHT = 280


def tokenizer_section(facts: Facts) -> Section:
    return Section("Tokenizer", list(_blocks(facts)), "tokenizer")


def _blocks(facts: Facts) -> Iterator[Block]:
    if facts.fertility is None:
        yield Paragraph("Not measured: no fertility.json.")
    else:
        yield from _cuts(facts)
        yield Subheading("Candidates")
        chosen = Paragraph(f"{facts.fertility.chosen} was chosen: {facts.fertility.reason}.")
        yield Pair(fertility_picture(facts.fertility), [chosen, *_training_text(facts.fertility), *_vocabulary(facts)])
        yield candidates_table(facts.fertility)
        if facts.fertility.left_out:
            yield Table(("not there", "why"), [[name, why] for name, why in facts.fertility.left_out.items()])


def _training_text(report: FertilityReport) -> Iterator[Block]:
    if text := report.training:
        yield Paragraph(f"The candidates learnt from {counted(text.documents, 'document')}, {size_text(text.bytes)}: "
                        f"{share_text(text.share)} of the training split.")  # fmt: skip


def _vocabulary(facts: Facts) -> Iterator[Block]:
    """What replacing the vocabulary did to the model."""
    if adapted := facts.adaptation:
        yield Subheading("Vocabulary replaced")
        starts = ", ".join(f"{name} {bits:.4f}" for name, bits in adapted.bits_per_byte_at_step_0.items())
        yield Paragraph(
            f"{adapted.base_vocabulary_rows:,} rows became {adapted.vocabulary_rows:,}: {adapted.rows_copied:,} "
            f"copied, {adapted.rows_composed:,} made by {adapted.initialiser}. The model went from "
            f"{adapted.parameters_before:,} to {adapted.parameters_after:,} parameters. Bits per byte at step 0: "
            f"{starts}."
        )


def _cuts(facts: Facts) -> Iterator[Block]:
    if facts.cuts is None:
        yield Paragraph("No text of the run is at hand that both tokenizers could cut.")
        return
    chosen = facts.fertility.chosen if facts.fertility else "new"
    if found := telling_word(facts.cuts):
        word, base, new = found
        yield Subheading(f"“{word}” as each tokenizer reads it")
        yield Cut("base", base, counted(len(base), "token"), is_large=True)
        yield Cut(chosen, new, counted(len(new), "token"), is_large=True)
    yield Subheading(f"The same text by both, from {facts.cuts.source}")
    words = len(facts.cuts.text.split())
    for name, tokens in (("base", facts.cuts.base), (chosen, facts.cuts.new)):
        note = f"{counted(len(tokens), 'token')}, {len(tokens) / words:.2f} a word in this text"
        yield Cut(name, tokens, note)
    if any(token.has_part_of_letter for token in (*facts.cuts.base, *facts.cuts.new)):
        yield Paragraph("Two small digits, such as C9, are one byte of a letter that several tokens share.")


def candidates_table(report: FertilityReport) -> Table:
    """Every candidate with all that was measured, the leading measure first."""
    rows = [_row(report, candidate) for candidate in report.candidates]
    extra = [name for name in ("extra", "source") if any(name in one.texts for one in report.candidates)]
    leads = MEASURE_NAMES[report.leads]
    other = MEASURE_NAMES["bytes_per_token" if report.leads == "tokens_per_word" else "tokens_per_word"]
    headings = ("candidate", "vocabulary", leads, "95%", other, "one-token words", "Rényi efficiency", "share of model",
                "words in context", "decoding errors", *(f"{name}: {leads}" for name in extra))  # fmt: skip
    chosen = next((number for number, one in enumerate(report.candidates) if one.name == report.chosen), None)
    return Table(headings, rows, right=frozenset(range(1, len(headings))), chosen=chosen)


def _row(report: FertilityReport, candidate: FertilityCandidate) -> list[Cell | str]:
    text = candidate.texts["heldout"]
    is_words = report.leads == "tokens_per_word"
    interval = text.ci95 if is_words else text.bytes_per_token_ci95
    measures = (text.tokens_per_word, text.bytes_per_token)
    lead, other = measures if is_words else reversed(measures)
    share, words = candidate.vocabulary_parameters_share, candidate.context_words
    errors = sum(measured.round_trip_errors for measured in candidate.texts.values())
    texts = {str(name): measured for name, measured in candidate.texts.items()}
    extra = [name for name in ("extra", "source") if any(name in one.texts for one in report.candidates)]
    return [
        candidate.name,
        f"{candidate.vocab_size:,}",
        f"{lead:.3f}",
        f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "",
        f"{other:.3f}",
        share_text(text.one_token_words),
        f"{text.renyi_efficiency:.3f}" if text.renyi_efficiency is not None else "",
        share_text(share) if share is not None else "",
        f"{words:,.0f}" if words is not None else "",
        Cell(f"{errors:,}", "bad") if errors else "0",
        *(f"{getattr(texts[name], report.leads):.3f}" if name in texts else "" for name in extra),
    ]


def fertility_picture(report: FertilityReport) -> Picture:
    """A dot a candidate over its vocabulary size, with its interval; each series of one kind a line."""
    unit = f"{MEASURE_NAMES[report.leads]}, held-out text"
    points = [_Point.of(report, candidate) for candidate in report.candidates]
    tells = "; ".join(f"{point.name} ({point.size:,}): {point.value:.3f}" for point in points)
    families = [family for family in dict.fromkeys(point.family for point in points) if family != points[0].family]
    legend = [(_number_of(points, family), family) for family in families]
    return Picture("Fertility against vocabulary size", unit, _drawn(report, points), tells, legend=legend)


def _number_of(points: Sequence[_Point], family: str) -> int:
    """The number of its colour."""
    return list(dict.fromkeys(point.family for point in points)).index(family) % 4 + 1


class _Point:
    """A candidate in the chart. family: its name without its size, so that sizes of one kind are joined."""

    def __init__(self, name: str, size: int, value: float, interval: Sequence[float] | None) -> None:
        self.name, self.size, self.value, self.interval = name, size, value, interval
        self.family = name.rstrip("-0123456789")

    @classmethod
    def of(cls, report: FertilityReport, candidate: FertilityCandidate) -> _Point:
        text = candidate.texts["heldout"]
        interval = text.ci95 if report.leads == "tokens_per_word" else text.bytes_per_token_ci95
        return cls(candidate.name, candidate.vocab_size, getattr(text, report.leads), interval)


def _drawn(report: FertilityReport, points: Sequence[_Point]) -> Markup:
    highest = max(max(point.value, *(point.interval or (0.0,))) for point in points)
    ticks = round_ticks(0.0, highest)
    sizes = [point.size for point in points]
    x_ticks = round_ticks(0.0, max(sizes), 3)
    x = Scale(0.0, max(sizes) * 1.02, 34.0, WIDTH - 14.0)
    y = Scale(0.0, ticks[-1], HEIGHT - 36.0, 12.0)
    drawn: list[Markup] = []
    for tick in ticks:
        drawn += [element("line", class_="grid zero" if not tick else "grid", x1=x.start, x2=x.end, y1=y.at(tick),
                          y2=y.at(tick)),
                  element("text", tick_text(tick, ticks[1]), class_="tick", x=x.start - 5, y=y.at(tick) + 4,
                          text_anchor="end")]  # fmt: skip
    for tick in x_ticks:
        if tick <= x.high:
            drawn.append(element("text", tick_text(tick, x_ticks[1]), class_="tick", x=x.at(tick), y=y.start + 16,
                                 text_anchor="middle"))  # fmt: skip
    drawn.append(element("text", "tokens in the vocabulary", class_="axis", x=x.end, y=HEIGHT - 4, text_anchor="end"))
    for family in dict.fromkeys(point.family for point in points):
        drawn += _family([point for point in points if point.family == family], _number_of(points, family), x, y)
    drawn += _names(report, points, x, y)
    tells = "; ".join(f"{point.name} {point.value:.3f}" for point in points)
    return picture(joined(*drawn), HEIGHT, "Fertility against vocabulary size", tells)


def _family(points: Sequence[_Point], number: int, x: Scale, y: Scale) -> list[Markup]:
    ordered = sorted(points, key=lambda point: point.size)
    places = [(x.at(point.size), y.at(point.value)) for point in ordered]
    drawn = []
    if len(places) > 1:
        path = "M" + "L".join(f"{one:.1f} {other:.1f}" for one, other in places)
        drawn.append(element("path", class_=f"line series-{number}", d=path))
    for (at, _), point in zip(places, ordered, strict=True):
        if point.interval:
            low, high = (y.at(value) for value in point.interval)
            drawn.append(element("path", class_=f"interval series-{number}", d=f"M{at:.1f} {low:.1f}V{high:.1f}"))
    drawn += [element("circle", class_=f"dot series-{number}", cx=at, cy=height, r=4) for at, height in places]
    return drawn


def _names(report: FertilityReport, points: Sequence[_Point], x: Scale, y: Scale) -> list[Markup]:
    """The base and the chosen one, written beside their dots: the others are in the table below."""
    drawn = []
    for point in points:
        if point.name not in (report.candidates[0].name, report.chosen):
            continue
        text = f"{point.name} {point.value:.2f}"
        room = len(text) * BOLD_WIDTH + 8
        is_right = x.at(point.size) + room > WIDTH
        at = x.at(point.size) + (4 if is_right else 8)
        drawn.append(element("text", text, class_="value strong", x=at, y=y.at(point.value) + (-10 if is_right else 4),
                             text_anchor="end" if is_right else "start"))  # fmt: skip
    return drawn
