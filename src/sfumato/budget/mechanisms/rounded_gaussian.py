"""Gaussian noise on a public grid, so that the low bits of floats leak nothing.

Noise in 32-bit floats takes few values, and the low bits of a noisy sum can reveal the sum itself (Mironov 2012).
Private training therefore rounds a noisy sum to a public grid: a power of two, 16 to 32 times finer than the standard
deviation of the noise.

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

from sfumato.budget.events import ApproximateEvent

__all__ = ["CELLS", "grid_of", "rounding_event"]

CELLS = 16
"""The minimum of grid cells per standard deviation of the noise; the actual number is below twice that."""


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
