"""Generalisation hierarchies: how the values of a column generalise, step by step, up to one root.

Every hierarchy maps a value to its *path*: its labels on each level, from the value itself (level 0) to the root
``*``. Everything else follows from the paths. They come from explicit rows (`tree`), from rules for numbers, codes and
dates (`rules`), or from the data (`automatic`).
"""

from __future__ import annotations

import csv
import inspect
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.data.hierarchies.label_paths import MISSING, ROOT, Labels, check_nested, draw, plain_values
from sfumato.data.io.files import atomic_path
from sfumato.errors import OptionError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from sfumato.data.schema import Column

__all__ = ["Hierarchy"]

_LISTS = ("rows", "widths", "bounds", "cuts", "masks", "levels", "values")


class Hierarchy(ABC):
    """How the values of a column generalise, step by step, up to the root ``*``.

    Values that agree on one level agree on every level above it. Every hierarchy covers missing
    values: they form the group ``(missing)`` on every level below the root, unless a tree has a
    row for ``(missing)``.

    Make one with `tree`, `intervals`, `prefixes`, `dates`, `ordered`, `learned` or `automatic`,
    or `read` it from a file.

    Examples
    --------
    >>> import sfumato as sf
    >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    >>> tree.height
    2
    >>> tree.labels(["asthma", None, "ulcer"], level=1)
    ['lung', '(missing)', 'stomach']
    >>> print(tree)
    *
      lung: flu, asthma
      stomach: ulcer
    """

    _lists_values: ClassVar[bool] = False
    _draws_an_example: ClassVar[bool] = False

    @property
    @abstractmethod
    def height(self) -> int:
        """The number of steps from a value to the root."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the hierarchy as plain values, ready for TOML or JSON."""

    @abstractmethod
    def _path(self, value: Any) -> Labels:
        """Return the labels of a non-missing value below the root; an error must not quote the value."""

    @abstractmethod
    def _drawing(self) -> Sequence[Labels]:
        """Return the paths to draw when no values are given."""

    def _order(self, path: Labels) -> Any:
        """Return the sort key of a path in a drawing; by default the values keep their order."""
        return 0

    @property
    def _missing(self) -> Labels:
        """The labels of a missing value below the root."""
        return (MISSING,) * self.height

    def paths(self, values: Iterable[Any]) -> list[Labels]:
        """Return the labels of each value on all levels, from the value itself to the root.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.prefixes(3).paths(["745"])
        [('745', '74*', '7**', '*')]
        """
        values = plain_values(values)
        try:
            return [(*(self._missing if value is None else self._path(value)), ROOT) for value in values]
        except SchemaError as error:  # it does not quote the value
            missed, distinct = len(self.uncovered(values)), len(set(values) - {None})
            raise SchemaError(
                f"{error.message}: {missed:,} of {distinct:,} distinct values",
                hint="; ".join(filter(None, [error.hint, "Hierarchy.uncovered lists them"])),
            ) from None

    def for_whole_numbers(self) -> Hierarchy:
        """Return the hierarchy for a column of whole numbers: its intervals read ``20-39``, not ``[20, 40)``.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.intervals(widths=[20], bounds=(0, 100)).for_whole_numbers().paths([39])
        [('39', '20-39', '*')]
        """
        return self

    def uncovered(self, values: Iterable[Any]) -> list[Any]:
        """Return the distinct values that the hierarchy does not cover, which error messages never show.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.tree([("string", "*"), ("brass", "*")]).uncovered(["String", "brass", None, "String"])
        ['String']
        """
        return [value for value in dict.fromkeys(plain_values(values)) if value is not None and not self._covers(value)]

    def _covers(self, value: Any) -> bool:
        try:
            self._path(value)
        except SchemaError:
            return False
        return True

    def labels(self, values: Iterable[Any], level: int) -> list[str]:
        """Return the label of each value at a level; level 0 is the value itself.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.intervals(widths=[10, 20], bounds=(0, 100)).labels([39, 40, 100], level=2)
        ['[20, 40)', '[40, 60)', '[80, 100]']
        """
        if not isinstance(level, int | np.integer) or not 0 <= level <= self.height:
            raise OptionError(f"the level must be a whole number from 0 to {self.height}, got {level!r}")
        return [path[level] for path in self.paths(values)]

    def levels(self, values: Iterable[Any]) -> NDArray[np.int64]:
        """Return the group number of each given value on each level below the root.

        Returns an array with a row per level (the values themselves first) and a column
        per value; equal numbers in a row mean the same group.

        Examples
        --------
        >>> import sfumato as sf
        >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
        >>> tree.levels(["asthma", "flu", "ulcer"]).tolist()
        [[0, 1, 2], [0, 0, 1]]
        """
        paths = self.paths(values)
        groups = np.empty((self.height, len(paths)), dtype=np.int64)
        for level in range(self.height):
            number = {label: rank for rank, label in enumerate(sorted({path[level] for path in paths}))}
            groups[level] = [number[path[level]] for path in paths]
        return groups

    def check(self, values: Iterable[Any], column: str = "") -> None:
        """Refuse values that the hierarchy does not cover, and levels that do not nest.

        Parameters
        ----------
        values : iterable
        column : str
            The name of the column, for the message.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.tree([("string", "*"), ("brass", "*")]).check(["String"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        sfumato.errors.SchemaError: the hierarchy does not cover a value: 1 of 1 distinct values (...)
        """
        try:
            check_nested(self.paths(values))
        except SchemaError as error:
            raise SchemaError(f"column '{column}': {error.message}", hint=error.hint) if column else error from None

    def draw(self, values: Iterable[Any] | None = None, *, lines: int = 40) -> str:
        """Draw the hierarchy as an indented tree; `print` does the same.

        The values of a group are listed on its line. If the tree has more than ``lines`` lines, its
        lower levels are left out.

        Parameters
        ----------
        values : iterable, optional
            The values to draw. By default all values of a tree, all intervals, or an example of a
            code or date.
        lines : int
            The most lines to draw.

        Examples
        --------
        >>> import sfumato as sf
        >>> print(sf.Hierarchy.prefixes(5).draw(["13053", "13068", "14850", "14853"]))
        *
          1****
            13***
              130**
                1305*: 13053
                1306*: 13068
            14***
              148**
                1485*: 14850, 14853
        """
        if values is not None:
            return draw(sorted(self.paths(values), key=self._order), lines)
        drawing = draw(self._drawing(), lines)
        return f"{ROOT} (for example){drawing.removeprefix(ROOT)}" if self._draws_an_example else drawing

    def __str__(self) -> str:
        return self.draw()

    def save(self, path: str | Path, values: Iterable[Any] | None = None, *, separator: str = ";") -> None:
        """Write the hierarchy to a CSV file in ARX's format: a row per value, from the value to the root.

        Parameters
        ----------
        path : str or Path
        values : iterable, optional
            The values to write. Required for intervals, prefixes and dates; by default all values of
            a tree.
        separator : str

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.prefixes(2).save("code.csv", ["12", "13"])
        >>> sf.Hierarchy.read("code.csv").paths(["13"])
        [('13', '1*', '*')]
        """
        if values is None and not self._lists_values:
            raise OptionError("a hierarchy of rules has no list of values", hint="give the values to write")
        text = io.StringIO()
        writer = csv.writer(text, delimiter=separator, lineterminator="\n")
        writer.writerows(self._drawing() if values is None else dict.fromkeys(self.paths(values)))
        with atomic_path(path) as temporary:
            # A reader drops one byte order mark, so a value that begins with one needs another before it.
            encoding = "utf-8-sig" if text.getvalue().startswith("\ufeff") else "utf-8"
            temporary.write_text(text.getvalue(), encoding=encoding, newline="")

    @staticmethod
    def read(path: str | Path, *, separator: str | None = None, encoding: str | None = None) -> Hierarchy:
        """Read a hierarchy from a CSV file in ARX's format: a row per value, from the value to the root.

        The file must not have a header. A first line is refused as a header if it does not lead to
        ``*`` when all others do, or consists of words such as value, group, label, root and level 1.

        Parameters
        ----------
        path : str or Path
        separator : str, optional
            By default detected from the first line: a semicolon, comma, tab or bar.
        encoding : str, optional
            By default detected; see `read`.

        Examples
        --------
        >>> import sfumato as sf
        >>> tree = sf.Hierarchy.tree([("flu", "lung"), ("ulcer", "stomach")])
        >>> tree.save("disease.csv")
        >>> sf.Hierarchy.read("disease.csv") == tree
        True
        """
        from sfumato.data.hierarchies.tree import read_tree

        return read_tree(Path(path), separator, encoding)

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Hierarchy:
        """Build a hierarchy from plain values: its kind, and the options of the method of that name.

        Examples
        --------
        >>> import sfumato as sf
        >>> ages = sf.Hierarchy.from_dict({"kind": "intervals", "widths": [5, 10], "bounds": [0, 120]})
        >>> ages.labels([17], level=1)
        ['[15, 20)']
        >>> sf.Hierarchy.from_dict(ages.to_dict()) == ages
        True
        """
        makers: dict[Any, Callable[..., Hierarchy]] = {
            "tree": Hierarchy.tree,
            "intervals": Hierarchy.intervals,
            "prefixes": Hierarchy.prefixes,
            "dates": Hierarchy.dates,
            "ordered": Hierarchy.ordered,
        }
        options = dict(plain)
        kind = options.pop("kind", None)
        if not isinstance(kind, str) or kind not in makers:
            raise SchemaError(f"the kind of a hierarchy must be one of {', '.join(makers)}, got {kind!r}")
        parameters = inspect.signature(makers[kind]).parameters
        for key, option in options.items():
            if key not in parameters:
                raise SchemaError(
                    f"a hierarchy of kind '{kind}' has no option '{key}'", hint=did_you_mean(key, parameters)
                )
            if key in _LISTS and isinstance(option, str | int | float | Mapping):
                raise SchemaError(f"the option '{key}' of a hierarchy must be a list, got {option!r}")
        for key, parameter in parameters.items():
            if parameter.default is parameter.empty and key not in options:
                raise SchemaError(f"a hierarchy of kind '{kind}' needs the option '{key}'")
        return makers[kind](**options)

    @staticmethod
    def tree(rows: Iterable[Sequence[Any]]) -> Hierarchy:
        """Make a hierarchy of explicit rows: one per value, from the value to the root.

        All rows have the same length. If all rows have the same last label, that level is the root,
        written ``*`` whatever its name; otherwise a root is added.

        Parameters
        ----------
        rows : iterable of sequences
            ``("flu", "lung", "*")`` says that *flu* generalises to *lung*, then to everything.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.tree([("flu", "lung", "any"), ("ulcer", "stomach", "any")]).paths(["flu"])
        [('flu', 'lung', '*')]
        """
        from sfumato.data.hierarchies.tree import Tree

        return Tree(rows)

    @staticmethod
    def intervals(
        *,
        widths: Sequence[float] | None = None,
        bounds: tuple[float, float] | None = None,
        cuts: Sequence[Any] | None = None,
        outside: Literal["error", "code"] = "error",
        whole: bool = False,
    ) -> Hierarchy:
        """Make a hierarchy of half-open intervals ``[low, high)``; the last one of a level is closed.

        A value on a boundary is therefore in exactly one interval. Give either widths and
        bounds, or cuts. `sfumato.data.Interval` writes and parses the labels. A release of a column of
        whole numbers has labels such as ``20-39``, ``<20`` and ``90+``.

        Parameters
        ----------
        widths : sequence of float, optional
            The width on each level, each a multiple of the one before. The cuts are the multiples
            of the width: with width 10 and bounds (17, 90) they are 20, 30 and so on.
        bounds : (float, float), optional
            The low end of the first interval and the high end of the last one.
        cuts : sequence, optional
            The cuts of one level, ends included, or a list of them per level, each a subset of
            the one before. The ends may be infinite.
        outside : {"error", "code"}
            Whether values outside the bounds are an error, or are coded as ``(-inf, low)`` and
            ``[high, inf)``; the last interval between them is then half-open.
        whole : bool
            Whether to write the labels for whole numbers here, too.

        Examples
        --------
        >>> import sfumato as sf
        >>> print(sf.Hierarchy.intervals(widths=[10, 20], bounds=(17, 70)))
        *
          [17, 20)
          [20, 40): [20, 30), [30, 40)
          [40, 60): [40, 50), [50, 60)
          [60, 70]
        >>> sf.Hierarchy.intervals(cuts=[0, 18, 65], outside="code").labels([3, 65, 90], level=1)
        ['[0, 18)', '[65, inf)', '[65, inf)']
        """
        from sfumato.data.hierarchies.rules import make_intervals

        return make_intervals(widths, bounds, cuts, outside, whole=whole)

    @staticmethod
    def prefixes(
        length: int, *, masks: Sequence[int] | None = None, side: Literal["right", "left"] = "right"
    ) -> Hierarchy:
        """Make a hierarchy that masks codes character by character: 13053, 1305*, 130** and so on.

        A shorter code counts as already masked: *130* among codes of length 5 is read as
        *130***. A longer code is an error. So is a number with too few digits, because a code
        that was read as a number has lost its leading zeros.

        Parameters
        ----------
        length : int
            The number of characters of the longest code.
        masks : sequence of int, optional
            The number of masked characters on each level. By default 1, 2, ..., length - 1.
        side : {"right", "left"}
            Where masking begins.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Hierarchy.prefixes(5, masks=[2, 3]).paths(["13053", "130"])
        [('13053', '130**', '13***', '*'), ('130', '130**', '13***', '*')]
        """
        from sfumato.data.hierarchies.rules import Prefixes

        return Prefixes(length, masks, side)

    @staticmethod
    def dates(levels: Sequence[str] = ("month", "quarter", "year", "decade")) -> Hierarchy:
        """Make a hierarchy of calendar periods, for dates, timestamps and texts such as 2024-05-17.

        Parameters
        ----------
        levels : sequence of str
            Some of day, month, quarter, year, decade and century, in this order.

        Examples
        --------
        >>> import datetime
        >>> import sfumato as sf
        >>> sf.Hierarchy.dates().paths([datetime.date(2024, 5, 17)])
        [('2024-05-17', '2024-05', '2024-Q2', '2024', '2020s', '*')]
        """
        from sfumato.data.hierarchies.rules import Dates

        return Dates(levels)

    @staticmethod
    def ordered(values: Iterable[Any], fanout: int = 2) -> Hierarchy:
        """Make a hierarchy of ordered values: neighbours form groups, and neighbouring groups larger ones.

        Parameters
        ----------
        values : iterable
            All values, in their order.
        fanout : int
            The largest number of values in a group, and of groups in a larger one.

        Examples
        --------
        >>> import sfumato as sf
        >>> print(sf.Hierarchy.ordered(["none", "low", "mid", "high", "extreme"]))
        *
          none to high
            none to low: none, low
            mid to high: mid, high
          extreme
        """
        from sfumato.data.hierarchies.automatic import group_neighbours

        return group_neighbours(values, fanout)

    @staticmethod
    def learned(
        values: Iterable[Any],
        counts: Sequence[int] | None = None,
        *,
        target: Sequence[Sequence[int]] | None = None,
        fanout: int = 3,
    ) -> Hierarchy:
        """Learn which values to group, from their frequencies or from a target.

        Each level has 1/``fanout`` as many groups as the level below. With ``counts``, groups
        are merged from the rarest on, none far beyond an equal share of the rows: frequent
        values stay separate, rare ones are grouped. With ``target``, the two groups with the most
        similar target distributions are merged repeatedly (the agglomerative information
        bottleneck of Slonim and Tishby, NIPS 1999).

        The hierarchy reveals which values are rare or similar in the data it was learned from. It
        is not differentially private.

        Parameters
        ----------
        values : iterable
        counts : sequence of int, optional
            The frequency of each value; equal frequencies by default.
        target : sequence of sequences of int, optional
            The joint frequency of each value with each value of the target: a row per value.
        fanout : int

        Examples
        --------
        >>> import sfumato as sf
        >>> print(sf.Hierarchy.learned(["de", "fr", "li", "mc", "va"], [80, 60, 2, 3, 1]))
        *
          de
          {fr, mc, li, va}
        >>> print(sf.Hierarchy.learned("abcd", target=[[9, 1], [1, 9], [8, 2], [2, 8]], fanout=2))
        *
          {a, c}
          {b, d}
        """
        from sfumato.data.hierarchies.automatic import learn

        return learn(values, counts, target, fanout)

    @staticmethod
    def automatic(column: Column, values: Iterable[Any], counts: Sequence[int] | None = None) -> Hierarchy:
        """Build a hierarchy for a column from its kind and the form of its values.

        Numbers get intervals with widths of 1, 2 or 5 times a power of ten (``20-39``, or ``[0.2, 0.4)`` if some
        are not whole), dates calendar periods, digit codes of equal length prefixes, ordinals groups of
        neighbours, and other categories groups of rare values. A column with two values, and free text, has
        only the root.

        Parameters
        ----------
        column : Column
            The column, with its bounds or domain if they are known.
        values : iterable
            The distinct values of the column.
        counts : sequence of int, optional
            The frequency of each value.

        Examples
        --------
        >>> import sfumato as sf
        >>> age = sf.Column(name="age", kind="number")
        >>> print(sf.Hierarchy.automatic(age, [17, 18, 23, 31, 36, 44, 47, 58]))
        *
          <20
          20-39: 20-29, 30-39
          40+: 40-49, 50+
        """
        from sfumato.data.hierarchies.automatic import build

        return build(column, values, counts)
