"""The tree of columns: its sensitivity, its odd tables, its cost in columns, and what more epsilon gives."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget.noise import Source
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import NoisySums, on_grid
from sfumato.synthesizers.state import State
from sfumato.synthesizers.tables.base import Axis, Rows
from sfumato.synthesizers.tables.methods.marginals import spanning_tree
from sfumato.synthesizers.tables.methods.tree.interactions import Interactions, learn_interactions
from sfumato.synthesizers.tables.methods.tree.label_learning import _residuals
from sfumato.synthesizers.tables.methods.tree.labels import (
    LARGEST_RESIDUAL,
    AdditiveLabels,
    Pool,
    chances_of,
    influence,
)
from sfumato.synthesizers.tables.methods.tree.pairs import choose_pairs
from sfumato.synthesizers.tables.methods.tree.raking import Wanted, rake
from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree
from sfumato.synthesizers.tables.methods.tree.tree_model import TreeModel
from sfumato.synthesizers.tables.synthesize import synthesize

SMALL = LabelledTree(pool=1000)


def learned(rows: Rows, multiplier: float = 1.0, method: LabelledTree = SMALL) -> TreeModel:
    sums = NoisySums(method.shares(rows.axes, rows.label), multiplier, Source(insecure_seed=1))
    return method.learn(rows, sums, np.random.default_rng(1))


def random_rows(sizes: list[int], rows: int, label: int | None = None, *, ordered: bool = False) -> Rows:
    rng = np.random.default_rng(5)
    axes = tuple(Axis(f"c{at}", size + 1, ordered and at != label) for at, size in enumerate(sizes))
    return Rows(axes, tuple(rng.integers(0, size, rows) for size in sizes), label)


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=6), st.data())
def test_no_residual_is_longer_than_its_bound(scores: list[float], data: st.DataObject) -> None:
    raised = np.exp(np.array(scores) - max(scores))
    chances = np.array([[1 / (1 + np.exp(-scores[0]))]]) if len(scores) == 1 else (raised / raised.sum())[None, :]
    label = data.draw(st.integers(0, 1 if len(scores) == 1 else len(scores) - 1))
    truth = np.array([float(label)]) if len(scores) == 1 else np.eye(len(scores))[label]
    left = on_grid((truth - chances[0]) * influence(chances))
    assert np.sqrt(np.square(left).sum()) <= LARGEST_RESIDUAL * (1 + 1e-12)


def test_weighted_residuals_have_a_mean_of_zero_if_the_chances_are_right() -> None:
    for chance in (0.01, 0.3, 0.5, 0.99):
        factor = influence(np.array([[chance]]))[0]
        assert chance * factor * (1 - chance) + (1 - chance) * factor * (0 - chance) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_one_record_moves_all_sums_of_residuals_by_no_more_than_their_norm(classes: int) -> None:
    rows = random_rows([3, 200, 5, classes], 60, 3)
    model = learned(rows)
    rng = np.random.default_rng(2)
    labels = model.labels
    assert labels is not None
    labels.scores = rng.normal(0, 3, labels.scores.shape)
    sizes = [int(one.max()) + 1 for one in model.groups]
    pair = rng.normal(0, 3, (sizes[0], sizes[2], labels.outputs))
    both = Interactions(model.groups, {(0, 2): pair}, labels.outputs)
    whole = _residuals(rows, [0, 1, 2], model.cells, labels, both)
    for at in range(60):
        kept = np.arange(60) != at
        fewer = Rows(rows.axes, tuple(one[kept] for one in rows.codes), 3)
        apart = np.linalg.norm(whole - _residuals(fewer, [0, 1, 2], model.cells, labels, both))
        assert apart <= LARGEST_RESIDUAL * math.sqrt(4) * (1 + 1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 60))
def test_chosen_pairs_are_few_and_connect_all_columns(informative: list[float], most: int) -> None:
    columns = len(informative)
    pairs = choose_pairs(informative, most)
    assert len(set(pairs)) == len(pairs) == min(max(most, columns - 1), columns * (columns - 1) // 2)
    assert all(0 <= a < b < columns for a, b in pairs)
    joined = np.full((columns, columns), -np.inf)
    for a, b in pairs:
        joined[a, b] = joined[b, a] = 0
    assert all(joined[edge] == 0 for edge in spanning_tree(joined))


def test_a_table_of_many_columns_has_a_limited_number_of_pairs() -> None:
    rows = random_rows([2, *[3] * 120], 300, 0)
    model = learned(rows)
    assert len(model.pairs) == 800
    assert [len(one) for one in model.sample(20, np.random.default_rng(0))] == [20] * 121
    state = model.to_state()
    again = TreeModel.from_state(rows.axes, 0, state)
    drawn = [one.sample(20, np.random.default_rng(0)) for one in (model, again)]
    assert all((a == b).all() for a, b in zip(*drawn, strict=True))
    paired = state.arrays["paired"]
    alone = (paired != 7).all(axis=1)
    for forged in (paired[:, ::-1], np.repeat(paired[:1], 800, axis=0), np.where(alone[:, None], paired, paired[:1])):
        with pytest.raises(InputError, match="pairs"):
            TreeModel.from_state(rows.axes, 0, State(state.settings, {**state.arrays, "paired": forged}))


def test_a_column_of_ten_thousand_categories_is_learned_with_few_scores() -> None:
    rows = random_rows([10_000, 3, 2], 2000, 2)
    model = learned(rows)
    assert model.labels is not None
    assert model.labels.total <= 2000
    drawn = model.sample(50, np.random.default_rng(0))
    assert all(one.min() >= 0 and one.max() < axis.size for one, axis in zip(drawn, rows.axes, strict=True))


def test_raking_knows_codes_beyond_sixteen_bits() -> None:
    columns = [np.array([0, 70_000 - 65_536, 70_000]), np.array([0, 0, 0])]
    counts = np.zeros((70_001, 1))
    counts[[0, 70_000 - 65_536, 70_000], 0] = [1.0, 2.0, 3.0]
    assert rake(columns, [Wanted((0, 1), counts, 0.0)], np.full(3, 2.0), 9).round(6).tolist() == [1.0, 2.0, 3.0]


def test_merged_cells_have_one_score() -> None:
    labels = AdditiveLabels([np.array([0, 1, 1]), np.array([0, 0])], [False, False], 2)
    assert labels.total == 3
    assert labels.places([np.array([0, 1, 2]), np.array([0, 1, 0])]).tolist() == [[0, 1, 1], [2, 2, 2]]


PLAIN = pl.DataFrame({"age": [30, 41, 52, 39], "sex": ["f", "m", "m", "f"], "ill": ["yes", "no", "no", "yes"]})
DESCRIBED = [
    sf.Column(name="age", bounds=(0, 99_999)),
    sf.Column(name="sex", domain=("f", "m")),
    sf.Column(name="ill", domain=("no", "yes")),
]
NOTHING = pl.lit(None, dtype=pl.String)


@pytest.mark.parametrize(
    ("frame", "target"),
    [
        (PLAIN, None),
        (PLAIN.select("age"), None),
        (PLAIN.with_columns(ill=pl.lit("no")), "ill"),
        (PLAIN.with_columns(ill=NOTHING), "ill"),
        (PLAIN.with_columns(ill=pl.when(pl.col("age") > 40).then("ill")), "ill"),
        (PLAIN.with_columns(sex=NOTHING), "ill"),
        (PLAIN.with_columns(age=pl.lit(None, dtype=pl.Int64)), "ill"),
        (PLAIN.head(1), "ill"),
    ],
    ids=["no target", "one wide column", "empty class", "no label at all", "some labels", "empty category",
         "empty number", "one row"],
)  # fmt: skip
def test_odd_tables_are_learned(frame: pl.DataFrame, target: str | None) -> None:
    schema = sf.Schema(one for one in DESCRIBED if one.name in frame.columns)
    drawn = synthesize(frame, 1.0, target=target, schema=schema, method=SMALL).sample(40)
    assert drawn.shape == (40, frame.width)
    if target is not None:
        assert set(drawn[target].unique()) <= {"no", "yes"}


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        synthesize(PLAIN.head(0), 1.0, target="ill", schema=sf.Schema(DESCRIBED), method=SMALL)


def test_a_target_of_one_class_is_learned() -> None:
    schema = sf.Schema([*DESCRIBED[:2], sf.Column(name="ill", domain=("no",))])
    drawn = synthesize(PLAIN, 1.0, target="ill", schema=schema, method=SMALL).sample(9)
    assert drawn["ill"].to_list() == ["no"] * 9


def test_several_classes_keep_their_shares_and_depend_on_the_columns() -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(0, 4, 6000)
    label = np.where(rng.random(6000) < 0.9, first, rng.integers(0, 4, 6000))
    axes = tuple(Axis(name, 5, False) for name in "aby")
    rows = Rows(axes, (first, rng.integers(0, 4, 6000), label), 2)
    a, _, y = learned(rows, 2.0, LabelledTree(pool=5000)).sample(5000, np.random.default_rng(0))
    assert (a == y).mean() > 0.85  # 92.5 % of the records; noise of 2 x sqrt(3 / .4) x 2 changes sums of 1,500 records


def distance(rows: Rows, multiplier: float) -> float:
    """Return the total variation between all columns of records and of drawn rows."""
    drawn = learned(rows, multiplier, LabelledTree(pool=20_000)).sample(20_000, np.random.default_rng(7))
    place = [sum(one * 4**at for at, one in enumerate(codes)) for codes in (rows.codes, drawn)]
    ours, theirs = (np.bincount(one, minlength=4**5) / len(one) for one in place)
    return float(np.abs(ours - theirs).sum() / 2)


def test_more_epsilon_is_never_worse() -> None:
    # The label is an interaction of two columns, which an additive model cannot tell, and the sum of two others.
    # Multipliers are those of epsilon 1, 10 and 100 at delta 1e-5. Seeds are fixed, so this cannot fail by chance.
    rng = np.random.default_rng(11)
    columns = [rng.integers(0, 3, 8000) for _ in range(4)]
    odd = (columns[0] == columns[1]) ^ (rng.random(8000) < 0.1)
    label = np.where(rng.random(8000) < 0.5, odd, columns[2] + columns[3] > 2).astype(np.int64)
    axes = (*(Axis(name, 4, False) for name in "abcd"), Axis("y", 3, False))
    rows = Rows(axes, (*columns, label), 4)
    found = [distance(rows, multiplier) for multiplier in (3.73, 0.53, 0.09)]
    assert found[1] < found[0] + 0.002
    assert found[2] < found[1] + 0.002
    assert found[2] < 0.8 * found[0]


def test_interactions_are_learned_from_pairs_and_none_where_there_are_only_noise_and_chance() -> None:
    # The first two columns tell the label together, each of them alone tells nothing, the others nothing at all.
    rng = np.random.default_rng(4)
    cells = [rng.integers(0, 6, 20_000) for _ in range(4)]
    label = ((cells[0] + cells[1]) % 2 == 0) ^ (rng.random(20_000) < 0.2)
    noisy = {}
    for a, b in [(0, 1), (0, 2), (1, 3), (2, 3)]:
        counts = np.zeros((6, 6, 2))
        np.add.at(counts, (cells[a], cells[b], label.astype(np.int64)), 1)
        noisy[a, b] = counts + rng.normal(0, 20, counts.shape)
    groups, weights = [np.arange(6)] * 4, np.ones(20_000)
    found = learn_interactions(groups, noisy, 20.0, cells, weights, np.zeros((20_000, 1)))
    assert list(found.tables) == [(0, 1)]
    odd = np.add.outer(np.arange(6), np.arange(6)) % 2
    wanted = np.where(odd == 0, 1, -1) * math.log(4)
    assert np.abs(found.tables[0, 1][:, :, 0] - wanted).max() < 0.6  # 280 records in a cell, and noise of 28
    told = chances_of(found.scores(cells))[:, 0] > 0.5
    assert (told == label).mean() > 0.79


def test_a_model_with_interactions_is_the_same_after_it_was_stored() -> None:
    rows = random_rows([6, 6, 6, 2], 3000, 3)
    rows = Rows(rows.axes, (*rows.codes[:3], (rows.codes[0] + rows.codes[1]) % 2), 3)
    model = learned(rows, 1e-3)
    assert model.interactions is not None
    assert (0, 1) in model.interactions.tables
    state = model.to_state()
    again = TreeModel.from_state(rows.axes, 3, state)
    drawn = [one.sample(200, np.random.default_rng(0)) for one in (model, again)]
    assert all((a == b).all() for a, b in zip(*drawn, strict=True))
    pairs = state.arrays["interacting"]
    for forged in (pairs[:, ::-1], np.repeat(pairs[:1], 2, axis=0), pairs + 3):
        with pytest.raises(InputError, match="interacting"):
            TreeModel.from_state(rows.axes, 3, State(state.settings, {**state.arrays, "interacting": forged}))
    for forged in (state.arrays["interactions"][:-1], state.arrays["interactions"] * np.nan):
        with pytest.raises(InputError, match="interactions"):
            TreeModel.from_state(rows.axes, 3, State(state.settings, {**state.arrays, "interactions": forged}))


def test_a_correction_counts_what_it_changes_in_other_classes() -> None:
    # Two of eight classes have almost all records; their scores are corrected one after the other.
    rng = np.random.default_rng(6)
    cells = rng.integers(0, 2, 4000)
    truth = np.full((2, 8), 0.001)
    truth[:, :2] = [[0.794, 0.2], [0.2, 0.794]]
    labels = AdditiveLabels([np.arange(2)], [False], 8)
    pool = Pool(labels.places([cells]), np.ones(4000), labels.total)
    counts = np.bincount(cells)[:, None] * truth.mean(axis=0)
    labels.fit(pool, [counts], 50.0, counts.sum(axis=0))
    before = labels.chances(pool.places)
    left = (truth[cells] - before) * influence(before)[:, None]
    labels.correct(pool, np.stack([pool.sums(one) for one in left.T], axis=1), 0.1)
    after = labels.chances(pool.places)
    assert np.abs(after - truth[cells]).mean() < 0.3 * np.abs(before - truth[cells]).mean()


@pytest.mark.parametrize("ordered", [False, True])
def test_rare_cells_of_columns_that_tell_nothing_get_small_scores(ordered: bool) -> None:
    # 100 records in a cell and noise of 20: the noise on a score is as large as the prior allows to begin with.
    rng = np.random.default_rng(8)
    cells = [rng.integers(0, 8, 4000), *(rng.integers(0, 40, 4000) for _ in range(4))]
    truth = np.linspace(-4.0, 4.0, 8)
    label = rng.random(4000) < chances_of(truth[cells[0]][:, None])[:, 0]
    labels = AdditiveLabels([np.arange(9), *[np.arange(41)] * 4], [ordered] * 5, 2)
    tables = [rng.normal(0, 20, (size, 2)) for size in (9, 41, 41, 41, 41)]
    for table, one in zip(tables, cells, strict=True):
        np.add.at(table, (one, label.astype(np.int64)), 1)
    pool = Pool(labels.places(cells), np.ones(4000), labels.total)
    labels.fit(pool, tables, 20.0, np.bincount(label).astype(np.float64))
    told, idle = labels.scores[:8, 0], labels.scores[9:-1, 0]
    assert np.square(idle).mean() < 0.06  # 0.03 to 0.04; with scales of 1, more than 0.1
    assert np.corrcoef(told, truth)[0, 1] > 0.97


def right_guesses(rows: Rows, chances: np.ndarray, multiplier: float, *, additive: bool) -> float:
    """Return how often the most frequent label of drawn rows with the same columns is right, by the true chances."""
    method = LabelledTree(pool=20_000, additive=additive)
    *columns, label = learned(rows, multiplier, method).sample(20_000, np.random.default_rng(7))
    counts = np.zeros((4, 4, 4, 4, chances.shape[1]))  # with missing values
    np.add.at(counts, (*columns, label), 1)
    guesses = counts[:3, :3, :3, :3].reshape(81, -1).argmax(axis=1)
    return float(chances[np.arange(81), guesses].mean())


KINDS = ["sum", "interaction", "both", "four classes"]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_never_worse_than_those_of_the_tree_alone_nor_with_more_epsilon(kind: str) -> None:
    # Multipliers are those of epsilon 1, 10 and 100 at delta 1e-5. Seeds are fixed, so this cannot fail by chance.
    a, b, c, d = np.indices((3, 3, 3, 3)).reshape(4, -1)
    odds = {"sum": a + b - c - d, "interaction": 3.0 * (a == b) - 1, "both": c + d - 2 + 1.5 * (a == b)}
    if kind == "four classes":
        scores = np.stack([a - 1.0, b - 1.0, c + d - 2.0, 2.0 * (a == b)], axis=1)
    else:
        scores = np.stack([np.zeros(81), odds[kind]], axis=1)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rng = np.random.default_rng(12)
    place = rng.integers(0, 81, 10_000)
    label = (rng.random(10_000)[:, None] > chances[place].cumsum(axis=1)).sum(axis=1)
    axes = (*(Axis(name, 4, False) for name in "abcd"), Axis("y", chances.shape[1] + 1, False))
    rows = Rows(axes, (a[place], b[place], c[place], d[place], label), 4)
    ours, alone = (
        [right_guesses(rows, chances, multiplier, additive=additive) for multiplier in (3.73, 0.53, 0.09)]
        for additive in (True, False)
    )
    # Where only two columns together tell the label, epsilon 1 tells nothing, and both guess: 0.03 is chance.
    assert all(one > other - 0.03 for one, other in zip(ours[:1], alone[:1], strict=True))
    assert all(one > other - 0.003 for one, other in zip(ours[1:], alone[1:], strict=True))
    assert ours[1] > ours[0] - 0.003
    assert ours[2] > ours[1] - 0.003
