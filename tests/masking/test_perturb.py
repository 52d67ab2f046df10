"""Locally perturbed records: what is kept, what it costs, and that the estimates are right.

Statistical checks allow for 5.5 standard deviations: a false alarm has a probability below 1e-6.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import spent

SIGMAS = 5.5
PEOPLE = pl.DataFrame(
    {
        "name": [f"person {number}" for number in range(6000)],
        "smokes": ["yes", "no", "no"] * 2000,
        "zip": [13053, 14850, 13053] * 2000,
        "age": [20.0, 50.0, 80.0] * 2000,
    }
)
SCHEMA = sf.Schema(
    [
        sf.Column(name="smokes", domain=["yes", "no"]),
        sf.Column(name="zip", domain=["13053", 14850, 99999]),
        sf.Column(name="age", bounds=(0, 100)),
    ]
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def perturb(data: Any = PEOPLE, columns: Any = ("smokes", "zip", "age"), **options: Any) -> sf.masking.PerturbedTable:
    return sf.perturb(data, columns, **{"epsilon": 3.0, "schema": SCHEMA, **options})


def test_columns_that_are_not_named_are_left_out() -> None:
    assert perturb(columns=["age", "smokes", "age"]).frame.columns == ["age", "smokes"]


def test_every_value_is_one_of_the_domain_or_a_number() -> None:
    frame = perturb().frame
    assert frame.schema == {"smokes": pl.String, "zip": pl.String, "age": pl.Float64}
    assert set(frame["smokes"]) == {"yes", "no"}
    assert set(frame["zip"]) == {"13053", "14850", "99999"}
    assert frame["age"].min() < 0
    assert frame["age"].max() > 100


def test_estimates_are_near_the_truth() -> None:
    perturbed = perturb()
    true = {"yes": 1 / 3, "no": 2 / 3, "13053": 2 / 3, "14850": 1 / 3, "99999": 0.0, None: 50.0}
    estimates = perturbed.estimate()
    assert [one.value for one in estimates] == list(true)
    for one in estimates:
        assert abs(one.estimate - true[one.value]) < SIGMAS * one.standard_error, one


def test_estimates_stay_the_same_through_a_file() -> None:
    perturbed = perturb(missing=True)
    for name in ("out.csv", "out.parquet"):
        perturbed.write(name)
        for mine, theirs in zip(
            perturbed.estimate(0.9), sf.masking.PerturbedTable.from_file(name).estimate(0.9), strict=True
        ):
            assert (mine.column, mine.value, mine.statistic) == (theirs.column, theirs.value, theirs.statistic)
            assert mine.interval == pytest.approx(theirs.interval, rel=1e-9)
    assert json.loads(Path("out.csv.json").read_text())["columns"]["age"] == {
        "method": "laplace noise",
        "epsilon": 1.0,
        "bounds": [0.0, 100.0],
        "missing": True,
    }


def test_a_true_value_is_kept_as_often_as_epsilon_says() -> None:
    kept = (perturb(columns=["smokes"], epsilon=1.0).frame["smokes"] == PEOPLE["smokes"]).mean()
    share = math.e / (1 + math.e)
    assert isinstance(kept, float)
    assert abs(kept - share) < SIGMAS * math.sqrt(share * (1 - share) / 6000)


def test_the_columns_share_the_epsilon() -> None:
    perturbed = perturb()
    assert [method.epsilon for method in perturbed.methods.values()] == [1.0, 1.0, 1.0]
    assert spent(perturbed.event, 0).epsilon == pytest.approx(3.0)
    assert perturbed.event.relation == "replace-one"


def test_a_ledger_of_replace_one_is_charged_and_no_other_can_be() -> None:
    assert perturb().charged is False
    ledger = sf.Ledger.grant(PEOPLE, epsilon=4, relation="replace-one", path="r.ledger")
    assert perturb(ledger="r.ledger").charged is True
    assert ledger.spent.epsilon == pytest.approx(3.0)
    assert ledger.history()[-1]["note"] == "perturbed smokes, zip, age"
    with pytest.raises(sf.errors.BudgetError, match="epsilon 1 is left"):
        perturb(ledger="r.ledger")
    sf.Ledger.grant(PEOPLE, epsilon=4)
    with pytest.raises(sf.errors.OptionError, match="has the relation replace-one, but the ledger has add-remove"):
        perturb()
    with pytest.raises(sf.errors.FileError, match=r"there is no ledger 'none\.ledger'"):
        perturb(ledger="none.ledger")


def test_missing_values_are_refused_or_an_answer_of_their_own() -> None:
    people = pl.DataFrame({"smokes": ["yes", "no", None, "sometimes"] * 2000, "age": [1.0, None] * 4000})
    schema = sf.Schema([SCHEMA["smokes"], SCHEMA["age"]])
    with pytest.raises(sf.errors.ColumnError, match="'smokes' has missing values or values outside its domain"):
        sf.perturb(people, ["smokes"], epsilon=1, schema=schema)
    with pytest.raises(sf.errors.ColumnError, match="'age' has missing cells or cells that are not numbers"):
        sf.perturb(people, ["age"], epsilon=1, schema=schema)
    perturbed = sf.perturb(people, ["smokes"], epsilon=1, schema=schema, missing=True)
    shares = {one.value: one for one in perturbed.estimate()}
    assert abs(shares[None].estimate - 0.5) < SIGMAS * shares[None].standard_error


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_numbers_are_hidden_and_counted(suffix: str) -> None:
    people = pl.DataFrame({"age": ["20", None, "60", "unknown"] * 3000})
    schema = sf.Schema([SCHEMA["age"]])
    perturbed = sf.perturb(people, ["age"], epsilon=2, schema=schema, missing=True)
    assert spent(perturbed.event, 0).epsilon == pytest.approx(2)
    there = pl.Series([True, False] * 6000)
    for truth in (True, False):  # neither kind of record tells which it was
        assert 0 < perturbed.frame["age"].filter(there == truth).null_count() < 6000
    perturbed.write(f"out.{suffix}")
    share, mean = sf.masking.PerturbedTable.from_file(f"out.{suffix}").estimate()
    assert [one.statistic for one in (share, mean)] == ["share", "mean"]
    assert abs(share.estimate - 0.5) < SIGMAS * share.standard_error
    assert abs(mean.estimate - 40) < SIGMAS * mean.standard_error
    again = sf.run(perturbed.recipe, people)
    assert again.methods == perturbed.methods


def test_a_given_seed_makes_records_reproducible_and_not_private() -> None:
    one, same, other = (perturb(insecure_seed=seed) for seed in (1, 1, 2))
    assert one.frame.equals(same.frame)
    assert not one.frame.equals(other.frame)
    one.write("out.csv")
    assert sf.masking.PerturbedTable.from_file("out.csv").private is False
    assert perturb().private


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": []}, "must be a list of names"),
        ({"columns": "smokes"}, "must be a list of names"),
        ({"columns": ["smoke"]}, "there is no column 'smoke' .did you mean 'smokes'"),
        ({"columns": ["name"]}, "'name' has neither a public domain nor public bounds"),
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.inf}, "epsilon must be a finite number above 0"),
    ],
)
def test_what_cannot_be_perturbed_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        perturb(**options)


def test_a_file_without_its_description_cannot_be_estimated() -> None:
    perturb().write("out.csv")
    for text, message in (
        (None, "'out.csv.json', the description of how 'out.csv' was perturbed, cannot be read"),
        ("{", "it is not JSON"),
        ("[]", "is not the description of a perturbation"),
        ('{"format": "sfumato perturbation 9"}', "is not the description of a perturbation"),
    ):
        Path("out.csv.json").unlink() if text is None else Path("out.csv.json").write_text(text)
        with pytest.raises(sf.errors.FileError, match=message):
            sf.masking.PerturbedTable.from_file("out.csv")


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    runs, right = 400, 0
    people = pl.DataFrame({"smokes": ["yes", "no", "no", "no"] * 100})
    for _ in range(runs):
        yes = sf.perturb(people, ["smokes"], epsilon=1, schema=sf.Schema([SCHEMA["smokes"]])).estimate(0.9)[0]
        right += yes.interval[0] <= 0.25 <= yes.interval[1]
    # The interval is that of a normal distribution: at 400 people it is nearly right.
    assert right / runs > 0.88 - SIGMAS * math.sqrt(0.88 * 0.12 / runs)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_values_that_look_like_numbers_are_estimated_from_a_file(suffix: str, tmp_path: Path) -> None:
    people = pl.DataFrame({"stage": ["1.0", "2.0", None] * 100})
    schema = sf.Schema([sf.Column(name="stage", domain=["1.0", "2.0"])])
    perturbed = sf.perturb(people, ["stage"], epsilon=5, schema=schema, missing=True)
    perturbed.write(tmp_path / f"out.{suffix}")
    found = sf.masking.PerturbedTable.from_file(tmp_path / f"out.{suffix}").estimate()
    assert [one.value for one in found] == ["1.0", "2.0", None]
    assert found == perturbed.estimate()
