"""Pairs of columns: which are counted, how coarsely, and how noisy counts become a table of (a, b, label).

Columns are coarsened until the mean cell of a pair stands out from its noise. Up to 800 pairs (40 columns), all are
counted. In a wider table these are the pairs of neighbouring columns first; then, in turn, pairs of columns that tell
most about the label by their noisy counts, and pairs that stand further apart. The order of columns is public and the
counts are noisy already, so the choice costs nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.state import split
from sfumato.synthesizers.tables.base import Recoding, Records
from sfumato.synthesizers.tables.columns.cells import Cells
from sfumato.synthesizers.tables.methods.marginals import (
    by_group,
    coarse_groups,
    fit_three_way,
    fit_to_margins,
    information,
    onto_simplex,
)

__all__ = ["Pairs", "choose_pairs", "learn_pairs"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLEAR = 7.0  # the mean count of a cell of two coarse columns, in deviations of its noise
_FEWEST, _MOST = 4, 24  # groups of a coarse column
_WITHIN = 8  # groups of a coarse column that must remain for pairs to be counted within each label
_PAIRS = 800  # pairs that are counted, at most, unless more are needed to connect all columns


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Tables of (group, group, label), fitted to noisy counts.

    Attributes
    ----------
    groups : the group of each cell, for each column
    tables : by the positions of two columns
    noisy : the counts as they were bought
    deviation : that of the noise on each count
    joint : whether the counts were within each label
    trust : the share of what pairs tell of the label together, beyond what each column tells, that is not noise
    """

    groups: list[Ints]
    tables: dict[tuple[int, int], Floats]
    noisy: dict[tuple[int, int], Floats]
    deviation: float
    joint: bool
    trust: float


def learn_pairs(
    records: Records,
    columns: Sequence[int],
    cells: Sequence[Cells],
    tables: Sequence[Floats],
    by_label: Floats,
    sums: NoisySums,
) -> Pairs:
    """Count pairs of columns with noise, given the noisy counts of (cell, label) for each column."""
    pairs = choose_pairs([information(one) for one in tables])
    norm = math.sqrt(max(len(pairs), 1))
    deviation = sums.deviation_of("pairs", norm)
    most = int(np.clip(math.sqrt(by_label.sum() / (_CLEAR * max(deviation, 1e-9))), _FEWEST, _MOST))
    groups = [
        coarse_groups(one.sum(axis=1), most, 1 / (4 * most if axis.ordered else 6 * most), ordered=axis.ordered)
        for one, axis in zip(tables, [records.axes[at] for at in columns], strict=True)
    ]
    # A cell of one label has as many records as a cell of all labels with fewer groups.
    joint = len(by_label) > 1 and most / math.sqrt(len(by_label)) >= _WITHIN
    exact = _count(records, columns, cells, groups, pairs, joint=joint)
    flat = sums("pairs", np.concatenate([np.zeros(0), *(one.ravel() for one in exact)]), norm=norm)
    margins = [by_group(one, group) for one, group in zip(tables, groups, strict=True)]
    fitted, counted, apart, noise = {}, {}, 0.0, 0.0
    for (a, b), noisy, had in zip(pairs, split(flat, [one.size for one in exact]), exact, strict=True):
        counted[a, b] = noisy.reshape(had.shape)
        fitted[a, b], beyond = _fit(counted[a, b], margins[a], margins[b], deviation)
        apart, noise = apart + beyond, noise + had.size * deviation**2
    return Pairs(groups, fitted, counted, deviation, joint, _trust(apart, noise) if joint else 0.0)


def choose_pairs(informative: Sequence[float], most: int = _PAIRS) -> list[tuple[int, int]]:
    """Return the pairs of columns that are counted, given how much each tells about the label.

    Examples
    --------
    >>> choose_pairs([0.1, 0.3, 0.2])
    [(0, 1), (0, 2), (1, 2)]
    >>> choose_pairs([0.9, 0.0, 0.0, 0.0, 0.8], most=6)  # neighbours, 0 with 4, and one two columns apart
    [(0, 1), (0, 2), (0, 4), (1, 2), (2, 3), (3, 4)]
    """
    columns = len(informative)
    if columns * (columns - 1) // 2 <= most:
        return list(itertools.combinations(range(columns), 2))
    chosen = {(at, at + 1) for at in range(columns - 1)}
    first = np.argsort(-np.asarray(informative), kind="stable").tolist()
    telling = ((min(first[a], one), max(first[a], one)) for b, one in enumerate(first) for a in range(b))
    further = ((at, at + apart) for apart in range(2, columns) for at in range(columns - apart))
    for pair in itertools.chain.from_iterable(zip(telling, further, strict=False)):
        if len(chosen) >= most:
            break
        chosen.add(pair)
    return sorted(chosen)


def _count(
    records: Records,
    columns: Sequence[int],
    cells: Sequence[Cells],
    groups: Sequence[Ints],
    pairs: Sequence[tuple[int, int]],
    *,
    joint: bool,
) -> list[Floats]:
    """Return the counts of (group, group, label) for each pair; with a single label unless they are joint."""
    label = records.label
    recodings = [Recoding.identity(one.size) for one in records.axes]
    for at, one, group in zip(columns, cells, groups, strict=True):
        recodings[at] = one.recoding.then(group)
    if label is None:
        return [one[:, :, None] for one in records.count([(columns[a], columns[b]) for a, b in pairs], recodings)]
    if not joint:
        recodings[label] = Recoding(np.array([0, records.axes[label].size - 1]), np.array([0, 1]))
    wanted = [(columns[a], columns[b], label) for a, b in pairs]
    return [one[:, :, :-1] for one in records.count(wanted, recodings)]


def _fit(noisy: Floats, first: Floats, second: Floats, deviation: float) -> tuple[Floats, float]:
    """Return the table (a, b, label) from noisy counts, given those of (a, label) and (b, label).

    It lies between the table without an interaction of all three and the noisy one, the nearer to the latter the
    more they differ relative to the noise (James and Stein 1961). The squared difference is returned as well.
    """
    total = first.sum()
    two = fit_to_margins(onto_simplex(noisy.sum(axis=2), total), first.sum(axis=1), second.sum(axis=1))
    plain = fit_three_way(two, first, second)
    if noisy.shape[2] == 1:
        return plain, 0.0
    own = np.stack(
        [
            fit_to_margins(onto_simplex(noisy[:, :, k], first[:, k].sum()), first[:, k], second[:, k])
            for k in range(noisy.shape[2])
        ],
        axis=2,
    )
    apart = float(np.square(noisy - plain).sum())
    return plain + _trust(apart, noisy.size * deviation**2) * (own - plain), apart


def _trust(apart: float, noise: float) -> float:
    """Return the share of a squared difference that is not noise."""
    return max(0.0, 1 - noise / max(apart, 1e-9))
