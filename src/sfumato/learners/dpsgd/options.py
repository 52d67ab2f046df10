"""What an option of a training may be: refused in one sentence if it is something else."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sfumato.errors import OptionError

__all__ = ["whole"]


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)
