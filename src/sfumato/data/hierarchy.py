"""A hierarchy says how the values of a column generalise, step by step, up to one root."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._errors import SchemaError

__all__ = ["Hierarchy"]


@dataclass(frozen=True)
class Hierarchy:
    """How the values of a column generalise: a row per value, from the value to the root.

    All rows have the same length, and values that agree on one level agree on every
    level above it. If the last level still tells values apart, a root is implied.

    Parameters
    ----------
    rows : sequence of sequences of str
        ``("flu", "respiratory", "*")`` says that *flu* generalises to *respiratory*,
        then to everything. This is the row format of ARX's hierarchy files.

    Examples
    --------
    >>> import sfumato as sf
    >>> tree = sf.Hierarchy([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> tree.height
    2
    >>> tree.levels(["asthma", "flu", "ulcer"]).tolist()
    [[0, 1, 2], [0, 0, 1]]
    """

    rows: tuple[tuple[str, ...], ...]

    def __init__(self, rows: Iterable[Sequence[str]]) -> None:
        object.__setattr__(self, "rows", tuple(tuple(map(str, row)) for row in rows))
        if not self.rows:
            raise SchemaError("a hierarchy needs at least one row")
        width = len(self.rows[0])
        paths: dict[str, tuple[str, ...]] = {}
        for row in self.rows:
            if len(row) != width or width == 0:
                raise SchemaError(
                    f"every row of a hierarchy has the same number of levels: '{row[0] if row else ''}' "
                    f"has {len(row)}, the first row {width}"
                )
            if row[0] in paths:
                raise SchemaError(f"the hierarchy lists the value '{row[0]}' twice")
            paths[row[0]] = row
        for level in range(width - 1):
            parent: dict[str, str] = {}
            for row in self.rows:
                if parent.setdefault(row[level], row[level + 1]) != row[level + 1]:
                    raise SchemaError(
                        f"levels of a hierarchy must nest: '{row[level]}' belongs to both "
                        f"'{parent[row[level]]}' and '{row[level + 1]}'"
                    )

    @property
    def height(self) -> int:
        """The number of steps from a value to the root."""
        width = len(self.rows[0])
        return width - 1 if len({row[-1] for row in self.rows}) == 1 and width > 1 else width

    def levels(self, values: Iterable[str]) -> NDArray[np.int64]:
        """Give numbers to the groups that the given values form on each level below the root.

        Returns an array with a row per level (the values themselves first) and a column
        per value; equal numbers in a row mean the same group.
        """
        paths = {row[0]: row for row in self.rows}
        wanted = list(values)
        for value in wanted:
            if value not in paths:
                raise SchemaError(f"the hierarchy does not cover the value '{value}'")
        groups = np.empty((self.height, len(wanted)), dtype=np.int64)
        for level in range(self.height):
            names = [paths[value][level] for value in wanted]
            groups[level] = np.unique(names, return_inverse=True)[1] if names else []
        return groups
