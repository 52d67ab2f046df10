"""What every engine must do, wherever the rows are: count, count jointly and recode, with the same answers."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.engines import Engine, Memory, Recoding
from sfumato.engines.dispatch import choose

Rows = list[tuple[Any, ...]]

# Every value survives a text file: no empty texts, no NaN, no text that looks like a number.
PEOPLE = pl.DataFrame(
    {
        "sex": ["f", "F", "m", None, "f", "f", "f "],
        "age": [30, 30, -41, None, 30, 2**40, 30],
        "born": [datetime.date(1990, 1, 1)] * 4 + [None, datetime.date(1850, 5, 5), datetime.date(1990, 1, 1)],
        'a "quoted", näme': ["x", "x", "ü;y", "x", "x", None, "line\nbreak"],
        "rows": [1.5, 1.5, -0.25, None, 1.5, 2.0, 1.5],
        "disease": ["flu", "ulcer", "flu", "flu", "flu", None, "cancer"],
    }
)
NAMES = ["sex", "age", "born", 'a "quoted", näme', "rows"]


@pytest.fixture
def placed(place: tuple[Callable[[pl.DataFrame], Any], str]) -> tuple[Callable[..., sf.Table], Engine]:
    """How rows get to a place, and the engine that counts them there."""
    put, name = place
    engine = choose(sf.Table(put(PEOPLE)), name)
    return (lambda frame=PEOPLE: sf.Table(put(frame))), engine


Placed = tuple[Callable[..., sf.Table], Engine]


def test_every_tuple_is_counted_as_often_as_it_occurs(placed: Placed) -> None:
    table, engine = placed
    for names in ([*NAMES, "disease"], ["sex"], ["born", "rows"]):
        tuples = engine.joint_count(table(), names)
        found = {
            tuple(domain.values[int(code)] for domain, code in zip(tuples.domains, codes, strict=True)): int(count)
            for codes, count in zip(tuples.codes, tuples.count, strict=True)
        }
        assert found == Counter(PEOPLE.select(names).rows())
        assert tuples.codes.tolist() == sorted(tuples.codes.tolist())


def test_the_answers_are_those_of_memory(placed: Placed) -> None:
    table, engine = placed
    expected = Memory().joint_count(sf.Table(PEOPLE), NAMES)
    found = engine.joint_count(table(), NAMES)
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.count.tolist() == expected.count.tolist()
    for mine, theirs in zip(found.domains, expected.domains, strict=True):
        assert mine.values.to_list() == theirs.values.to_list()
        assert mine.column.kind == theirs.column.kind


def test_the_nine_measures_are_the_same_everywhere(placed: Placed) -> None:
    table, engine = placed
    for missing in ("value", "wildcard", "drop"):
        options: dict[str, Any] = {"qi": ["sex", "age"], "sensitive": ["disease", "rows"], "missing": missing}
        expected = sf.assess(PEOPLE, detail=True, **options).to_dict()
        found = sf.assess(table(), detail=True, engine=engine, **options).to_dict()
        assert found | {"profiles": []} == expected | {"profiles": []}  # only rows in memory are profiled
        assert found["profiles"] in ([], expected["profiles"])


def test_counting_one_column_is_counting_it_jointly(placed: Placed) -> None:
    table, engine = placed
    one = engine.count(table(), "disease")
    assert dict(zip(one.domains[0].values.to_list(), one.count.tolist(), strict=True)) == Counter(PEOPLE["disease"])


def test_progress_never_goes_back_and_ends_at_one(placed: Placed) -> None:
    table, engine = placed
    shares: list[float] = []
    engine.joint_count(table(), NAMES, shares.append)
    assert shares == sorted(shares)
    assert shares[-1:] == [1.0]


def test_no_rows_are_no_tuples(placed: Placed) -> None:
    table, engine = placed
    empty = engine.joint_count(table(PEOPLE.clear()), ["sex", "disease"])
    assert (len(empty.count), empty.codes.shape) == (0, (0, 2))


def test_recoding_replaces_tuples_and_nothing_else(placed: Placed, tmp_path: Path) -> None:
    table, engine = placed
    tuples = engine.joint_count(table(), ["sex", "age", "rows"])
    sexes = [str(number) for number in range(len(tuples.count))]
    recoding = Recoding(tuples, [pl.Series("sex", sexes), pl.Series("age", ["*"] * len(tuples.count))])
    original = table()
    recoded = engine.recode(original, recoding, *_destination(original, tmp_path))
    by_tuple = {
        tuple(domain.values[int(code)] for domain, code in zip(tuples.domains, codes, strict=True)): sex
        for codes, sex in zip(tuples.codes, sexes, strict=True)
    }
    expected = PEOPLE.with_columns(
        sex=pl.Series([by_tuple[row] for row in PEOPLE.select("sex", "age", "rows").rows()]), age=pl.lit("*")
    )
    assert _as_rows(recoded) == _as_rows(sf.Table(expected))
    assert _as_rows(original) == _as_rows(sf.Table(PEOPLE))


def test_recoding_leaves_columns_out_and_may_name_groups(placed: Placed, tmp_path: Path) -> None:
    table, engine = placed
    tuples = engine.joint_count(table(), ["sex", "age"])
    group = np.arange(len(tuples.count)) % 2
    recoding = Recoding(tuples, [pl.Series("age", ["even", "odd"])], group, without=["sex", "disease"])
    original = table()
    recoded = engine.recode(original, recoding, *_destination(original, tmp_path))
    assert recoded.schema.names == tuple(name for name in PEOPLE.columns if name not in ("sex", "disease"))
    expected = np.bincount(group, weights=tuples.count)
    found = engine.count(recoded, "age")
    assert dict(zip(found.domains[0].values, found.count.tolist(), strict=True)) == dict(
        zip(("even", "odd"), expected.tolist(), strict=True)
    )


def test_a_recoding_can_be_assessed_where_it_is(placed: Placed, tmp_path: Path) -> None:
    table, engine = placed
    original = table()
    tuples = engine.joint_count(original, ["sex", "age"])
    everything = [pl.Series(name, ["any"] * len(tuples.count)) for name in ("sex", "age")]
    recoded = engine.recode(original, Recoding(tuples, everything), *_destination(original, tmp_path))
    assert sf.assess(recoded, qi=["sex", "age"]).k == len(PEOPLE)


def _destination(table: sf.Table, folder: Path) -> list[str]:
    """Name a new table where the rows are in a database; elsewhere a recoding needs no place."""
    from sfumato.data.io.database import Database

    return ['re"coded'] if isinstance(table.source, Database) else []


def _as_rows(table: sf.Table) -> list[str]:
    """The rows in a form that texts, numbers and dates share, in any order."""
    columns = [table.column(name).to_list() for name in PEOPLE.columns]
    return sorted(str([None if value is None else str(value) for value in row]) for row in zip(*columns, strict=True))
