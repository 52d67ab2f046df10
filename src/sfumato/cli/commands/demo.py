"""``sfumato demo``: assess the built-in census table, make it anonymous, and write a page about each."""

from __future__ import annotations

from pathlib import Path

import click

import sfumato as sf
from sfumato.cli.commands.assess import print_assessment
from sfumato.cli.options import Command, print_json
from sfumato.cli.progress import note_if_slow
from sfumato.cli.terminal import echo
from sfumato.errors import FileError

__all__ = ["demo"]

_ASKED = "k=10,l=2"


@click.command(cls=Command)
@click.option(
    "-o", "--output", default="sfumato-demo", show_default=True, help="The folder for the pages and the release."
)
def demo(as_json: bool, output: str) -> None:
    """Try it on a built-in census table.

    48,842 people of the 1994 US census: how many of them are unique by their age,
    education, occupation, family role, sex and country, and what would that reveal
    about their income? Then a release in which everyone is hidden among at least nine
    others. Needs no network.
    """
    from sfumato.data.io.files import why

    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"the folder '{output}' cannot be made: {why(error)}") from error
    adult, page, release = sf.datasets.adult(), folder / "report.html", folder / "release"
    assessment = sf.assess(adult, detail=True)
    sf.write_report(assessment, page, title="How anonymous is the Adult census table?")
    if not as_json:
        print_assessment(assessment)
    if not release.exists():  # left by an earlier demo
        with note_if_slow("Making a release ..."):
            sf.save(sf.anonymize(adult, _ASKED), release)
    verdict = sf.verify(release)
    if as_json:
        plain = {"report": str(page), "assessment": assessment.to_dict()}
        print_json(plain | {"release": str(release), "verification": verdict.to_dict()})
        return
    echo()
    echo(f"A release in which no row is unique is in {release}; {'all' if verdict else 'not all'} of its")
    echo(f"{len(verdict.claims)} claims hold. To make it yourself:")
    echo(f"  sfumato anonymize adult --qi {','.join(adult.schema.quasi)} \\")
    echo("      --sensitive income --k 10 --l 2 -o release")
    echo()
    echo(f"Open {page} and {release / 'report.html'} in a browser.")
