"""``sfumato perturb``: perturb every record on its own."""

from __future__ import annotations

from typing import Any

import click

import sfumato as sf
from sfumato.cli.commands.budget import NOT_PRIVATE
from sfumato.cli.options import (
    Command,
    Number,
    check_not_input,
    check_output,
    file_options,
    force_option,
    is_file,
    ledger_option,
    names_option,
    print_json,
    public_options,
    seed_option,
)
from sfumato.cli.terminal import echo, printable

__all__ = ["perturb"]


@click.command(cls=Command)
@file_options
@names_option("--columns", "The columns to perturb; the others are left out.")
@click.option(
    "--epsilon",
    type=Number(above=0),
    required=True,
    metavar="E",
    help="The privacy loss of a record, all columns together; less is more private.",
)
@public_options
@click.option("--missing", is_flag=True, help="Allow missing and unlisted values, and hide which ones they are.")
@click.option("--note", default="", metavar="TEXT", help="The purpose, for the history.")
@ledger_option
@seed_option
@force_option
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    required=True,
    help="A file (.csv, .tsv, .jsonl, .parquet, .arrow, .xlsx), or a new folder with a certificate.",
)
def perturb(
    as_json: bool,
    columns: list[str],
    epsilon: float,
    missing: bool,
    note: str,
    ledger: str | None,
    insecure_seed: int | None,
    force: bool,
    output: str,
    **options: Any,
) -> None:
    """Perturb every record on its own, as if each person did it before handing it in.

    A column with a domain gets randomized response, one with bounds Laplace noise.
    OUT.json records how, so that 'sfumato estimate OUT' can estimate shares and means.
    The guarantee is local differential privacy: it holds against everyone who sees OUT,
    and does not hide how many records there are.

    \b
    sfumato perturb answers.csv --columns smokes --domain smokes=yes,no --epsilon 1 -o out.csv
    sfumato estimate out.csv
    """
    check_not_input(output, options["data"], options["schema_file"], ledger)
    alone = is_file(output)
    check_output(output, force=force, folder=not alone)
    if alone:
        check_output(f"{output}.json", force=force)
        check_not_input(f"{output}.json", options["data"], options["schema_file"], ledger)

    from sfumato.cli.tables import read_declared

    table, public = read_declared(**options)
    perturbed = sf.perturb(
        table,
        columns,
        schema=public,
        epsilon=epsilon,
        missing=missing,
        ledger=ledger,
        note=note,
        insecure_seed=insecure_seed,
    )
    if alone:
        perturbed.write(output)
    else:
        sf.save(perturbed, output, replace=force)
    plain = perturbed.to_dict()
    if as_json:
        print_json({**plain, "charged": perturbed.charged, "file" if alone else "folder": output})
    else:
        for name, method in plain["columns"].items():
            echo(f"{printable(name):<26} {method['method']} of epsilon {method['epsilon']:g}")
        echo()
        echo(f"epsilon {epsilon:g} for each record, to {perturbed.event.relation.in_words}")
    if not perturbed.private:
        echo(NOT_PRIVATE, err=True)
    if not perturbed.charged:
        echo("This data has no ledger: nothing was charged.", err=True)
    how = f" and how they were perturbed in {output}.json" if alone else " with their certificate"
    echo(f"The perturbed records are in {output},{how}", err=True)
