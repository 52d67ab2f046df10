"""What microaggregation and local suppression lose, and what they cost, on Adult and on a million rows like it.

Microaggregation is judged by the squared distance of the records from the average of their group, as a share
of that from the average of all: numbers in standard deviations, categories 0 or 1 from the most frequent one.
Mondrian and Hilbert make groups too, and are judged alike.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import polars as pl

import sfumato as sf
from clock import cpu_seconds
from sfumato.anonymizers import Partitioner
from sfumato.anonymizers.problem import APART
from sfumato.measures.classes import Ints
from tables import QI, batches

MIXED = ["workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country", "education-num"]
NUMBERS = ["age", "education-num", "hours-per-week", "capital-gain", "capital-loss"]
BLOCKS = (512, 1024, 2048, 4096, 10**9)


def left_over(learnt: Partitioner) -> float:
    """Return the share of the squared distances that is left within groups."""
    problem, groups = learnt.problem_, learnt.members_.of_tuple
    return _squares(problem, groups) / _squares(problem, np.zeros_like(groups))


def _squares(problem: Any, groups: Ints) -> float:
    records, total = problem.records, 0.0
    for column, line in enumerate(problem.lines):
        codes = problem.codes[:, column]
        if line.ordered:
            place = line.place[codes]
            assert (place != APART).all(), "these columns miss no value"
            spread = np.average((place - np.average(place, weights=records)) ** 2, weights=records)
            mean = np.bincount(groups, records * place) / np.bincount(groups, records)
            total += float(records @ (place - mean[groups]) ** 2 / spread)
        else:
            values = len(line.position)
            held = np.bincount(groups * values + codes, records, minlength=(int(groups.max()) + 1) * values)
            total += float(records.sum() - held.reshape(-1, values).max(axis=1).sum())
    return total


def compare(name: str, frame: pl.DataFrame, quasi: list[str], blocks: tuple[int, ...]) -> None:
    """Print what every method loses on a table with k = 10."""
    print(f"{name}: {len(frame):,} rows, {frame.select(quasi).n_unique():,} distinct tuples, k = 10")
    make = {f"microaggregate, blocks of {block:,}": partial(sf.Microaggregate, block=block) for block in blocks}
    for text, method in {**make, "mondrian": sf.Mondrian, "hilbert": sf.Hilbert}.items():
        one: Partitioner = method("k=10", qi=quasi, output="interval")  # type: ignore[operator]
        taken = cpu_seconds(partial(one.fit, frame))
        gcp = sf.loss(frame, one.transform(frame), quasi=quasi).gcp
        print(f"  {text:<38} {taken:6.2f} CPU s   {100 * left_over(one):5.1f} % left   GCP of intervals {gcp:.3f}")


def suppress(name: str, frame: pl.DataFrame, quasi: list[str]) -> None:
    """Print how many cells are suppressed."""
    for k in (3, 10):
        one = sf.LocalSuppression(f"k={k}", qi=quasi)
        taken = cpu_seconds(partial(one.fit, frame))
        share = 100 * one.details()["cells_share"]
        print(f"{name}, suppress, k = {k}: {taken:.2f} CPU s, {share:.2f} % of the cells")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6, help="how many rows like Adult's; 0 for none")
    rows = int(parser.parse_args().rows)
    adult = sf.datasets.adult().frame
    for warm in (sf.Microaggregate, sf.Mondrian, sf.Hilbert, sf.LocalSuppression):  # what is compiled is not compared
        warm("k=2", qi=MIXED).fit(adult.head(2000))
    compare("Adult, mixed columns", adult, MIXED, BLOCKS)
    compare("Adult, numbers", adult, NUMBERS, BLOCKS)
    suppress("Adult", adult, MIXED)
    if rows:
        large = pl.concat(batches(rows)).select(QI)
        compare("like Adult", large, QI, BLOCKS[:-1])
        suppress("like Adult", large, QI)


if __name__ == "__main__":
    main()
