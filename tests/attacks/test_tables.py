"""Attacks on released tables, against their definitions written out row by row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.attacks import Attack, AttackResult, Records, TableTarget, attacks_of, result_of, run_attacks
from sfumato.attacks.tables import distances
from sfumato.attacks.tables.background_knowledge import BackgroundKnowledge, _ruled_out
from sfumato.attacks.tables.candidates import candidates
from sfumato.attacks.tables.distances import Distances
from sfumato.attacks.tables.guessing import _alone
from sfumato.attacks.tables.homogeneity import Homogeneity
from sfumato.attacks.tables.linkage import Linkage
from sfumato.attacks.tables.reading import read_pairing
from sfumato.attacks.tables.similarity import Similarity
from sfumato.attacks.tables.skewness import Skewness
from sfumato.errors import ColumnError, InputError

ON_TABLES = [attack.name for attack in attacks_of() if "table" in attack.targets]
DISEASES = ("flu", "cold", "ulcer")
person = st.tuples(st.integers(20, 29), st.sampled_from("fm"), st.sampled_from(DISEASES))
people = st.lists(person, min_size=2, max_size=12)
span = st.tuples(st.integers(20, 29), st.integers(20, 29)).map(lambda ends: (min(ends), max(ends)))
region = st.tuples(span, st.sampled_from(["f", "m", "*"]), st.sampled_from(DISEASES))
regions = st.lists(region, min_size=1, max_size=8)
Region = tuple[tuple[int, int], str, str]


def frame(rows: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["age", "sex", "disease"], orient="row")


def schema() -> sf.Schema:
    return sf.Schema(
        [
            sf.Column(name="age", role="quasi"),
            sf.Column(name="sex", role="quasi"),
            sf.Column(name="disease", role="sensitive"),
        ]
    )


def released(rows: list[Region]) -> TableTarget:
    texts = [(f"{low}-{high}" if low < high else str(low), sex, disease) for (low, high), sex, disease in rows]
    return TableTarget(frame(texts), schema())


# Everybody between 20 and 29 of both sexes, so that every released value stands for something.
EVERYONE = [(age, sex, disease) for age in range(20, 30) for sex in "fm" for disease in DISEASES]


def is_covered(who: tuple[int, str, str], row: Region) -> bool:
    return row[0][0] <= who[0] <= row[0][1] and row[1] in (who[1], "*")


@given(people, regions)
@settings(max_examples=60)
def test_the_candidates_of_a_person_are_all_rows_that_cover_them(members: list[Any], rows: list[Region]) -> None:
    both = read_pairing(released(rows), Records(frame(members)), Records(frame(EVERYONE)), ["age", "sex"])
    found = candidates(both)
    for place, who in enumerate(members + EVERYONE):
        covering = sum(is_covered(who, row) for row in rows)
        assert bool(found.covered[found.of_record[place]]) == (covering > 0)
        if covering:
            assert found.rows[found.of_record[place]] == covering


@given(people, regions)
@settings(max_examples=60)
def test_a_record_is_as_far_from_a_range_as_on_average_from_its_values(members: list[Any], rows: list[Region]) -> None:
    both = read_pairing(released(rows), Records(frame(members)), Records(frame(EVERYONE)), ["age", "sex"])
    found = Distances(both)
    away = found.of(np.arange(len(members)))[:, found.of_row]
    for i, (age, sex, _) in enumerate(members):
        for j, ((low, high), other, _) in enumerate(rows):
            steps = np.linspace(low, high, 20_001)
            expected = np.abs(age - steps).mean() / 9 + (0.5 if other == "*" else float(sex != other))
            assert away[i, j] == pytest.approx(expected / 2, abs=1e-4)


@given(people, regions)
@settings(max_examples=30)
def test_distances_are_the_same_whether_they_are_kept_or_found_anew(members: list[Any], rows: list[Region]) -> None:
    both = read_pairing(released(rows), Records(frame(members)), Records(frame(EVERYONE)), ["age", "sex"])
    kept = Distances(both).of(np.arange(len(members)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "_TABLE", 0)
        assert Distances(both).of(np.arange(len(members))).tolist() == kept.tolist()


def test_of_very_many_nearest_rows_a_random_part_is_taken() -> None:
    towns = pl.DataFrame({"town": [f"town {number}" for number in range(2000)]})
    inside, outside = Records(towns), Records(pl.DataFrame({"town": ["elsewhere"] * 3}))
    schema = sf.Schema([sf.Column(name="town", role="quasi")])
    found = candidates(read_pairing(TableTarget(towns, schema), inside, outside, ["town"]))
    rows = found.rows[found.of_record]
    assert (rows[:2000] == 1).all()
    assert 256 - 6 * 16 < rows[-1] < 256 + 6 * 16  # six deviations
    assert not found.covered[found.of_record[-1]]


@given(st.integers(2, 7), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=30)
def test_values_that_are_ruled_out_are_different_and_never_the_true_one(values: int, number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = pl.DataFrame({"age": [1] * 40, "disease": rng.choice([f"d{one}" for one in range(values)], 40)})
    target = TableTarget(table, sf.Table.of(table, qi=["age"], sensitive=["disease"]).schema)
    known, _ = _alone(target, "disease")
    record, value = _ruled_out(known, number, rng)
    kinds = len(known.prior)
    assert np.bincount(record, minlength=40).tolist() == [min(number, kinds - 1)] * 40
    assert len({*zip(record.tolist(), value.tolist(), strict=True)}) == len(record)
    assert not known.read.covers(value, known.truth[record]).any()


@given(people, regions)
@settings(max_examples=60)
def test_linkage_measures_the_prosecutor_and_the_journalist_by_hand(members: list[Any], rows: list[Region]) -> None:
    found = Linkage().run(released(rows), Records(frame(members)), Records(frame(EVERYONE)), seed=0)
    chances = [sum(is_covered(who, row) for row in rows) for who in members]
    assert found.details["prosecutor"] == pytest.approx(np.mean([1 / n if n else 0 for n in chances]))
    assert found.details["unique"] == pytest.approx(np.mean([n == 1 for n in chances]))
    population = [sum(is_covered(who, row) for who in members + EVERYONE) for row in rows]
    assert found.details["journalist"] == pytest.approx(np.mean([1 / n for n in population]))


def test_the_guesses_of_linkage_are_right_as_often_as_the_prosecutor_says() -> None:
    """4,000 people in classes of 4 with 4 different diseases: a right guess has a chance of 1/4 (6 deviations)."""
    who = [(age, "f", disease) for age in range(1000) for disease in "abcd"]
    rows = [(str(age), "f", disease) for age, _, disease in who]
    target = TableTarget(frame(rows), schema())
    found = Linkage().run(target, Records(frame(who)), Records(frame([(0, "f", "e"), (1, "f", "e")])), seed=1)
    assert found.details["prosecutor"] == 0.25
    assert abs(found.members.mean() - 0.25) < 6 * np.sqrt(0.25 * 0.75 / 4000)
    assert found.nonmembers.tolist() == [0.0, 0.0]


def made(seed: int, n: int = 600) -> tuple[Records, Records]:
    """People whose disease nobody can predict."""
    rng = np.random.default_rng(seed)
    rows = [
        (int(age), str(sex), str(disease))
        for age, sex, disease in zip(
            rng.integers(20, 90, n), rng.choice(["f", "m"], n), rng.choice(DISEASES, n), strict=True
        )
    ]
    return Records(frame(rows[: n // 2])), Records(frame(rows[n // 2 :]))


def test_linkage_finds_a_raw_table_and_not_one_of_a_single_class() -> None:
    inside, outside = made(0)
    raw = TableTarget(inside.frame, schema())
    assert result_of(Linkage(), [Linkage().run(raw, inside, outside, 0)], seed=0).leaks
    flat = inside.frame.with_columns(age=pl.lit("20-89"), sex=pl.lit("{f, m}"))
    assert not result_of(Linkage(), [Linkage().run(TableTarget(flat, schema()), inside, outside, 0)], seed=0).leaks


def result(attack: Attack, target: Any, inside: Records | None, outside: Records | None) -> AttackResult:
    return result_of(attack, [attack.run(target, inside, outside, seed=0)], seed=0)  # type: ignore[arg-type]


def usual(rows: list[Region]) -> str:
    count = Counter(row[2] for row in rows)
    return min(count, key=lambda value: (-count[value], value))


@given(people, regions)
@settings(max_examples=60)
def test_homogeneity_and_skewness_guess_as_by_hand(members: list[Any], rows: list[Region]) -> None:
    target, inside, outside = released(rows), Records(frame(members)), Records(frame(EVERYONE))
    whole = Counter(row[2] for row in rows)
    same = Homogeneity().run(target, inside, outside, 0)
    most = Skewness().run(target, inside, outside, 0)
    assert same.baseline.accuracy == most.baseline.accuracy == np.mean([one[2] == usual(rows) for one in members])
    for place, who in enumerate(members + EVERYONE):
        values = Counter(row[2] for row in rows if is_covered(who, row))
        if not values:
            continue
        only = next(iter(values)) if len(values) == 1 else usual(rows)
        mode = min(values, key=lambda value: (-values[value], -whole[value], value))
        for scores, guess in ((same, only), (most, mode)):
            assert np.concatenate([scores.members, scores.nonmembers])[place] == (guess == who[2])


@given(
    st.lists(st.tuples(st.sampled_from(["20-29", "30-39", "*"]), st.sampled_from(DISEASES)), min_size=2, max_size=12)
)
@settings(max_examples=60)
def test_on_the_release_alone_each_row_is_guessed_with_and_without_itself(rows: list[tuple[str, str]]) -> None:
    table = pl.DataFrame(rows, schema=["age", "disease"], orient="row")
    columns = [sf.Column(name="age", role="quasi"), sf.Column(name="disease", role="sensitive")]
    found = Skewness().run(TableTarget(table, sf.Schema(columns)), None, None, 0)
    kept = [row for row in rows if row[0] != "*"] or rows
    whole = Counter(disease for _, disease in kept)
    for scores, own in ((found.members, 0), (found.nonmembers, 1)):
        for place, (age, disease) in enumerate(kept):
            values = Counter(other for same, other in kept if same == age)
            values[disease] -= own
            values = +values or whole
            guess = min(values, key=lambda value: (-values[value], -whole[value], value))
            assert scores[place] == (guess == disease)


@pytest.mark.parametrize("attack", [Homogeneity(), BackgroundKnowledge(), Skewness()], ids=lambda attack: attack.name)
@pytest.mark.parametrize("alone", [False, True])
def test_attacks_on_secrets_find_small_classes_and_not_a_large_one(attack: Attack, alone: bool) -> None:
    inside, outside = made(0, 400)
    records = (None, None) if alone else (inside, outside)
    raw = TableTarget(inside.frame, schema())
    assert result(attack, raw, *records).leaks
    flat = inside.frame.with_columns(age=pl.lit("20-89"), sex=pl.lit("{f, m}"))
    assert not result(attack, TableTarget(flat, schema()), *records).leaks


def test_a_secret_that_follows_from_the_age_is_not_leaked_by_the_release() -> None:
    """Everybody can guess it, so the control is guessed as well, though all classes are homogeneous."""
    inside, outside = (
        Records(
            records.frame.with_columns(
                disease=pl.when(pl.col("age") < 50).then(pl.lit("flu")).otherwise(pl.lit("cold"))
            )
        )
        for records in made(0)
    )
    table = inside.frame.with_columns(
        age=pl.when(pl.col("age") < 50).then(pl.lit("20-49")).otherwise(pl.lit("50-89")), sex=pl.lit("{f, m}")
    )
    found = result(Homogeneity(), TableTarget(table, schema()), inside, outside)
    assert found.scores.details["certain"] == 1.0
    assert (found.accuracy, found.auc) == (1.0, 0.5)
    assert not found.leaks


def test_an_attacker_who_rules_out_all_other_values_needs_no_release() -> None:
    inside, outside = made(0)
    target = TableTarget(inside.frame, schema())
    assert BackgroundKnowledge(excluded=2).obstacle(target, inside, outside) == (
        "it needs at least 4 different values, so that ruling some out leaves a choice, and column 'disease' has 3"
    )
    found = result(BackgroundKnowledge(excluded=2), target, inside, outside)
    assert (found.accuracy, found.baseline.accuracy) == (1.0, 1.0)
    assert not found.leaks


def test_similar_values_are_those_of_a_group_of_the_hierarchy() -> None:
    tree = sf.Hierarchy.tree([("gastritis", "stomach"), ("ulcer", "stomach"), ("flu", "lung"), ("cold", "lung")])
    columns = [sf.Column(name="age", role="quasi"), sf.Column(name="disease", role="sensitive", hierarchy=tree)]
    table = pl.DataFrame({"age": ["20"] * 2 + ["30"] * 3, "disease": ["gastritis", "ulcer", "flu", "ulcer", "cold"]})
    target = TableTarget(table, sf.Schema(columns))
    assert Similarity().run(target, None, None, 0).members.tolist() == [1, 1, 1, 0, 1]
    assert Homogeneity().run(target, None, None, 0).details["certain"] == 0
    plain = TableTarget(table, sf.Schema([columns[0], sf.Column(name="disease", role="sensitive")]))
    assert Similarity().obstacle(plain, None, None) == (
        "it needs an order or a hierarchy of the values of column 'disease'"
    )


def test_each_sensitive_column_is_attacked_by_itself() -> None:
    table = pl.DataFrame({"age": [1, 1, 2, 2], "disease": ["a", "b", "a", "b"], "income": [1, 9, 1, 9]})
    target = TableTarget(table, sf.Table.of(table, qi=["age"], sensitive=["disease", "income"]).schema)
    report = run_attacks(attacks_of(["skewness", "similarity"]), target, None, None)
    assert [one.name for one in report.results] == ["skewness:disease", "skewness:income", "similarity:income"]
    assert list(report.skipped) == ["similarity:disease"]


def test_a_population_table_with_other_columns_is_refused_in_one_sentence() -> None:
    inside, outside = made(0)
    target = TableTarget(inside.frame, schema())
    with pytest.raises(ColumnError, match="the control records have no column 'age', and the release has one"):
        Linkage().run(target, inside, Records(outside.frame.rename({"age": "years"})), 0)


def test_a_population_table_gives_the_journalist_the_people_to_choose_from() -> None:
    inside, outside = made(0)
    flat = inside.frame.with_columns(age=pl.lit("20-89"), sex=pl.lit("{f, m}"))
    population = pl.concat([inside.frame, outside.frame, outside.frame]).select("sex", "age")
    found = Linkage().run(TableTarget(flat, schema(), population=population), inside, outside, 0)
    assert found.details["journalist"] == pytest.approx(1 / 900)
    assert found.details["prosecutor"] == pytest.approx(1 / 300)
    other = TableTarget(flat, schema(), population=population.rename({"age": "years"}))
    with pytest.raises(ColumnError, match="the population table has no column 'age', which is a quasi-identifier"):
        Linkage().run(other, inside, outside, 0)


def test_a_table_without_rows_is_refused_in_one_sentence() -> None:
    inside, outside = made(0)
    target = TableTarget(inside.frame[:0], schema())
    for records in ((inside, outside), (None, None)):
        with pytest.raises(InputError, match="the table that is attacked has no rows"):
            Skewness().run(target, *records, seed=0)


def test_linkage_says_what_it_lacks() -> None:
    inside, outside = made(0)
    bare = TableTarget(inside.frame.select("age"), sf.Schema([sf.Column(name="age", role="quasi")]))
    assert Linkage().obstacle(bare, inside, outside) == (
        "it needs a column beside the quasi-identifiers, by which a link can be checked"
    )
    report = run_attacks(attacks_of(["linkage"]), TableTarget(inside.frame, schema()), None, None)
    assert dict(report.skipped) == {"linkage": "it needs the original records (--source)"}
    assert Counter(map(type, report.results)) == Counter()


@pytest.mark.parametrize("method", ["lattice", "mondrian", "suppress", "microaggregate"])
def test_every_attack_on_tables_reads_a_release_with_its_hierarchies(method: str) -> None:
    rng = np.random.default_rng(0)
    jobs = sf.Hierarchy.tree([("nurse", "health"), ("doctor", "health"), ("cook", "food"), ("baker", "food")])
    columns = [
        sf.Column(name="age", role="quasi", hierarchy=sf.Hierarchy.intervals(widths=[10, 20], bounds=(0, 100))),
        sf.Column(name="job", role="quasi", hierarchy=jobs),
        sf.Column(name="born", role="quasi"),
        sf.Column(name="income", role="sensitive"),
    ]
    table = pl.DataFrame(
        {
            "age": rng.integers(20, 90, 160),
            "job": rng.choice(["nurse", "doctor", "cook", "baker"], 160),
            "born": pl.Series(rng.integers(0, 9000, 160)).cast(pl.Int32).cast(pl.Date),
            "income": rng.normal(3000, 500, 160).round(),
        }
    )
    release = sf.anonymize(table, "k=3", schema=sf.Schema(columns), method=method)
    report = sf.attack(release, source=table, references=4, processes=1)
    assert {one.name for one in report.results} == set(ON_TABLES)
    assert not report.skipped
    alone = sf.attack(release)
    assert [one.name for one in alone.results] == ["homogeneity", "background-knowledge", "skewness", "similarity"]
