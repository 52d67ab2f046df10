"""Constraints and conditions of synthetic rows: parsed, checked before any charge, met by every row."""

from __future__ import annotations

import itertools
import json
import operator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget.noise import Source
from sfumato.errors import ColumnError, InputError, OptionError, SchemaError, SfumatoError
from sfumato.learners.estimators.features import Feature
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.state import State
from sfumato.synthesizers.tables.base import Axis, Model, Synthesizer
from sfumato.synthesizers.tables.columns.conditions import evaluate, given_condition
from sfumato.synthesizers.tables.columns.constraints import Constraints, Determines, Holds, Order, draw_rows
from sfumato.synthesizers.tables.columns.description import Description, selections, shares
from sfumato.synthesizers.tables.columns.domain import Coding, Domain
from sfumato.synthesizers.tables.methods.independent import Independent
from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree

FRAME = pl.DataFrame(
    {
        "sex": ["f", "m", None] * 100,
        "pregnant": ["yes", "no", "no"] * 100,
        "age": [30, 50, 70] * 100,
        "start": [date(2020, 1, 1 + one % 28) for one in range(300)],
        "end": [date(2020, 1, 1 + one % 31) for one in range(300)],
        "job": ["a", "b", "c"] * 100,
        "hours": [20, 30, 40] * 100,
        "paid": [0.5, 1.25, 2.0] * 100,
    }
)
SCHEMA = sf.Schema(
    [
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="pregnant", domain=("no", "yes")),
        sf.Column(name="age", bounds=(18, 99)),
    ]
)


def check(*constraints: Any, target: str | None = None) -> None:
    Constraints.of(constraints).check(Description.of(FRAME, SCHEMA).described, target)


class Uniform(Model):
    """Draws every code of every column with the same chance."""

    def __init__(self, axes: tuple[Axis, ...]) -> None:
        self.axes = axes

    def sample(self, rows: int, rng: np.random.Generator) -> list[Any]:
        return [rng.integers(0, one.size, rows) for one in self.axes]

    def to_state(self) -> State:
        return State({}, {})

    @classmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Uniform:
        return cls(axes)


def small(**sizes: int) -> Domain:
    """Return a domain of columns with the whole numbers from 0."""
    return Domain(tuple(Coding.of(Feature(name, bounds=(0.0, size - 1.0)), pl.Int64()) for name, size in sizes.items()))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("start <= end", Order("start", "<=", "end")),
        ("a>b", Order("a", ">", "b")),
        ('"a b" < "3"', Order("a b", "<", "3")),
        ("zip -> state {'02139': MA, \"1:0\": 'N, Y'}", Determines("zip", "state", {"02139": "MA", "1:0": "N, Y"})),
        ("education-num->x{1:2}", Determines("education-num", "x", {"1": "2"})),
        ("age >= 18", Holds(given_condition("age >= 18"))),
        ("day < 2020-01-01", Holds(given_condition("day < 2020-01-01"))),
        ("not (sex=m and pregnant=yes)", Holds(given_condition("not (sex=m and pregnant=yes)"))),
    ],
)
def test_a_text_is_one_constraint_and_is_written_so_that_it_is_read_again(text: str, wanted: Any) -> None:
    (found,) = Constraints.of([text]).items
    assert found == wanted
    assert Constraints.of([str(found)]).items == (wanted,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the constraint '' cannot be read"),
        ("start <=", "cannot be read: the condition needs a value after '<='"),
        ("not (sex = m", "unmatched parenthesis"),
        ("a -> b", "'a -> b' needs the value of 'b' for each value of 'a'"),
        ("a -> b {x 1}", "needs : at character 11, got '1'"),
        ("a -> b {x: 1", "ends before its closing brace"),
        ("a -> b {x: 1} y", "needs nothing more at character 15, got 'y'"),
        ("a -> b {x: 1,}", "needs a value at character 14, got '}'"),
        ("a -> b {'x: 1}", "unmatched quotation mark at character 9"),
        ("a -> a {x: 1}", "cannot determine itself"),
        (3, "a constraint must be a text, got int"),
        ({"source": "a"}, "must have a source, a column and values"),
        ("__import__('os')", "cannot be read"),
    ],
)
def test_a_constraint_that_cannot_be_read_is_one_sentence(text: Any, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        Constraints.of([text])
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_constraints_are_a_list() -> None:
    with pytest.raises(OptionError, match="constraints must be a list, got str"):
        Constraints.of("start <= end")


@pytest.mark.parametrize(
    ("constraints", "says"),
    [
        (["start < end", "end < start"], "contradict each other"),
        (["start < end", "end <= start"], "contradict each other"),
        (["sex != f", "sex != m"], "contradict each other: no row can meet them"),
        (["not (sex=m and pregnant=no)", "not (sex=m and pregnant=yes)", "sex=m"], "contradict each other"),
        (["age < 18"], "no value of column 'age' meets 'age < 18'"),
        (["age > 30 and age < 20"], "contradicts the columns: no row can meet it"),
        (["sex = x"], "'x' is not a value of column 'sex'"),
        (["sex < 3"], "'sex < 3' compares column 'sex', which holds categories, by size"),
        (["job < 3"], "'job < 3' compares column 'job', which holds categories, by size"),
        (["job = a", "job != a"], "contradict each other: no row can meet them"),
        (["job in (a, b)", "job in (c, d)"], "contradict each other"),
        (["hours > 30", "hours < 20"], "contradict each other"),
        (["hours > 3 and hours < 4"], "contradicts the columns: no row can meet it"),
        (["paid > 0.25", "paid <= 0.25"], "contradict each other"),
        (["start > 2021-01-01", "start < 2020-01-01"], "contradict each other"),
        (["hours = many"], "column 'hours' holds numbers, and 'many' is not one"),
        (["start > 12"], "column 'start' holds dates, and '12' is not one"),
        (["start < age"], "must compare two columns of numbers or of dates, not date and number"),
        (["sex < age"], "not categories and number"),
        (["gender = f"], "names a column 'gender' that the table lacks"),
        (["sex -> pregnant {f: 'yes'}"], "'sex -> pregnant' has no value for 'm'"),
        (["sex -> pregnant {f: 'yes', m: maybe}"], "gives 'maybe', which is not a value of column 'pregnant'"),
        (["sex -> pregnant {f: 'yes', m: 'no', x: 'no'}"], "maps 'x', which is not a value of column 'sex'"),
        (["sex -> age {f: 30, m: 120}"], "gives '120', which is not a value of column 'age'"),
        (["sex -> job {f: a, m: b}", "pregnant -> job {yes: a, no: b}"], "two constraints compute column 'job'"),
        (["sex -> job {f: a, m: b}", "job -> sex {a: f, b: m}"], "are computed from each other"),
        (["sex -> pregnant {f: 'yes', m: 'no'}", "pregnant = 'no' and sex = f"], "no row can meet"),
    ],
)
def test_contradictions_are_refused_before_anything_is_charged(constraints: list[str], says: str) -> None:
    with pytest.raises((OptionError, ColumnError)) as caught:
        check(*constraints)
    assert says in caught.value.message


def test_ranges_that_make_an_order_impossible_are_refused() -> None:
    frame = pl.DataFrame({"a": [5], "b": [5], "c": [5]})

    def described(a: Any, b: Any, c: Any = (0, 9)) -> Any:
        columns = [sf.Column(name=name, bounds=ends) for name, ends in (("a", a), ("b", b), ("c", c))]
        return Description.of(frame, sf.Schema(columns)).described

    with pytest.raises(OptionError, match="'a < b' contradicts the ranges"):
        Constraints.of(["a < b"]).check(described((5, 9), (0, 5)))
    Constraints.of(["a <= b"]).check(described((5, 9), (0, 5)))
    with pytest.raises(OptionError, match="contradicts the ranges"):
        Constraints.of(["a < b", "b < c"]).check(described((0, 1), (0, 1), (0, 1)))
    Constraints.of(["a < b", "b < c"]).check(described((0, 2), (0, 2), (0, 2)))
    with pytest.raises(OptionError, match="contradicts the ranges"):
        Constraints.of(["a < b", "b <= 3", "a > 2"]).check(described((0, 9), (0, 9)))


def test_a_computed_column_is_not_the_target() -> None:
    with pytest.raises(OptionError, match="column 'job' is computed, so it cannot be the target"):
        check("sex -> job {f: a, m: b}", target="job")


def test_what_fits_is_accepted() -> None:
    check("start <= end", "not (sex=m and pregnant=yes)", "age >= 21", "sex -> job {f: a, m: b}", "job is not missing")
    check(
        "job = a or job = b", "job != a", "hours > 30", "hours < 32 and hours != 31.5", "hours is missing or hours > 0"
    )
    check("paid > 0.25", "paid < 0.26", "start > 2020-01-01 and start < 2020-01-03", "hours > 1e300 or hours < 5")
    check("hours > 100", "start > end", "start < 1990-01-01", "end > 1980-01-01")


def test_a_value_that_was_not_bought_is_no_value_of_any_row() -> None:
    """A rare value is lost in the noise: a structural zero that names it holds, and what was paid for is not lost."""
    frame = pl.DataFrame({"sex": ["f", "m"] * 300 + ["x"], "job": ["a", "b"] * 300 + ["z"]})
    release = sf.synthesize(frame, 5, rows=200, constraints=["not (sex = x and job = z)", "sex != y"], insecure_seed=1)
    assert set(release.table.frame["sex"].drop_nulls()) == {"f", "m"}
    assert release.sample(50).shape == (50, 2)
    with pytest.raises(OptionError, match="'x' is not a value of column 'sex'"):
        release.sample(5, given={"sex": "x"})
    with pytest.raises(OptionError, match="'x' is not a value of column 'sex'; epsilon 5 was spent") as caught:
        sf.synthesize(frame, 5, rows=5, given={"sex": "x"}, insecure_seed=1)
    assert (caught.value.hint or "").endswith("a column that is declared is checked before anything is spent")


def test_the_note_names_constraints_that_leave_only_missing_values() -> None:
    frame = pl.DataFrame({"age": [30, 50, None] * 200, "sex": ["f", "m", "f"] * 200})
    release = sf.synthesize(frame, 5, rows=100, constraints=["age > 5000"], method="independent", insecure_seed=1)
    assert release.table.frame["age"].null_count() == 100
    assert "no value that was bought meets the constraints" in release.note


OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(list(OPERATORS)), st.sampled_from(["c", "1", "2"])),
        min_size=1, max_size=4,
    ),
    st.booleans(),
)  # fmt: skip
def test_constraints_are_refused_exactly_if_no_row_meets_them(parts: list[tuple[str, str, str]], both: bool) -> None:
    """Brute force over all rows of three columns with the values 0, 1 and 2."""
    texts = [f"{left} {sign} {right}" for left, sign, right in parts] + ["b < a"] * both
    frame = pl.DataFrame({"a": [0], "b": [0], "c": [0]})
    schema = sf.Schema(sf.Column(name=name, bounds=(0, 2)) for name in "abc")
    rows = [dict(zip("abc", row, strict=True)) for row in itertools.product(range(3), repeat=3)]
    fitting = [
        row
        for row in rows
        if all(OPERATORS[sign](row[left], row[right] if right == "c" else int(right)) for left, sign, right in parts)
        and (not both or row["b"] < row["a"])
    ]
    rules = Constraints.of(texts)
    domain = small(a=3, b=3, c=3)
    codes = {name: np.array([row[name] for row in rows]) for name in "abc"}
    assert [row for row, met in zip(rows, rules.met(domain, codes), strict=True) if met] == fitting
    if fitting:
        rules.check(Description.of(frame, schema).described)
    else:
        with pytest.raises(OptionError):
            rules.check(Description.of(frame, schema).described)


def test_a_missing_value_meets_a_constraint_but_not_what_is_given() -> None:
    domain = small(a=2, b=2)
    codes = {"a": np.array([2, 2, 1]), "b": np.array([0, 2, 0])}
    assert Constraints.of(["a < b", "a > 0"]).met(domain, codes).tolist() == [True, True, False]
    assert evaluate(given_condition("a>0"), domain.by_name, codes).tolist() == [False, False, True]
    assert evaluate(given_condition("not (a>0)"), domain.by_name, codes).tolist() == [True, True, False]


METHODS: list[Synthesizer] = [Independent(), LabelledTree(pool=2000)]


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_every_row_meets_all_constraints_with_every_method(method: Synthesizer) -> None:
    rules = Constraints.of(
        ["start <= end", "not (sex=m and pregnant=yes)", "age >= 21", "sex -> job {f: a, m: b}", "sex is not missing"]
    )
    description = Description.of(FRAME, SCHEMA)
    rules.check(description.described)
    learned = description.without(rules.computed)
    paid = {**shares(learned.described, 1.0), **method.shares(learned.axes, None)}
    sums = NoisySums(paid, 2.0, Source(insecure_seed=1))
    codings = learned.estimate(selections(learned.described, 5.0, 1e-5), sums, Source(insecure_seed=2))
    domain = rules.domain(codings, None, description.described, FRAME.columns)
    assert "job" not in [one.name for one in domain.axes]
    model = method.learn(domain.encode(learned.columns), sums, np.random.default_rng(0))
    codes = draw_rows(model, domain, 500, np.random.default_rng(0), constraints=rules, given={"age": "25..60"})
    rows = domain.decode(codes)
    assert rows.columns == FRAME.columns
    assert len(rows) == 500
    assert rows.filter(pl.col("start") > pl.col("end")).is_empty()
    assert rows.filter((pl.col("sex") == "m") & (pl.col("pregnant") == "yes")).is_empty()
    assert rows["age"].is_between(25, 60).all()
    assert set(rows.select("sex", "job").unique().rows()) <= {("f", "a"), ("m", "b")}


def test_drawing_again_keeps_the_distribution_of_the_model() -> None:
    """Uniform rows given a <= b: all pairs equally often. False alarms: 6 cells, 6 deviations, below 1e-7."""
    domain, rows = small(a=3, b=3), 60_000
    codes = draw_rows(
        Uniform(domain.axes), domain, rows, np.random.default_rng(0),
        constraints=Constraints.of(["a <= b", "a is not missing", "b is not missing"]),
    )  # fmt: skip
    counts = np.bincount(codes[0] * 3 + codes[1], minlength=9).reshape(3, 3)
    assert (np.tril(counts, -1) == 0).all()
    expected = rows / 6
    assert (np.abs(counts[np.triu_indices(3)] - expected) < 6 * np.sqrt(expected)).all()


def test_a_rare_condition_is_met_and_an_impossible_one_is_one_sentence() -> None:
    domain = small(a=9, b=9, c=9)
    rare = draw_rows(Uniform(domain.axes), domain, 20, np.random.default_rng(0), given="a=1,b=2,c=3")
    assert [one.tolist() for one in rare] == [[1] * 20, [2] * 20, [3] * 20]

    class Never(Uniform):
        def sample(self, rows: int, rng: np.random.Generator) -> list[Any]:
            return [np.zeros(rows, dtype=np.int64) for _ in self.axes]

    with pytest.raises(InputError, match=r"only 0 of 1,.* drawn rows meet what is given, but 5 are wanted"):
        draw_rows(Never(domain.axes), domain, 5, np.random.default_rng(0), given={"a": 1})
    assert [len(one) for one in draw_rows(Never(domain.axes), domain, 0, np.random.default_rng(0), given="a=1")] == [
        0
    ] * 3


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ("sex=x", "'x' is not a value of column 'sex'"),
        ({"age": 120}, "'120' is not a value of column 'age'"),
        ({"age": "100.."}, "no value of column 'age' meets 'age >= 100'"),
        ("height=3", "names a column 'height' that the table lacks"),
        ({"age": (1, 2, 3)}, "must have two ends, got 3"),
        ({"age": (None, None)}, "has no end"),
        ("age=..", "has no end"),
        ({}, "'given' is empty"),
        (3, "'given' must be a text or map columns to values"),
        ("sex=f,sex=m", "contradict"),
        ("age=young", "'young' is not a value of column 'age'"),
        ({"sex": "f' or 1=1"}, "is not a value of column 'sex'"),
    ],
)
def test_what_is_given_outside_the_domain_is_one_sentence(given_: Any, says: str) -> None:
    codings = [one.coding() for one in Description.of(FRAME.select("sex", "pregnant", "age"), SCHEMA).described]
    domain = Domain(tuple(codings))
    with pytest.raises(SfumatoError) as caught:
        draw_rows(Uniform(domain.axes), domain, 5, np.random.default_rng(0), given=given_)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("sex=f, age=30..39", {"sex": ["f"], "age": list(range(30, 40))}),
        ({"sex": ["m", "f"], "age": (98, None)}, {"sex": ["f", "m"], "age": [98, 99]}),
        ("age < 20 or age > 98", {"age": [18, 19, 99]}),
        ({"sex": None}, {"sex": [None]}),
        ("pregnant in (yes, 'no'), sex = 'm'", {"pregnant": ["no", "yes"], "sex": ["m"]}),
    ],
)
def test_rows_are_drawn_given_values(given_: Any, wanted: dict[str, list[Any]]) -> None:
    codings = [one.coding() for one in Description.of(FRAME.select("sex", "pregnant", "age"), SCHEMA).described]
    domain = Domain(tuple(codings))
    rows = domain.decode(draw_rows(Uniform(domain.axes), domain, 400, np.random.default_rng(0), given=given_))
    assert len(rows) == 400
    for name, values in wanted.items():
        assert sorted(rows[name].unique(), key=str) == sorted(values, key=str)


def test_constraints_survive_the_file_of_a_schema() -> None:
    schema = sf.Schema(SCHEMA.columns, constraints=["start <= end", "sex -> job {f: a, m: b}"])
    again = sf.Schema.from_toml(schema.to_toml())
    assert again == schema
    assert Constraints.of(again.constraints).computed == ("job",)
    assert sf.Table(FRAME, schema).schema.constraints == schema.constraints
    assert sf.Table.of(FRAME, schema=schema, target="sex").schema.constraints == schema.constraints


def test_a_released_generator_keeps_constraints_weights_and_types(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None, 3] * 200, dtype="Int64"),
            "kind": pd.Categorical(["a", "b", "c"] * 200),
            "sex": ["f", "m", "f"] * 200,
            "weight": [10, 20, 200] * 200,
            "job": ["x", "y", "x"] * 200,
        }
    )
    schema = sf.Schema(
        [sf.Column(name="sex", domain=("f", "m")), sf.Column(name="weight", bounds=(0, 100))],
        constraints=["sex -> job {f: x, m: y}"],
    )
    release = sf.synthesize(
        frame, 20.0, schema=schema, method=LabelledTree(pool=1000), rows=60, weights="weight",
        constraints=["n < 3", "sex is not missing"], ledger=False,
    )  # fmt: skip
    rows = release.table.frame
    assert list(rows.columns) == ["n", "kind", "sex", "job"]
    assert str(rows["n"].dtype) == "Int64"
    assert str(rows["kind"].dtype) == "category"
    assert (rows["n"].dropna() < 3).all()
    assert {*zip(rows["sex"], rows["job"], strict=True)} <= {("f", "x"), ("m", "y")}
    assert "domain of job" not in [one.name for one in release.plan.purchases]
    sf.save(release, tmp_path / "out")
    assert not [one.claim for one in sf.verify(tmp_path / "out").claims if one.held is False]
    again = sf.load(tmp_path / "out").sample(20, given={"sex": "m"})
    assert again["job"].to_list() == ["y"] * 20


def test_a_forged_lookup_is_found(tmp_path: Path) -> None:
    frame = pl.DataFrame({"sex": ["f", "m"] * 100, "job": ["x", "y"] * 100})
    schema = sf.Schema([sf.Column(name="sex", domain=("f", "m"))], constraints=["sex -> job {f: x, m: y}"])
    release = sf.synthesize(frame, 5.0, schema=schema, method=Independent(), rows=30, ledger=False)
    sf.save(release, tmp_path / "out")
    path = tmp_path / "out" / "generator.json"
    plain = json.loads(path.read_text())
    plain["domain"]["computed"][0]["lookup"] = [1, 0, 2]
    path.write_text(json.dumps(plain))
    failed = {one.claim: one.measured for one in sf.verify(tmp_path / "out").claims if one.held is False}
    assert "job" in str(failed["its columns are as declared, or were bought"])


def test_a_rewritten_row_that_breaks_a_constraint_is_found(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [0, 1, 2] * 100, "b": [1, 2, 2] * 100})
    schema = sf.Schema([sf.Column(name=name, bounds=(0, 2)) for name in "ab"], constraints=["a <= b"])
    release = sf.synthesize(frame, 5.0, schema=schema, method=Independent(), rows=30, ledger=False)
    sf.save(release, tmp_path / "out")
    data = next((tmp_path / "out").glob("table.*"))
    table = sf.read(data).to_polars()
    sf.write(table.with_columns(a=pl.lit(2), b=pl.lit(0)), data)
    failed = [one for one in sf.verify(tmp_path / "out").claims if one.held is False]
    assert "a row does not meet the constraints" in [one.measured for one in failed]


@pytest.mark.parametrize("weights", ["weight", "sex"])
def test_weights_need_a_declared_bound(weights: str) -> None:
    frame = pl.DataFrame({"weight": [1.0, 2.0], "sex": ["f", "m"]})
    with pytest.raises(SchemaError, match=f"the weights '{weights}' need a declared upper bound above 0"):
        sf.synthesize(frame, 1.0, weights=weights, ledger=False)
    with pytest.raises(ColumnError, match="there is no column 'wight' of weights"):
        sf.synthesize(frame, 1.0, weights="wight", ledger=False)


@pytest.mark.parametrize("target", [None, "y"])
def test_missing_and_constant_columns_come_back_so(target: str | None) -> None:
    rows = 300
    frame = pl.DataFrame(
        {"t": [None] * rows, "x": [None] * rows, "z": [None] * rows, "k": [7] * rows, "y": ["a", "b", "b"] * 100},
        schema={"t": pl.String, "x": pl.Float64, "z": pl.Null, "k": pl.Int8, "y": pl.Categorical},
    )
    method = LabelledTree(pool=500)
    release = sf.synthesize(frame, 30.0, method=method, target=target, rows=20, ledger=False, insecure_seed=1)
    drawn = release.table.frame
    assert drawn.schema == frame.schema
    assert drawn["t"].null_count() == drawn["z"].null_count() == 20
    assert drawn["x"].null_count() >= 15  # of a number, other values have noisy counts too
    assert set(drawn["k"].drop_nulls()) <= {7}
    assert "nearly all values of t, " in release.note


def test_rows_of_a_release_meet_what_is_given_and_its_recipe_says_so() -> None:
    frame = pl.DataFrame({"a": [0, 1, 2] * 100, "b": [1, 2, 2] * 100})
    schema = sf.Schema([sf.Column(name=name, bounds=(0, 2)) for name in "ab"])
    release = sf.synthesize(frame, 5.0, schema=schema, method=Independent(), rows=30, given={"a": (1, 2)}, ledger=False)
    assert release.table.frame["a"].min() >= 1
    assert release.recipe.options["given"] == "a >= 1 and a <= 2"
    with pytest.raises(OptionError, match="no value of column 'a' meets 'a >= 3'"):
        sf.synthesize(frame, 5.0, schema=schema, given="a >= 3", ledger=False)


def test_an_unknown_column_is_answered_with_the_columns_whether_declared_or_not() -> None:
    frame = pl.DataFrame({"sex": ["f", "m"] * 50, "age": [30, 40] * 50})
    with pytest.raises(sf.errors.ColumnError, match="known: sex, age"):
        sf.synthesize(frame, epsilon=1, method="independent", given={"zodiac": "leo"})
