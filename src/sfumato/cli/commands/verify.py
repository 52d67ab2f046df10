"""``sfumato verify``: say whether a release is what its certificate says."""

from __future__ import annotations

import click

from sfumato.cli.options import Command, print_json
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, style
from sfumato.data.claim import Claim, quote
from sfumato.data.schema import Role
from sfumato.releases.verify import Verification
from sfumato.releases.verify import verify as verify_release

__all__ = ["verify"]


@click.command(cls=Command)
@click.argument("release", metavar="FOLDER")
@click.option("--source", metavar="FILE", help="The original: was the release made of it? Only its maker can tell.")
@click.pass_context
def verify(ctx: click.Context, as_json: bool, release: str, source: str | None) -> None:
    """Check every claim of a release on its data alone.

    The folder must hold the files of its kind and no others. Every guarantee and every
    number of its certificate is measured again; of a model, epsilon is derived again
    from the recorded events, and the events from the stated training. Whatever two
    files state must agree. The exit code is 1 if a claim does not hold. What nobody can
    check without the original is listed apart. That all claims hold does not say who
    made the release.

    \b
    sfumato anonymize patients.csv --qi age,zip --k 10 -o release
    sfumato verify release
    """
    with progress_bar("Measuring") as progress:
        verdict = verify_release(release, source=source, progress=progress)
    if as_json:
        print_json(verdict.to_dict())
    else:
        _print(verdict)
    ctx.exit(0 if verdict.ok else 1)


def _print(verdict: Verification) -> None:
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
        others = [column.name for column in schema.columns if column.role in (Role.OTHER, Role.KEPT, Role.TARGET)]
        echo(f"released as they are: {', '.join(others) or 'none'}")
        for name in schema.kept:
            reason = schema[name].reason
            echo(style(f"kept on purpose: {name}" + (f" ({quote(reason)})" if reason else ""), fg="yellow"))
    echo(f"made by {quote(verdict.certificate.method)}, {quote(verdict.certificate.made)}")
    echo()
    for claim in checked:
        mark = style("held    ", fg="green") if claim.held else style("NOT HELD", fg="red")
        found = quote(claim.measured)
        echo(f"{mark}  ", nl=False)
        echo(claim.claim + ("" if claim.held and claim.claim.endswith(found) else f": {_found(claim)}"))
    if unchecked:
        echo()
        echo("Not checkable here:")
    for claim in unchecked:
        echo(f"  {claim.claim}: {str(claim.measured).removeprefix('not checkable here: ')}")


def _found(claim: Claim) -> str:
    """Write what was found: a number briefly, and a sentence of ours whole."""
    return claim.measured if isinstance(claim.measured, str) and claim.measured != "inf" else quote(claim.measured)
