"""What every engine can do: count, count jointly, and recode.

Everything the classical privacy models need from a table is how often each combination of
quasi-identifiers and sensitive values occurs. An engine counts them where the rows are and hands
over the distinct tuples; whatever is decided on these is applied to the rows by the same engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.table import Table
from sfumato.engines.tuples import Tuples
from sfumato.errors import InputError

__all__ = ["Engine", "Progress", "Recoding", "is_spark"]

Progress = Callable[[float], None]
"""What is told, now and then, which share of the rows has been counted."""


@dataclass(frozen=True, eq=False, repr=False)
class Recoding(Discreet):
    """What each distinct tuple of some columns becomes.

    Parameters
    ----------
    tuples : Tuples
        The tuples as an engine has counted them.
    values : sequence of Polars series
        New values of each column; a column without a series stays as it is.
    group : integer array, optional
        Which of the values each tuple gets; its own by default, then there is one for each tuple.
    without : sequence of str
        Columns that are left out.
    shuffle : bool
        Whether the rows come out in a random order: of a Parquet file that is written, of a DuckDB relation, of a Spark
        frame, and in a new table of a database. Frames in memory keep their order.

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
        """The columns that decide."""
        return tuple(domain.name for domain in self.tuples.domains)

    def look_up(self, before: str = "before ", after: str = "after ") -> pl.DataFrame:
        """Return a frame with a row per tuple: its values, and what they become."""
        codes = self.tuples.codes
        old = [
            domain.values.gather(codes[:, position]).alias(before + domain.name)
            for position, domain in enumerate(self.tuples.domains)
        ]
        new = [series.gather(self.group).alias(after + series.name) for series in self.values]
        return pl.DataFrame([*old, *new])


class Engine(ABC):
    """Where the rows of a table are counted and recoded."""

    name: ClassVar[str]

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
        """Replace every tuple by what it becomes.

        The result is a table of the same kind; with ``to`` it is written there (a file, or a new
        table of the database) and nothing is left of it if that fails.
        """

    def names_a_table(self, to: str | Path | None) -> bool:
        """Say whether this engine would make a new table of this name, rather than write a file."""
        return False


def is_spark(table: Table) -> bool:
    """Say whether the table is a Spark frame, without loading Spark.

    Examples
    --------
    >>> import sfumato as sf
    >>> is_spark(sf.read("patients.csv"))
    False
    """
    return type(nw.to_native(table.source, pass_through=True)).__module__.startswith("pyspark.")
