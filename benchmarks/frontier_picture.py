"""Draw the frontier of Adult into docs/images/frontier.svg, and its first chart alone into frontier-start.svg.

    python benchmarks/frontier_picture.py FOLDER

FOLDER is the output of `sfumato explore adult --max-risk 0.09 --max-advantage 0.05 -o FOLDER`; what is not there
is measured now.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import sfumato as sf
from sfumato.report.frontier.page import charts_of, headline_of

OUT = Path(__file__).parents[1] / "docs" / "images" / "frontier.svg"
START = OUT.with_name("frontier-start.svg")
SHOWN = ("Accuracy against membership advantage", "Accuracy against k", "The strongest membership attack")
WIDE, GAP, TOP = 300, 28, 74
STYLE = """
svg{--ink:#1d2330;--soft:#5a6272;--line:#d9dde5;--paper:#fff;--safe:#0072b2;--risky:#d55e00;--c3:#007a5a;--c4:#8a4a78;--c5:#6b5b00}
@media(prefers-color-scheme:dark){svg{--ink:#e8ebf1;--soft:#a9b2c1;--line:#3a4250;--paper:#1a1f28;
--safe:#4ba3df;--risky:#f0803c;--c3:#35bd95;--c4:#d692c4;--c5:#cbb545}}
text{font:12px system-ui,sans-serif;fill:var(--ink);text-anchor:middle}.start{text-anchor:start}
.head{font-size:17px;font-weight:650}
.name{font-size:13px;font-weight:600}.paper{fill:var(--paper)}text.soft{fill:var(--soft)}.ruler{stroke:var(--line)}
.c0{--c:var(--ink)}.c1{--c:var(--safe)}.c2{--c:var(--risky)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.c6{--c:var(--soft)}
:is(.c0,.c1,.c2,.c3,.c4,.c5,.c6){fill:none;stroke:var(--c)}.full{fill:var(--c);stroke:none}
.band{fill:var(--c);fill-opacity:.18;stroke:none}.interval{stroke-opacity:.45}.halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px}
"""


def main(folder: str) -> None:
    found = sf.explore("adult", max_risk=0.09, max_advantage=0.05, folder=Path(folder) / "points", public=True)
    charts = [(name, str(chart)) for name, _, chart in charts_of(found) if name in SHOWN]
    OUT.write_text(picture(headline_of(found), charts), encoding="utf-8")
    START.write_text(picture("", charts[:1]), encoding="utf-8")


def picture(head: str, charts: Sequence[tuple[str, str]]) -> str:
    """Return charts side by side as one picture."""
    parts, tallest, top = [], 0.0, TOP if head else TOP - 30
    for number, (name, chart) in enumerate(charts):
        left = GAP + number * (WIDE + GAP)
        height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', chart)[1])  # type: ignore[index]
        tallest = max(tallest, height)
        place = f'<svg x="{left}" y="{top}" width="{WIDE}" height="{height:.0f}"'
        parts.append(f'<text class="start name" x="{left}" y="{top - 12}">{escape(name)}</text>')
        parts.append(chart.replace("<svg", place, 1).replace(' role="img"', "", 1))
    wide, tall = GAP + len(charts) * (WIDE + GAP), top + tallest + 16
    title = escape(head or charts[0][0])
    if head:
        parts.insert(0, f'<text class="start head" x="{GAP}" y="34">{title}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall:.0f}" width="{wide}" height="{tall:.0f}" '
        f'role="img"><title>{title}</title><style>{STYLE}</style>'
        f'<rect class="paper" width="{wide}" height="{tall:.0f}" rx="8"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    main(sys.argv[1])
