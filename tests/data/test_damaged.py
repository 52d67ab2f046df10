"""Damaged and malicious binary files: a table or one sentence, and the command survives."""

from __future__ import annotations

import datetime
import gc
import json
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from sfumato.data.io.files import write_bytes
from sfumato.data.io.metadata_checks import claimed_rows
from sfumato.data.io.source import File
from tests.effort import effort

ROWS = 60
FRAME = pl.DataFrame(
    {
        "age": [row % 7 for row in range(ROWS)],
        "name": [f"person number {row} of many" for row in range(ROWS)],
        "born": [datetime.date(2000, 1, 1) + datetime.timedelta(days=row) for row in range(ROWS)],
        "pay": [None if row % 7 == 0 else row / 3 for row in range(ROWS)],
        "kind": pl.Series([("a", "b", "c")[row % 3] for row in range(ROWS)], dtype=pl.Categorical),
    }
)
WRITERS: dict[str, Callable[[Path], object]] = {
    "zstd.parquet": lambda path: FRAME.write_parquet(path),
    "plain.parquet": lambda path: FRAME.write_parquet(path, compression="uncompressed"),
    "arrow.parquet": lambda path: FRAME.write_parquet(path, compression="snappy", use_pyarrow=True),
    "plain.arrow": lambda path: FRAME.write_ipc(path),
    "zstd.arrow": lambda path: FRAME.write_ipc(path, compression="zstd"),
    "lz4.feather": lambda path: FRAME.write_ipc(path, compression="lz4", compat_level=pl.CompatLevel.oldest()),
    "sheet.xlsx": lambda path: _sheet(path),
    "text.csv.gz": lambda path: sf.write(FRAME, path),
    "text.csv.zst": lambda path: sf.write(FRAME, path),
    "wide.csv": lambda path: path.write_bytes(FRAME.write_csv().encode("utf-16")),
    "lines.jsonl": lambda path: sf.write(FRAME, path),
}
EACH = effort(10, 100)
EACH_TEXT = effort(5, 50)


def _sheet(path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in (FRAME.columns, *FRAME.rows()):
        book.active.append(list(row))
    book.save(path)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Cut, flip, delete or insert something, more often near the ends, where the metadata are."""
    size, changed = len(content), bytearray(content)
    at = chance.choice(
        [chance.randrange(size), chance.randrange(max(0, size - 2000), size), chance.randrange(min(size, 600))]
    )
    way = chance.randrange(6)
    if way == 0:
        return content[:at]
    if way == 1:
        changed[at] ^= 1 << chance.randrange(8)
    elif way == 2:  # a length or a number of rows, which are aligned in Arrow
        at -= at % 8
        huge = struct.pack("<q", chance.choice([-1, -2, 2**31 - 1, 2**40, 2**62, -(2**63)]))
        changed[at : at + 8] = huge[: size - at]
    elif way == 3:
        del changed[at : at + chance.randrange(1, 64)]
    elif way == 4:
        changed[at:at] = chance.randbytes(chance.randrange(1, 32))
    else:
        changed[at : at + 16] = bytes(len(changed[at : at + 16]))
    return bytes(changed)


# Every file by every command, each in the same process, so that an abort of one ends it; stderr is a real one.
COMMANDS = """
import json, sys, warnings
from sfumato.cli.main import main
warnings.simplefilter("error")
for number, path in enumerate(json.loads(sys.argv[1])):
    for command in (["assess", path, "--qi", "age,name,born,pay,kind", "--json"], ["schema", path, "--json"]):
        try:
            main(command)
        except SystemExit as end:
            print(f"#{number} {end.code}", file=sys.stderr, flush=True)
"""


def run(paths: Sequence[Path], limit: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the commands on files in a process of their own, with so many bytes of address space."""
    set_limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n" if limit else ""
    return subprocess.run(
        [sys.executable, "-c", set_limit + COMMANDS, json.dumps([str(path) for path in paths])],
        capture_output=True,
        text=True,
        errors="replace",
    )


Ends = dict[str, list[tuple[str, list[str]]]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """How each command on each file of a kind ended, whole file first, and what it had said."""
    folder, paths = tmp_path_factory.mktemp("damaged"), list[tuple[str, Path]]()
    for name, write in WRITERS.items():
        whole = folder / name
        write(whole)
        paths.append((name, whole))
        for number in range(EACH if name.endswith(("parquet", "arrow", "feather", "xlsx")) else EACH_TEXT):
            paths.append((name, folder / f"{number}-{name}"))
            paths[-1][1].write_bytes(damaged(whole.read_bytes(), random.Random(f"{name} {number}")))
    ran = run([path for _, path in paths], 2**35)
    assert ran.returncode == 0, ran.stderr[-2000:]
    ends: Ends = {name: [] for name in WRITERS}
    said: list[str] = []
    for line in ran.stderr.splitlines():
        if line.startswith("#"):
            number, code = line[1:].split()
            ends[paths[int(number)][0]].append((code, said))
            said = []
        elif not line.startswith(("Read '", "Left as text: ")):
            said.append(line)
    assert said == []
    assert sum(map(len, ends.values())) == 2 * len(paths)
    return ends


@pytest.mark.parametrize("name", WRITERS)
def test_every_damaged_file_is_a_table_or_one_sentence(name: str, ended: Ends) -> None:
    assert [code for code, _ in ended[name]][:2] == ["0", "0"]
    for code, said in ended[name]:
        assert code in ("0", "2")
        assert all(line.startswith("Error: ") for line in said), said
        assert len(said) == (code == "2")
        assert not any("unexpected" in line for line in said), said


def test_a_length_that_cannot_be_true_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    pl.DataFrame({"a": [1.5] * 100}).write_ipc(path, compression="zstd")
    content = path.read_bytes()
    length = struct.pack("<q", 800)  # of the column, before its compressed bytes
    assert content.count(length) == 1
    path.write_bytes(content.replace(length, struct.pack("<q", 2**40)))
    with pytest.raises(sf.errors.FileError, match="cannot be read as arrow: it is damaged"):
        sf.read(path).to_polars()


def test_a_file_that_claims_too_many_rows_is_refused_before_they_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [7] * 1000}).write_parquet(path)
    content = path.read_bytes()
    footer = content[-8 - struct.unpack("<I", content[-8:-4])[0] : -8]
    rows = bytes([0xD0, 0x0F])  # 1000 as Thrift writes it
    many = bytes([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40])  # 2^47
    forged = footer.replace(rows, many, 1)
    path.write_bytes(content[: -8 - len(footer)] + forged + struct.pack("<I", len(forged)) + b"PAR1")
    with pytest.raises(sf.errors.FileError, match=r"claims 140,737,488,355,328 rows in [\d,]+ bytes"):
        sf.assess(path, qi=["a"])


def test_a_table_that_no_memory_holds_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [7] * 1000, "b": ["x"] * 1000}).write_parquet(path)
    file = File(path)
    monkeypatch.setattr("sfumato.data.io.metadata_checks.memory", lambda: 24_000.0)
    assert file.read().shape == (1000, 2)  # 8 bytes of a number, 16 of a text
    monkeypatch.setattr("sfumato.data.io.metadata_checks.memory", lambda: 23_999.0)
    with pytest.raises(sf.errors.FileError, match=r"t.parquet' would take 0 GiB of memory, and this machine has 0 GiB"):
        file.read()
    assert file.read(["a"]).shape == (1000, 1)


def test_a_sheet_with_a_cell_far_out_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    import openpyxl

    path, book = tmp_path / "t.xlsx", openpyxl.Workbook()
    book.active.append(["age", "sex"])
    book.active.append([30, "f"])
    book.active.cell(20, 40).value = "note"  # people do write beside their tables
    book.save(path)
    with pytest.raises(sf.errors.FileError, match="has no name for column 3"):
        sf.read(path)
    book.active.cell(2**20, 2**14).value = 1
    book.save(path)
    with pytest.raises(sf.errors.FileError, match=r"t.xlsx' would take 1,024 GiB of memory"):
        sf.read(path)


def test_a_workbook_that_expands_without_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.xlsx"
    WRITERS["sheet.xlsx"](path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/more.xml", bytes(10**7))
    assert path.stat().st_size < 40_000
    assert len(sf.read(path).to_polars()) == ROWS
    monkeypatch.setattr("sfumato.data.io.metadata_checks.memory", lambda: 4e7)
    with pytest.raises(sf.errors.FileError, match=r"t.xlsx' would take"):
        sf.read(path)


@pytest.mark.parametrize("ending", ["csv.gz", "csv.zst", "jsonl.gz"])
def test_a_compressed_file_that_expands_without_bounds_is_refused(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / f"t.{ending}", tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    write_bytes(b"a,b\n" + b"1,2\n" * 5_000_000, path)
    assert path.stat().st_size < 40_000
    monkeypatch.setattr("sfumato.data.io.spool.memory", lambda: 3e6)
    with pytest.raises(
        sf.errors.FileError, match=r"t\..*' expands to more than 0.0 GiB, which this machine cannot hold"
    ):
        sf.read(path)
    gc.collect()
    assert list(folder.iterdir()) == []  # nothing is left of it


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_types_that_are_nested_too_deeply_are_refused(ending: str, tmp_path: Path) -> None:
    for depth, deep in ((20, False), (150, True)):
        kind: pl.DataType = pl.Int64()
        for _ in range(depth):
            kind = pl.Struct({"a": kind})
        frame, path = pl.DataFrame(schema={"x": kind}), tmp_path / f"t.{ending}"
        if ending == "parquet":
            frame.write_parquet(path)
        else:
            frame.write_ipc(path)
        with pytest.raises(sf.SfumatoError, match="it is damaged" if deep else "struct values"):
            sf.assess(path, qi=["x"])


def test_texts_of_a_parquet_file_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path, compression="uncompressed", use_pyarrow=True)
    content = path.read_bytes()
    assert b"person number 7 of" in content
    path.write_bytes(content.replace(b"person number 7 of", b"person \x90umber 7 of"))
    with pytest.raises(sf.errors.FileError, match="cannot be read as parquet"):
        sf.assess(path, qi=["name"])


@pytest.mark.parametrize("name", [name for name in WRITERS if name.endswith(("parquet", "arrow", "feather"))])
def test_a_sound_file_claims_what_it_holds(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    assert claimed_rows(path, File(path).format) == ROWS


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_constant_column_of_many_rows_is_no_bomb(ending: str, tmp_path: Path) -> None:
    import pyarrow.parquet

    frame, path = pl.select(a=pl.repeat(True, 3_000_000)), tmp_path / f"t.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(frame.to_arrow(), path)
    else:
        frame.write_ipc(path, compression="zstd")
    assert sf.assess(path, qi=["a"]).k == 3_000_000
