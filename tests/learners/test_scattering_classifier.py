"""The linear classifier of images: what an image adds to a sum, what is charged, stored and refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import sfumato as sf
from sfumato.attacks.auditing.mechanisms import mechanism_checks
from sfumato.attacks.base import Records
from sfumato.attacks.membership.threshold import LossThreshold
from sfumato.attacks.predictions import trees_of
from sfumato.attacks.targets import ModelTarget
from sfumato.budget import Ledger, Source
from sfumato.data.recipe import Recipe
from sfumato.learners import Privacy, PrivateScatteringClassifier, Split, load_model, write_model
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.learners.images.teacher import LIGHT, Whitening, features_of, fit_teacher, whitened_views
from sfumato.learners.images.views import Views, numbers_of
from sfumato.learners.networks.architectures import ImageInputs
from sfumato.learners.networks.scattering import normalized_scattering
from tests.learners.sensitivity import assert_sums_are_bounded

SMALL: dict[str, Any] = {"steps": 8, "views": 2, "whitening": 20, "draws": 60, "seed": 0, "classes": (0, 1)}


def images(count: int, side: int = 12) -> tuple[Any, Any]:
    """Return dark noise, with a bright half: the left one or the right one."""
    generator = np.random.default_rng(0)
    labels = np.arange(count) % 2
    pixels = generator.integers(0, 60, (count, side, side))
    pixels[labels == 1, :, side // 2 :] += 150
    pixels[labels == 0, :, : side // 2] += 150
    return pixels.astype(np.uint8), labels


def classifier(**options: Any) -> PrivateScatteringClassifier:
    return PrivateScatteringClassifier(**{**SMALL, "epsilon": 8.0, "delta": 1e-4, **options})


# --- what an image adds ---


@pytest.mark.parametrize("epsilon", [1.0, 50.0])
def test_no_image_moves_a_sum_further_than_is_paid_for(epsilon: float) -> None:
    pixels, labels = images(12, side=8)
    pixels[0], pixels[1] = 0, 255  # blank, and as bright as can be
    model = classifier(epsilon=epsilon, steps=3, insecure_seed=1)
    labels[5] = 7  # of no class
    assert_sums_are_bounded(model, ImageInputs.of_array(pixels), labels, records=(0, 1, 5, 8))


@pytest.mark.parametrize("side", [8, 13])
def test_the_features_of_an_image_are_the_same_wherever_it_is(side: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (150, side, side, 1), dtype=np.uint8)
    made = np.random.default_rng(1).random((200, 1, side, side), dtype=np.float32)
    whitening = Whitening.of(features_of(torch.from_numpy(made)), 30)
    found = whitened_views(pixels, whitening, LIGHT, 2, b"key")
    order = np.random.default_rng(2).permutation(150)
    assert torch.equal(whitened_views(pixels[order], whitening, LIGHT, 2, b"key"), found[torch.from_numpy(order)])
    for few in (1, 42):
        assert torch.equal(whitened_views(pixels[-few:], whitening, LIGHT, 2, b"key"), found[-few:])
    assert not torch.equal(found[:, 0], found[:, 1])


def test_scattering_has_the_same_bits_wherever_an_image_is() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (170, 28, 28), dtype=np.uint8)
    found = normalized_scattering(pixels)
    for first in (1, 40, 100):
        assert torch.equal(normalized_scattering(pixels[first:]), found[first:])


def test_the_sums_of_the_gradients_are_exact() -> None:
    # weights without noise are then the same to the last bit in whatever order the images come
    generator = torch.Generator().manual_seed(0)
    inputs = torch.round(torch.randn(300, 3, 40, generator=generator) * 2**12) / 2**12
    labels = torch.arange(300) % 4

    def weights(order: torch.Tensor) -> torch.Tensor:
        sums = NoisySums({"gradients": Share(6, 1.0)}, 0.0, Source())
        return fit_teacher(inputs[order], labels[order], 4, 300.0, 20.0, 6, sums)

    assert torch.equal(weights(torch.arange(300)), weights(torch.randperm(300, generator=generator)))


def test_the_views_of_an_image_follow_from_its_pixels_and_the_key() -> None:
    pixels = images(6)[0][..., None]
    numbers = numbers_of(pixels, 3, b"one")
    assert np.array_equal(numbers_of(pixels[::-1], 3, b"one"), numbers[::-1])
    assert np.unique(numbers).size == numbers.size
    assert not np.array_equal(numbers_of(pixels, 3, b"two"), numbers)
    still = torch.rand(2, 1, 12, 12)
    torch.testing.assert_close(Views().by(still, torch.randn(2, numbers.shape[2])), still, atol=1e-4, rtol=0)


# --- fitting ---


def test_it_learns_what_is_plain_to_see() -> None:
    pixels, labels = images(300)
    model = classifier(insecure_seed=1).fit(pixels[:200], labels[:200])
    assert model.score(pixels[200:], labels[200:]) > 0.9
    assert model.spent_.epsilon <= 8.0
    assert model.events_ == classifier().events_of(*images(5))
    assert model.to_dict()["sampling"] == {"kind": "full", "rate": 1.0, "steps": 8 + 9}
    without = classifier(epsilon=math.inf).fit(pixels[:200], labels[:200])
    assert without.score(pixels[200:], labels[200:]) == 1.0
    assert without.events_ == ()


def test_seeds_make_it_reproducible_and_one_seed_does_not() -> None:
    pixels, labels = images(60)
    one, two, three = (
        classifier(insecure_seed=insecure, delta=1e-3).fit(pixels, labels).coef_ for insecure in (1, 1, None)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, three)
    one, two = (classifier(epsilon=math.inf).fit(pixels, labels).coef_ for _ in range(2))
    assert np.array_equal(one, two)


def test_grey_values_may_be_bytes_whole_numbers_or_shares() -> None:
    pixels, labels = images(60)
    model = classifier().fit(pixels, labels)
    expected = model.predict_proba(pixels)
    holed = (pixels / 255).astype(np.float32)
    for same in (pixels.astype(np.int64), holed, pixels[:, None], torch.from_numpy(pixels)):
        assert np.array_equal(model.predict_proba(same), expected)
    holed[0, 0, 0], pixels[0, 0, 0] = np.nan, 0
    assert np.array_equal(model.predict_proba(holed), model.predict_proba(pixels))


def test_progress_goes_from_0_to_1() -> None:
    shares: list[float] = []
    classifier().fit(*images(40), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert shares[-1] == pytest.approx(1.0)


def test_images_of_no_class_alone_are_learned_from_like_none() -> None:
    # whether any image has a known class is private, so this must not fail
    pixels, _ = images(30)
    model = classifier(delta=1e-5).fit(pixels, np.full(30, 9))
    assert np.isfinite(model.predict_proba(pixels)).all()


def test_a_noisy_number_of_images_is_compared_with_delta_and_a_declared_one_before() -> None:
    with pytest.raises(sf.errors.OptionError, match="delta must be below 1 / 50,000"):
        classifier(rows=50_000).fit(*images(20))
    with pytest.raises(sf.errors.OptionError, match=r"delta must be below 1 / .*; epsilon 8 was spent"):
        classifier(delta=0.05, insecure_seed=1).fit(*images(200))


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (np.zeros((4, 3, 12, 12)), {}, "must be grey, got 3 channels"),
        (np.zeros((4, 4, 12)), {}, "must have more than 4 pixels a side, got 4 x 12"),
        (np.zeros((4, 12)), {}, "images must be numbers of shape"),
        (np.zeros((4, 12, 12)), {"views": 0}, "the number of views must be"),
        (np.zeros((4, 12, 12)), {"steps": 2.5}, "the number of steps must be"),
        (np.zeros((4, 12, 12)), {"rows": 0}, "the number of rows must be"),
        (np.zeros((4, 12, 12)), {"device": "abacus"}, "there is no device 'abacus'"),
        (np.zeros((5, 12, 12)), {}, "X and y must have the same number of records, got 5 and 4"),
    ],
)
def test_what_cannot_be_learned_is_refused_before_anything_is_charged(
    given: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    table = sf.Table(pl.DataFrame({"image": [1]}))
    ledger = Ledger.grant(table, epsilon=20.0, delta=1e-3, path=tmp_path / "ledger")
    with pytest.raises(sf.SfumatoError, match=message):
        classifier(ledger=ledger, **options).fit(given, [0, 1, 0, 1])
    assert [entry["kind"] for entry in ledger.history()] == ["made", "grant"]


# --- an interrupted fit ---


def charges(ledger: Ledger) -> int:
    return sum(entry["kind"] == "charge" for entry in ledger.history())


def stop(share: float) -> None:
    if share > 0.5:
        raise KeyboardInterrupt


@pytest.mark.parametrize("classes", [(0, 1), None], ids=["declared", "bought"])
def test_an_interrupted_fit_starts_again_without_another_charge(classes: Any, tmp_path: Path) -> None:
    ledger = Ledger.grant(sf.Table(pl.DataFrame({"image": [1]})), epsilon=8.0, delta=1e-3, path=tmp_path / "ledger")
    options: dict[str, Any] = {"ledger": ledger, "checkpoint": tmp_path / "check", "classes": classes, "epsilon": 8.0}
    pixels, labels = images(200)
    with pytest.raises(KeyboardInterrupt):
        classifier(**options).fit(pixels, labels, progress=stop)
    charged = charges(ledger)
    assert charged == (1 if classes else 2)
    with pytest.raises(sf.errors.FileError, match="is of a training on other records"):
        classifier(**options).fit(pixels[1:], labels[1:])
    model = classifier(**options).fit(pixels, labels)
    assert model.spent_.epsilon <= 8.0
    assert charges(ledger) == charged
    assert not (tmp_path / "check").exists()
    with pytest.raises(sf.errors.BudgetError):  # the charge paid for one model
        classifier(**options).fit(pixels, labels)


def test_a_fit_that_ends_with_an_error_has_used_its_charge(tmp_path: Path) -> None:
    ledger = Ledger.grant(sf.Table(pl.DataFrame({"image": [1]})), epsilon=16.0, delta=0.2, path=tmp_path / "ledger")
    model = classifier(delta=0.05, insecure_seed=1, ledger=ledger, checkpoint=tmp_path / "check")
    for tries in (1, 2):
        with pytest.raises(sf.errors.OptionError, match="delta must be below"):  # it names a noisy number
            model.fit(*images(200))
        assert charges(ledger) == tries
        assert not (tmp_path / "check").exists()


# --- storing ---


def test_a_stored_model_predicts_the_same_and_one_with_other_weights_is_refused(tmp_path: Path) -> None:
    pixels, labels = images(60)
    model = classifier().fit(pixels, labels)
    write_model(model, tmp_path)
    again: Any = load_model(tmp_path)
    assert np.array_equal(again.predict_proba(pixels), model.predict_proba(pixels))
    assert again.events_ == model.events_
    with pytest.raises(sf.errors.InputError, match="expecting images of shape 1 x 12 x 12"):
        again.predict(np.zeros((2, 9, 9)))
    arrays, facts = model.state()
    for wrong in ({"inputs": [1, 16, 16]}, {"inputs": [3, 12, 12]}, {"classes": [0, 1, 2]}):
        with pytest.raises(sf.SfumatoError, match="do not fit"):
            PrivateScatteringClassifier().restore(arrays, {**facts, **wrong})


# --- as a command ---

QUICK: dict[str, Any] = {"steps": 4, "views": 1, "whitening": 30, "draws": 60, "delta": 1e-3}
FEW = Split(samples=150, test_samples=40)


def test_a_sweep_of_it_is_saved_verified_and_trained_again_by_its_recipe(tmp_path: Path) -> None:
    shares: list[float] = []
    training = sf.train("mnist", epsilon="4,none", split=FEW, progress=shares.append, **QUICK)
    assert training.model == "scattering-linear"
    assert [run.facts["private"] for run in training.runs] == [True, False]
    assert len(shares) > 10
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    sf.save(training, tmp_path / "out")
    assert sf.verify(tmp_path / "out" / "epsilon-4").ok
    again = Recipe.load(tmp_path / "out" / "epsilon-4" / "recipe.toml").run()
    assert [run.name for run in again.runs] == ["epsilon-4"]
    assert again.settings == training.settings


def test_the_network_of_the_same_name_is_still_trained_and_verified(tmp_path: Path) -> None:
    training = sf.train("mnist", "scattering-linear", epsilon=4, delta=1e-3, split=FEW, views=0, epochs=5)
    sf.save(training, tmp_path / "out")
    assert sf.verify(tmp_path / "out").ok
    assert type(load_model(tmp_path / "out")).__name__ == "PrivateClassifier"


@pytest.mark.parametrize("options", [{"epochs": 5}, {"privacy": Privacy(noise_multiplier=1.0)}], ids=str)
def test_options_of_networks_are_refused_with_the_way_to_the_network(options: dict[str, Any]) -> None:
    with pytest.raises(sf.errors.OptionError, match="or train it as a network with --views 0"):
        sf.train("mnist", "scattering-linear", split=FEW, **options)


def test_it_is_attacked_like_any_model_and_an_audit_checks_its_sums() -> None:
    pixels, labels = images(40)
    model = classifier(steps=2, views=1).fit(pixels, labels)
    assert trees_of(model) is None  # it has steps, and is not a pipeline
    members, others = Records(pixels[:20], labels[:20]), Records(pixels[20:], labels[20:])
    found = LossThreshold().run(ModelTarget(model), members, others, 0)
    assert np.isfinite(found.members).all()
    assert [check.held for check in mechanism_checks(model)] == [True, True, True]


def test_scikit_learn_clones_it_and_validates_it() -> None:
    pixels, labels = images(60)
    model = classifier(steps=3, views=1, epsilon=math.inf)
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, pixels, labels, cv=2).shape == (2,)
    tags = get_tags(model)
    assert (tags.input_tags.two_d_array, tags.input_tags.three_d_array, tags.non_deterministic) == (False, True, False)
