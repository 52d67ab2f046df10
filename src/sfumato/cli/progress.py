"""Signs of life on the terminal for work that takes more than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from sfumato.cli.terminal import echo, is_quiet

__all__ = ["patience", "progress_bar"]

_STEPS = 1000
_MOMENT = 1.0  # seconds before anything is shown


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None] | None]:
    """Give what shows the share that is done, on stderr; nothing is shown where no one is looking."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    bar = click.progressbar(length=_STEPS, label=label, file=sys.stderr, show_eta=True)
    shown = False

    def show(share: float) -> None:
        nonlocal shown
        if not shown and time.monotonic() - started < _MOMENT:
            return
        if not shown:
            bar.__enter__()
            shown = True
        bar.update(int(share * _STEPS) - bar.pos)

    try:
        yield show
    finally:
        if shown:
            bar.__exit__(None, None, None)


@contextmanager
def patience(message: str, seconds: float = 3.0) -> Iterator[None]:
    """Print a line on stderr if the work takes longer, where someone is looking."""
    timer = threading.Timer(seconds, lambda: echo(message, err=True))
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
