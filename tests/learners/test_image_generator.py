"""What is learned from images by noisy sums: every sum is exact, bounded by its norm, and the classes are recovered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

from sfumato.budget import Source
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.frequencies import Frequencies
from sfumato.learners.images.generator import ImageMixtures, generator_shares, learn_generator
from sfumato.learners.images.mixtures import find_gaussians
from sfumato.learners.images.spectrum import Radius, find_middle, find_radius, find_spread, points_of, shrink
from sfumato.learners.images.tones import ToneCurve, find_tones
from tests.learners.sensitivity import Recording

CLASSES = 3


def pictures(count: int, *, channels: int = 1, seed: int = 0) -> tuple[Any, Any]:
    """Return images of bars: the class says where the bar is."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    images = rng.integers(0, 40, (count, 10, 12, channels), dtype=np.uint8)
    for one in range(count):
        images[one, 3 * labels[one] : 3 * labels[one] + 3] += np.uint8(180 + rng.integers(0, 30))
    return images, labels


def learn(images: Any, labels: Any, sums: NoisySums) -> ImageMixtures:
    return learn_generator(images, labels, CLASSES, sums, np.random.default_rng(1), directions=12)


@pytest.mark.parametrize("channels", [1, 3])
def test_low_frequencies_are_those_of_the_cosine_transform(channels: int) -> None:
    images, _ = pictures(5, channels=channels)
    low = Frequencies(10, 12, channels, side=8)
    whole = scipy.fft.dctn(images / 255, axes=(1, 2), norm="ortho")[:, :8, :8]
    assert np.abs(low.transform(images) - whole.reshape(5, -1)).max() < 1e-3
    padded = np.zeros((5, 10, 12, channels))
    padded[:, :8, :8] = whole
    smooth = scipy.fft.idctn(padded, axes=(1, 2), norm="ortho")
    assert np.abs(low.inverse(whole.reshape(5, -1)) - smooth).max() < 1e-12


@pytest.mark.parametrize("channels", [1, 3])
def test_one_image_moves_every_sum_by_at_most_its_norm(channels: int) -> None:
    images, labels = pictures(60, channels=channels)
    images[7], images[8] = 0, 255  # a black and a white one
    sums = Recording(NoisySums(generator_shares(1.0), 1.0, Source(insecure_seed=1)))
    learn(images, labels, sums)
    assert [one.name for one in sums.asked] == [
        "norms",
        "tones",
        "middle",
        "spread",
        "basis",
        "moments",
        *["centres"] * 3,
    ]
    for record in (0, 7, 8, 59):
        fewer = Recording(sums, sums.asked)
        learn(np.delete(images, record, 0), np.delete(labels, record), fewer)
        for whole, part in zip(sums.asked, fewer.asked, strict=True):
            assert whole.norm == part.norm
            assert np.linalg.norm(whole.exact - part.exact) <= whole.norm * (1 + 1e-9)


def test_the_order_of_images_changes_no_bit_of_any_sum() -> None:
    images, labels = pictures(301)
    order = np.random.default_rng(2).permutation(301)
    sums = Recording(NoisySums(generator_shares(1.0), 1.0, Source(insecure_seed=1)))
    learn(images, labels, sums)
    other = Recording(sums, sums.asked)
    learn(images[order], labels[order], other)
    for one, two in zip(sums.asked, other.asked, strict=True):
        assert (one.exact == two.exact).all()


def test_without_noise_the_classes_and_their_sizes_come_back() -> None:
    images, labels = pictures(600)
    found = learn(images, labels, NoisySums(generator_shares(1.0), 0.0, Source()))
    assert [one.size for one in found.mixtures] == pytest.approx(np.bincount(labels).tolist())
    assert found.count == 600
    drawn, classes = found.draw(300, np.random.default_rng(1))
    assert drawn.shape == (300, 10, 12, 1)
    assert 0 <= drawn.min() <= drawn.max() <= 1
    bars = np.stack([drawn[:, 3 * one : 3 * one + 3].mean(axis=(1, 2, 3)) for one in range(CLASSES)], axis=1)
    assert (bars.argmax(axis=1) == classes).mean() > 0.99


def test_a_class_without_images_is_drawn_hardly_ever_and_breaks_nothing() -> None:
    images, labels = pictures(300)
    labels[labels == 1] = 0
    found = learn(images, labels, NoisySums(generator_shares(1.0), 0.0, Source()))
    _, classes = found.draw(1000, np.random.default_rng(1))
    assert (classes == 1).sum() <= 5  # its noisy size is 1 of 301 at most


def test_the_same_seed_draws_the_same_images() -> None:
    images, labels = pictures(100)
    found = learn(images, labels, NoisySums(generator_shares(1.0), 1.0, Source(insecure_seed=3)))
    one, two = (found.draw(20, np.random.default_rng(4)) for _ in range(2))
    assert (one[0] == two[0]).all()
    assert (one[1] == two[1]).all()


def test_noise_hides_a_difference_between_classes_only_if_it_is_large() -> None:
    points = np.zeros((4000, 2))
    labels = np.repeat([0, 1], 2000)
    points[:2000, 0], points[2000:, 0] = 0.5, -0.5
    for multiplier, apart in ((1.0, 0.9), (1e6, 0.0)):
        sums = NoisySums(generator_shares(1.0), multiplier, Source(insecure_seed=1))
        found = find_gaussians(points, labels, 2, np.full(2, 0.1), sums)
        assert all(np.isfinite(one.covariance).all() for one in found)
        if apart:
            assert found[0].mean[0] - found[1].mean[0] > apart


def test_tones_are_the_shares_of_pixel_values() -> None:
    images = np.zeros((10, 4, 4, 1), np.uint8)
    images[:, :2] = 255
    found = find_tones(images, np.zeros(10, int), 1, NoisySums(generator_shares(1.0), 0.0, Source()))
    assert found[0, [0, -1]] == pytest.approx([0.5, 0.5])
    curve = ToneCurve.of(np.linspace(-3, 5, 1000), found[0])
    values = curve(np.linspace(-9, 9, 50))
    assert (np.diff(values) >= 0).all()
    assert 0 <= values.min() <= values.max() <= 1


def test_little_of_noise_alone_survives_the_shrinkage() -> None:
    noise = np.random.default_rng(0).standard_normal((200, 200))
    values, _ = shrink((noise + noise.T) / np.sqrt(2), 1.0)
    assert np.square(values).sum() < 0.01 * 200**2  # the squares of the noise add up to 200^2


def test_drawn_images_are_as_smooth_as_the_real_ones_in_spite_of_noise() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 1500)
    waves = rng.standard_normal((1500, 4, 4)) + 3 * np.eye(4)[labels][:, None]
    smooth = scipy.fft.idctn(np.pad(waves, ((0, 0), (0, 12), (0, 12))), axes=(1, 2), norm="ortho")
    images = np.clip(128 + 100 * smooth[..., None], 0, 255).astype(np.uint8)
    sums = NoisySums(generator_shares(1.0), 0.7, Source(insecure_seed=1))
    drawn, _ = learn_generator(images, labels, CLASSES, sums, rng).draw(300, rng)

    def rough(shown: Any) -> float:
        """Return the energy of the high frequencies of an image."""
        return float(np.square(scipy.fft.dctn(shown[..., 0], axes=(1, 2), norm="ortho")[:, 8:]).sum(axis=(1, 2)).mean())

    assert rough(images / 255) < 0.01
    assert rough(drawn) < 0.5  # all other frequencies together have 7


def test_what_all_images_have_in_common_does_not_hide_how_they_differ() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 1500)
    waves = rng.standard_normal((1500, 4, 4)) + 3 * np.eye(4)[labels][:, None]
    smooth = scipy.fft.idctn(np.pad(waves, ((0, 0), (0, 12), (0, 12))), axes=(1, 2), norm="ortho")
    images = np.clip(180 + 15 * smooth[..., None], 0, 255).astype(np.uint8)  # bright, and much alike
    sums = NoisySums(generator_shares(1.0), 1.5, Source(insecure_seed=1))
    found = learn_generator(images, labels, CLASSES, sums, rng)
    drawn, classes = found.draw(600, rng)

    def differences(shown: Any, known: Any) -> Any:
        """Return the low frequencies of the mean image of each class, less those of all."""
        low = scipy.fft.dctn(shown[..., 0], axes=(1, 2), norm="ortho")[:, :4, :4]
        means = np.stack([low[known == one].mean(axis=0) for one in range(CLASSES)])
        return (means - means.mean(axis=0)).ravel()

    real, made = differences(images / 255, labels), differences(drawn, classes)
    assert np.corrcoef(real, made)[0, 1] > 0.7  # .17 if the mean is not taken away
    assert found.radius < 0.3 * np.linalg.norm(found.middle)


def test_the_middle_and_the_spread_are_those_of_the_points() -> None:
    rows = np.random.default_rng(0).standard_normal((5000, 8)) + 5
    sums = NoisySums(generator_shares(1.0), 0.0, Source())
    whole = find_radius(rows, 100.0, sums)
    middle = find_middle(points_of(rows, whole.radius), whole.count, sums) * whole.radius
    assert middle == pytest.approx(rows.mean(axis=0), rel=0.05)  # the longest tenth of the rows is clipped
    distances = np.linalg.norm(rows - middle, axis=1)
    assert find_spread(rows - middle, whole, sums) == pytest.approx(1.3 * distances.mean(), rel=0.05)


def test_a_middle_or_spread_of_noise_alone_stays_within_the_ball() -> None:
    for seed in range(8):
        sums = NoisySums(generator_shares(1.0), 1e4, Source(insecure_seed=seed))
        assert np.linalg.norm(find_middle(np.zeros((3, 8)), 1.0, sums)) <= 1 + 1e-12
        assert 0 < find_spread(np.zeros((3, 8)), Radius(2.0, 1.0), sums) <= 2.0


@pytest.mark.parametrize("seed", range(8))
def test_images_are_drawn_even_if_noise_hides_everything(seed: int) -> None:
    images, labels = pictures(20)
    found = learn(images, labels, NoisySums(generator_shares(1.0), 50.0, Source(insecure_seed=seed)))
    drawn, _ = found.draw(10, np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    assert np.isfinite(found.basis).all()
