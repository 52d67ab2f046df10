"""``sfumato estimate``: estimate what holds of people from their perturbed records."""

from __future__ import annotations

import click

from sfumato.cli.options import Command, print_json
from sfumato.cli.terminal import echo, printable, style
from sfumato.masking.perturb import PerturbedTable

__all__ = ["estimate"]


@click.command(cls=Command)
@click.argument("data", metavar="FILE")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
def estimate(as_json: bool, data: str, confidence: float) -> None:
    """Estimate shares and means from the records that 'sfumato perturb' has written.

    The estimates have no bias: what the perturbation adds is taken off again. It
    costs nothing more, for only perturbed records are read.

    \b
    sfumato estimate out.csv
    """
    perturbed = PerturbedTable.from_file(data)
    found = perturbed.estimate(confidence)
    if as_json:
        rows, epsilon = len(perturbed.frame), perturbed.epsilon
        print_json(
            {
                "rows": rows,
                "epsilon": epsilon,
                "confidence": confidence,
                "estimates": [one.to_dict() for one in found],
            }
        )
        return
    for one in found:
        named = "(missing)" if one.value is None else one.value
        name = f"mean of {one.column}" if one.statistic == "mean" else f"{one.column} = {named}"
        low, high = (_number(end, one.statistic) for end in one.interval)
        value = style(f"{_number(one.estimate, one.statistic):>8}", bold=True)
        echo(f"{printable(name):<26} {value}  ({100 * confidence:g} % interval {low} to {high})")


def _number(value: float, statistic: str) -> str:
    return f"{100 * value:.1f} %" if statistic == "share" else f"{value:.4g}"
