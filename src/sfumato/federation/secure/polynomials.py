"""OpenFHE's keys and ciphertexts as polynomials in numpy: added up, compared and drawn without parsing by OpenFHE.

A serialized key or ciphertext is a few polynomials, each once per prime of the modulus, between constant bytes:

    ... | number of coefficients (8) | coefficients (8 each) | prime (8) | ...

Messages of others are accepted only if they equal one of our own in every byte but the coefficients, and if these are
below their primes. So what OpenFHE parses is always of the right parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from sfumato.errors import ProtocolError
from sfumato.federation.secure.openfhe import VERSION

__all__ = ["RING", "Layout"]

RING = 16384
"""Coefficients of a polynomial."""
_SIZE = 8 * RING
_COUNT = RING.to_bytes(8, "little")
_AT_ONCE = 15  # sums of so many numbers below 2^60 fit into 64 bits

Coefficients = NDArray[np.uint64]


@dataclass(frozen=True)
class Layout:
    """Where the coefficients are, the prime of each run of them, and the bytes between."""

    length: int
    starts: tuple[int, ...]
    primes: tuple[int, ...]
    between: tuple[bytes, ...]

    @classmethod
    def of(cls, own: bytes, polynomials: int) -> Layout:
        """Find the coefficients in something that OpenFHE made here."""
        starts, primes, between, at, found = [], [], [], 0, -1
        while (found := own.find(_COUNT, found + 1, at + 8192)) >= 0:
            start, end = found + 8, found + 8 + _SIZE
            prime = int.from_bytes(own[end : end + 8], "little")
            if 2**59 < prime < 2**60 and prime % (2 * RING) == 1:
                starts.append(start)
                primes.append(prime)
                between.append(own[at:start])
                at = found = end
        between.append(own[at:])
        made = cls(len(own), tuple(starts), tuple(primes), tuple(between))
        each = len(primes) // polynomials
        if not primes or primes != primes[:each] * polynomials or any((b >= p).any() for b, p in made.read(own)):
            raise ProtocolError(
                "this version of OpenFHE writes keys in another form", hint=f"pip install openfhe=={VERSION}"
            )
        return made

    def read(self, data: bytes) -> list[tuple[Coefficients, np.uint64]]:
        """Return the coefficients and the prime of each run."""
        return [
            (np.frombuffer(data, "<u8", RING, start), np.uint64(prime))
            for start, prime in zip(self.starts, self.primes, strict=True)
        ]

    def check(self, data: bytes, what: str) -> None:
        """Raise an error unless data of a stranger is of the same form and parameters."""
        good = len(data) == self.length
        at = 0
        for part in self.between:
            good = good and data[at : at + len(part)] == part
            at += len(part) + _SIZE
        if not good or any((run >= prime).any() for run, prime in self.read(data)):
            raise ProtocolError(f"{what} is damaged, or of other parameters")

    def add(self, every: Iterable[bytes]) -> bytes:
        """Return the sum of several polynomials, or tuples of them, whose form was checked."""
        datas = list(every)
        found = []
        for start, prime in zip(self.starts, self.primes, strict=True):
            total = np.zeros(RING, np.uint64)
            for at in range(0, len(datas), _AT_ONCE - 1):
                for one in datas[at : at + _AT_ONCE - 1]:
                    total += np.frombuffer(one, "<u8", RING, start)
                total %= np.uint64(prime)
            found.append(total)
        return self._written(found)

    def replaced(self, data: bytes, polynomial: int, by: bytes) -> bytes:
        """Return data with one polynomial replaced by uniform numbers that follow from a key of 32 bytes."""
        runs = [one.copy() for one, _ in self.read(data)]
        each = len(self.primes) // 2
        for at in range(each):
            runs[polynomial * each + at] = _uniform(by, at, self.primes[at])
        return self._written(runs)

    def same(self, first: bytes, other: bytes, polynomial: int) -> bool:
        """Whether two have one polynomial in common."""
        each = len(self.primes) // 2
        starts = self.starts[polynomial * each : (polynomial + 1) * each]
        return all(first[start : start + _SIZE] == other[start : start + _SIZE] for start in starts)

    def joined(self, every: Sequence[bytes]) -> bytes:
        """Return the sum of the first polynomials; the second ones are the same in all."""
        total, each = self.read(self.add(every)), len(self.primes) // 2
        return self._written([one for one, _ in (total[:each] + self.read(every[0])[each:])])

    def _written(self, runs: Sequence[Coefficients]) -> bytes:
        parts = [self.between[0]]
        for run, after in zip(runs, self.between[1:], strict=True):
            parts += [run.astype("<u8").tobytes(), after]
        return b"".join(parts)


@lru_cache(maxsize=8)
def _uniform(key: bytes, at: int, prime: int) -> Coefficients:
    """Return uniform numbers below a prime of 60 bits: AES in counter mode, numbers above are dropped."""
    stream = Cipher(algorithms.AES256(key), modes.CTR(at.to_bytes(8) + bytes(8))).encryptor()
    words = np.frombuffer(stream.update(bytes(2 * _SIZE)), "<u8") >> np.uint64(4)
    kept = words[words < prime]
    assert len(kept) >= RING
    return np.asarray(kept[:RING])
