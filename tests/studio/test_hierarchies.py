"""The trees of the studio: values are put into groups by hand, and what is hidden stays hidden."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import SfumatoError
from sfumato.studio.hierarchies import Path as Labels
from sfumato.studio.hierarchies import dissolve, gather, rename
from sfumato.studio.workspace import Workspace
from tests.effort import effort
from tests.studio.client import Browser

LUNG = [["flu", "lung", "inside"], ["cold", "lung", "inside"], ["ulcer", "gut", "inside"], ["burn", "skin", "skin"]]


def test_values_and_groups_are_put_into_a_group() -> None:
    values = [["a"], ["b"], ["c"]]
    assert gather(values, [(0, "a"), (0, "b")], "early") == [["a", "early"], ["b", "early"], ["c", "c"]]
    joined = gather(LUNG, [(0, "burn")], "gut")  # a group that exists
    assert joined == [["flu", "lung"], ["cold", "lung"], ["ulcer", "gut"], ["burn", "gut"]]
    groups = gather(LUNG, [(1, "lung"), (0, "burn")], "open")  # what is lower stays itself on the way
    assert groups == [
        ["flu", "lung", "open"],
        ["cold", "lung", "open"],
        ["ulcer", "gut", "inside"],
        ["burn", "burn", "open"],
    ]
    top = gather(LUNG, [(2, "inside"), (2, "skin")], "any")
    assert top == LUNG  # a level like the root says nothing


def test_groups_are_renamed_joined_and_dissolved() -> None:
    assert rename(LUNG, [(1, "lung")], "chest")[0] == ["flu", "chest", "inside"]
    assert rename(LUNG, [(1, "skin")], "gut")[3] == ["burn", "gut", "inside"][:2]
    assert rename(LUNG, [(1, "skin")], "hull")[3] == ["burn", "hull", "hull"]
    assert dissolve(LUNG, [(2, "inside"), (2, "skin")]) == [one[:2] for one in LUNG]
    assert dissolve(LUNG, [(1, "lung")])[:2] == [["flu", "flu", "inside"], ["cold", "cold", "inside"]]
    for edit in (lambda: rename(LUNG, [(0, "flu")], "x"), lambda: dissolve(LUNG, [(0, "flu")])):
        with pytest.raises(SfumatoError):
            edit()


def test_a_group_that_is_named_by_its_values_is_named_by_those_that_it_has() -> None:
    automatic = [
        ["a", "{a, b, c}"],
        ["b", "{a, b, c}"],
        ["c", "{a, b, c}"],
        ["d", "all but {a, b, c}"],
        ["e", "all but {a, b, c}"],
    ]
    changed = gather(automatic, [(0, "a"), (0, "d")], "mine")
    assert changed == [["a", "mine"], ["b", "{b, c}"], ["c", "{b, c}"], ["d", "mine"], ["e", "e"]]


@settings(max_examples=effort(60, 2000), deadline=None)
@given(data=st.data())
def test_after_any_edits_the_tree_covers_the_same_values_and_nests(data: st.DataObject) -> None:
    paths: list[Labels] = [[one] for one in "abcde"]
    for _ in range(data.draw(st.integers(1, 8))):
        nodes = sorted({(level, path[level]) for path in paths for level in range(len(path))})
        ticked = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=4, unique=True))
        edit = data.draw(st.sampled_from(["gather", "rename", "dissolve"]))
        name = data.draw(st.sampled_from(["a", "x", "y", "{a, b}"]))
        try:
            made = (
                dissolve(paths, ticked)
                if edit == "dissolve"
                else (gather if edit == "gather" else rename)(paths, ticked, name)
            )
            tree = sf.Hierarchy.tree(made)
        except SfumatoError:
            continue
        assert [path[0] for path in made] == list("abcde")
        assert len({len(path) for path in made}) == 1
        tree.check(list("abcde"))
        if edit == "gather" and name in "xy":  # the new group holds all that was ticked
            inside = {path[0] for path in paths if any(path[level] == label for level, label in ticked)}
            above = [path for path in made if name in path[1:]]
            assert not above or inside <= {path[0] for path in above}  # none: all values were in it
        paths = made


@pytest.fixture
def project(browser: Browser, tmp_path: Path) -> str:
    """A project with a city that has two rare values."""
    rows = [*["London"] * 30, *["Paris"] * 20, *["Rome; Italy"] * 20, *["Rare-Town"] * 2, *["Lone-Hill"] * 3]
    lines = "".join(f'{20 + i % 3},"{city}"\n' for i, city in enumerate(rows))
    (tmp_path / "people.csv").write_text("age,city\n" + lines, encoding="utf-8")
    made = browser.open(tmp_path / "people.csv")
    browser.run(
        f"{made}/columns",
        settings="1",
        **{"role-0": "quasi", "role-1": "quasi", "kind-0": "number", "kind-1": "category"},
        run="risk",
    )
    return made


def editor(browser: Browser, project: str) -> tuple[str, dict[str, str]]:
    """The tree of the city, and the key of each box by its label."""
    page = browser.get(f"{project}/hierarchies").text.partition('id="column-1"')[2]
    mark = re.search(r'name="mark" value="(\w+)"', page)
    assert mark is not None
    return mark[1], {label: key for key, label in re.findall(r'name="tick" value="([\w.]+)"> <span>([^<]*)<', page)}


def city_of(tmp_path: Path) -> sf.Hierarchy:
    (found,) = Workspace(tmp_path / "work")
    return sf.Hierarchy.from_dict(found.state["hierarchies"]["city"])


def test_a_tree_is_edited_by_ticking_and_rare_values_move_without_being_seen(
    browser: Browser, project: str, tmp_path: Path
) -> None:
    browser.post(
        f"{project}/hierarchies",
        data={
            "settings": "1",
            "column": "1",
            "how": "tree",
            "text": 'London; UK\nParis; abroad\n"Rome; Italy"; abroad',
        },
    )
    assert city_of(tmp_path).paths(["Rome; Italy", "Rare-Town"]) == [
        ("Rome; Italy", "abroad", "*"),
        ("Rare-Town", "other values", "*"),
    ]
    mark, keys = editor(browser, project)
    assert set(keys) == {"London", "UK", "abroad", "Paris", "Rome; Italy", "a group of few rows"}
    form = {"settings": "1", "column": "1", "mark": mark}
    answer = browser.post(
        f"{project}/hierarchies",
        data={**form, "edit": "gather", "name": "UK", "tick": [keys["a group of few rows"], keys["London"]]},
    )
    assert answer.headers["location"].endswith("/hierarchies?column=1#column-1")
    tree = city_of(tmp_path)
    assert {one: tree.paths([one])[0][-2] for one in ("London", "Rare-Town", "Lone-Hill", "Paris")} == {
        "London": "UK", "Rare-Town": "UK", "Lone-Hill": "UK", "Paris": "abroad",
    }  # fmt: skip
    page = browser.get(f"{project}/hierarchies").text
    assert "Rare-Town" not in page
    assert "Lone-Hill" not in page
    browser.post(f"{project}/do/undo")
    assert city_of(tmp_path).paths(["Rare-Town"])[0][-2] == "other values"


def test_many_long_trees_are_shown_one_by_one(browser: Browser, tmp_path: Path) -> None:
    columns, path = 8, tmp_path / "wide.csv"
    lines = "".join(",".join(f"v{i % 250}" for _ in range(columns)) + "\n" for i in range(2500))
    path.write_text(",".join(f"c{at}" for at in range(columns)) + "\n" + lines, encoding="utf-8")
    project = browser.open(path)
    roles = {f"role-{at}": "quasi" for at in range(columns)} | {f"kind-{at}": "category" for at in range(columns)}
    browser.run(f"{project}/columns", settings="1", **roles, run="risk")
    page = browser.get(f"{project}/hierarchies").text
    assert 0 < page.count('class="tree"') < columns
    assert page.count('class="tree"') + page.count("Look at it, or change it") == columns
    assert 'id="tree-7"' not in page
    assert 'id="tree-7"' in browser.get(f"{project}/hierarchies?column=7").text


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"edit": "gather", "name": "x"}, "nothing is ticked"),
        ({"edit": "gather", "name": " ", "tick": "0.0"}, "the group has no name"),
        ({"edit": "gather", "name": "x", "tick": "0.99"}, "there is no such value"),
        ({"edit": "gather", "name": "x", "tick": "9.0"}, "there is no such value"),
        ({"edit": "gather", "name": "x", "tick": "../../x"}, "there is no such value"),
        ({"edit": "gather", "name": "x", "tick": "few.few.0.0"}, "there is no such value"),
        ({"edit": "rename", "name": "x", "tick": "0.0"}, "a value keeps its name"),
        ({"edit": "dissolve", "tick": "0.0"}, "no group is ticked"),
        ({"edit": "gather", "name": "x", "tick": "0.0", "mark": "old"}, "the tree has changed meanwhile"),
    ],
)
def test_a_wrong_edit_is_refused_with_a_sentence(
    browser: Browser, project: str, tmp_path: Path, form: dict[str, str], message: str
) -> None:
    mark, _ = editor(browser, project)
    answer = browser.post(f"{project}/hierarchies", data={"settings": "1", "column": "1", "mark": mark, **form})
    assert answer.status_code == 400
    assert message.lower() in answer.text.lower()
    (found,) = Workspace(tmp_path / "work")
    assert "hierarchies" not in found.state


def test_the_lattice_is_walked_and_a_node_becomes_a_release(browser: Browser, project: str, tmp_path: Path) -> None:
    assert "choose at least k" in browser.get(f"{project}/lattice").text
    assert (
        browser.post(f"{project}/lattice", data={"settings": "1", "what": "measure", "run": "lattice"}).status_code
        == 400
    )
    browser.post(f"{project}/guarantees", data={"settings": "1", "k": "5"})
    page = browser.run(f"{project}/lattice", settings="1", what="measure", suppress="0.1", run="lattice")
    assert "the best levels" in page
    (found,) = Workspace(tmp_path / "work")
    heights = [int(one) for one in re.findall(r'href="\?at=(\d+)\.0#walk"', page)]
    assert heights[0] == 0
    for at in ("0.0", "1.0", "1.1"):
        walked = browser.get(f"{project}/lattice?at={at}").text
        assert walked.count('aria-current="true"') == 3  # in the picture, and for each column
        assert "Rare-Town" not in walked
    for wrong in ("9.9", "x", "1", "-1.0", "1.0.0", "²³.0", "99999999999.0"):
        assert "the best levels" in browser.get(f"{project}/lattice?at={wrong}").text
    refused = browser.post(f"{project}/lattice", data={"settings": "1", "at": "9.9", "run": "methods"})
    assert refused.status_code == 400
    made = browser.run(f"{project}/lattice", settings="1", at="1.1", run="methods")
    assert "Lattice: the levels that I chose" in made
    (job,) = [one for one in found.jobs.iterdir() if one.name.endswith("anonymize")]
    release = sf.load(job / "releases" / "lattice")
    assert release.recipe.options["parameters"]["levels"] == {"age": 1, "city": 1}
    browser.post(f"{project}/release", data={"settings": "1", "release": f"{job.name}/lattice"})
    assert "changed settings since" not in browser.get(f"{project}/release").text
    browser.post(f"{project}/methods", data={"settings": "1", "method": "lattice"})  # without the tick, the best again
    assert Workspace(tmp_path / "work").open(found.id).state["levels"] is None
    assert Workspace(tmp_path / "work").open(found.id).state["chosen"] is None  # the next one is shown, not this one
    assert "changed settings since" in browser.get(f"{project}/release").text
