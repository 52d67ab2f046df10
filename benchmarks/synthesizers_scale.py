"""Synthetic tables of 10^5 to 10^7 rows and 15 columns: CPU seconds of each part, and the peak memory of the process.

    python benchmarks/synthesizers_scale.py --rows 1e5,1e6,1e7
    python benchmarks/synthesizers_scale.py --rows 1e6 --where duckdb

Every size runs in a process of its own. The table is a Parquet file of 8 texts, 4 whole numbers, 2 floats and a label,
with declared bounds and domains; the method is the default one, epsilon 1, and 100,000 rows are drawn.

Measured on a shared machine, one thread, CPU seconds (count, read, encode, fit, sample; all with imports) and GB:
10^5 rows in memory .1, .1, .1, 5.6, 1.2; 8.0 and .33. 10^6 rows in memory .9, .1, .4, 4.0, .5; 6.5 and .71. 10^7
rows in memory 15.0, 1.9, 14.7, 20.1, 1.1; 53.8 and 3.40. 10^6 rows in DuckDB 10.1, .2, 0, 5.6, 1.3; 18.4 and .75
(these and 10^5 by an earlier version, whose model of the label took twice as long).
Asked for 10^6 rows: under 30 CPU seconds and 2 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

COLUMNS = 15


def people(rows: int, path: Path) -> None:
    """Write a table whose columns all depend on a hidden one."""
    rng = np.random.default_rng(0)
    hidden = rng.random(rows, dtype=np.float32)
    columns: dict[str, Any] = {}
    for at in range(8):
        code = ((hidden + rng.random(rows, dtype=np.float32)) * (2 + 3 * at)).astype(np.int32)
        columns[f"text{at}"] = pl.Series(code).cast(pl.String)
    for at in range(4):
        columns[f"whole{at}"] = (hidden * 50 + rng.random(rows, dtype=np.float32) * 10 ** (at + 1)).astype(np.int32)
    for at in range(2):
        columns[f"real{at}"] = (hidden + rng.exponential(1.0, rows)).round(4)
    columns["label"] = pl.Series(hidden + rng.random(rows, dtype=np.float32) > 1).replace_strict(
        {True: "b", False: "a"}
    )
    pl.DataFrame(columns).write_parquet(path)


def schema() -> Any:
    """Declare every column."""
    import sfumato as sf

    texts = [sf.Column(name=f"text{at}", domain=tuple(map(str, range(2 * (2 + 3 * at))))) for at in range(8)]
    wholes = [sf.Column(name=f"whole{at}", bounds=(0, 50 + 10 ** (at + 1))) for at in range(4)]
    reals = [sf.Column(name=f"real{at}", bounds=(0, 20), step=0.01) for at in range(2)]
    return sf.Schema([*texts, *wholes, *reals, sf.Column(name="label", domain=("a", "b"))])


def measure(path: str, where: str) -> dict[str, float]:
    """Return the CPU seconds of each part, and the peak memory in GB."""
    import sfumato as sf
    from sfumato.budget.noise import Source
    from sfumato.synthesizers.tables.base import Recoding, Records
    from sfumato.synthesizers.tables.columns.description import Description
    from sfumato.synthesizers.tables.columns.domain import Domain
    from sfumato.synthesizers.tables.engine_records import describe_elsewhere
    from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree
    from sfumato.synthesizers.tables.plan import plan_of

    spent: dict[str, float] = {"count": 0.0}

    class Timed(Records):
        scans = where == "memory"

        def __init__(self, own: Records) -> None:
            self.own, self.axes, self.label = own, own.axes, own.label

        def count(self, tuples: Sequence[tuple[int, ...]], recodings: Sequence[Recoding]) -> Any:
            began = time.process_time()
            found = self.own.count(tuples, recodings)
            spent["count"] += time.process_time() - began
            return found

        def scan(self) -> Any:
            return self.own.scan()

    began = time.process_time()
    if where == "duckdb":
        import duckdb

        there = describe_elsewhere(sf.Table(duckdb.read_parquet(path), schema()))
        assert there is not None
        known: Description = there
    else:
        known = Description.of(sf.Table.of(path, schema=schema()))
    spent["read"] = time.process_time() - began
    label = known.columns.names.index("label")
    method = LabelledTree()
    plan = plan_of(method, known.described, label, 1.0, 1e-9, scans=known.scans)
    sums = plan.sums(Source())
    began = time.process_time()
    records = known.records(Domain(tuple(one.coding() for one in known.described), label))
    spent["encode"] = time.process_time() - began
    began = time.process_time()
    rng = np.random.default_rng(0)
    model = method.learn(Timed(records), sums, rng)
    spent["fit"] = time.process_time() - began - spent["count"]
    began = time.process_time()
    Domain(tuple(one.coding() for one in known.described), label).decode(model.sample(100_000, rng))
    spent["sample"] = time.process_time() - began
    spent["all, with imports"] = time.process_time()
    spent["GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return spent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="1e5,1e6", help="sizes, separated by commas")
    parser.add_argument("--where", default="memory", choices=("memory", "duckdb"))
    parser.add_argument("--path", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.path:
        print(json.dumps(measure(given.path, given.where)))
        sys.exit()
    for size in given.rows.split(","):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "people.parquet"
            people(int(float(size)), file)
            command = [sys.executable, __file__, "--path", str(file), "--where", given.where]
            ran = subprocess.run(command, check=True, capture_output=True, text=True)
            parts = ", ".join(
                f"{name} {number:.2f}" for name, number in json.loads(ran.stdout.splitlines()[-1]).items()
            )
            print(f"{float(size):,.0f} rows, {given.where}: {parts}", flush=True)
