"""A progress bar with an estimate, where somebody is looking."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sfumato.cli.progress import bar_text, progress_bar
from sfumato.cli.terminal import be_quiet, echo

END = "(end)"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Make stderr a terminal; on leaving, what was shown there."""
    shown: list[str] = []
    outer, inner = pty.openpty()
    with os.fdopen(inner, "w", buffering=1, encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        yield shown
        stream.write(END)
        stream.flush()
        said = ""
        while not said.endswith(END):  # what a terminal is sent arrives piece by piece
            said += os.read(outer, 2**16).decode()
        shown.append(said.removesuffix(END))
    os.close(outer)


def test_a_bar_has_a_share_a_time_and_an_estimate() -> None:
    assert bar_text("Counting", 0.5, 61).endswith("]  50 %, 1:01 so far, about 1:01 left")
    assert bar_text("Counting", 0.1, 3600).endswith("]  10 %, 1:00:00 so far, about 9:00:00 left")
    assert bar_text("Counting", 1.0, 8).endswith("] 100 %, 0:08 so far, about 0:00 left")
    assert bar_text("Counting", 0.0, 8).endswith("]   0 %, 0:08 so far")  # nothing can be estimated
    assert "[" not in bar_text("Counting", None, 8)


def test_a_terminal_shows_it_and_it_is_gone_when_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0])
    with terminal(monkeypatch) as shown, progress_bar("Counting", moment=5, now=lambda: next(times, 20.0)) as progress:
        assert progress is not None
        progress(0.25)
    assert "Counting [######------------------]  25 %, 0:20 so far, about 1:00 left" in shown[0]
    assert shown[0].endswith("\r\x1b[K")


def test_a_line_that_is_printed_takes_the_place_of_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0])
    with terminal(monkeypatch) as shown:
        with progress_bar("Counting", moment=5, now=lambda: next(times, 20.0)) as progress:
            assert progress is not None
            progress(1.0)
        echo("A note", err=True)
    assert shown[0].rpartition("\x1b[K")[2].strip() == "A note"


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as shown, progress_bar("Counting", moment=5, now=lambda: 0.0) as progress:
        assert progress is not None
        progress(0.5)
    assert shown == [""]


def test_nothing_is_shown_where_nobody_looks_or_wants_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("Counting", moment=0) as progress:
        assert progress is None
    assert capsys.readouterr().err == ""
    be_quiet(True)
    try:
        with terminal(monkeypatch) as shown, progress_bar("Counting", moment=0) as progress:
            assert progress is None
    finally:
        be_quiet(False)
    assert shown == [""]
