"""PneumoniaMNIST, pooled and with 10 holders: accuracy and AUC on the test images, with and without masks.

python benchmarks/federation.py --seeds 1 --rounds 10
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from sklearn.metrics import roc_auc_score

import sfumato as sf
from sfumato.federation import FederationPlan, simulate


def main() -> None:
    """Print one line of JSON per run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--epochs", type=int, default=1)
    options.add_argument("--rate", type=float, default=0.02)
    given = options.parse_args()
    images = sf.datasets.pneumonia()
    train, validation, test = (
        (part[:, None].astype(np.float32) / 255, np.asarray(labels).astype(np.int64))
        for part, labels in (
            (images.train_images, images.train_labels),
            (images.validation_images, images.validation_labels),
            (images.test_images, images.test_labels),
        )
    )
    for seed in range(given.seeds):
        order = np.random.default_rng(seed).permutation(len(train[0]))
        for clients, secure in ((1, "none"), (10, "none"), (10, "masks")):
            plan = FederationPlan(
                model="cnn",
                inputs=(1, 28, 28),
                classes=2,
                rounds=given.rounds,
                epochs=given.epochs,
                learning_rate=given.rate,
                threshold=1 if clients == 1 else 7,
                seed=seed,
            )
            began = time.monotonic()
            parts = [(train[0][one], train[1][one]) for one in np.array_split(order, clients)]
            found = simulate(plan, parts, test=test, secure=secure)
            last = found.rounds[-1]
            area = roc_auc_score(test[1], found.probabilities(test[0])[:, 1])
            chosen_by = roc_auc_score(validation[1], found.probabilities(validation[0])[:, 1])
            facts = {
                "seed": seed,
                "clients": clients,
                "secure": secure,
                "accuracy": last.accuracy,
                "auc": area,
                "validation auc": chosen_by,
            }
            print(json.dumps({**facts, "bytes": last.bytes, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
