"""How well models predict after training on anonymous rows: guided by a model, and the classical methods, as k grows.

The experiments of Goldsteen et al., "Anonymizing machine learning models" (DPM 2021), made anew: Adult with 12, 10
and 8 quasi-identifiers, four models, k from 10 to 1000, five seeds. 40 % of the rows are for the model, 40 % were for
the tree in the paper (ours grows on the released rows; only "elsewhere" uses them), 20 % are for the test. What may be
chosen is chosen on a part of the first 40 %. Every finished run is kept in guided_study.json at once, so that the study
can be stopped and goes on where it was; the charts are drawn from it into docs/assets. Lending Club is in the folder
that SFUMATO_DATA names.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core is enough, and leaves the others alone
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import importlib
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
from markupsafe import escape
from numpy.typing import NDArray

import sfumato as sf
from chart import draw_mark, log_scale
from growth import ASSETS

FIGURES = Path(__file__).with_name("guided_study.json")
K = (10, 50, 100, 500, 1000)
SEEDS = range(5)
EIGHT = (
    "workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country", "education-num",
)  # fmt: skip
TEN = ("age", *EIGHT, "hours-per-week")
TWELVE = (*TEN, "capital-gain", "capital-loss")
ADULT_HOURS = tuple(name for name in TWELVE if name != "hours-per-week")
LOAN = (
    "loan_amnt", "term", "annual_inc", "dti", "payment_inc_ratio", "revol_bal", "revol_util", "purpose",
    "home_ownership", "delinq_2yrs_zero", "pub_rec_zero", "open_acc", "grade", "emp_length",
)  # fmt: skip
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
Point = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A table, its quasi-identifiers, and the model that is trained."""

    name: str
    title: str
    table: str
    qi: tuple[str, ...]
    model: str
    k: tuple[int, ...] = K
    seeds: int = 5


# The most telling ones first.
EXPERIMENTS = (
    Experiment("adult-12-xgb", "Adult, 12 quasi-identifiers, XGBoost", "adult", TWELVE, "xgb"),
    Experiment("adult-12-nn", "Adult, 12 quasi-identifiers, neural network", "adult", TWELVE, "nn"),
    Experiment("adult-8-xgb", "Adult, 8 quasi-identifiers, XGBoost", "adult", EIGHT, "xgb"),
    Experiment("adult-8-dt", "Adult, 8 quasi-identifiers, decision tree", "adult", EIGHT, "dt"),
    Experiment("hours", "Adult, working hours (regression), XGBoost", "hours", ADULT_HOURS, "xgb-r"),
    Experiment("diabetes", "Diabetes (regression), linear", "diabetes", (), "ridge", (5, 10, 25, 50)),
    Experiment("adult-8-nn", "Adult, 8 quasi-identifiers, neural network", "adult", EIGHT, "nn"),
    Experiment("adult-10-nn", "Adult, 10 quasi-identifiers, neural network", "adult", TEN, "nn"),
    Experiment("adult-8-rf", "Adult, 8 quasi-identifiers, random forest", "adult", EIGHT, "rf"),
    Experiment("loan-xgb", "Lending Club, 14 quasi-identifiers, XGBoost", "loan", LOAN, "xgb"),
    Experiment("loan-nn", "Lending Club, 14 quasi-identifiers, neural network", "loan", LOAN, "nn"),
)
# Accuracy of ai-privacy-toolkit 0.2.1 on one seed, for K, and before: figures that we were given.
PEER = {
    "adult-12-nn": (0.838, 0.848, 0.837, 0.836, 0.824),
    "adult-10-nn": (0.833, 0.844, 0.837, 0.832, 0.840),
    "adult-8-nn": (0.828, 0.850, 0.844, 0.845, 0.843),
    "adult-8-rf": (0.836, 0.844, 0.836, 0.837, 0.844),
    "adult-8-dt": (0.782, 0.825, 0.829, 0.827, 0.845),
    "adult-8-xgb": (0.859, 0.861, 0.864, 0.864, 0.863),
}
PRINTED = {
    "adult-12-nn": 0.865, "adult-10-nn": 0.865, "adult-8-nn": 0.865, "adult-12-xgb": 0.864, "adult-8-xgb": 0.864,
    "adult-8-dt": 0.8878, "adult-8-rf": 0.8992, "loan-nn": 0.9332,
}  # fmt: skip
LINES = {
    "guided": ("guided", "circle"),
    "workload": ("workload-aware", "circle"),
    "mondrian": ("Mondrian", "square"),
    "rplus": ("R+", "triangle"),
    "hilbert": ("Hilbert", "square"),
}
STYLE = """
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--grid:#d9dee3;--guided:#a3226b;--mondrian:#0072b2;--hilbert:#d55e00;
--rplus:#00805e}
@media(prefers-color-scheme:dark){svg{--paper:#1e2129;--ink:#e8eaed;--soft:#a9b1ba;--grid:#3b414b;--guided:#f08cc4;
--mondrian:#56b4e9;--hilbert:#f0954a;--rplus:#3fc99d}}
text{font:12px system-ui,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft)}.end{text-anchor:end}.middle{text-anchor:middle}.paper{fill:var(--paper)}
.grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:2}
.guided,.workload{stroke:var(--guided)}.mondrian{stroke:var(--mondrian)}.hilbert{stroke:var(--hilbert)}
.rplus{stroke:var(--rplus)}.line.workload{stroke-dasharray:4 4}.spread{stroke-width:1}
.before{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}.mark{stroke-width:2;fill:var(--paper)}
"""


@cache
def table_of(name: str) -> tuple[Any, str]:
    """Return a pandas frame with all features, and the name of its target; a missing category is one of its own."""
    if name == "diabetes":
        bunch = importlib.import_module("sklearn.datasets").load_diabetes(as_frame=True, scaled=False)
        return bunch.frame, "target"
    if name == "loan":
        frame = sf.datasets.lending().frame.select(*LOAN, "outcome")
        frame = frame.with_columns((pl.col("outcome") == "default").cast(pl.Int64))
        return frame.to_pandas(), "outcome"
    frame = sf.datasets.adult().frame.select(*TWELVE, "income").cast({pl.Categorical: pl.String})
    frame = frame.with_columns(pl.col(pl.String).fill_null("?"))
    frame = frame.with_columns(pl.col("income").str.contains(">").cast(pl.Int64))
    target = "hours-per-week" if name == "hours" else "income"
    return (frame.drop("income") if name == "hours" else frame).to_pandas(), target


def estimator_of(name: str, frame: Any, seed: int) -> Any:
    """Return a model with its coding of categories; its parameters were fixed beforehand."""
    compose, preprocessing = (importlib.import_module(f"sklearn.{part}") for part in ("compose", "preprocessing"))
    numbers = [column for column in frame.columns if frame[column].dtype.kind in "iufb"]
    texts = [column for column in frame.columns if column not in numbers]
    scale = preprocessing.StandardScaler() if name in ("nn", "ridge") else "passthrough"
    coding = compose.ColumnTransformer(
        [("texts", preprocessing.OneHotEncoder(handle_unknown="ignore"), texts), ("numbers", scale, numbers)]
    )
    makers: dict[str, Callable[[], Any]] = {
        "xgb": lambda: _module("xgboost").XGBClassifier(n_jobs=1, random_state=seed),
        "xgb-r": lambda: _module("xgboost").XGBRegressor(n_jobs=1, random_state=seed),
        "nn": lambda: _module("sklearn.neural_network").MLPClassifier((100,), max_iter=30, random_state=seed),
        "dt": lambda: _module("sklearn.tree").DecisionTreeClassifier(random_state=seed),
        "rf": lambda: _module("sklearn.ensemble").RandomForestClassifier(100, random_state=seed),
        "ridge": lambda: _module("sklearn.linear_model").Ridge(),
    }
    return _module("sklearn.pipeline").make_pipeline(coding, makers[name]())


def _module(name: str) -> Any:
    """Import a module when it is used."""
    return importlib.import_module(name)


class Run:
    """One split of one experiment: its rows, the model before, and what the model says of rows that it has not seen."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        frame, self.target = table_of(experiment.table)
        self.qi = list(experiment.qi) or [name for name in frame.columns if name != self.target]
        order = np.random.default_rng(seed).permutation(len(frame))
        first, second = int(0.4 * len(frame)), int(0.8 * len(frame))
        parts = (order[:first], order[first:second], order[second:])
        self.train, self.other, self.test = (frame.iloc[part].reset_index(drop=True) for part in parts)
        self.x, self.y = self.train.drop(columns=self.target), self.train[self.target].to_numpy()
        self.test_x, self.test_y = self.test.drop(columns=self.target), self.test[self.target].to_numpy()
        self.estimator = estimator_of(experiment.model, self.x, seed)
        self.seed = seed
        self._says: NDArray[Any] | None = None

    def fitted(self, x: Any) -> Any:
        """Return the model trained on these rows."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # thirty epochs are few, and some categories are in few rows
            return importlib.import_module("sklearn.base").clone(self.estimator).fit(x, self.y)

    def says(self) -> NDArray[Any]:
        """Return what the model says of rows that it has not seen; the same for every k."""
        if self._says is None:
            how = "predict_proba" if hasattr(self.estimator, "predict_proba") else "predict"
            cross = importlib.import_module("sklearn.model_selection").cross_val_predict
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._says = cross(self.estimator, self.x, self.y, cv=3, method=how)
        return self._says

    def scores(self, model: Any, x: Any) -> dict[str, float]:
        """Return the accuracy or R2 on the test rows, and of two classes the area under the ROC curve."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = {"score": round(float(model.score(x, self.test_y)), 4)}
            if hasattr(model, "predict_proba") and len(set(self.test_y.tolist())) == 2:
                area = importlib.import_module("sklearn.metrics").roc_auc_score
                found["auc"] = round(float(area(self.test_y, model.predict_proba(x)[:, 1])), 4)
        return found


class Shared(sf.anonymizers.AnonymizedModel):
    """The same, but the model is asked only once for all k."""

    run: Run

    def _answers(self, table: sf.Table, truth: NDArray[Any]) -> NDArray[Any] | None:
        return self.run.says()


def measure(run: Run, who: str, k: int) -> Point:
    """Return the score of a model trained on what a method makes of the training rows, and the k that they have."""
    started = time.process_time()
    if who == "before":
        return {"k": 0, **run.scores(run.fitted(run.x), run.test_x), "cpu": round(time.process_time() - started, 2)}
    if who == "guided":
        model = Shared(run.estimator, f"k={k}", qi=run.qi, seed=run.seed)
        model.run = run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(run.x, run.y)
        chosen = model.chosen_
        return {
            "k": k,
            **run.scores(model, run.test_x),
            "real_k": model.release.assessment.k,
            "classes": model.release.assessment.classes,
            "chosen": [str(chosen.guide or chosen.method), chosen.cut_by.value, chosen.transform],
            "cpu": round(time.process_time() - started, 2),
        }
    method: dict[str, Callable[..., Any]] = {
        "workload": partial(sf.Guided, labels=run.y, cross_fit=False, criterion="entropy", refine=False, look_ahead=0),
        "mondrian": partial(sf.Mondrian, output="median"),
        "hilbert": partial(sf.Hilbert, output="median"),
        "rplus": partial(sf.RPlus, output="median"),
    }
    if who == "elsewhere":  # the paper's protocol, with the guarantee repaired
        before = run.fitted(run.x)
        other = run.other.drop(columns=run.target)
        method["elsewhere"] = partial(sf.Guided, model=before, grown_on=other)
    anonymizer = method[who](f"k={k}", qi=run.qi)
    begin = time.process_time()
    released = anonymizer.fit_transform(run.x)
    seconds = time.process_time() - begin
    measured = sf.assess(released, qi=run.qi)
    model = run.fitted(released)
    return {
        "k": k,
        **run.scores(model, run.test_x),
        "real_k": measured.k,
        "classes": measured.classes,
        "anonymize_cpu": round(seconds, 2),
        "cpu": round(time.process_time() - started, 2),
    }


def wanted(names: Sequence[str], seeds: int) -> Iterator[tuple[Experiment, int, str, int]]:
    """Yield what is to be measured, in its order: the first seed of all experiments that were named, then the next."""
    chosen = [experiment for experiment in EXPERIMENTS if experiment.name in names]
    for experiment in chosen:
        for seed in range(min(seeds, experiment.seeds)):
            yield experiment, seed, "before", 0
            for k in experiment.k:
                others = ["elsewhere"] if experiment.name == "adult-12-xgb" else []
                for who in (*LINES, *others):
                    yield experiment, seed, who, k


def study(names: Sequence[str], seeds: int, figures: Path) -> None:
    """Measure what is not there yet."""
    points: list[Point] = json.loads(figures.read_text()) if figures.exists() else []
    done = {(point["name"], point["seed"], point["who"], point["k"]) for point in points}
    todo = [one for one in wanted(names, seeds) if (one[0].name, *one[1:]) not in done]
    run, of = None, None
    for position, (experiment, seed, who, k) in enumerate(todo):
        if of != (experiment.name, seed):
            run, of = Run(experiment, seed), (experiment.name, seed)
        assert run is not None
        point = {"name": experiment.name, "seed": seed, "who": who, **measure(run, who, k)}
        points.append(point)
        print(f"{position + 1}/{len(todo)} {json.dumps(point)}", flush=True)
        temporary = figures.with_suffix(".part")
        temporary.write_text("[\n" + ",\n".join(map(json.dumps, points)) + "\n]\n")
        temporary.replace(figures)


def summary(points: Sequence[Point], name: str, who: str, k: int, key: str = "score") -> tuple[float, float] | None:
    """Return the mean over the seeds, and the standard deviation."""
    found = [one[key] for one in points if (one["name"], one["who"], one["k"]) == (name, who, k) and key in one]
    if not found:
        return None
    return statistics.mean(found), statistics.stdev(found) if len(found) > 1 else 0.0


def draw(points: Sequence[Point], experiment: Experiment) -> str:
    """Draw the score against k, a line per method with its spread; the dotted line is the model before."""
    width, height, left, right, top, bottom = 640, 340, 56, 620, 62, 290
    of = {(who, k): summary(points, experiment.name, who, k) for who in LINES for k in experiment.k}
    before = summary(points, experiment.name, "before", 0)
    ends = [value for one in of.values() if one for value in (one[0] - one[1], one[0] + one[1])]
    ends += [before[0]] if before else []
    low, high = np.floor(50 * min(ends)) / 50, np.ceil(50 * max(ends)) / 50
    across = log_scale(experiment.k[0], experiment.k[-1], left + 14, right - 14)
    up = _straight_scale(low, high, bottom, top)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / step <= 8)
    parts = [f'<text class="soft" x="12" y="{top - 12}">{"accuracy" if _classifies(experiment) else "R2"}</text>']
    for tick in np.arange(np.ceil(low / step) * step, high + 1e-9, step):
        parts.append(
            f'<path class="grid" d="M{left} {up(tick):.1f}H{right}"/>'
            f'<text class="soft end" x="{left - 6}" y="{up(tick) + 4:.1f}">{tick:.2f}</text>'
        )
    for k in experiment.k:
        parts.append(f'<text class="soft middle" x="{across(k):.1f}" y="{bottom + 18}">{k}</text>')
    parts.append(f'<text class="soft middle" x="{(left + right) / 2}" y="{bottom + 38}">k</text>')
    if before:
        parts.append(f'<path class="before" d="M{left} {up(before[0]):.1f}H{right}"/>')
    begin = 12
    for who, (title, mark) in LINES.items():
        parts.append(
            f'<path class="line {who}" d="M{begin} 20h28"/>{draw_mark(who, mark, begin + 14, 20)}'
            f'<text x="{begin + 35}" y="24">{escape(title)}</text>'
        )
        begin += 56 + round(6.4 * len(title))
    for shift, (who, (_, mark)) in reversed(list(enumerate(LINES.items()))):
        places = [(across(k) + 2 * (shift - 2), one) for k in experiment.k if (one := of[who, k])]
        if not places:
            continue
        path = "L".join(f"{x:.1f} {up(mean):.1f}" for x, (mean, _) in places)
        parts.append(f'<path class="line {who}" d="M{path}"/>')
        for x, (mean, spread) in places:
            parts.append(f'<path class="spread {who}" d="M{x:.1f} {up(mean - spread):.1f}V{up(mean + spread):.1f}"/>')
            parts.append(draw_mark(who, mark, x, up(mean)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(experiment.title)}</title><style>{STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}" rx="6"/>{"".join(parts)}</svg>\n'
    )


def _straight_scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _classifies(experiment: Experiment) -> bool:
    return experiment.model not in ("xgb-r", "ridge")


def in_markdown(points: Sequence[Point], experiment: Experiment, key: str = "score") -> str:
    """Return the figures of one experiment: mean and standard deviation over the seeds."""
    peer, printed = PEER.get(experiment.name), PRINTED.get(experiment.name)
    seeds = len({one["seed"] for one in points if one["name"] == experiment.name and one["who"] == "guided"})
    before = summary(points, experiment.name, "before", 0, key)
    said = f"**{experiment.title}** ({seeds} seed{'s' * (seeds > 1)}). Before: {_written(before)}"
    said += f"; printed in the paper: {printed:.3f}." if printed and key == "score" else "."
    head = ["k", *(title for title, _ in LINES.values()), *(["ai-privacy-toolkit"] if peer and key == "score" else [])]
    lines = [said, "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for position, k in enumerate(experiment.k):
        cells = [_written(summary(points, experiment.name, who, k, key)) for who in LINES]
        if peer and key == "score":
            cells.append(f"{peer[position]:.3f}")
        lines.append(f"| {k} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _written(one: tuple[float, float] | None) -> str:
    return "" if one is None else f"{one[0]:.3f} ± {one[1]:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [experiment.name for experiment in EXPERIMENTS]
    parser.add_argument("--experiments", default=",".join(names), help=", ".join(names))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--draw", action="store_true", help="only draw what has been measured, and print the tables")
    parser.add_argument("--page", type=Path, help="a page whose figures are replaced: docs/explanation/guided.md")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--assets", type=Path, default=ASSETS)
    options = parser.parse_args()
    if not options.draw:
        study(options.experiments.split(","), options.seeds, options.figures)
    points = json.loads(options.figures.read_text())
    options.assets.mkdir(exist_ok=True)
    for experiment in EXPERIMENTS:
        if _is_measured(points, experiment):
            options.assets.joinpath(f"guided-{experiment.name}.svg").write_text(draw(points, experiment))
    text = figures_in_markdown(points)
    print(text)
    if options.page:
        before, _, rest = options.page.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        options.page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def figures_in_markdown(points: Sequence[Point]) -> str:
    """Return the charts and tables of all that has been measured."""
    parts = []
    for experiment in filter(partial(_is_measured, points), EXPERIMENTS):
        parts += [in_markdown(points, experiment), f"![{experiment.title}](../assets/guided-{experiment.name}.svg)"]
        if experiment.table == "loan":
            parts += ["The same as area under the ROC curve:", in_markdown(points, experiment, "auc")]
        elsewhere = [(k, summary(points, experiment.name, "elsewhere", k)) for k in experiment.k]
        if any(one for _, one in elsewhere):
            told = ", ".join(f"{_written(one)} (k = {k})" for k, one in elsewhere if one)
            parts.append(f"The paper's split, with a tree from other rows, pruned until k holds: {told}.")
    asked = [one for one in points if "real_k" in one]
    kept = sum(one["real_k"] >= one["k"] for one in asked)
    parts.append(f"The measured k is at least the asked one in {kept:,} of {len(asked):,} releases.")
    return "\n\n".join(parts)


def _is_measured(points: Sequence[Point], experiment: Experiment) -> bool:
    """Say whether every method has been measured with one seed at least."""
    found = {(point["who"], point["k"]) for point in points if point["name"] == experiment.name}
    return all((who, k) in found for who in LINES for k in experiment.k)


if __name__ == "__main__":
    main()
