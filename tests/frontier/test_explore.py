"""The frontier: its grid, its Pareto set, its choice, and runs that are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import InputError, OptionError
from sfumato.frontier.sweep.frontier import Figure, Frontier, Limits, Point, pareto_set
from sfumato.frontier.sweep.grid import DEFAULTS, Candidate, candidates_of

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
    assert chosen.command == "sfumato anonymize people.csv --qi age --method mondrian --k 20 -o mondrian-k20"
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


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    people().write_csv(tmp_path / "people.csv")
    words = ["explore", "people.csv", "--target", "ill", "--qi", "age", "--model", "tree", "--attacks", "loss"]
    words += ["--protect", "mondrian:k=2..50", "--seeds", "2", "--jobs", "1", "--json", "-o"]
    command = [sys.executable, "-c", "from sfumato.cli.main import main; main()", *words]
    for wished in (1, 4, 7):  # measurements, after which it is killed
        process = subprocess.Popen([*command, "killed"], cwd=tmp_path, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("killed/points/*.json"))) < wished and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    ends = [
        json.loads(subprocess.run([*command, name], cwd=tmp_path, check=True, capture_output=True).stdout)
        for name in ("killed", "whole")
    ]
    for found in ends:
        for one in found["points"]:
            del one["seconds"]
    assert ends[0] == ends[1]
    assert not list(tmp_path.glob("killed/points/*.tmp"))


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
    for trial in range(20):
        again = sf.explore(rows, **{**options, "protections": [chosen.point.name]}, seeds=3, seed=100 + 3 * trial)
        (measured,) = again.points
        assert measured.risk["re_identification"].mean <= 0.09
        assert measured.risk["membership_advantage"].mean <= 0.15


def test_an_own_analysis_is_a_utility() -> None:
    def rows_left(frame: pl.DataFrame) -> float:
        return float(frame.height)

    found = sf.explore(people(), **{**QUICK, "utilities": ["tree", rows_left]}, protections=["raw"], seeds=1)
    assert found.points[0].utility["rows_left"].mean == 200


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


def test_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    options = {**QUICK, "protections": ["raw"], "seeds": 1, "folder": tmp_path}
    sf.explore(people(), **options)
    (stored,) = tmp_path.glob("*.json")
    stored.write_text('{"risk"')
    assert sf.explore(people(), **options).points
    assert json.loads(stored.read_text())["risk"]


def test_the_page_is_small_and_begins_with_the_recommendation(tmp_path: Path) -> None:
    points = point("raw", 1.0, 0.9), point("mondrian:k=20", 0.05, 0.8), point("dp:epsilon=1", 0, 0.7)
    sf.write_report(Frontier(points, FACTS, limits=Limits(max_risk=0.09)), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Take mondrian:k=20." in page
    assert page.index("Take mondrian:k=20.") < page.index("<figure")
    assert "not covered by any epsilon" in page
    assert "Accuracy against epsilon" in page
    assert len(page) < 1_000_000
