"""Secret sharing: any threshold of shares give the secret, fewer say nothing about it (Shamir 1979).

The secret is the value at 0 of a random polynomial over a prime field, and a share is its value at another place. With
fewer points than coefficients, every secret is equally likely.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from sfumato.errors import ProtocolError

__all__ = ["SHARE_BYTES", "combine", "share"]

_PRIME = 2**521 - 1  # larger than any secret of 64 bytes
_SECRET_BYTES = 32
SHARE_BYTES = 66


def share(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Return the shares of holders 1, 2, ...

    Examples
    --------
    >>> shares = share(b"k" * 32, threshold=2, holders=3)
    >>> combine({1: shares[0], 3: shares[2]}) == b"k" * 32
    True
    """
    if len(secret) != _SECRET_BYTES or not 1 <= threshold <= holders:
        raise ValueError(f"a secret of {_SECRET_BYTES} bytes and a threshold of at most the holders are needed")
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(_PRIME) for _ in range(threshold - 1))]
    return [_value(coefficients, place).to_bytes(SHARE_BYTES) for place in range(1, holders + 1)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret, given the shares of at least as many holders as the threshold.

    Too few or wrong shares give something else: whoever combines them must check the result.
    """
    values = {place: int.from_bytes(one) for place, one in shares.items()}
    if not values or any(len(one) != SHARE_BYTES for one in shares.values()) or max(values.values()) >= _PRIME:
        raise ProtocolError("a share of a secret is damaged")
    secret = 0
    for place, value in values.items():
        above, below = 1, 1
        for other in values:
            if other != place:
                above, below = above * other % _PRIME, below * (other - place) % _PRIME
        secret = (secret + value * above * pow(below, -1, _PRIME)) % _PRIME
    if secret >= 1 << (8 * _SECRET_BYTES):
        raise ProtocolError("the shares do not belong together, or are too few")
    return secret.to_bytes(_SECRET_BYTES)


def _value(coefficients: list[int], place: int) -> int:
    """Return the polynomial's value at a place (Horner's rule)."""
    found = 0
    for one in reversed(coefficients):
        found = (found * place + one) % _PRIME
    return found
