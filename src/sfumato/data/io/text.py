"""Read a text file with fields (CSV, TSV) without changing a value.

The types are found by rules that merge no two values: a column is a number only if every value
in it is one, none is written like a code (``01234`` and ``12E3`` stay texts) and no two of its
texts are the same number (``250.0`` and ``250.00`` are different diagnoses); only blanks around a
number or a date do not count. The whole file decides, not its first rows; how numbers and dates are
written is found, too (see `notation`).
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
from sfumato.data.io.notation import Cells, Habits, Meaning, find_cells, is_just_text
from sfumato.data.io.spool import Spool
from sfumato.errors import FileError, OptionError, looks_like_data

__all__ = ["EVERY_FIELD", "SEPARATORS", "TextFile", "check_names", "refuse_record"]

EVERY_FIELD = pl.QueryOptFlags(projection_pushdown=False)
"""How to read a text file: Polars does not notice a line with too many fields if it skips columns."""

_PART = 2**24  # bytes that are looked at together
SEPARATORS = ",;\t|"
"""What may separate fields without being declared."""
_LOOKED_AT = 100  # records that tell whether the header is one, too


@dataclass(frozen=True)
class TextFile:
    """A text file of which the header has been read, in UTF-8: the file itself, or a private copy of it."""

    path: Path
    shown: Path
    """What it is called in messages."""
    names: tuple[str, ...]
    separator: str
    encoding: str
    """That of the file; the copy is in UTF-8."""
    na: tuple[str, ...]
    habits: Habits = field(default_factory=Habits)
    found: dict[str, Cells] = field(default_factory=dict, compare=False, repr=False)
    """What the cells of each column mean that has been read."""
    spool: Spool | None = field(default=None, compare=False, repr=False)
    beginning: bytes = b""
    """The first bytes of the file, where a byte order mark may be."""

    @classmethod
    def open(
        cls,
        path: Path,
        separator: str | None,
        encoding: str | None,
        na: Sequence[str],
        *,
        habits: Habits | None = None,
        compression: str | None = None,
        shown: Path | None = None,
    ) -> TextFile:
        """Read the header; find the encoding and the separator if none is given."""
        if separator is not None and (len(separator) != 1 or not separator.isascii()):
            raise OptionError(f"the separator must be one ASCII character, got {separator!r}")
        shown = shown or path
        spool = Spool(path) if compression else None
        plain = path if spool is None else spool.expand(compression or "")
        habits = habits or Habits()
        encoding = encoding or find_encoding(plain, shown, content=habits.inferred)
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
                with suppress(csv.Error):  # which is said when all is read
                    refuse_record(shown, names, islice(reader, _LOOKED_AT))
        check_names(shown, names)
        habits = replace(habits, semicolons=separator == ";")
        return cls(plain, shown, tuple(names), separator, encoding, tuple(na), habits, spool=spool, beginning=beginning)

    def read(self, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the named columns, or all of them, with their types."""
        wanted = list(self.names if names is None else names)
        last = self.names[-1]
        texts = self.scan().select(cs.by_name(*dict.fromkeys([*wanted, last])))
        try:
            frame = texts.collect(optimizations=EVERY_FIELD)
        except pl.exceptions.PolarsError as error:
            raise self.trouble(error) from None
        if (
            len(self.names) > 1 and frame[last].has_nulls()
        ):  # a short or blank line reads as missing values: look closer
            blank = self.blank_lines()
            if blank:
                frame = frame.with_row_index("").filter(~pl.col("").is_in(blank)).drop("")
        return frame.select(self.typed(frame[name]) for name in wanted)

    def typed(self, texts: pl.Series) -> pl.Series:
        """Turn a whole column of texts, or its distinct ones, into numbers or dates if that is what they are."""
        first = next((text for text in islice(texts.drop_nulls(), _LOOKED_AT) if text.strip()), "")
        if self.habits.inferred and first and is_just_text(first.strip(), self.habits):
            self.found[texts.name] = Cells()
            return texts.set(texts == "", None)
        texts, trimmed = self._prepared(texts)
        self.found[texts.name] = cells = find_cells(trimmed.drop_nulls().unique(), self.habits)
        return texts if cells.meaning is Meaning.TEXT else cells.read(trimmed)

    def read_as(self, cells: Cells, texts: pl.Series) -> pl.Series:
        """Read some texts of a column as what the whole column means."""
        texts, trimmed = self._prepared(texts)
        return texts if cells.meaning is Meaning.TEXT else cells.read(trimmed)

    def _prepared(self, texts: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return texts as they stand if they mean nothing else, and without the blanks around them."""
        texts = texts.set(texts == "", None)  # a quoted empty field is missing, too
        trimmed = texts.str.strip_chars()
        if self.habits.inferred or not (self.habits.decimal or self.habits.dates):
            return texts, trimmed
        rewritten = self.habits.rewritten(trimmed)
        return texts.zip_with(rewritten == trimmed, rewritten), rewritten

    def scan(self, dtypes: dict[str, pl.DataType] | None = None) -> pl.LazyFrame:
        """Return what reads the fields as they are, as texts or as other types that hold texts.

        A short or blank line reads as missing values: `blank_lines` tells. Collect it with
        `EVERY_FIELD`, so that a long line is an error.
        """
        scan = partial(pl.scan_csv, self.path, separator=self.separator, null_values=list(self.na), glob=False)
        theirs = scan(infer_schema=False).collect_schema().names()  # Polars reads quotes in a name differently
        if len(theirs) != len(self.names):
            raise FileError(f"'{self.shown}' has {len(self.names)} names in its header, but {len(theirs)} columns")
        kinds = [(dtypes or {}).get(name, pl.String()) for name in self.names]
        return scan(schema=dict(zip(theirs, kinds, strict=True))).rename(dict(zip(theirs, self.names, strict=True)))

    def without_blank_lines(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Leave out the blank lines, which read as rows that miss everything."""
        blank = self.blank_lines()
        return rows.with_row_index("").filter(~pl.col("").is_in(blank)).drop("") if blank else rows

    def has_quotes(self) -> bool:
        """Say whether there is a quote anywhere in the file."""
        with self.path.open("rb") as file:
            return any(b'"' in part for part in iter(lambda: file.read(_PART), b""))

    def expected_rows(self) -> float:
        """Estimate from its beginning how many rows the file has."""
        with self.path.open("rb") as file:
            beginning = file.read(2**20)
        return max(1.0, beginning.count(b"\n") * self.path.stat().st_size / max(1, len(beginning)))

    def trouble(self, error: pl.exceptions.PolarsError) -> FileError:
        """Say why the fields cannot be read; a line with too few or too many of them is named."""
        self.blank_lines()
        if "utf-8" not in str(error).lower() and self.has_quotes():
            return FileError(
                f"'{self.shown}' has a quote within a field that is not quoted",
                hint='put the field in quotes, and write its own quotes twice: "5"" pipe"',
            )
        return FileError(f"'{self.shown}' cannot be read as text with fields: {why(error)}")

    def blank_lines(self) -> list[int]:
        """Return the rows that are blank lines; refuse a line with too few or too many fields.

        The blank lines of a file with one column are rows in which it is missing.
        """
        blank = self._blank_lines_without_quotes()
        blank = self._blank_lines_with_quotes() if blank is None else blank
        return blank if len(self.names) > 1 else []

    def _blank_lines_without_quotes(self) -> list[int] | None:
        """Count the separators of each line, many lines at a time; None if there are quotes, which may hide some."""
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
    """Refuse a header that is a record: one of its names looks like data, and one is a value in its own column."""
    odd = [name for name in names if looks_like_data(name)]
    if not odd or _are_positions(odd):
        return
    for record in records:
        if any(name and name == value for name, value in zip(names, record, strict=False)):
            raise FileError(
                f"'{path}' seems to have no header line: its first line is like those below it",
                hint="put the names of the columns in the first line",
            )


def _are_positions(names: Sequence[str]) -> bool:
    """Say whether names count from 0 or 1, as programs write them that know of no names."""
    return any(list(names) == [str(first + at) for at in range(len(names))] for first in (0, 1))


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse a header without names, or with one twice; none is quoted, for it may be a record."""
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
    """Read some whole lines at a time, each with its end."""
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
