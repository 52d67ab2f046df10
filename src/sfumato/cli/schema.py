"""``sfumato schema``: propose what each column of a table is."""

from __future__ import annotations

import click

from sfumato.cli.options import Command, Names, print_json
from sfumato.data.schema import Schema
from sfumato.data.table import read

__all__ = ["schema"]


@click.command(cls=Command)
@click.argument("data", metavar="FILE")
@click.option("-o", "--output", metavar="OUT.toml", help="Write the schema there; edit it, then use it with --schema.")
@click.option("--na", type=Names(), default="", help="Texts that stand for a missing value, such as ?,NA.")
@click.option("--separator", metavar="C", help="What separates fields; found from the header by default.")
@click.option("--encoding", default="utf-8", show_default=True, help="The encoding of a text file.")
def schema(data: str, as_json: bool, output: str | None, na: list[str], separator: str | None, encoding: str) -> None:
    """Propose what each column of a table is, with reasons.

    Roles: identifier (names a person alone), quasi (known to others), sensitive
    (must not be learnt), target (to be predicted), other. It is a starting point:
    read the reasons and correct what is wrong before you rely on it.

    \b
    sfumato schema patients.csv -o schema.toml
    sfumato assess patients.csv --schema schema.toml
    """
    proposal = Schema.suggest(read(data, separator=separator, encoding=encoding, na=na))
    if output:
        proposal.save(output)
        click.echo(f"The schema is in {output}: check every role, then use it with --schema", err=True)
    if as_json:
        print_json(proposal.to_dict())
    elif not output:
        width = max(len(column.name) for column in proposal.columns)
        for column in proposal.columns:
            role = click.style(f"{column.role.value:<10}", bold=column.role.value != "other")
            click.echo(f"{column.name:<{width}}  {role}  {column.kind.value:<8}  {column.reason}")
