"""How likely an attacker is to find a person's row.

A prosecutor knows that a person is in the table and knows the quasi-identifiers: the chance
of picking the right row is one in the size of the class.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sfumato.measures.counts import ClassCounts

__all__ = ["Risk", "risk"]


@dataclass(frozen=True)
class Risk:
    """The chance that an attacker who knows a person's quasi-identifiers picks the person's row."""

    prosecutor_max: float
    """For the person at most risk."""
    prosecutor_mean: float
    """For the average person."""
    uniques: int
    """The number of rows that are alone in their class."""

    def to_dict(self) -> dict[str, float]:
        """Return the risks as plain values."""
        return asdict(self)


def risk(counts: ClassCounts) -> Risk:
    """Measure the re-identification risk of every row.

    Examples
    --------
    >>> import sfumato as sf
    >>> import polars as pl
    >>> from sfumato.engines.memory import reduce
    >>> from sfumato.measures.counts import class_counts
    >>> table = sf.Table(pl.DataFrame({"sex": ["f", "f", "f", "m"]}))
    >>> risk(class_counts(reduce(table, ["sex"]), ["sex"], None))
    Risk(prosecutor_max=1.0, prosecutor_mean=0.5, uniques=1)
    """
    return Risk(
        prosecutor_max=float(1 / counts.size.min()),
        prosecutor_mean=float((counts.records / counts.size).sum() / counts.rows),
        uniques=int(counts.records[counts.size == 1].sum()),
    )
