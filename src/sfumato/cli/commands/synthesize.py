"""``sfumato synthesize``: make up rows like those of a table, or images like those of a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import sfumato as sf
from sfumato.cli.commands.budget import NOT_PRIVATE
from sfumato.cli.commands.study import synthesize_by_recipe
from sfumato.cli.options import (
    READING,
    Choice,
    Command,
    Number,
    NumberOr,
    Numbers,
    check_not_input,
    check_output,
    escape_option,
    force_option,
    ledger_option,
    names_option,
    print_json,
    public_options,
    reading_options,
    seed_option,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, printable, style
from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from sfumato.frontier.tables.evaluate import Evaluation

__all__ = ["synthesize"]

_PUBLIC = ("schema_file", "domain", "bounds", "numbers", "categories")
_FOR_TABLES = (
    *_PUBLIC,
    *READING,
    "target",
    "given",
    "constraints",
    "weights",
    "identifiers",
    "keep",
    "person",
    "rows_per_person",
    "people",
    "declared_only",
    "kind",
    "escape_formulas",
)
_FOR_IMAGES = ("classes", "style", "quick", "full", "public", "device", "private_page")
_COMPARED = 50_000  # rows of the original that the made-up ones are compared with


@click.command(cls=Command)
@click.argument("data", metavar="DATA", required=False)
@click.option(
    "--epsilon",
    "epsilons",
    type=Numbers(above=0),
    default=1.0,
    show_default=True,
    metavar="E[,E...]",
    help="The privacy loss of everything together; less is more private, and less like the original. "
    "Several make a release each, and a page that compares them; each is charged.",
)
@click.option(
    "--delta",
    type=Number(above=0, below=1),
    default=1e-5,
    show_default=True,
    metavar="D",
    help="The chance that the guarantee fails; below 1 / rows.",
)
@click.option(
    "--method",
    type=Choice(
        "tree",
        "aim",
        "copula",
        "independent",
        "autoencoder",
        "distillation",
        "auto-encoder",
        "variational",
        "noisy-weights",
        of="synthesizers.tables.methods.catalogue:METHODS synthesizers.images.catalogue:IMAGE_METHODS",
    ),
    help="How it learns. Tables: tree to autoencoder ('independent' keeps single columns only, to compare with). "
    "Images: distillation, auto-encoder, variational, and noisy-weights, which is not private.  "
    "[default: tree, or distillation]",
)
@click.option(
    "--target",
    metavar="NAME",
    help="The column that models will predict: its relation to the others is preserved best.",
)
@click.option(
    "-n",
    "--rows",
    type=Number(is_whole=True),
    metavar="N",
    help="How many rows or images to draw.  [default: about as many as DATA has, by a noisy count]",
)
@click.option(
    "--given",
    metavar="CONDITION",
    help="A condition that all rows meet: sex=f,age=30..39, or one as in 'sfumato query'.",
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="RULE",
    help="What every row must meet, for example 'start <= end' or 'not (sex = m and pregnant = yes)'; repeatable.",
)
@click.option(
    "--weights",
    metavar="NAME",
    help="The column of survey weights, with a declared upper bound; it is not synthesized.",
)
@names_option("--identifiers", "Columns that identify a person directly; they are left out.")
@names_option("--keep", "Columns to synthesize although they look like names or free text.")
@click.option(
    "--person",
    metavar="NAME",
    help="The column that says which rows are of the same person: people are protected, not rows.",
)
@click.option(
    "--rows-per-person",
    type=NumberOr("bought", is_whole=True, least=1),
    metavar="N",
    help="With --person: how many rows of a person count; of people with more, N are drawn at random. "
    "'bought' finds a number with a tenth of epsilon; not with --people.",
)
@click.option(
    "--people",
    type=Number(is_whole=True, least=1),
    metavar="N",
    help="With --person: draw N people with up to --rows-per-person rows each, instead of rows.",
)
@click.option(
    "--declared-only",
    is_flag=True,
    help="Stop at a column whose values or bounds are not declared, instead of paying for them.",
)
@click.option(
    "--classes",
    type=Number(is_whole=True, least=1),
    metavar="N",
    help="Images: the number of classes, which is public; labels are 0 to N - 1.  [default: 10 for mnist]",
)
@click.option(
    "--style",
    metavar="NAME",
    help="Images: 'distilled' for training a model, 'faithful' for looking at.  [default: the first of the method]",
)
@click.option("--quick", is_flag=True, help="Images: learn several times faster, and less.")
@click.option("--full", is_flag=True, help="Images: all 60,000 of mnist instead of the 10,000 that are built in.")
@click.option("--public", is_flag=True, help="Images: DATA is public anyway, so its number of images may be stated.")
@click.option(
    "--private-page",
    is_flag=True,
    help="Images: write OUT.owner.html too, with real images beside the synthetic ones. Takes minutes.",
)
@click.option("--device", metavar="NAME", help="Images: cpu, or cuda for a GPU.  [default: the GPU, if there is one]")
@click.option(
    "--seed", type=Number(is_whole=True, least=0), metavar="N", help="Make everything but the noise reproducible."
)
@seed_option
@ledger_option
@click.option(
    "--format",
    "kind",
    type=Choice("csv", "parquet", of="measures.released_table:Format"),
    help="The format of the rows.  [default: that of DATA]",
)
@escape_option
@click.option(
    "--recipe",
    metavar="FILE",
    help="Run a published study instead: private-auto-encoder is built in. OUT is then a page.  [default: RECIPE.html]",
)
@click.option(
    "--epochs", type=Number(is_whole=True), metavar="N", help="With --recipe: how often the study uses each image."
)
@click.option("-o", "--output", metavar="OUT", help="A new folder.")
@force_option
@public_options
@reading_options
def synthesize(
    as_json: bool,
    data: str | None,
    output: str | None,
    force: bool,
    recipe: str | None,
    epochs: int | None,
    ledger: str | None,
    **options: Any,
) -> None:
    """Synthesize rows or images like those of a data set, without revealing who is in it.

    DATA is a table, or the built-in adult or nursery. The counts of its values are
    published with noise, and new rows are drawn from the noisy counts: the result hardly
    depends on any one row of DATA, whatever else is known. The smaller epsilon, the less
    it does.

    Declare what is public: the values of categories and the bounds of numbers, in a
    schema or with --domain and --bounds. What is not declared is estimated with a part
    of epsilon. For a text file, declare which columns have numbers and which have
    categories: a single cell could change it otherwise.

    If people have several rows, name the column that says whose they are with --person:
    then the result hardly depends on any one person. --rows-per-person bounds how many rows
    of each are read. --people makes up people with several rows each, instead of rows.

    DATA may also be labelled images: the built-in mnist, a file scans.npz with the
    arrays 'images' and 'labels', or a folder of IDX files. Say how many --classes there
    are. Noise is added in the same way, and new images are drawn with labels: they are
    made for training a model that is then used on real ones.

    OUT is a folder with the rows (table.csv or table.parquet) or images (images.npz), the
    generator, which draws more at no further cost (in Python: sf.load), a certificate,
    which 'sfumato verify' checks, and a report of everything that was paid for.
    OUT.owner.html, a page, and OUT.owner.json compare the rows with the original. They
    are for you alone, unless the data is built in and so public. For images they are
    written with --private-page: they show real images and their nearest synthetic ones,
    and what a network learns from each.

    \b
    sfumato synthesize adult --epsilon 1 --target income -n 48842 -o synthetic
    sfumato synthesize patients.csv --schema schema.toml --target disease -n 5000 -o synthetic
    sfumato synthesize patients.csv --numbers age --categories sex,zip,disease -n 1000 -o synthetic
    sfumato synthesize patients.csv --schema schema.toml --declared-only -n 1000 -o synthetic
    sfumato synthesize adult --epsilon 1,3,10 --target income -o synthetic
    sfumato synthesize visits.csv --schema s.toml --person patient_id --rows-per-person 3 -o out
    sfumato synthesize adult --given 'sex=Female,age=30..39' -n 1000 -o women
    sfumato synthesize mnist --epsilon 1 -n 60000 -o digits
    sfumato synthesize scans.npz --classes 2 --epsilon 3 -o scans
    sfumato synthesize --recipe private-auto-encoder -o study.html
    """
    from sfumato.synthesizers.synthesis import makes_images

    if recipe is not None:
        synthesize_by_recipe(recipe, output, force=force, as_json=as_json)
        return
    if epochs is not None:
        raise OptionError("--epochs is for a study, with --recipe", hint="leave it out")
    if data is None or output is None:
        missing = "DATA is missing: a table, or images" if data is None else "-o OUT is missing: a new folder"
        raise OptionError(missing, hint="see sfumato synthesize --help")
    check_not_input(output, data, ledger, options["schema_file"])
    check_output(output, force=force, instead="name a new folder", folder=True)
    ctx, images = click.get_current_context(), makes_images(data)
    _refuse_others(ctx, _FOR_TABLES if images else _FOR_IMAGES, are_images=images)
    make = _make_images if images else _make_rows
    make(ctx, data, output, options, ledger=ledger, force=force, as_json=as_json)


def _refuse_others(ctx: click.Context, names: tuple[str, ...], *, are_images: bool) -> None:
    """Refuse options that are given, and do not fit such data."""
    meant, given = ("tables", "a set of images") if are_images else ("images", "a table")
    for param in ctx.command.params:
        if param.name in names and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            raise OptionError(f"{max(param.opts, key=len)} is for {meant}, and DATA is {given}", hint="leave it out")


def _make_rows(
    ctx: click.Context,
    data: str,
    output: str,
    options: dict[str, Any],
    *,
    ledger: str | None,
    force: bool,
    as_json: bool,
) -> None:
    from sfumato.cli.tables import warn_if_people_repeat
    from sfumato.data.io.files import refuse_unwritable, write_owned
    from sfumato.data.io.formulas import refuse_typed
    from sfumato.measures.released_table import Format
    from sfumato.releases.save import owner_file

    refuse_unwritable(owner_file(output))
    refuse_unwritable(owner_file(output, ".html"))
    public = {name: options.pop(name) for name in _PUBLIC}
    reading = {name: options.pop(name) for name in READING}
    kind, identifiers, keep, person = (options.pop(name) for name in ("kind", "identifiers", "keep", "person"))
    escape_formulas = options.pop("escape_formulas")
    options = {name: one for name, one in options.items() if name not in _FOR_IMAGES}
    epsilons = options.pop("epsilons")
    with progress_bar("Making up rows") as progress:
        table = _table(data, reading, public, identifiers, keep, person)
        if (
            not isinstance(table, str)
            and table.schema.person is None
            and not (options["rows_per_person"] or options["people"])
        ):
            warn_if_people_repeat(table)
        if escape_formulas:
            stored = Format(kind) if kind else Format.like(None if isinstance(table, str) else table.origin)
            refuse_typed(stored.file, stored.value)
        made, failure = _releases(table, epsilons, progress, keep=keep, ledger=ledger, **options)
    alone = len(epsilons) == 1
    first = next(iter(made.values()))
    sf.save(first if alone else made, output, format=kind, escape_formulas=escape_formulas, replace=force)
    is_public = first.provenance.more["public"]
    compared = {name: _utility(table, release) for name, release in made.items()}
    evaluations = {name: one for name, (_, one) in compared.items() if one is not None}
    figures = {name: found for name, (found, _) in compared.items()}
    if evaluations:
        (evaluation, *_) = evaluations.values()
        title = f"{Path(output).name}: real beside synthetic"
        sf.write_report(evaluation if alone else evaluations, owner_file(output, ".html"), title=title)
    if not is_public:
        write_owned(owner_file(output), next(iter(figures.values())) if alone else figures)
    shown = {name: found if is_public else {} for name, found in figures.items()}
    plain = [{**release.to_dict(), "utility": shown[name]} for name, release in made.items()]
    if as_json:
        named = [{"name": name, **one} for name, one in zip(made, plain, strict=True)]
        print_json(plain[0] if alone else {"releases": named})
    else:
        for name, release in made.items():
            _print(release, "rows", printable(Path(data).name), shown[name])
    for name, release in made.items():
        _print_notes(release, "rows", output if alone else str(Path(output) / name))
    if evaluations:
        own = Path(output).with_name(owner_file(output, ".html").name)
        secret = "" if is_public else ": it is for you alone, do not publish it"
        echo(f"The page that compares them with the original is {own}{secret}", err=True)
        if left_out := sorted({name for found in figures.values() for name in found.get("left_out", ())}):
            echo(f"Not compared, for they have too many categories: {', '.join(map(printable, left_out))}", err=True)
    elif not isinstance(table, str) and _stays(table):
        echo("The original stays where it is: compare some of its rows with sf.evaluate in Python", err=True)
    if not first.private:
        echo(NOT_PRIVATE, err=True)
    _raise(failure, made, output)


def _releases(
    data: Any, epsilons: Sequence[float | None], progress: Any, **options: Any
) -> tuple[dict[str, sf.Release], sf.SfumatoError | None]:
    """Make up rows or images at each epsilon; return also why one failed, if others were paid for before it."""
    made: dict[str, sf.Release] = {}
    for at, epsilon in enumerate(epsilons):
        part = progress and (lambda share, at=at: progress((at + share) / len(epsilons)))
        try:
            name = "default" if epsilon is None else f"epsilon{epsilon:g}"
            made[name] = sf.synthesize(data, epsilon, progress=part, **options)
        except sf.SfumatoError as error:
            if not made:
                raise
            return made, error
    return made, None


def _make_images(
    ctx: click.Context,
    data: str,
    output: str,
    options: dict[str, Any],
    *,
    ledger: str | None,
    force: bool,
    as_json: bool,
) -> None:
    from sfumato.data.io.files import refuse_unwritable
    from sfumato.releases.save import owner_file

    own = {name: one for name, one in options.items() if name not in _FOR_TABLES}
    private_page = own.pop("private_page")
    if private_page:
        refuse_unwritable(owner_file(output))
        refuse_unwritable(owner_file(output, ".html"))
    asked: list[float | None] = [*own.pop("epsilons")]
    if ctx.get_parameter_source("epsilons") is not ParameterSource.COMMANDLINE:
        asked = [None]  # the method may guarantee nothing
    with progress_bar("Making up images") as progress:
        made, failure = _releases(data, asked, progress, ledger=ledger, **own)
    alone, first = len(asked) == 1, next(iter(made.values()))
    result = first if alone else made
    sf.save(result, output, replace=force)
    if as_json:
        named = [{"name": name, **release.to_dict()} for name, release in made.items()]
        print_json(first.to_dict() if alone else {"releases": named})
    for name, release in made.items():
        if not as_json:
            _print(release, "images", printable(Path(data).name), {})
        _print_notes(release, "images", output if alone else str(Path(output) / name))
    if private_page:
        public = first.provenance.more["public"]
        real = {"classes": own["classes"], "full": own["full"]}
        _private_page(result, data, output, public=public, device=own["device"], **real)
    if first.plan is None:
        echo("NOT PRIVATE: nothing is guaranteed, epsilon is infinite. Do not publish it.", err=True)
    elif not first.private:
        echo(NOT_PRIVATE, err=True)
    _raise(failure, made, output)


def _raise(failure: sf.SfumatoError | None, made: Mapping[str, sf.Release], output: str) -> None:
    """Raise the error of a release that failed after others were paid for."""
    if failure is not None:
        kept = f"{failure.message}; {', '.join(made)} was paid for before, and is in {output}"
        raise type(failure)(kept, hint=failure.hint)


def _private_page(
    made: sf.Release | Mapping[str, sf.Release],
    data: str,
    output: str,
    *,
    public: bool,
    classes: int | None,
    full: bool,
    device: str | None,
) -> None:
    """Write the page and the figures that compare the images with real ones: exact, so only for the owner."""
    from sfumato.data.io.files import write_owned
    from sfumato.data.io.images import are_images, read_images
    from sfumato.frontier import evaluate_images
    from sfumato.releases.save import owner_file

    real = read_images(data, classes) if are_images(data) else sf.datasets.mnist(full=full)
    with progress_bar("Comparing images") as progress:
        found = evaluate_images(real, made, device=device or "cpu", progress=progress)
    page = owner_file(output, ".html")
    sf.write_report(found, page, title=f"{Path(output).name}: real beside synthetic images")
    write_owned(owner_file(output), found.to_dict())
    secret = "" if public else ": it is for you alone, do not publish it"
    echo(f"Real images beside synthetic ones are in {Path(output).with_name(page.name)}{secret}", err=True)


def _print_notes(release: sf.Release, what: str, output: str) -> None:
    """Say on stderr what to know, what was charged, and where everything is."""
    if release.note:
        echo(f"{release.note[:1].upper()}{release.note[1:]}", err=True)
    if release.details["charged"]:
        echo("The ledger of this data was charged: see 'sfumato budget show'.", err=True)
    elif not release.provenance.more["public"]:
        echo("This data has no ledger: nothing was charged.", err=True)
    echo(f"The {what} and the report are in {output}", err=True)


def _table(
    data: str,
    reading: dict[str, Any],
    public: dict[str, Any],
    identifiers: list[str],
    keep: list[str],
    person: str | None,
) -> Any:
    """Return the table that the options describe, or the name of a built-in one."""
    from sfumato.cli.tables import declared_table

    if data in sf.datasets.TABLES and not Path(data).exists():
        if any((*reading.values(), *public.values(), identifiers, keep, person)):
            raise OptionError(f"'{data}' is built in: it takes no options for reading a file or declaring columns")
        return data
    if not Path(data).exists() and (close := did_you_mean(data, sf.datasets.BUILT_IN)).startswith("did you mean"):
        raise OptionError(f"there is no file '{data}'", hint=close)
    return sf.Table.of(declared_table(data, reading, public, identifiers), person=person)


def _utility(table: Any, release: sf.Release) -> tuple[dict[str, Any], Evaluation | None]:
    """Return how near the made-up rows come to the original; exact, so only the owner may see it.

    A table that stays where it is is not fetched for this, and of a large one some rows are enough.
    """
    original = sf.datasets.TABLES[table]() if isinstance(table, str) else table
    if _stays(original):
        return {}, None
    if release.people is None and original.rows > _COMPARED:
        original = original.sample(_COMPARED, release.table.schema.names)
    try:
        found = sf.evaluate(original, release.table, models=(), attacks=(), queries=200)
    except sf.SfumatoError as error:  # the rows are paid for, and there they are
        echo(f"The rows cannot be compared with the original: {printable(error.message)}", err=True)
        return {}, None
    distances = found.distances
    means = {"mean_of_columns": distances.mean_of_columns, "mean_of_pairs": distances.mean_of_pairs}
    own = release.table.schema
    left_out = [name for name in found.left_out if name in own.names and name != own.person]
    people = {} if found.people is None else {"people": found.people.to_dict()}
    return {**means, "columns": distances.by_column, "left_out": left_out, **people}, found


def _stays(table: sf.Table) -> bool:
    """Return whether the rows are in a database or in Spark."""
    from sfumato.data.io.source import File

    return table.is_lazy and not isinstance(table.source, File)


def _print(release: sf.Release, what: str, name: str, utility: dict[str, Any]) -> None:
    if what == "rows" and release.people is not None:
        what = f"rows of {release.people:,} people"
    title = f"{release.rows:,} {what} like those of {name}, synthesized by the method '{release.method}'"
    echo(style(title, bold=True))
    for promise in release.guarantees:
        echo(f"{'guarantee':<22} {promise}")
    if not release.guarantees:
        echo(f"{'guarantee':<22} none")
    echo(f"{'spent':<22} epsilon {'infinite' if release.plan is None else f'{release.spent.epsilon:.4g}'}")
    for one in release.plan.purchases if release.plan is not None else ():
        echo(f"  {printable(one.name):<20} {100 * one.share:5.1f} %  {one.event}")
    if "mean_of_columns" in utility:
        pairs = utility["mean_of_pairs"]
        echo(f"{'distance of columns':<22} {utility['mean_of_columns']:.3f}  (0: the same, 1: nothing in common)")
        echo(f"{'distance of pairs':<22} {'-' if pairs is None else f'{pairs:.3f}'}")
