"""The interface of all engines: count values, count tuples, and recode rows.

All that the classical privacy models need from a table is the count of each combination of quasi-identifiers and
sensitive values. An engine counts the combinations where the rows are and returns the distinct tuples. An algorithm
decides on a recoding of the tuples, and the same engine applies it to the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.table import Table
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError, OptionError

__all__ = ["Counted", "Engine", "Progress", "Recoding", "is_spark", "native", "polars_panics"]

Progress = Callable[[float], None]
"""A progress callback; its argument is the fraction of the rows that has been processed."""

_HERE = "a file or a frame in memory"
_ELSEWHERE = {"DuckDBPyRelation": "a DuckDB relation", "Database": "a table of a database"}


@dataclass(frozen=True, eq=False, repr=False)
class Recoding(Discreet):
    """The new values for each distinct tuple of some columns.

    Parameters
    ----------
    tuples : Tuples
        The tuples that an engine counted.
    values : sequence of Polars series
        The new values of each column; a column without a series stays unchanged.
    group : integer array, optional
        For each tuple, the position of its new values. By default each tuple has its own.
    without : sequence of str
        Columns to leave out.
    shuffle : bool
        Whether to shuffle the rows of a written Parquet file, a DuckDB relation, a Spark frame, or a new table of a
        database. Frames in memory keep their order.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines import recode, reduce
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "m", "f"], "age": [30, 41, 32]}))
    >>> tuples = reduce(table, ["age"])
    >>> recode(table, Recoding(tuples, [pl.Series("age", ["30-39", "30-39", "40-49"])])).frame["age"].to_list()
    ['30-39', '40-49', '30-39']
    """

    tuples: Tuples
    values: tuple[pl.Series, ...]
    group: NDArray[np.int64]
    without: tuple[str, ...]
    shuffle: bool

    def __init__(
        self,
        tuples: Tuples,
        values: Sequence[pl.Series],
        group: NDArray[np.int64] | None = None,
        without: Sequence[str] = (),
        *,
        shuffle: bool = False,
    ) -> None:
        group = np.arange(len(tuples.count)) if group is None else group
        object.__setattr__(self, "tuples", tuples)
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "without", tuple(without))
        object.__setattr__(self, "shuffle", shuffle)
        groups = int(group.max()) + 1 if len(group) else 0
        if len(group) != len(tuples.count):
            raise InputError(f"the recoding has {len(group):,} groups for {len(tuples.count):,} tuples")
        for series in self.values:
            if series.name not in tuples.position:
                raise InputError(f"the recoding has values for '{series.name}', which is not among its columns")
            if len(series) < groups:
                raise InputError(f"the recoding of '{series.name}' has {len(series):,} values for {groups:,} tuples")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the tuples."""
        return tuple(domain.name for domain in self.tuples.domains)

    def look_up(self, before: str = "before ", after: str = "after ") -> pl.DataFrame:
        """Return a frame with a row per tuple: its old and its new values."""
        codes = self.tuples.codes
        old = [
            domain.values.gather(codes[:, position]).alias(before + domain.name)
            for position, domain in enumerate(self.tuples.domains)
        ]
        new = [series.gather(self.group).alias(after + series.name) for series in self.values]
        return pl.DataFrame([*old, *new])


class Engine(ABC):
    """An engine counts and recodes the rows of a table where they are; it never moves them."""

    name: ClassVar[str]
    counts: ClassVar[str]
    """The tables that it counts."""

    @abstractmethod
    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""

    def count(self, table: Table, name: str, progress: Progress | None = None) -> Tuples:
        """Count how often each value of one column occurs."""
        return self.joint_count(table, [name], progress)

    @abstractmethod
    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values.

        The result is a table of the same kind. With ``to`` it is written there (a file, or a new
        table of the database), completely or not at all.
        """

    def names_a_table(self, to: str | Path | None) -> bool:
        """Return whether this engine would create a table of this name instead of a file."""
        return False

    def refusal(self, table: Table) -> OptionError:
        """Return the error for a table whose rows are elsewhere."""
        kind = "a Spark frame" if is_spark(table) else _ELSEWHERE.get(type(native(table)).__name__, _HERE)
        return OptionError(
            f"the engine {self.name} counts {self.counts}, and this table is {kind}",
            hint=f"pass {self.counts}, or omit the engine: rows are counted where they are",
        )


def native(table: Table) -> Any:
    """Return the native frame of a table, or the source of its rows."""
    return nw.to_native(table.source, pass_through=True)


def is_spark(table: Table) -> bool:
    """Say whether the table is a Spark frame, without loading Spark.

    Examples
    --------
    >>> import sfumato as sf
    >>> is_spark(sf.read("patients.csv"))
    False
    """
    return type(native(table)).__module__.startswith("pyspark.")


@contextmanager
def polars_panics() -> Iterator[None]:
    """Turn a panic of Polars, which ``except Exception`` does not catch, into an `InputError`."""
    try:
        yield
    except pl.exceptions.PanicException:
        raise InputError(
            "the table holds values that cannot be counted",
            hint="check that its types are plain and its timestamps finite",
        ) from None


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Discreet, Engine):
    """An engine that returns counts of another engine, to avoid counting twice.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.read("patients.csv")
    >>> sf.assess(table, qi=["sex"], engine=Counted(reduce(table, ["sex"]))).k
    3
    """

    tuples: Tuples

    name: ClassVar[str] = "counted"
    counts: ClassVar[str] = "nothing"

    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Return the tuples; refuse any columns but theirs."""
        if list(names) != [domain.name for domain in self.tuples.domains]:
            raise OptionError("the counted columns are not the requested ones")
        return self.tuples

    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Refuse, because there are no rows here."""
        raise OptionError("a table that was counted elsewhere must be recoded there")
