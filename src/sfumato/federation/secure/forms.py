"""What SEAL's keys and ciphertexts look like as bytes, so that those of strangers are compared before SEAL reads them.

SEAL writes a header of 16 bytes and, compressed, constants and arrays of coefficients:

    ... | 94 161 16 4 3 0 0 0 | size (8) | number of coefficients (8) | coefficients (8 each) | ...

One of two polynomials may be replaced by the seed of 64 bytes that it follows from. A message is accepted only if it
equals one of our own in every byte but the coefficients, seeds and, in an answer, the scale. It is never decompressed
beyond the length of our own, so it cannot grow in memory; coefficients beyond their primes are refused by SEAL.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sfumato.errors import ProtocolError, require_extra
from sfumato.federation.secure.seal import CkksParameters, in_memory, seal, to_bytes

__all__ = ["Form", "form_of", "from_bytes", "galois_form"]

_HEADER = 16
_NONE, _ZLIB, _ZSTD = 0, 1, 2
_ARRAY, _SEED = _HEADER + 8, 64
_SEEDED = _HEADER + 1 + _SEED
_SCALE = 57  # where a ciphertext has its scale: after its level, a flag and three sizes
_DAMAGED = "is damaged, or of other parameters"

_CLASSES = {
    "record": "Ciphertext",
    "vector": "Ciphertext",
    "answer": "Ciphertext",
    "public": "PublicKey",
    "secret": "SecretKey",
    "relin": "RelinKeys",
    "galois": "GaloisKeys",
}


@dataclass(frozen=True, repr=False)
class Form:
    """Constant bytes, and between them the lengths of what may be anything.

    Attributes
    ----------
    role : what it is the form of
    header : the first bytes
    pieces : constants and lengths, in their order
    """

    role: str
    header: bytes
    pieces: tuple[bytes | int, ...]

    @property
    def kind(self) -> str:
        """The class of SEAL that reads it."""
        return _CLASSES[self.role]

    @property
    def length(self) -> int:
        """How many bytes follow the header, without compression."""
        return sum(one if isinstance(one, int) else len(one) for one in self.pieces)

    def checked(self, data: Any) -> bytes:
        """Return an untrusted message uncompressed, for SEAL; raise a `ProtocolError` if its form is wrong."""
        most = _HEADER + self.length + self.length // 100 + 1000
        if not isinstance(data, bytes) or not _HEADER < len(data) <= most:
            raise ProtocolError(f"a message should hold a {self.kind} of at most {most:,} bytes")
        mode, size = data[5], int.from_bytes(data[8:_HEADER], "little")
        if data[:5] != self.header[:5] or data[6:8] != self.header[6:8] or size != len(data):
            raise ProtocolError(f"the {self.kind} {_DAMAGED}")
        plain = _expanded(data[_HEADER:], mode, self.length)
        if plain is None or len(plain) != self.length:
            raise ProtocolError(f"the {self.kind} {_DAMAGED}")
        at = 0
        for one in self.pieces:
            if isinstance(one, bytes) and plain[at : at + len(one)] != one:
                raise ProtocolError(f"the {self.kind} {_DAMAGED}")
            at += one if isinstance(one, int) else len(one)
        return b"".join([data[:5], bytes(3), (_HEADER + len(plain)).to_bytes(8, "little"), plain])


@lru_cache(maxsize=64)
def form_of(parameters: CkksParameters, role: str) -> Form:
    """Return the form of a record, a vector, an answer, or a public, secret or relinearization key."""
    library, context = seal(), parameters.context
    keys, thing = library.KeyGenerator(context), None
    if role == "public":
        thing = library.PublicKey()
        keys.create_public_key(thing)
    elif role == "secret":
        thing = keys.secret_key()
    elif role == "relin":
        thing = keys.create_relin_keys()
    else:
        plain, public = library.Plaintext(), library.PublicKey()
        library.CKKSEncoder(context).encode([1.0], float(2**parameters.scale_bits), plain)
        keys.create_public_key(public)
        if role == "record":
            thing = library.Encryptor(context, keys.secret_key()).encrypt_symmetric(plain)
        else:
            thing = library.Ciphertext()
            library.Encryptor(context, public).encrypt(plain, thing)
        if role == "answer":
            library.Evaluator(context).mod_switch_to_inplace(thing, context.last_parms_id())
    header, found = _own(to_bytes(thing))
    pieces = tuple(_pieces(found))
    if role == "answer":
        first = pieces[0]
        assert isinstance(first, bytes)
        pieces = (first[:_SCALE], 8, first[_SCALE + 8 :], *pieces[1:])
    return Form(role, header, pieces)


@lru_cache(maxsize=16)
def galois_form(parameters: CkksParameters, steps: tuple[int, ...]) -> Form:
    """Return the form of the keys of some rotations: for each possible one their number, mostly 0, and the keys."""
    keys = seal().KeyGenerator(parameters.context)
    header, found = _own(to_bytes(keys.create_galois_keys([3])))  # the element 3 is the second one possible
    head = found[:40]
    possible, none = int.from_bytes(head[32:], "little"), bytes(8)
    one = [*_pieces(found[48 : len(found) - 8 * (possible - 2)])]
    places = {(parameters.element(step) - 1) // 2 for step in steps}
    parts: list[bytes | int] = [head]
    for place in range(possible):
        for part in one if place in places else [none]:
            if isinstance(part, bytes) and isinstance(last := parts[-1], bytes):
                parts[-1] = last + part
            else:
                parts.append(part)
    return Form("galois", header, tuple(parts))


def from_bytes(form: Form, parameters: CkksParameters, data: Any) -> Any:
    """Read a key or ciphertext; a `ProtocolError` if it is damaged, too long, or of other parameters."""
    plain, thing = form.checked(data), getattr(seal(), form.kind)()
    with in_memory() as path:
        Path(path).write_bytes(plain)
        try:
            thing.load(parameters.context, path)
        except (RuntimeError, ValueError, MemoryError, OverflowError, IndexError) as error:
            raise ProtocolError(f"the {form.kind} is damaged, or of other parameters") from error
    return thing


def _own(data: bytes) -> tuple[bytes, bytes]:
    """Return the header and the content of something that SEAL made here."""
    content = _expanded(data[_HEADER:], data[5], 1 << 30)
    assert content is not None
    return data[:_HEADER], content


def _expanded(data: bytes, mode: int, most: int) -> bytes | None:
    """Return data without compression; None if it is damaged, and one byte more than the most if it is longer."""
    if mode == _NONE:
        return data
    if mode == _ZLIB:
        try:
            return zlib.decompressobj().decompress(data, most + 1)
        except zlib.error:
            return None
    if mode != _ZSTD:
        return None
    arrow = require_extra("pyarrow", "federation", "homomorphic encryption")
    try:
        found: bytes = arrow.CompressedInputStream(arrow.BufferReader(data), "zstd").read(most + 1)
        return found
    except (OSError, ValueError, MemoryError):
        return None


def _pieces(own: bytes) -> Iterator[bytes | int]:
    """Yield the constants of something that SEAL made here, and the lengths of its coefficients and seeds."""
    begun = at = 0
    while (at := own.find(b"\x5e\xa1\x10", at)) >= 0:
        size, count = (int.from_bytes(own[at + one : at + one + 8], "little") for one in (8, _HEADER))
        start, length = at + _ARRAY, 8 * count
        if size == _SEEDED:
            start, length = at + _SEEDED - _SEED, _SEED
        elif size != _ARRAY + length:
            at += 1  # the header of something that has arrays in it
            continue
        yield own[begun:start]
        yield length
        begun = at = start + length
    yield own[begun:]
