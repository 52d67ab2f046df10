"""``sfumato demo``: assess the built-in census table and write a page about it."""

from __future__ import annotations

from pathlib import Path

import click

from sfumato._errors import FileError
from sfumato.cli.assess import print_assessment
from sfumato.cli.options import Command, print_json
from sfumato.data import datasets
from sfumato.data.files import why
from sfumato.measures.assess import assess
from sfumato.report.page import write_report

__all__ = ["demo"]


@click.command(cls=Command)
@click.option("-o", "--output", default="sfumato-demo", show_default=True, help="The folder to write the page to.")
def demo(as_json: bool, output: str) -> None:
    """See it work on a census table that is built in.

    48,842 people of the 1994 US census: how many of them can be found by their
    age, education, occupation, family role, sex and country, and what would that
    reveal of their income? Needs no network.
    """
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"the folder '{output}' cannot be made: {why(error)}") from error
    assessment = assess(datasets.adult(), detail=True)
    page = folder / "report.html"
    write_report(assessment, page, title="How anonymous is the Adult census table?")
    if as_json:
        print_json({"report": str(page), "assessment": assessment.to_dict()})
    else:
        print_assessment(assessment)
        click.echo(f"\nThe report is in {page}: open it in a browser.")
