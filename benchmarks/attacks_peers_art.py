"""Our attacks beside those of ART that define the same thing: the gap attack, and model inversion by MI-Face.

ART runs in our environment:

    pip install --no-deps --target /tmp/art adversarial-robustness-toolbox==1.20.1 six tqdm
    python attacks_peers_art.py /tmp/art

Its attack network is in `attacks.py --published-network`.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier

import sfumato as sf
from sfumato.attacks import ModelTarget, Records, attacks_of, invert


def main() -> None:
    """Print how far the results are apart."""
    sys.path.append(sys.argv[1])
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    images = sf.datasets.mnist()
    pixels, labels = images.train_images[:4000] / np.float32(255), images.train_labels[:4000].astype(np.int64)
    inside, outside = Records(pixels[:2000], labels[:2000]), Records(pixels[2000:], labels[2000:])
    _gap(inside, outside)
    _inversion(inside)


def _art(module: str) -> Any:
    """Return a module of ART, which our environment does not have."""
    return importlib.import_module(f"art.{module}")


def _gap(inside: Records, outside: Records) -> None:
    flat = [Records(np.asarray(one.rows).reshape(len(one), -1), one.labels) for one in (inside, outside)]
    forest = RandomForestClassifier(20, max_depth=8, random_state=0).fit(flat[0].rows, flat[0].labels)
    (gap,) = attacks_of(["gap"])
    ours = gap.run(ModelTarget(forest), flat[0], flat[1], seed=0)
    wrapped = _art("estimators.classification").SklearnClassifier(forest)
    peer = _art("attacks.inference.membership_inference").MembershipInferenceBlackBoxRuleBased(wrapped)
    differing = sum(
        int((peer.infer(one.rows, np.eye(10)[one.labels]).ravel() != scores).sum())
        for one, scores in zip(flat, (ours.members, ours.nonmembers), strict=True)
    )
    print(f"gap: {differing} of {len(inside) + len(outside):,} records are called differently")


def _inversion(people: Records) -> None:
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10)
    )
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    rows, labels = torch.from_numpy(np.asarray(people.rows)), torch.from_numpy(np.asarray(people.labels))
    for start in [*range(0, len(rows), 100)] * 5:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(network(rows[start : start + 100]), labels[start : start + 100])
        loss.backward()
        optimizer.step()
    classifier = _art("estimators.classification").PyTorchClassifier(
        torch.nn.Sequential(network, torch.nn.Softmax(1)),
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=(1, 28, 28),
        nb_classes=10,
        clip_values=(0, 1),
    )
    for steps in (1, 50, 300):
        peer = _art("attacks.inference.model_inversion").MIFace(
            classifier, max_iter=steps, threshold=1.0, batch_size=10, verbose=False, learning_rate=0.1
        )
        theirs = peer.infer(None, np.arange(10))
        ours = invert(
            network,
            shape=(1, 28, 28),
            method="mi-face",
            steps=steps,
            learning_rate=0.1,
            enough=1.0,
            patience=10**6,
        )
        apart = np.abs(theirs - ours.representatives).max()
        print(f"MI-Face after {steps} steps: pixels from 0 to 1 differ by at most {apart:.1e}")


if __name__ == "__main__":
    main()
