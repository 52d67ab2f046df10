"""How far a count is off for each bound on the rows of a person, and for one that is bought."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

import sfumato as sf

BOUNDS = ("bought", 1, 3, 8, 13, 21, 34, 55, 987)
MEAN_VISITS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    rows = np.random.default_rng(1).geometric(1 / MEAN_VISITS, options.people)
    visits = pl.DataFrame({"patient_id": np.repeat(np.arange(len(rows)), rows)})
    print(f"{options.people:,} people, {len(visits):,} rows, at most {rows.max()} of one, epsilon {options.epsilon:g}")
    with tempfile.TemporaryDirectory() as folder:
        limit = 2 * options.epsilon * options.runs * len(BOUNDS)
        ledger = sf.Ledger.grant(visits, epsilon=limit, path=Path(folder) / "people.ledger", unit="person")
        for bound in BOUNDS:
            asked = {"epsilon": options.epsilon, "person": "patient_id", "rows_per_person": bound, "ledger": ledger}
            answers = [sf.query(visits, "count", **asked, insecure_seed=seed) for seed in range(options.runs)]
            off = np.array([answer.rows[0].value for answer in answers]) - len(visits)
            found = dict(Counter(answer.bought for answer in answers)) if bound == "bought" else ""
            print(f"{bound!s:>7}: off by {np.sqrt(np.mean(off**2)):,.0f} (root mean square) {found}")


if __name__ == "__main__":
    main()
