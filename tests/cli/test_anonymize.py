"""``sfumato anonymize``: the release, what is printed, and one sentence for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
TABLE = """name,age,zip,sex,disease
Ada,30,1,f,flu
Bea,31,1,f,ulcer
Cem,41,2,m,flu
Dag,45,2,m,cancer
Eva,,3,f,flu
Fee,52,3,f,ulcer
"""
ROLES = ["--qi", "age,zip,sex", "--sensitive", "disease", "--identifiers", "name"]


@pytest.fixture
def anonymize(sfumato: Run) -> Run:
    Path("t.csv").write_text(TABLE)
    return lambda *arguments: sfumato("anonymize", "t.csv", *arguments)


@pytest.mark.parametrize("method", ["mondrian", "hilbert", "rplus", "lattice", "microaggregate"])
def test_the_json_has_what_other_tools_rely_on(anonymize: Run, method: str) -> None:
    ran = anonymize(*ROLES, "--k", "2", "--l", "2", "--method", method, "-o", "out.csv", "--json")
    assert ran.code == 0, ran.err
    told = ran.json
    assert {"assessment", "loss", "method", "seconds"} <= set(told)
    assert told["method"] == method
    assert told["seconds"] > 0
    keys = {
        "rows", "classes", "k", "alpha", "l", "entropy_l", "recursive_c", "recursive_l", "t", "basic_beta",
        "enhanced_beta", "delta_disclosure", "risk", "by_sensitive", "witnesses", "satisfied",
    }  # fmt: skip
    assert keys <= set(told["assessment"])
    assert told["assessment"]["satisfied"] is True
    assert told["assessment"]["k"] >= 2
    assert told["assessment"]["l"] >= 2
    assert {"gcp", "discernibility", "average_class", "suppressed"} <= set(told["loss"])
    assert 0 <= told["loss"]["gcp"] <= 1
    assert "name" not in pl.read_csv("out.csv").columns
    assert "out.csv" in ran.err


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "arrow"])
@pytest.mark.parametrize("how", ["interval", "level", "median", "mean", "medoid", "lattice", "suppress"])
def test_what_is_written_is_assessed_to_the_same_numbers(anonymize: Run, sfumato: Run, suffix: str, how: str) -> None:
    out = f"out.{suffix}"
    alone = how in ("lattice", "suppress")
    options = ["--method", how, "--suppress", "0.7"] if alone else ["--representative", how]
    told = anonymize(*ROLES, "--k", "2", *options, "-o", out, "--json").json["assessment"]
    assert sf.read(out).rows == 6
    again = sfumato("assess", out, "--qi", "age,zip,sex", "--sensitive", "disease", "--require", "k=2", "--json")
    assert again.code == 0
    for key in ("rows", "suppressed", "classes", "k", "l", "alpha", "entropy_l", "t", "basic_beta", "risk"):
        assert again.json[key] == told[key], key


def test_without_json_a_person_can_read_it(anonymize: Run) -> None:
    ran = anonymize(*ROLES, "--k", "2", "--method", "lattice", "--suppress", "0.4", "-o", "out.csv")
    assert ran.code == 0
    for part in ("information lost", "levels", "lattice"):
        assert part in ran.out


def test_every_guarantee_can_be_asked_for(anonymize: Run) -> None:
    asked = {
        "--alpha": "1", "--l": "1", "--entropy-l": "1", "--t": "1", "--beta": "9", "--enhanced-beta": "inf",
        "--delta-disclosure": "9", "--recursive": "9,1",
    }  # fmt: skip
    options = [part for pair in asked.items() for part in pair]
    ran = anonymize(*ROLES, "--k", "6", *options, "-o", "out.csv", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["assessment"]["satisfied"] is True


def test_a_schema_says_the_roles(anonymize: Run, sfumato: Run) -> None:
    column = sf.Column(name="age", role="quasi", hierarchy=sf.Hierarchy.intervals(widths=[20], bounds=(20, 60)))
    schema = sf.Schema([column, sf.Column(name="name", role="identifier")])
    sf.Table(sf.read("t.csv").frame, schema).schema.save("schema.toml")
    ran = anonymize("--schema", "schema.toml", "--k", "1", "--representative", "level", "-o", "out.csv")
    assert ran.code == 0, ran.err
    ran = anonymize(
        "--schema", "schema.toml", "--k", "2", "--method", "lattice", "--suppress", "0.5", "--force", "-o", "out.csv"
    )
    assert ran.code == 0, ran.err
    assert set(pl.read_csv("out.csv")["age"]) <= {"20-39", "40-60", "(missing)", "*"}


def test_the_levels_of_the_lattice_can_be_chosen(anonymize: Run) -> None:
    lattice = [
        "--qi",
        "zip,sex",
        "--identifiers",
        "name",
        "--keep",
        "age",
        "--k",
        "2",
        "--method",
        "lattice",
        "--suppress",
        "1",
    ]
    ran = anonymize(*lattice, "--level", "zip=0", "--level", "sex=1", "--json", "-o", "out.csv")
    assert ran.json["details"]["levels"] == {"zip": 0, "sex": 1}
    for wrong, message in (
        (["--level", "zip=0"], "the level of column 'sex' is missing"),
        (["--level", "zip=0", "--level", "zip=1"], "--level names a column twice"),
        (["--level", "zip"], "--level must look like age=2, got 'zip'"),
    ):
        refused = anonymize(*lattice, *wrong, "--force", "-o", "out.csv")
        assert refused.code == 2
        assert message in refused.err
    refused = anonymize("--qi", "zip", "--identifiers", "name", "--k", "2", "--level", "zip=0", "-o", "out.csv")
    assert "--level is for the method lattice" in refused.err


def test_cells_can_be_suppressed(anonymize: Run) -> None:
    options = ["--qi", "age,sex", "--identifiers", "name", "--k", "2", "--method", "suppress", "-o", "out.csv"]
    ran = anonymize(*options)
    assert ran.code == 0, ran.err
    assert "cells suppressed           50.00 %" in ran.out
    assert pl.read_csv("out.csv")["age"].to_list() == ["*"] * 6
    refused(anonymize(*options, "--representative", "mean"), "--representative is not for suppress")
    strict = ["--qi", "age", "--identifiers", "name", "--k", "2", "--method", "suppress", "-o", "none.csv"]
    refused(anonymize(*strict), "with at most 0 of the rows suppressed as a whole", "(suppress=1 would do)")
    assert not Path("none.csv").exists()


def test_averages_can_be_published(anonymize: Run) -> None:
    ran = anonymize("--qi", "zip", "--identifiers", "name", "--k", "3", "--method", "microaggregate", "-o", "out.csv")
    assert ran.code == 0, ran.err
    assert pl.read_csv("out.csv")["zip"].dtype == pl.Int64
    assert anonymize(*ROLES, "--k", "2", "--method", "hilbert", "--representative", "mean", "-o", "o.csv").code == 0


def test_relaxed_is_for_mondrian(anonymize: Run) -> None:
    assert anonymize(*ROLES, "--k", "2", "--relaxed", "-o", "out.csv").code == 0
    refused(anonymize(*ROLES, "--k", "2", "--relaxed", "--method", "rplus", "-o", "out.csv"), "--relaxed is for Mond")


def test_an_existing_release_is_replaced_only_when_all_went_well(anonymize: Run) -> None:
    Path("out.csv").write_text("the old one")
    refused(anonymize(*ROLES, "--k", "7", "--force", "-o", "out.csv"), "no grouping keeps k=7", "k = 6")
    assert Path("out.csv").read_text() == "the old one"
    assert anonymize(*ROLES, "--k", "2", "--force", "-o", "out.csv").code == 0
    assert sf.read("out.csv").rows == 6
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "t.csv"]


def test_a_folder_that_is_missing_is_told_before_the_table_is_read(sfumato: Run) -> None:
    refused(sfumato("anonymize", "absent.csv", "--qi", "a", "--k", "2", "-o", "no/out.csv"), "there is no folder 'no'")


def test_the_input_is_never_written_over(anonymize: Run) -> None:
    for name in ("t.csv", "./t.csv"):
        refused(anonymize(*ROLES, "--k", "2", "-o", name), "is read and cannot be written too")
    assert Path("t.csv").read_text() == TABLE


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--k", "7"], ["no grouping keeps k=7", "k = 6", "ask for less"]),
        (["--k", "7", "--method", "lattice"], ["keeps k=7 (k is 6)"]),
        (["--k", "7", "--method", "lattice", "--suppress", "1"], ["keeps k=7 (k is 6)"]),
        (["--k", "2", "--l", "4"], ["no grouping keeps l=4", "l = 3"]),
        (["--k", "2", "--l", "4", "--method", "hilbert"], ["no grouping keeps l=4", "l = 3"]),
        (["--k", "2", "--sensitive", "sex"], ["column 'sex' cannot be both quasi and sensitive"]),
        (["--k", "2", "--qi", "aeg"], ["there is no column 'aeg'", "did you mean 'age'"]),
        ([], ["--k is missing"]),
        (["--k", "0"], ["k must be a whole number of at least 1, got 0"]),
        (["--k", "two"], ["the guarantee 'k' needs a number, got 'two'"]),
        (["--k", "2", "--t", "3"], ["t must be a number from 0 to 1, got 3"]),
        (["--k", "2", "--recursive", "3"], ["--recursive needs two numbers, got '3'"]),
        (["--k", "2", "--recursive", "3,x"], ["recursive_l' needs a number, got 'x'"]),
        (["--k", "2", "--recursive", "3,2,1"], ["--recursive needs two numbers, got '3,2,1'"]),
        (["--k", "2", "--recursive", "2,3"], ["recursive_c=2,recursive_l=3", "recursive_c = 3"]),
        (["--k", "2,l=2"], ["the guarantee 'k' needs a number, got 'l=2'"]),
        (["--k", "2", "--delta-disclosure", "0"], ["delta_disclosure = 0, and it must be less"]),
        (["--k", "2", "-o", "."], ["'.' exists already"]),
        (["--k", "2", "--suppress", "0.1"], ["--suppress is for the methods lattice and suppress"]),
        (
            ["--k", "2", "--suppress", "1.1", "--method", "lattice"],
            ["must be a number from 0 to 1, got 1.1"],
        ),
        (["--k", "2", "--suppress", "x", "--method", "lattice"], ["--suppress must be a number from 0 to 1, got 'x'"]),
        (
            ["--k", "2", "--representative", "median", "--method", "lattice"],
            ["--representative is not for lattice"],
        ),
        (["--k", "2", "--representative", "mode"], ["'--representative'", "'mode'"]),
        (["--k", "2", "--method", "magic"], ["'--method'", "'magic'"]),
        (["--k", "2", "-o", "out.xls"], ["Sfumato reads .xls files but does not write them", "out.xlsx"]),
        (["--k", "2", "-o", "out.sas"], ["the format of 'out.sas' is unknown"]),
        (["--k", "2", "-o", "no/such/folder/out.csv"], ["no/such/folder"]),
        (["--k", "2", "--schema", "nowhere.toml"], ["the schema 'nowhere.toml' cannot be read"]),
    ],
)
def test_bad_input_gets_one_sentence(anonymize: Run, options: list[str], parts: list[str]) -> None:
    out = [] if "-o" in options else ["-o", "out.csv"]
    refused(anonymize(*ROLES, *options, *out), *parts)
    assert [path.name for path in Path().iterdir()] == ["t.csv"]


def test_no_quasi_identifier(anonymize: Run) -> None:
    refused(anonymize("--k", "2", "-o", "out.csv"), "no quasi-identifier is named", "--qi")


def test_no_sensitive_attribute(anonymize: Run) -> None:
    refused(
        anonymize("--qi", "age", "--identifiers", "name", "--k", "2", "--l", "2", "-o", "out.csv"),
        "l needs a sensitive attribute",
    )


def test_no_output(anonymize: Run) -> None:
    refused(anonymize(*ROLES, "--k", "2"), "'-o'")


def test_a_missing_file(sfumato: Run) -> None:
    refused(sfumato("anonymize", "nowhere.csv", *ROLES, "--k", "2", "-o", "out.csv"), "there is no file 'nowhere.csv'")


def test_an_empty_table(sfumato: Run) -> None:
    Path("empty.csv").write_text("age,zip\n")
    refused(sfumato("anonymize", "empty.csv", "--qi", "age", "--k", "1", "-o", "out.csv"), "the table has no rows")


def test_a_hierarchy_that_misses_a_value(anonymize: Run) -> None:
    tree = sf.Hierarchy.tree([("f", "*"), ("x", "*")])
    named = [sf.Column(name="sex", role="quasi", hierarchy=tree), sf.Column(name="name", role="identifier")]
    sf.Table(sf.read("t.csv").frame, sf.Schema(named)).schema.save("s.toml")
    for method in ("mondrian", "lattice"):
        refused(
            anonymize("--schema", "s.toml", "--k", "2", "--method", method, "-o", "out.csv"),
            "column 'sex': the hierarchy does not cover a value: 1 of 2 distinct values",
        )


def test_a_built_in_table(sfumato: Run) -> None:
    ran = sfumato("anonymize", "nursery", "--qi", "parents,children", "--k", "50", "-o", "out.parquet", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["assessment"]["k"] >= 50


GUIDED = ["--qi", "age,zip", "--identifiers", "name", "--target", "sex", "--k", "2", "--method", "guided"]


def test_the_target_guides(anonymize: Run) -> None:
    ran = anonymize(*GUIDED, "-o", "out.csv", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["method"] == "guided"
    assert ran.json["details"]["agreement"] == 1.0
    assert ran.json["parameters"]["output"] == "median"
    assert pl.read_csv("out.csv")["zip"].dtype == pl.Int64, "numbers stay numbers"
    shown = anonymize(*GUIDED, "-o", "again.csv")
    assert "labels predicted by class  100.0 %" in shown.out


def test_the_summary_says_what_held_out_labels_chose(anonymize: Run) -> None:
    rows = [f"n{i},{20 + i % 60},{i % 7},{'fm'[i % 60 > 30]},flu" for i in range(240)]
    Path("t.csv").write_text("name,age,zip,sex,disease\n" + "\n".join(rows) + "\n")
    ran = anonymize(*GUIDED, "-o", "out.csv")
    assert ran.code == 0, ran.err
    assert "partition                  neighbours: predictions explain 100.0 % of held-out labels" in ran.out


def test_a_model_guides_and_the_recipe_does_it_again(anonymize: Run, sfumato: Run) -> None:
    rows = [f"{name},{20 + i},{i % 3},{'fm'[i % 2]},flu" for i, name in enumerate("abcdefghijklmnopqrst")]
    Path("t.csv").write_text("name,age,zip,sex,disease\n" + "\n".join(rows) + "\n")
    ran = anonymize(*GUIDED, "--model", "tree", "-o", "out")
    assert ran.code == 0, ran.err
    again = sfumato("anonymize", "t.csv", "--recipe", "out/recipe.toml", "-o", "again")
    assert again.code == 0, again.err
    made, remade = (Path(folder, "table.csv").read_text().splitlines() for folder in ("out", "again"))
    assert sorted(made) == sorted(remade)
    assert sfumato("verify", "out").code == 0


def test_columns_that_the_guiding_model_cannot_use_are_named(anonymize: Run) -> None:
    rows = [f"{name},{20 + i},{i % 3},{'fm'[i % 2]},flu" for i, name in enumerate("abcdefghijklmnopqrst")]
    Path("t.csv").write_text("name,age,zip,sex,disease\n" + "\n".join(rows) + "\n")
    Path("s.toml").write_text('[columns.disease]\nkind = "text"\n')
    options = [*GUIDED, "--model", "tree", "--schema", "s.toml", "--keep", "disease"]
    ran = anonymize(*options, "-o", "out.csv")
    assert ran.code == 0, ran.err
    assert "1 of 3 columns could not be used, because of free text: disease" in ran.out
    assert anonymize(*options, "-o", "again.csv", "--json").json["details"]["unused"] == ["disease"]


def test_guided_without_a_target_is_refused(anonymize: Run) -> None:
    ran = anonymize("--qi", "age,zip", "--identifiers", "name", "--k", "2", "--method", "guided", "-o", "out.csv")
    refused(ran, "the method guided needs a target", "--target")
