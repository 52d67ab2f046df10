"""What a spreadsheet would compute becomes a text, and everything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io.dialect import escape_file
from sfumato.data.io.formulas import escape_cells
from tests.conftest import Ran

SIGNS = "=+-@\t\r\n＝＋－＠"
TEXTS = st.text(st.sampled_from("'=+-@\t\r\n1.e5ab \",;"), max_size=5)


def one(text: str | None) -> str | None:
    return escape_cells(pl.DataFrame({"x": [text]}, schema={"x": pl.String}).lazy()).collect()["x"][0]


@pytest.mark.parametrize("sign", SIGNS)
def test_a_formula_gets_an_apostrophe(sign: str) -> None:
    assert one(f"{sign}cmd|' /C calc'!A0") == f"'{sign}cmd|' /C calc'!A0"
    assert one(sign) == f"'{sign}"


@pytest.mark.parametrize("text", ["-5", "+1.5", "-.5e-3", "1e9", "a=b", "well", "", "'tis", "[-5, 5]", "*", None])
def test_numbers_and_other_texts_stay(text: str | None) -> None:
    assert one(text) == text


@pytest.mark.parametrize("text", ["-5+cmd", "+1 555 0100", "--1", "-", "-inf", "1e5\n=x"[3:]])
def test_what_only_begins_like_a_number_is_escaped(text: str) -> None:
    assert one(text) == f"'{text}"


@given(texts=st.lists(TEXTS, min_size=2, max_size=8, unique=True))
def test_different_texts_stay_different(texts: list[str]) -> None:
    made = escape_cells(pl.DataFrame({"x": texts}).lazy()).collect()["x"].to_list()
    assert len(set(made)) == len(texts)
    for text, new in zip(texts, made, strict=True):
        assert new in (text, f"'{text}")


def test_only_texts_are_looked_at() -> None:
    frame = pl.DataFrame({"n": [-1, 2], "f": [-0.5, None], "c": pl.Series(["=a", "b"], dtype=pl.Categorical)})
    made = escape_cells(frame.lazy()).collect()
    assert made.select("n", "f").equals(frame.select("n", "f"))
    assert made["c"].to_list() == ["'=a", "b"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_file_is_written_again_as_it_was_but_for_its_formulas(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({"x": ["=1", "", None, 'say "a,b"', "two\nlines", "007"], "n": [-1, None, 2, 3, 4, 5]})
    plain, made = tmp_path / f"plain.{suffix}", tmp_path / f"made.{suffix}"
    sf.write(frame, plain)
    sf.write(frame, made)
    escape_file(made)
    assert made.read_bytes() == plain.read_bytes().replace(b"=1", b"'=1")
    single = tmp_path / f"single.{suffix}"
    sf.write(frame.select("x"), single)
    before = single.read_bytes()
    escape_file(single)
    assert single.read_bytes() == before.replace(b"=1", b"'=1")


def test_a_column_that_is_called_like_a_formula_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.ColumnError, match=r"the names of 1 column\(s\) begin like a formula.*rename"):
        sf.write(pl.DataFrame({"=x": [1]}), tmp_path / "t.csv", escape_formulas=True)


def test_a_file_with_types_has_no_formulas(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.OptionError, match=r"escaped only in text files, and 't.parquet' is a parquet file"):
        sf.write(pl.DataFrame({"x": [1]}), tmp_path / "t.parquet", escape_formulas=True)


PEOPLE = pl.DataFrame(
    {"job": ["=x", "=x", "@y", "@y"], "age": [-1, -1, 2, 2], "sick": ["+flu", "-5", "+flu", "-5"], "note": ["=cmd"] * 4}
)
ROLES = {"qi": ["job", "age"], "sensitive": ["sick"]}
ESCAPED = ["'=x", "'=x", "'@y", "'@y"]


def test_a_release_is_escaped_and_verified(tmp_path: Path) -> None:
    PEOPLE.write_csv(tmp_path / "people.csv")
    release = sf.anonymize(tmp_path / "people.csv", "k=2,l=2", **ROLES, keep_order=True)
    assert release.assessment.k == 2
    sf.save(release, tmp_path / "release", escape_formulas=True)
    assert sf.verify(tmp_path / "release").ok
    table = pl.read_csv(tmp_path / "release" / "table.csv", infer_schema=False)
    assert table["job"].to_list() == ESCAPED
    assert table["age"].to_list() == ["-1", "-1", "2", "2"]
    assert table["sick"].to_list() == ["'+flu", "-5"] * 2
    assert table["note"].to_list() == ["'=cmd"] * 4
    sf.save(release, tmp_path / "plain")
    assert pl.read_csv(tmp_path / "plain" / "table.csv")["job"].to_list() == PEOPLE["job"].to_list()
    written = sf.anonymize(PEOPLE, "k=2", **ROLES, keep_order=True, to=tmp_path / "out.csv", escape_formulas=True)
    assert written.table.frame["job"].to_list() == ESCAPED
    assert written.assessment.k == 2
    with pytest.raises(sf.errors.OptionError, match="escape_formulas needs an output file"):
        sf.anonymize(PEOPLE, "k=2", **ROLES, escape_formulas=True)
    with pytest.raises(sf.errors.OptionError, match=r"'table.parquet' is a parquet file"):
        sf.save(release, tmp_path / "typed", format="parquet", escape_formulas=True)


COMMANDS = [
    "anonymize people.csv --qi job,age --k 2 --keep-order --escape-formulas -o out/",
    "anonymize people.csv --qi job,age --k 2 --keep-order --escape-formulas -o out.csv",
    "mask people.csv --top age=1 --escape-formulas -o out.csv",
    "pseudonymize people.csv --columns note --key k --escape-formulas -o out.csv",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_releases_rows_has_the_switch(command: str, sfumato: Callable[..., Ran]) -> None:
    PEOPLE.write_csv("people.csv")
    assert sfumato("key", "new", "k").code == 0
    assert sfumato(*command.split()).code == 0
    out = Path("out.csv") if Path("out.csv").exists() else Path("out/table.csv")
    assert pl.read_csv(out, infer_schema=False)["job"].to_list() == ESCAPED
    assert sfumato(*command.replace("--escape-formulas ", "").replace("out", "plain").split()).code == 0
    plain = Path("plain.csv") if Path("plain.csv").exists() else Path("plain/table.csv")
    assert pl.read_csv(plain, infer_schema=False)["job"].to_list() == PEOPLE["job"].to_list()
    if out.parent.name == "out":
        assert sfumato("verify", "out").code == 0
