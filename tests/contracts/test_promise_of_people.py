"""The promise for people, in queries: a neighbouring table has one person more, with all of their rows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import sfumato as sf
from tests.contracts.test_promise import (
    ANSWER,
    DELTA,
    MORE,
    PERSON,
    QUESTIONS,
    SCHEMA,
    Record,
    people,
    public_files,
    public_form,
)

OF_VISITS = sf.Schema([*(SCHEMA[name] for name in PERSON), sf.Column(name="patient", role="person")])
MANY = [PERSON, {**PERSON, "age": 45, "sex": "m"}, {**PERSON, "ill": "no"}]
A_PERSON: dict[str, tuple[int, list[Record]]] = {
    "three rows": (0, MANY),
    "most of the rows": (60, MANY * 200),
    "one row": (9, MANY[:1]),
    **{name: (at, [record] * 7) for name, (at, record) in MORE.items() if not name.startswith("a record")},
    "a row of nobody": (30, [{**PERSON, "patient": ""}]),
}
"""One person more: where their rows are put in, and what they are."""
BOUNDS: dict[str, dict[str, Any]] = {
    "rows": {"rows_per_person": 3},
    "groups": {"groups_per_person": 2, "rows_per_group": 2},
    "bought": {"rows_per_person": "bought"},
}
BY_GROUPS = tuple(one for one in QUESTIONS if " by " in one or one.startswith("histogram"))
IS_BOUGHT = ("rows_per_person", "counted")
"""What an answer says of its bound; noisy if the bound was bought."""


def visits(more: str | None, folder: Path) -> sf.Table:
    """Return a table of visits, some of nobody, from a text file."""
    rows = [{**one, "patient": f"p{at}" if at % 11 else ""} for at, one in enumerate(people()) for _ in range(at % 5)]
    if more is not None:
        at, records = A_PERSON[more]
        rows[at:at] = [{"patient": "new", **one} for one in records]
    lines = [",".join(json.dumps(one[name], ensure_ascii=False) for name in OF_VISITS.names) for one in rows]
    folder.mkdir()
    (folder / "visits.csv").write_text("\n".join([",".join(OF_VISITS.names), *lines]) + "\n", encoding="utf-8")
    return sf.read(folder / "visits.csv", schema=OF_VISITS)


def answered(more: str | None, bound: str, folder: Path) -> dict[str, Any]:
    table, path, terms = visits(more, folder), folder / "some.ledger", BOUNDS[bound]
    sf.Ledger.grant(table, epsilon=100.0, delta=DELTA, path=path, unit="person").close()
    asked: dict[str, Any] = {"epsilon": 1.0, "ledger": path, **terms}
    questions = BY_GROUPS if bound == "groups" else QUESTIONS
    hidden = IS_BOUGHT if bound == "bought" else ()
    answers = [sf.query(table, one, **asked).to_dict() for one in questions]
    found = sf.query(table, "mean of cost by ill, sex", **asked, discover=True, delta=1e-6).to_dict()
    sf.save(sf.query(table, "mean of cost where ill = 'no' by sex", **asked), folder / "out")
    noisy = {**ANSWER, "answer.json": (*ANSWER["answer.json"], "/rows_per_person")}
    with sf.Ledger(path) as book:
        history = book.history()
    return {
        "answers": public_form(answers, ("/*/rows/*/value", "/*/rows/*/interval", *(f"/*/{name}" for name in hidden))),
        "discovered": public_form(found, ("/rows", *(f"/{name}" for name in hidden))),
        "files": public_files(folder / "out", noisy, pages=False),
        "previews": [
            sf.preview(table, one, epsilon=1.0, **terms).to_dict() for one in ("count by sex", "max of cost by sex")
        ],
        "history": public_form(history, ("/*/time", "/*/seal", "/*/data")),
    }


@cache
def answered_about_visits(bound: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return answered(None, bound, Path(folder, "one"))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("more", A_PERSON)
def test_answers_about_people_differ_in_their_noise_alone(more: str, bound: str, tmp_path: Path) -> None:
    one, other = answered_about_visits(bound), answered(more, bound, tmp_path / "other")
    for part in one:
        assert one[part] == other[part]
    assert one["discovered"]["rows"] == "NOISY"
    assert one["history"][-1]["unit"] == "person"
