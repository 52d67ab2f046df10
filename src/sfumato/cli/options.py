"""What the commands share: their common options, and the checks of what they read and write.

Only light modules are imported here and at the top of a command, so that a wrong option is refused at once; the rest is
imported when a command runs.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from sfumato.cli.terminal import be_quiet, echo, show_as, table_on_stdout
from sfumato.data.validate import real, whole
from sfumato.errors import FileError, OptionError, did_you_mean

__all__ = [
    "READ",
    "READING",
    "Choice",
    "Command",
    "Names",
    "Number",
    "Numbers",
    "Setting",
    "check_not_input",
    "check_output",
    "escape_option",
    "file_options",
    "force_option",
    "is_file",
    "ledger_option",
    "names_option",
    "print_json",
    "public_options",
    "reading_options",
    "recipe_file",
    "rows_option",
    "seed_option",
    "table_options",
]

READING = ("table", "sheet", "na", "separator", "encoding", "decimal", "dates")
"""The options that say how a file is read."""
READ = "sfumato.read"
"""Where the context of a command keeps the tables that it has read."""
_TO_STDOUT = ("anonymize", "mask", "pseudonymize")
"""The commands that can write their table to the standard output, as CSV."""
_COMPILING = "Compiling for tables of this size, once on this machine; this takes up to half a minute ..."
_LEDGER = b"SQLite format 3\0"  # how a ledger file begins
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
        """Remove what killed commands left on the disk, run the command, and say how files were read."""
        from sfumato.data.io.folders import sweep_private
        from sfumato.engines.compiling import announce

        sweep_private()
        announce(lambda: echo(_COMPILING, err=True))
        try:
            result = self._to_stdout(ctx) if ctx.params.get("output") == "-" else super().invoke(ctx)
        except click.exceptions.Exit:  # a check failed
            _print_readings(ctx)
            raise
        _print_readings(ctx)
        return result

    def _to_stdout(self, ctx: click.Context) -> Any:
        """Run the command, write its table to the standard output, and everything else to stderr."""
        from sfumato.data.io.folders import private_folder

        if self.name not in _TO_STDOUT:
            raise OptionError(f"{self.name} does not write to the standard output", hint="name a file or a folder")
        if ctx.params["as_json"]:
            raise OptionError("--json and -o - both write to the standard output", hint="give one of them")
        with private_folder() as folder:
            path = folder / "table.csv"
            ctx.params["output"] = str(path)
            show_as(str(path), "the standard output")
            with table_on_stdout():
                result = super().invoke(ctx)
            with path.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return result


def _print_readings(ctx: click.Context) -> None:
    for table in ctx.meta.get(READ, []):
        from sfumato.cli.tables import print_reading

        print_reading(table)


# --- types of options -----------------------------------------------------------------------------


class Names(click.ParamType[list[str]]):
    """Names separated by commas; a name with a comma or a leading blank goes in double quotes."""

    name = "A,B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split the text at its commas."""
        parts = re.findall(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|$)', value)
        names = (quoted.replace('""', '"') if quoted else plain.strip() for quoted, plain in parts)
        return [name for name in names if name]


class Choice(click.ParamType[Any]):
    """One of some names; with `several`, any number of them separated by commas.

    The names are defined in modules such as ``measures.classes:Missing`` (`of`). They are repeated in the commands, and
    compared by a test, because importing the modules would delay every help text and every refusal.
    """

    name = "name"

    def __init__(self, *names: str, of: str, several: bool = False) -> None:
        self.names, self.of, self.several = names, of, several

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the names for the help."""
        return f"[{'|'.join(self.names)}]" + ("[,...]" if self.several else "")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, or a list of them; an unknown one is refused."""
        parts = str(value).split(",") if self.several else [str(value)]
        chosen = list(dict.fromkeys(part.strip() for part in parts if part.strip())) or [str(value)]
        for name in chosen:
            if name not in self.names:
                self.fail(f"'{name}' is unknown ({did_you_mean(name, self.names)})", param, ctx)
        return chosen if self.several else chosen[0]


class Number(click.ParamType[float]):
    """A number in a range; the limits are those of `real`, or of `whole`."""

    name = "N"

    def __init__(self, *, is_whole: bool = False, **limits: Any) -> None:
        self.is_whole, self.limits = is_whole, limits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number, and refuse one out of range."""
        try:
            number = int(value) if self.is_whole else float(value)
        except ValueError:
            number = value
        check: Callable[..., float] = whole if self.is_whole else real
        return check(param.opts[0] if param else "the number", number, **self.limits)


class NumberOr(click.ParamType[Any]):
    """A number in a range, or a word in its place."""

    name = "N"

    def __init__(self, word: str, **limits: Any) -> None:
        self.word, self.number = word, Number(**limits)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Read the word or the number."""
        try:
            return self.word if value == self.word else self.number.convert(value, param, ctx)
        except OptionError as error:
            raise OptionError(str(error), hint=f"or '{self.word}'") from None


class Numbers(click.ParamType[list[float]]):
    """Numbers in a range, separated by commas; each once."""

    name = "N,N"

    def __init__(self, **limits: Any) -> None:
        self.one = Number(**limits)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """Read the numbers."""
        parts = [value] if isinstance(value, float | int) else str(value).split(",")
        return list(dict.fromkeys(self.one.convert(part, param, ctx) for part in parts))


class Setting(click.ParamType[tuple[str, Any]]):
    """The name of a column and its setting, joined by an equals sign."""

    name = "NAME=VALUE"

    def __init__(self, example: str, read: Callable[[str], Any] = str, *, last: bool = False) -> None:
        self.example, self.read, self.last = example, read, last

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split the text at its first (or last) equals sign, and read the setting."""
        text = str(value)
        column, equals, setting = text.rpartition("=") if self.last else text.partition("=")
        try:
            if column and equals and setting.strip():
                return column, self.read(setting.strip())
        except OptionError:
            raise
        except ValueError:
            pass
        raise OptionError(f"{param.opts[0] if param else 'it'} must look like {self.example}, got '{text}'")


def _bounds(text: str) -> tuple[float, float] | tuple[date, date]:
    low: Any
    high: Any
    low, high = map(date.fromisoformat if re.match(r"\d{4}-", text) else float, text.split(","))
    if low > high:
        raise OptionError(f"--bounds needs the smaller number first, got '{text}'")
    return low, high


# --- options --------------------------------------------------------------------------------------


def names_option(flag: str, text: str) -> Callable[[Any], Any]:
    """Make an option for names; given several times, it adds up."""

    def joined(ctx: click.Context, param: click.Parameter, values: tuple[list[str], ...]) -> list[str]:
        return [name for names in values for name in names]

    return click.option(flag, type=Names(), multiple=True, callback=joined, help=text)


escape_option = click.option(
    "--escape-formulas",
    is_flag=True,
    help="Put an apostrophe before cells of a CSV or TSV file that a spreadsheet would run as formulas.",
)
rows_option = click.option(
    "--rows-are-units", is_flag=True, help="Protect single rows, although some people have several."
)
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed_option = click.option(
    "--insecure-seed", type=click.IntRange(min=0), metavar="N", help="Make the noise reproducible, and not private."
)


def ledger_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the ledger file, which must exist unless a budget is granted."""

    def check(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
        if path is not None and ctx.command.name != "grant" and not Path(path).exists():
            raise FileError(f"there is no ledger '{path}'", hint="create one with sfumato budget grant")
        if path is not None and Path(path).is_file():
            with Path(path).open("rb") as file:
                begin = file.read(len(_LEDGER))
            if begin and begin != _LEDGER:
                raise FileError(f"'{path}' is not a ledger", hint="give --ledger a file that sfumato budget grant made")
        return path

    text = "The ledger file.  [default: the one for this data, found by its content]"
    return click.option("--ledger", metavar="LEDGER", callback=check, help=text)(command)


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
        click.option("--table", metavar="NAME", help="The table to read, if FILE is a database."),
        click.option("--sheet", metavar="NAME", help="The sheet of an Excel file; needed if there are several."),
        names_option("--na", "Texts that mean a missing value, such as ?,NA."),
        click.option(
            "--separator", metavar="C", help="The character between fields.  [default: detected in the header]"
        ),
        click.option("--encoding", metavar="NAME", help="The encoding of a text, such as cp1252.  [default: detected]"),
        click.option(
            "--decimal",
            type=click.Choice([",", "."]),
            help="The decimal sign: 3,14 or 3.14.  [default: detected for each column]",
        ),
        click.option(
            "--dates",
            metavar="FORMAT",
            multiple=True,
            help="The date format: dmy (31.12.1980), mdy, ymd, or '%d.%m.%Y'. Can be repeated.  [default: detected]",
        ),
    )


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument FILE and the options that say how to read it and what its columns are."""
    return _add(
        command,
        names_option("--qi", "Quasi-identifiers: columns that others may know about a person, such as age,zip."),
        names_option("--sensitive", "Columns that others must not learn, such as a disease."),
        names_option("--identifiers", "Columns that identify a person directly; they are left out."),
        click.option(
            "--person",
            metavar="NAME",
            help="The column that says which rows are of the same person, such as patient_id: people are counted, not "
            "rows. It is left out.",
        ),
        names_option("--keep", "Columns to release unchanged although they look identifying."),
        click.option("--target", metavar="NAME", help="The column that a model predicts."),
        click.option("--schema", "schema_file", metavar="FILE", help="A TOML file made by 'sfumato schema'."),
        file_options,
    )


def public_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that declare what is public about the columns."""
    return _add(
        command,
        click.option("--schema", "schema_file", metavar="FILE", help="A TOML file with domains and bounds."),
        names_option("--numbers", "Columns of numbers."),
        names_option("--categories", "Columns of categories."),
        click.option(
            "--domain",
            type=Setting("sex=f,m"),
            metavar="NAME=A,B",
            multiple=True,
            help="All values that a column may have. Can be repeated.",
        ),
        click.option(
            "--bounds",
            type=Setting("age=0,100", _bounds),
            metavar="NAME=LOW,HIGH",
            multiple=True,
            help="The smallest and the largest number, or the first and the last date. Can be repeated.",
        ),
    )


# --- checks of inputs and outputs -----------------------------------------------------------------


def check_not_input(output: str | None, *inputs: str | None) -> None:
    """Refuse to write over a file, or a database in a file, that is read."""
    for one in inputs:
        if output and one and Path(output).resolve() == Path(_SQLITE.sub("", one).partition("?")[0]).resolve():
            raise OptionError(f"'{output}' is read and cannot be written too", hint="choose another name")


def is_file(output: str) -> bool:
    """Return whether the output is a file for the table alone, not a folder for the whole release."""
    from sfumato.data.io.files import refuse_only_read

    if output != "-" and (output.endswith(("/", "\\")) or not Path(output).suffix):
        return False
    refuse_only_read(output)
    return True


def check_output(
    output: str | None, *, force: bool, instead: str = "name a file", folder: bool = False, ending: str = ""
) -> None:
    """Refuse an output that cannot be written, or that exists and is not to be replaced.

    Parameters
    ----------
    output : str or None
        A file or a folder.
    force : bool
        Whether ``--force`` is given.
    instead : str
        The hint for ``-o -``, which only tables can be written to.
    folder : bool
        Whether the command writes a folder; an existing one is replaced only if it is a release.
    ending : str
        The required end of the file name.
    """
    from sfumato.data.io.files import refuse_unwritable
    from sfumato.data.io.folders import refuse_taken

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


def recipe_file(name: str, studies: str) -> Path:
    """Return the file of a recipe, or of a built-in study of that name in a folder of the package."""
    built_in = Path(str(files("sfumato").joinpath(studies, f"{name}.toml")))
    return built_in if built_in.is_file() and not Path(name).exists() else Path(name)


def print_json(plain: dict[str, Any]) -> None:
    """Print one JSON object, in ASCII so that every terminal and pipe can carry it."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(READ):
        from sfumato.cli.tables import is_text, reading_dict

        if files := [reading_dict(table) for table in context.meta[READ] if is_text(table)]:
            plain = {**plain, "read": files}
    click.echo(json.dumps(plain, allow_nan=False).replace("\x7f", "\\u007f"))
