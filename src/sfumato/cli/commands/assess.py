"""``sfumato assess``: measure how anonymous a table is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import sfumato as sf
from sfumato.cli.options import (
    Choice,
    Command,
    Number,
    check_not_input,
    check_output,
    force_option,
    print_json,
    rows_option,
    table_options,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, echo_wrapped, style
from sfumato.errors import OptionError

__all__ = ["assess", "print_assessment"]


@click.command(cls=Command)
@table_options
@click.option(
    "--require",
    metavar="k=10,l=3",
    multiple=True,
    help="The guarantees to check; the exit code is 1 if one does not hold.",
)
@rows_option
@click.option("--report", metavar="OUT.html", help="Write the results as an HTML page.")
@force_option
@click.option(
    "--missing",
    type=Choice("value", "wildcard", "drop", of="measures.classes:Missing"),
    default="value",
    show_default=True,
    help="A missing value is one more value, matches any value, or drops its row.",
)
@click.option(
    "--classes",
    type=Choice("qi", "qi+other-sensitive", of="measures.assess:Classes"),
    default="qi",
    show_default=True,
    help="With several sensitive columns: whether the others count as quasi-identifiers.",
)
@click.option(
    "--distance",
    type=Choice("auto", "equal", "ordered", "scaled", "hierarchical", of="measures.distance:Distance"),
    default="auto",
    show_default=True,
    help="The distance between two sensitive values, for t-closeness.",
)
@click.option(
    "--absent",
    type=Choice("ignore", "infinite", of="measures.models:Absent"),
    default="ignore",
    show_default=True,
    help="Whether a value that a class lacks makes delta-disclosure infinite.",
)
@click.option(
    "--suppressed",
    metavar="MARK",
    default="*",
    show_default=True,
    help="Rows with this mark in every quasi-identifier are suppressed; '' for none.",
)
@click.option("--population", metavar="FILE", help="A table of all people, to measure the risk against.")
@click.option("--population-table", metavar="NAME", help="The table to read, if the population is a database.")
@click.option(
    "--population-size",
    type=Number(is_whole=True),
    help="The number of people in the population, to estimate how many are unique.",
)
@click.option(
    "--threshold", type=Number(least=0, most=1), help="The risk above which a row is at risk.  [default: 0.09]"
)
@click.option(
    "--preset",
    type=Choice(
        "ema", "health-canada", "hipaa", of="measures.risk.reidentification:PRESETS measures.assess:SAFE_HARBOR"
    ),
    help="The rules of an authority.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "memory", "duckdb", "sql"]),
    default="auto",
    show_default=True,
    help="Where the rows are counted: auto is where they are stored, memory fetches those of a database.",
)
@click.option("--detail", is_flag=True, help="Find the columns that single people out; implied by --report.")
@click.pass_context
def assess(
    ctx: click.Context,
    /,
    as_json: bool,
    require: tuple[str, ...],
    report: str | None,
    force: bool,
    suppressed: str,
    population: str | None,
    population_table: str | None,
    engine: str,
    detail: bool,
    **options: Any,
) -> None:
    """Measure how anonymous a table is.

    FILE is a CSV, TSV, JSON lines, Parquet, Arrow, Excel or DuckDB file, - for the
    standard input, the name of a built-in table (adult, nursery), or the address of a
    database together with --table. Name the columns that others may know about a person
    with --qi, and the columns that they must not learn with --sensitive. Nine measures
    then show how well people are hidden among each other.

    \b
    sfumato assess patients.csv --qi age,zip,sex --sensitive disease
    sfumato assess patients.csv --qi age,zip --require k=10 --report page.html
    sfumato assess postgresql://me@host/clinic --table patients --qi age,zip
    """
    check_not_input(report, options["data"], options["schema_file"], population)
    check_output(report, force=force, instead="name a file that ends in .html", ending=".html")

    from sfumato.cli.tables import load_table, reading_of
    from sfumato.measures.models import parse

    if require:
        parse(",".join(require))  # finds a mistake before a large file is read
    names = ("rows_are_units", "missing", "classes", "distance", "absent", "population_size", "threshold", "preset")
    measures = {name: options.pop(name) for name in names}
    with progress_bar("Counting") as progress:
        assessment = sf.assess(
            load_table(**options),
            require=",".join(require),
            suppressed=suppressed or None,
            population=_population(population, population_table, reading_of(options)),
            detail=detail or report is not None,
            engine=engine,
            progress=progress,
            **measures,
        )
    if report:
        name = options["table"] or Path(options["data"]).name
        sf.write_report(assessment, report, title=f"How anonymous is {name}?")
    if as_json:
        print_json(assessment.to_dict())
    else:
        print_assessment(assessment)
    if report:
        echo(f"The report is in {report}", err=True)
    ctx.exit(1 if assessment.satisfied is False else 0)


def _population(data: str | None, table: str | None, reading: dict[str, Any]) -> sf.Table | None:
    from sfumato.cli.tables import read_table

    if data is None:
        return None
    if "://" in data:  # a database needs no separator and no marks for missing values
        reading = {**dict.fromkeys(reading), "na": [], "dates": ()}
        if table is None:
            raise OptionError("the population is a database, but no table is named", hint="give --population-table")
    return read_table(data, None, table=table, **reading)


def print_assessment(assessment: sf.Assessment) -> None:
    """Print the summary of an assessment."""
    from sfumato.measures.risk.safe_harbor import Status
    from sfumato.report.summarise import of_unit, summarise

    summary = summarise(assessment)
    colour = {True: "green", False: "red", None: None}[summary.good]
    echo_wrapped(style(summary.headline, bold=True, fg=colour))
    for warning in summary.warnings:
        echo_wrapped(style(f"! {warning}", fg="yellow"), "  ")
    facts = [
        *summary.facts,
        *(f"without {one.column}: {of_unit(assessment, one.uniques_drop)} fewer unique" for one in summary.columns),
        *(f"by {names} alone: {unique} unique ({share})" for names, unique, share in summary.subsets[:3]),
    ]
    for finding in summary.findings:
        mark = style(finding.status.value, fg="red" if finding.status is Status.FOUND else None)
        facts.append(f"Safe Harbor ({finding.letter}) {mark}: {finding.found}; {finding.action}")
    for fact in facts:
        echo_wrapped(f"- {fact}", "  ")
    for line in summary.lines:
        mark = {True: style("  held", fg="green"), False: style("  NOT HELD", fg="red"), None: ""}[line.held]
        asked = f"  (asked {line.asked})" if line.asked else ""
        echo()
        echo(f"{line.title:<26} {style(line.value, bold=True)}{mark}{asked}")
        echo_wrapped(f"  {line.meaning}", "  ")
