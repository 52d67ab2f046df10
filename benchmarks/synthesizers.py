"""Synthetic tables: what a model learns from synthetic rows, how far pairs of columns are off, and what it costs.

A gradient boosting (scikit-learn's `HistGradientBoostingClassifier` with its defaults, categories as whole numbers) is
trained on 100,000 synthetic rows and tested on real ones. Settings are the defaults of the synthesizer, which were
chosen on training rows only (``--folds``). Delta is 1e-5, or 1e-6 with 100,000 rows and more. The CPU seconds are those
of `synthesize`: it learns, and draws as many rows as the student gets.

    python synthesizers.py adult --epsilon 1 3                       test rows, 5 runs with noise of their own
    python synthesizers.py adult loans --folds 5                     cross-validation on training rows only
    python synthesizers.py adult loans --folds 5 --runs 2            its first two folds
    python synthesizers.py adult --score FILE                        anyone's synthetic rows, as Parquet or CSV
    python synthesizers.py --print                                   the table of all runs that are kept

The distance of pairs: `sfumato.measures.loss.marginals.distances` of all columns (the target too) between the real test
rows and the synthetic ones: total variation, half the sum of ``|p - q|``, averaged over all pairs. Categories are taken
as they are, numbers in 20 bins of about equal shares of the test rows; a value that 5 % of them have has its own bin.

Tables are read from the folder that ``SFUMATO_DATA`` names (Adult is embedded). Domains and bounds are declared, as a
data owner would: those of Adult by UCI's description (the bounds of `fnlwgt` and `capital-loss` are bought), the
categories of other tables as they occur in the file, their bounds as round numbers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import sfumato as sf
from sfumato.measures.loss.generalised import pair
from sfumato.measures.loss.marginals import distances_of
from sfumato.synthesizers.tables.base import Synthesizer
from sfumato.synthesizers.tables.methods.aim import Aim
from sfumato.synthesizers.tables.methods.autoencoder import AutoEncoderMixture
from sfumato.synthesizers.tables.methods.copula import Copula
from sfumato.synthesizers.tables.methods.independent import Independent
from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree
from sfumato.synthesizers.tables.synthesize import synthesize

KEPT = Path(__file__).with_suffix(".jsonl")
DELTA = 1e-5
ROWS = 100_000
"""Synthetic rows that the student learns from."""

RARE = 1e-3
"""Rows of a class of less than this share of all are left out of the student's: scikit-learn's boosting diverges on a
class of a few rows (Nursery: .869 / .937 with 7 rows of 100,000, .922 / .987 without them)."""

METHODS: dict[str, Callable[[], Synthesizer]] = {
    "tree": LabelledTree,
    "tree alone": lambda: LabelledTree(additive=False),
    "aim": Aim,
    "copula": Copula,
    "independent": Independent,
    "autoencoder": AutoEncoderMixture,
}

# The bounds of numbers; all other columns are categories.
_CENSUS = {
    "age": (0, 90),
    "wage per hour": (0, 9999),
    "capital gains": (0, 99_999),
    "capital losses": (0, 9999),
    "dividends from stocks": (0, 99_999),
    "num persons worked for employer": (0, 6),
    "weeks worked in year": (0, 52),
}
_LOANS = {
    "loan_amnt": (0, 50_000),
    "annual_inc": (0, 1_000_000),
    "dti": (0, 50),
    "payment_inc_ratio": (0, 100),
    "revol_bal": (0, 1_000_000),
    "revol_util": (0, 200),
    "open_acc": (0, 100),
    "grade": (0, 10),
    "emp_length": (0, 12),
}
_CREDIT = {
    "LIMIT_BAL": (0, 1_000_000),
    "AGE": (18, 100),
    **{f"BILL_AMT{at}": (-100_000, 1_000_000) for at in range(1, 7)},
    **{f"PAY_AMT{at}": (0, 1_000_000) for at in range(1, 7)},
}
_FARS = {
    "AGE": (0, 99),
    "ALCOHOL_TEST_RESULT": (0, 99),
    **{f"DRUG_TEST_RESULTS_({at}_of_3)": (0, 999) for at in range(1, 4)},
}


@dataclass(frozen=True)
class Task:
    """A table with a category to predict: real rows to learn from, and real rows to test on."""

    name: str
    target: str
    schema: sf.Schema
    train: pl.DataFrame
    test: pl.DataFrame

    def fold(self, at: int, folds: int) -> Task:
        """Return one fold of a cross-validation on the training rows."""
        part = np.random.default_rng(20).permutation(len(self.train)) % folds == at
        return Task(self.name, self.target, self.schema, self.train.filter(~part), self.train.filter(part))

    def numbers(self, frame: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the columns as numbers, and the target: categories by their position in the domain."""
        found = {}
        for name in self.train.columns:
            domain = self.schema[name].domain
            if domain is None:
                found[name] = frame[name].cast(pl.Float64).to_numpy()
            else:
                places = {str(one): at for at, one in enumerate(domain)}
                found[name] = frame[name].cast(pl.String).replace_strict(places, default=len(places)).to_numpy()
        label = found.pop(self.target)
        return np.stack(list(found.values()), axis=1).astype(np.float64), label.astype(np.int64)


def load(name: str) -> Task:
    """Return a task. A table without an official split has a quarter of its rows, at random, as test rows."""
    if name == "adult":
        train, test = (sf.datasets.adult(part) for part in ("train", "test"))
        return Task(name, "income", train.schema, train.frame, test.frame)
    file, target, bounds, dropped = {
        "census": ("census-income-kdd/census_income", "income", _CENSUS, ["instance weight"]),
        "loans": ("lending-club/full_train_set", "outcome", _LOANS, ["status"]),
        "credit": ("arx/creditcard_int", "default-payment-next-month", _CREDIT, []),
        "fars": ("fars/fars_keel", "INJURY_SEVERITY", _FARS, []),
        "nursery": ("nursery/nursery", "class", {}, []),
    }[name]
    frame = pl.read_parquet(Path(os.environ["SFUMATO_DATA"], f"{file}.parquet")).drop(dropped)
    categories = [one for one in frame.columns if one not in bounds and one != "split"]
    frame = frame.with_columns(pl.col(categories).cast(pl.String), pl.col(list(bounds)).cast(pl.Float64))
    whole = [one for one in bounds if (frame[one] == frame[one].round()).all()]
    frame = frame.with_columns(pl.col(whole).cast(pl.Int64))
    columns = [
        sf.Column(name=one, bounds=bounds[one])
        if one in bounds
        else sf.Column(name=one, domain=tuple(sorted(frame[one].unique().drop_nulls().to_list())))
        for one in frame.columns
        if one != "split"
    ]
    if "split" in frame.columns:
        of_test = (frame["split"].cast(pl.String) == "test").to_numpy()
    else:
        of_test = np.random.default_rng(10).random(len(frame)) < 0.25
    frame = frame.select(one.name for one in columns)
    return Task(name, target, sf.Schema(columns), frame.filter(~of_test), frame.filter(of_test))


def student(task: Task, rows: pl.DataFrame) -> dict[str, float]:
    """Return the accuracy and AUC on real test rows of gradient boosting that was trained on these rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    # Independent columns have missing labels too.
    rows = rows.drop_nulls(task.target)
    rows = rows.filter(pl.len().over(task.target) >= max(RARE * len(rows), 2))
    model = HistGradientBoostingClassifier(random_state=0).fit(*task.numbers(rows))
    test, truth = task.numbers(task.test)
    chances = np.zeros((len(test), len(task.schema[task.target].domain or ())))
    chances[:, model.classes_] = model.predict_proba(test)
    there = np.unique(truth)
    # With several classes: the mean AUC of each against all others, by the number of their test rows.
    areas = [roc_auc_score(truth == one, chances[:, one]) for one in (there[1:] if len(there) == 2 else there)]
    sizes = [(truth == one).sum() for one in (there[1:] if len(there) == 2 else there)]
    return {
        "accuracy": float((chances.argmax(axis=1) == truth).mean()),
        "auc": float(np.average(areas, weights=sizes)),
    }


def pair_distance(task: Task, rows: pl.DataFrame) -> float:
    """Return the mean total-variation distance of all pairs of columns to the real test rows; see the module."""
    # Columns that were declared to be categories are compared as such.
    categories = [one.name for one in task.schema.columns if one.domain is not None and one.name in rows.columns]
    real, drawn = (one.with_columns(pl.col(categories).cast(pl.String)) for one in (task.test, rows))
    both = pair(real, drawn.select(real.columns), real.columns, None, generalised=False)
    found = distances_of(both, bins=20, quantiles=True)
    return found.mean_of_pairs or 0.0


def run(task: Task, method: str, epsilon: float, seed: int | None, rows: int = ROWS) -> dict[str, Any]:
    """Synthesize once, and measure the rows. Without a seed, the noise comes from the operating system."""
    if method == "real":
        distance = pair_distance(task, task.train)
        named = {"table": task.name, "method": method, "epsilon": 0.0, "cpu": 0.0}
        return {**named, **student(task, task.train), "pairs": distance}
    start = time.process_time()
    generator = synthesize(
        task.train,
        epsilon,
        delta=DELTA if len(task.train) < 1 / DELTA else DELTA / 10,
        target=task.target,
        schema=task.schema,
        method=METHODS[method](),
        rows=rows,
        insecure_seed=seed,
    )
    cpu = time.process_time() - start
    drawn = generator.sample(rows, seed=seed)
    return {
        "table": task.name,
        "method": method,
        "epsilon": epsilon,
        "spent": generator.spent.epsilon,
        **student(task, drawn),
        "pairs": pair_distance(task, drawn),
        "cpu": cpu,
    }


def job(arguments: tuple[str, str, float, int, int]) -> dict[str, Any]:
    """Run one method on one table: on a fold of its training rows, or on its test rows with noise that nobody knows."""
    name, method, epsilon, at, folds = arguments
    warnings.simplefilter("ignore")
    task = load(name)
    if folds:
        return {"fold": at, **run(task.fold(at, folds), method, epsilon, 100 + at)}
    return {"run": at, **run(task, method, epsilon, None)}


def table(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return lines of Markdown: means, and deviations in brackets."""
    yield "| table | method | epsilon | runs | accuracy | AUC | distance of pairs | CPU s |"
    yield "|---|---|---|---|---|---|---|---|"
    for key, group in itertools.groupby(runs, key=lambda one: (one["table"], one["method"], one["epsilon"])):
        mine = list(group)
        means = {name: statistics.mean(one[name] for one in mine) for name in ("pairs", "cpu")}
        shown = [
            f"{statistics.mean(values):.4f}" + (f" ({statistics.stdev(values):.4f})" if len(values) > 1 else "")
            for values in ([one[name] for one in mine] for name in ("accuracy", "auc"))
        ]
        cost = f"{means['cpu']:.1f}" if means["cpu"] else ""
        epsilon = f"{key[2]:g}" if key[2] else ""
        cells = [key[0], key[1], epsilon, str(len(mine)), *shown, f"{means['pairs']:.4f}", cost]
        yield f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--methods", nargs="+", default=["tree"], choices=["real", *METHODS])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folds", type=int, default=0, help="cross-validation on training rows, at most RUNS folds")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--score", type=Path, help="a file of synthetic rows")
    parser.add_argument("--print", action="store_true", dest="shown", help="print what is kept, run nothing")
    given = parser.parse_args(arguments)
    if given.score is not None:
        task = load(given.tables[0])
        rows = pl.read_csv(given.score) if given.score.suffix == ".csv" else pl.read_parquet(given.score)
        print(json.dumps({**student(task, rows), "pairs": pair_distance(task, rows)}))
        return
    jobs = [
        (name, method, 0.0 if method == "real" else epsilon, at, given.folds)
        for name in given.tables
        for method in given.methods
        for epsilon in (given.epsilon[:1] if method == "real" else given.epsilon)
        for at in range(min(given.runs, given.folds) if given.folds else 1 if method == "real" else given.runs)
    ]
    kept = KEPT.read_text().splitlines() if KEPT.exists() else []
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for found in pool.map(job, [] if given.shown else jobs):
            kept.append(json.dumps(found))
            print(kept[-1], flush=True)
            if not given.folds:
                KEPT.write_text("\n".join(kept) + "\n")
    runs = [one for one in map(json.loads, kept) if "fold" in one or not given.folds]
    print(*table(sorted(runs, key=lambda one: (one["table"], one["epsilon"], one["method"]))), sep="\n")


if __name__ == "__main__":
    main()
