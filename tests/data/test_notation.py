"""Numbers and dates are read as they are written if there is one way only to read them; if not, nobody guesses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io.notation import Conventions, Notation, find_cells
from tests.conftest import Ran
from tests.hospital import extract

Run = Callable[..., Ran]
SEMICOLONS = Conventions(semicolons=True)


def read(*texts: str, **conventions: Any) -> list[Any]:
    column = pl.Series(texts)
    return find_cells(column.unique(), Conventions(**conventions)).read(column).to_list()


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["3,14", "2", "-0,5"], [3.14, 2.0, -0.5]),
        (["1,5E-3", "2,0"], [0.0015, 2.0]),
        (["1,234", "0,5"], [1.234, 0.5]),  # one value tells of all
        (["1.234,50", "7"], [1234.5, 7.0]),
        (["1.234.567", "1"], [1234567, 1]),
        (["1,234.5", "12"], [1234.5, 12.0]),
        (["1,234,567", "1,234"], [1234567, 1234]),
        (["1 234,5", "1\u202f234,6"], [1234.5, 1234.6]),
        (["1'234.50", "3"], [1234.5, 3.0]),
        (["31.12.1980", "01.02.1980"], [date(1980, 12, 31), date(1980, 2, 1)]),
        (["01.02.1980"], [date(1980, 2, 1)]),  # with points the day comes first
        (["12.31.1980"], [date(1980, 12, 31)]),
        (["1/2/1980", "13/2/1980"], [date(1980, 2, 1), date(1980, 2, 13)]),
        (["12/31/1980", "1/2/1980"], [date(1980, 12, 31), date(1980, 1, 2)]),
        (["1980/12/31"], [date(1980, 12, 31)]),
        (["31-12-1980"], [date(1980, 12, 31)]),
        (["31 Dec 1980", "1 May 1980"], [date(1980, 12, 31), date(1980, 5, 1)]),
        (["December 31, 1980"], [date(1980, 12, 31)]),
        (["22.10.2023 20:44:00"], [datetime(2023, 10, 22, 20, 44)]),
        (["22.10.2023 9:05"], [datetime(2023, 10, 22, 9, 5)]),
        (["10/22/2023 1:05 PM"], [datetime(2023, 10, 22, 13, 5)]),
        (["2023-10-22 20:44"], [datetime(2023, 10, 22, 20, 44)]),
    ],
)
def test_what_can_be_read_in_one_way_is_read(texts: list[str], values: list[Any]) -> None:
    assert read(*texts) == values


@pytest.mark.parametrize(
    ("texts", "doubt", "option"),
    [
        (["1,234", "12,345"], "numbers such as 1,234 may have decimals or thousands", "decimal"),
        (["1.234", "999"], "numbers such as 1.234 may have decimals or thousands", "decimal"),
        (["03/04/1980"], "dates such as 03/04/1980 may begin with the day or with the month", "dates"),
        (["03-04-1980 10:00"], "dates such as 03/04/1980 may begin with the day or with the month", "dates"),
        (["31.12.80"], "years of two digits may be of any century", "dates"),
    ],
)
def test_what_can_be_read_in_two_ways_stays_text_and_is_reported(texts: list[str], doubt: str, option: str) -> None:
    cells = find_cells(pl.Series(texts), SEMICOLONS)
    assert cells.read(pl.Series(texts)).to_list() == texts
    assert (cells.doubt, cells.option) == (doubt, option)


def test_a_declaration_ends_the_doubt() -> None:
    assert read("1,234", decimal=",") == [1.234]
    assert read("1,234", decimal=".") == [1234]
    assert read("1.234", decimal=",") == [1234]
    assert read("1.234", semicolons=True, decimal=".") == [1.234]
    assert read("1.5", decimal=",") == ["1.5"]
    assert read("03/04/1980", dates=("dmy",)) == [date(1980, 4, 3)]
    assert read("03/04/1980", dates=("mdy",)) == [date(1980, 3, 4)]
    assert read("31/12/1980", dates=("mdy",)) == ["31/12/1980"]
    assert read("03/04/80", dates=("ymd",)) == ["03/04/80"]  # there is no day 80
    assert read("80/04/03", dates=("ymd",)) == [date(1980, 4, 3)]
    assert read("31121980", dates=("%d%m%Y",)) == [date(1980, 12, 31)]


def test_a_year_of_two_digits_is_not_in_the_future() -> None:
    assert read("31.12.45", "01.02.05", dates=("dmy",)) == [date(1945, 12, 31), date(2005, 2, 1)]


@pytest.mark.parametrize(
    "texts",
    [
        ["030 123 456", "030 123 457"],
        ["555 123 456", "555 123 457"],  # numbers of telephones
        ["01,5", "2,5"],  # a code
        ["1,2,3"],
        ["10.0.0.1"],
        ["1.2.1980", "1.2.80"],
        ["31.12.1980", "30.02.1980"],  # no such day
        ["3,5", "3,50"],  # two texts, one number
        ["1,5", "x"],
        ["1-2-3"],
        ["E11,9", "I10"],
    ],
)
def test_what_is_not_a_number_or_a_date_stays_text_without_a_word(texts: list[str]) -> None:
    cells = find_cells(pl.Series(texts), SEMICOLONS)
    assert cells.read(pl.Series(texts)).to_list() == texts
    assert not cells.doubt


@given(st.lists(st.decimals(-(10**9), 10**9, allow_nan=False, places=2), min_size=2, unique=True))
def test_numbers_with_decimal_commas_are_the_numbers(numbers: list[Any]) -> None:
    texts = [str(number).replace(".", ",") for number in numbers]
    assert read(*texts, decimal=",") == [float(number) for number in numbers]
    found = read(*texts)
    assert found in (texts, [float(number) for number in numbers])


@given(st.lists(st.dates(date(1900, 1, 1), date(2100, 1, 1)), min_size=1), st.sampled_from("./-"))
def test_dates_are_found_or_left_alone_and_never_another_day(days: list[date], sign: str) -> None:
    for order in ("%d{}%m{}%Y", "%m{}%d{}%Y", "%Y{}%m{}%d"):
        format = order.format(sign, sign)
        texts = [day.strftime(format) for day in days]
        assert read(*texts, dates=(format,)) == days
        found = read(*texts)
        known = sign != "." or order != "%m{}%d{}%Y" or any(day.day > 12 for day in days)
        assert not known or found in (texts, days)
        if any(day.day > 12 for day in days):
            assert found == days


@given(st.lists(st.sampled_from(["3,5", "1.234,5", "31.12.1980", "1,234", "x", "", "2024-01-01", "7"]), min_size=1))
def test_each_cell_is_read_by_itself_if_the_rows_may_not_decide(texts: list[str]) -> None:
    conventions = Conventions(",", ("dmy",), inferred=False)
    alone = [conventions.normalize(pl.Series([text]))[0] for text in texts]
    assert conventions.normalize(pl.Series(texts)).to_list() == alone


def test_a_declared_notation_of_one_record_does_not_depend_on_another(tmp_path: Path) -> None:
    rows = ["sex;hba1c;born", "f;7,5;31.12.1980", "m;1.006,1;01.02.1990"]
    path = tmp_path / "t.csv"
    found = []
    for more in ("f;unknown;never", "f;3.5;1980-12-31", "f;8,1;03.04.1980"):
        path.write_text("\n".join([*rows, more, ""]))
        table = sf.read(path, decimal=",", dates="dmy").as_declared()
        found.append([[str(value) for value in table.column(name).to_list()[:2]] for name in ("hba1c", "born")])
    assert found == [[["7.5", "1006.1"], ["1980-12-31", "1990-02-01"]]] * 3


def test_a_private_answer_needs_the_decimal_comma_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sex;hba1c\n" + "f;7,5\nm;9,5\n" * 500)
    schema = sf.Schema([sf.Column(name="hba1c", bounds=(0, 20))])
    sf.Ledger.grant(path, epsilon=1000, path=tmp_path / "l.ledger").close()
    for decimal, total in ((",", 8500.0), (None, 0.0)):  # without it, each cell alone is not a number
        table = sf.read(path, decimal=decimal)
        assert table.column("hba1c").dtype == pl.Float64
        answer = sf.query(table, "sum of hba1c", epsilon=100, schema=schema, ledger=tmp_path / "l.ledger")
        assert abs(answer.rows[0].value - total) < 10  # 50 scales of the noise


def test_an_encoding_that_the_rows_decided_is_refused_for_private_answers(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("sex;town\nf;Köln\n".encode("cp1252"))
    ledger = tmp_path / "l.ledger"
    sf.Ledger.grant(path, epsilon=100, path=ledger).close()
    with pytest.raises(sf.errors.OptionError, match="cp1252, was inferred from its rows: one record could change it"):
        sf.query(path, "count", epsilon=1, ledger=ledger)
    sf.query(sf.read(path, encoding="cp1252"), "count", epsilon=1, ledger=ledger)


@pytest.mark.parametrize("language", ["de", "fr"])
def test_a_hospital_extract_means_the_same_in_every_language(language: str, tmp_path: Path) -> None:
    english, other = extract("en", people=40), extract(language, people=40)
    (tmp_path / "en.csv").write_text(english.text(), encoding="utf-8")
    (tmp_path / "other.csv").write_bytes(other.text(";").encode("cp1252"))
    expected, found = sf.read(tmp_path / "en.csv"), sf.read(tmp_path / "other.csv")
    for name in ("patient_id", "name", "birth_date", "admitted", "zip", "icd10", "hba1c", "creatinine"):
        assert found.column(other.column(name)).to_list() == expected.column(name).to_list()
    assert [column.kind for column in found.schema.columns] == [column.kind for column in expected.schema.columns]


def test_what_was_found_is_shown(sfumato: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes("Größe;Geburt;Betrag;Besuch\n1,80;31.12.1980;1,234;03/04/2020\n".encode("cp1252"))
    ran = sfumato("schema", "t.csv", "--json")
    assert ran.json["read"] == [
        {
            "file": "t.csv",
            "encoding": "cp1252",
            "separator": ";",
            "numbers": {"Größe": {"decimal": ","}},
            "dates": {"Geburt": "%d.%m.%Y"},
            "undecided": {
                "Betrag": "numbers such as 1,234 may have decimals or thousands",
                "Besuch": "dates such as 03/04/1980 may begin with the day or with the month",
            },
        }
    ]
    first, *others = ran.err.splitlines()
    assert first == "Read 't.csv' with encoding cp1252; decimal commas in Größe; dates like %d.%m.%Y in Geburt"
    assert [line.partition(",")[0] for line in others] == ["Left as text: Betrag", "Left as text: Besuch"]
    ran = sfumato("schema", "t.csv", "--decimal", ",", "--dates", "dmy", "--json")
    assert json.loads(ran.out)["columns"]["Betrag"]["kind"] == "number"
    assert json.loads(ran.out)["columns"]["Besuch"]["kind"] == "date"


@pytest.mark.parametrize("option", ["--decimal ;", "--dates german", "--dates %d.%m", "--dates %Q%d%m%Y"])
def test_a_wrong_declaration_is_refused(option: str, sfumato: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    ran = sfumato("schema", str(tmp_path / "t.csv"), *option.split())
    assert ran.code == 2
    assert option.split()[1] in ran.err


def test_what_is_written_is_what_was_read() -> None:
    for notation, texts in (
        (Notation(","), ["3,14", "-2,5"]),
        (Notation(dates="%d.%m.%Y"), ["31.12.1980"]),
        (Notation(dates="%d/%m/%Y %H:%M"), ["31/12/1980 10:05"]),
    ):
        column = pl.Series(texts)
        values = notation.moments(column) if notation.dates else notation.numbers(column, whole=False)
        assert notation.format(values).to_list() == texts


def test_what_a_budget_prints_says_nothing_of_how_the_rows_are_written(sfumato: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("Ort;Wert\nKöln;1,50\n".encode("cp1252"))
    granted = sfumato("budget", "grant", "t.csv", "--epsilon", "1", "--ledger", "t.ledger")
    assert granted.code == 0, granted.err
    shown = sfumato("budget", "show", "t.csv", "--ledger", "t.ledger", "--json")
    assert "read" not in shown.json
    assert "cp1252" not in granted.err + shown.err
