"""Accuracy under differential privacy on the Adult table: every private estimator, at several epsilon.

All train on the official training part and are scored on the test part. The hyper-parameters are the defaults of the
classes, which were chosen within the training part; the test part is only scored. Every run is kept in
private_tables.json, so that an interrupted study goes on. What an estimator has to buy (the bounds of two columns) is
part of its epsilon.

    python private_tables.py                      runs what is missing, and prints the table
    python private_tables.py --peer VENV/bin/python     also diffprivlib, in the environment of
                                                  requirements-diffprivlib.txt
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, roc_auc_score

from sfumato import learners
from sfumato.data import datasets
from sfumato.learners.estimators.features import Columns, Features, Undeclared, describe

KEPT = Path(__file__).with_suffix(".json")
PEER = Path(__file__).with_name("private_tables_diffprivlib.py")
EPSILONS, DELTA, SEEDS = (0.1, 0.5, 1.0, 3.0, 10.0, math.inf), 1e-5, 5
TARGET = "income"


def ours(name: str, **options: Any) -> Callable[[float, int], Any]:
    """Return what makes one of our estimators, given epsilon and a seed."""

    def made(epsilon: float, seed: int) -> Any:
        kind = getattr(learners, name)
        known = kind().get_params(deep=False)
        seeds = {one: seed for one in ("random_state", "seed") if one in known}
        return kind(epsilon=epsilon, delta=DELTA, insecure_seed=seed, **seeds, **options)

    return made


METHODS = {
    "PrivateAdditiveClassifier": ours("PrivateAdditiveClassifier"),
    "PrivateLogisticRegression": ours("PrivateLogisticRegression"),
    "PrivateRandomForest": ours("PrivateRandomForest"),
    "PrivateNaiveBayes": ours("PrivateNaiveBayes"),
    'PrivateClassifier("logistic")': ours("PrivateClassifier", model="logistic"),
    'PrivateClassifier("mlp")': ours("PrivateClassifier", model="mlp"),
}


def trained(method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Train and score once."""
    train, test = datasets.adult("train"), datasets.adult("test")
    truth = test.column(TARGET).to_numpy()
    began = time.process_time()
    model = METHODS[method](epsilon, seed).fit(train, TARGET)
    chances = model.predict_proba(test)
    cpu = time.process_time() - began
    found = model.classes_[chances.argmax(axis=1)]
    return {
        "method": method,
        "epsilon": "none" if epsilon == math.inf else epsilon,
        "seed": seed,
        "accuracy": float(accuracy_score(truth, found)),
        "auc": float(roc_auc_score(truth == model.classes_[1], chances[:, 1])),
        "cpu": cpu,
    }


def arrays() -> dict[str, Any]:
    """Return Adult as arrays, for a peer that takes nothing else.

    Numbers as they are with categories as their places, and scaled with a column per category. What the schema does
    not declare, the peer gets to know without paying.
    """
    parts = {"train": Columns.of(datasets.adult("train")), "test": Columns.of(datasets.adult("test"))}
    public = describe(parts["train"], None)
    known = [
        one.read(values) if isinstance(one, Undeclared) else one
        for one, values in zip(public, parts["train"].values, strict=True)
    ]
    at = parts["train"].names.index(TARGET)
    features = Features(tuple(one for one in known if one.name != TARGET))
    kept: dict[str, Any] = {}
    for part, columns in parts.items():
        given = Columns(tuple(one for one in columns.values if one.name != TARGET), columns.schema, columns.named)
        kept[f"scaled_{part}"] = features.matrix(given)
        kept[f"plain_{part}"] = np.stack(
            [
                one.numbers(values) if one.is_number else one.codes(values).astype(np.float64)
                for one, values in zip(features.features, given.values, strict=True)
            ],
            axis=1,
        )
        kept[f"target_{part}"] = known[at].codes(columns.values[at])
    kept["lower"] = np.array([one.bounds[0] if one.bounds else 0 for one in features.features])
    kept["upper"] = np.array([one.bounds[1] if one.bounds else len(one.domain or ()) for one in features.features])
    return kept


def runs_of_peer(python: str) -> list[dict[str, Any]]:
    """Run the script of the peer in its environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "adult.npz")
        np.savez(path, **arrays())
        finite = [str(epsilon) for epsilon in EPSILONS if epsilon != math.inf]
        command = [python, str(PEER), str(path), "--seeds", str(SEEDS), "--epsilons", *finite]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: list[dict[str, Any]] = json.loads(told)
    return found


def study(methods: list[str], peer: str | None) -> list[dict[str, Any]]:
    """Run what is missing."""
    runs: list[dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else []
    done = {(run["method"], run["epsilon"], run["seed"]) for run in runs}
    for method in methods:
        for epsilon in EPSILONS:
            for seed in range(SEEDS):
                if (method, "none" if epsilon == math.inf else epsilon, seed) not in done:
                    runs.append(trained(method, epsilon, seed))
                    KEPT.write_text(json.dumps(runs, indent=1) + "\n")
    if peer is not None:
        fresh = runs_of_peer(peer)
        names = {run["method"] for run in fresh}
        runs = [run for run in runs if run["method"] not in names] + fresh
        KEPT.write_text(json.dumps(runs, indent=1) + "\n")
    return runs


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table: accuracy and its spread, AUC, and CPU seconds of a fit."""
    names = list(dict.fromkeys(run["method"] for run in runs))
    heads = ["none" if epsilon == math.inf else f"{epsilon:g}" for epsilon in EPSILONS]
    lines = [
        "| accuracy, % (spread of runs); AUC | " + " | ".join(f"epsilon {head}" for head in heads) + " | CPU s |",
        "|---|" + "---|" * (len(heads) + 1),
    ]
    for name in names:
        cells = []
        for epsilon in EPSILONS:
            shown = "none" if epsilon == math.inf else epsilon
            mine = [run for run in runs if run["method"] == name and run["epsilon"] == shown]
            found = [100 * run["accuracy"] for run in mine]
            cells.append(
                f"{statistics.mean(found):.2f} ({statistics.pstdev(found):.2f}); "
                f"{statistics.mean(run['auc'] for run in mine):.3f}"
                if mine
                else ""
            )
        cpu = statistics.median(run["cpu"] for run in runs if run["method"] == name)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {cpu:.1f} |")
    return lines


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows at epsilon 1; docs/explanation/private-estimators.md has the others."""
    rows = []
    for name, mine in itertools.groupby(study(list(METHODS), None), key=lambda run: run["method"]):
        found = [run for run in mine if run["epsilon"] == 1.0]
        accuracy = [run["accuracy"] for run in found]
        auc, cpu = statistics.mean(run["auc"] for run in found), statistics.median(run["cpu"] for run in found)
        rows.append(
            (
                f"Adult, official split, epsilon 1, delta 1e-5, {len(found)} seeds: {name}, {cpu:.1f} CPU s",
                f"{statistics.mean(accuracy):.2%}, spread {statistics.pstdev(accuracy):.2%}, AUC {auc:.3f}",
                "at least 84.5% with the best" if name == "PrivateAdditiveClassifier" else "",
            )
        )
    return rows


def tell() -> None:
    """Run what is missing, and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", choices=METHODS, default=list(METHODS), help="which of our estimators")
    options.add_argument("--peer", metavar="PYTHON", help="the interpreter of an environment with diffprivlib")
    given = options.parse_args()
    print("\n".join(table(study(given.only, given.peer))))


if __name__ == "__main__":
    tell()
