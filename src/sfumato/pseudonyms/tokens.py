"""Three methods to make tokens from identifiers: keyed, random with a sealed mapping, and encrypted.

Each method takes the distinct identifiers of a space as texts and returns a token for each. A space is a set of
identified things, such as patients: equal identifiers in one space have equal tokens, and tokens of
different spaces are unrelated.
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.data.validate import whole
from sfumato.errors import OptionError
from sfumato.pseudonyms.keys import Key, Passphrase, SealedMapping

__all__ = [
    "EncryptedTokens",
    "Found",
    "KeyedTokens",
    "RandomTokens",
    "Spaces",
    "Tokens",
    "decode_base32",
    "encode_base32",
]

Spaces = Mapping[str, Sequence[str]]
"""The distinct identifiers, or tokens, of each space."""
Found = Mapping[str, Sequence[str | None]]
"""The result for each of them; None if it is unknown."""

_LENGTHS = (4, 51)  # characters; 51 are the 256 bits of a SHA-256
_UNLIKELY = 1e-9

# Base32
_BITS = 5  # per character
_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz234567", dtype=np.uint8)
_VALUE = np.zeros(256, dtype=np.uint64)
_VALUE[_ALPHABET] = np.arange(32)
_SHIFTS = np.arange(35, -1, -_BITS, dtype=np.uint64)
_VALID = re.compile("[a-z2-7]*")
_BATCH = 2**16


class Tokens(ABC):
    """A method to replace identifiers by tokens: `KeyedTokens`, `RandomTokens` or `EncryptedTokens`."""

    name: ClassVar[str]
    """The name of the method on the command line."""

    @abstractmethod
    def make(self, spaces: Spaces) -> dict[str, list[str]]:
        """Return the token of each identifier."""

    @abstractmethod
    def find(self, spaces: Spaces) -> Found:
        """Return the identifier of each token, or None if it is unknown."""


@dataclass(frozen=True, eq=False)
class KeyedTokens(Tokens):
    """Irreversible tokens that only the holder of a key can make: HMAC-SHA256.

    Only the key has to be stored. Anyone with the key can compute the tokens of guessed identifiers, and trying
    all identifiers of 8 digits takes minutes, so the tokens are safe only while the key is secret. Two of n
    identifiers share a token with a probability of about n² / 2^(5 length + 1), which is below 10^-12 for 20
    characters and 10^9 identifiers; if two identifiers in the data do, that is an error.

    Parameters
    ----------
    key : Key or path
        See `Key.new`.
    length : int
        The number of characters of a token, 4 to 51, with 5 bits each.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> method = sf.pseudonyms.KeyedTokens(sf.Key(bytes(32)))
    >>> sf.pseudonymize(pl.DataFrame({"patient_id": [7, 8, 7]}), method, columns=["patient_id"])["patient_id"].to_list()
    ['o7iikffthipbbnluadx4', 'sqicltfig2q2pgwmghgh', 'o7iikffthipbbnluadx4']
    >>> method.collision_probability(10**9) < 1e-12
    True
    """

    name: ClassVar[str] = "keyed"
    key: Key | str | Path
    length: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", Key.of(self.key))
        _check_length(self.length)

    def make(self, spaces: Spaces) -> dict[str, list[str]]:
        """Return the token of each identifier."""
        return {space: self._made(space, identifiers) for space, identifiers in spaces.items()}

    def _made(self, space: str, identifiers: Sequence[str]) -> list[str]:
        started = hmac.new(Key.of(self.key).derive(f"keyed tokens: {space}", 32), digestmod="sha256")
        size = _size(self.length)
        digests = []
        for identifier in identifiers:
            code = started.copy()  # the key schedule is computed once
            code.update(identifier.encode())
            digests.append(code.digest()[:size])
        tokens = [token[: self.length] for token in encode_base32(digests)]
        shared = len(tokens) - len(set(tokens))
        if shared:
            enough = next(n for n in range(*_LENGTHS) if _collision(len(tokens), n) < _UNLIKELY)
            raise OptionError(
                f"{shared:,} of {len(tokens):,} identifiers of '{space}' would share a token with another one, "
                f"because tokens have only {self.length} characters",
                hint=f"use length={enough} / --length {enough} for all related tables",
            )
        return tokens

    def find(self, spaces: Spaces) -> Found:
        """Raise an `OptionError`, because keyed tokens are irreversible."""
        raise OptionError("keyed tokens are irreversible", hint="use random or encrypted tokens to re-identify later")

    def collision_probability(self, identifiers: int) -> float:
        """Return the probability that any two of this many identifiers share a token."""
        return _collision(identifiers, self.length)


@dataclass(frozen=True, eq=False)
class RandomTokens(Tokens):
    """Random tokens, with a sealed mapping file from identifiers to tokens.

    Only the file, which is encrypted (AES-256-GCM), relates a token to its identifier. Without the file or its
    key, no token can be turned back. The file is created if there is none, and otherwise extended, so the
    next table gets the same tokens. Several processes may extend it at the same time.

    Parameters
    ----------
    mapping : path
        The sealed mapping file.
    key : Key or path, optional
        The key that seals the file.
    passphrase : str, optional
        The passphrase that seals the file instead of a key; at least 12 characters.
    length : int
        The number of characters of a new token, 4 to 51, with 5 bits each.

    Examples
    --------
    >>> import sfumato as sf
    >>> method = sf.pseudonyms.RandomTokens("patients.mapping", key=sf.Key(bytes(32)))
    >>> frame = pl.DataFrame({"patient_id": ["P7", "P8", "P7"]})
    >>> tokens = sf.pseudonymize(frame, method, columns=["patient_id"])
    >>> tokens["patient_id"].n_unique()
    2
    >>> sf.reidentify(tokens, method, columns=["patient_id"])["patient_id"].to_list()
    ['P7', 'P8', 'P7']
    """

    name: ClassVar[str] = "random"
    mapping: str | Path
    key: Key | str | Path | None = None
    passphrase: InitVar[str | None] = None
    length: int = 20
    _sealed: SealedMapping = field(init=False, repr=False)

    def __post_init__(self, passphrase: str | None) -> None:
        _check_length(self.length)
        secret: Key | Passphrase
        if self.key is not None and passphrase is None:
            secret = Key.of(self.key)
            object.__setattr__(self, "key", secret)
        elif self.key is None and passphrase is not None:
            secret = Passphrase(passphrase)
        else:
            raise OptionError("a mapping is sealed with either a key or a passphrase", hint="give exactly one of them")
        object.__setattr__(self, "_sealed", SealedMapping(Path(self.mapping), secret))

    def make(self, spaces: Spaces) -> dict[str, list[str]]:
        """Return the token of each identifier; new tokens are in the file before this returns."""
        if not any(spaces.values()):
            return {space: [] for space in spaces}
        with self._sealed.extending() as mapping:
            for space, identifiers in spaces.items():
                known = mapping.setdefault(space, {})
                new = [identifier for identifier in identifiers if identifier not in known]
                known.update(zip(new, self._drawn(len(new), set(known.values())), strict=True))
        return {space: [mapping[space][one] for one in identifiers] for space, identifiers in spaces.items()}

    def _drawn(self, count: int, taken: set[str]) -> list[str]:
        """Draw uniformly random tokens that are not taken."""
        if len(taken) + count > 2 ** (_BITS * self.length - 1):
            raise OptionError(
                f"{len(taken) + count:,} identifiers need tokens of more than {self.length} characters",
                hint="use a larger length / --length",
            )
        size = _size(self.length)
        drawn: dict[str, None] = {}
        while len(drawn) < count:
            source = secrets.token_bytes(size * (count - len(drawn)))
            texts = encode_base32([source[start : start + size] for start in range(0, len(source), size)])
            drawn |= dict.fromkeys(token for text in texts if (token := text[: self.length]) not in taken)
        return list(drawn)

    def find(self, spaces: Spaces) -> Found:
        """Return the identifier of each token, or None if it is unknown."""
        mapping = self._sealed.read()
        found = {}
        for space, tokens in spaces.items():
            back = {token: identifier for identifier, token in mapping.get(space, {}).items()}
            found[space] = [back.get(token) for token in tokens]
        return found


@dataclass(frozen=True, eq=False)
class EncryptedTokens(Tokens):
    """Tokens that contain the encrypted identifier: anyone with the key can turn them back.

    AES-SIV (RFC 5297) with a 512-bit key is deterministic: equal identifiers have equal tokens. Tokens are
    authenticated, so damaged ones are detected. The length of a token reveals the length of the identifier.

    Parameters
    ----------
    key : Key or path
        See `Key.new`.

    Examples
    --------
    >>> import sfumato as sf
    >>> method = sf.pseudonyms.EncryptedTokens(sf.Key(bytes(32)))
    >>> tokens = sf.pseudonymize(pl.DataFrame({"patient_id": ["P7"]}), method, columns=["patient_id"])
    >>> tokens["patient_id"][0]
    'jfw225ivm4dvy5266pnyn3xoedajw'
    >>> sf.reidentify(tokens, method, columns=["patient_id"])["patient_id"][0]
    'P7'
    """

    name: ClassVar[str] = "encrypted"
    key: Key | str | Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", Key.of(self.key))

    def make(self, spaces: Spaces) -> dict[str, list[str]]:
        """Return the token of each identifier."""
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        cipher = AESSIV(self._derived())
        return {
            space: encode_base32([cipher.encrypt(one.encode(), [space.encode()]) for one in identifiers])
            for space, identifiers in spaces.items()
        }

    def find(self, spaces: Spaces) -> Found:
        """Return the identifier of each token, or None if it is unknown."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        cipher = AESSIV(self._derived())

        def decrypt(blob: bytes | None, space: str) -> str | None:
            if blob is None or len(blob) <= 16:  # the tag alone has 16 bytes
                return None
            try:
                return cipher.decrypt(blob, [space.encode()]).decode()
            except InvalidTag:
                return None

        return {space: [decrypt(blob, space) for blob in decode_base32(tokens)] for space, tokens in spaces.items()}

    def _derived(self) -> bytes:
        return Key.of(self.key).derive("encrypted tokens", 64)


def _check_length(length: int) -> None:
    whole("the length of a token", length, least=_LENGTHS[0], most=_LENGTHS[1])


def _size(length: int) -> int:
    """Return the number of bytes that this many characters encode."""
    return math.ceil(_BITS * length / 8)


def _collision(identifiers: int, length: int) -> float:
    """Return the probability that any two identifiers share a token, by the Poisson approximation."""
    pairs = identifiers * (identifiers - 1) / 2
    return -math.expm1(-pairs / 2 ** (_BITS * length))


def encode_base32(blobs: Sequence[bytes]) -> list[str]:
    """Encode each byte string in lower-case base32 (RFC 4648, without padding), vectorized.

    The alphabet is safe in programs that ignore case. Unlike some hexadecimal tokens, which spreadsheets read as
    1.2E+34, a token of some length never looks like a number.

    Examples
    --------
    >>> encode_base32([b"foobar", b"", b"fo"])
    ['mzxw6ytboi', '', 'mzxq']
    """
    return [text for start in range(0, len(blobs), _BATCH) for text in _encoded(blobs[start : start + _BATCH])]


def decode_base32(texts: Sequence[str]) -> list[bytes | None]:
    """Decode each text, with None for a text that `encode_base32` cannot produce.

    Examples
    --------
    >>> decode_base32(["mzxw6ytboi", "mzxr", "Mzxq"])
    [b'foobar', None, None]
    """
    read: list[bytes | None] = []
    for start in range(0, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        blobs = list(_decoded([text if _VALID.fullmatch(text) else "" for text in part]))
        read += [
            blob if again == text else None for blob, again, text in zip(blobs, _encoded(blobs), part, strict=True)
        ]
    return read


def _encoded(blobs: Sequence[bytes]) -> Iterator[str]:
    """Encode each 5 bytes as a 40-bit number of 8 characters."""
    padded = b"".join(blob.ljust(-(-len(blob) // 5) * 5, b"\0") for blob in blobs)
    numbers = np.zeros((len(padded) // 5, 8), dtype=np.uint8)
    numbers[:, 3:] = np.frombuffer(padded, dtype=np.uint8).reshape(-1, 5)
    characters = numbers.view(">u8").astype(np.uint64) >> _SHIFTS & np.uint64(31)
    text = _ALPHABET[characters.astype(np.intp)].tobytes().decode("ascii")
    start = 0
    for blob in blobs:
        yield text[start : start - (-8 * len(blob) // _BITS)]
        start += -(-len(blob) // 5) * 8


def _decoded(texts: Sequence[str]) -> Iterator[bytes]:
    padded = "".join(text.ljust(-(-len(text) // 8) * 8, "a") for text in texts).encode("ascii")
    values: NDArray[np.uint64] = _VALUE[np.frombuffer(padded, dtype=np.uint8)].reshape(-1, 8)
    numbers = (values << _SHIFTS).sum(axis=1, dtype=np.uint64).astype(">u8")
    blob = numbers.view(np.uint8).reshape(-1, 8)[:, 3:].tobytes()
    start = 0
    for text in texts:
        yield blob[start : start + len(text) * _BITS // 8]
        start += -(-len(text) // 8) * 5
