"""The user's own analyses: functions, functions by name, and scripts."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from sfumato.errors import FileError, InputError, OptionError
from sfumato.frontier.sweep.analysis import analysis_of, numbers_of
from tests.frontier.test_explore import QUICK, people

SCRIPT = """
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1])))
print(json.dumps({"rows": len(rows), "columns": len(rows[0])}))
"""
FRAME = pl.DataFrame({"age": [30, 50]})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_analyses_of_all_kinds_are_utilities(tmp_path: Path) -> None:
    def rows_left(frame: pl.DataFrame) -> float:
        return float(frame.height)

    Path("mine.py").write_text(SCRIPT)
    Path("own_module_of_analyses.py").write_text("def oldest(frame):\n    return frame['age'].max()\n")
    found = sf.explore(
        people(),
        **{**QUICK, "utilities": ["tree", rows_left, "mine.py", "own_module_of_analyses:oldest"]},
        protections=["raw", "dp:epsilon=5"],
        seeds=1,
    )
    utility = found.points[0].utility
    assert utility["rows_left"].mean == utility["mine.rows"].mean == 200
    assert utility["mine.columns"].mean == 3
    assert utility["oldest"].mean == 89
    assert "mine.rows" not in found.points[1].utility  # a model has no rows
    assert "--analysis mine.py" in found.to_dict()["points"][0]["measure"]


def test_another_text_of_a_script_is_another_measurement(tmp_path: Path) -> None:
    options = {
        **QUICK,
        "utilities": ["tree", "mine.py"],
        "protections": ["raw"],
        "seeds": 1,
        "folder": tmp_path / "kept",
    }
    for number, text in enumerate(("print(1)", "print(2)", "print(2)")):
        Path("mine.py").write_text(text)
        assert sf.explore(people(), **options).points[0].utility["mine"].mean == min(number + 1, 2)
    assert len(list(tmp_path.glob("kept/*.json"))) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys; sys.exit(3)", "ended with exit code 3"),
        ("raise ValueError(open(__import__('sys').argv[1]).read())", "ended with exit code 1"),
        ("print('Ada, 30')", "must print one JSON value"),
        ("print('[\"Ada\"]')", "must give numbers"),
        ('print(\'{"x": "Ada"}\')', "must give numbers"),
        ("print('NaN')", "must give finite numbers"),
    ],
)
def test_a_script_that_fails_is_named_without_what_it_printed(text: str, said: str) -> None:
    Path("mine.py").write_text(text)
    name, analysis = analysis_of("mine.py")
    with pytest.raises(InputError, match=said) as error:
        numbers_of(name, analysis, FRAME.with_columns(name=pl.lit("Ada")))
    assert "Ada" not in f"{error.value}{error.value.__cause__}"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("none.py", FileError, "cannot be read"),
        ("mean_age", OptionError, "neither a Python file nor module:function"),
        ("no_such_module_here:f", OptionError, "cannot be imported"),
        ("json:no_such_function", OptionError, "has no function"),
        ("os;evil:f", OptionError, "neither"),
    ],
)
def test_a_wrong_name_is_refused_in_a_sentence(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        analysis_of(text)


def test_two_analyses_of_one_name_are_refused() -> None:
    Path("mine.py").write_text("print(1)")
    with pytest.raises(OptionError, match="two analyses are named 'mine'"):
        sf.explore(people(), **{**QUICK, "utilities": ["tree", "mine.py", "mine.py"]}, protections=["raw"], seeds=1)
