"""Anonymize on a local Spark session from Parquet to Parquet, without bringing the tuples to the driver."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

import work
from tables import QI, SENSITIVE, large_table, rows_of

ROWS, K = 10**7, 10


def anonymized(path: Path, to: Path) -> work.Answer:
    """Read, anonymize, measure over all rows, and write, all of it in Spark."""
    import sfumato as sf

    people = work.spark_session().read.parquet(str(path))
    release = sf.anonymize(people, [sf.KAnonymity(K)], qi=QI, sensitive=SENSITIVE)
    release.table.frame.write.parquet(str(to))
    return {"k": release.assessment.k, "gcp": release.loss.gcp, **release.details}


def apart(path: Path, to: Path) -> work.Cost:
    """Do it in a process of its own, whose Java and Python workers count too."""
    ran = subprocess.run([sys.executable, __file__, "--from", path, "--to", to], check=True, stdout=subprocess.PIPE)
    return work.Cost(**json.loads(ran.stdout.splitlines()[-1]))


def main(rows: int = ROWS) -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    path, folder = large_table(rows), Path(tempfile.mkdtemp(prefix="sfumato-"))
    try:
        cost = apart(path, folder / "released")
        classes = pl.scan_parquet(folder / "released" / "*.parquet").group_by(QI).len().collect(engine="streaming")
    finally:
        shutil.rmtree(folder)
    least, written = int(classes["len"].min()), int(classes["len"].sum())  # type: ignore[arg-type]
    return [
        (
            f"Mondrian k={K} on a local Spark session, {rows:,} rows of Parquet to Parquet, {len(QI)} "
            f"quasi-identifiers: {cost.answer['groups']:,} groups, GCP {cost.answer['gcp']:.4f}, {cost.cpu:.0f} CPU s, "
            f"{cost.peak / 1e9:.1f} GB, start of Python and Java included",
            f"k = {least} over {written:,} rows",
            "k verified over all rows",
        )
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=rows_of, default=ROWS, help=f"rows of the table ({ROWS:.0e})")
    parser.add_argument("--from", type=Path, dest="path", help=argparse.SUPPRESS)  # in the process of its own
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.path:
        answer = anonymized(given.path, given.to)
        cpu, peak = work.used()
        print(json.dumps({"cpu": cpu, "peak": peak, "answer": answer}))
    else:
        for row in main(given.rows):
            print(" | ".join(row))
