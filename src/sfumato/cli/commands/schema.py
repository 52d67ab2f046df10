"""``sfumato schema``: propose what each column of a table is."""

from __future__ import annotations

from typing import Any

import click

from sfumato.cli.options import (
    Command,
    file_options,
    force_option,
    keep_input,
    keep_output,
    print_json,
    read_table,
)
from sfumato.cli.terminal import echo, style
from sfumato.data.io.files import atomic_path
from sfumato.data.proposal import to_commented_toml
from sfumato.data.schema import Schema

__all__ = ["schema"]


@click.command(cls=Command)
@file_options
@click.option("-o", "--output", metavar="OUT.toml", help="Write the schema there; edit it, then use it with --schema.")
@force_option
def schema(data: str, as_json: bool, output: str | None, force: bool, **reading: Any) -> None:
    """Propose what each column of a table is, with reasons.

    Roles: identifier (names a person alone), quasi (known to others), sensitive
    (must not be learnt), target (to be predicted), other. It is a starting point:
    read the reasons and correct what is wrong before you rely on it.

    OUT.toml also has bounds of numbers and lists of values, in comments: what a
    schema declares is public, so confirm each by removing the mark before it.

    \b
    sfumato schema patients.csv -o schema.toml
    sfumato assess patients.csv --schema schema.toml
    """
    keep_input(output, data)
    keep_output(output, force=force, instead="without -o it is shown")
    table = read_table(data, None, **reading)
    proposal = Schema.suggest(table)
    if output:
        with atomic_path(output) as temporary:
            temporary.write_text(to_commented_toml(proposal, table), encoding="utf-8")
        echo(f"The schema is in {output}: check every role, then use it with --schema", err=True)
    if as_json:
        print_json(proposal.to_dict())
    elif not output:
        width = max(len(column.name) for column in proposal.columns)
        for column in proposal.columns:
            role = style(f"{column.role.value:<10}", bold=column.role.value != "other")
            echo(f"{column.name:<{width}}  {role}  {column.kind.value:<8}  {column.reason}")
