"""``sfumato anonymize``: make a table anonymous."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import sfumato as sf
from sfumato.cli.commands.assess import print_assessment
from sfumato.cli.options import (
    Choice,
    Command,
    Number,
    Setting,
    check_not_input,
    check_output,
    escape_option,
    force_option,
    is_file,
    print_json,
    rows_option,
    table_options,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, style
from sfumato.errors import OptionError

if TYPE_CHECKING:
    from sfumato.anonymizers import Anonymizer
    from sfumato.engines.engine import Progress
    from sfumato.measures.released_table import Format
    from sfumato.report.page import Page
    from sfumato.report.table.comparison import Comparison
    from sfumato.report.table.side_by_side import ComparedRelease

__all__ = ["anonymize"]

# The option of a guarantee, the name that `parse` knows it by, and its help.
_GUARANTEES = {
    "--k": ("k", "Every class has at least N rows."),
    "--alpha": ("alpha", "No sensitive value makes up more than this share of a class."),
    "--l": ("l", "Every class has at least N distinct sensitive values."),
    "--entropy-l": ("entropy_l", "Every class is as diverse as this many equally frequent values."),
    "--t": ("t", "The sensitive values of every class are within this distance of those of the table."),
    "--beta": ("basic_beta", "No value's share grows by more than this many times itself; 1 doubles it."),
    "--enhanced-beta": ("enhanced_beta", "The same, with an upper limit for frequent values too."),
    "--delta-disclosure": ("delta_disclosure", "Every value's share changes by a factor of less than e to this power."),
}
_ALL = "/"  # the page that compares all releases; no release has this name
_ROLES = ("qi", "sensitive", "identifiers", "person", "keep", "target", "schema_file")
_HOW = ("methods", "suppress", "levels", "representative", "exact_ends", "relaxed")
_SINGLE_VALUES = ("median", "mean", "medoid")
_WITHOUT_PAGE = 0.7  # the share of the work on a release before its page


def _guarantee_options(command: Any) -> Any:
    recursive = click.option(
        "--recursive", metavar="C,L", help="The most frequent value is below C times the rest from the L-th on."
    )
    command = recursive(command)
    for flag, (name, text) in reversed(_GUARANTEES.items()):
        metavar = "N[,N...]" if name == "k" else "N" if name == "l" else "X"
        command = click.option(flag, name, metavar=metavar, help=text)(command)
    return command


@click.command(cls=Command)
@table_options
@_guarantee_options
@rows_option
@click.option(
    "--method",
    "methods",
    type=Choice(
        "mondrian",
        "hilbert",
        "rplus",
        "lattice",
        "microaggregate",
        "suppress",
        "guided",
        of="anonymizers.anonymize:METHODS",
        several=True,
    ),
    default="mondrian",
    show_default=True,
    help="How rows are grouped into classes.",
)
@click.option(
    "--suppress",
    type=Number(least=0, most=1),
    metavar="SHARE",
    help="The largest share of rows to suppress (lattice, suppress).",
)
@click.option(
    "--level",
    "levels",
    type=Setting("age=2", int, last=True),
    multiple=True,
    help="The level of a column, such as age=2; give one for each quasi-identifier (lattice).",
)
@click.option(
    "--representative",
    type=Choice("interval", "tight", "level", "median", "mean", "medoid", of="anonymizers.publish:Output"),
    help="How the values of a class are published.  [default: interval; microaggregate: mean; guided: median]",
)
@click.option(
    "--exact-ends", is_flag=True, help="End intervals at real values of the class instead of rounding them outward."
)
@click.option("--relaxed", is_flag=True, help="Equal rows may end up in different classes (mondrian).")
@click.option("--recipe", metavar="FILE", help="Take all of the above from a recipe.toml.")
@click.option(
    "--model",
    type=Choice("logistic", "tree", "forest", "boosting", of="measures.loss.utility:MODELS"),
    help="With --target: the model whose accuracy the report compares, and whose predictions guide the method guided.  "
    "[default: forest; guided by the target itself]",
)
@click.option(
    "--format",
    "kind",
    type=Choice("csv", "parquet", of="measures.released_table:Format"),
    help="The format of the table in a folder.  [default: that of FILE]",
)
@click.option(
    "--keep-person-token",
    is_flag=True,
    help="With --person: release a random number for each person, so that anyone can count people and link rows.",
)
@click.option("--keep-order", is_flag=True, help="Leave the rows in their order instead of shuffling them.")
@escape_option
@force_option
@click.option(
    "-o", "--output", metavar="OUT", required=True, help="A new folder for the release, or a file for the table alone."
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
    keep_person_token: bool,
    escape_formulas: bool,
    force: bool,
    **options: Any,
) -> None:
    """Make a table anonymous, and lose as little as possible.

    Name the columns that others may know about a person with --qi and the columns that
    they must not learn with --sensitive, and state the guarantees: at least --k. Rows
    with the same quasi-identifiers form a class. Columns named by --identifiers are left
    out. All other columns are released unchanged; one that looks like an identifier or
    free text, or reproduces a protected column, stops the command unless --keep names it.
    The result is measured again before it is written.

    OUT is a folder with the table, a report that compares it with the original, a
    certificate that 'sfumato verify' checks, and the recipe. If OUT ends in .csv, .tsv,
    .jsonl, .parquet, .arrow or .xlsx it is the table alone; - is CSV on the standard
    output. With several --k or --method, separated by commas, OUT is a folder with a
    release for each, such as OUT/mondrian-k10, and a page that compares them.

    \b
    sfumato anonymize patients.csv --qi age,zip,sex --sensitive disease --k 10 --l 3 -o release
    sfumato anonymize patients.csv --schema schema.toml --k 5 --method lattice --suppress 0.05 -o release.parquet
    sfumato anonymize patients.csv --qi age,zip,sex --target recovered --k 10 --method guided -o release
    sfumato anonymize patients.csv --qi age,zip,sex --k 5,10,20 --method mondrian,lattice -o releases
    sfumato anonymize newer.csv --recipe release/recipe.toml -o newer
    """
    from sfumato.anonymizers.anonymize import refuse_new
    from sfumato.cli.tables import load_table
    from sfumato.data.io.files import format_of
    from sfumato.data.io.fingerprint import user_hmac
    from sfumato.data.io.formulas import refuse_typed
    from sfumato.measures.released_table import Format

    asked = {name: options.pop(name) for name, _ in _GUARANTEES.values()}
    how = {name: options.pop(name) for name in _HOW}
    check_not_input(output, options["data"], options["schema_file"], recipe)
    if recipe is None:
        plans, schema = _plans(asked, recursive, _methods(**how, model=model)), None
    else:
        others = [
            *asked.values(),
            recursive,
            *(options[name] for name in _ROLES),
            *how.values(),
            keep_order,
            keep_person_token,
        ]
        guarantees, method, schema, keep_order, keep_person_token = _read_recipe(recipe, others)
        plans = {"": (guarantees, method)}
    alone = is_file(output)
    if alone and kind is not None:
        raise OptionError("--format is for a folder", hint=f"the name '{Path(output).name}' says the format already")
    if alone and len(plans) > 1:
        raise OptionError(f"several releases need a folder, got '{output}'", hint="give one --k and one --method")
    check_output(output, force=force, folder=not alone)
    if escape_formulas and (alone or kind):
        refuse_typed(output, format_of(Path(output)) if alone else str(kind))
    if options["target"] is options["schema_file"] is schema is None:
        _refuse_unguided(plans)
    table = sf.Table.of(load_table(**options), schema=schema)
    if schema is not None:
        refuse_new(table, schema)
    if table.schema.target is None:
        _refuse_unguided(plans)
    if not alone and table.origin is not None:
        user_hmac()  # creates the key, and reports a failure before the work
    stored = Format(kind) if kind else Format.like(table.origin)
    each = {
        "rows_are_units": rows_are_units,
        "keep_order": keep_order,
        "keep_person_token": keep_person_token,
        "escape_formulas": escape_formulas,
    }
    made, pages = _make_releases(table, plans, output, alone, force, stored, model, each)
    _print_releases(made, pages, output, as_json)


def _make_releases(
    table: sf.Table,
    plans: dict[str, tuple[Any, Anonymizer]],
    output: str,
    alone: bool,
    force: bool,
    stored: Format,
    model: str | None,
    options: dict[str, Any],
) -> tuple[dict[str, sf.Release], dict[str, Page]]:
    """Write one table, or a folder with each planned release and the page that compares them if there are several."""
    from sfumato.data.io.folders import atomic_folder

    made: dict[str, sf.Release] = {}
    pages: dict[str, Page] = {}
    with (
        progress_bar("Anonymizing") as progress,
        nullcontext() if alone else atomic_folder(output, replace=force) as folder,
    ):
        if folder is None:
            ((guarantees, method),) = plans.values()
            release = sf.anonymize(table, guarantees, method=method, to=output, progress=progress, **options)
            return {"": release}, {}
        from sfumato.releases.save import REPORT, write_release  # with the page, which a table alone does not need
        from sfumato.report.page import page_of_all

        title = Path(output).name
        for at, (name, (guarantees, method)) in enumerate(plans.items()):
            inside = folder / name
            inside.mkdir(exist_ok=True)
            part = progress and _part(progress, at, len(plans))
            made[name] = sf.anonymize(
                table, guarantees, method=method, to=inside / stored.file, progress=part, **options
            )
            named = "/".join(filter(None, (title, name)))
            pages[name] = write_release(made[name], inside, name=named, format=stored, models=[model or "forest"])
        if len(plans) > 1:
            pages[_ALL] = page_of_all(made, pages, name=title)
            (folder / REPORT).write_text(pages[_ALL].html, encoding="utf-8")
    return made, pages


def _part(progress: Progress, at: int, of: int) -> Progress:
    """Return the progress of one of several releases."""
    return lambda share: progress((at + _WITHOUT_PAGE * share) / of)


def _refuse_unguided(plans: dict[str, tuple[Any, Anonymizer]]) -> None:
    """Refuse the method guided without a target, before the other methods run."""
    if any(method.name == "guided" for _, method in plans.values()):
        raise OptionError("the method guided needs a target", hint="name the column to predict: --target")


def _read_recipe(path: str, others: Sequence[Any]) -> tuple[list[sf.Guarantee], Anonymizer, sf.Schema, bool, bool]:
    """Read a recipe; refuse options that it contains."""
    from sfumato.anonymizers.anonymize import read_plan

    if any(one not in (None, False, ["mondrian"], [], ()) for one in others):
        raise OptionError("--recipe says what to do and what the columns are", hint="leave the other options out")
    recipe = sf.data.Recipe.load(path)
    guarantees, method, keep_order = read_plan(recipe)
    return guarantees, method, recipe.schema, keep_order, bool(recipe.options.get("keep_person_token"))


def _plans(
    asked: dict[str, str | None], recursive: str | None, methods: Sequence[Anonymizer]
) -> dict[str, tuple[Any, Anonymizer]]:
    """Return the guarantees and the method of each release, by its name; a single release has no name."""
    sizes = dict.fromkeys(part.strip() for part in (asked["k"] or "").split(",") if part.strip())
    required = {k: _required(asked | {"k": k}, recursive) for k in sizes} or {"": _required(asked, recursive)}
    plans = {f"{method.name}-k{k}": (guarantees, method) for method in methods for k, guarantees in required.items()}
    return plans if len(plans) > 1 else {"": next(iter(plans.values()))}


def _required(asked: dict[str, str | None], recursive: str | None) -> str:
    """Write the options as the text that guarantees are parsed from, and check it before a large file is read."""
    from sfumato.measures.models import parse

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
        raise OptionError("--k is missing", hint="the least number of rows in a class, for example --k 10")
    text = ",".join(parts)
    parse(text)
    return text


def _methods(
    methods: Sequence[str],
    suppress: float | None,
    levels: Sequence[tuple[str, int]],
    representative: str | None,
    exact_ends: bool,
    relaxed: bool,
    model: str | None,
) -> list[Anonymizer]:
    """Return the methods with their options; refuse an option that applies to none of them."""
    from sfumato.anonymizers.anonymize import as_method, tight_output

    chosen = [as_method(name) for name in methods]

    def give(refused: OptionError, **parameters: Any) -> None:
        takers = [one for one in chosen if parameters.keys() <= one.get_params().keys()]
        if not takers:
            raise refused
        for one in takers:
            one.set_params(**parameters)

    if suppress is not None:
        give(
            OptionError("--suppress is for the methods lattice and suppress", hint="give --method lattice too"),
            suppress=suppress,
        )
    if levels:
        if len(dict(levels)) < len(levels):
            raise OptionError("--level names a column twice", hint="give one level for each column")
        give(OptionError("--level is for the method lattice", hint="give --method lattice too"), levels=dict(levels))
    if representative is not None:
        refused = OptionError(f"--representative is not for {', '.join(methods)}, which publishes values in one way")
        give(refused, output=representative)
    if exact_ends:
        for one in [one for one in chosen if getattr(one, "output", None) == sf.anonymizers.Output.INTERVAL] or chosen:
            one.set_params(output=tight_output(one))
    if relaxed:
        give(OptionError("--relaxed is for Mondrian", hint="leave it out"), strict=False)
    for one in chosen:
        if one.name == "guided":
            one.set_params(model=model)
    return chosen


# --- what is printed ------------------------------------------------------------------------------


def _print_releases(made: dict[str, sf.Release], pages: dict[str, Page], output: str, as_json: bool) -> None:
    notes = list(dict.fromkeys(note for name, page in pages.items() if name != _ALL for note in page.summary.notes))
    for note in notes:
        echo(f"The model of the report: {note}", err=True)
    if _ALL in pages:
        ones = [{"name": name, **one.to_dict(), **_comparison_dict(pages[name].summary)} for name, one in made.items()]
        print_json({"releases": ones}) if as_json else _print_compared(pages[_ALL].summary)
        echo(f"The releases are in {output}, and compared in {Path(output) / 'report.html'}", err=True)
        return
    (release,) = made.values()
    if as_json:
        print_json({**release.to_dict(), **({"notes": notes} if notes else {})})
    else:
        _print(release)
    echo(f"The release is in {output}", err=True)


def _comparison_dict(comparison: Comparison) -> dict[str, Any]:
    return {
        "query_error": comparison.queries and comparison.queries.to_dict(),
        "accuracy": [one.to_dict() for one in comparison.accuracy],
        "notes": list(comparison.notes),
    }


def _print_compared(ones: Sequence[ComparedRelease]) -> None:
    """Print a line for each of several releases."""
    from sfumato.report.table.side_by_side import HEADINGS

    width = max(len(one.name) for one in ones)
    headings = HEADINGS[: len(ones[0].texts())]
    echo("  ".join(["release".ljust(width), *headings]))
    for one in ones:
        cells = (text.rjust(len(heading)) for text, heading in zip(one.texts(), headings, strict=True))
        echo("  ".join([style(one.name.ljust(width), bold=True), *cells]))


def _print(release: sf.Release) -> None:
    def line(name: str, text: str) -> None:
        echo(f"{name:<26} {text}")

    print_assessment(release.assessment)
    lost, details = release.loss, release.details
    echo()
    line("information lost", f"{style(f'{100 * lost.gcp:.1f} %', bold=True)}  (GCP)")
    for name, column in sorted(lost.by_column.items(), key=lambda item: -item[1].ncp):
        echo(f"  {name:<24} {100 * column.ncp:.1f} %")
    if release.parameters.get("output") in _SINGLE_VALUES:
        echo("  a value that stands for its class costs nothing in GCP, although it is not the original one")
    if lost.suppressed:
        line("rows suppressed", f"{100 * lost.suppressed:.2f} %")
    if "agreement" in details:
        line("labels predicted by class", f"{100 * details['agreement']:.1f} %")
    if "chosen" in details:
        line(
            "partition",
            f"{details['chosen']}: predictions explain {100 * details['explained']:.1f} % of held-out labels",
        )
    if "unused" in details:
        from sfumato.report.summarise import unused_columns

        echo(unused_columns(details["unused"], details["features"], "because of free text"))
    if "exact_ends" in details:
        line("classes with exact ends", f"{details['exact_ends']:,}, which rounded ones would have merged")
    if "cells" in details:
        line("cells suppressed", f"{100 * details['cells_share']:.2f} %")
    if "optimal" in details:
        line("levels", ", ".join(f"{name} {level}" for name, level in details["levels"].items()))
        proof = "the least possible" if details["optimal"] else "the best that was found"
        line("loss of these levels", f"{details['loss']:.4f}, {proof}")
    line("method", f"{release.method}, {release.seconds:.1f} s")
    line("order of the rows", "as in the original" if release.kept_order else "shuffled")
    columns = release.table.schema.columns
    if others := [one.name for one in columns if one.role in (sf.Role.OTHER, sf.Role.KEPT, sf.Role.TARGET)]:
        line("released as they are", ", ".join(others))
