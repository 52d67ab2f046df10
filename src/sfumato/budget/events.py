"""Privacy events: records of the mechanisms that ran on private data, for the accountant to compose.

An event states the kind of noise, its scale, the sensitivity of the answer and the neighbouring relation
under which that sensitivity holds. It contains no data. Events are small frozen values with a plain form;
they can be stored, sent and composed later.

::

    Event
    ├── Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian     noise with a scale and a sensitivity
    ├── PureEvent                                                any mechanism with a known epsilon
    │   ├── Exponential                                          the selection of one candidate
    │   └── RandomizedResponse                                   a perturbed answer of one person
    ├── ApproximateEvent                                         any mechanism with a known epsilon and delta
    ├── NoiseShares                                              a sum to which several parties each add noise
    ├── PoissonSampled, FixedSampled, Shuffled                   an event on a part of the records
    ├── Selected                                                 the best of a random number of runs
    └── Repeated, Composed, Parallel                             several events
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, ClassVar

from sfumato.data.certificate import CLIENT, UNIT, UNITS
from sfumato.data.validate import real, whole
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
    "NoiseShares",
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
    """Which two tables count as neighbours: one has an extra record, or one record differs.

    Examples
    --------
    >>> Relation("add-remove")
    <Relation.ADD_REMOVE: 'add-remove'>
    """

    ADD_REMOVE = "add-remove"
    """One table has one record more than the other; the number of records is private."""
    REPLACE_ONE = "replace-one"
    """One record has different values; the number of records is public."""

    @property
    def in_words(self) -> str:
        """The relation in words, as shown next to an epsilon."""
        return self.of_one(UNIT)

    def of_one(self, unit: str) -> str:
        """Return the relation in words for a unit of protection.

        Examples
        --------
        >>> Relation.ADD_REMOVE.of_one("client")
        'add or remove one client'
        """
        one = "record" if unit == UNIT else unit
        return f"add or remove one {one}" if self is Relation.ADD_REMOVE else f"replace one {one}"


class Event(ABC):
    """A mechanism that ran on private data.

    Examples
    --------
    >>> event = Event.from_dict({"kind": "gaussian", "scale": 1.2, "sensitivity": 1.0, "relation": "add-remove"})
    >>> event == Gaussian(1.2)
    True
    """

    kind: ClassVar[str]
    """The name of the event in its plain form."""
    states_unit: ClassVar[bool] = False
    """Whether the plain form names the unit even if it is a row."""

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """The neighbouring relation under which the parameters of the event hold."""

    @property
    def unit(self) -> str:
        """The unit of protection: of what neighbours have one more or another."""
        return UNIT

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain values, ready for JSON."""
        stated = self.states_unit or self.unit != UNIT
        names = [name for name in _names(type(self)) if name != "unit" or stated]
        return {"kind": self.kind, **{name: _plain(getattr(self, name)) for name in names}}

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Event:
        """Build an event from the plain values that `to_dict` returned."""
        if not isinstance(plain, Mapping) or plain.get("kind") not in EVENTS:
            got = plain.get("kind") if isinstance(plain, Mapping) else plain
            raise InputError(f"an event must name its kind, got {got!r}", hint=did_you_mean(str(got), EVENTS))
        kind = EVENTS[plain["kind"]]
        names = _names(kind)
        without = {"unit"} if "unit" in names and not kind.states_unit else set()
        if {"kind", *names} - set(plain) - without or set(plain) - {"kind", *names}:
            raise InputError(f"the event '{kind.kind}' has the keys {', '.join(names)}, got {', '.join(sorted(plain))}")
        values = {name: plain[name] for name in names if name in plain}
        if "event" in values:
            values["event"] = Event.from_dict(values["event"])
        if "events" in values:
            if not isinstance(values["events"], list | tuple):
                raise InputError(f"the events of '{kind.kind}' must be a list, got {values['events']!r}")
            values["events"] = tuple(map(Event.from_dict, values["events"]))
        return kind(**values)

    @abstractmethod
    def dp_event(self) -> Any:
        """Return the equivalent event of `dp_accounting`.

        Its noise multiplier is the scale over the sensitivity under the event's own relation. An event
        without an equivalent is an ``UnsupportedDpEvent``; `spent` accounts for it nevertheless.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Describe the event in words."""


@dataclass(frozen=True)
class NoiseEvent(Event):
    """Noise was added to an answer with a known sensitivity."""

    scale: float
    sensitivity: float = 1.0
    relation: Relation = Relation.ADD_REMOVE
    unit: str = field(default=UNIT, repr=False)

    noise: ClassVar[str]
    """The name of the noise distribution."""
    whole: ClassVar[bool] = False
    """Whether the answer, and so its sensitivity, is a whole number."""

    def __post_init__(self) -> None:
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "scale", real("the scale of the noise", self.scale, above=0))
        sensitivity = real("the sensitivity", self.sensitivity, above=0)
        if self.whole and not sensitivity.is_integer():
            raise OptionError(f"the sensitivity of a whole-number answer must be whole, got {self.sensitivity!r}")
        _set(self, "sensitivity", int(sensitivity) if self.whole else sensitivity)
        _check_unit(self.unit)

    @property
    def noise_multiplier(self) -> float:
        """The scale of the noise in units of the sensitivity."""
        return self.scale / self.sensitivity

    def __str__(self) -> str:
        each = "" if self.unit == UNIT else f" per {self.unit}"
        return f"{self.noise} noise of scale {self.scale:g} on a sensitivity of {self.sensitivity:g}{each}"


@dataclass(frozen=True)
class Laplace(NoiseEvent):
    """Laplace noise was added; the sensitivity is the L1 norm of the largest change.

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
    """Gaussian noise was added; the sensitivity is the L2 norm of the largest change.

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
    """Discrete Laplace noise was added: P(x) is proportional to exp(-|x| / scale) for whole numbers x.

    The sensitivity is the L1 norm of the largest change.

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
    """Discrete Gaussian noise was added: P(x) is proportional to exp(-x**2 / (2 scale**2)) for whole numbers x.

    The sensitivity is the largest change of one number; if a record changes two numbers of the answer, the
    event is `Repeated` (Canonne, Kamath and Steinke 2020).

    Examples
    --------
    >>> str(DiscreteGaussian(4, 2))
    'discrete Gaussian noise of scale 4 on a sensitivity of 2'
    """

    kind = "discrete-gaussian"
    noise = "discrete Gaussian"
    whole = True

    def dp_event(self) -> Any:
        """Return a ``ZCDpEvent`` with the zero-concentrated bound of the paper."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(rho=1 / (2 * self.noise_multiplier**2))


@dataclass(frozen=True)
class PureEvent(Event):
    """A mechanism known only to be epsilon-differentially private.

    Examples
    --------
    >>> str(PureEvent(0.5))
    'a mechanism of epsilon 0.5'
    """

    epsilon: float
    relation: Relation = Relation.ADD_REMOVE
    unit: str = field(default=UNIT, repr=False)

    kind = "pure"
    what: ClassVar[str] = "a mechanism"

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "epsilon", real("epsilon", self.epsilon, above=0))

    def dp_event(self) -> Any:
        """Return a ``ZCDpEvent``: epsilon-privacy implies a rho of epsilon**2 / 2 (Bun and Steinke 2016)."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(rho=self.epsilon**2 / 2)

    def __str__(self) -> str:
        each = "" if self.unit == UNIT else f" per {self.unit}"
        return f"{self.what} of epsilon {self.epsilon:g}{each}"


@dataclass(frozen=True)
class Exponential(PureEvent):
    """A candidate was selected by its noisy score.

    Examples
    --------
    >>> str(Exponential(0.5))
    'a noisy choice of epsilon 0.5'
    """

    kind = "exponential"
    what = "a noisy choice"


@dataclass(frozen=True)
class BoundedRange(PureEvent):
    """A candidate was selected by the exponential mechanism.

    The losses of its candidates lie in an interval of length epsilon (Durfee and Rogers 2019), not only in one of
    twice that length around 0. So several choices cost less than other mechanisms of the same epsilon: as zero-
    concentrated privacy, a quarter.

    Examples
    --------
    >>> str(BoundedRange(0.5))
    'a choice by the exponential mechanism of epsilon 0.5'
    """

    kind = "bounded-range"
    what = "a choice by the exponential mechanism"

    def dp_event(self) -> Any:
        """Return a ``ZCDpEvent`` with a rho of epsilon**2 / 8 (Cesar and Rogers 2021)."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(rho=self.epsilon**2 / 8)


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
    """A mechanism known only to be (epsilon, delta)-differentially private.

    An epsilon of 0 charges only a delta: the probability of a failure.

    Examples
    --------
    >>> str(ApproximateEvent(0.5, 1e-6))
    'a mechanism of epsilon 0.5 and delta 1e-06'
    """

    epsilon: float
    delta: float
    relation: Relation = Relation.ADD_REMOVE
    unit: str = field(default=UNIT, repr=False)

    kind = "approximate"

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "epsilon", 0.0 if self.epsilon == 0 else real("epsilon", self.epsilon, above=0))
        _set(self, "delta", real("delta", self.delta, above=0, below=1))

    def dp_event(self) -> Any:
        """Return an ``UnsupportedDpEvent``."""
        import dp_accounting

        return dp_accounting.UnsupportedDpEvent()

    def __str__(self) -> str:
        each = "" if self.unit == UNIT else f" per {self.unit}"
        return f"a mechanism of epsilon {self.epsilon:g} and delta {self.delta:g}{each}"


@dataclass(frozen=True)
class NoiseShares(Event):
    """Each of several parties added a share of discrete Gaussian noise to its part of a sum of whole numbers.

    The sum of discrete Gaussians is nearly a discrete Gaussian (Kairouz, Liu and Steinke 2021, theorem 1): with n
    shares of scale s on a sum of d numbers with a sensitivity of D, it is ``e**2 / 2`` zero-concentrated with
    ``e = D / (sqrt(n) s) + tau sqrt(d)`` and ``tau = 10 sum_{k<n} exp(-2 pi**2 s**2 k / (k + 1))``.

    Parameters
    ----------
    scale : float
        The scale of each share.
    sensitivity : float
        The largest Euclidean norm of the contribution of one unit.
    shares : int
        How many shares are surely in the sum.
    numbers : int
        How many numbers the sum has.
    relation : Relation
    unit : str
        "client" if a neighbour lacks all that one party contributes, "row" if it lacks one record.

    Examples
    --------
    >>> event = NoiseShares(scale=40, sensitivity=100, shares=7, numbers=1000)
    >>> str(event), round(event.rho, 3)
    ('7 shares of discrete Gaussian noise of scale 40 on a sensitivity of 100 per client', 0.446)
    """

    scale: float
    sensitivity: float
    shares: int
    numbers: int
    relation: Relation = Relation.ADD_REMOVE
    unit: str = CLIENT

    kind = "noise-shares"
    states_unit = True

    def __post_init__(self) -> None:
        _set(self, "relation", one_of(Relation, self.relation, "the relation"))
        _set(self, "scale", real("the scale of a share of the noise", self.scale, least=0.5))
        _set(self, "sensitivity", real("the sensitivity", self.sensitivity, above=0))
        _set(self, "shares", whole("the number of shares", self.shares, most=2**16))
        _set(self, "numbers", whole("the number of numbers", self.numbers))
        _check_unit(self.unit)

    @property
    def rho(self) -> float:
        """The zero-concentrated privacy of the sum."""
        sharp = -2 * math.pi**2 * self.scale**2
        tau = 10 * math.fsum(math.exp(sharp * k / (k + 1)) for k in range(1, self.shares))
        return (self.sensitivity / (math.sqrt(self.shares) * self.scale) + tau * math.sqrt(self.numbers)) ** 2 / 2

    def dp_event(self) -> Any:
        """Return a ``ZCDpEvent``."""
        import dp_accounting

        return dp_accounting.ZCDpEvent(rho=self.rho)

    def __str__(self) -> str:
        return (
            f"{self.shares} shares of discrete Gaussian noise of scale {self.scale:g} "
            f"on a sensitivity of {self.sensitivity:g} per {self.unit}"
        )


class _Around(Event):
    """An event that wraps another one, under the same relation."""

    event: Event

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise OptionError(f"a {self.kind} event must contain an event, got {self.event!r}")

    @property
    def relation(self) -> Relation:
        """The relation of the inner event."""
        return self.event.relation

    @property
    def unit(self) -> str:
        """The unit of the inner event."""
        return self.event.unit


@dataclass(frozen=True)
class PoissonSampled(_Around):
    """An event on a Poisson sample: each record is included independently, with probability `rate`.

    Under replace-one, the event must be noise on a sum to which each record contributes at most
    half of the sensitivity, such as the clipped gradients of private training.

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
        _set(self, "rate", 1.0 if self.rate == 1 else real("the sampling rate", self.rate, above=0, below=1))

    def dp_event(self) -> Any:
        """Return a ``PoissonSampledDpEvent``."""
        import dp_accounting

        return dp_accounting.PoissonSampledDpEvent(self.rate, self.event.dp_event())

    def __str__(self) -> str:
        return f"on a Poisson sample of rate {self.rate:g}: {self.event}"


@dataclass(frozen=True)
class FixedSampled(_Around):
    """An event on a sample of fixed size, drawn without replacement.

    A fixed size requires that the number of records is public, so the relation is replace-one.

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
        _set(self, "size", whole("the size of a sample", self.size))
        _set(self, "rows", whole("the number of records", self.rows))
        if self.size > self.rows:
            raise OptionError(f"a sample of {self.size:,} cannot be drawn from {self.rows:,} records")
        if self.relation is not Relation.REPLACE_ONE:
            raise OptionError(
                "sampling with a fixed size needs the relation replace-one, because the number of records is public",
                hint="use replace_one(event), or Poisson sampling",
            )

    @property
    def rate(self) -> float:
        """The fraction of the records that is drawn."""
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

    Each record is in one batch, so the pass costs one event. No amplification by shuffling is claimed.
    Under add-remove, all other records are assumed to stay in their batches.

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
        _set(self, "batches", whole("the number of batches", self.batches))

    def dp_event(self) -> Any:
        """Return the event on one batch."""
        return self.event.dp_event()

    def __str__(self) -> str:
        return f"a pass over {self.batches:,} shuffled batches, without amplification: {self.event}"


@dataclass(frozen=True)
class Repeated(_Around):
    """The same event several times; later runs may depend on the answers of earlier ones.

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
        _set(self, "times", whole("the number of repetitions", self.times))

    def dp_event(self) -> Any:
        """Return a ``SelfComposedDpEvent``."""
        import dp_accounting

        return dp_accounting.SelfComposedDpEvent(self.event.dp_event(), self.times)

    def __str__(self) -> str:
        return f"{self.times:,} times: {self.event}"


@dataclass(frozen=True)
class Selected(_Around):
    """The best of a random number of runs that each cost the event; see `RandomStopping` for the conditions.

    A run draws its setting, trains and computes its score; the event is the cost of all that. Only the best
    run is released, neither the other runs nor their number.

    Parameters
    ----------
    event : Event
        The cost of one run including its score, for any setting.
    mean : float
        The mean number of runs.
    shape : float or "poisson"
        The distribution of the number of runs: truncated negative binomial with this shape above -1 (0 is the
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
        """Return a ``RepeatAndSelectDpEvent`` if dp-accounting supports the shape and the mean."""
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
                raise OptionError(f"a {self.kind} event must contain events, got {event!r}")
        if not self.events:
            raise OptionError(f"a {self.kind} event needs at least one event")
        if len({event.unit for event in self.events}) > 1:
            raise OptionError(f"the events of a {self.kind} event must protect one unit, got several")
        if len({event.relation for event in self.events}) > 1:
            raise OptionError(
                f"the events of a {self.kind} event must have one relation, got add-remove and replace-one",
                hint="replace_one(event) converts add-remove to replace-one",
            )

    @property
    def relation(self) -> Relation:
        """The relation of all the events."""
        return self.events[0].relation

    @property
    def unit(self) -> str:
        """The unit of all the events."""
        return self.events[0].unit


@dataclass(frozen=True)
class Composed(_Several):
    """Several events on the same records, in sequence.

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
    """Events on disjoint parts of the table; together they cost as much as the worst of them.

    The values of a record decide which part it belongs to, so a changed record may move to another part.
    The relation is therefore add-remove.

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
                "events on disjoint parts need the relation add-remove, because a changed record may change its part",
                hint="build them under add-remove, then convert the parallel event with replace_one(event)",
            )

    def dp_event(self) -> Any:
        """Return the event of the parts if all are equal, and otherwise an ``UnsupportedDpEvent``."""
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
        BoundedRange,
        RandomizedResponse,
        ApproximateEvent,
        NoiseShares,
        PoissonSampled,
        FixedSampled,
        Shuffled,
        Selected,
        Repeated,
        Composed,
        Parallel,
    )
}
"""The class of each event by the `kind` in its plain form."""


def check_trials(mean: Any, shape: Any) -> tuple[float, float | str]:
    """Return the mean and the shape of the distribution of a random number of runs, if they are valid.

    Examples
    --------
    >>> check_trials(10, 0)
    (10.0, 0.0)
    """
    poisson = isinstance(shape, str) and shape == "poisson"
    if not poisson:
        shape = real('the shape of a number of runs, unless it is "poisson",', shape, above=-1, most=_MOST_TRIALS)
    least = 0 if poisson else 1  # only a Poisson number of runs can be 0
    return real("the mean number of runs", mean, above=least, most=_MOST_TRIALS), shape


def _names(kind: type[Event]) -> list[str]:
    assert is_dataclass(kind)
    return [one.name for one in fields(kind)]


def _check_unit(unit: str) -> None:
    if unit not in UNITS:
        raise OptionError(f"the unit of an event must be one of {', '.join(UNITS)}, got {unit!r}")


def _set(event: Event, name: str, value: Any) -> None:
    object.__setattr__(event, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, Relation):
        return value.value
    return list(map(_plain, value)) if isinstance(value, tuple) else value
