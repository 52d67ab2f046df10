"""What a party has answered already, beside its key: a plan is answered once, also after a restart.

Two sums under one plan, of which one lacks a holder, would differ by what that holder has.
"""

from __future__ import annotations

import os
from pathlib import Path

from sfumato.errors import FileError, ProtocolError

__all__ = ["Answered"]


class Answered:
    """The runs that a party has answered: an empty file for each, in a folder of its own.

    Examples
    --------
    >>> answered = Answered("north.answered")
    >>> answered.once(bytes(32))
    >>> answered.once(bytes(32))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    sfumato.errors.ProtocolError: this party has answered this plan before: 'north.answered/00...' (make a new plan)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"Answered({str(self.folder)!r})"

    def once(self, run: bytes) -> None:
        """Write down that a run is answered; a `ProtocolError` if it was before."""
        path = self.folder / run.hex()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise ProtocolError(f"this party has answered this plan before: '{path}'", hint="make a new plan") from None
        except OSError as error:
            raise FileError(f"'{path}' cannot be written: {error.strerror}") from error
