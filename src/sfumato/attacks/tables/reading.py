"""Records and released rows in the same terms: which original values each released value stands for.

The values of a synthetic table are values, never ranges or marks; those of a released table are read by
`sfumato.measures.loss.generalised`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.attacks.base import Records
from sfumato.data.released_values import MARK
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, InputError, did_you_mean
from sfumato.measures.classes import Ints, ranges
from sfumato.measures.loss.generalised import Coverage, Pairing, pair_codes

__all__ = ["column_of", "cover", "known_columns", "read_pairing", "secrets", "some_known", "some_of"]


def secrets(target: Any) -> tuple[str, ...]:
    """Return the columns whose values an attacker wants: the sensitive ones, else the target of a model."""
    schema = target.schema
    wanted = schema.sensitive or (() if schema.target is None else (schema.target,))
    return tuple(name for name in wanted if name in target.frame.columns)


def known_columns(target: Any, *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the released columns that may describe a person: all but identifiers and those left out."""
    hidden = {*target.schema.identifiers, *target.schema.kept, *without}
    return tuple(name for name in target.frame.columns if name not in hidden)


def read_pairing(target: Any, members: Records, nonmembers: Records, names: Sequence[str]) -> Pairing:
    """Encode columns of the records, members first, and of the released rows.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.attacks import TableTarget
    >>> target = TableTarget(pl.DataFrame({"age": ["20-39", "*"]}), sf.Schema([sf.Column(name="age", role="quasi")]))
    >>> inside, outside = Records(pl.DataFrame({"age": [30, 50]})), Records(pl.DataFrame({"age": [40]}))
    >>> both = read_pairing(target, inside, outside, ["age"])
    >>> both.original[:, 0].tolist(), both.coverages[0].size[both.released[:, 0]].tolist()
    ([0, 2, 1], [1, 3])
    """
    if not target.frame.height:
        raise InputError("the table that is attacked has no rows")
    for whose, records in (("original", members), ("control", nonmembers)):
        for name in names:
            if name not in records.frame.columns:
                raise ColumnError(
                    f"the {whose} records have no column '{name}', and the release has one",
                    hint=did_you_mean(name, records.frame.columns),
                )
    synthetic = target.kind == "synthetic"
    columns, released = [], []
    for name in names:
        parts = [members.frame[name], nonmembers.frame[name]] + [target.frame[name]] * synthetic
        columns.append(_together(name, parts))
        released.append(columns[-1][-target.frame.height :] if synthetic else target.frame[name])
    table = Table(pl.DataFrame(columns), Schema(column_of(target, name) for name in names))
    both = pair_codes(table.encode(names), released, None if synthetic else MARK)
    people = len(members) + len(nonmembers)
    return Pairing(both.original[:people], both.released, both.domains, both.meaning, both.coverages)


def cover(read: Coverage, codes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each of some released values covers each value of the universe.

    Examples
    --------
    >>> from sfumato.measures.loss.generalised import pair
    >>> both = pair(pl.DataFrame({"age": [30, 40, 50]}), pl.DataFrame({"age": ["30-40", "50"]}), ["age"])
    >>> cover(both.coverages[0], both.released[:, 0]).tolist()
    [[True, True, False], [False, False, True]]
    """
    of, run = ranges(read.start[codes], read.start[np.asarray(codes) + 1])
    change = np.zeros((len(codes), len(read.universe) + 1), dtype=np.int8)
    np.add.at(change, (of, read.first[run]), 1)
    np.add.at(change, (of, read.stop[run]), -1)
    found: NDArray[np.bool_] = np.cumsum(change[:, :-1], axis=1, dtype=np.int8).astype(bool)
    return found


def some_of(members: Records, nonmembers: Records, number: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw some members and some non-members, all if there are no more; return their places in a pairing.

    All of them are in their own order, some in random order. A person is drawn with all records.
    """
    drawn = [
        one.of_people(rng.permutation(one.persons)[:number]) if one.persons > number else np.arange(len(one))
        for one in (members, nonmembers)
    ]
    return drawn[0], len(members) + drawn[1]


def some_known(
    members: Records, nonmembers: Records, number: int, seed: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Draw some members and some non-members, by the one record that is known of each; return places in a pairing."""
    drawn = []
    for one in (members, nonmembers):
        known = one.known(seed)
        drawn.append(known[rng.permutation(len(known))[:number]] if len(known) > number else known)
    return drawn[0], len(members) + drawn[1]


def column_of(target: Any, name: str) -> Column:
    """Return what is publicly known about a column; a released quasi-identifier no longer has its original kind."""
    known = target.schema[name] if name in target.schema.names else Column(name=name)
    kind, domain = (Kind.ORDINAL, known.domain) if known.kind is Kind.ORDINAL else (Kind.AUTO, None)
    return Column(name=name, kind=kind, domain=domain, hierarchy=known.hierarchy)


def _together(name: str, parts: Sequence[pl.Series]) -> pl.Series:
    """Return the values of several tables as one column."""
    types = {part.dtype for part in parts}
    if len(types) == 1:
        return pl.concat(list(parts)).rename(name)
    numbers = {dtype.is_numeric() for dtype in types}
    if len(numbers) > 1:
        raise InputError(
            f"column '{name}' holds numbers in one table and {next(d for d in types if not d.is_numeric())} in another",
            hint="read both tables with the same types",
        )
    common = pl.Float64() if numbers == {True} else pl.String()
    try:
        return pl.concat([part.cast(common) for part in parts]).rename(name)
    except pl.exceptions.PolarsError:
        raise InputError(f"the values of column '{name}' have different types in the tables") from None
