"""What the commands share: their common options, and how a table is found from them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from sfumato.cli.found import STDIN, described, is_text, tell_reading
from sfumato.cli.terminal import be_quiet, call, echo, table_on_stdout
from sfumato.data import datasets
from sfumato.data.io.files import refuse_only_read, refuse_unwritable
from sfumato.data.io.folders import private_folder, refuse_taken, sweep_private
from sfumato.data.io.spool import Spool
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table, read
from sfumato.engines.compiling import announce
from sfumato.errors import FileError, OptionError

__all__ = [
    "READING",
    "Command",
    "Names",
    "choice",
    "declared",
    "escape_option",
    "file_options",
    "force_option",
    "is_file",
    "keep_input",
    "keep_output",
    "load_table",
    "names_option",
    "print_json",
    "public_options",
    "read_table",
    "reading",
    "reading_options",
    "rows_option",
    "say_if_repeated",
    "table_options",
]

READING = ("table", "sheet", "na", "separator", "encoding", "decimal", "dates")
"""The options that say how a file is read."""


_READ = "sfumato.read"
"""Where a command keeps the tables that it has read."""
_INPUT = "sfumato.input"
_TO_STDOUT = ("anonymize", "mask", "pseudonymize")
"""The commands that can write their table to the standard output, as CSV."""
_COMPILING = "Compiling for tables of this size, once on this machine; that takes up to half a minute ..."
_SQLITE = re.compile(r"^sqlite(\+\w+)?:///")


class Command(click.Command):
    """A command with the options that every command has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object and nothing else on stdout."),
            click.Option(
                ["--quiet"],
                is_flag=True,
                expose_value=False,
                callback=lambda ctx, param, value: be_quiet(value),
                help="Print nothing on stderr but errors.",
            ),
            click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, after removing what commands that were killed have left of their rows on the disk.

        How files were read is said at the end; not after an error, which is one sentence.
        """
        sweep_private()
        announce(lambda: echo(_COMPILING, err=True))
        try:
            done = self._to_stdout(ctx) if ctx.params.get("output") == "-" else super().invoke(ctx)
        except click.exceptions.Exit:  # a check failed
            self._tell(ctx)
            raise
        self._tell(ctx)
        return done

    def _to_stdout(self, ctx: click.Context) -> Any:
        """Run the command, write its table to the standard output, and all else to stderr."""
        if self.name not in _TO_STDOUT:
            raise OptionError(f"{self.name} does not write to the standard output", hint="name a file or a folder")
        if ctx.params["as_json"]:
            raise OptionError("--json and -o - both write to the standard output", hint="give one of them")
        with private_folder() as folder:
            path = folder / "table.csv"
            ctx.params["output"] = str(path)
            call(str(path), "the standard output")
            with table_on_stdout():
                done = super().invoke(ctx)
            with path.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return done

    def _tell(self, ctx: click.Context) -> None:
        for table in ctx.meta.get(_READ, []):
            if is_text(table):
                tell_reading(table)


escape_option = click.option(
    "--escape-formulas",
    is_flag=True,
    help="Put an apostrophe before cells of a CSV or TSV file that a spreadsheet would compute.",
)


rows_option = click.option(
    "--rows-are-units", is_flag=True, help="Protect rows, not people, where an identifier repeats."
)
force_option = click.option("--force", is_flag=True, help="Replace what OUT names, if it exists already.")


class Names(click.ParamType[list[str]]):
    """Names separated by commas; a name that holds a comma, or begins with a blank, goes in double quotes."""

    name = "A,B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split the text at its commas."""
        found = re.findall(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|$)', value)
        names = (quoted.replace('""', '"') if quoted else plain.strip() for quoted, plain in found)
        return [name for name in names if name]


def names_option(flag: str, text: str) -> Callable[[Any], Any]:
    """Make an option for names; given several times, it adds up."""

    def joined(ctx: click.Context, param: click.Parameter, values: tuple[list[str], ...]) -> list[str]:
        return [name for names in values for name in names]

    return click.option(flag, type=Names(), multiple=True, callback=joined, help=text)


def choice(kind: type[StrEnum]) -> click.Choice[str]:
    """Return the choice of the members of an enumeration."""
    return click.Choice([member.value for member in kind])


def _add(command: Callable[..., Any], *decorators: Callable[[Any], Any]) -> Callable[..., Any]:
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument FILE and the options that say how to read it."""
    return _add(command, click.argument("data", metavar="FILE"), reading_options)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how to read a file."""
    return _add(
        command,
        click.option("--table", metavar="NAME", help="The table, if FILE is a database or the address of one."),
        click.option("--sheet", metavar="NAME", help="The sheet of an Excel file; needed if it has several."),
        names_option("--na", "Texts that stand for a missing value, such as ?,NA."),
        click.option("--separator", metavar="C", help="What separates fields; found from the header by default."),
        click.option(
            "--encoding", metavar="NAME", help="The encoding of a text file, such as cp1252; found by default."
        ),
        click.option(
            "--decimal",
            type=click.Choice([",", "."]),
            help="What stands before decimals: 3,14 or 3.14; found for each column by default.",
        ),
        click.option(
            "--dates",
            metavar="FORMAT",
            multiple=True,
            help="How dates are written: dmy (31.12.1980), mdy, ymd, or '%d.%m.%Y'; found by default. Can be repeated.",
        ),
    )


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument FILE and the options that say how to read it and what its columns are."""
    return _add(
        command,
        names_option("--qi", "Quasi-identifiers: what others know about a person."),
        names_option("--sensitive", "Sensitive columns: what must not be learnt."),
        names_option("--identifiers", "Columns that name a person alone: they are left out."),
        names_option("--keep", "Columns to release as they are, although they look identifying."),
        click.option("--target", metavar="NAME", help="The column that a model predicts."),
        click.option("--schema", "schema_file", metavar="FILE", help="A schema in TOML: see 'sfumato schema'."),
        file_options,
    )


def read_table(data: str, schema: Schema | None, *, inferred: bool = True, shown: bool = True, **reading: Any) -> Table:
    """Read a file or a table of a database, or return the built-in table of that name.

    Private commands do not let the rows decide how they are read (``inferred``). For all others, what was found is
    shown when the command ends; not for those that print what may be published (``shown``), as of a budget.
    """
    if data in datasets.TABLES and not Path(data).exists():
        if schema or any(reading.values()):
            raise OptionError(f"'{data}' is built in: --schema and how to read a file are not for it")
        return datasets.TABLES[data]()
    if data == "-":
        data = str(_standard_input())
    separator = reading["separator"]
    reading["separator"] = {"tab": "\t", "\\t": "\t"}.get(separator or "", separator)
    table = read(data, schema, inferred=inferred, **reading)
    context = click.get_current_context(silent=True)
    if inferred and shown and context is not None:
        context.meta.setdefault(_READ, []).append(table)
    return table


def _standard_input() -> Path:
    """Copy what comes on the standard input, a text file with fields, into a private file, and return that."""
    context = click.get_current_context()
    if _INPUT in context.meta:
        raise OptionError("the standard input can be read only once", hint="give a file for one of the tables")
    spool = Spool(Path("the standard input"), STDIN)
    context.meta[_INPUT] = spool  # so that it lasts as long as the command
    call(str(spool.path), "the standard input")
    return spool.take(sys.stdin.buffer)


def reading(options: dict[str, Any]) -> dict[str, Any]:
    """Return those options that say how to read another file like the table's."""
    return {name: options[name] for name in READING if name != "table"}


def load_table(
    data: str,
    *,
    qi: list[str],
    sensitive: list[str],
    identifiers: list[str],
    keep: list[str],
    target: str | None,
    schema_file: str | None,
    **reading: Any,
) -> Table:
    """Read the table that the common options describe, with the roles that they name."""
    table = read_table(data, Schema.load(schema_file) if schema_file else None, **reading)
    return Table.of(table, qi=qi, sensitive=sensitive, identifiers=identifiers, target=target, keep=keep)


def public_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that declare what is public of the columns."""
    return _add(
        command,
        click.option("--schema", "schema_file", metavar="FILE", help="A schema in TOML, with domains and bounds."),
        names_option("--numbers", "Columns that hold numbers."),
        names_option("--categories", "Columns that hold categories."),
        click.option("--domain", type=_Setting(), metavar="NAME=A,B", multiple=True, help="The values of a column."),
        click.option(
            "--bounds", type=_Setting(), metavar="NAME=LOW,HIGH", multiple=True, help="The bounds of a number."
        ),
    )


class _Setting(click.ParamType[tuple[str, str]]):
    """The name of a column and what is said of it, with an equals sign between them."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split the text at its first equals sign."""
        column, equals, setting = str(value).partition("=")
        if not equals or not column or not setting:
            self.fail(f"a column and its values are needed, such as sex=f,m, got '{value}'", param, ctx)
        return column, setting


def declared(
    data: str,
    *,
    schema_file: str | None,
    domain: tuple[tuple[str, str], ...],
    bounds: tuple[tuple[str, str], ...],
    numbers: list[str],
    categories: list[str],
    **reading: Any,
) -> tuple[Table, Schema]:
    """Read a table, and what the schema and the options declare as public, whatever the data holds."""
    table = read_table(data, None, inferred=False, **reading)
    own = table.schema if data in datasets.TABLES else Schema(Column(name=name) for name in table.schema.names)
    columns = {column.name: column for column in own.columns}
    for column in Schema.load(schema_file).columns if schema_file else ():
        columns[own[column.name].name] = column
    for kind, names in ((Kind.NUMBER, numbers), (Kind.CATEGORY, categories)):
        for name in names:
            columns[name] = replace(columns[own[name].name], kind=kind)
    for name, values in domain:
        columns[name] = replace(columns[own[name].name], domain=tuple(Names().convert(values, None, None)))
    for name, ends in bounds:
        low, _, high = ends.partition(",")
        try:
            both = float(low), float(high)
        except ValueError:
            raise OptionError(f"--bounds needs two numbers, such as {name}=0,100, got '{ends}'") from None
        columns[name] = replace(columns[own[name].name], bounds=both)
    return table, Schema(columns.values())


def say_if_repeated(table: Table) -> None:
    """Say on stderr, for the owner of the data alone, that people have several rows: epsilon protects one of them."""
    from sfumato.data.suggest import Key, key_of
    from sfumato.measures.people import people_of

    people = people_of(table, [name for name in table.schema.names if key_of(name) is Key.PERSON])
    if people is not None and people.repeat:
        echo(
            f"'{people.identifier}' repeats: people have several rows, and epsilon protects one row, not one person",
            err=True,
        )


def keep_input(output: str | None, *inputs: str | None) -> None:
    """Refuse to write over a file, or a database in a file, that is read."""
    for one in inputs:
        if output and one and Path(output).resolve() == Path(_SQLITE.sub("", one).partition("?")[0]).resolve():
            raise OptionError(f"'{output}' is read and cannot be written too", hint="choose another name")


def is_file(output: str) -> bool:
    """Say whether the output is a file for the table alone, or a folder for the whole release."""
    if output != "-" and (output.endswith(("/", "\\")) or not Path(output).suffix):
        return False
    refuse_only_read(output)
    return True


def keep_output(
    output: str | None, *, force: bool, instead: str = "name a file", folder: bool = False, ending: str = ""
) -> None:
    """Refuse to replace what exists already unless that is asked for, and outputs that cannot be.

    Parameters
    ----------
    output : str or None
        A file or a folder; nothing is refused if it is None.
    force : bool
        Whether ``--force`` is given.
    instead : str
        What to do in place of ``-o -``, which only tables can be written to.
    folder : bool
        Whether the command writes a folder; one that exists is replaced only if it is a release.
    ending : str
        What the name of the file must end in.
    """
    if output is None:
        return
    if output == "-":
        raise OptionError("'-' is stdout, where this output cannot go", hint=instead)
    if ending and not output.lower().endswith(ending):
        raise OptionError(f"'{output}' is written as {ending[1:]}, and its name must end in {ending}")
    if folder:
        refuse_taken(output, replace=force)
    elif not force and Path(output).exists() and Path(output).is_file():
        raise FileError(f"'{output}' exists already", hint="choose another name, or replace it with --force")
    else:
        refuse_unwritable(output)


def print_json(plain: dict[str, Any]) -> None:
    """Print one JSON object, in ASCII so that every terminal and pipe can carry it."""
    context = click.get_current_context(silent=True)
    files = [] if context is None else [described(table) for table in context.meta.get(_READ, []) if is_text(table)]
    plain = {**plain, "read": files} if files else plain
    click.echo(json.dumps(plain, allow_nan=False).replace("\x7f", "\\u007f"))
