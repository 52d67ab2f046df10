"""CKKS by Microsoft SEAL (through TenSEAL): parameters of 128 bits of security, and keys and ciphertexts as bytes.

CKKS (Cheon, Kim, Kim and Song 2017) adds and multiplies encrypted vectors of approximate numbers. Each multiplication
uses up one prime of the modulus, so the depth of a computation determines the size of everything.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sfumato.errors import OptionError, require_extra

__all__ = ["CkksParameters", "in_memory", "seal", "to_bytes"]

_SECURE = {8192: 218, 16384: 438}  # bits of modulus by degree: homomorphicencryption.org 2018, 128 bits
_HEADROOM = 10  # bits of a result before its point
# Keys are switched (by rotations and after squares) with the last prime. SEAL's digits of a ciphertext are numbers from
# 0 to a prime, so they have a mean, and the noise of the key times that mean does not average out: it adds up in the
# first slots, whose roots of unity are nearest to 1, about N / pi times stronger than elsewhere. Dividing by a last
# prime that is 10 bits larger than any other makes it 1,000 times smaller, below all other errors.
_SPECIAL = 10
_LEAST, _MOST = 35, 40  # bits of the scale


def seal() -> Any:
    """Return SEAL, or raise an error that says how to install it, or pyarrow, which expands what it has compressed."""
    require_extra("pyarrow", "federation", "homomorphic encryption")
    return require_extra("tenseal.sealapi", "federation", "homomorphic encryption")


@dataclass(frozen=True)
class CkksParameters:
    """The degree of the polynomials and the scale of the numbers, for a depth of multiplications.

    Examples
    --------
    >>> CkksParameters.for_depth(1)
    CkksParameters(degree=8192, depth=1, scale_bits=40)
    >>> CkksParameters.for_depth(40)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: a depth of 40 multiplications on 1 numbers is too much for encryption (use fewer layers)
    """

    degree: int
    depth: int
    scale_bits: int

    @classmethod
    def for_depth(cls, depth: int, width: int = 1) -> CkksParameters:
        """Return the smallest parameters for a depth and a number of numbers in one ciphertext."""
        for degree, bits in _SECURE.items():
            scale = min(_MOST, (bits - 2 * _HEADROOM - _SPECIAL) // (depth + 2))
            if scale >= _LEAST and width <= degree // 2:
                return cls(degree, depth, scale)
        raise OptionError(
            f"a depth of {depth} multiplications on {width:,} numbers is too much for encryption",
            hint="use fewer layers",
        )

    def __post_init__(self) -> None:
        if self.degree not in _SECURE or not (self.depth >= 1 and _LEAST <= self.scale_bits <= _MOST):
            raise OptionError(f"the parameters of the encryption are not among those in use: {self!r}")
        if sum(self._bits) > _SECURE[self.degree]:
            raise OptionError("the parameters of the encryption have less than 128 bits of security")

    @property
    def _bits(self) -> list[int]:
        ends = self.scale_bits + _HEADROOM
        return [ends, *[self.scale_bits] * self.depth, ends + _SPECIAL]

    @property
    def slots(self) -> int:
        """How many numbers a ciphertext holds."""
        return self.degree // 2

    @property
    def range(self) -> float:
        """The largest absolute value of a result; half of what fits, since results have errors."""
        return float(2 ** (_HEADROOM - 2))

    @cached_property
    def context(self) -> Any:
        """SEAL's context."""
        library = seal()
        given = library.EncryptionParameters(library.SCHEME_TYPE.CKKS)
        given.set_poly_modulus_degree(self.degree)
        given.set_coeff_modulus(library.CoeffModulus.Create(self.degree, self._bits))
        return library.SEALContext(given, True, library.SEC_LEVEL_TYPE.TC128)

    def element(self, step: int) -> int:
        """Return the automorphism that rotates a vector to the left."""
        return pow(3, step, 2 * self.degree)


def to_bytes(thing: Any) -> bytes:
    """Return a key or ciphertext of SEAL as bytes."""
    with in_memory() as path:
        thing.save(path)
        return Path(path).read_bytes()


@contextlib.contextmanager
def in_memory() -> Iterator[str]:
    """Yield a path for SEAL, which reads and writes files only: in memory, else in a folder of mode 0700."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("seal")
        try:
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder, "seal"))
