"""The path of a value in a hierarchy: its labels, from the value itself to the root; checked and drawn."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sfumato.errors import SchemaError

__all__ = [
    "MISSING",
    "ROOT",
    "Labels",
    "check_nested",
    "complement_of",
    "draw",
    "is_long",
    "is_missing",
    "mark_hint",
    "present",
    "set_of",
    "text_of",
]

ROOT = "*"
MISSING = "(missing)"
Labels = tuple[str, ...]
_LONG = 8
_MARKS = ("", "?", "-", ".", "na", "n/a", "nan", "null")  # how files write a missing value


def present(values: Iterable[Any]) -> list[Any]:
    """Return values as a list of plain Python values, in which None is the only missing one.

    Examples
    --------
    >>> present([1.5, float("nan"), None, np.float32(0.7)])
    [1.5, None, None, 0.7]
    """
    if str(getattr(values, "dtype", "")).lower() in ("float16", "float32"):
        values = np.asarray(values)  # polars and pandas would turn 0.7 into 0.699999988079071
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, np.float16 | np.float32):
        value = float(str(value))  # the shortest text that stands for it
    elif isinstance(value, np.datetime64) and isinstance(value.item(), int):
        value = value.astype("datetime64[us]").item()  # Python has no nanoseconds
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        raise SchemaError(f"a value of a hierarchy must be one text, number or date, got a {type(value).__name__}")
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """Say whether a value is None, not a number, or what pandas writes for a missing value.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA does not say whether it equals itself
        return True


def mark_hint(text: str) -> str:
    """Return what to do about a text that looks like a mark for a missing value; for other texts nothing.

    Examples
    --------
    >>> mark_hint("?"), mark_hint("flu")
    ('is it a missing value? name it with na / --na', '')
    """
    return "is it a missing value? name it with na / --na" if text.strip().lower() in _MARKS else ""


def text_of(value: Any) -> str:
    """Return the text that stands for a value in a hierarchy: whole numbers have no decimal point.

    Examples
    --------
    >>> text_of(39.0), text_of("039"), text_of(None)
    ('39', '039', '(missing)')
    """
    if is_missing(value):
        return MISSING
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas holds whole numbers with gaps as floats
    return str(value)


def set_of(members: Sequence[str], known: Container[str]) -> str:
    """Write a set, quoted as in CSV; all of it if else it would read as one of the known values.

    Examples
    --------
    >>> set_of(["Bonn", "Rome, Italy"], known=())
    '{Bonn, "Rome, Italy"}'
    """
    plain = "{" + ", ".join(map(_quoted, members)) + "}"
    return "{" + ", ".join(_quoted(member, always=True) for member in members) + "}" if plain in known else plain


def _quoted(member: str, *, always: bool = False) -> str:
    if always or not member or member != member.strip() or any(mark in member for mark in ',"\r\n'):
        return '"' + member.replace('"', '""') + '"'
    return member


def complement_of(members: Sequence[str]) -> str:
    """Write a set by what it lacks: all values of the column but these, and but the missing one.

    Examples
    --------
    >>> complement_of(["Bonn", "Oslo"])
    'all but {Bonn, Oslo}'
    """
    return "all but " + set_of(members, ())


def is_long(members: int, others: int) -> bool:
    """Say whether a set of so many members is better written by the others, which it lacks.

    Examples
    --------
    >>> is_long(38, 4), is_long(5, 1), is_long(10, 6)
    (True, False, False)
    """
    return members > _LONG and 2 * others <= members


def check_nested(paths: Iterable[Labels]) -> None:
    """Refuse paths that part after they have met, naming where.

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
    is_set = label.startswith("{") and sorted(label) == sorted(set_of(leaves, ()))
    shown = f"{{{_listed(leaves)}}}" if is_set else label
    told = is_set and (level <= lowest or (shown == label and all(path[level - 1] == path[0] for path in paths)))
    if leaves == [label] or told:
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
