"""Print safely: text from files cannot control the terminal. All output of commands for people goes through here.

Names of columns, values and paths come from other people's files. An escape sequence in them would move the cursor, set
the title or hide a line, and a newline would forge one. So `echo` prints one line and shows every character that is not
plain text as its escape; only `style` makes colours.
"""

from __future__ import annotations

import secrets
import shutil
import textwrap
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = [
    "be_quiet",
    "draw_line",
    "drop_line",
    "echo",
    "echo_wrapped",
    "is_quiet",
    "printable",
    "show_as",
    "style",
    "table_on_stdout",
]

_MARK = chr(0xF0000 + secrets.randbelow(0xFFFE))  # a private character that no file can guess
_STDOUT: list[bool] = []
_CALLED: dict[str, str] = {}
_quiet = False
_drawn = False  # whether a progress bar is on the terminal
_COLOURS = {"red": "31", "green": "32", "yellow": "33"}


def style(text: str, *, fg: str | None = None, bold: bool = False) -> str:
    """Return a text that `echo` prints in a colour, or in bold.

    Examples
    --------
    >>> echo(style("held", fg="green") + " k-anonymity")
    held k-anonymity
    """
    codes = [code for code in ("1" if bold else None, _COLOURS[fg] if fg else None) if code]
    return f"{_MARK}{';'.join(codes)}{_MARK}{text}{_MARK}0{_MARK}" if codes else text


def be_quiet(quiet: bool) -> None:
    """Print nothing on stderr from now on but errors, or everything again."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Return whether only errors go to stderr."""
    return _quiet


def echo(line: str = "", *, err: bool = False, nl: bool = True, error: bool = False) -> None:
    r"""Print one line, safely; an error goes to stderr even with ``--quiet``.

    Examples
    --------
    >>> echo("the column 'a\x1b[2J\nAll claims hold.'")
    the column 'a\x1b[2J\nAll claims hold.'
    """
    err = err or error or bool(_STDOUT)
    if err and _quiet and not error:
        return
    drop_line()
    for path, name in _CALLED.items():
        line = line.replace(path, name)
    parts = line.split(_MARK)
    shown = (f"\x1b[{part}m" if at % 2 else printable(part) for at, part in enumerate(parts))
    click.echo("".join(shown), err=err, nl=nl)


def echo_wrapped(text: str, indent: str = "") -> None:
    """Print a paragraph in lines as wide as the terminal, up to 100 characters."""
    width = min(shutil.get_terminal_size().columns, 100)
    wrapped = textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    for line in wrapped.split("\n"):
        echo(line)


def show_as(path: str, name: str) -> None:
    """Show a private file under another name from now on.

    Examples
    --------
    >>> show_as("/tmp/rows.csv", "the standard input")
    >>> echo("'/tmp/rows.csv' is empty")
    'the standard input' is empty
    """
    _CALLED[path] = name


@contextmanager
def table_on_stdout() -> Iterator[None]:
    """Print everything else on stderr while a table goes to stdout.

    Examples
    --------
    >>> with table_on_stdout():
    ...     echo("on stderr")
    """
    _STDOUT.append(True)
    try:
        yield
    finally:
        _STDOUT.pop()


def draw_line(line: str) -> None:
    """Draw a progress bar on stderr in place of the previous one; anything printed replaces it."""
    global _drawn
    _drawn = True
    click.echo(f"\r\x1b[K{printable(line)}", err=True, nl=False)


def drop_line() -> None:
    """Remove the progress bar, if there is one."""
    global _drawn
    if _drawn:
        _drawn = False
        click.echo("\r\x1b[K", err=True, nl=False)


def printable(text: str) -> str:
    r"""Return a text with every character that is not plain text as its escape.

    Examples
    --------
    >>> printable("caf\u00e9 \x1b]0;title\x07 \u202egnp.exe")
    'café \\x1b]0;title\\x07 \\u202egnp.exe'
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode("ascii")
