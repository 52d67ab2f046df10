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
from sfumato.errors import OptionError

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
    else, coordinates. The coordinator sees the sum of all holders, and nothing of one.

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

    The others know you by NAME.pub: hand it over so that nobody can exchange it on the
    way. Keep NAME.key to yourself. An existing file is never overwritten.
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
        of="federation.analysis.analyses:ANALYSES",
    ),
)
@names_option("--columns", "The columns, such as age,income.")
@click.option("--target", metavar="NAME", help="What a regression predicts.")
@click.option(
    "--schema", "schema_file", metavar="FILE", required=True, help="Bounds and domains of the columns, public."
)
@click.option(
    "--party", "parties", metavar="FILE", multiple=True, required=True, help="The .pub file of a party. Repeat."
)
@click.option(
    "--secure",
    "how",
    type=Choice("none", "masks", "threshold", "ckks", of="federation.secure.connect:SECURE"),
    default="masks",
    show_default=True,
    help="How sums are kept secret: pairwise masks, encryption that opens with all shares only, or encryption with one "
    "key holder, the first party by name.",
)
@click.option("--threshold", type=click.IntRange(min=1), metavar="N", help="How many must take part.  [default: all]")
@click.option("--rows", type=click.IntRange(min=1), default=10_000_000, metavar="N", help="The most rows of one party.")
@click.option("--bins", type=click.IntRange(min=1), metavar="N", help="Of a histogram (10) or of quantiles (1000).")
@click.option("--size", type=click.IntRange(min=1), metavar="N", help="How many numbers each vector of a sum has.")
@click.option("--epsilon", type=Number(above=0), metavar="E", help="Add noise, and charge every party's own ledger.")
@click.option("--delta", type=Number(above=0), default=1e-6, show_default=True, metavar="D", help="For --epsilon.")
@click.option(
    "--honest",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many parties' noise must suffice.  [default: all that must take part but one]",
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
    epsilon: float | None,
    delta: float,
    honest: int | None,
    force: bool,
    output: str,
    as_json: bool,
) -> None:
    """Write the plan that all parties agree on: who takes part, and what is computed.

    WHAT is mean (with count, sum and variance), histogram, quantiles, table (counts of
    combinations), linear or logistic (regressions), or sum (vectors, element by element).
    Everything in the plan is public. Each party should read it before it joins.

    \b
    sfumato secure plan logistic --columns age,pressure --target ill --epsilon 1 \\
        --schema schema.toml --party north.pub --party south.pub -o plan.json
    """
    check_output(output, force=force)

    from sfumato.federation import Agreement, AnalysisPlan, load_public

    keys = dict(map(load_public, parties))
    if len(keys) < len(parties):
        raise OptionError("two parties have the same name", hint="each .pub file once, with a name of its own")
    agreement = Agreement.of(
        AnalysisPlan(
            analysis=_analysis(what, columns, target, bins, size),
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


def _analysis(what: str, columns: list[str], target: str | None, bins: int | None, size: int | None) -> Any:
    from sfumato import federation

    if not columns:
        raise OptionError("no column is named", hint="give --columns")
    single = what in ("histogram", "quantiles", "sum")
    if single and len(columns) > 1:
        raise OptionError(f"{what} takes one column, got {len(columns)}", hint="make a plan for each")
    for flag, value, takes in (
        ("--target", target, what in ("linear", "logistic")),
        ("--size", size, what == "sum"),
    ):
        if (value is not None) != takes:
            raise OptionError(f"{what} {'needs' if takes else 'does not take'} {flag}")
    if bins is not None and what not in ("histogram", "quantiles"):
        raise OptionError(f"{what} does not take --bins")
    binned: dict[str, Any] = {} if bins is None else {"bins": bins}
    if what == "mean":
        return federation.Moments(tuple(columns))
    if what == "histogram":
        return federation.Histogram(columns[0], **binned)
    if what == "quantiles":
        return federation.Quantiles(columns[0], **binned)
    if what == "table":
        return federation.CrossTable(tuple(columns))
    if what == "sum":
        assert size is not None
        return federation.ElementSum(columns[0], size)
    assert target is not None
    kind = federation.LinearRegression if what == "linear" else federation.LogisticRegression
    return kind(tuple(columns), target)


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
@ledger_option
@_WAIT
def join(
    plan_file: str,
    exchange: str,
    key_file: str,
    parties: tuple[str, ...],
    ledger: str | None,
    wait: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Take part with your own table, until the coordinator has its result.

    FILE is your table, PLAN the file that all parties have, EXCHANGE a folder that all of
    them can write to. Your rows never leave this process: it answers with what the plan
    says, hidden as the plan says, and once. With an epsilon, the noise is added here and
    your ledger is charged first. It prints what the plan says, then a line for each
    message of yours.

    The keys of the others in the plan must be those of the .pub files that they handed to
    you: whoever could exchange them would see your vector.

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
    if joint.secure != "none":
        agreement.check_keys(name, _handed_over(agreement.roster.names, Path(key_file), parties))
    table = read_table(schema=None, inferred=joint.epsilon is None, **options)
    book = sf.Ledger.of(table, ledger) if joint.epsilon is not None else None
    answered = Answered(Path(key_file).with_suffix(".answered"))
    once = functools.partial(answered.once, agreement.roster.run)
    holder = AnalysisHolder(name, joint, table, ledger=book, once=once)
    party = Party(name, handlers_of(joint.secure, agreement.roster, name, identity, holder.contribute))
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
    channel = FolderChannel(exchange, agreement.roster.names, wait=wait)
    echo(f"Waiting for {', '.join(channel.names)} ...", err=True)
    try:
        found = analyse(agreement.plan, channel, sum_of(agreement.plan.secure, agreement.roster))
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
                echo(indent + ", ".join(f"{key} {one}" for key, one in row.items()))
        elif isinstance(value, list):
            shown = ", ".join(f"{one:.6g}" for one in value[:12])
            echo(f"{indent}{name:<12} {shown}{f' and {len(value) - 12:,} more' if len(value) > 12 else ''}")
        else:
            echo(f"{indent}{name:<12} {value:.6g}" if isinstance(value, float) else f"{indent}{name:<12} {value}")


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
