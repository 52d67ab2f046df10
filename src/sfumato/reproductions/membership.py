"""Membership inference against forests and networks, with and without protection."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sfumato.errors import FileError
from sfumato.reproductions.values import Experiment, Fact, Figure, Row

__all__ = ["EXPERIMENT", "TARGETS", "Settings", "Target", "told", "verdict_of"]

_ATTACK = "network"  # the attack network of the publication
_NEAR, _STOPPED, _MORE = 0.03, 0.02, 0.01
"""How far the attack's accuracy may be from, and above, the printed one, and what counts as a better test accuracy."""
_TWELVE = [
    "age",
    "workclass",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
]
_LOAN = [
    "loan_amnt",
    "term",
    "annual_inc",
    "dti",
    "payment_inc_ratio",
    "revol_bal",
    "revol_util",
    "purpose",
    "home_ownership",
    "delinq_2yrs_zero",
    "pub_rec_zero",
    "open_acc",
    "grade",
    "emp_length",
]


class Target(NamedTuple):
    """A row of the published table: what is trained, how it is protected, and the five printed figures."""

    what: str
    table: str
    model: str
    protect: str | None
    printed: tuple[float, float, float, float, float]
    """Accuracy on training and on test rows; accuracy, precision and recall of the attack."""


TARGETS = {
    "adult-rf": Target("Adult, random forest", "adult", "forest", None, (0.98, 0.83, 0.58, 0.56, 0.78)),
    "adult-rf-k50": Target(
        "Adult, random forest, k = 50", "adult", "forest", "guided:k=50", (0.85, 0.83, 0.51, 0.51, 0.33)
    ),
    "adult-rf-k100": Target(
        "Adult, random forest, k = 100", "adult", "forest", "guided:k=100", (0.85, 0.81, 0.50, 0.50, 0.76)
    ),
    "adult-rf-e10": Target(
        "Adult, random forest, epsilon 10", "adult", "forest", "dp:epsilon=10", (0.82, 0.81, 0.53, 0.52, 0.95)
    ),
    "adult-rf-e1": Target(
        "Adult, random forest, epsilon 1", "adult", "forest", "dp:epsilon=1", (0.80, 0.79, 0.50, 0.52, 0.13)
    ),
    "adult-nn": Target("Adult, network", "adult", "network", None, (0.96, 0.89, 0.53, 0.52, 0.60)),
    "adult-nn-k25": Target("Adult, network, k = 25", "adult", "network", "guided:k=25", (0.84, 0.82, 0.50, 0.50, 0.71)),
    "adult-nn-k50": Target("Adult, network, k = 50", "adult", "network", "guided:k=50", (0.84, 0.81, 0.50, 0.50, 0.32)),
    "adult-nn-e2.11": Target(
        "Adult, network, epsilon 2.11, delta 1e-5", "adult", "mlp", "dp:epsilon=2.11", (0.83, 0.83, 0.50, 0.50, 0.14)
    ),
    "loan-rf": Target("Loan, random forest", "loan", "forest", None, (1.0, 0.92, 0.67, 0.65, 0.71)),
    "loan-rf-k100": Target(
        "Loan, random forest, k = 100", "loan", "forest", "guided:k=100", (1.0, 0.92, 0.51, 0.51, 0.29)
    ),
    "loan-rf-e10": Target(
        "Loan, random forest, epsilon 10", "loan", "forest", "dp:epsilon=10", (0.82, 0.81, 0.50, 0.66, 0.0094)
    ),
    "loan-rf-e1": Target(
        "Loan, random forest, epsilon 1", "loan", "forest", "dp:epsilon=1", (0.82, 0.80, 0.50, 0.50, 0.18)
    ),
    "loan-nn": Target("Loan, network", "loan", "network", None, (0.95, 0.95, 0.54, 0.53, 0.67)),
    "loan-nn-k200": Target("Loan, network, k = 200", "loan", "network", "guided:k=200", (0.95, 0.92, 0.50, 0.50, 0.46)),
    "loan-nn-e3.1": Target(
        "Loan, network, epsilon 3.1, delta 1e-5", "loan", "mlp", "dp:epsilon=3.1", (0.87, 0.87, 0.50, 0.50, 0.47)
    ),
}


@dataclass(frozen=True)
class Settings:
    """Which targets are attacked, and how hard."""

    targets: tuple[str, ...] = tuple(TARGETS)
    rows: int | None = None
    """Only the first rows of each table."""
    references: int = 16
    rmia: bool = True
    """Also the attack RMIA, which is stronger than the published one."""
    seed: int = 0


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Train each target on a random half of the rows and attack it."""
    tables: dict[str, Any] = {}
    for key in settings.targets:
        target = TARGETS[key]
        try:
            if target.table not in tables:
                tables[target.table] = _table(target.table, settings.rows)
        except FileError as error:
            yield EXPERIMENT.row(key, None, "not judged", str(error))
            continue
        ours, auc = _attacked(target, tables[target.table], settings)
        whole = settings.rows is None
        verdict = verdict_of(target, ours, whole=whole)
        stronger = "" if auc is None else f"; RMIA, a stronger attack, has AUC {auc:.3f}"
        size = "" if whole else f"; {settings.rows:,} rows only"
        yield EXPERIMENT.row(key, told(ours), verdict, f"{note_of(target)}{stronger}{size}")


def verdict_of(target: Target, ours: tuple[float, ...], *, whole: bool = True) -> str:
    """Return the verdict on the attack's accuracy: near the printed one, or for a protected model not above it.

    A protected model is better if its test accuracy is also above the printed one, on the published table.

    Examples
    --------
    >>> verdict_of(TARGETS["adult-rf"], (0.98, 0.85, 0.595, 0.56, 0.85))
    'reproduced'
    >>> verdict_of(TARGETS["adult-rf-e1"], (0.843, 0.844, 0.501, 0.501, 0.61))
    'better'
    """
    if not whole:
        return "not judged"
    if target.protect is None:
        return "reproduced" if abs(ours[2] - target.printed[2]) <= _NEAR else "differs"
    if ours[2] > target.printed[2] + _STOPPED:
        return "differs"
    return "better" if target.table != "loan" and ours[1] > target.printed[1] + _MORE else "reproduced"


def note_of(target: Target) -> str:
    """Return what is judged, and what differs from the published setting."""
    judged = f"attack ± {_NEAR:g}" if target.protect is None else f"attack at most {target.printed[2] + _STOPPED:g}"
    return f"judged: {judged}; {_setting(target)}"


def _setting(target: Target) -> str:
    if target.table == "loan":
        return (
            "another loan table (119,987 finished loans of Lending Club, 14 columns): the published one was not found"
        )
    if target.protect is not None and target.protect.startswith("dp"):
        return "our own private model, epsilon for adding or removing one record"
    return "half of all 48,842 rows are members"


def told(figures: tuple[float, ...]) -> str:
    """Write the five figures of a target.

    Examples
    --------
    >>> told((0.98, 0.83, 0.58, 0.56, 0.78))
    'train .98, test .83, attack .58, precision .56, recall .78'
    """
    names = ("train", "test", "attack", "precision", "recall")
    parts = (f"{name} {_short(one)}" for name, one in zip(names, figures, strict=True))
    return ", ".join(parts)


def _short(value: float) -> str:
    if math.isnan(value):
        return "none"
    text = f"{value:.2g}" if 0 < value < 0.01 else f"{round(value, 3):g}"
    return text.removeprefix("0") if text.startswith("0.") else text


def _table(name: str, rows: int | None) -> tuple[Any, str]:
    """Return a table with the published columns, and its target."""
    import polars as pl

    import sfumato as sf

    if name == "loan":
        table, target = sf.Table(sf.datasets.lending().frame.select(*_LOAN, "outcome").head(rows or 10**9)), "outcome"
        return table, target
    public = sf.datasets.adult()
    names = [*_TWELVE, "income"]
    frame = public.to_polars().select(names).cast({pl.Categorical: pl.String}).head(rows or 10**9)
    schema = sf.Schema(
        sf.Column(name=one, bounds=public.schema[one].bounds, domain=public.schema[one].domain) for one in names
    )
    return sf.Table(frame, schema), "income"


def _attacked(target: Target, given: tuple[Any, str], settings: Settings) -> tuple[tuple[float, ...], float | None]:
    """Return the five figures, and the AUC of RMIA."""
    import sfumato as sf

    table, label = given

    report = sf.attack(
        table,
        target=label,
        model=_network(table, label) if target.model == "network" else target.model,
        protect=target.protect,
        attacks=[_ATTACK, *(["rmia"] if settings.rmia else [])],
        references=settings.references,
        seed=settings.seed,
        processes=1,
    )
    found = {one.name: one for one in report.results}
    plain, network = report.target, found[_ATTACK]
    figures = (plain["train_accuracy"], plain["test_accuracy"], network.accuracy)
    more = (network.to_dict()["precision"], network.to_dict()["recall"])
    auc = found["rmia"].auc if "rmia" in found else None
    return tuple(math.nan if one is None else float(one) for one in (*figures, *more)), auc


def _network(table: Any, label: str) -> Any:
    """Return the published network: 1024-512-256, tanh, Adam with rate 0.0001."""
    import polars as pl
    from sklearn.compose import ColumnTransformer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = table.to_polars().drop(label)
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    numbers = [name for name in frame.columns if name not in texts]
    coding = ColumnTransformer(
        [("texts", OneHotEncoder(handle_unknown="ignore"), texts), ("numbers", StandardScaler(), numbers)]
    )
    network = MLPClassifier((1024, 512, 256), activation="tanh", learning_rate_init=1e-4, max_iter=60)
    return make_pipeline(coding, network)


EXPERIMENT = Experiment(
    name="membership",
    title="Membership inference against protected models",
    source='"Anonymizing Machine Learning Models", table 1: whether a record was in the training data',
    facts={key: Fact(one.what, told(one.printed)) for key, one in TARGETS.items()},
    full=Settings(),
    quick=Settings(targets=("adult-rf", "adult-rf-k50", "adult-rf-e1"), rows=3_000, references=4),
    run=run,
    needs="Lending Club in the folder SFUMATO_DATA, the extra torch, and many CPU hours for the networks",
    full_extra="torch",
)
