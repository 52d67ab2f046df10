"""Networks with scikit-learn's interface cost at most epsilon all in all, and learn from tables, arrays and images."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import sfumato as sf
from sfumato.budget import spent
from sfumato.learners import Adam, PrivateClassifier, PrivateRegressor, Report, Sgd, Trainer

ROWS = 600
SEEDED: dict[str, Any] = {"seed": 1, "insecure_seed": 1}  # where it matters what is learned: noise can spoil it


def points(rows: int = ROWS, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two groups that a line divides."""
    chance = np.random.default_rng(seed)
    targets = np.arange(rows) % 2
    return chance.uniform(-1, 1, (rows, 3)) + 2.5 * targets[:, None] - 1.25, targets


def people(rows: int = ROWS) -> pl.DataFrame:
    chance = np.random.default_rng(1)
    age = chance.integers(20, 80, rows)
    return pl.DataFrame(
        {"age": age, "town": chance.choice(["Delft", "Ghent"], rows), "rich": np.where(age > 50, "yes", "no")}
    )


def pictures(rows: int = 200) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Dark and light images, as bytes."""
    chance = np.random.default_rng(2)
    labels = np.arange(rows) % 2
    return (chance.integers(0, 100, (rows, 16, 16)) + 120 * labels[:, None, None]).astype(np.uint8), labels


def classifier(**options: Any) -> PrivateClassifier:
    chosen: dict[str, Any] = {
        "model": "logistic",
        "epsilon": 2.0,
        "delta": 1e-4,
        "bounds": (-3, 3),
        "classes": (0, 1),
        "batch_size": None,
        "rows": ROWS,
        "epochs": 10,
        "learning_rate": 1.0,
        **options,
    }
    return PrivateClassifier(**chosen)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sf.Ledger]:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    with sf.Ledger.grant(people(), epsilon=20.0, delta=1e-3, path=tmp_path / "some.ledger") as granted:
        yield granted


# --- what it costs ---


def test_a_training_without_purchases_costs_epsilon_and_learns() -> None:
    x, y = points()
    model = classifier(**SEEDED).fit(x, y)
    assert model.score(x, y) > 0.9
    assert 1.9 < model.spent_.epsilon <= 2.0
    assert model.spent_.delta == 1e-4
    assert model.sampling_ == {"kind": "full", "rate": 1.0, "rows": ROWS, "steps": 10}


def test_what_is_bought_is_part_of_epsilon() -> None:
    table = people(2000)
    model = PrivateClassifier(epsilon=8.0, delta=1e-4, epochs=5, batch_size=None).fit(table, "rich")
    bought, training = model.events_[:-1], model.events_[-1:]
    assert len(bought) == 4  # the number of rows, age, town and the classes
    assert spent(training, 1e-4).epsilon <= 8.0 * 0.9
    assert 0.9 * 8.0 < model.spent_.epsilon <= 8.0
    assert model.spent_.events == model.events_
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.features_.names == ("age", "town")
    assert model.history_[-1].epsilon == pytest.approx(8.0, rel=0.01)


def test_what_fit_charges_is_known_before(ledger: sf.Ledger) -> None:
    table = people()
    model = PrivateClassifier(epsilon=8.0, delta=1e-4, epochs=1, batch_size=None, ledger=ledger)
    foreseen = model.events_of(table, "rich")
    assert not ledger.events
    assert model.fit(table, "rich").events_ == foreseen
    assert spent(ledger.events, 1e-4).epsilon == model.spent_.epsilon
    x, y = points()
    sampled = classifier(batch_size=100, epochs=1, noise_multiplier=3.0)
    assert sampled.events_of(x, y) == sampled.fit(x, y).events_
    assert sampled.sampling_ == {"kind": "poisson", "rate": 1 / 6, "rows": ROWS, "steps": 6}


def test_the_noise_can_be_given_instead() -> None:
    x, y = points()
    model = classifier(noise_multiplier=30.0).fit(x, y)
    assert model.noise_multiplier_ == 30.0
    assert model.spent_.epsilon < 1.0


def test_every_fit_is_charged_by_folds_grids_and_clones(ledger: sf.Ledger) -> None:
    x, y = points()
    model = classifier(epsilon=0.5, epochs=1, ledger=ledger)
    cross_val_score(make_pipeline(FunctionTransformer(), model), x, y, cv=2)
    assert len(ledger.events) == 2
    search = GridSearchCV(model, {"learning_rate": [0.5, 1.0]}, cv=2, refit=False).fit(x, y)
    assert search.best_params_["learning_rate"] in (0.5, 1.0)
    assert len(ledger.events) == 6
    clone(model).fit(x, y)
    assert len(ledger.events) == 7


def test_a_ledger_refuses_what_exceeds_it(ledger: sf.Ledger) -> None:
    x, y = points()
    with pytest.raises(sf.errors.BudgetError):
        classifier(epsilon=30.0, epochs=1, ledger=ledger).fit(x, y)
    with pytest.raises(sf.errors.OptionError, match="without privacy"):
        classifier(epsilon=math.inf, ledger=ledger).fit(x, y)


def test_wrong_options_are_refused_before_anything_is_paid(ledger: sf.Ledger) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model": "mpl"}, "the model must be one of .*mlp"),
        ({"model": 3}, "the model must be a name"),
        ({"model": nn.Linear(2, 2), "model_options": {"hidden": (3,)}}, "model_options"),
        ({"epochs": 0}, "epochs"),
        ({"clip": -1.0}, "clip"),
        ({"batch_size": 0}, "batch size"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"knots": 1}, "knots"),
        ({"optimizer": "adm"}, "there is no optimizer 'adm' .*adam"),
        ({"schedule": "cosin"}, "there is no schedule"),
        ({"averaging": 2.0}, "averaging"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"noise_multiplier": -1.0}, "noise multiplier"),
        ({"device": "nowhere"}, "there is no device"),
        ({"seed": -1}, "seed"),
        ({"trainer_options": {"view": 2}}, "trainer_options has no 'view' .*views"),
        ({"trainer_options": {"views": 2}}, "views"),
    ]
    with pytest.raises(sf.errors.FileError, match="there is no folder"):
        PrivateClassifier(delta=1e-4, ledger=ledger, checkpoint="nowhere/run.safetensors").fit(people(), "rich")
    for options, message in wrong:
        model = PrivateClassifier(**{"delta": 1e-4, "ledger": ledger, **options})
        with pytest.raises(sf.errors.OptionError, match=message):
            model.fit(people(), "rich")
    assert not ledger.events


# --- what is learnt from ---


def test_only_what_the_schema_does_not_declare_is_bought() -> None:
    schema = sf.Schema((sf.Column(name="age", bounds=(0, 100)), sf.Column(name="rich", domain=("no", "yes"))))
    table, options = people(), {"delta": 1e-4, "epochs": 1, "batch_size": None, "rows": ROWS}
    events = PrivateClassifier(schema=schema, **options).events_of(table, "rich")
    assert len(events) == 1 + 1  # the towns, and the training
    assert len(PrivateClassifier(schema=schema, **options).events_of(table.drop("town"), "rich")) == 1


def test_a_series_a_name_and_a_tensor_are_the_same_target() -> None:
    x, y = points()
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    same = [
        classifier(insecure_seed=1, seed=1).fit(*given)
        for given in ((frame, "y"), (frame.drop("y"), frame["y"]), (torch.tensor(x), torch.tensor(y)), (x, y))
    ]
    first = same[0].predict_proba(frame.drop("y"))
    assert all(np.array_equal(first, one.predict_proba(x)) for one in same[1:])


def test_images_of_bytes_are_scaled_and_get_a_channel() -> None:
    images, labels = pictures()
    model = classifier(model="cnn", epsilon=8.0, delta=1e-3, epochs=3).fit(images, labels)
    assert model.features_ is None
    assert model.inputs_ == (1, 16, 16)
    assert model.predict(images).shape == (200,)
    numbers = torch.tensor(images).unsqueeze(1).float() / 255
    assert np.array_equal(model.predict_proba(images), model.predict_proba(numbers))
    light = classifier(epsilon=8.0, delta=1e-3, rows=200, **SEEDED).fit(images, labels)
    assert light.score(images, labels) > 0.9
    with pytest.raises(
        sf.SfumatoError, match=r"images of shape 1 x 8 x 8, but PrivateClassifier is expecting .* 1 x 16"
    ):
        model.predict(images[:, :8, :8])
    with pytest.raises(sf.SfumatoError, match="X has columns"):
        model.predict(points()[0])
    with pytest.raises(sf.SfumatoError, match="is expecting columns"):
        classifier(epochs=1).fit(*points(), validation=(images, labels))


@pytest.mark.parametrize("kind", ["bool", "int16", "uint16", "float16", ">f4", "longdouble"])
def test_images_of_any_numbers_are_taken(kind: str) -> None:
    images, labels = pictures()
    model = classifier(epochs=1, delta=1e-3).fit(images.astype(kind), labels)
    assert model.predict(images.astype(kind)).shape == (200,)
    half = torch.tensor(images).bfloat16()
    assert np.array_equal(model.predict(half), model.predict(half.float()))


def test_a_pixel_that_is_no_number_counts_as_nothing() -> None:
    images, labels = pictures()
    holed, filled = images.astype(np.float64) / 255, images.astype(np.float64) / 255
    holed[0, 0, :2], filled[0, 0, :2] = (np.nan, np.inf), 0.0
    one, other = (classifier(delta=1e-3, seed=0, insecure_seed=0).fit(given, labels) for given in (holed, filled))
    assert np.array_equal(one.predict_proba(holed), other.predict_proba(filled))


def test_a_scale_is_a_mean_and_a_deviation() -> None:
    images, labels = pictures()
    options: dict[str, Any] = {"delta": 1e-3, "seed": 0, "insecure_seed": 0}
    scaled = classifier(scale=(0.5, 0.25), **options).fit(images, labels)
    by_hand = classifier(**options).fit((images[:, None].astype(np.float32) / 255 - 0.5) / 0.25, labels)
    assert np.allclose(scaled.predict_proba(images[:9]), by_hand.predict_proba((images[:9] / 255 - 0.5) / 0.25))
    for wrong in ((0.5, 0.0), (0.5,), ("a", "b"), ([0.5] * 3, [1.0, 1.0])):
        with pytest.raises(sf.errors.OptionError, match="the scale must be a mean and a deviation"):
            classifier(scale=wrong, **options).fit(images, labels)


def test_scattering_is_made_of_images_before_the_training() -> None:
    images, labels = pictures(100)
    model = classifier(model="scattering-linear", epochs=5, delta=1e-3, epsilon=8.0).fit(images, labels)
    assert model.predict_proba(images).shape == (100, 2)
    again = PrivateClassifier()
    again.restore(*model.state())
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))


def test_tables_and_images_of_other_dimensions_are_refused() -> None:
    with pytest.raises(sf.SfumatoError, match="got 5 dimensions"):
        classifier().fit(np.zeros((4, 1, 2, 2, 2)), [0, 1, 0, 1])
    with pytest.raises(sf.SfumatoError, match="there are no images"):
        classifier().fit(np.zeros((0, 4, 4)), [])
    with pytest.raises(sf.errors.OptionError, match="is for images"):
        classifier(model="cnn").fit(*points())


def test_a_record_of_no_class_has_no_part_in_the_weights() -> None:
    x, y = points()
    strange = y.copy()
    strange[:100] = 7
    options: dict[str, Any] = {"insecure_seed": 1, "seed": 1}
    moved = x.copy()
    moved[:100] = 3.0
    for model in ("logistic", lambda inputs, outputs: nn.Linear(inputs, 1)):
        one, other = (classifier(model=model, **options).fit(given, strange) for given in (x, moved))
        assert np.allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-6)


# --- the model ---


def test_a_module_that_is_given_is_not_changed() -> None:
    own = nn.Linear(3, 2)
    before = {name: one.clone() for name, one in own.state_dict().items()}
    model = classifier(model=own).fit(*points())
    assert model.module_ is not own
    assert all(torch.equal(before[name], one) for name, one in own.state_dict().items())
    assert not torch.equal(model.module_.weight, own.weight)
    assert model.architecture_ is None
    assert isinstance(clone(model).model, nn.Linear)


def test_a_callable_makes_the_module() -> None:
    asked = []

    def make(inputs: Any, outputs: int) -> nn.Module:
        asked.append((inputs, outputs))
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(np.atleast_1d(inputs)), outputs))

    classifier(model=make).fit(*points())
    classifier(model=make, delta=1e-3).fit(*pictures())
    classifier(model=make, knots=None).fit(*points())
    assert asked == [(3 * 20, 2), ((1, 16, 16), 2), (3, 2)]
    with pytest.raises(sf.errors.OptionError, match=r"must return a torch.nn.Module, got int"):
        classifier(model=lambda inputs, outputs: 3).fit(*points())


def test_a_single_output_is_enough_for_two_classes() -> None:
    x, y = points()
    model = classifier(model=nn.Linear(3, 1), **SEEDED).fit(x, y)
    chances = model.predict_proba(x)
    assert chances.shape == (ROWS, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    assert model.score(x, y) > 0.9
    with pytest.raises(sf.SfumatoError, match="one output per class, 2, got 3"):
        classifier(model=nn.Linear(3, 3)).fit(x, y)


def test_a_layer_that_mixes_records_is_refused_or_replaced() -> None:
    mixing = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    with pytest.raises(sf.SfumatoError, match="BatchNorm1d mixes"):
        classifier(model=mixing).fit(*points())
    replaced = classifier(model=mixing, trainer_options={"replace": True}).fit(*points())
    assert not any(isinstance(one, nn.BatchNorm1d) for one in replaced.module_.modules())
    again = PrivateClassifier(model=mixing, trainer_options={"replace": True})
    again.restore(*replaced.state())
    assert np.array_equal(again.predict_proba(points()[0]), replaced.predict_proba(points()[0]))


def test_rules_are_given_by_name_or_whole() -> None:
    x, y = points()
    for optimizer, rule in (("adam", Adam(learning_rate=1.0)), (Sgd(learning_rate=0.3), Sgd(learning_rate=0.3))):
        assert classifier(optimizer=optimizer, epochs=1).fit(x, y).to_dict()["rule"] == rule.to_dict()


def test_its_facts_have_the_names_of_the_trainers() -> None:
    x, y = points()
    model = classifier(epochs=2).fit(x, y)
    trainer = Trainer(nn.Linear(3, 2), epsilon=2.0, delta=1e-4, epochs=2)
    trainer.fit(x, y)
    assert set(model.to_dict()) == set(trainer.to_dict())
    json.dumps(model.to_dict(), allow_nan=False)


# --- the same again ---


def test_without_privacy_a_seed_makes_it_reproducible_and_leaves_torch_alone() -> None:
    x, y = points()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    options: dict[str, Any] = {"model": "mlp", "epsilon": math.inf, "batch_size": 50, "learning_rate": 0.1}
    one, other = (classifier(seed=3, **options).fit(x, y) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one.predict_proba(x), other.predict_proba(x))
    assert one.to_dict()["epsilon"] == "inf"
    assert not one.to_dict()["private"]
    third, fourth = (classifier(**options).fit(x, y) for _ in range(2))
    assert not np.array_equal(third.predict_proba(x), fourth.predict_proba(x))


def test_a_fitted_model_survives_pickling_and_its_arrays() -> None:
    x, y = points()
    for model in (classifier().fit(x, y), classifier(model=nn.Linear(3, 2)).fit(x, y)):
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x), model.predict_proba(x))
        arrays, facts = model.state()
        again = PrivateClassifier(model=nn.Linear(3, 2))
        again.restore(arrays, json.loads(json.dumps(facts)))
        assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
        assert [one.to_dict() for one in again.history_] == [one.to_dict() for one in model.history_]
    with pytest.raises(sf.SfumatoError, match="module of the user"):
        PrivateClassifier().restore(arrays, facts)


def test_reports_and_progress_are_told_with_scores() -> None:
    x, y = points()
    told: list[Report] = []
    shares: list[float] = []
    model = classifier(epochs=3, **SEEDED)
    model.fit(x, y, validation=points(seed=1), report=told.append, progress=shares.append)
    assert told == model.history_
    assert [one.epoch for one in told] == [1, 2, 3]
    assert told[-1].score is not None
    assert told[-1].score > 0.9
    assert shares[-1] == 1.0
    frame = people()
    PrivateClassifier(epsilon=9.0, delta=1e-4, epochs=1).fit(frame, "rich", validation=(frame, "rich"))


def test_a_training_that_was_interrupted_continues_with_what_it_bought(ledger: sf.Ledger, tmp_path: Path) -> None:
    table = people()

    def stop(report: Report) -> None:
        if report.epoch == 2:
            raise KeyboardInterrupt

    model = PrivateClassifier(
        epsilon=8.0, delta=1e-4, epochs=4, batch_size=None, ledger=ledger, checkpoint=tmp_path / "run.safetensors"
    )
    with pytest.raises(KeyboardInterrupt):
        model.fit(table, "rich", report=stop)
    charged = len(ledger.events)
    assert charged == 4 + 2  # the number of rows, age, town and the classes; two epochs
    model.fit(table, "rich")
    assert len(ledger.events) == charged + 2  # nothing is bought again
    assert [one.epoch for one in model.history_] == [1, 2, 3, 4]
    assert model.sampling_["steps"] == 4
    assert spent(ledger.events, 1e-4).epsilon == pytest.approx(model.spent_.epsilon, rel=1e-6)
    with pytest.raises(sf.errors.FileError, match="other columns"):
        clone(model).set_params(epsilon=9.0).fit(table, "rich")
    with pytest.raises(sf.errors.FileError, match="other columns"):
        clone(model).fit(table.rename({"age": "years"}), "rich")
    (tmp_path / "run.safetensors.columns.json").write_text("{")
    with pytest.raises(sf.errors.FileError, match="damaged"):
        clone(model).fit(table, "rich")


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_checkpoint_is_refused_for_other_records(epochs: int, ledger: sf.Ledger, tmp_path: Path) -> None:
    def stop(report: Report) -> None:
        if report.epoch == 1 and epochs == 2:
            raise KeyboardInterrupt

    table = people()
    other = table.with_columns(age=pl.col("age") + (pl.int_range(pl.len()) == 7).cast(pl.Int64))  # of one person
    options: dict[str, Any] = {"delta": 1e-4, "epochs": epochs, "batch_size": None, "ledger": ledger}
    schema = sf.Schema([
        sf.Column(name="age", bounds=(0, 100)), sf.Column(name="town", domain=("Delft", "Ghent")),
        sf.Column(name="rich", domain=("no", "yes")),
    ])  # fmt: skip
    for name, public in (("bought", None), ("declared", schema)):
        path = tmp_path / f"{name}.safetensors"
        model = PrivateClassifier(epsilon=8.0, schema=public, checkpoint=path, **options)
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(table, "rich", report=stop)
        charged = len(ledger.events)
        with pytest.raises(sf.errors.FileError, match=r"other records|another set of samples"):
            clone(model).fit(other, "rich")
        assert len(ledger.events) == charged
        again = clone(model).fit(table, "rich")  # an ended one is the same release
        assert len(ledger.events) == charged + epochs - 1
        assert np.array_equal(again.predict_proba(table), clone(model).fit(table, "rich").predict_proba(table))


def test_a_training_that_diverges_says_so() -> None:
    x, y = points()
    with pytest.raises(sf.SfumatoError, match="diverged"):
        PrivateRegressor(epsilon=math.inf, learning_rate=1e6, epochs=50, seed=0).fit(x, y)


# --- numbers ---


def test_a_regression_predicts_in_the_units_of_its_target() -> None:
    x, _ = points(3000)
    y = 500 + 100 * x[:, 0] / 2.25
    public: dict[str, Any] = {"bounds": (-3, 3), "target_bounds": (0, 1000), **SEEDED}
    model = PrivateRegressor(epsilon=4.0, delta=1e-4, batch_size=None, learning_rate=0.5, epochs=30, **public)
    model.fit(x, y, validation=(x, y))
    assert model.score(x, y) > 0.7
    assert model.spent_.epsilon <= 4.0
    assert model.history_[-1].score == pytest.approx(np.square(model.predict(x) - y).mean(), rel=0.01)
    assert model.predict(x).max() <= 1000
    some = np.where(np.arange(len(y)) % 2, np.nan, y)
    half = clone(model).set_params(epsilon=math.inf, seed=0)
    scores = [half.fit(x, y, validation=one).history_[-1].score for one in ((x, some), (x[::2], y[::2]))]
    assert scores[0] == scores[1]
    with pytest.raises(sf.SfumatoError, match="no record with a target"):
        half.fit(x, y, validation=(x, pl.Series("y", [None] * len(y), dtype=pl.Float64)))
    with pytest.raises(sf.SfumatoError, match="must have the same length"):
        half.fit(x, y, validation=(x, y[:5]))
    with pytest.raises(sf.SfumatoError, match="one output, got 2"):
        clone(model).set_params(model=nn.Linear(3, 2)).fit(x, y)


def test_bounds_of_a_target_are_bought_and_missing_targets_left_out() -> None:
    x, _ = points(2000)
    y = 10 + 4 * x[:, 0]
    y[:50] = np.nan
    model = PrivateRegressor(epsilon=8.0, delta=1e-4, bounds=(-3, 3), epochs=20, rows=2000).fit(x, y)
    assert len(model.events_) == 2
    assert np.isfinite(model.predict(x)).all()
    assert model.spent_.epsilon <= 8.0


@pytest.mark.parametrize(
    "model",
    [
        PrivateClassifier(epsilon=math.inf, epochs=20, batch_size=50, learning_rate=0.2, seed=0),
        PrivateRegressor(epsilon=math.inf, epochs=40, batch_size=None, learning_rate=0.1, seed=0),
    ],
)
def test_scikit_learn_finds_nothing_to_object_to(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a check that needs an environment of its own is skipped with a warning
        found = check_estimator(model, on_fail=None)
    assert [one["check_name"] for one in found if one["status"] not in ("passed", "skipped")] == []
