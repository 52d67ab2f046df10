"""Choosing hyper-parameters without forgetting what it costs.

Whoever trains with ten settings and keeps the best has looked at the data ten times. There are three honest ways:

- ``"public"``: the settings are compared on public data, which costs nothing;
- ``"composition"``: every setting is tried, and all are paid for;
- ``"random-stopping"``: settings are drawn at random, a random number of times, and only the best run is released
  (Papernot and Steinke 2022). That costs about as much as two or three runs, however many settings there are.

A run is a whole private algorithm: a model trained on a part of the records, and the noisy number of the others that
it gets right. Which part a record is in, a coin of its own decides. A run that fails, for instance because the
training diverges, is the worst of all: neither an error nor a warning of a run that is not released is told.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from sfumato.data.validate import real
from sfumato.errors import InputError, ModelError, OptionError, SfumatoError
from sfumato.learners.estimators.estimator import PrivateEstimator
from sfumato.learners.estimators.features import Columns, Feature, texts_in
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

__all__ = ["PrivateSearch"]

Settings = dict[str, Any]

_WAYS = ("random-stopping", "composition", "public")
_NOT_SETTINGS = ("epsilon", "delta", "ledger", "schema", "bounds", "insecure_seed", "checkpoint")
_PRECISION = 0.02  # of the epsilon of a run, relatively


def _delegate(name: str) -> Any:
    return available_if(lambda self: hasattr(self.estimator, name))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Finds good hyper-parameters of a private estimator, and charges for the search.

    Parameters
    ----------
    estimator : PrivateEstimator
        Its epsilon, delta and ledger are those of the search: its own are not used. A checkpoint is for the public way.
        A network that is trained in batches needs ``rows``, about the number of records of a run: what it costs must
        not depend on how many there are.
    settings : mapping of str to list
        The values of each hyper-parameter; all combinations are settings. They are public: made up before.
    way : {"random-stopping", "composition", "public"}
    epsilon, delta : float
        What the search may cost, and with it the model that it finds.
    stopping : RandomStopping
        How many runs there are, of random stopping. The number is random and must stay secret.
    holdout : float
        The share of records that a run is scored on.
    score_noise : float
        The deviation of the noise on the number of records that a run gets right; more is cheaper and misleads more.
    public : tuple, optional
        Public X and y, on which settings are compared if the way is "public". Nobody's privacy is counted there.
    ledger : Ledger, optional
        Charged once, before the data is looked at.
    seed : int, optional
        Of which public records settings are compared on. For the other ways there is none: whoever knows which settings
        are drawn learns from the best how many runs there were.
    insecure_seed : int, optional
        Makes the noise reproducible: the result is then not private.

    Attributes
    ----------
    best_estimator_, best_params_ : the model of the best run, and its setting
    best_score_ : its noisy score, the only one that is released; of the public way, its score on public data
    events_, spent_ : what all of it cost

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
        columns, target = self._taken(X, y)
        check_delta(self.delta, columns.rows)
        own = self._epsilon_of_a_run(settings, columns, target)
        run = self._run_event(settings, own, columns, target)
        events: tuple[Event, ...] = (self.stopping.event(run) if self._stops else run,)
        if self.ledger is not None:
            note = f"search for {type(self.estimator).__name__}"
            self.ledger.charge(events[0], note=note, private=self.insecure_seed is None)
        source = Source(insecure_seed=self.insecure_seed)
        runs = [self._run(one, own, columns, target, source) for one in self._drawn(settings, source)]
        if not runs:
            raise InputError("no run was made, by chance: the budget is spent", hint="take another stopping")
        best = max(runs, key=lambda one: one.score)
        if best.model is None:
            raise ModelError(
                f"every run has failed, and the budget is spent: {best.failed or 'an error in the estimator'}"
            )
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
        """Return the probabilities that the best model gives."""
        return self._best.predict_proba(X)

    @_delegate("score")  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Score the best model."""
        return float(self._best.score(X, y))

    def to_dict(self) -> dict[str, Any]:
        """Return what was found and what it cost, as plain values."""
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
                "a search on private data has no seed: the settings that are drawn must stay unknown",
                hint="insecure_seed makes everything reproducible, and not private",
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
                raise OptionError(f"'{name}' is no hyper-parameter of {type(self.estimator).__name__}")
        return [dict(zip(self.settings, values, strict=True)) for values in itertools.product(*self.settings.values())]

    def _drawn(self, settings: list[Settings], source: Source) -> list[Settings]:
        """Return the settings to try: each once, or a random number of random ones."""
        if not self._stops:
            return settings
        count = self.stopping.draw(source)
        chosen = source.below(len(settings), count).tolist() if count else []
        return [settings[at] for at in chosen]

    def _with(self, setting: Settings, epsilon: float, **others: Any) -> PrivateEstimator:
        """Return the estimator of a run: the search pays for it, not the run."""
        model: PrivateEstimator = clone(self.estimator)
        if "checkpoint" in model.get_params(deep=False):
            others["checkpoint"] = None  # it is of one training
        return model.set_params(**setting, epsilon=epsilon, delta=self._delta_of_a_run, ledger=None, **others)

    def _taken(self, X: Any, y: Any) -> tuple[Columns, pl.Series]:  # noqa: N803
        """Return the columns and the target."""
        columns, given = self.estimator._split(X, y)
        target = self.estimator._target(given)
        if target is None:
            raise OptionError(f"{type(self.estimator).__name__} predicts nothing that a search could score")
        if len(target) != columns.rows:
            raise InputError(f"X and y must have as many records, got {columns.rows:,} and {len(target):,}")
        return columns, target

    # --- what it costs ---

    @property
    def _delta_of_a_run(self) -> float:
        """The delta that a run is calibrated with; what all of it costs is accounted for at the delta of the search."""
        return self.delta / 100

    def _run_event(self, settings: list[Settings], epsilon: float, columns: Columns, target: Any) -> Event:
        """Return what a run costs under whatever setting, or, if all settings are tried, all of them."""
        score = Gaussian(self.score_noise)
        runs = [
            Composed((*self._with(one, epsilon).events_of(columns, target), score))  # each is a whole private algorithm
            for one in settings
        ]
        if not self._stops:
            return Composed(tuple(runs))
        distinct = tuple(dict.fromkeys(runs))
        # As costly as the worst of them at every point: of neighbours, only one setting is drawn.
        return distinct[0] if len(distinct) == 1 else Parallel(distinct)

    def _epsilon_of_a_run(self, settings: list[Settings], columns: Columns, target: Any) -> float:
        """Return the largest epsilon of a run for which the whole search keeps its own."""

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
                    hint="take a larger score_noise, or fewer settings",
                )
        while high > low * (1 + _PRECISION):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if costs(middle) <= self.epsilon else (low, middle)
        return low

    # --- runs ---

    def _run(self, setting: Settings, epsilon: float, columns: Columns, target: Any, source: Source) -> _Tried:
        """Train with a setting on a part of the records, and score it on the others, all of it private."""
        scored = source.bernoulli(self.holdout, columns.rows)
        model = self._with(setting, epsilon, insecure_seed=_another(self.insecure_seed, source))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(_rows(columns, ~scored), target.filter(~scored))
                right = _right(model, _rows(columns, scored), target.filter(scored))
        except Exception as error:  # noqa: BLE001 - that a run has failed, however, is as private as its score
            return _Tried(setting, None, -math.inf, error.message if isinstance(error, SfumatoError) else "")
        if model.events_ != self._with(setting, epsilon).events_of(columns, target):
            raise RuntimeError("a run did something else than what was paid for")
        noise = NoisySums({"score": Share(1, 1.0)}, self.score_noise, source)
        return _Tried(setting, model, float(noise("score", np.array([right.sum()]), norm=1.0)[0]))

    def _on_public(self, settings: list[Settings], X: Any, y: Any) -> Self:  # noqa: N803
        if self.public is None:
            raise OptionError("the public way needs public data to compare settings on", hint="public=(X, y)")
        columns, target = self._taken(*self.public)
        tried = []
        for setting in settings:
            scored = np.random.default_rng(self.seed or 0).random(columns.rows) < self.holdout
            model = self._with(setting, self.epsilon).fit(_rows(columns, ~scored), target.filter(~scored))
            right = _right(model, _rows(columns, scored), target.filter(scored))
            tried.append(_Tried(setting, model, float(right.sum()) / max(len(right), 1)))
        best = max(tried, key=lambda one: one.score)
        own: PrivateEstimator = clone(self.estimator)
        own.set_params(**best.setting, epsilon=self.epsilon, delta=self.delta, ledger=self.ledger)
        own.set_params(insecure_seed=self.insecure_seed).fit(X, y)
        self.best_estimator_, self.best_params_, self.best_score_ = own, best.setting, best.score
        return self._end(own.events_, own.spent_)

    def _end(self, events: tuple[Event, ...], cost: Spent) -> Self:
        self.events_, self.spent_ = events, cost
        return self


@dataclass(frozen=True)
class _Tried:
    setting: Settings
    model: PrivateEstimator | None
    score: float
    failed: str = ""


def _right(model: Any, columns: Columns, target: Any) -> NDArray[np.float64]:
    """Return how right each answer is, from 0 to 1: a class, or by how much of its range a number is off."""
    if not columns.rows:
        return np.zeros(0)
    found = np.asarray(model.predict(columns))
    if hasattr(model, "classes_"):
        # By what each value reads as for itself: as one array, a single missing target would make all of them floats.
        known = Feature("target", domain=texts_in(model.classes_))
        wanted = known.codes(target)
        return ((known.codes(pl.Series(found)) == wanted) & (wanted < len(known.domain or ()))).astype(np.float64)
    low, high = model.target_.bounds
    numbers = np.asarray(target, dtype=np.float64)
    off = np.where(np.isfinite(found) & np.isfinite(numbers), np.abs(found - np.nan_to_num(numbers)) / (high - low), 1)
    return np.floor((1 - np.clip(off, 0, 1)) * 2**16) / 2**16


def _rows(columns: Columns, kept: NDArray[np.bool_]) -> Columns:
    values = tuple(one.filter(kept) for one in columns.values)
    return replace(columns, values=values, **({"array": columns.array[kept]} if hasattr(columns, "array") else {}))


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) and len(values) > 0


def _another(seed: int | None, source: Source) -> int | None:
    """Return the seed of a run, if there is one: no two runs may have the same noise."""
    return None if seed is None else int(source.below(2**62, 1)[0])
