"""Progress on the terminal, for work that takes more than a moment."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sfumato.cli.terminal import draw_line, drop_line, echo, is_quiet

__all__ = ["bar_text", "note_if_slow", "progress_bar"]

_MOMENT = 1.0  # seconds before anything is shown
_TICK = 0.5  # seconds between two drawings
_WIDTH = 24
_SOON = 0.02  # the share below which no time is estimated


def bar_text(label: str, share: float | None, elapsed: float) -> str:
    """Return a progress bar as a line: the share done, the time taken, and an estimate of the rest.

    Examples
    --------
    >>> bar_text("Counting", 0.25, 30)
    'Counting [######------------------]  25 %, 0:30 so far, about 1:30 left'
    >>> bar_text("Counting", None, 5)
    'Counting, 0:05 so far'
    """
    taken = f"{_clock(elapsed)} so far"
    if share is None:
        return f"{label}, {taken}"
    share = min(max(share, 0.0), 1.0)
    done = int(share * _WIDTH)
    left = f", about {_clock(elapsed * (1 - share) / share)} left" if share >= _SOON else ""
    return f"{label} [{'#' * done}{'-' * (_WIDTH - done)}] {int(100 * share):3d} %, {taken}{left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def progress_bar(
    label: str, *, moment: float | None = None, now: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[float], None] | None]:
    """Show a progress bar on stderr; yields the function that updates it, or None if stderr is not a terminal.

    Parameters
    ----------
    label : str
        The name of the work.
    moment : float, optional
        The seconds before the bar appears; one by default.
    now : callable
        The clock.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    started, ended = now(), threading.Event()
    least = _MOMENT if moment is None else moment
    reached: list[float | None] = [None]
    drawing = threading.Lock()

    def draw() -> None:
        elapsed = now() - started
        with drawing:
            if elapsed >= least and not ended.is_set():
                draw_line(bar_text(label, reached[0], elapsed)[: shutil.get_terminal_size().columns - 1])

    def show(share: float) -> None:
        reached[0] = share

    def tick() -> None:
        while not ended.wait(_TICK):
            draw()

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield show
        draw()
    finally:
        with drawing:
            ended.set()
            drop_line()
        ticking.join()


@contextmanager
def note_if_slow(message: str, seconds: float = 3.0) -> Iterator[None]:
    """Print a line on stderr if the work takes longer, on a terminal."""
    timer = threading.Timer(seconds, lambda: echo(message, err=True))
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
