"""Check that an option is a number in its range, or one of several names; every package uses these checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from sfumato.errors import OptionError, did_you_mean

__all__ = ["by_name", "real", "whole"]

_T = TypeVar("_T")


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int, or raise an `OptionError` if it is not a whole number from `least` to `most`.

    A bool and a float are rejected, also a float such as 3.0.

    Examples
    --------
    >>> whole("k", 10, least=2)
    10
    >>> whole("the number of bins", 0, least=1, most=100)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: the number of bins must be a whole number from 1 to 100, got 0
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if number >= least and (most is None or number <= most):
            return number
    span = f"of at least {_shown(least)}" if most is None else f"from {_shown(least)} to {_shown(most)}"
    raise OptionError(f"{name} must be a whole number {span}, got {value!r}")


def real(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a float, or raise an `OptionError` if it is not a finite number in the range.

    `least` and `most` belong to the range, `above` and `below` do not. A bool is rejected.

    Examples
    --------
    >>> real("epsilon", 1, above=0)
    1.0
    >>> real("the confidence", 1.5, above=0, below=1)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: the confidence must be a number between 0 and 1, got 1.5
    """
    number = _float(value)
    if (
        math.isfinite(number)
        and (least is None or number >= least)
        and (above is None or number > above)
        and (most is None or number <= most)
        and (below is None or number < below)
    ):
        return number
    raise OptionError(f"{name} must be a {_range(least, above, most, below)}, got {value!r}")


def by_name(what: str, value: Any, known: Mapping[str, _T]) -> _T:
    """Return the entry with a name; a function is returned as it is.

    Examples
    --------
    >>> by_name("schedule", "cosin", {"cosine": 1})
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no schedule 'cosin' (did you mean 'cosine'?)
    """
    if callable(value):
        own: _T = value
        return own
    if not isinstance(value, str) or value not in known:
        raise OptionError(f"there is no {what} {value!r}", hint=did_you_mean(str(value), known))
    return known[value]


def _float(value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the largest float
        return math.inf


def _range(least: float | None, above: float | None, most: float | None, below: float | None) -> str:
    if above is not None and below is not None:
        return f"number between {_shown(above)} and {_shown(below)}"
    if least is not None and most is not None:
        return f"number from {_shown(least)} to {_shown(most)}"
    low = f"above {_shown(above)}" if above is not None else f"of at least {_shown(least)}" if least is not None else ""
    high = f"below {_shown(below)}" if below is not None else f"at most {_shown(most)}" if most is not None else ""
    number = "number" if low and high else "finite number"
    return " ".join([number, " and ".join(filter(None, (low, high)))]).strip()


def _shown(limit: float) -> str:
    return f"{int(limit):,}" if abs(limit) < 1e15 and limit == int(limit) else f"{limit:g}"
