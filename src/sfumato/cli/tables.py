"""Read the table that the options of a command describe, and say how a text file was read."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import click

from sfumato.cli.options import READ, READING, Names
from sfumato.cli.terminal import echo, show_as
from sfumato.data import datasets
from sfumato.data.io.encodings import is_utf8
from sfumato.data.io.spool import Spool
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table, read
from sfumato.errors import OptionError

__all__ = [
    "declared_table",
    "is_text",
    "load_table",
    "print_reading",
    "read_declared",
    "read_table",
    "reading_dict",
    "reading_of",
    "warn_if_people_repeat",
]

_INPUT = "sfumato.input"
_STDIN = "standard-input.csv"
_MOST = 5  # columns named in a line
_SIGNS = {".": "points", ",": "commas", " ": "blanks", "'": "apostrophes"}
_OPTIONS = {
    "decimal": "say which with --decimal , or --decimal .",
    "dates": "say which with --dates, such as dmy, mdy or '%d.%m.%y'",
}


def read_table(data: str, schema: Schema | None, *, inferred: bool = True, shown: bool = True, **reading: Any) -> Table:
    """Read a file or a table of a database, or return the built-in table of that name.

    Private commands do not let the rows decide how they are read (``inferred``). For the others, what was found is
    printed when the command ends, unless its output may be published (``shown``), as that of a budget.
    """
    if data in datasets.TABLES and not Path(data).exists():
        if schema or any(reading.values()):
            raise OptionError(f"'{data}' is built in: it takes neither --schema nor options for reading a file")
        return datasets.TABLES[data]()
    if data == "-":
        data = str(_standard_input())
    separator = reading["separator"]
    reading["separator"] = {"tab": "\t", "\\t": "\t"}.get(separator or "", separator)
    table = read(data, schema, inferred=inferred, **reading)
    context = click.get_current_context(silent=True)
    if inferred and shown and context is not None:
        context.meta.setdefault(READ, []).append(table)
    return table


def _standard_input() -> Path:
    """Copy the standard input, a text file with fields, into a private file."""
    context = click.get_current_context()
    if _INPUT in context.meta:
        raise OptionError("the standard input can be read only once", hint="give a file for one of the tables")
    spool = Spool(Path("the standard input"), _STDIN)
    context.meta[_INPUT] = spool  # keeps the file until the command ends
    show_as(str(spool.path), "the standard input")
    return spool.take(sys.stdin.buffer)


def reading_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that say how to read another file like the table's."""
    return {name: options[name] for name in READING if name != "table"}


def load_table(
    data: str,
    *,
    qi: list[str],
    sensitive: list[str],
    identifiers: list[str],
    person: str | None,
    keep: list[str],
    target: str | None,
    schema_file: str | None,
    **reading: Any,
) -> Table:
    """Read the table that the common options describe, with the roles that they name."""
    table = read_table(data, Schema.load(schema_file) if schema_file else None, **reading)
    roles: dict[str, Any] = {"qi": qi, "sensitive": sensitive, "identifiers": identifiers, "keep": keep}
    return Table.of(table, person=person, target=target, **roles)


def read_declared(
    data: str,
    *,
    schema_file: str | None,
    domain: tuple[tuple[str, str], ...],
    bounds: tuple[tuple[str, tuple[float, float] | tuple[date, date]], ...],
    numbers: list[str],
    categories: list[str],
    **reading: Any,
) -> tuple[Table, Schema]:
    """Read a table, and what the schema and the options declare to be public, whatever the data contains."""
    table = read_table(data, None, inferred=False, **reading)
    own = table.schema if data in datasets.TABLES else Schema(Column(name=name) for name in table.schema.names)
    columns = {column.name: column for column in own.columns}
    given = Schema.load(schema_file) if schema_file else Schema([])
    for column in given.columns:
        columns[own[column.name].name] = column
    declared: list[tuple[str, dict[str, Any]]] = [
        *((name, {"kind": Kind.NUMBER}) for name in numbers),
        *((name, {"kind": Kind.CATEGORY}) for name in categories),
        *((name, {"domain": tuple(Names().convert(values, None, None))}) for name, values in domain),
        *((name, {"bounds": both}) for name, both in bounds),
    ]
    for name, values in declared:
        columns[name] = replace(columns[own[name].name], **values)
    return table, Schema(columns.values(), given.constraints)


def declared_table(
    data: str,
    reading: dict[str, Any],
    public: dict[str, Any],
    identifiers: list[str],
    stored: Schema | None = None,
) -> Table:
    """Read a table with everything that is declared of it: by a schema, by options, or in a stored recipe."""
    table, schema = read_declared(data, **reading, **public)
    known = {} if public["schema_file"] or stored is None else {column.name: column for column in stored.columns}
    columns = {one.name: known.get(one.name, one) if one == Column(name=one.name) else one for one in schema.columns}
    for name in identifiers:
        columns[name] = replace(columns[schema[name].name], role=Role.IDENTIFIER)
    rules = schema.constraints if public["schema_file"] or stored is None else stored.constraints
    return Table(table.source, Schema(columns.values(), rules), origin=table.file or table.origin)


def warn_if_people_repeat(table: Table) -> None:
    """Warn the owner of the data on stderr if people have several rows, since epsilon protects one row."""
    from sfumato.data.suggest import PersonKey, key_of
    from sfumato.measures.people import people_of

    people = people_of(table, [name for name in table.schema.names if key_of(name) is PersonKey.PERSON])
    if people is not None and people.repeat:
        echo(
            f"'{people.identifier}' repeats: people have several rows, and epsilon protects one row, not one person",
            err=True,
        )


# --- how a text file was read ---------------------------------------------------------------------


def is_text(table: Table) -> bool:
    """Return whether a table comes from a text file."""
    return table.file is not None and table.file.is_text


def reading_dict(table: Table) -> dict[str, Any]:
    """Return how a text file was read, as plain values; columns that were not needed are not listed."""
    assert table.file is not None
    text = table.file.text
    cells = text.cells.items()
    return {
        "file": text.shown.name if text.shown.name == _STDIN else str(text.shown),
        "encoding": text.encoding,
        "separator": text.separator,
        "numbers": {name: one.notation.to_dict() for name, one in cells if not one.is_plain and not one.notation.dates},
        "dates": {name: one.notation.dates.replace("%.f", "") for name, one in cells if one.notation.dates},
        "undecided": {name: one.doubt for name, one in cells if one.doubt},
    }


def print_reading(table: Table) -> None:
    """Print on stderr what is unusual about a text file: its encoding, decimal commas, date formats."""
    if not is_text(table):
        return
    assert table.file is not None
    text = table.file.text
    notations = {name: _in_words(one.notation) for name, one in text.cells.items() if not one.is_plain}
    parts = [] if is_utf8(text.encoding) else [f"encoding {text.encoding}"]
    for words in dict.fromkeys(notations.values()):
        parts.append(f"{words} in {_few([name for name, own in notations.items() if own == words])}")
    if parts:
        echo(f"Read '{text.shown}' with {'; '.join(parts)}", err=True)
    for doubt, option in dict.fromkeys((one.doubt, one.option) for one in text.cells.values() if one.doubt):
        names = _few([name for name, one in text.cells.items() if one.doubt == doubt])
        echo(f"Left as text: {names}, because {doubt}; {_OPTIONS[option]}", err=True)


def _in_words(notation: Any) -> str:
    if notation.dates:
        return f"dates like {notation.dates.replace('%.f', '')}"
    parts = ["decimal commas"] if notation.decimal == "," else []
    parts += [f"{_SIGNS[notation.grouping]} for thousands"] if notation.grouping else []
    return " and ".join(parts)


def _few(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
