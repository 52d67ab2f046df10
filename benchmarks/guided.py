"""Guided anonymization: CPU time on Adult and on a million rows, beside ai-privacy-toolkit where it is installed.

ai-privacy-toolkit 0.2.1 needs scikit-learn below 1.4, torch and adversarial-robustness-toolbox, and so an environment
of its own: there, `python benchmarks/guided.py --peer rows.csv` times it on the rows that `--rows rows.csv` has written
here.
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np

K = (10, 100, 1000)
ROWS = 19_536
QI = [
    "age", "workclass", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
    "capital-gain", "capital-loss", "hours-per-week", "native-country",
]  # fmt: skip


def adult() -> tuple[Any, Any]:
    """Return 40 % of Adult, and its labels."""
    import polars as pl

    import sfumato as sf

    frame = sf.datasets.adult().frame.select(*QI, "income").cast({pl.Categorical: pl.String}).to_pandas()
    frame = frame.sample(ROWS, random_state=0).fillna("?").reset_index(drop=True)
    return frame[QI], frame["income"].str.contains(">").astype(int).to_numpy()


def a_million() -> tuple[Any, Any]:
    """Return a million rows like Adult's, and labels that the rows tell in part."""
    import sfumato as sf
    from tables import QI as COLUMNS
    from tables import large_table

    table = sf.read(large_table(10**6))
    codes = table.encode(COLUMNS).values
    generator = np.random.default_rng(0)
    weight = generator.normal(size=codes.shape[1])
    score = (codes - codes.mean(axis=0)) / codes.std(axis=0) @ weight + generator.normal(size=len(codes))
    return sf.Table.of(table.to_polars(), qi=COLUMNS), (score > 1).astype(int)


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    from clock import cpu_seconds

    frame, labels = adult()
    rows = []
    for cross_fit in (False, True):  # the labels themselves guide ai-privacy-toolkit too
        _ours(frame, labels, 1000, cross_fit)  # compiled, or read from the cache
        for k in K:
            seconds = min(cpu_seconds(lambda: _ours(frame, labels, k, cross_fit)) for _ in range(3))  # noqa: B023
            asked = "at least 8 x as fast as ai-privacy-toolkit" if k == K[0] and not cross_fit else ""
            what = (
                f"Guided by {'neighbours' if cross_fit else 'the labels themselves'}, k = {k}, {len(frame):,} rows of "
            )
            rows.append((f"{what}Adult, {len(QI)} quasi-identifiers, frame to frame", f"{seconds:.2f} CPU s", asked))
    table, many = a_million()
    seconds = min(cpu_seconds(lambda: _ours(table, many, 10)) for _ in range(2))
    rows.append(("Guided, k = 10, 10^6 rows, 8 quasi-identifiers", f"{seconds:.1f} CPU s", "under 20 CPU s"))
    return rows


def _ours(rows: Any, labels: Any, k: int, cross_fit: bool = True) -> object:
    import sfumato as sf

    qi = [] if isinstance(rows, sf.Table) else QI
    return sf.Guided(f"k={k}", qi=qi, labels=labels, cross_fit=cross_fit).fit_transform(rows)


def peer(path: Path) -> None:
    """Time ai-privacy-toolkit; this runs in its own environment, without Sfumato."""
    pandas, apt = importlib.import_module("pandas"), importlib.import_module("apt.anonymization")
    datasets = importlib.import_module("apt.utils.datasets")
    frame = pandas.read_csv(path, keep_default_na=False)
    labels = frame.pop("label").to_numpy()
    texts = [name for name in frame.columns if frame[name].dtype == object]
    for k in K:
        start = time.process_time()
        made = apt.Anonymize(k, QI, categorical_features=texts).anonymize(datasets.ArrayDataset(frame, labels))
        seconds = time.process_time() - start
        print(f"ai-privacy-toolkit, k = {k}: {seconds:.2f} CPU s, {made.groupby(QI).ngroups} classes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="write the rows that are compared on, and stop")
    parser.add_argument("--peer", type=Path, help="time ai-privacy-toolkit on such rows, and stop")
    options = parser.parse_args()
    if options.peer:
        peer(options.peer)
    elif options.rows:
        rows, labels = adult()
        rows.assign(label=labels).to_csv(options.rows, index=False)
    else:
        for row in main():
            print(" | ".join(row))
