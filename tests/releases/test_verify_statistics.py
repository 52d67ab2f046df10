"""A saved answer to a question is verified by what follows from its question, and a forged one is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import Question, Relation, Source
from sfumato.budget.mechanisms.statistics import Records
from sfumato.budget.query.plan import Plan
from sfumato.data.certificate import MOST_BYTES
from sfumato.data.recipe import Recipe
from tests.forgery import bind, change_json, change_text, failed

PEOPLE = pl.DataFrame({"age": [20 + i % 60 for i in range(300)], "sex": ["f", "m", None] * 100})
SCHEMA = sf.Schema([sf.Column(name="age", bounds=(0, 120)), sf.Column(name="sex", domain=["f", "m"])])
TERMS: dict[str, Any] = {"delta": 0.0, "discover": False, "confidence": 0.95}
QUESTIONS = (
    "count", "count by sex", "sum of age by sex", "mean of age", "variance of age by sex", "median of age",
    "quantile 0.123456789 of age by sex", "min of age by sex", "max of age", "histogram of age in 3 bins by sex",
)  # fmt: skip


def ask(question: str, folder: Path, **options: Any) -> sf.Release:
    with sf.Ledger.grant(PEOPLE, epsilon=10, delta=1e-3, path=folder.with_name("people.ledger")) as ledger:
        answer = sf.query(PEOPLE, question, **{"epsilon": 1.0, "schema": SCHEMA, "ledger": ledger, **options})
    sf.save(answer, folder)
    return answer


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved answer, to be copied and forged."""
    folder = tmp_path_factory.mktemp("counted") / "out"
    ask("count by sex", folder)
    return folder


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_statistic_is_saved_verified_and_read_back(question: str, tmp_path: Path) -> None:
    answer = ask(question, tmp_path / "out")
    assert failed(tmp_path / "out") == []
    loaded = sf.load(tmp_path / "out")
    assert loaded.rows == answer.rows
    assert loaded.question == answer.question
    assert (loaded.spent, loaded.limit, loaded.left) == (None, None, None)
    assert {**loaded.to_dict(), "spent": 0, "limit": 0, "left": 0} == {
        **answer.to_dict(),
        "spent": 0,
        "limit": 0,
        "left": 0,
    }


@pytest.mark.parametrize("question", ["count by sex", "histogram of age in 2 bins by sex"])
def test_discovered_groups_are_saved_and_verified(question: str, tmp_path: Path) -> None:
    ask(question, tmp_path / "out", delta=1e-6, discover=True)
    assert failed(tmp_path / "out") == []
    change_json(tmp_path / "out", "answer.json", lambda plain: plain["rows"].append(plain["rows"][0]))
    assert "the answers are those of the question" in failed(tmp_path / "out")


@given(
    question=st.sampled_from(QUESTIONS),
    epsilon=st.floats(1e-3, 1e7),
    relation=st.sampled_from(Relation),
    seed=st.integers(0, 2**32),
)
def test_every_statistic_agrees_with_its_own_answers(
    question: str, epsilon: float, relation: Relation, seed: int
) -> None:
    plan = Plan.of(sf.Table(PEOPLE), question, schema=SCHEMA, epsilon=epsilon, **TERMS)
    statistic = plan.statistic(relation)
    answers = statistic.each(Records.of(PEOPLE["age"]), Source(insecure_seed=seed))
    assert statistic.agrees(answers).all()


def _rows(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda folder: change_json(folder, "answer.json", lambda plain: change(plain["rows"]))


def _certificate(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda folder: change_json(folder, "certificate.json", change)


FORGERIES: dict[str, Callable[[Path], object]] = {
    "another value": _rows(lambda rows: rows[0].update(value=rows[0]["value"] + 1)),
    "a narrower interval": _rows(lambda rows: rows[0].update(interval=[rows[0]["value"]] * 2)),
    "a value that is not whole": _rows(lambda rows: rows[0].update(value=rows[0]["value"] + 0.5)),
    "a value that is a text": _rows(lambda rows: rows[0].update(value="many")),
    "an infinite value": _rows(lambda rows: rows[0].update(value=10**400, interval=[0, 10**400])),
    "a group left out": _rows(lambda rows: rows.pop()),
    "a group that is not in the domain": _rows(lambda rows: rows[0].update(sex="Zaphod")),
    "a record beside the answers": _rows(lambda rows: rows[0].update(name="Zaphod")),
    "something else in the answer": lambda folder: change_json(folder, "answer.json", lambda one: one.update(rows_=[])),
    "another question": lambda folder: change_json(folder, "answer.json", lambda one: one.update(question="count")),
    "a smaller epsilon": _certificate(lambda one: one["guarantees"][0].update(epsilon=0.5)),
    "a smaller epsilon in all places of the certificate": _certificate(
        lambda one: (
            one["guarantees"][0].update(epsilon=0.5),
            one["parameters"].update(epsilon=0.5),
            one["claims"].update(epsilon=0.5),
        )
    ),
    "no guarantee": _certificate(lambda one: one.update(guarantees=[])),
    "two guarantees": _certificate(lambda one: one["guarantees"].append(one["guarantees"][0])),
    "another relation": _certificate(lambda one: one["parameters"].update(relation="replace-one")),
    "no events": _certificate(lambda one: one["parameters"].update(events=[])),
    "less noise in the events": _certificate(lambda one: one["parameters"]["events"][0].update(scale=0.1)),
    "a longer domain": _certificate(lambda one: one["schema"]["columns"]["sex"]["domain"].append("x")),
    "another column": _certificate(lambda one: one["schema"]["columns"].update(zip={"role": "other", "kind": "auto"})),
    "an unknown parameter": _certificate(lambda one: one["parameters"].update(notes="Zaphod")),
    "the number of rows": _certificate(lambda one: one["source"].update(rows=300)),
    "a loss": _certificate(lambda one: one.update(loss={"records": ["Zaphod"]})),
    "a claim of its own": _certificate(lambda one: one["claims"].update(safe=True)),
    "another method": _certificate(lambda one: one.update(method="mondrian")),
    "another recipe": lambda folder: change_text(folder, "recipe.toml", "epsilon = 1.0", "epsilon = 0.5"),
    "a recipe of another question": lambda folder: change_text(folder, "recipe.toml", "count by sex", "count"),
    "noise of a given seed": _certificate(lambda one: one["parameters"].update(private=False)),
    "a very long question": _certificate(
        lambda one: one["parameters"].update(question="count where " + "not " * 100_000 + "sex = 'f' by sex")
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_answer_is_found(forgery: str, counted: Path, tmp_path: Path) -> None:
    shutil.copytree(counted, tmp_path / "out")
    FORGERIES[forgery](tmp_path / "out")
    assert failed(tmp_path / "out")


def test_a_question_with_too_many_groups_is_refused_without_listing_them(tmp_path: Path) -> None:
    ask("histogram of age in 3 bins by sex", tmp_path / "out")

    def change(plain: dict[str, Any]) -> None:
        plain["parameters"]["question"] = "histogram of age in 10000 bins by sex"
        plain["schema"]["columns"]["sex"]["domain"] = [f"v{at}" for at in range(1000)]

    change_json(tmp_path / "out", "certificate.json", change)
    assert failed(tmp_path / "out")
    with pytest.raises(sf.errors.FileError, match="more than 1,000,000 groups"):
        sf.load(tmp_path / "out")


def test_an_answer_of_a_given_seed_is_not_verified(tmp_path: Path) -> None:
    answer = ask("count by sex", tmp_path / "out", insecure_seed=1)
    assert answer.guarantees == ()
    assert failed(tmp_path / "out") == ["one epsilon is guaranteed"]
    assert "not private" in (tmp_path / "out" / "report.html").read_text()


def test_a_saved_answer_says_nothing_of_the_ledger_and_of_other_columns(tmp_path: Path) -> None:
    wide = PEOPLE.with_columns(name=pl.lit("Zaphod"))
    ledger = sf.Ledger.grant(wide, epsilon=1234.5, path=tmp_path / "wide.ledger")
    answer = sf.query(wide, "count by sex", epsilon=1, schema=SCHEMA, note="for the board", ledger=ledger)
    sf.save(answer, tmp_path / "out")
    text = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert not [word for word in ("1234.5", "1,234.5", "1233.5", "Zaphod", "[0.0, 120.0]", "board") if word in text]
    plain = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert plain["source"] == {"name": None, "rows": None, "fingerprint": None}
    assert [*plain["schema"]["columns"]] == ["sex"]


def test_a_question_is_asked_again_only_with_a_ledger_that_is_named(tmp_path: Path) -> None:
    ask("count by sex", tmp_path / "out")
    ledger = sf.Ledger(tmp_path / "people.ledger")
    before = len(ledger.history())
    with pytest.raises(sf.errors.OptionError, match="charged again, so its ledger must be named"):
        sf.run(tmp_path / "out", PEOPLE)
    assert len(ledger.history()) == before
    again = sf.run(tmp_path / "out", PEOPLE, ledger=ledger)
    assert [row.group for row in again.rows] == [{"sex": "f"}, {"sex": "m"}, {"sex": None}]
    assert len(ledger.history()) == before + 1
    with pytest.raises(sf.errors.OptionError, match="does not describe a question"):
        sf.run(Recipe("query", {"question": "count", "evil": 1}, sf.Schema([])), PEOPLE, ledger=ledger)


def test_an_answer_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    many = sf.Schema([sf.Column(name="sex", domain=[f"{at:01000}" for at in range(17_000)])])
    with pytest.raises(sf.errors.InputError, match=f"larger than {MOST_BYTES:,} bytes"):
        ask("count by sex", tmp_path / "out", schema=many)
    assert not (tmp_path / "out").exists()


def test_a_missing_answer_is_named(tmp_path: Path) -> None:
    ask("count", tmp_path / "out")
    (tmp_path / "out" / "answer.json").unlink()
    with pytest.raises(sf.errors.FileError, match=r"'answer\.json' is missing"):
        sf.load(tmp_path / "out")
    assert failed(tmp_path / "out")


def test_texts_of_an_answer_are_escaped_on_its_page(tmp_path: Path) -> None:
    evil = sf.Schema([sf.Column(name="sex", domain=["<script>f</script>", "m"])])
    ask("count by sex", tmp_path / "out", schema=evil)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>f" not in page
    assert "&lt;script&gt;f" in page


def test_answer_json_holds_the_question_and_its_answers_alone(tmp_path: Path) -> None:
    ask("count by sex", tmp_path / "out")
    plain = json.loads((tmp_path / "out" / "answer.json").read_text())
    assert plain.keys() == {"question", "confidence", "rows"}
    assert [row.keys() for row in plain["rows"]] == [{"sex", "value", "interval"}] * 3
    bind(tmp_path / "out", "answer.json")
    assert failed(tmp_path / "out") == []


@pytest.mark.parametrize(
    "domain",
    [[date(2020, 1, 1)], [True, False], [1.5, 2.0], [1, 2], ["a", "ü\x1b<b>"], [datetime(2020, 1, 1, 10)]],
    ids=str,
)
def test_groups_of_any_type_are_read_back_and_asked_again(domain: list[Any], tmp_path: Path) -> None:
    name = 'by "name",\nin'
    frame = pl.DataFrame({name: [*domain, None] * 30})
    schema = sf.Schema([sf.Column(name=name, domain=domain)])
    ledger = sf.Ledger.grant(frame, epsilon=100, path=tmp_path / "groups.ledger")
    answer = sf.query(frame, Question("count", groups=(name,)), epsilon=40, schema=schema, ledger=ledger)
    sf.save(answer, tmp_path / "out")
    assert failed(tmp_path / "out") == []
    assert sf.load(tmp_path / "out").rows == answer.rows
    again = sf.run(tmp_path / "out", frame, ledger=ledger)
    assert [(row.group, row.value) for row in again.rows] == [(row.group, 30) for row in answer.rows]
