"""``sfumato synthesize``: rows, a generator and a certificate in one folder; one sentence for a mistake."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
SCHEMA = """
[columns.age]
bounds = [18, 90]
[columns.sex]
domain = ["f", "m"]
[columns.ill]
domain = ["no", "yes"]
"""
FILES = ["certificate.json", "generator.json", "generator.safetensors", "recipe.toml", "report.html"]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path.with_name(f"{tmp_path.name}-home")))


@pytest.fixture
def people(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 500)
    ill = np.where(rng.random(500) < (age - 18) / 72, "yes", "no")
    frame = pl.DataFrame({"age": age, "sex": rng.choice(["f", "m"], 500), "ill": ill})
    frame.write_csv(tmp_path / "people.csv")
    named = frame.with_columns(mail=pl.Series([f"person{at}@example.org" for at in range(500)]))
    named.write_csv(tmp_path / "named.csv")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return "people.csv"


ASK = ("--schema", "schema.toml", "--method", "independent", "-n", "40", "-o", "out")


def test_a_table_becomes_a_folder_that_verifies(sfumato: Run, people: str) -> None:
    ran = sfumato("synthesize", people, "--target", "ill", *ASK, "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["epsilon"], ran.json["delta"]) == (1.0, 1e-5)
    assert ran.json["rows"] == 40
    assert ran.json["utility"] == {}
    assert 0.99 < ran.json["spent"] <= 1
    assert sorted(one.name for one in Path("out").iterdir()) == [*FILES, "table.csv"]
    assert sfumato("verify", "out").code == 0
    drawn = pl.read_csv("out/table.csv")
    assert drawn.shape == (40, 3)
    assert set(drawn["ill"].drop_nulls()) <= {"no", "yes"}
    assert "for you alone" in ran.err
    assert "no ledger" in ran.err


def test_a_file_of_columns_is_compared_too(sfumato: Run, people: str) -> None:
    pl.read_csv(people).write_parquet("people.parquet")
    sfumato("synthesize", "people.parquet", "--epsilon", "100", *ASK)
    assert json.loads(Path("out.owner.json").read_text())["mean_of_columns"] < 1
    assert Path("out.owner.html").exists()


def test_exact_figures_are_for_the_owner_alone(sfumato: Run, people: str) -> None:
    ran = sfumato("synthesize", people, *ASK, "--insecure-seed", "1")  # by chance, a noisy figure may have its digits
    assert ran.code == 0, ran.err
    owner = Path("out.owner.json")
    assert stat.S_IMODE(owner.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path("out.owner.html").stat().st_mode) == 0o600
    exact = json.loads(owner.read_text())["mean_of_columns"]
    assert 0 <= exact <= 1
    assert f"{exact:.3f}" not in ran.out
    everything = b"".join(one.read_bytes() for one in Path("out").iterdir())
    assert repr(exact).encode() not in everything


def test_built_in_data_is_public_so_its_figures_are_shown(sfumato: Run) -> None:
    ran = sfumato("synthesize", "nursery", "--method", "independent", "-n", "300", "-o", "out", "--json")
    assert ran.code == 0, ran.err
    assert 0 < ran.json["utility"]["mean_of_columns"] < 0.3
    assert sorted(one.name for one in Path("out").iterdir()) == [*FILES, "table.parquet"]
    assert not Path("out.owner.json").exists()
    assert "Each column, real beside released" in Path("out.owner.html").read_text()
    assert "spent" in sfumato("synthesize", "nursery", "--method", "independent", "-n", "9", "-o", "two").out


def test_the_ledger_is_charged_and_refuses_what_exceeds_it(sfumato: Run, people: str) -> None:
    assert sfumato("budget", "grant", people, "--epsilon", "1.2", "--delta", "1e-5").code == 0
    ran = sfumato("synthesize", people, *ASK)
    assert ran.code == 0, ran.err
    assert "was charged" in ran.err
    spent = sf.Ledger.of(people).spent.epsilon
    assert 0.8 < spent <= 1
    refused(sfumato("synthesize", people, *ASK[:-1], "again"), "exceed")
    assert not Path("again").exists()
    assert sf.Ledger.of(people).spent.epsilon == spent


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["-n", "0"], ["-n", "of at least 1", "got 0"]),
        (["--epsilon", "0"], ["--epsilon", "above 0"]),
        (["--epsilon", "many"], ["--epsilon", "'many'"]),
        (["--delta", "0.01"], ["delta must be below 1 / 500"]),
        (["--method", "tre"], ["'tre' is unknown", "did you mean 'tree'"]),
        (["--target", "il"], ["no column 'il'", "did you mean 'ill'"]),
        (["--target", "age"], ["'age' is a number"]),
        (["--ledger", "nowhere"], ["no ledger 'nowhere'"]),
        (["--identifiers", "agee"], ["agee"]),
        (["--bounds", "age=90,18"], ["smaller number first"]),
    ],
)
def test_a_mistake_is_one_sentence(sfumato: Run, people: str, given: list[str], parts: list[str]) -> None:
    refused(sfumato("synthesize", people, *ASK, *given), *parts)
    assert not Path("out").exists()


def test_names_and_undeclared_columns_are_refused(sfumato: Run, people: str) -> None:
    kinds = ("--numbers", "age", "--categories", "sex,ill,mail")
    asked = ("--method", "independent", "-n", "20", "-o", "out")
    refused(sfumato("synthesize", "named.csv", *kinds, *asked), "'mail' cannot be made up", "e-mail", "--identifiers")
    refused(sfumato("synthesize", people, *asked), "kind of column 'age' is not declared (nor that of 2 more)")
    given = (*kinds[:-1], "sex,ill", "--identifiers", "mail")
    refused(
        sfumato("synthesize", "named.csv", *given, *asked, "--declared-only"), "bounds of column 'age' (and 2 more)"
    )
    ran = sfumato("synthesize", "named.csv", *given, *asked, "--epsilon", "30")
    assert ran.code == 0, ran.err
    assert "mail" not in pl.read_csv("out/table.csv").columns
    assert not any(b"@example" in one.read_bytes() for one in Path("out").iterdir())
    assert "bounds of age" in ran.out
    few = sfumato("synthesize", "named.csv", *given, *asked[:-1], "few", "--epsilon", "0.01", "--insecure-seed", "1")
    refused(few, "column 'age'", "epsilon 0.01 was spent")


def test_several_epsilons_are_beside_each_other_on_one_page_and_each_is_charged(sfumato: Run, people: str) -> None:
    assert sfumato("budget", "grant", people, "--epsilon", "4", "--delta", "1e-5").code == 0
    ran = sfumato("synthesize", people, *ASK, "--epsilon", "0.5,2,2", "--json")
    assert ran.code == 0, ran.err
    assert [(one["name"], one["epsilon"], one["rows"]) for one in ran.json["releases"]] == [
        ("epsilon0.5", 0.5, 40),
        ("epsilon2", 2.0, 40),
    ]
    assert sorted(one.name for one in Path("out").iterdir()) == ["epsilon0.5", "epsilon2", "report.html"]
    assert [sfumato("verify", f"out/epsilon{one}").code for one in ("0.5", "2")] == [0, 0]
    page = Path("out/report.html").read_text()
    assert 'href="epsilon0.5/report.html"' in page
    assert "2 generators of 3 columns" in page
    owner = json.loads(Path("out.owner.json").read_text())
    assert owner.keys() == {"epsilon0.5", "epsilon2"}
    assert "Each column, by its distance from the real one" in Path("out.owner.html").read_text()
    assert stat.S_IMODE(Path("out.owner.html").stat().st_mode) == 0o600
    spent = sf.Ledger.of(people).spent.epsilon
    assert 2 < spent <= 2.5
    ran = sfumato("synthesize", people, *ASK[:-1], "more", "--epsilon", "1,9")
    assert ran.code == 2
    assert "exceed" in ran.err
    assert "epsilon1 was paid for before, and is in more" in ran.err
    assert sfumato("verify", "more/epsilon1").code == 0  # what was paid for is not lost
    assert sf.Ledger.of(people).spent.epsilon > spent


def test_the_page_of_several_epsilons_has_no_exact_figure(sfumato: Run, people: str) -> None:
    """With a seed: by chance, one of the many noisy figures may begin with the same digits."""
    assert sfumato("synthesize", people, *ASK, "--epsilon", "0.5,2", "--insecure-seed", "1").code == 0
    owner, page = json.loads(Path("out.owner.json").read_text()), Path("out/report.html").read_text()
    for one in owner.values():
        assert f"{one['mean_of_columns']:.4f}" not in page


def test_columns_that_cannot_be_compared_are_named_but_not_those_that_were_left_out(sfumato: Run) -> None:
    rows = "".join(f"p{at},z{at},{20 + at % 50}\n" for at in range(1200))
    Path("people.csv").write_text("person,zip,age\n" + rows)
    options = ["--identifiers", "person", "--categories", "zip", "--numbers", "age", "--bounds", "age=0,99"]
    ran = sfumato("synthesize", "people.csv", *options, "--epsilon", "5", "-n", "50", "-o", "out", "--delta", "1e-4")
    assert ran.code == 0, ran.err
    assert "too many categories: zip\n" in ran.err
    found = json.loads(Path("out.owner.json").read_text())
    assert (found["left_out"], sorted(found["columns"])) == (["zip"], ["age"])


def test_a_small_epsilon_says_what_is_reachable(sfumato: Run, people: str) -> None:
    ran = sfumato("synthesize", people, *ASK, "--epsilon", "0.01")
    assert ran.code == 0, ran.err
    assert "the noise hides values of fewer than about" in ran.err
    assert "with 3 columns, " in ran.err  # then an epsilon for this table, or for one of 1,000 rows


def test_the_noise_of_a_seed_is_not_private(sfumato: Run, people: str) -> None:
    ran = sfumato("synthesize", people, *ASK, "--insecure-seed", "1")
    again = sfumato("synthesize", people, *ASK[:-1], "two", "--insecure-seed", "1")
    assert (ran.code, again.code) == (0, 0)
    assert "not private" in ran.err.lower()
    assert Path("out/table.csv").read_bytes() == Path("two/table.csv").read_bytes()
    assert sfumato("verify", "out").code == 1


def test_rows_meet_the_constraints_and_what_is_given(sfumato: Run, people: str, tmp_path: Path) -> None:
    whole = SCHEMA.replace("90]", "90]\nstep = 1")
    (tmp_path / "schema.toml").write_text('constraints = ["not (sex = m and ill = yes)"]\n' + whole)
    ran = sfumato("synthesize", people, *ASK, "--given", "age=40..60,sex=m", "--constraint", "age != 50")
    assert ran.code == 0, ran.err
    drawn = pl.read_csv("out/table.csv")
    assert drawn.height == 40
    assert drawn["age"].dtype == pl.Int64  # whole numbers of a text file
    assert drawn["age"].is_between(40, 60).all()
    assert not (drawn["age"] == 50).any()
    assert set(drawn["sex"]) == {"m"}
    assert set(drawn["ill"].drop_nulls()) <= {"no"}
    assert sfumato("verify", "out").code == 0


def test_a_text_file_comes_out_as_it_came_in(sfumato: Run, tmp_path: Path) -> None:
    lines = [f"{1 + at % 90 / 100:.2f};=x{at % 2}\r\n".replace(".", ",") for at in range(300)]
    (tmp_path / "labs.csv").write_text("".join(["size;sign\r\n", *lines]), newline="")
    (tmp_path / "labs.toml").write_text(
        '[columns.size]\nbounds = [0, 3]\nstep = 0.01\n[columns.sign]\ndomain = ["=x0", "=x1"]\n'
    )
    asked = ("synthesize", "labs.csv", "--schema", "labs.toml", "--decimal", ",", "--method", "independent", "-n", "30")
    refused(sfumato(*asked, "-o", "out", "--escape-formulas", "--format", "parquet"), "escaped only in text files")
    for more in ((), ("--escape-formulas",)):
        ran = sfumato(*asked, *more, "-o", "out", "--force")
        assert ran.code == 0, ran.err
        header, *rows, last = (tmp_path / "out" / "table.csv").read_bytes().decode().split("\r\n")
        assert (header, last) == ("size;sign", "")
        assert len(rows) == 30
        cells = [row.split(";") for row in rows]  # some of which are missing, as the noise has it
        assert all(re.fullmatch(r"([0-3](,\d\d?)?)?", size) for size, _ in cells)
        assert all(sign == "" or sign.startswith("'=x" if more else "=x") for _, sign in cells)
        assert any(size and sign for size, sign in cells)
        assert sfumato("verify", "out").code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--given", "sex=x"], "'x' is not a value of column 'sex'"),
        (["--given", "age=200.."], "no value of column 'age' meets 'age >= 200'"),
        (["--constraint", "sex != f", "--constraint", "sex != m"], "contradict each other"),
        (["--constraint", "age <"], "cannot be read"),
        (["--weights", "wight"], "there is no column 'wight' of weights"),
    ],
)
def test_what_no_row_can_meet_is_one_sentence(sfumato: Run, people: str, options: list[str], says: str) -> None:
    refused(sfumato("synthesize", people, *ASK, *options), says)


PERSON = ("--schema", "schema.toml", "--method", "independent", "--person", "patient", "--rows-per-person", "3")


@pytest.fixture
def visits(people: str) -> str:
    pl.read_csv(people).with_columns(patient=pl.int_range(500) // 3).write_csv("visits.csv")
    return "visits.csv"


def test_rows_of_people_say_so_everywhere(sfumato: Run, visits: str) -> None:
    ran = sfumato("synthesize", visits, *PERSON, "-n", "40", "-o", "out", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["unit"], ran.json["rows_per_person"]) == ("person", 3)
    assert {one["event"]["unit"] for one in ran.json["purchases"]} == {"person"}
    assert "repeats" not in ran.err
    assert pl.read_csv("out/table.csv").columns == ["age", "sex", "ill"]
    assert json.loads(Path("out/certificate.json").read_text())["unit"] == "person"
    page = Path("out/report.html").read_text()
    assert "one person: at most 3 rows of each were read" in page
    assert "one row: the bound is weaker" not in page
    shown = sfumato("verify", "out")
    assert shown.code == 0
    assert "add or remove one person" in shown.out


def test_the_rows_of_a_person_are_bought(sfumato: Run, visits: str) -> None:
    ran = sfumato("synthesize", visits, *PERSON[:-1], "bought", "-o", "out")
    assert ran.code == 0, ran.err
    assert sfumato("verify", "out").code == 0
    assert json.loads(Path("out/certificate.json").read_text())["parameters"]["rows_bought"] is True


def test_people_are_made_up_and_compared(sfumato: Run, visits: str) -> None:
    ran = sfumato("synthesize", visits, *PERSON, "--people", "60", "-o", "out")
    assert ran.code == 0, ran.err
    assert "rows of 60 people like those of visits.csv" in ran.out
    assert pl.read_csv("out/table.csv")["patient"].n_unique() == 60
    assert sfumato("verify", "out").code == 0
    compared = json.loads(Path("out.owner.json").read_text())
    assert compared["people"].keys() == {"counts", "same", "pairs"}
    assert compared["left_out"] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--person", "patient"], "the rows of a person are not bounded"),
        (["--person", "patient", "--rows-per-person", "bought", "--people", "3"], "are not bought where people"),
        (["--rows-per-person", "2"], "rows_per_person needs a person column"),
        (["--people", "2"], "people needs a person column"),
        (["--person", "patient", "--rows-per-person", "0"], "--rows-per-person must be"),
        (["--person", "patients", "--rows-per-person", "2"], "there is no column 'patients'"),
        (["--person", "patient", "--rows-per-person", "2", "--people", "3", "-n", "4"], "people are drawn"),
        (["--person", "patient", "--rows-per-person", "2", "--target", "patient"], "both the person and the target"),
    ],
)
def test_a_mistake_about_people_is_one_sentence(sfumato: Run, visits: str, options: list[str], says: str) -> None:
    ran = sfumato("synthesize", visits, "--schema", "schema.toml", *options, "-o", "out")
    refused(ran, says)
    assert not Path("out").exists()
