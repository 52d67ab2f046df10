"""The page of the frontier."""

from __future__ import annotations

import re

import pytest

from sfumato.frontier import Frontier
from sfumato.frontier.sweep.choose import Limits
from sfumato.report.frontier.page import render_frontier
from tests.frontier.example import example


@pytest.fixture(scope="module")
def page() -> str:
    return render_frontier(example(more=("guided:k=50+dp:epsilon=1",)), title="Which protection?")


def test_the_page_is_small_and_begins_with_the_recommendation(page: str) -> None:
    assert page.index("Take ") < page.index("sfumato ") < page.index("<figure")
    assert len(page) < 300_000
    assert "not covered by any epsilon" in page


def test_every_mark_belongs_to_a_row_and_every_row_to_its_runs(page: str) -> None:
    rows = re.findall(r'<tr data-point="(\d+)">', page)
    assert rows == [str(number) for number in range(32)]
    marks = {one for tags in re.findall(r'<(?:path|g)[^>]* data-point="([\d ]+)"', page) for one in tags.split()}
    assert marks == set(rows)
    for number in rows:
        assert f'<details id="run-{number}">' in page
    assert page.count("to measure it again") == page.count("kept as") == 32
    assert page.count("points/") == 3 * 32


def test_there_is_a_chart_for_each_question(page: str) -> None:
    for name in ("membership advantage", "re-identification risk", "Accuracy against k", "Accuracy against epsilon"):
        assert f"Accuracy against {name.removeprefix('Accuracy against ')}" in page
    assert "ROC of the strongest membership attack" in page
    assert "Time per protection" in page
    assert page.count('class="c0"') > 0


def test_a_combined_protection_is_not_called_differentially_private(page: str) -> None:
    assert "not differential privacy: epsilon 1 of the training does not cover how the rows were recoded" in page


def test_hostile_names_are_escaped() -> None:
    page = render_frontier(example(name="<img src=x onerror=alert(1)>"), title="<script>")
    assert "<img src=x" not in page
    assert "<script>\n" not in page.split("<body>")[0]


def test_a_page_without_a_recommendation_says_what_is_closest() -> None:
    whole = example()
    found = Frontier(whole.points, whole.data, limits=Limits(max_risk=0.0001, min_accuracy=0.99))
    page = render_frontier(found)
    assert "No protection keeps the limits." in page  # the headline
    assert "Closest is " in page
    assert "recommended</small>" not in page
