"""What it costs to count people instead of rows: `python people.py --rows 1e7`, alternating in one process."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import sfumato as sf
from clock import alternate
from sfumato.measures.assess import measure

ROLES: dict[str, Any] = {"qi": ["age", "zip", "sex", "month"], "sensitive": ["disease"]}


def visits(rows: int) -> pl.DataFrame:
    """Four visits of a person on average; all but the month and the disease stay the same."""
    source, people = np.random.default_rng(1), max(rows // 4, 1)
    who = source.integers(0, people, rows)
    return pl.DataFrame(
        {
            "patient_id": who,
            "age": source.integers(0, 90, people)[who],
            "zip": source.integers(0, 200, people)[who],
            "sex": source.integers(0, 2, people)[who],
            "month": source.integers(0, 24, rows),
            "disease": source.integers(0, 30, rows),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    jobs: dict[str, Callable[[sf.Table], Any]] = {
        "assess": measure,
        "Mondrian, k = 10": lambda table: sf.Mondrian("k=10").fit(table),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "visits.parquet"
        visits(int(options.rows)).write_parquet(file)
        for name, job in jobs.items():
            by_rows, by_people = (sf.Table.of(file, person=person, **ROLES) for person in (None, "patient_id"))
            people, rows = alternate(partial(job, by_people), partial(job, by_rows), options.times)
            what = f"{name}, {options.rows:,.0f} rows"
            print(f"{what}: rows {rows:.2f}, people {people:.2f} CPU s, {people / rows:.1f} x")


if __name__ == "__main__":
    main()
