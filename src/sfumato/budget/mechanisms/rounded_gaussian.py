"""Gaussian noise on a public grid, so that no bit of a float betrays what is under the noise.

Floats are not real numbers: noise made of 32-bit floats has few values, and the last bits of a noisy sum can name the
sum under it (Mironov 2012). Private training therefore rounds a noisy sum to a public grid: a power of two, 16 to 32
times finer than the deviation of the noise.

Let S be the sum, N ideal Gaussian noise and g the grid. ``round((S + N) / g)`` is computed from S + N, whose privacy
the accountant knows: rounding costs nothing. What is computed here differs from it in two ways.

- N comes from finitely many bits: the radius of two normal numbers from at least 106, their angle from 64 (Box and
  Muller 1958).
- The functions of 64-bit floats are off by a few units in the last place: 16 are allowed for (the libraries state 4
  and fewer), and near the centre the rounding of the uniform number.

Either moves the borders between cells of the grid: by at most 2^-44 r + 2^-48 / r of a cell at a radius of r. The
probability of a cell, two coordinates at a time, so changes by a factor of 1 + 2^-41 in the root mean square; beyond a
radius of 9, where fewer bits are left, it may change by more. By Chernoff's bound over d independent
coordinates the privacy loss of a step grows by at most 2^-36 sqrt(d), except with a probability of

    2^-56 + 2^-59 sqrt(d) + 2 Q(9 - 1 / z),

where z is the noise multiplier and Q the tail of the normal distribution: what Chernoff's bound leaves, a coordinate
beyond that radius, and one that is beyond it for the neighbour's sum only, at most 1 / z deviations away.
`rounding_event` charges both with every step. That the libraries keep to their stated accuracy is taken from them.
"""

from __future__ import annotations

import math

from sfumato.budget.events import ApproximateEvent

__all__ = ["CELLS", "grid_of", "rounding_event"]

CELLS = 16
"""How many cells of the grid the deviation of the noise has at least; it has less than twice as many."""


def grid_of(scale: float) -> float:
    """Return the grid for noise of a deviation: a power of two.

    Examples
    --------
    >>> grid_of(1.0), grid_of(1.9), grid_of(2.0)
    (0.0625, 0.0625, 0.125)
    """
    return math.ldexp(1.0, math.frexp(scale)[1] - 1) / CELLS


def rounding_event(dimensions: int, noise_multiplier: float) -> ApproximateEvent:
    """Return what one step costs beyond ideal Gaussian noise, as derived at the top of this module.

    Examples
    --------
    >>> print(rounding_event(26_010, 1.0))
    a mechanism of epsilon 2.34688e-09 and delta 1.53784e-15
    """
    beyond = math.erfc((9 - 1 / noise_multiplier) / math.sqrt(2))  # both tails
    missed = 2.0**-56 + 2.0**-59 * math.sqrt(dimensions) + beyond
    return ApproximateEvent(2.0**-36 * math.sqrt(dimensions), min(missed, 0.5))
