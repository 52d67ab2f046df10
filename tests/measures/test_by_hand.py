"""Measures of small tables, computed by hand."""

from __future__ import annotations

import math

import polars as pl
import pytest

import sfumato as sf


def one_class(counts: list[int], others: list[int] | None = None) -> sf.Assessment:
    """Assess a table with one class of the given counts of values, and perhaps a second class."""
    rows = [("x", f"v{i}") for i, count in enumerate(counts) for _ in range(count)]
    rows += [("y", f"v{i}") for i, count in enumerate(others or []) for _ in range(count)]
    frame = pl.DataFrame(rows, schema=["q", "s"], orient="row")
    return sf.assess(frame, qi=["q"], sensitive=["s"])


def test_k_is_the_smallest_class() -> None:
    assert one_class([3, 2], [4]).k == 4


def test_alpha_is_the_largest_share() -> None:
    assert one_class([3, 1], [2, 2]).alpha == 0.75


def test_alpha_can_be_asked_of_chosen_values_only() -> None:
    frame = pl.DataFrame({"q": ["x"] * 4, "s": ["healthy"] * 3 + ["cancer"]})
    verdict = sf.check(frame, [sf.measures.AlphaK(0.25, k=4, values=("cancer",))], qi=["q"], sensitive=["s"])
    assert verdict
    assert verdict.checks[0].measured.value == 0.25
    with pytest.raises(sf.errors.OptionError, match="the value 'tumour', which occurs in no sensitive attribute"):
        sf.check(frame, [sf.measures.AlphaK(0.25, values=("tumour",))], qi=["q"], sensitive=["s"])


def test_alpha_k_fails_on_a_small_class_and_shows_it() -> None:
    frame = pl.DataFrame({"q": ["x", "x"], "s": ["a", "b"]})
    verdict = sf.check(frame, [sf.measures.AlphaK(0.5, k=3)], qi=["q"], sensitive=["s"])
    assert not verdict
    assert str(verdict) == "alpha=0.5,k=3: not held, measured 0.5 (the smallest class has 2 rows)"
    assert [check.held for check in sf.check(frame, "alpha=0.5,k=3", qi=["q"], sensitive=["s"]).checks] == [
        False,
        False,
    ]


def test_chosen_values_may_belong_to_one_of_several_attributes() -> None:
    frame = pl.DataFrame({"q": ["x"] * 4, "s": ["a", "a", "b", "b"], "z": ["c", "d", "d", "d"]})
    verdict = sf.check(frame, [sf.measures.AlphaK(1, values=["c"])], qi=["q"], sensitive=["s", "z"])
    assert verdict.checks[0].measured.value == 0.25
    with pytest.raises(sf.errors.OptionError, match="must be a list of values, got the text 'cancer'"):
        sf.measures.AlphaK(0.5, values="cancer")


@pytest.mark.parametrize("l", [2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_a_uniform_class_of_l_values_is_exactly_entropy_l_diverse(l: int) -> None:
    result = one_class([5] * l)
    assert result.entropy_l == l
    assert sf.measures.EntropyL(l).accepts(result.entropy_l)


def test_entropy_l_is_a_real_number() -> None:
    # H = -(3/4 ln 3/4 + 1/4 ln 1/4) = 0.5623, e^H = 1.7548
    assert one_class([3, 1]).entropy_l == pytest.approx(4 / 3**0.75)


def test_recursive_c_sorts_descending() -> None:
    # The published package sorts ascending and gets 1 here; r1 / r2 = 9 / 1.
    assert one_class([9, 1]).recursive_c == 9
    assert one_class([5, 3, 2]).recursive_c == 2.5  # l = 3: 5 / 2


def test_recursive_c_must_lie_strictly_below_what_is_asked() -> None:
    frame = pl.DataFrame({"q": ["x"] * 3, "s": ["a", "a", "b"]})
    assert not sf.check(frame, [sf.measures.RecursiveCL(2, 2)], qi=["q"], sensitive=["s"])
    assert sf.check(frame, [sf.measures.RecursiveCL(2.000001, 2)], qi=["q"], sensitive=["s"])


def test_recursive_c_is_infinite_with_fewer_than_l_values() -> None:
    frame = pl.DataFrame({"q": ["x", "x", "y"], "s": ["a", "b", "a"]})
    verdict = sf.check(frame, [sf.measures.RecursiveCL(10, 2)], qi=["q"], sensitive=["s"])
    assert not verdict
    assert verdict.checks[0].measured.value == math.inf


def test_t_of_the_example_in_the_t_closeness_paper() -> None:
    # Li et al. 2007, section 5: salaries 3k..11k; EMD(P1, Q) = 0.375 and EMD(P2, Q) = 0.167 (ordered distance).
    salaries = [3, 4, 5, 6, 11, 8, 7, 9, 10]
    frame = pl.DataFrame({"q": [1, 1, 1, 2, 2, 2, 3, 3, 3], "salary": salaries})
    assert sf.assess(frame, qi=["q"], sensitive=["salary"]).t == pytest.approx(0.375)
    frame = pl.DataFrame({"q": [1, 2, 1, 2, 1, 2, 2, 2, 2], "salary": [6, 3, 8, 4, 11, 5, 7, 9, 10]})
    second = sf.assess(frame.filter(pl.col("q") == 1), qi=["q"], sensitive=["salary"])
    assert second.t == 0  # alone, a class is the table
    both = sf.assess(frame, qi=["q"], sensitive=["salary"])
    assert both.witnesses["t"].labels == {"q": "1"}
    assert both.t == pytest.approx(1 / 6)


def test_t_of_a_constant_attribute_is_zero() -> None:
    for values in ([7, 7, 7], ["a", "a", "a"]):
        for distance in ("auto", "equal"):
            frame = pl.DataFrame({"q": [1, 2, 2], "s": values})
            assert sf.assess(frame, qi=["q"], sensitive=["s"], distance=distance).t == 0


def test_t_between_opposite_halves() -> None:
    result = one_class([2, 0], [0, 2])
    assert result.t == 0.5
    assert result.basic_beta == 1
    assert result.delta_disclosure == pytest.approx(math.log(2))


def test_enhanced_beta_caps_a_frequent_value() -> None:
    # p = 1/2: a gain of 1 exceeds -ln(1/2) = 0.69, so no beta is enough.
    assert one_class([2, 0], [0, 2]).enhanced_beta == math.inf
    # p = 4/8; q = 3/4 gives a gain of 0.5 < 0.69.
    assert one_class([3, 1], [1, 3]).enhanced_beta == 0.5


def test_delta_bounds_are_strict() -> None:
    frame = pl.DataFrame({"q": ["x", "y"], "s": ["a", "b"]})
    assert not sf.check(frame, [sf.measures.DeltaDisclosure(math.log(2))], qi=["q"], sensitive=["s"])
    assert sf.check(frame, [sf.measures.DeltaDisclosure(0.7)], qi=["q"], sensitive=["s"])
    assert not sf.check(frame, [sf.measures.DeltaDisclosure(100, absent="infinite")], qi=["q"], sensitive=["s"])


def test_a_guarantee_object_says_its_conventions_itself() -> None:
    frame = pl.DataFrame({"q": ["x", "y"], "s": ["a", "b"]})
    options = {"qi": ["q"], "sensitive": ["s"], "absent": "infinite"}
    assert sf.check(frame, [sf.measures.DeltaDisclosure(1, absent="ignore")], **options)
    assert not sf.check(frame, "delta=1", **options)


def test_a_class_like_the_table_leaks_nothing() -> None:
    result = one_class([3, 6, 9], [1, 2, 3])
    assert (result.t, result.basic_beta, result.enhanced_beta, result.delta_disclosure) == (0, 0, 0, 0)


def test_a_bound_that_is_met_exactly_is_not_lost_to_rounding() -> None:
    assert sf.measures.AlphaK(0.3333333333).accepts(1 / 3)  # a hair above
    assert not sf.measures.AlphaK(0.33333333).accepts(1 / 3)
    assert sf.TCloseness(0.1 + 0.2).accepts(0.3)
    assert sf.TCloseness(0.3).accepts(0.1 + 0.2)


def test_a_class_like_the_table_is_exactly_at_no_distance() -> None:
    frame = pl.DataFrame({"q": ["x"] * 10 + ["y"] * 20, "s": [i % 10 for i in range(30)]})
    assert str(sf.assess(frame, qi=["q"], sensitive=["s"]).t) == "0.0"


def test_guarantees_may_come_alone_or_as_texts() -> None:
    import numpy as np

    frame = pl.DataFrame({"q": ["x", "x"], "s": ["a", "b"]})
    for one in (sf.KAnonymity(np.int64(2)), "k=2", ["k=2", sf.LDiversity(2)], [sf.KAnonymity(2)]):
        assert sf.check(frame, one, qi=["q"], sensitive=["s"])
    with pytest.raises(sf.errors.OptionError, match="a guarantee is needed, such as 'k=10' or KAnonymity"):
        sf.check(frame, [3], qi=["q"])
    assert str(sf.check(pl.DataFrame({"q": ["x"] * 1_234_567}), "k=2", qi=["q"])) == "k=2: held, measured 1,234,567"


def test_the_classes_shown_are_those_of_the_smallest_k() -> None:
    frame = pl.DataFrame({"q": ["x"] * 4, "s": ["a", "a", "b", "b"], "z": ["c", "c", "c", "d"]})
    result = sf.assess(frame, qi=["q"], sensitive=["s", "z"], classes="qi+other-sensitive")
    assert (result.k, result.risk.prosecutor_max, result.classes) == (1, 1.0, 2)


def test_suppressed_rows_are_in_no_class_and_not_in_the_reference() -> None:
    kept = pl.DataFrame({"zip": ["1", "1", "2", "2"], "age": ["30", "30", "*", "*"], "s": ["a", "b", "a", "b"]})
    gone = pl.DataFrame({"zip": ["*"] * 3, "age": ["*"] * 3, "s": ["c"] * 3})
    with_, without = (sf.assess(frame, qi=["zip", "age"], sensitive=["s"]) for frame in (pl.concat([kept, gone]), kept))
    assert (with_.rows, with_.suppressed, with_.classes) == (4, 3, 2)
    assert with_.numbers() == without.numbers()
    counted = sf.assess(pl.concat([kept, gone]), qi=["zip", "age"], sensitive=["s"], suppressed=None)
    assert (counted.rows, counted.suppressed, counted.classes) == (7, 0, 3)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow"])
def test_suppressed_rows_stay_suppressed_after_saving(tmp_path, ending: str) -> None:
    frame = pl.DataFrame({"zip": ["1", "1", "*"], "age": ["[30-40)", "[30-40)", "*"], "s": ["a", "b", "c"]})
    sf.write(frame, tmp_path / f"release.{ending}")
    result = sf.assess(tmp_path / f"release.{ending}", qi=["zip", "age"], sensitive=["s"])
    assert (result.rows, result.suppressed, result.k) == (2, 1, 2)


def test_a_table_generalised_to_the_root_is_one_class() -> None:
    frame = pl.DataFrame({"zip": ["*"] * 4, "s": ["a", "b", "a", "b"]})
    result = sf.assess(frame, qi=["zip"], sensitive=["s"])
    assert (result.k, result.suppressed, result.t) == (4, 0, 0)


def test_wildcards_by_hand() -> None:
    # Someone known to be (30, f) may be row 1, 2 or 3; someone behind row 3 may have a sex that nobody else has.
    frame = pl.DataFrame({"age": [30, 30, 30], "sex": ["f", "f", None]})
    result = sf.assess(frame, qi=["age", "sex"], missing="wildcard")
    assert result.k == 1
    assert result.rows_by_class_size == {1: 1, 3: 2}


def test_a_missing_number_ranks_last() -> None:
    frame = pl.DataFrame({"q": ["x", "x", "y", "y"], "s": [1, 2, 1, None]})
    # ranks 0, 1/2, 1; p = (1/2, 1/4, 1/4); x: (1/2, 1/2, 0): |0| * 1/2 + |1/4| * 1/2
    assert sf.assess(frame, qi=["q"], sensitive=["s"]).t == pytest.approx(0.125)


def test_nan_is_missing_and_negative_zero_is_zero() -> None:
    frame = pl.DataFrame({"q": [0.0, -0.0, math.nan, None, math.inf, math.inf], "s": ["a"] * 6})
    result = sf.assess(frame, qi=["q"], sensitive=["s"])
    assert (result.classes, result.k) == (3, 2)


def test_risk_by_hand() -> None:
    frame = pl.DataFrame({"q": ["x", "y", "y", "z", "z", "z"]})
    risk = sf.assess(frame, qi=["q"]).risk
    assert (risk.prosecutor_max, risk.prosecutor_mean, risk.uniques) == (1.0, 0.5, 1)


def test_a_column_without_a_kind_has_that_of_its_type() -> None:
    frame = pl.DataFrame({"q": [1, 1, 2], "s": [1, 2, 3]})
    schema = sf.Schema.from_toml('[columns.s]\nrole = "sensitive"\n')
    assert sf.assess(frame, schema=schema, qi=["q"]).distances == {"s": "ordered"}


def test_texts_have_no_order_that_nobody_gave() -> None:
    frame = pl.DataFrame({"q": [1, 1, 2], "s": ["9", "10", "11"]})
    for kind, message in (
        ("number", "is declared a number, but holds texts"),
        ("ordinal", "the order of its texts is not declared"),
    ):
        schema = sf.Schema([sf.Column(name="s", role="sensitive", kind=kind)])
        with pytest.raises(sf.errors.SchemaError, match=message):
            sf.assess(frame, schema=schema, qi=["q"])
        assert sf.assess(frame, schema=schema, qi=["q"], distance="equal").t == pytest.approx(2 / 3)
    ranked = sf.Schema([sf.Column(name="s", role="sensitive", kind="ordinal", domain=["9", "10", "11"])])
    assert sf.assess(frame, schema=ranked, qi=["q"]).t == pytest.approx((1 / 3 + 2 / 3) / 2)
