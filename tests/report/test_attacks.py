"""The page of attacks: the verdict first, nothing that runs or loads, every name escaped, no record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.attacks import Attack, AttackReport, AuditResult, Baseline, Records, Scores, result_of
from sfumato.attacks.base import AttackResult
from sfumato.budget import DifferentialPrivacy
from sfumato.report.attacks.page import render_attacks
from sfumato.report.charts.lines import Axis, Line, line_chart

MEMBERSHIP = "Was this record in the training data?"


def result(name: str, scores: Scores, *, guesses: bool = False, tried: int = 4, runs: int = 1) -> AttackResult:
    class Made(Attack):
        question, targets = MEMBERSHIP, ("model",)

        def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
            return scores

    made = Made()
    made.name, made.guesses = name, guesses  # type: ignore[misc]
    return result_of(made, [scores] * runs, seed=0, tried=tried)


def scored(shift: float, size: int = 2500, **more: Any) -> Scores:
    rng = np.random.default_rng(0)
    return Scores(rng.normal(shift, 1, size), rng.normal(0, 1, size), **more)


def report(name: str = "adult", **more: Any) -> AttackReport:
    """Return a report with every section that a page has."""
    right = np.arange(500) % 5 < 3
    results = (
        result("rmia", scored(1.0, references=16, variants=11), runs=2),
        result("loss", scored(0.0)),
        result("gap", Scores(np.ones(100), np.arange(100) % 2 * 1.0)),
        result(
            "attribute:" + "a very long name of a column " * 2,
            Scores(
                right * 1.0,
                right * 1.0,
                Baseline(0.667, "the most frequent value"),
                precision=0.5,
                recall=0.5,
                details={"column": "finance", "values": 2},
            ),
            guesses=True,
        ),
    )
    target = {
        "kind": "model",
        "name": name,
        "model": "forest",
        "target": "income",
        "protect": "guided:k=100",
        "train_accuracy": 0.99,
        "test_accuracy": 0.85,
        "members": 2500,
        "nonmembers": 2500,
        "how": "The model was trained on a random half of the rows, and attacked; the other half is the control.",
        "notes": ["all features are quasi-identifiers"],
    }
    skipped = {"inversion": "it needs a network of images", "linkage": "it needs the original records (--source)"}
    return AttackReport(target, results, skipped, 0, **more)


AUDIT = AuditResult(
    method="its own recipe with mislabelled canaries",
    claimed=DifferentialPrivacy(1.0, 1e-5),
    epsilon=2.5,
    could_have_shown=5.3,
    confidence=0.95,
    canaries=1000,
    runs=1,
    guesses=300,
    right=290,
    refuted=True,
    could_refute=True,
    gaussian=3.1,
)


def texts(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_the_verdict_comes_first_in_words() -> None:
    page = texts(render_attacks(report()))
    assert page.index("2 of 4 attacks found leakage: rmia, gap.") < page.index("What an attacker gains")
    assert "guessing is right in 50 %." in page
    assert "At 1% false alarms, rmia finds" in page
    assert "The model is right about 99% of its training records, and about 85% of others." in page
    assert "the other half is the control" in page
    assert "All features are quasi-identifiers." in page


def test_every_result_has_its_interval_and_its_baseline_and_skipped_attacks_a_reason() -> None:
    found = report()
    page = texts(render_attacks(found))
    for one in found.results:
        low, high = one.interval.to_list()
        assert f"{one.auc:.3f} {low:.3f} to {high:.3f}" in page
    assert "66.7% without" in page
    assert "without the release: the most frequent value" in page
    assert "it needs a network of images" in page
    assert "settings tried rmia 11" in page
    assert "reference models 16" in page


def test_a_curve_is_drawn_for_scores_and_not_for_decisions() -> None:
    page = render_attacks(report())
    charts = re.findall(r'aria-label="ROC of ([\w-]+)', page)
    assert charts == ["rmia", "loss"]
    assert page.count(' band"') == 2


def test_the_band_contains_the_curve_and_ends_at_the_axis() -> None:
    line = Line("a", [(0.1, 0.2), (1.0, 1.0)], 1, band=[(0.1, 0.0, 0.5), (1.0, 1.0, 1.0)])
    chart = line_chart("b", [line], Axis(log=True), Axis(log=True), labels="none")
    path = re.search(r'<path d="M([^"]+)z" class="c1 band"/>', chart)
    assert path is not None
    heights = [float(point.split()[1]) for point in path.group(1).split("L")]
    assert all(12 <= height <= 178 for height in heights)
    assert heights[-1] == 178  # a rate of 0 has no place on a logarithmic axis


def test_an_audit_says_what_it_showed_and_what_it_could_have_shown() -> None:
    page = render_attacks(report(audit=AUDIT))
    assert (
        texts(page).count("The audit fails: epsilon is at least 2.5 (95% sure), and 1 is claimed; 2 of 4 attacks") == 1
    )
    assert "at most 5.3, had every guess been right" in page
    assert 'class="verdict bad"' in page
    alone = AttackReport({"kind": "model", "name": "model"}, (), {}, 0, AUDIT)
    assert "What an attacker gains" not in render_attacks(alone)
    assert alone.to_dict()["audit"]["passed"] is False


def test_nothing_found_is_not_called_good() -> None:
    quiet = AttackReport({"kind": "model"}, (result("loss", scored(0.0)),))
    page = render_attacks(quiet)
    assert "No leakage found by 1 attack, which does not prove that there is none." in page
    assert 'class="verdict"' in page


def test_names_are_escaped_and_the_page_loads_nothing(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    sf.write_report(report(evil), tmp_path / "page.html", title=evil)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("<script>") == 1
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert len(page) < 200_000


def test_a_report_without_results_has_a_page() -> None:
    page = texts(render_attacks(AttackReport({"kind": "table"}, (), {"linkage": "it needs the original records"})))
    assert "No attack could be run." in page
    assert "it needs the original records" in page


def test_json_has_no_infinity_and_no_number_of_numpy() -> None:
    odd = {"lift": np.float64(np.inf), "none": float("nan"), "low": -np.inf, "counts": np.arange(2)}
    found = AttackReport({"kind": "table"}, (result("loss", scored(0.0, details=odd)),)).to_dict()
    assert found["attacks"][0]["details"] == {"lift": "inf", "none": None, "low": "-inf", "counts": [0, 1]}
    assert type(found["attacks"][0]["details"]["counts"][0]) is int


@pytest.mark.parametrize("size", [3, 30])
def test_few_records_make_a_page_too(size: int) -> None:
    assert "<svg" in render_attacks(AttackReport({"kind": "model"}, (result("loss", scored(0.5, size)),)))
