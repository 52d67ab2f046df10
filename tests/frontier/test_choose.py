"""The choice of a protection: limits that hold for all points together, reasons in words, and commands that work."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.attacks import records_of
from sfumato.errors import FileError, OptionError
from sfumato.frontier.sweep.choose import Limits, measuring_command, recommend, release_command
from sfumato.frontier.sweep.frontier import Frontier
from sfumato.frontier.sweep.grid import Candidate, candidates_of
from sfumato.frontier.sweep.make import make
from sfumato.frontier.sweep.measure import Task
from sfumato.frontier.sweep.point import Figure, Point, with_common_spread
from sfumato.report.frontier.page import headline_of, reason_of, render_frontier
from tests.frontier.example import example
from tests.frontier.test_explore import QUICK, people, point

DATA = {"name": "people.csv", "target": "ill", "qi": ["age"], "models": ["tree"], "rows": 400, "attacks": ["loss"]}
DATA |= {"numbers": ["age"], "categories": ["smokes", "ill"], "seeds": [3, 4]}


def noisy(truth: float, points: int, seed: int) -> list[Point]:
    """Return points that all have the same advantage, measured with three seeds."""
    rng = np.random.default_rng(seed)

    def figure() -> Figure:
        return Figure(tuple(rng.normal(truth, 0.01, 3).tolist()))

    known = {"accuracy": Figure((0.8, 0.8, 0.8))}
    return [
        Point(Candidate("dp", (("epsilon", f"{n}"),)), {"membership_advantage": figure()}, known, 1.0)
        for n in range(1, points + 1)
    ]


def test_the_best_of_many_points_keeps_a_limit_as_surely_as_a_single_one() -> None:
    limits, trials = Limits(max_advantage=0.05), 100
    wrong = naive = 0
    for seed in range(trials):
        points = with_common_spread(noisy(0.0501, 30, seed))
        wrong += recommend(points, {"models": ["forest"], **DATA}, limits).point is not None
        naive += any(not limits.broken_by(point) for point in points)
    assert wrong / trials <= 0.05  # the seeds are fixed
    assert naive / trials > 0.1  # each of thirty has its own chance


def test_what_was_left_out_by_bisection_counts_too() -> None:
    points = with_common_spread(noisy(0.02, 4, 0))
    few, many = (recommend(points, {**DATA, "considered": n}, Limits(max_advantage=0.047)) for n in (4, 100_000))
    assert few.point is not None
    assert many.point is None
    more = recommend(points, {**DATA, "considered": 5}, Limits(max_advantage=0.06)).reason
    assert more.startswith("4 of 4 measured (of 5) protections keep")


def test_seeds_of_one_kind_of_protection_tell_their_spread_together() -> None:
    points = noisy(0.02, 10, 1)
    alone, together = points[0].risk["membership_advantage"], with_common_spread(points)[0].risk["membership_advantage"]
    assert together.common is not None
    assert together.common[1] == 20
    assert together.reach(tail=0.001) < alone.reach(tail=0.001)
    wild = Figure((0.0, 0.5, 1.0), common=(0.01, 20))
    assert wild.reach() > 0.5  # one that spreads more counts alone


def test_a_large_risk_without_a_limit_is_named() -> None:
    points = (point("raw", 1.0, 0.9), point("mondrian:k=5", 0.15, 0.8))
    facts = {**DATA, "models": ["forest"]}
    asked = (Limits(max_risk=0.2), Limits(max_advantage=1))
    gains, risks = (recommend(points, facts, limits).reason for limits in asked)
    assert gains.endswith("gains 0.150 over guessing, and no limit of it was asked for (--max-advantage).")
    assert "The risk to be re-identified is 1.000, and no limit of it was asked for (--max-risk)." in risks
    assert "asked for" not in recommend(points, facts, Limits(max_risk=0.2, max_advantage=0.2)).reason


def test_what_the_command_pays_for_and_the_measurement_did_not_is_said() -> None:
    points = (point("raw", 1.0, 0.9), point("dp:epsilon=1", 0.0, 0.8))
    said = render_frontier(Frontier(points, DATA, limits=Limits(max_risk=0.1)))
    assert "the command pays for them with a part of epsilon" in said
    built_in = {name: value for name, value in DATA.items() if name not in ("numbers", "categories")}
    assert "the command pays" not in render_frontier(Frontier(points, built_in, limits=Limits(max_risk=0.1)))
    assert "the command pays" not in render_frontier(Frontier(points, DATA, limits=Limits(max_risk=1)))


def test_what_to_do_is_said_if_nothing_keeps_the_limits() -> None:
    unsure = (point("dp:epsilon=1", 0.04, 0.7, spread=0.02), point("dp:epsilon=2", 0.2, 0.8))
    said = recommend(unsure, DATA, Limits(max_advantage=0.05)).reason
    assert said.endswith("dp:epsilon=1 keeps them: more seeds (--seeds) or rows make it surer.")
    said = recommend(unsure, DATA, Limits(max_advantage=0.03)).reason
    assert said.startswith("No protection keeps the limits. Closest is dp:epsilon=1: the membership advantage may be")
    assert said.endswith("Compare stronger protections (--protect), or accept a weaker limit.")
    raw_and_dp = (point("raw", 1.0, 0.9, spread=0.1), point("dp:epsilon=2", 0.2, 0.8))
    said = recommend(raw_and_dp, DATA, Limits(max_risk=0.01, max_advantage=0.01)).reason
    assert "Closest is dp:epsilon=2" in said
    assert headline_of(Frontier(raw_and_dp, DATA, limits=Limits(max_risk=0.01))) == "No protection keeps the limits."
    assert reason_of(Frontier(raw_and_dp, DATA, limits=Limits(max_risk=0.01))).startswith("Closest is dp:epsilon=2")


def test_the_reason_says_how_many_keep_the_limits_and_what_it_costs() -> None:
    reason = example().recommended.reason
    assert (
        "protections keep a re-identification risk of at most 0.09 and a membership advantage of at most 0.05" in reason
    )
    assert "without protection, 85." in reason
    assert "(at least 8" in reason


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    people().write_csv(tmp_path / "people.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        *("mondrian:k=20", "lattice:k=10", "guided:k=20", "hilbert:k=10", "microaggregate:k=10"),
        *("dp:epsilon=100", "synthetic:epsilon=100", "copula:epsilon=100", "guided:k=20+dp:epsilon=100"),
    ],
)
def test_the_command_makes_the_release_and_it_verifies(text: str, folder: Path, sfumato: Any) -> None:
    (candidate,) = candidates_of([text])
    command = release_command(candidate, DATA)
    for part in command.split(" && "):
        words = part.split(" ")
        ran = sfumato(*words[1:])
        assert ran.code == 0, ran.err
    made = Path(words[words.index("-o") + 1])
    releases = [one.parent for one in made.rglob("certificate.json")]
    assert len(releases) == 1
    assert sf.verify(releases[0]).ok
    assert made.name == str(candidate).replace(":", "-").replace("=", "").replace("+", "-").replace(",", "-")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("text", ["dp:epsilon=100", "synthetic:epsilon=100", "guided:k=20+dp:epsilon=100"])
def test_the_command_works_for_a_target_of_zero_and_one(text: str, suffix: str, folder: Path, sfumato: Any) -> None:
    rows = people().with_columns(ill=(pl.col("ill") == "yes").cast(pl.Int64))
    sf.write(rows, f"rows.{suffix}")
    found = sf.explore(f"rows.{suffix}", protections=[text], seeds=1, **QUICK)
    for part in release_command(found.points[0].candidate, found.data).split(" && "):
        ran = sfumato(*part.split(" ")[1:])
        assert ran.code == 0, ran.err


def test_the_command_leaves_out_the_identifiers_of_a_table_and_keeps_what_it_keeps(folder: Path, sfumato: Any) -> None:
    rows = people().with_columns(staff=pl.int_range(pl.len()).cast(pl.String), weight=pl.col("age") * 2)
    sf.write(rows, "staff.csv")
    table = sf.Table.of("staff.csv", qi=["age"], identifiers=["staff"], keep=["weight"])
    found = sf.explore(table, protections=["mondrian:k=20", "dp:epsilon=1000"], seeds=1, **QUICK)
    for one in found.points:
        assert sfumato(*shlex.split(release_command(one.candidate, found.data))[1:]).code == 0
    (written,) = Path("mondrian-k20").rglob("table.csv")
    assert pl.read_csv(written).columns == ["age", "smokes", "ill", "weight"]


def test_rows_of_the_same_person_are_refused_until_rows_are_the_units(folder: Path, sfumato: Any) -> None:
    people().with_columns(patient_id=pl.int_range(pl.len()) // 2).write_csv("visits.csv")
    words = ["explore", "visits.csv", "--target", "ill", "--qi", "age", "--identifiers", "patient_id"]
    words += ["--model", "tree", "--attacks", "linkage", "--seeds", "1", "--jobs", "1"]
    words += ["--protect", "mondrian:k=20", "--max-risk", "0.2"]
    refused = sfumato(*words)
    assert refused.code == 2
    assert "400 rows are of 200 people ('patient_id' repeats)" in refused.err
    found = sfumato(*words, "--rows-are-units", "--json").json
    assert "--rows-are-units" in found["points"][0]["measure"]
    assert sfumato(*shlex.split(found["recommended"]["command"])[1:]).code == 0


@pytest.mark.parametrize("text", ["mondrian:k=20", "hilbert:k=20", "guided:k=20", "lattice:k=20"])
def test_the_command_makes_the_very_rows_that_were_measured(text: str, folder: Path, sfumato: Any) -> None:
    (candidate,) = candidates_of([text])
    table = sf.Table.of(people(), target="ill", qi=["age"])
    task = Task(table, "ill", ("tree",), ())
    measured = make(task, candidate, records_of(table, "ill"), 0).rows
    assert measured is not None
    assert sfumato(*release_command(candidate, DATA).split(" ")[1:]).code == 0
    (written,) = [one for one in folder.rglob("table.csv") if one.parent != folder]
    released = pl.read_csv(written).select(measured.columns).cast(pl.String).fill_null("")
    assert released.sort(released.columns).equals((shown := measured.cast(pl.String).fill_null("")).sort(shown.columns))


@pytest.fixture
def recipes(folder: Path, sfumato: Any) -> Path:
    """Return a folder with releases of several commands, each with its recipe."""
    Path("schema.toml").write_text('[columns.smokes]\ndomain = ["no", "yes"]\n[columns.ill]\ndomain = ["no", "yes"]\n')
    for words in (
        "mask people.csv --noise age=0.1 -o mask",
        "perturb people.csv --columns smokes,ill --schema schema.toml --epsilon 4 -o perturb",
        "anonymize people.csv --qi age --k 5 -o anonymize",
        "train people.csv --target ill --model tree --epsilon 4 --schema schema.toml --numbers age -o train",
        "synthesize people.csv --target ill --method copula --epsilon 4 -n 200 --numbers age "
        "--categories smokes,ill -o synthesize",
    ):
        ran = sfumato(*words.split(" "))
        assert ran.code == 0, ran.err
    return folder


@pytest.mark.parametrize(
    ("text", "guarantee"),
    [
        ("mask/recipe.toml:scale=0.5", "none"),
        ("perturb/recipe.toml:epsilon=8", "local differential privacy, epsilon 8 for each row"),
        ("anonymize/recipe.toml:k=20", "k=20 (anonymity of the released rows)"),
        ("train/recipe.toml:epsilon=8", "differential privacy, epsilon 8 for each row"),
        ("synthesize/recipe.toml:epsilon=8", "differential privacy, epsilon 8 for each row"),
    ],
)
def test_whatever_has_a_recipe_is_a_protection(text: str, guarantee: str, recipes: Path) -> None:
    options: dict[str, Any] = {"target": "ill", "qi": ["age"], "utilities": ["tree"], "attacks": ["loss", "linkage"]}
    before = {one.parent for one in recipes.rglob("certificate.json")}
    found = sf.explore("people.csv", protections=["raw", text], seeds=1, jobs=1, **options)
    assert not found.skipped
    point = found.points[1]
    assert point.to_dict()["guarantee"] == guarantee
    assert 0 <= point.utility["accuracy"].mean <= 1
    if text.startswith("anonymize"):
        assert point.risk["re_identification"].mean <= 1 / 20
    words = shlex.split(release_command(point.candidate, found.data))
    assert words[:2] == ["python", "-c"]
    exec(words[2], {})
    (made,) = {one.parent for one in recipes.rglob("certificate.json")} - before
    assert sf.verify(made).ok
    again = found.to_dict()["points"][1]["measure"]
    assert f"--protect {text}" in again


def test_an_option_that_a_recipe_lacks_is_refused(recipes: Path) -> None:
    with pytest.raises(OptionError, match=r"has no option 'scael' \(did you mean 'scale'\?\)"):
        candidates_of(["mask/recipe.toml:scael=1"])
    with pytest.raises(FileError, match="cannot be read"):
        candidates_of(["no/recipe.toml"])


def test_a_recommended_command_names_the_private_model_that_was_measured() -> None:
    made = {
        model: release_command(Candidate("dp", (("epsilon", "1"),)), {**DATA, "models": [model]})
        for model in ("forest", "tree", "mlp", "boosting")
    }
    assert [command.split("--model ")[1].split()[0] for command in made.values()] == [
        "forest",
        "tree",
        "mlp",
        "additive",
    ]


def test_names_with_blanks_and_quotes_stay_one_word() -> None:
    hostile = {**DATA, "name": "my people's.csv", "qi": ["age; rm -rf /"]}
    for command in (
        release_command(Candidate("mondrian", (("k", "5"),)), hostile),
        measuring_command(Candidate("raw"), hostile),
    ):
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert "my people's.csv" in words
        assert "age; rm -rf /" in words


def test_markdown_escapes_what_would_be_markup() -> None:
    found = example(name="<script>alert(1)</script>|*x*.csv")
    text = found.to_markdown()
    assert "<script>" not in text.split("```")[2]
    assert text.startswith(f"# Which protection: {found.best.replace('_', '-')}")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == len(found.points) + 2
    assert len({line.count("|") for line in rows}) == 1


def test_frames_have_a_row_per_point() -> None:
    found = example()
    frame = found.to_frame()
    assert frame["name"].to_list() == [point.name for point in found.points]
    assert (frame["accuracy_low"] < frame["accuracy_high"]).all()
