"""The commands for real hosts: ``authority``, ``key``, ``agree``, ``coordinate`` and ``join``; see `host_commands`."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path

import click

from sfumato.errors import FileError, OptionError, SfumatoError
from sfumato.federation.flower import keys


@click.group()
def commands() -> None:
    """Run federated computations between machines, over Flower."""


@commands.command()
@click.option("--folder", type=Path, required=True, help="Where the certificates go.")
@click.option("--address", required=True, help="HOST:PORT by which data holders reach the server.")
@click.option("--days", type=click.FloatRange(0, min_open=True), default=365.0, show_default=True)
def authority(folder: Path, address: str, days: float) -> None:
    """Make the server's certificates."""
    click.echo(keys.make_authority(folder, keys.split_address(address)[0], days=days))


@commands.command()
@click.option("--folder", type=Path, required=True, help="The data holder's private folder.")
def key(folder: Path) -> None:
    """Make a data holder's keys: node.pub, by which the server knows it, and identity.pub, for sums by masks."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keys.make_identity(folder)
    click.echo(keys.make_node_key(folder))


@commands.command()
@click.option("--plan", type=Path, required=True, help="The file that 'sfumato federate --hosts' wrote.")
@click.option("--identity", multiple=True, required=True, help="NAME=FILE, the identity.pub of a data holder.")
@click.option("--to", type=Path, default=Path("federation.json"), show_default=True, help="The file to write.")
def agree(plan: Path, identity: tuple[str, ...], to: Path) -> None:
    """Write what all parties agree on: the plan, and who takes part. Every holder reads it before it joins."""
    from sfumato.federation.flower.training import write_agreement

    click.echo(write_agreement(plan, _by_name("--identity", identity), to))


@commands.command()
@click.option("--folder", type=Path, required=True, help="Holds the certificates.")
@click.option("--address", required=True, help="HOST:PORT by which data holders reach the server.")
@click.option("--main", required=True, help="MODULE:FUNCTION, called with the channel once all are online.")
@click.option("--key", "public", multiple=True, required=True, help="NAME=FILE, the public key of a data holder.")
@click.option("--wait", type=click.FloatRange(1), default=3600.0, show_default=True, help="Seconds for all to join.")
@click.option("--set", "given", multiple=True, help="NAME=TEXT, an argument of the function.")
def coordinate(
    folder: Path, address: str, main: str, public: tuple[str, ...], wait: float, given: tuple[str, ...]
) -> None:
    """Start the server, wait for the data holders, and run."""
    from sfumato.federation.flower.holder import load_factory
    from sfumato.federation.flower.server import coordinate as serve

    parties = {name: Path(path) for name, path in _by_name("--key", public).items()}
    work, arguments = load_factory(main), _by_name("--set", given)
    with serve(folder, parties, address=address) as channel:
        click.echo(f"the server is up at {address}; waiting for {', '.join(parties)}", err=True)
        channel.wait(wait)
        click.echo("all are online", err=True)
        work(channel, **arguments)


@commands.command()
@click.option("--name", required=True, help="The party's name.")
@click.option("--folder", type=Path, required=True, help="The data holder's private folder.")
@click.option("--server", required=True, help="HOST:PORT of the coordinator.")
@click.option("--ca", type=Path, required=True, help="The coordinator's ca.pem.")
@click.option("--party", required=True, help="MODULE:FUNCTION that makes the party.")
@click.option("--arguments", type=Path, help="A JSON file with the function's arguments.")
@click.option("--set", "more", multiple=True, help="NAME=TEXT, another argument of the function.")
def join(
    name: str, folder: Path, server: str, ca: Path, party: str, arguments: Path | None, more: tuple[str, ...]
) -> None:
    """Take part as a data holder."""
    from sfumato.federation.flower.holder import join as take_part

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary files are removed
    given = {}
    if arguments is not None:
        try:
            given = json.loads(arguments.read_text())
        except (OSError, ValueError) as error:
            raise FileError(f"'{arguments}' cannot be read as JSON") from error
    given |= _by_name("--set", more)
    take_part(name, folder, party, given, server=server, authority=ca, progress=partial(click.echo, err=True))


def _by_name(option: str, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in values]
    if wrong := [one for one, (name, _, value) in zip(values, pairs, strict=True) if not name or not value]:
        raise OptionError(f"{option} must be NAME=VALUE, got '{wrong[0]}'")
    return {name: value for name, _, value in pairs}


def main() -> None:
    """Run a command; an error is one sentence."""
    try:
        commands()
    except SfumatoError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
