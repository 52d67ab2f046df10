"""The page of published experiments has every published figure, as the stored runs give it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sfumato.reproductions import VERDICTS, experiment, experiments
from sfumato.reproductions.membership import TARGETS

ROOT = Path(__file__).parents[2]
PRINTED = {  # how many figures and statements each publication has, counted by hand
    "epsilon-sweep": 11,
    "private-cnn": 35,
    "guided-models": 24,
    "membership": 16,
    "attributes": 11,
    "nine-measures": 31,
    "techniques": 9,
    "federated-xrays": 19,
    "encrypted": 5,
    "private-auto-encoder": 7,
}


# Typed from the publications a second time, so that a slip in the recipes does not pass.
LOSSES = """
0.312060 1.164523 0.68
0.075240 0.572431 0.69
0.053376 0.542119 0.71
0.042650 0.507823 0.72
0.034689 0.474783 0.73
0.030651 0.451766 0.75
0.027995 0.442711 0.76
0.023730 0.419686 0.78
0.020594 0.398222 0.79
"""
ATTACKS = """
.98 .83 .58 .56 .78
.85 .83 .51 .51 .33
.85 .81 .50 .50 .76
.82 .81 .53 .52 .95
.80 .79 .50 .52 .13
.96 .89 .53 .52 .60
.84 .82 .50 .50 .71
.84 .81 .50 .50 .32
.83 .83 .50 .50 .14
1.0 .92 .67 .65 .71
1.0 .92 .51 .51 .29
.82 .81 .50 .66 .0094
.82 .80 .50 .50 .18
.95 .95 .54 .53 .67
.95 .92 .50 .50 .46
.87 .87 .50 .50 .47
"""
PREVENTED = """
linkage, re-identification
linkage, re-identification, homogeneity
homogeneity, background knowledge
homogeneity, background knowledge
homogeneity, background knowledge
skewness, similarity
skewness
skewness
inference
"""
OTHERS = {
    "private-cnn": {"accuracy-ordinary": 0.988, "accuracy-private": 0.934, "speed-ordinary": 36, "speed-private": 22},
    "guided-models": {
        "adult-12-nn-before": 0.865,
        "adult-8-xgb-before": 0.864,
        "adult-8-dt-before": 0.8878,
        "adult-8-rf-before": 0.8992,
        "loan-nn-before": 0.9332,
    },
    "attributes": {
        "tree-test": 0.68,
        "tree-attack": 0.61,
        "tree-precision": 0.41,
        "tree-recall": 0.32,
        "anonymous-test": 0.74,
        "anonymous-attack": 0.56,
        "anonymous-precision": 0.31,
        "anonymous-recall": 0.21,
        "purchase": 0.66,
        "purchase-k2": 0.24,
        "purchase-dp": 0.42,
    },
    "federated-xrays": {
        "central-accuracy": 0.6619,
        "central-seconds": 1386,
        "3-a-accuracy": 0.8029,
        "3-b-accuracy": 0.7308,
        "3-a-seconds": 401,
        "3-b-seconds": 320.8,
        "3-a-saved": 71.07,
        "3-b-saved": 76.85,
        "10-a-accuracy": 0.7212,
        "10-b-accuracy": 0.7340,
        "10-a-seconds": 110,
        "10-b-seconds": 99,
        "10-a-saved": 92.06,
        "10-b-saved": 92.85,
    },
    "private-auto-encoder": {"loss": 0.0036, "before": 0.936, "after": 0.7627},
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproductions", ROOT / "benchmarks" / "reproductions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_published_figure_has_been_lost() -> None:
    assert {one.name: len(one.facts) for one in experiments()} == PRINTED


def test_the_printed_figures_are_those_of_the_publications() -> None:
    for epoch, line in enumerate(LOSSES.split("\n")[1:-1], 1):
        names = (f"ordinary-{epoch}", f"private-{epoch}", f"epsilon-{epoch}")
        assert [experiment("private-cnn").facts[name].printed for name in names] == [float(one) for one in line.split()]
    printed = [tuple(float(one) for one in line.split()) for line in ATTACKS.split("\n")[1:-1]]
    assert [target.printed for target in TARGETS.values()] == printed
    prevented = [fact.printed for fact in experiment("techniques").facts.values()]
    assert prevented == PREVENTED.split("\n")[1:-1]
    for name, figures in OTHERS.items():
        assert {key: experiment(name).facts[key].printed for key in figures} == figures


def test_a_number_that_ours_is_compared_with_has_a_tolerance() -> None:
    for one in experiments():
        for key, fact in one.facts.items():
            assert fact.within is None or (isinstance(fact.printed, float) and 0 < fact.within < fact.printed), key


def test_the_page_is_what_the_stored_runs_give(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    begin, end = page.index(script.BEGIN) + len(script.BEGIN), page.index(script.END)
    assert page[begin:end].strip() == script.rows_in_markdown(), "python benchmarks/reproductions.py page"


def test_every_published_figure_has_its_row_with_a_verdict(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    for one in experiments():
        section = page.split(f"{{ #{one.name} }}")[1].partition("\n## ")[0]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
        assert [row[0].removeprefix("| ") for row in rows] == [script._cell(fact.what) for fact in one.facts.values()]
        assert {row[3] for row in rows} <= {*VERDICTS} - {"not judged"}, one.name


def test_a_stored_run_says_when_and_by_which_command_it_was_made(script: ModuleType) -> None:
    for line in [*script.kept(), *script.earlier()]:
        assert line["date"] >= "2026-11-01"
        assert line["command"]
        assert {row["verdict"] for row in line["rows"]} <= set(VERDICTS)
