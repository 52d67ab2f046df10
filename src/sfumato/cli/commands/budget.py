"""``sfumato budget``: grant a data set a privacy budget, and see what was spent of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Relation
from sfumato.budget.ledger.ledger import Ledger
from sfumato.cli.options import (
    Command,
    choice,
    file_options,
    force_option,
    keep_input,
    keep_output,
    print_json,
    read_table,
)
from sfumato.cli.terminal import echo, style
from sfumato.data.io.files import atomic_path
from sfumato.data.validate import real

__all__ = ["NOT_PRIVATE", "budget", "ledger_option", "seed_option"]

NOT_PRIVATE = "The seed of the noise was given: this is reproducible, and not private."


def ledger_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the file of the ledger."""
    return click.option(
        "--ledger", metavar="LEDGER", help="The file of the ledger; by default it is found by what the data holds."
    )(command)


def seed_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that makes noise reproducible."""
    return click.option(
        "--insecure-seed", type=click.IntRange(min=0), metavar="N", help="Reproducible noise, for a test: not private."
    )(command)


@click.group(invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def budget(ctx: click.Context) -> None:
    """Grant a data set a privacy budget, and see what was spent of it.

    The ledger of a data set is found by the content of the data: the same rows in
    another file, format or order have the same ledger.

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
@click.option("--epsilon", type=float, required=True, metavar="E", help="How much may be spent in all.")
@click.option("--delta", type=float, default=0.0, metavar="D", help="Below one over the number of rows.  [default: 0]")
@click.option("--relation", type=choice(Relation), help="What is protected.  [default: add-remove]")
@click.option("--note", default="", metavar="TEXT", help="Why; it is kept in the history.")
def grant(
    as_json: bool, epsilon: float, delta: float, relation: str | None, note: str, ledger: str | None, **options: Any
) -> None:
    """Grant the data in FILE a limit of epsilon and delta together.

    All that is released of it from now on must fit within the limit. A limit that is
    granted later takes the place of the one before; what was spent stays spent.
    """
    real("epsilon", epsilon, above=0)
    check_delta(delta, allow_zero=True)
    table = read_table(schema=None, shown=False, **options)
    with Ledger.grant(table, epsilon=epsilon, delta=delta, relation=relation, note=note, path=ledger) as granted:
        _show(granted, as_json)
        echo(f"The ledger is {granted.path}", err=True)


@budget.command(cls=Command)
@file_options
@ledger_option
def show(as_json: bool, ledger: str | None, **options: Any) -> None:
    """Say what was granted for the data in FILE, what is spent and what is left."""
    with Ledger.of(read_table(schema=None, shown=False, **options), ledger) as found:
        _show(found, as_json)


@budget.command(cls=Command)
@file_options
@ledger_option
def history(as_json: bool, ledger: str | None, **options: Any) -> None:
    """List everything that was granted and charged for the data in FILE."""
    with Ledger.of(read_table(schema=None, shown=False, **options), ledger) as found:
        if as_json:
            print_json({**found.to_dict(), "history": found.history()})
            return
        for entry in found.history():
            echo(f"{entry['time'][:19].replace('T', ' ')}  {_line(entry)}")
        _summary(found.to_dict())


@budget.command(cls=Command)
@file_options
@ledger_option
@click.option("-o", "--output", metavar="OUT.json", help="Write it there instead of on stdout.")
@force_option
def export(as_json: bool, ledger: str | None, output: str | None, force: bool, **options: Any) -> None:
    """Write the whole ledger of the data in FILE as JSON, for an auditor."""
    keep_input(output, options["data"], ledger)
    keep_output(output, force=force)
    with Ledger.of(read_table(schema=None, shown=False, **options), ledger) as found:
        plain = found.export()
    if output is None:
        print_json(plain)
        return
    with atomic_path(output) as temporary:
        temporary.write_text(json.dumps(plain, allow_nan=False, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json({"file": output, "entries": len(plain["entries"])})
    echo(f"The ledger is written to {output}", err=True)


def _show(ledger: Ledger, as_json: bool) -> None:
    if as_json:
        print_json(ledger.to_dict())
    else:
        _summary(ledger.to_dict())


def _summary(plain: dict[str, Any]) -> None:
    limit, spent = plain["limit"], plain["spent"]
    left = plain["left"]
    echo(
        f"{style('spent', bold=True)} epsilon {_number(spent['epsilon'])} of {_number(limit['epsilon'])}, "
        f"delta {limit['delta']:g}, to {Relation(plain['relation']).in_words}"
    )
    echo(f"{style('left', bold=True)}  epsilon {_number(left)}", nl=False)
    held = len(plain["reservations"])
    echo(f", besides {held} reservation{'s' * (held > 1)}" if held else "")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _line(entry: dict[str, Any]) -> str:
    note = f" ({entry['note']})" if entry.get("note") else ""
    if entry["kind"] == "grant":
        return f"granted  epsilon {entry['epsilon']:g}, delta {entry['delta']:g}{note}"
    if entry["kind"] == "charge":
        return f"charged  {entry['what']}{note}{'' if entry['private'] else ', SEEDED: NOT PRIVATE'}"
    if entry["kind"] == "reserve":
        return f"reserved {entry['what']}, until {entry['expires'][:19].replace('T', ' ')}{note}"
    if entry["kind"] == "release":
        return f"released reservation {entry['reservation']}"
    return f"made     {Relation(entry['relation']).in_words}"
