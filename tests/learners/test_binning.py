import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.budget import Source
from sfumato.learners.estimators.binning import CellCounts, histogram, make_bins
from sfumato.learners.estimators.features import Columns, Feature, Features
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

NUMBER = Features((Feature("x", bounds=(0.0, 1.0)),))
COLOURS = Features((Feature("colour", domain=("red", "green", "blue", "black")),))


def bins_of(counts, noise=0.0, most=8, features=NUMBER):
    return make_bins(features, CellCounts((np.append(counts, 0.0),), (noise,)), most)


def mass_of(counts, binning):
    return binning.mass([np.append(counts, 0.0)])[:-1]


@settings(max_examples=200)
@given(st.lists(st.floats(-50, 1000), min_size=1, max_size=60), st.floats(0, 30), st.integers(1, 12))
def test_bins_are_neighbouring_cells_in_order_and_not_too_many(counts, noise, most):
    binning = bins_of(np.array(counts), noise, most)
    assert binning.bins[0] == 0
    assert set(np.diff(binning.bins)) <= {0, 1}
    assert 1 <= binning.sizes[0] - 1 <= most
    assert binning.bins[-1] == binning.sizes[0] - 1  # unknown is apart
    assert (binning.bins[:-1] < binning.bins[-1]).all()


def test_even_counts_give_bins_of_even_mass():
    assert mass_of(np.ones(64), bins_of(np.ones(64))).tolist() == [8.0] * 8


def test_a_cell_with_most_of_the_mass_is_its_own_bin_and_the_rest_is_shared_out():
    gains = np.concatenate([[920.0], np.full(80, 1.0)])
    binning = bins_of(gains, most=9)
    assert mass_of(gains, binning).tolist() == [920.0] + [10.0] * 8


def test_zero_is_its_own_bin_under_noise_too():
    random = np.random.default_rng(0)
    gains = np.zeros(1024)
    gains[0], gains[[31, 78, 154]] = 30_000, [400, 600, 500]
    for _ in range(20):
        binning = bins_of(gains + random.normal(0, 20, 1024), 20.0, 24)
        assert (binning.bins[:1024] == 0).sum() < 31
        assert len(set(binning.bins[[0, 31, 78, 154]])) == 4


def test_the_more_noise_the_fewer_bins():
    counts = np.full(100, 10.0)
    sizes = [bins_of(counts, noise, 50).sizes[0] for noise in (0.0, 5.0, 20.0, 100.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 51


def test_rare_categories_share_a_bin():
    counts = np.array([500.0, 3.0, 400.0, 2.0])
    assert bins_of(counts, 10.0, features=COLOURS).bins.tolist() == [0, 2, 1, 2, 3]
    assert bins_of(counts, 0.0, features=COLOURS).bins.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("target", [None, (np.array([0, 1, 1]), 2)])
def test_a_histogram_counts_every_column_and_the_target(target):
    features = Features((*NUMBER.features, *COLOURS.features))
    columns = Columns.of(pl.DataFrame({"x": [0.1, 0.9, None], "colour": ["red", "pink", "black"]}))
    sums = NoisySums({"counts": Share(1, 1.0)}, 0.0, Source())
    found = histogram(features, columns, sums, "counts", 2, target)
    assert [one.tolist() for one in found.counts[:2]] == [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0, 1.0]]
    if target is not None:
        assert found.without_last()[1].tolist() == [1.0, 2.0]


def test_the_deviations_of_a_histogram_are_those_of_its_noise():
    features = Features((*NUMBER.features, *COLOURS.features))
    columns = Columns.of(pl.DataFrame({"x": [0.0] * 100, "colour": ["red"] * 100}))
    sums = NoisySums({"counts": Share(1, 1.0)}, 3.0, Source(insecure_seed=1))
    found = histogram(features, columns, sums, "counts", 4000)
    assert found.deviations == pytest.approx((3 * math.sqrt(1 + 1 / 16), 12 * math.sqrt(1 + 1 / 16)))
    assert np.std(found.counts[0][1:]) == pytest.approx(found.deviations[0], rel=0.07)  # 6 deviations of an estimate


def test_codes_are_those_of_the_cells():
    binning = bins_of(np.ones(10), most=5)
    cells = np.array([[0], [1], [2], [9], [10]])
    assert binning.codes(cells).ravel().tolist() == [0, 0, 1, 4, 5]
    assert binning.shares([np.append(np.ones(10), 0.0)]) == pytest.approx([0.2] * 5 + [0.0])
