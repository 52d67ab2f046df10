"""The documentation has no dead link, no page that is out of reach, and no page that is only a list of signatures."""

from __future__ import annotations

import importlib
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import sfumato as sf
from sfumato.cli.main import _COMMANDS
from tests.test_public_api import DOORS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"))]
LINK = re.compile(r"(?<!`)!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def prose(path: Path) -> str:
    """Return a page without its code."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```", "", path.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`", "``", text)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the names that a link into a page can have, as Markdown gives them to headings."""
    found = set()
    for heading in re.findall(r"(?m)^#{1,6} +(.*)$", re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))):
        if own := re.search(r"\{ *#([\w-]+) *\}", heading):
            found.add(own[1])
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return frozenset(found)


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    dead = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        where, _, anchor = unquote(target).partition("#")
        path = (page.parent / where).resolve() if where else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            dead.append(target)
        if page.is_relative_to(DOCS) and not path.is_relative_to(DOCS):
            dead.append(f"{target}: outside of the site")
    assert dead == []


def test_every_page_is_in_the_navigation_once() -> None:
    def listed(part: object) -> list[str]:
        if isinstance(part, str):
            return [part]
        parts = part.values() if isinstance(part, dict) else part
        return [one for each in parts for one in listed(each)]  # type: ignore[attr-defined]

    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(listed(project["nav"])) == [str(path.relative_to(DOCS)) for path in PAGES]


def test_every_page_is_linked_from_another_page() -> None:
    linked = set()
    for page in TEXTS:
        for target in LINK.findall(prose(page)):
            linked.add((page.parent / target.partition("#")[0]).resolve())
    assert [path.name for path in PAGES if path.resolve() not in linked and path.name != "index.md"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_no_section_is_only_a_list_of_signatures(page: Path) -> None:
    for section in re.split(r"(?m)^## ", page.read_text(encoding="utf-8"))[1:]:
        body = section.partition("\n")[2].strip()
        assert not body.startswith(":::"), section.partition("\n")[0]


def test_every_picture_is_there_and_small() -> None:
    for path in (DOCS / "images").iterdir():
        assert path.stat().st_size < 400_000, path.name


def test_every_command_is_in_the_reference() -> None:
    reference = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    found = {name for name in _COMMANDS if f"sfumato {name}" in reference or f"\n## {name}\n" in reference}
    assert found == set(_COMMANDS)


def test_the_reference_has_every_public_name_once_and_no_other() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("api*.md")))
    shown = re.findall(r"(?m)^::: sfumato\.(\S+)$", text)
    assert sorted({*shown}) == sorted(shown)
    doors = {name: importlib.import_module(f"sfumato.{name}") for name in (*DOORS, "errors")}
    public = {f"{door}.{name}" for door, module in doors.items() for name in module.__all__}
    public |= {f"datasets.{name}" for name in sf.datasets.__all__} | {*sf.__all__}
    assert [name for name in shown if name not in public] == []

    def thing(path: str) -> int:
        found: Any = sf
        for part in path.split("."):
            found = getattr(found, part)
        return id(found)

    described = {thing(name) for name in shown}
    left = {name for name in public if thing(name) not in described}
    constants = {f"datasets.{name}" for name in ("BUILT_IN", "SPLIT", "TABLES", "TARGETS")}
    assert left == {"datasets", "errors"} | constants
