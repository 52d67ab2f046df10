"""Draw the charts of the pages on differential privacy: python benchmarks/budget_charts.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from chart import draw_mark, log_scale
from sfumato.budget import (
    CategoryResponse,
    Count,
    Event,
    Gaussian,
    PoissonSampled,
    PureEvent,
    Repeated,
    Shuffled,
    group,
    spent,
)

FOLDER = Path(__file__).parents[1] / "docs" / "assets"
MARKS = ("circle", "square", "triangle")
STYLE = """
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--grid:#d9dee3;--c0:#0072b2;--c1:#d55e00;--c2:#00805e}
@media (prefers-color-scheme: dark){
svg{--paper:#1e2129;--ink:#e8eaed;--soft:#a9b1ba;--grid:#3b414b;--c0:#56b4e9;--c1:#f0954a;--c2:#3fc99d}}
.paper{fill:var(--paper)} text{font:12px system-ui,sans-serif;fill:var(--ink)} .soft{fill:var(--soft)}
.end{text-anchor:end} .middle{text-anchor:middle} .grid{stroke:var(--grid);fill:none} .line{fill:none;stroke-width:2}
.c0{stroke:var(--c0)} .c1{stroke:var(--c1)} .c2{stroke:var(--c2)}
.mark.c0{fill:var(--c0)} .mark.c1{fill:var(--c1)} .mark.c2{fill:var(--c2)}
"""
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Panel:
    """Lines over the same axes: each a name and its points."""

    x_label: str
    y_label: str
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    log_x: bool = False
    log_y: bool = False
    marks: bool = True


def draw(title: str, panels: Sequence[Panel]) -> str:
    """Draw one or two panels side by side, each with its own legend."""
    width, height = 720, 350
    body = [_panel(panel, 58 + 360 * place, 268 if len(panels) == 2 else 628) for place, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}" rx="6"/>{"".join(body)}</svg>\n'
    )


def _panel(panel: Panel, left: int, wide: int) -> str:
    top, bottom = 92, 302
    across = _scale(panel.log_x, panel.x_ticks, left + 8, left + wide - 8)
    up = _scale(panel.log_y, panel.y_ticks, bottom, top)
    parts = [f'<text class="soft" x="{left - 46}" y="{top - 12}">{escape(panel.y_label)}</text>']
    for tick in panel.y_ticks:
        parts.append(
            f'<path class="grid" d="M{left} {up(tick):.1f}h{wide}"/>'
            f'<text class="soft end" x="{left - 6}" y="{up(tick) + 4:.1f}">{tick:g}</text>'
        )
    for tick in panel.x_ticks:
        parts.append(f'<text class="soft middle" x="{across(tick):.1f}" y="{bottom + 18}">{_written(tick)}</text>')
    parts.append(f'<text class="soft middle" x="{left + wide / 2}" y="{bottom + 38}">{escape(panel.x_label)}</text>')
    for place, (name, points) in enumerate(panel.lines):
        who, mark, y = f"c{place}", MARKS[place], 18 + 19 * place
        parts.append(
            f'<path class="line {who}" d="M{left - 46} {y}h28"/>'
            f"{draw_mark(who, mark, left - 32, y) if panel.marks else ''}"
            f'<text x="{left - 11}" y="{y + 4}">{escape(name)}</text>'
        )
        places = [(across(x), up(min(max(y, panel.y_ticks[0]), panel.y_ticks[-1]))) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        marks = "".join(draw_mark(who, mark, x, y) for x, y in places) if panel.marks else ""
        parts.append(f'<path class="line {who}" d="M{path}"/>{marks}')
    return "".join(parts)


def _written(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _scale(log: bool, ticks: Sequence[float], start: float, end: float) -> Scale:
    if log:
        return log_scale(ticks[0], ticks[-1], start, end)
    return lambda value: start + (end - start) * (value - ticks[0]) / (ticks[-1] - ticks[0])


def what_epsilon_means() -> str:
    """Draw the answers of two neighbouring tables, and what can be believed after one."""

    def answers(count: int) -> list[tuple[float, float]]:
        return [(x, math.tanh(0.5) * math.exp(-abs(x - count))) for x in range(94, 108)]

    def believed(epsilon: float) -> list[tuple[float, float]]:
        shares = [place / 50 for place in range(51)]
        return [(share, share * math.exp(epsilon) / (share * math.exp(epsilon) + 1 - share)) for share in shares]

    return draw(
        "Two neighbouring tables give almost the same answers",
        [
            Panel(
                "answer released, epsilon 1",
                "probability",
                [("100 people are in the table", answers(100)), ("with one more person", answers(101))],
                (94, 98, 102, 107),
                (0, 0.1, 0.2, 0.3, 0.4, 0.5),
            ),
            Panel(
                "believed before",
                "believed after, at most",
                [(f"epsilon {epsilon:g}", believed(epsilon)) for epsilon in (0.1, 1.0, 3.0)],
                (0, 0.25, 0.5, 0.75, 1),
                (0, 0.25, 0.5, 0.75, 1),
                marks=False,
            ),
        ],
    )


def what_adds_up() -> str:
    """Draw what many answers cost together, and what one costs a group."""
    times = (1, 3, 10, 30, 100, 300, 1000)
    answers: Event = PureEvent(0.1)
    sizes = (1, 2, 4, 8, 16)
    noise = Gaussian(30.0)
    return draw(
        "What many answers cost, and what one answer costs a group",
        [
            Panel(
                "answers of epsilon 0.1 each",
                "epsilon",
                [
                    ("added up", [(count, 0.1 * count) for count in times]),
                    (
                        "composed, delta 1e-6",
                        [(count, spent(Repeated(answers, count), 1e-6).epsilon) for count in times],
                    ),
                ],
                (1, 10, 100, 1000),
                (0.1, 1, 10, 100),
                log_x=True,
                log_y=True,
            ),
            Panel(
                "people in the group",
                "epsilon",
                [
                    ("pure epsilon 0.1", [(size, 0.1 * size) for size in sizes]),
                    (
                        "Gaussian noise of scale 30, delta 1e-6",
                        [(size, spent(group(noise, size), 1e-6).epsilon) for size in sizes],
                    ),
                ],
                (1, 4, 8, 12, 16),
                (0, 1, 2, 3),
            ),
        ],
    )


def local_and_central() -> str:
    """Draw the standard error of a share when each person adds noise, and when one curator does."""
    people = [10.0**power for power in range(2, 8)]
    coins = CategoryResponse(epsilon=1.0, domain=(True, False))
    no, yes = coins.probabilities
    local = [(count, math.sqrt(yes * (1 - yes) / count) / (yes - no)) for count in people]
    central = [(count, Count(epsilon=1.0).noise.standard_deviation / count) for count in people]
    return draw(
        "Standard error of a share at epsilon 1",
        [
            Panel(
                "people",
                "standard error",
                [("every person adds noise (local)", local), ("one curator adds noise (central)", central)],
                people,
                [10.0**power for power in range(-7, 1)],
                log_x=True,
                log_y=True,
            )
        ],
    )


def the_notebook() -> str:
    """Draw what each epoch of the notebook costs by the way its batches were drawn."""
    epochs = range(1, 10)

    def sampled(count: int) -> Event:
        return Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 938 * count)

    def shuffled(count: int) -> Event:
        return Repeated(Shuffled(938, Gaussian(1.2)), count)

    def after(made: Callable[[int], Event], accountant: str = "pld") -> list[tuple[float, float]]:
        return [(count, spent(made(count), 1e-5, accountant=accountant).epsilon) for count in epochs]

    return draw(
        "Epsilon of the notebook after each epoch",
        [
            Panel(
                "epochs (sigma 1.2, batches of 64 of 60,000 records, delta 1e-5, add or remove one record)",
                "epsilon",
                [
                    ("shuffled batches, as run", after(shuffled)),
                    ("Poisson samples, Renyi privacy", after(sampled, "rdp")),
                    ("Poisson samples, privacy loss distribution", after(sampled)),
                ],
                tuple(epochs),
                (0.1, 1, 10, 100),
                log_y=True,
            )
        ],
    )


def main() -> None:
    for name, make in (
        ("what-epsilon-means", what_epsilon_means),
        ("what-adds-up", what_adds_up),
        ("local-and-central", local_and_central),
        ("the-notebook", the_notebook),
    ):
        FOLDER.joinpath(f"{name}.svg").write_text(make(), encoding="utf-8")
        print(f"drew {name}.svg")


if __name__ == "__main__":
    main()
