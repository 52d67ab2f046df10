"""Guided anonymization: every cut is the best that keeps the guarantees, found here by trying them all."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sfumato as sf
from sfumato.anonymizers.guided import guided as module
from sfumato.anonymizers.guided.guidance import Guidance, guidance
from sfumato.anonymizers.guided.guided import GuidedTree, guided
from sfumato.anonymizers.problem import APART, Problem
from sfumato.engines import reduce
from tests.anonymizers.problems import CELLS, Case, case, cases, keeps, tuple_of_row, whole_table_keeps
from tests.effort import effort

LABELS = {
    "two classes": st.sampled_from(["no", "yes"]),
    "a number": st.sampled_from([0.0, 1.5, 2.0, 10.0]),
    "three classes": st.sampled_from(["a", "b", "c"]),
}


def impurity(labels: list[Any], entropy: bool = False) -> float:
    """Records times Gini impurity or entropy of classes, or times the variance of numbers."""
    n = len(labels)
    if labels and isinstance(labels[0], float):
        mean = sum(labels) / n
        return sum((label - mean) ** 2 for label in labels)
    shares = [labels.count(label) / n for label in sorted(set(labels))]
    return n * (-sum(p * math.log(p) for p in shares) if entropy else 1 - sum(p * p for p in shares))


def sides(tree: GuidedTree, leaf: NDArray[Any]) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """The tuples of each node, and of its left and right child."""
    under = defaultdict(list)
    for index, node in enumerate(leaf.tolist()):
        under[node].append(index)
    for node in range(len(tree.nodes) - 1, -1, -1):
        by, left, right = tree.nodes[node, :3].tolist()
        if by >= 0:
            under[node] = sorted(under[left] + under[right])
        yield under[node], under[left] if by >= 0 else [], under[right] if by >= 0 else []


def cuts(problem: Problem, members: list[int], held: list[list[Any]] | None) -> Iterator[set[int]]:
    """The left sides of the cuts of some tuples: thresholds of an ordered column, subsets of a category.

    Of a category all subsets of its values, or of the children of the lowest node that covers them; or, if the
    labels of each tuple are told, only those that put larger shares of "yes" on one side.
    """
    for column, line in enumerate(problem.lines):
        position = {index: int(problem.positions[index, column]) for index in members}
        values = sorted(set(position.values()))
        unit = {one: one for one in values}
        for level in reversed(range(len(line.nodes))):
            unit = {one: int(line.nodes[level, one]) for one in values}
            if len(set(unit.values())) > 1:
                break
        units = sorted(set(unit.values()))
        if held is not None and not line.ordered:
            labels = {one: [y for i in members if unit[position[i]] == one for y in held[i]] for one in units}
            units.sort(key=lambda one: Fraction(labels[one].count("yes"), len(labels[one])))
        if held is not None or line.ordered:
            chosen: Any = (set(units[:many]) for many in range(1, len(units)))
        else:
            chosen = (set(some) for many in range(1, len(units)) for some in itertools.combinations(units, many))
        for some in chosen:
            yield {index for index in members if unit[position[index]] in some}


def both_keep(one: Case, members: list[int], left: set[int]) -> bool:
    """Whether both sides keep every guarantee; all other rows are left as they are, and do not count."""
    from sfumato.anonymizers.class_kernels import keeps as kernel_keeps
    from sfumato.anonymizers.limits import limits

    asked = limits(one.problem.counts, one.problem.guarantees)
    for side in (left, set(members) - left):
        histogram = []
        for counts in one.problem.counts:
            if counts.attribute is not None:
                held = np.zeros(len(counts.total), dtype=np.int64)
                for index in side:
                    entries = slice(counts.start[index], counts.start[index + 1])
                    held[counts.value[entries]] += counts.count[entries]
                histogram.append(held)
        whole = np.concatenate([*histogram, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        size = int(one.problem.records[sorted(side)].sum())
        if not kernel_keeps(whole, size, asked, np.zeros_like(whole)):
            return False
    return True


def guided_case(one: Case, labels: list[Any], **options: Any) -> tuple[Guidance, GuidedTree, NDArray[Any]]:
    frame = one.frame.with_columns(pl.Series("label", labels))
    task = "regress" if isinstance(labels[0], float) else "classify"
    table = sf.Table(frame, sf.Schema(domain.column for domain in one.problem.domains))
    guides = guidance(one.problem, table, labels="label", task=task)
    return guides, *guided(one.problem, guides, **options)


def check_every_cut(one: Case, labels: list[Any], entropy: bool, all_subsets: bool) -> None:
    _, tree, leaf = guided_case(one, labels, refine=False, entropy=entropy)
    of_row = tuple_of_row(one)
    variance = float(np.var(labels)) if isinstance(labels[0], float) else 1.0
    held = [[label for label, row in zip(labels, of_row, strict=True) if row == index] for index in range(len(leaf))]

    def impure(members: Any) -> float:
        return impurity([label for index in members for label in held[index]], entropy) / variance

    for members, left, right in sides(tree, leaf):
        gains = [
            impure(members) - impure(some) - impure(set(members) - some)
            for some in cuts(one.problem, members, None if all_subsets else held)
            if both_keep(one, members, some)
        ]
        best = max(gains, default=0.0)
        if left:
            assert impure(members) - impure(left) - impure(right) == pytest.approx(best, abs=1e-7)
            assert both_keep(one, members, set(left))
        else:
            assert best <= 1e-7, "a leaf is what no cut improves"


@pytest.mark.parametrize("entropy", [False, True])
@given(one=cases(), data=st.data())
def test_every_cut_is_the_best_that_keeps_everything(entropy: bool, one: Case, data: st.DataObject) -> None:
    labels = data.draw(st.lists(LABELS["two classes"], min_size=len(one.frame), max_size=len(one.frame)))
    if whole_table_keeps(one) and len(set(labels)) > 1:
        check_every_cut(one, labels, entropy, all_subsets=False)


@pytest.mark.parametrize(("kind", "entropy"), [("two classes", False), ("two classes", True), ("a number", False)])
@settings(max_examples=30)
@given(rows=st.lists(CELLS, min_size=2, max_size=40), data=st.data())
def test_no_subset_of_a_category_is_better_than_the_one_that_is_found(
    kind: str, entropy: bool, rows: list[Any], data: st.DataObject
) -> None:
    labels = data.draw(st.lists(LABELS[kind], min_size=len(rows), max_size=len(rows)))
    if len(set(labels)) > 1:
        check_every_cut(case(rows, ["number", "tree", "plain"], [], "k=1"), labels, entropy, all_subsets=True)


def assert_plain_is_compiled(grow: Any, positions: NDArray[Any], places: NDArray[Any]) -> None:
    """Assert that the plain kernels grow the tree of the compiled ones, and send the same tuples to each leaf."""
    tree, leaf = grow()
    found = tree._found(positions, places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", -1)
        compiled, compiled_leaf = grow()
        assert compiled._found(positions, places).tolist() == found.tolist()
    assert tree.nodes.tolist() == compiled.nodes.tolist()
    assert tree.threshold.tolist() == compiled.threshold.tolist()
    assert tree.pool.tolist() == compiled.pool.tolist()
    assert leaf.tolist() == compiled_leaf.tolist()


@settings(max_examples=effort(50, 400))
@given(
    one=cases(),
    data=st.data(),
    kind=st.sampled_from(sorted(LABELS)),
    entropy=st.booleans(),
    refine=st.booleans(),
    look_ahead=st.sampled_from([0, 64]),
)
def test_the_plain_kernels_grow_the_tree_of_the_compiled_ones(
    one: Case, data: st.DataObject, kind: str, entropy: bool, refine: bool, look_ahead: int
) -> None:
    labels = data.draw(st.lists(LABELS[kind], min_size=len(one.frame), max_size=len(one.frame)))
    if whole_table_keeps(one) and len(set(labels)) > 1:
        draw = np.random.default_rng(0)
        shape = (len(one.problem.domains), 50)
        assert_plain_is_compiled(
            lambda: guided_case(one, labels, entropy=entropy, refine=refine, look_ahead=look_ahead)[1:],
            draw.integers(-1, 6, shape),
            np.where(draw.random(shape) < 0.1, -1.0, draw.random(shape)),
        )


@pytest.mark.parametrize("asked", ["k=4", "k=4,l=2,t=0.5"])
@pytest.mark.parametrize("look_ahead", [0, 10_000])
def test_long_lines_and_many_categories_grow_the_same_tree_too(asked: str, look_ahead: int) -> None:
    draw = np.random.default_rng(3)
    rows = 200 if look_ahead else 1500
    frame = pl.DataFrame(
        {
            "far": draw.integers(0, 10**6, rows),
            "near": draw.integers(0, 30, rows),
            "name": [f"n{value}" for value in draw.integers(0, 80, rows)],
            "disease": draw.choice(list("uvw"), rows),
        }
    ).with_columns(label=(pl.col("near") + pl.col("far") / 10**5 + draw.normal(0, 5, rows)) > 20)
    quasi = ["far", "near", "name"]
    table = sf.Table(frame)
    problem = Problem.of(reduce(table, [*quasi, "disease"]), quasi, ["disease"], sf.Guarantee.parse(asked))
    guides = guidance(problem, table, labels="label")
    shape = (3, 200)
    assert_plain_is_compiled(
        lambda: guided(problem, guides, look_ahead=look_ahead), draw.integers(-1, 90, shape), draw.random(shape)
    )


@given(one=cases(), data=st.data(), refine=st.booleans())
def test_leaves_keep_every_guarantee(one: Case, data: st.DataObject, refine: bool) -> None:
    labels = data.draw(st.lists(LABELS["three classes"], min_size=len(one.frame), max_size=len(one.frame)))
    if not whole_table_keeps(one) or len(set(labels)) < 2:
        return
    _, tree, leaf = guided_case(one, labels, refine=refine)
    assert keeps(one, leaf[tuple_of_row(one)])
    # A tuple finds its own leaf again.
    assert tree.leaves(one.problem.tuples).tolist() == leaf.tolist()


@given(one=cases(), data=st.data())
def test_looking_ahead_never_tells_less_of_the_label(one: Case, data: st.DataObject) -> None:
    labels = data.draw(st.lists(LABELS["two classes"], min_size=len(one.frame), max_size=len(one.frame)))
    if not whole_table_keeps(one) or len(set(labels)) < 2:
        return
    of_row, left = tuple_of_row(one), []
    for look_ahead in (0, 1000):
        _, _, leaf = guided_case(one, labels, refine=False, look_ahead=look_ahead)
        assert keeps(one, leaf[of_row])
        held = defaultdict(list)
        for label, node in zip(labels, leaf[of_row].tolist(), strict=True):
            held[node].append(label)
        left.append(sum(map(impurity, held.values())))
    assert left[1] <= left[0] + 1e-7


def table(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame(columns)


def test_refining_makes_only_more_classes_of_the_same_labels() -> None:
    people = table(age=list(range(40)), buys=["no"] * 20 + ["yes"] * 20)
    plain = sf.Guided("k=5", qi=["age"], labels="buys", refine=False).fit(people)
    fine = sf.Guided("k=5", qi=["age"], labels="buys").fit(people)
    assert plain.details() == {"leaves": 2, "agreement": 1.0}
    assert fine.details() == {"leaves": 8, "agreement": 1.0}


def test_the_target_guides_if_nothing_else_is_given() -> None:
    people = table(age=[20, 22, 24, 40, 60, 61], buys=["n", "n", "y", "y", "n", "n"])
    whole = sf.Table.of(people, qi=["age"], target="buys")
    release = sf.anonymize(whole, "k=2", method="guided")
    assert release.aligned.frame["age"].to_list() == [20, 20, 24, 24, 60, 60]
    assert release.details == {"leaves": 3, "agreement": 1.0}
    assert release.assessment.k == 2


RNG = np.random.default_rng(0)
CROWD = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 400),
        "height": RNG.normal(170, 9, 400).round(),
        "town": RNG.choice(list("abcde"), 400),
    }
)
BUYS = ((CROWD["age"] > 50) ^ CROWD["town"].isin(["a", "c"])).map({True: "yes", False: "no"}).to_numpy()
NUMBERS = CROWD[["age", "height"]]


def agreement(**how: Any) -> float:
    method = sf.Guided("k=10", qi=list(CROWD.columns), **how).fit(CROWD)
    assert sf.assess(method.fit_transform(CROWD), qi=list(CROWD.columns)).k >= 10
    return method.details()["agreement"]


def test_any_kind_of_model_guides() -> None:
    import torch

    forest = DecisionTreeClassifier(max_depth=4).fit(NUMBERS, BUYS)

    class OnlyAnswers:
        """A service that tells no probabilities."""

        def predict(self, frame: pd.DataFrame) -> NDArray[Any]:
            return (frame["age"] > 50).to_numpy()

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(2, track_running_stats=False), torch.nn.Linear(2, 2))
    module.train()
    assert agreement(model=forest) > 0.5
    assert agreement(model=forest, soft=False) > 0.9
    assert agreement(model=OnlyAnswers()) == 1.0
    assert agreement(model=lambda frame: frame["town"] == "b") == 1.0
    assert agreement(labels=BUYS) > 0.95
    assert agreement(labels=pl.Series(BUYS)) > 0.95
    assert agreement(labels=pd.Series(BUYS)) > 0.95
    assert agreement(labels=CROWD["height"].to_numpy(), task="regress") > 0.9
    numbers = sf.Guided("k=10", qi=["age", "height"], model=module).fit(NUMBERS)
    assert 0.5 <= numbers.details()["agreement"] <= 1.0
    assert module.training, "the module is left as it was"
    regression = RandomForestRegressor(5, random_state=0).fit(NUMBERS, NUMBERS["height"])
    assert agreement(model=regression) > 0.9


def test_a_named_model_learns_the_target_from_the_other_columns() -> None:
    people = sf.Table.of(CROWD.assign(buys=BUYS), qi=list(CROWD.columns), target="buys")
    release = sf.anonymize(people, "k=10", method=sf.Guided(model="tree"))
    assert release.assessment.k >= 10
    assert release.parameters["model"] == "tree"


@pytest.mark.parametrize("how", [{"model": "tree"}, {"cut_by": "all"}])
def test_columns_of_free_text_are_not_used_and_named(how: dict[str, Any]) -> None:
    crowd = CROWD.assign(buys=BUYS, note=[f"note {row}" for row in range(len(CROWD))])
    schema = sf.Schema([sf.Column(name="note", kind="text", role="kept")])
    people = sf.Table.of(crowd, schema=schema, qi=list(CROWD.columns), target="buys")
    release = sf.anonymize(people, "k=10", method=sf.Guided(**how), keep=["note"])
    assert (release.details["unused"], release.details["features"]) == (["note"], len(CROWD.columns) + 1)
    plain = sf.Table.of(crowd.drop(columns="note"), qi=list(CROWD.columns), target="buys")
    assert "unused" not in sf.anonymize(plain, "k=10", method=sf.Guided(**how)).details


def test_parameters_never_show_rows() -> None:
    release = sf.anonymize(CROWD, "k=10", method=sf.Guided(labels=BUYS), qi=list(CROWD.columns))
    assert release.parameters["labels"] == "ndarray"


def test_true_labels_with_entropy_are_the_workload_aware_method() -> None:
    assert agreement(labels=BUYS, criterion="entropy") > 0.95


def test_a_number_guides_by_its_variance() -> None:
    people = table(age=[1, 2, 3, 4, 5, 6], cost=[1.0, 1.5, 9.0, 9.5, 9.0, 40.0])
    made = sf.Guided("k=2", qi=["age"], labels="cost", output="interval", refine=False).fit_transform(people)
    assert made["age"].to_list() == ["1-2"] * 2 + ["3-4"] * 2 + ["5-6"] * 2


def test_missing_numbers_lie_behind_all_others() -> None:
    people = table(age=[1, 2, None, None], buys=["n", "n", "y", "y"])
    method = sf.Guided("k=2", qi=["age"], labels="buys", new_rows="route").fit(people)
    assert method.published_[0].to_list() == [1, None]
    assert method.problem_.lines[0].place.tolist()[-1] == APART
    assert method.transform(table(age=[None, 100, -3]))["age"].to_list() == [None, 1, 1]


def test_new_rows_go_to_a_leaf_and_unknown_categories_to_the_larger_side() -> None:
    people = table(town=["a", "a", "b", "b", "b"], age=[20, 30, 20, 60, 30], buys=["n", "n", "y", "y", "y"])
    method = sf.Guided("k=2", qi=["town", "age"], labels="buys", refine=False, new_rows="route").fit(people)
    new = method.transform(table(town=["a", "b", "zzz", None], age=[99, 0, 25, None]))
    assert new["town"].to_list() == ["a", "b", "b", "b"]


def test_a_number_between_two_others_goes_to_the_nearer() -> None:
    people = table(age=[20, 30, 50, 60], buys=["n", "n", "y", "y"])
    method = sf.Guided("k=2", qi=["age"], labels="buys", new_rows="route").fit(people)
    assert method.transform(table(age=[39, 41]))["age"].to_list() == [20, 50]


def test_a_medoid_is_a_real_row_with_the_frequent_label() -> None:
    people = table(age=[20, 21, 22, 23, 24], height=[5, 6, 8, 6, 5], buys=["y", "n", "y", "n", "y"])
    made = sf.Guided("k=5", qi=["age", "height"], labels="buys", output="medoid").fit_transform(people)
    assert made.row(0)[:2] == (22, 8), "the others that buy are farther from the median, 22 and 6"
    assert sf.Mondrian("k=5", qi=["age", "height"], output="medoid").fit_transform(people).row(0)[:2] == (21, 6)


def test_children_of_a_node_go_to_either_side() -> None:
    tree = sf.Hierarchy.tree([("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "z"), ("f", "z")])
    column = sf.Column(name="town", role="quasi", kind="category", hierarchy=tree)
    people = table(town=list("abcdef"), buys=list("yynnyy"))
    made = sf.anonymize(
        sf.Table(people, sf.Schema([column])), "k=1",
        method=sf.Guided(labels="buys", refine=False, output="interval"),
    )  # fmt: skip
    assert made.aligned.frame["town"].to_list() == ["{x, z}"] * 2 + ["y"] * 2 + ["{x, z}"] * 2


def test_with_all_columns_equal_rows_may_be_published_differently_and_k_holds() -> None:
    people = CROWD.assign(buys=BUYS)
    method = sf.Guided(labels="buys", cut_by="all")
    release = sf.anonymize(people, "k=20", method=method, qi=["age", "height"])
    frame = release.aligned.frame
    assert release.assessment.k >= 20
    pd.testing.assert_frame_equal(frame[["town", "buys"]], people[["town", "buys"]])
    fitted = sf.Guided("k=20", qi=["age", "height"], labels="buys", cut_by="all").fit(people)
    pd.testing.assert_frame_equal(fitted.transform(people), frame)
    with pytest.raises(sf.errors.ColumnError, match="the table lacks the column 'town', by which rows were told apart"):
        fitted.transform(people[["age", "height"]])


@given(
    grown=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), min_size=2, max_size=40),
    released=st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abcd"), st.sampled_from("xyz")), min_size=6),
    k=st.integers(1, 6),
    l=st.integers(1, 2),
)
def test_a_tree_grown_on_other_rows_still_gives_what_was_asked(
    grown: list[Any], released: list[Any], k: int, l: int
) -> None:
    other = pl.DataFrame([(*row, index % 2) for index, row in enumerate(grown)], schema=["n", "c", "y"], orient="row")
    rows = pl.DataFrame(released, schema=["n", "c", "sick"], orient="row")
    method = sf.Guided(grown_on=other, labels="y")
    if rows["sick"].n_unique() < l:
        return
    release = sf.anonymize(rows, f"k={k},l={l}", method=method, qi=["n", "c"], sensitive=["sick"])
    assert release.assessment.k >= k
    assert release.assessment.l >= l


def test_a_leaf_that_has_too_few_of_the_released_rows_collapses_into_its_parent() -> None:
    other = table(age=list(range(40)), buys=["n"] * 10 + ["y"] * 10 + ["n"] * 10 + ["y"] * 10)
    rows = table(age=[1, 2, 3, 12, 25, 26, 31, 32, 33])
    method = sf.Guided("k=2", qi=["age"], grown_on=other, labels="buys", refine=False, output="interval")
    made = method.fit_transform(rows)
    assert made["age"].to_list() == ["1-3"] * 3 + ["10-34"] * 6


def test_a_guide_that_is_sensitive_gets_a_warning() -> None:
    people = table(age=[20, 30, 50, 60], sick=["flu", "flu", "ulcer", "ulcer"])
    with pytest.warns(UserWarning, match="the guiding label 'sick' is sensitive.*works against l and t"):
        sf.Guided("k=2", qi=["age"], sensitive=["sick"], labels="sick").fit(people)
    with pytest.warns(UserWarning, match="'sick' is sensitive"):
        sf.Guided("k=2", qi=["age"], sensitive=["sick"], labels=[0, 0, 1, 1]).fit(people)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.Guided("k=2", qi=["age"], sensitive=["sick"], labels=[0, 1, 1, 1]).fit(people)


def failing(frame: Any) -> Any:
    raise RuntimeError("row 17: Ada, 36")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a model that fails": ({"model": failing}, "the guiding model failed with RuntimeError"),
    "a model that is not fitted": ({"model": LogisticRegression()}, "the guiding model failed with NotFittedError"),
    "a model that misses an answer": ({"model": lambda rows: [0.5, None, 1, 1]}, "a label is missing"),
    "a model without a number": ({"model": lambda rows: [0.5, np.nan, 1, 1]}, "a label is missing or infinite"),
    "too few answers": ({"model": lambda rows: [0, 1, 1]}, "there are 4 rows and 3 labels"),
    "too many labels": ({"labels": [0, 1, 1, 1, 0]}, "there are 4 rows and 5 labels"),
    "no answer": ({"model": lambda rows: None}, "one label per row"),
    "answers that are no labels": ({"model": lambda rows: np.zeros((4, 2), dtype="M8[D]")}, "labels are numbers"),
    "one class": ({"labels": [1, 1, 1, 1]}, "is the same in every row"),
    "one class in a column": ({"labels": "one"}, "is the same in every row"),
    "negative probabilities": ({"labels": [[0.5, -0.5]] * 4}, "probabilities must not be negative"),
    "no label": ({}, "nothing is given that guides"),
    "an unknown label": ({"labels": "bys"}, r"there is no column 'bys' to guide \(did you mean 'buys'"),
    "both": ({"labels": "buys", "model": failing}, "a model and labels are both given"),
    "no model": ({"model": 3}, "a guiding model has predict or is a function of a frame, got int"),
    "an unknown model": ({"model": "frest"}, r"there is no model 'frest' to guide \(did you mean 'forest'"),
    "a model without a target": ({"model": "forest"}, "the model 'forest' needs something to predict"),
    "more than there are": ({"labels": "buys", "guarantees": "k=5"}, "no grouping keeps k=5"),
    "an unknown criterion": ({"labels": "buys", "criterion": "mean"}, "criterion must be one of gini, entropy"),
    "unknown columns": ({"labels": "buys", "cut_by": "none"}, "cut_by must be one of qi, all"),
    "a strange look": ({"labels": "buys", "look_ahead": -1}, "look_ahead must be a whole number of at least 0, got -1"),
    "an unknown task": ({"labels": "buys", "task": "rank"}, "task must be one of auto"),
    "texts to regress": ({"labels": "buys", "task": "regress"}, "column 'buys' holds no numbers to regress"),
    "labels to regress": ({"labels": list("abab"), "task": "regress"}, "the labels are no numbers to regress"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(case: str) -> None:
    people = table(age=[20, 30, 50, 60], buys=["n", "n", "y", "y"], one=[1] * 4)
    options, message = BAD[case]
    with pytest.raises(sf.errors.InputError, match=message) as caught:
        sf.Guided(**{"guarantees": "k=2", "qi": ["age"]} | options).fit(people)
    assert "Ada" not in str(caught.value), "no record is shown"


def test_texts_that_name_people_are_refused() -> None:
    names = table(name=[f"person {i}" for i in range(1500)], buys=[0, 1, 1] * 500)
    with pytest.raises(sf.errors.ColumnError, match="column 'name' holds 1,500 different texts in 1,500 rows"):
        sf.Guided("k=2", qi=["name"], labels="buys").fit(names)


def test_many_classes_are_refused() -> None:
    with pytest.raises(sf.errors.InputError, match=r"has 300 classes, and at most 256 can.*task='regress'"):
        sf.Guided("k=2", qi=["x"], labels=[str(i) for i in range(300)]).fit(table(x=list(range(300))))


def test_a_model_that_needs_another_column_is_refused() -> None:
    model = LogisticRegression().fit(pd.DataFrame({"income": [1, 2]}), [0, 1])
    with pytest.raises(sf.errors.ColumnError, match="the guiding model needs the column 'income'"):
        sf.Guided("k=2", qi=["age"], model=model).fit(pd.DataFrame({"age": [1, 2]}))


def test_a_column_of_a_file_guides_where_the_file_is(tmp_path: Any) -> None:
    path = tmp_path / "people.parquet"
    sf.write(pl.from_pandas(CROWD.assign(buys=BUYS)), path)
    release = sf.anonymize(
        path, "k=10", method=sf.Guided(labels="buys"), qi=list(CROWD.columns), to=tmp_path / "release.parquet"
    )
    again = sf.anonymize(CROWD.assign(buys=BUYS), "k=10", method=sf.Guided(labels="buys"), qi=list(CROWD.columns))
    assert release.aligned.frame["age"].to_list() == again.aligned.frame["age"].to_list()
    assert release.assessment.k >= 10


def test_rows_of_another_order_are_found() -> None:
    people = sf.Table(pl.DataFrame({"age": [40, 20, 40, 30]}))
    problem = Problem.of(reduce(people, ["age"]), ["age"], [], [])
    found = guidance(problem, people, labels=["y", "n", "n", "n"])
    assert found.mass.tolist() == [[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("cut_by", ["qi", "all"])
@pytest.mark.parametrize(
    "numbers",
    [2**60 + RNG.integers(0, 40, 400), np.append(np.arange(399) * 1e-300, 1e300)],
    ids=["beyond 2**53", "closer than a float tells"],
)
def test_rows_that_were_learnt_are_transformed_as_they_were_published(numbers: NDArray[Any], cut_by: str) -> None:
    people = CROWD.assign(age=numbers)
    method = sf.Guided("k=5", qi=["age", "town"], labels=BUYS, cut_by=cut_by)
    pd.testing.assert_frame_equal(method.fit_transform(people), method.transform(people))


def test_the_label_does_not_tell_rows_apart_by_itself() -> None:
    people = CROWD.assign(buys=BUYS)
    method = sf.Guided("k=20", qi=["age"], labels="buys", cut_by="all").fit(people)
    assert [domain.name for domain in method.wide_.domains] == ["age", "height", "town"]
    assert method.transform(CROWD).shape == CROWD.shape


def test_a_model_that_changes_what_it_is_given_changes_nothing_else() -> None:
    def careless(frame: pd.DataFrame) -> NDArray[Any]:
        said = (frame["town"] == "b").to_numpy()
        frame["age"] = 0
        frame.loc[frame["height"] > 160, "height"] = -1
        return said

    people = CROWD.copy()
    made = sf.Guided("k=10", qi=list(CROWD.columns), model=careless).fit_transform(people)
    pd.testing.assert_frame_equal(people, CROWD)
    assert made["age"].min() > 0


def test_what_is_printed_of_a_method_shows_no_rows() -> None:
    assert "yes" not in repr(sf.Guided(labels=BUYS, grown_on=CROWD.assign(buys=BUYS)))


def test_the_number_of_a_sensitive_column_gets_a_warning_too() -> None:
    people = CROWD.assign(salary=RNG.normal(size=400))
    with pytest.warns(UserWarning, match="the guiding label 'salary' is sensitive"):
        sf.Guided("k=10", qi=["age"], sensitive=["salary"], labels=people["salary"].to_numpy()).fit(people)


def test_other_rows_have_the_roles_and_hierarchies_of_the_released_ones() -> None:
    tree = sf.Hierarchy.tree([(town, "x" if town in "abc" else "y") for town in "abcde"])
    people = CROWD.assign(buys=BUYS, sick=np.where(BUYS == "no", "flu", "ulcer"))
    columns = [
        sf.Column(name="town", role="quasi", kind="category", hierarchy=tree),
        sf.Column(name="age", role="quasi"),
        sf.Column(name="sick", role="sensitive"),
        sf.Column(name="buys", role="target"),
    ]
    released = sf.Table(people, sf.Schema(columns))
    method = sf.Guided("k=10", grown_on=people, labels="sick")
    with pytest.warns(UserWarning, match="the guiding label 'sick' is sensitive"):
        method.fit(released)
    assert [domain.column.hierarchy for domain in method.grown_.domains] == [None, tree]
    # They need not have the target if something else guides.
    guide = DecisionTreeClassifier(max_depth=3).fit(NUMBERS, BUYS)
    assert sf.anonymize(released, "k=10", method=sf.Guided(grown_on=CROWD, model=guide)).assessment.k >= 10


def test_a_tree_cannot_grow_on_no_rows_or_without_a_column() -> None:
    with pytest.raises(sf.errors.InputError, match="there are no rows to grow the tree on"):
        sf.Guided("k=10", qi=["age"], labels="height", grown_on=CROWD[:0]).fit(CROWD)
    with pytest.raises(sf.errors.ColumnError, match="the rows to grow the tree on lack the column 'age'"):
        sf.Guided("k=10", qi=["age"], labels="height", grown_on=CROWD[["height"]]).fit(CROWD)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1.7e308])
def test_numbers_without_a_variance_do_not_guide(value: float) -> None:
    cost = np.where(CROWD["age"] > 30, value, -1.7e308 if value > 1 else 1.5)
    with pytest.raises(sf.errors.InputError, match="infinite"):
        sf.Guided("k=10", qi=["age"], labels="cost", task="regress").fit(CROWD.assign(cost=cost))
    with pytest.raises(sf.errors.InputError, match="infinite"):
        sf.Guided("k=10", qi=["age"], labels=cost, task="regress").fit(CROWD)


def test_a_number_that_is_the_same_everywhere_does_not_guide() -> None:
    with pytest.raises(sf.errors.InputError, match="is the same in every row"):
        sf.Guided("k=10", qi=["age"], labels=np.full(300, 0.1), task="regress").fit(CROWD[:300])
    with pytest.raises(sf.errors.InputError, match="is the same in every row"):
        sf.Guided("k=10", qi=["age"], labels="cost", task="regress").fit(CROWD.assign(cost=0.1))


def test_labels_of_any_kind_get_one_sentence() -> None:
    import torch

    with pytest.raises(sf.errors.InputError, match="a label is missing in what comes of the labels"):
        sf.Guided("k=10", qi=["age"], labels=pd.Series(BUYS, dtype="string").where(CROWD["age"] > 30)).fit(CROWD)
    with pytest.raises(sf.errors.InputError, match="probabilities are numbers"):
        sf.Guided("k=10", qi=["age"], labels=np.column_stack([BUYS, BUYS])).fit(CROWD)
    learning = torch.ones(400, requires_grad=True)
    with pytest.raises(sf.errors.InputError, match=r"one label per row, .* is needed of the guiding model"):
        sf.Guided("k=10", qi=["age"], model=lambda _: learning).fit(CROWD)
