"""``sfumato synthesize --recipe``: a published study, ours beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

Run = Callable[..., Ran]

TINY = """command = "synthesize"
[synthesize]
study = "auto-encoder"
data = "mnist"
epsilon = [8]
delta = 1e-5
methods = ["auto-encoder"]
samples = 150
epochs = 2
[synthesize.parameters.auto-encoder]
steps = 1
hidden = 4
width = 2
components = 1
rounds = 1
[synthesize.published]
title = "A <study>"
before = 93.6
notes = ["It says <so>."]
"""


def test_a_study_prints_a_table_and_writes_a_page(sfumato: Run) -> None:
    Path("tiny.toml").write_text(TINY)
    ran = sfumato("synthesize", "--recipe", "tiny.toml", "--epochs", "1", "--seed", "3", "--epsilon", "9,10")
    assert ran.code == 0, ran.err
    assert "trained on" in ran.out
    assert "93.60 %" in ran.out
    assert "epochs of the auto-encoder without privacy: 1" in ran.out
    page = Path("tiny.html").read_text()
    assert "A &lt;study&gt;" in page
    assert "It says &lt;so&gt;." in page
    assert page.count("data:image/png") == 5  # real, before and after noise, private twice
    again = sfumato("synthesize", "--recipe", "tiny.toml")
    assert again.code == 2
    assert "'tiny.html' exists already" in again.err
    assert [line.split()[-3] for line in ran.out.splitlines() if line.startswith("auto-encoder")] == ["9", "10"]


def test_a_study_is_printed_as_json(sfumato: Run) -> None:
    Path("tiny.toml").write_text(TINY.replace('["auto-encoder"]', "[]").replace("150", "50"))
    ran = sfumato("synthesize", "--recipe", "tiny.toml", "-o", "other.html", "--json")
    assert [one["published"] for one in ran.json["outcomes"]] == [None, None, pytest.approx(0.936), None, None]
    assert ran.json["notes"] == ["It says <so>."]


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        (TINY.replace('"auto-encoder"\ndata', '"gan"\ndata'), [], "is not a study of synthetic images"),
        (
            TINY.replace('command = "synthesize"', 'command = "train"').replace("[synthesize", "[train"),
            [],
            "not a study",
        ),
        (TINY.replace("epochs = 2", "epoch = 2"), [], "unknown option 'epoch' (did you mean 'epochs'?)"),
        (TINY.replace("[8]", '["much"]'), [], "epsilon must be"),
        (TINY.replace("samples = 150", "samples = -1"), [], "the number of samples"),
        (TINY.replace('["auto-encoder"]', '["gan"]'), [], "the study has no method 'gan'"),
        (TINY.replace("93.6", '"high"'), [], "the published accuracy 'before'"),
        (TINY, ["adult"], "DATA cannot be given with --recipe"),
        (TINY, ["--target", "income"], "--target cannot be given with --recipe"),
        (TINY, ["-o", "folder"], "its name must end in .html"),
        (TINY, ["--method", "tree"], "the study has no method 'tree'"),
    ],
)
def test_a_recipe_that_cannot_be_run_is_refused(sfumato: Run, recipe: str, options: list[str], message: str) -> None:
    Path("tiny.toml").write_text(recipe)
    ran = sfumato("synthesize", "--recipe", "tiny.toml", *options)
    assert ran.code == 2
    assert message in ran.err


def test_without_a_recipe_data_and_a_folder_are_needed(sfumato: Run) -> None:
    assert "DATA is missing" in sfumato("synthesize", "-o", "out").err
    assert "-o OUT is missing" in sfumato("synthesize", "adult").err
    assert "with --recipe" in sfumato("synthesize", "adult", "-o", "out", "--epochs", "2").err


def test_the_built_in_study_is_found_by_its_name(sfumato: Run) -> None:
    ran = sfumato("synthesize", "--recipe", "private-auto-encoder", "--delta", "0.5", "-o", "folder")
    assert "its name must end in .html" in ran.err
    assert "cannot be read" in sfumato("synthesize", "--recipe", "private-autoencoder").err
