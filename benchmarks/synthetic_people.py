"""Synthetic people with several rows: what stays within a person, and how many rows people have.

Made-up visits of patients: sex and birth year never change, the region changes rarely, ward and diagnosis stay for
chronic patients, who also come more often; what is paid and the year change. Released are as many people as there were,
with at most five visits each. Compared are the original, cut to five random visits of each patient, and the release:

    rows       total variation of the numbers of rows of a person
    same       share of people of whom two random rows have the same value, originally and released
    pairs      total variation of the pairs of values in two rows of a person, numbers in ten bins
    columns    total variation of single columns, of all rows

    python synthetic_people.py --people 5000 20000 --epsilon 1 10 --method tree aim
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import polars as pl

import sfumato as sf

_MOST = 5
_REGIONS = tuple(f"r{at:02}" for at in range(12))
_DIAGNOSES = tuple(f"d{at:02}" for at in range(30))
SCHEMA = sf.Schema(
    [
        sf.Column(name="patient_id", role=sf.Role.PERSON),
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="born", bounds=(1920, 2015)),
        sf.Column(name="region", domain=_REGIONS),
        sf.Column(name="ward", domain=tuple("ABCDEF")),
        sf.Column(name="diagnosis", domain=_DIAGNOSES),
        sf.Column(name="paid", bounds=(0, 9999)),
        sf.Column(name="year", bounds=(2015, 2024)),
    ]
)


def visits(people: int, seed: int) -> pl.DataFrame:
    """Make up the visits of patients."""
    rng = np.random.default_rng(seed)
    born = np.clip(rng.normal(1960, 20, people).round(), 1920, 2015).astype(int)
    sex, own = rng.integers(0, 2, people), rng.integers(0, 6, people)
    region = rng.choice(12, people, p=np.r_[np.full(4, 0.15), np.full(8, 0.05)])
    chronic = rng.random(people) < np.clip((2000 - born) / 100, 0.05, 0.7)
    who = np.repeat(np.arange(people), 1 + rng.poisson(np.where(chronic, 3.0, 0.8)))
    rows = len(who)
    place = np.where(rng.random(rows) < 0.05, rng.integers(0, 12, rows), region[who])
    again = chronic[who] & (rng.random(rows) < 0.75)
    ward = np.where(again, own[who], rng.integers(0, 6, rows))
    diagnosis = ward * 5 + np.where(again, own[who] % 5, rng.integers(0, 5, rows))
    paid = np.exp(rng.normal(5 + 0.4 * ward + 0.5 * again, 0.6)).round().clip(0, 9999).astype(int)
    frame = pl.DataFrame(
        {
            "patient_id": who,
            "sex": np.array(["f", "m"])[sex[who]],
            "born": born[who],
            "region": np.array(_REGIONS)[place],
            "ward": np.array(list("ABCDEF"))[ward],
            "diagnosis": np.array(_DIAGNOSES)[diagnosis],
            "paid": paid,
            "year": rng.integers(2015, 2025, rows),
        }
    )
    return frame.sample(fraction=1, shuffle=True, seed=seed)


def cut(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Keep five random visits of each patient."""
    draw = pl.Series("draw", np.random.default_rng(seed).random(len(frame)))
    return frame.with_columns(draw).filter(pl.col("draw").rank("ordinal").over("patient_id") <= _MOST).drop("draw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=[5000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--method", nargs="+", default=["tree"])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    for people in given.people:
        original = sf.Table(cut(visits(people, 0), 1), SCHEMA)
        fresh = sf.evaluate(original, sf.Table(cut(visits(people, 2), 3), SCHEMA), models=(), attacks=())
        show(f"{people:,} people: other real ones", [fresh], 0.0)
        for epsilon in given.epsilon:
            for method in given.method:
                began, found = time.process_time(), []
                for run in range(given.runs):
                    release = sf.synthesize(
                        sf.Table(visits(people, 0), SCHEMA), epsilon, delta=1e-6, method=method, seed=run,
                        rows_per_person=_MOST, people=people, ledger=False,
                    )  # fmt: skip
                    found.append(sf.evaluate(original, release, models=(), attacks=(), seed=run))
                seconds = (time.process_time() - began) / given.runs
                show(f"{people:,} people: {method}, epsilon {epsilon:g}", found, seconds)


def show(title: str, found: list[sf.frontier.Evaluation], seconds: float) -> None:
    """Print the means over runs."""
    ones = [one.people for one in found if one.people is not None]
    print(f"{title}; rows {np.mean([one.counts for one in ones]):.3f}; {seconds:.1f} CPU s with the evaluation")
    for name in found[0].columns:
        true, same = (np.mean([one.same[name][at] for one in ones]) for at in (0, 1))
        pairs = np.mean([one.pairs[name] for one in ones])
        column = np.mean([one.distances.by_column[name] for one in found])
        print(f"    {name:10} same {true:.3f} {same:.3f}   pairs {pairs:.3f}   column {column:.3f}", flush=True)


if __name__ == "__main__":
    main()
