"""The definitions of the nine measures, written out as slowly and plainly as possible.

Rows are (quasi-identifier tuple, sensitive value) pairs; a missing value is None. Nothing
here is shared with the package.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

Row = tuple[tuple[Any, ...], Any]


def classes(rows: Sequence[Row], missing: str = "value") -> list[list[Any]]:
    """The sensitive values of each class."""
    if missing == "wildcard":
        return [
            [value for other, value in rows if all(o == k or o is None for o, k in zip(other, key, strict=True))]
            for key in dict.fromkeys(key for key, _ in rows)
        ]
    groups: dict[Hashable, list[Any]] = {}
    for key, value in rows:
        groups.setdefault(key, []).append(value)
    return list(groups.values())


def shares(values: Sequence[Any]) -> dict[Any, Fraction]:
    return {value: Fraction(count, len(values)) for value, count in Counter(values).items()}


def k(rows: Sequence[Row], **how: str) -> int:
    return min(len(group) for group in classes(rows, **how))


def alpha(rows: Sequence[Row], **how: str) -> Fraction:
    return max(max(shares(group).values()) for group in classes(rows, **how))


def distinct_l(rows: Sequence[Row], **how: str) -> int:
    return min(len(set(group)) for group in classes(rows, **how))


def entropy_l(rows: Sequence[Row], **how: str) -> float:
    return min(math.exp(-sum(q * math.log(q) for q in shares(group).values())) for group in classes(rows, **how))


def recursive_c(rows: Sequence[Row], l: int, **how: str) -> float:
    worst = 0.0
    for group in classes(rows, **how):
        counts = sorted(Counter(group).values(), reverse=True)
        worst = max(worst, counts[0] / sum(counts[l - 1 :]) if len(counts) >= l else math.inf)
    return worst


def t(rows: Sequence[Row], distance: Callable[[dict[Any, Fraction], dict[Any, Fraction]], float], **how: str) -> float:
    p = shares([value for _, value in rows])
    return max(distance(shares(group), p) for group in classes(rows, **how))


def equal_emd(q: dict[Any, Fraction], p: dict[Any, Fraction]) -> float:
    return float(sum(abs(q.get(value, Fraction(0)) - p[value]) for value in p) / 2)


def line_emd(positions: dict[Any, float]) -> Callable[[dict[Any, Fraction], dict[Any, Fraction]], float]:
    """The distance along a line, the values lying at the given positions."""

    def emd(q: dict[Any, Fraction], p: dict[Any, Fraction]) -> float:
        ordered = sorted(p, key=lambda value: positions[value])
        total, carried = 0.0, Fraction(0)
        for here, there in pairwise(ordered):
            carried += q.get(here, Fraction(0)) - p[here]
            total += float(abs(carried)) * (positions[there] - positions[here])
        return total

    return emd


def transport_emd(cost: Callable[[Any, Any], float]) -> Callable[[dict[Any, Fraction], dict[Any, Fraction]], float]:
    """The earth mover's distance for any ground distance, by linear programming."""
    from scipy.optimize import linprog

    def emd(q: dict[Any, Fraction], p: dict[Any, Fraction]) -> float:
        values = list(p)
        m = len(values)
        conserve = [[float(i // m == row) for i in range(m * m)] for row in range(m)]
        conserve += [[float(i % m == column) for i in range(m * m)] for column in range(m)]
        amounts = [float(q.get(value, 0)) for value in values] + [float(p[value]) for value in values]
        costs = [cost(a, b) for a in values for b in values]
        return float(linprog(costs, A_eq=conserve, b_eq=amounts, method="highs").fun)

    return emd


def gains(rows: Sequence[Row], **how: str) -> list[tuple[Fraction, Fraction]]:
    """The (gain, p) of every value in every class that holds it more often than the table."""
    p = shares([value for _, value in rows])
    return [
        ((q - p[value]) / p[value], p[value])
        for group in classes(rows, **how)
        for value, q in shares(group).items()
        if q > p[value]
    ]


def basic_beta(rows: Sequence[Row], **how: str) -> Fraction:
    return max((gain for gain, _ in gains(rows, **how)), default=Fraction(0))


def enhanced_beta(rows: Sequence[Row], **how: str) -> float:
    found = gains(rows, **how)
    if any(float(gain) > -math.log(p) for gain, p in found):
        return math.inf
    return max((float(gain) for gain, _ in found), default=0.0)


def delta(rows: Sequence[Row], absent: str, **how: str) -> float:
    p = shares([value for _, value in rows])
    worst = 0.0
    for group in classes(rows, **how):
        q = shares(group)
        for value in p:
            if value in q:
                worst = max(worst, abs(math.log(q[value] / p[value])))
            elif absent == "infinite":
                worst = math.inf
    return worst
