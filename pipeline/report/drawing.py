"""Charts as inline SVG: lines over an axis, bars from zero. Colours are the page's own, by class (style.css).

Sizes are pixels of a picture as wide as a telephone, 360, so that its letters can be read there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.markup import Markup, element, joined
from pipeline.report.scales import Point, Scale, round_ticks, thinned, tick_text

WIDTH = 360
LINE_HEIGHT = 13
DENSE_POINTS = 200
# The widest that a letter of 11 pixels is in the fonts of the page, and a bold one.
LETTER_WIDTH, BOLD_WIDTH = 6.4, 7.5


@dataclass(frozen=True)
class Series:
    """A line. number: 1 to 4, its colour and its dashes. points: (x, y), x rising. is_dotted: its points are marked."""

    name: str
    points: Sequence[Point]
    number: int = 1
    is_dotted: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis with its name above, such as a phase of training."""

    start: float
    end: float
    name: str


@dataclass(frozen=True)
class LineChart:
    """y_format: how the last value of a line is written. tells: the picture in words, for those who do not see it."""

    title: str
    unit: str
    series: Sequence[Series]
    tells: str
    x_name: str = "step"
    bands: Sequence[Band] = ()
    y_format: str = ",.3f"
    from_zero: bool = False
    height: int = 216

    def svg(self) -> Markup:
        """The picture; it needs at least one point."""
        lines = [Series(one.name, thinned(one.points), one.number, one.is_dotted) for one in self.series if one.points]
        labels = [f"{one.points[-1][1]:{self.y_format}}" for one in lines]
        x_values = [x for one in lines for x, _ in one.points] + [band.end for band in self.bands]
        y_values = [y for one in lines for _, y in one.points] + ([0.0] if self.from_zero else [])
        y_ticks = round_ticks(min(y_values), max(y_values))
        x_ticks = round_ticks(min(0.0, *x_values), max(x_values))
        step = y_ticks[1] - y_ticks[0]
        left = 10 + max(len(tick_text(tick, step)) for tick in y_ticks) * LETTER_WIDTH
        right = WIDTH - 8 - max(map(len, labels)) * BOLD_WIDTH
        # The end of the data, not of a round tick beyond it.
        x = Scale(min(0.0, *x_values), max(x_values), left, right)
        y = Scale(y_ticks[0], y_ticks[-1], self.height - 34, 26)
        body = joined(
            *(self._band(band, x, y, number) for number, band in enumerate(self.bands)),
            *(self._y_tick(tick, tick_text(tick, step), x, y) for tick in y_ticks),
            *(self._x_tick(tick, x_ticks, x, y) for tick in x_ticks if tick <= x.high),
            element("text", self.x_name, class_="axis", x=right, y=self.height - 4, text_anchor="end"),
            *(_line(one, x, y) for one in lines),
            *_end_labels(lines, labels, x, y),
        )
        return picture(body, self.height, self.title, self.tells)

    def _band(self, band: Band, x: Scale, y: Scale, number: int) -> Markup:
        start, end = x.at(band.start), x.at(band.end)
        name = band.name if len(band.name) * LETTER_WIDTH < end - start - 6 else band.name.split(":")[0]
        fits = len(name) * LETTER_WIDTH < end - start - 2
        return joined(
            element("rect", class_=f"band band-{number % 2}", x=start, y=y.end - 18, width=max(0.0, end - start),
                    height=y.start - y.end + 18),
            element("text", name, class_="band-name", x=start + 5, y=y.end - 6) if fits else None,
        )  # fmt: skip

    def _y_tick(self, tick: float, text: str, x: Scale, y: Scale) -> Markup:
        at = y.at(tick)
        kind = "grid zero" if tick == 0 else "grid"
        return joined(
            element("line", class_=kind, x1=x.start, x2=x.end, y1=at, y2=at),
            element("text", text, class_="tick", x=x.start - 5, y=at + 4, text_anchor="end"),
        )

    def _x_tick(self, tick: float, ticks: Sequence[float], x: Scale, y: Scale) -> Markup:
        at = x.at(tick)
        text = tick_text(tick, ticks[1] - ticks[0])
        return joined(
            element("line", class_="stroke", x1=at, x2=at, y1=y.start, y2=y.start + 4),
            element("text", text, class_="tick", x=at, y=y.start + 16, text_anchor="middle"),
        )


def _line(series: Series, x: Scale, y: Scale) -> Markup:
    places = [(x.at(one), y.at(other)) for one, other in series.points]
    path = "M" + "L".join(f"{one:.1f} {other:.1f}" for one, other in places)
    dots = places if series.is_dotted and len(places) <= 60 else places[-1:]
    # A line of many points would grow into a band.
    kind = "line dense" if len(places) > DENSE_POINTS else "line"
    return joined(
        element("path", class_=f"{kind} series-{series.number}", d=path),
        *(element("circle", class_=f"dot series-{series.number}", cx=one, cy=other, r=2.5) for one, other in dots),
    )


def _end_labels(lines: Sequence[Series], labels: Sequence[str], x: Scale, y: Scale) -> list[Markup]:
    """The last value beside the end of each line, moved apart where two would cover each other."""
    wanted = sorted((y.at(one.points[-1][1]), number) for number, one in enumerate(lines))
    placed: dict[int, float] = {}
    lowest = -100.0
    for at, number in wanted:
        placed[number] = lowest = max(at, lowest + LINE_HEIGHT)
    beyond = max(0.0, lowest - y.start)
    return [
        element("text", labels[number], class_=f"value series-{one.number}", x=x.at(one.points[-1][0]) + 6,
                y=placed[number] - beyond + 4)
        for number, one in enumerate(lines)
    ]  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """value: its length. text: as it is written. interval: (low, high) of the value, drawn over its end."""

    name: str
    value: float
    text: str
    number: int = 1
    interval: tuple[float, float] | None = None


def bars(title: str, rows: Sequence[Bar], tells: str, limit: float | None = None, limit_name: str = "") -> Markup:
    """Horizontal bars from zero, each under its name. limit: a line across them, named below."""
    longest = max([row.value for row in rows] + [row.interval[1] for row in rows if row.interval] + [limit or 0.0])
    value_room = max(len(row.text) for row in rows) * BOLD_WIDTH + 8
    x = Scale(0.0, longest or 1.0, 1.0, WIDTH - value_room)
    height = len(rows) * 36 + (20 if limit is not None else 4)
    drawn = []
    for number, row in enumerate(rows):
        top = number * 36 + 18
        end = x.at(row.value)
        drawn += [
            element("text", row.name, class_="bar-name", x=1, y=top - 5),
            element("rect", class_=f"bar series-{row.number}", x=x.start, y=top, height=12,
                    width=max(1.0, end - x.start)),
            element("text", row.text, class_="value", y=top + 10,
                    x=x.at(max(row.value, *(row.interval or (0.0, 0.0)))) + 6),
        ]  # fmt: skip
        if row.interval:
            low, high = (x.at(value) for value in row.interval)
            drawn.append(element("path", class_="interval", d=f"M{low:.1f} {top + 6}H{high:.1f}M{low:.1f} {top + 2}v8"
                                                              f"M{high:.1f} {top + 2}v8"))  # fmt: skip
    if limit is not None:
        at = x.at(limit)
        anchor = "end" if at > WIDTH / 2 else "start"
        drawn += [
            element("line", class_="limit", x1=at, x2=at, y1=6, y2=height - 16),
            element("text", limit_name, class_="axis", x=at, y=height - 4, text_anchor=anchor),
        ]
    return picture(joined(*drawn), height, title, tells)


def picture(body: Markup, height: int, title: str, tells: str, width: int = WIDTH) -> Markup:
    """The SVG around a drawing; what it tells is read aloud in its place."""
    about = element("title", title), element("desc", tells)
    return element("svg", *about, body, viewBox=f"0 0 {width} {height}", role="img", aria_label=f"{title}. {tells}",
                   style=f"--width:{width}px")  # fmt: skip
