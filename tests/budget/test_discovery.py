"""Categories and bounds that are not declared can be bought, and give no single record away."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.budget import ApproximateEvent, FindBounds, Relation, SelectCategories, Source, spent
from tests.budget.chance import FALSE_ALARM, assert_epsilon, least_epsilon

RUNS = 3_000
SURE = 1 - 1e-10  # that no empty bin is taken for a full one


def named(selection: SelectCategories, count: int, runs: int = RUNS) -> int:
    source = Source()
    return sum("rare" in selection.answer(["rare"] * count, source) for _ in range(runs))


def test_a_category_of_one_record_is_named_no_more_often_than_delta() -> None:
    selection = SelectCategories(epsilon=1.0, delta=0.1)
    times = named(selection, 1)
    assert stats.binom.sf(times - 1, RUNS, 0.1) > FALSE_ALARM
    assert times > 0.1 * RUNS / 10  # the threshold is not needlessly high


def test_the_threshold_is_the_smallest_that_keeps_delta() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        for delta in (1e-3, 1e-9):
            selection = SelectCategories(epsilon=epsilon, delta=delta)
            ratio = math.exp(-epsilon)

            def reached(threshold: int, ratio: float = ratio) -> float:
                return ratio ** (threshold - 1) / (1 + ratio)

            assert reached(selection.threshold) <= delta
            assert reached(selection.threshold - 1) > delta or selection.threshold == 2


def test_selection_keeps_its_epsilon_and_a_smaller_claim_would_be_caught() -> None:
    selection = SelectCategories(epsilon=2.0, delta=1e-3)
    count = selection.threshold - 1  # with one record more it is named exp(epsilon) times as often
    assert_epsilon(named(selection, count + 1), named(selection, count), RUNS, 2.0, 1e-3)


def test_under_replace_one_a_record_may_leave_a_category_and_enter_another() -> None:
    selection = SelectCategories(epsilon=1.0, delta=1e-3, relation=Relation.REPLACE_ONE)
    assert selection.noise.scale == 2.0
    assert selection.event == ApproximateEvent(1.0, 1e-3, Relation.REPLACE_ONE)
    assert least_epsilon(named(selection, 5, 5_000), named(selection, 4, 5_000), 5_000, 1e-3) <= 1.0


def test_large_categories_are_found_in_an_order_that_is_not_that_of_the_records() -> None:
    values = ["b"] * 500 + ["a"] * 500 + [None, math.nan]
    assert list(SelectCategories(epsilon=1.0, delta=1e-6).answer(values)) == ["a", "b"]


def test_bounds_enclose_nearly_all_numbers() -> None:
    numbers = np.random.default_rng(0).normal(0, 100, 20_000)
    low, high = FindBounds(epsilon=1.0, confidence=SURE).answer(numbers)
    assert -512 <= low <= -128
    assert 128 <= high <= 512
    assert np.mean((numbers >= low) & (numbers <= high)) > 0.99


def test_a_single_record_does_not_move_the_bounds() -> None:
    numbers = np.append(np.full(5_000, 3.0), 1e6)
    search = FindBounds(epsilon=1.0, confidence=SURE)  # 200 draws, each wrong with a probability below e * 1e-10
    assert all(search.answer(numbers) == (2.0, 4.0) for _ in range(200))


def test_bounds_keep_their_epsilon_and_a_smaller_claim_would_be_caught() -> None:
    search, source = FindBounds(epsilon=2.0, confidence=0.9), Source()
    base = [1.5] * 200

    def wide(extra: int) -> int:
        return sum(search.answer(base + [100.0] * extra, source)[1] == 128.0 for _ in range(RUNS))

    assert_epsilon(wide(search.threshold), wide(search.threshold - 1), RUNS, 2.0)
    assert spent(search.event, 0).epsilon == 2.0


def test_too_few_numbers_have_no_bounds() -> None:
    with pytest.raises(sf.SfumatoError, match="no bounds were found above the noise"):
        FindBounds(epsilon=0.01, confidence=SURE).answer([1.0, 2.0])


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6])
def test_a_selection_without_a_delta_is_refused(delta: float) -> None:
    with pytest.raises(sf.errors.OptionError, match="delta must be"):
        SelectCategories(epsilon=1.0, delta=delta)
