"""An evaluation of images holds what its parts measure, finds copies, and never shows an image in a text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm

import sfumato as sf
from sfumato.errors import InputError, OptionError
from sfumato.frontier import ImageEvaluation, evaluate_images
from sfumato.frontier.images.copies import copies_of, nearest
from sfumato.measures.loss.frechet import frechet_distance

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def bars(count: int, seed: int, size: int = 16, channels: int = 1) -> Arrays:
    """Return noisy images of a lying bar (class 0), a standing bar (1) and nothing (2)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    images = rng.integers(0, 60, (count, size, size, channels))
    for image, label, place in zip(images, labels, rng.integers(2, size - 3, count), strict=True):
        if label < 2:
            image[(slice(place, place + 2), slice(2, -2))[:: 1 if label == 0 else -1]] += 150
    return (images[..., 0] if channels == 1 else images).astype(np.uint8), labels


@pytest.fixture(scope="module")
def found() -> ImageEvaluation:
    real, other = bars(300, 0), bars(260, 1)
    swapped = other[0], np.array([1, 0, 2])[other[1]]
    return evaluate_images(real, {"right": other, "swapped": swapped}, test=bars(200, 2), seen=7000)


def test_models_learn_from_synthetic_images_what_these_show(found: ImageEvaluation) -> None:
    right, swapped = found.sets
    assert [one.model for one in found.real] == ["cnn", "scattering-linear"]
    assert min(one.accuracy for one in (*found.real, *right.scores)) > 0.9
    for score in swapped.scores:  # only the third class is labelled as it is
        nothing = score.confusion[2][2]
        assert score.accuracy == pytest.approx(nothing / 200, abs=0.1)
    for score in (*found.real, *right.scores, *swapped.scores):
        counts = np.array(score.confusion)
        assert counts.sum() == score.tested == 200
        assert counts.sum(axis=1).tolist() == np.bincount(bars(200, 2)[1], minlength=3).tolist()
        assert score.accuracy == np.trace(counts) / 200
        assert score.by_class == pytest.approx(tuple(np.diag(counts) / counts.sum(axis=1)))
        assert score.interval[0] < score.accuracy < score.interval[1] or score.accuracy in (0.0, 1.0)
    assert right.agreement is not None
    assert swapped.agreement is not None
    assert right.agreement > 0.9
    assert swapped.agreement == pytest.approx((bars(260, 1)[1] == 2).mean(), abs=0.1)
    assert (found.accuracy, found.real_accuracy) == (right.scores[0].accuracy, found.real[0].accuracy)


def test_the_distance_is_that_of_other_real_images_if_the_images_are_real(found: ImageEvaluation) -> None:
    right, swapped = found.sets
    assert found.test_distance is not None
    assert max(right.distance, swapped.distance, found.test_distance) < 0.1
    assert right.distance_by_class[0] is not None
    assert swapped.distance_by_class[0] is not None
    assert swapped.distance_by_class[0] > 5 * right.distance_by_class[0]  # a class without its images
    dark = np.zeros_like(bars(260, 1)[0])
    made = evaluate_images(bars(300, 0), (dark, bars(260, 1)[1]), test=bars(200, 2), models=[])
    assert made.sets[0].distance > 0.9
    assert made.skipped == {"models": "none is asked for"}


def test_copies_are_found_and_new_images_are_not_taken_for_copies(found: ImageEvaluation) -> None:
    right = found.sets[0].copies
    assert right is not None
    assert (right.identical, right.leaks, found.leaks) == (0, False, False)
    assert (right.images, right.held_out, right.training) == (260, 200, 300)
    assert right.ratio == pytest.approx(1, abs=0.1)
    real = bars(300, 0)
    copied = evaluate_images(real, (real[0][:100], real[1][:100]), test=bars(200, 2), models=[])
    (made,) = copied.sets
    assert made.copies is not None
    assert (made.copies.identical, made.copies.leaks, copied.leaks) == (100, True, True)
    assert (made.copies.ratio, made.copies.closer) == (0.0, 1.0)
    nearby = np.clip(real[0].astype(int) + 3, 0, 255).astype(np.uint8)  # brighter copies
    again = evaluate_images(real, (nearby, real[1]), test=bars(200, 2), models=[])
    assert again.leaks


def test_chance_explains_images_near_a_few_real_ones() -> None:
    """Synthetic images around a few points land in training or held-out cells together, not one by one.

    The band is three deviations wide, and the share is not far from normal: 300 trials should leave it about once.
    """
    rng, outside = np.random.default_rng(0), 0
    for _ in range(300):
        real, held = (rng.integers(0, 256, (40, 2, 2, 1), dtype=np.uint8) for _ in range(2))
        centres = rng.integers(0, 256, (6, 2, 2, 1))
        made = np.clip(centres[rng.integers(0, 6, 200)] + rng.normal(0, 4, (200, 2, 2, 1)), 0, 255).astype(np.uint8)
        found, _, _ = copies_of(real, made, held, rng)
        outside += not found.chance[0] <= found.nearer_to_training <= found.chance[1]
        assert found.chance[1] - 0.5 > 3 / 2 * np.sqrt(1 / 200)  # wider than for 200 independent images
    assert outside <= 3


def test_test_images_of_another_kind_are_no_copies() -> None:
    """Brighter test images are far from everything else, so nearly all images are nearer to training images."""
    other = bars(200, 2)[0].astype(int) + 25
    test = other.astype(np.uint8), bars(200, 2)[1]
    (made,) = evaluate_images(bars(300, 0), bars(260, 1), test=test, models=[]).sets
    assert made.copies is not None
    assert made.copies.nearer_to_training > 0.8
    assert made.copies.others_nearer > 0.8
    assert not made.copies.leaks


def test_the_nearest_image_is_that_of_a_plain_search() -> None:
    rng = np.random.default_rng(3)
    images, among = (rng.integers(0, 256, (count, 3, 4, 3), dtype=np.uint8) for count in (700, 90))
    among[7] = images[650]
    found = nearest(images, among)
    apart = np.sqrt(np.square(images[:, None].astype(float) - among.astype(float)).mean(axis=(2, 3, 4))) / 255
    assert found.places.tolist() == apart.argmin(axis=1).tolist()
    assert found.distances == pytest.approx(apart.min(axis=1), abs=1e-12)
    assert (found.places[650], found.distances[650]) == (7, 0.0)


def test_the_frechet_distance_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6))
    second = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6)) + 1
    ours, theirs = np.cov(first.T), np.cov(second.T)
    expected = np.square(first.mean(0) - second.mean(0)).sum() + np.trace(ours + theirs - 2 * sqrtm(ours @ theirs).real)
    assert frechet_distance(first, second) == pytest.approx(expected)
    assert frechet_distance(second, first) == pytest.approx(expected)
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-9)
    flat = np.zeros((5, 6))
    assert frechet_distance(first, flat + first.mean(0)) == pytest.approx(np.trace(ours))
    with pytest.raises(InputError, match="the same features, got 6 and 5"):
        frechet_distance(first, second[:, :5])
    with pytest.raises(InputError, match="two rows of finite features"):
        frechet_distance(first, second[:1])


def test_it_is_plain_json_without_an_image(found: ImageEvaluation) -> None:
    plain = json.loads(found.to_json())
    assert plain == json.loads(json.dumps(found.to_dict()))
    assert plain["note"].startswith("figures of real images without noise")
    assert [one["name"] for one in plain["sets"]] == ["right", "swapped"]
    assert plain["sets"][0]["copies"]["leaks"] is False
    assert (plain["size"], plain["classes"], plain["images"]) == ([16, 16, 1], 3, {"real": 300, "test": 200})
    for text in (repr(found), repr(found.sets[0]), repr(found.samples)):
        assert len(text) < 200
        assert "array" not in text
    frame = found.to_frame()
    assert frame["set"].to_list() == ["real images"] * 2 + ["right"] * 2 + ["swapped"] * 2
    assert frame["accuracy"][2] == found.accuracy


def test_images_on_the_page_are_those_of_the_sets(found: ImageEvaluation) -> None:
    real, labels = bars(300, 0)
    for label, some in enumerate(found.samples.by_class):
        known = {one.tobytes() for one in real[labels == label]}
        assert len(some) == min(24, (labels == label).sum())
        assert all(one.tobytes() in known for one in some)
    pairs = found.sets[0].samples.nearest
    assert pairs is not None
    made, nearest_real, distances = pairs
    assert distances.tolist() == sorted(distances.tolist())
    assert nearest(made, real[..., None]).distances == pytest.approx(distances)
    assert {one.tobytes() for one in nearest_real} <= {one.tobytes() for one in real}


def test_without_test_images_only_the_distance_is_measured() -> None:
    found = evaluate_images(bars(60, 0, 8, 3), bars(60, 1, 8, 3))
    assert (found.real, found.leaks, found.test_distance) == ((), None, None)
    assert found.skipped.keys() == {"models", "copies"}
    assert found.canvas.shape == (8, 8, 3)
    assert found.to_frame().shape == (1, 10)
    assert found.sets[0].samples.nearest is not None
    with pytest.raises(InputError, match="a set of images needs at least 2, but the real images are 1"):
        evaluate_images(bars(1, 0), bars(60, 1))


def test_evaluate_takes_images() -> None:
    images, labels = bars(80, 0, 8)
    test = bars(50, 2, 8)
    data = sf.datasets.Images.of(images, labels, *test, classes=3)
    made = sf.evaluate(data, bars(80, 1, 8), models=[], seed=3)
    assert isinstance(made, ImageEvaluation)
    assert (made.images["test"], made.seed, made.skipped) == (50, 3, {"models": "none is asked for"})
    same = evaluate_images((images, labels), bars(80, 1, 8), test=test, models=[], seed=3)
    assert same.to_dict() == made.to_dict()


def test_options_and_sizes_that_do_not_fit_are_refused() -> None:
    real = bars(40, 0, 8)
    with pytest.raises(OptionError, match="the option 'target' is for tables, not for images"):
        sf.evaluate(real, real, target="income")
    with pytest.raises(InputError, match="the real images have the size 8 x 8 x 1, but the set 'large' 16 x 16 x 1"):
        evaluate_images(real, {"large": bars(40, 0, 16)})
    with pytest.raises(InputError, match="size 8 x 8 x 1, but the test images 8 x 8 x 3"):
        evaluate_images(real, real, test=bars(40, 0, 8, 3))
    with pytest.raises(OptionError, match="no model 'forest' for such images"):
        sf.evaluate(real, real, models=["forest"])
    with pytest.raises(OptionError, match="no set of synthetic images"):
        evaluate_images(real, {})
    with pytest.raises(OptionError, match="got DataFrame"):
        evaluate_images(real, sf.datasets.adult("test").frame.head(3))
