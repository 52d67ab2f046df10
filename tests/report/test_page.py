from __future__ import annotations

import base64
import hashlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from sfumato.report.charts.plot import bar_rows
from sfumato.report.page import render_report
from sfumato.report.summarise import SMALLEST_SHOWN, summarise


def table(size: int) -> pl.DataFrame:
    return pl.DataFrame({"town": ["Utopia"] * size, "disease": ["flu", "plague"] * (size // 2)})


def test_the_page_is_small_and_needs_nothing_from_elsewhere() -> None:
    page = render_report(sf.assess(sf.datasets.adult()))
    assert len(page) < 300_000
    for forbidden in ("<link", "<img", "@import", "url(http", "src="):
        assert forbidden not in page
    assert set(re.findall("http[^\"' ]*", page)) == {"http-equiv=", "http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_the_only_script_is_our_own_and_the_policy_names_its_hash() -> None:
    page = render_report(sf.assess(table(20), qi=["town"]), title="<script>alert(1)</script>")
    scripts = re.findall("<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == page.count("<script") == 1
    assert scripts[0] == (Path(sf.__file__).parent / "report" / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_values_of_a_class_are_shown_only_from_ten_rows_on() -> None:
    small, large = (
        render_report(sf.assess(table(size), qi=["town"], sensitive=["disease"]))
        for size in (SMALLEST_SHOWN - 2, SMALLEST_SHOWN)
    )
    assert "Utopia" not in small
    assert "town = Utopia" in large


def test_what_the_rows_of_a_class_have_in_a_sensitive_column_is_never_shown() -> None:
    # In a class of 12, one person has the rare value; in the other, everyone has the same.
    frame = pl.DataFrame({"town": ["A"] * 12 + ["B"] * 12, "disease": ["hiv"] + ["flu"] * 11 + ["ulcer"] * 12})
    page = render_report(sf.assess(frame, qi=["town"], sensitive=["disease"]))
    assert "town = B" in page
    for value in ("hiv", "flu", "ulcer"):
        assert value not in page


@pytest.mark.parametrize(
    ("require", "good", "headline"),
    [
        ("", None, "No row is unique: every class has at least 10 rows"),
        ("k=10", True, "Met: k=10"),
        ("k=11,l=2", False, "Not met: k=11"),
    ],
)
def test_the_verdict_comes_first(require: str, good: bool | None, headline: str) -> None:
    summary = summarise(sf.assess(table(10), qi=["town"], sensitive=["disease"], require=require))
    assert (summary.good, summary.headline) == (good, headline)
    page = render_report(sf.assess(table(10), qi=["town"], sensitive=["disease"], require=require))
    assert page.index('class="verdict') < page.index("<h2>")


def test_every_row_is_in_one_bar() -> None:
    frame = pl.DataFrame({"q": [i for i in range(1, 121) for _ in range(i)]})
    summary = summarise(sf.assess(frame, qi=["q"]))
    assert sum(bar.rows for bar in summary.bars) == len(frame)
    assert [(bar.label, bar.rows) for bar in summary.bars][:4] == [("1", 1), ("2", 2), ("3-4", 7), ("5-9", 35)]


def test_without_a_sensitive_column_only_k_is_shown() -> None:
    summary = summarise(sf.assess(table(4), qi=["town"]))
    assert [line.key for line in summary.lines] == ["k"]
    assert "none named" in summary.facts[1]


def test_what_was_left_out_is_said() -> None:
    frame = pl.DataFrame({"name": ["a", "b", "c"], "q": ["x", "*", None], "s": ["1", "2", "3"]})
    schema = sf.Schema([sf.Column(name="name", role="identifier")])
    result = sf.assess(frame, schema=schema, qi=["q"], sensitive=["s"], missing="drop")
    facts = " ".join(summarise(result).facts)
    assert "1 suppressed row in no class" in facts
    assert "1 row with missing values left out" in facts
    assert "must not be released: name" in facts


def test_a_chart_is_well_formed_and_escaped() -> None:
    svg = bar_rows('<T> & "t"', [("<1>", [(3, "<3>", "risky")]), ("2", [(0, "0", "after")])])
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == '<T> & "t". <1>: <3>; 2: 0'
    assert [element.text for element in root.iter() if element.tag.endswith("text")] == ["<1>", "<3>", "2", "0"]
    assert [element.text for element in root.iter() if element.tag.endswith("title")] == ["<1>: <3>", "2: 0"]


def test_what_singles_people_out_comes_before_the_measures() -> None:
    page = render_report(sf.assess(sf.datasets.nursery(), qi=["parents", "form"], sensitive=["class"], detail=True))
    order = [page.index(f"<h2>{title}") for title in ("Which columns single people out", "The measures")]
    assert order == sorted(order)


def test_advice_is_given_once() -> None:
    result = sf.assess(table(20), qi=["town"], sensitive=["disease"])
    summary = summarise(result)
    advice = [remedy for remedy, _ in summary.remedies]
    assert len(advice) == len(set(advice)) == 3
    helped = ", ".join(titles for _, titles in summary.remedies)
    assert sorted(helped.split(", ")) == sorted(line.title for line in summary.lines)
    page = render_report(result)
    assert [page.count(one) for one in advice] == [1, 1, 1]


def test_every_column_is_profiled_and_no_value_of_it_is_shown() -> None:
    frame = pl.DataFrame(
        {
            "name": [f"person {i}" for i in range(30)],
            "town": ["A"] * 29 + ["Zzz"],
            "disease": ["hiv", "flu", None] * 10,
            "tags": [[1]] * 30,
        }
    )
    schema = sf.Schema([sf.Column(name="name", role="identifier")])
    result = sf.assess(frame, schema=schema, qi=["town"], sensitive=["disease"], keep=["tags"], detail=True)
    assert summarise(result).profiles == (
        ("name", "identifier", "category", "30", "0%", "-"),
        ("town", "quasi-identifier", "category", "2", "0%", "1"),
        ("disease", "sensitive", "category", "2", "33.3%", "-"),
        ("tags", "kept on purpose", "not counted", "-", "-", "-"),
    )
    page = render_report(result)
    for value in ("person 1", "Zzz", "hiv", "flu"):
        assert value not in page
        assert value not in result.to_json()[result.to_json().index('"profiles"') :]


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    result = sf.assess(table(4), qi=["town"])
    sf.write_report(result, tmp_path / "page.html", title="A & B")
    assert "<h1>A &amp; B</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(sf.errors.FileError, match="there is no folder"):
        sf.write_report(result, tmp_path / "nowhere" / "page.html")


def test_a_wildcard_class_hides_the_values_of_a_single_row() -> None:
    rows = [("13053", 28)] + [(None, None)] * 12 + [("999", 1)] * 50
    frame = pl.DataFrame(rows, schema=["zip", "age"], orient="row", infer_schema_length=None)
    page = render_report(sf.assess(frame, qi=["zip", "age"], missing="wildcard"))
    assert "13053" not in page


def test_the_other_sensitive_columns_of_a_class_are_not_shown() -> None:
    frame = pl.DataFrame({"g": ["x"] * 40, "s": ["HIV", "FLU"] * 20, "r": ["lowpay", "highpay"] * 20})
    result = sf.assess(frame, qi=["g"], sensitive=["s", "r"], classes="qi+other-sensitive")
    page = render_report(result)
    assert "g = x" in page
    for value in ("HIV", "FLU", "lowpay", "highpay"):
        assert value not in page


def test_population_uniques_are_called_what_they_are() -> None:
    people = pl.DataFrame({"q": ["x", "x", "y", "z", "z", "u"]})
    facts = {size: " ".join(summarise(sf.assess(people, qi=["q"], population_size=size)).facts) for size in (6, 60)}
    assert "2 (33.3%) are unique: the table holds them all" in facts[6]
    assert "are estimated to be unique (model: " in facts[60]
    alone = sf.assess(people.unique(), qi=["q"], population_size=1000)
    assert "at most 1,000 (100%) are unique: every row of the table is" in " ".join(summarise(alone).facts)


def test_safe_harbor_is_in_the_headline() -> None:
    old, young = (pl.DataFrame({"age": [age] * 12}) for age in (95, 30))
    assert summarise(sf.assess(old, qi=["age"], preset="hipaa")).headline == "Not met: Safe Harbor (1 finding)"
    headline = summarise(sf.assess(young, qi=["age"], preset="hipaa")).headline
    assert headline.startswith("Safe Harbor: nothing found, ")
    assert headline.endswith("for a person to check")
