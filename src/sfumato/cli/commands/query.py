"""``sfumato query``: ask a table for a statistic, within its budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from sfumato.budget.query.plan import check_terms
from sfumato.budget.query.preview import Preview, preview
from sfumato.budget.query.query import query as ask
from sfumato.budget.query.question import Question, StatisticName
from sfumato.cli.commands.budget import NOT_PRIVATE, ledger_option, seed_option
from sfumato.cli.options import (
    Command,
    declared,
    file_options,
    force_option,
    keep_input,
    keep_output,
    print_json,
    public_options,
    say_if_repeated,
)
from sfumato.cli.terminal import echo, printable, style
from sfumato.data.io.files import FORMATS
from sfumato.data.release import Release
from sfumato.errors import OptionError

__all__ = ["query"]

_OF_VALUES = (StatisticName.MEAN, StatisticName.QUANTILE, StatisticName.MIN, StatisticName.MAX)
_SAYS_NOTHING = (
    "An interval as wide as the bounds says nothing: for this epsilon there are too few numbers, "
    "or the column does not hold any."
)


@click.command(cls=Command)
@file_options
@click.argument("question", metavar="QUESTION")
@click.option(
    "--epsilon", type=float, required=True, metavar="E", help="What the answer may cost, all groups together."
)
@click.option("--discover", is_flag=True, help="Find out the groups, for half of the epsilon and a delta.")
@click.option("--delta", type=float, default=0.0, metavar="D", help="For --discover: such as 1e-6.")
@public_options
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--dry-run", is_flag=True, help="Only say what it would cost and how wide the answer would be.")
@click.option("--note", default="", metavar="TEXT", help="What for; it is kept in the history.")
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
    dry_run: bool,
    note: str,
    ledger: str | None,
    insecure_seed: int | None,
    force: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Ask a table for a statistic, with noise, and charge its budget.

    QUESTION is count, sum, mean, variance, median, quantile, min, max or histogram, of a
    column, where a condition holds, and by the columns that make groups. What is public
    has to be declared: the values of what makes groups (--domain, or the schema), and the
    bounds of numbers (--bounds, or the schema). The charge is made before the answer is
    shown, and a question that does not fit into the budget is refused. --dry-run reads no
    row and charges nothing; with --ledger it also says whether the budget is enough.

    A condition compares columns with values: =, !=, <, <=, >, >=, in (a, b), is missing,
    joined by and, or, not and parentheses. It costs nothing more.

    \b
    sfumato budget grant patients.csv --epsilon 2
    sfumato query patients.csv "count by sex" --domain sex=f,m --epsilon 0.5
    sfumato query patients.csv "mean of age by sex" --schema schema.toml --epsilon 0.5
    sfumato query patients.csv "histogram of age in 12 bins" --bounds age=0,120 --epsilon 0.5
    sfumato query patients.csv "quantile 0.9 of age" --bounds age=0,120 --epsilon 0.5
    sfumato query patients.csv "count where age >= 40 and zip in ('13053', '14850')" --epsilon 0.5
    sfumato query patients.csv "mean of age" --bounds age=0,120 --epsilon 0.5 --dry-run
    sfumato query patients.csv "count by sex" --domain sex=f,m --epsilon 0.5 -o answer
    """
    asked = Question.parse(question)  # so that a mistake is found before a large file is read
    check_terms(epsilon, delta, confidence, discover)
    if output is not None and dry_run:
        raise OptionError("a dry run has no answer to save", hint="leave out -o or --dry-run")
    if output is not None and Path(output).suffix.lower() in (".json", *FORMATS):
        raise OptionError(
            f"-o names the folder of a release, got '{output}'", hint="name a new folder; --json prints the answer"
        )
    keep_input(output, options["data"], options["schema_file"], ledger)
    keep_output(output, force=force, folder=True)
    table, public = declared(**options)
    terms: dict[str, Any] = {
        "schema": public,
        "epsilon": epsilon,
        "delta": delta,
        "discover": discover,
        "confidence": confidence,
        "ledger": ledger,
    }
    if dry_run:
        asking = preview(table, asked, **terms)
        print_json(asking.to_dict()) if as_json else _print_preview(asking)
        return
    say_if_repeated(table)
    answer = ask(
        table,
        asked,
        **terms,
        note=note,
        insecure_seed=insecure_seed,
    )
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer)
    if output is not None:  # after the answer is shown, which is paid for
        from sfumato.releases.save import save  # with the page, which an answer alone does not need

        save(answer, output, replace=force)
        echo(f"The answer is in {output}", err=True)
    bounds = None if asked.column is None else public[asked.column].bounds
    if asked.statistic in _OF_VALUES and any(row.interval == bounds for row in answer.rows):
        echo(_SAYS_NOTHING, err=True)
    if not answer.private:
        echo(NOT_PRIVATE, err=True)


def _print(answer: Release) -> None:
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
        needed = answer.plan.selection(answer.relation).threshold
        echo(f"No group stood out: at this epsilon and delta, a group needs about {needed:,} rows to be seen.")
    cost = f"epsilon {answer.epsilon:g}" + (f" and delta {answer.delta:g}" if answer.delta else "")
    echo()
    limit, quick = answer.limit.epsilon, answer.account.quick
    if quick is None:
        state = f"spent epsilon {answer.spent.epsilon:.4g} of {limit:.4g}, left {answer.left:.4g}"
    else:
        state = f"spent at most epsilon {quick[0]:.4g} of {limit:.4g}, left at least {quick[1]:.4g}"
    echo(f"{cost} charged, to {answer.relation.in_words}; {state}")
    if quick is not None:
        echo("(`sfumato budget show` says exactly how much: many small charges cost less than their sum)")


def _print_preview(asking: Preview) -> None:
    cost = f"epsilon {asking.epsilon:g}" + (f" and delta {asking.delta:g}" if asking.delta else "")
    echo(style(printable(str(asking.question)), bold=True))
    echo(f"would cost {cost}, to {asking.relation.in_words}, all groups together; nothing was read or charged")
    if asking.groups is None:
        echo(f"answers: one for each group of about {asking.least:,} rows or more")
    elif asking.groups > 1:
        echo(f"answers: {asking.groups:,}, whether anybody is in a group or not")
    percent = f"{100 * asking.confidence:g} % interval"
    if asking.width is not None:
        echo(f"{percent}: {asking.width:,.4g} wide, the answer in its middle")
    if asking.widths:
        echo(f"{percent}, by the number of rows in a group, if their values were spread evenly between the bounds:")
    for rows, width in asking.widths.items():
        echo(f"  {rows:>7,} rows: about {width:,.3g} wide")
    if asking.ranks is not None:
        extreme = asking.question.statistic in (StatisticName.MIN, StatisticName.MAX)
        what = "about {} rows lie beyond the answer" if extreme else "its ends are at most {} rows off"
        echo(what.format(f"{asking.ranks:,}"))
    if asking.left is not None:
        echo(f"left of the budget: epsilon {asking.left:.4g}, " + ("enough" if asking.fits else "not enough"))


def _title(question: Question) -> str:
    return printable(str(replace(question, groups=(), where=None)))
