"""How long and how far a linear model on all images is trained follows from epsilon and their number alone."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.budget import Gaussian, Repeated, spent
from sfumato.learners import PrivateClassifier, Split
from sfumato.learners.networks.scattering import learning_rate_of, signal_of, signal_of_noise, steps_of

PACED: dict[str, Any] = {
    "model": "scattering-linear",
    "batch_size": None,
    "clip": 0.1,
    "schedule": "constant",
    "epochs": None,
    "learning_rate": None,
    "classes": (0, 1),
}


def images(count: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    labels = np.arange(count) % 2
    pixels = generator.integers(0, 60, (count, 8, 8))
    pixels[labels == 1, :, 4:] += 150
    return pixels.astype(np.uint8), labels


def test_the_signal_is_the_number_of_records_over_the_noise_of_one_step() -> None:
    for epsilon in (0.1, 0.79, 3.0):
        noise = 10_000 / signal_of(10_000, epsilon, 1e-5)
        assert 0.99 * epsilon < spent(Gaussian(noise), 1e-5).epsilon <= epsilon
        # and T steps with sqrt(T) times that noise cost the same: no sampling, no amplification
        assert spent(Repeated(Gaussian(noise * 10), 100), 1e-5).epsilon == pytest.approx(
            spent(Gaussian(noise), 1e-5).epsilon, rel=1e-9
        )


def test_more_epsilon_or_more_records_never_make_fewer_steps_or_a_shorter_way() -> None:
    signals = [signal_of(rows, epsilon, 1e-6) for rows in (500, 60_000) for epsilon in (0.01, 0.5, 1, 3, 9)]
    for one, two in pairwise(sorted({*signals, 1.0, 1e9})):
        assert steps_of(one) <= steps_of(two)
        way = [learning_rate_of(each, steps=100, inputs=50) for each in (one, two)]
        assert way[0] <= way[1]
    assert steps_of(signal_of(10**9, math.inf, 1e-6)) == steps_of(1e12)


def test_half_the_clip_or_half_the_steps_are_twice_the_rate() -> None:
    asked: dict[str, Any] = {"steps": 100, "inputs": 3969, "clip": 0.1, "momentum": 0.9}
    rate = learning_rate_of(5000, **asked)
    assert learning_rate_of(5000, **{**asked, "clip": 0.05}) == pytest.approx(2 * rate)
    assert learning_rate_of(5000, **{**asked, "steps": 50}) == pytest.approx(2 * rate)
    assert learning_rate_of(5000, **{**asked, "momentum": 0.0}) == pytest.approx(10 * rate)


def test_a_given_noise_makes_the_signal_of_the_steps_that_follow_from_it() -> None:
    for noise in (50.0, 500.0, 50_000.0):
        signal = signal_of_noise(10_000, noise)
        assert signal == pytest.approx(10_000 * math.sqrt(steps_of(signal)) / noise, rel=0.05)


def test_steps_and_rate_follow_from_the_declared_number_and_not_from_the_images() -> None:
    told = {"epsilon": 4.0, "delta": 1e-4, "rows": 400}
    models = [PrivateClassifier(**PACED, **told).fit(*images(count)) for count in (400, 300)]
    one, two = (model.to_dict() for model in models)
    assert one["sampling"] == two["sampling"]
    assert one["sampling"]["kind"] == "full"
    assert one["sampling"]["steps"] == steps_of(signal_of(400, 4.0, 1e-4))
    assert one["rule"] == two["rule"]
    assert models[0].events_ == models[1].events_ == models[0].events_of(*images(5))
    assert models[0].spent_.epsilon <= 4.0


def test_a_number_of_images_that_is_bought_decides_too() -> None:
    model = PrivateClassifier(**PACED, epsilon=8.0, delta=1e-4).fit(*images(400))
    rows = model.sampling_["rows"]
    assert model.sampling_["steps"] == steps_of(signal_of(rows, 0.98 * 8.0, 1e-4))
    assert model.spent_.epsilon <= 8.0
    with pytest.raises(sf.errors.OptionError, match="depends on the number of rows"):
        model.events_of(*images(5))


def test_a_batch_makes_as_many_steps() -> None:
    told: dict[str, Any] = {**PACED, "epsilon": 4.0, "delta": 1e-4, "rows": 400}
    whole, part = (PrivateClassifier(**{**told, "batch_size": size}).fit(*images(400)) for size in (None, 100))
    assert whole.sampling_["steps"] == part.sampling_["steps"]
    assert part.sampling_["kind"] == "poisson"
    assert part.rule_ == whole.rule_


@pytest.mark.parametrize("other", [{"model": "logistic"}, {"optimizer": "adam"}], ids=str)
def test_other_models_need_their_epochs_and_their_rate(other: dict[str, Any]) -> None:
    for missing in ({"epochs": 5}, {"learning_rate": 0.1}):
        with pytest.raises(sf.errors.OptionError, match="chosen automatically only for 'scattering-linear' with sgd"):
            PrivateClassifier(**{**PACED, **other, **missing}, epsilon=1.0).fit(*images(50))


def test_without_a_model_the_best_we_know_is_trained() -> None:
    few = Split(samples=300, test_samples=50)
    quick = {"steps": 5, "views": 1, "whitening": 50, "draws": 100}
    digits = sf.train("mnist", epsilon=8, split=few, delta=1e-3, **quick)
    assert digits.model == "scattering-linear"
    assert type(digits.models["epsilon-8"]).__name__ == "PrivateScatteringClassifier"
    assert digits.runs[0].facts["sampling"] == {"kind": "full", "rate": 1.0, "steps": 5 + 9}
    network = sf.train("mnist", epsilon=8, split=few, delta=1e-3, views=0)
    assert network.models["epsilon-8"].model == "scattering-linear"
    assert network.runs[0].facts["clip"] == 0.1
    assert network.settings["views"] == 0
    people = sf.train("nursery", split=few, delta=1e-3)
    assert people.model == "additive"
