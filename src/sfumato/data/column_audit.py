"""Audit the columns of a table before its release: no identifying column is released by oversight.

A column with a role passes. A column without one would be released as it is, so a sample of its values is examined: it
must not look like an identifier or a text, nor reproduce a protected column as a copy, in another unit, coarser or
finer. If rows that agree in one column agree in the other far more often than by chance, the second follows from the
first, whatever their names. A unique value is not evidence of that.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.schema import Role, Schema
from sfumato.data.suggest import against_release, facts_of, names_someone, singles_out
from sfumato.data.table import Table
from sfumato.errors import ColumnError, looks_like_data

__all__ = ["Values", "accounted", "doubts", "naming", "reproduces"]

_ROWS = 10_000
"""The number of rows that are examined."""
_COMPARED = 4_000
"""The number of rows that are compared with other columns."""
_SHOWN = 30
"""The number of columns that an error names."""
_DIFFER = 0.05  # the share of rows, among those that would differ by chance, that may differ in a dependent column
_EVIDENCE = 40  # rows that must differ by chance; that none of them does has a probability of about e^-20
_FEWEST_ROWS = 10
"""The same for cells with equal spelling, which is hardly a coincidence; fewer rows are no evidence."""
_MONOTONE = 0.99  # rank correlation of a quantity in another unit, or nearly the same
_SPELT = 200  # the number of cells whose spelling is compared
_CELLS = 2**20  # the most cells of a contingency table counted at once
_WORD, _ZEROS = re.compile(r"[^\W_]+"), re.compile(r"\.0+$")
_BINS = 100  # a quantity with more values is compared by percentiles


def accounted(table: Table) -> Table:
    """Refuse a table with a doubtful column that is not kept on purpose; note in the schema why a kept one is doubtful.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> people = pl.DataFrame({"age": [30, 41], "contact": ["ada@example.org", "bo@example.org"]})
    >>> try:
    ...     accounted(sf.Table.of(people, qi=["age"]))
    ... except sf.errors.ColumnError as refused:
    ...     print(refused.message)
    a column without a role would be released as it is: 'contact' (its values look like e-mail addresses)
    >>> accounted(sf.Table.of(people, qi=["age"], keep=["contact"])).schema["contact"].reason
    'its values look like e-mail addresses'
    """
    found = doubts(table)
    refused = {name: reason for name, reason in found.items() if table.schema[name].role is not Role.KEPT}
    if refused:
        raise _refusal(table.schema, refused)
    if not table.schema.kept:
        return table
    same = copy.copy(table)  # with what is already known of the frame
    columns = (
        replace(one, reason=found.get(one.name, "")) if one.role is Role.KEPT else one for one in table.schema.columns
    )
    object.__setattr__(same, "schema", Schema(columns))
    return same


def doubts(table: Table) -> dict[str, str]:
    """Return the reason against releasing each doubtful column, among those that are kept or have no role.

    At most 10,000 rows are examined, wherever they are.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> ages = [20 + i % 50 for i in range(500)]
    >>> people = pl.DataFrame({"age": ages, "decade": [age // 10 for age in ages], "ward": [i % 3 for i in range(500)]})
    >>> doubts(sf.Table.of(people, qi=["age"]))
    {'decade': "it follows from 'age'"}
    """
    schema = table.schema
    open_ = [column.name for column in schema.columns if column.role in (Role.OTHER, Role.KEPT)]
    if not open_:
        return {}
    rows = table.sample(_ROWS, [*open_, *schema.quasi, *schema.sensitive])
    readable = {*rows.schema.names}
    compared = [name for name in (*schema.quasi, *schema.sensitive) if name in readable and rows.rows >= _FEWEST_ROWS]
    protected = {name: values for name in compared if (values := _values(rows, name))}
    found = {}
    for name in readable.intersection(open_):
        facts = facts_of(rows, rows.schema[name])
        reason = against_release(facts)
        values = _values(rows, name) if protected and not reason else None
        if values is not None:
            reasons = (reproduces(values, other, shown) for shown, other in protected.items())
            reason = next(filter(None, reasons), "")
        reason = reason or singles_out(facts)
        if reason:
            found[name] = reason
    return {name: found[name] for name in open_ if name in found}


def naming(table: Table) -> dict[str, str]:
    """Return why columns without a role name people, judged by their names and the form of their values alone.

    Unlike other `doubts`, these are as visible in a release as in the original table.
    """
    open_ = [column.name for column in table.schema.columns if column.role is Role.OTHER]
    rows = table.sample(_ROWS, open_) if open_ else table
    readable = {*rows.schema.names}
    found = {name: names_someone(rows, rows.schema[name]) for name in open_ if name in readable}
    return {name: reason for name, reason in found.items() if reason}


def _values(rows: Table, name: str) -> Values | None:
    """Return the values of a column, if it has any that can be compared."""
    try:
        series = rows.column(name)
    except ColumnError:  # of mixed types
        return None
    is_plain = not (series.dtype.is_nested() or isinstance(series.dtype, pl.Object | pl.Binary))
    series = series.gather_every(max(1, -(-len(series) // _COMPARED)))
    return Values(series) if is_plain and series.null_count() < len(series) else None


def _refusal(schema: Schema, refused: dict[str, str]) -> ColumnError:
    named = {name: _shown(schema, name) for name in refused}
    listed = [f"{named[name]} ({reason})" for name, reason in refused.items()]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    one = len(refused) == 1
    them, names = "it" if one else "them", ",".join(f'"{name}"' if "," in name else name for name in refused)
    names = "A,B" if len(refused) > _SHOWN or any(map(looks_like_data, refused)) else names
    return ColumnError(
        f"{'a column' if one else f'{len(refused)} columns'} without a role would be released as "
        f"{'it is' if one else 'they are'}: {', '.join(listed[:_SHOWN])}{more}",
        hint=f"leave {them} out with identifiers / --identifiers {names}, or release {them} on purpose with "
        f"keep / --keep {names}",
    )


def _shown(schema: Schema, name: str) -> str:
    """Return the name of a column as an error may show it; one that looks like a record is not quoted."""
    return f"column {schema.names.index(name) + 1}" if looks_like_data(name) else f"'{name}'"


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one column, prepared for comparison with other columns of the same rows."""

    series: pl.Series

    @cached_property
    def ranks(self) -> NDArray[np.float64] | None:
        """The rank of each row, NaN for a missing value; None if the values are not numbers or times."""
        if self._numbers is None:
            return None
        _, which, count = np.unique(self._numbers, return_inverse=True, return_counts=True)
        average = np.cumsum(count) - (count - 1) / 2
        return np.where(np.isnan(self._numbers), np.nan, average[which])

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """A code from 1 on for each value, or each percentile of a quantity with many values; 0 if missing."""
        if self._numbers is None or self.ranks is None:
            return self._texts.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
        present = ~np.isnan(self._numbers)
        values, which = np.unique(self._numbers, return_inverse=True)
        if len(values) > _BINS:
            which = np.nan_to_num(self.ranks) * (_BINS / (present.sum() + 1))
        return np.where(present, 1 + which, 0).astype(np.int64)

    @cached_property
    def spelling(self) -> list[str | None]:
        """The words and numbers of some cells, ignoring case, order, punctuation and leading zeros."""
        cells = self._texts.gather_every(max(1, -(-len(self.series) // _SPELT))).to_list()
        words = (None if cell is None else _WORD.findall(_ZEROS.sub("", cell).lower()) for cell in cells)
        return [None if cell is None else " ".join(sorted(word.lstrip("0") for word in cell)) for cell in words]

    @cached_property
    def _numbers(self) -> NDArray[np.float64] | None:
        dtype = self.series.dtype
        if not (dtype.is_numeric() or dtype.is_temporal()):
            return None
        numbers: NDArray[np.float64] = self.series.to_physical().cast(pl.Float64).to_numpy()
        return numbers

    @cached_property
    def _texts(self) -> pl.Series:
        return self.series.cast(pl.String, strict=False)


def reproduces(column: Values, other: Values, name: str) -> str:
    """Describe how a column reproduces another one of this name; return an empty text if it does not.

    Examples
    --------
    >>> age = pl.Series(list(range(20, 80)) * 5)
    >>> reproduces(Values(age // 10), Values(age), "age")
    "it follows from 'age'"
    >>> reproduces(Values(pl.Series([i * i % 7 for i in range(300)])), Values(age), "age")
    ''
    """
    if _are_same(column.spelling, other.spelling):
        return f"it repeats '{name}'"
    both = (column.codes > 0) & (other.codes > 0)
    mine, theirs = (column.codes, other.codes) if both.all() else (column.codes[both], other.codes[both])
    follows, determines = _follows(mine, theirs), _follows(theirs, mine)
    if follows and determines:
        return f"it says the same as '{name}' in other words"
    if follows:
        return f"it follows from '{name}'"
    if determines:
        return f"'{name}' follows from it"
    in_step = column.ranks is not None and other.ranks is not None and _are_monotone(column.ranks, other.ranks)
    return f"it rises or falls with '{name}' throughout" if in_step else ""


def _are_same(one: list[str | None], other: list[str | None]) -> bool:
    """Return whether nearly all cells are equal, far more often than by chance."""
    both = [(mine, theirs) for mine, theirs in zip(one, other, strict=True) if None not in (mine, theirs)]
    differing = sum(mine != theirs for mine, theirs in both)
    if differing > _DIFFER * len(both):
        return False
    mine, theirs = (Counter(cells) for cells in zip(*both, strict=True)) if both else (Counter(), Counter())
    by_chance = len(both) - sum(count * theirs[cell] for cell, count in mine.items()) / max(1, len(both))
    return by_chance >= _FEWEST_ROWS and differing <= _DIFFER * by_chance


def _are_monotone(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Return whether one quantity rises, or falls, with the other throughout."""
    both = ~(np.isnan(one) | np.isnan(other))
    one, other = one[both], other[both]
    if len(one) < _EVIDENCE or not one.std() or not other.std():
        return False
    return bool(abs(np.corrcoef(one, other)[0, 1]) >= _MONOTONE)


def _follows(column: NDArray[np.int64], given: NDArray[np.int64]) -> bool:
    """Return whether rows that agree in ``given`` agree in the column.

    Uses Goodman and Kruskal's tau with each row left out of its own prediction: without a relation its mean is 0,
    however many values ``given`` has.
    """
    if not len(given):
        return False
    size = np.bincount(given)[given]
    shared = size > 1
    column, given, size = column[shared], given[shared], size[shared]
    if not len(given):
        return False
    by_chance = 1 - float(((np.bincount(column) / len(column)) ** 2).sum())
    if by_chance * len(column) < _EVIDENCE:
        return False
    pair = given * (int(column.max()) + 1) + column
    if int(pair.max()) < _CELLS:
        alike = np.bincount(pair)[pair]
    else:
        _, cell, count = np.unique(pair, return_inverse=True, return_counts=True)
        alike = count[cell]
    return bool((1 - (alike - 1) / (size - 1)).mean() <= _DIFFER * by_chance)
