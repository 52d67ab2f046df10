"""What came in goes out: a text file that is made of another one looks like it, and means the same when it is read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from tests.conftest import Ran
from tests.hospital import LANGUAGES, extract


def through(path: Path, content: bytes, target: str = "out.csv", **options: Any) -> bytes:
    """Read a file and write it again."""
    path.write_bytes(content)
    sf.write(sf.read(path, **options), path.with_name(target))
    return path.with_name(target).read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "a;b\n3,14;1\n2,50;2\n",
        "a;b\n1.234,50;x\n7,00;y\n",
        "day,weight\n31/12/1980,1.50\n01/02/1990,2\n,10.00\n",
        "seen\tn\n22.10.2023 20:44:00\t1\n01.02.2023 09:05:30\t2\n",
        "seen,n\n2023-10-22 20:44:00,1\n2023-01-02 00:00:00,2\n",
        "seen,n\n2023-10-22T20:44:00,1\n",
        "seen|n\n10/22/2023 8:44 PM|1\n",
        "born,n\n31 Dec 1980,1\n1 May 1990,2\n",
        'a,b\n"x",1\ny,"2"\n'.replace('"', ""),
        '"a","b"\n"x","1"\n"","2"\n',
        '"a","b"\n"x",1\n"y, z",2\n',
        'a;b\n"x;y";1\n"say ""so""";2\n',
        "a,b\r\nx,1\r\n,2\r\n",
        "zip,code\n01067,1e-05\n00000,250.00\n",
        "a,b\nx,1\ny,-0.10\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_comes_out_as_it_went_in(text: str, encoding: str, tmp_path: Path) -> None:
    assert through(tmp_path / "t.csv", text.encode(encoding)) == text.encode(encoding)


def test_the_encoding_stays_if_it_is_found_again(tmp_path: Path) -> None:
    text = "Ort;Wert\nKöln;1,50\n"
    assert through(tmp_path / "t.csv", text.encode("cp1252")) == text.encode("cp1252")
    assert through(tmp_path / "t.csv", text.encode("mac_roman"), encoding="mac_roman") == text.encode()
    table = sf.read(tmp_path / "t.csv", encoding="mac_roman")
    sf.write(table, tmp_path / "o.csv.gz")
    assert gzip.decompress((tmp_path / "o.csv.gz").read_bytes()) == text.encode()
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    new = sf.read(tmp_path / "t.csv")
    label = sf.Table(new.frame.with_columns(Ort=pl.lit("≥ 5")), layout=new.layout)
    sf.write(label, tmp_path / "o.csv")  # which Windows-1252 lacks
    assert (tmp_path / "o.csv").read_bytes() == "Ort;Wert\n≥ 5;1,50\n".encode()


def test_the_ending_decides_on_the_separator_and_the_format(tmp_path: Path) -> None:
    assert through(tmp_path / "t.csv", b"a;b\n1,50;x\n", "t.tsv") == b"a\tb\n1,50\tx\n"
    assert through(tmp_path / "t.csv", b"a~b\n1.50~x\n", separator="~") == b"a,b\n1.50,x\n"
    through(tmp_path / "t.csv", b"a;b\n1,50;x\n", "t.parquet")
    assert sf.read(tmp_path / "t.parquet").frame.rows() == [(1.5, "x")]


def test_a_declared_notation_that_is_not_found_again_is_written_plainly(tmp_path: Path) -> None:
    content = b"day;n\n03/04/1980;1,234\n"
    made = through(tmp_path / "t.csv", content, decimal=",", dates="dmy")
    assert made == b"day,n\n1980-04-03,1.234\n"  # with semicolons, 1.234 might be a thousand
    assert sf.read(tmp_path / "out.csv").frame.rows() == [(date(1980, 4, 3), 1.234)]


def test_new_values_are_written_like_the_old_ones(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"day;w\n31.12.1980;1,50\n01.02.1990;2,25\n")
    table = sf.read(tmp_path / "t.csv")
    other = table.frame.with_columns(day=pl.lit(date(1999, 12, 13)), w=pl.Series([1.5, 9.75]))
    sf.write(sf.Table(other, layout=table.layout), tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_bytes() == b"day;w\n13.12.1999;1,50\n13.12.1999;9,75\n"


VALUES = st.one_of(
    st.decimals(-1000, 1000, allow_nan=False, places=2).map(lambda number: str(number).replace(".", ",")),
    st.dates(date(1900, 1, 1), date(2050, 1, 1)).map(lambda day: day.strftime("%d.%m.%Y")),
    st.text('abcä ;,"0123456789.-', max_size=5),
)


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6), st.sampled_from([";", ",", "\t"]))
def test_what_is_written_means_what_was_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], separator: str
) -> None:
    def field(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in (separator, '"')) else text

    path = tmp_path_factory.mktemp("t") / "t.csv"
    lines = [("first", "second"), *rows]
    path.write_text("".join(separator.join(map(field, line)) + "\n" for line in lines), encoding="utf-8")
    table = sf.read(path)
    sf.write(table, path.with_name("o.csv"))
    assert sf.read(path.with_name("o.csv")).frame.equals(table.frame)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_columns_of_a_release_that_stay_look_as_in_the_extract(
    language: str, sfumato: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made, separator, encoding = extract(language, people=200), ",", "utf-8"
    if language != "en":
        separator, encoding = ";", "cp1252"
    Path("in.csv").write_bytes(made.text(separator).encode(encoding))
    dropped = ",".join(made.column(name) for name in ("patient_id", "name", "email", "phone", "note", "birth_date"))
    quasi = ",".join(made.column(name) for name in ("sex", "zip"))
    roles = ["--qi", quasi, "--identifiers", dropped, "--keep", made.column("admitted")]
    ran = sfumato("anonymize", "in.csv", *roles, "--k", "5", "-o", "out.csv")
    assert ran.code == 0, ran.err
    header, *lines = Path("out.csv").read_bytes().decode(encoding).splitlines()
    names = header.split(separator)
    for name in ("admitted", "icd10", "hba1c", "creatinine"):
        place, own = names.index(made.column(name)), made.header.index(made.column(name))
        # Labels of quasi-identifiers hold no separators here, so that the fields are these.
        assert sorted(line.split(separator)[place] for line in lines) == sorted(row[own] for row in made.rows)


def test_formulas_are_escaped_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a;n\r\n=1+1;-3,50\r\nx;2,00\r\n")
    sf.write(sf.read(tmp_path / "t.csv"), tmp_path / "o.csv", escape_formulas=True)
    assert (tmp_path / "o.csv").read_bytes() == b"a;n\r\n'=1+1;-3,50\r\nx;2,00\r\n"
