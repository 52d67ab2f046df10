"""Is a release guided by its target ever worse to learn from than a classical one? Four models on tables that differ.

Some rows of each table (1,000, 5,000 or 20,000) are anonymized by each method, all of which publish medians. Four
models are trained on the release and tested on up to 8,000 other rows, as they are. All parameters were fixed in
advance. Only the tables of DEVELOPMENT were looked at during the design; those of CONFIRMATION were run once, at its
end. Each point is appended to guided_never_worse.jsonl when it is done, so that an interrupted study resumes;
`--print` prints the tables of RESULTS.md. The tables are in the folder that SFUMATO_DATA names.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core is enough, and leaves the others alone
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sfumato as sf
from guided_study import LOAN, TWELVE

FIGURES = Path(__file__).with_name("guided_never_worse.jsonl")
TOLERATED = 0.003
TEST_ROWS = 8000
Point = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A table: its file, its quasi-identifiers, what is to be predicted, and whether the classes are made equal."""

    file: str
    qi: tuple[str, ...]
    target: pl.Expr
    balanced: bool = False


SOURCES = {
    "adult": Source("adult/adult", TWELVE, pl.col("income").cast(pl.String).str.contains(">")),
    "cup": Source(
        "cup/cup",
        ("AGE", "GENDER", "STATE", "RAMNTALL", "NGIFTALL", "MINRAMNT", "ZIP"),
        pl.col("INCOME") >= 4000,
    ),
    "creditcard": Source(
        "arx/creditcard_int",
        ("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0", "PAY_2", "BILL_AMT1", "PAY_AMT1"),
        pl.col("default-payment-next-month") == 1,
        balanced=True,
    ),
    "census": Source(
        "census-income-kdd/census_income",
        (
            "age", "class of worker", "education", "marital stat", "major occupation code", "sex",
            "weeks worked in year", "capital gains", "dividends from stocks",
        ),
        pl.col("income").cast(pl.String).str.contains("+", literal=True),
        balanced=True,
    ),
    "loans": Source("lending-club/full_train_set", LOAN, pl.col("outcome") == "default", balanced=True),
    "fars": Source(
        "fars/fars_keel",
        (
            "AGE", "SEX", "CASE_STATE", "PERSON_TYPE", "SEATING_POSITION", "RESTRAINT_SYSTEM-USE", "EJECTION",
            "ALCOHOL_TEST_RESULT",
        ),
        pl.col("INJURY_SEVERITY").cast(pl.String) == "Fatal_Injury",
    ),
    "nursery": Source(
        "nursery/nursery",
        ("parents", "has_nurs", "form", "children", "housing", "finance", "social", "health"),
        pl.col("class").cast(pl.String),
    ),
    "mach2019": Source(
        "arx/mach2019_int",
        ("age", "familysize", "gender", "married", "race", "religion"),
        pl.sum_horizontal(pl.selectors.starts_with("Q")) > 17,
    ),
    "airline": Source(
        "pycanon/processed/airline_passenger_sat",
        (
            "Gender", "Customer Type", "Age", "Type of Travel", "Class", "Flight Distance", "Inflight wifi service",
            "Leg room service",
        ),
        pl.col("satisfaction") == "satisfied",
    ),
}  # fmt: skip
DEVELOPMENT = ("adult", "cup", "creditcard")
CONFIRMATION = ("census", "loans", "fars", "nursery", "mach2019", "airline")
_NUMBERS = ("Age", "Flight Distance", "Inflight wifi service", "Leg room service")  # texts in airline's file
METHODS: dict[str, Callable[..., Any]] = {
    "guided": sf.Guided,
    "guided tree": partial(sf.Guided, neighbours=False),
    "guided by the labels themselves": partial(sf.Guided, cross_fit=False),
    "mondrian": sf.Mondrian,
    "hilbert": sf.Hilbert,
    "rplus": sf.RPlus,
    "microaggregate": sf.Microaggregate,
}
CLASSICAL = tuple(METHODS)[3:]
MODELS: dict[str, Callable[[int], Any]] = {
    "forest": lambda seed: RandomForestClassifier(60, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=seed),
    "network": lambda seed: MLPClassifier((50,), max_iter=20, random_state=seed),
    "logistic": lambda seed: LogisticRegression(max_iter=300),
}


@cache
def frame_of(name: str) -> pl.DataFrame:
    """Return the quasi-identifiers and the target `y` of a table; a missing category is one of its own."""
    source = SOURCES[name]
    frame = pl.read_parquet(Path(os.environ["SFUMATO_DATA"]) / f"{source.file}.parquet")
    frame = frame.select(*source.qi, source.target.alias("y")).cast({pl.Categorical: pl.String})
    if name == "cup":
        frame = frame.with_columns(pl.col("ZIP").str.slice(0, 1))
    if name == "airline":
        frame = frame.with_columns(pl.col(_NUMBERS).cast(pl.Float64).cast(pl.Int64))
    frame = frame.with_columns(pl.col(pl.String).fill_null("?")).drop_nulls()
    if name == "nursery":
        frame = frame.filter(pl.col("y") != "recommend")  # two rows
    return frame


def split(name: str, size: int, seed: int) -> tuple[Any, Any] | None:
    """Return the rows to anonymize and others to test on as pandas frames; None if the table is too small."""
    frame, rng = frame_of(name), np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    if SOURCES[name].balanced:
        yes = frame["y"].to_numpy()[order]
        few = min(yes.sum(), (~yes).sum())
        order = rng.permutation(np.concatenate([order[yes][:few], order[~yes][:few]]))
    if len(order) < 1.2 * size:
        return None
    rows = frame[order[: size + TEST_ROWS]].to_pandas()
    return rows.iloc[:size].reset_index(drop=True), rows.iloc[size:].reset_index(drop=True)


def coded(train: Any, test: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows as numbers: scaled ones as they are, categories as one column each."""
    texts = [name for name in train.columns if train[name].dtype.kind not in "iufb"]
    coding = ColumnTransformer(
        [("texts", OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts)],
        remainder=StandardScaler(),
    )
    return coding.fit_transform(train).astype(np.float32), coding.transform(test).astype(np.float32)


def learnt(released: Any, y: NDArray[Any], test: Any, models: Sequence[str], seed: int) -> Iterator[tuple[str, float]]:
    """Yield the accuracy of each model that is trained on a release, on rows as they are."""
    x, asked = coded(released, test.drop(columns="y"))
    truth = test["y"].to_numpy()
    for name in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # twenty epochs are few
            model = MODELS[name](seed).fit(x, y)
        yield name, round(float((model.predict(asked) == truth).mean()), 5)


def measure(name: str, size: int, seed: int, k: int, who: str, models: Sequence[str]) -> Iterator[Point]:
    """Anonymize some rows by a method, and yield how well each model learns from them."""
    rows = split(name, size, seed)
    if rows is None:
        return
    train, test = rows
    y, qi = train["y"].to_numpy(), list(SOURCES[name].qi)
    seconds, more, released = 0.0, {}, train.drop(columns="y")
    if who != "before":
        options = {"labels": "y"} if who.startswith("guided") else {}
        method = METHODS[who](f"k={k}", qi=qi, output="median", **options)
        begin = time.process_time()
        released = method.fit_transform(train).drop(columns="y")
        seconds, more = round(time.process_time() - begin, 3), method.details()
    for model, accuracy in learnt(released, y, test, models, seed):
        point = {"table": name, "size": size, "split": seed, "k": k, "who": who, "model": model, "accuracy": accuracy}
        yield point | {"cpu": seconds} | {key: more[key] for key in ("chosen",) if key in more}


def study(
    figures: Path, names: Sequence[str], sizes: Sequence[int], ks: Sequence[int], whos: Sequence[str],
    models: Sequence[str], splits: Sequence[int],
) -> None:  # fmt: skip
    """Measure what is not there yet: all tables with one split, then the next."""
    done = {_key(point) for point in read(figures)}
    for seed in splits:
        for size in sizes:
            for name in names:
                for k in (0, *(k for k in ks if 2 * k <= size)):
                    for who in ("before",) if not k else whos:
                        left = [one for one in models if (name, size, seed, k, who, one) not in done]
                        for point in measure(name, size, seed, k, who, left) if left else ():
                            with figures.open("a") as file:
                                file.write(json.dumps(point) + "\n")
                            print(json.dumps(point), flush=True)


def _key(point: Point) -> tuple[Any, ...]:
    return tuple(point[part] for part in ("table", "size", "split", "k", "who", "model"))


def read(figures: Path) -> list[Point]:
    """Return all points, without a last line that was cut off."""
    lines = figures.read_text().splitlines() if figures.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def summed_up(points: Sequence[Point], who: str = "guided") -> Iterator[tuple[tuple[Any, ...], dict[str, float]]]:
    """Yield, of each table, size, k and model, the accuracy of all methods, and by how much the best is missed."""
    several: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for one in points:
        key = (one["table"], one["size"], one["k"], one["model"])
        several.setdefault(key, {}).setdefault(one["who"], {})[one["split"]] = one["accuracy"]
    for key, of in several.items():
        both = {name: of[name] for name in CLASSICAL if name in of}
        if who not in of or not both:
            continue
        common = sorted(set(of[who]).intersection(*both.values()))
        if not common:
            continue
        mean = {name: statistics.mean(found[one] for one in common) for name, found in both.items()}
        best = max(mean, key=lambda name: mean[name])
        ahead = [of[who][one] - both[best][one] for one in common]
        spread = statistics.stdev(ahead) if len(ahead) > 1 else 0.0
        guided = statistics.mean(of[who][one] for one in common)
        yield (*key, best), {
            "guided": guided, "best": mean[best], "ahead": guided - mean[best], "spread": spread, "splits": len(common),
        }  # fmt: skip


def printed(points: Sequence[Point], who: str = "guided") -> str:
    """Return what came out as a table: a row per table, size and model, and every point that is missed."""
    found = list(summed_up(points, who))
    ks = sorted({key[2] for key, _ in found})
    lines = [f"| table | rows | model | {' | '.join(f'k = {k}' for k in ks)} |", "|---" * (3 + len(ks)) + "|"]
    for name, size, model in dict.fromkeys((key[0], key[1], key[3]) for key, _ in found):
        cells = {key[2]: value for key, value in found if (key[0], key[1], key[3]) == (name, size, model)}
        text = [f"{100 * cells[k]['ahead']:+.1f} ± {100 * cells[k]['spread']:.1f}" if k in cells else "" for k in ks]
        lines.append(f"| {name} | {size:,} | {model} | {' | '.join(text)} |")
    ahead = [value["ahead"] for _, value in found]
    if ahead:
        missed = [(key, value) for key, value in found if value["ahead"] < -TOLERATED]
        lines += ["", f"{len(missed)} of {len(found)} below the best classical method by more than 0.3 points; mean "]
        lines[-1] += f"{100 * statistics.mean(ahead):+.2f} points, worst {100 * min(ahead):+.2f}."
        for key, value in sorted(missed, key=lambda one: one[1]["ahead"]):
            lines.append(f"- {key}: {100 * value['ahead']:+.2f} ± {100 * value['spread']:.2f}")
    return "\n".join(lines)


def compared(points: Sequence[Point]) -> str:
    """Return how each method fares against the best classical one, itself left out, as a table.

    The best one is found twice: afterwards, on the same rows, where chance helps it, as the best of several; and on the
    other splits, as somebody would who had to choose in advance.
    """
    of: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for one in points:
        key = (one["table"], one["size"], one["k"], one["model"])
        of.setdefault(key, {}).setdefault(one["who"], {})[one["split"]] = one["accuracy"]
    lines = [
        "| method | points | at most 0.3 behind | found afterwards | on the other split |",
        "|---|---|---|---|---|",
    ]
    for who in METHODS:
        afterwards, before = [], []
        for found in of.values():
            rest = [found[name] for name in CLASSICAL if name != who and name in found]
            splits = sorted(set(found.get(who, {})).intersection(*rest)) if rest else []
            if len(splits) < 2:
                continue
            mean = statistics.mean(found[who][split] for split in splits)
            afterwards.append(mean - max(statistics.mean(one[split] for split in splits) for one in rest))
            for split in splits:
                others = [other for other in splits if other != split]
                best = max(rest, key=lambda one: statistics.mean(one[other] for other in others))
                before.append(found[who][split] - best[split])
        if afterwards:
            near = sum(one >= -TOLERATED for one in afterwards)
            means = " | ".join(f"{100 * statistics.mean(one):+.2f}" for one in (afterwards, before))
            lines.append(f"| {who} | {len(afterwards)} | {near} | {means} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join((*DEVELOPMENT, *CONFIRMATION)))
    parser.add_argument("--sizes", default="1000,5000,20000")
    parser.add_argument("--k", default="10,100,1000")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--print", action="store_true", help="only print what was measured")
    given = parser.parse_args()
    if not given.print:
        sizes, ks = ([int(one) for one in text.split(",")] for text in (given.sizes, given.k))
        names, whos, models = (text.split(",") for text in (given.tables, given.methods, given.models))
        study(given.figures, names, sizes, ks, whos, models, range(given.splits))
    points = read(given.figures)
    print(printed(points))
    for names in (DEVELOPMENT, CONFIRMATION):
        print(f"\n{', '.join(names)}:\n\n{compared([one for one in points if one['table'] in names])}")


if __name__ == "__main__":
    main()
