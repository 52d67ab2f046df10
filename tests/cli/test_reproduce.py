"""``sfumato reproduce``: printed figures beside ours, on the terminal, as JSON and as a page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sfumato.report.reproduction import render_reproduction
from sfumato.reproductions import Reproduction, Row
from sfumato.reproductions.values import Curves, Pictures
from tests.conftest import Ran, refused

Run = Callable[..., Ran]


def test_the_list_names_every_experiment(sfumato: Run) -> None:
    ran = sfumato("reproduce", "list")
    assert ran.code == 0
    assert "private-cnn  A small network, private and ordinary" in ran.out
    assert sfumato("reproduce").out == ran.out
    named = [one["name"] for one in sfumato("reproduce", "list", "--json").json["experiments"]]
    assert {"epsilon-sweep", "federated-xrays", "encrypted"} <= set(named)


def test_an_experiment_is_printed_and_written_as_a_page(sfumato: Run) -> None:
    ran = sfumato("reproduce", "techniques", "--quick")
    assert ran.code == 0, ran.err
    assert re.search(r"k-anonymity +linkage, re-identification +linkage, re-identification +reproduced", ran.out)
    assert "reproduced: 8, differs: 1" in ran.out
    page = Path("techniques.html").read_text()
    assert "delta-disclosure privacy" in page
    assert "http-equiv" in page
    assert "<script src" not in page
    refused(sfumato("reproduce", "techniques", "--quick"), "'techniques.html' exists already")
    found = sfumato("reproduce", "techniques", "--quick", "--json", "--force").json
    assert found["name"] == "techniques"
    assert found["verdicts"] == {"reproduced": 8, "differs": 1}
    assert {"what", "printed", "ours", "note", "verdict"} <= found["rows"][0].keys()


def test_wrong_names_are_refused_before_anything_runs(sfumato: Run) -> None:
    refused(sfumato("reproduce", "privat-cnn"), "no experiment 'privat-cnn'", "private-cnn")
    refused(sfumato("reproduce", "techniques", "-o", "page.pdf"), "must end in .html")
    refused(sfumato("reproduce", "techniques", "-o", "-"), "the standard output")


def test_a_page_escapes_what_it_shows() -> None:
    strange = "<img src=x onerror=alert(1)>"
    found = Reproduction(
        "a",
        strange,
        strange,
        False,
        {"b": strange},
        (Row("c", strange, strange, strange, "differs", strange),),
        (
            Curves(strange, strange, strange, {strange: [(1.0, 2.0), (2.0, 3.0)]}),
            Pictures(strange, np.zeros((2, 4, 4), np.uint8), 2),
        ),
    )
    page = render_reproduction(found)
    assert strange not in page
    assert html.escape(strange) in page
