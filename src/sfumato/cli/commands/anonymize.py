"""``sfumato anonymize``: make a table anonymous."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sfumato.anonymizers.anonymize import METHODS, as_method, planned, refuse_new, tightened
from sfumato.anonymizers.anonymize import anonymize as anonymize_table
from sfumato.anonymizers.base import Anonymizer
from sfumato.anonymizers.publish import Output
from sfumato.cli.options import (
    Command,
    choice,
    escape_option,
    force_option,
    is_file,
    keep_input,
    keep_output,
    load_table,
    print_json,
    rows_option,
    table_options,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.summary import print_assessment
from sfumato.cli.terminal import echo, style
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.files import format_of
from sfumato.data.io.fingerprint import user_hmac
from sfumato.data.io.folders import atomic_folder
from sfumato.data.io.formulas import refuse_typed
from sfumato.data.recipe import Recipe
from sfumato.data.release import Release
from sfumato.data.schema import Role, Schema
from sfumato.data.table import Table
from sfumato.data.validate import real
from sfumato.engines.engine import Progress
from sfumato.errors import OptionError
from sfumato.measures.loss.utility import MODELS
from sfumato.measures.models import parse
from sfumato.measures.released_table import Format

if TYPE_CHECKING:
    from sfumato.report.page import Page
    from sfumato.report.table.comparison import Comparison
    from sfumato.report.table.side_by_side import ComparedRelease

__all__ = ["anonymize"]

# The option that asks for a guarantee, the name that `parse` knows it by, and what it says.
_GUARANTEES = {
    "--k": ("k", "Every class has at least N rows."),
    "--alpha": ("alpha", "No sensitive value fills more than this share of a class."),
    "--l": ("l", "Every class has at least N different sensitive values."),
    "--entropy-l": ("entropy_l", "Every class is as diverse as this many equally frequent values."),
    "--t": ("t", "The sensitive values of every class are this close to those of the table."),
    "--beta": ("basic_beta", "No value's share grows by more than so many times itself: 1 doubles it."),
    "--enhanced-beta": ("enhanced_beta", "The same, and frequent values are capped too."),
    "--delta-disclosure": ("delta_disclosure", "No value's share changes by a factor of e to this power, or more."),
}


_ALL = "/"  # no release has this name: the page that compares all of them
_ROLES = ("qi", "sensitive", "identifiers", "keep", "target", "schema_file")
_VALUES = (Output.MEDIAN, Output.MEAN, Output.MEDOID)
_MODEL = (
    "The model whose accuracy is compared, if there is a --target; it also guides (guided), instead of the target "
    "itself.  [default: forest, and nothing guides but the target]"
)
_WITHOUT_PAGE = 0.7  # the share of the work on a release that is done before its page


def _guarantee_options(command: Any) -> Any:
    recursive = click.option(
        "--recursive", metavar="C,L", help="The most frequent value is below C times the rest from the L-th on."
    )
    command = recursive(command)
    for flag, (name, text) in reversed(_GUARANTEES.items()):
        metavar = "N[,N...]" if name == "k" else "N" if name == "l" else "X"
        command = click.option(flag, name, metavar=metavar, help=text)(command)
    return command


class _Methods(click.ParamType[list[str]]):
    """Names of methods, separated by commas."""

    name = "METHOD[,METHOD...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split the text at its commas, and refuse what is not a method."""
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        return [click.Choice(list(METHODS)).convert(name, param, ctx) for name in dict.fromkeys(names or [str(value)])]


@click.command(cls=Command)
@table_options
@_guarantee_options
@rows_option
@click.option(
    "--method",
    "methods",
    type=_Methods(),
    default="mondrian",
    show_default=True,
    help=f"How it is done: {', '.join(METHODS)}.",
)
@click.option(
    "--suppress", type=float, metavar="SHARE", help="The largest share of rows to suppress (lattice, suppress)."
)
@click.option(
    "--representative",
    type=choice(Output),
    help="What is published of a class.  [default: interval; microaggregate: mean; guided: median]",
)
@click.option(
    "--exact-ends",
    is_flag=True,
    help="Intervals end at values of the class, somebody's each; by default they are rounded outward.",
)
@click.option("--relaxed", is_flag=True, help="Equal rows may be published differently (mondrian).")
@click.option("--recipe", metavar="FILE", help="Do what a recipe.toml says, in place of the options above.")
@click.option("--model", type=click.Choice(MODELS), help=_MODEL)
@click.option("--format", "kind", type=choice(Format), help="How a folder stores the table; as FILE is, by default.")
@click.option("--keep-order", is_flag=True, help="Leave the rows in their order; they are shuffled by default.")
@escape_option
@force_option
@click.option(
    "-o", "--output", metavar="OUT", required=True, help="A new folder for all, or a file for the table alone."
)
def anonymize(
    as_json: bool,
    recursive: str | None,
    rows_are_units: bool,
    recipe: str | None,
    model: str | None,
    kind: str | None,
    output: str,
    keep_order: bool,
    escape_formulas: bool,
    force: bool,
    **options: Any,
) -> None:
    """Make a table anonymous, and lose as little as possible.

    Name the columns that others know about a person with --qi and what must not be
    learnt with --sensitive, and say what must hold: at least --k. Columns named by
    --identifiers are left out. Every other column is released as it is: one that looks
    like an identifier or free text, or reproduces a protected column, is refused unless
    --keep names it. The release is measured again before it is written.

    OUT is a folder with the table, a report of it before and after, a certificate that
    'sfumato verify' checks, and the recipe; or the table alone, if it ends in .csv, .tsv,
    .jsonl, .parquet, .arrow or .xlsx; or - for the table as CSV on the standard output. With
    several --k or --method, separated by commas, it is a folder with a release for each, such
    as OUT/mondrian-k10, and a page that compares them.

    \b
    sfumato anonymize patients.csv --qi age,zip,sex --sensitive disease --k 10 --l 3 -o release
    sfumato anonymize patients.csv --schema schema.toml --k 5 --method lattice --suppress 0.05 -o release.parquet
    sfumato anonymize patients.csv --qi age,zip,sex --target recovered --k 10 --method guided -o release
    sfumato anonymize patients.csv --qi age,zip,sex --k 5,10,20 --method mondrian,lattice -o releases
    sfumato anonymize newer.csv --recipe release/recipe.toml -o newer
    """
    asked = {name: options.pop(name) for name, _ in _GUARANTEES.values()}
    how = {name: options.pop(name) for name in ("methods", "suppress", "representative", "exact_ends", "relaxed")}
    keep_input(output, options["data"], options["schema_file"], recipe)
    if recipe is None:
        plans, schema = _plans(asked, recursive, _methods(**how, model=model)), None
    else:
        others = [*asked.values(), recursive, *(options[name] for name in _ROLES), *how.values(), keep_order]
        stated, chosen, schema, keep_order = _read_recipe(recipe, others)
        plans = {"": (stated, chosen)}
    alone = is_file(output)
    if alone and kind is not None:
        raise OptionError("--format is for a folder", hint=f"the name '{Path(output).name}' says the format already")
    if alone and len(plans) > 1:
        raise OptionError(f"several releases need a folder, got '{output}'", hint="give one --k and one --method")
    keep_output(output, force=force, folder=not alone)
    if escape_formulas and (alone or kind):
        refuse_typed(output, format_of(Path(output)) if alone else str(kind))
    if options["target"] is options["schema_file"] is schema is None:
        _refuse_unguided(plans)
    table = Table.of(load_table(**options), schema=schema)
    if schema is not None:
        refuse_new(table, schema)
    if table.schema.target is None:
        _refuse_unguided(plans)
    if not alone and table.origin is not None:
        user_hmac()  # creates the key, and reports a failure before the work
    how_each: dict[str, Any] = {
        "rows_are_units": rows_are_units,
        "keep_order": keep_order,
        "escape_formulas": escape_formulas,
    }
    stored = Format(kind) if kind else Format.like(table.origin)
    pages: dict[str, Page] = {}
    with (
        progress_bar("Anonymizing") as progress,
        nullcontext() if alone else atomic_folder(output, replace=force) as folder,
    ):
        if folder is None:
            ((guarantees, chosen),) = plans.values()
            release = anonymize_table(table, guarantees, method=chosen, to=output, progress=progress, **how_each)
            made = {"": release}
        else:
            made, pages = _write_releases(table, plans, folder, Path(output).name, stored, model, progress, how_each)
    notes = list(dict.fromkeys(note for name, page in pages.items() if name != _ALL for note in page.summary.notes))
    for note in notes:
        echo(f"The model of the report: {note}", err=True)
    if len(plans) > 1:
        compared = pages.pop(_ALL)
        ones = [{"name": name, **one.to_dict(), **_compared(pages[name].summary)} for name, one in made.items()]
        print_json({"releases": ones}) if as_json else _print_compared(compared.summary)
        echo(f"The releases are in {output}, and compared in {Path(output) / 'report.html'}", err=True)
        return
    (release,) = made.values()
    if as_json:
        print_json({**release.to_dict(), **({"notes": notes} if notes else {})})
    else:
        _print(release)
    echo(f"The release is in {output}", err=True)


def _write_releases(
    table: Table,
    plans: dict[str, tuple[Any, Anonymizer]],
    folder: Path,
    title: str,
    stored: Format,
    model: str | None,
    progress: Progress | None,
    options: dict[str, Any],
) -> tuple[dict[str, Release], dict[str, Page]]:
    """Write each planned release into the folder, and the page that compares them if there are several."""
    from sfumato.releases.save import REPORT, write_release  # with the page, which a table alone does not need
    from sfumato.report.page import page_of_all

    made: dict[str, Release] = {}
    pages: dict[str, Page] = {}
    for at, (name, (guarantees, chosen)) in enumerate(plans.items()):
        inside = folder / name
        inside.mkdir(exist_ok=True)
        part = progress and _part(progress, at, len(plans), _WITHOUT_PAGE)
        made[name] = anonymize_table(
            table, guarantees, method=chosen, to=inside / stored.file, progress=part, **options
        )
        called = "/".join(filter(None, (title, name)))
        pages[name] = write_release(made[name], inside, name=called, format=stored, models=[model or "forest"])
    if len(plans) > 1:
        pages[_ALL] = page_of_all(made, pages, name=title)
        (folder / REPORT).write_text(pages[_ALL].html, encoding="utf-8")
    return made, pages


def _refuse_unguided(plans: dict[str, tuple[Any, Anonymizer]]) -> None:
    """Refuse a method that a target guides, where there is none, before the other methods have worked."""
    if any(method.name == "guided" for _, method in plans.values()):
        raise OptionError("nothing is given that guides", hint="name the column to predict: --target")


def _part(progress: Progress, at: int, of: int, most: float) -> Progress:
    """Return the progress of one of several releases, which is most of the work on it."""
    return lambda share: progress((at + most * share) / of)


def _compared(measured: Comparison) -> dict[str, Any]:
    return {
        "query_error": measured.queries and measured.queries.to_dict(),
        "accuracy": [one.to_dict() for one in measured.accuracy],
        "notes": list(measured.notes),
    }


def _read_recipe(path: str, others: Sequence[Any]) -> tuple[list[Guarantee], Anonymizer, Schema, bool]:
    """Return what a recipe says; refuse options that it says too."""
    if any(one not in (None, False, ["mondrian"], []) for one in others):
        raise OptionError("--recipe says what to do and what the columns are", hint="leave the other options out")
    recipe = Recipe.load(path)
    guarantees, method, keep_order = planned(recipe)
    return guarantees, method, recipe.schema, keep_order


def _plans(
    asked: dict[str, str | None], recursive: str | None, methods: Sequence[Anonymizer]
) -> dict[str, tuple[Any, Anonymizer]]:
    """Return what each release must keep and how it is made, by its name; one alone has no name."""
    sizes = dict.fromkeys(part.strip() for part in (asked["k"] or "").split(",") if part.strip())
    required = {k: _required(asked | {"k": k}, recursive) for k in sizes} or {"": _required(asked, recursive)}
    plans = {f"{method.name}-k{k}": (guarantees, method) for method in methods for k, guarantees in required.items()}
    return plans if len(plans) > 1 else {"": next(iter(plans.values()))}


def _required(asked: dict[str, str | None], recursive: str | None) -> str:
    """Write what is asked for as the text that guarantees are read from."""
    parts = [f"{name}={value}" for name, value in asked.items() if value is not None]
    for name, value in asked.items():
        if "," in (value or ""):  # it would read as several guarantees
            raise OptionError(f"the guarantee '{name}' needs a number, got '{value}'", hint="write 0.5, not 0,5")
    if recursive is not None:
        both = recursive.split(",")
        if len(both) != 2:
            raise OptionError(f"--recursive needs two numbers, got '{recursive}'", hint="for example --recursive 2,3")
        parts += [f"recursive_c={both[0].strip()}", f"recursive_l={both[1].strip()}"]
    if asked["k"] is None:
        raise OptionError("--k is not given", hint="for example --k 10, for classes of at least 10 rows")
    text = ",".join(parts)
    parse(text)  # so that a mistake is found before a large file is read
    return text


def _methods(
    methods: Sequence[str],
    suppress: float | None,
    representative: str | None,
    exact_ends: bool,
    relaxed: bool,
    model: str | None,
) -> list[Anonymizer]:
    """Return the methods with those of the options that are theirs; refuse one that is for none of them."""
    chosen = [as_method(name) for name in methods]

    def give(refused: OptionError, **parameters: Any) -> None:
        takers = [one for one in chosen if parameters.keys() <= one.get_params().keys()]
        if not takers:
            raise refused
        for one in takers:
            one.set_params(**parameters)

    if suppress is not None:
        real("the share of rows to suppress", suppress, least=0, most=1)
        refused = OptionError("--suppress is for the lattice and suppress", hint="give --method lattice too")
        give(refused, suppress=suppress)
    if representative is not None:
        named = ", ".join(methods)
        refused = OptionError(
            f"--representative is not for the {named} method, which leaves no choice of what to publish"
        )
        give(refused, output=representative)
    if exact_ends:
        for one in [one for one in chosen if getattr(one, "output", None) == Output.INTERVAL] or chosen:
            one.set_params(output=tightened(one))
    if relaxed:
        give(OptionError("--relaxed is for Mondrian", hint="leave it out"), strict=False)
    for one in chosen:
        if one.name == "guided":
            one.set_params(model=model)
    return chosen


def _print_compared(ones: Sequence[ComparedRelease]) -> None:
    """Print a line for each of several releases."""
    from sfumato.report.table.side_by_side import HEADINGS

    width = max(len(one.name) for one in ones)
    headings = HEADINGS[: len(ones[0].texts())]
    echo("  ".join(["release".ljust(width), *headings]))
    for one in ones:
        cells = (text.rjust(len(heading)) for text, heading in zip(one.texts(), headings, strict=True))
        echo("  ".join([style(one.name.ljust(width), bold=True), *cells]))


def _print(release: Release) -> None:
    print_assessment(release.assessment)
    lost = release.loss
    echo()
    echo(f"{'information lost':<26} {style(f'{100 * lost.gcp:.1f} %', bold=True)}  (GCP)")
    for name, column in sorted(lost.by_column.items(), key=lambda item: -item[1].ncp):
        echo(f"  {name:<24} {100 * column.ncp:.1f} %")
    if release.parameters.get("output") in _VALUES:
        echo("  a value that stands for its class costs nothing in GCP, and yet it is not the original one")
    if lost.suppressed:
        echo(f"{'rows suppressed':<26} {100 * lost.suppressed:.2f} %")
    if "agreement" in release.details:
        echo(f"{'label told by the class':<26} {100 * release.details['agreement']:.1f} %")
    if "chosen" in release.details:
        told = f"predictions explain {100 * release.details['told']:.1f} % of held-out labels"
        echo(f"{'partition':<26} {release.details['chosen']}: {told}")
    if "exact_ends" in release.details:
        echo(f"{'classes with exact ends':<26} {release.details['exact_ends']:,}, which rounded ones would have merged")
    if "cells" in release.details:
        echo(f"{'cells suppressed':<26} {100 * release.details['cells_share']:.2f} %")
    if "optimal" in release.details:
        levels = ", ".join(f"{name} {level}" for name, level in release.details["levels"].items())
        echo(f"{'levels':<26} {levels}")
        proof = "the least that is possible" if release.details["optimal"] else "the best that was found"
        echo(f"{'loss of these levels':<26} {release.details['loss']:.4f}, {proof}")
    echo(f"{'method':<26} {release.method}, {release.seconds:.1f} s")
    echo(f"{'order of the rows':<26} {'as in the original' if release.kept_order else 'shuffled'}")
    others = [
        column.name for column in release.table.schema.columns if column.role in (Role.OTHER, Role.KEPT, Role.TARGET)
    ]
    if others:
        echo(f"{'released as they are':<26} {', '.join(others)}")
