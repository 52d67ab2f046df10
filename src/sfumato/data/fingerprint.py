"""The fingerprint of a file that must not leave the house: only who holds the key can compare it.

A plain hash of a small table would let anyone try out what the table might have held. The key
is this user's own: it is made on first use and kept with mode 0600.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from sfumato._errors import FileError
from sfumato.data.files import why

__all__ = ["fingerprint", "home", "keyed"]

_CHUNK = 2**20


def fingerprint(path: str | Path) -> str:
    """Return the HMAC-SHA256 of a file under this user's key, as text.

    The key is ``fingerprint.key`` in ``$SFUMATO_HOME``, or in ``~/.config/sfumato``.

    Examples
    --------
    >>> fingerprint("patients.csv") == fingerprint("patients.csv")
    True
    """
    mac = keyed()
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                mac.update(chunk)
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    return f"hmac-sha256:{mac.hexdigest()}"


def keyed() -> hmac.HMAC:
    """Return an HMAC-SHA256 under this user's key, to be fed.

    Examples
    --------
    >>> len(keyed().digest())
    32
    """
    return hmac.new(_key(), digestmod="sha256")


def home() -> Path:
    """Return the folder of what Sfumato keeps for this user: ``$SFUMATO_HOME``, or ``~/.config/sfumato``.

    Examples
    --------
    >>> home().is_absolute()
    True
    """
    return Path(os.environ.get("SFUMATO_HOME") or Path.home() / ".config" / "sfumato").absolute()


def _key() -> bytes:
    path = home() / "fingerprint.key"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make(path)
        key = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"the key for fingerprints, '{path}', cannot be used: {why(error)}",
            hint="SFUMATO_HOME names another folder",
        ) from error
    if len(key) != 32:
        raise FileError(f"the key for fingerprints, '{path}', is damaged", hint="remove it: a new one is made")
    return key


def _make(path: Path) -> None:
    """Write a new key, whole, unless another process was first."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    with suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
