"""Representations of objects: a text that never shows a record, and plain values for JSON.

A notebook stores the output of its cells, so a representation that lists all fields, like that of a dataclass, would
store original rows in it.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from enum import Enum
from typing import Any, ClassVar

from sfumato.errors import looks_like_data

__all__ = ["Discreet", "InNotebooks", "Plain", "named", "parameters"]

_MOST_NAMES = 12


class Discreet:
    """Base class for objects whose representation shows only the attributes in ``_repr_fields``, by default none.

    Examples
    --------
    >>> class People(Discreet):
    ...     _repr_fields = ("rows",)
    ...     rows, names = 2, ["Ada", "Bob"]
    >>> People()
    People(rows=2)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({parameters({name: getattr(self, name) for name in self._repr_fields})})"


class InNotebooks:
    """Base class for results that show themselves in a notebook, without a record."""

    def _repr_html_(self) -> str:
        card: str = importlib.import_module("sfumato.report.notebook").card(self)  # a notebook calls what is below it
        return card


class Plain:
    """Base class for dataclasses whose fields are plain values.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size(Plain):
    ...     columns: tuple[str, ...]
    ...     rows: int
    >>> Size(("age",), 3).to_dict()
    {'columns': ['age'], 'rows': 3}
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {
            name: list(one) if isinstance(one, tuple) else one.value if isinstance(one, Enum) else one
            for name, one in values.items()
        }


def named(names: Any) -> str:
    """Return the names of columns, or only their number if they are many or one looks like a cell.

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
    """Return parameters as in a call; for a value that may contain rows, only its type.

    Examples
    --------
    >>> parameters({"k": 5, "labels": ["f", "m"], "model": object()})
    'k=5, labels=<list>, model=<object>'
    """
    return ", ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    """Return the representation of a plain value or of a Sfumato object, and only the type of anything else."""
    if isinstance(value, dict):
        return f"<{len(value)} by name>"
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain or type(value).__module__.startswith("sfumato") else f"<{type(value).__name__}>"
