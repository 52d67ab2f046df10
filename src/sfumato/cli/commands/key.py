"""``sfumato key``: make a secret key."""

from __future__ import annotations

import click

import sfumato as sf
from sfumato.cli.options import Command, print_json
from sfumato.cli.terminal import echo
from sfumato.errors import OptionError

__all__ = ["key"]


@click.group(invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def key(ctx: click.Context) -> None:
    """Make a secret key for pseudonyms.

    \b
    sfumato key new pseudonyms.key
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@key.command(cls=Command)
@click.argument("file", metavar="FILE")
def new(file: str, as_json: bool) -> None:
    """Write a new random key to FILE, which only you can read.

    The key makes the tokens of 'sfumato pseudonymize', and reverses them. Store it apart
    from the tables, and keep a copy: without it, no later table gets the same tokens. An
    existing file is never overwritten.
    """
    if file == "-":
        raise OptionError("'-' is stdout, where a key cannot go", hint="name a new file, which only you can read")
    sf.Key.new(file)
    if as_json:
        print_json({"file": file})
    echo(f"The key is in {file}: keep it secret, apart from the tables, and keep a copy", err=True)
