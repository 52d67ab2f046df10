"""Pseudonyms and back: the file comes out byte for byte as it went in, whatever its dialect."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.pseudonyms.pseudonymize import replace_identifiers
from tests.conftest import Ran
from tests.effort import effort
from tests.hospital import LANGUAGES, extract

KEY = sf.Key(b"0123456789abcdef0123456789abcdef")
METHOD = sf.pseudonyms.EncryptedTokens(KEY)


def there_and_back(path: Path, columns: list[str], encoding: str | None = None, **options: Any) -> bytes:
    """Replace identifiers and restore them; the encoding is given on the way back, where nothing may be left of it."""
    there, back = path.with_name(f"there-{path.name}"), path.with_name(f"back-{path.name}")
    for source, target, is_back in ((path, there, False), (there, back, True)):
        table = sf.read(source, encoding=encoding if is_back else None, **options)
        (done,) = replace_identifiers([("", table)], METHOD, columns, back=is_back)
        done.write(target)
    tokens, original = sf.read(there, **options), sf.read(path, **options)
    for column in columns:
        assert not set(tokens.column(column).drop_nulls()) & set(original.column(column).drop_nulls().cast(str))
    return back.read_bytes()


CELLS = st.text("abcäöé .,;\t|\"'0123456789=\n", max_size=8)
IDENTIFIERS = st.one_of(st.text("abcxyzÄß 0123456789-,;|", min_size=1, max_size=6), st.just(""))


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, str, str | None]:
    """Draw a file in some dialect, with identifiers in its second column, its separator, and an unmarked encoding."""
    separator, line_end = draw(st.sampled_from(",;\t|")), draw(st.sampled_from(["\n", "\r\n"]))
    rows = draw(st.lists(st.tuples(CELLS, IDENTIFIERS, CELLS), min_size=1, max_size=8))
    always = draw(st.booleans())

    def field(text: str) -> str:
        needed = any(sign in text for sign in (separator, '"', "\r", "\n"))
        return '"' + text.replace('"', '""') + '"' if always or needed or (text and draw(st.booleans())) else text

    lines = [separator.join(("first", "person", "last")), *(separator.join(map(field, row)) for row in rows)]
    text = line_end.join(lines) + (line_end if draw(st.booleans()) else "")
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-be"]))
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    return (mark + text).encode(encoding), separator, encoding if encoding == "cp1252" else None


@settings(max_examples=effort(30, 300), deadline=None)
@given(files())
def test_reversing_restores_every_byte_in_every_dialect(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[bytes, str, str | None]
) -> None:
    content, separator, encoding = drawn
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_bytes(content)
    try:
        sf.read(path, separator=separator)
    except sf.errors.FileError:
        return  # such as a byte that no encoding has: then nothing is written
    assert there_and_back(path, ["person"], encoding, separator=separator) == content


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_hospital_extract_is_restored_byte_for_byte(
    language: str, sfumato: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = extract(language, people=60, visits=3)
    content = made.text(",").encode() if language == "en" else made.text(";").replace("\n", "\r\n").encode("cp1252")
    Path("in.csv").write_bytes(content)
    columns = ",".join(made.column(name) for name in ("patient_id", "name", "email", "phone", "zip", "birth_date"))
    sfumato("key", "new", "k.key")
    options = ["--columns", columns, "--method", "encrypted", "--key", "k.key"]
    assert sfumato("pseudonymize", "in.csv", *options, "-o", "there.csv").code == 0
    assert sfumato("pseudonymize", "there.csv", *options, "--reverse", "-o", "back.csv").code == 0
    there = Path("there.csv").read_bytes()
    assert Path("back.csv").read_bytes() == content
    notes = made.header.index(made.column("note"))
    for row in made.rows:
        assert row[0].encode() not in there
        assert row[notes].encode("utf-8" if language == "en" else "cp1252") in there  # what is not named stays


@pytest.mark.parametrize(
    "text",
    [
        "id,x\n 7 ,1.50\n8,2\n 7,007\n",  # blanks around a number
        "id,x\n\n1,2\n\n\n3,4",  # blank lines, and none at the end
        "id\n7\n\n8\n",
        'id,x\n"7",1\n8,"2"\n,3\n"",4\n',
        "id;x\n31.12.1980;3,14\n01.02.1990;2,50\n",  # a date as an identifier
        "id;x\n1.234.567;3,14\n7;2,50\n",
        "id,x\n007,2024-01-01 10:00:00\n7,2024-01-01 10:00:00.5\n",
    ],
)
def test_small_files_are_restored_byte_for_byte(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert there_and_back(path, ["id"]) == text.encode()


def test_marks_of_missing_values_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"id\tx\n7\t?\nNA\t1\n")
    assert there_and_back(path, ["id"], na=["NA", "?"]) == path.read_bytes()


def test_a_number_that_is_written_with_decimals_joins_with_one_that_is_not(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,x\n7.0,1\n,2\n")
    assert there_and_back(path, ["id"]) == b"id,x\n7,1\n,2\n"


def test_a_compressed_file_comes_out_compressed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress("id;x\nJürgen;1,5\n".encode("cp1252")))
    assert gzip.decompress(there_and_back(path, ["id"], "cp1252")) == "id;x\nJürgen;1,5\n".encode("cp1252")


def test_other_formats_are_written_from_the_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id;x\n7;1,50\n")
    (done,) = replace_identifiers([("", sf.read(path))], METHOD, ["id"])
    done.write(tmp_path / "t.parquet")
    assert sf.read(tmp_path / "t.parquet").column("x").to_list() == [1.5]
