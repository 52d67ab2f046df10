"""The private teacher: gradients of several views are one record's, sums are exact, and it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sfumato.budget import Source
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.learners.images.teacher import (
    LIGHT,
    Teacher,
    Whitening,
    as_tensor,
    features_of,
    fit_teacher,
    whitened_views,
)
from sfumato.learners.images.views import Views
from tests.learners.sensitivity import Recording

STEPS = 6
SHARES = {"gradients": Share(STEPS, 1.0)}


def views_of(count: int, *, views: int = 3, size: int = 5, seed: int = 0) -> tuple[Any, Any]:
    """Return whitened features on the grid, and labels that follow from them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    raw = torch.randn(count, views, size, generator=generator, dtype=torch.float64)
    raw[torch.arange(count), :, labels] += 3
    inputs = torch.cat([torch.round(raw * 2**12) / 2**12, torch.ones(count, views, 1)], dim=2)
    return inputs, labels


def fit(inputs: Any, labels: Any, sums: NoisySums) -> Any:
    return fit_teacher(inputs, labels, 3, 500.0, 5.0, STEPS, sums)


def test_one_record_with_all_its_views_moves_every_sum_by_at_most_the_norm() -> None:
    inputs, labels = views_of(40)
    inputs[3] = 64.0  # as large as features can be
    inputs[4, 0], inputs[4, 1] = 64.0, -64.0  # views that cancel out
    inputs[5] *= 1e-6
    sums = Recording(NoisySums(SHARES, 1.0, Source(insecure_seed=1)))
    fit(inputs, labels, sums)
    assert len(sums.asked) == STEPS
    moved = []
    for record in (0, 3, 4, 5, 39):
        kept = [one for one in range(40) if one != record]
        fewer = Recording(sums, sums.asked)
        fit(inputs[kept], labels[kept], fewer)
        for whole, part in zip(sums.asked, fewer.asked, strict=True):
            assert whole.norm == part.norm
            moved.append(np.linalg.norm(whole.exact - part.exact) / whole.norm)
    assert 0.99 < max(moved) <= 1  # the norm is used, and never exceeded


def test_the_order_of_records_changes_no_bit() -> None:
    inputs, labels = views_of(700)  # more than fit into one part
    order = torch.randperm(700, generator=torch.Generator().manual_seed(1))
    sums = Recording(NoisySums(SHARES, 1.0, Source(insecure_seed=1)))
    fit(inputs, labels, sums)
    other = Recording(sums, sums.asked)
    fit(inputs[order], labels[order], other)
    for one, two in zip(sums.asked, other.asked, strict=True):
        assert (one.exact == two.exact).all()


def test_a_single_view_gives_the_clipped_gradient_of_the_definition() -> None:
    inputs, labels = views_of(50, views=1)
    sums = Recording(NoisySums(SHARES, 0.0, Source()))
    fit(inputs, labels, sums)
    x = inputs[:, 0].numpy()
    residuals = np.eye(3)[labels.numpy()] - 1 / 3  # the weights begin at 0
    gradients = x[:, :, None] * residuals[:, None, :]
    norms = np.sqrt((gradients**2).sum(axis=(1, 2), keepdims=True))
    expected = (gradients * np.minimum(1, 0.05 / norms)).sum(axis=0)
    assert np.abs(sums.asked[0].exact - expected).max() < 0.01 * np.abs(expected).max()


def test_without_noise_it_learns() -> None:
    inputs, labels = views_of(500)
    weights = fit(inputs, labels, NoisySums(SHARES, 0.0, Source()))
    assert float(((inputs[:, 0] @ weights).argmax(1) == labels).double().mean()) > 0.9


def test_the_folded_teacher_scores_as_the_whitened_one() -> None:
    images = torch.rand(30, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    features = features_of(images)
    whitening = Whitening.of(features, 10)
    weights = torch.randn(11, 4, generator=torch.Generator().manual_seed(1)).double()
    direct = whitening(features) @ weights
    assert float((Teacher(whitening, weights).scores(images) - direct).abs().max()) < 0.02  # whitened ones are rounded


def test_whitened_features_have_about_equal_variance_and_do_not_depend_on_other_images() -> None:
    images = np.random.default_rng(0).integers(0, 256, (90, 12, 12, 1), dtype=np.uint8)
    whitening = Whitening.of(features_of(as_tensor(images)), 20, ridge=1e-6)
    found = whitened_views(images, whitening, Views(), 1, bytes(16))[:, 0]
    assert (found[:, -1] == 1).all()
    variances = found[:, :-1].var(dim=0)
    assert 0.8 < float(variances.min()) <= float(variances.max()) < 1.2
    order = np.random.default_rng(1).permutation(90)
    assert (whitened_views(images[order], whitening, Views(), 1, bytes(16))[:, 0] == found[order]).all()


def test_views_are_random_and_differ_between_images() -> None:
    image = torch.rand(1, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    both = LIGHT(image.repeat(2, 1, 1, 1), generator)
    assert float((both[0] - both[1]).abs().max()) > 0.01
    assert float((LIGHT(image, generator) - both[:1]).abs().max()) > 0.01
