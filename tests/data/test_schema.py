from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: "\x00" not in name)
COLUMNS = st.builds(
    lambda name, role, kind, domain, bounds, reason: sf.Column(
        name=name,
        role=role,
        kind=kind,
        domain=domain,
        bounds=(min(bounds), max(bounds)) if kind == "number" and bounds else None,
        reason=reason,
    ),
    NAMES,
    st.sampled_from(["identifier", "quasi", "sensitive", "other"]),
    st.sampled_from(list(sf.Kind)),
    st.one_of(st.none(), st.lists(st.text(max_size=4), min_size=1, max_size=4, unique=True)),
    st.one_of(st.none(), st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=2)),
    st.text(max_size=10),
)


@given(st.lists(COLUMNS, max_size=6, unique_by=lambda column: column.name))
def test_a_schema_survives_toml(columns: list[sf.Column]) -> None:
    schema = sf.Schema(columns)
    again = sf.Schema.from_toml(schema.to_toml())
    assert again == schema
    assert [column.reason for column in again.columns] == [column.reason for column in columns]


def test_a_schema_survives_a_file(tmp_path: Path) -> None:
    hierarchy = sf.Hierarchy.tree([("flu", "lung", "*"), ("ulcer", "stomach", "*")])
    schema = sf.Schema([sf.Column(name="d", role="sensitive", hierarchy=hierarchy, domain=["flu", "ulcer"])])
    schema.save(tmp_path / "s.toml")
    assert sf.Schema.load(tmp_path / "s.toml") == schema


def test_naming_a_role_replaces_the_columns_that_had_it() -> None:
    schema = sf.Schema(
        [sf.Column(name="a", role="quasi", reason="why"), sf.Column(name="b"), sf.Column(name="c", role="sensitive")]
    )
    changed = schema.with_roles(qi=["b"], target="a")
    assert (changed.quasi, changed.sensitive, changed.target) == (("b",), ("c",), "a")
    assert changed["a"].reason == ""  # it was the reason for another role


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sf.Column(name=""), "a column name must be a text"),
        (lambda: sf.Column(name="a", role="secret"), "the role of column 'a' must be one of identifier, person, quasi"),
        (lambda: sf.Column(name="a", kind="int"), "the kind of column 'a' must be one of auto, number"),
        (lambda: sf.Column(name="a", kind="category", bounds=(0, 1)), "only a number can have them, not a category"),
        (lambda: sf.Column(name="a", kind="number", bounds=(2, 1)), r"must be finite and in order, got \[2.0, 1.0\]"),
        (lambda: sf.Column(name="a", kind="number", bounds=(0, float("inf"))), "must be finite"),
        (lambda: sf.Column(name="a", kind="number", bounds="x"), "must be two numbers"),
        (lambda: sf.Column(name="a", kind="date", bounds=(0, 1)), "only a number can have them, not a date"),
        (lambda: sf.Column(name="a", kind="number", bounds=("2023-01-01", "2023-01-02")), "its kind is number"),
        (lambda: sf.Column(name="a", bounds=("2023-01-02", "2023-01-01")), "must be two days in order"),
        (lambda: sf.Column(name="a", bounds=("2023-01-02", "2023-13-01")), "must be two dates"),
        (lambda: sf.Column(name="a", bounds=("2023-01-02", 5)), "must be two numbers"),
        (lambda: sf.Column(name="a", domain=[]), "must be a list of at least one value"),
        (lambda: sf.Column(name="a", domain="ab"), "must be a list of at least one value"),
        (lambda: sf.Column(name="a", domain=["x", "x"]), "lists a value twice"),
        (lambda: sf.Column(name="a", domain=[["x"]]), "must list single values"),
        (lambda: sf.Column(name="a", domain=(None, "x")), "the domain of column 'a' lists a missing value"),
        (lambda: sf.Column(name="a", domain=[1.0, float("nan")]), "the domain of column 'a' lists a missing value"),
        (lambda: sf.Schema([sf.Column(name="a"), sf.Column(name="a")]), "lists the column 'a' twice"),
        (lambda: sf.Schema([sf.Column(name=n, role="target") for n in "ab"]), "at most one target, got a, b"),
        (lambda: sf.Schema.from_toml("x ="), "not valid TOML"),
        (lambda: sf.Schema.from_toml("x = 1"), r"one table \[columns\]"),
        (lambda: sf.Schema.from_toml("[columns]\na = 1"), r"\[columns.a\] must be a table"),
        (lambda: sf.Schema.from_toml("[columns.a]\nrol = 'quasi'"), r"unknown key 'rol' \(did you mean 'role'\?\)"),
        (lambda: sf.Schema([sf.Column(name="a")]).with_roles(qi=["b"]), r"there is no column 'b' \(known: a\)"),
        (lambda: sf.Schema([sf.Column(name="a")]).with_roles(qi=["a"], sensitive=["a"]), "both quasi and sensitive"),
        (lambda: sf.Schema([sf.Column(name="a")]).with_roles(qi="a"), "must be a list of names"),
        (lambda: sf.Hierarchy.tree([]), "at least one row"),
        (lambda: sf.Hierarchy.tree([("a", "*"), ("b",)]), "'b' has 1, the first row 2"),
        (lambda: sf.Hierarchy.tree([("a", "*"), ("a", "*")]), "lists the value 'a' twice"),
        (lambda: sf.Hierarchy.tree([("a", "x", "1"), ("b", "x", "2")]), "'x' belongs to both '1' and '2'"),
        (lambda: sf.Hierarchy.tree([("a", "*")]).levels(["b"]), "does not cover a value"),
    ],
)
def test_a_contradiction_is_refused_with_its_name(make: Any, message: str) -> None:
    with pytest.raises(sf.errors.InputError, match=message):
        make()


def test_an_unreadable_schema_is_named(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match=r"nowhere.toml' cannot be read: No such file"):
        sf.Schema.load(tmp_path / "nowhere.toml")
    (tmp_path / "s.toml").write_bytes(b"\xff")
    with pytest.raises(sf.errors.FileError, match="not UTF-8"):
        sf.Schema.load(tmp_path / "s.toml")
