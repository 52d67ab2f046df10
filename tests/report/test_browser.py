"""The page in a real browser, at the width of a phone and of a desk."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.measures.comparison import compare
from sfumato.measures.generalised import pair
from sfumato.measures.utility import ModelAccuracy
from sfumato.report.release import render_release
from sfumato.report.training import render_training
from tests.report.test_training import classical, run, sweep, training

CHROMIUM = os.environ.get("SFUMATO_CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page_of_adult(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every section that there is."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    adult = sf.assess(
        sf.datasets.adult(),
        sensitive=["income", "race"],
        require="k=5,l=2,t=0.99",
        population_size=10_000_000,
        preset="hipaa",
        detail=True,
    )
    sf.write_report(adult, path, title="How anonymous is the Adult census table?")
    return path


@pytest.fixture(scope="module")
def page_of_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a release, with every section that there is and long names."""
    path = tmp_path_factory.mktemp("release") / "page.html"
    adult = sf.datasets.adult()
    frame = adult.frame.with_columns(education=pl.col("education").replace({"HS-grad": "Highschoolgraduate" * 4}))
    table = sf.Table.of(frame, qi=adult.schema.quasi, sensitive=["income"])
    release = sf.anonymize(table, "k=10,l=2")
    assert release.assessment.verdict is not None
    accuracy = [
        ModelAccuracy(name, 0.86, 0.001, 0.85, 0.002, 0.76, 48_842, 5, 0.3, 0) for name in ("forest", "logistic")
    ]
    both = pair(table, release.aligned)
    page = render_release(
        compare(both, sf.assess(table), release.assessment, release.loss, accuracy=accuracy),
        title="Adult, " + "k" * 80,
        method=release.method,
        guarantees=release.assessment.verdict.checks,
        details={"levels": dict.fromkeys(adult.schema.quasi, 1)},
        facts={"fingerprint": "0123456789abcdef" * 4},
        folder="a/" * 60,
    )
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page_of_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a training, with every section that there is."""
    path = tmp_path_factory.mktemp("training") / "page.html"
    path.write_text(render_training(sweep(), title="What privacy costs: " + "m" * 80), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page_of_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about models of a table, without epochs or pictures."""
    path = tmp_path_factory.mktemp("table") / "page.html"
    path.write_text(render_training(classical(), title="What privacy costs"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page_of_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about many models of many classes with long names."""
    runs = []
    for number, epsilon in enumerate((0.1, 0.342789, 0.5, 1, 3, 8, 20, math.inf)):
        one = run(epsilon, 0.3 + number / 20, classes=50)
        names = tuple(f"Married-spouse-absent {place}" for place in range(50))
        runs.append(replace(one, scores=replace(one.scores, classes=names), facts={**one.facts, "private": number > 3}))
    path = tmp_path_factory.mktemp("many") / "page.html"
    path.write_text(render_training(training(*runs, model="m" * 90), title="Many"), encoding="utf-8")
    return path


_CUT = """() => [...document.querySelectorAll('svg[role=img]')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const one = text.getBoundingClientRect();
        return one.left < box.left - 1 || one.right > box.right + 1 || one.bottom > box.bottom + 1;
    }).map(text => text.textContent);
})"""


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("which", ["page_of_training", "page_of_table", "page_of_many"])
def test_the_page_of_a_training_fits_its_window(
    browser: Any, request: pytest.FixtureRequest, which: str, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda asked: requests.append(asked.url))
    page.goto(request.getfixturevalue(which).as_uri())
    assert problems == []
    assert len([url for url in requests if not url.startswith("data:image/png;")]) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_CUT) == []
    shown = page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth > 0)")
    assert shown == [True] * (13 if which == "page_of_training" else 0)
    context.close()


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_of_a_release_fits_its_window(browser: Any, page_of_release: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_of_release.as_uri())
    assert problems == []
    assert len(requests) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h2").all_inner_texts() == [
        "What was promised",
        "How well people hide",
        "What it cost: detail lost per column",
        "What it cost: models",
        "Each column, before and after",
        "Pairs of columns, before and after",
        "How it was made",
        "What this does not protect against",
        "How to check it",
    ]
    # Every text of a chart lies within it: nothing is cut.
    assert page.evaluate(_CUT) == []
    context.close()


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_fits_its_window_and_asks_for_nothing(browser: Any, page_of_adult: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_of_adult.as_uri())
    assert problems == []
    assert len(requests) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h2").all_inner_texts() == [
        "How many others share a person's combination",
        "The measures",
        "Which columns single people out",
        "Each sensitive column",
        "HIPAA Safe Harbor",
    ]
    assert page.locator(".verdict p").inner_text().startswith("Not met: k=5; l=2; t=0.99; Safe Harbor")
    assert page.locator("svg").first.bounding_box()["width"] > width / 2
    context.close()


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize(
    "which", ["page_of_adult", "page_of_release", "page_of_training", "page_of_table", "page_of_many"]
)
def test_the_page_has_no_accessibility_violation(
    browser: Any, request: pytest.FixtureRequest, which: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": width, "height": 800}, bypass_csp=True)
    page = context.new_page()
    page.goto(request.getfixturevalue(which).as_uri())
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    assert len(results.response["passes"]) > 10
    context.close()


def test_the_page_is_readable_without_javascript(browser: Any, page_of_adult: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of_adult.as_uri())
    assert "12,889" in page.locator("main").inner_text()
    assert page.pdf().startswith(b"%PDF")
    context.close()
