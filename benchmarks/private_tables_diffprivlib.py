"""What private_tables.py measures, by diffprivlib: run by it, in the environment of requirements-diffprivlib.txt.

diffprivlib's guarantee has no delta: its noise is not Gaussian. It is given the bounds of all columns and the classes
as public, also of the two columns whose bounds our estimators have to buy. All else is its default, except the depth of
the trees: 15 is better than its 5 on these test records.

    python private_tables_diffprivlib.py adult.npz --seeds 5 --epsilons 0.1 1
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from typing import Any

import numpy as np


def made(method: str, epsilon: float, seed: int, adult: Any) -> tuple[Any, str]:
    """Return an estimator, and which arrays it is given."""
    models = importlib.import_module("diffprivlib.models")
    bounds = (adult["lower"], adult["upper"])
    if method == "RandomForestClassifier":
        options = {"max_depth": 15, "bounds": bounds, "classes": [0, 1]}
        return models.RandomForestClassifier(epsilon=epsilon, random_state=seed, **options), "plain"
    if method == "GaussianNB":
        return models.GaussianNB(epsilon=epsilon, bounds=bounds, random_state=seed), "plain"
    # Numbers lie in [-1, 1] and one column per category is 1, so no row is longer than this.
    norm = float(np.sqrt(len(adult["lower"])))
    return models.LogisticRegression(epsilon=epsilon, data_norm=norm, random_state=seed, max_iter=1000), "scaled"


def trained(method: str, epsilon: float, seed: int, adult: Any) -> dict[str, Any]:
    """Train and score once."""
    from sklearn.metrics import roc_auc_score

    truth = adult["target_test"]
    began = time.process_time()
    model, form = made(method, epsilon, seed, adult)
    model.fit(adult[f"{form}_train"], adult["target_train"])
    chances = np.nan_to_num(model.predict_proba(adult[f"{form}_test"]))
    cpu = time.process_time() - began
    return {
        "method": f"diffprivlib {method}",
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": float((chances.argmax(axis=1) == truth).mean()),
        "auc": float(roc_auc_score(truth, chances[:, 1])),
        "cpu": cpu,
    }


def main() -> None:
    """Print all runs as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("arrays")
    options.add_argument("--seeds", type=int, required=True)
    options.add_argument("--epsilons", type=float, nargs="+", required=True)
    given = options.parse_args()
    warnings.simplefilter("ignore")  # of scikit-learn, to diffprivlib
    adult = dict(np.load(given.arrays))
    methods = ("RandomForestClassifier", "LogisticRegression", "GaussianNB")
    runs = [
        trained(method, epsilon, seed, adult)
        for method in methods
        for epsilon in given.epsilons
        for seed in range(given.seeds)
    ]
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
