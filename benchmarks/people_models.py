"""What a bound on the rows of a person costs a model: `python people_models.py`, Adult with made-up people.

The training rows of Adult are given to people at random, to each as many as a geometric distribution says: four on
average, more than twenty to one in 300. So dropped rows bias nothing: what is seen is noise and lost rows alone.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import polars as pl

import sfumato as sf
from sfumato.learners import PrivateAdditiveClassifier, PrivateLogisticRegression, PrivateNaiveBayes

MODELS = (PrivateAdditiveClassifier, PrivateLogisticRegression, PrivateNaiveBayes)
BOUNDS = (1, 2, 4, 8, 20)


def people(rows: int) -> pl.Series:
    source = np.random.default_rng(1)
    each = source.geometric(0.25, rows)
    ids = np.repeat(np.arange(rows), each)[:rows]
    return pl.Series("person", source.permutation(ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    train, test = sf.datasets.adult("train"), sf.datasets.adult("test")
    frame = train.to_polars()
    ids = people(len(frame))
    of_people = sf.Table.of(sf.Table(frame.with_columns(ids), train.schema), person="person")
    for kind in MODELS:
        cells, began = [], time.process_time()
        for bound in (None, *BOUNDS, "bought"):
            data = train if bound is None else of_people
            fits = (kind(epsilon=1, rows_per_person=bound).fit(data, "income") for _ in range(options.times))
            cells.append(f"{100 * float(np.median([one.score(test, 'income') for one in fits])):.1f} %")
        seconds = (time.process_time() - began) / len(cells) / options.times
        print(f"{kind.__name__}: for rows {cells[0]}; for people {', '.join(cells[1:])}; {seconds:.1f} CPU s a fit")
    for bound in BOUNDS:
        kept = np.minimum(np.bincount(ids), bound).sum() / len(ids)
        print(f"at most {bound} rows of a person: {kept:.0%} of the rows")


if __name__ == "__main__":
    main()
