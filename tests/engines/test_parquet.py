"""A Parquet file is recoded batch by batch, and is what the same frame becomes in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet
import pytest

import sfumato as sf
from sfumato.engines import Memory, Recoding, parquet
from tests.engines.cases import FRAMES


@pytest.mark.parametrize("case", FRAMES)
@pytest.mark.parametrize("published", ["texts", "numbers"])
def test_a_file_becomes_what_the_frame_becomes(case: str, published: str, tmp_path: Path) -> None:
    frame = FRAMES[case].with_row_index("row").with_columns(note=pl.lit("kept"))
    names = FRAMES[case].columns
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    frame.write_parquet(old)
    tuples = Memory().joint_count(sf.read(old), names)
    group = np.arange(len(tuples.count)) // 2
    values = [None if number == 0 else number for number in range(int(group.max()) + 1)]
    series = pl.Series(names[-1], values, dtype=pl.Int64)
    recoding = Recoding(tuples, [series if published == "numbers" else series.cast(pl.String)], group, ["note"])
    recoded = Memory().recode(sf.read(old), recoding, new)
    expected = Memory().recode(sf.Table(frame), recoding).frame
    found = recoded.frame
    assert found.columns == expected.columns
    assert found[names[-1]].to_list() == expected[names[-1]].to_list()
    for name in ["row", *names[:-1]]:
        assert found[name].cast(pl.String).to_list() == frame[name].cast(pl.String).to_list()


def test_types_of_other_columns_stay_and_texts_are_read_as_texts(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    frame = FRAMES["times"].with_columns(sex=pl.Series(["f", "m", "f", "m"]))
    frame.write_parquet(old)
    tuples = Memory().count(sf.read(old), "sex")
    Memory().recode(sf.read(old), Recoding(tuples, [pl.Series("sex", ["*", "*"])]), new)
    assert sf.read(new).frame.schema == frame.schema
    assert pyarrow.parquet.read_schema(new).field("sex").type == pyarrow.string()


def test_a_column_that_stays_keeps_whether_it_may_miss_values(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    fields = [pyarrow.field("sex", pyarrow.string()), pyarrow.field("id", pyarrow.int64(), nullable=False)]
    pyarrow.parquet.write_table(pyarrow.table([["f", "m"], [1, 2]], schema=pyarrow.schema(fields)), old)
    Memory().recode(sf.read(old), Recoding(Memory().count(sf.read(old), "sex"), [pl.Series("sex", ["*", "*"])]), new)
    assert pyarrow.parquet.read_schema(new) == pyarrow.schema(fields)


@pytest.mark.parametrize("dictionary", [True, False])
def test_marks_of_missing_values_are_missing_in_all_columns(dictionary: bool, tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    frame = pl.DataFrame(
        {"sex": ["f", "?", "f"], "city": ["?", "Rome", None], "kind": ["a", "?", "-"], "age": [1, 2, 3]}
    )
    table = frame.with_columns(pl.col("kind").cast(pl.Categorical)).to_arrow()
    pyarrow.parquet.write_table(table, old, use_dictionary=dictionary)
    marked = sf.read(old, na=["?", "-"])
    recoding = Recoding(Memory().count(marked, "sex"), [pl.Series("sex", ["x", None])])
    found = Memory().recode(marked, recoding, new).frame
    assert found["sex"].to_list() == ["x", None, "x"]
    assert found["city"].to_list() == [None, "Rome", None]
    assert found["kind"].to_list() == ["a", None, None]


def test_categories_that_no_row_has_are_not_written(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    city = pyarrow.DictionaryArray.from_arrays(pyarrow.array([2, None, 0], pyarrow.int8()), ["Rome", "Utopia", "Bonn"])
    pyarrow.parquet.write_table(pyarrow.table({"sex": ["f", "m", "f"], "city": city}), old)
    assert b"Utopia" in old.read_bytes()
    Memory().recode(sf.read(old), Recoding(Memory().count(sf.read(old), "sex"), [pl.Series("sex", ["*", "*"])]), new)
    assert pyarrow.parquet.read_table(new)["city"].to_pylist() == ["Bonn", None, "Rome"]
    assert pyarrow.parquet.read_schema(new).field("city").type == city.type
    assert b"Utopia" not in new.read_bytes()


def test_many_batches_are_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH", 3)
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    frame = pl.DataFrame({"age": [age % 7 for age in range(20)], "name": [f"name {age % 5}" for age in range(20)]})
    frame.write_parquet(old, row_group_size=4)
    tuples = Memory().joint_count(sf.read(old), ["age", "name"])
    labels = [f"{age} {name}" for age, name in zip(*map(list, zip(*_values(tuples), strict=True)), strict=True)]
    shares: list[float] = []
    recoded = Memory().recode(sf.read(old), Recoding(tuples, [pl.Series("name", labels)]), new, shares.append)
    assert recoded.frame["name"].to_list() == [f"{age} {name}" for age, name in frame.rows()]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_an_empty_file_stays_empty(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pl.DataFrame({"age": [], "sex": []}, schema={"age": pl.Int64, "sex": pl.String}).write_parquet(old)
    tuples = Memory().joint_count(sf.read(old), ["age"])
    recoded = Memory().recode(sf.read(old), Recoding(tuples, [pl.Series("age", [], dtype=pl.String)]), new)
    assert recoded.frame.schema == {"age": pl.String, "sex": pl.String}


def test_a_file_that_holds_other_tuples_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    old, other, new = (tmp_path / f"{name}.parquet" for name in ("old", "other", "new"))
    pl.DataFrame({"sex": ["f", "m"]}).write_parquet(old)
    pl.DataFrame({"sex": ["f", "x"]}).write_parquet(other)
    recoding = Recoding(Memory().count(sf.read(old), "sex"), [pl.Series("sex", ["*", "*"])])
    with pytest.raises(sf.errors.InputError, match="another table"):
        Memory().recode(sf.read(other), recoding, new)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.parquet", "other.parquet"]


def _values(tuples: object) -> list[tuple[object, ...]]:
    return [
        tuple(domain.values[int(code)] for domain, code in zip(tuples.domains, codes, strict=True))  # type: ignore[attr-defined]
        for codes in tuples.codes  # type: ignore[attr-defined]
    ]
