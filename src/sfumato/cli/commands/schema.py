"""``sfumato schema``: propose what each column of a table is."""

from __future__ import annotations

from typing import Any

import click

import sfumato as sf
from sfumato.cli.options import Command, check_not_input, check_output, file_options, force_option, print_json
from sfumato.cli.terminal import echo, style

__all__ = ["schema"]


@click.command(cls=Command)
@file_options
@click.option("-o", "--output", metavar="OUT.toml", help="The file to write; edit it, then use it with --schema.")
@force_option
def schema(data: str, as_json: bool, output: str | None, force: bool, **reading: Any) -> None:
    """Propose the role of each column of a table, with reasons.

    Roles: identifier (identifies a person directly), quasi (others may know it),
    sensitive (others must not learn it), target (to be predicted), other. This is a
    starting point: read the reasons and correct mistakes before you rely on it.

    OUT.toml also proposes bounds of numbers and lists of values, commented out. What a
    schema declares is public: uncomment only what may be.

    \b
    sfumato schema patients.csv -o schema.toml
    sfumato assess patients.csv --schema schema.toml
    """
    check_not_input(output, data)
    check_output(output, force=force, instead="without -o it is printed")

    from sfumato.cli.tables import read_table
    from sfumato.data.io.files import atomic_path
    from sfumato.data.proposal import to_commented_toml

    table = read_table(data, None, **reading)
    proposal = sf.Schema.suggest(table)
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
