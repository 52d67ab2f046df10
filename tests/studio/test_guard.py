"""Who is let in: the browser that brought the token, from the studio's own pages, and nobody else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.studio.client import ORIGIN, PORT, Browser

PLACES = ("/", "/static/studio.css", "/p/0123456789ab/columns", "/upload")


def test_the_token_is_exchanged_for_a_strict_cookie_and_works_once(tmp_path: Path) -> None:
    browser = Browser(tmp_path / "work")
    address = browser.app.address.removeprefix(ORIGIN + browser.root)
    answer = browser.get(address)
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", f"Path={browser.root}/"} <= set(cookie.split("; "))
    assert browser.get("/").status_code == 200
    browser.cookies.clear()
    assert browser.get(address).status_code == 403
    assert Browser(tmp_path / "work").get("/?token=None").status_code == 403


@pytest.mark.parametrize("page", PLACES)
def test_without_the_cookie_nothing_is_answered(tmp_path: Path, page: str) -> None:
    browser = Browser(tmp_path / "work")
    for method in ("GET", "POST"):
        answer = browser.ask(method, page)
        assert answer.status_code == 403
        assert "patients" not in answer.text


def test_without_the_secret_path_nothing_is_answered_even_with_the_cookie(browser: Browser) -> None:
    (cookie,) = browser.cookies.jar
    browser.root = ""
    answer = browser.get("/", headers={"cookie": f"{cookie.name}={cookie.value}"})
    assert answer.status_code == 403


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "127.0.0.1", ""])
def test_another_host_is_refused(browser: Browser, host: str) -> None:
    assert browser.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"origin": f"http://localhost:{PORT}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_change_from_elsewhere_is_refused(browser: Browser, table: Path, headers: dict[str, str]) -> None:
    assert browser.post("/open", data={"path": str(table)}, headers=headers).status_code == 403
    assert "Nothing yet" in browser.get("/").text


def test_other_methods_and_large_forms_are_refused(browser: Browser) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert browser.ask(method, "/").status_code == 405
    assert browser.post("/open", headers={"content-length": str(5 * 2**20)}).status_code == 413


def test_every_answer_has_the_strict_policy(browser: Browser) -> None:
    for place in ("/", "/static/htmx.min.js", "/p/none/columns"):
        headers = browser.get(place).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert not re.search(r"unsafe-(inline|eval)|https?:|\*", policy)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_no_page_names_another_server(browser: Browser, table: Path) -> None:
    place = browser.open(table)
    for page in ("/", f"{place}/columns", f"{place}/guarantees", f"{place}/train"):
        text = browser.get(page).text
        assert not re.search(r"(?:src|href|action)=\"(?!/|#|\")", text)
        assert "<style" not in text
        assert " style=" not in text
        assert not re.search(r"<script(?! src)| on\w+=", text)
