"""What exists already is not replaced unasked, and what cannot be written where it should be is refused at once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.proposal import round_bounds, to_commented_toml
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
PEOPLE = pl.DataFrame({"id": range(40), "age": [20 + row % 4 for row in range(40)], "sex": ["f", "m"] * 20})
OUTPUTS = {
    "schema people.csv -o": "schema.toml",
    "assess people.csv --qi age --identifiers id --report": "page.html",
    "anonymize people.csv --qi age,sex --identifiers id --k 4 -o": "release.csv",
    "anonymize people.csv --qi age --identifiers id --k 4 -o": "release",
    "pseudonymize people.csv --columns id --key a.key -o": "tokens.csv",
    "mask people.csv --top age=22 -o": "masked.csv",
    "perturb people.csv --columns sex --domain sex=f,m --epsilon 1 -o": "perturbed.csv",
    "budget export people.csv -o": "ledger.json",
    "train people.csv --model naive-bayes --target sex --categories sex --domain sex=f,m --numbers age,id "
    "--bounds age=0,99 --bounds id=0,99 --rows 40 -o": "models",
}


@pytest.fixture
def people(sfumato: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    PEOPLE.write_csv("people.csv")
    sf.Key.new("a.key")
    return lambda command: sfumato(*shlex.split(command))


@pytest.mark.parametrize(("command", "output"), OUTPUTS.items(), ids=[one.split()[0] for one in OUTPUTS])
def test_an_output_is_replaced_only_by_force(people: Run, command: str, output: str) -> None:
    if command.startswith("budget"):
        assert people("budget grant people.csv --epsilon 1").code == 0
    assert people(f"{command} {output}").code == 0
    path = Path(output)
    before = path.stat().st_mtime_ns, sorted(path.rglob("*"))
    refused(people(f"{command} {output}"), f"'{output}' exists already", "--force")
    assert (path.stat().st_mtime_ns, sorted(path.rglob("*"))) == before
    assert people(f"{command} {output} --force").code == 0
    assert path.stat().st_mtime_ns > before[0]
    assert not [one for one in Path().iterdir() if one.name.startswith(".")]


def test_a_folder_that_is_not_a_release_is_never_replaced(people: Run) -> None:
    Path("mine").mkdir()
    Path("mine", "notes.txt").write_text("mine")
    command = "anonymize people.csv --qi age --identifiers id --k 4 -o mine --force"
    refused(people(command), "'mine' exists already, and is not a release")
    assert people("anonymize people.csv --qi age --identifiers id --k 4 -o mine/release").code == 0
    refused(people(command), "'mine' exists already, and is not a release")  # though a release is in it
    Path("mine", "release", "notes.txt").write_text("mine")
    refused(people(command.replace("-o mine", "-o mine/release")), "is not a release")
    assert Path("mine", "notes.txt").read_text() == Path("mine", "release", "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "command",
    [
        "schema people.csv -o -",
        "assess people.csv --qi age --report -",
        "train people.csv --model naive-bayes --target sex -o -",
        "demo -o -",
        "key new -",
    ],
)
def test_what_is_not_a_table_does_not_go_to_stdout(people: Run, command: str) -> None:
    ran = people(command)
    refused(ran)
    assert "'-' is stdout" in ran.err or "does not write to the standard output" in ran.err
    assert not Path("-").exists()


def test_a_page_is_html(people: Run) -> None:
    refused(people("assess people.csv --qi age --report page.pdf"), "'page.pdf' is written as html")
    assert not Path("page.pdf").exists()


def test_two_files_do_not_fit_into_one(people: Run) -> None:
    PEOPLE.write_csv("more.csv")
    refused(
        people("pseudonymize people.csv more.csv --columns id --key a.key -o both.csv"),
        "2 files do not fit into 'both.csv'",
    )
    assert not Path("both.csv").exists()


# --- the proposed schema -----------------------------------------------------------------------


def test_a_proposed_schema_declares_nothing_of_the_values(people: Run) -> None:
    assert people("schema people.csv -o schema.toml").code == 0
    assert sf.Schema.load("schema.toml") == sf.Schema.suggest("people.csv")
    text = Path("schema.toml").read_text()
    assert "# bounds = [20, 23]" in text
    assert '# domain = ["f", "m"]' in text
    assert text.count("makes it public") == 2  # an identifier gets nothing
    Path("confirmed.toml").write_text(re.sub("^# (bounds|domain)", r"\1", text, flags=re.MULTILINE))
    confirmed = sf.Schema.load("confirmed.toml")
    assert confirmed["age"].bounds == (20, 23)
    assert confirmed["sex"].domain == ("f", "m")


def test_values_of_every_kind_are_proposed_as_toml_can_hold_them() -> None:
    frame = pl.DataFrame(
        {
            "text": ['a "quoted"\nline', "b\\"],
            "flag": [True, False],
            "code": [7, 9],
            "gap": [None, float("nan")],
            "day": pl.Series(["2020-01-01", "2021-01-01"]).str.to_date(),
            "many": ["x", "y"],
        }
    )
    columns = [sf.Column(name=name, kind="category" if name == "code" else "auto") for name in frame.columns]
    columns[-1] = sf.Column(name="many", domain=["x", "y", "z"])
    text = to_commented_toml(sf.Schema(columns), sf.Table(frame))
    confirmed = sf.Schema.from_toml(re.sub("^# (bounds|domain)", r"\1", text, flags=re.MULTILINE))
    domains = {column.name: column.domain for column in confirmed.columns}
    assert domains == {
        "text": ('a "quoted"\nline', "b\\"),
        "flag": (False, True),
        "code": (7, 9),
        "gap": None,
        "day": None,
        "many": ("x", "y", "z"),
    }


@given(st.floats(-1e12, 1e12, allow_subnormal=False), st.floats(-1e12, 1e12, allow_subnormal=False))
def test_round_bounds_hold_both_numbers_and_are_round(one: float, other: float) -> None:
    low, high = sorted([one, other])
    first, last = round_bounds(low, high)
    assert first <= low
    assert last >= high
    assert last > first
    if high - low > 1e-6 * max(1.0, abs(low), abs(high)):
        assert last - first <= 12 * (high - low)
