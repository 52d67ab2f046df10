"""Secrets for pseudonyms, a key file or a passphrase, and the mapping file that they seal."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import shlex
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sfumato.data.io.files import atomic_path, exclusive_lock, why
from sfumato.errors import FileError, InputError, OptionError

__all__ = ["Key", "Mapping", "Passphrase", "SealedMapping"]

Mapping = dict[str, dict[str, str]]
"""The token of each identifier, by space."""

_BYTES = 32
_HEADER = "sfumato key 1"
_FILE = re.compile(rf"{_HEADER}:[^\n]*\n([0-9a-f]{{{2 * _BYTES}}})\s*")
_SHORTEST = 12
_MAGIC = "sfumato mapping "
_VERSION = "1"
_SALT, _CHECK, _KEY, _NONCE, _TAG = 32, 32, 32, 12, 16


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


@dataclass(frozen=True, eq=False)
class SealedMapping:
    """An encrypted mapping file from identifiers to tokens, and the secret that opens it.

    The file has a line with its version and the kind of secret, 32 bytes of salt, 32 bytes that distinguish a wrong
    key from a damaged file, and JSON under AES-256-GCM, which also authenticates the rest. Every write is atomic and
    uses a new salt, and therefore a new key and nonce.

    Examples
    --------
    >>> sealed = SealedMapping(Path("patients.mapping"), Key(bytes(32)))
    >>> with sealed.extending() as mapping:
    ...     mapping["patient_id"] = {"7": "mfzwizltoq"}
    >>> sealed.read()
    {'patient_id': {'7': 'mfzwizltoq'}}
    """

    path: Path
    secret: Key | Passphrase

    def read(self) -> Mapping:
        """Read and decrypt the mapping."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise FileError(f"the mapping '{self.path}' cannot be read: {why(error)}") from error
        return self._open(content)

    @contextmanager
    def extending(self) -> Iterator[Mapping]:
        """Yield the mapping, empty if there is no file, and write additions; other processes wait."""
        with exclusive_lock(self.path, "the mapping"):
            mapping = self.read() if self.path.exists() else {}
            before = {space: len(tokens) for space, tokens in mapping.items()}
            yield mapping
            if {space: len(tokens) for space, tokens in mapping.items()} != before:
                self._write(self._seal(mapping))

    def _seal(self, mapping: Mapping) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        salt = secrets.token_bytes(_SALT)
        key, nonce, check = self._derived(salt)
        header = f"{_MAGIC}{_VERSION} {self.secret.kind}\n".encode() + salt + check
        content = json.dumps(mapping, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            return header + AESGCM(key).encrypt(nonce, content, header)
        except OverflowError:
            raise InputError(
                f"the mapping '{self.path}' would exceed 2 GiB", hint="use one per table, or keyed tokens"
            ) from None

    def _open(self, content: bytes) -> Mapping:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        line, _, rest = content.partition(b"\n")
        words = line[:100].decode("ascii", "replace").removeprefix(_MAGIC).split(" ")
        if not line.startswith(_MAGIC.encode()) or len(words) != 2:
            raise FileError(f"'{self.path}' is not a Sfumato mapping, or it is damaged")
        version, kind = words
        if version != _VERSION:
            raise FileError(f"the mapping '{self.path}' does not have version {_VERSION}, or is damaged")
        if kind not in (Key.kind, Passphrase.kind) or len(rest) < _SALT + _CHECK + _TAG:
            raise self._damaged()
        if kind != self.secret.kind:
            raise FileError(f"the mapping '{self.path}' was sealed with a {kind}, not with a {self.secret.kind}")
        key, nonce, check = self._derived(rest[:_SALT])
        if not hmac.compare_digest(check, rest[_SALT : _SALT + _CHECK]):
            raise FileError(
                f"this {kind} does not open the mapping '{self.path}'",
                hint=f"it was sealed with another {kind}, or is damaged",
            )
        end = len(content) - len(rest) + _SALT + _CHECK
        try:
            mapping: Mapping = json.loads(AESGCM(key).decrypt(nonce, content[end:], content[:end]))
        except InvalidTag:
            raise self._damaged() from None
        return mapping

    def _derived(self, salt: bytes) -> tuple[bytes, bytes, bytes]:
        derived = self.secret.derive("sealed mapping", _KEY + _NONCE + _CHECK, salt)
        return derived[:_KEY], derived[_KEY : _KEY + _NONCE], derived[_KEY + _NONCE :]

    def _damaged(self) -> FileError:
        return FileError(f"the mapping '{self.path}' is damaged", hint="restore a copy; the file was not changed")

    def _write(self, content: bytes) -> None:
        with atomic_path(self.path, mode=0o600) as temporary, temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on disk before it replaces the old file
        if os.name == "posix":  # sync the rename too: tokens without their mapping would be lost
            folder = os.open(self.path.resolve().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
