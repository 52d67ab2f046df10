"""A chart of a number for every pair of columns: a triangle of cells, and the largest ones as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from sfumato.report.charts.plot import bar_list, heat_map

__all__ = ["MOST_COLUMNS", "largest_pairs", "pair_map"]

MOST_COLUMNS = 16
"""More columns do not fit a phone."""
_BARS = 8
_FULL = 0.05  # the darkest cell, if none is larger: pairs that are all alike look so

Pairs = Mapping[tuple[str, str], float]


def pair_map(title: str, pairs: Pairs, order: Sequence[str]) -> Markup:
    """Draw shares of pairs of columns as a triangle; of many columns, those with the largest shares, in their order.

    Examples
    --------
    >>> svg = pair_map("Distances", {("a", "b"): 0.1, ("a", "c"): 0.2, ("b", "c"): 0.05}, ["a", "b", "c"])
    >>> svg.count("<rect"), ">20</text>" in svg
    (3, True)
    """
    ranked = sorted(pairs, key=lambda one: -pairs[one])
    worst = list(dict.fromkeys(name for one in ranked for name in one))[:MOST_COLUMNS]
    names = [name for name in order if name in worst]
    cells = [
        [pairs.get((one, other), pairs.get((other, one))) for other in names[:place]]
        for place, one in enumerate(names[1:], start=1)
    ]
    full = max(pairs.values(), default=0.0)
    return heat_map(title, names[1:], names[:-1], cells, full=max(full, _FULL), cell=(24.0, 17.0))


def largest_pairs(title: str, pairs: Pairs) -> Markup:
    """Draw the largest shares of pairs of columns as bars.

    Examples
    --------
    >>> largest_pairs("Distances", {("c", "d"): 0.05, ("a", "b"): 0.1}).count("<rect")
    2
    """
    ranked = sorted(pairs.items(), key=lambda one: -one[1])[:_BARS]
    return bar_list(title, [(" × ".join(names), value, f"{value:.1%}") for names, value in ranked])
