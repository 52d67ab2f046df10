"""``sfumato demo``: assess the built-in census table, make it anonymous, and write a page about each."""

from __future__ import annotations

from pathlib import Path

import click

from sfumato.anonymizers.anonymize import anonymize
from sfumato.cli.options import Command, print_json
from sfumato.cli.progress import patience
from sfumato.cli.summary import print_assessment
from sfumato.cli.terminal import echo
from sfumato.data import datasets
from sfumato.data.io.files import why
from sfumato.errors import FileError
from sfumato.measures.assess import assess
from sfumato.releases.save import REPORT, save
from sfumato.releases.verify import verify
from sfumato.report.page import write_report

__all__ = ["demo"]

_ASKED = "k=10,l=2"


@click.command(cls=Command)
@click.option("-o", "--output", default="sfumato-demo", show_default=True, help="The folder to write the page to.")
def demo(as_json: bool, output: str) -> None:
    """See it work on a census table that is built in.

    48,842 people of the 1994 US census: how many of them can be found by their
    age, education, occupation, family role, sex and country, and what would that
    reveal of their income? Then a release in which nobody can be. Needs no network.
    """
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"the folder '{output}' cannot be made: {why(error)}") from error
    adult, page, release = datasets.adult(), folder / "report.html", folder / "release"
    assessment = assess(adult, detail=True)
    write_report(assessment, page, title="How anonymous is the Adult census table?")
    if not as_json:
        print_assessment(assessment)
    if not release.exists():  # from an earlier demo
        with patience("Making a release; the very first run compiles for some seconds ..."):
            save(anonymize(adult, _ASKED), release)
    verdict = verify(release)
    if as_json:
        plain = {"report": str(page), "assessment": assessment.to_dict()}
        print_json(plain | {"release": str(release), "verification": verdict.to_dict()})
        return
    echo()
    echo(f"A release in which nobody stands alone is in {release}; {'all' if verdict else 'not all'} of its")
    echo(f"{len(verdict.claims)} claims hold. It was made as by")
    echo(f"  sfumato anonymize adult --qi {','.join(adult.schema.quasi)} \\")
    echo("      --sensitive income --k 10 --l 2 -o release")
    echo()
    echo(f"Open {page} and {release / REPORT} in a browser.")
