"""The page about a release says what became of a table, in one small file, and shows nobody alone."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.measures import ModelAccuracy
from sfumato.measures.loss.generalised import pair
from sfumato.measures.loss.information_loss import loss_of
from sfumato.measures.loss.utility import query_error_of
from sfumato.report.bins import binned_profiles
from sfumato.report.charts.plot import bar_list, bar_pairs, hatching, heat_map, legend
from sfumato.report.table.comparison import compare
from sfumato.report.table.release import render_release

FLAT = ModelAccuracy("tree", 0.8, 0.01, 0.7, 0.02, 0.6, 400, 5, 0.3, 0)


def people() -> pl.DataFrame:
    """Return 400 people, of whom one lives alone in Zzz."""
    towns = ["Atown"] * 200 + ["Bville"] * 199 + ["Zzz"]
    return pl.DataFrame({"town": towns, "age": [20 + i % 60 for i in range(400)], "ill": ["flu", "hiv"] * 200})


def page(original: Any, released: Any, require: str = "k=2", **more: Any) -> str:
    """Render a page about the columns town and age of two tables."""
    quasi = ["town", "age"]
    both = pair(original, released, quasi)
    before = sf.assess(original, qi=quasi, sensitive=["ill"])
    after = sf.assess(released, qi=quasi, sensitive=["ill"], require=require)
    measured = {name: more.pop(name) for name in ("accuracy", "queries", "others") if name in more}
    comparison = compare(both, before, after, loss_of(both), **measured)
    assert after.verdict is not None
    return render_release(comparison, method="mondrian", guarantees=after.verdict.checks, **more)


def blurred(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(town=pl.lit("*"), age=pl.lit("[20, 79]"))


def test_the_verdict_is_one_sentence_and_comes_first() -> None:
    made = page(people(), blurred(people()))
    headline = "Every one of 400 people shares their combination of 2 quasi-identifiers with at least 399 others"
    assert f"<p>{headline}; the table lost 100% of its detail</p>" in made
    assert 'class="verdict good"' in made
    assert made.index("verdict good") < made.index("<h2>")


def test_what_does_not_hold_is_said_first() -> None:
    made = page(people(), people(), require="k=5,l=2")
    assert re.search(r"<p>Not met: k=5, l=2. \d+ of 400 people are still unique by their combination", made)
    assert 'class="verdict bad"' in made
    assert "✗ not kept: k=5" in made


def test_promises_are_measured_before_and_after() -> None:
    made = page(people(), blurred(people()), require="k=10,l=2")
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", made))
    assert "k-anonymity guards against linkage, re-identification 1 before 400 after ✓ kept: k=10" in text
    assert "distinct l-diversity guards against homogeneity, background knowledge 1 before 2 after ✓ kept: l=2" in text
    assert "Nothing is guaranteed about sensitive values" not in made
    assert "Nothing is guaranteed about sensitive values" in page(people(), blurred(people()))


def test_nobody_who_is_alone_is_on_the_page() -> None:
    made = page(people(), blurred(people()), accuracy=[FLAT])
    assert "Atown" in made
    for value in ("Zzz", "hiv", "flu"):
        assert value not in made


def test_the_page_says_what_it_does_not_protect_against_and_how_to_check_it() -> None:
    made = page(people(), blurred(people()), folder="my release/")
    assert "not differential privacy" in made
    assert "This page shows figures of the original table." in made
    assert "<code>sfumato verify my release/</code>" in made


def test_suppressed_rows_are_counted() -> None:
    released = blurred(people()).with_columns(
        age=pl.when(pl.col("age").is_not_null() & (pl.int_range(400) < 20)).then(pl.lit("*")).otherwise(pl.col("age"))
    )
    made = page(people(), released)
    assert "20 rows (5.0%) suppressed" in made
    assert "Every one of 380 people" in made
    assert "suppressed: 0%, after 5.0%" in made


def test_accuracy_is_shown_with_its_spread_and_baseline_if_it_was_measured() -> None:
    assert "What it cost: models" not in page(people(), blurred(people()))
    made = page(people(), blurred(people()), accuracy=[FLAT])
    assert "80.0%<small>± 1.0</small>" in made
    assert "70.0%<small>± 2.0</small>" in made
    assert "most frequent value is right for 60.0%" in made
    assert "50.0% of what it learns is left" in made
    nothing = ModelAccuracy("tree", 0.6, 0.01, 0.6, 0.02, 0.6, 400, 5, 0.3, 0)
    assert "learns next to nothing" in page(people(), blurred(people()), accuracy=[nothing])


def test_how_it_was_made_is_written_for_a_person() -> None:
    made = page(
        people(),
        blurred(people()),
        facts={"rows": 400, "made_on": "2026-11-15", "columns": ["a", "b"]},
        details={"levels": {"age": 2, "town": 1}, "optimal": True, "bound": None, "loss": 0.123456},
    )
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", made))
    assert "made on 2026-11-15 columns a, b levels age 2, town 1 optimal yes bound - loss 0.1235" in text


def test_what_held_out_labels_chose_is_one_line() -> None:
    made = text_of(
        page(people(), blurred(people()), details={"leaves": 40, "chosen": "neighbours", "explained": 0.2187})
    )
    assert "leaves 40 partition neighbours: predictions explain 21.9% of held-out labels" in re.sub(r"\s+", " ", made)


def test_what_is_written_by_others_is_escaped() -> None:
    frame = people().with_columns(town=pl.col("town").replace({"Atown": "<b>&\"'"}))
    made = page(frame, blurred(frame), title="<i>", folder="<u>", facts={"<s>": "<s>"})
    for forbidden in ("<b>", "<i>", "<u>", "<s>"):
        assert forbidden not in made
    assert "&lt;b&gt;" in made


def text_of(made: str) -> str:
    """Return what a page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", made))


def test_a_value_in_place_of_another_is_not_called_lossless() -> None:
    """Guided anonymization and microaggregation publish single values, which are as narrow as the original ones."""
    released = people().with_columns(town=pl.lit("Atown"), age=pl.lit(50))
    text = text_of(page(people(), released))
    assert "73.8% of the values were replaced by one that stands for their class" in text
    assert "Column Detail lost Values replaced Rows shifted age 98.3% 97.5% 90.0% town 51.1% 50.0% 50.0%" in text
    assert "lost 0%" not in text
    assert "Values replaced" not in page(people(), blurred(people()))


def test_rows_shifted_and_the_error_of_queries_stand_beside_the_detail_lost() -> None:
    both = pair(people(), blurred(people()), ["town", "age"])
    made = page(people(), blurred(people()), queries=query_error_of(both, queries=50))
    text = text_of(made)
    assert "Column Detail lost Rows shifted town 100% (100% *) 17.5% age 100% 2.5%" in text
    error = query_error_of(both, queries=50)
    assert f"half of 50 random counting queries are off by {100 * error.median:.1f}% or less" in text


def test_columns_that_are_released_as_they_are_are_shown_without_their_rare_values() -> None:
    frame = people().with_columns(ill=pl.Series(["flu"] * 250 + ["hiv"] * 141 + ["plague"] * 9))
    made = page(frame, blurred(frame), others=binned_profiles(sf.Table.of(frame, sensitive=["ill"]), ["ill"]))
    text = text_of(made)
    assert "Columns released as they are" in text
    assert "ill sensitive, 3 distinct values" in text
    assert 'aria-label="Distribution of ill. flu: 62.5%; others: 37.5%"' in made
    assert "plague" not in made
    assert "Columns released as they are" not in page(frame, blurred(frame))


def test_one_offline_file_that_asks_for_nothing() -> None:
    adult = sf.datasets.adult()
    release = sf.anonymize(adult, "k=10")
    both = pair(adult, release.aligned)
    comparison = compare(both, sf.assess(adult), release.assessment, release.loss)
    assert release.assessment.verdict is not None
    made = render_release(comparison, method=release.method, guarantees=release.assessment.verdict.checks)
    assert len(made.encode()) < 400_000
    for forbidden in ("<link", "<img", "@import", "url(http", "src="):
        assert forbidden not in made
    assert set(re.findall("https?:[^\"' ]*", made)) == {"http://www.w3.org/2000/svg"}  # the name of the format
    for chart in re.findall("<svg.*?</svg>", made, flags=re.DOTALL):
        ElementTree.fromstring(chart)


def test_charts_are_well_formed_and_escaped() -> None:
    charts = [
        legend("<a>", "&"),
        bar_pairs("<T>", [("<1> & 'x'", (0.5, "<50%>"), (0.2, "20%"))]),
        heat_map("<T>", ["<r>"], ["<c>"], [[0.5]], full=0.5),
        bar_list("<T>", [("<1>", 0.5, "<2>")], full=1),
        hatching(),
    ]
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.tag.endswith("svg")
    assert ElementTree.fromstring(charts[1]).get("aria-label") == "<T>. <1> & 'x': <50%>, after 20%"


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("Male", ["Male"]),
        ("Married-spouse-absent", ["Married-spouse-", "absent"]),
        ("Type 2 diabetes mellitus without complications", ["Type 2 diabetes mellitus without", "complications"]),
        ("x" * 200, ["x" * 40, "x" * 40, "x" * 39 + "…"]),
        ("", [""]),
    ],
)
def test_a_long_label_is_written_whole_above_its_bars(label: str, lines: list[str]) -> None:
    root = ElementTree.fromstring(bar_pairs("T", [(label, (1, "1%"), (1, "1%"))]))
    found = [element.text or "" for element in root.iter() if element.tag.endswith(("tspan", "text"))]
    assert [text for text in found if text not in ("", "1%")] == [line for line in lines if line]
    assert label in (root.get("aria-label") or "")


@pytest.mark.parametrize("columns", [2, 10])
def test_labels_of_a_grid_are_written_whole_up_to_sixty_letters_and_its_axes_are_named(columns: int) -> None:
    names = [f"{at} diabetes mellitus without complications" for at in range(10, 10 + columns)]
    svg = heat_map("T", names, names, [[0.1] * columns] * columns, full=1, axes=("actual", "predicted"))
    root = ElementTree.fromstring(svg)
    written = []
    for one in root.iter():
        if one.tag.endswith("text"):
            written.append(" ".join([one.text or "", *(each.text or "" for each in one)]).strip())
    assert [written.count(name) for name in names[:1]] == [2 if columns == 2 else 1]
    assert {"actual", "predicted"} <= set(written)


def test_a_heat_map_writes_whole_percents_and_tells_fewer_from_more() -> None:
    cells = [[0.104, -0.051], [0.004, None]]
    svg = heat_map("T", ["a", "b"], ["c", "d"], cells, full=0.2, signed=True)
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert [text for text in texts if text not in "abcd"] == ["+10", "−5", "·"]
    assert "<title>a, d: -5.1%</title>" in svg
    assert "<title>b, d: too few</title>" in svg
    assert svg.count("url(#fewer)") == 1
    assert 'aria-label="T. Largest: a, c: 10.4%; a, d: -5.1%; b, c: 0.4%"' in svg
