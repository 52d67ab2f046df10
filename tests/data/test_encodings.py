"""The encoding of a text file is found from its mark or its content, and never silently a wrong one."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io.encodings import find_encoding

TEXT = "name;city\n" + "Jürgen Größl;Köln\nChloé Lefèvre;Besançon – l’Isle\nNoël Müßig;Zürich €\n" * 3


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("cp1252", "cp1252"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("utf-32", "utf-32"),
    ],
)
def test_western_texts_are_read_in_the_usual_encodings(encoding: str, found: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", TEXT.encode(encoding))
    assert find_encoding(path) == found
    table = sf.read(path)
    assert table.schema.names == ("name", "city")
    assert table.column("city").to_list() == ["Köln", "Besançon – l’Isle", "Zürich €"] * 3


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp850", "name;city\nJürgen Größl;Köln\nMüller;Münster\n"),
        ("mac_roman", "name;ville\nHélène;Besançon\nNoël;Orléans\n"),
        ("cp1250", "name;city\nBłażej;Łódź\nMałgorzata;Gdańsk\nZdzisława;Wałbrzych\n"),
        ("cp1251", "name;city\nИван;Москва\n"),
        ("shift_jis", "name;city\n山田太郎;東京都\n"),
        ("gb18030", "name;city\n王小明;北京市\n"),
    ],
)
def test_other_encodings_are_refused_until_they_are_named(encoding: str, text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", text.encode(encoding))
    with pytest.raises(sf.errors.FileError, match=r"the encoding of '.*' cannot be detected"):
        sf.read(path)
    assert sf.read(path, encoding=encoding).to_polars().rows()[0] == tuple(text.splitlines()[1].split(";"))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_valid_utf8_is_utf8(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("t") / "t.csv", f"a,b\n{text}".encode())
    assert find_encoding(path) == "utf-8"


def test_a_letter_that_is_split_between_two_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.data.io.encodings._PART", 5)
    path = written(tmp_path / "t.csv", ("a;b\n" + "ä" * 9 + "aaaa" + "€" * 7).encode())
    assert find_encoding(path) == "utf-8"
    with pytest.raises(sf.errors.FileError, match=r"the encoding of '.*' cannot be detected"):
        find_encoding(written(path, path.read_bytes()[:-1]))


def test_only_the_mark_decides_if_the_rows_may_not(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", TEXT.encode("cp1252"))
    assert find_encoding(path, content=False) == "utf-8"
    assert find_encoding(written(path, codecs.BOM_UTF16_LE + b"a\0"), content=False) == "utf-16"


def test_half_a_letter_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", TEXT.encode("utf-16")[:-1])
    with pytest.raises(sf.errors.FileError, match="is not utf-16 text"):
        sf.read(path)
    with pytest.raises(sf.errors.FileError, match="is not UTF-8 text"):
        sf.read(path, encoding="utf-8")
