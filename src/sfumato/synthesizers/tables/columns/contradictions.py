"""Whether any row can meet some conditions, by what is public of the columns.

A column whose values are not declared may have any of its kind, so conditions on it can still exclude each other: it is
treated as if it had each value that the conditions name, those between them and some beyond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.query.condition import Condition, Predicate
from sfumato.errors import OptionError
from sfumato.synthesizers.tables.columns.conditions import evaluate, mask_of, number_of, predicates
from sfumato.synthesizers.tables.columns.description import MOST_DECIMALS, Described
from sfumato.synthesizers.tables.columns.domain import MOST_CODES, Coding
from sfumato.synthesizers.tables.columns.kinds import Values

__all__ = ["refuse_contradictions", "supposed"]

Ints = NDArray[np.int64]

_MOST_PATTERNS = 2**16


def refuse_contradictions(
    conditions: Sequence[Condition], codings: Mapping[str, Coding], computed: Mapping[str, tuple[str, Ints]]
) -> None:
    """Raise an error if no combination of values meets all conditions on columns with a coding.

    Values that no comparison tells apart count as one, so that few combinations are tried.
    """
    waiting = [one for one in conditions if all(name in codings for name in one.columns)]
    while waiting:
        together, names = [waiting.pop(0)], set[str]()
        while True:
            names = {name for one in together for name in one.columns}
            names |= {computed[name][0] for name in names if name in computed}
            more = [
                one
                for one in waiting
                if names & {*one.columns, *(computed[n][0] for n in one.columns if n in computed)}
            ]
            if not more:
                break
            together += more
            waiting = [one for one in waiting if one not in more]
        free = sorted(name for name in names if name not in computed)
        patterns = [_patterns(name, together, codings, computed) for name in free]
        if math.prod(map(len, patterns)) > _MOST_PATTERNS:
            continue
        grid = np.meshgrid(*patterns, indexing="ij")
        codes = {name: one.ravel() for name, one in zip(free, grid, strict=True)}
        for name in sorted(names - codes.keys()):
            source, lookup = computed[name]
            if source not in codes:  # computed from a computed column
                return
            codes[name] = lookup[codes[source]]
        if not np.all([evaluate(one, codings, codes, sql=True) for one in together], axis=0).any():
            shown = " and ".join(f"'{one}'" for one in together)
            verb = "contradict each other" if len(together) > 1 else "contradicts the columns"
            raise OptionError(f"{shown} {verb}: no row can meet {'them' if len(together) > 1 else 'it'}")


def _patterns(
    name: str, conditions: Sequence[Condition], codings: Mapping[str, Coding], computed: Mapping[str, tuple[str, Ints]]
) -> Ints:
    """Return a code for each way in which the comparisons treat the values of a column."""
    leaves = [one for condition in conditions for one in predicates(condition)]
    size = codings[name].axis.size
    masks = [mask_of(one, codings[name]) for one in leaves if one.column == name]
    for one in leaves:
        if one.column in computed and computed[one.column][0] == name:
            masks.append(mask_of(one, codings[one.column])[computed[one.column][1]])
    about_missing = any(one.operator.endswith("missing") for one in leaves)
    last = size if about_missing or size == 1 else size - 1
    told = np.stack([np.zeros(last, dtype=bool), *(one[:last] for one in masks)])
    _, first = np.unique(told, axis=1, return_index=True)
    codes: Ints = first.astype(np.int64)
    return codes


def supposed(undeclared: Sequence[Described], conditions: Sequence[Condition]) -> dict[str, Coding]:
    """Return codings of undeclared columns that tell apart whatever the conditions do, but for very wide ranges.

    Examples
    --------
    >>> import polars as pl
    >>> from sfumato.synthesizers.tables.columns.conditions import given_condition
    >>> age = Described("age", Values.WHOLE, pl.Int64())
    >>> supposed([age], [given_condition("age > 20 and age < 22")])["age"].numbers.tolist()
    [19.0, 20.0, 21.0, 22.0, 23.0, nan]
    """
    leaves = [one for condition in conditions for one in predicates(condition)]
    found = {one.name: _supposed(one, [leaf for leaf in leaves if leaf.column == one.name]) for one in undeclared}
    return {name: coding for name, coding in found.items() if coding is not None}


def _supposed(one: Described, leaves: Sequence[Predicate]) -> Coding | None:
    texts = list(dict.fromkeys(text for leaf in leaves for text in leaf.values))
    if not leaves:
        return None
    if not one.is_number:
        return replace(one, domain=(*texts, "".join(texts) + "?"), dtype=None).coding()
    numbers = [number_of(text, one.values) for text in texts] or [0.0]
    for text, number in zip(texts, numbers, strict=False):
        if number != number:
            named = {Values.DATE: "date", Values.MOMENT: "date", Values.TIME: "time"}.get(one.values, "number")
            raise OptionError(f"column '{one.name}' holds {named}s, and '{text[:40]}' is not one")
    step = one.values.finest or _half_a_digit(numbers)
    low, high = min(numbers) - 1, max(numbers) + 1
    if not step or (high - low) / step > MOST_CODES - 2:
        return None
    return replace(one, bounds=(low, high), step=step).coding()


def _half_a_digit(numbers: Sequence[float]) -> float | None:
    """Return a step of which all numbers are multiples, with others between them."""
    for digits in range(MOST_DECIMALS + 1):
        if all(abs(one * 10**digits - round(one * 10**digits)) < 1e-6 for one in numbers):
            step: float = 0.5 / 10**digits
            return step
    return None
