"""``sfumato mask``: what is written, what is printed, and one sentence for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
TABLE = (
    "name,age,income,sex,born\nAda,30,100,f,1990-01-01\nBea,99,250,m,1921-01-01\nCem,12,300,f,2008-01-01\nDag,,400,m,\n"
)


@pytest.fixture
def mask(sfumato: Run) -> Run:
    Path("t.csv").write_text(TABLE)
    return lambda *arguments: sfumato("mask", "t.csv", *arguments)


def test_every_method_can_be_asked_for(mask: Run) -> None:
    ran = mask(
        "--top", "age=90", "--bottom", "age=18", "--noise", "income=0.1", "--swap", "income=50", "--pram", "sex=0.8",
        "--top", "born=2000-01-01", "--seed", "3", "-o", "out.csv", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "out.csv" in ran.err
    told = ran.json
    assert told["rows"] == 4
    assert told["guarantees"] == []
    assert "no guarantee" in told["note"]
    assert told["seeded"] is True
    assert told["methods"] == [
        {"method": "post-randomisation", "columns": ["sex"], "keep": 0.8},
        {"method": "rank swapping", "columns": ["income"], "percent": 50.0},
        {"method": "noise", "columns": ["income"], "scale": 0.1},
        {"method": "top and bottom coding", "columns": ["age"], "low": 18, "high": 90},
        {"method": "top and bottom coding", "columns": ["born"], "high": "2000-01-01"},
    ]
    out = pl.read_csv("out.csv", try_parse_dates=True)
    assert out["age"].to_list() == [30, 90, 18, None]
    assert out["income"].dtype == pl.Int64
    assert out["name"].to_list() == ["Ada", "Bea", "Cem", "Dag"]
    assert str(out["born"].max()) == "2000-01-01"
    methods = [sf.masking.Pram("sex", 0.8), sf.masking.RankSwap("income", 50), sf.masking.NoiseAddition("income", 0.1)]
    same = sf.mask("t.csv", methods, seed=3).table.frame
    assert same["income"].to_list() == out["income"].to_list()


def test_without_json_a_person_can_read_it(mask: Run) -> None:
    ran = mask("--top", "age=90", "-o", "out.csv")
    assert ran.code == 0
    assert "top and bottom coding: high 90" in ran.out
    assert "no guarantee" in ran.out


def test_a_name_may_hold_an_equals_sign(sfumato: Run) -> None:
    Path("t.csv").write_text("a=b\n1\n5\n")
    assert sfumato("mask", "t.csv", "--top", "a=b=3", "-o", "out.csv").code == 0
    assert pl.read_csv("out.csv")["a=b"].to_list() == [1, 3]


def test_the_input_is_never_written_over(mask: Run) -> None:
    for name in ("t.csv", "./t.csv"):
        refused(mask("--top", "age=90", "-o", name), "is read and cannot be written too")
    assert Path("t.csv").read_text() == TABLE


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ([], ["no mask is given", "--top"]),
        (["--top", "age"], ["--top must look like age=90, got 'age'"]),
        (["--top", "=3"], ["--top must look like age=90, got '=3'"]),
        (["--top", "age=old"], ["the bound of column 'age' must be a whole number in its range, got 'old'"]),
        (["--top", "aeg=3"], ["there is no column 'aeg'", "did you mean 'age'"]),
        (["--top", "age=3", "--bottom", "age=9"], ["the lower bound of column 'age' is above its upper bound"]),
        (["--noise", "age=much"], ["--noise must look like age=0.1, got 'age=much'"]),
        (["--noise", "age=-1"], ["the scale of noise must be a finite number of at least 0, got -1"]),
        (["--noise", "sex=1"], ["column 'sex' does not hold numbers"]),
        (["--swap", "age=101"], ["from 0 to 100, got 101"]),
        (["--pram", "sex=2"], ["from 0 to 1, got 2"]),
        (["--pram", "sex=0.5", "--seed", "-1"], ["'--seed'"]),
        (["--pram", "sex=0.5", "--seed", "x"], ["'--seed'"]),
        (["--pram", "sex=0.5", "-o", "out.xls"], ["Sfumato reads .xls files but does not write them", "out.xlsx"]),
        (["--pram", "sex=0.5", "-o", "no/such/out.csv"], ["no/such"]),
    ],
)
def test_bad_input_gets_one_sentence(mask: Run, options: list[str], parts: list[str]) -> None:
    refused(mask(*options, *([] if "-o" in options else ["-o", "out.csv"])), *parts)
    assert [path.name for path in Path().iterdir()] == ["t.csv"]


def test_no_output(mask: Run) -> None:
    refused(mask("--top", "age=90"), "'-o'")


def test_a_missing_file(sfumato: Run) -> None:
    refused(sfumato("mask", "nowhere.csv", "--top", "age=90", "-o", "out.csv"), "there is no file 'nowhere.csv'")


def test_a_folder_is_a_release_that_can_be_verified(sfumato: Run) -> None:
    rows = "".join(f"{20 + i % 40},{'fm'[i % 2]}\n" for i in range(200))
    Path("people.csv").write_text("age,sex\n" + rows)
    ran = sfumato("mask", "people.csv", "--noise", "age=0.1", "-o", "masked")
    assert ran.code == 0, ran.err
    told = sfumato("verify", "masked")
    assert told.code == 0, told.out
    assert "nothing is guaranteed: mask promises nothing" in told.out
    ran = sfumato("perturb", "people.csv", "--columns", "sex", "--domain", "sex=f,m", "--epsilon", "1", "-o", "local")
    assert ran.code == 0, ran.err
    assert sfumato("verify", "local").code == 0
    refused(sfumato("mask", "people.csv", "--noise", "age=0.1", "-o", "masked"), "masked", "--force")


def test_a_column_that_looks_identifying_is_released_in_a_folder_only_on_purpose(mask: Run, sfumato: Run) -> None:
    masks = ("--top", "age=90", "-o", "masked")
    refused(mask(*masks), "'name'", "--keep")
    assert mask(*masks, "--keep", "name,income,born").code == 0
    assert sfumato("verify", "masked").code == 0
