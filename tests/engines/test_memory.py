from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.engines import Memory, Recoding, reduce
from sfumato.engines.tuples import group
from tests.postgres import store

FRAME = pl.DataFrame({"sex": ["f", "m", "f"], "age": [30, 41, 30]})


@given(st.lists(st.tuples(*[st.sampled_from(["a", "b", None])] * 3), min_size=1, max_size=50))
def test_reducing_counts_every_distinct_tuple_once(rows: list[tuple[str | None, ...]]) -> None:
    frame = pl.DataFrame(rows, schema=["x", "y", "z"], orient="row", infer_schema_length=None).cast(pl.String)
    tuples = reduce(sf.Table(frame), ["x", "y", "z"])
    values = [domain.values.to_list() for domain in tuples.domains]
    counted = {
        tuple(values[column][code] for column, code in enumerate(codes)): int(count)
        for codes, count in zip(tuples.codes, tuples.count, strict=True)
    }
    assert counted == Counter(rows)
    assert tuples.codes.tolist() == sorted(tuples.codes.tolist())


def test_keys_wider_than_an_integer_are_told_apart() -> None:
    # 8 columns of 2^20 possible values would need 160 bits.
    codes = np.zeros((4, 8), dtype=np.int64)
    codes[1, 0] = 1
    codes[2, 7] = 1
    codes[3, 0] = 1
    first, of_row = group(codes, [2**20] * 8)
    assert of_row.tolist() == [0, 2, 1, 2]
    assert first.tolist() == [0, 2, 1]


def test_rows_that_are_elsewhere_are_fetched_and_counted_byte_by_byte() -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (s VARCHAR COLLATE NOCASE, rows INTEGER)")
        connection.execute("INSERT INTO t VALUES ('a', 1), ('A', 1), ('a', 1)")
        for engine in ("memory", "auto"):
            tuples = reduce(sf.Table(connection.table("t")), ["s", "rows"], engine=engine)
            assert tuples.count.tolist() == [1, 2]


def test_a_table_in_a_database_can_be_counted_here(database_url: str) -> None:
    store(database_url, "people", FRAME)
    expected = reduce(sf.Table(FRAME), ["sex", "age"])
    found = Memory().joint_count(sf.read(database_url, table="people"), ["sex", "age"])
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.count.tolist() == expected.count.tolist()


def test_columns_without_rows_keep_their_types(tmp_path: Path) -> None:
    sf.write(FRAME.clear(), tmp_path / "t.parquet")
    for source in (FRAME.clear(), FRAME.clear().lazy(), tmp_path / "t.parquet"):
        domains = reduce(sf.Table.of(source), ["sex", "age"]).domains
        assert [domain.values.dtype for domain in domains] == [pl.String, pl.Int64]


def test_a_recoding_of_another_table_is_refused() -> None:
    tuples = reduce(sf.Table(FRAME), ["age"])
    recoding = Recoding(tuples, [pl.Series("age", ["young"] * len(tuples.count))])
    with pytest.raises(sf.errors.InputError, match="the recoding belongs to another table"):
        Memory().recode(sf.Table(FRAME.filter(pl.col("age") > 30)), recoding)
    with pytest.raises(sf.errors.InputError, match="the recoding of 'age' has 1 values for 2 tuples"):
        Recoding(tuples, [pl.Series("age", ["young"])])
    with pytest.raises(sf.errors.InputError, match="has values for 'sex', which is not among its columns"):
        Recoding(tuples, [pl.Series("sex", ["f", "f"])])


def test_a_recoding_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    old = tmp_path / "t.parquet"
    sf.write(FRAME, old)
    tuples = reduce(sf.Table(FRAME), ["age"])
    recoding = Recoding(tuples, [pl.Series("age", ["young"] * len(tuples.count))])
    damaged = tmp_path / "damaged.parquet"
    whole = old.read_bytes()
    damaged.write_bytes(whole[:8] + b"\0" * 40 + whole[48:])
    with pytest.raises(sf.SfumatoError):
        Memory().recode(sf.read(damaged), recoding, old)
    assert old.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.parquet", "t.parquet"]
    assert Memory().recode(sf.read(old), recoding, tmp_path / "new.csv").column("age").to_list() == ["young"] * 3


def test_columns_that_are_called_like_those_of_a_recoding_stay_apart(tmp_path: Path) -> None:
    rows = pl.DataFrame({"sex": ["f", "m"], "after sex": ["secret", "secret"], "before sex": ["m", "f"]})
    tuples = reduce(sf.Table(rows), ["sex"])
    recoding = Recoding(tuples, [pl.Series("sex", ["woman", "man"])])
    sf.write(rows, tmp_path / "t.parquet")
    for source in (rows, rows.lazy(), tmp_path / "t.parquet"):
        recoded = Memory().recode(sf.Table.of(source), recoding)
        assert recoded.column("sex").to_list() == ["woman", "man"]
        assert recoded.column("before sex").to_list() == ["m", "f"]
