"""Guarantees about equivalence classes: a number per class, the worst of them, and a bound on it."""

from __future__ import annotations

import math
import numbers
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sfumato._repr import Discreet
from sfumato.data.certificate import PERSON
from sfumato.data.coding import Domain
from sfumato.data.guarantee import Guarantee
from sfumato.errors import InputError, OptionError
from sfumato.measures.classes import ClassCounts, Floats, Numbers

if TYPE_CHECKING:
    from sfumato.data.release import Release

__all__ = ["Bound", "Check", "ClassGuarantee", "Measured", "PerEntry", "Witness", "as_json_number"]


@dataclass(frozen=True)
class Bound:
    """The allowed range of one field of a guarantee."""

    field: str
    low: float
    high: float = math.inf
    whole: bool = False

    def valid(self, name: str, value: Any) -> float:
        """Return the value as a number; raise an error if it is outside the range."""
        kind = "a whole number" if self.whole else "a number"
        span = f"of at least {self.low:g}" if self.high == math.inf else f"from {self.low:g} to {self.high:g}"
        try:
            number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
        except OverflowError:  # a whole number of more than 308 digits
            number = math.nan
        if not self.low <= number <= self.high or (self.whole and not number.is_integer()):
            raise OptionError(f"{name} must be {kind} {span}, got {value!r}")
        return int(number) if self.whole else number


@dataclass(frozen=True, repr=False)
class Witness(Discreet):
    """The class, and the sensitive value if there is one, that determine a measured number."""

    _repr_fields: ClassVar[tuple[str, ...]] = ("size",)

    labels: dict[str, str]
    size: int
    records: int
    """The rows with exactly these values; fewer than the class has only if values are missing."""
    attribute: str | None = None
    value: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the witness as plain values."""
        return {"class": self.labels, "size": self.size, "sensitive": self.attribute, "value": self.value}


@dataclass(frozen=True)
class Measured:
    """The number that a model measured on a table, with its witness."""

    value: float
    witness: Witness


@dataclass(frozen=True)
class Check:
    """The result of checking a guarantee: whether it holds, and the measured number."""

    guarantee: ClassGuarantee
    held: bool
    measured: Measured
    reason: str = ""
    """Why it does not hold, if the measured number alone does not explain it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain values."""
        return {
            "claim": str(self.guarantee),
            "held": self.held,
            "measured": as_json_number(self.measured.value),
            "reason": self.reason,
            "witness": self.measured.witness.to_dict(),
        }


@dataclass(frozen=True)
class ClassGuarantee(Guarantee):
    """A promise about every equivalence class of a table.

    A guarantee measures a number for each class; that of the table is the worst of them. Without a
    bound it accepts everything and only measures. Real numbers are compared with a tolerance of
    1e-9, so rounding does not break a bound that is met exactly; strict bounds have no tolerance.
    """

    def __init_subclass__(cls, *, stored_as: str | None = None, **options: Any) -> None:
        super().__init_subclass__(stored_as=cls.__name__ if "key" in vars(cls) else stored_as, **options)

    key: ClassVar[str]
    """The name of the measured number in every output."""
    bounds: ClassVar[dict[str, Bound]]
    """The bounds that can be required, by the names that `parse` reads; the first is that of the key."""
    needs_sensitive: ClassVar[bool] = True
    larger_is_safer: ClassVar[bool] = False
    strict: ClassVar[bool] = False

    @property
    def survives_merging(self) -> bool:
        """Whether it holds in the union of two classes if it holds in each of them."""
        return True

    def __post_init__(self) -> None:
        for name, bound in self.bounds.items():
            value = getattr(self, bound.field)
            if value is not None or getattr(type(self), bound.field) is not None:  # None is valid only as the default
                object.__setattr__(self, bound.field, bound.valid(name, value))

    @abstractmethod
    def per_class(self, counts: ClassCounts) -> Numbers:
        """Return the measured number of each class."""

    def decisive(self, counts: ClassCounts, index: int) -> int | None:
        """Return the code of the sensitive value that determines the number of a class, if there is one."""
        return None

    def accepts(self, value: float) -> bool:
        """Return whether a measured number meets the bound."""
        bound = self.bounds[self.key]
        asked: float = getattr(self, bound.field)
        if self.strict:
            return value < asked or asked == math.inf
        equal = not bound.whole and math.isclose(value, asked, rel_tol=1e-9, abs_tol=1e-12)
        return equal or (value >= asked if self.larger_is_safer else value <= asked)

    def refuse_unknown(self, attributes: Sequence[Domain]) -> None:
        """Refuse values that occur in no sensitive attribute of the table, suppressed rows included."""

    def measure(self, counts: Sequence[ClassCounts]) -> Measured:
        """Return the worst number over all classes and sensitive attributes, with its witness."""
        if self.needs_sensitive and any(one.attribute is None for one in counts):
            raise OptionError(f"{self.key} needs a sensitive attribute", hint="name one with sensitive / --sensitive")
        worst = min if self.larger_is_safer else max
        return worst((self._measure_one(one) for one in counts), key=lambda measured: measured.value)

    def check(self, counts: Sequence[ClassCounts]) -> Check:
        """Measure the number, and compare it with the bound."""
        measured = self.measure(counts)
        return Check(self, self.accepts(measured.value), measured)

    def _measure_one(self, counts: ClassCounts) -> Measured:
        values = self.per_class(counts)
        index = int(values.argmin() if self.larger_is_safer else values.argmax())
        attribute = counts.attribute if self.needs_sensitive else None
        code = self.decisive(counts, index)
        witness = Witness(
            labels=counts.label(index),
            size=int(counts.size[index]),
            records=int(counts.records[index]),
            attribute=attribute.name if attribute else None,
            value=attribute.label(code) if attribute and code is not None else None,
        )
        return Measured(values[index].item(), witness)

    def __str__(self) -> str:
        asked = {name: getattr(self, bound.field) for name, bound in self.bounds.items()}
        return ",".join(f"{name}={value:.12g}" for name, value in asked.items() if value is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain values, with all of its conventions; `from_dict` reads them."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {
            name: list(value) if isinstance(value, tuple) else as_json_number(value) for name, value in plain.items()
        }
        return {"guarantee": type(self).__name__, **plain}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Build a guarantee of this class from the result of `to_dict`."""
        values = {key: math.inf if value == "inf" else value for key, value in plain.items() if key != "guarantee"}
        try:
            return cls(**values)
        except TypeError as error:
            raise OptionError(f"the guarantee '{cls.__name__}' has no such parameters") from error

    def holds_for(self, release: Release) -> bool:
        """Count the classes of a released table, and return whether all of them keep the guarantee."""
        from sfumato.measures.assess import measure

        if release.unit == PERSON and release.table.schema.person is None:
            found = getattr(release, "assessment", None)
            if found is None or found.unit != PERSON or found.verdict is None:
                raise InputError(
                    f"whether {self} holds for people cannot be measured without the person column",
                    hint="verify it with its source: sfumato verify RELEASE --source ORIGINAL",
                )
            return any(check.guarantee == self and check.held for check in found.verdict.checks)
        return bool(measure(release.table, require=[self]).verdict)


class PerEntry(ClassGuarantee):
    """A model with a number for every sensitive value of a class; that of the class is the largest."""

    @abstractmethod
    def per_entry(self, counts: ClassCounts) -> Floats:
        """Return the number of each entry."""

    def per_class(self, counts: ClassCounts) -> Floats:
        """Return the largest number in each class."""
        return np.maximum.reduceat(self.per_entry(counts), counts.start[:-1])

    def decisive(self, counts: ClassCounts, index: int) -> int | None:
        """Return the value with the largest number in a class."""
        entries = slice(counts.start[index], counts.start[index + 1])
        return int(counts.value[entries][self.per_entry(counts)[entries].argmax()])


def as_json_number(value: float | None) -> float | str | None:
    """Return a number for JSON; an infinite one becomes the text ``"inf"``.

    Examples
    --------
    >>> as_json_number(float("inf")), as_json_number(2.0)
    ('inf', 2.0)
    """
    return "inf" if value == math.inf else value
