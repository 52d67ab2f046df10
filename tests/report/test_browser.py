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
from sfumato.frontier import evaluate_images
from sfumato.measures import ModelAccuracy
from sfumato.measures.loss.generalised import pair
from sfumato.report.attacks.page import render_attacks
from sfumato.report.bins import binned_profiles
from sfumato.report.model.page import render_training
from sfumato.report.table.comparison import compare
from sfumato.report.table.release import render_release
from tests.frontier.example import example
from tests.frontier.test_evaluate_images import bars
from tests.report.test_attacks import AUDIT, report
from tests.report.test_images import CALM, private_images
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
    table = sf.Table.of(frame, qi=adult.schema.quasi, sensitive=["income"], keep=["education-num"])
    release = sf.anonymize(table, "k=10,l=2")
    assert release.assessment.verdict is not None
    accuracy = [
        ModelAccuracy(name, 0.86, 0.001, 0.85, 0.002, 0.76, 48_842, 5, 0.3, 0) for name in ("forest", "logistic")
    ]
    both = pair(table, release.aligned)
    page = render_release(
        compare(
            both,
            sf.assess(table),
            release.assessment,
            release.loss,
            accuracy=accuracy,
            queries=release.query_error,
            others=binned_profiles(release.table, ["income", "workclass", "fnlwgt"]),
        ),
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
    for number, epsilon in enumerate((0.1, 0.342789, 1, 20, math.inf)):
        one = run(epsilon, 0.3 + number / 20, classes=50)
        names = tuple(f"Married-spouse-absent {place}" for place in range(50))
        runs.append(replace(one, scores=replace(one.scores, classes=names), facts={**one.facts, "private": number > 1}))
    path = tmp_path_factory.mktemp("many") / "page.html"
    path.write_text(render_training(training(*runs, model="m" * 90), title="Many"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page_of_attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about attacks, with every section that there is."""
    path = tmp_path_factory.mktemp("attacks") / "page.html"
    path.write_text(render_attacks(report("n" * 80, audit=AUDIT), title="Attacks on " + "n" * 80), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page_of_generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a generator of many columns with long names."""
    path = tmp_path_factory.mktemp("generator") / "page.html"
    adult = sf.datasets.adult("test")
    release = sf.synthesize(adult, method="independent", rows=2000, ledger=False)
    sf.write_report(release, path, title="g" * 80)
    return path


@pytest.fixture(scope="module")
def page_of_evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about an evaluation, with every section that there is."""
    path = tmp_path_factory.mktemp("evaluation") / "page.html"
    frame = sf.datasets.adult("test").frame.with_columns(
        education=pl.col("education").replace({"HS-grad": "Highschoolgraduate" * 4})
    )
    tables = [frame.slice(at, 1500) for at in (0, 1500, 3000)]
    found = sf.evaluate(
        tables[0],
        tables[1],
        test=tables[2],
        target="income",
        models=["tree", "logistic"],
        attacks=["distance-to-closest-record", "inference"],
        repeats=1,
    )
    sf.write_report(found, path, title="e" * 80)
    return path


@pytest.fixture(scope="module")
def page_of_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public page of synthetic images in two styles, with a warning."""
    path = tmp_path_factory.mktemp("images") / "page.html"
    sf.write_report(sf.synthesize(private_images(), insecure_seed=1, **CALM), path, title="i" * 80)
    return path


@pytest.fixture(scope="module")
def page_of_image_evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The owner's page of several sets of images with long names, with every section that there is."""
    path = tmp_path_factory.mktemp("owner") / "page.html"
    sets = {"copies": bars(200, 0), "w" * 60: bars(100, 1)}
    sf.write_report(evaluate_images(private_images(), sets, seen=1000), path, title="o" * 80)
    return path


@pytest.fixture(scope="module")
def page_of_frontier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a frontier, with every section that there is."""
    path = tmp_path_factory.mktemp("frontier") / "page.html"
    sf.write_report(example(more=("guided:k=50+dp:epsilon=1",)), path, title="f" * 80)
    return path


_CUT = """() => [...document.querySelectorAll('svg[role=img]')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const one = text.getBoundingClientRect();
        return one.left < box.left - 1 || one.right > box.right + 1 || one.bottom > box.bottom + 1;
    }).map(text => text.textContent);
})"""


# Letters of a chart, as large as they are on the screen; those of the grids are the smallest.
_SMALL = """() => [...document.querySelectorAll('svg[role=img]')].map(svg => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return scale * parseFloat(getComputedStyle(svg).fontSize);
}).filter(size => size < 7)"""


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize(
    "which",
    [
        "page_of_training",
        "page_of_table",
        "page_of_many",
        "page_of_attacks",
        "page_of_generator",
        "page_of_evaluation",
        "page_of_images",
        "page_of_image_evaluation",
        "page_of_frontier",
    ],
)
def test_the_page_of_a_training_or_of_attacks_fits_its_window(
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
    assert page.evaluate(_SMALL) == []
    shown = page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth > 0)")
    pictures = request.getfixturevalue(which).read_text().count("<img ")
    assert shown == [True] * pictures
    assert pictures >= {"page_of_training": 13, "page_of_image_evaluation": 13}.get(which, "images" in which)
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
        "What is guaranteed",
        "How well people are hidden",
        "What it cost: detail",
        "What it cost: models",
        "Each quasi-identifier, before and after",
        "Columns released as they are",
        "Pairs of columns, before and after",
        "How it was made",
        "What this does not protect against",
        "How to check it",
    ]
    # Every text of a chart lies within it: nothing is cut.
    assert page.evaluate(_CUT) == []
    assert page.evaluate(_SMALL) == []
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
        "How many people share a combination",
        "Which columns single people out",
        "The measures",
        "Each sensitive column",
        "Every column",
        "HIPAA Safe Harbor",
    ]
    assert page.evaluate(_CUT) == []
    assert page.evaluate(_SMALL) == []
    assert page.locator(".verdict p").inner_text().startswith("Not met: k=5; l=2; t=0.99; Safe Harbor")
    assert page.locator("svg[role=img]").first.bounding_box()["width"] > 250
    context.close()


# What is written in a chart, and on what: the colour below a letter in a cell is that of the cell over the paper.
_CONTRAST = """() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number);
    const light = colour => colour.slice(0, 3).map(part => part / 255).map(
        part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
    ).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const paper = rgb(getComputedStyle(document.querySelector('section')).backgroundColor);
    return Math.min(...[...document.querySelectorAll('svg[role=img] text')].filter(
        text => !text.matches('.halo')
    ).map(text => {
        const cell = text.matches('.in-light, .in-dark') ? text.parentNode.querySelector('rect') : null;
        const share = cell ? Number(cell.getAttribute('fill-opacity')) : 0;
        const below = cell ? rgb(getComputedStyle(cell).fill).map((part, at) => share * part + (1 - share) * paper[at])
            : paper;
        const pair = [light(rgb(getComputedStyle(text).fill)), light(below)].sort((one, other) => other - one);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    }));
}"""


@pytest.mark.parametrize(("width", "colours"), [(360, "light"), (1200, "dark")])
@pytest.mark.parametrize(
    "which",
    [
        "page_of_adult",
        "page_of_release",
        "page_of_training",
        "page_of_table",
        "page_of_many",
        "page_of_attacks",
        "page_of_generator",
        "page_of_evaluation",
        "page_of_images",
        "page_of_image_evaluation",
        "page_of_frontier",
    ],
)
def test_the_page_has_no_accessibility_violation_and_letters_of_charts_stand_out(
    browser: Any, request: pytest.FixtureRequest, which: str, width: int, colours: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": width, "height": 800}, bypass_csp=True, color_scheme=colours)
    page = context.new_page()
    page.goto(request.getfixturevalue(which).as_uri())
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    assert len(results.response["passes"]) > 10
    assert page.evaluate(_CONTRAST) >= 4.5
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 27)"
    assert dark == (colours == "dark")
    context.close()


def test_the_page_is_readable_without_javascript(browser: Any, page_of_adult: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of_adult.as_uri())
    assert "12,889" in page.locator("main").inner_text()
    assert page.pdf().startswith(b"%PDF")
    context.close()


def test_a_pointer_at_a_bar_is_told_its_value_and_a_table_is_sorted_by_its_headings(
    browser: Any, page_of_adult: Path
) -> None:
    page = browser.new_page()
    page.goto(page_of_adult.as_uri())
    titles = page.evaluate("[...document.querySelectorAll('svg title')].map(title => title.textContent)")
    assert "1: 26.4%" in titles
    assert "age: 10,157 rows" in titles
    table = page.locator("table", has=page.get_by_role("columnheader", name="Distinct values"))
    column = table.locator("tbody td:nth-child(4)")
    before = [int(text.replace(",", "")) for text in column.all_inner_texts()]
    heading = table.get_by_role("columnheader", name="Distinct values")
    heading.get_by_role("button").click()
    assert [int(text.replace(",", "")) for text in column.all_inner_texts()] == sorted(before, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").click()
    assert [int(text.replace(",", "")) for text in column.all_inner_texts()] == sorted(before)
    page.close()


def test_a_point_of_the_frontier_is_highlighted_in_all_charts_and_in_the_table(
    browser: Any, page_of_frontier: Path
) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(page_of_frontier.as_uri())

    def lit() -> list[str]:
        return page.evaluate("[...document.querySelectorAll('[data-point].on')].map(one => one.tagName)")

    readout = page.locator("[data-readout]")
    hint = readout.inner_text()
    assert lit() == []
    mark = page.locator("svg[role=img]").nth(2).locator('path.full[data-point="10"]')
    mark.evaluate("mark => mark.scrollIntoView({block: 'center'})")
    mark.hover(force=True)
    assert readout.inner_text().startswith("mondrian:k=1000 · Accuracy 0.8")
    assert lit().count("TR") == 1
    assert lit().count("path") >= 5  # a mark and an interval in each frontier, and a mark against k
    assert lit().count("g") == 1  # the bar of its kind
    page.mouse.move(1, 1)
    assert (readout.inner_text(), lit()) == (hint, [])
    page.get_by_role("group", name="Charts").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("mondrian:k=2 ·")
    page.keyboard.press("Escape")
    assert readout.inner_text() == hint
    page.get_by_role("link", name="dp:epsilon=3").click()
    assert page.locator("details[open]").count() == 1
    assert "to measure it again" in page.locator("details[open]").inner_text()
    page.close()


def test_the_frontier_is_readable_without_javascript(browser: Any, page_of_frontier: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of_frontier.as_uri())
    assert page.locator(".verdict p").inner_text().startswith("Take ")
    assert page.locator("svg[role=img]").count() == 6
    assert page.locator("tbody tr[data-point]").count() == 32
    context.close()
