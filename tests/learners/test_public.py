"""What private learning knows without asking the data: declared or bought, never read off the records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.budget import CountRows, FindBounds, Source, spent
from sfumato.learners import Privacy, PrivateAdditiveClassifier, PrivateClassifier, PrivateNaiveBayes, Split, Trainer
from sfumato.learners.dpsgd.sampling import FixedPoisson, Full, Poisson
from tests.learners.trainings import in_groups

PEOPLE = pl.DataFrame({"age": [30.0, 40.0] * 100, "ill": ["no", "yes"] * 100})
ILL = sf.Schema([sf.Column(name="ill", domain=("no", "yes"))])


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sf.Ledger]:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    with sf.Ledger.grant(PEOPLE, epsilon=20.0, delta=1e-3) as granted:
        yield granted


# --- the number of rows ---


def told(count: int, **options: Any) -> dict[str, Any]:
    """Train on so many samples, and return what is said of the training."""
    trainer = Trainer(nn.Linear(2, 2), **in_groups(delta=1e-4, epsilon=1.0, epochs=2, **options))
    trainer.fit(torch.ones(count, 2), torch.zeros(count, dtype=torch.int64))
    return {name: value for name, value in trainer.to_dict().items() if name != "history"}


@pytest.mark.parametrize("batch", [None, 20])
def test_one_sample_more_changes_nothing_that_is_said_of_a_training_of_declared_rows(batch: int | None) -> None:
    assert told(200, batch_size=batch, rows=200) == told(201, batch_size=batch, rows=200)
    assert told(200, batch_size=batch)["sampling"]["rows"] == 200  # else the number of samples counts as public


def test_the_divisor_of_a_full_batch_is_the_declared_number() -> None:
    weights = []
    for rows in (50, 100):
        torch.manual_seed(0)
        module = nn.Linear(1, 1, bias=False)
        trainer = Trainer(module, **in_groups(epsilon=float("inf"), steps=1, rows=rows, loss="squared-error"))
        before = module.weight.item()
        trainer.fit(torch.ones(100, 1), torch.ones(100, 1))
        weights.append(module.weight.item() - before)
    assert weights[0] == pytest.approx(2 * weights[1], rel=1e-4)


@pytest.mark.parametrize("there", [500, 1000, 2000])
def test_every_sample_there_is_is_drawn_with_the_declared_rate(there: int) -> None:
    source, sampler = Source(insecure_seed=1), Poisson(1000, 0.1)
    drawn = [sampler.draw(source, there) for _ in range(500)]
    times = np.bincount(np.concatenate(drawn), minlength=there)
    assert len(times) == there
    assert times.sum() == pytest.approx(500 * 0.1 * there, rel=0.02)
    assert times.max() < 100
    assert len(Full(1000).draw(source, there)) == there


def test_a_batch_of_fixed_size_leaves_out_nothing_of_more_samples_than_it_is_for() -> None:
    sampler = FixedPoisson.of(Poisson(1000, 0.5), 1e-5, 20, most=1031)
    assert sampler.beyond < 1e-5 / 1e8
    assert sampler.size > FixedPoisson.of(Poisson(1000, 0.5), 1e-5, 20).size
    assert len(sampler.draw(Source(), 1032)) <= 1032
    assert len(sampler.draw(Source(insecure_seed=1), 4000)) > sampler.size  # 2,000 on average


def test_the_number_of_rows_is_bought_and_charged(ledger: sf.Ledger) -> None:
    model = PrivateClassifier(
        model="logistic", epsilon=8.0, delta=1e-4, schema=ILL, bounds=(0, 100), batch_size=20, epochs=2, ledger=ledger
    )
    model.fit(PEOPLE, "ill")
    assert model.events_[0] == CountRows(epsilon=0.16).event == ledger.events[0]
    rows = model.sampling_["rows"]
    assert rows >= 7  # the scale of the noise
    assert model.sampling_["rate"] == min(1.0, 20 / rows)
    assert model.spent_.epsilon <= 8.0
    with pytest.raises(
        sf.errors.OptionError, match=r"depends on the number of rows, which is not declared \(declare it with rows="
    ):
        model.events_of(PEOPLE, "ill")
    declared = PrivateClassifier(model="logistic", schema=ILL, bounds=(0, 100), delta=1e-4, rows=200, epochs=1)
    assert len(declared.events_of(PEOPLE, "ill")) == 1
    more = pl.concat([PEOPLE, PEOPLE.head(1)])
    assert declared.events_of(PEOPLE, "ill") == declared.events_of(more, "ill")


def test_a_number_of_rows_that_is_lost_in_noise_is_the_scale_of_the_noise() -> None:
    count = CountRows(epsilon=0.01)
    found = [count.answer(1, Source(insecure_seed=seed)) for seed in range(200)]
    assert min(found) == 100
    assert found.count(100) > 50


def test_delta_is_compared_with_the_public_number_of_rows() -> None:
    options: dict[str, Any] = {"model": "logistic", "schema": ILL, "bounds": (0, 100), "epochs": 1}
    with pytest.raises(sf.errors.OptionError, match="delta must be below 1 / 200"):
        PrivateClassifier(**options, rows=200, delta=0.005).fit(PEOPLE.head(190), "ill")
    with pytest.raises(sf.errors.OptionError, match="delta must be below 1 / 50"):  # no noisy number is less
        PrivateClassifier(**options, delta=0.02).fit(PEOPLE, "ill")


# --- purchases that fail ---


def test_bounds_that_cannot_be_bought_cost_what_was_asked_and_no_more(ledger: sf.Ledger) -> None:
    model = PrivateAdditiveClassifier(epsilon=0.5, delta=1e-4, schema=ILL, ledger=ledger)
    with pytest.raises(sf.SfumatoError, match=r"'age': no bounds were found above the noise; epsilon 0.0498 was"):
        model.fit(PEOPLE, "ill")
    assert ledger.events == (FindBounds(epsilon=0.05).event,)
    assert ledger.spent.epsilon == pytest.approx(0.05, rel=0.1)
    without = PrivateAdditiveClassifier(epsilon=0.5, delta=1e-4, schema=ILL)
    with pytest.raises(sf.SfumatoError, match=r"epsilon 0.0498 was spent \(declare its bounds"):
        without.fit(PEOPLE, "ill")


def test_what_comes_after_a_purchase_that_fails_is_not_charged(ledger: sf.Ledger) -> None:
    schema = sf.Schema([sf.Column(name="age", bounds=(0, 100))])
    network = PrivateClassifier(model="logistic", epsilon=0.4, delta=1e-4, schema=schema, epochs=1, ledger=ledger)
    with pytest.raises(sf.errors.InputError, match=r"at least two classes, .*; epsilon 0.0477 was charged"):
        network.fit(PEOPLE.head(6), "ill")  # too few to be seen
    assert spent(ledger.events, 1e-4).epsilon == pytest.approx(0.0477, rel=0.01)


def test_a_training_that_the_budget_has_no_room_for_is_refused_before_anything_is_bought(tmp_path: Path) -> None:
    with sf.Ledger.grant(PEOPLE, epsilon=0.5, delta=1e-4, path=tmp_path / "some.ledger") as ledger:
        model = PrivateClassifier(model="logistic", epsilon=2.0, delta=1e-4, batch_size=None, epochs=1, ledger=ledger)
        with pytest.raises(sf.errors.BudgetError):
            model.fit(PEOPLE, "ill")
        assert not ledger.events


# --- the kinds of columns ---

CELLS = "age,sex,ill\n" + "30,f,0\n40,m,1\n" * 100


def written(path: Path, text: str, schema: sf.Schema | None = None) -> sf.Table:
    path.write_text(text)
    return sf.read(path, schema)


def declared(**kinds: str) -> sf.Schema:
    return sf.Schema(sf.Column(name=name, kind=kind) for name, kind in kinds.items())


@pytest.mark.parametrize("model", [PrivateAdditiveClassifier, PrivateClassifier])
def test_a_kind_that_only_the_cells_of_a_text_file_tell_is_refused(model: Any, tmp_path: Path) -> None:
    table = written(tmp_path / "a.csv", CELLS)
    with pytest.raises(
        sf.errors.SchemaError, match=r"the kind of column 'age' is not declared.*, .*--numbers 'age' or"
    ):
        model(delta=1e-4).fit(table, "ill")
    part = sf.Table(table.frame.head(100), table.schema)  # a part of what was read is no more declared
    with pytest.raises(sf.errors.SchemaError, match="the kind of column 'age' is not declared"):
        model(delta=1e-4).fit(part, "ill")
    unchecked = sf.Schema.suggest(table)
    with pytest.raises(sf.errors.SchemaError, match="the kind of column 'age' is not declared"):
        model(delta=1e-4, schema=unchecked).fit(table, "ill")
    checked = sf.Schema.from_toml(unchecked.to_toml())
    assert len(PrivateAdditiveClassifier(delta=1e-4, schema=checked).events_of(table, "ill"))
    typed = sf.Table(table.frame)  # the types of a frame are public
    assert len(PrivateAdditiveClassifier(delta=1e-4).events_of(typed, "ill"))
    assert PrivateAdditiveClassifier(epsilon=float("inf")).fit(table, "ill").classes_.tolist() == [0, 1]


@pytest.mark.parametrize("odd", ["unknown,f,0\n", "30,7,0\n", "30,f,unknown\n", "30,f,0.5\n", "2020-01-01,f,01\n"])
def test_an_odd_cell_changes_nothing_but_itself(odd: str, tmp_path: Path) -> None:
    schema = declared(age="number", sex="category")
    plain, other = (
        PrivateNaiveBayes(epsilon=40.0, delta=1e-4, insecure_seed=1).fit(table, "ill")
        for table in (
            written(tmp_path / "a.csv", CELLS, schema),
            written(tmp_path / "b.csv", CELLS + odd, schema),
        )
    )
    assert plain.events_ == other.events_
    assert plain.features_ == other.features_
    assert plain.classes_.tolist() == other.classes_.tolist() == [0, 1]
    assert plain.classes_.dtype == other.classes_.dtype


def test_an_odd_cell_changes_nothing_that_is_written_of_a_training(tmp_path: Path) -> None:
    schema, said = declared(age="number", sex="category"), []
    for name, text in (("a.csv", CELLS), ("b.csv", CELLS + "unknown,7,unknown\n")):
        table = written(tmp_path / name, text, schema)
        seeded: dict[str, Any] = {"split": Split(test=PUBLIC), "privacy": Privacy(insecure_seed=1)}
        training = sf.train(table, "naive-bayes", target="ill", epsilon=40, delta=1e-4, **seeded)
        (run,) = training.runs
        _, facts = training.models[run.name].state()
        said.append([facts, run.facts["events"], training.rows, training.material.schema.to_dict()])
    assert said[0] == said[1]
    assert said[0][2] is None


PUBLIC = pl.DataFrame({"age": [30, 40], "sex": ["f", "m"], "ill": [0, 1]})


def test_the_target_of_a_regression_in_a_text_file_is_numbers_whatever_its_cells_are(tmp_path: Path) -> None:
    schema = sf.Schema(
        [sf.Column(name="sex", domain=("f", "m")), sf.Column(name="ill", kind="category", domain=(0, 1))]
    )
    table = written(tmp_path / "a.csv", CELLS + "unknown,f,0\n", schema)
    model = sf.train(
        *(table, "linear"),
        **{"target": "age", "regression": True, "epsilon": 8, "delta": 1e-4, "target_bounds": (0, 100)},
        split=Split(test=PUBLIC),
    ).models["epsilon-8"]
    assert model.target_.bounds == (0.0, 100.0)


def test_a_declared_domain_makes_a_category_whatever_the_cells_look_like(tmp_path: Path) -> None:
    schema = sf.Schema([sf.Column(name="age", domain=(30, 40)), sf.Column(name="sex", domain=("f", "m"))])
    for name, text in (("a.csv", CELLS), ("b.csv", CELLS + "x,f,0\n")):
        table = written(tmp_path / name, text, schema)
        model = PrivateAdditiveClassifier(delta=1e-4, classes=(0, 1)).fit(table, "ill")
        assert model.features_.features[0].domain == ("30", "40")


@pytest.mark.parametrize("odd", [7, "x", 0.5, None, True])
def test_objects_are_categories_whatever_one_of_them_is(odd: Any) -> None:
    def fitted(made: Any, values: list[Any]) -> Any:
        model = PrivateNaiveBayes(epsilon=40.0, delta=1e-4, classes=("no", "yes"), insecure_seed=1)
        return model.fit(made(values), ["no", "yes"] * 100 + ["no"] * (len(values) - 200))

    for made in (
        lambda values: pd.DataFrame({"a": pd.Series(values, dtype=object)}),
        lambda values: sf.Table(pd.DataFrame({"a": pd.Series(values, dtype=object)})),
        lambda values: np.array(values, dtype=object)[:, None],
    ):
        plain, other = fitted(made, [30, 40] * 100), fitted(made, [30, 40] * 100 + [odd])
        assert plain.events_ == other.events_
        assert plain.features_ == other.features_
        assert plain.features_.features[0].domain == ("30", "40")


# --- the classes of images ---


def images(labels: list[int]) -> sf.datasets.Images:
    many = np.array(labels, dtype=np.uint8)
    pixels = np.repeat(many[:, None, None] * 20, 8, axis=1).repeat(8, axis=2).astype(np.uint8)
    return sf.datasets.Images(pixels, many, pixels[:20], many[:20])


def test_one_rare_label_does_not_change_the_classes_of_images() -> None:
    found = []
    for labels in ([0, 1] * 100, [0, 1] * 100 + [7]):
        options: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "epochs": 1, "batch_size": 50}
        options["privacy"] = Privacy(rows=200)
        bought = sf.train(images(labels), "logistic", **options).models["epsilon-8"]
        declared = sf.train(images(labels), "logistic", classes=(0, 1, 2), **options).models["epsilon-8"]
        found.append((bought.classes_.tolist(), declared.classes_.tolist(), len(bought.events_), len(declared.events_)))
    assert found[0] == found[1] == ([0, 1], [0, 1, 2], 2, 1)


def test_the_classes_of_the_built_in_digits_are_known() -> None:
    few = Split(samples=5, test_samples=5)
    digits = sf.train("mnist", "logistic", split=few, epsilon="none", epochs=1).models["epsilon-none"]
    assert digits.classes_.tolist() == list(range(10))


# --- the ledger of a file ---


def test_a_file_with_a_ledger_is_not_trained_on_uncharged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    path, age = tmp_path / "people.csv", sf.Column(name="age", bounds=(0, 100))
    schema, other_name = (sf.Schema([age, sf.Column(name=name, domain=("f", "m"))]) for name in ("sex", "gender"))
    table = written(path, CELLS, schema)
    options: dict[str, Any] = {"target": "ill", "epsilon": 0.5, "delta": 1e-4, "classes": (0, 1)}
    options["split"] = Split(test=PUBLIC)
    assert not sf.train(table, "naive-bayes", **options).charged
    with sf.Ledger.grant(path, epsilon=5, delta=1e-4) as ledger:
        assert sf.train(table, "naive-bayes", **options).charged
        charged = ledger.events
        copy = tmp_path / "copy.csv"
        copy.write_text(CELLS)
        renamed = CELLS.replace("sex", "gender", 1)
        for other in (
            lambda: sf.read(path, schema, na=["40"]),
            lambda: sf.read(copy, schema, na=["40"]),
            lambda: written(path, renamed, other_name),
        ):
            with pytest.raises(
                sf.errors.BudgetError, match="a budget was granted for this file, but its content now reads differently"
            ):
                sf.train(other(), "naive-bayes", **options | {"split": None})
        with pytest.raises(sf.errors.BudgetError, match="a budget was granted for this file"):
            sf.query(sf.read(copy, na=["40"]), "count", epsilon=0.1)
        assert ledger.events == charged
        assert "origin" not in str(ledger.history())
    with sf.Ledger.grant(path, epsilon=1, delta=1e-4) as second:  # what has changed can be granted a budget of its own
        assert sf.Ledger.find(path).path == second.path  # type: ignore[union-attr]
