"""The rows of a generator in a text file: written as the original was declared to be, never by its rows."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from tests.forgery import bind, failed

SCHEMA = sf.Schema(
    [
        sf.Column(name="größe", bounds=(0, 3), kind="number", step=0.01),
        sf.Column(name="tag", kind="date"),
        sf.Column(name="jahre", bounds=(0, 99), kind="number", step=1),
        sf.Column(name="ort", domain=("=Köln", "Ulm; West", "'-x")),
    ]
)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))


def labs(path: Path, digits: int = 2) -> Path:
    """Write a German extract: semicolons, decimal commas, days first, Windows-1252."""
    lines = ["größe;tag;jahre;ort"]
    for at in range(200):
        size = f"{1 + at % 90 / 100:.{digits}f}".replace(".", ",")
        town = ("=Köln", '"Ulm; West"', "'-x")[at % 3]
        day = f"{1 + at % 28:02}.{1 + at % 12:02}.2020"
        lines.append(f"{size};{day};{at % 60 + 20};{town}")
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))
    return path


def made(path: Path, **options: Any) -> sf.Release:
    table = sf.read(path, decimal=",", dates="dmy", encoding="cp1252")
    return sf.synthesize(table, 5, schema=SCHEMA, method="independent", rows=60, delta=1e-4, ledger=False, **options)


def test_a_text_file_comes_out_as_it_was_declared_to_come_in(tmp_path: Path) -> None:
    release = made(labs(tmp_path / "labs.csv"))
    sf.save(release, tmp_path / "out")
    content = (tmp_path / "out" / "table.csv").read_bytes()
    header, *lines = content.decode("cp1252").split("\r\n")
    assert header == "größe;tag;jahre;ort"
    assert lines.pop() == ""
    assert len(lines) == 60
    for line in lines:
        size, day, years, _ = line.split(";", 3)
        assert re.fullmatch(r"(\d(,\d+)?)?", size)
        assert re.fullmatch(r"(\d\d\.\d\d\.\d{4})?", day)  # bounds with noise may be a year too wide
        assert re.fullmatch(r"\d*", years)
    assert any("," in line.split(";")[0] for line in lines)
    assert failed(tmp_path / "out") == []
    loaded = sf.load(tmp_path / "out").table.to_polars()
    assert loaded["größe"].to_list() == release.table.to_polars()["größe"].to_list()
    assert loaded["tag"].to_list() == release.table.to_polars()["tag"].to_list()


def test_how_cells_were_written_does_not_show(tmp_path: Path) -> None:
    """Two files with the same values in other spellings give the same rows, to the byte."""
    for name, digits in (("one", 2), ("two", 3)):
        (tmp_path / name).mkdir()
        sf.save(made(labs(tmp_path / name / "labs.csv", digits), insecure_seed=1), tmp_path / name / "out")
    assert len({(tmp_path / name / "out" / "table.csv").read_bytes() for name in ("one", "two")}) == 1


def test_a_forged_cell_of_such_a_file_is_found(tmp_path: Path) -> None:
    sf.save(made(labs(tmp_path / "labs.csv")), tmp_path / "out")
    path = tmp_path / "out" / "table.csv"
    lines = path.read_bytes().split(b"\r\n")
    lines[3] = b"7,77;" + lines[3].split(b";", 1)[1]
    path.write_bytes(b"\r\n".join(lines))
    bind(tmp_path / "out", "table.csv")
    assert failed(tmp_path / "out") == ["every drawn row lies in the domain of its columns"]


def test_categories_that_begin_like_a_formula_are_escaped_and_verify(tmp_path: Path) -> None:
    frame = pl.DataFrame({"sign": ["=1+1", "-", "plain", "'=1"] * 50, "day": [date(2020, 1, 2), None] * 100})
    schema = sf.Schema([sf.Column(name="sign", domain=("=1+1", "-", "plain", "'=1"))])
    # So many rows that each sign is among them: 0.8 ** 150 is 3e-15.
    release = sf.synthesize(sf.Table(frame, schema), 5, method="independent", rows=150, delta=1e-4, ledger=False)
    sf.save(release, tmp_path / "plain", format="csv")
    sf.save(release, tmp_path / "out", format="csv", escape_formulas=True)
    signs = pl.read_csv(tmp_path / "out" / "table.csv", infer_schema=False)["sign"].drop_nulls()
    assert set(signs) == {"'=1+1", "'-", "plain", "''=1"}
    for name in ("plain", "out"):
        assert failed(tmp_path / name) == []
    again = sf.load(tmp_path / "out")
    assert again.sample(5, seed=1).equals(release.sample(5, seed=1))
    text = (tmp_path / "out" / "table.csv").read_text()
    (tmp_path / "out" / "table.csv").write_text(text.replace("'=1+1", "'=1+2"))
    bind(tmp_path / "out", "table.csv")
    assert failed(tmp_path / "out") == ["every drawn row lies in the domain of its columns"]


@pytest.mark.parametrize("kind", ["number", "date"])
def test_a_column_of_a_text_file_without_a_value_is_released_and_compared(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("ward,paid\n" + "north,\nsouth,\n" * 300)
    schema = sf.Schema([sf.Column(name="ward", domain=("north", "south")), sf.Column(name="paid", kind=kind)])
    table = sf.Table.of(tmp_path / "visits.csv", schema=schema)
    # Next to no noise, so that no value is made up.
    release = sf.synthesize(table, 500, method="independent", rows=50, delta=1e-4, ledger=False)
    assert release.table.to_polars()["paid"].null_count() == 50
    sf.save(release, tmp_path / "out")
    assert failed(tmp_path / "out") == []
    assert sf.evaluate(table, sf.load(tmp_path / "out"), attacks=[]).distances.binned["paid"] == 0
