"""How far estimates of population uniques are off: samples of Adult, taken as a population of 48,842 people.

Run ``python population_estimates.py [DRAWS]``: it prints one row per sampling fraction.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

import sfumato as sf
from sfumato.engines import reduce
from sfumato.measures import PopulationUniques, population_uniques

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)
DRAWS = 60


def draw(sizes: np.ndarray, fraction: float, seed: int) -> PopulationUniques:
    """Estimate from one simple random sample."""
    dice = np.random.default_rng(seed)
    rows = round(fraction * sizes.sum())
    seen = np.bincount(dice.permutation(np.repeat(np.arange(len(sizes)), sizes))[:rows], minlength=len(sizes))
    classes = np.unique(seen[seen > 0], return_counts=True)
    return population_uniques(dict(zip(*(part.tolist() for part in classes), strict=True)), int(sizes.sum()))


def main(draws: int = DRAWS) -> Iterator[str]:
    """Yield a row for each fraction: how often Pitman fits, and the errors of Pitman and of the chosen estimate."""
    adult = sf.datasets.adult()
    sizes = reduce(adult, adult.schema.quasi).count
    true = int((sizes == 1).sum())
    for fraction in FRACTIONS:
        found = [draw(sizes, fraction, seed) for seed in range(draws)]
        pitman = np.array([one.pitman / true - 1 for one in found if one.pitman is not None])
        chosen = np.array([one.uniques / true - 1 for one in found])
        low, high = np.quantile(chosen, (0.1, 0.9))
        fits = f"{len(pitman)} of {draws}, mean {pitman.mean():+.0%}" if len(pitman) else f"0 of {draws}"
        yield (
            f"| {fraction:.0%} ({found[0].rows:,} rows) | {fits} | {chosen.mean():+.0%} | {np.median(chosen):+.0%} | "
            f"{low:+.0%} to {high:+.0%} | {chosen.min():+.0%} to {chosen.max():+.0%} |"
        )


if __name__ == "__main__":
    print("| sample | Pitman fits | chosen: mean | median | 10 % to 90 % | all draws |\n|---|---|---|---|---|---|")
    for row in main(*map(int, sys.argv[1:])):
        print(row, flush=True)
