"""``sfumato anonymize``: make a table anonymous."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sfumato._errors import OptionError
from sfumato.anonymizers.anonymize import METHODS, Release
from sfumato.anonymizers.anonymize import anonymize as anonymize_table
from sfumato.anonymizers.anonymizer import Anonymizer, Partitioner
from sfumato.anonymizers.lattice import Lattice
from sfumato.anonymizers.mondrian import Mondrian
from sfumato.anonymizers.publish import Output
from sfumato.cli.assess import print_assessment
from sfumato.cli.options import Command, choice, keep_input, load_table, print_json, table_options
from sfumato.cli.progress import patience
from sfumato.data.files import format_of
from sfumato.measures.models import parse

__all__ = ["anonymize"]

# The option that asks for a guarantee, the name that `parse` knows it by, and what it says.
_GUARANTEES = {
    "--k": ("k", "Every class has at least N rows."),
    "--alpha": ("alpha", "No sensitive value fills more than this share of a class."),
    "--l": ("l", "Every class has at least N different sensitive values."),
    "--entropy-l": ("entropy_l", "Every class is as diverse as this many equally frequent values."),
    "--t": ("t", "The sensitive values of every class are this close to those of the table."),
    "--beta": ("basic_beta", "No value's share grows by more than this factor."),
    "--enhanced-beta": ("enhanced_beta", "The same, and frequent values are capped too."),
    "--delta-disclosure": ("delta_disclosure", "No value's odds change by more than e to this power."),
}


def _guarantee_options(command: Any) -> Any:
    recursive = click.option(
        "--recursive", metavar="C,L", help="The most frequent value is below C times the rest from the L-th on."
    )
    command = recursive(command)
    for flag, (name, text) in reversed(_GUARANTEES.items()):
        command = click.option(flag, name, metavar="N" if name in ("k", "l") else "X", help=text)(command)
    return command


@click.command(cls=Command)
@table_options
@_guarantee_options
@click.option(
    "--method", type=click.Choice(list(METHODS)), default="mondrian", show_default=True, help="How it is done."
)
@click.option("--suppress", type=float, metavar="SHARE", help="The largest share of rows to suppress (lattice).")
@click.option("--representative", type=choice(Output), help="What is published of a class.  [default: interval]")
@click.option("--relaxed", is_flag=True, help="Equal rows may be published differently (mondrian).")
@click.option("-o", "--output", metavar="OUT", required=True, help="Write it there: .csv, .tsv, .parquet, .arrow.")
def anonymize(
    as_json: bool,
    recursive: str | None,
    method: str,
    suppress: float | None,
    representative: str | None,
    relaxed: bool,
    output: str,
    **options: Any,
) -> None:
    """Make a table anonymous, and lose as little as possible.

    Name the columns that others know about a person with --qi and what must not be
    learnt with --sensitive, and say what must hold: at least --k. Columns named by
    --identifiers are left out. The release is measured again before it is written.

    \b
    sfumato anonymize patients.csv --qi age,zip,sex --sensitive disease --k 10 --l 3 -o release.csv
    sfumato anonymize patients.csv --schema schema.toml --k 5 --method lattice --suppress 0.05 -o release.parquet
    """
    asked = {name: options.pop(name) for name, _ in _GUARANTEES.values()}
    required = _required(asked, recursive)
    keep_input(output, options["data"], options["schema_file"])
    if format_of(Path(output)) == "excel":
        raise OptionError(f"'{output}' would be an Excel file, which Sfumato only reads", hint="write .csv or .parquet")
    chosen = _method(method, suppress, representative, relaxed)
    with patience("Working; the very first run of a method also compiles it, which takes some seconds ..."):
        release = anonymize_table(load_table(**options), required, method=chosen)
    release.write(output)
    if as_json:
        print_json(release.to_dict())
    else:
        _print(release)
    click.echo(f"The release is in {output}", err=True)


def _required(asked: dict[str, str | None], recursive: str | None) -> str:
    """Write what is asked for as the text that guarantees are read from."""
    parts = [f"{name}={value}" for name, value in asked.items() if value is not None]
    if recursive is not None:
        c, comma, l = recursive.partition(",")
        if not comma:
            raise OptionError(f"--recursive needs two numbers, got '{recursive}'", hint="for example --recursive 2,3")
        parts += [f"recursive_c={c.strip()}", f"recursive_l={l.strip()}"]
    if asked["k"] is None:
        raise OptionError("--k is not given", hint="how many rows shall share a combination? --k 10, for example")
    text = ",".join(parts)
    parse(text)  # so that a mistake is found before a large file is read
    return text


def _method(name: str, suppress: float | None, representative: str | None, relaxed: bool) -> Anonymizer:
    """Return the method with those of the options that are given; refuse one that is not for it."""
    method = METHODS[name]()
    if suppress is not None:
        if not isinstance(method, Lattice):
            raise OptionError("--suppress is for the lattice", hint="give --method lattice too")
        method.set_params(suppress=suppress)
    if representative is not None:
        if not isinstance(method, Partitioner):
            raise OptionError(f"--representative is not for the {name}, which publishes the levels of hierarchies")
        method.set_params(output=representative)
    if relaxed:
        if not isinstance(method, Mondrian):
            raise OptionError("--relaxed is for Mondrian", hint="leave it out")
        method.set_params(strict=False)
    return method


def _print(release: Release) -> None:
    print_assessment(release.assessment)
    lost = release.loss
    click.echo(f"\n{'information lost':<26} {click.style(f'{100 * lost.gcp:.1f} %', bold=True)}  (GCP)")
    for name, column in sorted(lost.by_column.items(), key=lambda item: -item[1].ncp):
        click.echo(f"  {name:<24} {100 * column.ncp:.1f} %")
    if lost.suppressed:
        click.echo(f"{'rows suppressed':<26} {100 * lost.suppressed:.2f} %")
    if "optimal" in release.details:
        levels = ", ".join(f"{name} {level}" for name, level in release.details["levels"].items())
        click.echo(f"{'levels':<26} {levels}")
        proof = "the least that is possible" if release.details["optimal"] else "the best that was found"
        click.echo(f"{'loss of these levels':<26} {release.details['loss']:.4f}, {proof}")
    click.echo(f"{'method':<26} {release.method}, {release.seconds:.1f} s")
