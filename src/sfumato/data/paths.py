"""The path of a value in a hierarchy: its labels, from the value itself to the root; checked and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sfumato._errors import SchemaError

__all__ = ["MISSING", "ROOT", "Labels", "check_nested", "draw", "present", "text_of"]

ROOT = "*"
MISSING = "(missing)"
Labels = tuple[str, ...]


def present(values: Iterable[Any]) -> list[Any]:
    """Return values as a list in which None is the only missing value.

    Examples
    --------
    >>> present([1.5, float("nan"), None])
    [1.5, None, None]
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    return [None if value is None or value != value else value for value in values]


def text_of(value: Any) -> str:
    """Return the text that stands for a value in a hierarchy: whole numbers have no decimal point.

    Examples
    --------
    >>> text_of(39.0), text_of("039"), text_of(None)
    ('39', '039', '(missing)')
    """
    if value is None or value != value:
        return MISSING
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas holds whole numbers with gaps as floats
    return str(value)


def check_nested(paths: Iterable[Labels]) -> None:
    """Refuse paths that part after they have met, naming where.

    Examples
    --------
    >>> check_nested([("flu", "lung", "a"), ("cold", "lung", "b")])
    Traceback (most recent call last):
        ...
    sfumato._errors.SchemaError: levels of a hierarchy must nest: 'lung' belongs to both 'a' and 'b'
    """
    above: dict[tuple[int, str], str] = {}
    for path in paths:
        for level in range(len(path) - 1):
            label, parent = path[level], path[level + 1]
            known = above.setdefault((level, label), parent)
            if known != parent:
                raise SchemaError(
                    f"levels of a hierarchy must nest: '{label}' belongs to both '{known}' and '{parent}'"
                )


def draw(paths: Iterable[Labels], lines: int) -> str:
    """Draw paths as an indented tree of at most so many lines; its lower levels are left out if need be.

    Examples
    --------
    >>> print(draw([("flu", "lung", "*"), ("asthma", "lung", "*"), ("ulcer", "stomach", "*")], lines=40))
    *
      lung: flu, asthma
      stomach: ulcer
    """
    distinct = list(dict.fromkeys(paths))
    if not distinct:
        return ROOT
    top = len(distinct[0]) - 1
    nodes = [len({path[level] for path in distinct}) for level in range(top + 1)]
    lowest = next((level for level in range(1, top) if sum(nodes[level:]) <= lines), top)
    return "\n".join(" ".join(line.splitlines()) for line in _drawn(distinct, top, lowest, ""))


def _drawn(paths: Sequence[Labels], level: int, lowest: int, indent: str) -> Iterator[str]:
    """Yield the lines of the group that these paths share at a level; at the lowest, its values follow it."""
    label, leaves = paths[0][level], [path[0] for path in paths]
    while level > lowest and all(path[level - 1] == label for path in paths):
        level -= 1
    if leaves == [label] or label == f"{{{', '.join(leaves)}}}":
        yield indent + label
    elif level <= lowest:
        yield f"{indent}{label}: {_listed(leaves)}"
    else:
        yield indent + label
        groups: dict[str, list[Labels]] = {}
        for path in paths:
            groups.setdefault(path[level - 1], []).append(path)
        for group in groups.values():
            yield from _drawn(group, level - 1, lowest, indent + "  ")


def _listed(values: Sequence[str], width: int = 80) -> str:
    text = ", ".join(values)
    if len(text) <= width:
        return text
    cut = text.rfind(", ", 0, width)
    return f"{text[: cut if cut > 0 else width]}, ... ({len(values):,} values)"
