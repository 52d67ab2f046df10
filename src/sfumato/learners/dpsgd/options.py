"""What an option of a training may be: refused in one sentence if it is something else."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    import torch

__all__ = ["device_of", "named", "whole"]

_T = TypeVar("_T")


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def named(what: str, value: Any, known: Mapping[str, _T]) -> _T:
    """Return what a name stands for, or a function of the caller's own.

    Examples
    --------
    >>> named("layout", "contigous", {"contiguous": 1})
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no layout 'contigous' (did you mean 'contiguous'?)
    """
    if callable(value):
        return value
    if not isinstance(value, str) or value not in known:
        raise OptionError(f"there is no {what} {value!r}", hint=did_you_mean(str(value), known))
    return known[value]


def device_of(name: str) -> torch.device:
    """Return a device if something can be put there."""
    import torch

    try:
        return torch.zeros(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"there is no device {name!r}", hint="cpu, or cuda where there is a GPU") from error
