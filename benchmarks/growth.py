"""How CPU time and memory grow with rows, with distinct tuples and with columns: ours beside bare group-bys.

Every point is measured in a process of its own, which counts a small table first, so that the
start (about a second for us) is not part of the growth. The figures go to growth.json, and the
charts are drawn from it into docs/assets.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape

from chart import as_seconds, draw_mark, log_scale, ticks_around
from tables import ALL, NAMES, SENSITIVE, large_table, rows_of
from work import apart

FIGURES = Path(__file__).with_name("growth.json")
ASSETS = Path(__file__).parents[1] / "docs" / "assets"

LARGEST, FIXED = 10**8, 10**7
MIXES = (0, 0.02, 0.05, 0.1, 0.22, 0.5, 1)
WIDTHS = (2, 4, 6, 9, 12, 16, 24)
SMALL = 10**7
"""Up to so many rows a point is the median of three runs."""

Point = dict[str, Any]

# Okabe & Ito's palette, for light and for dark paper; a mark of its own tells each line apart without colour.
LINES = {
    "sfumato": ("Sfumato: reduce and nine measures", "circle"),
    "polars": ("Polars: bare streaming group-by", "square"),
    "duckdb": ("DuckDB: bare group-by", "triangle"),
}
STYLE = """
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--grid:#d9dee3;--sfumato:#0072b2;--polars:#d55e00;--duckdb:#00805e}
@media(prefers-color-scheme:dark){
svg{--paper:#1e2129;--ink:#e8eaed;--soft:#a9b1ba;--grid:#3b414b;--sfumato:#56b4e9;--polars:#f0954a;--duckdb:#3fc99d}}
text{font:12px system-ui,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft)}.end{text-anchor:end}.middle{text-anchor:middle}.paper{fill:var(--paper)}
.grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:2}
.sfumato{stroke:var(--sfumato)}.polars{stroke:var(--polars)}.duckdb{stroke:var(--duckdb)}
.mark{stroke-width:2;fill:var(--paper)}
"""


def measure(largest: int, fixed: int) -> Iterator[Point]:
    """Yield every point of the three studies."""
    rows = 10**5
    while rows <= largest:
        yield from _points("rows", rows, large_table(rows), NAMES, rows)
        rows = rows * 3 if str(rows)[0] == "1" else rows // 3 * 10
    for mix in MIXES:
        yield from _points("tuples", None, large_table(fixed, mix=mix), NAMES, fixed)
    for width in WIDTHS:
        names = [*[name for name in ALL if name not in SENSITIVE][: width - 1], *SENSITIVE]
        yield from _points("columns", width, large_table(fixed, wide=True), names, fixed)


def _points(study: str, x: int | None, path: Path, names: Sequence[str], rows: int) -> Iterator[Point]:
    small = large_table(1000, wide=study == "columns")
    runs = {who: [apart(who, path, names, warm_up=small) for _ in range(3 if rows <= SMALL else 1)] for who in LINES}
    tuples = runs["polars"][0].answer["tuples"]
    for who, costs in runs.items():
        point = {
            "study": study,
            "who": who,
            "x": tuples if x is None else x,
            "rows": rows,
            "tuples": tuples,
            "cpu_seconds": round(statistics.median(cost.cpu for cost in costs), 2),
            "peak_bytes": int(statistics.median(cost.peak for cost in costs)),
        }
        print(json.dumps(point), flush=True)
        yield point


def draw(points: Sequence[Point], x_label: str) -> str:
    """Draw the CPU seconds and the peak memory of a study, side by side, both axes logarithmic."""
    width, height = 720, 330
    panels = [
        _panel(points, "cpu_seconds", "CPU time", as_seconds, x_label, left=58),
        _panel(points, "peak_bytes", "peak memory", _bytes, x_label, left=418),
    ]
    legend, x = [], 12
    for who, (name, mark) in LINES.items():
        legend.append(
            f'<path class="line {who}" d="M{x} 20h28"/>{draw_mark(who, mark, x + 14, 20)}'
            f'<text x="{x + 35}" y="24">{escape(name)}</text>'
        )
        x += 60 + round(6.2 * len(name))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>CPU time and peak memory against {escape(x_label)}</title><style>{STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}" rx="6"/>{"".join(legend)}{"".join(panels)}</svg>\n'
    )


def _panel(
    points: Sequence[Point], key: str, y_label: str, written: Callable[[float], str], x_label: str, left: int
) -> str:
    wide, top, bottom = 268, 66, 282
    xs, ys = [point["x"] for point in points], [point[key] for point in points]
    x_ticks = sorted(set(xs)) if max(xs) < 100 else _ticks(min(xs), max(xs))  # every number of columns, but not of rows
    y_ticks = ticks_around(min(ys), max(ys))
    across = log_scale(min(xs), max(xs), left + 8, left + wide - 8)
    up = log_scale(y_ticks[0], y_ticks[-1], bottom, top)
    parts = [f'<text class="soft" x="{left - 46}" y="{top - 14}">{y_label}</text>']
    for tick in y_ticks:
        y = f"{up(tick):.1f}"
        parts.append(
            f'<path class="grid" d="M{left} {y}h{wide}"/>'
            f'<text class="soft end" x="{left - 6}" y="{up(tick) + 4:.1f}">{written(tick)}</text>'
        )
    for tick in x_ticks:
        parts.append(f'<text class="soft middle" x="{across(tick):.1f}" y="{bottom + 18}">{_number(tick)}</text>')
    parts.append(f'<text class="soft middle" x="{left + wide / 2}" y="{bottom + 38}">{escape(x_label)}</text>')
    for who, (_, mark) in reversed(LINES.items()):  # ours is drawn last, on top
        places = sorted((across(point["x"]), up(point[key])) for point in points if point["who"] == who)
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path class="line {who}" d="M{path}"/>{"".join(draw_mark(who, mark, x, y) for x, y in places)}')
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return a few round values of an axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 3), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) <= 5:
            break
    return ticks


def _bytes(value: float) -> str:
    return f"{value / 1e9:g} GB" if value >= 1e9 else f"{value / 1e6:g} MB"


def _number(value: float) -> str:
    if value < 1000:
        return f"{value:g}"
    return f"{value / 1e6:g} million" if value >= 1e6 else f"{value:,.0f}"


LABELS = {"rows": "rows", "tuples": "distinct tuples", "columns": "columns"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=rows_of, default=LARGEST, help=f"the most rows ({LARGEST:.0e})")
    parser.add_argument("--fixed", type=rows_of, default=FIXED, help=f"rows of the other two studies ({FIXED:.0e})")
    parser.add_argument("--draw", action="store_true", help="only draw what has been measured")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--assets", type=Path, default=ASSETS)
    options = parser.parse_args()
    if not options.draw:
        points = list(measure(options.largest, options.fixed))
        options.figures.write_text("[\n" + ",\n".join(json.dumps(point) for point in points) + "\n]\n")
    points = json.loads(options.figures.read_text())
    options.assets.mkdir(exist_ok=True)
    for study, label in LABELS.items():
        chosen = [point for point in points if point["study"] == study]
        same = "" if study == "rows" else f", in {chosen[0]['rows']:,} rows"
        options.assets.joinpath(f"growth-{study}.svg").write_text(draw(chosen, label + same))


if __name__ == "__main__":
    main()
