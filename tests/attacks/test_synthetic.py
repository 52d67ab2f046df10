"""Attacks on synthetic tables: a set that copies records is found, and one that was drawn independently is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.attacks import (
    ATTACKS,
    Attack,
    AttackResult,
    Records,
    Roc,
    SyntheticTarget,
    TableTarget,
    attacks_of,
    result_of,
)
from sfumato.attacks.catalogue import SHOWN_BY
from sfumato.attacks.tables.closest_record import ClosestRecord
from sfumato.attacks.tables.conditions import Conditions, ReleasedRows, met
from sfumato.attacks.tables.inference import Inference
from sfumato.attacks.tables.linkability import Linkability
from sfumato.attacks.tables.reading import read_pairing
from sfumato.attacks.tables.shadow import Shadow
from sfumato.attacks.tables.singling_out import SinglingOut, SinglingOutUnivariate
from sfumato.errors import InputError
from sfumato.report.summarise import _MODELS


def people(n: int, seed: int) -> pl.DataFrame:
    """People whose columns are independent, so that nothing about one column follows from the others."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "age": rng.integers(18, 95, n),
            "weight": rng.normal(75, 12, n).round(1),
            "height": rng.normal(170, 9, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "town": rng.choice(["Aachen", "Bonn", "Celle", "Dachau"], n),
            "disease": rng.choice(["flu", "cold", "ulcer", "gout"], n),
        }
    )


INSIDE, OUTSIDE, FRESH = (people(300, seed) for seed in range(3))
ROLES = sf.Table.of(INSIDE, qi=["age", "sex", "town"], sensitive=["disease"]).schema


def result(attack: Attack, synthetic: pl.DataFrame) -> AttackResult:
    target = SyntheticTarget(synthetic, ROLES)
    return result_of(attack, [attack.run(target, Records(INSIDE), Records(OUTSIDE), seed=0)], seed=0)


GUESSING = [Inference(), Linkability(), SinglingOut(queries=200), SinglingOutUnivariate(queries=200)]


@pytest.mark.parametrize("attack", GUESSING, ids=lambda attack: attack.name)
def test_a_copy_of_the_records_is_found_and_fresh_records_are_not(attack: Attack) -> None:
    copied = result(attack, INSIDE.sample(fraction=1, shuffle=True, seed=1))
    assert copied.leaks
    assert copied.decisions.chance() < 1e-6
    assert not result(attack, FRESH).leaks


@pytest.mark.parametrize("attack", GUESSING, ids=lambda attack: attack.name)
def test_an_attack_depends_on_its_seed_alone(attack: Attack) -> None:
    target = SyntheticTarget(FRESH, ROLES)
    one, same = (attack.run(target, Records(INSIDE), Records(OUTSIDE), seed=3) for _ in range(2))
    assert one.members.tolist() == same.members.tolist()
    assert one.nonmembers.tolist() == same.nonmembers.tolist()
    assert one.baseline == same.baseline


def test_every_attack_that_an_assessment_names_can_be_run() -> None:
    named = {name for model in _MODELS.values() for name in model.stops.split(", ")}
    assert named == set(SHOWN_BY)
    assert len(named) == 7
    assert set(SHOWN_BY.values()) <= set(ATTACKS)


# Singling out


def test_a_copied_outlier_is_singled_out_by_its_extreme_value() -> None:
    inside = pl.DataFrame({"income": [10, 20, 20, 900], "sex": ["f", "f", "m", "m"]})
    outside = pl.DataFrame({"income": [20, 20, 20, 20], "sex": ["f", "f", "m", "m"]})
    target = SyntheticTarget(inside, sf.Table(inside).schema)
    found = SinglingOutUnivariate(queries=5).run(target, Records(inside), Records(outside), seed=0)
    # = 10, = 900, <= 10, >= 900; the fifth condition does not exist, and counts as a failure.
    assert dict(found.details) == {"asked": 5, "found": 4, "columns": 1}
    assert found.members.tolist() == [1, 1, 1, 1, 0]
    assert found.nonmembers.tolist() == [0, 0, 0, 0, 0]


def test_a_k_anonymous_table_leaves_no_condition_and_every_guess_fails() -> None:
    table = pl.DataFrame({"age": ["20-59", "60-99"] * 50})
    records = [Records(pl.DataFrame({"age": ages})) for ages in (np.arange(20, 100), np.arange(20, 100))]
    target = TableTarget(table, sf.Schema([sf.Column(name="age", role="quasi")]))
    found = SinglingOut(queries=30).run(target, records[0], records[1], seed=0)
    assert found.details["found"] == 0
    assert (found.members.sum(), len(found.members), len(found.nonmembers)) == (0, 30, 30)


rows = st.lists(st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from("abc")), min_size=2, max_size=8)


def meets(value: Any, sign: int, limit: Any) -> bool:
    if sign == 0 or limit is None:
        return bool(value == limit)
    return value is not None and (value <= limit if sign == 1 else value >= limit)


@given(rows, rows, st.integers(0, 100))
def test_conditions_select_the_rows_and_records_that_meet_them(ours: list[Any], theirs: list[Any], seed: int) -> None:
    types = {"number": pl.Int64, "letter": pl.String}
    release, records = (pl.DataFrame(some, schema=types, orient="row") for some in (theirs, ours))
    target = SyntheticTarget(release, sf.Table(release).schema)
    both = read_pairing(target, Records(records), Records(records), ["number", "letter"])
    rng = np.random.default_rng(seed)
    made = ReleasedRows(both, rng, distinct=False)
    values = [domain.values.to_list() for domain in both.domains]
    for kind, found in (("around", made.around(6, 2, rng)), ("random", made.random(6, 2, rng))):
        parts = [
            [(c, s, values[c][v]) for c, s, v in zip(*part, strict=True)]
            for part in zip(found.column.tolist(), found.sign.tolist(), found.code.tolist(), strict=True)
        ]
        by_hand = [
            [sum(all(meets(row[c], s, v) for c, s, v in part) for row in table) for part in parts]
            for table in (theirs, ours)
        ]
        if kind == "around":
            assert made.met(found).tolist() == by_hand[0]
            assert min(by_hand[0]) >= 1
        assert met(both, found, np.arange(len(ours))).tolist() == by_hand[1]


def test_a_generalised_value_is_a_condition_on_the_values_that_it_stands_for() -> None:
    table = pl.DataFrame({"age": ["20-29", "30-39", "30-39"]})
    records = Records(pl.DataFrame({"age": [20, 25, 30, 41]}))
    both = read_pairing(TableTarget(table, sf.Schema([sf.Column(name="age", role="quasi")])), records, records, ["age"])
    signs = np.array([[0], [0], [1], [2]])  # is 20-29, is 30-39, at most 29, at least 30
    conditions = Conditions(np.zeros((4, 1), int), signs, np.array([[0], [1], [0], [1]]))
    assert met(both, conditions, np.arange(4)).tolist() == [2, 1, 2, 2]


# Inference and linkability


def test_missing_values_are_alike_and_far_from_all_others() -> None:
    inside = pl.DataFrame({"age": [None, 40.0], "sex": ["f", None], "disease": ["flu", "cold"]})
    outside = pl.DataFrame({"age": [None, 40.0], "sex": [None, None], "disease": ["cold", "cold"]})
    target = SyntheticTarget(inside, sf.Table.of(inside, qi=["age", "sex"], sensitive=["disease"]).schema)
    found = Inference().run(target, Records(inside), Records(outside), seed=0)
    assert found.members.tolist() == [1, 1]
    assert found.nonmembers[1] == 1


def test_a_guessed_number_is_right_within_five_percent_of_the_range_whatever_its_sign() -> None:
    synthetic = pl.DataFrame({"age": [1, 2, 3, 4], "balance": [-100.0, -50.0, 0.0, 100.0]})
    inside = pl.DataFrame({"age": [1, 2, 3, 4], "balance": [-90.0, -61.0, 5.0, 100.0]})
    target = SyntheticTarget(synthetic, sf.Table.of(inside, sensitive=["balance"]).schema)
    found = Inference().run(target, Records(inside), Records(inside), seed=0)
    assert found.members.tolist() == [1, 0, 1, 1]


def test_fewer_records_than_queries_are_all_used_and_the_number_asked_for_is_stated() -> None:
    found = Linkability(queries=1000).run(SyntheticTarget(FRESH, ROLES), Records(INSIDE), Records(OUTSIDE), 0)
    assert (len(found.members), len(found.nonmembers), found.details["asked"]) == (300, 300, 1000)
    few = Linkability(queries=20).run(SyntheticTarget(FRESH, ROLES), Records(INSIDE), Records(OUTSIDE), 0)
    assert (len(few.members), len(few.nonmembers)) == (20, 20)


def test_a_column_of_other_types_is_refused_in_one_sentence() -> None:
    texts = FRESH.with_columns(pl.col("age").cast(pl.String) + " years")
    with pytest.raises(InputError, match="column 'age' holds numbers in one table and String in another"):
        Linkability().run(SyntheticTarget(texts, ROLES), Records(INSIDE), Records(OUTSIDE), 0)


# Distance to the closest record, and shadow sets


def gower(one: tuple[Any, ...], other: tuple[Any, ...], spans: list[float | None]) -> float:
    parts = []
    for a, b, span in zip(one, other, spans, strict=True):
        if a is None or b is None or span is None:
            parts.append(float(a != b))
        else:
            parts.append(abs(a - b) / span if span else 0.0)
    return float(np.mean(parts))


@given(rows, rows, rows)
def test_the_distance_to_the_closest_record_is_that_of_gower(
    ours: list[Any], others: list[Any], made: list[Any]
) -> None:
    types = {"number": pl.Int64, "letter": pl.String}
    inside, outside, synthetic = (pl.DataFrame(some, schema=types, orient="row") for some in (ours, others, made))
    target = SyntheticTarget(synthetic, sf.Table(synthetic).schema)
    found = ClosestRecord().run(target, Records(inside), Records(outside), seed=0)
    numbers = [row[0] for row in ours + others + made if row[0] is not None]
    spans = [max(numbers) - min(numbers) if numbers and max(numbers) > min(numbers) else None, None]
    for scores, people_of in ((found.members, ours), (found.nonmembers, others)):
        for score, one in zip(scores, people_of, strict=True):
            assert -score == pytest.approx(min(gower(one, row, spans) for row in made), abs=1e-6)
    if len(ours) == len(others):
        nearest = [[min(gower(one, row, spans) for one in some) for row in made] for some in (ours, others)]
        closer = [(a < b) + (a == b) / 2 if abs(a - b) > 1e-9 else 0.5 for a, b in zip(*nearest, strict=True)]
        assert found.details["closer_to_members"] == pytest.approx(np.mean(closer))


def leaky(records: Records, seed: int) -> pl.DataFrame:
    """Copy half of the records, and draw the others afresh."""
    copied = records.frame.sample(fraction=0.5, seed=seed)
    return pl.concat([copied, people(len(records) - len(copied), 10_000 + seed)])


def independent(records: Records, seed: int) -> pl.DataFrame:
    """Draw every column by itself, without looking at the records."""
    return people(len(records), 30_000 + seed)


def marginals(records: Records, seed: int) -> pl.DataFrame:
    """Draw every column by itself from its values, in ranges: no row is near to a record."""
    rng = np.random.default_rng(seed)
    drawn = {}
    for values in records.frame.iter_columns():
        some = values.gather(rng.integers(0, len(values), len(values)))
        drawn[values.name] = (some / 5).round() * 5 if values.dtype.is_float() else some
    return pl.DataFrame(drawn)


@pytest.mark.parametrize("attack", [ClosestRecord(), Shadow()], ids=lambda attack: attack.name)
def test_a_generator_that_copies_is_found_and_an_independent_one_is_not(attack: Attack) -> None:
    inside, outside = Records(INSIDE), Records(OUTSIDE)
    for make, expected in ((leaky, True), (independent, False)):
        target = SyntheticTarget(make(inside, 0), ROLES, procedure=make, references=4, processes=1)
        found = result_of(attack, [attack.run(target, inside, outside, seed=0)], seed=0)
        assert found.leaks == expected
        assert (found.roc.auc_interval(1 - 1e-6).low > 0.5) == expected


def triples(records: Records, seed: int) -> pl.DataFrame:
    """Draw age, sex and town together from the records, and all else afresh: no row is near to a record."""
    drawn = records.frame.sample(len(records), with_replacement=True, seed=seed).select("age", "sex", "town")
    return people(len(records), 20_000 + seed).with_columns(drawn.get_columns())


@pytest.mark.parametrize(("make", "least"), [(triples, 0.66), (marginals, 0.53)])
def test_shadow_sets_find_copied_frequencies_that_the_distance_does_not_see(make: Any, least: float) -> None:
    inside, outside = Records(INSIDE), Records(OUTSIDE)
    target = SyntheticTarget(make(inside, 0), ROLES, procedure=make, references=8, processes=1)
    near, shadow = (
        result_of(attack, [attack.run(target, inside, outside, seed=0)], seed=0)
        for attack in (ClosestRecord(), Shadow())
    )
    assert not near.leaks
    assert shadow.leaks
    assert shadow.auc > least


def test_shadow_sets_tell_a_member_from_one_who_is_always_near() -> None:
    """Records that are near to every set, with or without them, have no higher score than others."""
    crowd = pl.DataFrame({"x": np.repeat([0.0], 100), "y": np.repeat([0.0], 100)})
    far = pl.DataFrame(np.random.default_rng(0).uniform(1, 2, (200, 2)), schema=["x", "y"])
    inside, outside = Records(pl.concat([crowd, far[:100]])), Records(pl.concat([crowd, far[100:]]))
    target = SyntheticTarget(
        inside.frame,
        sf.Table(inside.frame).schema,
        procedure=lambda records, _: records.frame,
        references=4,
        processes=1,
    )
    found = Shadow().run(target, inside, outside, seed=0)
    assert np.abs(np.concatenate([found.members[:100], found.nonmembers[:100]])).max() < 0.1
    assert Roc(found.members[100:], found.nonmembers[100:]).auc > 0.9


def test_columns_without_values_tell_nothing() -> None:
    """A column that is missing everywhere, and one with a single value, are as far from all rows."""
    empty = [pl.lit(None, dtype=pl.Float64).alias("score"), pl.lit(7).alias("visits")]
    inside, outside, synthetic = (frame[:40].with_columns(empty) for frame in (INSIDE, OUTSIDE, FRESH))
    roles = sf.Table.of(synthetic, qi=["age", "score"], sensitive=["disease"]).schema
    target = SyntheticTarget(synthetic, roles, procedure=lambda records, _: records.frame, references=4, processes=1)
    for attack in attacks_of():
        if "synthetic" in attack.targets:
            found = attack.run(target, Records(inside), Records(outside), seed=0)
            assert np.isfinite(np.concatenate([found.members, found.nonmembers])).all()


def test_the_attack_with_shadow_sets_says_what_it_lacks() -> None:
    inside, outside = Records(INSIDE), Records(OUTSIDE)
    assert Shadow().obstacle(SyntheticTarget(FRESH, ROLES), inside, outside) == (
        "it makes shadow sets, and how the target was made is not known"
    )
    few = SyntheticTarget(FRESH, ROLES, procedure=leaky, references=2)
    assert Shadow().obstacle(few, inside, outside) == "it needs at least 4 references, half of them without each record"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda records, _: records.frame.to_dicts(), "the procedure must return a polars frame, and returned a list"),
        (lambda records, _: records.frame[:0], "the procedure returned a table without rows"),
        (lambda records, _: 1 / 0, "the procedure raised a ZeroDivisionError"),
    ],
)
def test_a_procedure_that_fails_is_reported_in_one_sentence(make: Any, message: str) -> None:
    target = SyntheticTarget(FRESH, ROLES, procedure=make, references=4, processes=1)
    with pytest.raises(InputError, match=message):
        Shadow().run(target, Records(INSIDE), Records(OUTSIDE), seed=0)
