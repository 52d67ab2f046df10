"""What every privacy model must do, whatever it measures."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.measures.models import MODELS

EVERY_MODEL = [*(model() for model in MODELS), sf.measures.DeltaDisclosure(absent="infinite")]
ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["flu", "ulcer", "cancer"])), min_size=2, max_size=60)


def measure(guarantees: list[sf.Guarantee], rows: list[tuple[Any, Any]]) -> list[float]:
    """Measure all guarantees on one table, which is counted once."""
    frame = pl.DataFrame(rows, schema=["q", "s"], orient="row")
    checks = sf.check(frame, guarantees, qi=["q"], sensitive=["s"]).checks
    assert [check.guarantee for check in checks] == guarantees
    return [check.measured.value for check in checks]


@settings(max_examples=30)
@given(rows=ROWS, data=st.data())
def test_merging_two_classes_never_worsens_any(rows: list[tuple[int, str]], data: st.DataObject) -> None:
    guarantees = [  # all but one: see the next test
        sf.measures.RecursiveCL(l=data.draw(st.integers(1, 3))) if isinstance(one, sf.measures.RecursiveCL) else one
        for one in EVERY_MODEL
        if one != sf.measures.DeltaDisclosure()
    ]
    assert len(guarantees) == len(MODELS)
    a, b = data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    merged = [(a if q == b else q, s) for q, s in rows]
    for guarantee, before, after in zip(
        guarantees, measure(guarantees, rows), measure(guarantees, merged), strict=True
    ):
        if guarantee.larger_is_safer:
            assert after >= before * (1 - 1e-12), guarantee
        else:
            assert after <= before * (1 + 1e-12) + 1e-12, guarantee


def test_delta_that_ignores_absent_values_can_worsen_by_merging() -> None:
    # x holds only flu; merged with y, the rare ulcer shows up far below its share.
    rows = [("x", "flu")] * 9 + [("y", "flu"), ("y", "ulcer")] + [("z", "ulcer")] * 9
    merged = [("x" if q == "y" else q, s) for q, s in rows]
    assert measure([sf.measures.DeltaDisclosure()], merged) > measure([sf.measures.DeltaDisclosure()], rows)


@settings(max_examples=30)
@given(rows=ROWS, data=st.data())
def test_the_order_of_the_rows_changes_nothing(rows: list[tuple[int, str]], data: st.DataObject) -> None:
    assert measure(EVERY_MODEL, rows) == measure(EVERY_MODEL, data.draw(st.permutations(rows)))


@settings(max_examples=30)
@given(rows=ROWS)
def test_doubling_the_table_changes_only_k(rows: list[tuple[int, str]]) -> None:
    factors = [2 if isinstance(one, sf.KAnonymity) else 1 for one in EVERY_MODEL]
    expected = [factor * value for factor, value in zip(factors, measure(EVERY_MODEL, rows), strict=True)]
    assert measure(EVERY_MODEL, rows * 2) == pytest.approx(expected)


@settings(max_examples=30)
@given(rows=ROWS)
def test_without_a_bound_it_accepts_everything(rows: list[tuple[int, str]]) -> None:
    for guarantee, value in zip(EVERY_MODEL, measure(EVERY_MODEL, rows), strict=True):
        assert guarantee.accepts(value), guarantee


@settings(max_examples=30)
@given(rows=ROWS)
def test_it_accepts_a_bound_at_the_measured_value_unless_strict(rows: list[tuple[int, str]]) -> None:
    for guarantee, value in zip(EVERY_MODEL, measure(EVERY_MODEL, rows), strict=True):
        field = guarantee.bounds[guarantee.key].field
        asked = type(guarantee)(**{field: value})
        assert asked.accepts(value) is (not guarantee.strict or value == math.inf), guarantee
        if 0 < value < math.inf:
            safer, riskier = value * 1.01, value * 0.99
            if guarantee.larger_is_safer:
                safer, riskier = riskier, safer
            if not guarantee.bounds[guarantee.key].whole:
                assert not asked.accepts(safer), guarantee
            assert asked.accepts(riskier), guarantee


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        (sf.KAnonymity(10), "k=10"),
        (sf.measures.AlphaK(0.5, k=3), "alpha=0.5,k=3"),
        (sf.LDiversity(3), "l=3"),
        (sf.measures.EntropyL(2.5), "entropy_l=2.5"),
        (sf.measures.RecursiveCL(2, 3), "recursive_c=2,recursive_l=3"),
        (sf.TCloseness(0.2), "t=0.2"),
        (sf.measures.BetaLikeness(1.5), "basic_beta=1.5"),
        (sf.measures.EnhancedBeta(0.5), "enhanced_beta=0.5"),
        (sf.measures.DeltaDisclosure(1), "delta_disclosure=1"),
    ],
)
def test_it_prints_itself_and_is_read_back(guarantee: sf.Guarantee, text: str) -> None:
    assert str(guarantee) == text
    expected = [sf.KAnonymity(3), guarantee] if isinstance(guarantee, sf.measures.AlphaK) else [guarantee]
    assert sf.Guarantee.parse(text) == expected
    assert sf.Guarantee.parse(text.replace("_", "-").upper().replace("=", " = ")) == expected


def test_short_names_are_understood() -> None:
    assert sf.Guarantee.parse("beta=1,delta=2") == [sf.measures.BetaLikeness(1), sf.measures.DeltaDisclosure(2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the guarantee '' is unknown"),
        ("q=3", "the guarantee 'q' is unknown"),
        ("entropy=3", "did you mean 'entropy_l'"),
        ("k", "the guarantee 'k' needs a number, got ''"),
        ("k=ten", "the guarantee 'k' needs a number, got 'ten'"),
        ("k=0", "k must be a whole number of at least 1, got 0.0"),
        ("k=2.5", "k must be a whole number of at least 1, got 2.5"),
        ("k=nan", "k must be a whole number of at least 1, got nan"),
        ("k=inf", "k must be a whole number of at least 1, got inf"),
        ("t=1.5", "t must be a number from 0 to 1, got 1.5"),
        ("k=3,k=4", "'k' is given twice"),
        ("recursive_c=3", "recursive_c and recursive_l must be given together"),
        ("recursive_l=3", "recursive_c and recursive_l must be given together"),
    ],
)
def test_what_is_no_guarantee_is_refused(text: str, message: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=message):
        sf.Guarantee.parse(text)


@pytest.mark.parametrize("model", [one for one in MODELS if one.needs_sensitive])
def test_it_says_that_it_needs_a_sensitive_attribute(model: type[sf.Guarantee]) -> None:
    with pytest.raises(sf.errors.OptionError, match=f"{model.key} needs a sensitive attribute"):
        sf.check(pl.DataFrame({"q": [1]}), [model()], qi=["q"])
