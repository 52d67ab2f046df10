"""`sf.attack`: what is attacked, what it is compared with, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import sfumato as sf
from sfumato.attacks import ModelTarget, Records, attacks_of, run_attacks

RNG = np.random.default_rng(7)
PEOPLE = pl.DataFrame(
    {
        "name": [f"n{number:03d}" for number in range(240)],
        "age": RNG.integers(18, 90, 240),
        "zip": RNG.integers(0, 40, 240).astype(str),
        "ill": RNG.choice(["no", "yes"], 240),
    }
)
"""What is predicted of these people is random: a tree learns it by heart, and nobody can predict it."""
CHEAP: dict[str, Any] = {"references": 4, "processes": 1}
QUICK = ["loss", "gap"]


def released(k: int = 5) -> sf.Release:
    table = sf.Table.of(PEOPLE, qi=["age", "zip"], sensitive=["ill"], identifiers=["name"])
    return sf.anonymize(table, f"k={k}")


def trained() -> sf.Release:
    public = sf.Schema([sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])])
    table = sf.Table(PEOPLE.select("age", "ill"), public)
    return next(iter(sf.train(table, "naive-bayes", target="ill", epsilon=1).values()))


def test_a_model_is_trained_on_half_of_the_rows_and_the_other_half_is_the_control() -> None:
    report = sf.attack(PEOPLE, target="ill", model="tree", identifiers=["name"], attacks=QUICK)
    target = report.target
    assert (target["members"], target["nonmembers"], target["model"]) == (120, 120, "tree")
    assert target["train_accuracy"] > 0.95
    assert target["test_accuracy"] < 0.75  # labels are coin flips: more than 0.75 of 120 has probability 1e-8
    assert [result.name for result in report.results] == QUICK
    assert report.leaks
    assert "random half" in target["how"]


def test_the_same_seed_gives_the_same_report_and_another_one_another_half() -> None:
    one, same, other = (
        sf.attack(PEOPLE, target="ill", model="tree", attacks=["loss", "rmia"], seed=seed, **CHEAP).to_dict()
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one["target"]["test_accuracy"] != other["target"]["test_accuracy"] or one["attacks"] != other["attacks"]


def test_an_estimator_of_ones_own_can_be_attacked() -> None:
    frame = PEOPLE.select("age", "ill")
    report = sf.attack(frame, target="ill", model=DecisionTreeClassifier(), attacks=QUICK)
    assert report.target["model"] == "DecisionTreeClassifier"
    assert report.leaks


def test_the_release_itself_is_attacked_if_there_is_a_control() -> None:
    others = PEOPLE.with_columns(age=pl.col("age") + 100)
    report = sf.attack(released(), PEOPLE, control=others, attacks=["linkage"])
    assert report.target["rows"] == report.target["members"] == report.target["nonmembers"] == 240
    assert "The release itself was attacked" in report.target["how"]
    assert [result.name for result in report.results] == ["linkage"]


def test_without_a_control_the_recipe_is_run_again_on_a_half_and_the_report_says_so(tmp_path: Path) -> None:
    sf.save(released(), tmp_path / "release")
    sf.write(PEOPLE, tmp_path / "people.csv")
    report = sf.attack(tmp_path / "release", tmp_path / "people.csv", attacks=["linkage"])
    assert (report.target["rows"], report.target["members"], report.target["nonmembers"]) == (120, 120, 120)
    assert "run again on a random half" in report.target["how"]
    assert "The release itself was not attacked" in report.target["how"]
    assert report.target["name"] == "release"


def test_a_release_that_is_made_again_gives_the_same_report_although_its_rows_are_shuffled() -> None:
    names = ["linkage", "inference", "linkability", "singling-out"]
    one, other = (sf.attack(released(), PEOPLE, attacks=names).to_dict() for _ in range(2))
    assert one == other


def test_without_a_source_the_report_says_what_each_attack_needs() -> None:
    report = sf.attack(released())
    assert report.skipped["linkage"] == "it needs the original records (--source)"
    assert "order or a hierarchy" in report.skipped["similarity"]
    assert report.target["members"] is None


def test_a_released_model_is_attacked_by_its_own_recipe() -> None:
    release = trained()
    again = sf.attack(release, PEOPLE.select("age", "ill"), attacks=["loss", "rmia"], **CHEAP)
    assert {result.name: result.scores.references for result in again.results} == {"loss": 0, "rmia": 4}
    assert again.target["members"] == 120
    itself = sf.attack(release, PEOPLE[:120], control=PEOPLE[120:], attacks=QUICK)
    assert "count as members here" in itself.target["how"]
    assert itself.target["test_accuracy"] is not None


@pytest.mark.parametrize("privacy", [{}, {"epsilon": 5.0, "delta": 1e-3}])
def test_a_model_of_several_holders_is_attacked_like_any_other(privacy: dict[str, Any]) -> None:
    public = sf.Schema([sf.Column(name="age", bounds=(18, 90)), sf.Column(name="ill", domain=["no", "yes"])])
    table = sf.Table(PEOPLE.select("age", "ill"), public)
    release = sf.federate(table, target="ill", clients=2, rounds=1, **privacy)
    again = sf.attack(release, PEOPLE.select("age", "ill"), attacks=["loss", "rmia"], **CHEAP)
    assert {result.name: result.scores.references for result in again.results} == {"loss": 0, "rmia": 4}
    assert again.target["members"] == 120
    itself = sf.attack(release, PEOPLE[:120], control=PEOPLE[120:], attacks=QUICK)
    assert "The release itself was attacked" in itself.target["how"]


def test_a_model_of_images_of_several_holders_is_made_again_for_an_attack() -> None:
    images = sf.datasets.Images(
        *(RNG.integers(0, 256, (80, 14, 14)).astype(np.uint8), RNG.integers(0, 2, 80).astype(np.uint8)),
        *(RNG.integers(0, 256, (20, 14, 14)).astype(np.uint8), RNG.integers(0, 2, 20).astype(np.uint8)),
    )
    release = sf.federate(images, classes=2, model="logistic", clients=2, rounds=1)
    again = sf.attack(release, images, attacks=["rmia"], references=2, processes=1)
    assert again.target["members"] == 50


def test_a_synthetic_table_needs_no_recipe() -> None:
    report = sf.attack(PEOPLE[:80], PEOPLE[80:160], control=PEOPLE[160:], kind="synthetic")
    assert report.target["kind"] == "synthetic"
    assert (report.target["rows"], report.target["members"], report.target["nonmembers"]) == (80, 80, 80)
    alone = sf.attack(PEOPLE[:80], PEOPLE[80:160], kind="synthetic")
    assert alone.target["nonmembers"] is None


def test_attacks_for_other_kinds_are_left_out_unless_they_are_named() -> None:
    assert "linkage" not in sf.attack(PEOPLE, target="ill", model="tree", attacks=None, **CHEAP).skipped
    named = sf.attack(PEOPLE, target="ill", model="tree", attacks=["gap", "linkage"])
    assert re.search("it attacks a table.*not a model", named.skipped["linkage"])


def test_a_control_from_a_text_file_gets_the_types_of_the_source() -> None:
    others = PEOPLE.with_columns(age=(pl.col("age") + 100).cast(pl.Float64))
    assert sf.attack(released(), PEOPLE, control=others, attacks=["linkage"]).results


class Broken(DecisionTreeClassifier):  # type: ignore[misc]
    """A model whose predictions fail; the error quotes a record."""

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        raise RuntimeError(f"cannot predict {X[0]}")


class Undefined(DecisionTreeClassifier):  # type: ignore[misc]
    """A model whose predictions are not numbers."""

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        return np.full((len(X), 2), np.nan)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing said": ({}, "not the folder of a release, so say what to attack"),
    "no target": ({"model": "tree"}, "the column that the model predicts is not named"),
    "unknown target": ({"model": "tree", "target": "il"}, "'il'.*did you mean 'ill'"),
    "unknown model": ({"model": "tre", "target": "ill"}, "there is no model 'tre' to attack .*'tree'"),
    "no model": ({"protect": "guided:k=5"}, "a protection needs a model"),
    "target alone": ({"kind": "synthetic", "source": PEOPLE, "target": "ill"}, "a target without a model"),
    "unknown protection": ({"model": "tree", "target": "ill", "protect": "gided:k=5"}, "did you mean 'guided'"),
    "control alone": ({"control": PEOPLE, "kind": "table"}, "a control without a source"),
    "kind": ({"kind": "tables"}, "must be one of table, synthetic, got 'tables'"),
    "model and source": ({"model": "tree", "target": "ill", "source": PEOPLE}, "compared with the other half"),
    "attack": ({"model": "tree", "target": "ill", "attacks": ["lora"]}, "there is no attack 'lora'"),
    "repeats": (
        {"model": "tree", "target": "ill", "repeats": 0},
        "repeats must be a whole number from 1 to 100, got 0",
    ),
    "references": ({"model": "tree", "target": "ill", "references": 1}, "from 2 to 10,000, got 1"),
    "seed": ({"model": "tree", "target": "ill", "seed": -1}, "the seed must be a whole number"),
    "many classes": ({"model": "tree", "target": "name"}, "has 240 different values in 240 rows"),
    "raises": ({"model": Broken(), "target": "ill"}, "^predict_proba of Broken raised a RuntimeError"),
    "NaN": ({"model": Undefined(), "target": "ill"}, "predict_proba gave NaN or infinity for 120 records"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_attacked_is_refused_in_one_sentence(case: str) -> None:
    options, said = WRONG[case]
    own = PEOPLE.select("age", "ill") if not isinstance(options.get("model", ""), str) else PEOPLE
    with pytest.raises(sf.SfumatoError, match=said) as raised:
        sf.attack(own, **{"attacks": QUICK, **options})
    assert "\n" not in str(raised.value)
    assert "n00" not in str(raised.value)


def test_a_model_without_probabilities_is_attacked_by_its_labels() -> None:
    report = sf.attack(PEOPLE.select("age", "ill"), target="ill", model=LinearSVC(), attacks=QUICK)
    assert [result.name for result in report.results] == ["gap"]
    assert "predict_proba" in report.skipped["loss"]


def test_a_single_class_and_too_few_rows_are_refused() -> None:
    with pytest.raises(sf.SfumatoError, match="single class"):
        sf.attack(PEOPLE.with_columns(ill=pl.lit("no")), target="ill", model="tree")
    with pytest.raises(sf.SfumatoError, match="at least 8 rows, half of them as a control, and got 6"):
        sf.attack(PEOPLE.select("age", "ill")[:6], target="ill", model="tree")


def test_a_release_is_refused_with_what_does_not_belong_to_it() -> None:
    release = released()
    for wrong in ({"model": "tree"}, {"protect": "dp:epsilon=1"}, {"kind": "table"}):
        with pytest.raises(sf.SfumatoError, match="a release says itself what it is"):
            sf.attack(release, **wrong)  # type: ignore[arg-type]
    with pytest.raises(sf.SfumatoError, match="lacks the column 'zip' of the release"):
        sf.attack(release, PEOPLE.drop("zip"))
    with pytest.raises(sf.SfumatoError, match="the population lacks the column 'age' of the release"):
        sf.attack(release, PEOPLE, population=PEOPLE.drop("age"))
    with pytest.raises(sf.SfumatoError, match="240 of 240 non-members are also members"):
        sf.attack(release, PEOPLE, control=PEOPLE)
    with pytest.raises(sf.SfumatoError, match="column 'age' is Int64 in the source and String in the control"):
        sf.attack(release, PEOPLE, control=PEOPLE.with_columns(age=pl.lit("old")))
    with pytest.raises(sf.SfumatoError, match="k=150"):
        sf.attack(released(k=150), PEOPLE)


def test_roles_that_a_release_does_not_name_can_be_added() -> None:
    masked = sf.mask(PEOPLE.drop("name"), [sf.masking.Pram("zip")])
    assert "--qi" in sf.attack(masked, PEOPLE, attacks=["skewness"]).skipped["skewness"]
    assert sf.attack(masked, PEOPLE, qi=["age", "zip"], sensitive=["ill"], attacks=["skewness"]).results
    release = trained()
    assert "attribute" in sf.attack(release, PEOPLE, attacks=["attribute"]).skipped
    assert sf.attack(release, PEOPLE, sensitive=["age"], attacks=["attribute"]).results


def test_statistics_are_not_attacked_but_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path))
    public = sf.Schema([sf.Column(name="ill", domain=["no", "yes"])])
    with sf.Ledger.grant(PEOPLE, epsilon=1, path=tmp_path / "budget.ledger") as ledger:
        answer = sf.query(PEOPLE, "count by ill", epsilon=1, schema=public, ledger=ledger)
    with pytest.raises(sf.SfumatoError, match=r"kind 'statistics'.*--audit"):
        sf.attack(answer, PEOPLE)


def test_a_folder_of_several_releases_is_refused_with_their_names(tmp_path: Path) -> None:
    sf.save({"a": released(), "b": released(4)}, tmp_path / "both")
    with pytest.raises(sf.SfumatoError, match=r"holds 2 releases: attack one of its folders \(a, b\)"):
        sf.attack(tmp_path / "both")
    with pytest.raises(sf.SfumatoError, match=r"certificate.json"):
        sf.attack(tmp_path)


def test_the_progress_never_goes_back_and_ends_at_one() -> None:
    seen: list[float] = []
    sf.attack(PEOPLE, target="ill", model="tree", attacks=["loss", "rmia"], repeats=2, progress=seen.append, **CHEAP)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)
    assert 0 < seen[0] < 1


def test_a_fitted_model_of_ones_own_is_attacked_with_two_frames() -> None:
    inside, outside = (Records(half.select("age"), half["ill"].to_numpy()) for half in (PEOPLE[:120], PEOPLE[120:]))
    model = DecisionTreeClassifier(random_state=0).fit(inside.rows, inside.labels)
    report = run_attacks(attacks_of(QUICK), ModelTarget(model), inside, outside)
    assert [result.name for result in report.results] == QUICK
    frames = (Records(half.select("age").to_pandas(), half["ill"].to_pandas()) for half in (PEOPLE[:120], PEOPLE[120:]))
    again = run_attacks(attacks_of(QUICK), ModelTarget(model), *frames)
    assert again.to_dict() == report.to_dict()
