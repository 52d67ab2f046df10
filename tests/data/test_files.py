"""Files are read as they are, or refused with one sentence; they are written whole or not at all."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.data.io.files import atomic_path, sweep
from sfumato.data.io.source import File

FRAME = pl.DataFrame(
    {
        "age": [30, None, 41],
        "weight": [50.5, 80.0, None],
        "zip": ["01234", "99999", None],
        "born": [datetime.date(1990, 1, 1), None, datetime.date(1979, 5, 5)],
        "said": ['a "quote", and', "two\nlines", "Zoë; <b>"],
    }
)


def read_frame(path: Path, *, na: Sequence[str] = (), **options: Any) -> pl.DataFrame:
    return File(path, na=tuple(na), **options).read()


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "feather"])
def test_what_is_written_is_read_back(tmp_path: Path, ending: str) -> None:
    sf.write(FRAME, tmp_path / f"t.{ending}")
    assert sf.read(tmp_path / f"t.{ending}").frame.equals(FRAME)
    assert [path.name for path in tmp_path.iterdir()] == [f"t.{ending}"]


def test_excel_is_read(tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in [["age", "sex"], [30, "f"], [41, None]]:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    table = sf.read(tmp_path / "t.xlsx")
    assert table.frame.rows() == [(30, "f"), (41, None)]


def test_a_number_is_written_and_read_with_all_its_digits(tmp_path: Path) -> None:
    numbers = [0.1, 1e-300, 1.7976931348623157e308, 123456789.12345679]
    sf.write(pl.DataFrame({"x": numbers}), tmp_path / "t.csv")
    assert sf.read(tmp_path / "t.csv").column("x").to_list() == numbers


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2", "-3"], pl.Int64),
        ([" 1", "2 "], pl.Int64),
        (["1.5", "2", "1e-05", "inf"], pl.Float64),
        (["2020-01-31", "1999-12-01"], pl.Date),
        (["2020-01-31 10:00:00", "1999-12-01T11:30:05.5"], pl.Datetime),
        (["01234", "1234"], pl.String),  # a code: the zero matters
        (["12E3", "1200E1"], pl.String),  # codes, not twelve thousand
        (["250.0", "250.00"], pl.String),  # two diagnoses, one number
        (["9223372036854775808", "1"], pl.String),  # would lose its last digits
        (["2020-02-30", "2020-01-01"], pl.String),  # no such day
        (["nan", "inf"], pl.String),  # words, without one number beside them
        (["1", "x"], pl.String),
        (["true", "false"], pl.String),
    ],
)
def test_a_column_has_a_type_only_if_no_value_is_lost(tmp_path: Path, values: list[str], kind: pl.DataType) -> None:
    path = text(tmp_path / "t.csv", "c,d\n" + "".join(f"{value},x\n" for value in values))
    column = read_frame(path)["c"]
    assert column.dtype == kind
    assert column.n_unique() == len(values)
    if kind == pl.String:
        assert column.to_list() == values


def test_the_whole_file_decides_a_type(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", "c,d\n" + "1,x\n" * 20_000 + "one,x\n")
    assert read_frame(path)["c"].dtype == pl.String


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found_from_the_header(tmp_path: Path, separator: str) -> None:
    path = text(tmp_path / "t.csv", f"a{separator}b\n1{separator}x\n")
    assert read_frame(path).rows() == [(1, "x")]


def test_a_byte_order_mark_and_windows_line_ends_are_no_data(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", b"\xef\xbb\xbfa,b\r\n1,x\r\n2,\r\n")
    assert read_frame(path).rows() == [(1, "x"), (2, None)]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", "a,b\n1,x\n\n2,\n3,y\n\n")
    assert read_frame(path).rows() == [(1, "x"), (2, None), (3, "y")]


def test_another_encoding_can_be_named(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", "näme,b\nZoë,x\n".encode("latin-1"))
    assert read_frame(path, encoding="latin-1").to_dicts() == [{"näme": "Zoë", "b": "x"}]
    with pytest.raises(sf.errors.FileError, match="not UTF-8 text"):
        read_frame(path, encoding="utf-8")
    with pytest.raises(sf.errors.OptionError, match="the encoding 'klingon' is unknown"):
        read_frame(path, encoding="klingon")


def test_texts_can_stand_for_a_missing_value(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", "a,b\n1,x\n?,NA\n")
    assert read_frame(path, na=["?", "NA"]).rows() == [(1, "x"), (None, None)]
    frame = pl.DataFrame({"n": [1, 2], "t": ["?", "x"], "c": pl.Series(["NA", None], dtype=pl.Categorical)})
    frame.write_parquet(tmp_path / "t.parquet")
    assert read_frame(tmp_path / "t.parquet", na=["?", "NA"]).rows() == [(1, None, None), (2, "x", None)]
    for option in ({"separator": ";"}, {"encoding": "latin-1"}):
        with pytest.raises(sf.errors.OptionError, match=r"apply to text files, and 't.parquet' is parquet"):
            read_frame(tmp_path / "t.parquet", **option)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "\n\n", "has no header line"),
        ("t.csv", "a,b,a\n1,2,3\n", "has the same name for columns 1 and"),
        ("t.csv", "a,,c\n1,2,3\n", "has no name for column 2"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "is ragged: line 3 has 3 fields, the header 2"),
        ("t.csv", "a,b\n1,2\n1\n", "is ragged: line 3 has 1 fields, the header 2"),
        ("t.csv", 'a,b\n1,"2\n', "unbalanced quotes"),
        ("t.csv", b"a,b\n1,\x81\n", "the encoding of '.*' cannot be detected"),
        ("t.csv", b"\xff\xfea\x00,\x00b", "is not utf-16 text"),
        ("t.parquet", "no parquet", "cannot be read as parquet: it is damaged or of another format"),
        ("t.arrow", "no arrow", "cannot be read as arrow: it is damaged or of another format"),
        ("t.xlsx", "no excel", "cannot be read as excel: it is damaged or of another format"),
        ("t.sav", "x", "the format of 't.sav' is unknown"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(sf.errors.FileError, match=message):
        read_frame(text(tmp_path / name, content))


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    sf.write(FRAME, tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        with pytest.raises(sf.errors.FileError, match="cannot be read as parquet"):
            read_frame(text(tmp_path / "t.parquet", whole[:length]))


def test_an_error_quotes_nothing_of_the_file(tmp_path: Path) -> None:
    for content in ('a,b\n1,"SECRET\n', "a,b\nSECRET,2,3\n", b"a,b\nSECRET,\x81\n"):
        with pytest.raises(sf.errors.FileError) as caught:
            read_frame(text(tmp_path / "t.csv", content))
        assert "SECRET" not in str(caught.value)


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="there is no file"):
        read_frame(tmp_path / "t.csv")
    with pytest.raises(sf.errors.FileError, match="is a folder"):
        read_frame(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such files")
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    for ending in ("csv", "parquet", "arrow", "xlsx"):
        pipe, device = tmp_path / f"pipe.{ending}", tmp_path / f"device.{ending}"
        os.mkfifo(pipe)
        device.symlink_to("/dev/zero")
        for path in (pipe, device):
            with pytest.raises(sf.errors.FileError, match="is not a regular file"):
                sf.read(path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = text(tmp_path / "t.txt", "old")

    def stop_half_way() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("ne")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        stop_half_way()
    assert path.read_text() == "old"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    text(tmp_path / "file", "x")
    for path in (tmp_path / "nowhere" / "t.csv", tmp_path / "file" / "t.csv"):
        with pytest.raises(sf.errors.FileError, match="cannot be written: there is no folder"):
            sf.write(FRAME, path)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(sf.errors.FileError, match=r"folder.csv' cannot be written: it is not a regular file"):
        sf.write(FRAME, tmp_path / "folder.csv")


def sheet(path: Path, rows: list[list[object]]) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_the_whole_sheet_decides_a_type(tmp_path: Path) -> None:
    rows = [["zip", "s"], *[[10001, "a"]] * 1500, *[[code, "a"] for code in ("SW1A", "EC1", "N1", "W2", "E8")]]
    assert sf.assess(sheet(tmp_path / "t.xlsx", rows), qi=["zip"]).k == 1


def test_a_sheet_needs_one_name_per_column(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="has the same name for columns 1 and"):
        read_frame(sheet(tmp_path / "t.xlsx", [["a", "a"], [1, 2]]))
    with pytest.raises(sf.errors.FileError, match="has no name for column 2"):
        read_frame(sheet(tmp_path / "t.xlsx", [["a", None, "c"], [1, 2, 3]]))
    with pytest.raises(sf.errors.FileError, match="is empty"):
        read_frame(sheet(tmp_path / "t.xlsx", []))


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_brackets_in_a_name_are_no_pattern(tmp_path: Path, ending: str) -> None:
    sf.write(pl.DataFrame({"a": [1, 2, 3]}), tmp_path / f"1.{ending}")
    sf.write(pl.DataFrame({"a": [1]}), tmp_path / f"[1].{ending}")
    assert sf.read(tmp_path / f"[1].{ending}").rows == 1


def test_a_file_of_one_column_keeps_its_missing_values(tmp_path: Path) -> None:
    sf.write(pl.DataFrame({"a": [1, None, 2]}), tmp_path / "t.csv")
    assert sf.read(tmp_path / "t.csv").column("a").to_list() == [1, None, 2]


def test_a_quoted_empty_field_is_missing(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", '"a","b"\n"1","x"\n"","y"\n')
    assert read_frame(path).rows() == [(1, "x"), (None, "y")]


def test_a_very_long_field_is_read(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", f"a,b\n{'x' * 200_000},1\ny,\n")
    assert read_frame(path)["a"].str.len_chars().to_list() == [200_000, 1]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = text(tmp_path / "t.csv", b"\xef\xbb\xbfa,b\n1,x\n")
    for encoding in ("utf-8", "utf_8", "UTF8", "utf-8-sig"):
        assert read_frame(path, encoding=encoding).columns == ["a", "b"]
    with pytest.raises(sf.errors.FileError, match="is not ascii text"):
        read_frame(path, encoding="ascii")


def test_a_link_stays_a_link_and_a_mode_is_kept(tmp_path: Path) -> None:
    real = text(tmp_path / "real.csv", "old")
    real.chmod(0o600)
    link = tmp_path / "link.csv"
    link.symlink_to(real)
    sf.write(pl.DataFrame({"a": [1]}), link)
    assert link.is_symlink()
    assert real.read_text() == "a\n1\n"
    assert real.stat().st_mode & 0o777 == 0o600


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(sf.errors.FileError, match="it is not a regular file"):
        sf.write(FRAME, tmp_path / "pipe.csv")
    with pytest.raises(sf.errors.FileError, match="cannot be written: File name too long"):
        sf.write(FRAME, tmp_path / ("x" * 300 + ".csv"))
    with pytest.raises(sf.errors.FileError, match="csv cannot hold values of these types"):
        sf.write(pl.DataFrame({"a": [[1], [2]]}), tmp_path / "t.csv")


def test_a_folder_that_may_not_be_written_to_is_told_by_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever runs the tests may be allowed everything
    with pytest.raises(sf.errors.FileError, match=r"t\.csv' cannot be written: no permission to write to the folder"):
        sf.anonymize(FRAME, "k=2", qi=["age"], to=tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys, time
from pathlib import Path
from sfumato.data.io.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text("rows of the killed")
    print(temporary, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is removed there")
def test_what_a_killed_writer_left_of_a_file_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    command = [sys.executable, "-c", WRITER, target]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second,
    ):
        assert first.stdout is not None
        assert second.stdout is not None
        killed, alive = Path(first.stdout.readline().strip()), Path(second.stdout.readline().strip())
        half = killed.stat().st_mode
        first.kill()
        first.wait()
        with atomic_path(target) as temporary:
            temporary.write_text("new")
        left = set(tmp_path.iterdir())
        second.kill()
    assert half & 0o077 == 0  # half of a release is for its owner
    assert left == {target, alive}


def test_a_temporary_file_that_is_written_anew_is_still_held(tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    with atomic_path(target) as temporary:
        sf.write(FRAME, temporary)
        sweep(target, ".csv")
        assert sf.read(temporary).rows == len(FRAME)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(sys.platform == "win32", reason="it has other permissions")
def test_a_new_file_has_the_usual_permissions_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    usual, ours, secret = tmp_path / "usual", tmp_path / "ours", tmp_path / "secret"
    usual.touch()
    for _ in range(2):
        with atomic_path(ours) as temporary:
            temporary.write_text("x")
        with atomic_path(secret, mode=0o600) as temporary:
            temporary.write_text("x")
        assert ours.stat().st_mode == usual.stat().st_mode
        assert secret.stat().st_mode & 0o777 == 0o600
        usual.chmod(0o640)
        ours.chmod(0o640)
