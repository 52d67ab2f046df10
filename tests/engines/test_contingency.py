"""Codes are counted where the rows are, by public rules, and alike in every place."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.engines.contingency import Bins, CodeCounter, Coded, Decimals, Places, Rule, Steps, Unit
from sfumato.engines.dispatch import choose
from sfumato.errors import ColumnError

ELSEWHERE = [(where, "auto") for where in ("duckdb", "duckdb file", "sqlite", "postgresql")]
everywhere = pytest.mark.parametrize("place", ELSEWHERE, ids=" ".join, indirect=True)

ROWS = pl.DataFrame(
    {
        "text": ["a", "A", "a ", "it's {:p0} \\", None, "é"],
        "real": [1.5, 2.5, float("nan"), None, -7.0, 1e300],
        "shown": ["1.50", " -2e1\u3000", "2020-01-02", "Infinity", "1_0", "True"],
        "day": ["2020-02-29", "2020-02-30", "2020-01-01 23:59:59.9", "2020-01-01 24:00", "2020-01-01T10:75", None],
        "date": [dt.date(2020, 1, 1), None, dt.date(1969, 12, 31), dt.date(9999, 1, 1), dt.date(1, 1, 1), None],
        "moment": [
            dt.datetime(2020, 1, 1, 12, 0, 0, 500_000),
            None,
            dt.datetime(1969, 12, 31, 23, 59, 58, 500_000),
            dt.datetime(1970, 1, 1, 0, 0, 1, 499_999),
            dt.datetime(2020, 1, 2),
            dt.datetime(1900, 1, 1, 0, 0, 0, 1),
        ],
        "truth": [True, False, None, True, True, False],
        "whole": [1, 2, 3, None, 2**53, -1],
    }
)
SECONDS = 18262 * 86_400 + 43_200
# column, rule, the code of each row
CASES: list[tuple[str, Rule, list[int]]] = [
    ("text", Places(("a", "it's {:p0} \\", "é", "1")), [0, 4, 4, 1, 4, 2]),
    ("text", Places(()), [0] * 6),
    ("text", Steps(0.0, 9.0, 1.0, 0, 9), [10] * 6),
    ("real", Steps(0.0, 10.0, 1.0, 0, 10), [2, 2, 11, 11, 0, 10]),  # halves become even
    ("real", Steps(-8.0, 8.0, 0.1, -80, 80, per_one=10), [95, 105, 161, 161, 10, 160]),
    ("real", Steps(0.5, 2.9, 2.0, 1, 1), [0, 0, 1, 1, 0, 0]),
    ("real", Bins((-7.0, 0.0, 2.0)), [2, 3, 4, 4, 1, 3]),
    ("real", Decimals(6), [1, 1, 7, 7, 0, 0]),
    ("real", Places(("1.5", "-7", "-7.0", "nan")), [0, 4, 4, 4, 1, 4]),
    ("shown", Steps(-100.0, 20_000.0, 0.5, -200, 40_000, per_one=2), [203, 160, 36726, 40200, 40201, 202]),
    ("day", Steps(18_000.0, 19_000.0, 1.0, 18_000, 19_000, Unit.DAY), [321, 1001, 262, 1001, 262, 1001]),
    ("date", Steps(-10.0, 20_000.0, 1.0, -10, 20_000, Unit.DAY), [18272, 20011, 9, 20010, 0, 20011]),
    ("date", Places(("1969-12-31", "20200101", "0001-01-01")), [3, 3, 0, 3, 2, 3]),
    ("moment", Steps(-5.0, 2e9, 1.0, -5, 2 * 10**9, Unit.SECOND), [SECONDS + 5, -1, 3, 6, SECONDS + 43_205, 0]),
    ("moment", Steps(-5.0, 19_000.0, 1.0, -5, 19_000, Unit.DAY), [18267, 19006, 4, 5, 18268, 0]),
    ("truth", Places(("False", "True", "1")), [1, 0, 3, 1, 1, 0]),
    ("truth", Steps(0.0, 1.0, 1.0, 0, 1), [1, 0, 2, 1, 1, 0]),
    ("whole", Places(("1", "3.0", "9007199254740992", "x")), [0, 4, 4, 4, 2, 4]),
    ("whole", Steps(0.0, 100.0, 1.0, 0, 100), [1, 2, 3, 101, 100, 0]),
]


def coded(name: str, rule: Rule, codes: list[int]) -> Coded:
    """Return the column in few groups: a group for each code that should occur, and one for all others."""
    wanted = sorted(set(codes) - {-1})
    edges = sorted({0, *(one for code in wanted for one in (code, code + 1) if one <= rule.known)})
    groups = [wanted.index(one) if one in wanted else len(wanted) for one in edges]
    return Coded(name, rule, np.array(edges), np.array(groups))


@everywhere
def test_values_become_codes_by_the_same_rules_in_every_place(place: Any) -> None:
    put, engine = place
    table = sf.Table(put(ROWS))
    counter = choose(table, engine)
    assert isinstance(counter, CodeCounter)
    seconds = (len(CASES),)
    cases = [(name, rule, [rule.known if one == -1 else one for one in codes]) for name, rule, codes in CASES]
    columns = [coded(*case) for case in cases]
    # Each column beside the text, which tells the rows apart, so that not only the numbers of codes are compared.
    columns.append(Coded("text", Places(tuple(one for one in ROWS["text"] if one is not None))))
    places = [(at, len(cases)) for at in range(len(cases))]
    found = counter.contingency(table, columns, [*places, seconds])
    assert found[-1].tolist() == [1] * 6
    for (name, rule, codes), one, column in zip(cases, found, columns, strict=False):
        expected = np.zeros((column.size, 6), dtype=np.int64)
        for code, row in zip(codes, (0, 1, 2, 3, 5, 4), strict=True):
            expected[sorted(set(codes)).index(code), row] += 1
        assert one.tolist() == expected.tolist(), (name, rule)


@pytest.mark.parametrize("place", [("duckdb", "auto"), ("duckdb file", "auto")], ids=" ".join, indirect=True)
def test_decimals_and_short_floats_are_the_numbers_that_they_show(place: Any) -> None:
    put, engine = place
    money = [Decimal("0.10"), None, Decimal("-0.05"), Decimal("9.99"), Decimal("1.00")]
    short = [0.7, 0.1, None, float("nan"), float("-inf")]
    types = {"money": pl.Decimal(20, 2), "short": pl.Float32}
    table = sf.Table(put(pl.DataFrame({"money": money, "short": short}, schema=types)))
    columns = [
        Coded("money", Steps(-0.1, 0.2, 0.01, -10, 20, per_one=100)),
        Coded("money", Places(("0.1", "1", "9.990"))),
        Coded("short", Steps(0.0, 1.0, 0.2, 0, 5, per_one=5)),  # 0.7 is half a step above 0.6, and 4 is even
        Coded("short", Decimals(3)),
    ]
    counter = choose(table, engine)
    assert isinstance(counter, CodeCounter)
    steps, places, halves, decimals = counter.contingency(table, columns, [(0,), (1,), (2,), (3,)])
    assert {int(at): int(steps[at]) for at in np.flatnonzero(steps)} == {5: 1, 20: 1, 30: 2, 31: 1}
    assert places.tolist() == [1, 1, 0, 3]
    assert halves.tolist() == [2, 0, 0, 0, 1, 0, 2]
    assert decimals.tolist() == [0, 2, 0, 0, 3]


@everywhere
def test_tuples_of_columns_are_counted_together(place: Any) -> None:
    put, engine = place
    table = sf.Table(
        put(pl.DataFrame({'a"b': ["x", "y", "x", None], "c:d": [1, 1, 2, 1], "e": [True, False, True, None]}))
    )
    columns = [Coded('a"b', Places(("x", "y"))), Coded("c:d", Bins((2.0,))), Coded("e", Places(("False", "True")))]
    counter = choose(table, engine)
    assert isinstance(counter, CodeCounter)
    one, two, three = counter.contingency(table, columns, [(1,), (1, 0), (0, 2, 1)])
    assert one.tolist() == [3, 1, 0]
    assert two.tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert {tuple(map(int, at)): int(three[tuple(at)]) for at in np.argwhere(three)} == {
        (0, 1, 0): 1,
        (0, 1, 1): 1,
        (1, 0, 0): 1,
        (2, 2, 0): 1,
    }
    assert counter.contingency(table, columns, []) == []


@pytest.mark.parametrize("place", [("duckdb", "auto"), ("sqlite", "auto")], ids=" ".join, indirect=True)
def test_no_rows_are_counted_as_zeros(place: Any) -> None:
    put, engine = place
    table = sf.Table(put(pl.DataFrame({"a": pl.Series([], dtype=pl.String)})))
    counter = choose(table, engine)
    assert isinstance(counter, CodeCounter)
    assert counter.contingency(table, [Coded("a", Places(("x",)))], [(0,)])[0].tolist() == [0, 0]


def test_a_type_without_codes_is_refused() -> None:
    import duckdb

    table = sf.Table(duckdb.sql("SELECT [1, 2] AS a"))
    counter = choose(table)
    assert isinstance(counter, CodeCounter)
    with pytest.raises(ColumnError, match="column 'a' has the type List"):
        counter.contingency(table, [Coded("a", Places(("x",)))], [(0,)])


def test_in_sqlite_a_value_of_another_type_than_declared_counts_as_missing(tmp_path: Any) -> None:
    import sqlite3

    from sfumato.data.io.database import Database

    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("CREATE TABLE t (n INTEGER, b BOOLEAN, d DATE)")
        file.executemany("INSERT INTO t VALUES (?, ?, ?)", [(1, 1, "2020-01-01"), ("x", 2, "soon"), (b"1", "1", 5)])
    file.close()
    table = sf.Table(Database(f"sqlite:///{tmp_path / 'a.db'}", "t"))
    columns = [
        Coded("n", Steps(0.0, 3.0, 1.0, 0, 3)),
        Coded("b", Places(("False", "True"))),
        Coded("d", Places(("2020-01-01",))),
    ]
    counter = choose(table)
    assert isinstance(counter, CodeCounter)
    found = counter.contingency(table, columns, [(0,), (1,), (2,)])
    assert [one.tolist() for one in found] == [[0, 1, 0, 0, 2], [0, 2, 1], [1, 2]]
