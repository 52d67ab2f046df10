"""Temporary files and folders: names, locks, and removal of those that dead processes left behind."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["sweep", "temporary_name", "try_lock"]


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
