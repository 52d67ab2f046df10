"""Temporary files and folders: their names, who still writes them, and removing what dead processes left."""

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

__all__ = ["held", "sweep", "temporary_name"]


def temporary_name(target: Path, suffix: str = "") -> Path:
    """Name a temporary sibling of a file or a folder, which `sweep` recognises.

    Examples
    --------
    >>> temporary_name(Path("table.csv"), ".csv").name  # doctest: +ELLIPSIS
    '.table....tmp.csv'
    """
    return target.with_name(f".{target.name.removesuffix(suffix)}.{secrets.token_hex(4)}.tmp{suffix}")


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold a lock on a file or a folder, which ends with this process; say whether it could be had.

    Examples
    --------
    >>> with held(Path(".")) as alone, held(Path(".")) as another:
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

    A living process holds a lock on its own (`held`); what belongs to another user, and links, are left alone.
    """
    if fcntl is None:  # on Windows nothing is held, and nothing is removed
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
                with held(Path(left.path)) as alone:
                    if alone and left.is_dir(follow_symlinks=False):
                        shutil.rmtree(left.path, ignore_errors=True)
                    elif alone:
                        os.unlink(left.path)  # noqa: PTH108
