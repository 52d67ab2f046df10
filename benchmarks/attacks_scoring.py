"""Measure the CPU time of scoring by each attack with reference models, and of training references at once.

    python benchmarks/attacks_scoring.py [--rows 40000] [--references 32] [--stack]

Scoring alone is measured: the reference models' answers are made up, half of the records are members.
`--stack` trains small networks on made-up records, one by one and at once, and compares.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from sfumato.attacks import Records, StackedNetworks, attacks_of
from sfumato.attacks.membership.references import ReferenceAttack, halves
from sfumato.attacks.membership.signals import Signals


class Answers:
    """A target whose reference models have answered already."""

    def __init__(self, signals: Signals) -> None:
        self.found = signals

    def signals(self, members: Any, nonmembers: Any, seed: int) -> Signals:
        """Return the answers."""
        return self.found


def score(rows: int, references: int) -> None:
    """Print the CPU seconds of each attack: the best of five."""
    rng = np.random.default_rng(0)
    inside = halves(rows, references, seed=0)
    logits = rng.normal(size=rows) + rng.normal(size=(references + 1, rows))
    logits[1:] += inside
    logits[0, : rows // 2] += 1
    p = 1 / (1 + np.exp(-logits))
    target = Answers(Signals(p[0], p[1:], inside))
    members, nonmembers = (Records(np.zeros((rows // 2, 1))) for _ in range(2))
    print(f"scoring {rows:,} records with {references} references, CPU s")
    for attack in attacks_of():
        if not isinstance(attack, ReferenceAttack):
            continue
        times = []
        for _ in range(5):
            began = time.process_time()
            found = attack.run(target, members, nonmembers, seed=0)
            times.append(time.process_time() - began)
        wins = np.mean(found.members > np.median(found.nonmembers))
        print(f"  {attack.name:16} {min(times):.3f}   {wins:.3f} of the members above the median of the others")


def stack(networks: int, rows: int, columns: int, hidden: tuple[int, ...], device: str) -> None:
    """Print the time of training networks one by one and at once."""
    rng = np.random.default_rng(0)
    pool = Records((rng.random((rows, columns)) < 0.2).astype(np.float32), rng.integers(0, 30, rows))
    train = StackedNetworks(range(30), options={"hidden": hidden}, epochs=3, batch_size=100, device=device)
    inside, seeds = halves(rows, networks, 0), list(range(networks))
    train.together(pool, inside[:2], seeds[:2])  # warm
    began = time.perf_counter()
    together = train.together(pool, inside, seeds)
    middle = time.perf_counter()
    alone = [train(pool.take(np.flatnonzero(one)), seed) for one, seed in zip(inside, seeds, strict=True)]
    end = time.perf_counter()
    pairs = zip(together, alone, strict=True)
    apart = max(np.abs(a.predict_proba(pool.rows) - b.predict_proba(pool.rows)).max() for a, b in pairs)
    shape = "-".join(map(str, (columns, *hidden, 30)))
    one_by_one, at_once = end - middle, middle - began
    print(
        f"{networks} networks {shape}, {rows // 2:,} records each, 3 epochs, {device}: one by one {one_by_one:.2f} s, "
        f"at once {at_once:.2f} s, {one_by_one / at_once:.1f} times faster; probabilities differ by {apart:.1e} at most"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--references", type=int, default=32)
    parser.add_argument("--stack", action="store_true")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.stack:
        for hidden in ((32,), (128,), (512, 128)):
            stack(given.references, 5000, 446, hidden, given.device)
    else:
        score(given.rows, given.references)
