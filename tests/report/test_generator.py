"""The page of a generator shows its price and its rows; that of an evaluation is for the owner, without a record."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.frontier import Evaluation
from sfumato.report.charts.pair_map import pair_map
from sfumato.report.evaluation.page import render_evaluation
from sfumato.report.generator.page import page_of, relations

RARE = "Xanten"


def people(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age, city = rng.integers(18, 90, rows), rng.choice(["Bonn", "Oslo & Bergen", "Rome"], rows)
    ill = np.where(rng.random(rows) < 0.8, age > 60, rng.random(rows) < 0.5)
    frame = pl.DataFrame({"age": age, "city": city, "ill": ill, "<b>": rng.choice(["x", "y"], rows)})
    return frame.with_columns(ill=pl.col("ill").cast(pl.String))


def schema(*, age: bool = True) -> sf.Schema:
    return sf.Schema(
        [
            sf.Column(name="age", kind="number", bounds=(0, 120) if age else None),
            sf.Column(name="city", kind="category", domain=("Bonn", "Oslo & Bergen", "Rome")),
            sf.Column(name="ill", kind="category", domain=("false", "true")),
            sf.Column(name="<b>", kind="category", domain=("x", "y")),
        ]
    )


def generator(**options: object) -> sf.Release:
    chosen = {"epsilon": 1, "method": "independent", "schema": schema(), "rows": 500, "seed": 0, **options}
    return sf.synthesize(people(2000, 0), ledger=False, **chosen)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def release() -> sf.Release:
    return generator(schema=schema(age=False))


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    ours = people(2000, 0)
    ours = ours.with_columns(city=pl.Series([RARE] * 3 + ours["city"].to_list()[3:]))
    made = people(1000, 1).with_columns(city=pl.Series(["Atlantis"] * 200 + people(1000, 1)["city"].to_list()[200:]))
    return sf.evaluate(
        ours,
        made,
        test=people(500, 2),
        target="ill",
        models=["tree"],
        attacks=["distance-to-closest-record", "shadow"],
        repeats=2,
    )


def texts(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_every_purchase_is_on_the_page_with_its_share_and_its_noise(release: sf.Release) -> None:
    page = page_of(release, name="made").html
    said = texts(page)
    assert "500 synthetic rows at epsilon 1 and delta 1e-05" in said
    assert len(release.plan.purchases) >= 2
    for one in release.plan.purchases:
        assert f"{one.name} " in said
        assert str(one.event) in said
        assert f'style="width:{100 * one.share:.1f}%"' in page
    assert str(release.spent) in said
    assert "bounds of age found with noise, because the schema does not declare it" in said
    assert re.search(r"age from -?[\d,]+ to [\d,]+, bought with noise", said)
    assert "city 3 values, declared" in said
    assert 'sfumato.load("made").sample(1000)' in said.replace("&#34;", '"')
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert len(page) < 100_000


def test_the_page_of_a_generator_shows_nothing_but_its_folder(release: sf.Release, tmp_path: Path) -> None:
    """What is loaded from the folder has never seen the table, and makes the same page."""
    sf.save(release, tmp_path / "made", format="parquet")
    again = page_of(sf.load(tmp_path / "made"), name="made").html
    assert again == (tmp_path / "made" / "report.html").read_text()


def test_a_page_without_privacy_says_so() -> None:
    seeded = texts(page_of(generator(insecure_seed=3), name="seeded").html)
    assert "The noise came from a given seed: this is reproducible, and not private." in seeded
    assert "nothing is guaranteed" in seeded


def test_relations_are_distances_from_independence() -> None:
    table = sf.Table.of(people(300, 0))
    joint = table.frame.group_by("city", "ill").len().with_columns(p=pl.col("len") / 300)
    alone = {name: dict(joint.group_by(name).agg(pl.col("p").sum()).iter_rows()) for name in ("city", "ill")}
    cells = {(city, ill): p for city, ill, _, p in joint.iter_rows()}
    expected = sum(
        abs(cells.get((a, b), 0.0) - p * q) for a, p in alone["city"].items() for b, q in alone["ill"].items()
    )
    assert relations(table, ["city", "ill"]) == {("city", "ill"): pytest.approx(expected / 2)}


def test_of_many_columns_those_in_the_largest_pairs_are_drawn() -> None:
    names = [f"column {number}" for number in range(30)]
    pairs = {(a, b): 0.01 for at, a in enumerate(names) for b in names[at + 1 :]}
    pairs["column 3", "column 29"] = 0.5
    svg = pair_map("Strength", pairs, names)
    assert svg.count("<rect") == 16 * 15 / 2
    assert ">50</text>" in svg
    assert "column 29, column 3: 50.0%" in svg


def test_the_page_of_an_evaluation_has_its_figures(evaluation: Evaluation) -> None:
    page = render_evaluation(evaluation, title="Real beside made")
    said = texts(page)
    assert said.startswith(" Real beside made")
    assert f"{evaluation.distances.mean_of_pairs:.1%}" in said
    assert evaluation.test_distances is not None
    assert f"other real rows differ by {evaluation.test_distances.mean_of_pairs:.1%}" in said
    (tree,) = evaluation.models
    for text in (f"{tree.raw:.1%}", f"{tree.released:.1%}", f"{tree.raw_auc:.3f}", f"{tree.released_auc:.3f}"):
        assert text in said
    assert "trained on 2,000 real rows and on 1,000 synthetic rows" in said
    assert "distance-to-closest-record" in said
    assert "attack shadow not run: it makes shadow sets" in said
    assert "For the owner of the data: the figures come from real rows, without noise" in said
    assert len(page) < 300_000


def test_the_page_of_an_evaluation_shows_no_rare_value_and_none_that_is_not_real(evaluation: Evaluation) -> None:
    page = render_evaluation(evaluation)
    assert RARE not in page
    assert "Atlantis" not in page
    assert "values that the original lacks: 0%, after 20.0%" in page
    assert "<b>" not in page


def test_the_page_of_an_evaluation_is_written_for_its_owner_alone(evaluation: Evaluation, tmp_path: Path) -> None:
    path = tmp_path / "made.owner.html"
    path.write_text("old")
    sf.write_report(evaluation, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("<!doctype html>")


def test_an_anonymized_table_has_a_page_too(tmp_path: Path) -> None:
    ours = people(300, 0)
    release = sf.anonymize(ours, "k=10", qi=["age", "city"], sensitive=["ill"], keep=["<b>"])
    said = texts(render_evaluation(sf.evaluate(ours, release)))
    assert "models were not measured: there are no test rows" in said
    assert "no attacks there is no control" in said
    assert "What attackers learn" not in said


def test_a_single_column_has_a_page_without_pairs() -> None:
    ours = people(300, 0).select("city")
    said = texts(render_evaluation(sf.evaluate(ours, ours)))
    assert "A column differs from the real one by 0% of the rows" in said
    assert "Every pair" not in said
