"""The page about a training says what privacy cost, in one small file, and what its epsilon does and does not say."""

from __future__ import annotations

import base64
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import unescape
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import (
    ApproximateEvent,
    Composed,
    Event,
    FixedSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureEvent,
    Repeated,
    spent,
)
from sfumato.learners import PrivateAdditiveClassifier, Run, Scores, Training
from sfumato.learners.estimators.features import Feature, Features
from sfumato.learners.training.runs import Pictures
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.pictures import tiled
from sfumato.report.model.accountings import AS_SHUFFLED, BY_RENYI, REPLACED, other_epsilons, shuffled
from sfumato.report.model.outcome import PrivacyCost, outcomes_of
from sfumato.report.model.page import render_training, unused_notes
from tests.report.test_pictures import pixels

DELTA = 1e-5
NONE = math.inf

# --- made-up trainings ------------------------------------------------------------------------------


def scores(accuracy: float, classes: int = 10, rows: int = 2000) -> Scores:
    """Score answers that are right about so often."""
    random = np.random.default_rng(round(1000 * accuracy) + classes)
    truth = random.integers(0, classes, rows)
    sure = random.normal(size=(rows, classes))
    sure[np.arange(rows), truth] += np.where(random.random(rows) < accuracy, 5.0, 0.0)
    chances = np.exp(sure) / np.exp(sure).sum(1, keepdims=True)
    return Scores.of(truth, chances, ["<=50K", ">50K"] if classes == 2 else range(classes))


def run(
    epsilon: float, accuracy: float, *, noise: float = 4.0, epochs: int = 5, classes: int = 10, **changed: Any
) -> Run:
    """Make up a run of private training, 40 steps an epoch."""
    private, steps = epsilon != NONE, 40 * epochs
    event = Repeated(PoissonSampled(0.025, Gaussian(noise)), max(steps, 1))
    facts: dict[str, Any] = {
        "delta": DELTA,
        "noise_multiplier": noise if private else 0.0,
        "clip": 1.5 if private else None,
        "sampling": {"kind": "poisson", "rate": 0.025, "steps": steps},
        "relation": "add-remove",
        "accountant": "pld",
        "spent": epsilon * 0.999 if private else "inf",
        "private": private,
        "events": [event.to_dict()] if private else [],
    }
    history = tuple(
        {
            "epoch": epoch,
            "step": 40 * epoch,
            "loss": 2.3 * math.exp(-epoch * accuracy) + 0.1,
            "epsilon": epsilon * (0.5 + epoch / epochs / 2) if private else "inf",
            "seconds": 1.2,
            "score": accuracy * (1 - 0.4 * math.exp(-epoch)),
        }
        for epoch in range(1, epochs + 1)
    )
    name = f"epsilon-{epsilon:g}" if private else "epsilon-none"
    return Run(epsilon, name, {**facts, **changed}, scores(accuracy, classes), 12.3, history)


def training(*runs: Run, **more: Any) -> Training:
    """Put runs together."""
    given = {"data": "mnist", "model": "resnet18", "target": "the digit", "rows": 10_000, "is_public": True, **more}
    return Training(runs=runs, **given)


def pictures(runs: tuple[Run, ...]) -> Pictures:
    """Make up images of 28 by 28 at four levels of noise, and the maps of two layers."""
    random = np.random.default_rng(0)
    ring = np.hypot(*np.mgrid[-14:14, -14:14])
    images = [np.uint8(255 * (abs(ring - size) < 2)) for size in range(3, 11)]
    levels = (0.0, 0.1, 0.3, 1.0)

    def noisy(image: Any, level: float) -> Any:
        return np.uint8(255 * np.clip(image / 255 + level * random.normal(size=image.shape), 0, 1))

    maps = {
        one.name: {
            "first convolution": tuple(noisy(images[4][::2, ::2], 0.2) for _ in range(16)),
            "second convolution": tuple(noisy(images[4][::4, ::4], 0.4) for _ in range(40)),
        }
        for one in runs
    }
    return Pictures(levels, tuple(tuple(noisy(one, level) for one in images) for level in levels), images[4], maps)


def sweep() -> Training:
    """The digits at three epsilons and without privacy, with pictures and what a publication printed."""
    runs = (run(NONE, 0.987), run(1, 0.8), run(5, 0.915, noise=2.0), run(10, 0.945, noise=1.5))
    printed = [
        {"epoch": epoch, "loss, private": 1.16 / epoch, "epsilon printed": 0.67 + epoch / 100} for epoch in (1, 2)
    ]
    return training(
        *runs,
        together={"epsilon": 11.9, "optimistic": 11.8, "delta": DELTA, "relation": "add-remove", "accountant": "pld"},
        settings={"epochs": 5, "batch": 250, "learning_rate": 0.5},
        pictures=pictures(runs),
        published={"title": "A notebook", "notes": ["Its batches were shuffled."], "epochs": printed},
    )


def classical() -> Training:
    """A table with two classes, and models without epochs."""
    made = {"sampling": None, "clip": None, "noise_multiplier": None, "delta": 0.0}
    runs = [run(epsilon, accuracy, classes=2, **made) for epsilon, accuracy in ((0.5, 0.3), (2, 0.5))]
    runs = [replace(one, history=(), facts={**one.facts, "events": [PureEvent(one.epsilon).to_dict()]}) for one in runs]
    ordinary = replace(run(NONE, 0.6, classes=2), history=())
    return training(*runs, ordinary, data="adult", model="logistic", target="income")


def regression(*losses: tuple[float, float], baseline: float = 150.0) -> Training:
    """Models that predict a number, by epsilon and error."""
    runs = [
        Run(
            epsilon,
            f"epsilon-{epsilon:g}",
            {"delta": DELTA, "private": epsilon != NONE},
            Scores(500, loss, baseline),
            1.2,
        )
        for epsilon, loss in losses
    ]
    return training(*runs, data="hours", model="linear", target="hours")


def page(given: Training) -> str:
    return render_training(given, title="Training")


def text_of(made: str) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", made[made.index("<main>") :])))


def headline(given: Training) -> str:
    found = re.search(r'<section class="verdict ?(\w*)">\s*<p>(.*?)</p>', page(given))
    assert found is not None
    return f"{found[1] or 'plain'}: {found[2]}"


# --- the verdict ------------------------------------------------------------------------------------


def with_accuracy(epsilon: float, accuracy: float, **changed: Any) -> Run:
    """Make up a run without epochs whose accuracy is exactly this; the most frequent class has 60%."""
    return replace(
        run(epsilon, 0.5, **changed), scores=Scores(1000, 0.5, 0.6, accuracy=accuracy, auc=accuracy), history=()
    )


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [
        (
            [(NONE, 0.987), (1, 0.912)],
            "good: At epsilon 1 the accuracy is 91.2%; without privacy 98.7%. Guessing the most frequent class: 60.0%.",
        ),
        (
            [(10, 0.95), (NONE, 0.987), (0.5, 0.8)],  # smallest epsilon first, in whatever order they were asked for
            "good: At epsilon 0.5 the accuracy is 80.0%, at epsilon 10 95.0%; without privacy 98.7%. "
            "Guessing the most frequent class: 60.0%.",
        ),
        (
            [(epsilon, 0.7 + epsilon / 100) for epsilon in (1, 2, 3, 4)],
            "good: At epsilon 1 the accuracy is 71.0%, at epsilon 4 74.0%. Guessing the most frequent class: 60.0%.",
        ),
        (
            [(0.342789, 0.9)],
            "good: At epsilon 0.343 the accuracy is 90.0%. Guessing the most frequent class: 60.0%.",
        ),
        (
            [(NONE, 0.987)],
            "plain: Without privacy the accuracy is 98.7%. Guessing the most frequent class: 60.0%.",
        ),
        (
            [(1, 0.99), (NONE, 0.987)],
            "good: At epsilon 1 the accuracy is 99.0%; without privacy 98.7%: here privacy cost nothing. "
            "Guessing the most frequent class: 60.0%.",
        ),
        (
            [(1, 0.55), (NONE, 0.987)],
            "bad: At epsilon 1 the accuracy is 55.0%; without privacy 98.7%. Guessing the most frequent class: 60.0%.",
        ),
        ([], "plain: No model was trained."),
    ],
)
def test_the_verdict_says_what_privacy_cost(accuracies: list[tuple[float, float]], said: str) -> None:
    assert headline(training(*(with_accuracy(*one) for one in accuracies))) == said


def test_the_verdict_of_a_regression_is_by_its_error_and_less_is_better() -> None:
    assert headline(regression((1, 80.0), (5, 60.1), (NONE, 52.3))) == (
        "good: At epsilon 1 the mean squared error is 80, at epsilon 5 60.1; without privacy 52.3. "
        "Always predicting the mean: 150."
    )
    assert "52.3: here privacy cost nothing." in headline(regression((1, 50.0), (NONE, 52.3)))
    assert headline(regression((1, 160.0), (NONE, 52.3))).startswith("bad: ")
    assert headline(regression((1, math.nan))).startswith(
        "bad: At epsilon 1 the mean squared error is without a score."
    )
    facts = text_of(page(regression((1, 80.0), (5, 60.1), (NONE, 50.0))))
    assert "the price of privacy: 1.6 times the error at epsilon 1, 1.202 times the error at epsilon 5" in facts


def test_what_a_reader_of_the_headline_should_know_is_listed() -> None:
    text = text_of(page(training(with_accuracy(1, 0.55), with_accuracy(5, 0.99), with_accuracy(NONE, 0.98))))
    assert "resnet18 on mnist, to predict the digit: 10,000 rows to train on, 1,000 to test on" in text
    assert "the price of privacy: 43.0 points at epsilon 1, 1.0 points gained at epsilon 5" in text
    assert "no better than guessing: the model at epsilon 1" in text
    assert "to about ±3.1 points" in text  # 1.96 sqrt(0.55 * 0.45 / 1000)
    assert "so the cost of privacy is unknown" in text_of(page(training(with_accuracy(1, 0.9))))
    assert "no model here is private" in text_of(page(training(with_accuracy(NONE, 0.9))))


def test_a_fixed_noise_seed_is_called_not_private() -> None:
    made = training(with_accuracy(1, 0.9, private=False), with_accuracy(NONE, 0.95))
    assert headline(made).startswith("bad: Reproducible, not private. At epsilon 1 the accuracy is 90.0%")
    text = text_of(page(made))
    assert "✗ reproducible, not private" in text
    assert "Its noise came from a fixed seed: reproducible, not private." in text
    assert "times as likely" not in text
    assert "not private" not in text_of(page(training(with_accuracy(1, 0.9), with_accuracy(NONE, 0.95))))
    some = training(with_accuracy(1, 0.9, private=False), with_accuracy(2, 0.95))
    assert headline(some).startswith("bad: 1 of 2 reproducible, not private. At epsilon 1 ")


# --- what is on the page ------------------------------------------------------------------------------


def test_the_page_has_its_sections_in_order() -> None:
    headings = re.findall("<h2>(.*?)</h2>", page(sweep()))
    assert headings == [
        "The models",
        "Privacy against accuracy",
        "Which predictions were wrong",
        "Detection and false alarms",
        "Images before and after noise",
        "What the first layers see",
        "What the guarantee says",
        "Compared with published results",
        "Settings",
    ]


def test_one_small_offline_file_whose_only_images_are_in_it() -> None:
    made = page(sweep())
    assert len(made.encode()) < 300_000
    assert re.search("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[^']*'; img-src data:\">", made)
    for forbidden in ("<link", "@import", "url(http", "javascript:"):
        assert forbidden not in made
    assert set(re.findall("https?:[^\"' ]*", made)) == {"http://www.w3.org/2000/svg"}  # the name of the format
    sources = re.findall('src="([^"]*)"', made)
    assert len(sources) == 4 + 1 + 2 * 4  # levels of noise, the image, two layers of four models
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert made.count('alt="') == len(sources)
    assert "The images belong to the public data set" in made
    for chart in re.findall("<svg.*?</svg>", made, flags=re.DOTALL):
        ElementTree.fromstring(chart)


def test_a_page_without_pictures_may_load_no_image() -> None:
    made = page(classical())
    assert "img-src" not in made
    assert "<img" not in made
    assert re.search("style-src 'unsafe-inline'; script-src 'sha256-[^']*'\">", made)


def test_every_model_is_a_line_of_the_table() -> None:
    text = text_of(page(training(run(2, 0.8), run(NONE, 0.95))))
    score = scores(0.8)
    assert score.accuracy is not None
    assert f"epsilon 2 spent 1.998 at delta 1e-05 {100 * score.accuracy:.1f}% right AUC {score.auc:.3f} " in text
    assert "noise multiplier 4 clip 1.5 sampling: Poisson rate 0.025, 200 steps trained in 12.3 s" in text
    assert "no privacy no bound" in text


def test_noise_that_changes_along_the_way_is_shown_as_a_range() -> None:
    events = [Repeated(PoissonSampled(0.025, Gaussian(noise)), 40).to_dict() for noise in (3.0, 2.0)]
    text = text_of(page(training(run(2, 0.8, events=events, noise_multiplier=2.0))))
    assert "noise multiplier 2 to 3" in text
    assert "a standard deviation of 2 to 3 clips" in text


def test_charts_give_their_numbers_to_readers_who_do_not_see_them() -> None:
    one = with_accuracy(2, 0.8)
    history = tuple({"epoch": epoch, "score": score} for epoch, score in ((1, 0.7), (2, 0.8)))
    made = page(training(replace(one, history=history), with_accuracy(NONE, 0.9)))
    assert ('aria-label="Accuracy by epsilon. private: 80.0% at 2; no privacy: 90.0%; guessing: 60.0%"') in made
    assert 'aria-label="Accuracy on the test rows, after each epoch. epsilon 2: 70.0% at 1, 80.0% at 2"' in made
    assert "Loss on the rows of each epoch" not in made  # no loss was told


def test_models_without_epochs_have_no_charts_by_epoch() -> None:
    made = page(classical())
    assert "for every epsilon" in made
    assert "each epoch" not in made
    assert "an epoch" not in made
    assert "Class &gt;50K: the true positive rate" in made
    assert "Noise" not in text_of(made)  # nothing was clipped, so that columns of dashes would be all there is
    assert "clip " not in text_of(made)
    assert "A mechanism of epsilon 0.5." in made
    assert "at delta 0" in made


def test_losses_that_are_not_numbers_break_a_line_and_nothing_else() -> None:
    one = run(1, 0.8)
    for lost in (None, math.nan, math.inf, "inf"):
        history = tuple({**told, "loss": lost if told["epoch"] == 2 else 0.5} for told in one.history)
        made = page(training(replace(one, history=history)))
        chart = re.search('<svg[^>]*aria-label="Loss on.*?</svg>', made, flags=re.DOTALL)
        assert chart is not None
        assert "epsilon 1: 0.5 at 1, 0.5 at 3, 0.5 at 4, 0.5 at 5" in chart[0]
        assert chart[0].count("nan") == 0
        gone = tuple({**told, "loss": lost, "score": None} for told in one.history)
        assert "Loss on the rows of each epoch" not in page(training(replace(one, history=gone)))


def test_one_epoch_is_a_point() -> None:
    made = page(training(run(1, 0.8, epochs=1), run(NONE, 0.9, epochs=1)))
    assert "after each epoch. epsilon 1: " in made
    assert "nan" not in text_of(made)


def test_confusion_is_in_shares_and_classes_with_few_rows_are_not_shown() -> None:
    few = Scores(
        106, 0.5, 0.5, accuracy=0.7, classes=("a", "b", "rare"), confusion=((40, 10, 0), (25, 25, 0), (6, 0, 0))
    )
    made = page(training(replace(run(1, 0.8), scores=few), replace(run(NONE, 0.8), scores=few)))
    chart = re.search('<svg[^>]*aria-label="Confusion matrix, epsilon 1.*?</svg>', made, flags=re.DOTALL)
    assert chart is not None
    texts = [one.text for one in ElementTree.fromstring(chart[0]).iter() if one.tag.endswith("text") and one.text]
    assert texts[:7] == ["a", "80", "20", "b", "50", "50", "rare"]
    assert texts[7:] == ["·", "·", "·", "a", "b", "rare", "actual", "predicted"]
    assert "Largest: a, a: 80.0%; b, a: 50.0%; b, b: 50.0%; a, b: 20.0%" in chart[0]
    assert 'aria-label="Recall, epsilon 1. a: 80.0%, no privacy 80.0%; b: 50.0%, no privacy 50.0%"' in made
    assert "Detection and false alarms" in made


def test_many_classes_are_summarised() -> None:
    made = page(training(run(1, 0.5, classes=50), run(NONE, 0.8, classes=50)))
    assert made.count('aria-label="Confusion matrix') == 2
    for chart in re.findall('<svg[^>]*aria-label="Confusion matrix.*?</svg>', made, flags=re.DOTALL):
        assert chart.count("<rect") == 12 * 12
        assert "all others" in chart
    assert "the others are grouped" in made
    assert "are grouped" not in page(training(run(1, 0.5), run(NONE, 0.8)))


def test_curves_of_classes_that_were_not_tested_are_left_out() -> None:
    straight = ((0.0, 0.0), (1.0, 1.0))
    bent = ((0.0, 0.0), (0.5, 1.0), (1.0, 1.0))
    both = replace(scores(0.9, 3), curves=(straight, bent, bent), auc=0.75)
    made = page(training(replace(run(1, 0.9), scores=both)))
    assert "epsilon 1: 0.750: 0.0% at 0%" not in made
    chart = re.search('aria-label="ROC curves. Mean over classes, each against all others. (.*?)"', made)
    assert chart is not None
    assert "100% at 60.0%" in chart[1]  # with the straight one, it would be 87%
    nothing = replace(both, curves=(straight,), auc=None)
    assert "ROC" not in page(training(replace(run(1, 0.9), scores=nothing)))


def test_what_is_written_by_others_is_escaped() -> None:
    bad = "<script>alert(1)</script>"
    two = replace(run(1, 0.8, classes=2), name=bad)
    two = replace(two, scores=replace(two.scores, classes=(bad, "<b>\"'&")), facts={**two.facts, "accountant": bad})
    odd = replace(two, facts={**two.facts, "sampling": {"kind": bad, "steps": 3}, "relation": bad, "delta": bad})
    shown = replace(pictures((two,)), maps={bad: {bad: pictures((two,)).noisy[0]}})
    published = {"title": bad, "notes": [bad], "epochs": [{"epoch": 1, bad: bad}]}
    given = training(
        two, odd, data=bad, model=bad, target=bad, settings={bad: bad}, pictures=shown, published=published
    )
    made = render_training(given, title=bad)
    assert made.count("<script") == 1  # our own
    assert "<b>" not in made
    assert made.count("&lt;script&gt;") > 10
    for chart in re.findall("<svg.*?</svg>", made, flags=re.DOTALL):
        ElementTree.fromstring(chart)


@pytest.fixture(scope="module")
def additive() -> PrivateAdditiveClassifier:
    """A model that has learnt that the old and the smokers are ill."""
    rows = 600
    frame = pl.DataFrame({"age": [at % 60 + 20 for at in range(rows)], "smokes": ["no", "yes", "<b>"] * (rows // 3)})
    ill = ((pl.col("age") > 50) | (pl.col("smokes") == "yes")).cast(pl.String)
    schema = sf.Schema(
        [
            sf.Column(name="age", kind="number", bounds=(20, 80)),
            sf.Column(name="smokes", kind="category", domain=("no", "yes", "<b>")),
            sf.Column(name="ill", kind="category", domain=("false", "true")),
        ]
    )
    return PrivateAdditiveClassifier(epsilon=math.inf).fit(sf.Table(frame.with_columns(ill=ill), schema), "ill")


def test_the_curves_of_an_additive_model_are_those_of_its_weights(additive: PrivateAdditiveClassifier) -> None:
    edges, added = additive.curve_of("age")
    values, weights = additive.curve_of("smokes")
    assert (edges[0], edges[-1], len(edges)) == (20.0, 80.0, len(added) + 1)
    assert added == [one for _, one in additive.shape_of("age")[:-1]]
    assert values == ["no", "yes", "<b>"]
    assert weights[1] > max(weights[0], weights[2])
    given = replace(training(run(NONE, 0.9), target="ill"), models={"epsilon-none": additive})
    made = page(given)
    assert "to the log-odds that ill is true" in made
    assert f"<title>yes: {weights[1]:+.2f}</title>" in made
    assert 'aria-label="What age adds. no privacy: ' in made
    assert "<b>" not in made
    for chart in re.findall("<svg.*?</svg>", made, flags=re.DOTALL):
        ElementTree.fromstring(chart)


def test_several_classes_have_a_line_each_and_the_rest_are_named() -> None:
    rows, count = 800, 8
    frame = pl.DataFrame({"age": [at % 80 for at in range(rows)], "sex": ["f", "m"] * (rows // 2)})
    kind = (pl.col("age") // 10 * (pl.col("sex") == "f")).cast(pl.String)
    schema = sf.Schema(
        [
            sf.Column(name="age", kind="number", bounds=(0, 80)),
            sf.Column(name="sex", kind="category", domain=("f", "m")),
            sf.Column(name="kind", kind="category", domain=tuple(map(str, range(count)))),
        ]
    )
    model = PrivateAdditiveClassifier(epsilon=math.inf).fit(sf.Table(frame.with_columns(kind=kind), schema), "kind")
    both = {"epsilon-1": model, "epsilon-none": model}
    made = page(replace(training(run(1, 0.8), run(NONE, 0.9), target="kind"), models=both))
    assert "to the score of each class of kind, compared with the mean of all classes (epsilon 1)" in made
    (left_out,) = re.findall(r"Classes not shown, since their curves vary least: (\d), (\d)\.", made)
    (legend,) = re.findall(r'aria-label="Legend\. (\d(?:, \d)*)"', made)
    assert sorted([*left_out, *legend.split(", ")]) == list("01234567")
    _, added = model.curve_of("sex")
    shown = legend.split(", ")[0]
    number = added[0][int(shown)] - sum(added[0]) / count
    assert f"<title>f, {shown}: {number:+.1f}</title>".replace("-", "−") in made
    assert f'aria-label="What age adds. {shown}: ' in made
    for chart in re.findall("<svg.*?</svg>", made, flags=re.DOTALL):
        ElementTree.fromstring(chart)
    table = sf.Table(frame.with_columns(kind=kind).drop("age"), sf.Schema(schema.columns[1:]))
    model = PrivateAdditiveClassifier(epsilon=math.inf).fit(table, "kind")
    made = page(replace(training(run(1, 0.8), target="kind"), models={"epsilon-1": model}))
    assert 'aria-label="What sex adds' in made
    assert "Legend." not in made, "the grids name the classes"


def test_columns_that_some_models_could_not_use_are_named_for_each() -> None:
    empty, known = (
        Features((Feature("note", domain=domain), Feature("age", bounds=(0, 9)))) for domain in ((), ("a",))
    )
    models = {"epsilon-1": SimpleNamespace(features_=empty), "epsilon-none": SimpleNamespace(features_=known)}
    both = replace(training(run(1, 0.8), run(NONE, 0.9)), models=models)
    said = "1 of 2 columns could not be used, because no value is frequent enough to stand out from the noise: note"
    assert unused_notes(both) == [f"epsilon 1: {said}"]
    assert unused_notes(replace(both, runs=both.runs[:1])) == [said]
    assert [one["unused"] for one in both.to_dict()["runs"]] == [["note"], []]


def test_two_models_are_drawn_beside_each_other_and_others_have_no_curves(additive: PrivateAdditiveClassifier) -> None:
    both = {"epsilon-1": additive, "epsilon-none": additive}
    weight = dict(zip(*additive.curve_of("smokes"), strict=True))["yes"]
    made = page(replace(training(run(1, 0.8), run(NONE, 0.9)), models=both))
    assert f"<title>yes: {weight:+.2f}, no privacy {weight:+.2f}</title>" in made
    assert "What each column adds" not in page(classical())
    assert "What each column adds" not in page(replace(training(run(1, 0.8)), models={"epsilon-1": object()}))


def test_runs_of_one_epsilon_are_told_apart_by_their_names() -> None:
    text = text_of(page(training(run(1, 0.8), replace(run(1, 0.7), name="again"))))
    assert "epsilon 1 (epsilon-1)" in text
    assert "epsilon 1 (again)" in text


@given(
    st.lists(
        st.tuples(
            st.one_of(st.floats(0.01, 1000), st.just(NONE)),
            st.one_of(st.none(), st.floats(0, 1)),
            st.lists(st.one_of(st.none(), st.floats()), max_size=15),
        ),
        max_size=9,
    )
)
def test_whatever_came_out_there_is_a_page(made_up: list[tuple[float, float | None, list[float | None]]]) -> None:
    runs = [
        Run(
            epsilon,
            f"run-{number}",
            {},
            Scores(20, 0.5, 0.5, accuracy=accuracy),
            1.0,
            tuple({"epoch": epoch, "loss": loss, "score": loss, "epsilon": loss} for epoch, loss in enumerate(losses)),
        )
        for number, (epsilon, accuracy, losses) in enumerate(made_up)
    ]
    for chart in re.findall("<svg.*?</svg>", page(training(*runs)), flags=re.DOTALL):
        ElementTree.fromstring(chart)
        assert "nan" not in re.sub('aria-label="[^"]*"', "", chart)


# --- the accounting -----------------------------------------------------------------------------------

NOTEBOOK = Repeated(PoissonSampled(64 / 60_000, Gaussian(1.2)), 9 * 938)


def test_other_accountings_of_the_notebook_are_the_known_ones() -> None:
    found = other_epsilons([NOTEBOOK], DELTA)
    assert {name: round(epsilon, 3) for name, epsilon in found.items()} == {
        BY_RENYI: 0.522,
        REPLACED: 0.607,
        AS_SHUFFLED: 13.207,
    }


def test_an_accounting_that_cannot_be_made_is_left_out() -> None:
    assert other_epsilons([], DELTA) == {}
    assert set(other_epsilons([PureEvent(1.0)], 0.0)) == {REPLACED}
    assert set(other_epsilons([Gaussian(2.0)], DELTA)) == {BY_RENYI, REPLACED}  # nothing was sampled
    assert set(other_epsilons([FixedSampled(5, 100, Gaussian(2.0, 2, "replace-one"))], DELTA)) == {BY_RENYI}
    assert BY_RENYI not in other_epsilons([Gaussian(2.0), ApproximateEvent(0.5, 1e-9)], DELTA)
    assert AS_SHUFFLED not in other_epsilons([PoissonSampled(0.1, Laplace(2.0))], DELTA)
    mixed: list[Event] = [PoissonSampled(rate, Gaussian(4.0)) for rate in (0.1, 0.2)]
    assert AS_SHUFFLED not in other_epsilons(mixed, DELTA)


def test_what_did_not_fit_into_a_batch_is_charged_and_does_not_hide_the_rest() -> None:
    step = PoissonSampled(0.025, Gaussian(4.0))
    cut = Repeated(Composed((step, ApproximateEvent(0.0, 1e-9))), 100)
    plain, with_cut = other_epsilons([Repeated(step, 100)], DELTA), other_epsilons([cut], DELTA)
    assert set(with_cut) == set(plain)
    assert with_cut[AS_SHUFFLED] == plain[AS_SHUFFLED]
    assert plain[BY_RENYI] < with_cut[BY_RENYI] < 1.01 * plain[BY_RENYI]


@given(st.integers(1, 400), st.integers(1, 400), st.integers(2, 100), st.floats(0.5, 5), st.floats(0.5, 5))
def test_shuffled_passes_hold_every_step_and_the_least_noise(
    one: int, other: int, batches: int, first: float, second: float
) -> None:
    rate = 1 / batches
    events = [
        Repeated(PoissonSampled(rate, Gaussian(noise)), times) for noise, times in ((first, one), (second, other))
    ]
    passes: list[float] = []
    for event in shuffled(events):
        assert isinstance(event, Repeated)
        assert event.event.batches == batches  # type: ignore[attr-defined]
        passes += [event.event.event.noise_multiplier] * event.times  # type: ignore[attr-defined]
    steps = [first] * one + [second] * other
    assert passes == [min(steps[start : start + batches]) for start in range(0, len(steps), batches)]


def test_the_guarantee_is_told_in_words() -> None:
    made = training(run(1, 0.8), run(5, 0.9), together={"epsilon": 5.4, "delta": DELTA})
    text = text_of(page(made))
    assert (
        "200 steps: each drew every record independently with probability 0.025 (Poisson sampling); every record's "
        "gradient was clipped to a norm of 1.5; Gaussian noise with a standard deviation of 4 clips was added to the "
        "sum. Accounted by the privacy loss distribution: epsilon 0.999 at delta 1e-05. Any result is at most 2.72 "
        "times as likely with a record as without it, except with probability 1e-05."
    ) in text
    assert "The neighbouring relation is “add or remove one record”" in text
    assert "Both private models published together cost epsilon 5.4 at delta 1e-05." in text
    assert "The scores and losses on this page, which are exact: the data set is public." in text
    assert "They are exact: if the rows are private" in text_of(page(replace(made, is_public=False)))
    assert (
        "What was declared public: columns, bounds, categories and classes, and the number of rows to train on" in text
    )
    assert "The model without privacy and its scores. They have no bound" not in text
    assert "The model without privacy and its scores. They have no bound" in text_of(
        page(training(run(1, 0.8), run(NONE, 0.9)))
    )
    assert "have no bound." in text_of(page(replace(made, together={"epsilon": "inf", "delta": DELTA})))
    replaced = text_of(page(training(run(1, 0.8, relation="replace-one"))))
    assert "“replace one record”" in replaced
    assert "as with another in its place" in replaced


def test_without_a_private_model_nothing_is_guaranteed() -> None:
    assert "What the guarantee says" not in page(training(run(NONE, 0.9)))


def test_the_other_accountings_are_on_the_page() -> None:
    real = spent(NOTEBOOK, DELTA).epsilon
    one = run(real, 0.9, events=[NOTEBOOK.to_dict()], spent=real)
    text = text_of(page(training(one)))
    assert f"As trained and accounted here 0.343 {BY_RENYI} 0.522 {REPLACED} 0.607 {AS_SHUFFLED} 13.2 " in text
    damaged = run(1, 0.9, events=[{"kind": "unheard of"}])
    assert "other accountings" not in page(training(damaged))


def test_printed_values_stand_beside_ours() -> None:
    history = tuple(
        {"epoch": epoch, "step": 938 * epoch, "loss": 1 / epoch, "epsilon": epoch / 10} for epoch in (1, 2, 3)
    )
    private = replace(run(0.343, 0.9, events=[NOTEBOOK.to_dict()]), history=history)
    ordinary = replace(run(NONE, 0.9), history=history[:2])
    printed = [{"epoch": 1, "loss, private": 1.164523, "epsilon printed": 0.68}, {"epoch": 2, "epsilon printed": 0.69}]
    made = page(training(private, ordinary, published={"title": "P", "notes": ["n"], "epochs": printed}))
    text = text_of(made)
    assert "Published Ours (epsilon 0.343) Epoch loss, private epsilon printed loss, ordinary loss, private" in text
    assert "epsilon, Poisson samples epsilon, if shuffled" in text
    assert "1 1.165 0.68 1 1 0.1 3.55 2 - 0.69 0.5 0.5 0.2 5.3" in text
    assert " 3 - - - 0.3333 0.3 " in text
    assert "Compared with published results" not in page(training(private))


# --- pieces -------------------------------------------------------------------------------------------


def test_the_images_of_the_page_are_those_of_the_training() -> None:
    given = sweep()
    assert given.pictures is not None
    first = re.search('data:image/png;base64,([^"]*)', page(given))
    assert first is not None
    assert np.array_equal(pixels(base64.b64decode(first[1])), tiled(given.pictures.noisy[0], 8))


@given(st.floats(1e-6, 1e6), st.floats(1, 1e6), st.booleans())
def test_ticks_enclose_what_they_are_for(low: float, times: float, log: bool) -> None:
    high = low * times
    ticks = Axis(log=log).ticks(low, high)
    assert ticks[0] <= low * (1 + 1e-9) + 1e-12
    assert ticks[-1] >= high * (1 - 1e-9) - 1e-12
    assert 1 <= len(ticks) <= 14
    assert ticks == sorted(set(ticks))


def test_names_at_the_ends_of_lines_do_not_lie_over_each_other() -> None:
    lines = [Line(f"line {number}", [(1, 0.5), (2, 0.5 + number / 1000)], number) for number in range(14)]
    svg = line_chart("T", [*lines, Line("apart", [(1, 0.1), (2, 0.1)])], Axis(), Axis())
    root = ElementTree.fromstring(svg)
    heights = sorted(float(one.get("y") or 0) for one in root.iter() if one.tag.endswith("tspan"))
    assert len(heights) == 15
    assert min(below - above for above, below in pairwise(heights)) >= 13
    assert heights[0] >= 10
    assert heights[-1] <= float((root.get("viewBox") or "").split()[-1])


def test_styles_of_ten_lines_are_all_different() -> None:
    drawn = []
    for style in range(11):
        svg = line_chart("T", [Line("a", [(1, 1), (2, 2)], style)], Axis(), Axis())
        found = re.search(r'class="(c\d" stroke-width="1\.6"[^>]*)/><path d="M[^a-z]*([^"]*)"', svg)
        assert found is not None
        drawn.append(found.groups())
    assert len(set(drawn)) == 11


def test_a_chart_of_lines_is_well_formed_and_escaped() -> None:
    svg = line_chart("<T>", [Line("<a>", [(1, 0.5), (2, None), (3, 0.25)])], Axis("<x>"), Axis(text="<{:g}>".format))
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "<T>. <a>: <0.5> at 1, <0.25> at 3"
    assert svg.count("M") > 2
    ElementTree.fromstring(line_chart("T", [], Axis(), Axis()))


# --- noisy scores of private rows -------------------------------------------------------------------


def with_noise(one: Run, margin: float) -> Run:
    """Make the scores of a run noisy, and leave out of its history what is exact."""
    history = tuple({name: told[name] for name in ("epoch", "step", "epsilon")} for told in one.history)
    return replace(one, scores=replace(one.scores, how="noisy", margin=margin), history=history)


def test_noisy_scores_are_said_to_be_and_have_a_margin() -> None:
    text = text_of(page(training(with_noise(run(1, 0.8), 0.013), with_noise(run(5, 0.9), 0.004), is_public=False)))
    assert "scores of private models are noisy" in text
    assert "± 1.3 points" in text
    assert "± 0.4 points" in text
    assert "about 2,000 to test on" in text
    assert "Accuracy on the test rows, for every epsilon, with at most ± 1.3 points of noise" in text
    assert "Epsilon spent, after each epoch" in text
    assert "Loss on the rows of each epoch" not in text  # what no run tells has no chart
    assert "after each epoch, accuracy" not in text
    assert "trained in" not in text
    assert "They are exact" not in text
    assert "keep this page to yourself" not in text
    both = text_of(page(training(with_noise(run(1, 0.8), 0.013), run(NONE, 0.9), is_public=False)))
    assert "keep this page to yourself" in both
    assert "do not publish this page" in both


def test_errors_of_numbers_have_a_margin_too() -> None:
    made = regression((1.0, 140.0), (3.0, 120.0))
    runs = tuple(replace(one, scores=replace(one.scores, how="noisy", margin=12.5)) for one in made.runs)
    text = text_of(page(replace(made, runs=runs, is_public=False)))
    assert "± 12.5" in text


def test_what_noise_can_have_made_is_not_called_a_difference() -> None:
    """A private model that seems better than the one without privacy, by less than the noise on its score."""
    unsure = training(with_noise(run(1, 0.8), 0.5), run(NONE, 0.78), is_public=False)
    assert "the noise on the scores hides what privacy cost" in headline(unsure)
    text = text_of(page(unsure))
    assert "unknown at epsilon 1" in text
    assert "gained" not in text
    wide = text_of(page(training(with_noise(run(1, 0.3), 0.9), is_public=False)))
    assert "noise on the scores hides whether the model is better than guessing: epsilon 1" in wide
    assert "no better than guessing" not in wide
    sure = training(with_noise(run(1, 0.8), 0.01), run(NONE, 0.95), is_public=False)
    assert "hides" not in headline(sure)


def test_an_error_below_its_noise_is_hidden_and_not_0() -> None:
    made = regression((1.0, 140.0), (NONE, 120.0))
    noisy = replace(made.runs[0].scores, how="noisy", margin=300.0, loss=math.nan)
    given = replace(made, runs=(replace(made.runs[0], scores=noisy), made.runs[1]), is_public=False)
    assert "hidden by noise" in headline(given)
    assert "nan" not in text_of(page(given))


def test_what_all_runs_share_is_taken_from_the_scores_with_the_least_noise() -> None:
    first, second = with_noise(run(1, 0.8), 0.2), with_noise(run(5, 0.9), 0.01)
    rough = replace(first, scores=replace(first.scores, baseline=0.77, rows=7))
    assert PrivacyCost(training(rough, second), outcomes_of(training(rough, second))).rows == second.scores.rows


def test_a_page_without_scores_says_so() -> None:
    made = [replace(run(epsilon, 0.8), scores=Scores.none(), history=()) for epsilon in (1, 5)]
    given = training(*made, is_public=False)
    assert headline(given) == "good: No scores are released."
    text = text_of(page(given))
    assert "No scores are released. Noise is in units" in text
    assert "without a score" not in text
    assert "no better than guessing" not in text
    assert "nan" not in text
    assert headline(training(replace(made[0], facts={**made[0].facts, "private": False}))).startswith("bad: Reprod")
