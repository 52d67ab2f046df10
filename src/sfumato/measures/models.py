"""The nine privacy models, each one small class.

In the formulas, p is the distribution of the sensitive attribute in the table, q its
distribution in a class, and r1 >= r2 >= ... are the counts of its values in the class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from sfumato.data.coding import Domain
from sfumato.errors import OptionError, did_you_mean, one_of
from sfumato.measures.classes import ClassCounts, Floats, Numbers
from sfumato.measures.distance import Distance, earth_movers_distance
from sfumato.measures.guarantee import Bound, Check, ClassGuarantee, Measured, PerEntry

__all__ = [
    "MODELS",
    "Absent",
    "AlphaK",
    "BetaLikeness",
    "DeltaDisclosure",
    "EnhancedBeta",
    "EntropyL",
    "KAnonymity",
    "LDiversity",
    "RecursiveCL",
    "TCloseness",
    "parse",
]


@dataclass(frozen=True)
class KAnonymity(ClassGuarantee):
    """Every class has at least k rows (Sweeney 2002).

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.KAnonymity(10))
    'k=10'
    """

    k: int = 1

    key = "k"
    bounds = {"k": Bound("k", low=1, whole=True)}
    needs_sensitive = False
    larger_is_safer = True

    def per_class(self, counts: ClassCounts) -> Numbers:
        """Return n_E."""
        return counts.size


@dataclass(frozen=True)
class AlphaK(PerEntry):
    """No sensitive value fills more than a share alpha of a class, and classes have at least k rows (Wong et al. 2006).

    ``max_v q_v <= alpha`` over all values, or over the chosen ones.

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.measures.AlphaK(0.5, k=10))
    'alpha=0.5,k=10'
    """

    alpha: float = 1.0
    k: int = 1
    values: tuple[str, ...] | None = None

    key = "alpha"
    bounds = {"alpha": Bound("alpha", low=0, high=1), "k": Bound("k", low=1, whole=True)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.values, str):
            raise OptionError(f"the values of alpha must be a list of values, got the text '{self.values}'")
        if self.values is not None:
            object.__setattr__(self, "values", tuple(map(str, self.values)))

    def per_entry(self, counts: ClassCounts) -> Floats:
        """Return q_v, or 0 for a value that was not chosen."""
        share = counts.count / counts.mass[counts.owner]
        if self.values is None or counts.attribute is None:
            return share
        labels = [counts.attribute.label(code) for code in range(len(counts.attribute))]
        return np.where(np.isin(labels, self.values)[counts.value], share, 0.0)

    def refuse_unknown(self, attributes: Sequence[Domain]) -> None:
        """Refuse a chosen value that occurs in no sensitive attribute, because it is probably misspelt."""
        if self.values is None or not attributes:
            return
        held = {domain.label(code) for domain in attributes for code in range(len(domain))}
        for value in self.values:
            if value not in held:
                raise OptionError(f"alpha is required for the value '{value}', which occurs in no sensitive attribute")

    def check(self, counts: Sequence[ClassCounts]) -> Check:
        """Check the share, and the size of the classes."""
        share, size = super().check(counts), KAnonymity(self.k).check(counts)
        reason = "" if size.held else f"the smallest class has {size.measured.value:,} rows"
        return replace(share, held=share.held and size.held, reason=reason)


@dataclass(frozen=True)
class LDiversity(ClassGuarantee):
    """Every class has at least l distinct sensitive values (Machanavajjhala et al. 2007).

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.LDiversity(3))
    'l=3'
    """

    l: int = 1

    key = "l"
    bounds = {"l": Bound("l", low=1, whole=True)}
    larger_is_safer = True

    def per_class(self, counts: ClassCounts) -> Numbers:
        """Return the number of distinct values."""
        return np.diff(counts.start)


@dataclass(frozen=True)
class EntropyL(ClassGuarantee):
    """Every class is as diverse as l equally frequent values: ``exp(H(q)) >= l`` (Machanavajjhala et al. 2007).

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.measures.EntropyL(2.5))
    'entropy_l=2.5'
    """

    l: float = 1.0

    key = "entropy_l"
    bounds = {"entropy_l": Bound("l", low=1)}
    larger_is_safer = True

    def per_class(self, counts: ClassCounts) -> Floats:
        """Return exp(H(q)), a real number."""
        first = counts.start[:-1]
        count = counts.count.astype(float)
        entropy = np.log(counts.mass) - np.add.reduceat(count * np.log(count), first) / counts.mass
        uniform = np.maximum.reduceat(count, first) == np.minimum.reduceat(count, first)
        # For a uniform class, return the exact number of values, without the rounding errors of logarithms.
        return np.where(uniform, np.diff(counts.start), np.exp(entropy))


@dataclass(frozen=True)
class RecursiveCL(ClassGuarantee):
    """The most frequent value does not outweigh the rare ones: ``r1 < c (r_l + ... + r_m)``.

    The measured number is the largest ``r1 / (r_l + ... + r_m)``; it must be strictly below
    c. It is infinite if a class has fewer than l values. By default, l is the distinct l of the
    table (Machanavajjhala et al. 2007).

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.measures.RecursiveCL(2, l=3))
    'recursive_c=2,recursive_l=3'
    """

    c: float = math.inf
    l: int | None = None

    key = "recursive_c"
    bounds = {"recursive_c": Bound("c", low=0), "recursive_l": Bound("l", low=1, whole=True)}
    strict = True

    @property
    def survives_merging(self) -> bool:
        """Whether it holds in the union of two classes: not if l depends on the table."""
        return self.l is not None

    def measure(self, counts: Sequence[ClassCounts]) -> Measured:
        """Return the worst ratio; all sensitive attributes share one l."""
        if self.l is not None or any(one.attribute is None for one in counts):
            return super().measure(counts)
        return RecursiveCL(self.c, int(LDiversity().measure(counts).value)).measure(counts)

    def per_class(self, counts: ClassCounts) -> Floats:
        """Return r1 / (r_l + ... + r_m)."""
        distinct = np.diff(counts.start)
        l = distinct.min() if self.l is None else self.l
        first = counts.start[:-1]
        descending = counts.count[np.lexsort((-counts.count, counts.owner))]
        rank = np.arange(len(descending)) - first[counts.owner] + 1
        tail = np.add.reduceat(np.where(rank >= l, descending, 0), first)
        return np.where(distinct >= l, descending[first] / np.maximum(tail, 1), np.inf)


@dataclass(frozen=True)
class TCloseness(ClassGuarantee):
    """The distribution in every class is close to that of the table: ``EMD(q, p) <= t`` (Li et al. 2007).

    EMD is the earth mover's distance; `distance` is the distance between two values.

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.TCloseness(0.2))
    't=0.2'
    """

    t: float = 1.0
    distance: Distance = Distance.AUTO

    key = "t"
    bounds = {"t": Bound("t", low=0, high=1)}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "distance", one_of(Distance, self.distance, "distance"))

    def per_class(self, counts: ClassCounts) -> Floats:
        """Return EMD(q, p)."""
        assert counts.attribute is not None
        return earth_movers_distance(counts, counts.attribute, self.distance)


@dataclass(frozen=True)
class BetaLikeness(PerEntry):
    """No value's share grows by more than a factor beta: ``(q - p) / p <= beta`` (basic beta; Cao & Karras 2012).

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.measures.BetaLikeness(1))
    'basic_beta=1'
    """

    beta: float = math.inf

    key = "basic_beta"
    bounds = {"basic_beta": Bound("beta", low=0)}

    def per_entry(self, counts: ClassCounts) -> Floats:
        """Return (q - p) / p where q > p, else 0."""
        return np.maximum(counts.ratio - 1, 0)


@dataclass(frozen=True)
class EnhancedBeta(BetaLikeness):
    """Beta-likeness that caps frequent values too: ``(q - p) / p <= min(beta, -ln p)`` (Cao & Karras 2012).

    The measured number is the smallest beta that works, infinite if a gain exceeds -ln p.

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.measures.EnhancedBeta(1))
    'enhanced_beta=1'
    """

    key = "enhanced_beta"
    bounds = {"enhanced_beta": Bound("beta", low=0)}

    def per_entry(self, counts: ClassCounts) -> Floats:
        """Return (q - p) / p where that is at most -ln p, else infinity."""
        gain = super().per_entry(counts)
        cap = -np.log(counts.total / counts.whole)[counts.value]
        return np.where(gain <= cap, gain, np.inf)


class Absent(StrEnum):
    """How delta-disclosure treats a value that is absent from a class.

    Examples
    --------
    >>> Absent("infinite")
    <Absent.INFINITE: 'infinite'>
    """

    IGNORE = "ignore"
    """The value is ignored."""
    INFINITE = "infinite"
    """The value makes the number infinite, as in the paper."""


@dataclass(frozen=True)
class DeltaDisclosure(PerEntry):
    """Seeing a class changes no value's odds by a factor e^delta: ``|ln(q / p)| < delta`` (Brickell & Shmatikov 2008).

    With ``absent="ignore"`` merging classes can raise the number: check final classes only.

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.measures.DeltaDisclosure(1.5))
    'delta_disclosure=1.5'
    """

    delta: float = math.inf
    absent: Absent = Absent.IGNORE

    key = "delta_disclosure"
    bounds = {"delta_disclosure": Bound("delta", low=0)}
    strict = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "absent", one_of(Absent, self.absent, "absent"))

    @property
    def survives_merging(self) -> bool:
        """Whether it holds in the union of two classes: not if absent values are ignored."""
        return self.absent is Absent.INFINITE

    def per_entry(self, counts: ClassCounts) -> Floats:
        """Return abs(ln(q / p))."""
        return np.abs(np.log(counts.ratio))

    def per_class(self, counts: ClassCounts) -> Floats:
        """Return the largest number in each class; infinite if an absent value counts."""
        present = super().per_class(counts)
        if self.absent is Absent.IGNORE:
            return present
        return np.where(np.diff(counts.start) < len(counts.total), np.inf, present)

    def decisive(self, counts: ClassCounts, index: int) -> int | None:
        """Return the first absent value if one counts, else the value with the largest number."""
        held = counts.value[counts.start[index] : counts.start[index + 1]]
        if self.absent is Absent.INFINITE and len(held) < len(counts.total):
            return int(np.setdiff1d(np.arange(len(counts.total)), held)[0])
        return super().decisive(counts, index)


MODELS: tuple[type[ClassGuarantee], ...] = (
    KAnonymity,
    AlphaK,
    LDiversity,
    EntropyL,
    RecursiveCL,
    TCloseness,
    BetaLikeness,
    EnhancedBeta,
    DeltaDisclosure,
)
"""The nine models, in display order."""

_ALIASES = {"beta": "basic_beta", "delta": "delta_disclosure"}


def as_guarantees(given: Any) -> list[ClassGuarantee]:
    """Convert a text, a mapping such as ``{"k": 10, "l": 3}``, a guarantee, or several of these to guarantees.

    Examples
    --------
    >>> as_guarantees([{"k": 10}, "l=3", TCloseness(0.2)])
    [KAnonymity(k=10), LDiversity(l=3), TCloseness(t=0.2, distance=<Distance.AUTO: 'auto'>)]
    """
    if isinstance(given, ClassGuarantee):
        return [given]
    if isinstance(given, str):
        return parse(given)
    if isinstance(given, Mapping):
        return parse(",".join(f"{name}={number}" for name, number in given.items()))
    if isinstance(given, Iterable):
        return [guarantee for one in given for guarantee in as_guarantees(one)]
    raise OptionError(
        f"a guarantee is needed, such as 'k=10' or KAnonymity(10), got {type(given).__name__}",
        hint="for example k=10" if isinstance(given, int) else "",
    )


def parse(text: str) -> list[ClassGuarantee]:
    """Parse guarantees from a text such as ``k=10,l=3,t=0.2``; see `ClassGuarantee.parse`."""
    known = list(dict.fromkeys(name for model in MODELS for name in model.bounds))
    asked: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        key = name.lower().replace("-", "_")
        key = _ALIASES.get(key, key)
        if key not in known:
            raise OptionError(f"the guarantee '{name}' is unknown", hint=did_you_mean(name, known))
        if key in asked:
            raise OptionError(f"the guarantee '{name}' is given twice")
        try:
            asked[key] = float(number)
        except ValueError:
            raise OptionError(
                f"the guarantee '{name}' needs a number, got '{number}'", hint=f"for example {name}=3"
            ) from None
    if ("recursive_l" in asked) != ("recursive_c" in asked):
        raise OptionError(
            "recursive_c and recursive_l must be given together", hint="for example recursive_c=2,recursive_l=3"
        )
    return [
        model(**{bound.field: asked[name] for name, bound in model.bounds.items() if name in asked})
        for model in MODELS
        if model.key in asked
    ]
