"""Scores of a model on held-out records: exact, or with noise that the cost of the training covers.

Held-out records are about people too, so published scores are noisy: counts of predictions by class, histograms of
predicted probabilities, and a sum of capped losses.

This costs nothing beyond the training. Whatever the key, each record's own coin puts it into one of the two parts
(`division`), so adding a record changes only one part. If it joins the training part, the scores are post-processing of
the model; if it joins the test part, the model is unchanged, and the events of the scores are among those of the
training. So every record is subject to at most the events of the training (parallel composition).

If the training adds Gaussian noise to sums over all records, the scores are one such sum with the combined noise. If it
draws Poisson samples, the scores are sums over samples of the test part, drawn at the same rates with the same noise;
only their total is released.

If the training protects people, all of this holds for people: a person is in one part, at most as many of their rows
are scored as are trained on, samples are of people, and the noise is made for all rows of a person.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.events import Composed, Event, Gaussian, PoissonSampled, Repeated
from sfumato.budget.noise import Source
from sfumato.budget.people import draw_rows, units_of
from sfumato.data.certificate import PERSON
from sfumato.errors import InputError, ModelError, OptionError
from sfumato.learners.dpsgd.sampling import Poisson
from sfumato.learners.estimators.features import Feature, texts_in
from sfumato.learners.estimators.noisy_sums import NoisySums, Share, on_grid
from sfumato.learners.training.runs import Scores

__all__ = ["Tallies", "exact_scores", "noisy_scores", "scoring_events", "tallies_of"]

Floats = NDArray[np.float64]

_BINS = 12  # bins of a predicted probability
_EDGES = 1 / (1 + np.exp(-np.linspace(-5, 5, _BINS - 1)))
_CLASSES = {"answers": Share(1, 0.6), "curves": Share(1, 0.25), "losses": Share(1, 0.15)}
_NUMBERS = {"errors": Share(1, 1.0)}
_SURE = 1.96  # standard deviations to either side, for 95 %
_MOST_UNSURE = 0.1  # the largest margin of an area under a curve that is reported


def exact_scores(model: Any, rows: Any, target: Any) -> Scores:
    """Return the exact scores of a fitted model; rows of a class that it does not know are left out."""
    if not len(target):
        raise InputError("no row was held out to test on", hint="hold out a larger share")
    predicted = np.asarray(model.predict_proba(rows) if hasattr(model, "classes_") else model.predict(rows))
    if not np.isfinite(predicted).all():
        raise ModelError(
            "the training has diverged: some predictions are not finite", hint="use a smaller learning rate"
        )
    if not hasattr(model, "classes_"):
        numbers = np.asarray(target, dtype=np.float64)
        known = np.isfinite(numbers)
        if not known.any():
            raise InputError("no test row has a number to compare with")
        return Scores.of_numbers(numbers[known], predicted[known])
    classes = model.classes_.tolist()
    truth = _truth(model, target)
    known = truth < len(classes)
    if not known.any():
        raise InputError("no test row has a class that the model knows")
    return Scores.of(truth[known], predicted[known], classes)


def noisy_scores(model: Any, rows: Any, target: Any, events: Iterable[Event], source: Source) -> Scores:
    """Return noisy scores of a fitted model, whose events are among those of its training.

    Parameters
    ----------
    model : PrivateEstimator
        Trained on other records.
    rows, target : table and column
    events : iterable of Event
        The events of the training. If none of them adds Gaussian noise, nothing is released. A loss below its noise is
        NaN, and an area under a curve with a margin of more than 0.1 is left out.
    source : Source

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.learners import PrivateNaiveBayes
    >>> model = PrivateNaiveBayes(epsilon=1).fit(sf.datasets.adult("train"), "income")
    >>> test = sf.datasets.adult("test").to_polars()
    >>> scores = noisy_scores(model, test.drop("income"), test["income"], model.events_, Source())
    >>> abs(scores.accuracy - 0.83) < 0.02, scores.margin < 0.01
    (True, True)
    """
    given = tuple(events)
    bound = _bound(given, getattr(model, "rows_that_count", None))
    rounds = _rounds(given, bound)
    if not rounds:
        return Scores.none()
    if bound is None:
        tallies = tallies_of(model, rows, target)
        units = np.arange(tallies.rows)
    else:
        columns, _ = model._split(rows, None)
        if columns.people is None:
            raise InputError("the model protects people, and the test rows have no person column")
        kept = draw_rows(columns.people.to_numpy(), bound, source)
        tallies = tallies_of(model, columns.take(kept), pl.Series("target", target).gather(kept))
        units = units_of(columns.people.to_numpy()[kept][tallies.known])
    found = _estimate(tallies, units, rounds, source)
    return _of_classes(found, model.classes_) if hasattr(model, "classes_") else _of_numbers(found, model)


def scoring_events(events: Iterable[Event], rows_per_person: int | None = None) -> tuple[Event, ...]:
    """Return the events of `noisy_scores`, given the events of the training and how many rows of a person count.

    Examples
    --------
    >>> from sfumato.budget import PureEvent
    >>> scoring_events([PureEvent(0.1), Composed((Gaussian(4.0), Gaussian(4.0)))])
    (Repeated(event=Gaussian(scale=4.0, sensitivity=1.0, relation=<Relation.ADD_REMOVE: 'add-remove'>), times=2),)
    """
    given = tuple(events)
    return tuple(one.event for one in _rounds(given, _bound(given, rows_per_person)))


def _bound(events: Iterable[Event], rows_per_person: int | None) -> int | None:
    """Return how many rows of a person are scored; None if rows are protected."""
    if all(one.unit != PERSON for one in events):
        return None
    if rows_per_person is None:
        raise OptionError("the scores of a model for people need a bound on the rows of a person")
    return rows_per_person


# --- the contribution of a record -----------------------------------------------------------------


@dataclass(frozen=True)
class Tallies:
    """The contributions of records: for every kind of sum, the cells that a record adds to, and the amounts."""

    shares: Mapping[str, Share]
    sizes: Mapping[str, int]
    norms: Mapping[str, float]
    """The largest Euclidean norm of one record's contribution to each kind."""
    cells: Mapping[str, NDArray[np.int64]]
    """A row per record."""
    amounts: Mapping[str, Floats]
    known: NDArray[np.bool_]
    """Which of the given records contribute."""

    @property
    def rows(self) -> int:
        """The number of records that contribute."""
        return int(self.known.sum())

    def sums(self, name: str, weights: Floats) -> Floats:
        """Add up the contributions to a kind of sum, each times the weight of its record."""
        flat = (self.amounts[name] * weights[:, None]).reshape(-1)
        sums: Floats = np.bincount(self.cells[name].reshape(-1), weights=flat, minlength=self.sizes[name]).astype(float)
        return sums


def tallies_of(model: Any, rows: Any, target: Any) -> Tallies:
    """Return the contribution of every record to the sums; a record without a known target adds nothing."""
    return (_tally_classes if hasattr(model, "classes_") else _tally_numbers)(model, rows, target)


def _tally_classes(model: Any, rows: Any, target: Any) -> Tallies:
    count, curves = len(model.classes_), _curves(len(model.classes_))
    truth = _truth(model, target)
    known = truth < count
    chances = np.zeros((len(truth), count))
    if len(truth):
        chances = np.nan_to_num(
            np.asarray(model.predict_proba(rows), dtype=np.float64), nan=0.0, posinf=1.0, neginf=0.0
        )
    chances, truth = chances[known], truth[known]
    own = chances[np.arange(len(truth)), truth]
    cap = _cap(count)
    losses = on_grid(np.clip(-np.log(np.clip(own, 1e-300, 1.0)) / cap, 0.0, 1.0))
    bins = np.searchsorted(_EDGES, chances[:, curves])
    right = truth[:, None] == np.array(curves)
    return Tallies(
        _CLASSES,
        {"answers": count**2, "curves": len(curves) * 2 * _BINS, "losses": 1},
        {"answers": 1.0, "curves": math.sqrt(len(curves)), "losses": 1.0},
        {
            "answers": (truth * count + chances.argmax(1))[:, None],
            "curves": (np.arange(len(curves)) * 2 + right) * _BINS + bins,
            "losses": np.zeros((len(truth), 1), dtype=np.int64),
        },
        {
            "answers": np.ones((len(truth), 1)),
            "curves": np.ones((len(truth), len(curves))),
            "losses": losses[:, None],
        },
        known,
    )


def _tally_numbers(model: Any, rows: Any, target: Any) -> Tallies:
    """Tally records, squared errors and two moments of the target, in units of the target's range."""
    low, high = model.target_.bounds
    numbers = np.asarray(target, dtype=np.float64)
    known = np.isfinite(numbers)
    raw = np.zeros(len(numbers))
    if len(numbers):
        raw = np.nan_to_num(np.asarray(model.predict(rows), dtype=np.float64), nan=high, posinf=high, neginf=low)
    truth, predicted = ((np.clip(one[known], low, high) - low) / (high - low) - 0.5 for one in (numbers, raw))
    amounts = on_grid(np.column_stack([np.ones(len(truth)), np.square(predicted - truth), truth, np.square(truth)]))
    return Tallies(
        _NUMBERS,
        {"errors": 4},
        {"errors": math.sqrt(1 + 1 + 1 / 4 + 1 / 16)},
        {"errors": np.tile(np.arange(4), (len(truth), 1))},
        {"errors": amounts},
        known,
    )


def _truth(model: Any, target: Any) -> NDArray[np.int64]:
    return Feature("target", domain=texts_in(model.classes_.tolist())).codes(pl.Series("target", target))


def _curves(classes: int) -> list[int]:
    """Return the classes that have a curve."""
    return [1] if classes == 2 else list(range(classes))


def _cap(classes: int) -> float:
    """Return the cap of a record's loss: the loss at a twentieth of the probability of a random guess."""
    return math.log(20 * classes)


# --- noise ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Round:
    """A number of sums with the same noise, each over a Poisson sample of the same rate, or over all."""

    one: Gaussian | PoissonSampled
    """The event of each."""
    times: int
    bound: int | None = None
    """How many rows of a person are scored, if people are protected: then the noise multiplier is that for a person."""

    @property
    def rate(self) -> float:
        return self.one.rate if isinstance(self.one, PoissonSampled) else 1.0

    @property
    def multiplier(self) -> float:
        noise = self.one.event if isinstance(self.one, PoissonSampled) else self.one
        assert isinstance(noise, Gaussian)
        return noise.noise_multiplier

    @property
    def event(self) -> Event:
        return self.one if self.times == 1 else Repeated(self.one, self.times)


def _rounds(events: Iterable[Event], bound: int | None = None) -> list[_Round]:
    """Return the events that add Gaussian noise: those on samples if there are any, else those on all records."""
    sampled, full = Counter[PoissonSampled](), Counter[Gaussian]()
    for event, times in _leaves(events):
        if isinstance(event, Gaussian):
            full[event] += times
        elif isinstance(event, PoissonSampled) and isinstance(event.event, Gaussian):
            sampled[event] += times
    return [_Round(one, times, bound) for one, times in (sampled or full).items()]


def _leaves(events: Iterable[Event], times: int = 1) -> Iterator[tuple[Event, int]]:
    for event in events:
        if isinstance(event, Repeated):
            yield from _leaves([event.event], times * event.times)
        elif isinstance(event, Composed):
            yield from _leaves(event.events, times)
        else:
            yield event, times


@dataclass(frozen=True)
class _Estimate:
    """Sums over all records, estimated from noisy rounds."""

    sums: dict[str, Floats]
    deviations: dict[str, float]
    """The standard deviation of the noise on every number of a kind."""
    draws: float
    """How often a record, or a person, was drawn on average; infinity without sampling."""
    events: tuple[dict[str, Any], ...]


def _estimate(tallies: Tallies, units: NDArray[np.int64], rounds: list[_Round], source: Source) -> _Estimate:
    """Add up the rounds, weighted by the inverse variance of their noise, and scale the total to all records.

    ``units`` has the number of what each record belongs to and is drawn with: itself, or its person.
    """
    totals = {name: np.zeros(size) for name, size in tallies.sizes.items()}
    variances = dict.fromkeys(tallies.sizes, 0.0)
    scale = draws = 0.0
    for one in rounds:
        weights = np.full(tallies.rows, float(one.times))
        if one.rate < 1:
            weights = np.zeros(tallies.rows)
            if tallies.rows:  # draw for all rounds at once, with one coin per record, or person, and round
                count = int(units.max()) + 1
                drawn = Poisson(count * one.times, one.rate).draw(source)
                weights = np.bincount(drawn % count, minlength=count).astype(np.float64)[units]
        noise = NoisySums(tallies.shares, one.multiplier * math.sqrt(one.times), source, rows_per_person=one.bound)
        worth = one.multiplier**-2
        for name, norm in tallies.norms.items():
            totals[name] += worth * noise(name, tallies.sums(name, weights), norm)
            variances[name] += (worth * noise.deviation_of(name, norm)) ** 2
        scale += worth * one.times * one.rate
        draws += one.times * one.rate
    return _Estimate(
        {name: total / scale for name, total in totals.items()},
        {name: math.sqrt(variance) / scale for name, variance in variances.items()},
        math.inf if all(one.rate == 1 for one in rounds) else draws,
        tuple(one.event.to_dict() for one in rounds),
    )


# --- scores of noisy sums -------------------------------------------------------------------------


def _of_classes(found: _Estimate, classes: Any) -> Scores:
    count = len(classes)
    answers = found.sums["answers"].reshape(count, count)
    rows = max(float(answers.sum()), 1.0)
    accuracy = _within(float(np.trace(answers)) / rows)
    # The variance of the noise on the diagonal relative to all cells, and that of sampling.
    spread = found.deviations["answers"] ** 2 * (count - 2 * accuracy * count + accuracy**2 * count**2) / rows**2
    spread += accuracy * (1 - accuracy) / rows / found.draws
    histograms = _consistent(found, answers)
    areas = [_area(*one) for one in histograms if one.sum(1).min() > 1]
    unsure = max((_area_margin(found.deviations["curves"], *one.sum(1)) for one in histograms), default=math.inf)
    cap = _cap(count)
    loss, hidden = found.sums["losses"][0] / rows, _SURE * found.deviations["losses"] / rows
    return Scores(
        rows=round(rows),
        loss=math.nan if hidden >= loss else cap * _within(float(loss)),
        baseline=_within(float(answers.sum(1).max()) / rows),
        accuracy=accuracy,
        auc=float(np.mean(areas)) if areas and unsure <= _MOST_UNSURE else None,
        classes=tuple(map(str, classes.tolist())),
        confusion=tuple(tuple(max(0, round(cell)) for cell in row) for row in answers.tolist()),
        curves=tuple(_curve(*one) for one in histograms),
        how="noisy",
        margin=min(1.0, _SURE * math.sqrt(spread)),
        events=found.events,
    )


def _of_numbers(found: _Estimate, model: Any) -> Scores:
    low, high = model.target_.bounds
    unit = (high - low) ** 2
    total, errors, first, second = found.sums["errors"].tolist()
    rows = max(total, 1.0)
    loss = _within(errors / rows)
    spread = (found.deviations["errors"] / rows) ** 2 * (1 + loss**2) + loss * (1 - loss) / rows / found.draws
    margin = min(1.0, _SURE * math.sqrt(spread))
    always = min(max(second / rows - (first / rows) ** 2, 0.0), 0.25)
    return Scores(
        rows=round(rows),
        loss=math.nan if margin >= loss else unit * loss,
        baseline=math.nan if margin >= always else unit * always,
        how="noisy",
        margin=unit * margin,
        events=found.events,
    )


def _consistent(found: _Estimate, answers: Floats) -> Floats:
    """Return for each curve the histograms of the other classes and of its own class, consistent with the counts.

    The counts of predictions also contain the size of each class, with less noise. All bins are shifted equally, such
    that they add up to the average of both sizes, weighted by their precision.
    """
    count = len(answers)
    histograms = found.sums["curves"].reshape(-1, 2, _BINS)
    own = answers.sum(1)[_curves(count)]
    totals = np.column_stack([answers.sum() - own, own])
    unsure = found.deviations["answers"] ** 2 * np.array([count * (count - 1), count])
    worth = found.deviations["curves"] ** 2 * _BINS / (found.deviations["curves"] ** 2 * _BINS + unsure)
    moved: Floats = histograms + (worth * (totals - histograms.sum(2)) / _BINS)[:, :, None]
    return moved


def _within(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _area(others: Floats, own: Floats) -> float:
    """Return the probability that a record of the class ranks above one of another, given both histograms."""
    below = np.cumsum(others) - others / 2
    return _within(float(own @ below) / float(own.sum() * others.sum()))


def _area_margin(deviation: float, others: float, own: float) -> float:
    """Return the margin of that probability in 95 % of cases; the mean squared weight of a bin is one third."""
    if min(others, own) <= 1:
        return math.inf
    return _SURE * deviation * math.sqrt(_BINS / 3) * math.hypot(1 / others, 1 / own)


def _curve(others: Floats, own: Floats) -> tuple[tuple[float, float], ...]:
    """Return the points of a monotone ROC curve."""
    alarms, hits = (_rising(np.cumsum(one[::-1])) for one in (others, own))
    return tuple((round(float(x), 4), round(float(y), 4)) for x, y in zip(alarms, hits, strict=True))


def _rising(sums: Floats) -> Floats:
    whole = max(float(sums[-1]), 1.0)
    shares = np.maximum.accumulate(np.clip(sums / whole, 0.0, 1.0))
    return np.concatenate([[0.0], shares[:-1], [1.0]])
