"""The promise, end to end: whatever a private function writes that is not noisy is the same for neighbouring tables.

Every private function runs on a table and on tables that have one record more (or, where the number of records is
public, one record changed). What comes out is brought to its public form: noisy numbers, named below one by one,
become a mark, and all else must be equal, to the letter.
"""

from __future__ import annotations

import fnmatch
import json
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

import sfumato as sf
from sfumato.budget import RandomStopping
from sfumato.data.datasets import Images
from sfumato.learners import Privacy, PrivateNaiveBayes, PrivateSearch, Sgd, Split, Trainer
from tests.contracts.test_learners import ESTIMATORS, QUICK

Record = dict[str, Any]
DELTA = 1e-3
SCHEMA = sf.Schema(
    [
        sf.Column(name="age", bounds=(18, 90)),
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="cost", kind="number", bounds=(0, 1000)),
        sf.Column(name="ill", kind="category", domain=("no", "yes")),
        sf.Column(name="patient_id", role="person"),
    ]
)


def people() -> list[Record]:
    chance = np.random.default_rng(0)
    ages = chance.integers(18, 91, 90)
    return [
        {"age": int(age), "sex": "fm"[at % 2], "cost": round(8.5 * age, 1), "ill": "yes" if age > 50 else "no"}
        for at, age in enumerate(ages)
    ]


PERSON: Record = {"age": 44, "sex": "f", "cost": 310.5, "ill": "yes"}
MORE: dict[str, tuple[int, Record]] = {
    "a record at the top": (0, PERSON),
    "a record in the middle": (45, PERSON),
    "a record at the end": (90, PERSON),
    "odd values": (90, {"age": "unknown", "sex": "?", "cost": "1e300", "ill": "yes"}),
    "a rare class": (7, {**PERSON, "ill": "perhaps"}),
    "nothing but gaps": (30, dict.fromkeys(PERSON, "")),
    "values out of bounds": (0, {**PERSON, "age": -5, "cost": 1e9}),
    "letters of other languages": (90, {"age": "vierzig", "sex": "männlich", "cost": "10,5", "ill": "non; peut-être"}),
}
"""One record more: where it is put in, and what it is."""


def table_of(records: list[Record], folder: Path, columns: tuple[str, ...] = tuple(PERSON)) -> sf.Table:
    """Return the records as a text file has them: the type of a column is what its cells look like."""
    folder.mkdir()
    path = folder / "people.csv"
    rows = [",".join(json.dumps(one[name], ensure_ascii=False) for name in columns) for one in records]
    path.write_text("\n".join([",".join(columns), *rows]) + "\n", encoding="utf-8")
    return sf.read(path, schema=sf.Schema(SCHEMA[name] for name in columns))


BOUND = 2
"""How many rows of a person count, where people are protected."""
MORE_PEOPLE: dict[str, list[tuple[int, Record]]] = {
    "a row at the top": [(0, {**PERSON, "patient_id": "300"})],
    "rows all over": [(at, {**PERSON, "age": 20 + at, "patient_id": "300"}) for at in (0, 31, 60, 93)],
    "most rows": [(90, {**PERSON, "cost": 5.0 * at, "patient_id": "300"}) for at in range(60)],
    "odd values": [(at, {**MORE["odd values"][1], "patient_id": "a. b."}) for at in (0, 91)],
    "a rare class": [(7, {**PERSON, "ill": "perhaps", "patient_id": "3.5"})] * 3,
    "nothing but gaps": [(30, {**dict.fromkeys(PERSON, ""), "patient_id": "1e3"})] * 2,
    "a row of nobody": [(30, {**PERSON, "patient_id": ""})],
}
"""One person more: where their rows are put in, and what they are."""


def visits() -> list[Record]:
    """Return the records as rows of people, of whom most have one to three, and of nobody."""
    owners = [f"{at // 2}" if at % 3 else f"{at}" for at in range(90)]
    return [{**one, "patient_id": "" if at % 13 == 5 else owners[at]} for at, one in enumerate(people())]


def with_a_person_more(more: str) -> list[Record]:
    found = visits()
    for at, record in MORE_PEOPLE[more]:
        found.insert(at, record)
    return found


def with_one_more(more: str) -> list[Record]:
    at, record = MORE[more]
    found = people()
    found.insert(at, record)
    return found


# --- what of it is public ---


def public_form(value: Any, noisy: tuple[str, ...], path: str = "") -> Any:
    """Return plain values with a mark in the place of those that are noisy, by patterns of their paths."""
    if any(fnmatch.fnmatchcase(path, pattern) for pattern in noisy):
        return "NOISY"
    if isinstance(value, Mapping):
        return {name: public_form(one, noisy, f"{path}/{name}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [public_form(one, noisy, f"{path}/{at}") for at, one in enumerate(value)]
    return value


def public_files(folder: Path, noisy: Mapping[str, tuple[str, ...]], *, pages: bool) -> dict[str, Any]:
    """Return the public form of all files of a folder; arrays are noisy, their names and types are not."""
    found: dict[str, Any] = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".json":
            found[name] = public_form(json.loads(path.read_text(encoding="utf-8")), noisy[path.name])
        elif path.suffix == ".safetensors":
            found[name] = public_arrays(load_file(path))
        else:
            found[name] = path.read_text(encoding="utf-8") if pages or path.suffix == ".toml" else "NOISY"
    return found


def public_arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names, types and shapes of arrays, but for the lengths that noisy counts decide on."""
    return {
        name: (str(one.dtype), one.ndim if name in NOISY_SHAPES else one.shape)
        for name, one in ((name, np.asarray(one)) for name, one in arrays.items())
    }


NOISY_SHAPES = {
    "shapes_",
    "columns_",
    "sides_",
    "leaf_log_prob_",
}  # merged bins of an additive model, depth of a forest
# A date, a keyed hash with a salt, hashes and sizes of what is noisy.
CERTIFICATE = ("/made", "/source/fingerprint", "/files/*/sha256", "/files/model.safetensors/bytes")
SCORES = ("/loss/accuracy", "/loss/auc", "/loss/loss", "/loss/margin", "/files/*/bytes")
# What follows from a bound that is bought: the noise that is made for it, and what its rounding adds to the cost.
BOUGHT_EVENTS = (
    "*events/*/scale", "*events/*/sensitivity", "*events/*/epsilon", "*/event/scale", "*/event/sensitivity",
    "*/event/epsilon", "*/spent", "/claims/epsilon",
)  # fmt: skip
BOUGHT_BOUND = ("*/bought_rows_per_person", *BOUGHT_EVENTS, "*/cost/epsilon", "*epsilons", "*/together")
BOUGHT_ROWS = ("/parameters/sampling/rows", "/source/rows", "/files/*/bytes")


def quietly(act: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Run something; that values are unknown is said to the owner, who has the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return act(*given, **options)


# --- training, from a file to a release ---

TRAININGS: dict[str, dict[str, Any]] = {
    "naive-bayes": {"target": "ill"},
    "forest": {"target": "ill"},
    "linear": {"target": "cost", "regression": True},
    "mlp": {"target": "ill", "epochs": 2},
}


def released(
    records: list[Record],
    folder: Path,
    model: str,
    *,
    scores: str,
    rows: int | None,
    epsilon: str = "1",
    bound: int | str = BOUND,
) -> dict[str, Any]:
    of_people = "patient_id" in records[0]
    table = table_of(records, folder, tuple(records[0]))
    training = quietly(
        sf.train,
        table,
        model,
        epsilon=epsilon,
        delta=DELTA,
        split=Split(scores=scores),
        privacy=Privacy(rows=rows),
        **({"rows_per_person": bound} if of_people else {}),
        **TRAININGS[model],
    )
    quietly(sf.save, training, folder / "out")
    noisy = {
        "certificate.json": (*CERTIFICATE, *(SCORES if scores == "noisy" else ()), *(() if rows else BOUGHT_ROWS)),
        "model.json": () if rows else ("/state/training/sampling/rows", "/cost/sampling/rows"),
        "training.json": ("/runs/*/accuracy", "/runs/*/loss", "/runs/*/scores"),
    }
    if bound == "bought":
        noisy = {name: (*paths, *BOUGHT_BOUND, "/files/*/bytes") for name, paths in noisy.items()}
    found = public_files(folder / "out", noisy, pages=scores == "none" and bound != "bought")
    printed = training.to_dict()
    hidden: tuple[str, ...] = ("/runs/*/seconds", "/runs/*/accuracy", "/runs/*/loss", "/runs/*/scores")
    hidden += ("/runs/*/sampling/rows", *(BOUGHT_BOUND if bound == "bought" else ()))
    return {**found, "--json": public_form(printed, hidden)}


@cache
def released_of_people(model: str, scores: str, rows: int | None, epsilon: str = "1") -> dict[str, Any]:
    """What is released of the table that all others are neighbours of."""
    with TemporaryDirectory() as folder:
        return released(people(), Path(folder, "one"), model, scores=scores, rows=rows, epsilon=epsilon)


@pytest.mark.parametrize("model", TRAININGS)
@pytest.mark.parametrize("more", MORE)
def test_all_files_of_a_trained_model_are_the_same_but_for_its_weights(model: str, more: str, tmp_path: Path) -> None:
    """Without scores and with a declared number of rows nothing else is noisy: the report is the same to the letter."""
    one = released_of_people(model, "none", 72)
    assert one == released(with_one_more(more), tmp_path / "other", model, scores="none", rows=72)
    assert {"certificate.json", "model.json", "model.safetensors", "recipe.toml", "report.html"} <= one.keys()


@pytest.mark.parametrize("model", ["naive-bayes", "mlp"])
@pytest.mark.parametrize("more", ["a record at the top", "odd values", "a rare class"])
def test_noisy_scores_and_a_bought_number_of_rows_are_all_else_that_differs(
    model: str, more: str, tmp_path: Path
) -> None:
    one = released_of_people(model, "noisy", None)
    assert one == released(with_one_more(more), tmp_path / "other", model, scores="noisy", rows=None)


def test_a_sweep_of_several_epsilons_is_the_same_too(tmp_path: Path) -> None:
    one, other = (
        released(records, tmp_path / name, "naive-bayes", scores="noisy", rows=None, epsilon="0.5,2")
        for name, records in (("one", people()), ("other", with_one_more("odd values")))
    )
    assert one == other
    assert "training.json" in one


# --- every estimator ---


def fitted(name: str, records: list[Record], folder: Path) -> dict[str, Any]:
    person = ["patient_id"] if "patient_id" in records[0] else []
    model = ESTIMATORS[name](**{"delta": DELTA, "epsilon": 1.0, **QUICK.get(name, {})})
    model.set_params(rows_per_person=BOUND if person else None)
    target = "ill" if is_classifier(model) else "cost" if is_regressor(model) else None
    inputs = ["age", "sex", "cost"] if get_tags(model).input_tags.categorical else ["age", "cost"]
    used = [*(one for one in inputs if one != target), *([target] if target else []), *person]
    quietly(model.fit, table_of(records, folder, tuple(used)), *([target] if target else []))
    arrays, facts = model.state()
    return {
        "arrays": public_arrays(arrays),
        "facts": public_form(facts, ("/training/sampling/rows", "/history")),
        "cost": public_form(model.to_dict(), ("/sampling/rows", "/history")),
    }


@cache
def fitted_to_people(name: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return fitted(name, people(), Path(folder, "one"))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("more", ["a record in the middle", "odd values", "a rare class", "nothing but gaps"])
def test_every_estimator_is_the_same_but_for_its_noisy_arrays(name: str, more: str, tmp_path: Path) -> None:
    assert fitted_to_people(name) == fitted(name, with_one_more(more), tmp_path / "other")


# --- one person more, with all of their rows ---


@cache
def released_of_visits(model: str, scores: str, rows: int | None, epsilon: str = "1") -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return released(visits(), Path(folder, "one"), model, scores=scores, rows=rows, epsilon=epsilon)


@pytest.mark.parametrize("model", TRAININGS)
@pytest.mark.parametrize("more", MORE_PEOPLE)
def test_all_files_of_a_model_for_people_are_the_same_but_for_its_weights(
    model: str, more: str, tmp_path: Path
) -> None:
    one = released_of_visits(model, "none", 40)
    assert one == released(with_a_person_more(more), tmp_path / "other", model, scores="none", rows=40)
    assert one["certificate.json"]["unit"] == "person"


@pytest.mark.parametrize("model", ["naive-bayes", "mlp"])
@pytest.mark.parametrize("more", MORE_PEOPLE)
def test_noisy_scores_and_a_bought_number_of_people_are_all_else_that_differs(
    model: str, more: str, tmp_path: Path
) -> None:
    epsilon = "1" if model == "mlp" else "0.5,2"
    one = released_of_visits(model, "noisy", None, epsilon)
    other = with_a_person_more(more)
    assert one == released(other, tmp_path / "other", model, scores="noisy", rows=None, epsilon=epsilon)


@pytest.mark.parametrize("model", ["naive-bayes", "forest", "linear"])
@pytest.mark.parametrize("more", MORE_PEOPLE)
def test_a_bound_that_is_bought_is_all_else_that_differs(model: str, more: str, tmp_path: Path) -> None:
    one, other = (
        released(records, tmp_path / name, model, scores="noisy", rows=None, epsilon="0.5,2", bound="bought")
        for name, records in (("one", visits()), ("other", with_a_person_more(more)))
    )
    assert one == other
    assert one["epsilon-2/certificate.json"]["parameters"]["bought_rows_per_person"] == "NOISY"


@cache
def fitted_to_visits(name: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return fitted(name, visits(), Path(folder, "one"))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("more", MORE_PEOPLE)
def test_every_estimator_for_people_is_the_same_but_for_its_noisy_arrays(name: str, more: str, tmp_path: Path) -> None:
    assert fitted_to_visits(name) == fitted(name, with_a_person_more(more), tmp_path / "other")


@pytest.mark.parametrize("more", ["most rows", "odd values"])
def test_a_search_for_people_costs_the_same_and_tries_the_same_settings(more: str, tmp_path: Path) -> None:
    found = []
    for name, records in (("one", visits()), ("other", with_a_person_more(more))):
        table = table_of(records, tmp_path / name, tuple(records[0]))
        search = PrivateSearch(
            estimator=PrivateNaiveBayes(rows_per_person=BOUND), settings={"cells": [2, 20]}, way="composition",
            delta=DELTA, epsilon=2.0,
        )  # fmt: skip
        quietly(search.fit, table, "ill")
        found.append(([one.to_dict() for one in search.events_], search.spent_.to_dict(), search.classes_.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("more", ["a record at the end", "odd values"])
def test_a_search_costs_the_same_and_tries_the_same_settings(more: str, tmp_path: Path) -> None:
    found = []
    for name, records in (("one", people()), ("other", with_one_more(more))):
        table = table_of(records, tmp_path / name)
        search = PrivateSearch(
            estimator=PrivateNaiveBayes(), settings={"cells": [2, 20]}, way="composition", delta=DELTA, epsilon=2.0,
            stopping=RandomStopping(mean=2.0),
        )  # fmt: skip
        quietly(search.fit, table, "ill")
        found.append(([one.to_dict() for one in search.events_], search.spent_.to_dict(), search.classes_.tolist()))
    assert found[0] == found[1]


# --- images and modules ---


def images(more: str | None) -> Images:
    chance = np.random.default_rng(1)
    pixels, labels = chance.integers(0, 256, (80, 8, 8), dtype=np.uint8), np.arange(80) % 3
    if more == "a rare label":
        pixels, labels = np.concatenate([pixels, pixels[:1]]), np.append(labels, 9)
    elif more == "an image at the top":
        pixels, labels = np.concatenate([255 - pixels[:1], pixels]), np.insert(labels, 0, 2)
    return Images(pixels, labels, pixels[:0], labels[:0], pixels[:12], labels[:12])


@pytest.mark.parametrize("more", ["a rare label", "an image at the top"])
def test_a_model_of_images_is_the_same_but_for_its_weights(more: str, tmp_path: Path) -> None:
    found = []
    for given in (None, more):
        training = quietly(
            sf.train, images(given), "logistic", epsilon=2, delta=DELTA, classes=(0, 1, 2),
            split=Split(scores="none"), privacy=Privacy(rows=80),
            epochs=1, batch_size=20,
        )  # fmt: skip
        folder = tmp_path / str(given)
        quietly(sf.save, training, folder)
        noisy = {"certificate.json": CERTIFICATE, "model.json": ()}
        found.append(public_files(folder, noisy, pages=True))
    assert found[0] == found[1]


def test_a_trainer_does_the_same_with_one_sample_more() -> None:
    found = []
    for rows in (60, 61):
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        trainer = Trainer(
            module, epsilon=1.0, delta=DELTA, batch_size=15, epochs=2, privacy=Privacy(rows=60),
            optimizer=Sgd(learning_rate=0.1),
        )  # fmt: skip
        trainer.fit(torch.randn(rows, 3), torch.arange(rows) % 2)
        found.append(public_form(trainer.to_dict(), ("/history/*/seconds",)))
    assert found[0] == found[1]


@pytest.mark.parametrize("rows", [1, 2, 9], ids=["one row", "two rows", "more rows than count"])
@pytest.mark.parametrize("at", [0, 60], ids=["at the top", "at the end"])
def test_a_trainer_of_people_does_the_same_with_one_person_more(rows: int, at: int) -> None:
    chance = np.random.default_rng(3)
    inputs, people = chance.normal(size=(60, 3)), chance.integers(-1, 25, 60)
    found = []
    for more in (0, rows):
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        trainer = Trainer(
            module, epsilon=1.0, delta=DELTA, batch_size=8, epochs=2, privacy=Privacy(rows=25),
            optimizer=Sgd(learning_rate=0.1),
        )  # fmt: skip
        given = np.insert(inputs, [at] * more, 5.0, axis=0), np.insert(people % 2, [at] * more, 1)
        trainer.fit(*given, people=np.insert(people, [at] * more, 99), rows_per_person=4)
        found.append(public_form(trainer.to_dict(), ("/history/*/seconds",)))
    assert found[0] == found[1]
    assert {event["unit"] for event in units_in(found[0]["events"])} == {"person"}


def units_in(events: Any) -> list[dict[str, Any]]:
    """Return the innermost events."""
    if isinstance(events, list):
        return [one for event in events for one in units_in(event)]
    inner = events.get("event", events.get("events"))
    return [events] if inner is None else units_in(inner)


# --- statistics and perturbed records ---

QUESTIONS = (
    "count", "count by sex", "mean of cost", "sum of age by sex", "median of cost", "quantile 0.9 of cost by ill",
    "histogram of age", "variance of cost", "min of age by sex", "max of cost",
    "count where age >= 40 and sex = 'f'", "mean of cost where not (ill = 'no' or age is missing) by sex",
    "median of age where cost < 300 or ill != 'yes'", "max of age where sex in ('f', '?')",
)  # fmt: skip
ANSWER = {
    "answer.json": ("/rows/*/value", "/rows/*/interval"),
    "certificate.json": (*CERTIFICATE, "/files/answer.json/bytes", "/files/report.html/bytes"),
}


def answered(records: list[Record], folder: Path) -> tuple[Any, ...]:
    table, path = table_of(records, folder), folder / "some.ledger"
    sf.Ledger.grant(table, epsilon=100.0, delta=DELTA, path=path).close()
    answers = [sf.query(table, question, epsilon=1.0, ledger=path).to_dict() for question in QUESTIONS]
    sf.save(sf.query(table, "mean of cost where ill = 'no' by sex", epsilon=1.0, ledger=path), folder / "out")
    files = public_files(folder / "out", ANSWER, pages=False)
    before = [sf.preview(table, question, epsilon=1.0).to_dict() for question in ("count by sex", "max of cost")]
    return public_form(answers, ("/*/rows/*/value", "/*/rows/*/interval")), before, files


@cache
def answered_about_people() -> tuple[Any, ...]:
    with TemporaryDirectory() as folder:
        return answered(people(), Path(folder, "one"))


@pytest.mark.parametrize("more", MORE)
def test_answers_differ_in_their_noise_alone(more: str, tmp_path: Path) -> None:
    assert answered_about_people() == answered(with_one_more(more), tmp_path / "other")


@pytest.mark.parametrize("more", MORE)
def test_perturbed_records_differ_in_their_noise_alone(more: str, tmp_path: Path) -> None:
    """Each record is perturbed by itself, so their number is public: one record is another."""
    at, record = MORE[more]
    columns = ["sex", "ill", "age"]
    changed = people()
    changed[min(at, len(changed) - 1)] = record
    found = []
    for name, records in (("one", people()), ("other", changed)):
        table = table_of(records, tmp_path / name)
        perturbed = quietly(sf.perturb, table, columns, epsilon=3.0, missing=True)
        quietly(perturbed.write, tmp_path / name / "out.csv")
        frame = sf.read(tmp_path / name / "out.csv").to_polars()
        values = {one: set(frame[one].drop_nulls().to_list()) for one in ("sex", "ill")}
        assert values["sex"] <= {"f", "m"}
        assert values["ill"] <= {"no", "yes"}
        found.append((perturbed.to_dict(), frame.columns, len(frame)))
    assert found[0] == found[1]


# --- the battery itself ---


def test_the_battery_notices_what_is_not_noisy(tmp_path: Path) -> None:
    """A function that writes how many records there are, and one that names a rare class."""

    def leaky(records: list[Record], folder: Path) -> dict[str, Any]:
        folder.mkdir()
        plain = {"rows": len(records), "classes": sorted({str(one["ill"]) for one in records}), "noisy": np.pi}
        (folder / "model.json").write_text(json.dumps(plain))
        return public_files(folder, {"model.json": ("/noisy",)}, pages=True)

    one, other = leaky(people(), tmp_path / "one"), leaky(with_one_more("a rare class"), tmp_path / "other")
    assert one["model.json"]["noisy"] == other["model.json"]["noisy"] == "NOISY"
    assert one["model.json"]["rows"] != other["model.json"]["rows"]
    assert one["model.json"]["classes"] != other["model.json"]["classes"]


def test_what_counts_as_noisy_is(tmp_path: Path) -> None:
    """Two trainings on one table differ in their weights, and their scores name their noise."""
    weights = []
    for name in ("one", "other"):
        training = sf.train(table_of(people(), tmp_path / name), "naive-bayes", epsilon=1, delta=DELTA, target="ill")
        sf.save(training, tmp_path / name / "out")
        weights.append(load_file(tmp_path / name / "out" / "model.safetensors"))
        told = json.loads((tmp_path / name / "out" / "certificate.json").read_text())["loss"]
        assert told["scores"] == "noisy"
        assert told["events"]
    assert all((weights[0][key] != weights[1][key]).any() for key in weights[0])


# --- synthetic tables of people ---


def synthesized(records: list[Record], folder: Path, **options: Any) -> dict[str, Any]:
    table_of(records, folder, (*PERSON, "patient_id"))
    path = folder / "people.csv"
    ledger = folder / "some.ledger"
    sf.Ledger.grant(sf.read(path), epsilon=9, delta=DELTA, path=ledger, unit="person").close()
    release = quietly(
        sf.synthesize,
        path,
        2,
        delta=DELTA,
        schema=SCHEMA,
        target="ill",
        ledger=ledger,
        **{"rows_per_person": BOUND, **options},
    )
    sf.save(release, folder / "out")
    noisy = {
        "certificate.json": (*CERTIFICATE, "/claims/rows", "/files/*/bytes"),
        "generator.json": ("/settings/*", "/domain/columns/*/step"),
    }
    buys = options.get("rows_per_person") == "bought"
    bought = ("*/rows_per_person", *BOUGHT_EVENTS) if buys else ()
    found = public_files(folder / "out", {name: (*paths, *bought) for name, paths in noisy.items()}, pages=False)
    found["generator.safetensors"] = {
        name: (kind, len(shape) if isinstance(shape, tuple) else shape)
        for name, (kind, shape) in found["generator.safetensors"].items()
    }
    hidden = ("/rows", "/loss/*", "/note", "/seconds", "/assessment/*", "/made", *bought)
    with sf.Ledger(ledger) as book:
        events = public_form({"events": [one.to_dict() for one in release.events]}, bought)
        spent = events, book.spent.epsilon, book.unit
    return {**found, "--json": public_form(release.to_dict(), hidden), "ledger": spent}


WAYS: dict[str, dict[str, Any]] = {
    "rows": {"rows": 20},
    "as many rows": {"method": "independent"},
    "people": {"people": 15},
    "a bought bound": {"rows_per_person": "bought", "rows": 20},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("more", MORE_PEOPLE)
def test_a_synthetic_table_is_the_same_with_one_person_more_but_for_its_noise(
    way: str, more: str, tmp_path: Path
) -> None:
    one = synthesized(visits(), tmp_path / "one", **WAYS[way])
    other = synthesized(with_a_person_more(more), tmp_path / "other", **WAYS[way])
    assert one == other
    assert one["ledger"][2] == "person"
