"""A coin for each record decides whether it trains or tests, and nobody else's coin depends on it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.learners import PrivateNaiveBayes, Split
from sfumato.learners.training.split import Material, coins_below, coins_of, key_of, material_of, records_of
from tests.learners.test_sweep import COLUMNS, people

KEY = key_of(7)
ODD = {"age": 1000, "sex": "unheard of", "ill": None, "cost": None}


def parts(frame: pl.DataFrame, **more: Any) -> tuple[Counter[Any], Counter[Any]]:
    material = material_of(sf.Table(frame, sf.Schema(COLUMNS)), target="ill", key=KEY, split=Split(**more))
    return tuple(  # type: ignore[return-value]
        Counter(part.to_polars().with_columns(target.alias("ill")).select(frame.columns).rows())
        for part, target in ((material.train, material.train_target), (material.test, material.test_target))
    )


def with_record(frame: pl.DataFrame, record: dict[str, Any], at: int) -> pl.DataFrame:
    one = pl.DataFrame([record], schema=frame.schema)
    return pl.concat([frame[:at], one, frame[at:]])


@pytest.mark.parametrize("at", [0, 300, 600])
@pytest.mark.parametrize("record", [{"age": 40, "sex": "f", "ill": "yes", "cost": 400.0}, ODD, None], ids=str)
@pytest.mark.parametrize("samples", [None, 0.5])
def test_one_record_more_leaves_every_other_one_in_its_part(at: int, record: Any, samples: float | None) -> None:
    frame = people(600)
    more = with_record(frame, record or frame.row(17, named=True), at)  # None: somebody who is there already, again
    before, after = (parts(one, samples=samples, test_samples=samples) for one in (frame, more))
    assert all(not one - other for one, other in zip(before, after, strict=True))
    added = [other - one for one, other in zip(before, after, strict=True)]
    assert sum(one.total() for one in added) <= 1  # one of no class is in no test, and one of no coin in no sample


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=12), st.data())
def test_coins_do_not_depend_on_order_or_on_other_records(rows: list[tuple[int, str]], data: Any) -> None:
    order = data.draw(st.permutations(rows))
    left_out = data.draw(st.integers(0, len(rows) - 1))
    fewer = rows[:left_out] + rows[left_out + 1 :]

    def coins(some: list[tuple[int, str]]) -> Counter[Any]:
        frame = pl.DataFrame(some, schema={"x": pl.Int64, "y": pl.String}, orient="row")
        found = coins_of(records_of(frame), KEY)[:, 0].tolist() if some else []
        return Counter(zip(some, found, strict=True))

    assert coins(order) == coins(rows)
    gone = coins(rows) - coins(fewer)
    assert not coins(fewer) - coins(rows)
    assert [record for record, _ in gone] == [rows[left_out]]


def test_a_cell_that_changes_the_type_of_a_column_changes_nobodys_coin() -> None:
    numbers = pl.DataFrame({"age": [30, 2**60 + 1, -7], "day": ["2020-01-02", "2021-03-04", "2022-05-06"]})
    dates = numbers.with_columns(pl.col("day").str.to_date())
    for changed in (
        numbers.with_columns(pl.col("age").cast(pl.Float64)),
        numbers.with_columns(pl.col("age").cast(pl.String)),
        pl.concat([numbers.with_columns(pl.col("age").cast(pl.String)), pl.DataFrame({"age": ["?"], "day": [""]})]),
        dates,
    ):
        assert coins_of(records_of(changed), KEY)[:3].tolist() == coins_of(records_of(numbers), KEY).tolist()


def test_coins_are_fair_apart_and_of_their_key() -> None:
    coins = coins_of(np.arange(20_000), KEY)  # false alarms: below 1e-9 each
    for at in (0, 1):
        assert abs(coins_below(coins[:, at], 0.2).mean() - 0.2) < 0.018
    both = coins_below(coins[:, 0], 0.2) & coins_below(coins[:, 1], 0.2)
    assert abs(both.mean() - 0.04) < 0.009
    other = coins_of(np.arange(20_000), key_of(8))
    assert abs((coins_below(coins[:, 0], 0.5) == coins_below(other[:, 0], 0.5)).mean() - 0.5) < 0.022
    same = coins_of(np.zeros(20_000), KEY)  # equal records have coins of their own
    assert abs(coins_below(same[:, 0], 0.2).mean() - 0.2) < 0.018
    assert coins_below(coins[:, 0], 1.0).all()


def sums(material: Material) -> list[Any]:
    """Return the exact sums that naive Bayes adds noise to."""
    asked: list[Any] = []

    class Told(PrivateNaiveBayes):  # type: ignore[misc]
        def _learn(self, columns: Any, target: Any, sums: Any) -> None:
            def told(name: str, exact: Any, norm: float) -> Any:
                asked.append(np.array(exact) / norm)
                return sums(name, exact, norm)

            super()._learn(columns, target, told)  # type: ignore[arg-type]

    Told(epsilon=0.1, delta=1e-4, insecure_seed=1, classes=["no", "yes"]).fit(material.train, material.train_target)
    return asked


@pytest.mark.parametrize("at", [0, 300, 600])
def test_naive_bayes_cannot_tell_a_record_by_who_else_trains(at: int) -> None:
    """Divided by position, one record at the top moved a third of the others, and sums by far more than their norm."""
    frame = people(600)
    record = {"age": 40, "sex": "f", "ill": "yes", "cost": 400.0}
    tables = [sf.Table(one, sf.Schema(COLUMNS)) for one in (frame, with_record(frame, record, at))]
    before, after = (sums(material_of(one, target="ill", key=KEY)) for one in tables)
    for one, other in zip(before, after, strict=True):
        assert np.linalg.norm(one - other) <= 1 + 1e-9


def test_rows_for_testing_must_not_be_the_table_itself() -> None:
    frame = people(100)
    with pytest.raises(sf.errors.InputError, match="the test rows are the table itself"):
        material_of(frame, target="ill", split=Split(test=frame[::-1]))
    assert material_of(frame, target="ill", split=Split(test=frame[:50])).test.rows == 50


def test_only_what_is_built_in_and_nothing_else_is_public() -> None:
    assert material_of("nursery", target="class").is_public
    assert material_of("mnist", split=Split(samples=10, test_samples=10)).is_public
    some = Split(test=sf.datasets.nursery().to_polars()[:50])
    assert not material_of("nursery", target="class", split=some).is_public
    assert not material_of(sf.datasets.nursery(), target="class").is_public
    own = material_of(sf.datasets.mnist(), split=Split(samples=0.01, test_samples=0.01))
    assert not own.is_public
    assert len(own.train) == len(own.train_target) < 200


def test_the_key_is_not_shown() -> None:
    assert KEY.hex() not in repr(material_of(people(100), target="ill", key=KEY))
    assert str(KEY)[2:-1] not in repr(material_of(people(100), target="ill", key=KEY))
