"""Synthetic tables that protect people: at most so many rows of each are read, and people with several are drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import FindRowsPerPerson, Gaussian
from sfumato.budget.noise import Source
from sfumato.data.certificate import Certificate
from sfumato.data.recipe import Recipe
from sfumato.errors import BudgetError, ColumnError, InputError, OptionError
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers import Independent, LabelledTree
from sfumato.synthesizers.tables.base import Axis, Rows
from sfumato.synthesizers.tables.further_rows import FURTHER, further_shares, learn_further
from sfumato.synthesizers.tables.people import People
from tests.forgery import bind, change_json, failed, unchecked

SCHEMA = sf.Schema(
    [
        sf.Column(name="patient_id", role="person"),
        sf.Column(name="sex", domain=["f", "m"]),
        sf.Column(name="born", bounds=(1920, 2015)),
        sf.Column(name="ward", domain=["A", "B", "C", "D"]),
        sf.Column(name="paid", bounds=(0, 9999)),
    ]
)


def visits(people: int = 200, seed: int = 0) -> pl.DataFrame:
    """Visits of people: sex and birth year stay, half of the wards stay, what is paid changes."""
    rng = np.random.default_rng(seed)
    sex, born, ward = rng.integers(0, 2, people), rng.integers(1930, 2000, people), rng.integers(0, 4, people)
    who = np.repeat(np.arange(people), rng.integers(1, 6, people))
    again = rng.random(len(who)) < 0.7
    return pl.DataFrame(
        {
            "patient_id": who,
            "sex": np.array(["f", "m"])[sex[who]],
            "born": born[who],
            "ward": np.array(list("ABCD"))[np.where(again, ward[who], rng.integers(0, 4, len(who)))],
            "paid": rng.integers(0, 10_000, len(who)),
        }
    ).sample(fraction=1, shuffle=True, seed=seed)


def made(frame: Any = None, epsilon: float = 2, **options: Any) -> sf.Release:
    table = sf.Table(visits() if frame is None else frame, SCHEMA)
    return sf.synthesize(table, epsilon, **{"method": Independent(), "rows_per_person": 3, "ledger": False, **options})


# --- rows ---------------------------------------------------------------------------------------


def test_noise_grows_with_the_rows_of_a_person_and_what_is_bought_of_one_row_does_not() -> None:
    open_ = sf.Schema([SCHEMA["patient_id"], sf.Column(name="born"), sf.Column(name="ward")])
    one, three = (
        sf.synthesize(sf.Table(visits().drop("sex", "paid"), open_), 2, rows_per_person=rows, rows=9, ledger=False)
        for rows in (1, 3)
    )
    assert one.plan.noise == pytest.approx(three.plan.noise, rel=1e-9)
    assert [purchase.describes for purchase in one.plan.purchases] == [True, True, False, False, False]
    for first, other in zip(one.plan.purchases, three.plan.purchases, strict=True):
        times = 1 if first.describes else 3
        if isinstance(first.event, Gaussian):
            assert isinstance(other.event, Gaussian)
            assert other.event.scale == pytest.approx(times * first.event.scale, rel=1e-9)
            assert (first.event.sensitivity, other.event.sensitivity) == (1, times)
        else:
            assert other.event == first.event
    assert {one.event.unit for one in three.plan.purchases} == {"person"}
    assert three.unit == "person"
    assert str(three.guarantees[0]) == "epsilon=2, delta=1e-05 (add or remove one person)"


def test_rows_beyond_the_bound_are_not_read() -> None:
    """One person has most rows: with a bound of 2, their value is nearly gone."""
    frame = pl.DataFrame({"patient_id": [0] * 900 + list(range(1, 101)), "ward": ["D"] * 900 + ["A"] * 100})
    schema = sf.Schema([SCHEMA["patient_id"], SCHEMA["ward"]])
    release = sf.synthesize(
        sf.Table(frame, schema), 200, method="independent", rows_per_person=2, insecure_seed=1, ledger=False
    )
    assert 95 < release.rows < 110
    assert (release.table.to_polars()["ward"] == "D").sum() < 10


def test_rows_without_a_person_are_people_of_their_own(tmp_path: Path) -> None:
    people = People.of(pl.Series(["b", None, "a", None, "b"]))
    assert people.count == 4
    assert people.at_most(1, Source()).tolist() in ([0, 1, 2, 3], [1, 2, 3, 4])
    frame = visits().with_columns(patient_id=pl.lit(None, dtype=pl.Int64))
    frame.write_csv(tmp_path / "visits.csv")
    for data in (frame, tmp_path / "visits.csv"):
        release = sf.synthesize(
            data, 100, schema=SCHEMA, method="independent", rows_per_person=1, insecure_seed=3, ledger=False
        )
        assert abs(release.rows - len(frame)) < 10


def test_every_row_its_own_person_is_the_same_as_rows() -> None:
    frame = visits()
    alone = frame.with_columns(patient_id=pl.int_range(len(frame)))
    schema = sf.Schema(one for one in SCHEMA.columns if one.name != "patient_id")
    release = made(alone, rows_per_person=1, insecure_seed=4)
    plain = sf.synthesize(
        sf.Table(frame.drop("patient_id"), schema), 2, method=Independent(), insecure_seed=4, ledger=False
    )
    assert release.table.to_polars().equals(plain.table.to_polars())


def test_a_parquet_file_gives_what_memory_gives(tmp_path: Path) -> None:
    frame = visits()
    frame.write_parquet(tmp_path / "visits.parquet")
    for more in ({}, {"people": 50}):
        one, other = (
            sf.synthesize(
                data, 2, schema=SCHEMA, method="independent", rows_per_person=2, insecure_seed=5, ledger=False, **more
            ).table.to_polars()
            for data in (frame, tmp_path / "visits.parquet")
        )
        assert one.equals(other)


def test_survey_weights_count_relative_to_their_bound_for_people_too() -> None:
    frame = visits().with_columns(w=pl.lit(5.0))
    schema = sf.Schema([*SCHEMA.columns, sf.Column(name="w", bounds=(0, 10))])
    options: dict[str, Any] = {"method": "independent", "rows_per_person": 5, "insecure_seed": 1, "ledger": False}
    half = sf.synthesize(sf.Table(frame, schema), 300, weights="w", **options)
    whole = sf.synthesize(sf.Table(frame.drop("w"), SCHEMA), 300, **options)
    assert abs(whole.rows - len(frame)) < 20
    assert abs(half.rows - len(frame) / 2) < 20


def test_a_ledger_of_people_is_charged_and_one_of_rows_refuses(tmp_path: Path) -> None:
    frame = visits()
    rows = sf.Ledger.grant(frame, epsilon=9, delta=1e-3, path=tmp_path / "rows.ledger")
    with pytest.raises(OptionError, match=r"protects a person, and the ledger .* a row"):
        made(frame, ledger=rows)
    assert rows.spent.epsilon == 0
    people = sf.Ledger.grant(frame, epsilon=9, delta=1e-5, path=tmp_path / "people.ledger", unit="person")
    release = made(frame, ledger=people, people=20)
    assert 1.9 < people.spent.epsilon <= 2
    assert release.details["charged"]


def test_a_recipe_makes_the_same_kind_of_release_again() -> None:
    release = made(people=20)
    again = sf.run(release.recipe, visits(), ledger=False)
    assert again.unit == "person"
    assert again.people == 20
    assert again.plan.events == release.plan.events


# --- people -------------------------------------------------------------------------------------


def test_people_have_several_rows_and_what_stays_is_the_same_in_all_of_them() -> None:
    frame = visits(3000)
    release = made(frame, 50, people=2000, method=LabelledTree(pool=20_000), rows_per_person=4, delta=1e-4)
    rows = release.table.to_polars()
    assert rows.columns == ["patient_id", "sex", "born", "ward", "paid"]
    assert rows["patient_id"].unique().to_list() == list(range(1, 2001))
    counts = rows.group_by("patient_id").len()["len"]
    assert counts.max() == 4
    truth = frame.group_by("patient_id").len()["len"].clip(upper_bound=4)
    for size in range(1, 5):
        assert abs((counts == size).mean() - (truth == size).mean()) < 0.05
    several = rows.filter(pl.len().over("patient_id") > 1)
    for name in ("sex", "born"):
        changes = several.group_by("patient_id").agg(pl.col(name).n_unique())[name]
        assert (changes > 1).mean() < 0.02
    first = several.group_by("patient_id", maintain_order=True).head(2)
    pairs = first.group_by("patient_id").agg((pl.col("ward").n_unique() == 1).alias("same"))["same"].mean()
    assert abs(pairs - (0.49 + 0.51 / 4)) < 0.05  # both stay, or by chance
    assert (first.group_by("patient_id").agg(pl.col("paid").n_unique() == 1)["paid"]).mean() < 0.05
    for name, size in (("sex", 2), ("ward", 4)):
        shares = (rows[name].value_counts()["count"] / len(rows)).sort(descending=True)
        assert shares[size:].sum() < 0.01  # noise may leave a trace of missing values
        assert (shares[:size] - 1 / size).abs().max() < 0.06


def test_people_meet_the_constraints_in_all_of_their_rows() -> None:
    release = made(
        people=300,
        constraints=["not (ward = A and sex = m)", "ward -> floor {A: 1, B: 1, C: 2, D: 3}"],
        frame=visits().with_columns(floor=pl.lit(1)),
    )
    rows = release.table.to_polars()
    assert not rows.filter((pl.col("ward") == "A") & (pl.col("sex") == "m")).height
    assert (rows.filter(pl.col("ward") == "D")["floor"] == 3).all()
    assert release.people == 300


def test_one_person_moves_the_sum_over_pairs_by_at_most_its_norm() -> None:
    rng = np.random.default_rng(0)
    axes = (Axis("a", 5, False), Axis("b", 300, True), Axis("rows", 4, True))
    codes = (rng.integers(0, 4, 500), rng.integers(0, 299, 500), rng.integers(0, 3, 500))
    method = Independent()
    shares = {**method.shares(axes, None), **further_shares(method.shares(axes, None))}
    model = method.learn(Rows(axes, codes, None), NoisySums(shares, 1.0, Source(insecure_seed=1)), rng)
    first = [one[:200] for one in codes[:2]]
    second = [np.where(rng.random(200) < 0.5, one[:200], one[200:400]) for one in codes[:2]]

    class Recording(NoisySums):
        def __call__(self, name: str, sums: Any, norm: float) -> Any:
            asked.append((np.array(sums), norm))
            return super().__call__(name, sums, norm)

    asked: list[tuple[Any, float]] = []
    found = []
    for left in (None, 0, 77, 199):
        parts = [[one if left is None else np.delete(one, left) for one in part] for part in (first, second)]
        sums = Recording(shares, 1.0, Source(insecure_seed=2))
        found.append(learn_further(model, axes, parts[0], parts[1], sums, np.random.default_rng(1)))
    assert len(asked) == 4
    for sums_, norm in asked[1:]:
        assert norm == asked[0][1] == 2**0.5
        assert 0 < np.linalg.norm(asked[0][0] - sums_) <= norm * (1 + 1e-9)
    assert len({str([one.tolist() for one in each.groups]) for each in found}) == 1  # groups follow from what is noisy


def test_a_generator_of_people_costs_what_rows_cost_and_the_pairs() -> None:
    release = made(people=20, rows_per_person=5)
    assert [one.name for one in release.plan.purchases] == ["values", "cells", FURTHER]
    assert {one.sensitivity for one in release.plan.events} == {1}
    assert release.plan.events == made(people=20, rows_per_person=2).plan.events


def test_loaded_people_are_drawn_again(tmp_path: Path) -> None:
    release = made(people=40)
    sf.save(release, tmp_path / "made")
    assert failed(tmp_path / "made") == []
    loaded = sf.load(tmp_path / "made")
    assert loaded.people == 40
    assert loaded.rows_per_person == 3
    assert loaded.unit == "person"
    assert loaded.sample(7, seed=3).equals(release.sample(7, seed=3))
    assert loaded.sample(7, seed=3)["patient_id"].n_unique() == 7
    assert loaded.sample(0).shape == (0, 5)
    with pytest.raises(OptionError, match="people are drawn"):
        loaded.sample(7, given={"sex": "f"})
    page = (tmp_path / "made" / "report.html").read_text()
    assert "one person: one row and one pair of rows of each were read" in page
    assert "rows of 40 people" in page
    assert "add or remove one person" in page


def test_an_evaluation_compares_the_rows_of_people() -> None:
    one = pl.DataFrame({"who": [1, 1, 2, 2, 3, 4], "sex": ["f", "f", "m", "m", "f", "m"], "age": [1, 5, 1, 5, 1, 5]})
    other = pl.DataFrame({"who": [1, 1, 2, 2, 3, 3], "sex": ["f", "m", "m", "m", "f", "f"], "age": [1, 1, 5, 5, 1, 5]})
    original = sf.Table.of(one, person="who")
    found = sf.evaluate(original, other, models=(), attacks=()).people
    assert found is not None
    assert found.counts == 0.5
    assert found.same == {"sex": (1.0, 2 / 3), "age": (0.0, 2 / 3)}
    assert 2 / 3 <= found.pairs["age"] <= 1
    again = sf.evaluate(original, one, models=(), attacks=())
    assert again.people is not None
    assert again.people.counts == 0
    assert again.to_dict()["people"]["same"] == {"sex": [1.0, 1.0], "age": [0.0, 0.0]}
    assert sf.evaluate(original, one.drop("who"), models=(), attacks=()).people is None
    assert "people" not in sf.evaluate(one, one, models=(), attacks=()).to_dict()


# --- a bound that is bought ---


@pytest.mark.parametrize("method", ["tree", "aim", "independent", "copula"])
def test_whatever_bound_is_bought_all_together_costs_no_more_than_epsilon(method: str, tmp_path: Path) -> None:
    with sf.Ledger.grant(visits(), epsilon=2, delta=1e-5, path=tmp_path / "people", unit="person") as ledger:
        release = made(rows_per_person="bought", method=method, rows=20, ledger=ledger)
        assert 1.99 < ledger.spent.epsilon <= 2
        assert len(ledger.events) == 1
        with pytest.raises(BudgetError, match="would exceed the limit"):
            made(rows_per_person="bought", method=method, rows=20, ledger=ledger)
        assert len(ledger.events) == 1
    search = FindRowsPerPerson(epsilon=0.2)
    assert release.events[0] == search.event
    assert release.rows_per_person in search.CANDIDATES
    assert release.to_dict()["rows_per_person"] == release.rows_per_person
    for rows in search.CANDIDATES:
        plan = replace(release.plan, rows_per_person=rows)
        assert 1.99 < plan.spent.epsilon <= 2
        assert {one.sensitivity for one in plan.events if isinstance(one, Gaussian)} == {rows}


def test_a_bound_is_bought_from_the_rows_of_people() -> None:
    who = np.repeat(np.arange(3000), 4)
    frame = pl.DataFrame({"patient_id": who, "ward": np.array(list("ABCD"))[who % 4]})
    table = sf.Table(frame, sf.Schema([SCHEMA["patient_id"], SCHEMA["ward"]]))
    options: dict[str, Any] = {"method": "independent", "rows_per_person": "bought", "ledger": False}
    release, again = (sf.synthesize(table, 20, insecure_seed=1, **options) for _ in range(2))
    assert release.rows_per_person == 5
    assert 11_900 < release.rows < 12_100
    assert release.table.to_polars().equals(again.table.to_polars())


def test_a_release_states_the_bound_that_was_bought_and_verify_refutes_another(tmp_path: Path) -> None:
    release, folder = made(rows_per_person="bought", rows=30, method=LabelledTree(pool=1000)), tmp_path / "made"
    sf.save(release, folder)
    rows = release.rows_per_person
    stated = Certificate.read(folder).parameters
    assert (stated["rows_per_person"], stated["rows_bought"]) == (rows, True)
    assert failed(folder) == []
    assert f"its {rows} rows per person were chosen with noise" in unchecked(folder)
    assert f"at most {rows} row" in (folder / "report.html").read_text()
    assert sf.load(folder).rows_per_person == rows
    assert Recipe.of_release(folder).options["rows_per_person"] == "bought"
    facts = (folder / "generator.json").read_text()
    another = 987 if rows != 987 else 1
    for forged in ({"rows_per_person": another}, {"rows_per_person": 4}, {"rows_bought": False}, {"people": True}):
        change_json(folder, "generator.json", lambda plain, forged=forged: plain.update(forged))
        assert failed(folder) != []
        (folder / "generator.json").write_text(facts)
        bind(folder, "generator.json")
        assert failed(folder) == []
    for name, place in (("certificate.json", "parameters"), ("generator.json", None)):
        change_json(
            folder,
            name,
            lambda plain, place=place: (plain[place] if place else plain).update(rows_per_person=another),
        )
    assert failed(folder) != []


# --- verify ---------------------------------------------------------------------------------------


@pytest.fixture(params=[None, 30], ids=["rows", "people"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    sf.save(made(people=request.param, method=LabelledTree(pool=1000)), tmp_path / "made")
    return tmp_path / "made"


def test_what_was_read_of_people_is_listed_as_not_checkable(folder: Path) -> None:
    assert failed(folder) == []
    assert Certificate.read(folder).unit == "person"
    assert any(name.endswith("of each person were read") for name in unchecked(folder))


def test_a_forged_bound_is_refuted(folder: Path) -> None:
    for rows in (2, 4, 0, None, "3"):
        change_json(folder, "generator.json", lambda plain, to=rows: plain.update(rows_per_person=to))
        assert failed(folder) != []


def test_a_forged_unit_is_refuted(folder: Path) -> None:
    change_json(folder, "certificate.json", lambda plain: plain.update(unit="row"))
    with pytest.raises(sf.SfumatoError, match="another unit"):
        sf.verify(folder)
    change_json(folder, "certificate.json", lambda plain: [one.update(unit="row") for one in plain["guarantees"]])
    assert failed(folder) != []
    change_json(folder, "certificate.json", lambda plain: [one.pop("unit") for one in plain["parameters"]["events"]])
    assert failed(folder) != []


def test_rows_that_are_said_to_be_people_are_refuted(tmp_path: Path) -> None:
    schema = sf.Schema(one for one in SCHEMA.columns if one.name != "patient_id")
    release = sf.synthesize(
        sf.Table(visits().drop("patient_id"), schema), 2, method="independent", rows=30, ledger=False
    )
    sf.save(release, tmp_path / "made")

    def forge(plain: dict[str, Any]) -> None:
        plain["unit"] = "person"
        for one in (*plain["guarantees"], *plain["parameters"]["events"]):
            one["unit"] = "person"

    change_json(tmp_path / "made", "certificate.json", forge)
    assert failed(tmp_path / "made") != []
    change_json(tmp_path / "made", "generator.json", lambda plain: plain.update(rows_per_person=3, people=False))
    assert failed(tmp_path / "made") != []


def test_forged_people_of_the_table_are_refuted(tmp_path: Path) -> None:
    sf.save(made(people=30), tmp_path / "made", format="csv")
    path = tmp_path / "made" / "table.csv"
    rows = pl.read_csv(path)
    for forged in (
        rows.with_columns(pl.col("patient_id") + 1),
        rows.with_columns(patient_id=pl.lit(1)),
        rows.reverse(),
        rows.drop("patient_id"),
    ):
        forged.write_csv(path)
        bind(tmp_path / "made", "table.csv")
        assert failed(tmp_path / "made") != []
    for name, value in (("people", 29), ("rows", 3)):
        rows.write_csv(path)
        bind(tmp_path / "made", "table.csv")
        certificate = json.loads((tmp_path / "made" / "certificate.json").read_text())
        change_json(
            tmp_path / "made",
            "certificate.json",
            lambda plain, name=name, value=value: plain["claims"].update({name: value}),
        )
        assert failed(tmp_path / "made") != []
        (tmp_path / "made" / "certificate.json").write_text(json.dumps(certificate))


# --- bad input ------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no bound": ({"rows_per_person": None}, OptionError, "rows of a person are not bounded"),
    "a bound of 0": ({"rows_per_person": 0}, OptionError, "the rows of a person must be"),
    "half a row": ({"rows_per_person": 1.5}, OptionError, "the rows of a person must be"),
    "a bound that is a word": ({"rows_per_person": "any"}, OptionError, "the rows of a person must be"),
    "a bought bound of people": (
        {"rows_per_person": "bought", "people": 5},
        OptionError,
        "are not bought where people",
    ),
    "a bought bound of steps": (
        {"rows_per_person": "bought", "method": "autoencoder"},
        OptionError,
        "cannot protect people with several rows",
    ),
    "people of one row": ({"rows_per_person": 1, "people": 5}, OptionError, "rows_per_person is 1"),
    "no people": ({"people": 0}, OptionError, "the number of people must be"),
    "people and rows": ({"people": 5, "rows": 5}, OptionError, "'rows' is for drawing rows"),
    "people and a condition": ({"people": 5, "given": "sex = f"}, OptionError, "'given' is for drawing rows"),
    "people and weights": ({"people": 5, "weights": "paid"}, OptionError, "'weights' is for drawing rows"),
    "the person as target": ({"target": "patient_id"}, OptionError, "cannot be both the person and the target"),
    "the person as weights": ({"weights": "patient_id"}, OptionError, "cannot be both the person and the weights"),
    "another person": ({"person": "patient"}, ColumnError, "there is no column 'patient'"),
    "the auto-encoder": ({"method": "autoencoder"}, OptionError, "draws rows, not people"),
    "a large delta": ({"delta": 0.01}, OptionError, "delta must be below 1 / 200"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_sentence(name: str) -> None:
    options, kind, message = BAD[name]
    with pytest.raises(kind, match=message) as caught:
        made(**options)
    assert "\n" not in str(caught.value)


def test_a_bound_without_a_person_is_refused() -> None:
    frame = visits().drop("patient_id")
    for option in ({"rows_per_person": 3}, {"rows_per_person": "bought"}, {"people": 3}):
        with pytest.raises(OptionError, match="needs a person column"):
            sf.synthesize(frame, 1, ledger=False, **option)
    clash = visits().rename({"paid": "rows of the person"})
    with pytest.raises(OptionError, match="a column is named"):
        sf.synthesize(clash, 1, person="patient_id", rows_per_person=3, people=3, ledger=False)


def test_rows_in_a_database_are_refused_before_anything_is_charged() -> None:
    duckdb = pytest.importorskip("duckdb")
    there = duckdb.from_arrow(visits().to_arrow())
    with pytest.raises(InputError, match="can only be counted where they are"):
        sf.synthesize(sf.Table(there, SCHEMA), 1, rows_per_person=3, ledger=False)
