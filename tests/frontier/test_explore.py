"""The frontier: its grid, its Pareto set, its choice, and runs that are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import InputError, OptionError
from sfumato.frontier.sweep.choose import Limits
from sfumato.frontier.sweep.explore import weakest
from sfumato.frontier.sweep.frontier import Frontier
from sfumato.frontier.sweep.grid import DEFAULTS, Candidate, candidates_of
from sfumato.frontier.sweep.point import Figure, Point, pareto_set
from tests.effort import effort

QUICK = {"target": "ill", "qi": ["age"], "utilities": ["tree"], "attacks": ["loss", "linkage"], "jobs": 1}


def people(rows: int = 400, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    return pl.DataFrame(
        {
            "age": age,
            "smokes": rng.choice(["no", "yes"], rows),
            "ill": np.where(rng.random(rows) < age / 100, "yes", "no"),
        }
    )


def point(text: str, risk: float, accuracy: float, spread: float = 0.0) -> Point:
    name, _, rest = text.partition(":")
    parameters = tuple((key, value) for key, _, value in (one.partition("=") for one in rest.split(",") if one))

    def figure(value: float) -> Figure:
        return Figure((value - spread, value, value + spread))

    risks = {"re_identification": figure(risk), "membership_advantage": figure(risk)}
    return Point(Candidate(name, parameters), risks, {"accuracy": figure(accuracy)}, 1.0)


FACTS = {"name": "people.csv", "target": "ill", "qi": ["age"], "models": ["forest"]}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_the_pareto_set_is_what_no_other_point_dominates(points: list[tuple[int, int]]) -> None:
    risks, utilities = [float(one) for one, _ in points], [float(one) for _, one in points]
    dominated = {i for i, (r, u) in enumerate(points) if any(a <= r and b >= u and (a, b) != (r, u) for a, b in points)}
    assert pareto_set(risks, utilities) == [i for i in range(len(points)) if i not in dominated]


def test_the_default_grid_has_at_least_thirty_points() -> None:
    assert len(candidates_of(DEFAULTS)) >= 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gided", "there is no protection 'gided'"),
        ("raw:k=2", "the protection 'raw' has no parameters"),
        ("mondrian:k=9..2", "must be like k=2..100"),
        ("mondrian:k=2,k=3", "has k twice"),
        ("mondrian:2", "has no name"),
        ("dp:k=2", "has no option 'k'"),
        ("dp:epsilon=1+guided:k=5", "must be a method of anonymization and then dp"),
        ("guided:k=5+synthetic:epsilon=1", "must be a method of anonymization and then dp"),
    ],
)
def test_a_wrong_protection_is_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        candidates_of([text])


def test_the_most_accurate_point_within_the_limits_is_chosen() -> None:
    frontier = Frontier(
        (point("raw", 1.0, 0.9), point("mondrian:k=20", 0.05, 0.8), point("dp:epsilon=1", 0, 0.7)), FACTS
    )
    chosen = frontier.choose(max_risk=0.09)
    assert chosen.point is frontier.points[1]
    assert chosen.command == (
        "sfumato anonymize people.csv --qi age --method mondrian --k 20 --representative median -o mondrian-k20"
    )
    assert frontier.choose(max_risk=0.01).point is frontier.points[2]
    none = frontier.choose(max_risk=0.01, min_accuracy=0.8)
    assert none.point is None
    assert none.reason.startswith("No protection keeps the limits")


def test_a_point_whose_limit_may_be_broken_by_chance_is_not_chosen() -> None:
    sure, unsure = point("dp:epsilon=1", 0.04, 0.7), point("dp:epsilon=2", 0.04, 0.8, spread=0.02)
    assert Limits(max_advantage=0.05).broken_by(unsure)
    assert Frontier((sure, unsure), FACTS).choose(max_advantage=0.05).point is sure


def test_a_finished_run_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**QUICK, "protections": ["raw", "mondrian:k=5"], "seeds": 1, "folder": tmp_path}
    first = sf.explore(people(), **options)
    assert all(one.stat().st_mode & 0o077 == 0 for one in tmp_path.glob("*.json"))

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("sfumato.frontier.sweep.run.measure", fail)
    assert sf.explore(people(), **options).to_dict() == first.to_dict()
    with pytest.raises(AssertionError):
        sf.explore(people(seed=1), **options)  # other rows


def test_processes_measure_the_same(tmp_path: Path) -> None:
    options = {**QUICK, "protections": ["raw", "mondrian:k=5"], "seeds": 1}
    plain, parallel = (sf.explore(people(), **{**options, "jobs": jobs}).to_dict() for jobs in (1, 2))
    for found in (plain, parallel):
        for one in found["points"]:
            del one["seconds"]
    assert plain["points"] == parallel["points"]


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sfumato: Any) -> None:
    people(seed=78).write_csv(tmp_path / "people.csv")  # a ledger is found by what the table contains
    monkeypatch.chdir(tmp_path)
    assert sfumato("budget", "grant", "people.csv", "--epsilon", "2").code == 0
    assert sfumato("query", "people.csv", "count", "--epsilon", "0.5").code == 0
    words = ["explore", "people.csv", "--target", "ill", "--qi", "age", "--model", "tree", "--attacks", "loss"]
    words += ["--protect", "mondrian:k=2..50", "--seeds", "2", "--jobs", str(effort(1, 2))]
    words += ["--uncharged", "--json", "-o"]
    charged = sfumato("budget", "history", "people.csv", "--json").json
    assert charged["spent"]["epsilon"] == 0.5
    command = [sys.executable, "-c", "from sfumato.cli.main import main; main()", *words]
    moments = np.random.default_rng().uniform(0, 12, effort(1, 10))  # measurements, after which it is killed
    for wished in sorted(moments):
        process = subprocess.Popen([*command, "killed"], cwd=tmp_path, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 300
        while len(list(tmp_path.glob("killed/points/*.json"))) < wished and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.005)
        time.sleep(wished % 0.1)  # also in the middle of a measurement, or of writing
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    ends = [sfumato(*words, name).json for name in ("killed", "whole")]
    for found in ends:
        for one in found["points"]:
            del one["seconds"]
    assert ends[0] == ends[1]
    assert not list(tmp_path.glob("killed/points/*.tmp"))
    assert sfumato("budget", "history", "people.csv", "--json").json == charged


@given(st.integers(0, 40), st.integers(0, 41))
def test_bisection_finds_the_first_that_keeps_a_limit_with_few_questions(number: int, first: int) -> None:
    asked: list[int] = []

    def keeps(place: int) -> bool:
        asked.append(place)
        return place >= first

    assert weakest(keeps, 0, number) == min(first, number)
    assert len(asked) <= number.bit_length()


def test_bisection_chooses_as_the_whole_grid_also_if_strong_parameters_cannot_be_made() -> None:
    options = {**QUICK, "attacks": ["loss"], "protections": ["mondrian:k=2..1000", "dp"], "seeds": 2}
    options |= {"max_risk": 0.03, "max_advantage": 0.3}
    whole, few = (sf.explore(people(1000), **options, bisect=bisect) for bisect in (False, True))
    assert whole.skipped  # 500 rows make no group of 1000
    assert few.data["measurements"]["run"] < whole.data["measurements"]["run"]
    assert few.best is not None
    assert few.best == whole.best


def test_bisection_finds_what_the_grid_finds_with_fewer_runs() -> None:
    options = {**QUICK, "protections": ["mondrian", "dp"], "seeds": 1, "max_risk": 0.09}
    whole, few = (sf.explore(people(4000), **options, bisect=bisect) for bisect in (False, True))
    assert few.data["measurements"]["run"] < whole.data["measurements"]["run"]
    assert not Limits(max_risk=0.09).broken_by(few.recommended.point)
    weakest = min(
        (one for one in whole.points if not Limits(max_risk=0.09).broken_by(one) and one.candidate.name == "mondrian"),
        key=lambda one: one.candidate.strength,
    )
    assert weakest.name in {one.name for one in few.points}


def test_a_recommendation_holds_when_it_is_measured_again() -> None:
    rows = people(1200)
    options = {**QUICK, "protections": ["raw", "mondrian:k=5,20,100", "dp:epsilon=0.5,5"]}
    chosen = sf.explore(rows, **options, seeds=3, max_risk=0.09, max_advantage=0.15).recommended
    assert chosen.point is not None
    for trial in range(effort(4, 20)):
        again = sf.explore(rows, **{**options, "protections": [chosen.point.name]}, seeds=3, seed=100 + 3 * trial)
        (measured,) = again.points
        assert measured.risk["re_identification"].mean <= 0.09
        assert measured.risk["membership_advantage"].mean <= 0.15


def test_each_point_names_the_runs_behind_it_and_has_the_curve_of_the_attack(tmp_path: Path) -> None:
    found = sf.explore(people(), protections=["raw", "dp:epsilon=5"], seeds=2, folder=tmp_path, **QUICK)
    assert {key for point in found.points for key in point.keys} == {one.stem for one in tmp_path.glob("*.json")}
    plain = found.to_dict()["points"][1]
    assert plain["measure"] == (
        "sfumato explore table.csv --target ill --qi age --protect dp:epsilon=5 --model tree --attacks loss,linkage "
        "--seeds 2 --seed 0"
    )
    across, upwards = np.array(plain["roc"]).T
    assert (np.diff(across) > 0).all()
    assert (np.diff(upwards) >= 0).all()
    assert upwards[-1] == 1


def test_private_protections_are_compared_on_a_text_file_too(tmp_path: Path) -> None:
    people().write_csv(tmp_path / "people.csv")
    found = sf.explore(tmp_path / "people.csv", protections=["raw", "dp:epsilon=5"], seeds=1, **QUICK)
    assert [point.name for point in found.points] == ["raw", "dp:epsilon=5"]
    assert found.skipped == {}


def test_a_private_training_on_anonymous_rows_is_compared_without_the_claim_of_an_epsilon() -> None:
    found = sf.explore(people(), protections=["raw", "guided:k=20,50+dp:epsilon=5"], seeds=1, **QUICK)
    assert [point.name for point in found.points] == ["raw", "guided:k=20+dp:epsilon=5", "guided:k=50+dp:epsilon=5"]
    said = found.points[1].to_dict()["guarantee"]
    assert said.startswith("k=20 (anonymity of the rows that the model has learned from); not differential privacy")
    assert found.points[1].risk["re_identification"].mean == 0  # no row is released


def test_the_share_of_the_work_is_that_of_the_time(tmp_path: Path) -> None:
    shares: list[float] = []
    options = {**QUICK, "protections": ["mondrian:k=2,5"], "folder": tmp_path}
    sf.explore(people(), seeds=1, **options, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    again: list[float] = []
    sf.explore(people(), seeds=2, **options, progress=again.append)
    assert len(again) == 2  # what is known takes no time
    assert again[-1] == 1


def test_what_cannot_be_made_is_named_with_its_reason() -> None:
    found = sf.explore(people(), **QUICK, protections=["raw", "mondrian:k=5000"], seeds=1)
    assert [one.name for one in found.points] == ["raw"]
    assert "mondrian:k=5000" in found.skipped
    with pytest.raises(InputError, match="no protection could be measured"):
        sf.explore(people(), **QUICK, protections=["mondrian:k=5000"], seeds=1)


def test_the_figures_say_whom_they_are_for() -> None:
    frontier = Frontier((point("raw", 1.0, 0.9),), FACTS)
    assert "not covered by any epsilon" in frontier.to_dict()["note"]
    assert frontier.to_frame().height == 1
    assert json.loads(frontier.to_json())["recommended"] is None


@pytest.mark.parametrize(
    "damaged",
    [
        *('{"risk"', "[]", '{"risk": 1}', '{"risk": {}, "utility": {}}', '{"failed": "x", "risk": {}}'),
        '{"risk": {"a": "x"}, "utility": {}, "roc": [], "seconds": 1, "made": 1}',
        '{"risk": {}, "utility": {"a": [1, null]}, "roc": [], "seconds": 1, "made": 1}',
        '{"risk": {}, "utility": {}, "roc": [[1]], "seconds": 1, "made": 1}',
        '{"risk": {}, "utility": {}, "roc": [], "seconds": "1", "made": 1}',
    ],
)
def test_a_damaged_file_is_measured_again(damaged: str, tmp_path: Path) -> None:
    options = {**QUICK, "protections": ["raw"], "seeds": 1, "folder": tmp_path}
    sf.explore(people(60), **options)
    (stored,) = tmp_path.glob("*.json")
    stored.write_text(damaged)
    assert "accuracy" in sf.explore(people(60), **options).points[0].utility
    assert json.loads(stored.read_text())["utility"]["accuracy"]


def test_a_rare_class_may_be_in_one_part_of_the_rows_only() -> None:
    rows = people()
    rare = rows.with_columns(ill=pl.when(pl.int_range(pl.len()) < 2).then(pl.lit("perhaps")).otherwise("ill"))
    found = sf.explore(rare, protections=["raw", "mondrian:k=5"], seeds=2, **QUICK)
    assert [one.name for one in found.points] == ["raw", "mondrian:k=5"]


def test_zero_and_one_are_classes_for_every_protection() -> None:
    rows = people().with_columns(ill=(pl.col("ill") == "yes").cast(pl.Int64))
    asked = ["raw", "mondrian:k=5", "lattice:k=5", "guided:k=5", "dp:epsilon=5", "synthetic:epsilon=5"]
    for data in (rows, rows.cast({"ill": pl.Boolean}), rows.with_columns(ill=pl.col("ill") / 1)):
        found = sf.explore(data, **QUICK, protections=asked, seeds=1)
        assert found.skipped == {}
        assert [point.name for point in found.points] == asked
        assert "ill" not in found.data["numbers"]
        assert found.points[-1].utility["query_error"].mean < 0.5


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (pl.int_range(pl.len()), "the target 'ill' has 400 values, and the models predict at most 200 classes"),
        (pl.col("age") / 7, "the target 'ill' holds decimal numbers"),
        (pl.date(2020, 1, 1) + pl.duration(days=pl.col("age") % 3), "the target 'ill' holds dates or times"),
    ],
)
def test_a_target_without_classes_is_refused_at_once(labels: pl.Expr, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sf.explore(people().with_columns(ill=labels), **QUICK, protections=["raw"], seeds=1)


def test_texts_that_would_fill_the_memory_are_refused_at_once() -> None:
    rows = pl.DataFrame({"code": pl.int_range(30_000, eager=True).cast(pl.String), "ill": ["yes", "no"] * 15_000})
    with pytest.raises(
        InputError, match=r"column 'code' has 30,000 different texts in 30,000 rows: a model of them needs"
    ):
        sf.explore(rows, **{**QUICK, "qi": ["code"]}, protections=["raw"], seeds=1)


def test_categories_of_other_rows_do_not_stop_the_lattice() -> None:
    rare = pl.when(pl.int_range(pl.len()) < 3).then(pl.format("rare {}", pl.int_range(pl.len()))).otherwise("smokes")
    rows = people().with_columns(smokes=rare)
    found = sf.explore(rows, **{**QUICK, "qi": ["age", "smokes"]}, protections=["lattice:k=5"], seeds=3)
    assert found.skipped == {}


def test_one_class_in_the_test_rows_leaves_out_the_auc() -> None:
    rows = people(60).with_columns(ill=pl.when(pl.int_range(pl.len()) < 1).then(pl.lit("yes")).otherwise(pl.lit("no")))
    found = sf.explore(rows, **{**QUICK, "attacks": ["linkage"]}, protections=["raw"], seeds=1)
    assert "auc" not in found.points[0].utility
    assert json.loads(found.to_json())["points"][0]["utility"]["accuracy"]["mean"] > 0.9


def test_accuracy_is_compared_with_that_of_a_guess() -> None:
    is_rare = pl.int_range(pl.len()) % 10 == 0
    rows = people().with_columns(ill=pl.when(is_rare).then(pl.lit("yes")).otherwise(pl.lit("no")))
    found = sf.explore(rows, **QUICK, protections=["raw", "dp:epsilon=5"], seeds=2, max_advantage=1)
    assert found.data["guess"] == 0.9
    assert "no model here is right more often than a guess that is always the most frequent class (90.0%)" in (
        found.recommended.reason
    )
    points = (point("raw", 1.0, 0.9), point("mondrian:k=20", 0.06, 0.8))
    said = Frontier(points, {**FACTS, "guess": 0.7}).choose(max_risk=0.09).reason
    assert "; a guess that is always the most frequent class, 70.0%." in said
    assert "Mind" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--target", "il"], "there is no column 'il'"),
        (["--target", "ill", "--max-risk", "2"], "--max-risk must be a number from 0 to 1"),
        (["--target", "ill", "--protect", "mondrain"], "there is no protection 'mondrain'"),
        (["--target", "ill", "--seeds", "0"], "--seeds must be a whole number from 1"),
        (["--target", "ill", "--bisect"], "bisect needs a limit"),
        ([], "the column that models predict is not named"),
    ],
)
def test_wrong_options_end_in_one_sentence(options: list[str], said: str, tmp_path: Path, sfumato: Any) -> None:
    people(50).write_csv(tmp_path / "people.csv")
    result = sfumato("explore", str(tmp_path / "people.csv"), *options)
    assert result.code == 2
    assert said in result.err


def test_exact_figures_of_data_with_a_budget_need_a_declaration(tmp_path: Path, sfumato: Any) -> None:
    people(seed=77).write_csv(tmp_path / "people.csv")  # a ledger is found by what the table contains
    words = ["explore", str(tmp_path / "people.csv"), "--target", "ill", "--protect", "raw", "--model", "tree"]
    words += ["--attacks", "loss", "--seeds", "1", "--jobs", "1", "--json"]
    assert "no budget was granted" in sfumato(*words).json["charging"]
    assert sfumato("budget", "grant", str(tmp_path / "people.csv"), "--epsilon", "2").code == 0
    refused = sfumato(*words)
    assert refused.code == 2
    assert "the data have a budget (epsilon 2, delta" in refused.err
    assert "--uncharged" in refused.err
    assert "declared to be the owner's" in sfumato(*words, "--uncharged").json["charging"]
    assert "declared public" in sfumato(*words, "--public").json["charging"]
    assert sfumato("budget", "history", str(tmp_path / "people.csv"), "--json").json["spent"]["epsilon"] == 0


def test_why_no_anonymous_table_keeps_a_limit_is_said() -> None:
    points = (point("raw", 1.0, 0.9), point("mondrian:k=20", 0.06, 0.8), point("dp:epsilon=1", 0, 0.7))
    facts = {**FACTS, "unchanged": ["smokes", "job"]}
    said = Frontier(points, facts).choose(max_advantage=0.05).reason
    assert "only its quasi-identifiers (age) are changed, and 2 other columns are released unchanged" in said
    assert "No anonymous table" not in Frontier(points, facts).choose(max_advantage=0.07).reason
    assert "No anonymous table" not in Frontier(points, FACTS).choose(max_advantage=0.05).reason
