"""Random numbers for privacy, from the operating system's entropy, with exact distributions.

The random bits are those of AES in counter mode under a key from the operating system. Noise on statistics
is in whole numbers and has exactly the stated distribution: floats decide a draw only where their error
cannot matter, and arbitrary precision decides the rest, so float rounding never affects a released value
(Mironov 2012; Canonne, Kamath and Steinke 2020).

Training needs millions of numbers per step, which the learners compute in floats. Noise in 32-bit floats takes few
values, and the low bits of a noisy sum can reveal the sum itself, so private training rounds it to a public grid: a
power of two, 16 to 32 times finer than the standard deviation of the noise.

Let S be the sum, N ideal Gaussian noise and g the grid. ``round((S + N) / g)`` is a function of S + N, so rounding
costs nothing beyond S + N, whose cost is known. The computed value differs from it in two ways.

- N is made from finitely many bits: the radius of two normal numbers from at least 106, their angle from 64 (Box and
  Muller 1958).
- Functions of 64-bit floats have an error of a few units in the last place: 16 are assumed (the libraries state at
  most 4), and near the centre the rounding of the uniform number.

Both shift the borders between grid cells, by at most 2^-44 r + 2^-48 / r of a cell at radius r. The probability of a
cell in two coordinates thus changes by a factor of 1 + 2^-41 in the root mean square; beyond a radius of 9, where
fewer bits are left, it may change by more. By Chernoff's bound over d independent coordinates, the privacy loss of a
step grows by at most 2^-36 sqrt(d), except with a probability of

    2^-56 + 2^-59 sqrt(d) + 2 Q(9 - 1 / z),

where z is the noise multiplier and Q the tail of the normal distribution. The terms are the failure probability of
Chernoff's bound, and a coordinate beyond radius 9 for this sum or for the neighbour's, at most 1 / z deviations away.
`rounding_event` charges both with every step. The accuracy that the libraries state is assumed, not verified.
"""

from __future__ import annotations

import math
import os
import secrets
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import ApproximateEvent
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError

__all__ = ["CELLS", "Source", "grid_of", "rounding_event"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CELLS = 16
"""The minimum of grid cells per standard deviation of the noise; the actual number is below twice that."""
_ULP = 2.0**-52
_LARGEST_SCALE = 2.0**40  # above it, floats decide too few draws
_AT_ONCE = 1 << 22  # numbers drawn at a time, to bound memory


class Source:
    """A source of random numbers for noise.

    Parameters
    ----------
    insecure_seed : int, optional
        Makes the noise reproducible; a release made with it is not private.

    Examples
    --------
    >>> Source().discrete_gaussian(2.0, 5).shape
    (5,)
    >>> Source(insecure_seed=1).discrete_laplace(10.0, 4)
    array([ 16,   7, -15,   3])
    >>> Source(insecure_seed=1).private
    False
    """

    def __init__(self, *, insecure_seed: int | None = None) -> None:
        seed = None if insecure_seed is None else whole("the seed of noise", insecure_seed, least=0)
        if seed is not None and seed >= 2**256:
            raise OptionError(f"the seed of noise must be below 2**256, got {seed!r}")
        self.private = seed is None
        """Whether the noise comes from the operating system, so that it cannot be reproduced."""
        self._begin(secrets.token_bytes(32) if seed is None else seed.to_bytes(32, "little"))

    def _begin(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # Every key is used once, so its counter may start at 0.
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._process = os.getpid()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return random 64-bit words."""
        return np.frombuffer(self._cipher().update(bytes(8 * count)), dtype=np.uint64)

    def fill(self, into: bytearray, count: int) -> None:
        """Write random bytes to the start of a buffer that is at least 16 bytes longer."""
        self._cipher().update_into(bytes(count), into)

    def _cipher(self) -> Any:
        if self.private and self._process != os.getpid():  # a forked child must not repeat its parent's noise
            self._begin(secrets.token_bytes(32))
        return self._stream

    def below(self, limit: int, count: int) -> Integers:
        """Return uniform whole numbers from 0 to limit - 1."""
        if not 1 <= limit <= 2**62:
            raise OptionError(f"the limit must be a whole number from 1 to 2**62, got {limit!r}")
        ceiling = 2**64 // limit * limit - 1  # words above it would favour small numbers
        words = self.words(count)
        while (biased := words > np.uint64(ceiling)).any():
            words = words.copy()
            words[biased] = self.words(int(biased.sum()))
        return (words % np.uint64(limit)).astype(np.int64)

    def permutation(self, count: int) -> Integers:
        """Return a uniformly random permutation of the numbers from 0 to count - 1."""
        keys = self.words(count)
        while len(np.unique(keys)) < count:
            keys = self.words(count)
        return np.argsort(keys).astype(np.int64)

    def bernoulli(self, probability: float | Floats, count: int) -> NDArray[np.bool_]:
        """Return Bernoulli draws whose probabilities are exactly the given floats."""
        scaled = np.broadcast_to(np.asarray(probability, dtype=np.float64) * 2.0**64, (count,))
        sure = scaled >= 2.0**64
        limit = np.where(sure, 0.0, scaled).astype(np.uint64)  # small probabilities also have a fractional part
        words = self.words(count)
        result = (words < limit) | sure
        for at in np.flatnonzero((words == limit) & ~sure):
            rest = float(scaled[at]) - int(limit[at])
            result[at] = rest > 0 and self.bernoulli(rest, 1)[0]
        return result

    def bernoulli_exp(self, exponent: Floats, exact: Any) -> NDArray[np.bool_]:
        """Return Bernoulli draws with probability exactly exp(-x) for each exponent x >= 0.

        ``exact(i)`` returns the i-th exponent as a fraction; it is called where floats cannot decide.
        """
        words = self.words(len(exponent))
        drawn, limit = words.astype(np.float64), np.exp(-exponent) * 2.0**64
        # The exponent, its exponential and the word each have an error of a few units in the last place.
        doubt = 1.0 + (limit * (16 + 8 * exponent) + drawn) * _ULP
        result = drawn < limit
        for at in np.flatnonzero(np.abs(drawn - limit) <= doubt):
            result[at] = self._bernoulli_exp_exactly(int(words[at]), exact(int(at)))
        return result

    def _bernoulli_exp_exactly(self, word: int, exponent: Fraction) -> bool:
        bits = 64
        while exponent:
            down, up = _contexts(bits)
            low, high = _as_decimals(-exponent, down, up)
            least, most = down.exp(low).next_minus(down), up.exp(high).next_plus(up)
            if up.divide(Decimal(word + 1), Decimal(2**bits)) <= least:
                return True
            if down.divide(Decimal(word), Decimal(2**bits)) >= most:
                return False
            word, bits = (word << 64) | int(self.words(1)[0]), bits + 64
        return True

    def geometric(self, scale: float, count: int) -> Integers:
        """Return whole numbers x >= 0 with a probability proportional to exp(-x / scale), exactly.

        The whole part of an exponential number with mean `scale` has this geometric distribution.
        """
        words = self.words(count)
        with np.errstate(divide="ignore"):
            logarithm = -np.log((words.astype(np.float64) + 0.5) * 2.0**-64)
            # The logarithm has an error of a few units; over the interval that a word represents it varies by 1 / word.
            doubt = scale * ((16 + 16 * logarithm) * _ULP + 2.0 / words.astype(np.float64))
        value = scale * logarithm
        whole = np.floor(value)
        result = np.minimum(whole, 2.0**62).astype(np.int64)
        for at in np.flatnonzero((value - whole <= doubt) | (whole + 1 - value <= doubt) | (words == 0)):
            result[at] = self._geometric_exactly(int(words[at]), Fraction(scale))
        return result

    def _geometric_exactly(self, word: int, scale: Fraction) -> int:
        bits = 64
        while True:
            down, up = _contexts(bits)
            lower, upper = _as_decimals(scale, down, up)
            if word:
                # The upper end of the interval has the smaller negative logarithm.
                smallest = up.ln(up.divide(Decimal(word + 1), Decimal(2**bits))).next_plus(up).copy_negate()
                largest = down.ln(down.divide(Decimal(word), Decimal(2**bits))).next_minus(down).copy_negate()
                first, last = down.multiply(lower, max(smallest, Decimal(0))), up.multiply(upper, largest)
                if math.floor(first) == math.floor(last):
                    return math.floor(first)
            word, bits = (word << 64) | int(self.words(1)[0]), bits + 64

    def discrete_laplace(self, scale: float, count: int) -> Integers:
        """Return whole numbers x with a probability proportional to exp(-|x| / scale), exactly.

        The difference of two geometric numbers has this distribution.
        """
        scale = _scale(scale)
        return self._in_parts(count, lambda part: self.geometric(scale, part) - self.geometric(scale, part))

    def discrete_gaussian(self, scale: float, count: int) -> Integers:
        """Return whole numbers x with a probability proportional to exp(-x**2 / (2 scale**2)), exactly.

        Rejection sampling from discrete Laplace proposals (Canonne, Kamath and Steinke 2020, algorithm 3).
        """
        scale = _scale(scale)
        return self._in_parts(count, lambda part: self._discrete_gaussian(scale, part))

    def _discrete_gaussian(self, scale: float, count: int) -> Integers:
        step = math.floor(scale) + 1
        square = Fraction(scale) ** 2
        centre = float(square / step)
        kept: list[Integers] = []
        missing = count
        while missing > 0:
            proposed = self.discrete_laplace(float(step), missing + missing // 2 + 16)
            size = np.abs(proposed)
            exponent = (size - centre) ** 2 / (2 * float(square))
            accepted = self.bernoulli_exp(exponent, _GaussianExponent(size, square, step))
            kept.append(proposed[accepted][:missing])
            missing -= len(kept[-1])
        return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)

    def _in_parts(self, count: int, draw: Any) -> Integers:
        parts: list[Integers] = [draw(min(_AT_ONCE, count - start)) for start in range(0, count, _AT_ONCE)]
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros(0, dtype=np.int64)])


class _GaussianExponent:
    """The exponents of the acceptance probabilities of proposed numbers, as fractions."""

    def __init__(self, size: Integers, square: Fraction, step: int) -> None:
        self.size, self.square, self.step = size, square, step

    def __call__(self, at: int) -> Fraction:
        return (int(self.size[at]) - self.square / self.step) ** 2 / (2 * self.square)


def _scale(scale: Any) -> float:
    return real("the scale of noise in whole numbers", scale, above=0, most=_LARGEST_SCALE)


def _contexts(bits: int) -> tuple[Context, Context]:
    """Return decimal contexts with more digits than the bits need, one rounding down and one rounding up."""
    digits = bits // 2 + 20
    return Context(prec=digits, rounding=ROUND_FLOOR), Context(prec=digits, rounding=ROUND_CEILING)


def _as_decimals(number: Fraction, down: Context, up: Context) -> tuple[Decimal, Decimal]:
    top, bottom = Decimal(number.numerator), Decimal(number.denominator)
    return down.divide(top, bottom), up.divide(top, bottom)


def grid_of(scale: float) -> float:
    """Return the grid for noise with this standard deviation: a power of two.

    Examples
    --------
    >>> grid_of(1.0), grid_of(1.9), grid_of(2.0)
    (0.0625, 0.0625, 0.125)
    """
    return math.ldexp(1.0, math.frexp(scale)[1] - 1) / CELLS


def rounding_event(dimensions: int, noise_multiplier: float) -> ApproximateEvent:
    """Return the extra cost of one step over ideal Gaussian noise, as derived in the module docstring.

    Examples
    --------
    >>> print(rounding_event(26_010, 1.0))
    a mechanism of epsilon 2.34688e-09 and delta 1.53784e-15
    """
    beyond = math.erfc((9 - 1 / noise_multiplier) / math.sqrt(2))  # both tails
    missed = 2.0**-56 + 2.0**-59 * math.sqrt(dimensions) + beyond
    return ApproximateEvent(2.0**-36 * math.sqrt(dimensions), min(missed, 0.5))
