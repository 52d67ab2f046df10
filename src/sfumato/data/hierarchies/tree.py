"""Hierarchies of explicit rows, and the CSV format of ARX for them."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from sfumato._repr import Discreet
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import MISSING, ROOT, Labels, check_nested, mark_hint, plain_values, text_of
from sfumato.data.io.encodings import find_encoding, is_utf8
from sfumato.data.io.files import why
from sfumato.errors import FileError, InputError, SchemaError

__all__ = ["Tree", "read_tree"]

_SEPARATORS = ";,\t|"
_TITLE = re.compile(r"(values?|groups?|labels?|root|level[ _-]?\d*)", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Tree(Discreet, Hierarchy):
    """A hierarchy of explicit rows; see `Hierarchy.tree`.

    Examples
    --------
    >>> Tree([("flu", "lung"), ("ulcer", "stomach")]).rows
    (('flu', 'lung', '*'), ('ulcer', 'stomach', '*'))
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("height",)

    rows: tuple[Labels, ...]
    _lists_values: ClassVar[bool] = True

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        texts = [_texts(row) for row in rows]
        if not texts:
            raise SchemaError("a hierarchy needs at least one row")
        width = len(texts[0])
        for row in texts:
            if len(row) != width:
                raise SchemaError(
                    f"all rows of a hierarchy must have the same number of levels: '{row[0]}' has {len(row)}, "
                    f"the first row {width}"
                )
            if "" in row[1:]:
                raise SchemaError(
                    f"the hierarchy has an empty label on level {row.index('', 1)} of the value '{row[0]}'"
                )
        twice = [value for value, times in Counter(row[0] for row in texts).items() if times > 1]
        if twice:
            raise SchemaError(f"the hierarchy lists the value '{twice[0]}' twice")
        has_root = width > 1 and len({row[-1] for row in texts}) == 1
        object.__setattr__(self, "rows", tuple((*(row[:-1] if has_root else row), ROOT) for row in texts))
        check_nested(self.rows)

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        return len(self.rows[0]) - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the rows."""
        return {"kind": "tree", "rows": [list(row) for row in self.rows]}

    @cached_property
    def _below_root(self) -> dict[str, Labels]:
        return {row[0]: row[:-1] for row in self.rows}

    @cached_property
    def _missing(self) -> Labels:
        """The labels of a missing value, from the tree if it has a group called (missing)."""
        labels = [MISSING]
        for level in range(self.height - 1):
            above = (row[level + 1] for row in self.rows if row[level] == labels[-1])
            labels.append(next(above, labels[-1]))
        return tuple(labels)

    def _path(self, value: Any) -> Labels:
        text = text_of(value)
        if text in self._below_root:
            return self._below_root[text]
        if not isinstance(value, str) and any(known.lstrip("0") == text for known in self._below_root):
            raise SchemaError(
                "the hierarchy covers a number only with leading zeros",
                hint="read the column as text: numbers have no leading zeros",
            )
        raise SchemaError("the hierarchy does not cover a value", hint=mark_hint(text))

    def _drawing(self) -> Sequence[Labels]:
        return self.rows


def read_tree(path: Path, separator: str | None, encoding: str | None = None) -> Tree:
    """Read a tree from a CSV file; see `Hierarchy.read`.

    Examples
    --------
    >>> size = Path("size.csv").write_text("S,small,*\\nXS,small,*\\nL,large,*")
    >>> read_tree(Path("size.csv"), None).height
    2
    """
    rows = _rows_of_file(path, separator, encoding)
    try:
        return Tree(rows)
    except SchemaError as error:
        raise SchemaError(f"the hierarchy in '{path}' cannot be used: {error.message}", hint=error.hint) from None


def _texts(row: Sequence[Any]) -> Labels:
    if isinstance(row, str) or not isinstance(row, Sequence) or not len(row):
        raise SchemaError(f"a row of a hierarchy must be a list of labels, from the value to the root, got {row!r}")
    value, *labels = plain_values(row)
    return (text_of(value), *("" if label is None else text_of(label) for label in labels))


def _rows_of_file(path: Path, separator: str | None, encoding: str | None) -> list[list[str]]:
    if not path.exists():
        raise FileError(f"there is no hierarchy file '{path}'", hint="check the path")
    try:
        encoding = encoding or find_encoding(path)
        text = path.read_bytes().decode("utf-8-sig" if is_utf8(encoding) else encoding)
        separator = separator or _separator(path, text)
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if row]
    except InputError:
        raise
    except (OSError, UnicodeError, LookupError, csv.Error, TypeError) as error:
        raise FileError(f"the hierarchy '{path}' cannot be read: {why(error)}") from error
    if not rows:
        raise FileError(f"the hierarchy '{path}' is empty")
    if all(map(_TITLE.fullmatch, rows[0])):
        raise SchemaError(
            f"the hierarchy '{path}' begins with the line '{separator.join(rows[0])}', which looks like a header",
            hint="remove the header line, if it is one",
        )
    if len(rows) > 2 and rows[0][-1] != ROOT and all(row[-1] == ROOT for row in rows[1:]):
        raise SchemaError(
            f"the hierarchy '{path}' begins with '{rows[0][0]}', which does not lead to {ROOT} like all other values",
            hint="remove the header line, if it is one",
        )
    return rows


def _separator(path: Path, text: str) -> str:
    """Detect the separator in the first line, outside quotes; ARX writes semicolons."""
    first = re.sub(r'"(?:[^"]|"")*"', "", text).lstrip("\r\n").partition("\n")[0]
    if ";" in first or not first:
        return ";"
    separator = max(_SEPARATORS, key=first.count)
    if separator not in first:
        raise FileError(
            f"the first line of the hierarchy '{path}' has no semicolon, comma, tab or bar",
            hint="a row leads from a value to the root, such as flu;lung;* (or give the separator)",
        )
    return separator
