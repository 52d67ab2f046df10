"""``sfumato schema``: propose what each column of a table is."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.options import Command, file_options, keep_input, print_json, read_table
from sfumato.cli.terminal import echo, style
from sfumato.data.schema import Schema

__all__ = ["schema"]


@click.command(cls=Command)
@file_options
@click.option("-o", "--output", metavar="OUT.toml", help="Write the schema there; edit it, then use it with --schema.")
def schema(data: str, as_json: bool, output: str | None, **reading: Any) -> None:
    """Propose what each column of a table is, with reasons.

    Roles: identifier (names a person alone), quasi (known to others), sensitive
    (must not be learnt), target (to be predicted), other. It is a starting point:
    read the reasons and correct what is wrong before you rely on it.

    \b
    sfumato schema patients.csv -o schema.toml
    sfumato assess patients.csv --schema schema.toml
    """
    keep_input(output, data)
    proposal = Schema.suggest(read_table(data, None, **reading))
    if output:
        proposal.save(output)
        echo(f"The schema is in {output}: check every role, then use it with --schema", err=True)
    if as_json:
        print_json(proposal.to_dict())
    elif not output:
        width = max(len(column.name) for column in proposal.columns)
        for column in proposal.columns:
            role = style(f"{column.role.value:<10}", bold=column.role.value != "other")
            echo(f"{column.name:<{width}}  {role}  {column.kind.value:<8}  {column.reason}")
