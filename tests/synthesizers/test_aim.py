"""The adaptive method: its junction tree, its size, what it reads and what it costs; and the copula."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget.events import BoundedRange, Gaussian, Repeated
from sfumato.budget.noise import Source
from sfumato.errors import InputError, OptionError
from sfumato.learners.estimators.noisy_sums import NoisySums, Selection, Share
from sfumato.synthesizers.tables.base import Axis, Batch, Rows, Synthesizer
from sfumato.synthesizers.tables.methods.aim import Aim, AimModel
from sfumato.synthesizers.tables.methods.copula import Copula
from sfumato.synthesizers.tables.methods.junction import Junction, Measured, draw_along, triangulate
from sfumato.synthesizers.tables.synthesize import synthesize
from tests.synthesizers.people import SCHEMA, UNDATED, coded, people

GRAPHS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda one: one[0] < one[1]), max_size=9)


@given(GRAPHS)
def test_cliques_hold_every_edge_and_form_a_tree(edges: list[tuple[int, int]]) -> None:
    together = [*edges, *((at,) for at in range(6))]
    cliques = triangulate([2, 3, 2, 4, 2, 3], together)
    assert all(any(set(one) <= set(clique) for clique in cliques) for one in together)
    assert not any(set(a) < set(b) for a, b in itertools.permutations(cliques, 2))
    drawn: set[int] = set()
    order = Junction([2, 3, 2, 4, 2, 3], [Measured(c, np.ones(_shape(c)), 1.0) for c in cliques], 1.0).cliques
    for at, clique in enumerate(order):  # what has been drawn already lies in one earlier clique
        assert at == 0 or any(drawn & set(clique) <= set(earlier) for earlier in order[:at])
        drawn |= set(clique)


def _shape(columns: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((2, 3, 2, 4, 2, 3)[at] for at in columns)


@settings(max_examples=10)
@given(GRAPHS, st.integers(0, 2**32 - 1))
def test_the_tree_is_the_table_of_largest_entropy(edges: list[tuple[int, int]], seed: int) -> None:
    sizes = (2, 3, 2, 4, 2, 3)
    truth = np.random.default_rng(seed).gamma(1.0, 10.0, sizes)
    columns = [*edges, *((at,) for at in range(6))]
    wanted = [truth.sum(axis=tuple(at for at in range(6) if at not in one)) for one in columns]
    whole = np.full(sizes, truth.mean())  # iterative proportional fitting of the whole table
    for _ in range(100):
        for one, counts in zip(columns, wanted, strict=True):
            away = tuple(at for at in range(6) if at not in one)
            whole *= (counts / whole.sum(axis=away)).reshape(
                [size if at in one else 1 for at, size in enumerate(sizes)]
            )
    measured = [Measured(one, counts, 0.0) for one, counts in zip(columns, wanted, strict=True)]
    junction = Junction(sizes, measured, float(truth.sum()))
    junction.fit(100, 1.0)
    junction = Junction(sizes, measured, float(truth.sum()))  # from the factors that were found
    junction.fit(1, 1.0)
    root = junction.cliques[0]
    away = tuple(at for at in range(6) if at not in root)
    assert junction.tables[0] == pytest.approx(whole.sum(axis=away), rel=1e-3)
    drawn = draw_along(sizes, junction.cliques, junction.tables, 4000, np.random.default_rng(0))
    assert [len(one) for one in drawn] == [4000] * 6


def test_counts_lost_in_noise_scale_the_model_less() -> None:
    counts = np.array([60.0, 20.0, 20.0])
    sure, unsure = (Junction([3], [Measured((0,), counts, noise)], 100.0) for noise in (0.0, 500.0))
    for one in (sure, unsure):
        one.fit(3, 0.5)
    assert abs(unsure.tables[0][0] - 100 / 3) < 5 < abs(sure.tables[0][0] - 100 / 3)


class Counted(Rows):
    """Records that can be counted, but not read."""

    scans: ClassVar[bool] = False

    def scan(self) -> Iterator[Batch]:
        raise AssertionError("the records must not be read")


def learned(method: Synthesizer, rows: Rows, noise: float, seed: int = 1) -> AimModel:
    sums = NoisySums(method.shares(rows.axes, rows.label, scans=rows.scans), noise, Source(insecure_seed=seed))
    model = method.learn(rows, sums, np.random.default_rng(seed))
    assert isinstance(model, AimModel)
    return model


def test_counts_are_enough() -> None:
    rows = coded(people(500))
    found = learned(Aim(), Counted(rows.axes, rows.codes, rows.label), 1.0)
    assert len(found.sample(10, np.random.default_rng(0))) == 5
    with pytest.raises(InputError, match="can only be counted"):
        Copula().shares(rows.axes, rows.label, scans=False)


def test_dependent_columns_are_found_and_followed() -> None:
    """Of 28 pairs two are dependent; the scores differ by 1,000 and more, at a noise of 10."""
    rng = np.random.default_rng(0)
    codes = list(rng.integers(0, 4, (8, 4000)))
    codes[5], codes[7] = codes[2].copy(), (codes[0] + codes[1]) % 4
    rows = Rows(tuple(Axis(str(at), 5, False) for at in range(8)), tuple(codes), 1)
    found = learned(Aim(), rows, 1.0)
    pairs = {pair for clique in found.cliques for pair in itertools.combinations(clique, 2)}
    assert (1, 4) in pairs, "columns 2 and 5: positions without the label"
    drawn = found.sample(4000, rng)
    assert (drawn[2] == drawn[5]).mean() > 0.95
    assert ((drawn[0] + drawn[1]) % 4 == drawn[7]).mean() > 0.8, "three columns, one of which is the label"


@pytest.mark.parametrize("columns", [12, 24])
def test_the_model_stays_within_its_size(columns: int) -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 6, 300)
    codes = tuple(np.where(rng.random(300) < 0.8, base, rng.integers(0, 6, 300)) for _ in range(columns))
    rows = Rows(tuple(Axis(str(at), 7, False) for at in range(columns)), codes, 0)
    limit = 0.04
    found = learned(Aim(megabytes=limit), rows, 0.1)
    cells = sum(one.size for one in found.tables)
    assert cells <= limit * 2**20 / 8
    assert max(map(len, found.cliques)) > 2, "pairs were measured"


def test_the_whole_cost_is_declared_and_adds_up_to_what_was_asked() -> None:
    frame = people(500).drop("since")
    schema = UNDATED
    generator = synthesize(sf.Table(frame, schema=schema), 1.0, method=Aim())
    assert 0.999 < generator.spent.epsilon <= 1.0
    assert [one.name for one in generator.plan.purchases] == ["cells", "values", "choices", "marginals"]
    choices, marginals = generator.plan.events[2:]
    assert isinstance(choices, Repeated)
    assert isinstance(choices.event, BoundedRange)
    assert isinstance(marginals, Repeated)
    assert isinstance(marginals.event, Gaussian)
    assert choices.times == marginals.times == math.comb(3, 2)


@pytest.mark.parametrize("method", [Aim(), Copula()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("columns", [["age"], ["sex", "ill"], ["pay", "ill"], ["age", "sex"]])
def test_few_columns_are_enough(method: Synthesizer, columns: list[str]) -> None:
    schema = sf.Schema(SCHEMA[name] for name in columns)
    generator = synthesize(sf.Table(people(60).select(columns), schema=schema), 1.0, method=method)
    assert generator.sample(5).columns == columns


def test_less_noise_brings_pairs_nearer() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 5, (3, 3000))
    codes = tuple(np.where(rng.random(3000) < 0.7, base[at % 3], rng.integers(0, 5, 3000)) for at in range(7))
    rows = Rows(tuple(Axis(str(at), 6, False) for at in range(7)), codes, 6)
    errors = []
    for noise in (100.0, 10.0, 1.0):
        drawn = learned(Aim(), rows, noise).sample(3000, np.random.default_rng(0))
        tables = [
            [np.bincount(one[a] * 6 + one[b], minlength=36) / 3000 for a, b in itertools.combinations(range(7), 2)]
            for one in (codes, drawn)
        ]
        errors.append(np.abs(np.array(tables[0]) - np.array(tables[1])).sum(axis=1).mean() / 2)
    assert errors[0] > 1.5 * errors[1]
    assert errors[1] > 1.5 * errors[2]


@pytest.mark.parametrize("method", ["aim", "copula"])
def test_a_release_is_saved_loaded_and_verified(method: str, tmp_path: Path) -> None:
    release = sf.synthesize(sf.Table(people(300), schema=SCHEMA), epsilon=2, method=method, rows=50)
    sf.save(release, tmp_path / "release")
    again = sf.load(tmp_path / "release")
    assert sf.verify(tmp_path / "release").ok
    assert again.sample(20).shape == (20, 5)


@pytest.mark.parametrize("method", [Aim(), Copula()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("rows", [1, 60])
def test_an_empty_class_a_missing_column_and_a_single_row_are_learned(method: Synthesizer, rows: int) -> None:
    frame = people(rows).drop("since").with_columns(pl.lit("no").alias("ill"), pl.lit(None, pl.Int64).alias("pay"))
    schema = UNDATED
    drawn = synthesize(sf.Table(frame, schema=schema), 1.0, method=method).sample(50)
    assert drawn.columns == frame.columns
    assert set(drawn["ill"]) <= {"no", "yes"}


def test_settings_are_checked() -> None:
    with pytest.raises(OptionError, match="choices must be"):
        Aim(choices=-1)
    with pytest.raises(OptionError, match="megabytes must be"):
        Aim(megabytes=0)


def test_without_choices_columns_depend_on_the_label_only() -> None:
    rows = coded(people(300))
    found = learned(Aim(choices=0), rows, 1.0)
    assert sorted(found.cliques) == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_a_choice_is_charged_by_its_own_event_and_at_most_as_often_as_declared() -> None:
    shares = {"sums": Share(1, 0.5), "choices": Selection(4, 0.5)}
    sums = NoisySums(shares, 2.0, Source(insecure_seed=1))
    epsilon = math.sqrt(3 * 0.5 / 4) / 2.0
    choices = sums.events[1]
    assert isinstance(choices, Repeated)
    assert choices.times == 4
    assert isinstance(choices.event, BoundedRange)
    assert choices.event.epsilon == pytest.approx(epsilon)
    for _ in range(4):
        assert sums.choose("choices", [0.0, 1e6], 1.0) == 1  # the other one: a chance of exp(-150,000)
    with pytest.raises(RuntimeError, match="more often than it was paid for"):
        sums.choose("choices", [0.0, 1.0], 1.0)
    assert NoisySums(shares, 0.0, Source()).choose("choices", [0.0, 1.0, 0.5], 1.0) == 1


def test_a_copula_follows_correlations_within_each_label() -> None:
    """The noise on a correlation of 2,000 records is .02 (multiplier 1): the bounds lie 9 deviations away."""
    rng = np.random.default_rng(0)
    sign = rng.integers(0, 2, 4000)
    first = rng.standard_normal(4000)
    second = np.where(sign == 1, 1, -1) * first * 0.9 + 0.44 * rng.standard_normal(4000)
    codes = [np.clip(np.round(20 * one + 60), 0, 119).astype(np.int64) for one in (first, second)]
    rows = Rows((Axis("a", 121, True), Axis("b", 121, True), Axis("y", 3, False)), (*codes, sign), 2)
    method = Copula()
    model = method.learn(rows, NoisySums(method.shares(rows.axes, 2), 1.0, Source(insecure_seed=3)), rng)
    a, b, y = model.sample(4000, rng)
    for value, expected in ((0, -0.9), (1, 0.9)):
        assert np.corrcoef(a[y == value], b[y == value])[0, 1] == pytest.approx(expected, abs=0.08)
