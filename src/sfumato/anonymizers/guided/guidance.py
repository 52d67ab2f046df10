"""The labels that guide a tree, summed over the records of each tuple.

A label is the prediction of a model for a row (a class, the probability of each class, a number), or the true one. Only
its sums over the records of a tuple are needed: the number of records of each class, the sum of probabilities, or the
sum of a number. Gini impurity and variance are both squares of these sums, so one criterion serves all three.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.anonymizers.problem import Problem
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.schema import Kind, Role
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import group
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean, one_of
from sfumato.measures.classes import Floats, Ints, class_counts
from sfumato.measures.loss.universe import as_floats
from sfumato.measures.loss.utility import MODELS, estimators_of

__all__ = [
    "Guidance",
    "Task",
    "features_of",
    "guidance",
    "index_rows",
    "is_missing",
    "numbers_of",
    "predictions",
    "sum_by_index",
    "usable_features",
    "warn_of_sensitive",
]

_FEW_CLASSES, _MOST_CLASSES = 20, 256


class Task(StrEnum):
    """The kind of label.

    Examples
    --------
    >>> Task("regress")
    <Task.REGRESS: 'regress'>
    """

    AUTO = "auto"
    """Classes, unless it is a number with more than 20 distinct values or with fractions."""
    CLASSIFY = "classify"
    """One of some classes."""
    REGRESS = "regress"
    """A number."""


@dataclass(frozen=True, eq=False, repr=False)
class Guidance(Discreet):
    """The label of each tuple, summed over its records.

    Attributes
    ----------
    mass : a row per tuple: the sum over its records of the share of each class, or of the number in standard deviations
    classes : the names of the classes; None for a number
    spread : the sum of squares of the numbers, because `mass` does not have their variance within tuples
    """

    mass: Floats
    classes: tuple[Any, ...] | None
    spread: float = 0.0

    @property
    def columns(self) -> Floats:
        """The informative columns of the mass: for two classes, one."""
        return self.mass[:, 1:] if self.classes is not None and len(self.classes) == 2 else self.mass

    def agreement(self, records: Ints, groups: Ints) -> float:
        """Return how well the groups predict the label.

        For classes, it is the share of records with the most frequent class of their group; for a number, the share of
        its variance between the groups.
        """
        number = int(groups.max()) + 1
        sums = sum_by_index(groups, self.mass, number)
        if self.classes is not None:
            return float(sums.max(axis=1).sum() / records.sum())
        size = np.bincount(groups, weights=records, minlength=number)
        return float((sums[:, 0] ** 2 / size).sum() / self.spread) if self.spread else 1.0

    def typical(self, tuples: Ints, records: Ints, groups: Ints) -> NDArray[np.bool_]:
        """Return a mask of the tuples with at least the group's share of its most frequent class."""
        if self.classes is None:
            return np.ones(len(groups), dtype=bool)
        mass, number = self.mass[tuples], int(groups.max()) + 1
        sums = sum_by_index(groups, mass, number)
        size = np.bincount(groups, weights=records, minlength=number)
        major = sums.argmax(axis=1)
        share = mass[np.arange(len(mass)), major[groups]] / records
        enough: NDArray[np.bool_] = share >= (sums.max(axis=1) / size)[groups] - 1e-9
        return enough


def guidance(
    problem: Problem,
    table: Table,
    *,
    model: Any = None,
    labels: Any = None,
    soft: bool = True,
    task: Task | str = Task.AUTO,
) -> Guidance:
    """Sum the labels over each tuple of a problem.

    Parameters
    ----------
    problem : Problem
        Its quasi-identifiers may be any columns of the table.
    table : Table
    model : the name of a model, an estimator, a torch module or a function of a frame, optional
    labels : the name of a column or a label per row, optional; the target of the table by default
    soft : bool
        Whether to use probabilities rather than the most likely class.
    task : Task or str

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> table = sf.Table(pl.DataFrame({"age": [20, 20, 40], "buys": ["no", "yes", "no"]}))
    >>> problem = Problem.of(reduce(table, ["age"]), ["age"], [], [])
    >>> found = guidance(problem, table, labels="buys")
    >>> found.classes, found.mass.tolist()
    (('no', 'yes'), [[1.0, 1.0], [1.0, 0.0]])
    """
    task = one_of(Task, task, "task")
    if model is not None and labels is not None:
        raise OptionError("a model and labels are both given", hint="give only one of them")
    if isinstance(model, str):
        found = _of_rows(_named(model, table), soft, task)
    elif model is not None:
        found = _of_rows(predictions(model, table, soft=soft), soft, task)
    elif labels is None or isinstance(labels, str):
        return _of_column(problem, table, _label_column(table, labels), task)
    else:
        found = _of_rows(_array(labels, "the labels"), soft, task)
    mass, classes = found
    if len(mass) != table.rows:
        raise InputError(
            f"every row needs a label: there are {table.rows:,} rows and {len(mass):,} labels",
        )
    if model is None:
        _warn_of_the_same(table, mass)
    row = index_rows(problem, table)
    sums = sum_by_index(row, mass, len(problem))
    spread = float((mass**2).sum()) if classes is None else 0.0
    return _useful(Guidance(sums, classes, spread), table.rows)


def features_of(table: Table) -> list[str]:
    """Return the columns that a model predicts from: all but the target and the identifiers."""
    left_out = {table.schema.target, *table.schema.identifiers}
    return [name for name in table.schema.names if name not in left_out]


def usable_features(table: Table) -> tuple[list[str], list[str]]:
    """Divide the features into those that a model can use and those that it cannot, because they hold free text."""
    names = features_of(table)
    text = [name for name in names if table.schema[name].kind is Kind.TEXT]
    return [name for name in names if name not in text], text


def predictions(model: Any, table: Table, *, soft: bool = True) -> NDArray[Any]:
    """Return the predictions of a model: a class or a number per row, or a column of probabilities per class."""
    known = getattr(model, "feature_names_in_", None)
    names = features_of(table) if known is None else [str(name) for name in known]
    for name in names:
        if name not in table.schema.names:
            raise ColumnError(
                f"the guiding model needs the column '{name}', which the table lacks",
                hint=did_you_mean(name, table.schema.names),
            )
    rows = nw.from_native(table.to_polars() if table.is_lazy else table.frame).select(names)
    frame = nw.to_native(rows.clone())  # a function may change what it is given
    if _is_torch(model):
        return _torch(model, Table(frame))
    if soft and hasattr(model, "predict_proba"):
        ask: Callable[[Any], Any] = model.predict_proba
    elif hasattr(model, "predict"):
        ask = model.predict
    elif callable(model):
        ask = model
    else:
        raise OptionError(
            f"a guiding model has predict or is a function of a frame, got {type(model).__name__}",
            hint="known by name: " + ", ".join(MODELS),
        )
    try:
        said = ask(frame)
    except Exception as error:
        raise InputError(
            f"the guiding model failed with {type(error).__name__}",
            hint="is it fitted, and does it take these columns as they are?",
        ) from error
    return _array(said, "the guiding model")


def index_rows(problem: Problem, table: Table) -> Ints:
    """Return the index of the tuple of each row."""
    codes = table.encode([domain.name for domain in problem.domains])
    sizes = [len(domain) for domain in problem.domains]
    for mine, theirs in zip(problem.domains, codes.domains, strict=True):
        if len(mine) != len(theirs):
            raise InputError("the table has other values than the one that was counted")
    first, of_row = group(np.concatenate([problem.codes, codes.values]), sizes)
    if len(first) > len(problem):
        raise InputError("the table has other rows than the one that was counted")
    tuple_of = np.empty(len(first), dtype=np.int64)
    tuple_of[of_row[: len(problem)]] = np.arange(len(problem))
    return tuple_of[of_row[len(problem) :]]


def is_missing(value: Any) -> bool:
    """Return whether a label is missing: None, NaN, or pandas' NA, for which a comparison is neither true nor false."""
    return value is None or str(value != value) != "False"


def numbers_of(table: Table, names: Sequence[str]) -> Floats:
    """Encode columns as numbers for a model: ordered ones by value or rank, categories one-hot if they are few."""
    parts: list[Floats] = []
    for name in names:
        codes = table.encode([name])
        domain, code = codes.domains[0], codes.values[:, 0]
        if domain.column.kind is Kind.NUMBER and domain.values.dtype.is_numeric():
            numbers = as_floats(domain.values).to_numpy()
            known = ~np.isnan(numbers)
            parts.append(np.where(known, numbers, numbers[known].mean() if known.any() else 0.0)[code][:, None])
        elif domain.column.kind.is_ordered or len(domain) > _MOST_CLASSES:
            parts.append(code[:, None].astype(np.float64))
        else:
            parts.append(np.eye(len(domain))[code])
    return np.hstack(parts) if parts else np.zeros((table.rows, 0))


def _label_column(table: Table, name: str | None) -> str:
    name = table.schema.target if name is None else name
    if name is None:
        raise OptionError(
            "nothing is given that guides",
            hint="give a model, labels, or name the column to predict: target / --target",
        )
    if name not in table.schema.names:
        raise ColumnError(f"there is no column '{name}' to guide", hint=did_you_mean(name, table.schema.names))
    if name in table.schema.sensitive:
        warn_of_sensitive(name)
    return name


def _of_column(problem: Problem, table: Table, name: str, task: Task) -> Guidance:
    """Count the label where the table lives, like a sensitive attribute."""
    quasi = [domain.name for domain in problem.domains]
    counts = class_counts(reduce(table, quasi if name in quasi else [*quasi, name]), quasi, name)
    domain = counts.attribute
    assert domain is not None
    numeric = domain.values.dtype.is_numeric()
    if task is Task.AUTO:
        known = as_floats(domain.values).drop_nulls() if numeric else domain.values
        fractions = numeric and bool((known != known.floor()).any())
        task = Task.REGRESS if numeric and (fractions or len(known) > _FEW_CLASSES) else Task.CLASSIFY
    if task is Task.REGRESS:
        if not numeric:
            raise ColumnError(f"column '{name}' holds no numbers to regress", hint="task='classify' is for classes")
        numbers = as_floats(domain.values).to_numpy()
        known = ~np.isnan(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(numbers[known], weights=counts.total[known]) if known.sum() > 1 else numbers
            apart = np.where(known, numbers - mean, 0.0)  # a missing one says nothing
            numbers = _scaled(apart, np.sqrt(np.average(apart**2, weights=counts.total)))
        of_entry: Floats = numbers[counts.value] * counts.count
        mass = sum_by_index(counts.owner, of_entry[:, None], len(problem))
        spread = float((numbers**2 * counts.total).sum())
        return _useful(Guidance(mass, None, spread), counts.rows)
    classes = tuple(domain.label(code) for code in range(len(domain)))
    _refuse_many(len(classes))
    mass = np.zeros((len(problem), len(classes)))
    mass[counts.owner, counts.value] = counts.count
    return _useful(Guidance(mass, classes), counts.rows)


def _of_rows(said: NDArray[Any], soft: bool, task: Task) -> tuple[Floats, tuple[Any, ...] | None]:
    """Return the mass of each row, and the names of the classes."""
    if said.ndim == 2 and said.shape[1] == 1:
        said = said[:, 0]
    if said.ndim == 2:
        if task is Task.REGRESS:
            raise OptionError("a number is to guide, and there are probabilities", hint="give one number per row")
        if said.dtype.kind not in "biuf":
            raise InputError("probabilities are numbers, one per row and class, and there are texts")
        shares = said.astype(np.float64)
        if (shares < 0).any() or not (shares.sum(axis=1) > 0).all():
            raise InputError("probabilities must not be negative, and not all be 0")
        shares = shares / shares.sum(axis=1, keepdims=True)
        _refuse_many(shares.shape[1])
        if not soft:
            shares = np.eye(shares.shape[1])[shares.argmax(axis=1)]
        return shares, tuple(range(shares.shape[1]))
    numeric = said.dtype.kind in "iuf"
    if task is Task.AUTO:
        fractions = said.dtype.kind == "f" and bool((said != np.floor(said)).any())
        many = numeric and len(np.unique(said)) > _FEW_CLASSES
        task = Task.REGRESS if fractions or many else Task.CLASSIFY
    if task is Task.REGRESS:
        if not numeric:
            raise OptionError("the labels are no numbers to regress", hint="task='classify' is for classes")
        numbers = said.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = numbers - (said.mean() if len(np.unique(said)) > 1 else numbers)
            return _scaled(apart, apart.std())[:, None], None
    names, code = np.unique(said, return_inverse=True)
    _refuse_many(len(names))
    return np.eye(len(names))[code], tuple(text_of(name) for name in names.tolist())


def _scaled(apart: Floats, deviation: Any) -> Floats:
    """Return distances from the mean in standard deviations."""
    if not np.isfinite(deviation):
        raise InputError("the label that should guide holds a number that is infinite, or too large to be squared")
    scaled: Floats = apart / (deviation or 1.0)
    return scaled


def sum_by_index(index: Ints, mass: Floats, length: int) -> Floats:
    """Add up the rows that share an index."""
    sums = [np.bincount(index, weights=column, minlength=length).astype(np.float64) for column in mass.T]
    return np.column_stack(sums)


def _useful(found: Guidance, rows: int) -> Guidance:
    """Raise an error if the label is the same in every row."""
    same = not found.spread if found.classes is None else np.count_nonzero(found.mass.any(axis=0)) < 2
    if same and rows > 1:
        raise InputError(
            "the label that should guide is the same in every row",
            hint="give one that differs, or take a method that needs none, such as mondrian",
        )
    return found


def _refuse_many(classes: int) -> None:
    if classes > _MOST_CLASSES:
        raise InputError(
            f"the label that should guide has {classes:,} classes, and at most {_MOST_CLASSES} can",
            hint="if it is a number, say so: task='regress'",
        )


def _array(said: Any, who: str) -> NDArray[Any]:
    """Return labels or predictions as an array of one or two dimensions without gaps."""
    if isinstance(said, pl.Series):
        said = said.to_numpy()
    try:
        array = np.asarray(said)
    except (TypeError, ValueError, RuntimeError):  # the last if it is a tensor that still learns
        array = np.zeros(())
    if array.ndim not in (1, 2) or array.size == 0:
        raise InputError(f"one label per row, or one probability per row and class, is needed of {who}")
    if array.dtype.kind == "O":
        if any(map(is_missing, array.ravel().tolist())):
            raise InputError(f"a label is missing in what comes of {who}")
        array = array.astype(str)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"a label is missing or infinite in what comes of {who}")
    if array.dtype.kind not in "biufSU":
        raise InputError(f"labels are numbers, texts or truth values, but {array.dtype} comes of {who}")
    return array


def _is_torch(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _torch(model: Any, table: Table) -> NDArray[Any]:
    """Return the predictions of a torch module for all columns as numbers; logits become probabilities."""
    torch = sys.modules["torch"]
    for column in table.schema.columns:
        if column.kind is not Kind.NUMBER:
            raise ColumnError(
                f"a torch module takes numbers only, and column '{column.name}' holds none",
                hint="give a function of the frame that prepares them",
            )
    rows = numbers_of(table, table.schema.names).astype(np.float32)
    training = model.training
    try:
        with torch.no_grad():
            said: Any = model.eval()(torch.from_numpy(rows)).cpu().numpy()
    except Exception as error:
        raise InputError(
            f"the guiding model failed with {type(error).__name__}", hint="does it take this many columns?"
        ) from error
    finally:
        model.train(training)
    said = _array(said, "the guiding model")
    if said.ndim == 2 and said.shape[1] > 1 and ((said < 0).any() or np.abs(said.sum(axis=1) - 1).max() > 1e-3):
        odds = np.exp(said - said.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    return np.asarray(said)


def _named(name: str, table: Table) -> NDArray[Any]:
    """Return the cross-validated predictions of a model of this name."""
    if name not in MODELS:
        raise OptionError(f"there is no model '{name}' to guide", hint=did_you_mean(name, MODELS))
    target = table.schema.target
    if target is None:
        raise OptionError(f"the model '{name}' needs something to predict", hint="name it with target / --target")
    from sklearn.model_selection import cross_val_predict

    codes = table.encode([target])
    truth, rows = codes.values[:, 0], numbers_of(table, usable_features(table)[0])
    fewest = int(np.bincount(truth)[np.unique(truth)].min())
    if len(np.unique(truth)) < 2 or fewest < 2:
        raise InputError(
            f"the target '{target}' has a class of one row, or only one class: no model can learn it",
            hint="guide by the target itself",
        )
    _refuse_many(len(codes.domains[0]))
    (estimator,) = estimators_of([name], 0).values()
    said: NDArray[Any] = cross_val_predict(estimator, rows, truth, cv=min(3, fewest), method="predict_proba")
    return said


def warn_of_sensitive(name: str) -> None:
    """Warn that a guiding label is sensitive."""
    warnings.warn(
        f"the guiding label '{name}' is sensitive: guidance puts people with the same value together, "
        "which works against l and t",
        UserWarning,
        stacklevel=2,
    )


def _warn_of_the_same(table: Table, mass: Floats) -> None:
    """Warn if the labels are a sensitive column under other names."""
    label = mass.argmax(axis=1) if mass.shape[1] > 1 else np.unique(mass, return_inverse=True)[1].ravel()
    for column in table.schema.columns:
        if column.role is Role.SENSITIVE:
            code = table.encode([column.name]).values[:, 0]
            pairs = len(np.unique(code.astype(np.int64) * (label.max() + 1) + label))
            if pairs == len(np.unique(code)) == len(np.unique(label)):
                warn_of_sensitive(column.name)
