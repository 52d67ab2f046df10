"""The scattering transform is the published one, reads one image at a time, and learns nothing from any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.learners import normalized_scattering, scattering
from sfumato.learners.networks.scattering import channels_of


def images(count: int = 3, height: int = 28, width: int = 28, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, height, width, generator=torch.Generator().manual_seed(seed))


def pattern(side: int) -> np.ndarray:
    row, column = np.mgrid[:side, :side]
    return ((5 * row + 3 * column**2) % 7 / 7)[None]


# What Kymatio 0.3.0 returns for `pattern`. It takes 3.1415 for pi, so that its numbers are larger by 3e-5 per filter.
KYMATIO = {
    (8, 2, 2): """
        .44479 .48755 .43251 .41696 .16455 .13709 .15511 .16734 .14473 .09878 .16279 .11974
        .05804 .08877 .05058 .06916 .06645 .07587 .02217 .02563 .01378 .01529 .01434 .02056
        .01609 .01682 .01416 .01730 .01846 .02551 .01438 .02028 .02732 .02833 .02952 .03075""",
    (12, 3, 1): ".44413 .31508 .11498 .02932 .05767 .01113 .01365",
}


@pytest.mark.parametrize(("side", "scales", "angles"), KYMATIO)
def test_the_coefficients_are_those_of_kymatio(side: int, scales: int, angles: int) -> None:
    expected = np.array(KYMATIO[side, scales, angles].split(), dtype=float)
    np.testing.assert_allclose(scattering(pattern(side), scales, angles).flatten(), expected, atol=3e-5)


@pytest.mark.parametrize(("scales", "angles", "channels"), [(1, 8, 9), (2, 8, 81), (2, 5, 36), (3, 4, 61)])
def test_there_is_a_channel_for_every_path_of_growing_scales(scales: int, angles: int, channels: int) -> None:
    assert channels_of(scales, angles) == channels
    found = scattering(images(2, 30, 41), scales, angles)
    assert found.shape == (2, channels, 30 // 2**scales, 41 // 2**scales)
    assert found.dtype == torch.float32
    assert (found[:, 1:] > 0).all()


@given(st.floats(-1e3, 1e3, width=32))
@settings(max_examples=20, deadline=None)
def test_an_image_without_contrast_is_its_own_average_and_has_no_waves(value: float) -> None:
    found = scattering(torch.full((1, 20, 20), value))
    np.testing.assert_allclose(found[:, 0], value, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(found[:, 1:], 0, atol=1e-6 * max(1, abs(value)))


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_a_brighter_image_has_coefficients_larger_by_as_much(seed: int, times: float) -> None:
    image = images(1, seed=seed)
    np.testing.assert_allclose(scattering(times * image), times * scattering(image), rtol=1e-3, atol=1e-5 * times)


def test_the_coefficients_move_with_the_image() -> None:
    image = torch.zeros(1, 80, 80)
    image[:, 32:44, 30:46] = images(1, 12, 16)
    found, moved = scattering(image), scattering(image.roll((4, -8), (1, 2)))
    np.testing.assert_allclose(moved, found.roll((1, -2), (2, 3)), atol=1e-5)


def test_a_mirrored_image_swaps_the_angles() -> None:
    # rows and columns are exchanged: a direction t becomes a right angle less t
    image = images()
    angle = [(2 - angle) % 8 for angle in range(8)]
    swapped = [0, *(1 + at for at in angle), *(9 + at for at in angle)]
    swapped += [17 + 8 * one + two for one in angle for two in angle]
    np.testing.assert_allclose(scattering(image.mT), scattering(image)[:, swapped].mT, atol=1e-5)


@given(st.integers(0, 2**32), st.integers(0, 2**32), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_two_images_never_get_further_apart(one: int, other: int, share: float) -> None:
    first = images(1, seed=one)
    second = share * first + (1 - share) * images(1, seed=other)
    # each coefficient stands for 4 x 4 pixels, and the border is reflected
    before = torch.nn.functional.pad(first - second, (4, 4, 4, 4), mode="reflect").square().sum()
    assert 16 * (scattering(first) - scattering(second)).square().sum() <= before + 1e-9


def test_most_of_the_energy_of_an_image_is_kept() -> None:
    digits = torch.tensor(sf.datasets.mnist().train_images[:20]) / 255
    kept = 16 * scattering(digits).square().sum((1, 2, 3)) / digits.square().sum((1, 2))
    assert (kept > 0.5).all()
    assert (kept <= 1).all()


@pytest.mark.parametrize("transform", [scattering, normalized_scattering])
def test_what_becomes_of_an_image_depends_on_that_image_alone(transform: Callable[..., torch.Tensor]) -> None:
    # more than are transformed at once
    many = images(100)
    found = transform(many)
    for at in (0, 41, 42, 99):
        np.testing.assert_allclose(found[at], transform(many[at : at + 1])[0], rtol=1e-4, atol=1e-5)


def test_bytes_count_as_0_to_1_and_a_channel_may_be_given() -> None:
    digits = sf.datasets.mnist().test_images[:3]
    expected = scattering(digits.astype(np.float64) / 255)
    assert torch.equal(scattering(digits), expected)
    assert torch.equal(scattering(torch.tensor(digits)[:, None]), expected)


def test_an_array_may_be_read_only_reversed_or_of_foreign_bytes() -> None:
    digits = sf.datasets.mnist().test_images[:3]
    digits.flags.writeable = False
    expected = scattering(digits.copy())
    assert torch.equal(scattering(digits), expected)
    assert torch.equal(scattering(digits[:, ::-1][:, ::-1]), expected)
    assert torch.equal(scattering((digits / 255).astype(">f4")), expected)


def test_within_an_image_every_group_has_the_mean_0_and_the_variance_1() -> None:
    groups = normalized_scattering(sf.datasets.mnist().train_images[:5]).reshape(5, 27, 147)
    np.testing.assert_allclose(groups.mean(2), 0, atol=1e-5)
    plain = scattering(sf.datasets.mnist().train_images[:5]).reshape(5, 27, 147).var(2, correction=0)
    np.testing.assert_allclose(groups.var(2, correction=0), plain / (plain + 1e-5), rtol=1e-3)


def test_a_blank_image_has_finite_features() -> None:
    assert torch.equal(normalized_scattering(torch.zeros(1, 28, 28)), torch.zeros(1, 3969))


def test_no_images_have_no_coefficients() -> None:
    assert scattering(torch.zeros(0, 28, 28)).shape == (0, 81, 7, 7)
    assert normalized_scattering(torch.zeros(0, 28, 28)).shape == (0, 3969)


def test_no_gradient_is_kept() -> None:
    assert not scattering(images().requires_grad_()).requires_grad


def test_progress_rises_to_1() -> None:
    told: list[float] = []
    scattering(images(100), progress=told.append)
    assert told == sorted(told)
    assert len(told) > 1
    assert told[-1] == 1


@pytest.mark.parametrize(
    ("given_images", "options", "message"),
    [
        (torch.zeros(28, 28), {}, "grey images must have the shape count x height x width, got 28 x 28"),
        (torch.zeros(2, 3, 28, 28), {}, "grey images must have the shape count x height x width, got 2 x 3 x 28 x 28"),
        (torch.zeros(2, 4, 9), {}, "images for 2 scales must have more than 4 pixels a side, got 4 x 9"),
        (np.full((2, 9, 9), "a"), {}, "images must contain real numbers, got <U1"),
        (torch.full((2, 9, 9), torch.nan), {}, "images must contain finite numbers only"),
        (torch.zeros(2, 9, 9), {"scales": 0}, "the number of scales must be a whole number of at least 1, got 0"),
        (torch.zeros(2, 9, 9), {"angles": 2.5}, "the number of angles must be a whole number of at least 1, got 2.5"),
        (torch.zeros(2, 9, 9), {"groups": 10}, "the number of groups must divide the 81 channels, got 10"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(given_images: Any, options: dict, message: str) -> None:
    with pytest.raises(sf.errors.InputError) as caught:
        normalized_scattering(given_images, **options)
    assert caught.value.message == message
