"""Synthetic tables: counts, codes, costs, and what neighbours may see."""

from __future__ import annotations

import itertools
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Event, PureEvent, Repeated
from sfumato.budget.noise import Source
from sfumato.errors import BudgetError, ColumnError, InputError, OptionError
from sfumato.learners.estimators.features import Columns, Feature
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.plan import Plan, multiplier
from sfumato.synthesizers.tables.base import Axis, Recoding, Rows, Synthesizer
from sfumato.synthesizers.tables.columns.cells import NARROW, Cells
from sfumato.synthesizers.tables.columns.domain import Coding, Domain
from sfumato.synthesizers.tables.methods.aim import Aim
from sfumato.synthesizers.tables.methods.autoencoder import AutoEncoderMixture
from sfumato.synthesizers.tables.methods.copula import Copula
from sfumato.synthesizers.tables.methods.independent import Independent
from sfumato.synthesizers.tables.methods.marginals import coarse_groups, onto_simplex
from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree
from sfumato.synthesizers.tables.synthesize import synthesize
from tests.synthesizers.people import DECLARED, SCHEMA, UNDATED, coded, people

TINY = AutoEncoderMixture(width=2, hidden=4, components=2, rounds=1, steps=5, rate=0.2)
METHODS: list[Synthesizer] = [Independent(), Copula(), LabelledTree(pool=2000), Aim(megabytes=0.1), TINY]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), max_size=30))
def test_counts_are_those_of_the_definition(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[at] for row in rows], dtype=np.int64) for at in range(3)]
    axes = tuple(Axis(name, size, False) for name, size in (("a", 3), ("b", 4), ("c", 2)))
    (found,) = Rows(axes, tuple(columns), None).count([(0, 1, 2)], [Recoding.identity(one.size) for one in axes])
    for cell in itertools.product(range(3), range(4), range(2)):
        assert found[cell] == rows.count(cell)


def test_many_records_are_counted_and_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.synthesizers.tables import base

    codes = tuple(np.random.default_rng(at).integers(0, 3, 50) for at in range(2))
    weights = np.arange(50) / 64
    rows = Rows((Axis("a", 3, False), Axis("b", 3, False)), codes, None, weights)
    recodings = [Recoding.identity(3)] * 2
    whole = rows.count([(0, 1)], recodings)[0]
    monkeypatch.setattr(base, "_BATCH", 7)
    assert [len(batch) for batch in rows.scan()] == [7] * 7 + [1]
    assert np.concatenate([batch.codes[1] for batch in rows.scan()]).tolist() == codes[1].tolist()
    assert rows.count([(0, 1)], recodings)[0].tolist() == whole.tolist()
    assert whole[2, 1] == weights[(codes[0] == 2) & (codes[1] == 1)].sum()


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.floats(0.1, 100))
def test_the_projection_is_the_nearest_point_of_the_simplex(noisy: list[float], total: float) -> None:
    found = onto_simplex(noisy, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    # Optimality: what is positive was moved by the same amount, and what is 0 would have to be moved by more.
    moved = np.array(noisy) - found
    positive = found > 1e-9
    assert np.ptp(moved[positive]) < 1e-9
    assert (moved[~positive] <= moved[positive].max() + 1e-9).all()


@given(st.lists(st.integers(0, 99), min_size=2, max_size=40), st.integers(1, 9), st.booleans())
def test_coarse_groups_are_numbered_without_gaps_and_few(counts: list[int], most: int, ordered: bool) -> None:
    groups = coarse_groups(np.array(counts, dtype=np.float64), most, 0.02, ordered=ordered)
    assert len(groups) == len(counts)
    assert set(groups.tolist()) == set(range(groups.max() + 1))
    assert groups.max() + 1 <= most + 2  # the rare ones together, and the missing ones
    if ordered:
        assert (np.diff(groups[:-1]) >= 0).all()


@given(st.integers(130, 10**5), st.lists(st.integers(0, 129), max_size=5), st.data())
def test_a_code_drawn_from_a_cell_lies_in_it(known: int, spikes: list[int], data: Any) -> None:
    cells = Cells.of(Axis("x", known + 1, True, origin=data.draw(st.integers(0, known - 1))), spikes)
    codes = np.array(data.draw(st.lists(st.integers(0, known), min_size=1, max_size=20)))
    found = cells.of_codes(codes)
    drawn = cells.draw_codes(found, np.random.default_rng(0))
    assert (cells.of_codes(drawn) == found).all()
    for spike in spikes:
        assert cells.draw_codes(cells.of_codes(np.array([spike])), np.random.default_rng(0)).tolist() == [spike]


@given(st.lists(st.none() | st.integers(-5, 300), min_size=1, max_size=20))
def test_whole_numbers_come_back_clipped_to_the_bounds(values: list[int | None]) -> None:
    coding = Coding.of(Feature("n", bounds=(0.0, 255.0)), pl.Int64())
    back = coding.decode(coding.encode(pl.Series("n", values, dtype=pl.Int64)))
    assert back.dtype == pl.Int64
    assert back.to_list() == [None if one is None else min(max(one, 0), 255) for one in values]


def test_dates_come_back_as_dates_and_decimals_with_their_digits() -> None:
    days = pl.Series("d", [date(2020, 2, 29), None])
    coding = Coding.of(Feature("d", bounds=(18_000.0, 19_000.0)), pl.Date())
    assert coding.decode(coding.encode(days)).to_list() == days.to_list()
    prices = pl.Series("p", ["0.10", "12.34", "99.99"]).cast(pl.Decimal(8, 2))
    coding = Coding.of(Feature("p", bounds=(0.0, 100.0)), pl.Decimal(8, 2))
    assert coding.decode(coding.encode(prices)).to_list() == prices.to_list()
    truth = Coding.of(Feature("t", domain=("False", "True")), pl.Boolean())
    assert truth.decode(truth.encode(pl.Series("t", [True, None, False]))).to_list() == [True, None, False]


def test_a_domain_survives_its_plain_form() -> None:
    domain = Domain.of(DECLARED, Columns.of(people(5)), "ill")
    assert Domain.from_dict(domain.to_dict()) == domain


def test_labels_of_drawn_rows_depend_on_other_columns() -> None:
    rows = coded(people(4000))
    method = LabelledTree(pool=8000)
    model = method.learn(rows, NoisySums(method.shares(rows.axes, rows.label), 0.0, Source()), np.random.default_rng(0))
    age, *_, ill = model.sample(8000, np.random.default_rng(0))
    assert ill[age >= 62].mean() == 1.0 or ill[age >= 62].mean() > 0.9  # only the ill are older than 60
    assert ill[age < 38].mean() < 0.1  # and none of them is younger than 40


def test_the_charges_add_up_to_what_was_asked(tmp_path: Path) -> None:
    frame = people(500)
    ledger = sf.Ledger.grant(frame, epsilon=2, delta=1e-5, path=tmp_path / "ledger")
    generator = synthesize(sf.Table(frame, schema=SCHEMA), 1.5, method=LabelledTree(pool=2000), ledger=ledger)
    assert 0.99 * 1.5 < generator.spent.epsilon <= 1.5
    assert [one.name for one in generator.plan.purchases] == [
        "bounds of since", "cells", "pairs", "values", "residuals"
    ]  # fmt: skip
    assert ledger.spent.epsilon == pytest.approx(generator.spent.epsilon, rel=0.05)
    with pytest.raises(BudgetError):
        synthesize(sf.Table(frame, schema=SCHEMA), 1.5, ledger=ledger)


def test_a_neighbour_changes_neither_plan_nor_declared_domain() -> None:
    frame = people(300).drop("since")
    schema = UNDATED
    method = LabelledTree(pool=2000)
    one, other = (synthesize(sf.Table(part, schema=schema), 1.0, method=method) for part in (frame, frame.slice(1)))
    assert one.plan == other.plan
    assert one.domain == other.domain
    narrow = [[cells.size for cells in each.model.cells if cells.codes <= NARROW + 1] for each in (one, other)]
    assert narrow[0] == narrow[1] != []


def test_built_in_tables_are_public_and_have_a_target() -> None:
    release = synthesize("adult", 1, method="independent", rows=5, declared_only=False)
    assert release.target == "income"
    assert "split" not in release.table.schema.names
    assert not release.plan.columns  # all categories are declared
    assert release.provenance.to_dict()["rows"] == 48_842
    assert release.recipe.options["data"] == "adult"


def test_a_target_must_be_a_category_and_not_alone() -> None:
    with pytest.raises(InputError, match="'age' is a number"):
        synthesize(sf.Table(people(50), schema=SCHEMA), target="age")
    with pytest.raises(InputError, match="no column beside"):
        synthesize(sf.Table(people(50).select("ill"), schema=sf.Schema([SCHEMA["ill"]])), target="ill")


def test_names_and_free_text_are_refused_unless_declared_or_kept(tmp_path: Path) -> None:
    frame = people().with_columns(mail=pl.Series([f"p{at % 7}@example.org" for at in range(400)]))
    ledger = sf.Ledger.grant(frame, epsilon=9, delta=1e-3, path=tmp_path / "ledger")
    options: dict[str, Any] = {"schema": SCHEMA, "method": "independent", "rows": 5, "delta": 1e-4}
    with pytest.raises(ColumnError, match="'mail' cannot be made up: its values look like e-mail addresses"):
        synthesize(frame, 5, ledger=tmp_path / "ledger", **options)
    assert ledger.spent.epsilon == 0
    with pytest.raises(ColumnError, match="mial"):
        synthesize(frame, 5, keep=["mial"], ledger=False, **options)
    release = synthesize(frame, 5, keep=["mail"], ledger=False, **options)
    assert set(release.table.to_polars()["mail"].drop_nulls()) <= set(frame["mail"])
    assert release.recipe.run(frame, ledger=False).rows == 5  # its schema says that the column is kept
    named = sf.Schema([*SCHEMA.columns, sf.Column(name="mail", role="identifier")])
    assert "mail" not in synthesize(frame, 5, **{**options, "schema": named}, ledger=False).table.schema.names


def test_an_epsilon_that_cannot_be_reached_says_which_one_can() -> None:
    frame = pl.DataFrame({"a": ["x", "y"] * 5, "b": ["x", "y"] * 5, "c": ["x", "y"] * 5, "n": [1.5, 2.0] * 5})
    with pytest.raises(OptionError) as caught:
        synthesize(frame, 1e-4, delta=1e-5, ledger=False)
    assert caught.value.message == (
        "epsilon 0.0001 cannot be reached at delta 1e-05 with what must be bought of 4 of 4 columns; about 0.0005 can"
    )
    assert "declare" in (caught.value.hint or "")


def test_what_is_reachable_is_never_derived_from_noise_alone() -> None:
    """At epsilon 1e-6 the noisy number of rows can be 300,000 for a table of 600: nothing follows from it."""
    frame = pl.DataFrame({"a": ["x", "y"] * 300, "b": ["x", "y"] * 300})
    schema = sf.Schema(sf.Column(name=name, domain=("x", "y")) for name in "ab")

    def note(epsilon: float) -> str:
        return str(synthesize(sf.Table(frame, schema), epsilon, rows=5, insecure_seed=1, ledger=False).note)

    lost, clear = note(1e-6), note(0.1)
    assert "and how many rows the table has: with 2 columns, a table of 1,000 rows needs about epsilon 0." in lost
    assert "and the table has about" in clear
    assert "with 2 columns, epsilon 0." in clear
    assert note(5.0) == ""


@pytest.mark.parametrize("columns", [["age"], ["sex", "ill"], ["pay", "ill"]])
def test_few_columns_are_enough(columns: list[str]) -> None:
    schema = sf.Schema(SCHEMA[name] for name in columns)
    generator = synthesize(sf.Table(people(200).select(columns), schema=schema), 1.0, method=LabelledTree(pool=1000))
    assert generator.sample(5).columns == columns
    assert math.isfinite(generator.spent.epsilon)


class Coins(Share):
    """Coin flips of two outcomes: an access that is not a sum."""

    def multiplier(self, single: float, whole: float) -> float:
        return single * whole / self.worth

    def event(self, multiplier: float) -> Event:
        return Repeated(PureEvent(1 / multiplier), self.times)


def test_an_access_that_is_not_a_sum_is_paid_for_with_the_sums() -> None:
    shares = {"cells": Share(1, 0.6), "coins": Coins(3, 0.4)}
    noise = multiplier([PureEvent(0.1)], shares, 1.0, 1e-5)
    plan = Plan(1.0, 1e-5, shares, noise)
    assert 0.999 < spent([PureEvent(0.1), *plan.events], 1e-5).epsilon <= 1.0
    assert plan.events[1] == Repeated(PureEvent(0.4 / noise), 3)
    sums = NoisySums(shares, noise, Source(insecure_seed=1))
    assert sums.run("coins", lambda each, source: (each, source.private), times=2) == (noise / 0.4, False)
    assert NoisySums(shares, 0.0, Source()).run("coins", lambda each, _: each) == 0
    with pytest.raises(RuntimeError, match="more often than it was paid for"):
        sums.run("coins", lambda each, _: each, times=2)
