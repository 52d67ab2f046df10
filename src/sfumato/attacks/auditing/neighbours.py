"""Neighbours of a table: the same records but for one, which is left out, added or replaced by an awkward one.

If people are protected, neighbours differ by a person: with all of their rows, with many equal ones, or with none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from sfumato.attacks.auditing.canaries import new_people
from sfumato.attacks.people import owners_of
from sfumato.budget.events import Relation
from sfumato.data.table import Table
from sfumato.errors import InputError

__all__ = ["neighbours_of", "neighbours_of_people"]

_OUTLIER = 1e6
_UNSEEN = "a value that no other record has"
_MANY = 50  # rows of a new person: more than a person may have


def neighbours_of(table: Any, relation: Relation, seed: int) -> dict[str, Any]:
    """Return neighbours of a table, frame or array, by a description of how they differ.

    Examples
    --------
    >>> people = pl.DataFrame({"age": [30.0, 40.0], "sex": ["f", "m"]})
    >>> found = neighbours_of(people, Relation.ADD_REMOVE, seed=0)
    >>> found["missing values more, at the end"].rows()[-1], found["a record less, the first"].rows()
    ((None, None), [(40.0, 'm')])
    """
    frame = _frame(table)
    if not len(frame):
        raise InputError("a table without records has no neighbours to replay")
    rng = np.random.default_rng([seed, 0xB0])
    found: dict[str, pl.DataFrame] = {}
    awkward = dict(_awkward(frame, int(rng.integers(len(frame)))))
    if relation is Relation.REPLACE_ONE:
        for name, record in awkward.items():
            at = int(rng.integers(len(frame)))
            found[f"{name} in the place of a record"] = pl.concat([frame[:at], record, frame[at + 1 :]])
    else:
        for name, at in {"the first": 0, "the last": len(frame) - 1, "any": int(rng.integers(len(frame)))}.items():
            found[f"a record less, {name}"] = pl.concat([frame[:at], frame[at + 1 :]])
        for name, record in awkward.items():
            found[f"{name} more, at the end"] = pl.concat([frame, record])
        found["a record more, at the top"] = pl.concat([awkward["a copy of a record"], frame])
    return {name: _like(table, one) for name, one in found.items()}


def neighbours_of_people(table: Any, person: str, seed: int) -> dict[str, Any]:
    """Return neighbours of a table that lack a person, or have one more, by a description.

    Examples
    --------
    >>> visits = pl.DataFrame({"patient": [7, 7, 9], "age": [30.0, 31.0, 40.0]})
    >>> found = neighbours_of_people(visits, "patient", seed=0)
    >>> found["a person less, the first"].rows(), len(found["a person more, with a copy of a record, 50 times"])
    ([(9, 40.0)], 53)
    """
    frame = _frame(table)
    if person not in frame.columns:
        raise InputError(f"the table has no column '{person}' that says which rows are of the same person")
    owners = owners_of(frame[person])
    if not len(owners):
        raise InputError("a table without records has no neighbours to replay")
    rng, found = np.random.default_rng([seed, 0xB0]), dict[str, pl.DataFrame]()
    last = int(owners.max())
    most = int(np.bincount(owners).argmax())
    chosen = {"the first": 0, "the last": last, "the one with most rows": most, "any": int(rng.integers(last + 1))}
    for name, who in chosen.items():
        found[f"a person less, {name}"] = frame.filter(pl.Series(owners != who))
    newcomer = new_people(frame[person], 1)
    for name, record in _awkward(frame, int(rng.integers(len(frame)))):
        one = record.with_columns(newcomer.alias(person)).cast(frame.schema)
        found[f"a person more, with {name}"] = pl.concat([frame, one])
        found[f"a person more, with {name}, {_MANY} times"] = pl.concat([frame, *[one] * _MANY])
    nobody = frame.head(1).with_columns(pl.lit(None).cast(frame.schema[person]).alias(person))
    found["a record of nobody more"] = pl.concat([frame, nobody])
    return {name: _like(table, one) for name, one in found.items()}


def _awkward(frame: pl.DataFrame, at: int) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield a copy of a record, and records that a function of clean tables does not expect."""
    record = frame[at : at + 1]
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    yield "a copy of a record", record
    yield "missing values", record.with_columns(pl.lit(None).cast(kind).alias(n) for n, kind in frame.schema.items())
    if numbers:
        for name, sign in (("a large outlier", 1), ("a large negative outlier", -1)):
            yield name, record.with_columns(_far(frame[one], sign).alias(one) for one in numbers)
    for name, number in (("not-a-number", np.nan), ("infinity", np.inf), ("negative infinity", -np.inf)):
        if floats:
            yield name, record.with_columns(pl.lit(number).cast(frame.schema[one]).alias(one) for one in floats)
    if texts:
        yield "an unseen category", record.with_columns(pl.lit(_UNSEEN).alias(one) for one in texts)


def _far(column: pl.Series, sign: int) -> pl.Expr:
    """Return a number far beyond those of a column, as far as its type allows."""
    known = column.cast(pl.Float64).fill_nan(None).drop_nulls()
    known = known.filter(known.is_finite())
    most = float(known.abs().max() or 1.0) if len(known) else 1.0  # type: ignore[arg-type]
    far = sign * _OUTLIER * max(most, 1.0)
    if column.dtype.is_integer():
        least, largest = (float(pl.select(end).item()) for end in (column.dtype.min(), column.dtype.max()))  # type: ignore[attr-defined]
        far = min(max(far, least / 2), largest / 2)
        return pl.lit(int(far)).cast(column.dtype)
    return pl.lit(far).cast(column.dtype)


def _frame(table: Any) -> pl.DataFrame:
    if isinstance(table, pl.DataFrame):
        return table
    if isinstance(table, np.ndarray):
        if table.ndim not in (1, 2):
            raise InputError(f"only arrays of one or two dimensions have neighbours here, got {table.ndim}")
        flat = table.reshape(len(table), -1)
        return pl.DataFrame({str(at): flat[:, at] for at in range(flat.shape[1])})
    return Table.of(table).to_polars()


def _like(table: Any, frame: pl.DataFrame) -> Any:
    """Return records in the form of the given table."""
    if isinstance(table, pl.DataFrame):
        return frame
    if isinstance(table, np.ndarray):
        whole = table.dtype.kind in "iub"
        values = frame.fill_null(0 if whole else np.nan).to_numpy().astype(table.dtype)
        return values.reshape(-1, *table.shape[1:])
    if isinstance(table, Table):
        return Table(frame, table.schema)
    return frame.to_pandas() if type(table).__module__.startswith("pandas") else frame
