"""Hyper-parameter search that accounts for its privacy cost.

Training with ten settings and keeping the best reads the data ten times. There are three ways to account for that:

- ``"public"``: compare the settings on public data, at no cost;
- ``"composition"``: try every setting, and pay for all;
- ``"random-stopping"``: draw random settings, a random number of times, and release only the best run (Papernot and
  Steinke 2022). This costs about as much as two or three runs, however many settings there are.

A run is a complete private algorithm: a model trained on a part of the records, and the noisy number of other records
that it predicts correctly. A coin per record decides which part it belongs to. A run that fails, for instance because
the training diverges, ranks last; errors and warnings of runs that are not released are suppressed.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if

from sfumato.budget.accounting.accountant import Spent, check_delta, spent
from sfumato.budget.accounting.private_selection import RandomStopping
from sfumato.budget.events import Composed, Event, Gaussian, Parallel
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.people import BoughtRowsPerPerson, check_bound, for_people
from sfumato.data.validate import real
from sfumato.errors import InputError, ModelError, OptionError, SfumatoError
from sfumato.learners.estimators.estimator import PrivateEstimator
from sfumato.learners.estimators.features import Columns, Feature, texts_in
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

__all__ = ["PrivateSearch"]

Settings = dict[str, Any]

_WAYS = ("random-stopping", "composition", "public")
_NOT_SETTINGS = (
    "epsilon", "delta", "ledger", "schema", "bounds", "insecure_seed", "checkpoint", "rows_per_person",
)  # fmt: skip
_PRECISION = 0.02  # the relative precision of a run's epsilon


def _delegate(name: str) -> Any:
    return available_if(lambda self: hasattr(self.estimator, name))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Hyper-parameter search for a private estimator, with the cost of the search accounted for.

    Parameters
    ----------
    estimator : PrivateEstimator
        The search replaces its epsilon, delta and ledger. A checkpoint is only used with ``way="public"``. A network
        trained in batches needs ``rows``, about the number of records of a run, because its cost must not depend on
        the actual number.
    settings : mapping of str to list
        The values of each hyper-parameter; all combinations are tried or drawn. They must be chosen without the data.
    way : {"random-stopping", "composition", "public"}
        How the trials are paid for.
    epsilon, delta : float
        The total cost of the search and the model it returns.
    stopping : RandomStopping
        The distribution of the number of runs, for random stopping. The number must stay secret.
    holdout : float
        The fraction of records that a run is scored on.
    score_noise : float
        The standard deviation of the noise on the number of correct predictions of a run; more noise costs less and
        ranks runs less reliably. If people have up to b rows, it must be b times as large to cost the same.
    public : tuple, optional
        Public X and y, on which settings are compared with ``way="public"``, at no cost.
    ledger : Ledger, optional
        Charged once, before the data is read.
    seed : int, optional
        The seed for choosing the public records that settings are compared on. The other ways have no seed: knowing
        the sequence of settings would reveal the number of runs.
    insecure_seed : int, optional
        Makes the noise reproducible: the result is then not private.

    Attributes
    ----------
    best_estimator_, best_params_ : the model of the best run, and its setting
    best_score_ : its noisy score, the only one that is released; with ``way="public"``, its score on public data
    events_, spent_ : the events of the search, and their total cost

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.learners import PrivateNaiveBayes
    >>> adult = sf.datasets.adult("train")
    >>> search = PrivateSearch(estimator=PrivateNaiveBayes(), settings={"cells": [5, 20, 80]}, epsilon=2)
    >>> search = search.fit(adult, "income")
    >>> search.best_params_["cells"] in (5, 20, 80), search.spent_.epsilon <= 2
    (True, True)
    """

    estimator: PrivateEstimator
    settings: Mapping[str, Sequence[Any]]
    way: str = "random-stopping"
    epsilon: float = 1.0
    delta: float = 1e-5
    stopping: RandomStopping = RandomStopping(10.0, 0.0)  # noqa: RUF009 - it is frozen
    holdout: float = 0.2
    score_noise: float = 30.0
    public: tuple[Any, Any] | None = None
    ledger: Ledger | None = None
    seed: int | None = None
    insecure_seed: int | None = None

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Search, and keep the best model."""
        settings = self._settings()
        if self.way == "public":
            return self._on_public(settings, X, y)
        columns, target = self._columns_and_target(X, y)
        check_delta(self.delta, columns.unit_count, columns.unit)
        own = self._epsilon_of_a_run(settings, columns, target)
        run = self._run_event(settings, own, columns, target)
        events: tuple[Event, ...] = (self.stopping.event(run) if self._stops else run,)
        if self.ledger is not None:
            note = f"search for {type(self.estimator).__name__}"
            self.ledger.charge(events[0], note=note, private=self.insecure_seed is None)
        source = Source(insecure_seed=self.insecure_seed)
        runs = [self._run(one, own, columns, target, source) for one in self._choose(settings, source)]
        if not runs:
            raise InputError("by chance no run was made, and the budget is spent", hint="use another stopping")
        best = max(runs, key=lambda one: one.score)
        if best.model is None:
            raise ModelError(f"every run failed, and the budget is spent: {best.failed or 'an error in the estimator'}")
        self.best_estimator_, self.best_params_, self.best_score_ = best.model, best.setting, best.score
        return self._end(events, spent(events, self.delta))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the best model."""
        return self.best_estimator_.classes_

    @_delegate("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict with the best model."""
        return self._best.predict(X)

    @_delegate("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the class probabilities of the best model."""
        return self._best.predict_proba(X)

    @_delegate("score")  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Score the best model."""
        return float(self._best.score(X, y))

    def to_dict(self) -> dict[str, Any]:
        """Return the best settings and the privacy cost, as plain values."""
        return {
            **self.spent_.bound(),
            "way": self.way,
            "settings": dict(self.best_params_),
            "private": self.epsilon != math.inf and self.insecure_seed is None,
            "events": [event.to_dict() for event in self.events_],
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = self.estimator.__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags, tags.regressor_tags = (
            own.estimator_type,
            own.classifier_tags,
            own.regressor_tags,
        )
        tags.non_deterministic = True
        return tags

    # --- settings ---

    @property
    def _best(self) -> Any:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @property
    def _stops(self) -> bool:
        return self.way == "random-stopping"

    def _settings(self) -> list[Settings]:
        if self.way not in _WAYS:
            raise OptionError(f"the way must be one of {', '.join(_WAYS)}, got {self.way!r}")
        if not isinstance(self.estimator, PrivateEstimator):
            raise OptionError(f"the estimator must be a private one, got {type(self.estimator).__name__}")
        real("epsilon", self.epsilon, above=0)
        real("the noise of a score", self.score_noise, above=0)
        real("the share of records held out", self.holdout, above=0, below=1)
        if not isinstance(self.stopping, RandomStopping):
            raise OptionError(f"stopping must be a RandomStopping(), got {self.stopping!r}")
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise OptionError(f"the ledger must be a Ledger, got {type(self.ledger).__name__}")
        if self.seed is not None and self.way != "public":
            raise OptionError(
                "a search on private data has no seed, because the settings drawn must stay unknown",
                hint="insecure_seed makes everything reproducible, but not private",
            )
        if (
            not isinstance(self.settings, Mapping)
            or not self.settings
            or not all(map(_is_list, self.settings.values()))
        ):
            raise OptionError("the settings must name at least one hyper-parameter with a list of values")
        known = self.estimator.get_params(deep=False)
        for name in self.settings:
            if name not in known or name in _NOT_SETTINGS:
                raise OptionError(f"'{name}' is not a hyper-parameter of {type(self.estimator).__name__}")
        return [dict(zip(self.settings, values, strict=True)) for values in itertools.product(*self.settings.values())]

    def _choose(self, settings: list[Settings], source: Source) -> list[Settings]:
        """Return the settings to try: each once, or a random number of random ones."""
        if not self._stops:
            return settings
        count = self.stopping.draw(source)
        chosen = source.below(len(settings), count).tolist() if count else []
        return [settings[at] for at in chosen]

    def _with(self, setting: Settings, epsilon: float, **others: Any) -> PrivateEstimator:
        """Return the estimator of a run, without a ledger: the search pays for it."""
        model: PrivateEstimator = clone(self.estimator)
        if "checkpoint" in model.get_params(deep=False):
            others["checkpoint"] = None  # a checkpoint belongs to one training
        return model.set_params(**setting, epsilon=epsilon, delta=self._delta_of_a_run, ledger=None, **others)

    def _columns_and_target(self, X: Any, y: Any) -> tuple[Columns, pl.Series]:  # noqa: N803
        columns, given = self.estimator._split(X, y)
        target = self.estimator._target(given)
        if target is None:
            raise OptionError(f"{type(self.estimator).__name__} predicts nothing that a search could score")
        if len(target) != columns.rows:
            raise InputError(f"X and y must have the same number of records, got {columns.rows:,} and {len(target):,}")
        self.estimator._check_people(columns)
        return columns, target

    def _bound(self, columns: Columns) -> int | None:
        """Return how many rows of a person count; None if rows are protected."""
        bound = check_bound(columns.person, self.estimator.rows_per_person)
        if isinstance(bound, BoughtRowsPerPerson):
            raise OptionError(
                "a search does not buy the rows of a person, because each run would pay for a number of its own",
                hint="declare a number: rows_per_person=N",
            )
        return None if bound is None else bound.rows

    # --- privacy cost ---

    @property
    def _delta_of_a_run(self) -> float:
        """The delta that a run is calibrated with; the total cost is accounted for at the delta of the search."""
        return self.delta / 100

    def _run_event(self, settings: list[Settings], epsilon: float, columns: Columns, target: Any) -> Event:
        """Return an event that bounds the cost of a run under any setting, or of all runs if all are tried."""
        score: Event = Gaussian(self.score_noise)
        if columns.people is not None:
            score = for_people(score, self._bound(columns) or 1)
        runs = [
            Composed((*self._with(one, epsilon).events_of(columns, target), score))  # a complete private algorithm
            for one in settings
        ]
        if not self._stops:
            return Composed(tuple(runs))
        distinct = tuple(dict.fromkeys(runs))
        # Only one setting is drawn, so the cost is that of the worst setting, at every delta.
        return distinct[0] if len(distinct) == 1 else Parallel(distinct)

    def _epsilon_of_a_run(self, settings: list[Settings], columns: Columns, target: Any) -> float:
        """Return the largest epsilon of a run with which the whole search costs at most its epsilon."""

        def costs(epsilon: float) -> float:
            run = self._run_event(settings, epsilon, columns, target)
            return spent(self.stopping.event(run) if self._stops else run, self.delta).epsilon

        high = float(self.epsilon)
        low = high / 16
        while costs(low) > self.epsilon:
            low, high = low / 16, low
            if low < self.epsilon / 5000:
                raise OptionError(
                    f"an epsilon of {self.epsilon:g} is too small for this search: the scores alone cost as much",
                    hint="use a larger score_noise, or fewer settings",
                )
        while high > low * (1 + _PRECISION):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if costs(middle) <= self.epsilon else (low, middle)
        return low

    # --- runs ---

    def _run(self, setting: Settings, epsilon: float, columns: Columns, target: Any, source: Source) -> _Outcome:
        """Train privately with a setting on a part of the records, and score with noise on the others."""
        # A person is in one part with all of their rows.
        held_out = source.bernoulli(self.holdout, columns.unit_count)[columns.units]
        model = self._with(setting, epsilon, insecure_seed=_another(self.insecure_seed, source))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(*_part(columns, target, ~held_out))
                correct = _correctness(model, *model._bounded(*_part(columns, target, held_out)))
        except Exception as error:  # noqa: BLE001 - whether and how a run fails is as private as its score
            return _Outcome(setting, None, -math.inf, error.message if isinstance(error, SfumatoError) else "")
        if model.events_ != self._with(setting, epsilon).events_of(columns, target):
            raise RuntimeError("a run had other events than those paid for")
        bound = self._bound(columns)
        noise = NoisySums({"score": Share(1, 1.0)}, self.score_noise / (bound or 1), source, rows_per_person=bound)
        return _Outcome(setting, model, float(noise("score", np.array([correct.sum()]), norm=1.0)[0]))

    def _on_public(self, settings: list[Settings], X: Any, y: Any) -> Self:  # noqa: N803
        if self.public is None:
            raise OptionError("the public way needs public data to compare settings on", hint="public=(X, y)")
        columns, target = self._columns_and_target(*self.public)
        runs = []
        for setting in settings:
            held_out = np.random.default_rng(self.seed or 0).random(columns.unit_count)[columns.units] < self.holdout
            model = self._with(setting, self.epsilon).fit(*_part(columns, target, ~held_out))
            correct = _correctness(model, *_part(columns, target, held_out))
            runs.append(_Outcome(setting, model, float(correct.sum()) / max(len(correct), 1)))
        best = max(runs, key=lambda one: one.score)
        own: PrivateEstimator = clone(self.estimator)
        own.set_params(**best.setting, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger)
        own.set_params(insecure_seed=self.insecure_seed).fit(X, y)
        self.best_estimator_, self.best_params_, self.best_score_ = own, best.setting, best.score
        return self._end(own.events_, own.spent_)

    def _end(self, events: tuple[Event, ...], cost: Spent) -> Self:
        self.events_, self.spent_ = events, cost
        return self


@dataclass(frozen=True)
class _Outcome:
    setting: Settings
    model: PrivateEstimator | None
    score: float
    failed: str = ""


def _correctness(model: Any, columns: Columns, target: Any) -> NDArray[np.float64]:
    """Return 1 or 0 for a right or wrong class, or 1 minus the error of a number relative to its range."""
    if not columns.rows:
        return np.zeros(0)
    predicted = np.asarray(model.predict(columns))
    if hasattr(model, "classes_"):
        # Compare values one by one: in one array, a single missing target would turn all of them into floats.
        known = Feature("target", domain=texts_in(model.classes_))
        wanted = known.codes(target)
        return ((known.codes(pl.Series(predicted)) == wanted) & (wanted < len(known.domain or ()))).astype(np.float64)
    low, high = model.target_.bounds
    numbers = np.asarray(target, dtype=np.float64)
    finite = np.isfinite(predicted) & np.isfinite(numbers)
    off = np.where(finite, np.abs(predicted - np.nan_to_num(numbers)) / (high - low), 1)
    return np.floor((1 - np.clip(off, 0, 1)) * 2**16) / 2**16


def _part(columns: Columns, target: pl.Series, kept: NDArray[np.bool_]) -> tuple[Columns, pl.Series]:
    return columns.take(np.flatnonzero(kept)), target.filter(kept)


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) and len(values) > 0


def _another(seed: int | None, source: Source) -> int | None:
    """Return a different seed for a run if the search has a seed: no two runs may have the same noise."""
    return None if seed is None else int(source.below(2**62, 1)[0])
