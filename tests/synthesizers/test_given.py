"""Rows that meet a condition are drawn directly, and distributed as the rows of the model that meet it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.budget.noise import Source
from sfumato.errors import InputError
from sfumato.learners.estimators.features import Feature
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.tables.base import Axis, Model, Rows, Synthesizer
from sfumato.synthesizers.tables.columns.cells import Cells
from sfumato.synthesizers.tables.columns.conditions import allowed_codes, given_condition
from sfumato.synthesizers.tables.columns.constraints import Constraints, draw_rows
from sfumato.synthesizers.tables.columns.domain import Coding, Computed, Domain
from sfumato.synthesizers.tables.methods.aim import Aim
from sfumato.synthesizers.tables.methods.independent import Independent
from sfumato.synthesizers.tables.methods.junction import tilt
from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree

Floats = NDArray[np.float64]


@given(st.integers(200, 5000), st.lists(st.integers(0, 199), max_size=3), st.integers(0, 2**32 - 1))
def test_an_allowed_code_is_drawn_as_often_as_among_all_codes(known: int, spikes: list[int], seed: int) -> None:
    cells = Cells.of(Axis("pay", known + 1, ordered=True), spikes)
    rng = np.random.default_rng(seed)
    allowed = rng.random(known + 1) < 0.3
    some, share = cells.within(allowed)
    every, kept, counts = cells.within(np.ones(known + 1, dtype=bool))[0].drawn, some.drawn, some.counts
    assert kept.tolist() == every[allowed[every]].tolist()
    assert share == pytest.approx(counts / np.bincount(cells.of_codes(every), minlength=cells.size))
    places = np.repeat(np.flatnonzero(counts), 5)
    drawn = [one.draw_codes(places, rng) for one in (cells, some)]
    assert set(drawn[0]) <= set(every)
    assert set(drawn[1]) <= set(kept)
    assert (cells.of_codes(drawn[1]) == places).all()


def implied(sizes: list[int], cliques: list[tuple[int, ...]], tables: list[Floats]) -> Floats:
    """Return the chance of every row that `draw_along` may draw, by its definition."""
    joint, known = np.ones(sizes), set[int]()
    for clique, table in zip(cliques, tables, strict=True):
        new = tuple(axis for axis, at in enumerate(clique) if at not in known)
        whole = table.sum(axis=new, keepdims=True)
        chances = np.where(
            whole > 0, table / np.where(whole > 0, whole, 1), 1 / math.prod(table.shape[at] for at in new)
        )
        joint = joint * chances.reshape([size if at in clique else 1 for at, size in enumerate(sizes)])
        known |= {*clique}
    return joint


@given(st.integers(0, 2**32 - 1))
def test_tilted_tables_draw_rows_in_proportion_to_the_factors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, cliques = [2, 3, 2, 4, 2], [(0, 1), (1, 2), (1, 3), (4,)]
    tables = [rng.integers(0, 4, [sizes[at] for at in one]).astype(np.float64) for one in cliques]
    factors = [((2,), rng.random(2)), ((1, 3), rng.integers(0, 2, (3, 4)).astype(np.float64)), ((4,), rng.random(2))]
    wanted = implied(sizes, cliques, tables)
    for columns, factor in factors:
        wanted = wanted * factor.reshape([size if at in columns else 1 for at, size in enumerate(sizes)])
    found = tilt(sizes, cliques, tables, factors)
    assert found is not None
    if wanted.sum() == 0:
        assert found[0].sum() == pytest.approx(0) or found[0].sum() * found[3].sum() == pytest.approx(0)
        return
    assert implied(sizes, cliques, found) == pytest.approx(wanted / wanted.sum(), abs=1e-12)


def test_factors_of_columns_that_no_clique_joins_are_left_to_rejection() -> None:
    assert tilt([2, 2], [(0,), (1,)], [np.ones(2), np.ones(2)], [((0, 1), np.ones((2, 2)))]) is None


def small(**sizes: int) -> Domain:
    """Return a domain of columns with the whole numbers from 0."""
    return Domain(tuple(Coding.of(Feature(name, bounds=(0.0, size - 1.0)), pl.Int64()) for name, size in sizes.items()))


def test_the_parts_of_a_condition_about_one_column_become_masks() -> None:
    text = Coding.of(Feature("t", domain=("x", "y")), pl.String())
    domain = Domain(small(a=4, b=3).codings, None, (Computed(text, "a", (0, 0, 1, 2, 2)),))
    assert allowed_codes(given_condition("a = 1 or b = 1"), domain) == {}
    found = allowed_codes(given_condition("a >= 1, t = x, b = 0 or b = 2"), domain)
    assert {at: mask.tolist() for at, mask in found.items()} == {
        0: [False, True, False, False, False],
        1: [True, False, True, False],
    }
    unknown = allowed_codes(given_condition("a != 1"), domain, sql=True)
    assert unknown[0].tolist() == [True, False, True, True, True]  # a missing value meets a constraint


def learned(method: Synthesizer) -> Model:
    """Return a model of five columns that depend on each other; the third is the label, the last is wide."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 12, 6000)
    b = (a // 2 + rng.integers(0, 3, 6000)) % 6
    y = (rng.random(6000) < np.where(b < 3, 0.2, 0.6)).astype(np.int64) + (a == 11)
    c = np.where(rng.random(6000) < 0.5, b, rng.integers(0, 6, 6000))
    wide = rng.integers(0, 1000, 6000) + 500 * y
    sizes = [12, 6, 3, 6, 2000]
    axes = tuple(Axis(name, size + 1, at == 4) for at, (name, size) in enumerate(zip("abycw", sizes, strict=True)))
    rows = Rows(axes, (a, b, y, c, wide), 2)
    sums = NoisySums(method.shares(axes, 2), 1.0, Source(insecure_seed=1))
    return method.learn(rows, sums, np.random.default_rng(2))


DOMAIN = Domain(
    (
        *small(a=12, b=6).codings,
        Coding.of(Feature("y", domain=("0", "1", "2")), pl.String()),
        *small(c=6, w=2000).codings,
    ),
    2,
)
METHODS: dict[str, Synthesizer] = {
    "tree": LabelledTree(pool=20_000),
    "tree without labels of its own": LabelledTree(pool=20_000, additive=False),
    "aim": Aim(megabytes=0.1),
    "independent": Independent(),
}
GIVEN = ["a in (3, 4), c = 1", "y = 2", "w = 400..700, b = 2", "y = 1, a = 0, w = 300..900"]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_rows_given_values_are_distributed_as_those_of_all_rows_that_have_them(method: Synthesizer) -> None:
    """Both are drawn with fixed seeds, so the test cannot fail by chance; the bound is six deviations."""
    model = learned(method)
    pools = [model.sample(20_000, np.random.default_rng([3, at])) for at in range(10)]
    every = [np.concatenate(one) for one in zip(*pools, strict=True)]
    for text in GIVEN:
        masks = allowed_codes(given_condition(text), DOMAIN)
        assert model.given(masks) is not None
        rows = draw_rows(model, DOMAIN, 8000, np.random.default_rng(4), given=text)
        assert all(mask[rows[at]].all() for at, mask in masks.items())
        met = np.all([mask[every[at]] for at, mask in masks.items()], axis=0)
        both = [[one[met] for one in every], rows]
        for a, b in itertools.combinations(range(5), 2):
            coarse = [[one[at] // (100 if at == 4 else 1) for at in (a, b)] for one in both]
            shares = [np.bincount(one[0] * 41 + one[1], minlength=41 * 41) / len(one[0]) for one in coarse]
            share = (shares[0] * met.sum() + shares[1] * 8000) / (met.sum() + 8000)
            deviation = np.sqrt(share * (1 / met.sum() + 1 / 8000))
            assert (np.abs(shares[0] - shares[1]) <= 6 * deviation).all(), text


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_condition_of_one_in_ten_thousand_is_met_at_once(method: Synthesizer) -> None:
    model = learned(method)
    rows = draw_rows(model, DOMAIN, 500, np.random.default_rng(0), given="a = 3, b = 3, c = 0, y = 1, w = 600..620")
    assert [np.unique(one).tolist() for one in rows[:4]] == [[3], [3], [1], [0]]
    assert set(rows[4]) <= set(range(600, 621))
    with pytest.raises(InputError, match="draws no row that meets"):
        draw_rows(model, DOMAIN, 5, np.random.default_rng(0), given="a is missing, w is missing, y is missing")


def test_single_columns_of_a_condition_are_drawn_and_the_rest_is_drawn_again() -> None:
    model = learned(METHODS["independent"])
    rules = Constraints.of(["a < 3 or c = 2", "b >= 2", "a <= b"])
    a, b, y, c, w = draw_rows(model, DOMAIN, 300, np.random.default_rng(0), constraints=rules, given="y = 1, w >= 1990")
    assert set(y) == {1}
    assert (w >= 1990).all()
    assert (b >= 2).all()
    assert ((a < 3) | (c == 2)).all()
    assert (a <= b).all()
