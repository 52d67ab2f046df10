"""``sfumato budget``: grant a data set a privacy budget, and show what was spent."""

from __future__ import annotations

import json
from typing import Any

import click

import sfumato as sf
from sfumato.cli.options import (
    Choice,
    Command,
    Number,
    check_not_input,
    check_output,
    file_options,
    force_option,
    ledger_option,
    print_json,
)
from sfumato.cli.terminal import echo, style
from sfumato.errors import OptionError

__all__ = ["NOT_PRIVATE", "budget"]

NOT_PRIVATE = "The seed of the noise was given: this is reproducible, and not private."


@click.group(invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def budget(ctx: click.Context) -> None:
    """Grant a data set a privacy budget, and show what was spent.

    A budget limits what all private answers about the data may reveal together. The
    ledger records it. It is found by the content of the data: the same rows in another
    file, format or order have the same ledger. FILE is a table, or labelled images: an
    .npz file or a folder of IDX files.

    \b
    sfumato budget grant patients.csv --epsilon 2 --delta 1e-6
    sfumato query patients.csv "count by sex" --epsilon 0.5 --schema schema.toml
    sfumato budget show patients.csv
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@budget.command(cls=Command)
@file_options
@ledger_option
@click.option("--epsilon", type=Number(above=0), required=True, metavar="E", help="The limit for everything together.")
@click.option(
    "--delta", type=Number(), default=0.0, metavar="D", help="The chance of failure; below 1 / rows.  [default: 0]"
)
@click.option(
    "--relation",
    type=Choice("add-remove", "replace-one", of="budget.events:Relation"),
    help="What is hidden: whether a record is there, or what is in it.  [default: add-remove]",
)
@click.option(
    "--unit",
    type=Choice("row", "person", "client", of="data.certificate:UNITS"),
    default="row",
    show_default=True,
    help="What is protected: a row, a person with all of their rows, or all of the data. The last two need --ledger.",
)
@click.option(
    "--person",
    metavar="NAME",
    help="With --unit person: the column that says which rows are of the same person. Others are then refused.",
)
@click.option(
    "--with",
    "others",
    metavar="FILE",
    multiple=True,
    help="With --person: another table of the same people, for the same limit; read like FILE. Can be repeated.",
)
@click.option("--note", default="", metavar="TEXT", help="The reason, for the history.")
def grant(
    as_json: bool,
    epsilon: float,
    delta: float,
    relation: str | None,
    unit: str,
    person: str | None,
    others: tuple[str, ...],
    note: str,
    ledger: str | None,
    **options: Any,
) -> None:
    """Grant the data in FILE a limit of epsilon and delta.

    Everything released about it from now on must fit within the limit. A later grant
    replaces the limit; what was spent stays spent.
    """
    sf.budget.check_delta(delta, allow_zero=True)
    data = _data(**options)
    if others:
        data = [data, *(_data(**{**options, "data": one}) for one in others)]
    terms: dict[str, Any] = {"relation": relation, "note": note, "unit": unit, "person": person}
    with sf.Ledger.grant(data, epsilon=epsilon, delta=delta, path=ledger, **terms) as granted:
        _show(granted, as_json)
        echo(f"The ledger is {granted.path}", err=True)


@budget.command(cls=Command)
@file_options
@ledger_option
def show(as_json: bool, ledger: str | None, **options: Any) -> None:
    """Show what was granted for the data in FILE, what is spent and what is left."""
    with _open(ledger, options) as opened:
        _show(opened, as_json)


@budget.command(cls=Command)
@file_options
@ledger_option
def history(as_json: bool, ledger: str | None, **options: Any) -> None:
    """List everything that was granted and charged for the data in FILE."""
    with _open(ledger, options) as opened:
        if as_json:
            print_json({**opened.to_dict(), "history": opened.history()})
            return
        for entry in opened.history():
            echo(f"{entry['time'][:19].replace('T', ' ')}  {_line(entry, opened.unit)}")
        _summary(opened.to_dict())


@budget.command(cls=Command)
@file_options
@ledger_option
@click.option("-o", "--output", metavar="OUT.json", help="The file to write.  [default: print it]")
@force_option
def export(as_json: bool, ledger: str | None, output: str | None, force: bool, **options: Any) -> None:
    """Write the whole ledger of the data in FILE as JSON, for an auditor."""
    from sfumato.data.io.files import atomic_path

    check_not_input(output, options["data"], ledger)
    check_output(output, force=force)
    with _open(ledger, options) as opened:
        plain = opened.export()
    if output is None:
        print_json(plain)
        return
    with atomic_path(output) as temporary:
        temporary.write_text(json.dumps(plain, allow_nan=False, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json({"file": output, "entries": len(plain["entries"])})
    echo(f"The ledger is written to {output}", err=True)


def _open(path: str | None, options: dict[str, Any]) -> sf.Ledger:
    return sf.Ledger.of(_data(**options), path)


def _data(data: str, **reading: Any) -> Any:
    """Return the table, or the images, that the options describe."""
    from sfumato.cli.tables import read_table
    from sfumato.data.io.images import are_images, read_images

    if not are_images(data):
        return read_table(data, schema=None, shown=False, **reading)
    if any(reading.values()):
        raise OptionError(f"'{data}' holds images: it takes no options for reading a table", hint="leave them out")
    return read_images(data)


def _show(ledger: sf.Ledger, as_json: bool) -> None:
    if as_json:
        print_json(ledger.to_dict())
    else:
        _summary(ledger.to_dict())


def _summary(plain: dict[str, Any]) -> None:
    limit, spent = plain["limit"], plain["spent"]
    echo(
        f"{style('spent', bold=True)} epsilon {_number(spent['epsilon'])} of {_number(limit['epsilon'])}, "
        f"delta {limit['delta']:g}, to {sf.budget.Relation(plain['relation']).of_one(plain['unit'])}"
    )
    reserved = len(plain["reservations"])
    besides = f", besides {reserved} reservation{'s' * (reserved > 1)}" if reserved else ""
    echo(f"{style('left', bold=True)}  epsilon {_number(plain['left'])}{besides}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _line(entry: dict[str, Any], unit: str) -> str:
    note = f" ({entry['note']})" if entry.get("note") else ""
    if entry["kind"] == "grant":
        return f"granted  epsilon {entry['epsilon']:g}, delta {entry['delta']:g}{note}"
    if entry["kind"] == "charge":
        return f"charged  {entry['what']}{note}{'' if entry['private'] else ', SEEDED: NOT PRIVATE'}"
    if entry["kind"] == "reserve":
        return f"reserved {entry['what']}, until {entry['expires'][:19].replace('T', ' ')}{note}"
    if entry["kind"] == "release":
        return f"released reservation {entry['reservation']}"
    return f"made     {sf.budget.Relation(entry['relation']).of_one(unit)}"
