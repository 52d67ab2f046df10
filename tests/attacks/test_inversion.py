"""Model inversion, against its steps written out and on networks that are made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sfumato.attacks import Inversion, ModelInversion, ModelTarget, Records, attacks_of, invert, run_attacks
from sfumato.errors import InputError, OptionError
from sfumato.learners import PrivateClassifier
from sfumato.report.attacks.page import render_attacks


def linear(weights: NDArray[np.float64]) -> torch.nn.Module:
    """Return a network whose scores are the products of an image with the weights."""
    layer = torch.nn.Linear(weights.shape[1], len(weights), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights))
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


def test_each_step_of_mi_face_climbs_the_probability_of_the_class() -> None:
    weights = np.random.default_rng(0).normal(size=(3, 8))
    images = np.zeros((3, 8))
    for _ in range(5):
        for own in range(3):
            scores = np.exp(weights @ images[own])
            p = scores / scores.sum()
            images[own] = np.clip(images[own] + 0.5 * p[own] * (weights[own] - p @ weights), 0, 1)
    found = invert(
        linear(weights), shape=(1, 2, 4), method="mi-face", steps=5, learning_rate=0.5, enough=1.0, patience=100
    )
    assert found.representatives.reshape(3, 8) == pytest.approx(images, abs=1e-5)
    after = np.exp(weights @ images.T)
    assert found.confidence == pytest.approx(np.diag(after / after.sum(axis=0)), abs=1e-5)


def test_mi_face_stops_when_it_is_sure_enough() -> None:
    network = linear(np.array([[4.0] * 4, [-4.0] * 4]))
    few, many = (
        invert(network, shape=(1, 2, 2), method="mi-face", steps=steps, learning_rate=0.01, enough=0.9)
        for steps in (200, 400)
    )
    assert 0.9 <= few.confidence[0] < 0.95
    assert np.array_equal(few.representatives, many.representatives)


def test_mi_face_stops_when_it_makes_no_progress() -> None:
    network = linear(np.zeros((2, 4)))  # which says one half whatever it sees
    found = invert(network, shape=(1, 2, 2), method="mi-face", steps=1_000_000, patience=3)
    assert found.confidence.tolist() == [0.5, 0.5]
    assert not found.representatives.any()


def test_smoothing_makes_neighbouring_pixels_alike() -> None:
    network = linear(np.random.default_rng(1).normal(size=(2, 64)))

    def roughness(smooth: float) -> float:
        images = invert(network, shape=(1, 8, 8), smooth=smooth, steps=100).representatives
        return float(np.abs(np.diff(images, axis=-1)).mean() + np.abs(np.diff(images, axis=-2)).mean())

    assert roughness(30.0) < roughness(0.0) / 3


def test_the_network_is_as_it_was_before() -> None:
    network = torch.nn.Sequential(linear(np.ones((2, 4))), torch.nn.Dropout(0.5))
    network[0].eval()
    network[0][1].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first, again = (invert(network, shape=(1, 2, 2), steps=5) for _ in range(2))
    assert np.array_equal(first.representatives, again.representatives)  # dropout is off, and the seed is the same
    assert (network.training, network[0].training, network[1].training) == (True, False, True)
    assert not network[0][1].weight.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_images_are_laid_out_row_by_row() -> None:
    grey = np.arange(3).reshape(3, 1, 1, 1) / 2 * np.ones((1, 1, 2, 2))
    found = Inversion(np.array(["a", "b", "c"]), grey, np.ones(3), "adam")
    assert found.images.dtype == np.uint8
    assert found.grid().tolist() == [[0, 0, 128, 128, 255, 255]] * 2
    assert found.grid(2).tolist() == [[0, 0, 128, 128]] * 2 + [[255, 255, 0, 0]] * 2
    colours = Inversion(np.arange(2), np.zeros((2, 3, 4, 5)), np.ones(2), "adam")
    assert (colours.images.shape, colours.grid().shape) == ((2, 4, 5, 3), (4, 10, 3))
    assert "0." not in repr(found)


def test_the_similarity_is_the_correlation_with_the_image_of_the_class() -> None:
    rng = np.random.default_rng(0)
    shown = rng.random((2, 1, 3, 3))
    found = Inversion(np.array(["a", "b"]), shown, np.ones(2), "adam")
    rows, labels = rng.integers(0, 255, (6, 3, 3)).astype(np.uint8), np.array(["a", "b", "b", "a", "b", "a"])
    people = Records(rows, labels)
    wanted = [
        np.corrcoef(row.ravel(), shown["ab".index(label)].ravel())[0, 1]
        for row, label in zip(rows, labels.tolist(), strict=True)
    ]
    assert found.similarity(people) == pytest.approx(wanted)
    means = [
        np.corrcoef(rows[labels == name].mean(axis=0).ravel(), shown["ab".index(name)].ravel())[0, 1] for name in "ab"
    ]
    assert found.likeness(people) == pytest.approx(np.mean(means))
    assert found.similarity(Records(np.ones((1, 3, 3)), np.array(["a"]))).tolist() == [0.0]  # a blank image


def faces(template: NDArray[np.float64], size: int, seed: int) -> Records:
    """Return noisy images of two people, whose faces are given."""
    rng = np.random.default_rng(seed)
    labels = np.arange(size) % 2
    return Records(np.clip(template[labels] + rng.normal(0, 0.1, (size, 6, 6)), 0, 1).astype(np.float32), labels)


def test_a_network_that_has_seen_one_face_per_class_gives_it_away() -> None:
    rng = np.random.default_rng(0)
    members, others = (faces(rng.random((2, 6, 6)).round(), 80, seed) for seed in (1, 2))
    model = PrivateClassifier(
        model="logistic",
        classes=range(2),
        epsilon=math.inf,
        epochs=20,
        batch_size=20,
        learning_rate=0.5,
        rows=80,
        seed=0,
    ).fit(members.rows, members.labels)
    report = run_attacks(attacks_of(["inversion"]), ModelTarget(model), members, others)
    result = report.results[0]
    assert result.auc == 1.0
    assert result.leaks
    assert result.scores.details["likeness"]["members"] > 0.5
    assert result.scores.details["likeness"]["nonmembers"] < 0.4
    assert result.to_dict()["details"]["method"] == "mi-face"
    assert result.scores.picture is not None
    assert result.scores.picture.shape == (6, 12)
    assert [half.max() for half in np.split(result.scores.picture, 2, axis=1)] == [255, 255]
    page = render_attacks(report)
    assert page.count("data:image/png;base64,") == 1
    assert "img-src data:" in page
    normalised = PrivateClassifier(
        model="logistic", classes=range(2), epsilon=math.inf, epochs=2, rows=80, seed=0, scale=(0.5, 0.5)
    ).fit(members.rows, members.labels)
    shown = invert(normalised, steps=3)
    again = normalised.predict_proba(shown.representatives.astype(np.float32))  # which normalises by itself
    assert np.diag(again) == pytest.approx(shown.confidence, abs=1e-6)


def test_what_cannot_be_inverted_is_said() -> None:
    network = linear(np.ones((2, 4)))
    with pytest.raises(OptionError, match="needs the shape of an image"):
        invert(network)
    with pytest.raises(OptionError, match="one of adam, mi-face"):
        invert(network, shape=(1, 2, 2), method="gan")
    with pytest.raises(InputError, match="not of dict"):
        invert({})
    with pytest.raises(InputError, match="2 outputs, and 3 classes"):
        invert(network, shape=(1, 2, 2), classes="abc", steps=1)
    people = Records(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    tree = type("Tree", (), {"classes_": [0, 1]})()
    assert ModelInversion().obstacle(ModelTarget(tree), people, people) == (
        "it needs a network of images, whose gradients it follows"
    )
    found = invert(network, shape=(1, 2, 2), steps=1)
    with pytest.raises(InputError, match="have no labels"):
        found.similarity(Records(np.zeros((4, 2, 2))))
    with pytest.raises(InputError, match="9 numbers, not 4"):
        found.similarity(Records(np.zeros((4, 3, 3)), np.zeros(4, dtype=int)))
