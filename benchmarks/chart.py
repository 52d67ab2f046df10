"""The pieces of the line charts in the documentation: scales, ticks and marks."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["as_seconds", "draw_mark", "log_scale", "ticks_around"]


def log_scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return where a value lies on a logarithmic axis."""
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)


def ticks_around(low: float, high: float) -> list[float]:
    """Return a few round values, the first and last of which enclose an axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps]
        first = max(tick for tick in ticks if tick <= low)
        last = min(tick for tick in ticks if tick >= high)
        ticks = [tick for tick in ticks if first <= tick <= last]
        if len(ticks) <= 6:
            break
    return ticks


def draw_mark(who: str, mark: str, x: float, y: float) -> str:
    if mark == "circle":
        return f'<circle class="mark {who}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    if mark == "square":
        return f'<rect class="mark {who}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    return f'<path class="mark {who}" d="M{x:.1f} {y - 4.5:.1f}l4.2 7.5h-8.4z"/>'


def as_seconds(value: float) -> str:
    return f"{value:g} s"
