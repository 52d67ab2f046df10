"""The fingerprint of a file that must not leave the house: only the holder of the key can compare it.

A plain hash of a small table would let anyone try out what the table might have held. The key
is this user's own: it is made on first use and kept with mode 0600. Every fingerprint has a fresh salt: those of two
releases differ whether or not a row has changed between them.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from sfumato.data.io.files import why
from sfumato.errors import FileError

__all__ = ["fingerprint", "home", "is_of", "keyed"]

_CHUNK = 2**20
_WRITTEN = re.compile(r"hmac-sha256:([0-9a-f]{32}):[0-9a-f]{64}")


def fingerprint(path: str | Path, salt: str | None = None) -> str:
    """Return the HMAC-SHA256 of a salt and a file under this user's key, as text; the salt is a fresh one by default.

    The key is ``fingerprint.key`` in ``$SFUMATO_HOME``, or in ``~/.config/sfumato``.

    Examples
    --------
    >>> fingerprint("patients.csv") == fingerprint("patients.csv")
    False
    >>> is_of("patients.csv", fingerprint("patients.csv"))
    True
    """
    salt = secrets.token_hex(16) if salt is None else salt
    mac = keyed()
    mac.update(f"{salt}:".encode())
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                mac.update(chunk)
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    return f"hmac-sha256:{salt}:{mac.hexdigest()}"


def is_of(path: str | Path, known: str) -> bool:
    """Say whether a fingerprint is that of a file, and was made with this user's key."""
    found = _WRITTEN.fullmatch(known)
    return found is not None and fingerprint(path, found[1]) == known


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
