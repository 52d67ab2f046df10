"""Noisy scores of held-out records: what a record adds is bounded, and the noise is that of the training's events."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import Composed, DiscreteLaplace, Event, Gaussian, PoissonSampled, Repeated, Source, spent
from sfumato.learners import Privacy, Split
from sfumato.learners.estimators.features import Feature
from sfumato.learners.options import grouped
from sfumato.learners.training.scoring import exact_scores, noisy_scores, scoring_events, tallies_of
from sfumato.learners.training.split import key_of, material_of
from tests.learners.test_sweep import COLUMNS, TABLE, people


class Guess:
    """A model that gives chances which are written in the rows."""

    def __init__(self, classes: int) -> None:
        self.classes_ = np.array([f"c{at}" for at in range(classes)])

    def predict_proba(self, rows: Any) -> Any:
        return np.asarray(rows)


class Number:
    """A model that answers what is written in the rows."""

    target_ = Feature("cost", bounds=(0.0, 100.0))

    def predict(self, rows: Any) -> Any:
        return np.asarray(rows)


def classes(count: int, rows: int = 40) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(count)
    chances = random.dirichlet(np.ones(count) / 4, rows)
    chances[0], chances[1] = np.nan, np.eye(count)[0]  # a record for which a model breaks, and one that is certain
    truth = [f"c{one}" for one in random.integers(0, count + 1, rows)]  # some of none of the classes
    return Guess(count), chances, pl.Series("target", truth)


def numbers(rows: int = 40) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    truth = random.normal(50, 60, rows)
    truth[:3] = np.nan, 1e12, -1e12
    answers = random.normal(50, 60, rows)
    answers[3:6] = np.nan, np.inf, -np.inf
    return Number(), answers, pl.Series("target", truth)


@pytest.mark.parametrize("case", [classes(2), classes(3), classes(10), numbers()], ids=["2", "3", "10", "numbers"])
def test_one_record_less_changes_no_sum_by_more_than_its_norm(case: tuple[Any, Any, Any]) -> None:
    model, rows, target = case
    whole = tallies_of(model, rows, target)
    seen = dict.fromkeys(whole.norms, 0.0)
    for at in range(len(target)):
        kept = np.delete(np.arange(len(target)), at)
        less = tallies_of(model, rows[kept], target[kept])
        assert (less.norms, less.shares, less.sizes) == (whole.norms, whole.shares, whole.sizes)
        for name, norm in whole.norms.items():
            moved = whole.sums(name, np.ones(whole.rows)) - less.sums(name, np.ones(less.rows))
            assert np.linalg.norm(moved) <= norm + 1e-12
            seen[name] = max(seen[name], float(np.linalg.norm(moved)))
    for name, norm in whole.norms.items():
        assert seen[name] > 0.6 * norm  # no norm is far too large


TRAININGS = [
    [DiscreteLaplace(20.0), Gaussian(12.0), Gaussian(4.0)],
    [Repeated(Gaussian(30.0), 50)],
    [Repeated(Composed((PoissonSampled(0.02, Gaussian(1.0)),)), 300), PoissonSampled(0.02, Gaussian(2.0))],
]


@pytest.mark.parametrize("training", TRAININGS, ids=["sums", "rounds", "samples"])
def test_the_events_of_scores_are_among_those_of_the_training(training: list[Event]) -> None:
    scores = scoring_events(training)
    assert scores
    assert spent(scores, 1e-5).epsilon <= spent(training, 1e-5).epsilon
    for event in scores:
        one, times = (event.event, event.times) if isinstance(event, Repeated) else (event, 1)
        there = sum(
            (each.times if isinstance(each, Repeated) else 1)
            for each in training
            if one in (each, *([each.event] if isinstance(each, Repeated) else []))
            or (isinstance(each, Repeated) and each.event == Composed((one,)))
        )
        assert times <= there


def test_a_training_without_gaussian_noise_has_no_scores() -> None:
    assert noisy_scores(*classes(2), [DiscreteLaplace(2.0)], Source()).how == "none"


@pytest.mark.parametrize("training", TRAININGS, ids=["sums", "rounds", "samples"])
def test_noisy_scores_scatter_around_the_exact_ones_as_they_say(training: list[Event]) -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 4000)
    sure = random.normal(size=(4000, 3))
    sure[np.arange(4000), truth] += 1.5
    chances = np.exp(sure) / np.exp(sure).sum(1, keepdims=True)
    target = pl.Series("target", [f"c{one}" for one in truth])
    exact = exact_scores(Guess(3), chances, target)
    assert exact.accuracy is not None
    assert exact.auc is not None
    off = []
    for seed in range(40):
        noisy = noisy_scores(Guess(3), chances, target, training, Source(insecure_seed=seed))
        assert noisy.accuracy is not None
        assert noisy.auc is not None
        assert 0 < noisy.margin < 0.05
        off.append((noisy.accuracy - exact.accuracy) / (noisy.margin / 1.96))
        assert abs(noisy.auc - exact.auc) < 0.05
        assert abs(noisy.loss - exact.loss) < 0.25
        assert abs(noisy.rows - 4000) < 300
    assert 0.5 < np.std(off) < 1.6  # seeds are fixed; by chance, less than one in a million would be outside
    assert abs(np.mean(off)) < 0.8


def test_errors_of_numbers_scatter_as_they_say() -> None:
    random = np.random.default_rng(0)
    truth = random.uniform(0, 100, 4000)
    answers = truth + random.normal(0, 10, 4000)
    exact = exact_scores(Number(), np.clip(answers, 0, 100), pl.Series(truth))
    off = []
    for seed in range(40):
        noisy = noisy_scores(Number(), answers, pl.Series(truth), [Gaussian(4.0)], Source(insecure_seed=seed))
        assert abs(noisy.baseline - exact.baseline) < 50
        off.append((noisy.loss - exact.loss) / (noisy.margin / 1.96))
    assert 0.5 < np.std(off) < 1.6
    assert abs(np.mean(off)) < 0.8


@pytest.mark.parametrize("events", [[Gaussian(0.5)], [Gaussian(1e4)], [PoissonSampled(0.01, Gaussian(50.0))]], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_scores_of_few_records_or_much_noise_are_still_scores(events: list[Event], rows: int) -> None:
    for model, given, target in (classes(2), classes(4), numbers()):
        scores = noisy_scores(model, given[:rows], target[:rows], events, Source(insecure_seed=3))
        assert scores.rows >= 1
        for value in (scores.accuracy, scores.auc):
            assert value is None or 0 <= value <= 1
        assert math.isfinite(scores.margin)
        assert math.isnan(scores.loss) or scores.loss >= 0  # not a number where noise hides it
        assert math.isnan(scores.baseline) or scores.baseline >= 0
        assert all(cell >= 0 for row in scores.confusion for cell in row)
        for curve in scores.curves:
            assert (np.diff(np.array(curve), axis=0) >= 0).all()
        json.dumps(scores.to_dict(), allow_nan=False)


def test_a_score_that_noise_hides_is_left_out() -> None:
    model, given, target = classes(2)
    unsure = noisy_scores(model, given, target, [Gaussian(1e4)], Source(insecure_seed=1))
    assert unsure.auc is None
    assert math.isnan(unsure.loss)
    hidden = noisy_scores(*numbers(), [Gaussian(1e4)], Source(insecure_seed=1))
    assert math.isnan(hidden.loss)
    assert hidden.to_dict()["loss"] is None


# --- what is published beside a model -------------------------------------------------------------


def numbers_in(plain: Any) -> set[float]:
    """Return all numbers of a JSON file that are not whole."""
    if isinstance(plain, dict | list):
        return {one for value in (plain.values() if isinstance(plain, dict) else plain) for one in numbers_in(value)}
    return {plain} if isinstance(plain, float) and not plain.is_integer() else set()


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "naive-bayes", "target": "ill", "epsilon": "1,3"},
        {"model": "linear", "target": "cost", "regression": True, "epsilon": "1,3"},
        {
            "model": "mlp",
            "target": "ill",
            "epsilon": None,
            "noise_multiplier": [2.0, 3.0],
            "epochs": 2,
            "batch_size": 99,
        },
    ],
    ids=lambda asked: asked["model"],
)
def test_no_file_of_a_release_holds_an_exact_score(tmp_path: Path, asked: dict[str, Any]) -> None:
    training = sf.train(TABLE, delta=1e-4, **grouped(asked, privacy=Privacy))
    sf.save(training, tmp_path / "out")
    own = tmp_path / "out.owner.json"
    assert own.stat().st_mode & 0o777 == 0o600
    told = json.loads(own.read_text())
    assert [run["name"] for run in told["runs"]] == [run.name for run in training.runs]
    exact = set[float]()
    for run, one in zip(training.runs, told["runs"], strict=True):
        assert run.scores.how == "noisy"
        model = training.models[run.name]
        found = exact_scores(model, training.material.test, training.material.test_target)
        assert one["scores"]["loss"] == found.loss
        assert one["scores"]["rows"] == found.rows == len(training.material.test_target)
        exact |= numbers_in([found.loss, found.accuracy, found.auc, found.baseline, one["seconds"]])
        exact |= numbers_in([told[name] for told in one["history"] for name in ("loss", "score", "seconds")])
    exact = {one for one in exact if len(repr(one)) > 9}  # 93 of 120 is 0.775, and so may be a noisy point of a curve
    assert len(exact) >= 5
    for path in (tmp_path / "out").rglob("*.json"):
        plain = json.loads(path.read_text())
        assert not numbers_in(plain) & exact, path.name
        assert "seconds" not in json.dumps(plain).replace('"seconds": 0.0', "")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "noisy" in page
    for run in training.runs:
        events = [Event.from_dict(one) for one in run.facts["events"]]
        assert spent(events, 1e-4).epsilon == run.facts["spent"] <= run.epsilon
        assert sf.verify(tmp_path / "out" / run.name).ok


def _masked(plain: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a file without what is declared as noisy, and without times and hashes of files."""
    noisy = {"accuracy", "loss", "auc", "margin", "confusion", "curves", "baseline"}
    if isinstance(plain, dict):
        scores = plain.get("how") == "noisy"  # their number of rows is an estimate, too
        hidden = {"made", "files", *(noisy if "scores" in plain or scores else ()), *(["rows"] if scores else [])}
        return {name: _masked(value, (*path, name)) for name, value in plain.items() if name not in hidden}
    return [_masked(one, path) for one in plain] if isinstance(plain, list) else plain


def test_the_label_of_a_held_out_person_changes_nothing_that_is_not_noisy(tmp_path: Path) -> None:
    frame = people(600)
    key = key_of(5)  # that of the insecure seed below, which makes all noise equal, too
    found = next(at for at in range(600) if all(_tests(frame, at, label, key) for label in ("yes", "no")))
    folders = []
    for label in ("yes", "no"):
        table = sf.Table(_labelled(frame, found, label), sf.Schema(COLUMNS))
        seeded = Privacy(insecure_seed=5)
        training = sf.train(table, "naive-bayes", target="ill", epsilon="0.5,2", delta=1e-4, privacy=seeded)
        assert training.runs[0].owner is not None
        folders.append((tmp_path / label, training.runs[0].owner["scores"]["confusion"]))
        sf.save(training, tmp_path / label)
    (one, counts), (other, others) = folders
    assert counts != others
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    for name in names:
        if name.suffix == ".json":
            assert _masked(json.loads((one / name).read_text())) == _masked(json.loads((other / name).read_text()))
        elif name.suffix != ".html":  # the page is made of the same numbers
            assert (one / name).read_bytes() == (other / name).read_bytes()


def _labelled(frame: pl.DataFrame, at: int, label: str) -> pl.DataFrame:
    return frame.with_columns(ill=pl.when(pl.int_range(pl.len()) == at).then(pl.lit(label)).otherwise("ill"))


def _tests(frame: pl.DataFrame, at: int, label: str, key: bytes) -> bool:
    """Say whether a record is held out whichever label it has, and nobody is like it."""
    changed = _labelled(frame, at, label)
    row = changed.row(at)
    if changed.rows().count(row) > 1:
        return False
    material = material_of(sf.Table(changed, sf.Schema(COLUMNS)), target="ill", key=key)
    return (*row[:2], row[3]) in material.test.to_polars().rows()


def test_no_scores_are_released_if_none_are_asked_for(tmp_path: Path) -> None:
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon=1, delta=1e-4, split=Split(scores="none"))
    (run,) = training.runs
    assert run.scores.how == "none"
    assert run.owner is not None
    assert run.owner["scores"]["accuracy"] > 0.5
    assert (run.to_dict()["accuracy"], run.to_dict()["loss"]) == (None, None)
    sf.save(training, tmp_path / "out")
    assert sf.verify(tmp_path / "out").ok
    told = json.loads((tmp_path / "out" / "certificate.json").read_text())["loss"]
    assert told == {"scores": "none", "accuracy": None, "auc": None, "loss": None, "margin": 0.0, "events": []}


def test_scores_of_public_data_are_exact_and_nothing_is_hidden(tmp_path: Path) -> None:
    training = sf.train("nursery", "naive-bayes", target="class", epsilon=1)
    (run,) = training.runs
    assert (run.scores.how, run.owner, training.is_public) == ("exact", None, True)
    sf.save(training, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert json.loads((tmp_path / "out" / "certificate.json").read_text())["source"]["public"] is True
    assert "the data set is public" in (tmp_path / "out" / "report.html").read_text()


def test_an_interrupted_sweep_goes_on_with_its_division(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"target": "ill", "delta": 1e-4, "folder": tmp_path / "sweep"}
    first = sf.train(TABLE, "naive-bayes", epsilon=1, **asked)
    assert (tmp_path / "sweep" / "settings.json").stat().st_mode & 0o777 == 0o600
    again = sf.train(TABLE, "naive-bayes", epsilon="1,2", **asked)
    assert again.material.key == first.material.key
    assert again.material.test.frame.equals(first.material.test.frame)
    assert again.runs[0] == first.runs[0]
    other = sf.train(TABLE, "naive-bayes", epsilon=1, target="ill", delta=1e-4)
    assert other.material.key != first.material.key


def test_scores_are_charged_to_the_ledger_of_test_rows_that_have_one(tmp_path: Path) -> None:
    test = sf.Table(people(200, seed=9), sf.Schema(COLUMNS))
    asked: dict[str, Any] = {"target": "ill", "split": Split(test=test), "delta": 1e-4}
    with sf.Ledger.grant(test, epsilon=1.5, delta=1e-4) as ledger:
        training = sf.train(TABLE, "naive-bayes", epsilon=1, **asked)
        events = [Event.from_dict(one) for one in training.runs[0].scores.events]
        assert ledger.spent.epsilon == pytest.approx(spent(events, 1e-4).epsilon)
        with pytest.raises(sf.errors.OptionError, match="leave 'none' out"):
            sf.train(TABLE, "naive-bayes", epsilon="none", **asked)


def test_held_out_rows_without_a_number_stop_no_training() -> None:
    """Whether anybody was held out, and has a number, is private: a training must not fail for it."""
    frame = people(40).with_columns(cost=pl.lit(math.nan))
    asked: dict[str, Any] = {"target": "cost", "regression": True, "epsilon": 1, "delta": 1e-3, "epochs": 1}
    training = sf.train(sf.Table(frame, sf.Schema(COLUMNS)), "mlp", split=Split(holdout=0.01), **asked)
    (run,) = training.runs
    assert run.scores.how == "noisy"
    assert run.owner is not None
    assert run.owner["scores"] is None


def test_a_file_for_the_owner_that_cannot_be_written_is_refused_before_the_release(tmp_path: Path) -> None:
    training = sf.train(TABLE, "naive-bayes", target="ill", epsilon=1, delta=1e-4)
    (tmp_path / "out.owner.json").mkdir()
    with pytest.raises(sf.errors.FileError, match=r"out\.owner\.json"):
        sf.save(training, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out.owner.json").rmdir()
    (tmp_path / "out.owner.json").write_text("of before")
    sf.save(training, tmp_path / "out")
    assert (tmp_path / "out.owner.json").stat().st_mode & 0o777 == 0o600
