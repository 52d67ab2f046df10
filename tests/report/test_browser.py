"""The page in a real browser, at the width of a phone and of a desk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf

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


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_fits_its_window_and_asks_for_nothing(browser: Any, tmp_path: Path, width: int) -> None:
    adult = sf.assess(sf.datasets.adult(), require="k=5,l=2,t=0.8")
    sf.write_report(adult, tmp_path / "page.html", title="How anonymous is the Adult census table?")
    context = browser.new_context(viewport={"width": width, "height": 800}, java_script_enabled=True)
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert problems == []
    assert len(requests) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("tbody tr").count() == 9
    assert page.locator(".verdict p").inner_text().startswith("Not met: k=5; l=2")
    assert page.locator("svg").bounding_box()["width"] > width / 2
    context.close()
