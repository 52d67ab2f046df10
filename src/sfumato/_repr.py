"""What an object shows of itself: its class and a few of its numbers, never a record.

A notebook stores what its cells print. A representation that lists fields, as a dataclass's own does, would store
original rows with it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sfumato.errors import looks_like_data

__all__ = ["Discreet", "named", "parameters"]

_MOST_NAMES = 12


class Discreet:
    """An object that shows only those of its attributes that ``_told`` names; none by default.

    Examples
    --------
    >>> class People(Discreet):
    ...     _told = ("rows",)
    ...     rows, names = 2, ["Ada", "Bob"]
    >>> People()
    People(rows=2)
    """

    _told: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self._told)
        return f"{type(self).__name__}({told})"


def named(names: Any) -> str:
    """Write the names of columns; only how many they are if one looks like a cell, or if they are many.

    Examples
    --------
    >>> named(["age", "sex"]), named(["Ada", "02139"])
    ('age, sex', '2 columns')
    """
    known = list(names)
    if len(known) > _MOST_NAMES or any(looks_like_data(str(name)) for name in known):
        return f"{len(known)} columns"
    return ", ".join(map(str, known))


def parameters(values: dict[str, Any]) -> str:
    """Write parameters as a call would; of one that may hold rows, only its type.

    Examples
    --------
    >>> parameters({"k": 5, "labels": ["f", "m"], "model": object()})
    'k=5, labels=<list>, model=<object>'
    """
    return ", ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    """Write numbers, names of ours and objects that are discreet themselves; of all else the type."""
    if isinstance(value, dict):
        return f"<{len(value)} by name>"
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain or type(value).__module__.startswith("sfumato") else f"<{type(value).__name__}>"
