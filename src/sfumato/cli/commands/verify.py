"""``sfumato verify``: check that a release is what its certificate says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import sfumato as sf
from sfumato.cli.options import Command, print_json
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, style

if TYPE_CHECKING:
    from sfumato.data import Claim

__all__ = ["verify"]


@click.command(cls=Command)
@click.argument("release", metavar="FOLDER")
@click.option(
    "--source", metavar="FILE", help="The original table: check that the release was made from it; only its maker can."
)
@click.pass_context
def verify(ctx: click.Context, as_json: bool, release: str, source: str | None) -> None:
    """Check every claim of a release on its data alone.

    The folder must contain the files of its kind and no others. Every guarantee and
    every number of its certificate is measured again; for a model, epsilon is derived
    again from the recorded events, and the events from the stated training. Files must
    not contradict each other. The exit code is 1 if a claim does not hold. What cannot
    be checked without the original is listed separately. Verifying does not show who
    made the release.

    \b
    sfumato anonymize patients.csv --qi age,zip --k 10 -o release
    sfumato verify release
    """
    with progress_bar("Measuring") as progress:
        verdict = sf.verify(release, source=source, progress=progress)
    if as_json:
        print_json(verdict.to_dict())
    else:
        _print(verdict)
    ctx.exit(0 if verdict.ok else 1)


def _print(verdict: sf.Verification) -> None:
    from sfumato.data.claim import quote

    schema, unchecked = verdict.certificate.schema, verdict.unchecked
    checked = [claim for claim in verdict.claims if claim.held is not None]
    if verdict.failed:
        verb = "does" if len(verdict.failed) == 1 else "do"
        echo(style(f"{len(verdict.failed)} of {len(checked)} claims {verb} not hold.", bold=True, fg="red"))
    else:
        echo(style(f"All {len(checked)} claims that can be checked here hold.", bold=True, fg="green"))
    sensitive = [f"{name} (by a hierarchy)" if schema[name].hierarchy else name for name in schema.sensitive]
    if verdict.certificate.kind == "table":
        echo(f"quasi-identifiers: {', '.join(schema.quasi) or 'none'}")
        echo(f"sensitive: {', '.join(sensitive) or 'none'}")
        others = [
            column.name for column in schema.columns if column.role in (sf.Role.OTHER, sf.Role.KEPT, sf.Role.TARGET)
        ]
        echo(f"released as they are: {', '.join(others) or 'none'}")
        for name in schema.kept:
            reason = schema[name].reason
            echo(style(f"kept on purpose: {name}" + (f" ({quote(reason)})" if reason else ""), fg="yellow"))
    echo(f"made by {quote(verdict.certificate.method)}, {quote(verdict.certificate.made)}")
    echo()
    for claim in checked:
        mark = style("held    ", fg="green") if claim.held else style("NOT HELD", fg="red")
        repeated = claim.held and claim.claim.endswith(quote(claim.measured))
        echo(f"{mark}  ", nl=False)
        echo(claim.claim + ("" if repeated else f": {_measured(claim)}"))
    if unchecked:
        echo()
        echo("Not checkable here:")
    for claim in unchecked:
        echo(f"  {claim.claim}: {str(claim.measured).removeprefix('not checkable here: ')}")


def _measured(claim: Claim) -> str:
    """Write a measurement: a number in short, and a sentence of ours in full."""
    from sfumato.data.claim import quote

    return claim.measured if isinstance(claim.measured, str) and claim.measured != "inf" else quote(claim.measured)
