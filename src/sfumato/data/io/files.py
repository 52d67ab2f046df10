"""Files on disk: formats, atomic writes, temporary files, locks, and reasons why a file cannot be read."""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl

from sfumato.data.io.formulas import escape_cells, refuse_typed
from sfumato.errors import FileError, require_extra

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "FORMATS",
    "atomic_path",
    "compression_of",
    "exclusive_lock",
    "format_of",
    "refuse_only_read",
    "refuse_unwritable",
    "sweep",
    "temporary_name",
    "try_lock",
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
_MOST_ROWS, _MOST_COLUMNS = 2**20, 2**14  # in an Excel sheet
_FITTED = 10_000  # most rows for which column widths are fitted to the values
_ONLY_READ = (".xls", ".ods", ".duckdb", ".ddb")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""The suffixes of compressed text files, which follow that of the format: ``.csv.gz``."""


_WRITTEN: dict[Path, ExitStack] = {}
"""The temporary files that this process is writing, with their locks."""


def write_frame(frame: pl.DataFrame | pl.LazyFrame, path: str | Path, *, escape_formulas: bool = False) -> None:
    """Write a frame as CSV, TSV, JSON lines, Parquet, Arrow or Excel, depending on the suffix of the path."""
    kind = format_of(Path(path))
    if escape_formulas:
        refuse_typed(path, kind)
        frame = escape_cells(frame.lazy())
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
            if isinstance(frame, pl.LazyFrame):  # its source is read only now
                reason = f"its source cannot be read, or {reason}"
            raise FileError(f"'{path}' cannot be written: {reason}") from None


def refuse_only_read(path: str | Path) -> None:
    """Refuse to write a read-only format.

    Examples
    --------
    >>> refuse_only_read("old.xls")
    Traceback (most recent call last):
        ...
    sfumato.errors.FileError: Sfumato reads .xls files but does not write them (write old.xlsx or old.csv)
    """
    format_of(Path(path), [ending for ending in FORMATS if ending not in _ONLY_READ])  # refuses an unknown format
    if (ending := Path(path).suffix.lower()) in _ONLY_READ:
        stem = Path(path).stem
        hint = f"write {stem}.xlsx or {stem}.csv" if ending in (".xls", ".ods") else f"write {stem}.parquet"
        raise FileError(f"Sfumato reads {ending} files but does not write them", hint=hint)


def _write_excel(frame: pl.DataFrame, path: str | Path, temporary: Path) -> None:
    """Write one sheet in which texts stay texts, not formulas or numbers."""
    require_extra("xlsxwriter", "excel", "writing an Excel file")
    if len(frame) >= _MOST_ROWS or frame.width > _MOST_COLUMNS:
        raise FileError(
            f"'{path}' would have {len(frame):,} rows and {frame.width:,} columns, more than an Excel sheet can hold",
            hint="write .csv or .parquet",
        )
    frame.write_excel(temporary, worksheet="table", autofit=len(frame) <= _FITTED)


def write_bytes(content: bytes, path: str | Path) -> None:
    """Write a file atomically, compressed if its name says so."""
    compression = compression_of(Path(path))
    with atomic_path(path) as temporary:
        temporary.write_bytes(compress(content, compression) if compression else content)


def compress(content: bytes, compression: str) -> bytes:
    """Compress bytes with gzip or zstd, deterministically."""
    if compression == "gzip":
        return gzip.compress(content, mtime=0)
    pyarrow = require_extra("pyarrow", "arrow", "writing a file compressed with zstd")
    return bytes(pyarrow.compress(content, codec=compression, asbytes=True))


@contextmanager
def atomic_path(path: str | Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary file beside the path, and rename it to the path if no error occurs.

    The temporary file exists, is empty, and is readable only by its owner. The final file gets the permissions of the
    file that it replaces; a new one gets ``mode``, subject to the umask. Temporary files of the same path that killed
    processes left behind are removed.
    """
    target = Path(path).resolve()  # replaces the file behind a link, not the link
    temporary = None
    try:
        refuse_unwritable(path)
        sweep(target, _suffix(target))
        with ExitStack() as stack:
            temporary, allowed = _sibling(target, mode, stack)
            _WRITTEN[temporary] = stack
            yield temporary
            temporary.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else allowed)
            temporary.replace(target)
            if target in _WRITTEN:  # the target is a temporary file itself: its lock now covers this file
                _WRITTEN[target].push(stack.pop_all())
    except OSError as error:
        raise FileError(f"'{path}' cannot be written: {error.strerror or 'the system refused'}") from error
    finally:
        if temporary is not None:
            _WRITTEN.pop(temporary, None)
            with suppress(OSError):
                temporary.unlink()


def _suffix(target: Path) -> str:
    """Return the suffix of the format, with that of the compression if there is one: .csv.gz."""
    if compression_of(target):
        return target.with_suffix("").suffix + target.suffix
    return target.suffix


def _sibling(target: Path, mode: int, stack: ExitStack) -> tuple[Path, int]:
    """Create and lock an empty file beside the target; return it with the permissions of the final file."""
    while True:
        temporary = temporary_name(target, _suffix(target))
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        try:
            allowed = stat.S_IMODE(temporary.stat().st_mode)
            temporary.chmod(0o600)
            if stack.enter_context(try_lock(temporary)) and temporary.exists():
                return temporary, allowed
        except FileNotFoundError:  # another process has removed it before it was locked
            continue
        except OSError:  # a file system without locks: no other process removes it either
            return temporary, allowed


@contextmanager
def exclusive_lock(path: str | Path, what: str) -> Iterator[None]:
    """Wait for the exclusive lock on a file, and hold it.

    The lock is a file beside it, because the file itself may be replaced. The system releases it when the process
    ends, however it ends.

    Examples
    --------
    >>> with exclusive_lock("patients.mapping", "the mapping"):
    ...     Path(".patients.mapping.lock").exists()
    True
    """
    target = Path(path).resolve()
    try:
        number = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(f"{what} '{path}' cannot be written: {why(error)}") from error
    try:
        try:
            _lock(number)
        except OSError as error:
            raise FileError(f"{what} '{path}' cannot be locked: {why(error)}") from error
        try:
            yield
        finally:
            _unlock(number)
    finally:
        os.close(number)


if sys.platform == "win32":
    import msvcrt

    def _lock(number: int) -> None:
        msvcrt.locking(number, msvcrt.LK_LOCK, 1)

    def _unlock(number: int) -> None:
        msvcrt.locking(number, msvcrt.LK_UNLCK, 1)

else:

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX)

    def _unlock(number: int) -> None:
        # A process forked meanwhile shares the descriptor: closing ours would leave the lock with it.
        fcntl.flock(number, fcntl.LOCK_UN)


def temporary_name(target: Path, suffix: str = "") -> Path:
    """Return a name for a temporary sibling of a file or a folder that `sweep` recognises.

    Examples
    --------
    >>> temporary_name(Path("table.csv"), ".csv").name  # doctest: +ELLIPSIS
    '.table....tmp.csv'
    """
    return target.with_name(f".{target.name.removesuffix(suffix)}.{secrets.token_hex(4)}.tmp{suffix}")


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to lock a file or a folder, and yield whether that succeeded; the lock ends with this process.

    Examples
    --------
    >>> with try_lock(Path(".")) as alone, try_lock(Path(".")) as another:
    ...     print(alone, another)
    True False
    """
    if fcntl is None:
        yield True
        return
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        alone = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone = False
        yield alone
    finally:
        os.close(handle)


def sweep(target: Path, suffix: str = "") -> None:
    """Remove the temporary siblings of a file or a folder whose processes have died.

    A running process has a lock on its own (`try_lock`). Links and files of other users are left alone.
    """
    if fcntl is None:  # without locks nothing can be removed safely
        return
    name, ending = re.escape(target.name.removesuffix(suffix)), re.escape(suffix)
    pattern = re.compile(rf"\.{name}\.[0-9a-f]{{8}}\.tmp{ending}")
    with suppress(OSError), os.scandir(target.parent) as siblings:
        for left in siblings:
            if not pattern.fullmatch(left.name):
                continue
            with suppress(OSError):
                if left.is_symlink() or left.stat(follow_symlinks=False).st_uid != os.geteuid():
                    continue
                with try_lock(Path(left.path)) as alone:
                    if alone and left.is_dir(follow_symlinks=False):
                        shutil.rmtree(left.path, ignore_errors=True)
                    elif alone:
                        os.unlink(left.path)  # noqa: PTH108


def refuse_unwritable(path: str | Path) -> None:
    """Refuse a path in a missing or read-only folder, or of something other than a regular file."""
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileError(f"'{path}' cannot be written: there is no folder '{Path(path).parent}'")
    if target.exists() and not target.is_file():
        raise FileError(f"'{path}' cannot be written: it is not a regular file")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"'{path}' cannot be written: no permission to write to the folder '{Path(path).parent}'")


def why(error: BaseException, encoding: str = "UTF-8") -> str:
    """Return the reason why a file could not be read, without quoting its content."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError) or "invalid utf-8" in str(error).lower():
        return f"it is not {encoding} text (name its encoding with --encoding)"
    if isinstance(error, pl.exceptions.NoDataError):
        return "it is empty"
    return "it is damaged or of another format"


def format_of(path: Path, known: Iterable[str] = FORMATS) -> str:
    """Return the format of a file by its suffix, ignoring that of a compression; an error lists the `known` suffixes.

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
            hint="the name must end in " + ", ".join(known) + "; text files may add .gz or .zst",
        )
    if compression and kind not in ("csv", "tsv", "jsonl"):
        raise FileError(f"'{path.name}' is a compressed {kind} file", hint="only text files may be compressed")
    return kind


def compression_of(path: Path) -> str | None:
    """Return the compression of a file by its suffix.

    Examples
    --------
    >>> compression_of(Path("patients.csv.gz")), compression_of(Path("patients.csv"))
    ('gzip', None)
    """
    return COMPRESSIONS.get(path.suffix.lower())


def write_owned(path: Path, content: Any) -> None:
    """Write a text, or plain values as JSON, to a file that only its owner can read."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2, allow_nan=False, default=str) + "\n"
    with atomic_path(path, mode=0o600) as temporary:
        path.unlink(missing_ok=True)  # otherwise its permissions would be kept
        temporary.write_text(text, encoding="utf-8")
