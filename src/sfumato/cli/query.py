"""``sfumato query``: ask a table for a statistic, within its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from sfumato.budget.query import Answer, Row
from sfumato.budget.query import query as ask
from sfumato.budget.question import Question, Statistic
from sfumato.cli.budget import NOT_PRIVATE, ledger_option, seed_option
from sfumato.cli.options import Command, declared, file_options, print_json, public_options, say_if_repeated
from sfumato.cli.terminal import echo, printable, style

__all__ = ["query"]

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
@click.option("--note", default="", metavar="TEXT", help="What for; it is kept in the history.")
@ledger_option
@seed_option
def query(
    as_json: bool,
    question: str,
    epsilon: float,
    discover: bool,
    delta: float,
    confidence: float,
    note: str,
    ledger: str | None,
    insecure_seed: int | None,
    **options: Any,
) -> None:
    """Ask a table for a statistic, with noise, and charge its budget.

    QUESTION is count, sum, mean, median, quantile or histogram, of a column and by the
    columns that make groups. What is public has to be declared: the values of what makes
    groups (--domain, or the schema), and the bounds of numbers (--bounds, or the
    schema). The charge is made before the answer is shown, and a question that does
    not fit into the budget is refused.

    \b
    sfumato budget grant patients.csv --epsilon 2
    sfumato query patients.csv "count by sex" --domain sex=f,m --epsilon 0.5
    sfumato query patients.csv "mean of age by sex" --schema schema.toml --epsilon 0.5
    sfumato query patients.csv "histogram of age in 12 bins" --bounds age=0,120 --epsilon 0.5
    sfumato query patients.csv "quantile 0.9 of age" --bounds age=0,120 --epsilon 0.5
    """
    asked = Question.parse(question)  # so that a mistake is found before a large file is read
    table, public = declared(**options)
    say_if_repeated(table)
    answer = ask(
        table,
        asked,
        schema=public,
        epsilon=epsilon,
        delta=delta,
        discover=discover,
        confidence=confidence,
        note=note,
        ledger=ledger,
        insecure_seed=insecure_seed,
    )
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer)
    bounds = None if asked.column is None else public[asked.column].bounds
    if asked.statistic in (Statistic.MEAN, Statistic.QUANTILE) and any(row.interval == bounds for row in answer.rows):
        echo(_SAYS_NOTHING, err=True)
    if not answer.private:
        echo(NOT_PRIVATE, err=True)


def _print(answer: Answer) -> None:
    lines = [[*map(_text, row.group.values()), _number(row.value, row), _interval(row)] for row in answer.rows]
    names = list(map(printable, answer.rows[0].group)) if answer.rows else []
    percent = f"{100 * answer.confidence:g} % interval"
    table = [[*names, _title(answer.question), percent], *lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, line in enumerate(table):
        cells = [
            text.ljust(width) if at < len(names) else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        echo(style("  ".join(cells).rstrip(), bold=number == 0))
    if not answer.rows:
        echo("no group is large enough to be seen")
    cost = f"epsilon {answer.epsilon:g}" + (f" and delta {answer.delta:g}" if answer.delta else "")
    echo()
    echo(
        f"{cost} charged, to {answer.relation.in_words}; "
        f"spent epsilon {answer.spent.epsilon:.4g} of {answer.limit.epsilon:.4g}, left {answer.left:.4g}"
    )


def _title(question: Question) -> str:
    return printable(str(replace(question, groups=())))


def _text(value: Any) -> str:
    if value is None:
        return "(other or missing)"
    return f"{value[0]:g} to {value[1]:g}" if isinstance(value, list) else printable(str(value))


def _interval(row: Row) -> str:
    return " to ".join(_number(end, row) for end in row.interval)


def _number(value: float, row: Row) -> str:
    """Return a number with as many digits as its interval leaves a meaning."""
    if isinstance(value, int):
        return f"{value:,}"
    low, high = row.interval
    digits = 0
    while digits < 9 and (high - low) * 10**digits < 20 and value * 10**digits % 1:
        digits += 1
    return f"{value:,.{digits}f}"
