"""``sfumato secure``: compute together on rows that nobody may see."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import sfumato as sf
from sfumato.cli.commands.secure_predict import predict
from sfumato.cli.options import (
    Choice,
    Command,
    Number,
    check_output,
    file_options,
    force_option,
    ledger_option,
    names_option,
    print_json,
)
from sfumato.cli.terminal import echo
from sfumato.errors import FileError, OptionError

__all__ = ["secure"]

_WAIT = click.option(
    "--wait",
    type=Number(above=0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the others.",
)


@click.group(invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def secure(ctx: click.Context) -> None:
    """Compute together on rows that nobody may see.

    Several holders, such as hospitals, want one figure about all their rows. Each makes a
    key, all agree on a plan, each joins with its own table, and one of them, or anyone
    else, coordinates. The coordinator sees the sum over all holders, and nothing about
    any one of them.

    \b
    sfumato secure keys north
    sfumato secure plan mean --columns age --schema schema.toml \\
        --party north.pub --party south.pub --party east.pub -o plan.json
    sfumato secure join north.csv plan.json exchange --key north.key
    sfumato secure stats plan.json exchange
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@secure.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", metavar="FOLDER", default=".", help="Where to write the files.  [default: here]")
def keys(name: str, output: str, as_json: bool) -> None:
    """Make the keys of a party: NAME.key, which only you can read, and NAME.pub for the others.

    The others know you by NAME.pub: hand it over on a channel on which nobody can replace
    it. Keep NAME.key to yourself. An existing file is never overwritten.
    """
    from sfumato.federation import new_identity

    secret, public = new_identity(name, output)
    if as_json:
        print_json({"key": str(secret), "public": str(public)})
    echo(f"{secret} is your secret key; give {public} to the other parties", err=True)


@secure.command(cls=Command)
@click.argument(
    "what",
    metavar="WHAT",
    type=Choice(
        "mean",
        "histogram",
        "quantiles",
        "table",
        "sum",
        "linear",
        "logistic",
        "function",
        of="federation.analysis.analyses:ANALYSES",
    ),
)
@names_option("--columns", "The columns, such as age,income.")
@click.option("--target", metavar="NAME", help="What a regression predicts.")
@click.option(
    "--schema", "schema_file", metavar="FILE", required=True, help="The public bounds and domains of the columns."
)
@click.option(
    "--party", "parties", metavar="FILE", multiple=True, required=True, help="The .pub file of a party. Repeat."
)
@click.option(
    "--secure",
    "how",
    type=Choice("none", "masks", "threshold", "ckks", "mpc", of="federation.secure.connect:SECURE"),
    default="masks",
    show_default=True,
    help="How vectors are kept secret: pairwise masks, encryption that opens only with all shares, encryption with one "
    "key holder, the first party by name, or multi-party computation with a majority of honest parties.",
)
@click.option(
    "--threshold", type=click.IntRange(min=1), metavar="N", help="How many parties must take part.  [default: all]"
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=10_000_000,
    metavar="N",
    help="The largest number of rows of one party.",
)
@click.option(
    "--bins", type=click.IntRange(min=1), metavar="N", help="How many bins.  [default: histogram 10, quantiles 1000]"
)
@click.option("--size", type=click.IntRange(min=1), metavar="N", help="How many numbers each vector of a sum has.")
@click.option(
    "--probabilities",
    metavar="A,B",
    help="Which quantiles: 0,0.5,1 are the smallest value, the median and the largest.  [default: 0.25,0.5,0.75]",
)
@click.option(
    "--least",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --secure mpc: counts below N in a histogram or table stay hidden.",
)
@click.option(
    "--function",
    "source",
    metavar="FILE",
    help="With --secure mpc: Python source with function(mpc, vectors), for a plan of a function.",
)
@click.option("--iterations", type=click.IntRange(1, 1000), metavar="N", help="Of a logistic regression.  [default: 8]")
@click.option(
    "--ridge",
    type=Number(least=0),
    metavar="X",
    help="Of a regression: how strongly the slopes, of columns scaled to -1 and 1, are drawn to 0.  [default: 1 for "
    "logistic, 1e-6 for linear]",
)
@click.option("--epsilon", type=Number(above=0), metavar="E", help="Add noise, and charge every party's own ledger.")
@click.option(
    "--delta",
    type=Number(above=0),
    default=1e-6,
    show_default=True,
    metavar="D",
    help="The delta that goes with --epsilon.",
)
@click.option(
    "--honest",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many parties' noise must suffice.  [default: all that must take part but one; 1 with none or ckks]",
)
@force_option
@click.option("-o", "--output", metavar="FILE", required=True, help="The plan, a JSON file for all parties.")
def plan(
    what: str,
    columns: list[str],
    target: str | None,
    schema_file: str,
    parties: tuple[str, ...],
    how: str,
    threshold: int | None,
    rows: int,
    bins: int | None,
    size: int | None,
    probabilities: str | None,
    least: int | None,
    source: str | None,
    iterations: int | None,
    ridge: float | None,
    epsilon: float | None,
    delta: float,
    honest: int | None,
    force: bool,
    output: str,
    as_json: bool,
) -> None:
    """Write the plan that all parties agree on: who takes part, and what is computed.

    WHAT is mean (with count, sum and variance), histogram, quantiles, table (counts of
    combinations), linear or logistic (regressions), sum (vectors, element by element), or
    function (any function of vectors of whole numbers, written for MPyC).
    Everything in the plan is public. Each party should read it before it joins.

    \b
    sfumato secure plan logistic --columns age,pressure --target ill --epsilon 1 \\
        --schema schema.toml --party north.pub --party south.pub -o plan.json
    """
    check_output(output, force=force)
    if honest is not None and epsilon is None:
        raise OptionError("--honest says whose noise must suffice, and there is none", hint="give --epsilon")

    from sfumato.federation import Agreement, AnalysisPlan, load_public

    keys = dict(map(load_public, parties))
    if len(keys) < len(parties):
        raise OptionError("two parties have the same name", hint="each .pub file once, with a name of its own")
    agreement = Agreement.of(
        AnalysisPlan(
            analysis=_analysis(
                what,
                columns,
                target=target,
                size=size,
                source=None if source is None else _text(source),
                bins=bins,
                least=least,
                iterations=iterations,
                ridge=ridge,
                probabilities=None if probabilities is None else _numbers(probabilities),
            ),
            schema=sf.Schema.load(schema_file),
            parties=len(keys),
            secure=how,
            threshold=threshold,
            rows=rows,
            epsilon=epsilon,
            delta=delta,
            honest=honest,
        ),
        keys,
    )
    agreement.save(output)
    if as_json:
        print_json({"file": output, "parties": list(agreement.roster.names), "plan": agreement.plan.to_dict()})
    echo(f"The plan is in {output}: all parties need the same file", err=True)
    if epsilon is None and what in ("histogram", "table") and (least or 1) == 1:
        echo("All counts will be open: one of 1 is a person (--epsilon, or --secure mpc with --least)", err=True)
    if len(keys) == 2 and epsilon is None:
        echo("With two parties, each can subtract what it has from the result (--epsilon)", err=True)


_TAKES = {
    "target": ("linear", "logistic"),
    "size": ("sum", "function"),
    "source": ("function",),
    "bins": ("histogram", "quantiles"),
    "least": ("histogram", "table"),
    "probabilities": ("quantiles",),
    "iterations": ("logistic",),
    "ridge": ("linear", "logistic"),
}
_LARGE = 1e6
_NEEDED = ("target", "size", "source")


def _analysis(what: str, columns: list[str], **options: Any) -> Any:
    from sfumato import federation

    if not columns:
        raise OptionError("no column is named", hint="give --columns")
    if what in ("histogram", "quantiles", "sum", "function") and len(columns) > 1:
        raise OptionError(f"{what} takes one column, got {len(columns)}", hint="make a plan for each")
    for name, value in options.items():
        flag = "--function" if name == "source" else f"--{name}"
        if value is not None and what not in _TAKES[name]:
            raise OptionError(f"{what} does not take {flag}")
        if value is None and name in _NEEDED and what in _TAKES[name]:
            raise OptionError(f"{what} needs {flag}")
    given = {name: value for name, value in options.items() if value is not None}
    if what == "sum":
        return federation.ElementSum(columns[0], **given)
    if what in ("histogram", "quantiles", "function"):
        kinds = {
            "histogram": federation.Histogram,
            "quantiles": federation.Quantiles,
            "function": federation.JointFunction,
        }
        return kinds[what](columns[0], **given)
    several = {
        "mean": federation.Moments,
        "table": federation.CrossTable,
        "linear": federation.LinearRegression,
        "logistic": federation.LogisticRegression,
    }
    return several[what](tuple(columns), **given)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError:
        raise OptionError(f"--probabilities takes numbers from 0 to 1, such as 0,0.5,1, got {text!r}") from None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"'{path}' cannot be read as a program") from error


@secure.command(cls=Command)
@file_options
@click.argument("plan_file", metavar="PLAN")
@click.argument("exchange", metavar="EXCHANGE")
@click.option("--key", "key_file", metavar="FILE", required=True, help="Your .key file.")
@click.option(
    "--party",
    "parties",
    metavar="FILE",
    multiple=True,
    help="The .pub file of another party, as they handed it to you. Repeat.  [default: those beside your key]",
)
@click.option(
    "--function",
    "source",
    metavar="FILE",
    help="Your own copy of the function that the plan runs, which you have read.",
)
@ledger_option
@_WAIT
def join(
    plan_file: str,
    exchange: str,
    key_file: str,
    parties: tuple[str, ...],
    source: str | None,
    ledger: str | None,
    wait: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Take part with your own table, until the coordinator has its result.

    FILE is your table, PLAN the file that all parties have, EXCHANGE a folder that all of
    them can write to. Your rows never leave this process: it answers what the plan asks,
    protected as the plan says, and only once. With an epsilon, the noise is added here
    and your ledger is charged first. It prints what the plan computes, then a line for
    each of your messages.

    The keys of the others in the plan must be those of the .pub files that they handed to
    you: anyone who could replace them would see your vector.

    \b
    sfumato secure join north.csv plan.json exchange --key north.key
    """
    from sfumato.cli.tables import read_table
    from sfumato.federation import (
        Agreement,
        AnalysisHolder,
        Answered,
        Party,
        answer_in_folder,
        handlers_of,
        load_identity,
    )

    agreement, (name, identity) = Agreement.load(plan_file), load_identity(key_file)
    if agreement.roster.keys.get(name) != identity.public_key().public_bytes_raw():
        raise OptionError(f"the plan does not have the key of party '{name}'", hint="make the plan with its .pub file")
    joint = agreement.plan
    _check_program(getattr(joint.analysis, "source", None), source)
    if joint.secure != "none":
        agreement.check_keys(name, _handed_over(agreement.roster.names, Path(key_file), parties))
    table = read_table(schema=None, inferred=joint.epsilon is None, **options)
    book = sf.Ledger.of(table, ledger) if joint.epsilon is not None else None
    answered = Answered(Path(key_file).with_suffix(".answered"))
    once = functools.partial(answered.once, agreement.roster.run)
    holder = AnalysisHolder(name, joint, table, ledger=book, once=once)
    party = Party(name, handlers_of(joint.secure, agreement.roster, name, identity, holder.contribute, joint.function))
    traffic = {"requests": 0, "read": 0, "written": 0}

    def seen(kind: str, read: int, written: int, refused: str) -> None:
        traffic["requests"] += 1
        traffic["read"] += read
        traffic["written"] += written
        echo(
            f"{name}: {kind:<18} {read:>10,} bytes in, {written:>10,} out{f': {refused}' if refused else ''}", err=True
        )

    echo(f"{name}: {agreement.describe()}", err=True)
    answer_in_folder(party, exchange, timeout=wait, seen=seen)
    if as_json:
        print_json({"party": name, **traffic, "epsilon": joint.epsilon})


def _check_program(planned: str | None, source: str | None) -> None:
    """Refuse to run a program that came in a plan, unless its own copy says that this party has read it."""
    if planned is None:
        if source is not None:
            raise OptionError("the plan has no program", hint="leave out --function")
    elif source is None:
        raise OptionError(
            "the plan holds a program that would run here", hint="read it, then give your own copy with --function"
        )
    elif _text(source) != planned:
        raise OptionError(f"the program of the plan is not the one in '{source}'", hint="read what has changed")


def _handed_over(names: Sequence[str], own: Path, files: Sequence[str]) -> dict[str, bytes]:
    """Return the keys of the .pub files that are given, else of those beside the own key."""
    from sfumato.federation import load_public

    beside = [str(path) for path in (own.with_name(f"{one}.pub") for one in names) if path.exists()]
    found = dict(map(load_public, beside))
    return {**found, **dict(map(load_public, files))}


def _coordinate(plan_file: str, exchange: str, wait: float, as_json: bool, *, vectors: bool) -> None:
    from sfumato.federation import Agreement, FolderChannel, analyse, sum_of

    agreement = Agreement.load(plan_file)
    if (agreement.plan.analysis.kind == "sum") != vectors:
        raise OptionError(
            f"the plan is for {agreement.plan.analysis.kind}", hint="use stats" if vectors else "use sfumato secure sum"
        )
    sums = sum_of(agreement.plan.secure, agreement.roster, agreement.plan.function)
    channel = FolderChannel(exchange, agreement.roster.names, wait=wait)
    echo(f"Waiting for {', '.join(channel.names)} ...", err=True)
    try:
        found = analyse(agreement.plan, channel, sums)
    finally:
        channel.end()
    plain = {**found.to_dict(), "sent": channel.sent, "received": channel.received}
    if as_json:
        print_json(plain)
        return
    _print(found.values)
    echo()
    privacy = "without noise: exact" if found.plan.epsilon is None else f"epsilon {found.plan.epsilon:g}"
    echo(f"Over the rows of {', '.join(found.present)}; sums by {found.plan.secure}; {privacy}")


def _print(values: dict[str, Any], indent: str = "") -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            echo(f"{indent}{name}")
            _print(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for row in value:
                echo(indent + ", ".join(f"{key} {'hidden' if one is None else one}" for key, one in row.items()))
        elif isinstance(value, list):
            shown = ", ".join("hidden" if one is None else _number(one) for one in value[:12])
            echo(f"{indent}{name:<12} {shown}{f' and {len(value) - 12:,} more' if len(value) > 12 else ''}")
        else:
            echo(f"{indent}{name:<12} {_number(value) if isinstance(value, float) else value}")


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) < _LARGE else f"{value:.2f}"


@secure.command(cls=Command)
@click.argument("plan_file", metavar="PLAN")
@click.argument("exchange", metavar="EXCHANGE")
@_WAIT
def stats(plan_file: str, exchange: str, wait: float, as_json: bool) -> None:
    """Coordinate an analysis: ask all parties that have joined, and print the result.

    PLAN is the file that all parties have, EXCHANGE the folder that they write to. You
    see the total of all parties only. Start it before or after them.

    \b
    sfumato secure stats plan.json exchange --json
    """
    _coordinate(plan_file, exchange, wait, as_json, vectors=False)


@secure.command(name="sum", cls=Command)
@click.argument("plan_file", metavar="PLAN")
@click.argument("exchange", metavar="EXCHANGE")
@_WAIT
def sum_(plan_file: str, exchange: str, wait: float, as_json: bool) -> None:
    """Coordinate a sum of vectors: ask all parties that have joined, and print it.

    The plan is one of 'sfumato secure plan sum': each party joins with a table whose
    column holds its vector, an element per row.

    \b
    sfumato secure sum plan.json exchange --json
    """
    _coordinate(plan_file, exchange, wait, as_json, vectors=True)


secure.add_command(predict)
