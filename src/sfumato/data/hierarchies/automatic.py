"""Hierarchies built from the values: from their order, their frequencies, a target, or their form."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import accumulate, count
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import MISSING, plain_values, text_of
from sfumato.data.hierarchies.rules import Dates, Intervals, Prefixes, as_float, multiples
from sfumato.data.hierarchies.tree import Tree
from sfumato.data.released_values import are_whole, is_long, write_complement, write_set, write_span
from sfumato.errors import SchemaError

if TYPE_CHECKING:
    from sfumato.data.schema import Column

__all__ = ["build", "group_neighbours", "learn"]

Floats = NDArray[np.float64]
Group = list[int]  # positions of values, in order
Join = Callable[[list[Group], int], list[Group]]  # merges groups until the given number is left
_FINEST = 20  # the most intervals on the lowest level of an automatic hierarchy
_MOST_WITH_TARGET = 2_000  # values, because every pair is compared
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def group_neighbours(values: Iterable[Any], fanout: int) -> Tree:
    """Group neighbours, then neighbouring groups; see `Hierarchy.ordered`.

    Examples
    --------
    >>> group_neighbours("abcde", 3).paths(["d"])
    [('d', 'd to e', '*')]
    """
    texts = [text_of(value) for value in plain_values(values) if value is not None]

    def join(groups: list[Group], goal: int) -> list[Group]:
        parts = np.array_split(np.arange(len(groups)), goal)  # as equal as possible
        return [[place for member in part for place in groups[member]] for part in parts]

    def name(members: list[str]) -> str:
        plain = write_span(members[0], members[-1])
        return plain if plain.count(" to ") == 1 else write_set(members, texts)

    return _tree(texts, fanout, join, name)


def learn(
    values: Iterable[Any], counts: Sequence[float] | None, target: Sequence[Sequence[float]] | None, fanout: int
) -> Tree:
    """Learn which values to group; see `Hierarchy.learned`.

    Examples
    --------
    >>> learn("abcd", [1, 50, 2, 50], None, 2).paths(["c"])
    [('c', '{d, c, a}', '*')]
    """
    everything = plain_values(values)
    joint = _counted(everything, [1] * len(everything) if counts is None else counts, ndim=1)
    if target is not None:
        joint = _counted(everything, target, ndim=2)
        if len(everything) > _MOST_WITH_TARGET:
            raise SchemaError(
                f"at most {_MOST_WITH_TARGET:,} values can be grouped by a target, got {len(everything):,}",
                hint="group them by frequency",
            )
    mass = joint if joint.ndim == 1 else joint.sum(axis=1)
    frequent_first = [int(place) for place in np.argsort(-mass, kind="stable") if everything[place] is not None]
    texts = [text_of(everything[place]) for place in frequent_first]
    join = _join_rarest if target is None else _join_most_alike

    def name(members: list[str]) -> str:
        if not is_long(len(members), len(texts) - len(members)):
            return write_set(members, texts)
        inside = set(members)
        return write_complement([text for text in texts if text not in inside])

    return _tree(texts, fanout, join(joint[frequent_first]), name)


def build(column: Column, values: Iterable[Any], counts: Sequence[float] | None) -> Hierarchy:
    """Build a hierarchy from the kind of a column and the form of its values; see `Hierarchy.automatic`.

    Examples
    --------
    >>> from sfumato.data import Column
    >>> build(Column(name="zip"), ["13053", "13068", "14850"], None).paths(["13099"])
    [('13099', '130**', '*')]
    """
    everything = plain_values(values)
    weights = _counted(everything, [1] * len(everything) if counts is None else counts, ndim=1)
    weight: dict[Any, float] = dict.fromkeys(plain_values(column.domain or ()), 0.0)
    for value, often in zip(everything, weights.tolist(), strict=True):
        if value is not None:
            weight[value] = weight.get(value, 0.0) + often
    try:
        hierarchy = _by_kind(column, weight)
        hierarchy.check(weight)
    except SchemaError as error:
        raise SchemaError(f"column '{column.name}': {error.message}", hint=error.hint) from None
    return hierarchy


def _by_kind(column: Column, weight: dict[Any, float]) -> Hierarchy:
    """Return the hierarchy of the first rule that fits."""
    values, kind = list(weight), column.kind.value
    texts = [text_of(value) for value in values]
    if kind == "auto":
        numbers = all(isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in values)
        kind = "number" if numbers else "date" if all(isinstance(value, dt.date) for value in values) else "category"
    if kind == "number":
        words = sum(isinstance(value, str) for value in values)
        if words:
            raise SchemaError(
                f"it is declared a number, but {words:,} of {len(values):,} distinct values are texts",
                hint="turn it into numbers",
            )
    if len(values) <= 2 or kind == "text":
        return Tree([(text,) for text in texts or [MISSING]])
    if kind == "number":
        return _nice_intervals(column.bounds, weight)
    if kind == "date" or all(map(_DATE.fullmatch, texts)):
        periods = ("month", "quarter", "year", "decade")
        timed = any(isinstance(value, dt.datetime) and value.time() != dt.time() for value in values)
        dates = Dates(("day", *periods) if timed else periods)
        return Dates([dates.periods[level - 1] for level in _telling(dates, values)])
    if kind == "ordinal":
        return group_neighbours(values if column.domain else sorted(values), fanout=2)
    lengths = {len(text) for text in texts}
    if len(lengths) == 1 and max(lengths) > 1 and all(text.isdecimal() for text in texts):
        codes = Prefixes(max(lengths))
        return Prefixes(codes.length, [codes.masks[level - 1] for level in _telling(codes, values)])
    if all(map(_NUMBER.fullmatch, texts)):
        return group_neighbours(sorted(values, key=lambda value: float(text_of(value))), fanout=3)
    return learn(values, list(weight.values()), None, fanout=3)


def _telling(hierarchy: Hierarchy, values: Sequence[Any]) -> list[int]:
    """Return the levels that merge some groups of the level below, but not all."""
    groups = [int(level.max()) + 1 for level in hierarchy.levels(values)]
    fewest = list(accumulate(groups, min))
    return [level for level in range(1, len(groups)) if 1 < groups[level] < fewest[level - 1]]


def _nice_intervals(bounds: tuple[float, float] | None, weight: dict[Any, float]) -> Hierarchy:
    """Cut numbers at multiples of nice widths, or at nice numbers if over half are below the first cut."""
    pairs = sorted((as_float(value), often) for value, often in weight.items())
    places, mass = np.array(pairs).T
    low, high = bounds or (-math.inf, math.inf)
    levels = _even_cuts(places)
    median = places[np.searchsorted(np.cumsum(mass), mass.sum() / 2)]
    if levels and places[0] >= 0 and median < levels[0][0]:
        levels = _steep_cuts(places[places > 0])
    lowest = max(low, places[0])  # a lower cut would have no value below it
    within = [[low, *(cut for cut in cuts if lowest < cut < high), high] for cuts in levels]
    telling = _telling(Intervals(within), places.tolist()) if within else []
    if not telling:
        return Tree([(value,) for value in weight])
    return Intervals([within[level - 1] for level in telling], whole=are_whole(weight))


def _even_cuts(places: Floats) -> list[list[float]]:
    """Return equidistant cuts per level; each level's nice width is a multiple of the one before."""
    low, high = float(places[0]), float(places[-1])
    levels: list[list[float]] = []
    if not 1e-200 < high - low < 1e200:  # beyond floating-point division
        return levels
    rank = _nice_rank((high - low) / _FINEST)
    while (width := _nice(rank)) <= (high - low) / 1.5:
        cuts = multiples(width, low, math.nextafter(high, math.inf))
        groups = len(np.unique(np.searchsorted(cuts, places, side="right")))
        if levels or groups <= len(places) * 2 / 3:  # skips widths that hardly merge values
            levels.append(cuts)
        rank += 2 if levels and rank % 3 == 1 else 1  # 5 is not a multiple of 2, 10 is
    return levels


def _steep_cuts(positive: Floats) -> list[list[float]]:
    """Return the cuts of three levels: nice numbers, powers of ten, and the start of the positive numbers."""
    first = _nice_rank(float(positive[0]))
    first -= _nice(first) > positive[0]
    ranks = [rank for rank in range(first, _nice_rank(float(positive[-1])) + 1) if _nice(rank) <= positive[-1]]
    return [
        [_nice(rank) for rank in ranks],
        [_nice(rank) for rank in ranks if rank % 3 == 0 or rank == first],
        [_nice(first)],
    ]


def _nice(rank: int) -> float:
    """Return a number of the series ..., 1, 2, 5, 10, 20, 50, 100, ...; rank 0 is 1."""
    return float(f"{(1, 2, 5)[rank % 3]}e{rank // 3}")


def _nice_rank(number: float) -> int:
    """Return the rank of the smallest nice number that is at least a number."""
    return next(rank for rank in count(3 * (math.floor(math.log10(number)) - 1)) if _nice(rank) >= number)


def _join_rarest(mass: Floats) -> Join:
    """Merge groups from the rarest on, up to an equal share of the rows, or more if too many groups are left."""

    def join(groups: list[Group], goal: int) -> list[Group]:
        rising = sorted(groups, key=lambda group: (mass[group].sum(), -group[0]))
        most = float(mass.sum()) / goal
        while True:
            most *= 1.25
            joined: list[Group] = []
            held = 0.0
            for done, group in enumerate(rising):
                often = float(mass[group].sum())
                if joined and held + often <= most and len(joined) + len(rising) - done > goal:
                    joined[-1], held = joined[-1] + group, held + often
                else:
                    joined.append(group)
                    held = often
            if len(joined) == goal:
                return [sorted(group) for group in joined]

    return join


def _join_most_alike(joint: Floats) -> Join:
    """Merge, repeatedly, the two groups whose union loses the least information about the target."""

    def information(counts: Floats) -> Floats:
        def x_log_x(x: Floats) -> Floats:
            return x * np.log(np.where(x > 0, x, 1))

        return np.asarray(x_log_x(counts).sum(axis=-1) - x_log_x(counts.sum(axis=-1)))

    def join(groups: list[Group], goal: int) -> list[Group]:
        members: list[Group] = list(groups)
        counts = np.array([joint[group].sum(axis=0) for group in groups])
        known = information(counts)
        loss = np.array([known[place] + known - information(counts[place] + counts) for place in range(len(groups))])
        np.fill_diagonal(loss, np.inf)
        for _ in range(len(groups) - goal):
            one, other = sorted(map(int, np.unravel_index(np.argmin(loss), loss.shape)))
            members[one], members[other] = sorted(members[one] + members[other]), []
            counts[one] += counts[other]
            known[one] = information(counts[one])
            loss[other] = loss[:, other] = np.inf
            alive = np.array([bool(group) for group in members])
            alive[one] = False
            loss[one, alive] = loss[alive, one] = known[one] + known[alive] - information(counts[one] + counts[alive])
        return [group for group in members if group]

    return join


def _tree(texts: Sequence[str], fanout: int, join: Join, name: Callable[[list[str]], str]) -> Tree:
    """Merge groups level by level, each time to 1/fanout of them, until only the root is left."""
    if not isinstance(fanout, int) or fanout < 2:
        raise SchemaError(f"the fanout of a hierarchy must be a whole number of at least 2, got {fanout!r}")
    groups, values = [[place] for place in range(len(texts))], set(texts)
    levels = [list(texts)]
    while (goal := math.ceil(len(groups) / fanout)) > 1:
        groups = join(groups, goal)
        labels = [""] * len(texts)
        taken: set[str] = set()
        for group in groups:
            members = [texts[place] for place in group]
            label = (members[0] if len(members) == 1 else name(members)) or write_set(members, texts)
            if label in taken or (
                len(members) > 1 and label in values
            ):  # the label is already a value or another group
                label = write_set(members, {*values, *taken})
            taken.add(label)
            for place in group:
                labels[place] = label
        levels.append(labels)
    return Tree(list(zip(*levels, strict=True)))


def _counted(values: Sequence[Any], counts: Any, ndim: int) -> Floats:
    """Return the counts as an array; check that each value has a count, or a row of counts."""
    try:
        numbers = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim != ndim or len(numbers) != len(values) or not (np.isfinite(numbers) & (numbers >= 0)).all():
        what = "a count" if ndim == 1 else "a row of counts, one per value of the target,"
        raise SchemaError(f"each of the {len(values)} values of a hierarchy needs {what} of at least 0")
    return numbers
