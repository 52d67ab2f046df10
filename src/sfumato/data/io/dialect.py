"""Write a table in the format of its original text file: separator, quotes, line ends, encoding, numbers and dates.

Values from the file get their original texts back, which keeps trailing zeros and date formats; new values are
written in the notation of their column. The output must mean the same when it is read without any option: a column,
or a file, for which that fails is written in program notation.

If the rows must not decide how the file is read (`File.inferred` is False, as for private functions), they do not
decide how others are written either: only what is declared and the header count.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.io.encodings import encoding_of, is_utf8
from sfumato.data.io.files import format_of, write_bytes
from sfumato.data.io.formulas import escape_cells, refuse_typed
from sfumato.data.io.notation import Conventions, Meaning, find_cells
from sfumato.data.io.source import File, column
from sfumato.data.io.text import EVERY_FIELD, SEPARATORS, TextFile
from sfumato.errors import FileError

__all__ = ["Fields", "encode_like", "escape_file", "write_as_read"]

_MARKS = {
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF32_LE: "utf-32-le",
}
_BEGINNING = 2**16
_QUOTE, _LINE, _RETURN = ord('"'), ord("\n"), ord("\r")


class _Quotes(StrEnum):
    """The fields that are in quotes."""

    NEEDED = "needed"
    TEXTS = "texts"
    ALL = "all"


def write_as_read(frame: pl.DataFrame, file: File, path: str | Path, *, escape_formulas: bool = False) -> None:
    """Write a frame to a text file in the format of the file that its values are from.

    Examples
    --------
    >>> _ = Path("labs.csv").write_bytes(b"day;hba1c\\r\\n31.12.1980;7,50\\r\\n01.02.1990;6,10\\r\\n")
    >>> file = File(Path("labs.csv"))
    >>> write_as_read(file.read().reverse(), file, "out.csv")
    >>> Path("out.csv").read_bytes()
    b'day;hba1c\\r\\n01.02.1990;6,10\\r\\n31.12.1980;7,50\\r\\n'
    """
    text = file.text
    separator = text.separator
    if format_of(Path(path)) == "tsv":
        separator = "\t"
    elif max(SEPARATORS, key=separator.join(frame.columns).count) != separator:  # it would not be detected
        separator = ","
    if file.inferred:
        known = [name for name in frame.columns if name in text.cells and text.cells[name].meaning in _FORMATTED]
        with file.reading():
            originals = text.scan().select(map(column, known)).collect(optimizations=EVERY_FIELD)
        columns = _columns(frame, text, originals, separator)
    else:
        columns = _columns(frame, text, None, separator)
    if columns is None:  # where semicolons separate fields, a point may separate thousands
        separator, columns = ",", [_to_texts(values) for values in frame]
    texts = pl.DataFrame(columns)
    if escape_formulas:
        refuse_typed(path, format_of(Path(path)))
        texts = escape_cells(texts.lazy()).collect()
    style = _Format.of(text) if file.inferred else _Format.of_header(text)
    _write(texts, Path(path), text, separator, _numbers(frame), style)


def escape_file(path: str | Path) -> None:
    """Escape the formulas in a CSV or TSV file (see `escape_cells`) and leave the rest unchanged."""
    refuse_typed(path, format_of(Path(path)))
    file = File(Path(path))
    with file.reading():
        numbers, text = _numbers(file.read()), file.text
        rows = text.without_blank_lines(text.scan()).select(map(column, text.names))
        texts = rows.collect(optimizations=EVERY_FIELD)
    _write(escape_cells(texts.lazy()).collect(), Path(path), text, text.separator, numbers, _Format.of(text))


def _numbers(frame: pl.DataFrame) -> list[str]:
    return [values.name for values in frame if values.dtype.is_numeric()]


def _columns(
    frame: pl.DataFrame, text: TextFile, originals: pl.DataFrame | None, separator: str
) -> list[pl.Series] | None:
    """Return the columns as texts that read back as the same values; None if that is impossible.

    Without the original texts, what is declared about the file decides how they are written.
    """
    conventions = Conventions(semicolons=separator == ";")
    columns = []
    for values in frame:
        known = originals is not None and values.name in originals.columns
        if originals is None:
            texts = _to_texts(text.conventions.write(values))
        else:
            texts = _original_texts(values, text, originals[values.name]) if known else _to_texts(values)
        is_sure = known and text.cells[values.name].is_plain and not conventions.semicolons
        if not is_sure and not _reads_back(texts, values, conventions):
            texts = _to_texts(values)
            if conventions.semicolons and not _reads_back(texts, values, conventions):
                return None
        columns.append(texts)
    return columns


_FORMATTED = (Meaning.NUMBER, Meaning.DATE, Meaning.MOMENT)  # integers have only one notation


def _original_texts(values: pl.Series, text: TextFile, originals: pl.Series) -> pl.Series:
    """Return the texts of the values in the file; write new values in the notation of the column."""
    cells = text.cells[values.name]
    distinct = originals.str.strip_chars().drop_nulls().unique()
    meant = cells.read(distinct)
    if meant.dtype != values.dtype:  # the column was recoded to another type
        return _to_texts(values)
    look_up = pl.DataFrame({"value": meant, "text": distinct})
    found = values.rename("value").to_frame().join(look_up, on="value", how="left", maintain_order="left")["text"]
    new = found.is_null() & values.is_not_null()
    if new.any():
        found = found.zip_with(~new, _to_texts(cells.notation.format(values)))
    return found.rename(values.name)


def _to_texts(values: pl.Series) -> pl.Series:
    """Write values in program notation."""
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.to_string("%Y-%m-%d %H:%M:%S%.f")
    return values.cast(pl.String)


def _reads_back(texts: pl.Series, values: pl.Series, conventions: Conventions) -> bool:
    """Return whether the texts of numbers and dates read back as the same values."""
    if not (values.dtype.is_float() or isinstance(values.dtype, pl.Date | pl.Datetime)):
        return True
    distinct = texts.drop_nulls().unique()
    cells = find_cells(distinct, conventions)
    if distinct.is_empty() or cells.meaning is Meaning.TEXT:
        return distinct.is_empty()
    read = cells.read(texts)
    return read.dtype == values.dtype and bool(read.equals(values))


def _write(
    texts: pl.DataFrame, path: Path, text: TextFile, separator: str, numbers: Sequence[str], style: _Format
) -> None:
    """Write texts with the quotes, line ends and encoding of a file."""
    lines = io.BytesIO()
    header = pl.DataFrame([pl.Series(name, [name]) for name in texts.columns])
    unquoted = set(numbers) if style.quotes is _Quotes.TEXTS else set()
    for part in (header, texts):
        fields = [_quoted(one, style.quotes, separator, part is texts and one.name in unquoted) for one in part]
        pl.DataFrame(fields).write_csv(
            lines,
            separator=separator,
            line_terminator=style.line_end,
            quote_style="never",
            include_header=False,
        )
    content = lines.getvalue()
    try:
        other = encode_like(style.mark + content, text)
        found = encoding_of(other)
        if found is not None and other.decode(found).removeprefix("\ufeff") == content.decode():
            write_bytes(other, path)
            return
    except FileError:  # a label has letters that the encoding of the file lacks
        pass
    write_bytes(content, path)


def _quoted(texts: pl.Series, quotes: _Quotes, separator: str, is_number: bool) -> pl.Series:
    needed = None
    if quotes is _Quotes.NEEDED:
        needed = texts.str.contains(rf'["\r\n{re.escape(separator)}]|^$')
    if is_number or (needed is not None and not needed.any()):
        return texts
    quoted = ('"' + texts.str.replace_all('"', '""', literal=True) + '"').alias(texts.name)
    if needed is not None:
        return quoted.zip_with(needed.fill_null(False), texts)
    return quoted.fill_null('""') if quotes is _Quotes.ALL else quoted


@dataclass(frozen=True)
class _Format:
    """The quotes, line ends and byte order mark of a text file."""

    quotes: _Quotes = _Quotes.NEEDED
    line_end: str = "\n"
    mark: bytes = b""

    @classmethod
    def of_header(cls, text: TextFile) -> _Format:
        """Return the line end and byte order mark of the header, which is public; quotes where they are needed."""
        with text.path.open("rb") as file:
            first = file.readline(_BEGINNING)
        mark = codecs.BOM_UTF8 if first.startswith(codecs.BOM_UTF8) else b""
        return cls(_Quotes.NEEDED, "\r\n" if first.endswith(b"\r\n") else "\n", mark)

    @classmethod
    def of(cls, text: TextFile) -> _Format:
        fields = Fields.at_the_top(text)
        if fields is None:
            return cls()
        line_end = "\r\n" if b"\r\n" in fields.content[: int(fields.end[0, -1]) + 2] else "\n"
        mark = "\ufeff".encode() if fields.content.startswith("\ufeff".encode()) else b""
        quoted, there = fields.are_quoted(slice(None)), fields.end > fields.start
        if quoted[there].all():
            return cls(_Quotes.ALL, line_end, mark)
        is_number = [
            name in text.cells and text.cells[name].meaning in (Meaning.NUMBER, Meaning.WHOLE) for name in text.names
        ]
        texts = [at for at, number in enumerate(is_number) if not number]
        if quoted[0].all() and quoted[1:, texts][there[1:, texts]].all():
            return cls(_Quotes.TEXTS, line_end, mark)
        return cls(_Quotes.NEEDED, line_end, mark)


@dataclass(frozen=True, eq=False)
class Fields:
    """The byte offsets of the fields of a text file, to replace some and leave every other byte unchanged.

    Row ``i`` has the fields of record ``i``; the header is record 0.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("t.csv").write_bytes(b'id;n\\r\\n"7";1,50\\r\\n\\r\\n8;2\\r\\n')
    >>> fields = Fields.of(File(Path("t.csv")).text)
    >>> fields.replace({"id": lambda text: f"<{text}>"})
    b'id;n\\r\\n"<7>";1,50\\r\\n\\r\\n<8>;2\\r\\n'
    """

    content: bytes
    names: tuple[str, ...]
    separator: str
    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def at_the_top(cls, text: TextFile) -> Fields | None:
        """Find the fields of the first lines; return None if quotes make them irregular."""
        with text.path.open("rb") as file:
            content = file.read(_BEGINNING)
        content = content[: content.rfind(b"\n") + 1]
        start, end = _spans(content, ord(text.separator), len(text.names)) if content else (None, None)
        return None if start is None or end is None else cls(content, text.names, text.separator, start, end)

    @classmethod
    def of(cls, text: TextFile) -> Fields:
        """Find the fields of a file that was read without an error."""
        content = text.path.read_bytes()
        start, end = _spans(content, ord(text.separator), len(text.names))
        if start is None or end is None:
            raise FileError(
                f"'{text.shown}' has quotes that do not enclose whole fields",
                hint='put the field in quotes, and write its own quotes twice: "5"" pipe"',
            )
        return cls(content, text.names, text.separator, start, end)

    def replace(self, new: Mapping[str, Callable[[str], str]]) -> bytes:
        """Return the file with each field of some columns replaced by the result of that column's function."""
        content, at = self.content, 0
        parts: list[bytes] = []
        columns = sorted((self.names.index(name), name) for name in new)
        known: dict[str, dict[bytes, bytes]] = {name: {} for name in new}
        spans = [
            (known[name], new[name], self.start[1:, place].tolist(), self.end[1:, place].tolist())
            for place, name in columns
        ]
        for row in range(len(self.start) - 1):
            for became, make, start, end in spans:
                field = content[start[row] : end[row]]
                put = became.get(field)
                if put is None:
                    put = became[field] = _field(field, make, self.separator)
                if put != field:
                    parts += (content[at : start[row]], put)
                    at = end[row]
        parts.append(content[at:])
        return b"".join(parts)

    def are_quoted(self, rows: slice) -> NDArray[np.bool_]:
        """Return a mask of the fields that are in quotes."""
        start, end = self.start[rows], self.end[rows]
        letters = np.frombuffer(self.content, dtype=np.uint8)
        quoted: NDArray[np.bool_] = (end > start) & (letters[np.minimum(start, len(letters) - 1)] == _QUOTE)
        return quoted


def encode_like(content: bytes, text: TextFile) -> bytes:
    """Return UTF-8 content in the encoding of a file, with the same byte order mark."""
    if is_utf8(text.encoding):
        return content
    try:
        plain = content.decode()
        for mark, encoding in _MARKS.items():
            if text.encoding == encoding.rpartition("-")[0] and text.beginning.startswith(mark):
                return mark + plain.encode(encoding)
        return plain.encode(text.encoding)
    except UnicodeError:
        raise FileError(
            f"the output has characters that the encoding of '{text.shown}', {text.encoding}, lacks",
            hint="write .parquet, or save the file as UTF-8 first",
        ) from None


def _spans(
    content: bytes, separator: int, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | tuple[None, None]:
    """Return where the fields begin and end; None if the records differ in their number of fields."""
    letters = np.frombuffer(content, dtype=np.uint8)
    is_end = (letters == separator) | (letters == _LINE)
    if b'"' in content:
        is_end &= (np.cumsum(letters == _QUOTE, dtype=np.uint8) & 1) == 0  # its parity survives an overflow
    end = np.flatnonzero(is_end)
    if not content.endswith(b"\n"):
        end = np.append(end, len(content))
    start = np.append(0, end[:-1] + 1)
    if content.startswith(codecs.BOM_UTF8):
        start[0] = len(codecs.BOM_UTF8)
    last = np.append(letters[end[:-1]] == _LINE, True)
    before = letters[np.maximum(end - 1, 0)]
    trimmed = end - (last & (end > start) & (before == _RETURN))
    if width > 1:  # a blank line is not a record
        kept = ~(last & np.append(True, last[:-1]) & (start == trimmed))
        start, trimmed, last = start[kept], trimmed[kept], last[kept]
    if len(start) % width or not last[width - 1 :: width].all() or last.sum() * width != len(start):
        return None, None
    return start.reshape(-1, width), trimmed.reshape(-1, width)


def _field(field: bytes, make: Callable[[str], str], separator: str) -> bytes:
    """Return the new field, in quotes if the old one was or the new text needs them."""
    quoted = field.startswith(b'"')
    text = field[1:-1].replace(b'""', b'"').decode() if quoted else field.decode()
    new = make(text)
    if new == text:
        return field
    plain = new.encode()
    if quoted or any(sign in new for sign in (separator, '"', "\r", "\n")):
        return b'"' + plain.replace(b'"', b'""') + b'"'
    return plain
