"""One process at a time: a file that several may change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato.data.io.files import why
from sfumato.errors import FileError

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
    import fcntl

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX)

    def _unlock(number: int) -> None:
        # Closing alone would leave it to a process that was forked meanwhile, for as long as that lives.
        fcntl.flock(number, fcntl.LOCK_UN)
