"""Where pycanon 1.3.6 follows a definition its numbers are ours; where it does not, ours are the definition's.

The definitions are those of `tests/bruteforce.py`, which shares nothing with either package.
docs/explanation/other-packages.md tabulates what is shown here.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sfumato as sf
from tests import bruteforce as brute
from tests.effort import THOROUGH, effort

VERSION = "1.3.6"
pycanon = pytest.importorskip("pycanon.anonymity", reason=f"pycanon {VERSION} is not installed")
if importlib.metadata.version("pycanon") != VERSION:
    pytest.skip(f"what is said here was seen in pycanon {VERSION}, not in other versions", allow_module_level=True)

CLOSE = {"rel": 1e-9, "abs": 1e-12}
FEW = settings(max_examples=effort(20, 200))  # a call of pycanon takes milliseconds even for a few rows

MEASURES = {
    "alpha": lambda *table, **how: pycanon.alpha_k_anonymity(*table, **how)[0],
    "k with alpha": lambda *table, **how: pycanon.alpha_k_anonymity(*table, **how)[1],
    "l": lambda *table, **how: pycanon.l_diversity(*table, **how),
    "entropy_l": lambda *table, **how: pycanon.entropy_l_diversity(*table, **how),
    "recursive_c": lambda *table, **how: pycanon.recursive_c_l_diversity(*table, **how)[0],
    "t": lambda *table, **how: pycanon.t_closeness(*table, **how),
    "basic_beta": lambda *table, **how: pycanon.basic_beta_likeness(*table, **how),
    "enhanced_beta": lambda *table, **how: pycanon.enhanced_beta_likeness(*table, **how),
    "delta_disclosure": lambda *table, **how: pycanon.delta_disclosure(*table, **how),
}
"""The functions of pycanon, under the names that their numbers have in an assessment."""

AGREED = ("k", "alpha", "l", "t", "basic_beta", "delta_disclosure")


def theirs(
    measure: str, frame: pd.DataFrame, qi: list[str] | None = None, s: list[str] | None = None, **how: Any
) -> Any:
    """Return what pycanon says; its calls of pandas and NumPy give warnings that are not ours to heed."""
    qi, s = qi or ["q"], s or ["s"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pycanon.k_anonymity(frame, qi) if measure == "k" else MEASURES[measure](frame, qi, s, **how)


def ours(frame: Any, qi: list[str] | None = None, s: list[str] | None = None, **how: Any) -> sf.Assessment:
    return sf.assess(frame, qi=qi or ["q"], sensitive=s or ["s"], **how)


def records(frame: pd.DataFrame) -> list[brute.Row]:
    """The rows of a frame as the definitions take them, whatever its index."""
    columns = [[None if pd.isna(value) else value for value in frame[name].tolist()] for name in frame]
    *quasi, sensitive = columns
    return list(zip(zip(*quasi, strict=True), sensitive, strict=True))


def frame_of(*classes: str | list[Any]) -> pd.DataFrame:
    """A table with one class for each list of sensitive values."""
    rows = [(f"q{i}", value) for i, values in enumerate(classes) for value in values]
    return pd.DataFrame(rows, columns=["q", "s"])


# --- where pycanon follows the definitions: complete rows, and an index that counts them from 0

CODES = st.sampled_from(["0", "1", "2"])
RANDOM = st.lists(st.tuples(CODES, CODES, st.sampled_from(["0", "1", "2", "3"])), min_size=1, max_size=24)
RANDOM_NUMBERS = st.lists(st.tuples(CODES, CODES, st.integers(-3, 4)), min_size=2, max_size=24)
RANDOM_PAIRS = st.lists(st.tuples(CODES, CODES, CODES), min_size=1, max_size=20)


@FEW
@given(RANDOM)
def test_we_agree_on_categories(rows: list[tuple[str, str, str]]) -> None:
    frame = pd.DataFrame(rows, columns=["q0", "q1", "s"])
    result = ours(frame, ["q0", "q1"])
    assert result.distances == {"s": "equal"}
    for measure in AGREED:
        assert theirs(measure, frame, ["q0", "q1"]) == pytest.approx(getattr(result, measure), **CLOSE), measure


@FEW
@given(RANDOM_NUMBERS)
def test_we_agree_on_numbers(rows: list[tuple[str, str, int]]) -> None:
    assume(len({value for *_, value in rows}) > 1)  # a constant number is told below
    frame = pd.DataFrame(rows, columns=["q0", "q1", "s"])
    result = ours(frame, ["q0", "q1"])
    assert result.distances == {"s": "ordered"}
    for measure in AGREED:
        assert theirs(measure, frame, ["q0", "q1"]) == pytest.approx(getattr(result, measure), **CLOSE), measure


@settings(FEW, max_examples=20)
@given(RANDOM_PAIRS, st.sampled_from([(True, "qi"), (False, "qi+other-sensitive")]))
def test_we_agree_on_two_sensitive_attributes(rows: list[tuple[str, str, str]], classes: tuple[bool, str]) -> None:
    frame = pd.DataFrame(rows, columns=["q", "s0", "s1"])
    result = ours(frame, s=["s0", "s1"], classes=classes[1])
    for measure in AGREED:
        if measure != "k":  # pycanon counts k over the quasi-identifiers alone, whatever the classes
            number = theirs(measure, frame, s=["s0", "s1"], gen=classes[0])
            assert number == pytest.approx(getattr(result, measure), **CLOSE), measure


@FEW
@given(RANDOM)
def test_we_agree_on_entropy_l_up_to_its_truncation_to_an_integer(rows: list[tuple[str, str, str]]) -> None:
    frame = pd.DataFrame(rows, columns=["q0", "q1", "s"])
    real, whole = ours(frame, ["q0", "q1"]).entropy_l, theirs("entropy_l", frame, ["q0", "q1"])
    assert isinstance(whole, int)
    assert math.floor(real - 1e-9) <= whole <= math.floor(real + 1e-9)


@FEW
@given(RANDOM)
def test_we_agree_on_enhanced_beta_where_the_definition_gives_a_finite_number(rows: list[tuple[str, str, str]]) -> None:
    frame = pd.DataFrame(rows, columns=["q0", "q1", "s"])
    result, number = ours(frame, ["q0", "q1"]), theirs("enhanced_beta", frame, ["q0", "q1"])
    assert math.isfinite(number)
    if math.isfinite(result.enhanced_beta):
        assert number == pytest.approx(result.enhanced_beta, **CLOSE)


DATA = os.environ.get("SFUMATO_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="SFUMATO_DATA does not name the folder of the full data sets")

# the roles that pycanon's own examples give the columns
TABLES = {
    "stroke_k5": (
        [
            "gender",
            "age",
            "hypertension",
            "heart_disease",
            "ever_married",
            "work_type",
            "Residence_type",
            "smoking_status",
        ],
        ["stroke"],
    ),
    "drugs_k5": (["Age", "Sex", "BP", "Cholesterol", "Na_to_K"], ["Drug"]),
    "StudentsMath_Score_k5": (["Teacher", "Gender", "Ethnic", "Freeredu", "wesson"], ["Score"]),
    "adult_anonymized_10": (
        ["age", "education", "occupation", "relationship", "sex", "native-country"],
        ["salary-class"],
    ),
}


def real(name: str, folder: str = "processed") -> tuple[pd.DataFrame, list[str], list[str]]:
    """A table that was published with pycanon; only its score is a number."""
    qi, s = TABLES[name]
    table = pl.read_parquet(Path(DATA, "pycanon", folder, f"{name}.parquet"), columns=[*qi, *s])
    return pd.DataFrame(table.with_columns(pl.col("^Score$").cast(pl.Float64)).to_dict(as_series=False)), qi, s


@needs_data
@pytest.mark.parametrize(
    ("name", "k"),
    [(name, 5) for name in TABLES if name != "adult_anonymized_10"] + [("adult_anonymized_10", 10)] * THOROUGH,
)
def test_we_agree_on_the_tables_that_pycanon_publishes(name: str, k: int) -> None:
    frame, qi, s = real(name)
    result = ours(frame, qi, s)
    assert result.k == k
    assert result.distances == {s[0]: "ordered" if s == ["Score"] else "equal"}
    for measure in AGREED:
        assert theirs(measure, frame, qi, s) == pytest.approx(getattr(result, measure), **CLOSE), measure
    assert theirs("entropy_l", frame, qi, s) == math.floor(result.entropy_l)


@needs_data
def test_we_leave_out_the_suppressed_rows_that_pycanon_publishes_its_tables_without() -> None:
    raw, qi, s = real("drugs_k5", "raw")
    processed, *_ = real("drugs_k5")
    result = ours(raw, qi, s)
    assert (result.rows, result.suppressed) == (len(processed), 15)
    assert result.numbers() == ours(processed, qi, s).numbers()
    assert theirs("t", processed, qi, s) == pytest.approx(result.t)
    assert theirs("t", raw, qi, s) == pytest.approx(0.67)
    assert result.t == pytest.approx(0.6797297297297297)


@needs_data
def test_three_numbers_differ_on_the_drug_table() -> None:
    frame, qi, s = real("drugs_k5")
    result, rows = ours(frame, qi, s), records(frame)
    assert theirs("recursive_c", frame, qi, s) == 2
    assert result.recursive_c == brute.recursive_c(rows, l=2) == 5
    assert theirs("entropy_l", frame, qi, s) == 1
    assert result.entropy_l == pytest.approx(brute.entropy_l(rows)) == pytest.approx(1.5691925832141966)
    assert theirs("enhanced_beta", frame, qi, s) == pytest.approx(2.655406467616788)
    assert result.enhanced_beta == brute.enhanced_beta(rows) == math.inf


# --- where it does not follow them: one test for each difference


@pytest.mark.parametrize(
    ("counts", "printed", "defined"), [([9, 1], 1, 9), ([5, 3, 2], 1, 2.5), ([3, 3, 1], 1, 3), ([1, 1], 2, 1)]
)
def test_recursive_c_of_pycanon_sorts_ascending_and_takes_the_next_integer(
    counts: list[int], printed: int, defined: float
) -> None:
    frame = frame_of([f"v{i}" for i, count in enumerate(counts) for _ in range(count)])
    ascending = sorted(counts)
    assert theirs("recursive_c", frame) == printed
    assert math.floor(ascending[0] / sum(ascending[len(counts) - 1 :])) + 1 == printed
    assert ours(frame).recursive_c == brute.recursive_c(records(frame), l=len(counts)) == defined


def test_recursive_c_of_pycanon_is_not_a_number_where_a_class_has_one_value() -> None:
    frame = frame_of("ab", "aa")
    assert math.isnan(theirs("recursive_c", frame))
    assert ours(frame).recursive_c == brute.recursive_c(records(frame), l=1) == 1


@pytest.mark.parametrize("l", [2, 3, 4, 6, 7, 8, 10])
def test_entropy_l_of_pycanon_is_one_less_for_some_uniform_classes(l: int) -> None:
    frame = frame_of([f"v{i}" for i in range(l)])
    assert theirs("entropy_l", frame) == l - 1
    assert brute.entropy_l(records(frame)) == pytest.approx(l)
    assert ours(frame).entropy_l == l


def test_entropy_l_of_pycanon_is_truncated_to_an_integer() -> None:
    frame = frame_of("aaab")
    assert theirs("entropy_l", frame) == 1
    assert ours(frame).entropy_l == pytest.approx(brute.entropy_l(records(frame))) == pytest.approx(1.7547653506033)


@pytest.mark.parametrize("known", ["q0", 1.0])
def test_pycanon_leaves_out_a_row_that_misses_a_quasi_identifier(known: Any) -> None:
    frame = pd.DataFrame({"q": [known] * 5 + [None], "s": list("abcdea")})
    result, rows = ours(frame), records(frame)
    assert (theirs("k", frame), brute.k(rows), result.k) == (5, 1, 1)
    dropping = ours(frame, missing="drop")
    assert (dropping.k, dropping.dropped) == (5, 1)
    assert (theirs("alpha", frame), brute.alpha(rows), result.alpha) == (0.2, 1, 1)
    assert (theirs("l", frame), brute.distinct_l(rows), result.l) == (5, 1, 1)
    assert theirs("t", frame) == pytest.approx(2 / 15)
    assert result.t == pytest.approx(brute.t(rows, brute.equal_emd)) == pytest.approx(2 / 3)


def test_pycanon_mistakes_the_index_labels_of_a_sorted_frame_for_positions() -> None:
    frame = pd.DataFrame({"q": list("xyxy"), "s": list("abab")}).sort_values("q")
    assert frame.index.tolist() == [0, 2, 1, 3]
    result, rows = ours(frame), records(frame)
    assert (theirs("l", frame), brute.distinct_l(rows), result.l) == (2, 1, 1)
    assert (theirs("alpha", frame), brute.alpha(rows), result.alpha) == (0.5, 1, 1)
    assert (theirs("t", frame), brute.t(rows, brute.equal_emd), result.t) == (0, 0.5, 0.5)
    assert theirs("l", frame.reset_index(drop=True)) == 1


def test_pycanon_reads_the_wrong_rows_where_two_frames_are_put_together() -> None:
    frame = pd.concat([frame_of("ab"), pd.DataFrame({"q": ["other"] * 2, "s": ["c"] * 2})])
    assert frame.index.tolist() == [0, 1, 0, 1]
    result, rows = ours(frame), records(frame)
    assert (theirs("l", frame), brute.distinct_l(rows), result.l) == (2, 1, 1)
    assert (theirs("alpha", frame), brute.alpha(rows), result.alpha) == (0.5, 1, 1)


def test_pycanon_fails_on_a_filtered_frame() -> None:
    frame = frame_of("aa", "ab", "ab").query("q != 'q0'")
    assert theirs("k", frame) == 2
    for measure in MEASURES:
        with pytest.raises(IndexError, match="out-of-bounds"):
            theirs(measure, frame)
    result, rows = ours(frame), records(frame)
    assert result.l == brute.distinct_l(rows) == 2
    assert result.alpha == brute.alpha(rows) == 0.5


def test_pycanon_counts_a_level_that_no_row_has_as_an_empty_class_with_pandas_2() -> None:
    frame = frame_of("ab", "ab").assign(q=pd.Categorical(["x", "x", "y", "y"], categories=["x", "y", "unused"]))
    pandas_2 = int(pd.__version__.split(".")[0]) < 3  # the version that pycanon pins; since 3, groupby leaves it out
    assert theirs("k", frame) == (0 if pandas_2 else 2)
    assert theirs("l", frame) == (0 if pandas_2 else 2)
    result, rows = ours(frame), records(frame)
    assert result.k == brute.k(rows) == 2
    assert result.l == brute.distinct_l(rows) == 2


@pytest.mark.parametrize(
    ("classes", "printed"), [(("aa", "bb"), math.log(2)), (("aa", "bccc"), math.log(6)), (("aab", "abb"), 1 / 3)]
)
def test_enhanced_beta_of_pycanon_caps_the_worst_gain_where_no_beta_is_enough(
    classes: tuple[str, ...], printed: float
) -> None:
    frame = frame_of(*classes)
    assert theirs("enhanced_beta", frame) == pytest.approx(printed)
    defined = ours(frame).enhanced_beta
    assert defined == pytest.approx(brute.enhanced_beta(records(frame)))
    assert defined == (math.inf if classes[0] == "aa" else pytest.approx(printed))


def test_t_of_pycanon_fails_on_a_constant_number() -> None:
    frame = frame_of([7, 7], [7, 7])
    with pytest.raises(ZeroDivisionError):
        theirs("t", frame)
    assert ours(frame).t == brute.t(records(frame), brute.line_emd({7: 0.0})) == 0


def test_pycanon_counts_a_missing_sensitive_number_nowhere() -> None:
    frame = frame_of([1.0, 2.0], [math.nan, math.nan])
    result, rows = ours(frame), records(frame)
    assert (theirs("alpha", frame), brute.alpha(rows), result.alpha) == (0.5, 1, 1)
    assert theirs("t", frame) == 0.625
    ranks = {1.0: 0.0, 2.0: 0.5, None: 1.0}
    assert result.t == brute.t(rows, brute.line_emd(ranks)) == 0.375
    with pytest.raises(ValueError, match="empty"):
        theirs("delta_disclosure", frame)
    assert result.delta_disclosure == pytest.approx(brute.delta(rows, "ignore")) == pytest.approx(math.log(2))


def test_pycanon_fails_on_a_missing_sensitive_text() -> None:
    frame = frame_of("ab", ["a", None])
    for measure in ("alpha", "l", "basic_beta"):
        with pytest.raises(TypeError, match="not supported between"):
            theirs(measure, frame)
    assert ours(frame).l == brute.distinct_l(records(frame)) == 2


# --- where the definition leaves a choice, or the paper is stricter than both packages' default


def test_pycanon_counts_the_suppressed_rows_as_a_class() -> None:
    frame = frame_of("ab", "ab", "c").replace({"q": {"q2": "*"}})
    released = frame[frame["q"] != "*"]
    assert theirs("k", frame) == 1
    assert theirs("k", released) == ours(frame).k == brute.k(records(released)) == 2
    assert ours(frame, suppressed=None).k == brute.k(records(frame)) == 1


def test_delta_passes_over_an_absent_value_in_pycanon_and_in_our_default_but_not_in_the_paper() -> None:
    frame = frame_of("aa", "bb")
    rows = records(frame)
    assert theirs("delta_disclosure", frame) == pytest.approx(brute.delta(rows, "ignore")) == pytest.approx(math.log(2))
    assert ours(frame).delta_disclosure == pytest.approx(brute.delta(rows, "ignore"))
    assert ours(frame, absent="infinite").delta_disclosure == brute.delta(rows, "infinite") == math.inf


def test_k_of_pycanon_is_that_of_the_quasi_identifiers_when_sensitive_attributes_count_among_them() -> None:
    frame = pd.DataFrame({"q": list("xxyy"), "s0": list("aabb"), "s1": list("cdcd")})
    both = ["s0", "s1"]
    assert theirs("k", frame) == theirs("k with alpha", frame, s=both, gen=False) == 2
    result = ours(frame, s=both, classes="qi+other-sensitive")
    assert result.k == brute.k(records(frame[["q", "s1", "s0"]])) == 1
    assert ours(frame, s=both).k == 2
