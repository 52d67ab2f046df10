from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.engines.reduce import reduce
from sfumato.engines.tuples import group


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


def test_a_column_may_be_called_like_the_counter() -> None:
    import duckdb

    frame = pl.DataFrame({"rows": ["a", "a"], "rows_": ["b", "b"]})
    tuples = reduce(sf.Table(duckdb.from_arrow(frame.to_arrow())), ["rows", "rows_"])
    assert tuples.count.tolist() == [2]
