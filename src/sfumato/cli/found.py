"""Show how a text file was read: its encoding, and how its numbers and dates are written, where that was found."""

from __future__ import annotations

from typing import Any

from sfumato.cli.terminal import echo
from sfumato.data.io.encodings import is_utf8
from sfumato.data.table import Table

__all__ = ["STDIN", "described", "is_text", "tell_reading"]

STDIN = "standard-input.csv"
"""What a copy of the standard input is called."""
_MOST = 5  # columns that are named in a line
_SIGNS = {".": "points", ",": "commas", " ": "blanks", "'": "apostrophes"}
_WAYS = {
    "decimal": "say it with --decimal , or --decimal .",
    "dates": "say it with --dates, such as dmy, mdy or '%d.%m.%y'",
}


def is_text(table: Table) -> bool:
    """Say whether a table is from a text file."""
    return table.file is not None and table.file.is_text


def described(table: Table) -> dict[str, Any]:
    """Return how a text file was read, as plain values; of columns that were not needed nothing is known."""
    assert table.file is not None
    text = table.file.text
    found = text.cells.items()
    return {
        "file": text.shown.name if text.shown.name == STDIN else str(text.shown),
        "encoding": text.encoding,
        "separator": text.separator,
        "numbers": {name: one.notation.to_dict() for name, one in found if not one.is_plain and not one.notation.dates},
        "dates": {name: one.notation.dates.replace("%.f", "") for name, one in found if one.notation.dates},
        "undecided": {name: one.doubt for name, one in found if one.doubt},
    }


def tell_reading(table: Table) -> None:
    """Say on stderr what was found in a text file that is not as most programs write it."""
    assert table.file is not None
    text = table.file.text
    known = {name: one for name, one in text.cells.items() if not one.is_plain}
    said = [] if is_utf8(text.encoding) else [f"encoding {text.encoding}"]
    for way in dict.fromkeys(_in_words(one.notation) for one in known.values()):
        said.append(f"{way} in {_named([name for name, one in known.items() if _in_words(one.notation) == way])}")
    if said:
        echo(f"Read '{text.shown}' with {'; '.join(said)}", err=True)
    for doubt, option in dict.fromkeys((one.doubt, one.option) for one in text.cells.values() if one.doubt):
        names = _named([name for name, one in text.cells.items() if one.doubt == doubt])
        echo(f"Left as text: {names}, because {doubt}; {_WAYS[option]}", err=True)


def _in_words(notation: Any) -> str:
    if notation.dates:
        return f"dates like {notation.dates.replace('%.f', '')}"
    said = ["decimal commas"] if notation.decimal == "," else []
    said += [f"{_SIGNS[notation.grouping]} for thousands"] if notation.grouping else []
    return " and ".join(said)


def _named(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
