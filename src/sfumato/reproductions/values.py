"""The values of a reproduction: what a publication printed, and what we measured beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.errors import OptionError, did_you_mean

__all__ = ["VERDICTS", "Curves", "Experiment", "Fact", "Figure", "Pictures", "Reproduction", "Row", "judge", "shown"]

VERDICTS = {
    "reproduced": "our figure is within the tolerance beside the printed one, or the printed statement holds",
    "better": "our figure is outside that tolerance, on the better side",
    "differs": "our figure is another one, for the reason in the note",
    "refuted": "the printed figure cannot be right, for the reason in the note",
    "built": "the authors wished for it or drew it without values, and it is here",
    "not judged": "this run is too small to compare, or lacks the data",
}
"""What a row can conclude, and what that means."""

NOT_RUN = "not part of this form of the run"


@dataclass(frozen=True)
class Fact:
    """A figure or a statement of a publication.

    Attributes
    ----------
    what, printed : what it is about, and the number or the statement
    within : how far our number may be from a printed one to count as reproduced
    """

    what: str
    printed: float | str
    within: float | None = None


@dataclass(frozen=True)
class Row:
    """One fact beside ours.

    Examples
    --------
    >>> Row("accuracy", "test accuracy", 0.934, 0.922, "differs", "one run").to_dict()["ours"]
    0.922
    """

    key: str
    what: str
    printed: float | str
    ours: float | str | None
    verdict: str
    note: str = ""
    within: float | None = None
    """The tolerance, where ``printed`` is a number that ours is compared with."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise OptionError(
                f"the verdict must be one of {', '.join(VERDICTS)}, got '{self.verdict}'",
                hint=did_you_mean(self.verdict, VERDICTS),
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        plain = asdict(self)
        for name in ("printed", "ours"):
            if isinstance(plain[name], float):
                plain[name] = _plain(plain[name])
        return plain

    @property
    def target(self) -> str:
        """The printed figure with its tolerance.

        Examples
        --------
        >>> Row("accuracy", "test accuracy", 0.934, 0.93, "reproduced", within=0.005).target
        '0.934 ± 0.005'
        """
        return shown(self.printed) + ("" if self.within is None else f" ± {self.within:.2g}")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images of public data, as bytes, in rows of ``columns``."""

    title: str
    images: Sequence[NDArray[np.uint8]] = field(repr=False)
    columns: int


@dataclass(frozen=True)
class Curves:
    """Lines by name, each a sequence of points."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    log: bool = False


Figure = Pictures | Curves


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A published experiment as a recipe: its facts, and how it is run again.

    Attributes
    ----------
    name, title, source : its name here, what it is, and the publication
    facts : what was printed, by a key of its own
    full, quick : the settings of the whole run, and of one in about a minute on the data in the package
    run : yields a row for each fact that it measures, and figures
    needs : what a full run needs beyond the package, in a sentence
    extra : the extra that every form of the run needs
    full_extra : the extra that only a full run needs
    """

    name: str
    title: str
    source: str
    facts: Mapping[str, Fact]
    full: Any
    quick: Any
    run: Callable[[Any], Iterator[Row | Figure]]
    needs: str = ""
    extra: str = ""
    full_extra: str = ""

    def row(self, key: str, ours: float | str | None, verdict: str, note: str = "") -> Row:
        """Return the row of a fact."""
        fact = self.facts[key]
        return Row(key, fact.what, fact.printed, ours, verdict, note, fact.within)

    def compared(
        self, key: str, ours: float, note: str = "", *, larger: bool | None = None, comparable: bool = True
    ) -> Row:
        """Return the row of a printed number, judged by its tolerance; see `judge`."""
        fact = self.facts[key]
        if not isinstance(fact.printed, float) or fact.within is None:
            raise TypeError(f"the fact '{key}' is not a number with a tolerance")
        verdict = judge(fact.printed, ours, within=fact.within, larger=larger, comparable=comparable)
        return self.row(key, ours, verdict, note)


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(Discreet):
    """A finished run of an experiment.

    Examples
    --------
    >>> import sfumato as sf
    >>> found = sf.reproduce("epsilon-sweep", quick=True, epsilons=())
    >>> [round(row.ours, 3) for row in found.rows if row.key == "coins"]
    [1.099]
    """

    name: str
    title: str
    source: str
    quick: bool
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    figures: tuple[Figure, ...] = field(default=(), repr=False)
    seconds: float = 0.0
    """CPU seconds of this process and of those that it started."""

    _repr_fields: ClassVar[tuple[str, ...]] = ("name", "quick", "verdicts", "seconds")

    @property
    def verdicts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        found = [row.verdict for row in self.rows]
        return {name: found.count(name) for name in VERDICTS if name in found}

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain values, with its curves but without its pictures."""
        curves = [one for one in self.figures if isinstance(one, Curves)]
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "quick": self.quick,
            "settings": dict(self.settings),
            "rows": [row.to_dict() for row in self.rows],
            "verdicts": self.verdicts,
            "curves": [
                {**vars(one), "lines": {name: list(line) for name, line in one.lines.items()}} for one in curves
            ],
            "cpu_seconds": round(self.seconds, 1),
        }


def judge(printed: float, ours: float, *, within: float, larger: bool | None = None, comparable: bool = True) -> str:
    """Return the verdict on a number.

    Parameters
    ----------
    printed, ours : float
    within : float
        How far they may be apart to agree.
    larger : bool, optional
        Whether a larger number is better, or a smaller one; None if neither is.
    comparable : bool
        Whether this run is of the printed size.

    Examples
    --------
    >>> judge(0.934, 0.922, within=0.02), judge(0.934, 0.98, within=0.02, larger=True)
    ('reproduced', 'better')
    """
    if not comparable or math.isnan(ours):
        return "not judged"
    if abs(printed - ours) <= within:
        return "reproduced"
    return "better" if larger is not None and (ours > printed) is larger else "differs"


def shown(value: float | str | None) -> str:
    """Write a value of a row.

    Examples
    --------
    >>> shown(0.93412), shown("k = 3"), shown(None), shown(421095.0)
    ('0.9341', 'k = 3', '', '421,095')
    """
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 1000 else f"{value:.4g}"


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return "inf" if value == math.inf else value
