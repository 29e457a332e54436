"""A small line chart with logarithmic axes as SVG, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 170, 84, 56
_LABEL_GAP = 18
_STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .quiet { fill: #59636e }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  .c0 { stroke: #cf222e } .t0, .d0 { fill: #cf222e }
  .c1 { stroke: #9a6700 } .t1, .d1 { fill: #9a6700 }
  .c2 { stroke: #8250df } .t2, .d2 { fill: #8250df }
  .c3 { stroke: #0969da } .t3, .d3 { fill: #0969da; font-weight: 600 }
  .c4 { stroke: #1a7f37 } .t4, .d4 { fill: #1a7f37; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc } .quiet { fill: #9198a1 } .grid { stroke: #3d444d }
    .c0 { stroke: #ff7b72 } .t0, .d0 { fill: #ff7b72 }
    .c1 { stroke: #d29922 } .t1, .d1 { fill: #d29922 }
    .c2 { stroke: #bc8cff } .t2, .d2 { fill: #bc8cff }
    .c3 { stroke: #58a6ff } .t3, .d3 { fill: #58a6ff }
    .c4 { stroke: #3fb950 } .t4, .d4 { fill: #3fb950 }
  }
"""


@dataclass(frozen=True)
class Line:
    name: str
    color: int
    """Which of the five colours; a name has the same one in every chart."""
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class _Scale:
    """Maps values of several orders of magnitude onto a stretch of pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return self.start + part * (self.end - self.start)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)]


def line_chart(title: str, x_title: str, y_title: str, lines: Sequence[Line]) -> str:
    places = [point for line in lines for point in line.points]
    xs = sorted({x for x, _ in places})
    # A single tree stands in the middle.
    across = _Scale(xs[0], xs[-1], _LEFT + 24, _WIDTH - _RIGHT - 16) if len(xs) > 1 else _around(xs[0])
    low, high = (round_to(math.log10(pick(y for _, y in places))) for round_to, pick in _BOUNDS)
    up = _Scale(10.0**low, 10.0 ** max(high, low + 1), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8"/>',
        _text(20, 32, title, "title"),
        _text(20, 52, y_title, "quiet"),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, x_title, "quiet", "middle"),
        *(_rung(y, up(y)) for y in up.decades()),
        *(_text(across(x), _HEIGHT - _BOTTOM + 22, f"{x:,.0f}", "quiet", "middle") for x in xs),
        *(_drawn(line, across, up) for line in lines),
        *_labels(lines, up),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


_BOUNDS = ((math.floor, min), (math.ceil, max))


def _around(x: float) -> _Scale:
    return _Scale(x / 10, x * 10, _LEFT, _WIDTH - _RIGHT)


def _text(x: float, y: float, text: str, look: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{look}" text-anchor="{anchor}">{escape(text)}</text>'


def _rung(value: float, y: float) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(_LEFT - 10, y + 4, f"{value:,.0f}" if value >= 1 else f"{value:g}", "quiet", "end")


def _drawn(line: Line, across: _Scale, up: _Scale) -> str:
    places = [(across(x), up(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle class="d{line.color}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places)
    return f'<polyline class="line c{line.color}" points="{path}"/>{dots}'


def _labels(lines: Sequence[Line], up: _Scale) -> list[str]:
    """The names beside the ends of the lines, pushed apart where they would lie on each other."""
    wanted = sorted(((up(line.points[-1][1]), line) for line in lines), key=lambda pair: pair[0])
    places: list[float] = []
    for y, _ in wanted:
        places.append(max(y, places[-1] + _LABEL_GAP) if places else y)
    excess = max(0.0, places[-1] - (_HEIGHT - _BOTTOM)) if places else 0.0
    x = _WIDTH - _RIGHT + 8
    return [
        _text(x, place - excess + 4, line.name, f"t{line.color}")
        for place, (_, line) in zip(places, wanted, strict=True)
    ]
