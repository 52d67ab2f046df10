"""``sfumato explore``: which protection, which k, which epsilon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import sfumato as sf
from sfumato.attacks.catalogue import ATTACKS
from sfumato.cli.options import READING, Choice, Command, Number, print_json, table_options
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, echo_wrapped, printable, style
from sfumato.errors import OptionError

if TYPE_CHECKING:
    from sfumato.frontier import Frontier

__all__ = ["explore"]

_SHARE: dict[str, Any] = {"least": 0, "most": 1}
_SHOWN = ("re_identification", "membership_auc", "membership_advantage", "accuracy")


@click.command(cls=Command)
@table_options
@click.option(
    "--protect",
    "protections",
    multiple=True,
    metavar="HOW",
    help="A protection, such as mondrian:k=2..1000, dp:epsilon=0.1,1 or raw, or a recipe.toml with values for its "
    "options, such as masked/recipe.toml:scale=0.1,1. Can be repeated.  [default: all]",
)
@click.option(
    "--model",
    "models",
    type=Choice("forest", "tree", "mlp", "boosting", of="attacks.protections:MODELS", several=True),
    metavar="A,B",
    default="forest",
    show_default=True,
    help="Models (forest, tree, mlp, boosting) that are trained on every release and tested; the first is attacked.",
)
@click.option(
    "--analysis",
    "analyses",
    multiple=True,
    metavar="WHAT",
    help="Your own analysis of every release: script.py, which gets the path of a CSV file and prints numbers as "
    "JSON, or module:function, which gets a Polars frame. Can be repeated.",
)
@click.option(
    "--attacks",
    type=Choice(*ATTACKS, of="attacks.catalogue:ATTACKS", several=True),
    metavar="A,B",
    default="loss,gap,linkage,inference",
    show_default=True,
    help="The attacks.",
)
@click.option("--max-risk", type=Number(**_SHARE), help="The largest re-identification risk, such as 0.09.")
@click.option("--max-advantage", type=Number(**_SHARE), help="The largest membership advantage, such as 0.05.")
@click.option("--min-accuracy", type=Number(**_SHARE), help="The lowest accuracy of the model, such as 0.8.")
@click.option("--bisect", is_flag=True, help="Measure only what decides the choice, not the whole grid.")
@click.option(
    "--seeds", type=Number(is_whole=True, most=100), default=3, show_default=True, help="How many repetitions."
)
@click.option(
    "--seed",
    type=Number(is_whole=True, least=0, most=2**31 - 101),
    default=0,
    show_default=True,
    help="The first seed.",
)
@click.option("--jobs", type=Number(is_whole=True, most=1024), default=2, show_default=True, help="How many processes.")
@click.option("--rows-are-units", is_flag=True, help="Protect and attack rows, even if a person has several.")
@click.option(
    "--uncharged",
    is_flag=True,
    help="The data have a budget, and the choice, which stays with you, is not charged to it.",
)
@click.option("--public", is_flag=True, help="The data are public, so the figures may be published.")
@click.option(
    "-o", "--output", metavar="OUT", help="A folder for the measurements and the result; a stopped run resumes."
)
@click.pass_context
def explore(
    ctx: click.Context,
    /,
    as_json: bool,
    data: str,
    output: str | None,
    models: list[str],
    analyses: tuple[str, ...],
    protections: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare protections on one table, and choose one.

    Every protection sees the same rows and the same attackers: half of the rows are
    protected, a quarter are the control of the attacks, a quarter test the model. The
    most accurate protection within the limits is recommended, with the command that makes
    the release. The exit code is 1 if limits are given and no protection is within them.

    The figures come from the original rows, without noise, and are for you alone: no
    epsilon covers them. OUT gets report.html, frontier.md, frontier.json and every
    measurement: run the same command again to resume a stopped run.

    \b
    sfumato explore adult --max-risk 0.09 --max-advantage 0.05 -o explored
    sfumato explore patients.csv --target disease --qi age,zip --protect mondrian:k=2..50
    sfumato explore patients.csv --target disease --qi age,zip --analysis my_analysis.py
    """
    from sfumato.cli.tables import load_table
    from sfumato.data.io.files import write_owned
    from sfumato.frontier.sweep.grid import DEFAULTS, candidates_of

    asked = protections or DEFAULTS
    candidates_of(asked)
    if output is not None and Path(output).is_file():
        raise OptionError(f"-o must name a folder, and '{output}' is a file")
    given = {name: options.pop(name) for name in _EXPLORING}
    limited = any(given[name] is not None for name in ("max_risk", "max_advantage", "min_accuracy"))
    table: Any = data
    if data not in sf.datasets.TABLES or Path(data).exists():
        table = load_table(data, **options)
    roles = {name: options[name] for name in ("target", "qi", "sensitive", "identifiers", "keep")}
    folder = None if output is None else Path(output) / "points"
    with progress_bar("Exploring") as progress:
        utilities = [*models, *analyses]
        found = sf.explore(
            table, protections=asked, utilities=utilities, folder=folder, progress=progress, **given, **roles
        )
    if not isinstance(table, str) and data != "-":
        found = replace(found, data={**found.data, "name": data, "reading": _reading(options)})
    if output is not None:
        write_owned(Path(output) / "frontier.json", found.to_dict())
        write_owned(Path(output) / "frontier.md", found.to_markdown())
        sf.write_report(found, Path(output) / "report.html", title=f"Which protection for {Path(data).name}?")
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if output is not None:
        echo(f"The figures are in {output}", err=True)
    ctx.exit(1 if limited and found.recommended.point is None else 0)


_EXPLORING = (
    "attacks",
    "max_risk",
    "max_advantage",
    "min_accuracy",
    "bisect",
    "seeds",
    "seed",
    "jobs",
    "rows_are_units",
    "public",
    "uncharged",
)


def _reading(options: dict[str, Any]) -> list[str]:
    """Return the options that say how the file is read, for the commands of the result."""
    given = {"schema": options["schema_file"], **{name: options[name] for name in READING}}
    words = []
    for name, value in given.items():
        for one in value if name == "dates" else [",".join(value) if isinstance(value, list) else value]:
            words += [f"--{name}", one] if one else []
    return words


def _print(found: Frontier) -> None:
    from sfumato.frontier.sweep.markdown import by_reason

    chosen = found.recommended
    echo(style("Recommended: " + (chosen.point.name if chosen.point else "none"), bold=True))
    echo_wrapped(chosen.reason)
    if chosen.command:
        echo("To make it:")
        echo(printable(f"  {chosen.command}"))
    echo()
    best = {point.name for point in found.pareto()}
    width = max(len("protection"), *(len(point.name) for point in found.points))
    echo(f"  {'protection':<{width}}   1/k    AUC  advantage  accuracy")
    for point in found.points:
        cells = [point.risk.get(name) or point.utility.get(name) for name in _SHOWN]
        texts = ["-" if one is None else f"{one.mean:.3f}" for one in cells]
        mark = "*" if point.name in best else " "
        echo(f"{mark} {printable(point.name):<{width}}  {texts[0]:>5}  {texts[1]:>5}  {texts[2]:>9}  {texts[3]:>8}")
    echo("* no other has less membership advantage and more accuracy")
    for names, reason in by_reason(found.skipped):
        echo_wrapped(f"Not measured: {printable(names)}: {printable(reason)}")
    echo_wrapped(f"These are {found.note}. {found.charging}")
