"""Verified claims of a release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfumato.errors import SfumatoError

__all__ = ["DAMAGED", "Claim", "quote", "reason_of", "same_number", "same_plain"]

DAMAGED = (TypeError, KeyError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""Errors that values of an unexpected type cause in an untrusted file."""
_LONGEST = 60  # characters of an untrusted value that a claim quotes


@dataclass(frozen=True)
class Claim:
    """A claim of a release, whether it holds, and what was measured.

    ``held`` is None for a claim that cannot be checked with the release alone.

    Examples
    --------
    >>> Claim("k is 10", True, 10).to_dict()
    {'claim': 'k is 10', 'held': True, 'measured': 10}
    >>> Claim.unchecked("loss.kl", "it needs the original table").to_dict()
    {'claim': 'loss.kl', 'held': None, 'measured': 'not checkable here: it needs the original table'}
    """

    claim: str
    held: bool | None
    measured: float | str | None

    @classmethod
    def unchecked(cls, claim: str, why: str) -> Claim:
        """Build a claim that the release alone can neither prove nor refute."""
        return cls(claim, None, f"not checkable here: {why}")

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return {"claim": self.claim, "held": self.held, "measured": self.measured}


def same_number(claimed: Any, found: Any, *, precision: float = 1e-9) -> bool:
    """Compare two plain values: numbers up to rounding, others exactly and by type.

    Examples
    --------
    >>> same_number(0.1 + 0.2, 0.3), same_number(1, True), same_number("inf", "inf"), same_number(10**400, 1.0)
    (True, False, True, False)
    """
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (claimed, found)]
    if not all(numbers):
        return type(claimed) is type(found) and bool(claimed == found)
    if isinstance(claimed, int) and isinstance(found, int):
        return claimed == found
    try:
        return math.isclose(claimed, found, rel_tol=precision, abs_tol=1e-12)
    except OverflowError:  # an integer of more than 308 digits
        return False


def same_plain(one: Any, other: Any) -> bool:
    """Compare plain values from JSON and TOML; a null counts as an absent key, because TOML has no null.

    Examples
    --------
    >>> same_plain({"strict": True, "seed": None}, {"strict": True}), same_plain([1, 2], [1, 3])
    (True, False)
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        first, second = ({key: value for key, value in plain.items() if value is not None} for plain in (one, other))
        return first.keys() == second.keys() and all(same_plain(first[key], second[key]) for key in first)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_plain, one, other))
    return same_number(one, other)


def quote(value: Any) -> str:
    """Format an untrusted value in a few words.

    Examples
    --------
    >>> quote(12345), quote(0.25), quote("x" * 100)[-5:], quote(None), quote("inf")
    ('12,345', '0.25', 'xx...', 'not measured', '∞')
    """
    if value is None or value in ("inf", math.inf):
        return "not measured" if value is None else "∞"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 10**30 else "a number with more than 30 digits"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def reason_of(error: BaseException) -> str:
    """Return why an untrusted file cannot be used, in one line of bounded length.

    Examples
    --------
    >>> reason_of(SfumatoError("k must be whole")), reason_of(KeyError("k"))
    ('k must be whole', 'it is damaged')
    """
    return str(error).partition("\n")[0][:200] if isinstance(error, SfumatoError) else "it is damaged"
