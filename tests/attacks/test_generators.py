"""Generators are attacked by their own recipe, and audited: one that copies records is caught, an honest one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.attacks import Records, RunRecipe, audit, audit_function
from sfumato.attacks.auditing.generators import strange_rows, to_each_canary
from sfumato.budget.noise import Source
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers import Independent, LabelledTree

COLUMNS = 12
RNG = np.random.default_rng(5)
PEOPLE = pl.DataFrame({f"c{at}": RNG.choice([*"abcdefgh"], 400, p=[0.93, *[0.01] * 7]) for at in range(COLUMNS)})
SCHEMA = sf.Schema(sf.Column(name=f"c{at}", domain=[*"abcdefgh"]) for at in range(COLUMNS))
TABLE = sf.Table(PEOPLE, SCHEMA)


@pytest.fixture(scope="module")
def made() -> sf.Release:
    return sf.synthesize(TABLE, 1, method=Independent(), rows=400)


def test_its_recipe_makes_shadow_sets_that_are_seeded_and_not_charged(made: sf.Release) -> None:
    again = RunRecipe(made.recipe)
    one, same, other = (again(Records(PEOPLE.head(100)), seed) for seed in (1, 1, 2))
    assert one.columns == PEOPLE.columns
    assert one.equals(same)
    assert not one.equals(other)


def test_a_release_is_attacked_as_a_synthetic_set() -> None:
    made = sf.synthesize(TABLE, 1, method=Independent(), rows=400, insecure_seed=1)  # an attack errs once in 20 times
    report = sf.attack(made, TABLE, attacks=["shadow", "distance-to-closest-record"], references=4, processes=1)
    assert {one.name for one in report.results} == {"shadow", "distance-to-closest-record"}
    assert report.target["kind"] == "synthetic"
    assert not report.leaks


def test_an_honest_generator_passes_the_audit(made: sf.Release, tmp_path: Path) -> None:
    sf.save(made, tmp_path / "made")
    result = audit(tmp_path / "made", TABLE, canaries=200, confidence=1 - 1e-7)  # so rarely is an honest one failed
    assert result.passed
    assert [one.held for one in result.checks] == [True, None, True, True]


def test_a_synthesizer_without_noise_is_caught_and_one_with_noise_is_not(made: sf.Release) -> None:
    domain, strange, few = made.domain, strange_rows(made.domain, 60, seed=1), PEOPLE.head(40)

    def drawn(frame: pl.DataFrame, noise: float) -> pl.DataFrame:
        """Return rows of a tree that learns from sums with this noise, whatever is claimed."""
        rows, method = domain.encode(Columns.of(sf.Table(frame, SCHEMA))), LabelledTree(pool=4000)
        sums = NoisySums(method.shares(rows.axes, None), noise, Source(insecure_seed=3))
        model = method.learn(rows, sums, np.random.default_rng(3))
        return domain.decode(model.sample(4000, np.random.default_rng(4)))

    def score(rows: Any, canaries: Any) -> Any:
        return to_each_canary(domain, rows, canaries)

    claimed = sf.DifferentialPrivacy(0.2, 1e-5)
    for noise, passes in ((0.0, False), (20.0, True)):
        found = audit_function(lambda rows, noise=noise: drawn(rows, noise), few, strange, claimed, score=score)  # type: ignore[misc]
        assert found.passed is passes, found.verdict


def test_a_model_is_trained_on_synthetic_rows() -> None:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 600)
    people = pl.DataFrame({"age": age, "noise": rng.choice([*"abc"], 600), "ill": np.where(age > 50, "yes", "no")})
    report = sf.attack(
        people, target="ill", model="tree", protect="synthetic:epsilon=20,delta=1e-4", attacks=["loss", "gap"]
    )
    assert report.target["protect"] == "synthetic:epsilon=20,delta=1e-4"
    assert report.target["test_accuracy"] > 0.7
    assert not report.leaks
    assert "not covered by epsilon" in report.target["notes"][0]
