"""``sfumato train``: models, certificates and a report in one folder; a training that was stopped goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran

Run = Callable[..., Ran]
MODEL = ["certificate.json", "model.json", "model.safetensors", "recipe.toml"]
SCHEMA = """
[columns.age]
bounds = [18, 90]
[columns.sex]
domain = ["f", "m"]
[columns.ill]
domain = ["no", "yes"]
[columns.cost]
kind = "number"
"""
CATEGORIES = ["--categories", "sex,ill"]
TINY = ["--samples", "300", "--test-samples", "100", "--batch-size", "60", "--delta", "1e-4"]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of several tests are the same: a budget that one grants is not that of another."""
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path.with_name(f"{tmp_path.name}-home")))


@pytest.fixture
def people() -> str:
    generator = np.random.default_rng(0)
    age = generator.integers(18, 90, 500)
    ill = np.where(generator.random(500) < (age - 18) / 72, "yes", "no")
    frame = pl.DataFrame({"age": age, "sex": generator.choice(["f", "m"], 500), "ill": ill, "cost": age * 10.5})
    frame.write_csv("people.csv")
    Path("schema.toml").write_text(SCHEMA)
    return "people.csv"


def names(folder: str = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_one_epsilon_gives_one_release(sfumato: Run, people: str) -> None:
    asked = [people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato("train", *asked, "--epsilon", "2", "-o", "model", "--json")
    assert ran.code == 0, ran.err
    assert names("model") == sorted([*MODEL, "report.html"])
    assert "people.unfinished" not in names()
    (run,) = ran.json["runs"]
    assert run["epsilon"] == 2
    assert 0.3 < run["accuracy"] <= 1  # about 100 test rows, and noise
    assert run["scores"]["how"] == "noisy"
    own = Path("model.owner.json")
    assert own.stat().st_mode & 0o777 == 0o600
    assert json.loads(own.read_text())["runs"][0]["scores"]["accuracy"] > 0.5
    assert "model.owner.json: they are for you alone, do not publish them" in ran.err
    told = sfumato("verify", "model", "--json")
    assert (told.code, told.json["ok"], told.json["kind"]) == (0, True, "model")
    assert sf.learners.load_model("model").predict(pl.read_csv(people).drop("ill")).shape == (500,)


def test_kinds_and_rows_are_declared_and_the_ledger_is_named(sfumato: Run, people: str) -> None:
    asked = [people, "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4", "--epsilon", "9", "--json"]
    kinds = ["--numbers", "age,cost", "--categories", "sex", "--classes", "no,yes"]
    ran = sfumato("train", *asked, *kinds, "--rows", "400", "-o", "one")
    assert ran.code == 0, ran.err
    assert "This data has no ledger: nothing was charged." in ran.err
    assert (ran.json["rows"], ran.json["charged"], ran.json["settings"]["classes"]) == (400, False, ["no", "yes"])
    assert sfumato("budget", "grant", people, "--epsilon", "20", "--delta", "1e-4").code == 0
    ran = sfumato("train", *asked, *kinds, "-o", "two")
    assert (ran.code, ran.json["rows"], ran.json["charged"]) == (0, None, True)
    assert "The ledger of this data was charged" in ran.err
    assert '"rows": null' in Path("two/certificate.json").read_text()
    assert sfumato("verify", "two").code == 0
    ran = sfumato("train", *asked, *kinds, "--na", "55", "-o", "three")
    assert (ran.code, Path("three").exists()) == (2, False)
    assert "a budget was granted for this file, but its content now reads differently" in ran.err


def test_a_ledger_in_a_file_of_its_own_is_charged(sfumato: Run, people: str) -> None:
    assert sfumato("budget", "grant", people, "--epsilon", "10", "--delta", "1e-4", "--ledger", "own.ledger").code == 0
    asked = [people, "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4", "--epsilon", "9", "--json"]
    asked += ["--numbers", "age,cost", "--categories", "sex", "--classes", "no,yes", "--ledger"]
    ran = sfumato("train", *asked, "own.ledger", "-o", "one")
    assert (ran.code, ran.json["charged"]) == (0, True), ran.err
    shown = sfumato("budget", "show", people, "--ledger", "own.ledger", "--json").json
    assert 8 < shown["spent"]["epsilon"] <= 9
    assert "ledger" not in Path("one/recipe.toml").read_text()
    ran = sfumato("train", *asked, "own.ledger", "-o", "two")  # it does not fit any more
    assert (ran.code, Path("two").exists()) == (2, False)
    ran = sfumato("train", *asked, "nowhere.ledger", "-o", "two")
    assert (ran.code, "there is no ledger 'nowhere.ledger'" in ran.err) == (2, True)


def test_several_epsilons_give_a_folder_each_and_one_report(sfumato: Run) -> None:
    ran = sfumato("train", "adult", "--target", "income", "--model", "naive-bayes", "--epsilon", "0.5,none")
    assert ran.code == 0, ran.err
    assert names() == ["adult-naive-bayes"]
    assert names("adult-naive-bayes") == ["epsilon-0.5", "epsilon-none", "recipe.toml", "report.html", "training.json"]
    assert names("adult-naive-bayes/epsilon-0.5") == sorted({*MODEL, "report.html"})
    assert Path("adult-naive-bayes/report.html").stat().st_size < 1_000_000
    assert "no privacy" in ran.out
    assert sfumato("verify", "adult-naive-bayes/epsilon-0.5").code == 0
    told = sfumato("verify", "adult-naive-bayes/epsilon-none")
    assert told.code == 1
    assert "trained without privacy" in told.out
    told = sfumato("verify", "adult-naive-bayes")
    assert told.code == 2
    assert "epsilon-0.5, epsilon-none" in told.err


def test_the_recipe_of_a_training_trains_the_same_again(sfumato: Run) -> None:
    first = [
        "train",
        "adult",
        "--target",
        "income",
        "--model",
        "naive-bayes",
        "--epsilon",
        "1,none",
        "--samples",
        "1000",
    ]
    assert sfumato(*first, "-o", "one").code == 0
    ran = sfumato("train", "--recipe", "one/recipe.toml", "-o", "two", "--json")
    assert ran.code == 0, ran.err
    assert [run["epsilon"] for run in ran.json["runs"]] == [1.0, "inf"]
    assert ran.json["rows"] == 1000
    ran = sfumato("train", "--recipe", "one/epsilon-1/recipe.toml", "-o", "three", "--json")
    assert [run["epsilon"] for run in ran.json["runs"]] == [1.0]
    ran = sfumato("train", "--recipe", "one/recipe.toml", "--epsilon", "3", "-o", "four", "--json")
    assert [run["epsilon"] for run in ran.json["runs"]] == [3.0]  # what is said on the command line counts


@pytest.mark.parametrize("study", ["epsilon-sweep", "private-cnn"])
def test_the_published_studies_are_recipes(sfumato: Run, study: str) -> None:
    model = ["--model", "cnn", "--epochs", "1"] if study == "epsilon-sweep" else ["--epochs", "1"]
    root = [] if study == "epsilon-sweep" else ["--root", "images"]
    if root and "SFUMATO_DATA" not in os.environ:
        pytest.skip("SFUMATO_DATA does not name the folder of the full data sets")
    if root:
        root = ["--root", str(Path(os.environ["SFUMATO_DATA"], "mnist"))]
    ran = sfumato("train", "--recipe", study, *model, *root, *TINY, "-o", "study", "--json")
    assert ran.code == 0, ran.err
    assert len(ran.json["runs"]) == (4 if study == "epsilon-sweep" else 2)
    report = Path("study/report.html")
    assert report.stat().st_size < 1_000_000
    if study == "private-cnn":
        assert ran.json["runs"][0]["noise_multiplier"] == 1.2
        assert "1.16" in report.read_text()  # the loss that was printed


def test_networks_tell_every_epoch(sfumato: Run) -> None:
    ran = sfumato("train", "mnist", "--model", "cnn", "--epsilon", "3,none", "--epochs", "2", *TINY, "--json")
    assert ran.code == 0, ran.err
    lines = [line for line in ran.err.splitlines() if "epoch" in line]
    assert len(lines) == 4
    assert "loss" in lines[0]
    assert "accuracy" in lines[0]
    assert "epsilon so far at most 3" in lines[1]
    private, ordinary = ran.json["runs"]
    assert [one["epoch"] for one in private["history"]] == [1, 2]
    assert private["sampling"]["kind"] == "poisson"
    assert private["sampling"]["rate"] == pytest.approx(60 / 300)
    assert private["sampling"]["steps"] == 10
    assert private["noise_multiplier"] > 0
    assert (ordinary["epsilon"], ordinary["noise_multiplier"], ordinary["clip"]) == ("inf", 0.0, None)
    page = Path("mnist-cnn/report.html").read_text()
    assert page.count("data:image/png;base64,") >= 9
    assert len(page) < 1_000_000


def test_a_training_that_was_stopped_goes_on(sfumato: Run) -> None:
    asked = ["train", "mnist", "--model", "cnn", "--epsilon", "3,5", "--epochs", "6", *TINY, "-o", "sweep"]
    command = [sys.executable, "-m", "sfumato", *asked]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epsilon 5: epoch 2"):
                process.send_signal(signal.SIGTERM)
                break
        rest = process.stderr.read()
    assert "to continue" in rest
    assert process.returncode == 128 + signal.SIGTERM
    assert "sweep" not in names()
    kept = json.loads(Path("sweep.unfinished/epsilon-3/run.json").read_text())
    ran = sfumato(*asked, "--json")
    assert ran.code == 0, ran.err
    assert "epsilon 3" not in ran.err
    assert "epsilon 5: epoch 1," not in ran.err
    assert ran.json["runs"][0] == {**kept, "unused": []}
    assert [one["epoch"] for one in ran.json["runs"][1]["history"]] == [1, 2, 3, 4, 5, 6]
    assert names() == ["sweep"]
    assert sfumato("verify", "sweep/epsilon-5").code == 0


def test_a_granted_budget_is_charged(sfumato: Run, people: str) -> None:
    assert sfumato("budget", "grant", people, "--epsilon", "1.5", "--delta", "1e-4").code == 0
    asked = ["train", people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    assert sfumato(*asked, "--epsilon", "1", "-o", "one").code == 0
    told = sfumato("budget", "show", people, "--json")
    assert 0.9 < told.json["spent"]["epsilon"] <= 1.0
    ran = sfumato(*asked, "--epsilon", "1.4", "-o", "two")
    assert ran.code == 2
    assert "would exceed the limit" in ran.err
    assert "two" not in names()
    ran = sfumato(*asked, "--epsilon", "none", "-o", "two")
    assert ran.code == 2
    assert "leave 'none' out" in ran.err


def test_a_seed_of_the_noise_is_told_everywhere(sfumato: Run, people: str) -> None:
    asked = ["train", people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato(*asked, "--insecure-seed", "1", "-o", "one")
    assert ran.code == 0
    assert "NOT PRIVATE" in ran.out
    assert "not private" in Path("one/report.html").read_text()
    assert sfumato("verify", "one").code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "DATA is missing"),
        (["adult", "--target", "income", "--model", "logistc"], "logistc"),
        (["people.csv", "--model", "naive-bayes"], "a table needs a column to predict"),
        (["people.csv", "--target", "ill", "--identifiers", "idd"], "idd"),
        (["adult", "--identifiers", "age"], "'adult' is built in"),
        (["adult", "--target", "incom", "--model", "naive-bayes"], "did you mean 'income'"),
        (["adult", "--target", "income", "--model", "resnet18"], "no model 'resnet18' for tables"),
        (["mnist", "--model", "naive-bayes"], "no model 'naive-bayes' for images"),
        (["mnist", "--model", "cnn", "--target", "label"], "are for tables"),
        (["adult", "--target", "income", "--model", "naive-bayes", "--epsilon", "1,5;10"], "for example 1,5,10,none"),
        (["adult", "--target", "income", "--model", "naive-bayes", "--epsilon", "1,-5"], "got '-5'"),
        (["adult", "--target", "income", "--model", "naive-bayes", "--delta", "2"], "delta must be"),
        (["adult", "--target", "income", "--model", "naive-bayes", "--delta", "0.001"], "below 1 / 32,561"),
        (["adult", "--target", "income", "--model", "naive-bayes", "--epochs", "5"], "has no option 'epochs'"),
        (["adult", "--target", "age", "--model", "naive-bayes", "--regression"], "predicts classes, not numbers"),
        (["people.csv", "--target", "cost", "--model", "naive-bayes"], "the kind of column 'age' is not declared"),
        (
            ["people.csv", "--target", "cost", "--model", "naive-bayes", "--numbers", "age,cost", *CATEGORIES],
            "with a regression (--regression)",
        ),
        (["adult", "--target", "age", "--model", "naive-bayes"], "is a number, not a class"),
        (["mnst", "--model", "cnn"], "did you mean 'mnist'?"),
        (["people.csv", "--target", "ill", "--model", "naive-bayes", "--test", "nowhere.csv"], "nowhere.csv"),
        (["nowhere.csv", "--target", "ill", "--model", "naive-bayes"], "nowhere.csv"),
        (["mnist", "--model", "cnn", "--batch-size", "0"], "--batch-size must be a whole number of at least 1"),
        (["mnist", "--model", "cnn", "--epochs", "-1"], "epochs"),
        (["mnist", "--model", "cnn", "--clip", "0"], "clip"),
        (["mnist", "--model", "cnn", "--noise-multiplier", "1,x"], "numbers separated by commas"),
        (["--recipe", "nowhere.toml"], "nowhere.toml"),
        (["--recipe", "schema.toml"], "recipe"),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_sentence(sfumato: Run, people: str, arguments: list[str], said: str) -> None:
    ran = sfumato("train", *arguments, "-o", "out")
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) <= 3  # click shows how a command is used before
    assert "Traceback" not in ran.err
    assert "out" not in names()


def test_a_target_of_one_class_is_refused(sfumato: Run) -> None:
    pl.DataFrame({"age": list(range(200)), "ill": ["no"] * 200}).write_csv("healthy.csv")
    ran = sfumato("train", "healthy.csv", "--target", "ill", "--model", "naive-bayes", "--epsilon", "none")
    assert ran.code == 2
    assert "at least two classes" in ran.err


def test_missing_values_are_taken_as_unknown(sfumato: Run) -> None:
    generator = np.random.default_rng(0)
    age = [None if one < 0.2 else 20 + 60 * one for one in generator.random(400)]
    sex, ill = (
        [None if one == "-" else one for one in generator.choice(list(any_of), 400)] for any_of in ("fm-", "ny-")
    )
    pl.DataFrame({"age": age, "sex": sex, "ill": ill}).write_csv("gaps.csv")
    public = ["--bounds", "age=18,90", "--domain", "sex=f,m", "--domain", "ill=n,y", "--delta", "1e-4"]
    ran = sfumato("train", "gaps.csv", "--target", "ill", "--model", "naive-bayes", *public, "-o", "model")
    assert ran.code == 0, ran.err


def test_built_in_tables_know_their_target_and_a_model_is_chosen(sfumato: Run) -> None:
    for data, target in (("adult", "income"), ("nursery", "class")):
        ran = sfumato("train", data, "--samples", "300", "--test-samples", "100", "--epsilon", "none", "--json")
        assert ran.code == 0, ran.err
        assert (ran.json["model"], ran.json["target"]) == ("additive", target)
        assert "Training 'additive'" in ran.err


def test_identifiers_are_left_out(sfumato: Run, people: str) -> None:
    pl.read_csv(people).with_row_index("id").write_csv("ids.csv")
    asked = ["train", "ids.csv", "--schema", "schema.toml", "--bounds", "cost=0,1000", "--target", "ill"]
    asked += ["--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato(*asked, "-o", "model")
    assert ran.code == 2
    assert "the kind of column 'id' is not declared" in ran.err
    assert "--identifiers" in ran.err
    ran = sfumato(*asked, "--identifiers", "id", "-o", "model")
    assert ran.code == 0, ran.err
    assert sorted(sf.learners.load_model("model").feature_names_in_) == ["age", "cost", "sex"]
    again = sfumato("train", "--recipe", "model/recipe.toml", "-o", "again")
    assert again.code == 0, again.err
    assert sorted(sf.learners.load_model("again").feature_names_in_) == ["age", "cost", "sex"]


def test_an_existing_folder_is_never_overwritten(sfumato: Run) -> None:
    Path("model").mkdir()
    Path("model/thesis.tex").write_text("years of work")
    ran = sfumato("train", "adult", "--target", "income", "--model", "naive-bayes", "-o", "model")
    assert ran.code == 2
    assert "exists already" in ran.err
    assert names("model") == ["thesis.tex"]


def test_help_says_what_a_newcomer_needs(sfumato: Run) -> None:
    told = sfumato("train", "--help")
    assert told.code == 0
    for word in ("sfumato train mnist --model resnet18", "--epsilon", "verify", "stopped training"):
        assert word in told.out


def test_a_recipe_declares_what_was_declared_and_reads_as_was_read(sfumato: Run, people: str) -> None:
    text = Path(people).read_text().replace(",", ";").replace(";f;", ";?;")
    Path("people.csv").write_text(text)
    Path("test.csv").write_text("".join(text.splitlines(keepends=True)[:200]))
    Path("schema.toml").write_text(SCHEMA + 'role = "identifier"\n')
    asked = [people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato("train", *asked, "--separator", ";", "--na", "?", "--test", "test.csv", "-o", "one", "--json")
    assert ran.code == 0, ran.err
    again = sfumato("train", "--recipe", "one/recipe.toml", "-o", "two", "--json")
    assert again.code == 0, again.err
    assert again.json["runs"][0]["events"] == ran.json["runs"][0]["events"]  # nothing is bought
    assert "cost" not in json.dumps(json.loads(Path("two/model.json").read_text())["state"])
    assert Path("one/recipe.toml").read_text() == Path("two/recipe.toml").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "data = 5",
        "model = ['mlp']",
        "epochs = 'many'",
        "full = 'no'",
        "delta = 'x'",
        "holdout = 'x'",
        "samples = 'many'",
        "target = ['income']",
        "ordinary = 5",
        "published = {epochs = 5}",
        "published = {epochs = [{epoch = 'x'}]}",
        "published = {notes = 'text'}",
        "na = 'x'",
    ],
)
def test_a_recipe_with_another_type_is_one_sentence(sfumato: Run, line: str) -> None:
    rest = [one for one in ("data = 'adult'", "model = 'mlp'") if one.split()[0] != line.split()[0]]
    Path("bad.toml").write_text("\n".join(['command = "train"', "[train]", *rest, line]))
    ran = sfumato("train", "--recipe", "bad.toml", "-o", "out")
    assert (ran.code, names()) == (2, ["bad.toml"])
    assert f"the option '{line.split()[0]}' of the recipe 'bad.toml' has the wrong type" in ran.err


@pytest.mark.parametrize("noise", [",", "1,", "1,1", ""])
def test_a_typo_in_the_noise_is_told(sfumato: Run, noise: str) -> None:
    ran = sfumato("train", "mnist", "--model", "cnn", "--noise-multiplier", noise, *TINY, "-o", "out")
    assert ran.code == 2
    assert "commas" in ran.err or "twice" in ran.err
    assert names() == []


def test_the_password_of_a_database_is_written_nowhere() -> None:
    from sfumato.cli.commands.train import _without_password

    assert _without_password("postgresql://me:secret@host/people?password=x") == "postgresql://host/people"
    assert _without_password("a?b.csv") == "a?b.csv"


def test_models_that_together_exceed_the_budget_are_refused_before_the_first_is_charged(
    sfumato: Run, people: str
) -> None:
    assert sfumato("budget", "grant", people, "--epsilon", "1", "--delta", "1e-3").code == 0
    asked = [people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato("train", *asked, "--epsilon", "0.5,2", "-o", "models")
    assert ran.code == 2
    assert "would exceed the limit" in ran.err
    assert sfumato("budget", "show", people, "--json").json["spent"]["epsilon"] == 0


def test_classes_that_contradict_the_schema_are_refused(sfumato: Run, people: str) -> None:
    asked = [people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato("train", *asked, "--classes", "ja,nein", "-o", "model")
    assert ran.code == 2
    assert "the classes are ja, nein, but the domain of the target is no, yes" in ran.err


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_for_people(sfumato: Run, people: str) -> None:
    Path("test.csv").write_text("".join(Path(people).read_text().splitlines(keepends=True)[:50]))
    with Path("test.csv").open("a") as file:
        file.write("40,x,yes,12\n")
    asked = [people, "--schema", "schema.toml", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4"]
    ran = sfumato("train", *asked, "-o", "model", "--test", "test.csv")
    assert ran.code == 0, ran.err
    assert "Note: column 'sex': 1 values are not in its domain and count as unknown" in ran.err
    assert ".py:" not in ran.err


def test_columns_that_no_model_could_use_are_named(sfumato: Run, people: str) -> None:
    """Of 500 different notes none stands out: a count of one reaches the threshold with a chance below 1e-9."""
    pl.read_csv(people).with_columns(note=pl.format("saw {}", pl.int_range(500))).write_csv("noted.csv")
    kinds = ["--schema", "schema.toml", "--categories", "note", "--bounds", "cost=0,1000"]
    asked = ["noted.csv", *kinds, "--target", "ill", "--delta", "1e-4", "--model", "naive-bayes"]
    said = "1 of 4 columns could not be used, because no value is frequent enough to stand out from the noise: note"
    ran = sfumato("train", *asked, "-o", "text")
    assert ran.code == 0, ran.err
    assert f"\n{said}\n" in ran.out
    assert "not in its domain" not in ran.err
    assert f"{said}. Declare their values in the schema" in Path("text", "report.html").read_text()
    ran = sfumato("train", *asked, "-o", "plain", "--json")
    assert [run["unused"] for run in json.loads(ran.out)["runs"]] == [["note"]]
    assert "could not be used" not in sfumato("train", "nursery", "--model", "naive-bayes", "-o", "all").out


# --- people with several rows ---


@pytest.fixture
def visits() -> list[str]:
    """A table of people with three rows each, and options with which it is trained on."""
    generator = np.random.default_rng(0)
    age = generator.integers(18, 90, 600)
    ill = np.where(generator.random(600) < (age - 18) / 72, "yes", "no")
    pl.DataFrame({"patient_id": np.arange(600) // 3, "age": age, "ill": ill}).write_csv("visits.csv")
    kinds = ["--bounds", "age=18,90", "--classes", "no,yes"]
    return ["visits.csv", "--target", "ill", "--model", "naive-bayes", "--delta", "1e-4", *kinds]


def test_people_are_protected_and_the_release_says_so(sfumato: Run, visits: list[str]) -> None:
    asked = [*visits, "--person", "patient_id", "--rows-per-person", "2"]
    ran = sfumato("train", *asked, "--epsilon", "1,4", "-o", "models", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["unit"], ran.json["settings"]["rows_per_person"]) == ("person", 2)
    assert "repeats: people have several rows" not in ran.err
    assert json.loads(Path("models/epsilon-1/certificate.json").read_text())["unit"] == "person"
    assert sfumato("verify", "models/epsilon-1").code == 0
    again = sfumato("train", *asked, "--epsilon", "2,4", "-o", "others")
    assert "add or remove one person" in again.out
    assert "Epsilon is for people with all of their rows; at most 2 rows of each were used." in again.out
    by_recipe = sfumato("train", "--recipe", "models/epsilon-1/recipe.toml", "-o", "again", "--json")
    assert by_recipe.code == 0, by_recipe.err
    assert by_recipe.json["unit"] == "person"


def test_the_rows_of_a_person_are_bought(sfumato: Run, visits: list[str]) -> None:
    asked = [*visits, "--person", "patient_id", "--rows-per-person", "bought"]
    ran = sfumato("train", *asked, "--epsilon", "1", "-o", "model")
    assert ran.code == 0, ran.err
    assert "a tenth of it found how many rows of each are used: at most " in ran.out
    assert sfumato("verify", "model").code == 0
    again = sfumato("train", "--recipe", "model/recipe.toml", "-o", "again", "--json")
    assert again.code == 0, again.err
    assert again.json["settings"]["rows_per_person"] == "bought"
    assert again.json["runs"][0]["bought_rows_per_person"] >= 1


def test_a_budget_for_people_is_charged_and_one_for_rows_is_not(sfumato: Run, visits: list[str]) -> None:
    asked = [*visits, "--person", "patient_id", "--rows-per-person", "2", "--epsilon", "1"]
    grant = ["budget", "grant", "visits.csv", "--epsilon", "3", "--delta", "1e-4"]
    assert sfumato(*grant, "--unit", "person", "--ledger", "people.ledger").code == 0
    ran = sfumato("train", *asked, "--ledger", "people.ledger", "-o", "model", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["charged"] is True
    assert sfumato(*grant, "--ledger", "rows.ledger").code == 0
    ran = sfumato("train", *asked, "--ledger", "rows.ledger", "-o", "other")
    assert ran.code == 2
    assert "rows.ledger' is for each row, and this training protects each person" in ran.err
    ran = sfumato("train", *visits, "--numbers", "patient_id", "--ledger", "people.ledger", "-o", "other")
    assert ran.code == 2
    assert "people.ledger' is for each person, and this training protects each row" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--person", "patient_id"], "the rows of a person are not bounded"),
        (["--person", "patient_id", "--rows-per-person", "0"], "--rows-per-person"),
        (["--person", "patient_id", "--rows-per-person", "any"], "or 'bought'"),
        (["--person", "patient_id", "--rows-per-person", "bought", "--model", "mlp"], "networks do not buy the rows"),
        (["--rows-per-person", "2"], "rows_per_person needs a person column"),
        (["--person", "patient", "--rows-per-person", "2"], "there is no column 'patient'"),
        (["--person", "ill", "--rows-per-person", "2"], "'ill' says which rows are of the same person"),
    ],
)
def test_what_is_wrong_about_people_is_one_sentence(
    sfumato: Run, visits: list[str], options: list[str], message: str
) -> None:
    ran = sfumato("train", *visits, "--numbers", "patient_id", *options, "-o", "model")
    assert ran.code == 2
    assert message in ran.err
    assert names() == ["visits.csv"]
