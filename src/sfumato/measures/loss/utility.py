"""The utility of a release for counting queries and for training models; `marginals` compares distributions.

A released value is spread evenly over the values that it stands for (see `generalised`): a category
over its values, a number or date along its interval. The release may be made by any method.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Plain
from sfumato.data.released_values import MARK
from sfumato.data.schema import Kind
from sfumato.data.table import Table
from sfumato.errors import OptionError, did_you_mean
from sfumato.measures.classes import Floats
from sfumato.measures.loss.generalised import Coverage, Pairing, pair

__all__ = [
    "MODELS",
    "ModelAccuracy",
    "QueryError",
    "affordable",
    "codebook",
    "draw_features",
    "estimators_of",
    "model_accuracy",
    "query_error",
    "query_error_of",
    "single_labels",
    "sklearn_part",
]

_MOST_CATEGORIES = 1000
_MOST_FEATURES = 2000
_MOST_ROWS = 50_000
MODELS = ("logistic", "tree", "forest", "boosting")


@dataclass(frozen=True)
class QueryError(Plain):
    """The relative error of random counting queries on a release.

    Attributes
    ----------
    median, mean : the median and the mean of the relative errors
    queries, selectivity, sanity, seed : the options of the measurement; see `query_error`
    answer : the mean true answer, as a share of the rows
    """

    median: float
    mean: float
    queries: int
    selectivity: float
    sanity: float
    seed: int
    answer: float


def query_error(
    original: Table | Any,
    released: Table | Any,
    *,
    columns: Sequence[str] = (),
    queries: int = 1000,
    selectivity: float = 0.05,
    dimensions: int | None = None,
    sanity: float = 0.001,
    seed: int = 0,
    suppressed: str | None = MARK,
) -> QueryError:
    """Measure the error of random counting queries (LeFevre et al. 2006; Xiao & Tao 2006).

    A query is a conjunction over q random columns. For each it selects a share ``selectivity^(1/q)`` of
    the column's distinct values, at least one: neighbours in a number, date or ordinal column, any
    values in another. A released row counts with the share of its values that are selected. The error is
    ``|estimate - truth| / max(truth, sanity * rows)``: without the sanity bound, queries with hardly any
    matching row would dominate.

    Parameters
    ----------
    original, released : Table, frame or path
        They need not have the same rows.
    columns : sequence of str
        The columns of the queries; the quasi-identifiers of the original's schema by default.
    queries : int
        How many random queries to ask.
    selectivity : float
        The share of rows that a query would match if all values were equally frequent and independent.
    dimensions : int, optional
        The number of columns q of each query; random from 1 to all by default.
    sanity : float
    seed : int
    suppressed : str or None
        The mark of suppression.

    Examples
    --------
    >>> import polars as pl
    >>> ages = pl.DataFrame({"age": list(range(20, 60))})
    >>> tens = pl.DataFrame({"age": [f"[{age // 10 * 10}, {age // 10 * 10 + 10})" for age in range(20, 60)]})
    >>> query_error(ages, tens, columns=["age"]).median  # uniform ages: the assumption holds
    0.0
    >>> cities = pl.DataFrame({"city": ["Bonn"] * 9 + ["Rome"]})  # asked for either, the release says 5
    >>> query_error(cities, pl.DataFrame({"city": ["*"] * 10}), columns=["city"]).mean > 2
    True
    """
    both = pair(original, released, columns, suppressed)
    return query_error_of(
        both, queries=queries, selectivity=selectivity, dimensions=dimensions, sanity=sanity, seed=seed
    )


def query_error_of(
    both: Pairing,
    *,
    queries: int = 1000,
    selectivity: float = 0.05,
    dimensions: int | None = None,
    sanity: float = 0.001,
    rescale: bool = False,
    seed: int = 0,
) -> QueryError:
    """Measure the error of random counting queries on a paired original and release; see `query_error`.

    With `rescale`, counts on a release of another size are scaled to the size of the original.
    """
    names = both.names
    if queries < 1 or not 0 < selectivity <= 1 or not sanity > 0:
        raise OptionError("queries must be at least 1, selectivity above 0 and at most 1, and sanity above 0")
    if dimensions is not None and not 1 <= dimensions <= len(names):
        raise OptionError(f"dimensions must be from 1 to the number of columns, {len(names)}, got {dimensions}")
    generator = np.random.default_rng(seed)
    (people, count), (regions, weight) = both.people, both.regions
    people, regions = np.asfortranarray(people), np.asfortranarray(regions)
    truth, estimate = np.empty(queries), np.empty(queries)
    for query in range(queries):
        asked = dimensions or int(generator.integers(1, len(names) + 1))
        rows: Any = slice(None)
        cells: Any = slice(None)
        part = weight.astype(float)
        for column in generator.choice(len(names), size=asked, replace=False):
            read = both.coverages[column]
            chosen = _choose(read, selectivity ** (1 / asked), generator)
            rows = _narrow(rows, chosen[people[rows, column]])
            inside = _share_inside(read, chosen)[regions[cells, column]]
            cells, part = _narrow(cells, inside > 0), (part * inside)[inside > 0]
        truth[query], estimate[query] = count[rows].sum(), part.sum()
    size = both.rows
    estimate *= size / weight.sum() if rescale else 1.0
    error = np.abs(estimate - truth) / np.maximum(truth, sanity * size)
    error = np.where(error < 1e-12, 0.0, error)  # removes rounding errors
    answer = float(truth.mean() / size)
    return QueryError(float(np.median(error)), float(error.mean()), queries, selectivity, sanity, seed, answer)


@dataclass(frozen=True)
class ModelAccuracy(Plain):
    """The accuracy of a model on raw hold-out rows, trained on raw and on released rows.

    Attributes
    ----------
    model : its name
    raw, released : the mean accuracy over the splits, trained on raw and on released rows
    raw_spread, released_spread : the standard deviations over the splits
    baseline : the mean accuracy of always predicting the most frequent raw training label
    rows : the number of rows for training and testing
    repeats, holdout, seed : the options of the measurement; see `model_accuracy`
    left_out : the columns that were not used, because they have too many categories
    """

    model: str
    raw: float
    raw_spread: float
    released: float
    released_spread: float
    baseline: float
    rows: int
    repeats: int
    holdout: float
    seed: int
    left_out: tuple[str, ...] = ()


def model_accuracy(
    original: Table | Any,
    released: Table | Any,
    *,
    target: str | None = None,
    columns: Sequence[str] = (),
    models: Sequence[str] | Mapping[str, Any] = MODELS,
    repeats: int = 5,
    holdout: float = 0.3,
    width: bool = False,
    rows: int | None = _MOST_ROWS,
    seed: int = 0,
    suppressed: str | None = MARK,
) -> tuple[ModelAccuracy, ...]:
    """Train models on raw and on released rows, and test both on raw hold-out rows.

    The rows of both tables must be aligned. A number becomes the middle of its interval, and a
    category one feature per original value (one-hot), so raw and released rows are encoded alike:
    for a set or a label, one of its values is drawn for each split. A missing number is the mean of
    the training rows, with an indicator; the mark is read as missing.

    Parameters
    ----------
    original, released : Table, frame or path
        The rows before and after.
    target : str, optional
        The column to predict; the target of the original's schema by default. Rows without a target are left out.
    columns : sequence of str
        The features; by default all common columns except the target and the identifiers, without columns of more than
        1,000 categories, and without the widest ones while there are more than 2,000 categories in all.
    models : sequence of str, or mapping of names to estimators
        Some of ``logistic``, ``tree``, ``forest``, ``boosting``; or scikit-learn estimators by name.
    repeats : int
        The number of random splits.
    holdout : float
        The share of rows held out.
    width : bool
        Whether the width of an interval is also a feature. Raw rows have width 0.
    rows : int or None
        The most rows for training and testing, drawn at random; None for all rows.
    seed : int
        The seed of the splits, and of the models that use one.
    suppressed : str or None
        The mark of suppression.

    Examples
    --------
    >>> import polars as pl
    >>> raw = pl.DataFrame({"age": list(range(100)), "retired": ["no"] * 65 + ["yes"] * 35})
    >>> blurred = raw.with_columns(age=pl.lit("*"))
    >>> (result,) = model_accuracy(raw, blurred, target="retired", models=["tree"])
    >>> result.raw > 0.9, result.released == result.baseline
    (True, True)
    """
    table, other = Table.of(original), Table.of(released)
    target = target or table.schema.target
    if target is None:
        raise OptionError("no target is named", hint="name the column to predict, with target")
    if repeats < 1 or not 0 < holdout < 1:
        raise OptionError(f"repeats must be at least 1 and holdout between 0 and 1, got {repeats} and {holdout}")
    if rows is not None and rows < 2:
        raise OptionError(f"rows must be at least 2, or None for all, got {rows}")
    left_out = {target, *table.schema.identifiers}
    names = list(columns)
    unused: tuple[str, ...] = ()
    if not names:
        known = [n for n in table.schema.names if n in other.schema.names and n not in left_out]
        names, unused = affordable(table, known)
    if not names:
        raise OptionError("no column is left to predict from", hint="name the features, with columns")
    both = pair(table, other, [*names, target], suppressed).align()
    estimators = estimators_of(models, seed)
    samples = _Samples.of(both, width, rows, seed)
    truth = samples.truth
    if len(np.unique(truth)) < 2:
        raise OptionError(f"the target '{target}' has fewer than two distinct values")
    held = min(max(round(holdout * len(truth)), 1), len(truth) - 1)
    scores = np.empty((len(estimators), 2, repeats))
    majority = np.empty(repeats)
    for repeat in range(repeats):
        generator = np.random.default_rng([seed, repeat])
        scores[:, :, repeat], majority[repeat] = _score_split(samples, estimators, held, generator)
    mean, spread = scores.mean(axis=2), scores.std(axis=2, ddof=min(1, repeats - 1))
    return tuple(
        ModelAccuracy(
            model=name,
            raw=float(mean[position, 0]),
            raw_spread=float(spread[position, 0]),
            released=float(mean[position, 1]),
            released_spread=float(spread[position, 1]),
            baseline=float(majority.mean()),
            rows=len(truth),
            repeats=repeats,
            holdout=holdout,
            seed=seed,
            left_out=unused,
        )
        for position, name in enumerate(estimators)
    )


@dataclass(frozen=True, eq=False, repr=False)
class _Samples:
    """The rows of both tables for `model_accuracy`: features, codes of the release, and labels."""

    features: Sequence[Coverage]
    tables: Sequence[NDArray[np.float32]]
    raw: NDArray[np.float32]
    meaning: NDArray[np.int32]
    truth: NDArray[Any]
    taught: NDArray[Any]
    absent: int

    @classmethod
    def of(cls, both: Pairing, width: bool, rows: int | None, seed: int) -> _Samples:
        """Draw at most `rows` rows with a target, which is the last column."""
        features, labels = both.coverages[:-1], both.coverages[-1]
        absent = -1 if labels.universe.missing is None else labels.universe.missing
        usable = np.flatnonzero(both.original[:, -1] != absent)
        if rows is not None and rows < len(usable):
            usable = np.sort(np.random.default_rng(seed).choice(usable, rows, replace=False))
        original, meaning = both.original[usable], both.meaning[usable]
        tables = [codebook(read, width) for read in features]
        raw = np.hstack([table[original[:, i]] for i, table in enumerate(tables)])
        taught = single_labels(labels)[meaning[:, -1]]
        return cls(features, tables, raw, meaning, original[:, -1], taught, absent)


def _score_split(
    samples: _Samples, estimators: Mapping[str, Any], held: int, generator: np.random.Generator
) -> tuple[Floats, float]:
    """Return the accuracies of each estimator, trained on raw and on released rows, and of the majority label."""
    truth, taught = samples.truth, samples.taught
    order = generator.permutation(len(truth))
    test, train = order[:held], order[held:]
    drawn = [
        draw_features(read, samples.meaning[:, i], samples.tables[i], generator)
        for i, read in enumerate(samples.features)
    ]
    learnt = train[(taught[train] >= 0) & (taught[train] != samples.absent)]
    sides = [(samples.raw, truth, train), (np.hstack(drawn), taught, learnt)]
    scores = np.empty((len(estimators), len(sides)))
    for position, estimator in enumerate(estimators.values()):
        for side, (source, answers, rows) in enumerate(sides):
            guess = _fit_and_predict(estimator, source[rows], answers[rows], samples.raw[test])
            scores[position, side] = np.mean(guess == truth[test])
    return scores, float(np.mean(truth[test] == np.bincount(truth[train]).argmax()))


def affordable(table: Table, names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns that a model can use at a bounded cost, and the others."""
    width = {name: _features(table, name) for name in names}
    kept = sorted((name for name in names if width[name] <= _MOST_CATEGORIES), key=lambda name: width[name])
    while sum(width[name] for name in kept) > _MOST_FEATURES:
        kept.pop()
    return [name for name in names if name in kept], tuple(name for name in names if name not in kept)


def _features(table: Table, name: str) -> int:
    """Return the number of features of a column: two for a number or date, one per value for a category."""
    column, series = table.schema[name], table.column(name)
    on_line = series.dtype.is_numeric() or series.dtype.is_temporal()
    if on_line and column.kind in (Kind.AUTO, Kind.NUMBER, Kind.DATE):
        return 2
    return max(series.n_unique(), len(column.domain or ()))


def _narrow(index: Any, keep: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the rows of an index that a predicate keeps."""
    return np.flatnonzero(keep) if isinstance(index, slice) else index[keep]


def _choose(read: Coverage, share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Select a random share of the non-missing values of a column."""
    values = len(read.universe) - (read.universe.missing is not None)
    many = min(max(round(share * values), 1), values)
    chosen = np.zeros(len(read.universe), dtype=bool)
    if read.universe.column.kind.is_ordered:
        first = int(generator.integers(0, values - many + 1))
        chosen[first : first + many] = True
    else:
        chosen[generator.choice(values, size=many, replace=False)] = True
    return chosen


def _share_inside(read: Coverage, chosen: NDArray[np.bool_]) -> Floats:
    """Return the share of each released value that is among the chosen values."""
    of = read.universe
    if not of.is_line:
        return read.total(chosen) / np.maximum(read.size, 1)
    ends = of.numbers[chosen]
    if not len(ends):
        return np.zeros(len(read))
    half = 0.5 if of.whole else 0.0  # a whole number has width 1
    low, high = read.low - half, read.high + half
    inside = np.clip(np.minimum(high, ends[-1] + half) - np.maximum(low, ends[0] - half), 0, None)
    point = (read.low >= ends[0]) & (read.high <= ends[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.where(high > low, inside / (high - low), point)
    return np.nan_to_num(share)


def codebook(read: Coverage, width: bool) -> NDArray[np.float32]:
    """Return the features of each value of a column; the last row is for an unknown value."""
    of = read.universe
    if of.is_line:
        number = np.append(of.numbers, np.nan)
        return np.column_stack([number, np.isnan(number), number - number][: 3 if width else 2]).astype(np.float32)
    if len(of) > _MOST_CATEGORIES:
        raise OptionError(
            f"column '{of.column.name}' has {len(of)} categories, and at most {_MOST_CATEGORIES} can be features",
            hint="leave it out of columns",
        )
    return np.eye(len(of) + 1, len(of), dtype=np.float32)


def single_labels(read: Coverage) -> NDArray[np.int64]:
    """Return the value that each released value stands for, or -1 if it does not stand for exactly one."""
    value = np.append(read.first, -1)[read.start[:-1]]  # that of the only run, which has length 1
    return np.where(read.size == 1, value, -1)


def draw_features(
    read: Coverage, codes: NDArray[np.int32], table: NDArray[np.float32], generator: np.random.Generator
) -> NDArray[np.float32]:
    """Return the features of released rows: the middle of an interval, or one of the covered values at random."""
    if read.universe.is_line:
        middle = np.where(read.everything, np.nan, (read.low + read.high) / 2)
        features = [middle, np.isnan(middle), np.where(read.everything, np.nan, read.high - read.low)]
        return np.column_stack(features[: table.shape[1]]).astype(np.float32)[codes]
    if not len(read.first):
        return np.repeat(table[-1:], len(codes), axis=0)
    before = np.concatenate([[0], np.cumsum(read.stop - read.first)])  # all covered values, run after run
    wanted = before[read.start[codes]] + (generator.random(len(codes)) * read.size[codes]).astype(np.int64)
    run = np.searchsorted(before, wanted, side="right") - 1
    run = np.minimum(run, len(read.first) - 1)
    position = read.first[run] + wanted - before[run]
    unknown = (read.everything | (read.size == 0))[codes]
    drawn: NDArray[np.float32] = table[np.where(unknown, len(table) - 1, position)]
    return drawn


def sklearn_part(part: str) -> Any:
    """Import a part of scikit-learn on demand: it takes a second, and few callers train models."""
    return importlib.import_module(f"sklearn.{part}")


def estimators_of(models: Sequence[str] | Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the classifiers with these names, or the given ones."""
    if isinstance(models, Mapping):
        return dict(models)
    known = {
        "logistic": sklearn_part("pipeline").make_pipeline(
            sklearn_part("preprocessing").StandardScaler(),
            sklearn_part("linear_model").LogisticRegression(max_iter=1000),
        ),
        "tree": sklearn_part("tree").DecisionTreeClassifier(min_samples_leaf=5, random_state=seed),
        "forest": sklearn_part("ensemble").RandomForestClassifier(min_samples_leaf=2, random_state=seed),
        # Without a penalty, the steps for a class of a few rows have no bound, and the model may diverge.
        "boosting": sklearn_part("ensemble").HistGradientBoostingClassifier(l2_regularization=1.0, random_state=seed),
    }
    for name in models:
        if name not in known:
            raise OptionError(f"there is no model '{name}'", hint=did_you_mean(str(name), known))
    return {name: known[name] for name in models}


def _fit_and_predict(estimator: Any, rows: NDArray[Any], answers: NDArray[Any], test: NDArray[Any]) -> NDArray[Any]:
    if len(np.unique(answers)) < 2:  # many estimators refuse a single class
        return np.full(len(test), answers[0] if len(answers) else -1)
    known = np.isfinite(rows)
    mean = np.where(known, rows, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    fitted = sklearn_part("base").clone(estimator).fit(np.where(known, rows, mean), answers)
    return np.asarray(fitted.predict(np.where(np.isfinite(test), test, mean)))
