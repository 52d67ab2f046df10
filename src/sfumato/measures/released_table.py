"""Released tables: written to a file, measured on that file, and measured again for verification."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

from sfumato._repr import Discreet
from sfumato.data.certificate import PERSON, UNIT, Certificate, is_regular_file
from sfumato.data.claim import Claim
from sfumato.data.column_audit import accounted
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.dialect import escape_file
from sfumato.data.io.files import format_of
from sfumato.data.io.formulas import refuse_typed
from sfumato.data.io.source import File
from sfumato.data.release import Artifact, Layout
from sfumato.data.schema import Schema
from sfumato.data.table import Table, read, write
from sfumato.errors import ColumnError, FileError, InputError, SfumatoError, one_of
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.verify_table import compare_recipe, verify_table

__all__ = ["Format", "ReleasedTable"]


class Format(StrEnum):
    """The file format of a released table.

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
        """Return the format for the release of a file: CSV for text files, Parquet for all others."""
        if origin is None or "://" in str(origin):
            return cls.PARQUET
        return cls.CSV if format_of(Path(origin)) in ("csv", "tsv", "excel") else cls.PARQUET


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedTable(Artifact, Discreet):
    """A released table with its measurements.

    Attributes
    ----------
    table : the table
    assessment : the measurements; None if no quasi-identifier is named
    of_rows : the measurements of the rows alone, if people were counted by a column that is not released
    """

    kind = "table"
    layout = Layout((Format.CSV.file, Format.PARQUET.file), ("recipe.toml", "report.html"))
    facts = ("order",)
    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "k")

    table: Table
    assessment: Assessment | None
    of_rows: Assessment | None = field(default=None, kw_only=True)

    @property
    def unit(self) -> str:
        """What the guarantees are about: rows, or people."""
        return UNIT if self.assessment is None else self.assessment.unit

    @property
    def public(self) -> Assessment | None:
        """The measurements that anyone can repeat on the release alone."""
        return self.assessment if self.of_rows is None else self.of_rows

    @property
    def schema(self) -> Schema:
        """The columns with the roles by which the claims are measured."""
        return self.table.schema

    @property
    def k(self) -> int | None:
        """The size of the smallest class; None if no quasi-identifier is named."""
        return None if self.assessment is None else self.assessment.k

    @property
    def rows(self) -> int:
        """The number of rows, including suppressed ones."""
        found = self.public
        return self.table.rows if found is None else found.rows + found.suppressed

    @property
    def claims(self) -> dict[str, Any]:
        """The number of rows, and all measured numbers."""
        found = self.public
        if found is None:
            return {"rows": self.rows}
        counts = {"rows": found.rows, "classes": found.classes, "suppressed": found.suppressed}
        return counts | {name: value for name, value in found.numbers().items() if value is not None}

    @property
    def class_loss(self) -> dict[str, Any]:
        """The losses that follow from the classes of the release alone; see `Loss`.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]).class_loss
        {'discernibility': 32, 'average_class': 4.0, 'suppressed': 0.0}
        """
        found = self.public
        if found is None:
            return {}
        squares = sum(size * count for size, count in found.rows_by_class_size.items())
        return {
            "discernibility": squares + self.rows * found.suppressed,
            "average_class": sum(found.rows_by_class_size.values()) / found.classes,
            "suppressed": found.suppressed / self.rows,
        }

    def write(self, path: str | Path, *, escape_formulas: bool = False) -> None:
        """Write only the table to a file, atomically; `sf.save` writes the whole release."""
        write(self.table, path, escape_formulas=escape_formulas)

    def write_into(
        self,
        folder: Path,
        guarantees: tuple[Guarantee, ...],
        *,
        format: Format | str | None = None,
        escape_formulas: bool = False,
        origin: Path | None = None,
        **others: Any,
    ) -> tuple[str, Self]:
        """Write the table as ``table.csv`` or ``table.parquet``, and measure the written file."""
        kind = Format.like(origin or self.table.origin) if format is None else one_of(Format, format, "format")
        path = folder / kind.file
        if self.table.origin == path:  # it has already been written there
            return kind.file, self
        if escape_formulas:
            refuse_typed(kind.file, kind.value)
        self.check_columns()
        source = self.table.source
        if isinstance(source, File) and source.path.suffix == f".{kind.value}":
            shutil.copyfile(source.path, path)
        else:
            write(self.table, path)
        if escape_formulas:
            escape_file(path)
        table = Table(read(path).source, self.table.schema)
        found = self._measure(table, guarantees, kind)
        return kind.file, replace(self, table=table, **{"assessment" if self.of_rows is None else "of_rows": found})

    def check_columns(self) -> None:
        """Refuse identifiers, and columns that look like one but were not marked as kept."""
        self.refuse_identifiers()
        accounted(self.table)

    def refuse_identifiers(self) -> None:
        """Refuse columns that are declared as identifiers."""
        named = [name for name in self.table.schema.identifiers if name != self.table.schema.person]
        if named:
            raise ColumnError(
                f"column '{named[0]}' is an identifier, which a release must not hold",
                hint="leave it out of the table, or replace it with pseudonymize",
            )

    def _measure(self, table: Table, guarantees: tuple[Guarantee, ...], kind: Format) -> Assessment | None:
        """Measure the written file, because a text file may read back differently."""
        if self.assessment is None:
            return None
        asked = [one for one in guarantees if isinstance(one, ClassGuarantee)] if self.of_rows is None else []
        found = measure(table, require=asked)
        if found.verdict is not None and not found.verdict:
            raise InputError(
                f"read back from {kind.value}, the release does not keep {found.verdict.failed}",
                hint="a text file loses types and empty texts: save it as parquet",
            )
        return found if found.unit == PERSON else replace(found, people=self.assessment.people)

    @classmethod
    def read(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None = None
    ) -> ReleasedTable:
        """Read the table of a release with the schema of its certificate, and measure it."""
        if not is_regular_file(folder / certificate.data):
            raise FileError(f"'{certificate.data}' is missing, or not a regular file")
        table = Table(read(folder / certificate.data).source, certificate.schema)
        asked = [Guarantee.from_dict(one) for one in certificate.guarantees]
        classes = [one for one in asked if isinstance(one, ClassGuarantee)]
        hidden = certificate.unit == PERSON and certificate.schema.person is None
        claimed = classes or certificate.claims.keys() - {"rows"}  # masked tables claim nothing about their classes
        found = measure(table, require=[] if hidden else classes, progress=progress) if claimed else None
        return LoadedTable(table, found, certificate.loss, certificate.unit)

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Measure the table again, and compare the certificate with the recipe; unreadable data proves nothing."""
        try:
            released = cls.read(folder, certificate, progress)
            _ = released.rows
        except SfumatoError as error:
            yield Claim("the data can be measured", False, str(error).partition("\n")[0])
            yield from compare_recipe(folder, certificate, None)
            return
        yield from verify_table(released, folder, certificate)

    def described(self) -> dict[str, str]:
        """Return a description of how each column was changed, for a page."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain values."""
        return {
            "rows": self.rows,
            "assessment": None if self.assessment is None else self.assessment.to_dict(),
            "kept": {} if self.assessment is None else self.assessment.kept,
        }


@dataclass(frozen=True, eq=False, repr=False)
class LoadedTable(ReleasedTable):
    """A released table that was read from its folder, with the loss that its certificate states."""

    stated_loss: dict[str, Any]
    stated_unit: str = UNIT

    @property
    def unit(self) -> str:
        """What the guarantees are about, as stated."""
        return self.stated_unit

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The stated loss; the part that follows from the classes is measured again."""
        return self.stated_loss | self.class_loss

    def check_columns(self) -> None:
        """Refuse identifiers; columns that only look like one were judged with the original at hand."""
        self.refuse_identifiers()
