"""Local suppression: cells become the mark, as few as the order of masks allows, and every guarantee holds."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.anonymizers import local_suppression as module
from sfumato.anonymizers.local_suppression import _Search, local_suppression, masks_by_cost

from .problems import CELLS, QUASI, SCHEMA, Case, case, cases

Rows = list[tuple[Any, ...]]


def texts(frame: pl.DataFrame, names: tuple[str, ...]) -> Rows:
    return list(frame.select(names).cast(pl.String).iter_rows())


@given(one=cases())
def test_what_is_left_keeps_every_guarantee_and_only_cells_are_suppressed(one: Case) -> None:
    method = sf.LocalSuppression(one.guarantees, qi=one.quasi, sensitive=one.sensitive, suppress=1)
    try:
        released = method.fit_transform(sf.Table(one.frame, SCHEMA)).frame
    except sf.errors.InputError as error:
        if not error.message.startswith("no grouping keeps"):
            raise
        return
    before, after = texts(one.frame, one.quasi), texts(released, one.quasi)
    for old, new in zip(before, after, strict=True):
        assert all(there in (here, "*") for here, there in zip(old, new, strict=True))
    assert released.drop(one.quasi).equals(one.frame.drop(one.quasi))
    whole = [set(row) == {"*"} for row in after]
    assert method.details()["suppressed"] == sum(whole)
    assert method.details()["cells"] == sum(row.count("*") for row in after)
    kept = released.filter(pl.Series([not gone for gone in whole])) if not all(whole) else released
    columns = [*one.quasi, *one.sensitive]
    schema = sf.Schema([sf.Column(name=name) if name in one.quasi else SCHEMA[name] for name in columns])
    checks = sf.check(
        sf.Table(kept.select(columns), schema), list(one.guarantees), qi=one.quasi, sensitive=one.sensitive
    ).checks
    assert all(check.held for check in checks)


@given(
    rows=st.lists(CELLS, min_size=1, max_size=40),
    quasi=st.lists(st.sampled_from(QUASI), min_size=1, max_size=4, unique=True),
    k=st.integers(1, 5),
    worth=st.lists(st.sampled_from([0.5, 1.0, 2.0, 7.0]), min_size=4, max_size=4),
)
def test_before_anyone_borrows_nobody_could_have_been_settled_at_a_lower_cost(
    rows: Rows, quasi: list[str], k: int, worth: list[float]
) -> None:
    problem = case(rows, quasi, [], f"k={k}").problem
    weight = np.array(worth[: len(quasi)])
    search = _Search(problem, weight, masks_by_cost(weight, problem.codes.max(axis=0).tolist(), 100))
    search.settle()
    costs = [math.inf if mask < 0 else float(search.costs[mask]) for mask in search.found.tolist()]
    tuples = [tuple(codes) for codes in problem.codes.tolist()]
    for number in range(len(quasi)):
        for hidden in combinations(range(len(quasi)), number):
            cost = float(sum(weight[list(hidden)]))
            left = [index for index, own in enumerate(costs) if own > cost]
            alike: dict[tuple[int, ...], int] = {}
            for index in left:
                shown = tuple(code for column, code in enumerate(tuples[index]) if column not in hidden)
                alike[shown] = alike.get(shown, 0) + int(problem.records[index])
            assert all(records < k for records in alike.values()), hidden


def test_of_masks_that_cost_the_same_the_one_that_settles_most_is_taken_first() -> None:
    people = pl.read_csv(b"zip,age\n1,28\n1,28\n1,35\n1,35\n2,28\n2,28\n2,50\n2,50\n")
    released = sf.LocalSuppression("k=4", qi=["zip", "age"]).fit_transform(people)
    assert released.rows() == [(1, "*")] * 4 + [(2, "*")] * 4


def test_cells_of_important_columns_are_suppressed_last() -> None:
    people = pl.DataFrame({"x": [1, 1, 2, 2], "y": ["a", "b", "a", "b"]})
    for important, other in (("x", "y"), ("y", "x")):
        released = sf.LocalSuppression("k=2", qi=["x", "y"], importance={important: 2}).fit_transform(people)
        assert released[other].to_list() == ["*"] * 4
        assert released[important].equals(people[important])


def test_one_important_cell_may_be_worth_two_others() -> None:
    people = pl.DataFrame({"x": [1, 1, 2, 2], "y": list("abab"), "z": list("efef")})
    for worth, hidden in ((1, ["x"]), (1.9, ["x"]), (3, ["y", "z"])):
        released = sf.LocalSuppression("k=2", qi=["x", "y", "z"], importance={"x": worth}).fit_transform(people)
        assert [name for name in people.columns if set(released[name]) == {"*"}] == hidden
        assert [name for name in people.columns if released[name].equals(people[name])] == [
            name for name in people.columns if name not in hidden
        ]


def test_columns_without_a_suppressed_cell_keep_their_types() -> None:
    people = pl.DataFrame({"age": [20, 20, 40, 60], "sex": ["f", "f", "m", "m"], "size": [1.5, 1.5, 2.0, 2.0]})
    released = sf.LocalSuppression("k=2", qi=["age", "sex", "size"]).fit_transform(people)
    assert released.schema == {"age": pl.String, "sex": pl.String, "size": pl.Float64}
    assert released["age"].to_list() == ["20", "20", "*", "*"]


def test_a_missing_value_is_a_value_and_the_mark_another() -> None:
    people = pl.DataFrame({"age": [20, 20, None, None, 30, 40], "sex": list("ffffmm")})
    released = sf.LocalSuppression("k=2", qi=["age", "sex"]).fit_transform(people)
    assert released["age"].to_list() == ["20", "20", None, None, "*", "*"]


PEOPLE = pl.DataFrame({"age": [20, 20, 40, 60, 70], "sex": ["f", "f", "m", "m", "x"]})


def test_rows_without_a_class_are_suppressed_up_to_the_limit() -> None:
    released = sf.LocalSuppression("k=2", qi=["age", "sex"], suppress=0.2).fit_transform(PEOPLE)
    assert released.rows()[4] == ("*", "*")
    release = sf.anonymize(PEOPLE, "k=2", method=sf.LocalSuppression(suppress=0.2), qi=["age", "sex"])
    assert (release.assessment.suppressed, release.assessment.k, release.loss.suppressed) == (1, 2, 0.2)
    with pytest.raises(
        sf.errors.InputError, match=r"keeps k=2 with at most 0.19 of the rows.*\(suppress=0.2 would do\)"
    ):
        sf.LocalSuppression("k=2", qi=["age", "sex"], suppress=0.19).fit(PEOPLE)


def test_those_who_find_no_class_borrow_one() -> None:
    # The only one of 60 has no class of their own, nor has anyone of sex x: the class of (40, m) is widened for them.
    people = pl.DataFrame({"age": [20] * 4 + [40] * 3 + [60], "sex": list("ffff") + list("mmm") + ["m"]})
    released = sf.LocalSuppression("k=2", qi=["age", "sex"]).fit_transform(people)
    assert released.rows() == [("20", "f")] * 4 + [("*", "m")] * 4
    # Where a row may be suppressed instead, and that costs less, it is.
    released = sf.LocalSuppression("k=2", qi=["age", "sex"], suppress=0.2).fit_transform(people)
    assert released.rows() == [("20", "f")] * 4 + [("40", "m")] * 3 + [("*", "*")]


def test_a_homogeneous_group_borrows_the_values_that_it_lacks() -> None:
    people = pl.DataFrame({"age": [20] * 10 + [30] * 4, "sex": ["f"] * 14, "sick": ["n"] * 10 + ["n", "y", "n", "y"]})
    release = sf.anonymize(people, "k=2,l=2", method="suppress", qi=["age", "sex"], sensitive=["sick"])
    assert release.assessment.l == 2
    assert release.assessment.suppressed == 0


@given(
    rows=st.lists(CELLS, min_size=1, max_size=40),
    quasi=st.lists(st.sampled_from(QUASI), min_size=1, max_size=4, unique=True),
    k=st.integers(1, 5),
)
def test_to_allow_the_suppression_of_rows_is_never_in_the_way(rows: Rows, quasi: list[str], k: int) -> None:
    table, feasible = sf.Table(case(rows, quasi, [], "k=1").frame, SCHEMA), []
    for suppress in (0, 0.3, 1):
        try:
            learnt = sf.LocalSuppression(f"k={k}", qi=quasi, suppress=suppress).fit(table)
        except sf.errors.InputError:
            feasible.append(False)
        else:
            feasible.append(learnt.details()["suppressed"] <= suppress * len(rows) + 1e-9)
    assert feasible == sorted(feasible)


_HINTED = [  # sparing cells, within the rows that the hint allows, leaves over more rows than it allows
    (number, ordinal, None, plain, "flu", salary)
    for number, ordinal, plain, salary in (
        *((None, None, "p", 10), (None, None, "q", 10), (0, None, "p", 10), (0, None, "p", 10), (None, "low", "p", 20)),
        *((None, "low", "p", 20), (0, None, "q", 10), (2, "low", "p", 20), (None, None, "q", 50)),
        *((None, "top", "r", 10), (0, None, "q", 10), (None, "low", "q", 10), (7, "top", "p", 20)),
        *((None, None, "r", 10), (7, None, "s", 50)),
    )
]


@example(
    case(_HINTED, ["plain", "number", "ordinal"], ["salary"], (sf.KAnonymity(1), sf.measures.EnhancedBeta(1.0))),
)
@given(one=cases())
def test_the_hint_is_true(one: Case) -> None:
    method = sf.LocalSuppression(one.guarantees, qi=one.quasi, sensitive=one.sensitive, suppress=0)
    table = sf.Table(one.frame, SCHEMA)
    try:
        method.fit(table)
    except sf.errors.InputError as error:
        if error.hint.startswith("suppress="):
            method.set_params(suppress=float(error.hint.split("=")[1].split()[0])).fit(table)


def test_a_table_that_has_no_class_is_released_as_one_if_all_may_be_suppressed() -> None:
    people = pl.DataFrame({"age": [1, 2, 3], "sex": ["a", "b", "c"]})
    release = sf.anonymize(people, "k=2", method=sf.LocalSuppression(suppress=1), qi=["age", "sex"])
    assert release.table.frame.rows() == [("*", "*")] * 3
    assert (release.assessment.k, release.assessment.suppressed, release.loss.gcp) == (3, 0, 1)


def test_suppressed_rows_are_not_what_others_are_compared_with() -> None:
    # With the two lone patients the share of the table is 3/8, without them 1/2: so t is measured on six rows.
    people = pl.DataFrame({"x": list("aabbccde"), "sick": ["y", "n", "y", "n", "y", "n", "n", "n"]})
    one = sf.LocalSuppression("k=2,t=0", qi=["x"], sensitive=["sick"], suppress=0.25)
    release = sf.anonymize(people, "k=2,t=0", method=one, qi=["x"], sensitive=["sick"])
    assert (release.assessment.t, release.assessment.suppressed) == (0, 2)


def test_new_rows_join_the_class_they_fit_and_are_suppressed_if_there_is_none() -> None:
    learnt = sf.LocalSuppression("k=2", qi=["age", "sex"], suppress=0.2, new_rows="route").fit(PEOPLE)
    new = pl.DataFrame({"age": [20, 99, 20, 70, 20], "sex": ["f", "m", "m", "x", None]})
    assert learnt.transform(new).rows() == [("20", "f"), ("*", "m"), ("*", "m"), ("*", "*"), ("*", "*")]


@given(
    worth=st.lists(st.sampled_from([0.5, 1.0, 1.1, 3.0]), min_size=1, max_size=6),
    most=st.integers(1, 80),
)
def test_masks_are_listed_by_their_cost(worth: list[float], most: int) -> None:
    columns, weight = len(worth), np.array(worth)
    masks = masks_by_cost(weight, list(range(2, columns + 2)), most)
    costs = (masks @ weight).round(9)
    assert costs.tolist() == sorted(costs)
    assert len({tuple(mask) for mask in masks.tolist()}) == len(masks) <= min(most + columns, 2**columns - 1)
    assert not masks.all(axis=1).any()
    assert not masks[0].any()
    if most >= 2**columns - 1:
        assert len(masks) == 2**columns - 1
        return
    everything = sorted(
        sum(worth[column] for column in one)
        for number in range(columns)
        for one in combinations(range(columns), number)
    )
    for cost in everything[:most]:  # the cheapest are all there
        assert (np.abs(costs - cost) < 1e-9).sum() >= sum(abs(other - cost) < 1e-9 for other in everything[:most])
    assert masks.sum(axis=1).max() == max(columns - 1, 0)


def test_many_columns_are_suppressed_with_a_part_of_the_masks() -> None:
    draw = np.random.default_rng(1)
    names = [f"c{column}" for column in range(15)]
    people = pl.DataFrame({name: draw.integers(0, 3, 300) for name in names})
    release = sf.anonymize(people, "k=3", method=sf.LocalSuppression(suppress=0.5, most_masks=200), qi=names)
    assert release.assessment.k >= 3
    assert release.details["tried"] <= 200 + 14


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [(x * 7 % 10, "low", "abcdef"[x % 6], "pqrs"[x % 4], "flu" if x % 3 else "ulcer", 10) for x in range(200)]
    one, again = (case(order, ["number", "tree", "plain"], [], "k=4").problem for order in (rows, rows[::-1]))
    assert local_suppression(one).of_tuple.tolist() == local_suppression(again).of_tuple.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suppress": 1.5}, "rows to suppress must be a number from 0 to 1, got 1.5"),
        ({"suppress": "some"}, "rows to suppress must be a number from 0 to 1, got 'some'"),
        ({"most_masks": 0}, "column sets to try must be a whole number of at least 1, got 0"),
        ({"importance": {"aeg": 2}}, r"column 'aeg', which is not a quasi.*did you mean 'age'"),
        ({"importance": {"age": 0}}, "importance of column 'age' must be a finite number above 0, got 0"),
        ({"importance": {"age": "much"}}, "must be a finite number above 0, got 'much'"),
        ({"guarantees": "k=2,l=2"}, "l needs a sensitive attribute"),
        ({"guarantees": "k=6", "suppress": 1}, "no grouping keeps k=6: the whole table as one class has k = 5"),
    ],
)
def test_wrong_parameters_get_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        sf.LocalSuppression(**{"guarantees": "k=2", "qi": ["age", "sex"]} | options).fit(PEOPLE)


@given(one=cases())
def test_the_plain_kernel_keeps_the_groups_of_the_compiled_one(one: Case) -> None:
    try:
        plainly = local_suppression(one.problem)
    except sf.errors.InputError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", 0)
        assert local_suppression(one.problem).of_tuple.tolist() == plainly.of_tuple.tolist()
