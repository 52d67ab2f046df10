"""A claim of a release, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Claim"]


@dataclass(frozen=True)
class Claim:
    """Something that a release says of itself, whether it is so, and what was found.

    Examples
    --------
    >>> Claim("k is 10", True, 10).to_dict()
    {'claim': 'k is 10', 'held': True, 'measured': 10}
    """

    claim: str
    held: bool
    measured: float | str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return {"claim": self.claim, "held": self.held, "measured": self.measured}
