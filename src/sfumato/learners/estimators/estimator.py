"""The base of all private estimators: scikit-learn's interface, and a cost that is known and charged in advance.

An estimator declares the noisy sums it needs (`NoisySums`), and this base does the rest: it takes the public
description of the columns from the schema or estimates it with a part of the budget, calibrates the noise such that
everything together costs at most epsilon, charges the ledger, and only then reads the data. Neighbours differ by adding
or removing one record; if the table has a person column, by one person with all of their records.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from sfumato.budget.accounting.accountant import Spent, calibrate, check_delta, spent
from sfumato.budget.events import Composed, Event, Gaussian
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.people import BOUGHT, check_bound, draw_rows, for_people
from sfumato.budget.query.discovery import CountRows, FindBounds, FindRowsPerPerson, SelectCategories
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.validate import real
from sfumato.errors import ColumnError, InputError, OptionError, SfumatoError, did_you_mean
from sfumato.learners.estimators.features import (
    Columns,
    Feature,
    Features,
    Undeclared,
    as_numbers,
    as_read,
    classes_of,
    column_of,
    describe,
    scale_bounds,
    texts_in,
)
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums, Share

__all__ = ["Classifier", "PrivateEstimator", "Purchase", "Regressor"]

Ints = NDArray[np.int64]
Purchase = FindBounds | SelectCategories | CountRows
Target = Any  # class codes, numbers, or None

_FOR_COLUMNS = 0.1  # the share of epsilon, and of delta, for undeclared bounds and domains
_MORE_NOISE = 1 + 1e-9  # so that rounding does not increase epsilon, whatever is bought


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The base of the estimators; a subclass adds `_shares`, `_learn`, and the names of its ``_state``.

    Parameters
    ----------
    epsilon : float
        The total cost of fitting; infinity fits without privacy.
    delta : float
        Must be below one over the number of records (of people, if they are protected); a larger delta raises an error,
        which reveals no more than that.
    schema : Schema or path, optional
        The public description of the columns: domains of categories and bounds of numbers. Whatever is not declared is
        estimated with a tenth of the budget. By default the schema of the table that is fitted, if it is a `Table`.
        Names and types of columns count as public. In a text file the type depends on the cells, so there a column
        must have a declared kind; the kind of the target follows from the estimator. A column of objects holds
        categories, unless declared otherwise; lists have no types, so pass arrays or frames.
    bounds : tuple of two numbers or arrays, optional
        The bounds of numbers that the schema does not declare; for arrays.
    ledger : Ledger, optional
        Charged by every `fit` before it reads the data, also by each fold of a cross-validation.
    insecure_seed : int, optional
        Makes the noise reproducible: the result is then not private.
    rows_per_person : int or "bought", optional
        How many rows of a person count, if the table or the schema has a person column (role ``person``): epsilon then
        protects people with all of their rows. Of people with more, so many are drawn at random and in secret. It must
        not be chosen by looking at the data; ``"bought"`` finds a number with a tenth of epsilon. A row without a
        person counts as a person of its own.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    schema: Schema | str | Path | None = None
    bounds: Any = None
    ledger: Ledger | None = None
    insecure_seed: int | None = None
    rows_per_person: int | Literal["bought"] | None = None

    _state: ClassVar[tuple[str, ...]] = ()
    """The names of the fitted arrays, which are stored with the model."""

    # --- for subclasses to implement ---

    @abstractmethod
    def _shares(self, columns: int) -> Mapping[str, Share]:
        """Return the kinds of sums that learning needs, given the number of columns."""

    @abstractmethod
    def _learn(self, columns: Columns, target: Target, sums: NoisySums) -> None:
        """Learn from the records, given the public `features_`, reading them only through noisy sums."""

    # --- scikit-learn's interface ---

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Fit to records, one per row; see the class for the privacy cost.

        Parameters
        ----------
        X : Table, frame or array
        y : sequence or str, optional
            The target, or the name of its column in X.
        """
        given, charged = self._given(X, y), list[Event]()
        with self._reporting_cost(charged):
            self._buy_rows(*given, charged)
            columns, target = self._bounded(*given)
            public = self._described(columns, target)
            how = self._purchases(public)
            sums = self._sums(columns, how)
            self._refuse_beyond((*self._bought(columns, how), *sums.events))
            wanted = self._know(columns, target, self._estimate_features(public, how, columns, target, charged))
            self._charge(sums.events, charged)
            self._learn(columns, wanted, sums)
        self.noise_multiplier_ = sums.multiplier
        self.sampling_ = {"kind": "full", "rate": 1.0, "steps": sum(one.times for one in sums.shares.values())}
        return self._end(tuple(charged))

    def events_of(self, X: Any, y: Any = None) -> tuple[Event, ...]:  # noqa: N803
        """Return the events that `fit` would charge for; only names and types of columns are read.

        Before the rows of a person are bought, the sums are those of people with one row. For more rows, the noise is
        as many times as large, and costs the same.
        """
        columns, target = self._given(X, y)
        return self._planned(columns, target)

    @property
    def rows_that_count(self) -> int | None:
        """How many rows of a person count: as declared, or as `fit` bought; None if all do."""
        if self.rows_per_person == BOUGHT:
            return getattr(self, "bought_rows_per_person_", None)
        return self.rows_per_person

    @property
    def is_private(self) -> bool:
        """Whether epsilon is finite."""
        if self.epsilon == math.inf:
            return False
        real("epsilon", self.epsilon, above=0)
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return how the estimator was fitted and the privacy cost, as plain values."""
        return {
            **self.spent_.bound(),
            "noise_multiplier": self.noise_multiplier_,
            **({"bought_rows_per_person": self.rows_that_count} if self._search is not None else {}),
            "clip": None,
            "sampling": self.sampling_,
            "private": self.is_private and self.insecure_seed is None,
            "events": [event.to_dict() for event in self.events_],
        }

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted state as arrays and plain values, for storing the model."""
        facts: dict[str, Any] = {"features": self.features_.to_dict()} if self.features_ else {}
        if hasattr(self, "classes_"):
            facts["classes"] = self.classes_.tolist()
        if hasattr(self, "target_"):
            facts["target"] = self.target_.to_dict()
        return {name: np.asarray(getattr(self, name)) for name in self._state}, facts

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Restore the fitted state returned by `state`."""
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
        """Raise an error if restored arrays have invalid indices; wrong shapes show when the model is tried."""

    def _columns(self, X: Any) -> Columns:  # noqa: N803
        """Return the columns of new records in the order of the fitted ones."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "features_")
        return self.features_.align(X, type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = self.epsilon != math.inf
        return tags

    # --- the target: none, unless a subclass has one ---

    def _given(self, X: Any, y: Any) -> tuple[Columns, pl.Series | None]:  # noqa: N803
        """Return the columns and the target of training records."""
        columns, given = self._split(X, y)
        target = self._target(given)
        if target is not None and len(target) != columns.rows:
            raise InputError(f"X and y must have the same number of records, got {columns.rows:,} and {len(target):,}")
        self._check_people(columns)
        if self.is_private:
            check_delta(self.delta, self._public_rows(columns), columns.unit)
        return columns, target

    def _check_people(self, columns: Columns) -> None:
        """Raise an error if people cannot be protected as the schema and the bound on their rows ask."""
        declared = self._declared
        if declared is not None and declared.person is not None and columns.people is None:
            raise ColumnError(f"the schema asks to protect people, but there is no column '{declared.person}'")
        if self.is_private or self.rows_per_person is not None:
            check_bound(columns.person, self.rows_per_person)

    def _buy_rows(self, columns: Columns, target: pl.Series | None, charged: list[Event]) -> None:
        """Find how many rows of a person count, if that is to be bought."""
        self.__dict__.pop("bought_rows_per_person_", None)  # from an earlier fit
        search = self._search
        if search is None or columns.people is None:
            return
        self._refuse_beyond(self._planned(columns, target))
        self._charge((search.event,), charged)
        self.bought_rows_per_person_ = search.answer(columns.people.to_numpy(), self._source(2**131))

    def _bounded(self, columns: Columns, target: pl.Series | None) -> tuple[Columns, pl.Series | None]:
        """Return at most as many rows of each person as count, drawn in secret."""
        if columns.people is None or self.rows_that_count is None:
            return columns, target
        kept = draw_rows(columns.people.to_numpy(), self.rows_that_count, self._source(2**130))
        return columns.take(kept), None if target is None else target.gather(kept)

    def _source(self, other: int) -> Source:
        """Return a source of random numbers of its own: with a seed, two uses must not get the same noise."""
        return Source(insecure_seed=None if self.insecure_seed is None else self.insecure_seed ^ other)

    def _public_rows(self, columns: Columns) -> int | None:
        """Return the number of records, or of people, to compare delta with."""
        return columns.unit_count

    def _split(self, X: Any, y: Any) -> tuple[Columns, Any]:  # noqa: N803
        columns, target = _split(self._with_people(Columns.of(X)), y)
        if isinstance(y, str) and columns.schema is not None and self.is_private:
            column = columns.schema[y]
            if column.inferred or column.kind is Kind.AUTO:  # one cell must not determine the type
                target = self._as_target(target)
        return columns, target

    def _with_people(self, columns: Columns) -> Columns:
        """Return the columns without the person column that the schema of this estimator names."""
        declared = self._declared
        person = None if declared is None else declared.person
        if person is None or person == columns.person:
            return columns
        if columns.person is not None:
            raise OptionError(f"the person column of the table is '{columns.person}', and of the schema '{person}'")
        return columns.of_people(person) if person in columns.names else columns

    def _as_target(self, values: pl.Series) -> pl.Series:
        """Return a target whose type is not declared in the type that this estimator predicts."""
        return values

    def _target(self, y: Any) -> pl.Series | None:
        return None

    def _described_target(self, target: pl.Series, declared: Column) -> Feature | Undeclared:
        raise NotImplementedError

    def _targets(self, target: pl.Series | None, found: Sequence[Feature]) -> Target:
        return None

    # --- privacy cost ---

    @property
    def _declared(self) -> Schema | None:
        """The schema of this estimator."""
        declared = Schema.load(self.schema) if isinstance(self.schema, str | Path) else self.schema
        if declared is not None and not isinstance(declared, Schema):
            raise OptionError(f"the schema must be a Schema or the path of one, got {type(declared).__name__}")
        return declared

    def _described(self, columns: Columns, target: pl.Series | None) -> list[Feature | Undeclared]:
        public = self._declared or columns.schema
        features = describe(columns, public, self.bounds, private=self.is_private)
        if target is None:
            return features
        known = public is not None and target.name in public.names
        declared = public[target.name] if public and known else Column(name=target.name)
        return [*features, self._described_target(target, declared)]

    def _purchases(self, public: Sequence[Feature | Undeclared]) -> dict[int, Purchase]:
        """Return the mechanisms that estimate undeclared bounds and domains, by position of the column."""
        wanted = {at: one for at, one in enumerate(public) if isinstance(one, Undeclared)} if self.is_private else {}
        categories = sum(not one.is_number for one in wanted.values())
        return {
            at: one.mechanism(_FOR_COLUMNS * self.epsilon / len(wanted), _FOR_COLUMNS * self.delta / max(categories, 1))
            for at, one in wanted.items()
        }

    def _bought(self, columns: Columns, how: Mapping[int, Purchase]) -> tuple[Event, ...]:
        """Return the events of the purchases, which see one row of each person if people are protected."""
        return tuple(one.event if columns.people is None else for_people(one.event, 1) for one in how.values())

    @property
    def _search(self) -> FindRowsPerPerson | None:
        """The mechanism that buys how many rows of a person count, if that is to be bought.

        Without privacy there is nothing to buy: all rows count.
        """
        if self.rows_per_person != BOUGHT or not self.is_private:
            return None
        return FindRowsPerPerson(epsilon=FindRowsPerPerson.SHARE * self.epsilon)

    def _planned(self, columns: Columns, target: pl.Series | None) -> tuple[Event, ...]:
        """Return all events of a fit, as known before anything is bought."""
        how = self._purchases(self._described(columns, target))
        search = () if self._search is None else (self._search.event,)
        return (*search, *self._bought(columns, how), *self._sums(columns, how).events)

    def _sums(self, columns: Columns, how: Mapping[int, Purchase]) -> NoisySums:
        source, shares = self._source(0), self._shares(len(columns.values))
        if not self.is_private:
            return NoisySums(shares, 0.0, source)
        check_delta(self.delta)
        before, search, bound = self._bought(columns, how), self._search, self.rows_that_count
        if search is not None:
            before, bound = (search.event, *before), bound or search.CANDIDATES[0]
        multiplier = _multiplier(before, float(self.epsilon), float(self.delta), columns.unit)
        multiplier *= 1 if search is None else _MORE_NOISE
        return NoisySums(shares, multiplier, source, rows_per_person=None if columns.people is None else bound)

    def _refuse_beyond(self, events: tuple[Event, ...]) -> None:
        """Raise an error before the first charge if the fit would exceed the ledger."""
        if self.ledger is None:
            return
        if not isinstance(self.ledger, Ledger):
            raise OptionError(f"the ledger must be a Ledger, got {type(self.ledger).__name__}")
        if not self.is_private:
            raise OptionError("a fit without privacy cannot be charged to a ledger", hint="it has no epsilon")
        if events:
            self.ledger.check(_composed(events))

    def _charge(self, events: tuple[Event, ...], charged: list[Event]) -> None:
        """Charge the events that run next, and add them to `charged`."""
        if self.ledger is not None and events:
            note = f"fit of {type(self).__name__}"
            self.ledger.charge(_composed(events), note=note, private=self.insecure_seed is None)
        charged += events

    @contextmanager
    def _reporting_cost(self, charged: Sequence[Event]) -> Iterator[None]:
        """Add the epsilon spent so far to an error."""
        try:
            yield
        except SfumatoError as error:
            if not charged:
                raise
            cost, where = spent(charged, self.delta).epsilon, "spent" if self.ledger is None else "charged"
            raise type(error)(f"{error.message}; epsilon {cost:.3g} was {where}", hint=error.hint) from error

    def _estimate_features(
        self,
        public: Sequence[Feature | Undeclared],
        how: Mapping[int, Purchase],
        columns: Columns,
        target: pl.Series | None,
        charged: list[Event],
    ) -> list[Feature]:
        """Return the public features of the columns and the target, estimating those that are not declared."""
        values, features = [*columns.values, *([] if target is None else [target])], list[Feature]()
        source, events = self._source(2**128), dict(zip(how, self._bought(columns, how), strict=True))
        each = None
        if how and columns.people is not None:
            each = draw_rows(columns.people.to_numpy(), 1, source)
        for at, one in enumerate(public):
            if isinstance(one, Undeclared) and at in how:
                self._charge((events[at],), charged)
                features.append(one.estimate(values[at] if each is None else values[at].gather(each), how[at], source))
            else:
                features.append(one.read(values[at]) if isinstance(one, Undeclared) else one)
        return features

    def _know(self, columns: Columns, target: pl.Series | None, features: Sequence[Feature]) -> Target:
        """Store the public features of the columns, and return the target in the form that `_learn` takes."""
        self.features_ = Features(tuple(features[: len(columns.values)]), columns.named)
        self.n_features_in_ = len(columns.values)
        self.__dict__.pop("feature_names_in_", None)  # from an earlier fit
        if columns.named:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        return self._targets(target, features[len(columns.values) :])

    def _end(self, events: tuple[Event, ...]) -> Self:
        without_privacy = Spent(math.inf, self.delta, spent((), self.delta).relation, "pld", ())
        self.events_, self.spent_ = events, spent(events, self.delta) if self.is_private else without_privacy
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """The base of classifiers.

    Parameters
    ----------
    classes : sequence, optional
        The classes, which are public. By default the domain of the target in the schema; without one, they are
        estimated like the domain of a column. Records of other classes are left out.
    """

    classes: Sequence[Any] | None = None

    def _as_target(self, values: pl.Series) -> pl.Series:
        return as_read(values)

    def _target(self, y: Any) -> pl.Series:
        return _series(y, self)

    def _described_target(self, target: pl.Series, declared: Column) -> Feature | Undeclared:
        classes = classes_of(declared) if self.classes is None else self.classes
        if classes is None and target.dtype == pl.Boolean:
            classes = (False, True)
        if classes is not None:
            if not isinstance(classes, Iterable):
                raise OptionError(f"the classes must be a list of them, got {classes!r}")
            return Feature(target.name, domain=self._at_least_two(texts_in(classes)))
        # With privacy, a record must not determine whether the values are classes.
        if target.dtype.is_float() and (self.is_private or _is_continuous(target)):
            raise InputError(
                f"Unknown label type: the target '{target.name}' is a number, but a classifier needs classes",
                hint="predict the number with a regression (--regression), or declare the classes",
            )
        return Undeclared(target.name, is_number=False)

    def _at_least_two(self, texts: tuple[str, ...], *, estimated: bool = False) -> tuple[str, ...]:
        if len(texts) < 2 and estimated:
            stood = "no class" if not texts else "only one class"
            raise InputError(
                f"a classifier needs at least two classes, but {stood} of the target stood out from the noise",
                hint="declare the classes (--classes a,b, or the domain of the target), or give a larger epsilon; the "
                "cost of looking for them is spent",
            )
        if len(texts) < 2:
            raise InputError(
                f"a classifier needs at least two classes, but the target has {len(texts)} class",
                hint="declare the classes, if the noise has hidden some" if self.is_private else "",
            )
        return texts

    def _targets(self, target: pl.Series | None, found: Sequence[Feature]) -> Ints:
        assert target is not None
        (feature,) = found
        texts = self._at_least_two(feature.domain or (), estimated=self.is_private)
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
        """Return the accuracy."""
        columns, target = self._split(X, y)
        return float(super().score(columns, target, sample_weight))


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """The base of regressors.

    Parameters
    ----------
    target_bounds : tuple of two numbers, optional
        The public bounds of the target. By default those of the schema; without them, they are estimated like those of
        a column.
    """

    target_bounds: tuple[float, float] | None = None

    def _as_target(self, values: pl.Series) -> pl.Series:
        return as_numbers(values)

    def _target(self, y: Any) -> pl.Series:
        target = _series(y, self)
        if not target.dtype.is_numeric():
            raise InputError("the target of a regression must be numbers", hint="use a classifier")
        return target

    def _described_target(self, target: pl.Series, declared: Column) -> Feature | Undeclared:
        bounds = declared.bounds if self.target_bounds is None else self.target_bounds
        if bounds is None:
            return Undeclared(target.name, is_number=True)
        return Feature(target.name, bounds=scale_bounds(bounds))

    def _targets(self, target: pl.Series | None, found: Sequence[Feature]) -> Floats:
        assert target is not None
        self.target_ = found[0]
        numbers = self.target_.numbers(target)
        if not self.is_private and np.isnan(numbers).all():
            raise InputError("Input y contains only NaN: there is nothing to learn")
        return numbers

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the coefficient of determination, R squared."""
        columns, target = self._split(X, y)
        return float(super().score(columns, target, sample_weight))


def _composed(events: tuple[Event, ...]) -> Event:
    return events[0] if len(events) == 1 else Composed(events)


@lru_cache(maxsize=256)
def _multiplier(purchases: tuple[Event, ...], epsilon: float, delta: float, unit: str) -> float:
    """Return the smallest noise multiplier of a single sum that costs at most epsilon together with the purchases."""

    def cost(scale: float) -> Event:
        return _composed((*purchases, Gaussian(scale, unit=unit)))

    return calibrate(cost, epsilon, delta)


def _split(columns: Columns, y: Any) -> tuple[Columns, Any]:
    """Return the columns of a table and its target, which may be given by its column name."""
    if not isinstance(y, str):
        return columns, y
    if y == columns.person:
        raise ColumnError(f"'{y}' says which rows are of the same person, so it cannot be predicted")
    if y not in columns.names:
        raise ColumnError(f"there is no column '{y}' to predict", hint=did_you_mean(y, columns.names))
    target = columns.values[columns.names.index(y)]
    others = tuple(one for one in columns.values if one.name != y)
    if not others:
        raise InputError(f"0 feature(s): the table has no column beside the target '{y}'")
    return replace(columns, values=others), target


def _series(y: Any, model: Any) -> pl.Series:
    """Return a target as one column, keeping its name."""
    if y is None:
        raise InputError(f"requires y to be passed, but the target y is None ({type(model).__name__})")
    if isinstance(y, pl.Series):
        return column_of(y.name or "target", y)
    from sklearn.utils import column_or_1d

    # Missing values must not change the type of the others: pandas would turn integers into floats.
    plain = isinstance(getattr(y, "dtype", np.dtype(object)), np.dtype)
    values = column_or_1d(y if plain else np.asarray(y, dtype=object), warn=True)
    # With privacy, infinity is clipped to the bounds or is an unknown class: one record must not stop a fit.
    if not model.is_private and values.dtype.kind == "f" and np.isinf(values).any():
        raise InputError("Input y contains infinity")
    return column_of(str(getattr(y, "name", None) or "target"), values.tolist())


def _is_continuous(target: pl.Series) -> bool:
    from sklearn.utils.multiclass import type_of_target

    return bool(type_of_target(target.drop_nulls().drop_nans().to_numpy()) == "continuous")


def _typed(texts: Sequence[str], dtype: pl.DataType) -> Any:
    """Return classes in the type of the target, or as texts if that is not possible.

    Where the type of the target is not declared (`as_read`), the classes determine it, because they are public.
    """
    is_read = isinstance(dtype, pl.Categorical)
    for type_, fits in ((int, dtype.is_integer()), (float, dtype.is_float())):
        if is_read or fits:
            with suppress(ValueError):  # a declared class may not be a number
                values = [type_(text) for text in texts]
                if fits or list(map(text_of, values)) == list(texts):  # else two classes could become one number
                    return np.array(values)
    if dtype == pl.Boolean and set(texts) <= {"False", "True"}:
        return np.array([text == "True" for text in texts])
    return np.array(list(texts), dtype=object if any(len(text) > 100 for text in texts) else None)
