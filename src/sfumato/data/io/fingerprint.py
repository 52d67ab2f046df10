"""Keyed fingerprints of private files: only the holder of the key can compare one with a file.

A plain hash of a small table would let anyone test guesses of its content. The key belongs to the user; it is created
on first use with mode 0600. Every fingerprint has a fresh salt, so the fingerprints of two releases differ whether or
not the table changed between them.
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

__all__ = ["fingerprint", "home", "matches_fingerprint", "user_hmac"]

_CHUNK = 2**20
_WRITTEN = re.compile(r"hmac-sha256:([0-9a-f]{32}):[0-9a-f]{64}")


def fingerprint(path: str | Path, salt: str | None = None) -> str:
    """Return the HMAC-SHA256 of a salt, by default a fresh one, and a file under this user's key.

    The key is ``fingerprint.key`` in ``$SFUMATO_HOME``, or in ``~/.config/sfumato``.

    Examples
    --------
    >>> fingerprint("patients.csv") == fingerprint("patients.csv")
    False
    >>> matches_fingerprint("patients.csv", fingerprint("patients.csv"))
    True
    """
    salt = secrets.token_hex(16) if salt is None else salt
    mac = user_hmac()
    mac.update(f"{salt}:".encode())
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                mac.update(chunk)
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    return f"hmac-sha256:{salt}:{mac.hexdigest()}"


def matches_fingerprint(path: str | Path, known: str) -> bool:
    """Return whether a fingerprint was made of this file with this user's key."""
    found = _WRITTEN.fullmatch(known)
    return found is not None and fingerprint(path, found[1]) == known


def user_hmac() -> hmac.HMAC:
    """Return a new HMAC-SHA256 under this user's key.

    Examples
    --------
    >>> len(user_hmac().digest())
    32
    """
    return hmac.new(_key(), digestmod="sha256")


def home() -> Path:
    """Return the folder of this user's keys and ledgers: ``$SFUMATO_HOME``, or ``~/.config/sfumato``.

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
            _write_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"the key for fingerprints, '{path}', cannot be used: {why(error)}",
            hint="set SFUMATO_HOME to use another folder",
        ) from error
    if len(key) != 32:
        raise FileError(f"the key for fingerprints, '{path}', is damaged", hint="remove it; Sfumato creates a new one")
    return key


def _write_key(path: Path) -> None:
    """Write a new key atomically, unless another process has already done so."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    with suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
