"""Attribute inference against a decision tree on Nursery, which knows the social situation of families."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.reproductions.values import Curves, Experiment, Fact, Figure, Row

__all__ = ["EXPERIMENT", "Settings"]

_ITEMS = ("purchase", "purchase-k2", "purchase-dp")
_BELOW = "the printed attack is below always guessing the most frequent answer"


@dataclass(frozen=True)
class Settings:
    """How many trees are attacked, each on another random half of all rows."""

    targets: int = 5
    k: int = 100
    items: bool = True
    """Also the accuracy of models of shopping baskets, on Location30 in the folder that SFUMATO_DATA names."""


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Attack trees with and without guided anonymization."""
    bars: dict[str, list[tuple[float, float]]] = {}
    for key, protect in (("tree", None), ("anonymous", settings.k)):
        each = [_attacked(protect, number) for number in range(settings.targets)]
        mean = {name: statistics.mean(one[name] for one in each) for name in each[0] if name != "precision"}
        known = [one["precision"] for one in each if one["precision"] is not None]
        who = f"{settings.targets} tree{'s' * (settings.targets > 1)}, half of the rows each"
        yield EXPERIMENT.compared(f"{key}-test", mean["test"], who, larger=True)
        verdict = "refuted" if mean["majority"] > float(EXPERIMENT.facts[f"{key}-attack"].printed or 0) else "differs"
        yield EXPERIMENT.row(
            f"{key}-attack",
            mean["accuracy"],
            verdict,
            f"{_BELOW} ({mean['majority']:.3f}); ours is right about {mean['control']:.3f} of people it never saw, "
            f"so that it finds what is true of everyone",
        )
        precise = f"{statistics.mean(known):.3f}" if known else "never answers 'problematic'"
        yield EXPERIMENT.row(
            f"{key}-precision", precise, "differs", "of an attack that beats guessing; the printed one does not"
        )
        yield EXPERIMENT.row(f"{key}-recall", mean["recall"], "differs", "as above")
        bars[key] = [(float(at), one["accuracy"] - one["control"]) for at, one in enumerate(each)]
    yield Curves("Right guesses about members less those about others", "tree", "difference", bars)
    if settings.items:
        yield from _items()


def _items() -> Iterator[Row]:
    """Compare a plain, an anonymized and a private model of several hundred yes-or-no columns."""
    import polars as pl
    from sklearn.linear_model import LogisticRegression

    import sfumato as sf
    from sfumato.anonymizers import AnonymizedModel

    path = Path(os.environ.get("SFUMATO_DATA", "."), "location30", "location30.npz")
    if not path.is_file():
        for key in _ITEMS:
            yield EXPERIMENT.row(key, None, "not judged", "give SFUMATO_DATA/location30/location30.npz")
        return
    with np.load(path, allow_pickle=False) as stored:
        rows = np.unpackbits(stored["X"], axis=1)[:, : int(stored["n_features"])].astype(np.int64)
        places = stored["y"].astype(str)
    names = [f"item {at}" for at in range(rows.shape[1])]
    columns = [*(sf.Column(name=one, bounds=(0, 1)) for one in names)]
    schema = sf.Schema([*columns, sf.Column(name="place", domain=tuple(sorted(set(places))))])
    half, rest = np.array_split(np.random.default_rng(0).permutation(len(places)), 2)
    x, test_x = (pl.DataFrame(rows[part], schema=names) for part in (half, rest))
    y, test_y = places[half], places[rest]
    plain = LogisticRegression(max_iter=200)
    anonymous = AnonymizedModel(plain, "k=2", qi=names, guide="true", transform=False).fit(x, y)
    private = _private_linear(sf.Table(x.with_columns(place=pl.Series(y)), schema), len(names))
    tests = sf.Table(test_x.with_columns(place=pl.Series(test_y)), schema)
    found = {
        "purchase": plain.fit(x.to_numpy(), y).score(test_x.to_numpy(), test_y),
        "purchase-k2": anonymous.score(test_x, test_y),
        "purchase-dp": private.score(tests, "place"),
    }
    as_printed = found["purchase"] > found["purchase-dp"] > found["purchase-k2"]
    order = f"the order of the three is {'' if as_printed else 'not '}as printed"
    data = "Purchase100 was not found: Location30 instead, 5,010 records of 446 yes-or-no columns in 30 classes"
    for key, model in zip(_ITEMS, ("linear", "linear, guided", "linear, epsilon 10 (none was printed)"), strict=True):
        yield EXPERIMENT.row(key, float(found[key]), "differs", f"{data}; {model}; {order}")


def _private_linear(table: Any, width: int) -> Any:
    import torch
    from torch import nn

    from sfumato.learners import PrivateClassifier

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        options: dict[str, Any] = {"batch_size": 500, "epochs": 40, "learning_rate": 1.0, "seed": 0}
        return PrivateClassifier(model=nn.Sequential(nn.Linear(width, 30)), epsilon=10, **options).fit(table, "place")


def _attacked(k: int | None, number: int) -> dict[str, Any]:
    """Train a tree on a random half of all rows, guess `social` of members and of others."""
    import polars as pl

    import sfumato as sf
    from sfumato.anonymizers import AnonymizedModel
    from sfumato.attacks import (
        AttributeInference,
        FitEstimator,
        ModelTarget,
        procedure_of,
        records_of,
        run_attacks,
    )

    frame = sf.datasets.nursery().to_polars().cast(pl.String)
    table = sf.Table(frame.filter(pl.len().over("class") > 2))  # one class has two rows
    pool = records_of(table, "class")
    train = procedure_of("tree", None, table, "class")
    if k is not None:
        model = AnonymizedModel(
            train.estimator, f"k={k}", qi=train.columns or (), guide="true", cut_by="qi", transform=False
        )
        train = FitEstimator(model, columns=train.columns)
    order = np.random.default_rng([19, number]).permutation(len(pool))
    members, others = (pool.take(np.sort(part)) for part in np.array_split(order, 2))
    target = ModelTarget(train(members, 500 + number), classes=np.unique(np.asarray(pool.labels)))
    attack = AttributeInference("social", positive="problematic")
    found = run_attacks([attack], target, members, others, seed=number).results[0].to_dict()
    return {
        "test": target.accuracy(others),
        "majority": found["details"]["members"]["majority"],
        **{name: found[name] for name in ("accuracy", "precision", "recall", "control")},
    }


EXPERIMENT = Experiment(
    name="attributes",
    title="Attribute inference on Nursery",
    source='"Anonymizing Machine Learning Models", table 2: whether a family\'s social situation is problematic',
    facts={
        "tree-test": Fact("decision tree: test accuracy", 0.68, 0.02),
        "tree-attack": Fact("decision tree: accuracy of the attack", 0.61),
        "tree-precision": Fact("decision tree: precision of the attack", 0.41),
        "tree-recall": Fact("decision tree: recall of the attack", 0.32),
        "anonymous-test": Fact("k = 100: test accuracy", 0.74, 0.02),
        "anonymous-attack": Fact("k = 100: accuracy of the attack", 0.56),
        "anonymous-precision": Fact("k = 100: precision of the attack", 0.31),
        "anonymous-recall": Fact("k = 100: recall of the attack", 0.21),
        "purchase": Fact("Purchase100, original: accuracy", 0.66),
        "purchase-k2": Fact("Purchase100, k = 2: accuracy", 0.24),
        "purchase-dp": Fact("Purchase100, differential privacy: accuracy", 0.42),
    },
    full=Settings(),
    quick=Settings(targets=1, items=False),
    run=run,
    needs="Location30 in the folder SFUMATO_DATA, for the three rows of Purchase100, and the extra torch",
    full_extra="torch",
)
