"""Every measure equals its brute-force definition on random tables."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from tests import bruteforce as brute

CLOSE = {"rel": 1e-9, "abs": 1e-12}
COMPLETE = st.sampled_from(["a", "b", "c"])
INCOMPLETE = st.sampled_from(["a", "b", None])
DISEASES = st.sampled_from(["flu", "ulcer", "cancer", "asthma"])


def rows(quasi: st.SearchStrategy[Any], sensitive: st.SearchStrategy[Any], columns: int = 2) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(st.tuples(*[quasi] * columns), sensitive), min_size=1, max_size=40)


def table(records: list[brute.Row], **schema: Any) -> sf.Table:
    width = len(records[0][0])
    frame = pl.DataFrame(
        {f"q{i}": [key[i] for key, _ in records] for i in range(width)} | {"s": [value for _, value in records]}
    )
    kinds = [sf.Column(name=f"q{i}", role="quasi") for i in range(width)]
    return sf.Table(frame, sf.Schema([*kinds, sf.Column(name="s", role="sensitive", **schema)]))


def compare_all_but_t(result: sf.Assessment, records: list[brute.Row], **how: str) -> None:
    assert result.k == brute.k(records, **how)
    assert result.alpha == pytest.approx(float(brute.alpha(records, **how)), **CLOSE)
    assert result.l == brute.distinct_l(records, **how)
    assert result.entropy_l == pytest.approx(brute.entropy_l(records, **how), **CLOSE)
    assert result.recursive_l == result.l
    assert result.recursive_c == pytest.approx(brute.recursive_c(records, result.l, **how), **CLOSE)
    assert result.basic_beta == pytest.approx(float(brute.basic_beta(records, **how)), **CLOSE)
    assert result.enhanced_beta == pytest.approx(brute.enhanced_beta(records, **how), **CLOSE)
    assert result.delta_disclosure == pytest.approx(brute.delta(records, "ignore", **how), **CLOSE)


@given(rows(COMPLETE, DISEASES))
def test_measures_equal_their_definitions_on_categories(records: list[brute.Row]) -> None:
    result = sf.assess(table(records))
    compare_all_but_t(result, records)
    assert result.t == pytest.approx(brute.t(records, brute.equal_emd), **CLOSE)


@given(rows(INCOMPLETE, DISEASES))
def test_a_missing_value_is_a_value_of_its_own(records: list[brute.Row]) -> None:
    result = sf.assess(table(records))
    compare_all_but_t(result, records)
    assert result.t == pytest.approx(brute.t(records, brute.equal_emd), **CLOSE)


@given(rows(INCOMPLETE, DISEASES, columns=3))
def test_a_wildcard_matches_everything_that_it_could_be(records: list[brute.Row]) -> None:
    result = sf.assess(table(records), missing="wildcard")
    compare_all_but_t(result, records, missing="wildcard")
    assert result.t == pytest.approx(brute.t(records, brute.equal_emd, missing="wildcard"), **CLOSE)
    sizes = {
        key: len(g)
        for key, g in zip(dict.fromkeys(k for k, _ in records), brute.classes(records, "wildcard"), strict=True)
    }
    assert result.risk.uniques == sum(sizes[key] == 1 for key, _ in records)
    assert result.risk.prosecutor_mean == pytest.approx(sum(1 / sizes[key] for key, _ in records) / len(records))


@given(rows(INCOMPLETE, st.one_of(DISEASES, st.none())))
def test_dropping_leaves_out_incomplete_rows(records: list[brute.Row]) -> None:
    complete = [(key, value) for key, value in records if None not in key and value is not None]
    if not complete:
        with pytest.raises(sf.errors.InputError, match="no row is left"):
            sf.assess(table(records), missing="drop")
        return
    result = sf.assess(table(records), missing="drop")
    assert (result.rows, result.dropped) == (len(complete), len(records) - len(complete))
    compare_all_but_t(result, complete)


@given(rows(COMPLETE, st.integers(-3, 8)))
def test_t_of_a_number_is_the_distance_along_its_ranks(records: list[brute.Row]) -> None:
    values = sorted({value for _, value in records})
    ranks = {value: i / max(len(values) - 1, 1) for i, value in enumerate(values)}
    result = sf.assess(table(records, kind="number"))
    assert result.distances == {"s": "ordered"}
    assert result.t == pytest.approx(brute.t(records, brute.line_emd(ranks)), **CLOSE)


@given(rows(COMPLETE, st.floats(-1e6, 1e6).map(lambda x: round(x, 3))))
def test_t_can_be_scaled_by_the_values(records: list[brute.Row]) -> None:
    values = {value for _, value in records}
    low, high = min(values), max(values)
    places = {value: (value - low) / ((high - low) or 1) for value in values}
    result = sf.assess(table(records, kind="number"), distance="scaled")
    assert result.t == pytest.approx(brute.t(records, brute.line_emd(places)), **CLOSE)


TREE = sf.Hierarchy.tree(
    [
        ("flu", "virus", "lung", "*"),
        ("asthma", "chronic", "lung", "*"),
        ("ulcer", "chronic stomach", "stomach", "*"),
        ("cancer", "chronic stomach", "stomach", "*"),
    ]
)


def tree_distance(a: str | None, b: str | None) -> float:
    if a == b:
        return 0.0
    paths = {row[0]: row for row in TREE.rows}
    if a is None or b is None:
        return 1.0
    return next(height for height in range(4) if paths[a][height] == paths[b][height]) / 3


@given(rows(COMPLETE, st.one_of(DISEASES, st.none())))
def test_t_of_a_hierarchy_is_the_optimal_transport_over_its_tree(records: list[brute.Row]) -> None:
    result = sf.assess(table(records, hierarchy=TREE))
    assert result.distances == {"s": "hierarchical"}
    assert result.t == pytest.approx(brute.t(records, brute.transport_emd(tree_distance)), rel=1e-6, abs=1e-7)


@given(rows(COMPLETE, st.integers(0, 5)))
def test_the_distance_along_a_line_is_the_optimal_transport(records: list[brute.Row]) -> None:
    values = sorted({value for _, value in records})
    span = max(len(values) - 1, 1)
    transport = brute.transport_emd(lambda a, b: abs(values.index(a) - values.index(b)) / span)
    result = sf.assess(table(records, kind="number"))
    assert result.t == pytest.approx(brute.t(records, transport), rel=1e-6, abs=1e-7)


@given(rows(COMPLETE, DISEASES))
def test_an_absent_value_can_make_delta_infinite(records: list[brute.Row]) -> None:
    result = sf.assess(table(records), absent="infinite")
    assert result.delta_disclosure == pytest.approx(brute.delta(records, "infinite"), **CLOSE)


@given(rows(COMPLETE, DISEASES), st.integers(1, 5))
def test_recursive_diversity_takes_any_l(records: list[brute.Row], l: int) -> None:
    check = sf.assess(table(records), require=[sf.measures.RecursiveCL(1.0, l)]).verdict
    assert check is not None
    expected = brute.recursive_c(records, l)
    assert check.checks[0].measured.value == pytest.approx(expected, **CLOSE)
    assert bool(check) == (expected < 1.0)


@given(st.lists(st.tuples(COMPLETE, DISEASES, st.sampled_from(["rich", "poor"])), min_size=1, max_size=40))
def test_several_sensitive_attributes_give_each_value_and_the_worst(records: list[tuple[str, str, str]]) -> None:
    frame = pl.DataFrame(records, schema=["q", "disease", "income"], orient="row")
    for mode in ("qi", "qi+other-sensitive"):
        result = sf.assess(frame, qi=["q"], sensitive=["disease", "income"], classes=mode)
        other = mode != "qi"
        each = {
            "disease": [((q, i) if other else (q,), d) for q, d, i in records],
            "income": [((q, d) if other else (q,), i) for q, d, i in records],
        }
        for name, one in each.items():
            measured = result.by_sensitive[name]
            assert measured.k == brute.k(one)
            assert measured.l == brute.distinct_l(one)
            assert measured.t == pytest.approx(brute.t(one, brute.equal_emd), **CLOSE)
            assert measured.recursive_c == pytest.approx(brute.recursive_c(one, measured.l), **CLOSE)
        assert result.k == min(brute.k(one) for one in each.values())
        assert result.l == min(brute.distinct_l(one) for one in each.values())
        assert result.alpha == pytest.approx(max(float(brute.alpha(one)) for one in each.values()), **CLOSE)
        assert result.t == pytest.approx(max(brute.t(one, brute.equal_emd) for one in each.values()), **CLOSE)
        # The pair (c, l) of the table holds for every attribute.
        assert result.recursive_c == pytest.approx(max(brute.recursive_c(one, result.l) for one in each.values()))


@given(rows(COMPLETE, DISEASES))
def test_the_witness_attains_the_measure(records: list[brute.Row]) -> None:
    result = sf.assess(table(records))
    p = brute.shares([value for _, value in records])
    for name, witness in result.witnesses.items():
        group = [value for key, value in records if witness.labels == {"q0": key[0], "q1": key[1]}]
        q = brute.shares(group)
        assert witness.size == len(group)
        attained = {
            "k": lambda group=group: len(group),
            "alpha": lambda q=q, w=witness: float(q[w.value]),
            "l": lambda q=q: len(q),
            "entropy_l": lambda q=q: math.exp(-sum(x * math.log(x) for x in q.values())),
            "recursive_c": lambda group=group: brute.recursive_c([((), v) for v in group], result.l),
            "t": lambda q=q: brute.equal_emd(q, p),
            "basic_beta": lambda q=q, w=witness: max(float(q[w.value] / p[w.value]) - 1, 0),
            "enhanced_beta": lambda q=q, w=witness: _enhanced(float(q[w.value] / p[w.value]) - 1, float(p[w.value])),
            "delta_disclosure": lambda q=q, w=witness: abs(math.log(q[w.value] / p[w.value])),
        }[name]()
        assert getattr(result, name) == pytest.approx(attained, **CLOSE)


def _enhanced(gain: float, p: float) -> float:
    return max(gain, 0.0) if gain <= -math.log(p) or gain <= 0 else math.inf
