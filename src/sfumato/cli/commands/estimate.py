"""``sfumato estimate``: estimate shares and means from perturbed records."""

from __future__ import annotations

import click

import sfumato as sf
from sfumato.cli.options import Command, Number, print_json
from sfumato.cli.terminal import echo, printable, style

__all__ = ["estimate"]


@click.command(cls=Command)
@click.argument("data", metavar="FILE")
@click.option(
    "--confidence",
    type=Number(above=0, below=1),
    default=0.95,
    show_default=True,
    help="The chance that an interval contains the true value.",
)
def estimate(as_json: bool, data: str, confidence: float) -> None:
    """Estimate shares and means from the records that 'sfumato perturb' has written.

    The estimates are unbiased: on average, the perturbation cancels out. They cost no
    privacy, because only perturbed records are read.

    \b
    sfumato estimate out.csv
    """
    perturbed = sf.masking.PerturbedTable.from_file(data)
    estimates = perturbed.estimate(confidence)
    if as_json:
        facts = {"rows": len(perturbed.frame), "epsilon": perturbed.epsilon, "confidence": confidence}
        print_json({**facts, "estimates": [one.to_dict() for one in estimates]})
        return
    for one in estimates:
        named = "(missing)" if one.value is None else one.value
        name = f"mean of {one.column}" if one.statistic == "mean" else f"{one.column} = {named}"
        low, high = (_number(end, one.statistic) for end in one.interval)
        value = style(f"{_number(one.estimate, one.statistic):>8}", bold=True)
        echo(f"{printable(name):<26} {value}  ({100 * confidence:g} % interval {low} to {high})")


def _number(value: float, statistic: str) -> str:
    return f"{100 * value:.1f} %" if statistic == "share" else f"{value:.4g}"
