"""Numbers as whole numbers modulo 2^32 or 2^64, such that the sum of all parties cannot overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, OptionError

__all__ = ["FixedPoint"]

Words = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class FixedPoint:
    """How numbers are coded.

    Parameters
    ----------
    bound : float
        The largest absolute value of a number of one party.
    parties : int
        How many parties add up their numbers, at most.
    bits : int
        32 or 64: the size of a coded number.

    Examples
    --------
    >>> code = FixedPoint(bound=1.0, parties=3)
    >>> total = code.encode([0.25, -1.0]) + code.encode([0.5, 1.0])
    >>> code.decode(total).round(6).tolist()
    [0.75, 0.0]
    >>> code.step < 2e-9
    True
    """

    bound: float
    parties: int
    bits: int = 32

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise OptionError(f"a coded number must have 32 or 64 bits, got {self.bits!r}")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise OptionError(f"the bound of the numbers must be above 0, got {self.bound!r}")
        if isinstance(self.parties, bool) or not isinstance(self.parties, int) or not 1 <= self.parties < 2**16:
            raise OptionError(f"the number of parties must be a whole number from 1 to 65,535, got {self.parties!r}")

    @property
    def type(self) -> np.dtype[Any]:
        """The type of a coded number."""
        return np.dtype(f"<u{self.bits // 8}")

    @property
    def step(self) -> float:
        """The distance of neighbouring coded numbers: a power of 2, so that decoding is exact."""
        # One step of rounding for each party; beyond 2^53 steps, a float would not be exact.
        most = 2 ** (min(self.bits, 54) - 1) - 1 - self.parties
        return float(2.0 ** math.ceil(math.log2(self.bound * self.parties / most)))

    def encode(self, values: Any) -> Words:
        """Return coded numbers; an error if a number is not finite or is out of bounds."""
        given = np.asarray(values, dtype=np.float64)
        if not np.isfinite(given).all():
            raise InputError("the numbers to add up must be finite")
        if given.size and np.abs(given).max() > self.bound:
            raise InputError(f"a number to add up is out of its bounds: from {-self.bound:g} to {self.bound:g}")
        return self.of_integers(np.rint(given / self.step).astype(np.int64))

    def of_integers(self, steps: NDArray[np.int64]) -> Words:
        """Return whole numbers of steps, modulo 2^bits."""
        return steps.astype(np.uint64).astype(self.type)

    def decode(self, total: Words) -> NDArray[np.float64]:
        """Return the sum that the coded numbers of all parties add up to."""
        signed = total.astype(self.type).view(np.dtype(f"<i{self.bits // 8}"))
        return np.asarray(signed.astype(np.float64) * self.step)
