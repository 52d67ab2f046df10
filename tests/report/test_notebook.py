"""What results show of themselves in a notebook, and the tutorial notebook."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.report.notebook import card
from tests.frontier.example import example
from tests.report.test_attacks import report

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"
ROWS = pl.DataFrame({"age": [30, 40, 50, 60] * 5, "<b>ill</b>": ["Ada", "Bob", "Ada", "Eve"] * 5})
VOID = {"br", "img", "input", "meta", "hr", "link"}


class Nesting(HTMLParser):
    """Whether every element is closed in its order; and which elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def results() -> dict[str, Any]:
    table = sf.Table.of(ROWS, qi=["age"], sensitive=["<b>ill</b>"])
    attacks = report("<i>n</i>")
    return {
        "assessment": sf.assess(table, require="k=2"),
        "schema": table.schema,
        "release": sf.anonymize(table, "k=5"),
        "attacks": attacks,
        "attack": attacks.results[0],
        "frontier": example(name="<script>.csv"),
    }


@pytest.mark.parametrize("name", ["assessment", "schema", "release", "attacks", "attack", "frontier"])
def test_a_result_shows_itself_as_one_closed_element_without_scripts(name: str) -> None:
    result = results()[name]
    shown = result._repr_html_()
    assert shown == card(result)
    nesting = Nesting()
    nesting.feed(shown)
    assert nesting.open == []
    assert nesting.seen & {"script", "b", "i", "iframe"} == set()
    assert "svg" in nesting.seen
    for cell in ("Ada", "Bob", "Eve"):
        assert cell not in shown
    assert len(shown) < 120_000
    assert len(repr(result)) < 400


def test_a_schema_without_a_line_of_names_shows_none() -> None:
    shown = sf.Schema([sf.Column(name="Ada Lovelace"), sf.Column(name="1815-12-10")])._repr_html_()
    assert "Ada" not in shown
    assert "2 columns" in shown


def test_a_frontier_in_a_notebook_has_the_charts_of_its_page() -> None:
    shown = example()._repr_html_()
    assert len(re.findall('role="img"', shown)) == 6
    assert "Take " in shown
    assert "not covered by any epsilon" in shown


def test_an_assessment_as_a_frame_has_a_row_per_measure() -> None:
    frame = results()["assessment"].to_frame()
    assert frame.columns == ["sensitive", "measure", "value"]
    values = dict(frame.filter(pl.col("sensitive") == "").select("measure", "value").iter_rows())
    assert values["k"] == 5
    assert frame.filter((pl.col("sensitive") == "<b>ill</b>") & (pl.col("measure") == "l")).height == 1


def test_the_tutorial_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    shown = []
    notebook = json.loads(NOTEBOOK.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []  # they would have to be looked at with every change
        code = ast.parse("".join(cell["source"]))
        last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
        exec(compile(code, str(NOTEBOOK), "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), namespace)
            shown += [value._repr_html_()] if hasattr(value, "_repr_html_") else []
    assert len(shown) >= 8
    assert namespace["verdict"].ok
    assert namespace["found"].recommended.point.name != "raw"
    assert Path("frontier.html").stat().st_size < 1_000_000
