"""What was done to private data, in the terms in which its privacy can be counted.

An event is what a mechanism ran: the kind of noise, its scale, the sensitivity of the answer
and the neighbouring relation under which that sensitivity holds. It holds no data. Events are
small frozen values with a plain form, so that they can be stored, sent and added up later.

::

    Event
    ├── Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian     noise of a scale on a sensitivity
    ├── PureEvent                                                epsilon alone says what it costs
    │   ├── Exponential                                          the choice of one of many
    │   └── RandomizedResponse                                   a perturbed answer of one person
    ├── ApproximateEvent                                         epsilon and delta
    ├── PoissonSampled, FixedSampled, Shuffled                   an event on a part of the records
    ├── Selected                                                 the best of a random number of runs
    └── Repeated, Composed, Parallel                             several events
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Any, ClassVar

from sfumato.errors import InputError, OptionError, did_you_mean, one_of

__all__ = [
    "EVENTS",
    "ApproximateEvent",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Exponential",
    "FixedSampled",
    "Gaussian",
    "Laplace",
    "NoiseEvent",
    "Parallel",
    "PoissonSampled",
    "PureEvent",
    "RandomizedResponse",
    "Relation",
    "Repeated",
    "Selected",
    "Shuffled",
    "check_trials",
]

_MOST_TRIALS = 1e6


class Relation(StrEnum):
    """Which two tables count as neighbours: those that differ by one record more, or by one record changed.

    Examples
    --------
    >>> Relation("add-remove")
    <Relation.ADD_REMOVE: 'add-remove'>
    """

    ADD_REMOVE = "add-remove"
    """One table has one record that the other lacks; the number of records is private."""
    REPLACE_ONE = "replace-one"
    """One record has other values; the number of records is public."""

    @property
    def in_words(self) -> str:
        """The relation as it is written beside an epsilon."""
        return "add or remove one record" if self is Relation.ADD_REMOVE else "replace one record"


class Event(ABC):
    """Something that was done to private data.

    Examples
    --------
    >>> event = Event.from_dict({"kind": "gaussian", "scale": 1.2, "sensitivity": 1.0, "relation": "add-remove"})
    >>> event == Gaussian(1.2)
    True
    """

    kind: ClassVar[str]
    """The name of the event in its plain form."""

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """Under which neighbouring relation the numbers of the event hold."""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain values, ready for JSON."""
        return {"kind": self.kind, **{name: _plain(getattr(self, name)) for name in _names(type(self))}}

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Event:
        """Build the event that `to_dict` returned."""
        if not isinstance(plain, Mapping) or plain.get("kind") not in EVENTS:
            got = plain.get("kind") if isinstance(plain, Mapping) else plain
            raise InputError(f"an event must name its kind, got {got!r}", hint=did_you_mean(str(got), EVENTS))
        kind = EVENTS[plain["kind"]]
        names = _names(kind)
        if set(plain) != {"kind", *names}:
            raise InputError(f"the event '{kind.kind}' has the keys {', '.join(names)}, got {', '.join(sorted(plain))}")
        values = {name: plain[name] for name in names}
        if "event" in values:
            values["event"] = Event.from_dict(values["event"])
        if "events" in values:
            if not isinstance(values["events"], list | tuple):
                raise InputError(f"the events of '{kind.kind}' must be a list, got {values['events']!r}")
            values["events"] = tuple(map(Event.from_dict, values["events"]))
        return kind(**values)

    @abstractmethod
    def dp_event(self) -> Any:
        """Return the event as `dp_accounting` names it.

        Its noise multiplier is the scale over the sensitivity under the event's own relation. An
        event that dp-accounting has no name for is an ``UnsupportedDpEvent``; `spent` counts it all the same.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Return the event in plain words."""


@dataclass(frozen=True)
class NoiseEvent(Event):
    """Noise of a scale was added to an answer of a sensitivity."""

    scale: float
    sensitivity: float = 1.0
    relation: Relation = Relation.ADD_REMOVE

    noise: ClassVar[str]
    """The name of the noise in words."""
    whole: ClassVar[bool] = False
    """Whether the answer, and so its sensitivity, is a whole number."""

    def __post_init__(self) -> None:
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "scale", _positive("the scale of the noise", self.scale))
        sensitivity = _positive("the sensitivity", self.sensitivity)
        if self.whole and not sensitivity.is_integer():
            raise OptionError(f"the sensitivity of an answer in whole numbers must be whole, got {self.sensitivity!r}")
        _set(self, "sensitivity", int(sensitivity) if self.whole else sensitivity)

    @property
    def noise_multiplier(self) -> float:
        """The scale of the noise in units of the sensitivity."""
        return self.scale / self.sensitivity

    def __str__(self) -> str:
        return f"{self.noise} noise of scale {self.scale:g} on a sensitivity of {self.sensitivity:g}"


@dataclass(frozen=True)
class Laplace(NoiseEvent):
    """Laplace noise was added; the sensitivity is the largest sum of absolute changes.

    Examples
    --------
    >>> str(Laplace(2.0))
    'Laplace noise of scale 2 on a sensitivity of 1'
    """

    kind = "laplace"
    noise = "Laplace"

    def dp_event(self) -> Any:
        """Return a ``LaplaceDpEvent``."""
        import dp_accounting

        return dp_accounting.LaplaceDpEvent(self.noise_multiplier)


@dataclass(frozen=True)
class Gaussian(NoiseEvent):
    """Normal noise was added; the sensitivity is the largest Euclidean length of the change.

    Examples
    --------
    >>> Gaussian(1.2).noise_multiplier
    1.2
    """

    kind = "gaussian"
    noise = "Gaussian"

    def dp_event(self) -> Any:
        """Return a ``GaussianDpEvent``."""
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier)


@dataclass(frozen=True)
class DiscreteLaplace(NoiseEvent):
    """Whole-number Laplace noise was added: P(x) is proportional to exp(-|x| / scale).

    The sensitivity is the largest sum of absolute changes of whole numbers.

    Examples
    --------
    >>> DiscreteLaplace(2.0).to_dict()
    {'kind': 'discrete-laplace', 'scale': 2.0, 'sensitivity': 1, 'relation': 'add-remove'}
    """

    kind = "discrete-laplace"
    noise = "discrete Laplace"
    whole = True

    def dp_event(self) -> Any:
        """Return a ``DiscreteLaplaceDpEvent``."""
        from dp_accounting import dp_event

        return dp_event.DiscreteLaplaceDpEvent(1 / self.scale, int(self.sensitivity))


@dataclass(frozen=True)
class DiscreteGaussian(NoiseEvent):
    """Whole-number normal noise was added: P(x) is proportional to exp(-x**2 / (2 scale**2)).

    The sensitivity is the largest change of one whole number; an answer of which a record
    changes two is a `Repeated` event (Canonne, Kamath and Steinke 2020).

    Examples
    --------
    >>> str(DiscreteGaussian(4, 2))
    'discrete Gaussian noise of scale 4 on a sensitivity of 2'
    """

    kind = "discrete-gaussian"
    noise = "discrete Gaussian"
    whole = True

    def dp_event(self) -> Any:
        """Return a ``ZCDpEvent``: the concentrated bound of the paper."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(rho=1 / (2 * self.noise_multiplier**2))


@dataclass(frozen=True)
class PureEvent(Event):
    """Something that is epsilon-differentially private, and of which no more is known.

    Examples
    --------
    >>> str(PureEvent(0.5))
    'a mechanism of epsilon 0.5'
    """

    epsilon: float
    relation: Relation = Relation.ADD_REMOVE

    kind = "pure"
    what: ClassVar[str] = "a mechanism"

    def __post_init__(self) -> None:
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "epsilon", _positive("epsilon", self.epsilon))

    def dp_event(self) -> Any:
        """Return a ``ZCDpEvent``: epsilon-privacy implies a rho of epsilon**2 / 2 (Bun and Steinke 2016)."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(rho=self.epsilon**2 / 2)

    def __str__(self) -> str:
        return f"{self.what} of epsilon {self.epsilon:g}"


@dataclass(frozen=True)
class Exponential(PureEvent):
    """One of many candidates was chosen by its score, with noise.

    Examples
    --------
    >>> str(Exponential(0.5))
    'a noisy choice of epsilon 0.5'
    """

    kind = "exponential"
    what = "a noisy choice"


@dataclass(frozen=True)
class RandomizedResponse(PureEvent):
    """Every person perturbed their own answer before it was collected.

    Examples
    --------
    >>> str(RandomizedResponse(1.0))
    'a randomized response of epsilon 1'
    """

    relation: Relation = Relation.REPLACE_ONE

    kind = "randomized-response"
    what = "a randomized response"


@dataclass(frozen=True)
class ApproximateEvent(Event):
    """Something that is (epsilon, delta)-differentially private, and of which no more is known.

    An epsilon of 0 charges a delta alone: the chance that something goes wrong.

    Examples
    --------
    >>> str(ApproximateEvent(0.5, 1e-6))
    'a mechanism of epsilon 0.5 and delta 1e-06'
    """

    epsilon: float
    delta: float
    relation: Relation = Relation.ADD_REMOVE

    kind = "approximate"

    def __post_init__(self) -> None:
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "epsilon", 0.0 if self.epsilon == 0 else _positive("epsilon", self.epsilon))
        _set(self, "delta", _probability("delta", self.delta))

    def dp_event(self) -> Any:
        """Return an ``UnsupportedDpEvent``."""
        import dp_accounting

        return dp_accounting.UnsupportedDpEvent()

    def __str__(self) -> str:
        return f"a mechanism of epsilon {self.epsilon:g} and delta {self.delta:g}"


class _Around(Event):
    """An event around another one, under the same relation."""

    event: Event

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise OptionError(f"a {self.kind} event holds an event, got {self.event!r}")

    @property
    def relation(self) -> Relation:
        """The relation of the event inside."""
        return self.event.relation


@dataclass(frozen=True)
class PoissonSampled(_Around):
    """An event on a sample into which every record came by its own coin.

    Under replace-one, the event must be noise on a sum to which each record contributes at most
    half of the sensitivity, as the clipped gradients of private training do.

    Examples
    --------
    >>> str(PoissonSampled(0.01, Gaussian(1.2)))
    'on a Poisson sample of rate 0.01: Gaussian noise of scale 1.2 on a sensitivity of 1'
    """

    rate: float
    event: Event

    kind = "poisson-sampled"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "rate", 1.0 if self.rate == 1 else _probability("the sampling rate", self.rate))

    def dp_event(self) -> Any:
        """Return a ``PoissonSampledDpEvent``."""
        import dp_accounting

        return dp_accounting.PoissonSampledDpEvent(self.rate, self.event.dp_event())

    def __str__(self) -> str:
        return f"on a Poisson sample of rate {self.rate:g}: {self.event}"


@dataclass(frozen=True)
class FixedSampled(_Around):
    """An event on a sample of a fixed size, drawn without replacement.

    A sample has a fixed size only if the number of records is public: the relation is replace-one.

    Examples
    --------
    >>> str(FixedSampled(64, 60_000, Gaussian(1.2, 2, "replace-one")))
    'on 64 of 60,000 records: Gaussian noise of scale 1.2 on a sensitivity of 2'
    """

    size: int
    rows: int
    event: Event

    kind = "fixed-sampled"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "size", _whole("the size of a sample", self.size))
        _set(self, "rows", _whole("the number of records", self.rows))
        if self.size > self.rows:
            raise OptionError(f"a sample of {self.size:,} cannot be drawn from {self.rows:,} records")
        if self.relation is not Relation.REPLACE_ONE:
            raise OptionError(
                "a sample of a fixed size is counted under replace-one only: its size says how many records there are",
                hint="use replace_one(event), or Poisson sampling",
            )

    @property
    def rate(self) -> float:
        """The share of the records that is drawn."""
        return self.size / self.rows

    def dp_event(self) -> Any:
        """Return a ``SampledWithoutReplacementDpEvent``."""
        import dp_accounting

        return dp_accounting.SampledWithoutReplacementDpEvent(self.rows, self.size, self.event.dp_event())

    def __str__(self) -> str:
        return f"on {self.size:,} of {self.rows:,} records: {self.event}"


@dataclass(frozen=True)
class Shuffled(_Around):
    """One pass over all records in shuffled batches, with an event on each batch.

    A record is in one batch, so the pass costs one event. Shuffling adds nothing to that which
    could be counted here: no amplification is claimed. Under add-remove, the other records are
    taken to stay in their batches.

    Examples
    --------
    >>> str(Shuffled(938, Gaussian(1.2)))
    'a pass over 938 shuffled batches, without amplification: Gaussian noise of scale 1.2 on a sensitivity of 1'
    """

    batches: int
    event: Event

    kind = "shuffled"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "batches", _whole("the number of batches", self.batches))

    def dp_event(self) -> Any:
        """Return the event on one batch."""
        return self.event.dp_event()

    def __str__(self) -> str:
        return f"a pass over {self.batches:,} shuffled batches, without amplification: {self.event}"


@dataclass(frozen=True)
class Repeated(_Around):
    """The same event several times; later ones may depend on the answers of earlier ones.

    Examples
    --------
    >>> str(Repeated(PureEvent(0.1), 3))
    '3 times: a mechanism of epsilon 0.1'
    """

    event: Event
    times: int

    kind = "repeated"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "times", _whole("how often an event is repeated", self.times))

    def dp_event(self) -> Any:
        """Return a ``SelfComposedDpEvent``."""
        import dp_accounting

        return dp_accounting.SelfComposedDpEvent(self.event.dp_event(), self.times)

    def __str__(self) -> str:
        return f"{self.times:,} times: {self.event}"


@dataclass(frozen=True)
class Selected(_Around):
    """The best of a random number of runs, each of which is the event; see `selection` for what it rests on.

    Every run draws its setting, trains and scores itself, and the event is what all of that costs. Only the best
    run is released: neither the others nor how many there were.

    Parameters
    ----------
    event : Event
        What one run costs, its score included, whatever setting it drew.
    mean : float
        How many runs there are on average.
    shape : float or "poisson"
        Which distribution the number of runs has: truncated negative binomial of this shape, above -1 (0 is the
        logarithmic and 1 the geometric distribution), or Poisson.

    Examples
    --------
    >>> str(Selected(PureEvent(0.1), 10, 0))
    'the best of about 10 runs (a logarithmic number): a mechanism of epsilon 0.1'
    """

    event: Event
    mean: float
    shape: float | str

    kind = "selected"

    def __post_init__(self) -> None:
        super().__post_init__()
        mean, shape = check_trials(self.mean, self.shape)
        _set(self, "mean", mean)
        _set(self, "shape", shape)

    def dp_event(self) -> Any:
        """Return a ``RepeatAndSelectDpEvent``, of a shape and a mean for which dp-accounting has one."""
        from dp_accounting import dp_event

        shape = math.inf if isinstance(self.shape, str) else self.shape
        if shape < 0 or self.mean < 1:
            return dp_event.UnsupportedDpEvent()
        return dp_event.RepeatAndSelectDpEvent(self.event.dp_event(), self.mean, shape)

    def __str__(self) -> str:
        names: dict[float | str, str] = {0.0: "logarithmic", 1.0: "geometric", "poisson": "Poisson"}
        name = names.get(self.shape, f"truncated negative binomial, shape {self.shape}")
        return f"the best of about {self.mean:g} runs (a {name} number): {self.event}"


class _Several(Event):
    """Several events under one relation."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _set(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, Event):
                raise OptionError(f"a {self.kind} event holds events, got {event!r}")
        if not self.events:
            raise OptionError(f"a {self.kind} event needs at least one event")
        if len({event.relation for event in self.events}) > 1:
            raise OptionError(
                f"the events of a {self.kind} event must have one relation, got add-remove and replace-one",
                hint="replace_one(event) turns one into the other",
            )

    @property
    def relation(self) -> Relation:
        """The relation of all the events."""
        return self.events[0].relation


@dataclass(frozen=True)
class Composed(_Several):
    """Several events on the same records, one after the other.

    Examples
    --------
    >>> str(Composed((PureEvent(0.1), PureEvent(0.2))))
    'a mechanism of epsilon 0.1; then a mechanism of epsilon 0.2'
    """

    events: tuple[Event, ...]

    kind = "composed"

    def dp_event(self) -> Any:
        """Return a ``ComposedDpEvent``."""
        import dp_accounting

        return dp_accounting.ComposedDpEvent([event.dp_event() for event in self.events])

    def __str__(self) -> str:
        return "; then ".join(map(str, self.events))


@dataclass(frozen=True)
class Parallel(_Several):
    """Events on parts of the table that share no record; the worst of them is what it costs.

    The parts are told apart by the records' own values, so a changed record may leave one part
    and enter another: the relation is add-remove.

    Examples
    --------
    >>> str(Parallel((PureEvent(0.1), PureEvent(0.2))))
    'on separate parts of the records: a mechanism of epsilon 0.1 | a mechanism of epsilon 0.2'
    """

    events: tuple[Event, ...]

    kind = "parallel"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relation is not Relation.ADD_REMOVE:
            raise OptionError(
                "events on separate parts are counted under add-remove only: a changed record may change its part",
                hint="build them under add-remove and turn the whole into replace-one with replace_one(event)",
            )

    def dp_event(self) -> Any:
        """Return the event of all parts if they are equal; dp-accounting has no name for others."""
        import dp_accounting

        return self.events[0].dp_event() if len(set(self.events)) == 1 else dp_accounting.UnsupportedDpEvent()

    def __str__(self) -> str:
        return "on separate parts of the records: " + " | ".join(map(str, self.events))


EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        Laplace,
        Gaussian,
        DiscreteLaplace,
        DiscreteGaussian,
        PureEvent,
        Exponential,
        RandomizedResponse,
        ApproximateEvent,
        PoissonSampled,
        FixedSampled,
        Shuffled,
        Selected,
        Repeated,
        Composed,
        Parallel,
    )
}
"""Every event under the name of its plain form."""


def check_trials(mean: Any, shape: Any) -> tuple[float, float | str]:
    """Return the mean and the shape of a random number of runs if there is such a distribution.

    Examples
    --------
    >>> check_trials(10, 0)
    (10.0, 0.0)
    """
    poisson = isinstance(shape, str) and shape == "poisson"
    if not poisson and not -1 < _number(shape) <= _MOST_TRIALS:
        raise OptionError(
            f'the shape of a number of runs must be above -1 and at most 1,000,000, or "poisson", got {shape!r}'
        )
    least = 0 if poisson else 1  # at least one run is sure, unless the number is Poisson
    if not least < _number(mean) <= _MOST_TRIALS:
        raise OptionError(f"the mean number of runs must be above {least} and at most 1,000,000, got {mean!r}")
    return _number(mean), shape if poisson else _number(shape)


def _names(kind: type[Event]) -> list[str]:
    assert is_dataclass(kind)
    return [field.name for field in fields(kind)]


def _set(event: Event, name: str, value: Any) -> None:
    object.__setattr__(event, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, Relation):
        return value.value
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan


def _positive(name: str, value: Any) -> float:
    number = _number(value)
    if not 0 < number < math.inf:
        raise OptionError(f"{name} must be a finite number above 0, got {value!r}")
    return number


def _probability(name: str, value: Any) -> float:
    number = _number(value)
    if not 0 < number < 1:
        raise OptionError(f"{name} must be a number between 0 and 1, got {value!r}")
    return number


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)
