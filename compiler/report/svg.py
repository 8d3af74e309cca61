"""What charts are drawn with: axes, ticks and SVG elements, as text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 84, 16, 12, 42


@dataclass(frozen=True)
class Scale:
    """Maps values to places, from `low` at `start` to `high` at `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """Return round values, about as many as asked for."""
        step = _round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _round_step(step: float) -> float:
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= step * (1 - 1e-9))


def figure(title: str, description: str, height: float, parts: list[str]) -> str:
    """Return a chart that says what it shows to those who do not see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        f"{''.join(parts)}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    places = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {places}/>'


def text(x: float, y: float, words: str, kind: str) -> str:
    """Return a label; its class says how it is aligned."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}"/>'
    )


def area(points: list[tuple[float, float]], kind: str) -> str:
    """Return a filled shape."""
    return f'<polygon class="{kind}" points="{_list(points)}"/>'


def path(points: list[tuple[float, float]], kind: str) -> str:
    """Return a line through points."""
    return f'<polyline class="{kind}" points="{_list(points)}"/>'


def _list(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def axes(x: Scale, y: Scale, x_name: str, y_name: str) -> list[str]:
    """Return the lines and numbers of a chart, with the units in the names."""
    parts = []
    for value in y.ticks(5):
        parts.append(line(x.start, y(value), x.stop, y(value), "grid"))
        parts.append(text(x.start - 8, y(value) + 4, f"{abs(value):g}", "end"))
    below = max(y.start, y.stop)
    for value in x.ticks(8):
        parts.append(line(x(value), below, x(value), below + 5, "axis"))
        parts.append(text(x(value), below + 18, f"{value:g}", "middle"))
    parts.append(line(x.start, below, x.stop, below, "axis"))
    parts.append(text((x.start + x.stop) / 2, below + 36, x_name, "middle"))
    middle = (y.start + y.stop) / 2
    parts.append(
        f'<text class="middle" transform="translate(18 {middle:.1f}) rotate(-90)">'
        f"{escape(y_name)}</text>"
    )
    return parts
