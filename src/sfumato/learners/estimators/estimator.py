"""What every private estimator is: scikit-learn's interface, a price known beforehand, and a charge made first.

An estimator declares which noisy sums it will ask for (`NoisySums`), and this base does all else: what is public of the
columns comes from the schema or is bought, the noise is calibrated so that everything together costs at most
epsilon, the ledger is charged, and only then the data is looked at. Neighbours differ by adding or removing one
record.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from sfumato.budget.accounting.accountant import Spent, calibrate, check_delta, spent
from sfumato.budget.events import Composed, Event, Gaussian
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.query.discovery import CountRows, FindBounds, SelectCategories
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.validate import real
from sfumato.errors import ColumnError, InputError, OptionError, SfumatoError, did_you_mean
from sfumato.learners.estimators.features import (
    Columns,
    Feature,
    Features,
    Unknown,
    as_numbers,
    as_read,
    classes_of,
    column_of,
    described,
    scale_bounds,
    texts_in,
)
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share

__all__ = ["Classifier", "PrivateEstimator", "Purchase", "Regressor"]

Ints = NDArray[np.int64]
Purchase = FindBounds | SelectCategories | CountRows
Target = Any  # numbers of classes, numbers, or None

_FOR_COLUMNS = 0.1  # the share of epsilon, and of delta, for what has to be bought


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The base of the estimators. What a subclass adds: `_shares`, `_learn`, and the names of its ``_state``.

    Parameters
    ----------
    epsilon : float
        What fitting may cost, all in all; infinity fits without privacy.
    delta : float
        Below one over the number of records; that a larger one is refused is all that is told of that number.
    schema : Schema or path, optional
        What is public of the columns: domains of categories and bounds of numbers. What is not declared is bought
        with a tenth of the budget. By default the schema of the table that is fitted, if it is a `Table`. Names and
        types of columns are taken as public. In a text file the cells decide on a type, so a column whose kind is not
        declared is refused there; the target is what the estimator predicts, a class or a number. A column of objects
        holds categories, unless declared; lists have no types, so give arrays or frames.
    bounds : tuple of two numbers or arrays, optional
        Of the numbers that the schema says nothing about; for arrays.
    ledger : Ledger, optional
        Charged before the data is looked at, by every `fit`: by each fold of a cross-validation, too.
    insecure_seed : int, optional
        Makes the noise reproducible: the result is then not private.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    schema: Schema | str | Path | None = None
    bounds: Any = None
    ledger: Ledger | None = None
    insecure_seed: int | None = None

    _state: ClassVar[tuple[str, ...]] = ()
    """The names of the fitted arrays, which are all that is kept on disk."""

    # --- what a subclass says of itself ---

    @abstractmethod
    def _shares(self, columns: int) -> Mapping[str, Share]:
        """Return the sums that learning asks for, given the number of columns."""

    @abstractmethod
    def _learn(self, columns: Columns, target: Target, sums: NoisySums) -> None:
        """Learn from records of which `features_` is public, seeing them through noisy sums only."""

    # --- scikit-learn's interface ---

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Learn from records, each a row; see the class for what it costs.

        Parameters
        ----------
        X : Table, frame or array
        y : sequence or str, optional
            The target, or the name of its column in X.
        """
        columns, target = self._given(X, y)
        public = self._described(columns, target)
        how = self._purchases(public)
        sums = self._sums(columns, how)
        self._refuse_beyond((*(one.event for one in how.values()), *sums.events))
        charged: list[Event] = []
        with self._saying(charged):
            wanted = self._know(columns, target, self._bought(public, how, columns, target, charged))
            self._charge(sums.events, charged)
            self._learn(columns, wanted, sums)
        self.noise_multiplier_ = sums.multiplier
        self.sampling_ = {"kind": "full", "rate": 1.0, "steps": sum(one.times for one in sums.shares.values())}
        return self._end(tuple(charged))

    def events_of(self, X: Any, y: Any = None) -> tuple[Event, ...]:  # noqa: N803
        """Return what `fit` would charge for these records; only their columns' names and types are looked at."""
        columns, target = self._given(X, y)
        how = self._purchases(self._described(columns, target))
        return (*(one.event for one in how.values()), *self._sums(columns, how).events)

    @property
    def is_private(self) -> bool:
        """Whether epsilon is finite."""
        if self.epsilon == math.inf:
            return False
        real("epsilon", self.epsilon, above=0)
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return how it was fitted and what that cost, as plain values."""
        return {
            **self.spent_.bound(),
            "noise_multiplier": self.noise_multiplier_,
            "clip": None,
            "sampling": self.sampling_,
            "private": self.is_private and self.insecure_seed is None,
            "events": [event.to_dict() for event in self.events_],
        }

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return what was fitted, as arrays and plain values: all that a model on disk holds."""
        facts: dict[str, Any] = {"features": self.features_.to_dict()} if self.features_ else {}
        if hasattr(self, "classes_"):
            facts["classes"] = self.classes_.tolist()
        if hasattr(self, "target_"):
            facts["target"] = self.target_.to_dict()
        return {name: np.asarray(getattr(self, name)) for name in self._state}, facts

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Become what `state` was taken of."""
        if "features" in facts:
            self.features_ = Features.from_dict(facts["features"])
            self.n_features_in_ = len(self.features_.features)
            if self.features_.named:
                self.feature_names_in_ = np.array(self.features_.names, dtype=object)
        if "classes" in facts:
            self.classes_ = np.array(facts["classes"])
        if "target" in facts:
            self.target_ = Feature.from_dict(facts["target"])
        for name in self._state:
            setattr(self, name, arrays[name] if arrays[name].ndim else arrays[name].item())
        self._refuse_misfits()

    def _refuse_misfits(self) -> None:
        """Refuse restored arrays that point to what is not there; shapes that do not fit show when it is tried."""

    def _columns(self, X: Any) -> Columns:  # noqa: N803
        """Return other records, as a fitted model takes them."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "features_")
        return self.features_.taken(X, type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = self.epsilon != math.inf
        return tags

    # --- the target: none, unless a subclass has one ---

    def _given(self, X: Any, y: Any) -> tuple[Columns, pl.Series | None]:  # noqa: N803
        """Return the columns and the target of records to learn from."""
        columns, given = self._split(X, y)
        target = self._target(given)
        if target is not None and len(target) != columns.rows:
            raise InputError(f"X and y must have as many records, got {columns.rows:,} and {len(target):,}")
        if self.is_private:
            check_delta(self.delta, self._public_rows(columns))
        return columns, target

    def _public_rows(self, columns: Columns) -> int | None:
        """Return the number of records that delta is compared with."""
        return columns.rows

    def _split(self, X: Any, y: Any) -> tuple[Columns, Any]:  # noqa: N803
        columns, target = _split(X, y)
        if isinstance(y, str) and columns.schema is not None and self.is_private:
            column = columns.schema[y]
            if column.inferred or column.kind is Kind.AUTO:  # one cell must not decide on its type
                target = self._as_target(target)
        return columns, target

    def _as_target(self, values: pl.Series) -> pl.Series:
        """Return a target whose type only its cells tell as what it is for this estimator."""
        return values

    def _target(self, y: Any) -> pl.Series | None:
        return None

    def _described_target(self, target: pl.Series, declared: Column) -> Feature | Unknown:
        raise NotImplementedError

    def _targets(self, target: pl.Series | None, found: Sequence[Feature]) -> Target:
        return None

    # --- what it costs ---

    def _described(self, columns: Columns, target: pl.Series | None) -> list[Feature | Unknown]:
        public = Schema.load(self.schema) if isinstance(self.schema, str | Path) else self.schema or columns.schema
        if public is not None and not isinstance(public, Schema):
            raise OptionError(f"the schema must be a Schema or the path of one, got {type(public).__name__}")
        found = described(columns, public, self.bounds, private=self.is_private)
        if target is None:
            return found
        known = public is not None and target.name in public.names
        return [
            *found,
            self._described_target(target, public[target.name] if public and known else Column(name=target.name)),
        ]

    def _purchases(self, public: Sequence[Feature | Unknown]) -> dict[int, Purchase]:
        """Return what has to be bought, by its position."""
        wanted = {at: one for at, one in enumerate(public) if isinstance(one, Unknown)} if self.is_private else {}
        categories = sum(not one.is_number for one in wanted.values())
        return {
            at: one.mechanism(_FOR_COLUMNS * self.epsilon / len(wanted), _FOR_COLUMNS * self.delta / max(categories, 1))
            for at, one in wanted.items()
        }

    def _sums(self, columns: Columns, how: Mapping[int, Purchase]) -> NoisySums:
        source, shares = Source(insecure_seed=self.insecure_seed), self._shares(len(columns.values))
        if not self.is_private:
            return NoisySums(shares, 0.0, source)
        check_delta(self.delta)
        bought = tuple(one.event for one in how.values())
        return NoisySums(shares, _multiplier(bought, float(self.epsilon), float(self.delta)), source)

    def _refuse_beyond(self, events: tuple[Event, ...]) -> None:
        """Refuse a fit that its ledger has no room for, before the first charge."""
        if self.ledger is None:
            return
        if not isinstance(self.ledger, Ledger):
            raise OptionError(f"the ledger must be a Ledger, got {type(self.ledger).__name__}")
        if not self.is_private:
            raise OptionError("a fit without privacy cannot be charged to a ledger", hint="it has no epsilon")
        if events:
            self.ledger.check(_composed(events))

    def _charge(self, events: tuple[Event, ...], charged: list[Event]) -> None:
        """Charge events that are run next, and add them to those that were charged."""
        if self.ledger is not None and events:
            note = f"fit of {type(self).__name__}"
            self.ledger.charge(_composed(events), note=note, private=self.insecure_seed is None)
        charged += events

    @contextmanager
    def _saying(self, charged: Sequence[Event]) -> Iterator[None]:
        """Say in an error what was spent before it."""
        try:
            yield
        except SfumatoError as error:
            if not charged:
                raise
            cost, where = spent(charged, self.delta).epsilon, "spent" if self.ledger is None else "charged"
            raise type(error)(f"{error.message}; epsilon {cost:.3g} was {where}", hint=error.hint) from error

    def _bought(
        self,
        public: Sequence[Feature | Unknown],
        how: Mapping[int, Purchase],
        columns: Columns,
        target: pl.Series | None,
        charged: list[Event],
    ) -> list[Feature]:
        """Return what is public of the columns and of the target, once what is not declared is bought."""
        values, found = [*columns.values, *([] if target is None else [target])], list[Feature]()
        source = self._source_of_purchases()
        for at, one in enumerate(public):
            if isinstance(one, Unknown) and at in how:
                self._charge((how[at].event,), charged)
                found.append(one.bought(values[at], how[at], source))
            else:
                found.append(one.read(values[at]) if isinstance(one, Unknown) else one)
        return found

    def _source_of_purchases(self) -> Source:
        # Not the source of the sums: with a seed, the same noise must not be on both.
        return Source(insecure_seed=None if self.insecure_seed is None else self.insecure_seed ^ 2**128)

    def _know(self, columns: Columns, target: pl.Series | None, found: Sequence[Feature]) -> Target:
        """Take what is public of the columns, and return the target as it is learnt."""
        self.features_ = Features(tuple(found[: len(columns.values)]), columns.named)
        self.n_features_in_ = len(columns.values)
        self.__dict__.pop("feature_names_in_", None)  # of a fit before
        if columns.named:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        return self._targets(target, found[len(columns.values) :])

    def _end(self, events: tuple[Event, ...]) -> Self:
        self.events_, self.spent_ = events, self._spent(events)
        return self

    def _spent(self, events: tuple[Event, ...]) -> Spent:
        if not self.is_private:
            return Spent(math.inf, self.delta, spent((), self.delta).relation, "pld", ())
        return spent(events, self.delta)


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator of classes: the target is turned into their numbers, and `predict` answers with them.

    Parameters
    ----------
    classes : sequence, optional
        The classes, which are public. By default the domain of the target in the schema, or they are bought like a
        column. A record of another class is left out.
    """

    classes: Sequence[Any] | None = None

    def _as_target(self, values: pl.Series) -> pl.Series:
        return as_read(values)

    def _target(self, y: Any) -> pl.Series:
        return _series(y, self)

    def _described_target(self, target: pl.Series, declared: Column) -> Feature | Unknown:
        classes = classes_of(declared) if self.classes is None else self.classes
        if classes is None and target.dtype == pl.Boolean:
            classes = (False, True)
        if classes is not None:
            if not isinstance(classes, Iterable):
                raise OptionError(f"the classes must be a list of them, got {classes!r}")
            return Feature(target.name, domain=self._at_least_two(texts_in(classes)))
        # With privacy, no record may decide on whether they are classes.
        if target.dtype.is_float() and (self.is_private or _is_continuous(target)):
            raise InputError(
                f"Unknown label type: the target '{target.name}' is a number, and a classifier needs classes",
                hint="predict the number with a regression (--regression), or declare the classes",
            )
        return Unknown(target.name, is_number=False)

    def _at_least_two(self, texts: tuple[str, ...], *, bought: bool = False) -> tuple[str, ...]:
        if len(texts) < 2 and bought:
            stood = "no class" if not texts else "only one class"
            raise InputError(
                f"a classifier needs at least two classes, and {stood} of the target stood out from the noise",
                hint="declare the classes (--classes a,b, or the domain of the target), or give a larger epsilon; what "
                "looking for them cost is spent",
            )
        if len(texts) < 2:
            raise InputError(
                f"a classifier needs at least two classes, and the target has {len(texts)} class",
                hint="declare the classes, if the noise has hidden some" if self.is_private else "",
            )
        return texts

    def _targets(self, target: pl.Series | None, found: Sequence[Feature]) -> Ints:
        assert target is not None
        (feature,) = found
        texts = self._at_least_two(feature.domain or (), bought=self.is_private)
        values = _typed(texts, target.dtype)
        order = np.argsort(values)
        self.classes_ = values[order]
        return Feature(target.name, domain=tuple(texts[at] for at in order)).codes(target)

    @abstractmethod
    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class of each record."""
        chances = self.predict_proba(X)
        return self.classes_[chances.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of records that get their class."""
        columns, target = self._split(X, y)
        return float(super().score(columns, target, sample_weight))


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator of numbers.

    Parameters
    ----------
    target_bounds : tuple of two numbers, optional
        The public bounds of the target. By default those of the schema, or they are bought like a column's.
    """

    target_bounds: tuple[float, float] | None = None

    def _as_target(self, values: pl.Series) -> pl.Series:
        return as_numbers(values)

    def _target(self, y: Any) -> pl.Series:
        target = _series(y, self)
        if not target.dtype.is_numeric():
            raise InputError("the target of a regression must hold numbers", hint="take a classifier")
        return target

    def _described_target(self, target: pl.Series, declared: Column) -> Feature | Unknown:
        bounds = declared.bounds if self.target_bounds is None else self.target_bounds
        if bounds is None:
            return Unknown(target.name, is_number=True)
        return Feature(target.name, bounds=scale_bounds(bounds))

    def _targets(self, target: pl.Series | None, found: Sequence[Feature]) -> Floats:
        assert target is not None
        self.target_ = found[0]
        numbers = self.target_.numbers(target)
        if not self.is_private and np.isnan(numbers).all():
            raise InputError("Input y contains NaN alone: there is nothing to learn")
        return numbers

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the coefficient of determination, R squared."""
        columns, target = self._split(X, y)
        return float(super().score(columns, target, sample_weight))


def _composed(events: tuple[Event, ...]) -> Event:
    return events[0] if len(events) == 1 else Composed(events)


@lru_cache(maxsize=256)
def _multiplier(bought: tuple[Event, ...], epsilon: float, delta: float) -> float:
    """Return the least noise of a single sum that, with what is bought, costs at most epsilon."""
    return calibrate(lambda scale: Composed((*bought, Gaussian(scale))) if bought else Gaussian(scale), epsilon, delta)


def _split(X: Any, y: Any) -> tuple[Columns, Any]:  # noqa: N803
    """Return the columns of a table, and its target, which may be the name of one of them."""
    columns = Columns.of(X)
    if not isinstance(y, str):
        return columns, y
    if y not in columns.names:
        raise ColumnError(f"there is no column '{y}' to predict", hint=did_you_mean(y, columns.names))
    target = columns.values[columns.names.index(y)]
    others = tuple(one for one in columns.values if one.name != y)
    if not others:
        raise InputError(f"0 feature(s): the table has no column beside the target '{y}'")
    return replace(columns, values=others), target


def _series(y: Any, model: Any) -> pl.Series:
    """Return a target as one column, named as it came."""
    if y is None:
        raise InputError(f"requires y to be passed, but the target y is None ({type(model).__name__})")
    if isinstance(y, pl.Series):
        return column_of(y.name or "target", y)
    from sklearn.utils import column_or_1d

    # What is missing must not change the type of all: pandas would make floats of whole numbers.
    plain = isinstance(getattr(y, "dtype", np.dtype(object)), np.dtype)
    values = column_or_1d(y if plain else np.asarray(y, dtype=object), warn=True)
    # With privacy, it is held within the bounds, or is no class: one record must not stop a fit.
    if not model.is_private and values.dtype.kind == "f" and np.isinf(values).any():
        raise InputError("Input y contains infinity")
    return column_of(str(getattr(y, "name", None) or "target"), values.tolist())


def _is_continuous(target: pl.Series) -> bool:
    from sklearn.utils.multiclass import type_of_target

    return bool(type_of_target(target.drop_nulls().drop_nans().to_numpy()) == "continuous")


def _typed(texts: Sequence[str], dtype: pl.DataType) -> Any:
    """Return classes as values of the target's type, or as texts if they cannot be.

    Where only the cells tell a type (`as_read`), the classes themselves decide on it: they are public.
    """
    is_read = isinstance(dtype, pl.Categorical)
    for type_, fits in ((int, dtype.is_integer()), (float, dtype.is_float())):
        if is_read or fits:
            with suppress(ValueError):  # the classes are declared, and no record has one that is no number
                values = [type_(text) for text in texts]
                if fits or list(map(text_of, values)) == list(texts):  # else two classes could be one number
                    return np.array(values)
    if dtype == pl.Boolean and set(texts) <= {"False", "True"}:
        return np.array([text == "True" for text in texts])
    return np.array(list(texts), dtype=object if any(len(text) > 100 for text in texts) else None)
