"""What Mondrian, Hilbert and R+ lose, and what they cost, on three real tables as k grows.

The methods are deterministic: every point is one run. The figures go to loss_study.json, and the
charts are drawn from it into docs/assets. CUP and Census-Income are in the folder that SFUMATO_DATA
names; the texts of Census-Income are stripped of blanks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from markupsafe import escape

import sfumato as sf
from chart import as_seconds, draw_mark, log_scale, ticks_around
from clock import cpu_seconds
from growth import ASSETS
from partition import QI, rows_like_adult
from sfumato.anonymizers import Partitioner
from sfumato.anonymizers.hilbert.hilbert import order_of
from sfumato.anonymizers.limits import limits, sparse
from sfumato.anonymizers.mondrian.partition import space_of
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members
from tables import NAMES, SENSITIVE, large_table

FIGURES = Path(__file__).with_name("loss_study.json")
K = (2, 5, 10, 25, 50, 100, 250, 500, 1000)
CENSUS = [
    "age",
    "class of worker",
    "education",
    "marital stat",
    "major occupation code",
    "race",
    "sex",
    "country of birth self",
]
TABLES = {"adult": "Adult", "cup": "CUP", "census": "Census-Income"}

Point = dict[str, Any]


@dataclass(eq=False)
class Greedy(Partitioner):
    """Only the first half of Hilbert: a group is closed as soon as it keeps every guarantee."""

    name = "greedy"

    def _members(self, problem: Problem) -> Members:
        from sfumato.anonymizers.hilbert.kernels import cut_greedily

        order, asked = order_of(problem, space_of(problem)), limits(problem.counts, problem.guarantees)
        place, begins = np.empty_like(order), np.zeros(len(order), dtype=np.bool_)
        place[order] = np.arange(len(order))
        cut_greedily(*sparse(problem.merge(place), asked), asked, begins)
        return Members.of(problem, (np.cumsum(begins) - 1)[place])


METHODS: dict[str, type[Partitioner]] = {
    "mondrian": sf.Mondrian,
    "rplus": sf.RPlus,
    "hilbert": sf.Hilbert,
    "greedy": Greedy,
}
LINES = {
    "mondrian": ("Mondrian", "circle"),
    "rplus": ("R+", "triangle"),
    "hilbert": ("Hilbert", "square"),
    "greedy": ("Hilbert, cut greedily", "square"),
}
# The palette of growth.py; the greedy variant is dashed.
STYLE = """
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--grid:#d9dee3;--mondrian:#0072b2;--hilbert:#d55e00;--rplus:#00805e}
@media(prefers-color-scheme:dark){
svg{--paper:#1e2129;--ink:#e8eaed;--soft:#a9b1ba;--grid:#3b414b;--mondrian:#56b4e9;--hilbert:#f0954a;--rplus:#3fc99d}}
text{font:12px system-ui,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft)}.end{text-anchor:end}.middle{text-anchor:middle}.paper{fill:var(--paper)}
.grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:2}
.mondrian{stroke:var(--mondrian)}.hilbert,.greedy{stroke:var(--hilbert)}.rplus{stroke:var(--rplus)}
.line.greedy{stroke-dasharray:4 4}.mark{stroke-width:2;fill:var(--paper)}
"""


def table_of(name: str) -> sf.Table:
    """Return a table with its quasi-identifiers, and nothing else."""
    if name == "adult":
        whole, qi = sf.datasets.adult("train"), QI
    elif name == "census":
        whole, qi = sf.datasets.census(), CENSUS
    elif name == "million":  # not in the charts
        whole, qi = sf.read(large_table(10**6)), [one for one in NAMES if one not in SENSITIVE]
    elif name == "unrelated":  # nor is this
        codes = rows_like_adult(10**6)
        texts = {f"column {i}": codes[:, i].astype(str) for i in range(1, codes.shape[1])}
        whole = sf.Table(pl.DataFrame({"number": codes[:, 0], **texts}))
        qi = list(whole.schema.names)
    else:
        whole = sf.read(Path(os.environ["SFUMATO_DATA"]) / "cup" / "cup.parquet")
        qi = list(whole.schema.names)
    kinds = [sf.Column(name=one, role=sf.Role.QUASI, kind=whole.schema[one].kind) for one in qi]
    frame = whole.frame.select(qi).cast({pl.Categorical: pl.String})
    return sf.Table(frame.with_columns(pl.col(pl.String).str.strip_chars()), sf.Schema(kinds))


def measure(names: Sequence[str], ks: Sequence[int]) -> Iterator[Point]:
    """Yield every point of the study."""
    for name in names:
        table = table_of(name)
        for who, method in METHODS.items():
            method("k=1000").fit_transform(table)  # compiled, or read from the cache
            for k in ks:
                anonymizer = method(f"k={k}")
                seconds = cpu_seconds(partial(anonymizer.fit_transform, table))
                lost = sf.loss(table, anonymizer.transform(table))
                point = {
                    "table": name,
                    "rows": table.rows,
                    "tuples": len(anonymizer.problem_),
                    "who": who,
                    "k": k,
                    "gcp": round(lost.gcp, 4),
                    "average_class": round(lost.average_class, 1),
                    "discernibility": lost.discernibility,
                    "cpu_seconds": round(seconds, 3),
                }
                print(json.dumps(point), flush=True)
                yield point


def draw(points: Sequence[Point], title: str) -> str:
    """Draw the loss, the loss beside Mondrian's and the CPU seconds against k, which is on a logarithmic axis."""
    width, height = 720, 330
    mondrian = {point["k"]: point["gcp"] for point in points if point["who"] == "mondrian"}
    points = [{**point, "beside": point["gcp"] / mondrian[point["k"]]} for point in points]
    panels = [
        _panel(points, "gcp", "information lost (GCP)", lambda value: f"{value:g}", left=50),
        _panel(points, "beside", "GCP / Mondrian's GCP", lambda value: f"{value:.1f}", left=288),
        _panel(points, "cpu_seconds", "CPU time", as_seconds, left=534),
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
        f'role="img"><title>Loss and CPU time against k: {escape(title)}</title><style>{STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}" rx="6"/>{"".join(legend)}{"".join(panels)}</svg>\n'
    )


def _panel(points: Sequence[Point], key: str, y_label: str, written: Callable[[float], str], left: int) -> str:
    wide, top, bottom = 172, 66, 282
    ks, ys = sorted({point["k"] for point in points}), [point[key] for point in points]
    y_ticks = _tenths(min(ys), max(ys)) if key == "beside" else ticks_around(min(ys), max(ys))
    across, up = log_scale(ks[0], ks[-1], left + 8, left + wide - 8), log_scale(y_ticks[0], y_ticks[-1], bottom, top)
    if key == "beside":  # so close to 1 that a straight axis shows more
        first, last = y_ticks[0], y_ticks[-1]
        up = lambda value: bottom + (top - bottom) * (value - first) / (last - first)  # noqa: E731
    parts = [f'<text class="soft" x="{left - 38}" y="{top - 14}">{y_label}</text>']
    for tick in y_ticks:
        parts.append(
            f'<path class="grid" d="M{left} {up(tick):.1f}h{wide}"/>'
            f'<text class="soft end" x="{left - 6}" y="{up(tick) + 4:.1f}">{written(tick)}</text>'
        )
    for k in (k for k in ks if k in (2, 10, 100, 1000)):
        parts.append(f'<text class="soft middle" x="{across(k):.1f}" y="{bottom + 18}">{k}</text>')
    parts.append(f'<text class="soft middle" x="{left + wide / 2}" y="{bottom + 38}">k</text>')
    for who, (_, mark) in reversed(LINES.items()):
        places = [(across(point["k"]), up(point[key])) for point in points if point["who"] == who]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path class="line {who}" d="M{path}"/>{"".join(draw_mark(who, mark, x, y) for x, y in places)}')
    return "".join(parts)


def _tenths(low: float, high: float) -> list[float]:
    """Return the tenths that enclose an axis."""
    return [tenth / 10 for tenth in range(math.floor(10 * low), math.ceil(10 * high) + 1)]


def table_in_markdown(points: Sequence[Point], key: str, form: str) -> str:
    """Return one figure of every method, a row per table and k."""
    lines = [
        "| table | k | " + " | ".join(name for name, _ in LINES.values()) + " |",
        "|---|---|" + "---|" * len(LINES),
    ]
    for name in TABLES:
        for k in K:
            of = {point["who"]: point[key] for point in points if (point["table"], point["k"]) == (name, k)}
            if of:
                lines.append(f"| {TABLES[name]} | {k} | {' | '.join(format(of[who], form) for who in LINES)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tables", default=",".join(TABLES), help="adult, cup, census (all), or million, unrelated: large tables"
    )
    parser.add_argument("--k", default=",".join(map(str, K)), help="which k to measure")
    parser.add_argument("--draw", action="store_true", help="only draw what has been measured, and print the tables")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--assets", type=Path, default=ASSETS)
    options = parser.parse_args()
    if not options.draw:
        points = list(measure(options.tables.split(","), [int(k) for k in options.k.split(",")]))
        options.figures.write_text("[\n" + ",\n".join(json.dumps(point) for point in points) + "\n]\n")
    points = json.loads(options.figures.read_text())
    options.assets.mkdir(exist_ok=True)
    for name, title in TABLES.items():
        chosen = [point for point in points if point["table"] == name]
        if chosen:
            options.assets.joinpath(f"loss-{name}.svg").write_text(draw(chosen, title))
    for key, form in (("gcp", ".3f"), ("average_class", ",.1f"), ("discernibility", ",d"), ("cpu_seconds", ".2f")):
        print(f"\n{key}\n\n{table_in_markdown(points, key, form)}")


if __name__ == "__main__":
    main()
