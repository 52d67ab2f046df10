"""What an interrupted fit was charged: the same fit on the same records starts again without another charge.

Nobody has seen the noise of a fit that was stopped or killed, so one result is released for one charge. A fit that
ends, with a result or with an error, may have shown noisy numbers: the receipt is then no longer valid, and is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sfumato.budget.events import Event
from sfumato.data.io.files import why, write_owned
from sfumato.errors import FileError

__all__ = ["Receipt"]


@dataclass(frozen=True)
class Receipt:
    """A file with the events that were charged for a fit.

    Attributes
    ----------
    path : Path
    data : str
        A keyed fingerprint of the records.

    Examples
    --------
    >>> from sfumato.budget import Gaussian
    >>> receipt = Receipt(Path("receipt.json"), "hmac-sha256:5f")
    >>> receipt.write([Gaussian(2.0)])
    >>> receipt.read() == (Gaussian(2.0),)
    True
    >>> receipt.remove()
    >>> receipt.read()
    ()
    """

    path: Path
    data: str

    def read(self) -> tuple[Event, ...]:
        """Return the events that were charged; a `FileError` if they were charged for other records."""
        if not self.path.exists():
            return ()
        try:
            plain = json.loads(self.path.read_text(encoding="utf-8"))
            data, events = plain["data"], tuple(Event.from_dict(one) for one in plain["events"])
        except OSError as error:
            raise FileError(f"'{self.path}' cannot be read: {why(error)}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"'{self.path}' is damaged", hint="remove it to be charged again") from error
        if data != self.data:
            raise FileError(
                f"'{self.path}' is of a training on other records",
                hint="give another checkpoint; one file is one training",
            )
        return events

    def write(self, events: Iterable[Event]) -> None:
        """Keep the events that were charged."""
        write_owned(self.path, {"data": self.data, "events": [one.to_dict() for one in events]})

    def remove(self) -> None:
        """Make the receipt invalid."""
        self.path.unlink(missing_ok=True)
