"""Secrets for pseudonyms: a key in a file that only its owner can read, or a passphrase."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import unicodedata
from pathlib import Path
from typing import ClassVar

from sfumato.data.io.files import why
from sfumato.errors import FileError, OptionError

__all__ = ["Key", "Passphrase"]

_BYTES = 32
_HEADER = "sfumato key 1"
_FILE = re.compile(rf"{_HEADER}:[^\n]*\n([0-9a-f]{{{2 * _BYTES}}})\s*")
_SHORTEST = 12


class Key:
    """A secret key for pseudonyms, usually in a file that only you can read.

    Each purpose uses its own key, derived by HKDF (RFC 5869), so one key serves several columns and several
    kinds of tokens. The secret is never shown, not even by ``repr``.

    Parameters
    ----------
    secret : bytes
        At least 32 random bytes, for example from a secret manager. See also `new` and `load`.

    Examples
    --------
    >>> import sfumato as sf
    >>> key = sf.Key.new("pseudonyms.key")
    >>> key
    Key(...)
    >>> sf.Key.new("pseudonyms.key")
    Traceback (most recent call last):
        ...
    sfumato.errors.FileError: 'pseudonyms.key' exists, and a key is never overwritten (choose another name)
    """

    __slots__ = ("_secret",)
    kind: ClassVar[str] = "key"

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) < _BYTES:
            raise OptionError(f"a key must have at least {_BYTES} random bytes", hint="make one with Key.new(file)")
        self._secret = secret

    def __repr__(self) -> str:
        return "Key(...)"

    @classmethod
    def new(cls, path: str | Path) -> Key:
        """Create a key from the operating system's entropy, and write it to a new file."""
        key = cls(secrets.token_bytes(_BYTES))
        text = f"{_HEADER}: makes and opens pseudonyms; keep it secret, and keep a copy\n{key._secret.hex()}\n"
        try:
            # Private from the start; O_EXCL never overwrites a file.
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise FileError(f"'{path}' exists, and a key is never overwritten", hint="choose another name") from None
        except OSError as error:
            raise FileError(f"the key '{path}' cannot be written: {why(error)}") from error
        try:
            with open(number, "w", encoding="ascii") as file:  # noqa: PTH123 - a file descriptor
                file.write(text)
                file.flush()
                os.fsync(number)
        except OSError as error:
            Path(path).unlink(missing_ok=True)
            raise FileError(f"the key '{path}' cannot be written: {why(error)}") from error
        return key

    @classmethod
    def load(cls, path: str | Path) -> Key:
        """Read a key from its file, or raise an error if other users can access the file."""
        try:
            with Path(path).open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(1000).decode("ascii", "replace")
        except OSError as error:
            hint = "make one with 'sfumato key new'" if isinstance(error, FileNotFoundError) else ""
            raise FileError(f"the key '{path}' cannot be read: {why(error)}", hint=hint) from error
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            hint = f"chmod 600 {shlex.quote(str(path))}"
            raise FileError(f"the key '{path}' is accessible to other users", hint=hint)
        match = _FILE.fullmatch(text)
        if not match:
            raise FileError(f"'{path}' is not a Sfumato key, or it is damaged", hint="see 'sfumato key new --help'")
        return cls(bytes.fromhex(match[1]))

    @classmethod
    def of(cls, key: Key | str | Path) -> Key:
        """Return a key, loaded from its file if a path is given."""
        if isinstance(key, str | Path):
            return cls.load(key)
        if not isinstance(key, cls):
            raise OptionError(f"the key must be a Key or the path of a key file, got {type(key).__name__}")
        return key

    def derive(self, purpose: str, length: int, salt: bytes = b"") -> bytes:
        """Derive the key for a purpose."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), length, salt, f"sfumato {purpose}".encode()).derive(self._secret)


class Passphrase:
    """A memorable secret; scrypt (RFC 7914; 128 MiB, about half a second) makes guessing it slow."""

    __slots__ = ("_text",)
    kind: ClassVar[str] = "passphrase"

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or len(text) < _SHORTEST:
            raise OptionError(f"a passphrase must have at least {_SHORTEST} characters", hint="use several words")
        self._text = unicodedata.normalize("NFC", text)  # keyboards encode accents differently

    def __repr__(self) -> str:
        return "Passphrase(...)"

    def derive(self, purpose: str, length: int, salt: bytes = b"") -> bytes:
        """Derive the key for a purpose; the salt prevents precomputed guesses."""
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

        salted = f"sfumato {purpose}".encode() + salt
        return Scrypt(salt=salted, length=length, n=2**17, r=8, p=1).derive(self._text.encode())
