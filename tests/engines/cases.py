"""Tables that are easily counted wrong: every engine must count them as Memory does."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io.source import File
from sfumato.engines import Engine, Memory, Tuples

_NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 1)
_INTEGERS = {
    f"{sign}Int{bits}": (0 if sign else -(2 ** (bits - 1)), bits) for bits in (8, 16, 32, 64) for sign in ("U", "")
}

FRAMES: dict[str, pl.DataFrame] = {
    "missing values": pl.DataFrame({"a": ["x", None, "x", None], "b": [None, None, 1, None]}),
    "NaN and both zeros": pl.DataFrame(
        {
            "wide": [float("nan"), None, 0.0, -0.0, float("inf"), -1e-300],
            "narrow": pl.Series([float("nan"), None, -0.0, 0.0, 0.7, 0.7], dtype=pl.Float32),
        }
    ),
    "truth values": pl.DataFrame({"a": [True, None, False, True]}),
    "days": pl.DataFrame({"a": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31), dt.date(1582, 10, 10)]}),
    "times": pl.DataFrame(
        {
            "none": [_NOON, None, _NOON, dt.datetime(1900, 1, 1)],
            "zone": pl.Series([_NOON, None, _NOON, dt.datetime(1900, 1, 1)]).dt.replace_time_zone("Europe/Paris"),
            "millis": pl.Series([_NOON, None, _NOON, _NOON], dtype=pl.Datetime("ms", "UTC")),
            "of day": [dt.time(23, 59, 59, 999999), None, dt.time(0), dt.time(0)],
            "span": [dt.timedelta(days=40, microseconds=1), None, dt.timedelta(0), -dt.timedelta(1)],
        }
    ),
    "nanoseconds": pl.DataFrame(
        {
            "plain": pl.Series([1, 2, None, 1]).cast(pl.Datetime("ns")),
            "zone": pl.Series([1, 2, None, 1]).cast(pl.Datetime("ns", "Asia/Tokyo")),
        }
    ),
    "decimals": pl.DataFrame(
        {"a": pl.Series([Decimal("0.10"), Decimal("-99999999.99"), None, Decimal("0.1")], dtype=pl.Decimal(20, 2))}
    ),
    "texts": pl.DataFrame(
        {"a": ["", None, " ", "a\nb", "ß", "ss", "é", "e\u0301", "😀", "\x00", 'a"b', "a,b", "NA", "", "A", "a"]}
    ),
    "categories": pl.DataFrame(
        {
            "free": pl.Series(["b", "a", None, "b"], dtype=pl.Categorical),
            "ordered": pl.Series(["low", "high", None, "low"], dtype=pl.Enum(["low", "mid", "high"])),
        }
    ),
    "integers": pl.DataFrame(
        [
            pl.Series(name, [low, 0, None, low + 2**bits - 1, 0], dtype=getattr(pl, name))
            for name, (low, bits) in _INTEGERS.items()
        ]
    ),
    "only missing": pl.DataFrame({"a": [None, None], "b": pl.Series([None, None], dtype=pl.Int8)}),
    "names like those of a counter": pl.DataFrame(
        {"Rows": ["a", "a", "b"], "rows_": [1, 1, 2], "count": [1, 1, 1], "c0": [2, 2, 2], "count(*)": [0, 0, 0]}
    ),
    "names that need quotes": pl.DataFrame(
        {'a"b': [1, 1], "a,b": [1, 2], "a.b": [2, 2], "`": [1, 1], "'": [0, 1], "größe 😀": [1, 1], "^.*$": [5, 6]}
    ),
    "one column": pl.DataFrame({"a": [3, 1, 3]}),
}

EVERYTHING = pl.concat(
    [frame.rename(lambda name, case=case: f"{case}: {name}") for case, frame in FRAMES.items()],
    how="horizontal_extend",
)
"""All of them side by side, for an engine that takes its time over each table."""

TEXTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "quoted and bare empty fields": (b'a,b\n"",1\n,2\n"",1\nx,\n', {}),
    "blank lines": (b"a,b\n1,2\n\n,\n\n3,4\n", {}),
    "blank lines of one column": (b"a\n1\n\n2\n\n", {}),
    "blanks around values": (b"a,b\n x,1\nx , 1\nx,  2 \n", {}),
    "quotes, separators and newlines in fields": (b'a,b\n"x ""y"", z","1\n2"\n"x ""y"", z","1\r\n2"\n', {}),
    "carriage returns": (b"a,b\r\n1,x\r\n2,y\r\n", {}),
    "a byte order mark": (b"\xef\xbb\xbfa,b\n1,x\n", {}),
    "Latin-1": ("a;b\nß;1\né;2\nß;1\n".encode("latin-1"), {"encoding": "latin-1"}),
    "UTF-16": ("a,b\nß,1\né,2\n\n,\n".encode("utf-16"), {"encoding": "utf-16"}),
    "tabs": (b"a\tb\n1\tx,y\n1\tx,y\n", {"separator": "\t"}),
    "marks of missing values": (b"a,b\nNA,1\n-,2\nx,NA\nna,-\n", {"na": ("NA", "-")}),
    "codes are no numbers": (b"zip,n,f,d,when\n01234,1,1.5,2024-01-01,2024-01-01 10:00:00\n1234,,,,\n", {}),
    "numbers written in two ways": (b"a,b\n250.0,+1\n250.00,1\n", {}),
    "names that need quotes": (b'"a""b","c,d",^.*$\n1,2,3\n1,2,3\n', {}),
    "no rows": (b"a,b\n", {}),
    "no newline at the end": (b"a,b\n1,2\n3,4", {}),
}

PATHS = ("[1]", "a*b", "with space", "ü%20,{x}", "_hidden", "what?", "a=1", "it's")

VALUES = {
    "text": st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=3)),
    "int": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2)),
    "float": st.one_of(st.none(), st.floats()),
    "bool": st.one_of(st.none(), st.booleans()),
    "date": st.one_of(st.none(), st.dates()),
    "when": st.one_of(st.none(), st.datetimes()),
}
TYPES = {
    "text": pl.String,
    "int": pl.Int64,
    "float": pl.Float64,
    "bool": pl.Boolean,
    "date": pl.Date,
    "when": pl.Datetime("us"),
}


def rows(max_size: int) -> st.SearchStrategy[pl.DataFrame]:
    """Frames of every type, with repeated rows."""
    row = st.tuples(*VALUES.values())
    return st.lists(st.one_of(row, st.tuples(*map(st.just, [None] * len(VALUES)))), max_size=max_size).map(
        lambda made: pl.DataFrame(made + made[:2], schema=TYPES, orient="row")
    )


def text_file(path: Path, case: str) -> File:
    content, options = TEXTS[case]
    path.write_bytes(content)
    return File(path, **options)


def assert_counts_as_memory(engine: Engine, table: sf.Table, expected: sf.Table | None = None) -> None:
    """Compare with Memory on the same table, or on one that it can read."""
    names = list(table.schema.names)
    assert_same(engine.joint_count(table, names), Memory().joint_count(expected or table, names))


def assert_same(ours: Tuples, theirs: Tuples) -> None:
    assert len(ours.domains) == len(theirs.domains)
    for mine, other in zip(ours.domains, theirs.domains, strict=True):
        assert mine.column == other.column
        if len(theirs.count):  # Memory does not ask for the type of a column without rows
            assert mine.values.dtype == other.values.dtype
            assert mine.values.equals(other.values, null_equal=True)
    assert ours.codes.tolist() == theirs.codes.tolist()
    assert ours.count.tolist() == theirs.count.tolist()
    assert ours.codes.dtype == np.int32
    assert ours.count.dtype == np.int64
