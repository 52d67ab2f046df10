"""The pages without a browser: settings, undo, and work that is cancelled, crashes, or is found again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sfumato.studio import jobs
from sfumato.studio.workspace import Project, Workspace, read_json
from tests.studio.client import Browser

ROLES = ("quasi", "quasi", "quasi", "sensitive")
KINDS = ("category", "number", "category", "category")
COLUMNS = {
    "settings": "1",
    **{f"role-{at}": role for at, role in enumerate(ROLES)},
    **{f"kind-{at}": kind for at, kind in enumerate(KINDS)},
}
EXPLORE = {"settings": "1", "run": "explore", "target": "disease", "model": "tree", "seeds": "10"}


def project_of(browser_folder: Path) -> Project:
    (project,) = Workspace(browser_folder)
    return project


def explore(browser: Browser, place: str) -> None:
    """Start work that takes long."""
    answer = browser.post(f"{place}/explore", data={**EXPLORE, "protection": "mondrian:k=5,20,100"})
    assert answer.status_code == 303


def test_settings_are_kept_undone_and_found_by_another_studio(browser: Browser, table: Path, tmp_path: Path) -> None:
    place = browser.open(table)
    assert browser.post(f"{place}/columns", data={**COLUMNS, "role-3": "target"}).status_code == 303
    for k in ("5", "10"):
        browser.post(f"{place}/guarantees", data={"settings": "1", "k": k})
    assert project_of(tmp_path / "work").state["require"] == {"k": 10}
    browser.post(f"{place}/do/undo", data={"back": "guarantees"})
    assert project_of(tmp_path / "work").state["require"] == {"k": 5}
    browser.post(f"{place}/do/undo")
    browser.post(f"{place}/do/redo")
    assert project_of(tmp_path / "work").state["require"] == {"k": 5}
    later = Browser(tmp_path / "work")
    later.enter()
    assert "patients.csv" in later.get("/").text
    assert 'value="5"' in later.get(f"{place}/guarantees").text
    for _ in range(5):
        later.post(f"{place}/do/undo")
    assert project_of(tmp_path / "work").state == {}


def test_a_wrong_setting_is_refused_with_a_sentence_and_changes_nothing(
    browser: Browser, table: Path, tmp_path: Path
) -> None:
    place = browser.open(table)
    wrong = (
        ("columns", {"role-0": "king"}),
        ("columns", {**COLUMNS, "role-0": "target", "role-1": "target"}),
        ("columns", {**COLUMNS, "public-1": "90..17"}),
        ("columns", {**COLUMNS, "public-1": "many"}),
        ("guarantees", {"k": "ten"}),
        ("guarantees", {"k": "1"}),
        ("guarantees", {"k": "nan"}),
        ("guarantees", {"k": "1e400"}),
        ("guarantees", {"t": "-1"}),
        ("methods", {}),
        ("methods", {"method": "guided"}),
        ("methods", {"method": "mondrian", "suppress": "2"}),
        ("explore", {"target": "nobody", "protection": "mondrian:k=5,20,100", "model": "tree"}),
        ("train", {"model": "magic", "epsilons": "1", "target": "disease"}),
        ("train", {"model": "forest", "epsilons": "0", "target": "disease"}),
        ("train", {"model": "forest", "epsilons": "", "target": "disease"}),
        ("synthesize", {"method": "tree", "epsilons": "1", "rows": "1.5"}),
        ("budget", {"what": "grant", "epsilon": ""}),
        ("attack", {"release": "0001-anonymize/none"}),
        ("hierarchies", {"column": "99", "how": "prefixes", "text": "5"}),
        ("hierarchies", {"column": "0", "how": "prefixes", "text": "<script>"}),
    )
    for step, values in wrong:
        answer = browser.post(f"{place}/{step}", data={"settings": "1", **values})
        assert answer.status_code == 400, (step, values)
        assert 'role="alert"' in answer.text
        assert "<script>" not in answer.text
    assert project_of(tmp_path / "work").state == {}
    assert browser.post(f"{place}/methods", data={"run": "methods"}).status_code == 400
    assert browser.get(f"{place}/nowhere").status_code == 404


def test_the_costs_come_from_the_counts(browser: Browser, table: Path) -> None:
    place = browser.open(table)
    page = browser.run(f"{place}/columns", **COLUMNS, run="risk")
    assert "every class has at least 6 rows" in page
    for query, cells in (
        ("k=6", ["0 of 400"]),
        ("k=7", ["120 of 400"]),  # 20 of the 60 classes have 6 rows, 40 have 7
        ("k=8", ["400 of 400"]),
        ("l=2", ["400 of 400"]),  # each class has one disease
        ("k=7&t=1", ["120 of 400", "0 of 400"]),
    ):
        fragment = browser.get(f"{place}/cost?{query}").text
        for cell in cells:
            assert f">{cell}<" in fragment
    assert "must be a whole number" in browser.get(f"{place}/cost?k=2.5").text
    tree = browser.get(f"{place}/tree?column=1&how=intervals&text=10,20").text
    assert "[20, 40): [20, 30), [30, 40)" in tree
    assert "13000" in browser.get(f"{place}/hierarchies").text  # 80 rows
    browser.post(f"{place}/hierarchies", data={"settings": "1", "column": "0", "how": "prefixes", "text": "5"})
    assert "your own" in browser.get(f"{place}/hierarchies").text
    assert "have changed" not in browser.get(f"{place}/risk").text  # hierarchies change no risk
    browser.post(f"{place}/columns", data={**COLUMNS, "role-0": "other"})
    assert "have changed" in browser.get(f"{place}/risk").text


def test_no_page_shows_a_row_or_a_rare_value_until_the_owner_asks(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rows = "".join(f"{20 + i % 3},{'Rare-Town' if i < 3 else 'London'},{10**6 + i}\n" for i in range(60))
    path.write_text("age,city,salary\n" + rows, encoding="utf-8")
    place = browser.open(path)
    roles = {"role-0": "quasi", "role-1": "quasi", "role-2": "sensitive"}
    kinds = {"kind-0": "number", "kind-1": "category", "kind-2": "number"}
    browser.run(f"{place}/columns", settings="1", **roles, **kinds, run="risk")
    pages = [f"{place}/{step}" for step in ("columns", "risk", "guarantees", "hierarchies", "methods")]
    for page in (*pages, f"{place}/jobs/0002-assess/report"):
        text = browser.get(page).text
        assert "Rare-Town" not in text
        assert "1000001" not in text
    assert "London" in browser.get(f"{place}/hierarchies").text
    browser.post(f"{place}/do/preview")
    while "being fetched" in (page := browser.get(f"{place}/columns").text):
        time.sleep(0.1)
    assert "Rare-Town" in page
    assert "Rare-Town" in browser.get(f"{place}/hierarchies").text
    browser.post(f"{place}/do/preview")
    assert "Rare-Town" not in browser.get(f"{place}/columns").text
    browser.post(f"{place}/do/undo")  # brings no row back
    assert "Rare-Town" not in browser.get(f"{place}/columns").text + browser.get(f"{place}/hierarchies").text
    project = project_of(tmp_path / "work")
    assert not list(project.folder.glob("jobs/*-preview/result.json"))


def test_work_is_cancelled_in_the_middle_and_leaves_nothing_behind(
    browser: Browser, table: Path, tmp_path: Path
) -> None:
    place = browser.open(table)
    browser.post(f"{place}/columns", data=COLUMNS)
    explore(browser, place)
    assert 'hx-trigger="every 1s"' in browser.get(f"{place}/explore").text
    assert "HX-Refresh" not in browser.get(f"{place}/jobs/0002-explore").headers
    assert 'name="back" value="explore"' in browser.get(f"{place}/jobs/0002-explore").text
    project = project_of(tmp_path / "work")
    (job,) = jobs.running(project)
    assert browser.post(f"{place}/jobs/{job.id}/cancel").status_code == 303
    assert "was cancelled" in browser.wait(f"{place}/explore")
    assert browser.get(f"{place}/jobs/{job.id}").headers["HX-Refresh"] == "true"
    assert not (job.folder / "tmp").exists()
    browser.post(f"{place}/jobs/{job.id}/cancel")  # again: nothing happens


def test_work_that_crashes_is_said_to_have_failed_and_the_studio_goes_on(
    browser: Browser, table: Path, tmp_path: Path
) -> None:
    place = browser.open(table)
    browser.post(f"{place}/columns", data=COLUMNS)
    explore(browser, place)
    (job,) = jobs.running(project_of(tmp_path / "work"))
    os.killpg(read_json(job.folder / "process.json")["id"], signal.SIGKILL)
    assert "stopped unexpectedly" in browser.wait(f"{place}/explore")
    assert browser.get("/").status_code == 200


def test_work_goes_on_without_the_studio_and_another_one_finds_it(
    browser: Browser, table: Path, tmp_path: Path
) -> None:
    place = browser.open(table)
    browser.post(f"{place}/columns", data={**COLUMNS, "run": "risk"})
    later = Browser(tmp_path / "work")
    later.enter()
    assert "every class has at least 6 rows" in later.wait(f"{place}/risk")


def test_two_tables_are_worked_on_at_once_and_too_much_work_is_refused(
    browser: Browser, table: Path, tmp_path: Path
) -> None:
    second = table.with_name("others.csv")
    second.write_bytes(table.read_bytes())
    places = [browser.open(one) for one in (table, second)]
    for place in places:
        browser.post(f"{place}/columns", data=COLUMNS)
        explore(browser, place)
        explore(browser, place)
    assert browser.get("/").text.count("2 at work") == 2
    refused = browser.post(f"{places[0]}/columns", data={"run": "risk"})
    assert refused.status_code == 400
    assert "pieces of work run already" in refused.text


def test_a_removed_project_is_gone(browser: Browser, table: Path, tmp_path: Path) -> None:
    place = browser.open(table)
    assert browser.post(f"{place}/do/remove").status_code == 303
    assert browser.get(f"{place}/columns").status_code == 404
    assert not list((tmp_path / "work" / "projects").iterdir())
    assert table.exists()


def test_an_error_of_the_table_is_a_sentence(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 rubbish")
    place = browser.post("/open", data={"path": str(tmp_path / "broken.parquet")}).headers["location"]
    page = browser.wait(place.removeprefix(browser.root))
    assert 'role="alert"' in page
    assert "Traceback" not in page
    assert "could not be read" in browser.get("/").text
