"""Membership attacks follow their definitions, find what was learned by heart, and refuse what they cannot use."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.tree import DecisionTreeClassifier

from sfumato.attacks import FitEstimator, ModelTarget, Records, attacks_of, run_attacks
from sfumato.attacks.membership.bavaria import bavaria
from sfumato.attacks.membership.label_only import perturbed
from sfumato.attacks.membership.lira import lira, lira_offline
from sfumato.attacks.membership.references import halves
from sfumato.attacks.membership.rmia import SLOPES, best_slope, informia, rmia, rmia_offline
from sfumato.attacks.membership.signals import Signals, logit
from sfumato.errors import InputError

CATALOGUE = [
    *("loss", "gap", "lira", "lira-offline", "rmia", "rmia-offline", "informia", "bavaria", "bavaria-offline"),
    *("network", "quantile", "label-only"),
]


@st.composite
def all_signals(draw: st.DrawFn, models: int = 6) -> tuple[Signals, Signals]:
    """Return the signals of some records, and of a population."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, others = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    digits = draw(st.sampled_from([1, 12]))  # few digits make ties
    inside = halves(rows + others, models, int(rng.integers(1000)))
    p = rng.random((models + 1, rows + others)).round(digits)
    every = Signals(p[0], p[1:], inside)
    return every.take(np.arange(rows)), every.take(np.arange(rows, rows + others))


def _sides(signals: Signals, record: int) -> tuple[Any, Any]:
    values, of = signals.references[:, record], signals.inside[:, record]
    return values[of], values[~of]


def _ratio(signals: Signals, record: int, slope: float | None = None) -> float:
    """Return p(x | target) / p(x), by the definition."""
    with_, without = _sides(signals, record)
    offline = None if slope is None else ((1 + slope) * without.mean() + (1 - slope)) / 2
    average = (with_.mean() + without.mean()) / 2 if offline is None else offline
    return float(max(signals.target[record], 1e-12) / max(average, 1e-12))


@given(all_signals(), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([None, 0.0, 0.3, 1.0]))
def test_rmia_is_the_share_of_the_population_that_a_record_beats(
    both: tuple[Signals, Signals], gamma: float, slope: float | None
) -> None:
    signals, population = both
    x = np.array([_ratio(signals, record, slope) for record in range(signals.records)])
    z = np.array([_ratio(population, record, slope) for record in range(population.records)])
    if not np.isclose(x[:, None] / gamma, z, rtol=1e-9).any():  # rounding decides between a tie and a win
        matrix = x[:, None] / z[None, :] > gamma
        found = rmia(*both, gamma=gamma) if slope is None else rmia_offline(*both, gamma=gamma, a=slope)
        assert np.allclose(found, matrix.mean(axis=1))


def test_a_record_does_not_beat_one_with_the_same_ratio() -> None:
    same = Signals(np.full(2, 0.5), np.full((2, 2), 0.25), halves(2, 2, 0))
    assert rmia(same, same).tolist() == [0, 0]
    assert rmia_offline(same, same).tolist() == [0, 0]


@given(all_signals())
def test_informia_is_the_log_ratio_less_its_weighted_mean_and_orders_records_as_rmia(
    both: tuple[Signals, Signals],
) -> None:
    signals, population = both
    log = [np.log(_ratio(population, z)) for z in range(population.records)]
    weights = [max(np.mean([side.mean() for side in _sides(population, z)]), 1e-12) for z in range(population.records)]
    mean = sum(w * one for w, one in zip(weights, log, strict=True)) / sum(weights)
    found = informia(*both)
    assert np.allclose(found, [np.log(_ratio(signals, x)) - mean for x in range(signals.records)])
    steps = rmia(*both)[np.argsort(found)]
    assert (np.diff(steps) >= 0).all()


@given(all_signals(models=8))
def test_lira_is_the_ratio_of_two_normal_densities_with_common_variances(both: tuple[Signals, Signals]) -> None:
    signals, _ = both
    sides = [[logit(side) for side in _sides(signals, x)] for x in range(signals.records)]
    pooled = []
    for side in (0, 1):
        squares = sum(((one[side] - one[side].mean()) ** 2).sum() for one in sides)
        pooled.append(max(squares / sum(len(one[side]) - 1 for one in sides), 1e-12) ** 0.5)
    own = logit(signals.target)
    expected = [
        stats.norm.logpdf(own[x], with_.mean(), pooled[0]) - stats.norm.logpdf(own[x], without.mean(), pooled[1])
        for x, (with_, without) in enumerate(sides)
    ]
    assert np.allclose(lira(signals), expected)
    z = [(own[x] - without.mean()) / pooled[1] for x, (_, without) in enumerate(sides)]
    assert np.allclose(lira_offline(signals), z)


def test_with_many_references_each_record_has_its_own_variance() -> None:
    rng = np.random.default_rng(0)
    signals = Signals(rng.random(5), rng.random((64, 5)), halves(5, 64, 0))
    own = logit(signals.target)
    expected = []
    for x in range(5):
        with_, without = (logit(side) for side in _sides(signals, x))
        densities = (stats.norm.logpdf(own[x], side.mean(), side.std(ddof=1)) for side in (with_, without))
        expected.append(next(densities) - next(densities))
    assert np.allclose(lira(signals), expected)


@given(all_signals(), st.booleans())
def test_bavaria_is_the_ratio_of_two_posterior_predictives(both: tuple[Signals, Signals], online: bool) -> None:
    signals, _ = both
    own, found = logit(signals.target), np.zeros(signals.records)
    for sign, side, learned in ((1, 0, online), (-1, 1, True)):
        values = [logit(_sides(signals, x)[side]) for x in range(signals.records)]
        prior, spread = np.concatenate(values).mean(), max(np.concatenate(values).var(), 1e-12)
        for x, one in enumerate(values):
            seen = one if learned else one[:0]
            n, mean = len(seen), seen.mean() if len(seen) else prior
            kappa, alpha = 1 + n, 2 + n / 2
            beta = spread + ((seen - mean) ** 2).sum() / 2 + n * (mean - prior) ** 2 / kappa / 2
            centre, scale = (prior + seen.sum()) / kappa, (beta * (kappa + 1) / (alpha * kappa)) ** 0.5
            found[x] += sign * stats.t.logpdf(own[x], 2 * alpha, centre, scale)
    assert np.allclose(bavaria(signals, online=online), found, atol=1e-6)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_the_slope_finds_the_members_of_a_reference_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    signals = Signals(rng.random(12), rng.random((6, 12)), halves(12, 6, seed))
    member = signals.inside[0]
    without = np.array([signals.references[1:, x][~signals.inside[1:, x]].mean() for x in range(12)])
    aucs = {}
    for a in SLOPES:
        ratio = signals.references[0] / (((1 + a) * without + 1 - a) / 2)
        pairs = ratio[member][:, None] - ratio[~member][None, :]
        aucs[a] = ((pairs > 0) + (pairs == 0) / 2).mean()
    assert aucs[best_slope(signals)] == pytest.approx(max(aucs.values()))


def test_two_references_cannot_choose_a_slope() -> None:
    signals = Signals(np.full(4, 0.5), np.full((2, 4), 0.5), halves(4, 2, 0))
    assert best_slope(signals) == 0.3


RNG = np.random.default_rng(3)
INSIDE, OUTSIDE, OTHERS = (
    Records(pl.DataFrame({"a": RNG.normal(size=120), "b": RNG.integers(0, 90, 120)}), RNG.choice(["no", "yes"], 120))
    for _ in range(3)
)
TREE = DecisionTreeClassifier(random_state=0)


def test_every_attack_finds_what_was_learned_by_heart_and_nothing_else() -> None:
    """The labels are coins, which a tree knows of its members only; an AUC of 1/2 +- .22 has p < 1e-6 (120 a side)."""
    attacks = attacks_of(CATALOGUE)
    by_heart = ModelTarget(TREE.fit(INSIDE.rows, INSIDE.labels), procedure=FitEstimator(TREE), references=4)
    found = run_attacks(attacks, by_heart, INSIDE, OUTSIDE, seed=1)
    assert [result.name for result in found.results] == CATALOGUE
    assert all(result.leaks for result in found.results), found.verdict
    assert {result.name: result.scores.variants for result in found.results}["rmia-offline"] == 11
    stranger = DecisionTreeClassifier(random_state=0).fit(OTHERS.rows, OTHERS.labels)
    unrelated = ModelTarget(stranger, procedure=FitEstimator(TREE), references=4)
    for result in run_attacks(attacks, unrelated, INSIDE, OUTSIDE, seed=1).results:
        assert abs(result.auc - 0.5) < 0.22, result.name


class LabelsOnly:
    """A model that says nothing but classes."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, answer: Any) -> None:
        self.predict = answer


def test_a_model_without_probabilities_is_attacked_by_its_labels_alone() -> None:
    model = LabelsOnly(TREE.fit(INSIDE.rows, INSIDE.labels).predict)
    report = run_attacks(attacks_of(CATALOGUE), ModelTarget(model), INSIDE, OUTSIDE)
    assert [result.name for result in report.results] == ["gap", "label-only"]
    assert report.leaks
    assert {*report.skipped.values()} == {"the model has no predict_proba"}


def test_what_an_attack_cannot_use_is_said_in_one_clause() -> None:
    target = ModelTarget(TREE.fit(INSIDE.rows, INSIDE.labels), procedure=FitEstimator(TREE), references=2)
    few = run_attacks(attacks_of(["lira", "network", "quantile"]), target, INSIDE.take(range(9)), OUTSIDE)
    assert dict(few.skipped) == {
        "lira": "it needs at least 4 reference models, and there are 2",
        "network": "it needs at least 20 members, and there are 9",
        "quantile": "it needs at least 40 members, and there are 9",
    }
    unlabelled = run_attacks(attacks_of(["loss"]), target, Records(INSIDE.rows), OUTSIDE)
    assert dict(unlabelled.skipped) == {"loss": "it needs the labels of the records"}


class Answers(LabelsOnly):
    def __init__(self, answer: Any) -> None:
        self.predict_proba = answer


def _nan(rows: Any) -> Any:
    return np.full((len(rows), 2), np.nan)


def _raise(rows: Any) -> Any:
    raise KeyError(str(rows))


@pytest.mark.parametrize(
    ("model", "records", "says"),
    [
        (Answers(_nan), INSIDE, "predict_proba gave NaN or infinity for 120 records"),
        (Answers(_raise), INSIDE, "predict_proba of Answers raised a KeyError (call it with these records yourself"),
        (LabelsOnly(_raise), INSIDE, "predict of LabelsOnly raised a KeyError"),
        (LabelsOnly(_nan), INSIDE, r"predict of LabelsOnly gave the shape (120, 2) for 120 records"),
        (
            LabelsOnly(lambda rows: ["no"] * len(rows)),
            Records(INSIDE.rows, np.array(["maybe"] * 5 + ["no"] * 115)),
            "5 of 120 labels are not among the 2 classes of the model",
        ),
        (
            LabelsOnly(lambda rows: ["no"] * len(rows)),
            Records(INSIDE.rows, np.array([None] * 3 + ["no"] * 117)),
            "3 of 120 labels are missing",
        ),
    ],
)
def test_bad_answers_and_labels_are_refused_in_one_sentence(model: Any, records: Records, says: str) -> None:
    with pytest.raises(InputError) as error:
        run_attacks(attacks_of(["loss", "gap"]), ModelTarget(model), records, OUTSIDE)
    assert says in str(error.value)


def test_a_class_that_a_model_has_never_seen_has_no_chance() -> None:
    target = ModelTarget(TREE.fit(INSIDE.rows, INSIDE.labels), classes=["maybe", "no", "yes"])
    assert (target.probabilities(OUTSIDE)[:, 0] <= 0.25).all()  # 0 of one tree, smoothed
    odd = Records(OUTSIDE.rows, np.array(["maybe"] * 120))
    assert run_attacks(attacks_of(["loss", "gap"]), target, INSIDE, odd).results[1].auc == 1


def test_members_and_others_must_have_the_same_columns() -> None:
    frame = OUTSIDE.frame
    target, members = ModelTarget(TREE.fit(INSIDE.rows, INSIDE.labels)), INSIDE.frame
    for other, says in (
        (
            Records(frame.rename({"b": "c"}), OUTSIDE.labels),
            "the non-members have no column 'b', which the members have",
        ),
        (
            Records(frame.cast({"b": pl.String}), OUTSIDE.labels),
            "column 'b' is Int64 among the members and String among",
        ),
        (Records(frame.to_numpy(), OUTSIDE.labels), "are not arrays of the same shape"),
    ):
        with pytest.raises(InputError, match=says):
            run_attacks(attacks_of(["quantile"]), target, INSIDE, other)
    turned = Records(members.select("b", "a").cast({"b": pl.Float64}), INSIDE.labels)
    with pytest.raises(InputError, match="120 of 120 non-members are also members"):
        run_attacks(attacks_of(["loss"]), target, INSIDE, turned)


def test_references_are_trained_once_for_the_same_records_and_a_seed() -> None:
    trained: list[int] = []

    def procedure(records: Records, seed: int) -> Any:
        trained.append(seed)
        return TREE.fit(records.rows, records.labels)

    target = ModelTarget(TREE.fit(INSIDE.rows, INSIDE.labels), procedure=procedure, references=2, processes=1)
    first = target.signals(INSIDE, OUTSIDE, 0)
    assert target.signals(INSIDE, OUTSIDE, 0) is first
    assert len(trained) == 2
    target.signals(INSIDE, OTHERS, 0)
    target.signals(INSIDE, OUTSIDE, 1)
    assert len(trained) == 6


@given(st.floats(0.01, 0.5), st.integers(0, 100))
def test_noisy_copies_keep_types_ranges_and_missing_values(amount: float, seed: int) -> None:
    people = Records(
        pl.DataFrame({"age": [20, 30, None, 90], "height": [1.5, 1.9, 1.7, None], "sex": ["f", None, "m", "f"]}),
        np.array([0, 1, 0, 1]),
    )
    noisy = perturbed(people, people, amount, np.random.default_rng(seed)).frame
    assert noisy.schema == people.frame.schema
    assert noisy["age"].is_null().to_list() == [False, False, True, False]
    assert noisy["age"].drop_nulls().is_between(20, 90).all()
    assert noisy["height"].drop_nulls().is_between(1.5, 1.9).all()
    assert set(noisy["sex"]) <= {"f", "m", None}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_noisy_copies_of_arrays_keep_their_shape_and_range(dtype: Any) -> None:
    images = Records(np.random.default_rng(0).integers(0, 255, (6, 4, 4)).astype(dtype))
    noisy = perturbed(images, images, 0.1, np.random.default_rng(1)).rows
    assert (noisy.dtype, noisy.shape) == (dtype, (6, 4, 4))
    assert not np.array_equal(noisy, images.rows)
    bits = Records(np.eye(5, dtype=dtype))
    assert np.isin(perturbed(bits, bits, 0.3, np.random.default_rng(1)).rows, (0, 1)).all()


def test_boosted_trees_of_xgboost_and_a_network_with_one_output_are_attacked() -> None:
    """Both learn labels by heart that nobody can predict; the network says only how probable the second class is."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(160, 3)), rng.integers(0, 2, 160)
    inside, outside = Records(rows[:80], labels[:80]), Records(rows[80:], labels[80:])
    boosted = xgboost.XGBClassifier(n_estimators=20, max_depth=6, n_jobs=1, random_state=0)
    fit = FitEstimator(boosted)
    target = ModelTarget(fit(inside, 0), procedure=fit, references=4, processes=1)

    class OneOutput:
        def predict_proba(self, asked: Any) -> Any:
            return np.array([labels[np.abs(rows[:80] - row).sum(axis=1).argmin()] for row in asked], dtype=float)

    for one in (target, ModelTarget(OneOutput(), classes=[0, 1])):
        report = run_attacks(attacks_of(["loss", "gap", "rmia", "label-only"]), one, inside, outside)
        assert {"loss", "gap"} <= {result.name for result in report.results if result.leaks}
    assert [result.name for result in report.results] == ["loss", "gap", "label-only"]
