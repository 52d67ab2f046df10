"""How the data of a release is stored in its folder, and what its page is called."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from sfumato.data.io.files import format_of

__all__ = ["REPORT", "Format"]

REPORT = "report.html"


class Format(StrEnum):
    """How the data of a release is stored.

    Examples
    --------
    >>> Format("csv").file, Format.like("patients.csv")
    ('table.csv', <Format.CSV: 'csv'>)
    """

    CSV = "csv"
    PARQUET = "parquet"

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"table.{self.value}"

    @classmethod
    def like(cls, origin: str | Path | None) -> Format:
        """Return the format for the release of a file: text for texts, and Parquet for all else."""
        if origin is None or "://" in str(origin):
            return cls.PARQUET
        return cls.CSV if format_of(Path(origin)) in ("csv", "tsv", "excel") else cls.PARQUET
