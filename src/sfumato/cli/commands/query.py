"""``sfumato query``: ask a table for a statistic, within its budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import sfumato as sf
from sfumato.cli.commands.budget import NOT_PRIVATE
from sfumato.cli.options import (
    Command,
    Number,
    NumberOr,
    check_not_input,
    check_output,
    file_options,
    force_option,
    ledger_option,
    print_json,
    public_options,
    seed_option,
)
from sfumato.cli.terminal import echo, printable, style
from sfumato.errors import OptionError

if TYPE_CHECKING:
    from sfumato.budget import Preview, Question

__all__ = ["query"]

_OF_VALUES = ("mean", "quantile", "min", "max")
_SAYS_NOTHING = (
    "An interval as wide as the bounds says nothing: there are too few numbers for this epsilon, "
    "or the column has none."
)


@click.command(cls=Command)
@file_options
@click.argument("question", metavar="QUESTION")
@click.option(
    "--epsilon",
    type=Number(above=0),
    required=True,
    metavar="E",
    help="The cost of the answer, all groups together; less is more private and less exact.",
)
@click.option("--discover", is_flag=True, help="Find the groups in the data, for half of epsilon and a delta.")
@click.option("--delta", type=Number(), default=0.0, metavar="D", help="For --discover, such as 1e-6.")
@public_options
@click.option(
    "--confidence",
    type=Number(above=0, below=1),
    default=0.95,
    show_default=True,
    help="The chance that an interval contains the true value.",
)
@click.option(
    "--person",
    metavar="NAME",
    help="The column that says which rows are of the same person: people are protected, not rows.",
)
@click.option(
    "--rows-per-person",
    type=NumberOr("bought", is_whole=True, least=1),
    metavar="N",
    help="With --person: how many rows of a person count; of people with more, N are drawn at random. "
    "'bought' finds a number with a tenth of epsilon.",
)
@click.option(
    "--groups-per-person",
    type=Number(is_whole=True, least=1),
    metavar="N",
    help="With --rows-per-group, in place of --rows-per-person: how many groups of a person count.",
)
@click.option(
    "--rows-per-group",
    type=Number(is_whole=True, least=1),
    metavar="N",
    help="With --groups-per-person: how many rows of a person count in each group.",
)
@click.option("--dry-run", is_flag=True, help="Only show the cost and how wide the interval would be.")
@click.option("--note", default="", metavar="TEXT", help="The purpose, for the history.")
@ledger_option
@seed_option
@force_option
@click.option("-o", "--output", metavar="FOLDER", help="Save the answer as a release: a new folder with a certificate.")
def query(
    as_json: bool,
    question: str,
    epsilon: float,
    discover: bool,
    delta: float,
    confidence: float,
    person: str | None,
    rows_per_person: int | str | None,
    groups_per_person: int | None,
    rows_per_group: int | None,
    dry_run: bool,
    note: str,
    ledger: str | None,
    insecure_seed: int | None,
    force: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Ask a table for a statistic, with noise, and charge its budget.

    QUESTION is a statistic (count, sum, mean, variance, median, quantile, min, max or
    histogram) of a column, optionally 'where' a condition holds and 'by' the columns that
    form groups. What is public must be declared: the values of the columns that form
    groups with --domain, and the limits of numbers with --bounds, or both in a schema. The
    budget is charged before the answer is shown; a question that exceeds it is refused.
    --dry-run reads no row and charges nothing; with --ledger it also says whether the
    budget is enough.

    A condition compares columns with values: =, !=, <, <=, >, >=, in (a, b), is missing,
    joined by and, or, not and parentheses. It costs nothing extra.

    \b
    sfumato budget grant patients.csv --epsilon 2
    sfumato query patients.csv "count by sex" --domain sex=f,m --epsilon 0.5
    sfumato query patients.csv "mean of age by sex" --schema schema.toml --epsilon 0.5
    sfumato query patients.csv "histogram of age in 12 bins" --bounds age=0,120 --epsilon 0.5
    sfumato query patients.csv "quantile 0.9 of age" --bounds age=0,120 --epsilon 0.5
    sfumato query patients.csv "count where age >= 40 and zip in ('13053', '14850')" --epsilon 0.5
    sfumato query patients.csv "mean of age" --bounds age=0,120 --epsilon 0.5 --dry-run
    sfumato query patients.csv "count by sex" --domain sex=f,m --epsilon 0.5 -o answer
    sfumato query visits.csv "count" --epsilon 0.5 --person patient_id --rows-per-person 3
    """
    from sfumato.budget.query.plan import check_terms
    from sfumato.cli.tables import read_declared, warn_if_people_repeat
    from sfumato.data.io.files import FORMATS

    asked = sf.budget.Question.parse(question)  # finds a mistake before a large file is read
    check_terms(epsilon, delta, confidence, discover)
    if output is not None and dry_run:
        raise OptionError("a dry run has no answer to save", hint="leave out -o or --dry-run")
    if output is not None and Path(output).suffix.lower() in (".json", *FORMATS):
        raise OptionError(
            f"-o names the folder of a release, got '{output}'", hint="name a new folder; --json prints the answer"
        )
    check_not_input(output, options["data"], options["schema_file"], ledger)
    check_output(output, force=force, folder=True)
    table, public = read_declared(**options)
    terms: dict[str, Any] = {
        "schema": public,
        "epsilon": epsilon,
        "delta": delta,
        "discover": discover,
        "confidence": confidence,
        "person": person,
        "rows_per_person": rows_per_person,
        "groups_per_person": groups_per_person,
        "rows_per_group": rows_per_group,
        "ledger": ledger,
    }
    if dry_run:
        asking = sf.preview(table, asked, **terms)
        print_json(asking.to_dict()) if as_json else _print_preview(asking)
        return
    if person is None and public.person is None:
        warn_if_people_repeat(table)
    answer = sf.query(table, asked, **terms, note=note, insecure_seed=insecure_seed)
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer)
    if output is not None:  # after the answer, which is paid for, is shown
        sf.save(answer, output, replace=force)
        echo(f"The answer is in {output}", err=True)
    bounds = None if asked.column is None else public[asked.column].bounds
    if asked.statistic in _OF_VALUES and any(row.interval == bounds for row in answer.rows):
        echo(_SAYS_NOTHING, err=True)
    if not answer.private:
        echo(NOT_PRIVATE, err=True)


def _print(answer: sf.Release) -> None:
    lines = [[*map(printable, group), *numbers] for group, *numbers in (row.words() for row in answer.rows)]
    names = list(map(printable, answer.plan.names))
    percent = f"{100 * answer.confidence:g} % interval"
    table = [[*names, _title(answer.question), percent], *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, line in enumerate(table if answer.rows else ()):
        cells = [
            text.ljust(width) if at < len(names) else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        echo(style("  ".join(cells).rstrip(), bold=number == 0))
    if not answer.rows:
        needed = answer.settled.selection(answer.relation).threshold
        echo(f"No group was found: at this epsilon and delta, a group needs about {needed:,} rows.")
    cost = f"epsilon {answer.epsilon:g}" + (f" and delta {answer.delta:g}" if answer.delta else "")
    echo()
    if answer.settled.people_in_words:
        echo(printable(answer.settled.people_in_words))
    limit, quick = answer.limit.epsilon, answer.account.quick
    if quick is None:
        state = f"spent epsilon {answer.spent.epsilon:.4g} of {limit:.4g}, left {answer.left:.4g}"
    else:
        state = f"spent at most epsilon {quick[0]:.4g} of {limit:.4g}, left at least {quick[1]:.4g}"
    echo(f"{cost} charged, to {answer.relation.of_one(answer.plan.unit)}; {state}")
    if quick is not None:
        echo("(`sfumato budget show` gives the exact amount: many small charges cost less than their sum)")


def _print_preview(asking: Preview) -> None:
    cost = f"epsilon {asking.epsilon:g}" + (f" and delta {asking.delta:g}" if asking.delta else "")
    echo(style(printable(str(asking.question)), bold=True))
    neighbours = asking.relation.of_one(asking.event.unit)
    echo(f"would cost {cost}, to {neighbours}, all groups together; nothing was read or charged")
    if asking.groups is None:
        echo(f"answers: one for each group of about {asking.least:,} rows or more")
    elif asking.groups > 1:
        echo(f"answers: {asking.groups:,}, also for empty groups")
    if asking.people:
        echo(printable(asking.people["counted"]))
    if asking.people.get("bought"):
        echo("what follows is for a bound of 1, and grows with the bound that is found:")
    percent = f"{100 * asking.confidence:g} % interval"
    if asking.width is not None:
        echo(f"{percent}: {asking.width:,.4g} wide, the answer in its middle")
    if asking.widths:
        echo(f"{percent}, by the number of rows in a group, if their values were spread evenly between the bounds:")
    for rows, width in asking.widths.items():
        echo(f"  {rows:>7,} rows: about {width:,.3g} wide")
    if asking.ranks is not None:
        extreme = asking.question.statistic in ("min", "max")
        what = "about {} rows lie beyond the answer" if extreme else "its ends are at most {} rows off"
        echo(what.format(f"{asking.ranks:,}"))
    if asking.left is not None:
        echo(f"left of the budget: epsilon {asking.left:.4g}, " + ("enough" if asking.fits else "not enough"))


def _title(question: Question) -> str:
    return printable(str(replace(question, groups=(), where=None)))
