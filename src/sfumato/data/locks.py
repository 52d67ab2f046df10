"""One process at a time: a file that several may change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato._errors import FileError
from sfumato.data.files import why

__all__ = ["alone"]


@contextmanager
def alone(path: str | Path, what: str) -> Iterator[None]:
    """Wait until no other process changes this file, and keep them waiting meanwhile.

    The lock is a sibling, for the file itself may be replaced. It ends with the process that holds it, whatever
    ends that.

    Examples
    --------
    >>> with alone("patients.mapping", "the mapping"):
    ...     Path(".patients.mapping.lock").exists()
    True
    """
    target = Path(path).resolve()
    try:
        number = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(f"{what} '{path}' cannot be written: {why(error)}") from error
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(number, msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
