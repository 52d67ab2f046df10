"""``sfumato perturb``: perturb every record on its own."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.commands.budget import NOT_PRIVATE, ledger_option, seed_option
from sfumato.cli.options import (
    Command,
    declared,
    file_options,
    force_option,
    is_file,
    keep_input,
    keep_output,
    names_option,
    print_json,
    public_options,
)
from sfumato.cli.terminal import echo, printable
from sfumato.data.validate import real
from sfumato.masking.perturb import perturb as perturb_table
from sfumato.releases.save import save

__all__ = ["perturb"]


@click.command(cls=Command)
@file_options
@names_option("--columns", "The columns to perturb; the others are left out.")
@click.option("--epsilon", type=float, required=True, metavar="E", help="For a whole record, all columns together.")
@public_options
@click.option(
    "--missing", is_flag=True, help="Categories: let a missing or unlisted value be an answer like the others."
)
@click.option("--note", default="", metavar="TEXT", help="What for; it is kept in the history.")
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
    """Perturb every record on its own, as if by the person before handing it in.

    A column with a domain gets randomized response, one with bounds Laplace noise.
    OUT.json says how, so that 'sfumato estimate OUT' can tell what holds of all
    people together. The guarantee is local differential privacy: it holds against
    everybody who sees OUT, and does not hide how many records there are.

    \b
    sfumato perturb answers.csv --columns smokes --domain smokes=yes,no --epsilon 1 -o out.csv
    sfumato estimate out.csv
    """
    keep_input(output, options["data"], options["schema_file"], ledger)
    alone = is_file(output)
    keep_output(output, force=force, folder=not alone)
    if alone:
        keep_output(f"{output}.json", force=force)
        keep_input(f"{output}.json", options["data"], options["schema_file"], ledger)
    real("epsilon", epsilon, above=0)
    table, public = declared(**options)
    perturbed = perturb_table(
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
        save(perturbed, output, replace=force)
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
