"""Read a file into a Polars frame without changing a value, and write one whole or not at all.

The types of a text file are found by rules that merge no two values: a column is a number only
if every value in it is one, none is written like a code (``01234`` and ``12E3`` stay texts) and
no two of its texts are the same number (``250.0`` and ``250.00`` are different diagnoses). The
whole file decides, not its first rows.
"""

from __future__ import annotations

import codecs
import csv
import io
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from sfumato._errors import FileError, MissingExtra, OptionError, require_extra

__all__ = ["FORMATS", "atomic_path", "is_utf8", "read_frame", "why", "write_frame"]

FORMATS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".xlsx": "excel",
    ".xls": "excel",
    ".ods": "excel",
}
_SEPARATORS = ",;\t|"
# An exponent needs its sign, or codes such as 12E3 would be numbers.
_DECIMAL = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]\d+)?|inf|nan|Inf|NaN)$"
_FAILURES = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error, ValueError)


def read_frame(
    path: str | Path,
    *,
    separator: str | None = None,
    encoding: str = "utf-8",
    na: Sequence[str] = (),
) -> pl.DataFrame:
    """Read a CSV, TSV, Parquet, Arrow/Feather or Excel file.

    Parameters
    ----------
    path : str or Path
    separator : str, optional
        What separates the fields of a text file; found from its header by default.
    encoding : str
        The encoding of a text file.
    na : sequence of str
        Texts that stand for a missing value, besides the empty field.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"there is no file '{path}'", hint="check the path")
    if path.is_dir():
        raise FileError(f"'{path}' is a folder, a file is needed")
    kind = _format(path)
    is_text = kind in ("csv", "tsv")
    if not is_text and (separator is not None or encoding != "utf-8"):
        raise OptionError(f"a separator and an encoding are for text files, and '{path.name}' is {kind}")
    try:
        if is_text:
            return _read_text(path, separator or ("\t" if kind == "tsv" else None), encoding, na)
        if kind == "parquet":
            frame = pl.read_parquet(path, glob=False)
        elif kind == "arrow":
            with path.open("rb") as file:  # a path would be a pattern, and [1].arrow another file
                frame = pl.read_ipc(file)
        else:
            frame = _read_excel(path)
        return frame.with_columns(_without_marks(column, na) for column in frame.iter_columns()) if na else frame
    except (FileError, MissingExtra, OptionError):
        raise
    except _FAILURES as error:
        reason = why(error, "UTF-8" if is_utf8(encoding) else encoding)
        raise FileError(f"'{path}' cannot be read as {kind}: {reason}") from error


def write_frame(frame: pl.DataFrame, path: str | Path) -> None:
    """Write a frame as CSV, TSV, Parquet or Arrow, by the ending of the path."""
    kind = _format(Path(path))
    if kind == "excel":
        raise FileError(f"'{path}' would be an Excel file, which Sfumato only reads", hint="write .csv or .parquet")
    with atomic_path(path) as temporary:
        try:
            if kind == "parquet":
                frame.write_parquet(temporary)
            elif kind == "arrow":
                frame.write_ipc(temporary)
            else:
                frame.write_csv(temporary, separator="\t" if kind == "tsv" else ",")
        except pl.exceptions.PolarsError as error:
            raise FileError(f"'{path}' cannot be written: {kind} cannot hold values of these types") from error


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling to write to; it takes the path's place when all went well."""
    target = Path(path).resolve()  # a link keeps pointing to the file that is replaced
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        if not target.parent.is_dir():
            raise FileError(f"'{path}' cannot be written: there is no folder '{Path(path).parent}'")
        if target.exists() and not target.is_file():
            raise FileError(f"'{path}' cannot be written: it is not a regular file")
        yield temporary
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"'{path}' cannot be written: {error.strerror or 'the system refused'}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def why(error: BaseException, encoding: str = "UTF-8") -> str:
    """Say in a few words why a file could not be read, without quoting its content."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError) or "invalid utf-8" in str(error).lower():
        return f"it is not {encoding} text (try --encoding latin-1)"
    if isinstance(error, pl.exceptions.NoDataError):
        return "it is empty"
    return "it is damaged or of another format"


def _format(path: Path) -> str:
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise FileError(
            f"the format of '{path.name}' is unknown", hint="the name must end in " + ", ".join(FORMATS)
        ) from None


def _read_excel(path: Path) -> pl.DataFrame:
    """Read the first sheet; the whole column decides its type."""
    require_extra("fastexcel", "excel", "reading an Excel file")
    try:
        header = pl.read_excel(path, has_header=False, read_options={"n_rows": 1}, raise_if_empty=False)
        frame = pl.read_excel(path, infer_schema_length=None, raise_if_empty=False)
    except Exception as error:  # fastexcel raises its own types, which must not be imported here
        raise FileError(f"'{path}' cannot be read as excel: it is damaged or of another format") from error
    _check_names(path, ["" if name is None else str(name) for name in header.row(0)] if len(header) else [])
    return frame


def _without_marks(column: pl.Series, na: Sequence[str]) -> pl.Series:
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return column
    return column.set(column.cast(pl.String).is_in(list(na)).fill_null(False), None)


def _read_text(path: Path, separator: str | None, encoding: str, na: Sequence[str]) -> pl.DataFrame:
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise OptionError(f"the encoding '{encoding}' is unknown", hint="for example utf-8 or latin-1") from None
    if separator is not None and (len(separator) != 1 or not separator.isascii()):
        raise OptionError(f"the separator must be one ASCII character, got {separator!r}")
    source: Path | io.BytesIO = path
    if not is_utf8(encoding):
        source = io.BytesIO(path.read_bytes().decode(encoding).encode())
    names, separator = _header(path, encoding, separator)
    try:
        frame = pl.read_csv(source, separator=separator, infer_schema=False, null_values=list(na), glob=False)
    except pl.exceptions.PolarsError as error:
        _check_lines(path, encoding, separator, len(names))
        raise FileError(f"'{path}' cannot be read as text with fields: {why(error)}") from error
    if frame.width != len(names):
        raise FileError(f"'{path}' has {len(names)} names in its header, but {frame.width} columns")
    frame.columns = names
    if frame[names[-1]].has_nulls() and len(names) > 1:  # a short or blank line reads as missing values: look closer
        blank = _check_lines(path, encoding, separator, len(names))
        if blank:
            frame = frame.with_row_index("").filter(~pl.col("").is_in(blank)).drop("")
    return frame.select(_typed(column) for column in frame.iter_columns())


def _header(path: Path, encoding: str, separator: str | None) -> tuple[list[str], str]:
    with _open(path, encoding) as lines:
        first = lines.readline()
        if not first.strip():
            raise FileError(f"'{path}' has no header line" if first else f"'{path}' is empty")
        if separator is None:
            separator = max(_SEPARATORS, key=first.count)
        lines.seek(0)
        names = next(csv.reader(lines, delimiter=separator))
    _check_names(path, names)
    return names, separator


def _check_names(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise FileError(f"'{path}' is empty")
    repeated = [name for name, times in Counter(names).items() if times > 1 and name]
    if repeated:
        raise FileError(f"'{path}' has the column name '{repeated[0]}' twice", hint="rename one of them")
    if "" in names:
        raise FileError(f"'{path}' has no name for column {names.index('') + 1}", hint="complete the header line")


def _check_lines(path: Path, encoding: str, separator: str, width: int) -> list[int]:
    """Find the first line with too few or too many fields; return the rows that are blank lines."""
    blank = []
    limit = csv.field_size_limit(2**31 - 1)
    with _open(path, encoding) as lines:
        reader = csv.reader(lines, delimiter=separator, strict=True)
        try:
            for row, fields in enumerate(reader, start=-1):
                if not fields:
                    blank.append(row)
                elif len(fields) != width:
                    raise FileError(
                        f"'{path}' is ragged: line {reader.line_num} has {len(fields)} fields, the header {width}"
                    )
        except csv.Error:
            raise FileError(f"'{path}' has a field with unbalanced quotes near line {reader.line_num}") from None
        finally:
            csv.field_size_limit(limit)
    return blank


def _open(path: Path, encoding: str) -> io.TextIOWrapper:
    return path.open(encoding="utf-8-sig" if is_utf8(encoding) else encoding, newline="")


def is_utf8(encoding: str) -> bool:
    """Say whether a name such as utf_8 or UTF8 means UTF-8."""
    return encoding.lower().replace("_", "-").replace("utf8", "utf-8") in ("utf-8", "utf-8-sig")


def _typed(text: pl.Series) -> pl.Series:
    """Turn a text column into numbers or dates where every value is one and none is written like a code."""
    text = text.set(text == "", None)  # a quoted empty field is missing too
    trimmed = text.str.strip_chars()
    distinct = trimmed.drop_nulls().unique()
    read = _reader(distinct)
    if read is None:
        return text
    values = read(distinct)
    return read(trimmed) if not values.has_nulls() and values.n_unique() == len(distinct) else text


def _reader(texts: pl.Series) -> Callable[[pl.Series], pl.Series] | None:
    """Return what would read all of these texts, by their looks, or None if they are just texts."""
    if texts.is_empty() or texts.str.contains(r"^[+-]?0\d").any():
        return None
    if texts.str.contains(r"^[+-]?\d+$").all():
        return lambda column: column.str.to_integer(strict=False)
    if texts.str.contains(r"^\d{4}-\d\d-\d\d$").all():
        return lambda column: column.str.to_date("%Y-%m-%d", strict=False)
    if texts.str.contains(r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?$").all():
        return lambda column: column.str.replace("T", " ").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False)
    if texts.str.contains(_DECIMAL).all() and texts.str.contains(r"\d").any():
        return lambda column: column.cast(pl.Float64, strict=False)
    return None
