"""Files on disk: their formats, writing one whole or not at all, and why one cannot be read."""

from __future__ import annotations

import gzip
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl

from sfumato.data.io.formulas import escaped, refuse_typed
from sfumato.data.io.temporary import held, sweep, temporary_name
from sfumato.errors import FileError, require_extra

__all__ = [
    "FORMATS",
    "atomic_path",
    "compression_of",
    "format_of",
    "refuse_only_read",
    "refuse_unwritable",
    "why",
    "write_bytes",
    "write_frame",
    "write_owned",
]

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
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
}
_MOST_ROWS, _MOST_COLUMNS = 2**20, 2**14  # of a sheet
_FITTED = 10_000  # rows up to which columns get the width of their values
_ONLY_READ = (".xls", ".ods", ".duckdb", ".ddb")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""The endings of compressed text files, after that of their format: ``.csv.gz``."""


_WRITTEN: dict[Path, ExitStack] = {}
"""The temporary files that this process writes, and the locks on them."""


def write_frame(frame: pl.DataFrame | pl.LazyFrame, path: str | Path, *, escape_formulas: bool = False) -> None:
    """Write a frame as CSV, TSV, JSON lines, Parquet, Arrow or Excel, by the ending of the path."""
    kind = format_of(Path(path))
    if escape_formulas:
        refuse_typed(path, kind)
        frame = escaped(frame.lazy())
    refuse_only_read(path)
    with atomic_path(path) as temporary:
        try:
            lazy = frame.lazy()
            compression: Any = compression_of(Path(path)) or "uncompressed"
            if kind == "parquet":
                lazy.sink_parquet(temporary)
            elif kind == "arrow":
                lazy.sink_ipc(temporary)
            elif kind == "excel":
                _write_excel(lazy.collect(), path, temporary)
            elif kind == "jsonl":
                lazy.sink_ndjson(temporary, compression=compression)
            else:
                lazy.sink_csv(temporary, separator="\t" if kind == "tsv" else ",", compression=compression)
        except pl.exceptions.PolarsError:
            reason = f"{kind} cannot hold values of these types"
            if isinstance(frame, pl.LazyFrame):  # which is read only now
                reason = f"what it is made of cannot be read, or {reason}"
            raise FileError(f"'{path}' cannot be written: {reason}") from None


def refuse_only_read(path: str | Path) -> None:
    """Refuse to write a format that is only read.

    Examples
    --------
    >>> refuse_only_read("old.xls")
    Traceback (most recent call last):
        ...
    sfumato.errors.FileError: Sfumato reads .xls files but does not write them (write old.xlsx or old.csv)
    """
    format_of(Path(path))  # of an unknown one it is said there
    if (ending := Path(path).suffix.lower()) in _ONLY_READ:
        stem = Path(path).stem
        hint = f"write {stem}.xlsx or {stem}.csv" if ending in (".xls", ".ods") else f"write {stem}.parquet"
        raise FileError(f"Sfumato reads {ending} files but does not write them", hint=hint)


def _write_excel(frame: pl.DataFrame, path: str | Path, temporary: Path) -> None:
    """Write one sheet, in which texts are texts: no formula is computed, and no code becomes a number."""
    require_extra("xlsxwriter", "excel", "writing an Excel file")
    if len(frame) >= _MOST_ROWS or frame.width > _MOST_COLUMNS:
        raise FileError(
            f"'{path}' would have {len(frame):,} rows and {frame.width:,} columns, more than an Excel sheet can hold",
            hint="write .csv or .parquet",
        )
    frame.write_excel(temporary, worksheet="table", autofit=len(frame) <= _FITTED)


def write_bytes(content: bytes, path: str | Path) -> None:
    """Write a file, all of it or nothing, compressed if its name says so."""
    compression = compression_of(Path(path))
    with atomic_path(path) as temporary:
        temporary.write_bytes(compressed(content, compression) if compression else content)


def compressed(content: bytes, compression: str) -> bytes:
    """Return content compressed with gzip or zstd; the same bytes for the same content."""
    if compression == "gzip":
        return gzip.compress(content, mtime=0)
    pyarrow = require_extra("pyarrow", "arrow", "writing a file compressed with zstd")
    return bytes(pyarrow.compress(content, codec=compression, asbytes=True))


@contextmanager
def atomic_path(path: str | Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Give a temporary sibling to write to; it takes the path's place when all went well.

    The sibling exists, empty, and only its owner may read it. The file gets the permissions of the one that it
    replaces; a new one gets ``mode``, less what the system's mask forbids. What a killed process has left of this
    file is removed.
    """
    target = Path(path).resolve()  # a link keeps pointing to the file that is replaced
    temporary = None
    try:
        refuse_unwritable(path)
        sweep(target, _ending(target))
        with ExitStack() as stack:
            temporary, allowed = _sibling(target, mode, stack)
            _WRITTEN[temporary] = stack
            yield temporary
            temporary.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else allowed)
            temporary.replace(target)
            if target in _WRITTEN:  # a temporary file itself: who holds that holds this one now
                _WRITTEN[target].push(stack.pop_all())
    except OSError as error:
        raise FileError(f"'{path}' cannot be written: {error.strerror or 'the system refused'}") from error
    finally:
        if temporary is not None:
            _WRITTEN.pop(temporary, None)
            with suppress(OSError):
                temporary.unlink()


def _ending(target: Path) -> str:
    """Return the ending that names the format, and the compression if there is one: .csv.gz."""
    if compression_of(target):
        return target.with_suffix("").suffix + target.suffix
    return target.suffix


def _sibling(target: Path, mode: int, stack: ExitStack) -> tuple[Path, int]:
    """Make an empty file beside another, of the same format, and hold it; return it with its permissions to be."""
    while True:
        temporary = temporary_name(target, _ending(target))
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        try:
            allowed = stat.S_IMODE(temporary.stat().st_mode)
            temporary.chmod(0o600)
            if stack.enter_context(held(temporary)) and temporary.exists():
                return temporary, allowed
        except FileNotFoundError:  # another process came between, and has removed it
            continue
        except OSError:  # a file system without locks: nobody can hold one there to remove it either
            return temporary, allowed


def refuse_unwritable(path: str | Path) -> None:
    """Refuse to write where there is no folder, where we may not, or where something else than a file is."""
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileError(f"'{path}' cannot be written: there is no folder '{Path(path).parent}'")
    if target.exists() and not target.is_file():
        raise FileError(f"'{path}' cannot be written: it is not a regular file")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"'{path}' cannot be written: you may not write to the folder '{Path(path).parent}'")


def why(error: BaseException, encoding: str = "UTF-8") -> str:
    """Say in a few words why a file could not be read, without quoting its content."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError) or "invalid utf-8" in str(error).lower():
        return f"it is not {encoding} text (name its encoding with --encoding)"
    if isinstance(error, pl.exceptions.NoDataError):
        return "it is empty"
    return "it is damaged or of another format"


def format_of(path: Path) -> str:
    """Return the format that the ending of a path names, before that of a compression.

    Examples
    --------
    >>> format_of(Path("patients.tsv.gz"))
    'tsv'
    """
    compression = compression_of(path)
    inner = path.with_suffix("") if compression else path
    kind = FORMATS.get(inner.suffix.lower())
    if kind is None:
        raise FileError(
            f"the format of '{path.name or path}' is unknown",
            hint="the name must end in " + ", ".join(FORMATS) + "; of text files also with .gz or .zst after it",
        )
    if compression and kind not in ("csv", "tsv", "jsonl"):
        raise FileError(f"'{path.name}' is a compressed {kind} file", hint="only text files are read compressed")
    return kind


def compression_of(path: Path) -> str | None:
    """Return how a file is compressed, by the ending of its path.

    Examples
    --------
    >>> compression_of(Path("patients.csv.gz")), compression_of(Path("patients.csv"))
    ('gzip', None)
    """
    return COMPRESSIONS.get(path.suffix.lower())


def write_owned(path: Path, plain: Any) -> None:
    """Write plain values as JSON into a file that only its owner can read."""
    with atomic_path(path, mode=0o600) as temporary:
        path.unlink(missing_ok=True)  # its permissions would be kept
        temporary.write_text(json.dumps(plain, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")
