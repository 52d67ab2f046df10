"""Accuracy of models trained on anonymous rows as k grows, guided by the model or not."""

from __future__ import annotations

import importlib.util
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sfumato.errors import FileError
from sfumato.reproductions.membership import _LOAN, _TWELVE
from sfumato.reproductions.values import Curves, Experiment, Fact, Figure, Row

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AHEAD", "EXPERIMENT", "SETUPS", "Settings", "Setup", "accuracy_verdict", "before_row"]

_EIGHT = ["workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country", "education-num"]
_TEN = ["age", *_EIGHT, "hours-per-week"]
_METHODS = ("guided", "workload", "mondrian", "hilbert", "rplus")
_BEHIND = 0.005  # accuracy that may be missing to the best other method, about a standard deviation over splits
AHEAD = f"ahead: nowhere behind by more than {_BEHIND:g}"


class Setup(NamedTuple):
    """A curve of the publication: the table, its quasi-identifiers, the model, and its accuracy before."""

    what: str
    table: str
    qi: Sequence[str]
    model: str
    before: float


SETUPS = {
    "adult-12-nn": Setup("Adult, 12 quasi-identifiers, network", "adult", _TWELVE, "nn", 0.865),
    "adult-10-nn": Setup("Adult, 10 quasi-identifiers, network", "adult", _TEN, "nn", 0.865),
    "adult-8-nn": Setup("Adult, 8 quasi-identifiers, network", "adult", _EIGHT, "nn", 0.865),
    "adult-8-xgb": Setup("Adult, 8 quasi-identifiers, XGBoost", "adult", _EIGHT, "xgb", 0.864),
    "adult-8-dt": Setup("Adult, 8 quasi-identifiers, decision tree", "adult", _EIGHT, "dt", 0.8878),
    "adult-8-rf": Setup("Adult, 8 quasi-identifiers, random forest", "adult", _EIGHT, "rf", 0.8992),
    "loan-nn": Setup("Loan, network", "loan", _LOAN, "nn", 0.9332),
}


@dataclass(frozen=True)
class Settings:
    """Which curves are measured, at which k."""

    setups: tuple[str, ...] = tuple(SETUPS)
    ks: tuple[int, ...] = (10, 50, 100, 500, 1000)
    seeds: int = 1
    rows: int | None = None
    methods: tuple[str, ...] = _METHODS
    wishes: bool = True


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Measure the curves, the guarantee of a tree from other rows, and what the authors wished for."""
    for key in settings.setups:
        try:
            yield from _curve(key, settings)
        except FileError as error:
            yield EXPERIMENT.row(key, None, "not judged", str(error))
    yield _elsewhere(settings)
    if settings.wishes:
        yield from _wishes(settings)


def accuracy_verdict(best: dict[int, float], guided: dict[int, float]) -> str:
    """Say whether guided is behind the best other method nowhere by more than the spread over splits.

    Examples
    --------
    >>> accuracy_verdict({10: 0.851, 1000: 0.81}, {10: 0.854, 1000: 0.84})
    'reproduced'
    """
    return "reproduced" if all(guided[k] >= best[k] - _BEHIND for k in guided) else "differs"


def before_row(key: str, ours: float, note: str, *, whole: bool = True) -> Row:
    """Return the row of the accuracy before anonymization; on another table it cannot agree with the printed one."""
    found = EXPERIMENT.compared(f"{key}-before", ours, note, larger=True, comparable=whole)
    return replace(found, verdict="differs") if whole and SETUPS[key].table == "loan" else found


def _curve(key: str, settings: Settings) -> Iterator[Row | Figure]:
    setup, whole = SETUPS[key], settings.rows is None
    found: dict[str, dict[int, list[float]]] = {who: {k: [] for k in settings.ks} for who in settings.methods}
    before = []
    for seed in range(settings.seeds):
        train, y, test, test_y = _split(setup.table, settings.rows, seed)
        model = _model(setup.model, train, seed)
        plain = _fitted(model, train, y)
        before.append(float(plain.score(test, test_y)))
        for who in settings.methods:
            for k in settings.ks:
                found[who][k].append(_score(who, k, setup, model, train, y, test, test_y, seed))
    mean = {who: {k: statistics.mean(each) for k, each in ks.items()} for who, ks in found.items()}
    size = f"{settings.seeds} split{'s' * (settings.seeds > 1)}, {len(y):,} rows to train on"
    start = statistics.mean(before)
    yield before_row(key, start, f"{_substitute(setup)}{size}", whole=whole)
    classical = [who for who in settings.methods if who not in ("guided", "workload")]
    yield EXPERIMENT.row(
        key,
        *_compared(mean, classical, settings.ks, whole),
        f"accuracy of guided, in brackets the best of the others; {AHEAD}; {size}",
    )
    if key.endswith("nn") and "workload" in mean:
        ours = _compared(mean, ["workload"], settings.ks, whole)
        yield EXPERIMENT.row(
            f"{key}-workload", *ours, f"in brackets the tree of the true labels with entropy; {AHEAD}; {size}"
        )
    lines = {who: list(ks.items()) for who, ks in mean.items()}
    yield Curves(f"{setup.what}: accuracy against k", "k", "accuracy", lines, log=True)


def _compared(
    mean: dict[str, dict[int, float]], others: Sequence[str], ks: Sequence[int], whole: bool
) -> tuple[str, str]:
    """Return the accuracies of guided beside the best of others, and the verdict."""
    best = {k: max(mean[who][k] for who in others) for k in ks}
    told = ", ".join(f"k={k}: {mean['guided'][k]:.3f} ({best[k]:.3f})" for k in ks)
    return told, accuracy_verdict(best, mean["guided"]) if whole else "not judged"


def _score(
    who: str, k: int, setup: Setup, model: Any, train: pl.DataFrame, y: Any, test: pl.DataFrame, test_y: Any, seed: int
) -> float:
    import sfumato as sf
    from sfumato.anonymizers import AnonymizedModel

    qi = list(setup.qi)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few epochs, and some categories are in few rows
        if who == "guided":
            return float(AnonymizedModel(model, f"k={k}", qi=qi, seed=seed).fit(train, y).score(test, test_y))
        method: dict[str, Callable[..., Any]] = {
            "workload": partial(sf.Guided, labels=y, cross_fit=False, criterion="entropy", refine=False, look_ahead=0),
            "mondrian": partial(sf.Mondrian, output="median"),
            "hilbert": partial(sf.Hilbert, output="median"),
            "rplus": partial(sf.RPlus, output="median"),
        }
        released = method[who](f"k={k}", qi=qi).fit_transform(train)
    return float(_fitted(model, released, y).score(test, test_y))


def _elsewhere(settings: Settings) -> Row:
    """Grow the published tree on other rows than the released ones, and count who shares a leaf."""
    from sklearn.tree import DecisionTreeClassifier

    train, y, _, _ = _split("adult", settings.rows, 0)
    half, k = len(y) // 2, 10
    coded = _model("dt", train, 0)[:-1].fit_transform(train)
    tree = DecisionTreeClassifier(min_samples_leaf=k, random_state=0).fit(coded[half:], y[half:])
    least = int(np.unique(tree.apply(coded[:half]), return_counts=True)[1].min())
    return EXPERIMENT.row(
        "split",
        f"k = {least} where {k} was asked",
        "refuted" if least < k else "differs",
        "a tree whose leaves hold k of its own rows says nothing of other rows; ours grows on the released rows, and "
        "every release is measured again",
    )


def _wishes(settings: Settings) -> Iterator[Row]:
    import sfumato as sf

    train, y, test, test_y = _split("adult", settings.rows or 20_000, 1)
    qi, model = list(_EIGHT), _model("dt", train, 0)
    release = sf.anonymize(
        train.select(*qi, "hours-per-week"),
        "k=10,l=2,t=0.4",
        qi=qi,
        sensitive=["hours-per-week"],
        method=sf.Guided(labels=y),
    )
    found = release.assessment
    assert found is not None
    yield EXPERIMENT.row(
        "l-and-t",
        f"k {found.k}, l {found.l}, t {found.t:.3f}",
        "built",
        "asked: k = 10, l = 2, t = 0.4; measured again",
    )
    both = {
        how: float(
            sf.anonymizers.AnonymizedModel(model, "k=100", qi=qi, transform=how).fit(train, y).score(test, test_y)
        )
        for how in (False, True)
    }
    yield EXPERIMENT.row(
        "test-time",
        f"{both[True]:.3f} transformed, {both[False]:.3f} as they are",
        "built",
        "accuracy on test rows, k = 100, a decision tree; anonymize_model chooses by a hold-out",
    )
    hours = train["hours-per-week"].to_numpy().astype(float)
    rest = [one for one in _TWELVE if one != "hours-per-week"]
    yield EXPERIMENT.row(
        "regression", _regression(train.select(rest), hours, test, rest), "built", "R2 of working hours"
    )
    yield EXPERIMENT.row(
        "together",
        "see federated-xrays and encrypted",
        "built",
        "anonymized rows train a model that answers under encryption; holders train together, each anonymizing its own",
    )
    kinds = {how: sf.Guided("k=100", qi=qi, labels=y, output=how).fit_transform(train) for how in ("median", "medoid")}
    told = ", ".join(f"{how} {_fitted(model, rows, y).score(test, test_y):.3f}" for how, rows in kinds.items())
    yield EXPERIMENT.row(
        "mappings",
        told,
        "built",
        "accuracy after k = 100 by the representative of a class; intervals are the third kind",
    )


def _regression(train: pl.DataFrame, hours: Any, test: pl.DataFrame, names: list[str]) -> str:
    from sklearn.tree import DecisionTreeRegressor

    import sfumato as sf

    coding = _model("dt", train, 0)[:-1]
    truth = test["hours-per-week"].to_numpy().astype(float)

    def score(rows: pl.DataFrame) -> float:
        made = DecisionTreeRegressor(min_samples_leaf=50, random_state=0).fit(coding.fit_transform(rows), hours)
        return float(made.score(coding.transform(test.select(names)), truth))

    guided = sf.Guided("k=50", qi=names, labels=hours).fit_transform(train)
    plain = sf.Mondrian("k=50", qi=names, output="median").fit_transform(train)
    return f"guided {score(guided):.3f}, Mondrian {score(plain):.3f}, before {score(train):.3f}"


def _split(table: str, rows: int | None, seed: int) -> tuple[pl.DataFrame, Any, pl.DataFrame, Any]:
    """Return 40 % of the rows to anonymize and to train on, and 20 % to test on, with their labels."""
    import polars as pl

    from sfumato.data import datasets

    if table == "loan":
        frame = datasets.lending().frame.select(*_LOAN, "outcome")
        frame = frame.with_columns(target=(pl.col("outcome") == "default").cast(pl.Int64)).drop("outcome")
    else:
        frame = datasets.adult().frame.select(*_TWELVE, "income").cast({pl.Categorical: pl.String})
        frame = frame.with_columns(pl.col(pl.String).fill_null("?"))
        frame = frame.with_columns(target=pl.col("income").str.contains(">").cast(pl.Int64)).drop("income")
    order = np.random.default_rng(seed).permutation(len(frame))[:rows]
    first, second = int(0.4 * len(order)), int(0.8 * len(order))
    train, test = frame[order[:first]], frame[order[second:]]
    parts = ((one.drop("target"), one["target"].to_numpy()) for one in (train, test))
    (x, y), (test_x, test_y) = parts
    return x, y, test_x, test_y


def _model(name: str, frame: pl.DataFrame, seed: int) -> Any:
    """Return a model with its coding of categories, with the published parameters."""
    import polars as pl
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    texts = [one for one, kind in frame.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    numbers = [one for one in frame.columns if one not in texts]
    coding = ColumnTransformer(
        [
            ("texts", OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts),
            ("numbers", StandardScaler() if name == "nn" else "passthrough", numbers),
        ]
    )
    makers: dict[str, Callable[[], Any]] = {
        "nn": lambda: MLPClassifier((100,), max_iter=30, random_state=seed),
        "dt": lambda: DecisionTreeClassifier(random_state=seed),
        "rf": lambda: RandomForestClassifier(100, random_state=seed),
        "xgb": lambda: _boosting(seed) or HistGradientBoostingClassifier(random_state=seed),
    }
    return make_pipeline(coding, makers[name]())


def _boosting(seed: int) -> Any:
    """Return XGBoost, where it is installed."""
    if importlib.util.find_spec("xgboost") is None:
        return None
    return importlib.import_module("xgboost").XGBClassifier(n_jobs=1, random_state=seed)


def _substitute(setup: Setup) -> str:
    if setup.table == "loan":
        return "another loan table, Lending Club with 14 columns; "
    if setup.model == "xgb" and importlib.util.find_spec("xgboost") is None:
        return "scikit-learn's boosting in the place of XGBoost; "
    return "validation rows; " if setup.model in ("dt", "rf") else ""


def _fitted(model: Any, x: Any, y: Any) -> Any:
    from sklearn.base import clone

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # thirty epochs are few
        return clone(model).fit(x, y)


def _facts() -> dict[str, Fact]:
    found = {}
    for key, one in SETUPS.items():
        found[f"{key}-before"] = Fact(f"{one.what}: accuracy before", one.before, 0.015)
        found[key] = Fact(f"{one.what}: guided against Mondrian, Hilbert and R+", "guided is ahead; only drawn")
    for key in (key for key in SETUPS if key.endswith("nn")):
        found[f"{key}-workload"] = Fact(
            f"{SETUPS[key].what}: guided against workload-aware", "guided is ahead; only drawn"
        )
    return {
        **found,
        "split": Fact("40 % of the rows for the tree, another 40 % released: k", "k as asked"),
        "l-and-t": Fact("l-diversity and t-closeness with guidance", "wished for"),
        "test-time": Fact("the same transformation of test rows", "wished for"),
        "regression": Fact("regression", "wished for"),
        "together": Fact("together with federated learning and homomorphic encryption", "wished for"),
        "mappings": Fact("other mappings of features", "wished for"),
    }


EXPERIMENT = Experiment(
    name="guided-models",
    title="Models trained on anonymous rows",
    source='"Anonymizing Machine Learning Models", figures 2 to 5: accuracy against k',
    facts=_facts(),
    full=Settings(),
    quick=Settings(setups=("adult-8-dt",), ks=(10, 50), rows=3_000, methods=("guided", "mondrian")),
    run=run,
    needs="Lending Club in the folder SFUMATO_DATA, and hours; XGBoost if it is installed",
)
