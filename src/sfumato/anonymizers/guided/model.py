"""An anonymized model: trained only on anonymous rows, which are guided by its predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from sfumato.anonymizers.anonymize import anonymize
from sfumato.anonymizers.base import Parameters, Partitioner, require_quasi
from sfumato.anonymizers.guided.guidance import Task, features_of, is_missing, predictions
from sfumato.anonymizers.guided.guided import CutBy, Guided, Routes
from sfumato.anonymizers.hilbert.hilbert import Hilbert
from sfumato.anonymizers.microaggregation.microaggregate import Microaggregate
from sfumato.anonymizers.mondrian.mondrian import Mondrian, RPlus
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Output
from sfumato.data.schema import Role
from sfumato.data.table import Table
from sfumato.data.validate import real, whole
from sfumato.engines.dispatch import reduce
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean, one_of
from sfumato.measures.classes import Floats
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.loss.universe import as_floats
from sfumato.measures.models import AlphaK, KAnonymity

__all__ = ["AnonymizedModel", "Guide", "Select", "Trial", "anonymize_model"]

_AUTO = "auto"
_LOOK_AHEAD = 256  # training takes longer anyway
_REPRESENTATIVES = (Output.MEDIAN, Output.MEAN, Output.MEDOID)
_CLASSICAL: dict[str, type[Partitioner]] = {one.name: one for one in (Mondrian, Hilbert, RPlus, Microaggregate)}


class Guide(StrEnum):
    """The labels that guide the classes.

    Examples
    --------
    >>> Guide("soft")
    <Guide.SOFT: 'soft'>
    """

    SOFT = "soft"
    """The probabilities of the model, or its predicted number."""
    HARD = "hard"
    """The most likely class of the model."""
    TRUE = "true"
    """The true labels."""


class Select(StrEnum):
    """When features are selected.

    Examples
    --------
    >>> Select("before")
    <Select.BEFORE: 'before'>
    """

    BEFORE = "before"
    """On the original rows: only the selected columns are anonymized and released."""
    AFTER = "after"
    """On the anonymized rows: the selection depends only on released data."""


class Trial(NamedTuple):
    """A configuration that was tried on held-out training rows, and its score.

    Attributes
    ----------
    guide : the labels that guided; None for a classical method
    cut_by : the columns that decided which rows are published together
    transform : whether rows to predict were anonymized too
    score : the score of the model on the held-out rows: accuracy, or R2
    method : the method that formed the classes: "guided", or the name of a classical method
    """

    guide: Guide | None
    cut_by: CutBy
    transform: bool
    score: float
    method: str = Guided.name


@dataclass(eq=False, repr=False)
class AnonymizedModel(Parameters):
    """An estimator that anonymizes its training rows, guided by a model of the same kind, and learns only from these.

    It can be cloned, can end a pipeline, and predicts like the estimator that it wraps. Options that are not given are
    chosen on held-out training rows; then all rows are anonymized once. See `anonymize_model`. If neither ``guide`` nor
    ``cut_by`` is given, Mondrian, Hilbert, R+ and microaggregation are tried too, and one is chosen if it is better on
    the held-out rows by more than a standard error.

    A stored or copied model (pickle, joblib, deepcopy) does not include what depends on the original rows: its
    ``release``, and the fit of a fitted ``estimator``.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn estimator, or a pipeline that takes frames. If it is fitted, its own predictions guide;
        otherwise cross-validated ones of its clones.
    guarantees, qi, sensitive
        See `Partitioner`.
    target : str, optional
        The column to predict, if it is in the table; the target of the table's schema by default.
    guide : {"auto", "soft", "hard", "true"}
        The labels that guide; see `Guide`.
    cut_by : {"auto", "qi", "all"}
        The columns that decide which rows are published together; see `CutBy`.
    transform : {"auto", True, False}
        Whether rows to predict are anonymized first, like the training rows.
    output : {"median", "mean", "medoid"}
        How the values of a class are published; see `Output`.
    features : sequence of str or selector, optional
        The columns to learn from, or a selector with ``fit`` and ``get_support``, such as ``SelectKBest``.
    select : {"before", "after"}
        When they are selected; see `Select`.
    holdout : float
        The share of the training rows held out to compare configurations.
    folds : int
        The number of folds for cross-validated predictions.
    seed : int

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> from sklearn.base import clone
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> people = pd.DataFrame({"age": list(range(20, 80))})
    >>> model = AnonymizedModel(DecisionTreeClassifier(), "k=5", qi=["age"]).fit(people, people["age"] > 40)
    >>> model.score(people, people["age"] > 40) > 0.9, model.release.assessment.k >= 5
    (True, True)
    """

    estimator: Any
    guarantees: str | ClassGuarantee | Sequence[str | ClassGuarantee] = "k=10"
    qi: Sequence[str] = ()
    sensitive: Sequence[str] = ()
    target: str | None = None
    guide: Guide | str = _AUTO
    cut_by: CutBy | str = _AUTO
    transform: bool | str = _AUTO
    output: Output | str = Output.MEDIAN
    features: Any = None
    select: Select | str = Select.BEFORE
    holdout: float = 0.25
    folds: int = 3
    seed: int = 0

    def __repr__(self) -> str:
        return f"AnonymizedModel({type(self.estimator).__name__}, {self.guarantees!r})"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Anonymize the rows of a table, a frame or a file, and fit the estimator to the result."""
        from sklearn.base import clone

        output = self._check()
        table = Table.of(X, qi=self.qi, sensitive=self.sensitive, target=self.target)
        if table.is_lazy:
            table = Table(table.to_polars(), table.schema)
        truth = _truth(table, y)
        select = one_of(Select, self.select, "select")
        says = self._own_answers(table)
        names = features_of(table)
        if self.features is not None and select is Select.BEFORE:
            names = self._selected(table, truth)
            table = _only(table, names)
        _require_reachable(table, self.guarantees)  # before anything is trained
        if says is None and self.guide != Guide.TRUE:
            says = self._answers_of_clones(_select(table.frame, names), truth)
        self.trials_, right = self._trials(table, names, truth, says, output)
        best = _best(self.trials_, right)
        method = self._method(best.method, best.guide, best.cut_by, output, truth, says)
        self.release = anonymize(table, self.guarantees, method=method)
        again = method.set_params(guarantees=self.guarantees)
        routes: Routes | None = again.fit(table).routes_ if best.transform and isinstance(again, Guided) else None
        self.routes_ = routes
        self.names_ = names
        if self.features is not None and select is Select.AFTER:
            self.names_ = self._selected(self.release.aligned, truth)
        self.estimator_ = clone(self.estimator).fit(_select(self.release.aligned.frame, self.names_), truth)
        self.chosen_ = best
        self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_ = len(names)
        self.certificate_ = self._certified(select)
        return self

    @property
    def certificate(self) -> dict[str, Any]:
        """The guarantees of the training rows, how they were made, and what is not covered."""
        self._require_fitted()
        return self.certificate_

    def _certified(self, select: Select) -> dict[str, Any]:
        release = self.release
        assert release.assessment.verdict is not None
        further = {
            "the classes were guided by the answers of a model that had learnt the original rows": (
                self.chosen_.guide in (Guide.SOFT, Guide.HARD)
            ),
            "the way was chosen on original rows that were held out: the choice and the scores of the trials are a "
            "further release": len(self.trials_) > 1,
            "the features were selected on the original rows": (
                hasattr(self.features, "get_support") and select is Select.BEFORE
            ),
            "the thresholds of the tree and the values of each column that it cuts, which new rows are transformed by, "
            "are a further release": self.chosen_.transform,
        }
        return {
            "kind": "model",
            "estimator": type(self.estimator).__name__,
            "guarantees": [guarantee.to_dict() for guarantee in release.guarantees],
            "held": bool(release.assessment.verdict),
            "measured": release.assessment.to_dict(),
            "loss": release.loss.to_dict(),
            "method": release.method,
            "chosen": _as_plain(self.chosen_),
            "trials": [_as_plain(trial) for trial in self.trials_],
            "rows": release.table.rows,
            "not_covered": [
                "k-anonymity and its relatives are not differential privacy",
                "columns that are no quasi-identifiers, and the labels, were learnt as they are",
                *(text for text, holds in further.items() if holds),
            ],
        }

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the predictions."""
        rows = self._prepared(X)
        return np.asarray(self.estimator_.predict(rows))

    @property
    def predict_proba(self) -> Any:
        """Return the probability of each class, if the estimator does."""
        return self._asks("predict_proba")

    @property
    def decision_function(self) -> Any:
        """Return the decision function, if the estimator has one."""
        return self._asks("decision_function")

    def _asks(self, how: str) -> Callable[[Any], NDArray[Any]]:
        if not hasattr(self.estimator, how):
            raise AttributeError(f"{type(self.estimator).__name__} has no {how}")

        def ask(X: Any) -> NDArray[Any]:  # noqa: N803
            rows = self._prepared(X)
            return np.asarray(getattr(self.estimator_, how)(rows))

        return ask

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the score of the estimator: accuracy, or R2."""
        rows = self._prepared(X)
        return float(self.estimator_.score(rows, np.asarray(y)))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the estimator."""
        return np.asarray(self.estimator_.classes_)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; those of the estimator have the prefix ``estimator__``."""
        own = super().get_params()
        if deep and hasattr(self.estimator, "get_params"):
            own |= {f"estimator__{name}": value for name, value in self.estimator.get_params().items()}
        return own

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name."""
        for name in [name for name in parameters if name.startswith("estimator__")]:
            self.estimator.set_params(**{name.removeprefix("estimator__"): parameters.pop(name)})
        return super().set_params(**parameters)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: pipelines mistake the parameter ``transform`` for a method and call this."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Drop what depends on the original rows."""
        from sklearn.base import clone

        state = self.__dict__.copy()
        if self.__sklearn_is_fitted__():
            state |= {"estimator": clone(self.estimator)}
            del state["release"]
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags

        tags = get_tags(self.estimator)
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _require_fitted(self) -> None:
        if not hasattr(self, "estimator_"):
            raise InputError("this model is not fitted", hint="call fit first")

    def _check(self) -> Output:
        output = one_of(Output, self.output, "output")
        if output not in _REPRESENTATIVES:
            raise OptionError(f"a model learns from values, and output '{output}' publishes texts", hint="take median")
        real("holdout", self.holdout, above=0, below=1)
        whole("folds", self.folds, least=2)
        whole("seed", self.seed, least=0)
        if self.transform not in (_AUTO, True, False):
            raise OptionError(f"transform must be 'auto', True or False, got {self.transform!r}")
        if self.guide != _AUTO:
            one_of(Guide, self.guide, "guide")
        if self.cut_by != _AUTO:
            one_of(CutBy, self.cut_by, "cut_by")
        if not hasattr(self.estimator, "fit") or not hasattr(self.estimator, "predict"):
            raise OptionError(f"an estimator has fit and predict, got {type(self.estimator).__name__}")
        return output

    def _prepared(self, X: Any) -> Any:  # noqa: N803
        self._require_fitted()
        table = Table.of(X)
        for name in self.names_:
            if name not in table.schema.names:
                raise ColumnError(
                    f"the rows lack the column '{name}', which the model has learnt from",
                    hint=did_you_mean(name, table.schema.names),
                )
        frame = table.to_polars() if table.is_lazy else table.frame
        return _select(frame if self.routes_ is None else self.routes_.transform(frame), self.names_)

    def _own_answers(self, table: Table) -> NDArray[Any] | None:
        """Return what the estimator itself says of every row, if it is fitted and may guide."""
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        if self.guide == Guide.TRUE:
            return None
        try:
            check_is_fitted(self.estimator)
        except (NotFittedError, TypeError):
            return None
        return predictions(self.estimator, table)

    def _answers_of_clones(self, rows: Any, truth: NDArray[Any]) -> NDArray[Any] | None:
        """Return what clones say of rows that they have not seen; None if there is only one."""
        from sklearn.base import clone, is_classifier
        from sklearn.model_selection import KFold, cross_val_predict

        if len(truth) < 2:
            return None
        how = "predict_proba" if hasattr(self.estimator, "predict_proba") else "predict"
        folds = min(self.folds, len(truth))
        rare = is_classifier(self.estimator) and np.unique(truth, return_counts=True)[1].min() < folds
        parts = KFold(folds, shuffle=True, random_state=self.seed) if rare else folds
        with warnings.catch_warnings():
            if rare:  # a class that a clone has not seen has the probability 0
                warnings.filterwarnings("ignore", "Number of classes in training fold")
            said: NDArray[Any] = cross_val_predict(clone(self.estimator), rows, truth, cv=parts, method=how)
        return said

    def _ways(self, table: Table, says: NDArray[Any] | None) -> Iterator[tuple[str, Guide | None, CutBy]]:
        """Yield the configurations to choose from: guided ones, then classical methods if nothing was specified."""
        others = any(column.role in (Role.OTHER, Role.KEPT) for column in table.schema.columns)
        for guide in Guide if self.guide == _AUTO else [one_of(Guide, self.guide, "guide")]:
            if self.guide == _AUTO and guide is not Guide.TRUE and says is None:
                continue
            if self.guide == _AUTO and guide is Guide.HARD and says is not None and says.ndim < 2:
                continue  # what is said is hard already, or a number
            if self.cut_by != _AUTO:
                yield Guided.name, guide, one_of(CutBy, self.cut_by, "cut_by")
                continue
            yield Guided.name, guide, CutBy.QI
            if others and guide is not Guide.HARD:
                yield Guided.name, guide, CutBy.ALL
        if self.guide == self.cut_by == _AUTO and self.transform is not True:
            for name in _CLASSICAL:
                yield name, None, CutBy.QI

    def _method(
        self,
        name: str,
        guide: Guide | None,
        cut_by: CutBy,
        output: Output,
        truth: NDArray[Any],
        says: NDArray[Any] | None,
    ) -> Partitioner:
        from sklearn.base import is_classifier, is_regressor

        if name in _CLASSICAL:
            return _CLASSICAL[name](output=output)
        labels = truth if guide is Guide.TRUE else says
        if labels is None:
            raise InputError("no model can be asked about a single row", hint="guide='true' needs none")
        learns = {is_regressor: Task.REGRESS, is_classifier: Task.CLASSIFY}
        return Guided(
            labels=labels,
            soft=guide is not Guide.HARD,
            task=next((task for kind, task in learns.items() if kind(self.estimator)), Task.AUTO),
            cut_by=cut_by,
            output=output,
            look_ahead=_LOOK_AHEAD,
            cross_fit=guide is Guide.TRUE,  # the others are answers about unseen rows already
            neighbours=False,  # a tree also transforms rows that are to be predicted
        )

    def _trials(
        self, table: Table, names: Sequence[str], truth: NDArray[Any], says: NDArray[Any] | None, output: Output
    ) -> tuple[tuple[Trial, ...], list[Floats]]:
        """Try every configuration on a part of the rows, and score it on the others.

        The guiding predictions are those for all rows: clones were trained on held-out rows too, as in the final fit.
        Returns the trials, and the correctness of each for each held-out row.
        """
        from sklearn.base import clone, is_classifier
        from sklearn.model_selection import train_test_split

        ways = list(self._ways(table, says))
        transforms = [False, True] if self.transform == _AUTO else [bool(self.transform)]
        if len(ways) * len(transforms) == 1:
            return (_untried(ways[0], transforms[0]),), []
        least = min(held_out := math.ceil(self.holdout * len(truth)), len(truth) - held_out)
        if least < 1:
            raise OptionError(
                f"holdout {self.holdout} of {len(truth):,} row(s) leaves none to learn from",
                hint="hold out less, or choose guide, cut_by and transform yourself",
            )
        together = is_classifier(self.estimator)
        if together:  # both parts get some of every class, if there are enough
            number = np.unique(truth, return_counts=True)[1]
            together = number.min() > 1 and len(number) <= least
        part, held = train_test_split(
            np.arange(len(truth)),
            test_size=self.holdout,
            random_state=self.seed,
            stratify=truth if together else None,
        )
        learnt = Table(_rows(table.frame, part), table.schema)
        unseen = _select(_rows(table.frame, held), names)
        asked = [_fewer(one, 1 - self.holdout) for one in Guided(self.guarantees).asked]
        found, right = [], []
        for name, guide, cut_by in ways:
            method = self._method(name, guide, cut_by, output, truth[part], None if says is None else says[part])
            try:
                anonymizer = method.set_params(guarantees=asked).fit(learnt)
            except InputError:  # such as a model that answers the same everywhere: then it is no way
                continue
            rows = _select(anonymizer.apply(learnt).frame, names)
            model = clone(self.estimator).fit(rows, truth[part])
            routes = anonymizer.routes_ if isinstance(anonymizer, Guided) else None
            for transform in [False] if routes is None else transforms:
                asks = _select(routes.transform(unseen), names) if transform and routes is not None else unseen
                found.append(Trial(guide, cut_by, transform, float(model.score(asks, truth[held])), name))
                right.append(_right(model, asks, truth[held]))
        return (tuple(found), right) if found else ((_untried(ways[-1], transforms[0]),), [])

    def _selected(self, table: Table, truth: NDArray[Any]) -> list[str]:
        """Return the selected columns: as named, or by a selector that gets each column as numbers."""
        names = features_of(table)
        if not hasattr(self.features, "get_support"):
            chosen = [self.features] if isinstance(self.features, str) else list(self.features)
            for name in chosen:
                if name not in names:
                    raise OptionError(f"there is no column '{name}' to learn from", hint=did_you_mean(str(name), names))
            return _some(name for name in names if name in chosen)
        from sklearn.base import clone

        matrix = np.column_stack([_as_number(table, name, truth) for name in names])
        support = clone(self.features).fit(matrix, truth).get_support()
        return _some(name for name, kept in zip(names, support, strict=True) if kept)


def anonymize_model(
    estimator: Any,
    table: Any,
    *,
    k: int | None = None,
    guarantees: str | ClassGuarantee | Sequence[str | ClassGuarantee] = (),
    target: str | None = None,
    y: Any = None,
    **options: Any,
) -> AnonymizedModel:
    """Train an estimator on anonymous rows only, with as little loss of accuracy as possible.

    The rows are anonymized by a tree over the quasi-identifiers that distils the estimator's own predictions (see
    `Guided`), and a clone of the estimator is trained on the result. Held-out training rows decide whether its
    probabilities, its classes or the true labels guide, whether a classical method is better, and whether rows to
    predict are anonymized too. The guarantees are measured again on the final training rows.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn estimator, or a pipeline that takes frames; fitted or not.
    table : Table, frame or path
        The training rows.
    k : int, optional
        The smallest number of rows in a class; short for ``guarantees="k=..."``.
    guarantees : str, ClassGuarantee or sequence of them
        Further guarantees.
    target : str, optional
        The column to predict; the target of the table's schema by default.
    y : array, optional
        The labels, if they are not in the table.
    **options
        See `AnonymizedModel`: ``qi``, ``sensitive``, ``guide``, ``cut_by``, ``transform``, ``features``, ...

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> people = pd.DataFrame({"age": list(range(20, 80)), "retired": ["no"] * 45 + ["yes"] * 15})
    >>> model = sf.anonymize_model(DecisionTreeClassifier(), people, k=5, qi=["age"], target="retired")
    >>> model.predict(pd.DataFrame({"age": [30, 75]})).tolist(), model.release.assessment.k
    (['no', 'yes'], 5)
    """
    several = isinstance(guarantees, Sequence) and not isinstance(guarantees, str)
    asked: list[Any] = list(guarantees) if several else [guarantees]  # type: ignore[arg-type]
    asked = ([f"k={k}"] if k is not None else []) + [one for one in asked if one]
    if not asked:
        raise OptionError("no guarantee is asked for", hint="for example k=10")
    known = {one.name for one in fields(AnonymizedModel)} - {"estimator", "guarantees", "target"}
    for name in options:
        if name not in known:
            raise OptionError(f"anonymize_model has no option '{name}'", hint=did_you_mean(name, known))
    return AnonymizedModel(estimator, asked, target=target, **options).fit(table, y)


def _untried(way: tuple[str, Guide | None, CutBy], transform: bool) -> Trial:
    name, guide, cut_by = way
    return Trial(guide, cut_by, transform, float("nan"), name)


def _right(model: Any, rows: Any, truth: NDArray[Any]) -> Floats:
    """Return the correctness of each prediction: 1 or 0 for a class, the negative squared error for a number."""
    from sklearn.base import is_regressor

    said = np.asarray(model.predict(rows))
    right: Floats = -((said - truth) ** 2) if is_regressor(model) else (said == truth).astype(np.float64)
    return right


def _best(trials: Sequence[Trial], right: Sequence[Floats]) -> Trial:
    """Return the best guided trial, or the best classical one if that is better by more than its standard error.

    Guided partitions are usually better, and a hold-out is small: a method that is slightly better on it may well be
    worse on other rows.
    """
    order = sorted(range(len(trials)), key=lambda one: -trials[one].score)
    guided = next((one for one in order if trials[one].method == Guided.name), order[0])
    classical = next((one for one in order if trials[one].method != Guided.name), guided)
    if classical == guided:
        return trials[guided]
    more = right[classical] - right[guided]
    return trials[classical if more.mean() > more.std() / math.sqrt(len(more)) else guided]


def _truth(table: Table, y: Any) -> NDArray[Any]:
    """Return the labels to predict."""
    if y is not None:
        truth = np.asarray(y)
        truth = truth[:, 0] if truth.ndim == 2 and truth.shape[1] == 1 else truth
    elif table.schema.target is None:
        raise OptionError("no target is named", hint="name the column to predict, with target")
    else:
        truth = table.column(table.schema.target).to_numpy()
    if len(truth) != table.rows:
        raise InputError(f"what to predict must be known of every row: {table.rows:,} rows, {len(truth):,} labels")
    if truth.ndim != 1:
        raise InputError(f"one label per row is to be predicted, got an array of {truth.ndim} dimensions")
    missing = np.array([is_missing(value) for value in truth.tolist()])
    if missing.any():
        raise InputError(
            f"what to predict is missing in {int(missing.sum()):,} rows", hint="leave these rows out of the training"
        )
    return np.asarray(truth.tolist()) if truth.dtype.kind == "O" else truth


def _require_reachable(table: Table, guarantees: Any) -> None:
    """Raise an error for guarantees that no release of the table can keep."""
    require_quasi(table.schema)
    quasi, sensitive = table.schema.quasi, table.schema.sensitive
    Problem.of(reduce(table, [*quasi, *sensitive]), quasi, sensitive, Guided(guarantees).asked).require_reachable()


def _fewer(guarantee: ClassGuarantee, share: float) -> ClassGuarantee:
    """Scale a guarantee to a share of the rows, so that they form as many classes as all rows would."""
    if isinstance(guarantee, KAnonymity | AlphaK):
        return replace(guarantee, k=max(1, round(guarantee.k * share)))
    return guarantee


def _as_number(table: Table, name: str, truth: NDArray[Any]) -> NDArray[np.float64]:
    """Encode a column as numbers; categories by the mean label of their rows."""
    codes = table.encode([name])
    domain, code = codes.domains[0], codes.values[:, 0]
    if domain.values.dtype.is_numeric():
        numbers = as_floats(domain.values).to_numpy()
        known = np.isfinite(numbers)
        mean = float(numbers[known].mean()) if known.any() else 0.0
        return np.asarray(np.where(known, numbers, mean)[code], dtype=np.float64)
    if domain.column.kind.is_ordered:
        return code.astype(np.float64)
    label = truth.astype(np.float64) if truth.dtype.kind in "iuf" else np.unique(truth, return_inverse=True)[1]
    means: NDArray[np.float64] = np.bincount(code, weights=label) / np.maximum(np.bincount(code), 1)
    return means[code]


def _some(names: Iterable[str]) -> list[str]:
    """Return the names as a list; raise an error if there are none."""
    chosen = list(names)
    if not chosen:
        raise OptionError("no feature is selected", hint="select at least one")
    return chosen


def _only(table: Table, names: Sequence[str]) -> Table:
    """Return the table with these features and all columns that are not features."""
    if table.schema.quasi and not any(name in names for name in table.schema.quasi):
        raise OptionError(
            "no quasi-identifier is among the selected features",
            hint="then nothing that is learnt has to be anonymized",
        )
    dropped = [name for name in features_of(table) if name not in names and name not in table.schema.sensitive]
    kept = [column for column in table.schema.columns if column.name not in dropped]
    return Table(table.drop(dropped) if dropped else table.frame, type(table.schema)(kept))


def _select(frame: Any, names: Sequence[str]) -> Any:
    return nw.to_native(nw.from_native(frame).select(list(names)))


def _rows(frame: Any, rows: NDArray[Any]) -> Any:
    return nw.to_native(nw.from_native(frame)[rows.tolist()])


def _as_plain(trial: Trial) -> dict[str, Any]:
    score = None if trial.score != trial.score else round(trial.score, 6)
    guide = None if trial.guide is None else trial.guide.value
    cut_by, transform = trial.cut_by.value, trial.transform
    return {"method": trial.method, "guide": guide, "cut_by": cut_by, "transform": transform, "score": score}
