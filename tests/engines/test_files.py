"""A file that is counted batch by batch gives what the same file gives when it is read at once."""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io import text
from sfumato.data.io.source import File
from sfumato.engines import Memory, Tuples, memory, reduce
from sfumato.engines.counter import Counter
from tests.engines import cases


def counted(source: Any, names: list[str] | None = None) -> Tuples:
    table = sf.Table(source)
    return Memory().joint_count(table, names or list(table.schema.names))


def assert_same(found: Tuples, expected: Tuples) -> None:
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.count.tolist() == expected.count.tolist()
    for mine, theirs in zip(found.domains, expected.domains, strict=True):
        assert mine.column == theirs.column
        assert mine.values.dtype == theirs.values.dtype
        assert mine.values.to_list() == theirs.values.to_list()


FIELDS = st.sampled_from(["a", "A", " a", "1", "01", "1.0", " 1", "2020-01-01", "", '""', "'", "x\ty", "ä", "*", "nan"])


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.one_of(st.lists(FIELDS, min_size=width, max_size=width), st.just([""])), min_size=1, max_size=12
        ).map(lambda rows: (width, rows))
    )
)
def test_a_text_file_means_the_same_in_batches(tmp_path_factory: Any, case: tuple[int, list[list[str]]]) -> None:
    width, rows = case
    path = tmp_path_factory.mktemp("text") / "t.csv"
    lines = [[f"c{position}" for position in range(width)], *rows]
    path.write_text("\n".join(",".join(fields) for fields in lines) + "\n")
    frame = File(path).read()
    if not len(frame):
        return
    assert_same(counted(File(path)), counted(frame))
    assert_same(counted(File(path, na=("a", "*"))), counted(File(path, na=("a", "*")).read()))


@pytest.mark.parametrize("case", sorted(set(cases.TEXTS) - {"no rows"}))
def test_a_peculiar_text_file_means_the_same_in_batches(case: str, tmp_path: Path) -> None:
    file = cases.text_file(tmp_path / "x.csv", case)
    assert_same(counted(file), counted(file.read()))


@pytest.mark.parametrize("name", cases.PATHS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_path_is_no_pattern(name: str, ending: str, tmp_path: Path) -> None:
    for other in ("1", "aXb", "whatX"):
        sf.write(pl.DataFrame({"a": ["other"]}), tmp_path / f"{other}.{ending}")
    frame, path = pl.DataFrame({"a": [3, 1, 3]}), tmp_path / f"{name}.{ending}"
    sf.write(frame, path)
    assert_same(counted(File(path)), counted(frame))


def test_a_disk_that_is_too_full_for_a_decoded_copy_is_no_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "é,1\n" * 500_000, encoding="latin-1")
    program = """
import resource, sys
from pathlib import Path
import sfumato as sf
from sfumato.data.io.source import File
from sfumato.engines import Memory

sys.dont_write_bytecode = True  # a compiled module that is cut off would be kept
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    Memory().count(sf.Table(File(Path(sys.argv[1]), encoding="latin-1")), "a")
except sf.errors.InputError as error:
    print(error)
"""
    spill = tmp_path / "spill"
    spill.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(spill)}
    )
    assert ran.stdout.strip() == (
        f"the disk of the folder '{spill}' is too full for a copy of the rows (set TMPDIR to a folder with more space)"
    ), ran.stderr
    assert list(spill.iterdir()) == []


def test_a_column_that_turns_into_texts_after_a_million_numbers_is_texts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = 1_100_000
    ages = [str(20 + row % 50) for row in range(rows)]
    ages[-1] = "unknown"
    pl.DataFrame({"age": ages, "sex": ["f", "m"] * (rows // 2)}).write_csv(path)
    tuples = counted(File(path))
    assert tuples.domains[0].values.dtype == pl.String
    assert tuples.count.sum() == rows
    assert tuples.count.min() == 1
    assert sf.assess(sf.Table(File(path)), qi=["age"], keep=["sex"]).k == 1
    number = sf.Schema([sf.Column(name="age", kind="number")])
    with pytest.raises(sf.errors.SchemaError, match="column 'age' is declared a number, but holds texts"):
        sf.assess(sf.Table(File(path), number), qi=["sex"], sensitive=["age"])


@pytest.mark.parametrize("line", ["1,2", "1,2,3,4", "1,2,3,"])
@pytest.mark.parametrize("names", [["a"], ["a", "c"], ["a", "b", "c"]])
def test_a_line_with_too_few_or_too_many_fields_is_refused(tmp_path: Path, line: str, names: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "1,2,3\n" * 10 + line + "\n" + "1,2,3\n" * 10)
    with pytest.raises(sf.errors.FileError, match=r"ragged: line 12 has \d fields, the header 3"):
        counted(File(path), names)


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n\n,\n\n1,\n")
    tuples = counted(File(path))
    assert tuples.count.tolist() == [1, 1, 1]
    path.write_text("a,b\n1,2\n\n")
    assert counted(File(path)).count.tolist() == [1]


@given(
    st.lists(st.sampled_from(["1,2", "", "a,", ",", "\r", "1,2\r", "ä,ö"]), max_size=20),
    st.sampled_from(["\n", ""]),
    st.integers(1, 12),
)
def test_lines_are_told_apart_with_and_without_quotes(
    tmp_path_factory: Any, lines: list[str], end: str, part: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "t.csv"
    path.write_bytes(("\n".join(["a,b", *lines]) + end).encode())
    text_file = File(path).text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PART", part)
        quick = text_file._blank_lines_without_quotes()
    assert quick is None or quick == text_file._blank_lines_with_quotes()


FRAME = pl.DataFrame(
    {
        "sex": ["f", "m", None, "f", "f"],
        "age": [30, 41, None, 30, -3],
        "weight": [1.5, float("nan"), None, 1.5, -0.0],
        "born": [datetime.date(1990, 1, 1), None, datetime.date(1850, 1, 1), datetime.date(1990, 1, 1), None],
        "smokes": [True, False, None, True, True],
        "group": pl.Series(["a", None, "b", "a", "b"], dtype=pl.Categorical),
        "level": pl.Series(["low", None, "high", "low", "low"], dtype=pl.Enum(["low", "high"])),
        "big": pl.Series([2**63, 1, None, 2**63, 2], dtype=pl.UInt64),
    }
)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("group_size", [1, 2, 100])
def test_a_parquet_file_gives_what_its_frame_gives(tmp_path: Path, dictionary: bool, group_size: int) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(FRAME.to_arrow(), path, use_dictionary=dictionary, row_group_size=group_size)
    frame = File(path).read()
    assert_same(counted(File(path)), counted(frame))
    assert_same(counted(File(path), ["age", "sex"]), counted(frame, ["age", "sex"]))
    assert_same(counted(File(path, na=("f", "low"))), counted(File(path, na=("f", "low")).read()))


def test_without_pyarrow_a_parquet_file_streams_through_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sf.write(FRAME, tmp_path / "t.parquet")
    expected = counted(File(tmp_path / "t.parquet"))
    monkeypatch.setattr(memory.parquet, "can_read", lambda file: False)
    assert_same(counted(File(tmp_path / "t.parquet")), expected)


def test_names_with_dots_are_columns_not_paths(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 1], "a.b": ["x", "y"], "a.b.c": ["p", "p"]})
    sf.write(frame, tmp_path / "t.parquet")
    for name in frame.columns:
        assert_same(counted(File(tmp_path / "t.parquet"), [name]), counted(frame, [name]))


def test_a_name_that_looks_like_a_pattern_is_a_name(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": ["p", "q"], "^.*$": ["x", "x"], "*": ["y", "z"]})
    for ending in ("csv", "parquet", "arrow"):
        path = tmp_path / f"t.{ending}"
        sf.write(frame, path)
        for names in (["^.*$"], ["*", "a"], ["^.*$", "*"]):
            assert_same(counted(File(path), names), counted(frame, names))
            assert_same(counted(File(path, na=("x",)), names), counted(File(path, na=("x",)).read(), names))
            assert File(path).read(names).columns == names


def test_columns_of_lists_are_refused_only_when_they_are_counted(tmp_path: Path) -> None:
    sf.write(pl.DataFrame({"a": [1, 1], "l": [[1], [2]]}), tmp_path / "t.parquet")
    assert counted(File(tmp_path / "t.parquet"), ["a"]).count.tolist() == [2]
    with pytest.raises(sf.errors.ColumnError, match="column 'l' holds list values"):
        counted(File(tmp_path / "t.parquet"), ["l"])


def test_a_parquet_file_damaged_anywhere_is_refused_or_read_right(tmp_path: Path) -> None:
    rows = 20_000
    frame = pl.DataFrame({"sex": ["f", "m"] * (rows // 2), "age": [row % 97 for row in range(rows)]})
    path = tmp_path / "t.parquet"
    sf.write(frame, path)
    whole = path.read_bytes()
    expected = counted(frame)
    chance = random.Random(0)
    for _ in range(60):
        where = chance.randrange(len(whole))
        path.write_bytes(whole[:where])  # cut off
        with pytest.raises(sf.errors.FileError, match="cannot be read as parquet"):
            counted(File(path))
    for _ in range(60):
        where = chance.randrange(4, len(whole) - 40)
        path.write_bytes(whole[:where] + b"\0" * 32 + whole[where + 32 :])  # overwritten in the middle
        try:
            tuples = counted(File(path))
        except sf.errors.FileError:
            continue
        assert tuples.count.sum() == rows  # the values may differ: without checksums no reader can tell
    path.write_bytes(whole)
    assert_same(counted(File(path)), expected)


def test_a_parquet_file_that_lost_its_middle_is_refused(tmp_path: Path) -> None:
    rows = 300_000
    ages = np.random.default_rng(0).integers(0, 10**6, rows)
    path = tmp_path / "t.parquet"
    sf.write(pl.DataFrame({"age": ages, "sex": ["f", "m"] * (rows // 2)}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3] + whole[2 * len(whole) // 3 :])
    with pytest.raises(sf.errors.FileError, match="cannot be read as parquet"):
        sf.assess(path, qi=["age"], sensitive=["sex"])


def test_progress_never_goes_back_and_ends_at_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BATCH", 100)
    frame = pl.DataFrame({"age": [row % 7 for row in range(1000)]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=100)
    for source in (frame, frame.lazy(), File(tmp_path / "t.csv"), File(tmp_path / "t.parquet")):
        shares: list[float] = []
        Memory().joint_count(sf.Table(source), ["age"], shares.append)
        assert shares
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_more_tuples_than_fit_into_memory_are_refused_before_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.engines import counter

    monkeypatch.setattr(counter, "_physical_memory", lambda: 10_000 * counter.BYTES_PER_TUPLE)
    frame = pl.DataFrame({"age": range(20_000)})
    with pytest.raises(sf.errors.InputError, match="more than 10,000 distinct combinations"):
        sf.assess(frame, qi=["age"])


@pytest.mark.parametrize(
    "content",
    ['a,b\n"1"0,5\n"1"5,5\n"2"0,5\n', 'a,b\n"ab,5\n"cd,5\n', 'a,b\n5" pipe,x\n', 'a,b\n"x"y"z",1\n', 'a,b\n"open,1\n'],
)
def test_wrong_quotes_are_refused_or_read_alike(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    answers = [_answer(lambda: counted(File(path).read())), _answer(lambda: counted(File(path)))]
    assert answers[0] == answers[1]
    assert "damaged" not in answers[0]


def _answer(count: Callable[[], Tuples]) -> str:
    try:
        tuples = count()
    except sf.errors.FileError as error:
        return str(error)
    return f"{tuples.codes.tolist()} {tuples.count.tolist()} {[one.values.to_list() for one in tuples.domains]}"


def test_lines_that_end_in_a_carriage_return_alone_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\r1,2\r3,4\r")
    with pytest.raises(sf.errors.FileError, match="end in a carriage return alone"):
        sf.read(tmp_path / "t.csv")


@pytest.mark.parametrize("added", ["\n", "\n\n\n", "y,1\n"])
def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path: Path, added: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\nx,1\nx,1\n,\n")

    def write_more(share: float) -> None:
        with path.open("a") as file:
            file.write(added)

    with pytest.raises(sf.errors.FileError, match="changed while it was read"):
        reduce(sf.Table(File(path)), ["a", "b"], progress=write_more)


def test_more_cannot_be_taken_back_than_there_is() -> None:
    counter = Counter([sf.Column(name="a")])
    counter.add([pl.Series(["x", None])])
    counter.take_back(2)
    with pytest.raises(sf.errors.InputError, match="more rows were subtracted than counted"):
        counter.tuples()


def test_what_the_callers_progress_raises_is_the_callers(tmp_path: Path) -> None:
    def stop(share: float) -> None:
        raise ValueError("enough")

    FRAME.select("sex").write_csv(tmp_path / "t.csv")
    FRAME.write_parquet(tmp_path / "t.parquet")
    for source in (FRAME, FRAME.lazy(), File(tmp_path / "t.csv"), File(tmp_path / "t.parquet")):
        with pytest.raises(ValueError, match="enough"):
            reduce(sf.Table(source), ["sex"], progress=stop)


def test_a_flipped_byte_never_leaks_an_error_of_a_library(tmp_path: Path) -> None:
    rows = 5_000
    chance = random.Random(1)
    frame = pl.DataFrame({"sex": [chance.choice("abcdefg") for _ in range(rows)], "age": range(rows)})
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(frame.to_arrow(), path, compression="none")
    whole = path.read_bytes()
    for _ in range(80):
        where = chance.randrange(4, len(whole) - 1)
        path.write_bytes(whole[:where] + bytes([whole[where] ^ (1 << chance.randrange(8))]) + whole[where + 1 :])
        try:
            counted(File(path), ["sex", "age"])
        except sf.SfumatoError:
            continue


def test_a_type_that_nobody_asks_for_does_no_harm(tmp_path: Path) -> None:
    import decimal

    import pyarrow as pa

    wide = pa.array([decimal.Decimal(1), decimal.Decimal(2)], type=pa.decimal256(60, 2))
    pyarrow.parquet.write_table(pa.table({"a": ["x", "x"], "wide": wide}), tmp_path / "t.parquet")
    table = sf.read(tmp_path / "t.parquet")
    assert sf.assess(table, qi=["a"]).k == 2
    with pytest.raises(sf.errors.ColumnError, match="column 'wide' holds object values"):
        sf.assess(table, qi=["wide"])


def test_types_are_the_same_however_a_parquet_file_is_read(tmp_path: Path) -> None:
    import pyarrow as pa

    days = pa.array([0, 86_400_000, None], type=pa.date64())
    codes = pa.array([7, 7, None]).dictionary_encode()
    pyarrow.parquet.write_table(
        pa.table({"day": days, "code": codes, "none": pa.nulls(3)}), tmp_path / "t.parquet", store_schema=True
    )
    file = File(tmp_path / "t.parquet")
    assert_same(counted(file), counted(file.read()))


def test_a_time_beyond_the_calendar_has_a_label() -> None:
    beyond = pl.DataFrame({"when": pl.Series([2**62, 0]).cast(pl.Datetime("us"))})
    assert sf.assess(beyond, qi=["when"]).witnesses["k"].labels["when"] in (str(2**62), "1970-01-01 00:00:00")
