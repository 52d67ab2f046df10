"""Every measure of information loss equals its definition, written out slowly, and keeps its conventions."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato import loss
from sfumato.measures import distances
from sfumato.measures.loss.generalised import pair, pair_codes
from sfumato.measures.loss.information_loss import kl_divergence, loss_of
from sfumato.measures.loss.marginals import distances_of

CLOSE = {"rel": 1e-9, "abs": 1e-12}
NAMES = ["age", "city"]
AGES, CITIES = range(8), ["a", "b", "c", "d", None]

# A row and what it is released as: (age, city) and (lowest age, highest age, cities); None is suppressed.
Row = tuple[tuple[int, Any], tuple[int, int, frozenset[Any]] | None]


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made: list[Row] = []
    for age, city in draw(st.lists(st.tuples(st.sampled_from(AGES), st.sampled_from(CITIES)), min_size=1, max_size=25)):
        low, high = draw(st.integers(0, age)), draw(st.integers(age, 7))
        others = draw(st.sets(st.sampled_from(CITIES[:4]), max_size=3)) if city is not None else set()
        made.append(((age, city), draw(st.sampled_from([None, *[(low, high, frozenset({city, *others}))] * 4]))))
    return made


def tables(made: list[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    present = {city for (_, city), _ in made}
    original = pl.DataFrame({"age": [age for (age, _), _ in made], "city": [city for (_, city), _ in made]})
    age, city = [], []
    for _, released in made:
        if released is None:
            age.append("*"), city.append("*")
            continue
        low, high, cities = released
        named = sorted(one for one in cities if one in present and one is not None)
        age.append(f"[{low}, {high}]" if low < high else str(low))
        city.append("{" + ", ".join(named) + "}" if named else None)
    return original, pl.DataFrame({"age": age, "city": city}, schema={"age": pl.String, "city": pl.String})


def sets(made: list[Row]) -> list[tuple[set[Any], set[Any]]]:
    """Return the original values that each released cell stands for."""
    ages, cities = {age for (age, _), _ in made}, {city for (_, city), _ in made}
    return [
        (ages, cities) if one is None else ({a for a in ages if one[0] <= a <= one[1]}, set(one[2]) & cities)
        for _, one in made
    ]


def brute_ncp(made: list[Row]) -> tuple[float, float]:
    ages, cities = {age for (age, _), _ in made}, {city for (_, city), _ in made}
    span = max(ages) - min(ages)
    by_age, by_city = [], []
    for _, released in made:
        if released is None:
            by_age.append(1.0), by_city.append(1.0)
            continue
        low, high = max(released[0], min(ages)), min(released[1], max(ages))
        by_age.append((high - low) / span if span else 0.0)
        held = len(released[2] & cities)
        by_city.append(held / len(cities) if held > 1 else 0.0)
    return sum(by_age) / len(made), sum(by_city) / len(made)


def brute_entropy(made: list[Row]) -> float:
    lost = held = 0.0
    for column in (0, 1):
        count = Counter(original[column] for original, _ in made)
        for (original, _), stands_for in zip(made, sets(made), strict=True):
            among = sum(count[value] for value in stands_for[column])
            lost -= math.log2(count[original[column]] / among)
            held -= math.log2(count[original[column]] / len(made))
    return lost / held if held else 0.0


def brute_kl(made: list[Row]) -> float:
    p = Counter(original for original, _ in made)
    q: Counter[tuple[Any, Any]] = Counter()
    for ages, cities in sets(made):
        for cell in itertools.product(ages, cities):
            q[cell] += 1 / (len(ages) * len(cities))  # type: ignore[assignment]
    return sum(count / len(made) * math.log2(count / q[cell]) for cell, count in p.items())


@settings(max_examples=100)
@given(rows())
def test_loss_equals_its_definition(made: list[Row]) -> None:
    original, released = tables(made)
    found = loss(original, released, quasi=NAMES)
    by_age, by_city = brute_ncp(made)
    assert found.by_column["age"].ncp == pytest.approx(by_age, **CLOSE)
    assert found.by_column["city"].ncp == pytest.approx(by_city, **CLOSE)
    assert found.gcp == pytest.approx((by_age + by_city) / 2, **CLOSE)
    assert found.entropy == pytest.approx(brute_entropy(made), **CLOSE)
    assert found.kl == pytest.approx(brute_kl(made), rel=1e-9, abs=1e-9)
    classes = Counter(zip(*released.to_dict(as_series=False).values(), strict=True))
    gone = classes.pop(("*", "*"), 0) if len(classes) > 1 else 0
    assert found.suppressed == gone / len(made)
    assert found.discernibility == sum(size**2 for size in classes.values()) + gone * len(made)
    assert found.average_class == pytest.approx(sum(classes.values()) / len(classes))
    assert 0 <= found.gcp <= 1
    assert 0 <= found.entropy <= 1


@given(rows())
def test_nothing_is_lost_when_the_original_is_released(made: list[Row]) -> None:
    original, _ = tables(made)
    found = loss(original, original, quasi=NAMES)
    assert (found.gcp, found.entropy, found.kl, found.precision, found.suppressed) == (0, 0, 0, 1, 0)


@given(rows())
def test_everything_is_lost_when_everything_is_marked(made: list[Row]) -> None:
    original, _ = tables(made)
    found = loss(original, pl.DataFrame({"age": ["*"] * len(made), "city": ["*"] * len(made)}), quasi=NAMES)
    assert (found.gcp, found.precision, found.discernibility) == (1, 0, len(made) ** 2)
    several = any(original[name].n_unique() > 1 for name in NAMES)
    assert found.entropy == pytest.approx(1 if several else 0)


@given(rows(), st.data())
def test_further_generalisation_never_lowers_the_loss(made: list[Row], data: st.DataObject) -> None:
    wider: list[Row] = []
    for original, released in made:
        if released is not None:
            low, high = data.draw(st.integers(0, released[0])), data.draw(st.integers(released[1], 7))
            more = data.draw(st.sets(st.sampled_from(CITIES[:4]))) if original[1] is not None else set()
            released = data.draw(st.sampled_from([None, *[(low, high, released[2] | more)] * 3]))
        wider.append((original, released))
    before, after = (loss(*tables(one), quasi=NAMES) for one in (made, wider))
    for name in NAMES:
        assert after.by_column[name].ncp >= before.by_column[name].ncp - 1e-12
        assert after.by_column[name].entropy >= before.by_column[name].entropy - 1e-12
    assert after.gcp >= before.gcp - 1e-12


def test_a_table_by_hand() -> None:
    # Ages 20 to 60 (range 40); three cities.
    original = pl.DataFrame({"age": [20, 30, 50, 60], "city": ["Bonn", "Rome", "Oslo", "Oslo"]})
    released = pl.DataFrame(
        {"age": ["[20, 30]", "[20, 30]", "[50, 60]", "*"], "city": ["{Bonn, Rome}", "{Bonn, Rome}", "Oslo", "*"]}
    )
    found = loss(original, released, quasi=NAMES)
    assert found.by_column["age"].ncp == pytest.approx((10 / 40 * 3 + 1) / 4)
    assert found.by_column["city"].ncp == pytest.approx((2 / 3 * 2 + 0 + 1) / 4)
    assert found.discernibility == 2**2 + 1**2 + 4 * 1
    assert found.average_class == 3 / 2
    assert found.suppressed == 0.25
    assert found.precision is None
    # Bits lost: age 1 + 1 + 1 + 2 of 8; city 1 + 1 + 0 + 1 of 2 + 2 + 1 + 1.
    assert found.by_column["age"].entropy == pytest.approx(5 / 8)
    assert found.by_column["city"].entropy == pytest.approx(3 / 6)
    assert found.entropy == pytest.approx(8 / 14)
    # Mass: the first two rows spread over 2 x 2 cells each, the third over 2 x 1, the last over 4 x 3.
    q = [(2 / 4 + 1 / 12) / 4, (2 / 4 + 1 / 12) / 4, (1 / 2 + 1 / 12) / 4, (1 / 2 + 1 / 12) / 4]
    assert found.kl == pytest.approx(sum(math.log2(0.25 / one) / 4 for one in q))
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["by_column"]["age"]["ncp"] == 0.4375
    assert list(found.to_dict()) == [
        *("gcp", "discernibility", "average_class", "suppressed", "precision", "entropy", "kl", "by_column")
    ]


def test_the_precision_of_sweeneys_definition() -> None:
    # Levels 1, 1, 0 of 2 in illness; 0, 0, 1 of 1 in sex: 1 - (2/2 + 1) / 6.
    tree = sf.Hierarchy.tree([("flu", "lung"), ("asthma", "lung"), ("ulcer", "stomach")])
    schema = sf.Schema([sf.Column(name="illness", role="quasi", hierarchy=tree), sf.Column(name="sex", role="quasi")])
    original = sf.Table(pl.DataFrame({"illness": ["flu", "asthma", "ulcer"], "sex": ["f", "m", "m"]}), schema)
    released = pl.DataFrame({"illness": ["lung", "lung", "ulcer"], "sex": ["f", "m", "*"]})
    found = loss(original, released)
    assert found.precision == pytest.approx(1 - 2 / 6)
    assert found.by_column["illness"].precision == pytest.approx(1 - 1 / 3)
    # The node covers two of three leaves.
    assert found.by_column["illness"].ncp == pytest.approx((2 / 3 * 2) / 3)


def test_only_the_marked_cells_of_a_row_are_lost() -> None:
    original = pl.DataFrame({"age": [20, 30], "city": ["Bonn", "Rome"]})
    found = loss(original, pl.DataFrame({"age": ["*", "30"], "city": ["Bonn", "Rome"]}), quasi=NAMES)
    assert (found.gcp, found.suppressed, found.by_column["age"].suppressed) == (0.25, 0, 0.5)


def test_a_constant_column_has_nothing_to_lose_but_to_the_mark() -> None:
    original = pl.DataFrame({"age": [40, 40], "city": ["Bonn", "Bonn"]})
    assert loss(original, pl.DataFrame({"age": ["[30, 50]"] * 2, "city": ["{Bonn}"] * 2}), quasi=NAMES).gcp == 0
    found = loss(original, pl.DataFrame({"age": ["*", "40"], "city": ["*", "Bonn"]}), quasi=NAMES)
    assert (found.gcp, found.entropy, found.suppressed) == (0.5, 0, 0.5)


def test_a_missing_value_is_kept_or_erased() -> None:
    original = pl.DataFrame({"age": [20, None, 60], "city": ["Bonn", "Rome", None]})
    assert loss(original, original, quasi=NAMES).gcp == 0
    erased = pl.DataFrame({"age": [20, None, None], "city": ["Bonn", "Rome", None]})
    found = loss(original, erased, quasi=NAMES)
    assert found.by_column["age"].ncp == pytest.approx(1 / 3)
    assert found.by_column["city"].ncp == 0
    assert found.by_column["age"].precision == pytest.approx(2 / 3)


def test_dates_are_measured_along_the_calendar() -> None:
    original = pl.DataFrame({"born": [dt.date(2000, 1, 1), dt.date(2000, 1, 11), dt.date(2000, 4, 10)]})
    released = pl.DataFrame({"born": ["[2000-01-01, 2000-01-12)", "[2000-01-01, 2000-01-11]", "2000-04-10"]})
    assert loss(original, released, quasi=["born"]).gcp == pytest.approx(2 * 10 / 100 / 3)


def test_public_bounds_and_domains_are_what_all_means() -> None:
    schema = sf.Schema(
        [
            sf.Column(name="age", role="quasi", kind="number", bounds=(0, 100)),
            sf.Column(name="city", role="quasi", domain=("Bonn", "Rome", "Oslo", "Bern")),
        ]
    )
    original = sf.Table(pl.DataFrame({"age": [20, 30], "city": ["Bonn", "Rome"]}), schema)
    released = pl.DataFrame({"age": ["[20, 30]"] * 2, "city": ["{Bonn, Rome}"] * 2})
    found = loss(original, released)
    assert found.by_column["age"].ncp == pytest.approx(0.1)
    assert found.by_column["city"].ncp == pytest.approx(0.5)


def test_representatives_have_no_penalty_but_lose_bits_and_make_kl_infinite() -> None:
    original = pl.DataFrame({"age": [20, 30, 40, 50]})
    found = loss(original, pl.DataFrame({"age": [25, 25, 40, 50]}), quasi=["age"])
    assert (found.gcp, found.entropy, found.kl) == (0, 0.5, math.inf)
    assert found.to_dict()["kl"] == "inf"


def test_a_release_of_other_rows_is_refused() -> None:
    original = pl.DataFrame({"age": [20, 30, 40]})
    with pytest.raises(sf.errors.InputError, match="keep suppressed rows"):
        loss(original, original.head(2), quasi=["age"])
    with pytest.raises(sf.errors.InputError, match="same order"):
        loss(original, pl.DataFrame({"age": ["[30, 40]", "20", "[30, 40]"]}), quasi=["age"])
    with pytest.raises(sf.errors.ColumnError, match="a released value of column 'age' stands for no original value"):
        loss(original, pl.DataFrame({"age": ["young"] * 3}), quasi=["age"])
    with pytest.raises(sf.errors.OptionError, match="no column is named"):
        loss(original, original)


def test_kl_gives_up_rather_than_take_all_memory() -> None:
    original = pl.DataFrame({"a": list(range(20)), "b": list(range(20))})
    released = pl.DataFrame({"a": ["*"] * 20, "b": [f"[0, {i}]" for i in range(20)]})
    both = pair(original, released, ["a", "b"]).align()
    assert kl_divergence(both) is not None
    assert kl_divergence(both, most=10) is None


def test_the_anonymised_adult_table_is_measured() -> None:
    adult = sf.datasets.adult()
    names = ["age", "sex", "marital-status"]
    frame = pl.DataFrame({name: adult.column(name) for name in names})
    low = (frame["age"] // 10 * 10).cast(int)
    released = frame.with_columns(age=pl.Series([f"[{one}, {one + 10})" for one in low]), sex=pl.lit("*"))
    found = loss(frame, released, quasi=names)
    ages = sorted(frame["age"].unique())
    width = sum(min(one + 9, ages[-1]) - max(one, ages[0]) for one in low) / len(frame)
    assert found.by_column["age"].ncp == pytest.approx(width / (ages[-1] - ages[0]))
    assert found.by_column["sex"].ncp == 1
    assert found.by_column["marital-status"].ncp == 0
    assert found.kl is not None
    assert found.kl > 0


@pytest.mark.parametrize(
    "rows",
    [
        [("Other", "Other"), ("Unknown", "Other"), ("Flu", "Lung"), ("Asthma", "Lung")],
        [("1", "1"), ("2", "1"), ("3", "3"), ("4", "3")],
    ],
)
def test_a_group_may_be_named_like_one_of_its_values(rows: list[tuple[str, str]]) -> None:
    tree = sf.Hierarchy.tree(rows)
    original = pl.DataFrame({"x": [row[0] for row in rows]})
    table = sf.Table(original, sf.Schema([sf.Column(name="x", role="quasi", hierarchy=tree)]))
    same, coarser = (loss(table, pl.DataFrame({"x": tree.labels(original["x"], level)})) for level in (0, 1))
    assert (same.gcp, same.precision, same.entropy) == (0, 1, 0)
    assert (coarser.gcp, coarser.precision, coarser.entropy) == (0.5, 0.5, 0.5)


@given(rows(), st.data())
def test_rows_that_are_counted_with_their_number_lose_what_they_lose_one_by_one(
    made: list[Row], data: st.DataObject
) -> None:
    original, released = tables(made)
    records = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(made), max_size=len(made))))
    each = np.repeat(np.arange(len(made)), records)
    alone = loss(original[each], released[each], quasi=NAMES)
    codes = sf.Table(original).encode(NAMES)
    counted = pair_codes(codes, [released[name] for name in NAMES], records=records)
    found = loss_of(counted)
    pairs = [(found.to_dict(), alone.to_dict())]
    pairs += [(found.by_column[name].to_dict(), alone.by_column[name].to_dict()) for name in NAMES]
    for ours, theirs in pairs:
        for key, value in theirs.items():
            if isinstance(value, float):
                assert ours[key] == pytest.approx(value, **CLOSE), key
            elif key != "by_column":
                assert ours[key] == value
    apart = distances(original[each], released[each], columns=NAMES)
    assert distances_of(counted).by_column == pytest.approx(apart.by_column, **CLOSE)
    assert distances_of(counted).by_pair == pytest.approx(apart.by_pair, **CLOSE)
