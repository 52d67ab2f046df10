"""Attacks on people with several rows: divided by person, one answer for each, and intervals that count people."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.tree import DecisionTreeClassifier

import sfumato as sf
from sfumato.attacks import (
    AttributeInference,
    Linkage,
    ModelTarget,
    Records,
    RunRecipe,
    SyntheticTarget,
    TableTarget,
    attacks_of,
    procedure_of,
    records_of,
    run_attacks,
)
from sfumato.attacks.membership.references import halves_of
from sfumato.attacks.membership.signals import LEAST
from sfumato.attacks.statistics import Roc
from sfumato.errors import ColumnError, InputError, OptionError
from tests.conftest import Ran

PEOPLE, VISITS = 60, 4
CHEAP: dict[str, Any] = {"references": 4, "processes": 1}


def visits(seed: int, first: int = 0) -> pl.DataFrame:
    """Return visits of people whose illness is random, and the same on all of their visits."""
    rng = np.random.default_rng(seed)
    rows = PEOPLE * VISITS
    frame = pl.DataFrame(
        {
            "patient": np.repeat(np.arange(PEOPLE) + first, VISITS),
            "age": np.repeat(rng.integers(20, 80, PEOPLE), VISITS),
            "ward": rng.choice(["a", "b", "c"], rows),
            "ill": np.repeat(rng.choice(["no", "yes"], PEOPLE), VISITS),
        }
    )
    return frame.sample(fraction=1, shuffle=True, seed=seed)


def of(frame: pl.DataFrame) -> Records:
    return records_of(sf.Table.of(frame, person="patient"), "ill")


def tree(frame: pl.DataFrame) -> ModelTarget:
    train = procedure_of("tree", None, sf.Table.of(frame, person="patient"), "ill")
    return ModelTarget(train(of(frame), 0), procedure=train, **CHEAP)


# --- members and others are people -------------------------------------------------------------


def test_a_table_is_divided_by_person_and_every_figure_counts_people() -> None:
    report = sf.attack(visits(0), target="ill", model="tree", person="patient", attacks=["loss", "rmia"], **CHEAP)
    assert (report.target["members"], report.target["nonmembers"], report.target["unit"]) == (30, 30, "person")
    assert "random half of the people" in report.target["how"]
    assert "the members have 120 rows, the others 120" in report.target["how"]
    for result in report.results:
        assert (len(result.scores.members), len(result.scores.nonmembers)) == (30, 30)
        assert result.to_dict()["unit"] == "person"
        assert result.to_dict()["n"] == {"members": 30, "nonmembers": 30}


def test_references_are_trained_on_people_with_all_of_their_rows() -> None:
    records = of(visits(0))
    inside = halves_of(records, 6, seed=3)
    for model in inside:
        whole = [model[records.owners == person] for person in range(PEOPLE)]
        assert all(rows.all() or not rows.any() for rows in whole)
        assert sum(rows.all() for rows in whole) == PEOPLE // 2


def test_the_score_of_a_person_is_the_mean_of_those_of_their_rows_or_the_sum_of_likelihood_ratios() -> None:
    inside, outside = visits(0), visits(1, first=PEOPLE)
    target, members, others = tree(inside), of(inside), of(outside)
    report = run_attacks(attacks_of(["loss", "lira"]), target, members, others, seed=2)
    by_row = [np.log(np.maximum(target.own_label(side), LEAST)) for side in (members, others)]
    by_hand = [
        frame.select("patient").with_columns(score=scores).group_by("patient").mean()["score"].sort().to_numpy()
        for frame, scores in zip((inside, outside), by_row, strict=True)
    ]
    loss, lira = report.results
    assert np.allclose(np.sort(loss.scores.members), by_hand[0])
    assert np.allclose(np.sort(loss.scores.nonmembers), by_hand[1])
    assert loss.auc == pytest.approx(Roc(*by_hand).auc)
    rows = attacks_of(["lira"])[0].run(target, members, others, 2)
    total = np.bincount(members.owners, rows.members)
    assert np.allclose(lira.scores.members, total)


def test_copies_of_a_persons_row_change_nothing_but_would_shrink_the_intervals_of_rows() -> None:
    rng = np.random.default_rng(1)
    rows, labels = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    target = ModelTarget(DecisionTreeClassifier(max_depth=6, random_state=0).fit(rows[:200], labels[:200]))
    once = [Records(rows[part], labels[part]) for part in (slice(200), slice(200, None))]
    often = [one.take(np.repeat(np.arange(200), 5)) for one in once]
    people = [
        Records(one.rows, one.labels, people=np.repeat(np.arange(200), 5) + start)
        for one, start in zip(often, (0, 200), strict=True)
    ]
    single, repeated, counted = (
        run_attacks(attacks_of(["loss"]), target, *sides).results[0] for sides in (once, often, people)
    )
    assert counted.auc == pytest.approx(single.auc)
    assert counted.interval.to_list() == pytest.approx(single.interval.to_list())
    width = [one.interval.high - one.interval.low for one in (single, repeated)]
    assert width[1] < width[0] / 2  # 1,000 rows are not 1,000 people


def test_a_model_that_knows_people_is_found_out_by_people_although_each_row_hardly_tells() -> None:
    """A forest of stumps over many noisy rows: pooling the rows of a person finds more than one row does."""
    inside, outside = visits(0), visits(1, first=PEOPLE)
    target = tree(inside)
    names = ["loss"]
    by_person = run_attacks(attacks_of(names), target, of(inside), of(outside)).results[0]
    plain = [Records(one.rows, one.labels) for one in (of(inside), of(outside))]
    by_row = run_attacks(attacks_of(names), target, *plain).results[0]
    assert by_person.auc > by_row.auc


# --- tables --------------------------------------------------------------------------------------


def released(frame: pl.DataFrame, k: int = 4) -> sf.Release:
    return sf.anonymize(frame, f"k={k}", qi=["age", "ward"], sensitive=["ill"], person="patient")


def test_the_prosecutors_chance_is_that_of_the_assessment_of_people() -> None:
    frame = visits(0)
    classes = frame.with_columns(age=pl.col("age") // 20 * 20)  # which do not overlap
    schema = sf.Table.of(classes.drop("patient"), qi=["age", "ward"], sensitive=["ill"]).schema
    found = Linkage().run(
        TableTarget(classes.drop("patient"), schema), of_table(classes), of_table(visits(1, PEOPLE)), seed=0
    )
    measured = sf.assess(classes, qi=["age", "ward"], person="patient").risk
    assert found.details["prosecutor"] == pytest.approx(measured.prosecutor_mean)
    release = released(frame)
    protected = TableTarget(release.table.to_polars(), release.schema)
    assert Linkage().run(protected, of_table(frame), of_table(visits(1, PEOPLE)), seed=0).details["prosecutor"] <= 1 / 4
    assert len(found.members) == len(found.nonmembers) == PEOPLE


def of_table(frame: pl.DataFrame) -> Records:
    return Records(frame.drop("patient"), people=frame["patient"])


def test_a_link_is_right_if_the_row_has_the_values_of_any_row_of_the_person() -> None:
    """One class, two people: every guessed row has an illness of both, so that every link is right."""
    frame = pl.DataFrame({"patient": [1, 1, 2, 2], "age": [30] * 4, "ill": ["flu", "cold", "cold", "flu"]})
    schema = sf.Table.of(frame.drop("patient"), qi=["age"], sensitive=["ill"]).schema
    others = frame.with_columns(patient=pl.col("patient") + 10, ill=pl.lit("ulcer"))
    found = Linkage().run(TableTarget(frame.drop("patient"), schema), of_table(frame), of_table(others), seed=0)
    assert found.members.tolist() == [1.0, 1.0]
    assert found.nonmembers.tolist() == [0.0, 0.0]
    assert found.baseline.accuracy == 1.0  # both have the most frequent illness
    assert found.details["prosecutor"] == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_a_secret_is_guessed_once_for_each_person_in_one_of_their_rows(seed: int) -> None:
    frame = visits(0)
    target = TableTarget(
        frame.drop("patient"), sf.Table.of(frame.drop("patient"), qi=["age"], sensitive=["ill"]).schema
    )
    report = run_attacks(attacks_of(["skewness", "inference"]), target, of_table(frame), of_table(visits(1, PEOPLE)),
                         seed=seed)  # fmt: skip
    for result in report.results:
        assert len(result.scores.members) == len(result.scores.nonmembers) == PEOPLE
        usual = frame["ill"].mode().sort()[0]
        share = frame.group_by("patient").first()["ill"].eq(usual).mean()
        assert result.baseline.accuracy == pytest.approx(share)  # people have one illness, so any of their rows tells


def test_a_condition_singles_out_a_person_however_many_rows_meet_it() -> None:
    inside = pl.DataFrame({"age": [20, 20, 20, 30, 40, 50], "patient": [1, 1, 1, 2, 3, 4]})
    outside = pl.DataFrame({"age": [60, 60, 61, 62], "patient": [5, 5, 6, 7]})
    made = pl.DataFrame({"age": [20, 30, 40, 50]})
    target = SyntheticTarget(made, sf.Table(made).schema)
    known = [of_table(one) for one in (inside, outside)]
    plain = [Records(one.rows) for one in known]
    (attack,) = attacks_of(["singling-out-univariate"])
    by_person, by_row = (attack.run(target, *sides, seed=3) for sides in (known, plain))
    assert by_person.details["found"] == by_row.details["found"] > 0
    assert by_person.members.sum() >= by_row.members.sum()
    (everyone,) = attacks_of(["distance-to-closest-record"])
    copied = everyone.run(target, *known, seed=0).details
    assert (copied["copied_members"], copied["copied_others"]) == (1.0, 0.0)


def test_a_guess_about_a_column_learns_from_other_people_only() -> None:
    inside, outside = visits(0), visits(1, first=PEOPLE)
    report = run_attacks([AttributeInference("ward")], tree(inside), of(inside), of(outside))
    assert len(report.results[0].scores.members) == PEOPLE


# --- releases -----------------------------------------------------------------------------------


def test_a_release_that_protects_people_is_attacked_and_made_again_by_people() -> None:
    frame = visits(0)
    release = released(frame)
    itself = sf.attack(release, frame, control=visits(1, PEOPLE), attacks=["linkage"])
    assert itself.target["unit"] == "person"
    assert (itself.target["members"], itself.target["nonmembers"]) == (PEOPLE, PEOPLE)
    assert "people of the original" in itself.target["how"]
    again = sf.attack(release, frame, attacks=["linkage", "shadow"], **CHEAP)
    assert "random half of the people" in again.target["how"]
    assert (again.target["members"], again.target["rows"]) == (PEOPLE // 2, PEOPLE // 2 * VISITS)
    kept = RunRecipe(release.recipe)(of_table(frame), seed=0)
    assert kept.height == frame.height
    alone = frame.with_columns(patient=pl.lit(1))  # k=4 would be easy by rows
    with pytest.raises(sf.errors.SfumatoError, match="the whole table as one class has k = 1"):
        RunRecipe(release.recipe)(of_table(alone), seed=0)


def test_a_release_of_rows_can_be_attacked_by_people() -> None:
    frame = visits(0)
    release = sf.anonymize(
        frame, "k=4", qi=["age", "ward"], sensitive=["ill"], identifiers=["patient"], rows_are_units=True
    )
    report = sf.attack(release, frame, person="patient", attacks=["linkage"])
    assert report.target["unit"] == "person"
    assert sf.attack(release, sf.Table.of(frame, person="patient"), attacks=["linkage"]).target["unit"] == "person"
    assert sf.attack(release, frame, attacks=["linkage"]).target["unit"] == "row"


def test_a_population_may_name_people_several_times() -> None:
    frame = visits(0)
    both = pl.concat([frame, visits(1, PEOPLE)])
    journalist = [
        sf.attack(released(frame), frame, control=visits(1, PEOPLE), population=table, attacks=["linkage"])
        .results[0].scores.details["journalist"]
        for table in (both, pl.concat([both, both]))
    ]  # fmt: skip
    assert journalist[0] == pytest.approx(journalist[1])


def test_a_synthetic_table_is_attacked_by_people() -> None:
    report = sf.attack(
        visits(0).drop("patient"), visits(0), control=visits(1, PEOPLE), kind="synthetic", person="patient",
        sensitive=["ill"],
    )  # fmt: skip
    assert report.target["unit"] == "person"
    assert {len(one.scores.members) for one in report.results if not one.name.startswith("singling")} == {PEOPLE}


def test_an_evaluation_attacks_the_people_of_the_original() -> None:
    made, ours, test = visits(2).drop("patient"), sf.Table.of(visits(0), person="patient"), visits(1, PEOPLE)
    found = sf.evaluate(ours, made, test=test, target="ill", attacks=["distance-to-closest-record"]).attacks
    assert (found.target["unit"], found.target["members"]) == ("person", PEOPLE)
    with pytest.raises(ColumnError, match="the control has no column 'patient'"):
        sf.evaluate(ours, made, test=test.drop("patient"), target="ill", attacks=["distance-to-closest-record"])


@pytest.mark.parametrize("protect", ["mondrian:k=4", "guided:k=4", "lattice:k=4", "suppress:k=4"])
def test_a_protection_that_anonymizes_counts_people(protect: str) -> None:
    report = sf.attack(
        visits(0), target="ill", model="tree", protect=protect, person="patient", qi=["age", "ward"], attacks=["loss"]
    )
    assert report.target["unit"] == "person"
    everyone = sf.Table.of(visits(0), person="patient", qi=["age", "ward"])
    train = procedure_of("tree", "guided:k=4", everyone, "ill")
    assert train(of(visits(0)), 1).release.assessment.unit == "person"


# --- bad input ----------------------------------------------------------------------------------


def test_rows_without_a_person_are_people_of_their_own() -> None:
    frame = visits(0).with_columns(patient=pl.when(pl.col("patient") < 5).then(None).otherwise("patient"))
    records = of(frame)
    assert records.persons == PEOPLE - 5 + 5 * VISITS
    nobody = frame.with_columns(patient=pl.lit(None, pl.Int64))
    assert of(nobody).persons == len(frame)
    assert Records(np.arange(3), people=[1.0, float("nan"), float("nan")]).persons == 3


def test_a_person_among_members_and_others_is_refused() -> None:
    frame = visits(0)
    with pytest.raises(InputError, match=re.escape("60 of 60 people among the non-members are also members")):
        sf.attack(released(frame), frame, control=frame, attacks=["linkage"])
    half = frame.with_columns(patient=pl.col("patient") + PEOPLE // 2)
    with pytest.raises(InputError, match="30 of 60 people") as refused:
        run_attacks(attacks_of(["loss"]), tree(frame), of(frame), of(half))
    assert "all rows of a person are on one side" in str(refused.value)


def test_people_are_compared_whatever_the_type_of_their_column() -> None:
    frame = visits(0)
    for kind in (pl.String, pl.Float64, pl.Int16):
        other = frame.with_columns(pl.col("patient").cast(kind))
        with pytest.raises(InputError, match="60 of 60 people"):
            run_attacks(attacks_of(["loss"]), tree(frame), of(frame), of(other))


def test_one_person_with_all_rows_is_too_few() -> None:
    frame = visits(0).with_columns(patient=pl.lit(1))
    with pytest.raises(InputError, match="an attack needs at least 8 people, half of them as a control, and got 1"):
        sf.attack(frame, target="ill", model="tree", person="patient")


def test_what_is_wrong_with_a_person_column_is_one_sentence() -> None:
    frame, release = visits(0), released(visits(0))
    with pytest.raises(ColumnError, match="lacks the column 'patient', which says whose each row is"):
        sf.attack(release, frame, control=visits(1, PEOPLE).drop("patient"))
    with pytest.raises(OptionError, match="protects the people of column 'patient'"):
        sf.attack(release, frame, person="ward")
    with pytest.raises(sf.errors.SfumatoError, match="cannot be both"):
        sf.attack(frame, target="ill", model="tree", person="ill")
    with pytest.raises(InputError, match="of neither"):
        run_attacks(attacks_of(["loss"]), tree(frame), of(frame), Records(of(frame).rows, of(frame).labels))
    with pytest.raises(InputError, match="3 records have 2 people"):
        Records(np.arange(3), people=[1, 2])
    with pytest.raises(InputError, match="it is not known whose each record is"):
        RunRecipe(release.recipe)(Records(frame), seed=0)


@pytest.mark.parametrize("model", ["tree", "boosting", "mlp"])
@pytest.mark.parametrize("protect", ["dp:epsilon=1,delta=1e-3,rows=2", "synthetic:epsilon=1,delta=1e-3,rows=2"])
def test_a_private_protection_is_for_people(model: str, protect: str) -> None:
    table = sf.Table.of(visits(0), person="patient")
    train = procedure_of(model, protect, table, "ill")
    fitted = train(records_of(table, "ill"), seed=1)
    made = getattr(fitted, "generator_", fitted)
    events = made.events if protect.startswith("synthetic") else made.events_
    assert {one.unit for one in events} == {"person"}
    assert set(fitted.predict(records_of(table, "ill").frame)) <= set(fitted.classes_)
    asked = {"target": "ill", "model": model, "protect": protect, "person": "patient", "attacks": ["loss"]}
    assert {one.unit for one in sf.attack(visits(0), **asked).results} == {"person"}


@pytest.mark.parametrize(
    ("protect", "part"),
    [
        ("dp:epsilon=1", "does not say how many of their rows count"),
        ("synthetic:epsilon=1", "does not say how many of their rows count"),
        ("dp:epsilon=1,rows=0", "must be a whole number of at least 1, got '0'"),
        ("mondrian:k=4+dp:epsilon=1,rows=2", "is about rows, and column 'patient' asks to protect people"),
    ],
)
def test_a_protection_that_is_not_for_people_is_refused(protect: str, part: str) -> None:
    with pytest.raises(OptionError, match=part):
        sf.attack(visits(0), target="ill", model="tree", protect=protect, person="patient")


def test_rows_of_people_need_a_person_column() -> None:
    with pytest.raises(OptionError, match="'dp:epsilon=1,delta=1e-05,rows=2' is for people"):
        sf.attack(visits(0).drop("patient"), target="ill", model="tree", protect="dp:epsilon=1,rows=2")


# --- the command ---------------------------------------------------------------------------------


def test_the_command_attacks_people(sfumato: Callable[..., Ran]) -> None:
    sf.write(visits(0), "visits.csv")
    given = ["attack", "visits.csv", "--target", "ill", "--model", "tree", "--person", "patient", "--attacks", "loss"]
    found = sfumato(*given, "--json", "-o", "page.html").json
    assert (found["target"]["unit"], found["target"]["members"]) == ("person", 30)
    assert found["attacks"][0]["unit"] == "person"
    assert "people, each with all of their rows" in Path("page.html").read_text()
    assert "random half of the people" in " ".join(sfumato(*given).out.split())


# --- what is about rows says so ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "run"),
    [
        ("masking", lambda table: sf.mask(table, [sf.masking.NoiseAddition("age", scale=1)])),
        ("perturbing each record", lambda table: sf.perturb(table, ["ward"], epsilon=1)),
        ("exploring", lambda table: sf.explore(table, target="ill")),
    ],
)
def test_what_protects_rows_refuses_people_in_one_sentence(what: str, run: Callable[[sf.Table], Any]) -> None:
    table = sf.Table.of(visits(0), person="patient")
    with pytest.raises(OptionError) as refused:
        run(table)
    assert refused.value.message == f"{what} is about rows, and column 'patient' asks to protect people"


def test_tokens_keep_which_rows_are_of_the_same_person() -> None:
    table = sf.Table.of(visits(0), person="patient", qi=["age", "ward"])
    hidden = sf.pseudonymize(table, sf.pseudonyms.KeyedTokens(sf.Key(bytes(range(32)))))
    assert hidden.schema.person == "patient"
    assert not {*hidden.column("patient").cast(pl.String)} & {*table.column("patient").cast(pl.String)}
    one, other = (sf.assess(each, qi=["age", "ward"], person="patient").to_dict() for each in (table, hidden))
    assert one == other


def test_an_identifier_that_repeats_is_pointed_out_when_rows_are_attacked() -> None:
    frame = visits(0).rename({"patient": "patient_id"})
    report = sf.attack(frame, target="ill", model="tree", identifiers=["patient_id"], attacks=["loss"])
    (note,) = report.target["notes"]
    assert note == (
        "240 rows are of 60 people ('patient_id' repeats), and rows are attacked: members and others may be the same "
        "people (name the column with person / --person)"
    )
    assert "notes" not in sf.attack(frame, target="ill", model="tree", person="patient_id", attacks=["loss"]).target
