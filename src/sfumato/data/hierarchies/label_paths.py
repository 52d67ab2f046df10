"""Paths of values in a hierarchy, from the value itself to the root: their labels, checks and drawings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sfumato.data.released_values import MARK, MISSING, write_set
from sfumato.errors import SchemaError

__all__ = [
    "MISSING",
    "ROOT",
    "Labels",
    "check_nested",
    "draw",
    "is_missing",
    "mark_hint",
    "plain_values",
    "text_of",
]

ROOT = MARK
Labels = tuple[str, ...]
_MARKS = ("", "?", "-", ".", "na", "n/a", "nan", "null")  # common marks for a missing value


def plain_values(values: Iterable[Any]) -> list[Any]:
    """Convert values to plain Python values, with None for a missing one.

    Examples
    --------
    >>> plain_values([1.5, float("nan"), None, np.float32(0.7)])
    [1.5, None, None, 0.7]
    """
    if str(getattr(values, "dtype", "")).lower() in ("float16", "float32"):
        values = np.asarray(values)  # Polars and pandas would turn 0.7 into 0.699999988079071
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, np.float16 | np.float32):
        value = float(str(value))  # by its shortest text
    elif isinstance(value, np.datetime64) and isinstance(value.item(), int):
        value = value.astype("datetime64[us]").item()  # Python has no nanoseconds
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        raise SchemaError(f"a value of a hierarchy must be one text, number or date, got a {type(value).__name__}")
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' mark for a missing value.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def mark_hint(text: str) -> str:
    """Return a hint for a text that looks like a mark for a missing value, or an empty text.

    Examples
    --------
    >>> mark_hint("?"), mark_hint("flu")
    ('is it a missing value? name it with na / --na', '')
    """
    return "is it a missing value? name it with na / --na" if text.strip().lower() in _MARKS else ""


def text_of(value: Any) -> str:
    """Return the text of a value in a hierarchy; whole numbers have no decimal point.

    Examples
    --------
    >>> text_of(39.0), text_of("039"), text_of(None)
    ('39', '039', '(missing)')
    """
    if is_missing(value):
        return MISSING
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas stores integers with missing values as floats
    return str(value)


def check_nested(paths: Iterable[Labels]) -> None:
    """Refuse paths that diverge after they have met.

    Examples
    --------
    >>> check_nested([("flu", "lung", "a"), ("cold", "lung", "b")])
    Traceback (most recent call last):
        ...
    sfumato.errors.SchemaError: levels of a hierarchy must nest: 'lung' belongs to both 'a' and 'b'
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
    """Draw paths as an indented tree, without its lower levels if it would have too many lines.

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
    """Yield the lines of the group that the paths share at a level; at the lowest level, list its values."""
    label, leaves = paths[0][level], [path[0] for path in paths]
    while level > lowest and all(path[level - 1] == label for path in paths):
        level -= 1
    is_set = label.startswith("{") and sorted(label) == sorted(write_set(leaves, ()))
    shown = f"{{{_listed(leaves)}}}" if is_set else label
    is_complete = is_set and (level <= lowest or (shown == label and all(path[level - 1] == path[0] for path in paths)))
    if leaves == [label] or is_complete:
        yield indent + shown
    elif level <= lowest:
        yield f"{indent}{shown}: {_listed(leaves)}"
    else:
        yield indent + shown
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
