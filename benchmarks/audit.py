"""Audits of DP-SGD: what they cost beside the training, and what they prove on MNIST at epsilon 8.

The published method (Steinke, Nasr and Jagielski 2023: the sum of the released gradients in the direction of a canary,
and their bound) and ours (the likelihood ratio, and the bound for curves) judge the same trainings of our engine, with
the same guesses: `DESIGNS`, four numbers of them that share the error rate of 5 %.
There is no published figure for MNIST. The network is the convolutional one of `sfumato train mnist`, on the embedded
10,000 images and 5,000 canaries, of which half are included.

    python audit.py [--trainings 2]
"""

from __future__ import annotations

import argparse
import time

import torch

import sfumato as sf
from sfumato.attacks import Observation, fdp_epsilon, fdp_gaussian_epsilon, observe_training, one_run_epsilon
from sfumato.attacks.auditing.bounds import shared
from sfumato.attacks.auditing.canaries import DESIGNS, guesses_of
from sfumato.learners import Sgd
from sfumato.learners.networks.architectures import architecture

CANARIES, EPSILON, DELTA = 5_000, 8.0, 1e-5


def observed(batch: int, epochs: int, seed: int) -> tuple[Observation, float]:
    """Train once, and return what was observed and the CPU seconds."""
    digits = sf.datasets.mnist()
    images = torch.from_numpy(digits.train_images).float()[:, None] / 255
    labels = torch.from_numpy(digits.train_labels).long()
    torch.manual_seed(seed)
    began = time.process_time()
    seen = observe_training(
        architecture("cnn", (1, 28, 28), 10).module,
        (images - 0.1307) / 0.3081,
        labels,
        canaries=CANARIES,
        seed=seed,
        epsilon=EPSILON,
        delta=DELTA,
        batch_size=batch,
        epochs=epochs,
        optimizer=Sgd(learning_rate=1.0),
    )
    return seen, time.process_time() - began


def main() -> None:
    """Print a row per training."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trainings", type=int, default=2)
    options.add_argument("--batches", type=int, nargs="+", default=[256, 1024])
    options.add_argument("--epochs", type=int, default=4)
    asked = options.parse_args()
    sure = shared(0.95, len(DESIGNS))
    for batch in asked.batches:
        for seed in range(asked.trainings):
            seen, training = observed(batch, asked.epochs, seed)
            began = time.process_time()
            result = seen.result("one training", seed=seed)
            own = time.process_time() - began
            sums, ratios = (guesses_of(one, seen.included) for one in (seen.sums, seen.likelihood_ratios))
            print(
                f"batch {batch}, {len(seen.rates)} steps of rate {seen.rates[0]:.4f}, noise {seen.noises[0]:.3f}: "
                f"published (sum, one-run bound) {max(one_run_epsilon(one, DELTA, sure) for one in sums):.2f}; "
                f"likelihood ratio, one-run bound {max(one_run_epsilon(one, DELTA, sure) for one in ratios):.2f}; "
                f"sum, curves {max(fdp_gaussian_epsilon(one, DELTA, sure) for one in sums):.2f} if Gaussian; "
                f"ours, likelihood ratio and curves: {max(fdp_epsilon(one, DELTA, sure) for one in ratios):.2f}, "
                f"{max(fdp_gaussian_epsilon(one, DELTA, sure) for one in ratios):.2f} if Gaussian; "
                f"could have shown {result.could_have_shown:.2f}; passed {result.passed}; "
                f"training {training:.0f} CPU s, audit {own:.2f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
