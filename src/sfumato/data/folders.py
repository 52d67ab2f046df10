"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sfumato._errors import FileError
from sfumato.data.files import why

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["atomic_folder", "held", "refuse_taken"]


def refuse_taken(path: str | Path) -> None:
    """Refuse a folder that cannot be made anew: one that holds something, a file, or one in no folder."""
    target = Path(path).resolve()
    if target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None):
        raise FileError(f"'{path}' exists already", hint="choose another name, or remove it first")
    if not target.parent.is_dir():
        raise FileError(f"'{path}' cannot be made: there is no folder '{Path(path).parent}'")


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling of a folder to write to; it takes the folder's name when all went well.

    Of several processes that write the same folder, one wins and the others are refused. What a killed
    one has left behind is removed by the next.

    Examples
    --------
    >>> with atomic_folder("release") as folder:
    ...     _ = (folder / "table.csv").write_text("age\\n30\\n")
    >>> [file.name for file in Path("release").iterdir()]
    ['table.csv']
    """
    refuse_taken(path)
    target = Path(path).resolve()
    try:
        _remove_abandoned(target)
        with ExitStack() as stack:
            temporary = _sibling(target, stack)
            yield temporary
            for file in temporary.iterdir():
                _sync(file)
            refuse_taken(path)
            temporary.rename(target)  # over nothing, or an empty folder; the system refuses any other
            _sync(target.parent)
    except OSError as error:
        reason = "another process has made it meanwhile" if target.exists() else why(error)
        raise FileError(f"'{path}' cannot be written: {reason}") from error


def _sibling(target: Path, stack: ExitStack) -> Path:
    """Make a folder beside another and hold it, so that nobody takes it for an abandoned one."""
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        temporary.mkdir()
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        with suppress(FileNotFoundError):
            if stack.enter_context(held(temporary)) and temporary.exists():
                return temporary
        # else another process came between, and has removed it


def _sync(path: Path) -> None:
    """Wait until the disk has what was written."""
    with suppress(OSError):  # a folder cannot be opened on Windows
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold a lock on a folder, which ends with this process; say whether it could be had.

    Examples
    --------
    >>> with held(Path(".")) as alone, held(Path(".")) as another:
    ...     print(alone, another)
    True False
    """
    if fcntl is None:
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        alone = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone = False
        yield alone
    finally:
        os.close(handle)


def _remove_abandoned(target: Path) -> None:
    """Remove what processes that are no more have left of this folder."""
    if fcntl is None:  # on Windows nothing is held, and nothing is removed
        return
    for left in target.parent.iterdir():
        if re.fullmatch(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.tmp", left.name):
            with suppress(OSError), held(left) as alone:
                if alone:
                    shutil.rmtree(left, ignore_errors=True)
