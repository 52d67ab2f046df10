"""``sfumato assess``: measure how anonymous a table is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sfumato.cli.options import (
    Command,
    choice,
    force_option,
    keep_input,
    keep_output,
    load_table,
    print_json,
    read_table,
    reading,
    rows_option,
    table_options,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.summary import print_assessment
from sfumato.cli.terminal import echo
from sfumato.data.table import Table
from sfumato.engines.dispatch import EngineName
from sfumato.errors import OptionError
from sfumato.measures.assess import SAFE_HARBOR, Classes
from sfumato.measures.assess import assess as assess_table
from sfumato.measures.classes import Missing
from sfumato.measures.distance import Distance
from sfumato.measures.models import Absent, parse
from sfumato.measures.risk.reidentification import PRESETS, THRESHOLD

__all__ = ["assess"]


@click.command(cls=Command)
@table_options
@click.option("--require", metavar="k=10,l=3", multiple=True, help="What must hold; exit code 1 if it does not.")
@rows_option
@click.option("--report", metavar="OUT.html", help="Write a page that people can read.")
@force_option
@click.option("--missing", type=choice(Missing), default="value", show_default=True, help="What a missing value means.")
@click.option(
    "--classes",
    type=choice(Classes),
    default="qi",
    show_default=True,
    help="What makes a class when several columns are sensitive.",
)
@click.option(
    "--distance",
    type=choice(Distance),
    default="auto",
    show_default=True,
    help="How far apart two sensitive values are, for t-closeness.",
)
@click.option(
    "--absent",
    type=choice(Absent),
    default="ignore",
    show_default=True,
    help="Whether a value that a class lacks makes delta-disclosure infinite.",
)
@click.option(
    "--suppressed",
    metavar="MARK",
    default="*",
    show_default=True,
    help="A row whose quasi-identifiers all hold this mark is suppressed; '' for none.",
)
@click.option("--population", metavar="FILE", help="A table of everyone, for the risk against the whole population.")
@click.option("--population-table", metavar="NAME", help="Its table, if --population is the address of a database.")
@click.option("--population-size", type=int, metavar="N", help="How many people there are: estimates who is unique.")
@click.option("--threshold", type=float, help=f"The risk above which a row is at risk.  [default: {THRESHOLD}]")
@click.option("--preset", type=click.Choice([*PRESETS, SAFE_HARBOR]), help="Rules that others have set.")
@click.option(
    "--engine",
    type=click.Choice([name.value for name in EngineName if name is not EngineName.SPARK]),
    default="auto",
    show_default=True,
    help="Where the rows are counted: auto is where they are, memory fetches those of a database.",
)
@click.option("--detail", is_flag=True, help="Find out which columns single people out; implied by --report.")
@click.pass_context
def assess(
    ctx: click.Context,
    /,
    as_json: bool,
    require: tuple[str, ...],
    rows_are_units: bool,
    report: str | None,
    force: bool,
    missing: str,
    classes: str,
    distance: str,
    absent: str,
    suppressed: str,
    population: str | None,
    population_table: str | None,
    population_size: int | None,
    threshold: float | None,
    preset: str | None,
    engine: str,
    detail: bool,
    **table_options: Any,
) -> None:
    """Measure how anonymous a table is.

    FILE is a CSV, TSV, JSON lines, Parquet, Arrow, Excel or DuckDB file, - for the
    standard input, the name of a built-in table (adult, nursery), or the address of a
    database together with --table. Name the
    columns that others know about a person with --qi and what must not be learnt
    with --sensitive. The nine measures tell how well people hide among each other.

    \b
    sfumato assess patients.csv --qi age,zip,sex --sensitive disease
    sfumato assess patients.csv --qi age,zip --require k=10 --report page.html
    sfumato assess postgresql://me@host/clinic --table patients --qi age,zip
    """
    keep_input(report, table_options["data"], table_options["schema_file"], population)
    keep_output(report, force=force, instead="name a file that ends in .html", ending=".html")
    if require:
        parse(",".join(require))  # so that a mistake is found before a large file is read
    with progress_bar("Counting") as progress:
        assessment = assess_table(
            load_table(**table_options),
            require=",".join(require),
            rows_are_units=rows_are_units,
            missing=missing,
            classes=classes,
            distance=distance,
            absent=absent,
            suppressed=suppressed or None,
            threshold=threshold,
            population=_population(population, population_table, reading(table_options)),
            population_size=population_size,
            preset=preset,
            detail=detail or report is not None,
            engine=engine,
            progress=progress,
        )
    if report:
        from sfumato.report.page import write_report

        name = table_options["table"] or Path(table_options["data"]).name
        write_report(assessment, report, title=f"How anonymous is {name}?")
    if as_json:
        print_json(assessment.to_dict())
    else:
        print_assessment(assessment)
    if report:
        echo(f"The report is in {report}", err=True)
    ctx.exit(1 if assessment.satisfied is False else 0)


def _population(data: str | None, table: str | None, reading: dict[str, Any]) -> Table | None:
    if data is None:
        return None
    if "://" in data:  # its texts need no separator, and its missing values no marks
        reading = {**dict.fromkeys(reading), "na": [], "dates": ()}
        if table is None:
            raise OptionError("no table of the population's database is named", hint="give --population-table")
    return read_table(data, None, table=table, **reading)
