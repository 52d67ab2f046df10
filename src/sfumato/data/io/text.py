"""Read a delimited text file (CSV, TSV) without changing a value.

Type inference never merges two values: a column is numeric only if every value in it is a number, none is written like
a code (``01234`` and ``12E3`` stay texts) and no two of its texts are the same number (``250.0`` and ``250.00`` are
different diagnoses); only spaces around a number or a date are ignored. Types and notations (see `notation`) are
inferred from the whole file, not from its first rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs

from sfumato.data.io.encodings import find_encoding, is_utf8
from sfumato.data.io.files import why
from sfumato.data.io.notation import Cells, Conventions, Meaning, find_cells, is_just_text
from sfumato.data.io.spool import Spool
from sfumato.errors import FileError, OptionError, looks_like_data

__all__ = ["EVERY_FIELD", "SEPARATORS", "TextFile", "check_names", "refuse_record"]

EVERY_FIELD = pl.QueryOptFlags(projection_pushdown=False)
"""Read every column of a text file: if Polars skips columns, it does not notice a line with too many fields."""

_PART = 2**24  # bytes per chunk
SEPARATORS = ",;\t|"
"""The separators that are detected."""
_LOOKED_AT = 100  # records to compare the header with


@dataclass(frozen=True)
class TextFile:
    """A text file in UTF-8, the original or a private copy, whose header has been read."""

    path: Path
    shown: Path
    """The name of the file in messages."""
    names: tuple[str, ...]
    separator: str
    encoding: str
    """The encoding of the original; a copy is in UTF-8."""
    na: tuple[str, ...]
    conventions: Conventions = field(default_factory=Conventions)
    cells: dict[str, Cells] = field(default_factory=dict, compare=False, repr=False)
    """The meaning of the cells of each column that has been read."""
    spool: Spool | None = field(default=None, compare=False, repr=False)
    beginning: bytes = b""
    """The first bytes of the original, which may be a byte order mark."""

    @classmethod
    def open(
        cls,
        path: Path,
        separator: str | None,
        encoding: str | None,
        na: Sequence[str],
        *,
        conventions: Conventions | None = None,
        compression: str | None = None,
        shown: Path | None = None,
    ) -> TextFile:
        """Read the header; detect the encoding and the separator if they are not given."""
        if separator is not None and (len(separator) != 1 or not separator.isascii()):
            raise OptionError(f"the separator must be one ASCII character, got {separator!r}")
        shown = shown or path
        spool = Spool(path) if compression else None
        plain = path if spool is None else spool.expand(compression or "")
        conventions = conventions or Conventions()
        encoding = encoding or find_encoding(plain, shown, content=conventions.inferred)
        with plain.open("rb") as file:
            beginning = file.read(4)
        if not is_utf8(encoding):
            plain = Spool.decode(spool, encoding) if spool else (spool := Spool(shown)).decode(encoding, plain)
        with _open(plain) as lines:
            first = lines.readline()
            if not first.strip():
                raise FileError(f"'{shown}' has no header line" if first else f"'{shown}' is empty")
            if separator is None:
                separator = max(SEPARATORS, key=first.count)
            if first.endswith("\r"):
                raise FileError(
                    f"the lines of '{shown}' end in a carriage return alone", hint="save it with the usual line ends"
                )
            lines.seek(0)
            reader = csv.reader(lines, delimiter=separator)
            names = next(reader)
            if any(map(looks_like_data, names)):
                with suppress(csv.Error):  # reported when the rows are read
                    refuse_record(shown, names, islice(reader, _LOOKED_AT))
        check_names(shown, names)
        conventions = replace(conventions, semicolons=separator == ";")
        return cls(
            plain, shown, tuple(names), separator, encoding, tuple(na), conventions, spool=spool, beginning=beginning
        )

    def read(self, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the named columns, or all of them, with their types."""
        wanted = list(self.names if names is None else names)
        last = self.names[-1]
        texts = self.scan().select(cs.by_name(*dict.fromkeys([*wanted, last])))
        try:
            frame = texts.collect(optimizations=EVERY_FIELD)
        except pl.exceptions.PolarsError as error:
            raise self.read_error(error) from None
        if len(self.names) > 1 and frame[last].has_nulls():  # a short or blank line reads as missing values
            frame = self.without_blank_lines(frame.lazy()).collect()
        return frame.select(self.parse(frame[name]) for name in wanted)

    def parse(self, texts: pl.Series) -> pl.Series:
        """Convert a column of texts, or its distinct texts, to numbers or dates if all of them are."""
        first = next((text for text in islice(texts.drop_nulls(), _LOOKED_AT) if text.strip()), "")
        if self.conventions.inferred and first and is_just_text(first.strip(), self.conventions):
            self.cells[texts.name] = Cells()
            return texts.set(texts == "", None)
        texts, trimmed = self._normalize(texts)
        self.cells[texts.name] = cells = find_cells(trimmed.drop_nulls().unique(), self.conventions)
        return texts if cells.meaning is Meaning.TEXT else cells.read(trimmed)

    def _normalize(self, texts: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the texts with declared notations normalized, and the same without surrounding spaces."""
        texts = texts.set(texts == "", None)  # a quoted empty field is missing, too
        trimmed = texts.str.strip_chars()
        if self.conventions.inferred or not (self.conventions.decimal or self.conventions.dates):
            return texts, trimmed
        rewritten = self.conventions.normalize(trimmed)
        return texts.zip_with(rewritten == trimmed, rewritten), rewritten

    def scan(self, dtypes: dict[str, pl.DataType] | None = None) -> pl.LazyFrame:
        """Return a lazy frame of the fields as they are, as texts or as other types that hold texts.

        A short or blank line reads as missing values; see `blank_lines`. Collect the frame with `EVERY_FIELD`:
        otherwise a line with too many fields is not an error.
        """
        scan = partial(pl.scan_csv, self.path, separator=self.separator, null_values=list(self.na), glob=False)
        theirs = scan(infer_schema=False).collect_schema().names()  # Polars reads quotes in a name differently
        if len(theirs) != len(self.names):
            raise FileError(f"'{self.shown}' has {len(self.names)} names in its header, but {len(theirs)} columns")
        kinds = [(dtypes or {}).get(name, pl.String()) for name in self.names]
        return scan(schema=dict(zip(theirs, kinds, strict=True))).rename(dict(zip(theirs, self.names, strict=True)))

    def without_blank_lines(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Drop the blank lines, which read as rows of missing values."""
        blank = self.blank_lines()
        return rows.with_row_index("").filter(~pl.col("").is_in(blank)).drop("") if blank else rows

    def has_quotes(self) -> bool:
        """Return whether the file contains a quote."""
        with self.path.open("rb") as file:
            return any(b'"' in part for part in iter(lambda: file.read(_PART), b""))

    def expected_rows(self) -> float:
        """Estimate the number of rows from the beginning of the file."""
        with self.path.open("rb") as file:
            beginning = file.read(2**20)
        return max(1.0, beginning.count(b"\n") * self.path.stat().st_size / max(1, len(beginning)))

    def read_error(self, error: pl.exceptions.PolarsError) -> FileError:
        """Return the error that says why the file cannot be read; raise one that names a ragged line."""
        self.blank_lines()
        if "utf-8" not in str(error).lower() and self.has_quotes():
            return FileError(
                f"'{self.shown}' has a quote inside an unquoted field",
                hint='put the field in quotes, and write its own quotes twice: "5"" pipe"',
            )
        return FileError(f"'{self.shown}' cannot be read as text with fields: {why(error)}")

    def blank_lines(self) -> list[int]:
        """Return the rows that are blank lines; refuse a line with too few or too many fields.

        In a file with one column, a blank line is a row with a missing value.
        """
        blank = self._blank_lines_without_quotes()
        blank = self._blank_lines_with_quotes() if blank is None else blank
        return blank if len(self.names) > 1 else []

    def _blank_lines_without_quotes(self) -> list[int] | None:
        """Count the separators of each line, many lines at a time; return None if the file contains quotes."""
        blank: list[int] = []
        row = -1
        for lines in _whole_lines(self.path):
            if b'"' in lines or b"\r" in lines:
                return None
            letters = np.frombuffer(lines, dtype=np.uint8)
            ends = np.flatnonzero(letters == ord("\n"))
            separators = np.searchsorted(np.flatnonzero(letters == ord(self.separator)), ends)
            fields = np.diff(separators, prepend=0) + 1
            is_blank = np.diff(ends, prepend=-1) == 1
            ragged = np.flatnonzero((fields != len(self.names)) & ~is_blank)
            if len(ragged):
                raise self._ragged(row + 2 + int(ragged[0]), int(fields[ragged[0]]))
            blank += (row + np.flatnonzero(is_blank)).tolist()
            row += len(ends)
        return blank

    def _blank_lines_with_quotes(self) -> list[int]:
        blank = []
        limit = csv.field_size_limit(2**31 - 1)
        with _open(self.path) as lines:
            reader = csv.reader(lines, delimiter=self.separator, strict=True)
            try:
                for row, fields in enumerate(reader, start=-1):
                    if not fields:
                        blank.append(row)
                    elif len(fields) != len(self.names):
                        raise self._ragged(reader.line_num, len(fields))
            except csv.Error:
                near = f"near line {reader.line_num}"
                raise FileError(f"'{self.shown}' has a field with unbalanced quotes {near}") from None
            finally:
                csv.field_size_limit(limit)
        return blank

    def _ragged(self, line: int, fields: int) -> FileError:
        return FileError(f"'{self.shown}' is ragged: line {line} has {fields} fields, the header {len(self.names)}")


def refuse_record(path: Path, names: Sequence[str], records: Iterable[Sequence[str | None]]) -> None:
    """Refuse a header that is a record: a name in it looks like data, and a name occurs in its own column."""
    odd = [name for name in names if looks_like_data(name)]
    if not odd or any(odd == [str(first + at) for at in range(len(odd))] for first in (0, 1)):
        return  # programs number columns without names from 0 or 1
    for record in records:
        if any(name and name == value for name, value in zip(names, record, strict=False)):
            raise FileError(
                f"'{path}' seems to have no header line: its first line looks like the others",
                hint="put the names of the columns in the first line",
            )


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse a header with missing or duplicate names; the error quotes none, because they may be data."""
    if not names:
        raise FileError(f"'{path}' is empty")
    first: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if name and first.setdefault(name, position) != position:
            raise FileError(
                f"'{path}' has the same name for columns {first[name]} and {position}",
                hint="rename one of them; does the file have a header line?",
            )
    if "" in names:
        raise FileError(f"'{path}' has no name for column {names.index('') + 1}", hint="complete the header line")


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Read chunks of whole lines, each with its line end."""
    rest = b""
    with path.open("rb") as file:
        while part := file.read(_PART):
            lines = rest + part
            end = lines.rfind(b"\n") + 1
            rest = lines[end:]
            yield lines[:end].replace(b"\r\n", b"\n")
    if rest:
        yield rest + b"\n"


def _open(path: Path) -> io.TextIOWrapper:
    return path.open(encoding="utf-8-sig", newline="")
