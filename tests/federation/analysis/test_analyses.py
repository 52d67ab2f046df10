"""Joint analyses equal those of the pooled rows, whatever adds up; with epsilon, noise and charge are as stated."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression as PlainLinear
from sklearn.linear_model import LogisticRegression as PlainLogistic

import sfumato as sf
from sfumato.budget.ledger.ledger import Ledger
from sfumato.errors import BudgetError, ColumnError, InputError, OptionError, ProtocolError, SchemaError
from sfumato.federation import (
    AnalysisHolder,
    AnalysisPlan,
    CrossTable,
    ElementSum,
    Histogram,
    JointFunction,
    LinearRegression,
    LogisticRegression,
    Moments,
    Quantiles,
    analyse_together,
)
from sfumato.federation.analysis.analyses import ANALYSES, GRID, of_dict
from sfumato.federation.analysis.columns import read_columns

SCHEMA = sf.Schema(
    [
        sf.Column(name="age", bounds=(0, 120)),
        sf.Column(name="pressure", bounds=(50, 250)),
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="ill", domain=("no", "yes")),
    ]
)
NAMES = ("east", "north", "south")


def rows(count=900, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 120, count)
    pressure = np.clip(90 + 0.5 * age + rng.normal(0, 10, count), 50, 250)
    ill = rng.random(count) < 1 / (1 + np.exp(-(age - 60) / 20 - (pressure - 120) / 30))
    return pl.DataFrame(
        {
            "age": age,
            "pressure": pressure,
            "sex": rng.choice(["f", "m"], count),
            "ill": np.where(ill, "yes", "no"),
        }
    )


POOLED = rows()
HOLDERS = {name: POOLED[at * 300 : (at + 1) * 300] for at, name in enumerate(NAMES)}


def found(analysis, secure="none", holders=None, **more):
    plan = AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3, secure=secure, **more)
    return analyse_together(plan, holders or HOLDERS).values


def test_moments_equal_those_of_the_pooled_rows():
    for name, one in found(Moments(("age", "pressure"))).items():
        pooled = POOLED[name]
        assert one["count"] == 900
        assert one["sum"] == pytest.approx(pooled.sum(), rel=1e-7)
        assert one["mean"] == pytest.approx(pooled.mean(), rel=1e-7)
        assert one["variance"] == pytest.approx(pooled.var(), rel=1e-6)


def test_a_histogram_and_a_table_equal_those_of_the_pooled_rows():
    one = found(Histogram("age", bins=7))["age"]
    counts, edges = np.histogram(POOLED["age"], 7, (0, 120))
    assert one["counts"] == counts.tolist()
    assert one["edges"] == pytest.approx(edges)
    cells = found(CrossTable(("sex", "ill")))["cells"]
    for cell in cells:
        assert cell["count"] == POOLED.filter((pl.col("sex") == cell["sex"]) & (pl.col("ill") == cell["ill"])).height
    assert len(cells) == 4


@pytest.mark.parametrize(("low", "high", "bins"), [(0, 120, 120), (0, 120, 7), (-5, 115, 40), (0.1, 0.7, 6)])
def test_a_value_on_an_edge_is_in_the_bin_that_begins_there(low, high, bins):
    edges = np.linspace(low, high, bins + 1)
    values = np.concatenate([edges, np.arange(math.ceil(low), math.floor(high) + 1), np.linspace(low, high, 1000)])
    schema = sf.Schema([sf.Column(name="age", bounds=(low, high))])
    plan = AnalysisPlan(analysis=Histogram("age", bins=bins), schema=schema, parties=3, secure="none")
    one = analyse_together(plan, dict.fromkeys(NAMES, pl.DataFrame({"age": values}))).values["age"]
    assert one["counts"] == (3 * np.histogram(values, bins, (low, high))[0]).tolist()
    assert one["edges"] == edges.tolist()


def test_quantiles_are_right_up_to_a_bin():
    one = found(Quantiles("age", probabilities=(0, 0.1, 0.5, 1), bins=500))["age"]
    assert one["resolution"] == pytest.approx(120 / 500)
    for probability, value in one["quantiles"].items():
        assert abs(value - np.quantile(POOLED["age"], float(probability))) < 2 * one["resolution"]


def test_linear_regression_equals_least_squares_on_the_pooled_rows():
    one = found(LinearRegression(("age",), "pressure"))
    plain = PlainLinear().fit(POOLED[["age"]].to_numpy(), POOLED["pressure"].to_numpy())
    assert one["slopes"]["age"] == pytest.approx(plain.coef_[0], rel=1e-5)
    assert one["intercept"] == pytest.approx(plain.intercept_, rel=1e-5)
    assert one["r2"] == pytest.approx(plain.score(POOLED[["age"]].to_numpy(), POOLED["pressure"].to_numpy()), abs=1e-5)


def test_logistic_regression_equals_that_of_the_pooled_rows():
    one = found(LogisticRegression(("age", "pressure"), "ill", ridge=1.0))
    scaled = np.column_stack([(POOLED["age"] - 60) / 60, (POOLED["pressure"] - 150) / 100])
    plain = PlainLogistic(C=1.0, tol=1e-10, max_iter=1000).fit(scaled, POOLED["ill"] == "yes")
    assert one["slopes"]["age"] == pytest.approx(plain.coef_[0, 0] / 60, rel=1e-4)
    assert one["slopes"]["pressure"] == pytest.approx(plain.coef_[0, 1] / 100, rel=1e-4)
    assert one["event"] == "yes"


@pytest.mark.parametrize("secure", ["masks", "ckks"])
def test_every_kind_of_sum_gives_the_same(secure):
    for analysis in (Moments(("age",)), LogisticRegression(("age",), "ill", iterations=2)):
        assert found(analysis, secure) == found(analysis)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 120), min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_how_rows_are_spread_changes_nothing(ages, first, second):
    one, other = sorted((first % (len(ages) + 1), second % (len(ages) + 1)))
    frame = pl.DataFrame({"age": ages})
    parts = dict(zip(NAMES, (frame[:one], frame[one:other], frame[other:]), strict=True))
    for analysis in (Moments(("age",)), Histogram("age", bins=6), Quantiles("age", bins=60)):
        alone = {"east": frame, "north": frame[:0], "south": frame[:0]}
        assert found(analysis, holders=parts) == found(analysis, holders=alone)


def test_vectors_are_added_element_by_element():
    one = found(ElementSum("age", size=300))["age"]
    assert one["holders"] == 3
    assert one["sums"] == pytest.approx((POOLED["age"][:300] + POOLED["age"][300:600] + POOLED["age"][600:]).to_list())
    with pytest.raises(InputError, match="the vector has 300 numbers, but the plan is for 299"):
        found(ElementSum("age", size=299))
    with pytest.raises(OptionError, match="leave out epsilon"):
        found(ElementSum("age", size=300), epsilon=1.0)


def test_rows_with_a_missing_value_are_left_out():
    frame = pl.DataFrame({"age": [10.0, None, 30.0], "sex": ["f", "f", None]})
    holders = dict.fromkeys(NAMES, frame)
    assert found(Moments(("age",)), holders=holders)["age"]["count"] == 6
    assert sum(one["count"] for one in found(CrossTable(("sex",)), holders=holders)["cells"]) == 6


def test_values_outside_what_is_declared_are_refused_by_number_never_by_value():
    for frame, word in (
        (pl.DataFrame({"age": [10.0, 130.5, -1.0]}), r"2 value\(s\) of column 'age' are outside its bounds 0 to 120"),
        (pl.DataFrame({"age": ["10", "130a", None]}), r"1 value\(s\) of column 'age' are not numbers"),
        (pl.DataFrame({"sex": ["f", "zebra"]}), r"1 value\(s\) of column 'sex' are not in its public domain"),
    ):
        analysis = Moments(("age",)) if "age" in frame.columns else CrossTable(("sex",))
        plan = AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3)
        with pytest.raises(SchemaError, match=word) as caught:
            AnalysisHolder("east", plan, frame)
        assert "zebra" not in str(caught.value)
        assert "130" not in str(caught.value)
        # With privacy, an error would say that there is such a value.
        AnalysisHolder("east", AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3, epsilon=1.0), frame)


def test_overflow_is_refused_before_it_happens():
    with pytest.raises(OptionError, match="the sums of 3 holders of 100,000,000,000,000 rows could overflow"):
        AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, rows=10**14)
    with pytest.raises(OptionError, match=r"too small for this analysis|could overflow"):
        AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, epsilon=1e-6)
    plan = AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, rows=200)
    with pytest.raises(InputError, match="more than the 200 rows"):
        AnalysisHolder("east", plan, HOLDERS["east"])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Moments(()), OptionError, "must be names"),
        (lambda: Moments("age"), OptionError, "must be names"),
        (lambda: Moments(("age", "age")), OptionError, "named twice"),
        (lambda: LinearRegression(("age",), "age"), OptionError, "target and a predictor"),
        (lambda: LinearRegression(("age",), "pressure", ridge=-1), OptionError, "ridge"),
        (lambda: Quantiles("age", probabilities=(1.5,)), OptionError, "from 0 to 1"),
        (lambda: AnalysisPlan(analysis=Moments(("sex",)), schema=SCHEMA, parties=3), SchemaError, "no public bounds"),
        (
            lambda: AnalysisPlan(analysis=CrossTable(("age",)), schema=SCHEMA, parties=3),
            SchemaError,
            "no public domain",
        ),
        (lambda: AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, secure="x"), OptionError, "secure"),
        (
            lambda: AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, threshold=4),
            OptionError,
            "only 3",
        ),
        (
            lambda: AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, secure="none", honest=2),
            OptionError,
            "cannot be relied on",
        ),
        (lambda: of_dict({"kind": "magic"}), InputError, "known: mean"),
        (lambda: AnalysisPlan.from_dict({"schema": {}}), InputError, "lacks a part"),
    ],
)
def test_wrong_descriptions_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_plan_survives_json_for_every_analysis():
    every = (
        Moments(("age",)),
        Histogram("age", bins=3),
        Quantiles("age"),
        CrossTable(("sex",)),
        ElementSum("age", size=300),
        JointFunction("age", 3, "def function(mpc, vectors): ..."),
        LinearRegression(("age",), "pressure"),
        LogisticRegression(("age",), "ill"),
    )
    assert {type(one) for one in every} == {*ANALYSES.values()}
    for one in every:
        secure, threshold = "mpc" if one.kind == "function" else "masks", 2 if one.sums == 1 else 3
        threshold = 3 if secure == "mpc" else threshold
        plan = AnalysisPlan(analysis=one, schema=SCHEMA, parties=3, threshold=threshold, secure=secure)
        again = AnalysisPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
        assert again == plan
        assert again.digest == plan.digest


def test_a_table_without_the_column_and_another_plan_are_refused():
    plan = AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3)
    with pytest.raises(ColumnError, match="lacks the column 'age'"):
        AnalysisHolder("east", plan, pl.DataFrame({"sex": ["f"]}))
    with pytest.raises(InputError, match="for 3 holders, and 1 are given"):
        analyse_together(plan, {"east": HOLDERS["east"]})
    holder = AnalysisHolder("east", plan, HOLDERS["east"])
    with pytest.raises(ProtocolError, match="agreed to another plan"):
        holder.contribute({"plan": "other", "state": []})
    holder.contribute({"plan": plan.digest, "state": []})
    with pytest.raises(ProtocolError, match=r"has sent the 1 sum\(s\) of this plan already"):
        holder.contribute({"plan": plan.digest, "state": []})
    assert repr(holder) == "AnalysisHolder('east')"


def test_a_coordinator_that_asks_for_other_sums_than_the_plan_has_is_refused():
    analysis = LogisticRegression(("age",), "ill")
    plan = AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3)
    # The difference of two sums of one analysis, the second without a holder, is what that holder has.
    with pytest.raises(OptionError, match="logistic takes 8 sums, and the difference of two sums over different"):
        AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3, threshold=2)
    assert AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3, threshold=2, epsilon=1.0).threshold == 2
    # Slopes of 1e6 would count the rows on one side of any line.
    asked = {"plan": plan.digest}
    for first in ([1e6, 0.0], [math.nan, 0.0], [0.0], []):
        with pytest.raises(ProtocolError, match="asks party 'east' for another sum than the plan has"):
            AnalysisHolder("east", plan, HOLDERS["east"]).contribute({**asked, "state": first})
    holder = AnalysisHolder("east", plan, HOLDERS["east"])
    holder.contribute({**asked, "state": [0.0, 0.0]})
    holder.contribute({**asked, "state": [4.0, -5.0]})
    for then in ([9.1, -5.0], [math.inf, 0.0], [0.0, 0.0, 0.0]):
        with pytest.raises(ProtocolError, match="asks party 'east' for another sum"):
            holder.contribute({**asked, "state": then})
    # In one of a single sum there is nothing to choose.
    moments = AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3)
    with pytest.raises(ProtocolError, match="asks party 'east' for another sum"):
        AnalysisHolder("east", moments, HOLDERS["east"]).contribute({"plan": moments.digest, "state": [1.0]})


@pytest.mark.parametrize("secure", ["threshold", "ckks"])
def test_a_sum_that_is_too_large_for_encryption_is_refused_when_it_is_planned(secure):
    with pytest.raises(OptionError, match="at most 2,796,202 numbers of 64 bits from each of 3 parties, got"):
        AnalysisPlan(analysis=ElementSum("age", size=9_000_000), schema=SCHEMA, parties=3, secure=secure)
    with pytest.raises(OptionError, match="at most 255 parties, got 256"):
        AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=256, secure=secure, rows=1000)


def test_no_row_adds_more_than_the_stated_norm():
    corners = [*itertools.product((0.0, 60.0, 120.0), (50.0, 250.0), ("f", "m"), ("no", "yes"))]
    for analysis in (
        Moments(("age", "pressure")),
        Histogram("age"),
        Quantiles("age"),
        CrossTable(("sex", "ill")),
        LinearRegression(("age",), "pressure"),
        LogisticRegression(("age", "pressure"), "ill"),
    ):
        plan = AnalysisPlan(analysis=analysis, schema=SCHEMA, parties=3, epsilon=1.0)
        states = [analysis.start(SCHEMA)]
        if isinstance(analysis, LogisticRegression):
            states += [np.full(3, 50.0), np.array([-3.0, 9.0, 0.1])]
        for corner, state in itertools.product(corners, states):
            frame = pl.DataFrame([corner], schema=["age", "pressure", "sex", "ill"], orient="row")
            columns = read_columns(frame, plan.schema, analysis.numbers, analysis.categories, private=True)
            added = analysis.add(plan.schema, columns, state).astype(float)
            assert np.linalg.norm(added) <= analysis.norm(SCHEMA) * 2**GRID + math.sqrt(plan.length)


def test_the_noise_of_the_honest_holders_alone_suffices_and_each_ledger_is_charged_first(tmp_path):
    plan = AnalysisPlan(analysis=Histogram("age", bins=400), schema=SCHEMA, parties=3, epsilon=0.5, delta=1e-6)
    sensitivity = 2.0**GRID
    # zCDP of honest shares, turned to epsilon by the standard bound, which is weaker than the one in use.
    rho = sensitivity**2 / (2 * plan.honest * plan.noise**2)
    assert rho + 2 * math.sqrt(rho * math.log(1 / plan.delta)) < 0.65
    ledgers = {name: Ledger.grant(HOLDERS[name], epsilon=0.8, delta=1e-5, path=tmp_path / name) for name in NAMES}
    early = AnalysisHolder("east", plan, HOLDERS["east"], ledger=ledgers["east"])
    result = analyse_together(plan, HOLDERS, ledgers=ledgers)
    errors = np.array(result.values["age"]["counts"]) - np.histogram(POOLED["age"], 400, (0, 120))[0]
    # 400 draws: the ratio of the deviations is within 1/4 except with a probability of about 1e-12.
    assert 0.75 < errors.std() / result.noise < 1.25
    for one in ledgers.values():
        assert one.spent.epsilon == pytest.approx(0.5, rel=1e-3)
    # A second analysis does not fit: nobody joins, and one that has joined before the budget was spent does not answer.
    with pytest.raises(BudgetError, match="would exceed the limit"):
        analyse_together(plan, HOLDERS, ledgers=ledgers)
    with pytest.raises(BudgetError, match="would exceed the limit"):
        early.contribute({"plan": plan.digest, "state": []})
    for one in ledgers.values():
        assert one.spent.epsilon == pytest.approx(0.5, rel=1e-3)
        one.close()


def test_by_default_the_noise_that_nobody_can_take_away_suffices():
    """By CKKS, a coordinator that lies can have a single vector opened, with the noise of its party alone."""

    def noise(secure, **more):
        return AnalysisPlan(analysis=Moments(("age",)), schema=SCHEMA, parties=3, secure=secure, epsilon=1.0, **more)

    assert [noise(one).honest for one in ("none", "masks", "threshold", "ckks")] == [1, 2, 2, 1]
    assert noise("ckks").noise == noise("none").noise == pytest.approx(math.sqrt(2) * noise("masks").noise, rel=1e-3)
    assert noise("ckks", honest=3).honest == 3


def test_private_regressions_approach_those_in_clear():
    many = {name: rows(20_000, seed) for seed, name in enumerate(NAMES)}
    for analysis in (LinearRegression(("age",), "pressure"), LogisticRegression(("age",), "ill", iterations=5)):
        plain = found(analysis, holders=many)["slopes"]["age"]
        noisy = found(analysis, "masks", holders=many, epsilon=2.0)["slopes"]["age"]
        # The noise of a sum is about 1e-3 of the smallest eigenvalue: 10 % is far beyond ten deviations.
        assert noisy == pytest.approx(plain, rel=0.1)
