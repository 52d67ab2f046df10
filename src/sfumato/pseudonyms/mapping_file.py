"""The sealed mapping file from identifiers to tokens: encrypted, authenticated and written atomically.

The file has a line with its version and the kind of secret, 32 bytes of salt, 32 bytes that distinguish a wrong key
from a damaged file, and JSON under AES-256-GCM, which also authenticates the rest. Every write uses a new
salt, and therefore a new key and nonce.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sfumato.data.io.files import atomic_path, exclusive_lock, why
from sfumato.errors import FileError, InputError
from sfumato.pseudonyms.keys import Key, Passphrase

__all__ = ["Mapping", "SealedMapping"]

Mapping = dict[str, dict[str, str]]
"""The token of each identifier, by space."""

_MAGIC = "sfumato mapping "
_VERSION = "1"
_SALT, _CHECK, _KEY, _NONCE, _TAG = 32, 32, 32, 12, 16


@dataclass(frozen=True, eq=False)
class SealedMapping:
    """A mapping file and the secret that opens it.

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
