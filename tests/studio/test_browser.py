"""The studio in a real browser, with its real server: the whole path of a steward, and of an engineer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from tests.effort import THOROUGH, effort
from tests.studio.conftest import stop_all

CHROMIUM = os.environ.get("SFUMATO_CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
thorough = pytest.mark.skipif(not THOROUGH, reason="make thorough")
WIDTHS = (390, 1200, 320, 2000) if THOROUGH else (390, 1200)
SCRIPT = "<script>window.hacked = 1</script>"
HOSTILE = {
    "place": f"zip {SCRIPT}",
    "age": 'age" onmouseover="window.hacked=1',
    "sex": "{{ 7 * 7 }} ../../sex'; --",
    "ill": "ill <img src=x onerror=window.hacked=1>",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a studio that runs."""
    work = tmp_path_factory.mktemp("studio") / "work"
    command = [sys.executable, "-m", "sfumato", "studio", "--no-browser", "--json", "--folder", str(work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["address"]
        stop_all(work)
        server.terminate()


@pytest.fixture(scope="module")
def context(chromium: Any, studio: str) -> Iterator[Any]:
    """A browser that has entered the studio."""
    made = chromium.new_context(accept_downloads=True)
    page = made.new_page()
    page.goto(studio)
    page.wait_for_url("**/")
    page.wait_for_selector("h1")
    page.close()
    yield made
    made.close()


class Tab:
    """A page with its troubles: scripts that were refused or failed, and requests that left the machine."""

    def __init__(self, context: Any) -> None:
        self.page, self.troubles = context.new_page(), list[str]()
        self.page.set_default_timeout(120_000)
        self.page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "status of 400" not in message.text:
            self.troubles.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:")):
            self.troubles.append(request.url)

    def press(self, name: str) -> None:
        """Press a button or follow a link, and wait for what comes, and for work that it starts."""
        with self.page.expect_navigation():
            main = self.page.locator("main")
            button, link = (main.get_by_role(role, name=name, exact=True) for role in ("button", "link"))
            button.or_(link).first.click()
        self.ready()

    def follow(self, name: str) -> None:
        """Go to a step."""
        with self.page.expect_navigation():
            self.page.locator("nav").get_by_role("link", name=re.compile(rf"^{name}\b")).click()

    def ready(self) -> None:
        """Wait until nothing runs on the page: it then loads itself again."""
        self.page.locator("#work").wait_for(state="detached")
        self.page.wait_for_load_state()

    def look(self) -> None:
        """Check that the page can be used by everybody, at every width, in the dark, and that nothing ran."""
        from axe_playwright_python.sync_playwright import Axe

        for colours in ("light", "dark") if THOROUGH else ("dark",):
            self.page.emulate_media(color_scheme=colours)
            for width in WIDTHS:
                self.page.set_viewport_size({"width": width, "height": 900})
                too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
                assert not self.page.evaluate(too_wide), (self.page.url, width)
                if THOROUGH or width == WIDTHS[0]:
                    found = Axe().run(self.page)
                    assert found.violations_count == 0, found.generate_report()
        assert self.page.evaluate("window.hacked") is None
        assert not self.troubles


def home_of(address: str) -> str:
    return address.partition("?")[0]


def hostile_table(path: Path, rows: int = 300) -> Path:
    rng = np.random.default_rng(0)
    values = {
        HOSTILE["place"]: rng.choice([SCRIPT, "London", "</textarea><script>window.hacked=1</script>"], rows),
        HOSTILE["age"]: rng.integers(20, 60, rows),
        HOSTILE["sex"]: rng.choice(["f", "m"], rows),
        HOSTILE["ill"]: rng.choice(["flu", "<img src=x onerror=window.hacked=1>", "ulcer"], rows),
    }
    pl.DataFrame(values).write_csv(path)
    return path


def open_file(tab: Tab, path: Path) -> None:
    tab.page.fill("input[name=path]", str(path))
    tab.press("Open")


def test_a_steward_gets_from_a_hostile_file_to_a_verified_release(context: Any, studio: str, tmp_path: Path) -> None:
    tab = Tab(context)
    tab.page.goto(home_of(studio))
    tab.look()
    tab.page.set_input_files("input[type=file]", hostile_table(tmp_path / "<b>people.csv"))
    tab.press("Upload")
    for name, role in zip(HOSTILE.values(), ("quasi", "quasi", "quasi", "sensitive"), strict=True):
        tab.page.get_by_label(f"Role of {name}", exact=True).select_option(role)
    tab.look()
    tab.press("Save, and measure the risk")
    assert "unique" in tab.page.locator(".verdict").inner_text()
    tab.page.frame_locator("iframe").locator("h1").wait_for()
    tab.look()
    tab.press("Choose what must hold")
    tab.page.fill("#k", "5")
    tab.page.locator("#cost", has_text="k = 5").wait_for()  # shown at once
    tab.page.locator("input[type=range]").first.fill("8")
    tab.page.locator("#cost", has_text="k = 8").wait_for()
    tab.page.fill("#l", "2")
    tab.page.locator("#cost", has_text="any of them").wait_for()
    tab.look()
    tab.press("Save, and look at the hierarchies")
    tab.page.locator("select[name=how]").nth(1).select_option("intervals")
    tab.page.locator("textarea").nth(1).fill("10, 20")
    tab.page.locator("#tree-1", has_text="[20, 40)").wait_for()
    tab.look()
    tab.page.locator(".hierarchy").nth(1).get_by_role("button", name="Save").click()
    tab.page.locator(".hierarchy").nth(1).get_by_text("your own").wait_for()
    tree = tab.page.locator("#column-0 form.tree")
    tree.get_by_label("London").first.check()
    tree.get_by_label("Name of the group").fill(f"group {SCRIPT}")
    with tab.page.expect_navigation():
        tree.get_by_role("button", name="Group", exact=True).click()
    assert tree.locator("li", has_text=f"group {SCRIPT}").count() == 1
    tab.look()
    with tab.page.expect_navigation():
        tab.page.get_by_role("button", name="Undo").click()
    assert tree.locator("li", has_text=f"group {SCRIPT}").count() == 0
    tab.press("Walk the lattice")
    tab.press("Measure the lattice")
    tab.look()
    with tab.page.expect_navigation():
        tab.page.locator("svg.lattice a").first.click()
    with tab.page.expect_navigation():
        tab.page.locator(".ladder a").last.press("Enter")
    tab.press("Go to the best")
    tab.follow("Methods")
    tab.page.check("input[value=lattice]")
    tab.press("Make the releases")
    assert tab.page.locator("tbody tr").count() == 2
    tab.page.reload()
    tab.look()
    tab.page.locator("summary", has_text="lattice: before and after").click()
    tab.page.frame_locator('iframe[title^="lattice"]').locator("h1", has_text="lattice").wait_for()
    assert tab.page.frame_locator("iframe").first.locator("a[href]").count() == 0  # a frame may not follow them
    tab.press("Attack them")
    tab.press("Attack it")
    assert "attacks" in tab.page.locator(".verdict").inner_text()
    tab.look()
    tab.follow("Release")
    tab.press("Check every claim")
    assert "Every claim that can be checked holds." in tab.page.locator(".verdict").inner_text()
    tab.look()
    with tab.page.expect_download() as download:
        tab.page.locator("a.button", has_text="Download").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        archive.extractall(tmp_path / "taken")
    (taken,) = (tmp_path / "taken").iterdir()
    assert sf.verify(taken)
    assert sf.load(taken).assessment.k >= 8


def test_work_is_cancelled_reloaded_and_followed_in_two_tabs(context: Any, studio: str, table: Path) -> None:
    first, second = Tab(context), Tab(context)
    first.page.goto(home_of(studio))
    open_file(first, table)
    first.page.get_by_role("link", name="Frontier").click()
    first.page.select_option("select[name=target]", "disease")
    first.page.fill("input[name=seeds]", "10")
    first.page.get_by_role("button", name="Explore").click()
    first.page.wait_for_selector("#work")
    first.look()
    first.page.reload()
    second.page.goto(first.page.url)
    second.page.get_by_role("button", name="Cancel").click()
    for tab in (first, second):
        tab.page.get_by_text("The work was cancelled.").wait_for()  # the other tab is told
        assert not tab.troubles


@thorough
def test_without_javascript_everything_works_but_live_progress(
    chromium: Any, context: Any, studio: str, table: Path
) -> None:
    context = chromium.new_context(storage_state=context.storage_state(), java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(120_000)

    def press(name: str) -> None:
        with page.expect_navigation():
            page.locator("main").get_by_role("button", name=name, exact=True).first.click()
        while page.locator("#work").count():
            with page.expect_navigation():
                page.get_by_role("link", name="Reload").click()

    page.goto(home_of(studio))
    page.fill("input[name=path]", str(table))
    press("Open")
    page.get_by_label("Role of age", exact=True).select_option("quasi")
    page.get_by_label("Role of disease", exact=True).select_option("sensitive")
    press("Save, and measure the risk")
    assert "60 equivalence classes" in page.locator(".verdict").inner_text()
    page.get_by_role("link", name="Choose what must hold").click()
    page.fill("#k", "7")
    press("Save")
    assert "120 of 400" in page.locator("#cost").inner_text()
    press("Save, and look at the hierarchies")
    tree = page.locator("#column-0 form.tree")
    for code in ("13000", "13001"):
        tree.get_by_label(code).first.check()
    tree.get_by_label("Name of the group").fill("centre")
    with page.expect_navigation():
        tree.get_by_role("button", name="Group", exact=True).click()
    assert "centre" in tree.inner_text()
    page.get_by_role("link", name="Walk the lattice").click()
    press("Measure the lattice")
    page.locator(".ladder a").last.click()
    page.wait_for_url("**.1#walk")
    press("Make this release")
    page.locator("nav").get_by_role("link", name="Attack").click()
    press("Attack it")
    assert "attacks" in page.locator(".verdict").inner_text()
    page.locator("nav").get_by_role("link", name="Release").click()
    press("Check every claim")
    assert "Every claim that can be checked holds." in page.locator(".verdict").inner_text()
    with page.expect_download() as download:
        page.locator("a.button", has_text="Download").click()
    assert zipfile.is_zipfile(download.value.path())
    context.close()


def test_every_control_is_reached_with_the_tab_key(context: Any, studio: str, table: Path) -> None:
    tab = Tab(context)
    tab.page.goto(home_of(studio))
    open_file(tab, table)
    controls = "a[href], button:not(:disabled), input:not([type=hidden]), select, textarea, summary"
    shown = "all => all.filter(one => one.checkVisibility() && one.tabIndex >= 0).length"
    wanted = tab.page.locator(controls).evaluate_all(shown)
    tab.page.evaluate("document.body.dataset.reached = 0")
    reached = set()
    for _ in range(wanted + 20):
        tab.page.keyboard.press("Tab")
        here = """controls => { const one = document.activeElement;
            one.dataset.number ??= String(document.body.dataset.reached++);
            return one.matches(controls) ? [one.dataset.number, getComputedStyle(one).outlineStyle] : null }"""
        if found := tab.page.evaluate(here, controls):
            reached.add(found[0])
            assert found[1] != "none"  # it is seen where one is
    assert len(reached) == wanted
    assert not tab.troubles


def test_another_browser_is_refused(chromium: Any, context: Any, studio: str) -> None:
    assert context.cookies()
    stranger = chromium.new_context()
    page = stranger.new_page()
    for address in (studio, home_of(studio)):
        answer = page.goto(address)
        assert answer.status == 403
        assert "works once" in page.locator("body").inner_text()
    stranger.close()


@thorough
def test_a_table_of_five_hundred_columns_is_usable(context: Any, studio: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    pl.DataFrame({f"column {at}": [at, at + 1, at] for at in range(500)}).write_csv(path)
    tab = Tab(context)
    tab.page.goto(home_of(studio))
    open_file(tab, path)
    assert tab.page.locator("tbody tr").count() == 500
    for at in (0, 499):
        tab.page.get_by_label(f"Role of column {at}", exact=True).select_option("quasi")
    tab.press("Save, and measure the risk")
    assert "over 2 quasi-identifiers" in tab.page.locator(".verdict").inner_text()
    assert not tab.troubles


@thorough
def test_an_engineer_grants_trains_and_makes_up_rows(context: Any, studio: str, tmp_path: Path) -> None:
    path = tmp_path / "adult.csv"
    sf.datasets.adult("test").frame.head(effort(600, 16_281)).select("age", "sex", "income").write_csv(path)
    tab = Tab(context)
    tab.page.goto(home_of(studio))
    open_file(tab, path)
    for name, public in (("age", "17..90"), ("sex", "Female, Male"), ("income", "<=50K, >50K")):
        tab.page.get_by_label(f"What anyone may know of {name}", exact=True).fill(public)
    tab.press("Save")
    tab.follow("Budget")
    tab.page.fill("input[name=epsilon]", "20")
    tab.press("Grant")
    assert "of 20" in tab.page.locator(".verdict").inner_text()
    tab.follow("Train")
    tab.page.select_option("select[name=target]", "income")
    tab.page.fill("input[name=epsilons]", "1, 3")
    tab.page.check("input[value=naive-bayes]")
    tab.press("Train")
    assert tab.page.locator("main svg").count() == 1
    assert tab.page.get_by_text("The ledger of the table was charged.").count() == 1
    tab.look()
    tab.follow("Synthesize")
    tab.page.check("input[value=independent]")
    tab.press("Make up rows")
    assert tab.page.locator("tbody tr").count() == 1
    tab.look()
    tab.follow("Budget")
    tab.press("Look again")
    history = tab.page.locator("tbody").inner_text()
    assert "granted epsilon 20" in history
    assert "synthesis of a table" in history
    tab.look()


@thorough
def test_a_million_rows_and_the_whole_census_are_released(context: Any, studio: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 10**6
    path = tmp_path / "million.parquet"
    pl.DataFrame(
        {
            "age": rng.integers(18, 90, rows),
            "zip": rng.integers(10, 99, rows).astype(str),
            "sex": rng.choice(["f", "m"], rows),
            "disease": rng.choice(["flu", "ulcer", "cancer"], rows),
        }
    ).write_parquet(path)
    tab = Tab(context)
    for name in (str(path), "adult"):
        tab.page.goto(home_of(studio))
        tab.page.fill("input[name=path]", name)
        tab.press("Open")
        tab.press("Save, and measure the risk")
        tab.press("Choose what must hold")
        tab.page.fill("#k", "10")
        tab.press("Save, and choose methods")
        tab.press("Make the releases")
        tab.press("Take one")
        tab.press("Check every claim")
        assert "Every claim that can be checked holds." in tab.page.locator(".verdict").inner_text()
    assert not tab.troubles
