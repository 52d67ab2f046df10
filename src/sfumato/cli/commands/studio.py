"""``sfumato studio``: the toolkit in a browser."""

from __future__ import annotations

import click

from sfumato.cli.options import Command, Number, print_json
from sfumato.cli.terminal import echo

__all__ = ["studio"]


@click.command(cls=Command)
@click.argument("data", metavar="[FILE]", required=False)
@click.option("--table", default="", metavar="NAME", help="The table to open, if FILE is the address of a database.")
@click.option(
    "--port", type=Number(is_whole=True, least=0, most=65535), default=0, help="The port.  [default: a free one]"
)
@click.option("--folder", metavar="FOLDER", help="Where the work is kept.  [default: ~/.config/sfumato/studio]")
@click.option("--no-browser", is_flag=True, help="Print the address, and do not open a browser.")
def studio(as_json: bool, data: str | None, table: str, port: int, folder: str | None, no_browser: bool) -> None:
    """Use Sfumato in a browser, on this machine alone.

    Opens a page that leads from a table to a verified release: the roles of its columns,
    how identifiable people are, the guarantees, methods side by side, attacks, and the
    choice. FILE is a table, the address of a database together with --table, or the
    built-in adult or nursery.

    Nothing leaves this machine. The address works once, in one browser; other users of
    the machine are kept out. Your work is kept in a folder that only you can enter. Stop
    with Ctrl-C; running work continues, and is there when you start the studio again.

    \b
    sfumato studio
    sfumato studio patients.csv
    sfumato studio adult --no-browser --port 8765
    """
    from sfumato.studio import serve

    def ready(address: str) -> None:
        if as_json:
            print_json({"address": address})
        else:
            echo(f"The studio is at {address}", err=True)
            echo("The address works once. Stop with Ctrl-C.", err=True)

    serve(data, table=table, port=int(port), folder=folder, browser=not no_browser, ready=ready)
