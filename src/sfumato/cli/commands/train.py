"""``sfumato train``: train a model at several epsilons."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import sfumato as sf
from sfumato.cli.options import (
    READING,
    Choice,
    Command,
    Names,
    Number,
    NumberOr,
    check_not_input,
    check_output,
    force_option,
    ledger_option,
    names_option,
    print_json,
    public_options,
    reading_options,
    recipe_file,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, style
from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from sfumato.learners import Training

__all__ = ["train"]

_STUDIES = "learners/studies"
_PUBLIC = ("schema_file", "domain", "bounds", "numbers", "categories")
_IN_RECIPES = ("published", "ordinary", "scale", "schedule")


class _Noise(click.ParamType[list[float]]):
    """Numbers separated by commas."""

    name = "S,S"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        try:
            return [float(one) for one in str(value).split(",")]
        except ValueError:
            self.fail(f"it must be numbers separated by commas, got '{value}'", param, ctx)


class _Samples(click.ParamType[float]):
    """A number of records, or a share of them."""

    name = "N|SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return int(str(value)) if str(value).isdecimal() else float(value)
        except ValueError:
            self.fail(f"it must be a number of records or a share of them, got '{value}'", param, ctx)


@click.command(cls=Command)
@click.argument("data", metavar="DATA", required=False)
@click.option(
    "--model",
    type=Choice(
        "additive",
        "logistic",
        "linear",
        "forest",
        "tree",
        "naive-bayes",
        "mlp",
        "cnn",
        "resnet18",
        "scattering-linear",
        of="learners.training.catalogue:TABLE_MODELS learners.training.catalogue:IMAGE_MODELS",
    ),
    help="The model.  [default: additive for tables, scattering-linear for mnist]",
)
@click.option(
    "--epsilon",
    metavar="E,E",
    help="The privacy loss; less is more private. One or several, 'none' for no privacy: 1,5,none.  [default: 1]",
)
@click.option("--delta", type=Number(), help="The chance that the guarantee fails; below 1 / rows.  [default: 1e-5]")
@click.option("--target", metavar="NAME", help="The column to predict; built-in tables have one.")
@names_option("--identifiers", "Columns that identify a person directly; they are left out.")
@click.option(
    "--person",
    metavar="NAME",
    help="The column that says which rows are of the same person, such as patient_id: people are protected, not rows. "
    "It is left out.",
)
@click.option(
    "--rows-per-person",
    type=NumberOr("bought", is_whole=True, least=1),
    metavar="N",
    help="With --person: how many rows of a person count; of people with more, N are drawn at random. "
    "'bought' finds a number with a tenth of epsilon; not for networks.",
)
@click.option("--regression", is_flag=True, default=None, help="The target is a number, not a class.")
@click.option("--test", metavar="FILE", help="Rows to test on.  [default: a part of the table is held out]")
@click.option(
    "--holdout",
    type=Number(above=0, below=1),
    metavar="SHARE",
    help="Without --test: the share of rows to hold out.  [default: 0.2]",
)
@click.option(
    "--scores",
    type=Choice("noisy", "none", of="learners.options:SCORES"),
    help="Whether scores on private test rows are released.  [default: noisy]",
)
@click.option("--full", is_flag=True, default=None, help="Use all 70,000 images of mnist instead of 12,000.")
@click.option("--root", metavar="FOLDER", help="The folder with the files of the full mnist.")
@click.option(
    "--samples", type=_Samples(), help="Train on a share of the records, such as 0.1, or on N records of built-in data."
)
@click.option("--test-samples", type=_Samples(), help="The same for the test records.")
@click.option(
    "--rows", type=Number(is_whole=True), help="The number of rows, if it is public; otherwise networks estimate it."
)
@click.option(
    "--classes", metavar="A,B", help="The classes of the target, if they are public; otherwise epsilon pays for them."
)
@click.option(
    "--views",
    type=Number(is_whole=True, least=0),
    help="scattering-linear: random views of each image; fewer take less time, 0 trains a network.  [default: 4]",
)
@click.option("--epochs", type=Number(), help="Networks: how often each record is used, on average.")
@click.option("--batch-size", type=Number(is_whole=True), help="Networks: the average number of records in a step.")
@click.option("--clip", type=Number(), metavar="C", help="Networks: the largest norm of a record's gradient.")
@click.option("--learning-rate", type=Number(), metavar="R", help="Networks: the length of a step.")
@click.option("--momentum", type=Number(), metavar="M", help="Networks: the weight of earlier steps.")
@click.option("--noise-multiplier", type=_Noise(), help="Networks: fix the noise instead of epsilon.")
@click.option("--device", metavar="NAME", help="Networks, scattering-linear: cpu or cuda.")
@click.option(
    "--seed", type=click.INT, metavar="N", help="The seed of the initial weights, not of the noise.  [default: 0]"
)
@click.option("--insecure-seed", type=click.INT, metavar="N", help="Make the noise reproducible, and not private.")
@ledger_option
@click.option(
    "--recipe", metavar="FILE", help="Options in TOML, or the name of a built-in study: epsilon-sweep, private-cnn."
)
@click.option("-o", "--output", metavar="OUT", help="A new folder.  [default: DATA-MODEL]")
@force_option
@public_options
@reading_options
def train(
    as_json: bool, output: str | None, force: bool, recipe: str | None, ledger: str | None, **options: Any
) -> None:
    """Train a model that does not reveal who it was trained on.

    DATA is a table with a --target, or the built-in mnist, adult or nursery. A model is
    trained for each epsilon: the smaller, the less it reveals about anyone. What the
    schema does not declare about the columns (the values of categories, the bounds of
    numbers) is estimated with a part of epsilon. For a text file, declare which columns
    have numbers and which have categories: a single cell could change it otherwise.

    OUT is a folder with each model, its certificate, which 'sfumato verify' checks, and
    one report of what privacy cost. To continue a stopped training, run the same command
    again. Scores in OUT are noisy, as part of epsilon, unless the data is built in and so
    public; exact ones are in OUT.owner.json, which is for you alone.

    \b
    sfumato train adult --epsilon 1
    sfumato train mnist --epsilon 0.79,3
    sfumato train mnist --model resnet18 --epsilon 1,5,10,none --epochs 5
    sfumato train patients.csv --schema schema.toml --target recovered --model forest
    sfumato train patients.csv --numbers age --categories sex,zip --target disease --model forest
    sfumato train --recipe private-cnn -o study
    """
    public = {name: options.pop(name) for name in _PUBLIC}
    asked, schema = _merged(options, recipe)
    data, model = asked.pop("data", None), asked.pop("model", None)
    if data is None:
        raise OptionError("DATA is missing: a table, or mnist, adult or nursery", hint="see sfumato train --help")

    from sfumato.data.io.files import refuse_unwritable
    from sfumato.learners.options import Privacy, Split, grouped
    from sfumato.learners.training.catalogue import best_model
    from sfumato.releases.save import owner_file

    _check_privacy(asked)
    default = model is None
    model = model or best_model((28, 28) if data == "mnist" else None)
    shown = _without_password(data)
    out = output or f"{Path(shown).stem}-{model}"
    check_not_input(out, data, recipe, ledger)
    check_output(out, force=force, instead="name a new folder", folder=True)
    refuse_unwritable(owner_file(out))
    unfinished = Path(f"{out}.unfinished")
    if isinstance(asked.get("classes"), str):
        asked["classes"] = Names().convert(asked["classes"], None, None)
    published = asked.pop("published", None)
    recorded = {"data": shown, "model": model, **asked}
    reading = {name: asked.pop(name, None) for name in READING}
    identifiers = asked.pop("identifiers", [])
    if default:
        echo(f"Training '{model}', the best model we know for such data; choose another with --model", err=True)
    if unfinished.exists():
        echo(f"Continuing from {unfinished}", err=True)
    try:
        with progress_bar("Training") as progress:
            table = _table(data, reading, public, schema, identifiers, asked.get("person"))
            if "test" in asked:
                asked["test"] = _test_table(asked["test"], reading)
            groups = {**grouped(asked, split=Split, privacy=Privacy), "ledger": ledger}
            training = sf.train(table, model, folder=unfinished, watch=_print_epoch, progress=progress, **groups)
    except KeyboardInterrupt:
        if unfinished.exists():
            echo(err=True)
            echo(f"The progress so far is in {unfinished}: run the same command again to continue.", err=True)
        raise
    training = replace(training, options=recorded, published=published)
    sf.save(training, out, replace=force)
    shutil.rmtree(unfinished, ignore_errors=True)
    if as_json:
        print_json(training.to_dict())
    else:
        _print(training)
    _print_where(training, out, owner_file(out).name)


def _print_where(training: Training, out: str, owner: str) -> None:
    if training.charged:
        echo("The ledger of this data was charged: see 'sfumato budget show'.", err=True)
    elif training.together:
        echo("This data has no ledger: nothing was charged.", err=True)
    echo(f"The models and the report are in {out}", err=True)
    if not training.is_public:
        own = Path(out).with_name(owner)
        echo(f"Exact scores and losses are in {own}: they are for you alone, do not publish them", err=True)


def _merged(options: dict[str, Any], recipe: str | None) -> tuple[dict[str, Any], sf.Schema]:
    """Return the given options, completed by those of the recipe, and the schema that the recipe declares."""
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if source(name) is not ParameterSource.DEFAULT}
    stored, schema = dict[str, Any](), sf.Schema([])
    if recipe is not None:
        loaded = sf.data.Recipe.load(recipe_file(recipe, _STUDIES))
        if loaded.command != "train":
            raise OptionError(f"the recipe '{recipe}' is not for train", hint="'sfumato train' writes one")
        stored, schema = dict(loaded.options), loaded.schema
        known = {*options, *_IN_RECIPES}
        for name, value in stored.items():
            if name not in known:
                raise OptionError(
                    f"the recipe '{recipe}' has an unknown option '{name}'", hint=did_you_mean(name, known)
                )
            if not _fits(name, value):
                raise OptionError(f"the option '{name}' of the recipe '{recipe}' has the wrong type, got {value!r}")
        if given.keys() & {"epsilon", "noise_multiplier"}:  # together they decide which models are trained
            stored = {name: value for name, value in stored.items() if name not in ("epsilon", "noise_multiplier")}
    return {**stored, **given}, schema


def _fits(name: str, value: Any) -> bool:
    """Return whether an option of a recipe has the type of the option of the command."""
    if name in ("epsilon", "noise_multiplier", "scale", "schedule", "classes"):
        return True  # these have several forms, and are checked where they are used
    if name in ("na", "identifiers"):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if name == "ordinary":
        return isinstance(value, dict)
    if name == "published":
        return isinstance(value, dict) and _is_published(**{"epochs": [], "notes": [], **value})
    option = next(one for one in click.get_current_context().command.params if one.name == name)
    flag = isinstance(option, click.Option) and option.is_flag
    if isinstance(value, bool) or flag:
        return isinstance(value, bool) and flag
    if isinstance(option.type, _Samples):
        return isinstance(value, int | float)
    if isinstance(option.type, NumberOr) and value == option.type.word:
        return True
    if isinstance(option.type, Number) and not option.type.is_whole:
        return isinstance(value, int | float)
    return isinstance(value, int if isinstance(option.type, Number | NumberOr) or option.type is click.INT else str)


def _is_published(epochs: Any, notes: Any, title: Any = "", **others: Any) -> bool:
    """Return whether these are published results as the report expects them."""
    rows = isinstance(epochs, list) and all(isinstance(one, dict) and type(one.get("epoch")) is int for one in epochs)
    texts = isinstance(notes, list) and all(isinstance(one, str) for one in (*notes, title))
    return rows and texts and not others


def _check_privacy(asked: dict[str, Any]) -> None:
    """Check epsilon and delta before any data is read, and fill in the default epsilon."""
    from sfumato.learners.training.sweep import epsilons_of

    if "epsilon" in asked:
        epsilons_of(asked["epsilon"])
    else:
        asked["epsilon"] = None if asked.get("noise_multiplier") else "1"
    if asked.get("delta") is not None:
        sf.budget.check_delta(asked["delta"])


def _table(
    data: str,
    reading: dict[str, Any],
    public: dict[str, Any],
    stored: sf.Schema,
    identifiers: list[str],
    person: str | None,
) -> Any:
    """Return the table that the options describe, or the name of a built-in data set."""
    from sfumato.cli.tables import declared_table, warn_if_people_repeat

    if data in sf.datasets.BUILT_IN and not Path(data).exists():
        if any((*reading.values(), *public.values(), identifiers)):
            raise OptionError(f"'{data}' is built in: it takes no options for reading a file or declaring columns")
        return data
    if not Path(data).exists() and (close := did_you_mean(data, sf.datasets.BUILT_IN)).startswith("did you mean"):
        raise OptionError(f"there is no file '{data}'", hint=close)
    declared = declared_table(data, _with_defaults(reading), public, identifiers, stored)
    if person is None and declared.schema.person is None:
        warn_if_people_repeat(declared)
    return declared


def _test_table(file: str, reading: dict[str, Any]) -> Any:
    from sfumato.cli.tables import read_table

    return read_table(file, None, inferred=False, **{**_with_defaults(reading), "table": None})


def _with_defaults(reading: dict[str, Any]) -> dict[str, Any]:
    return {**reading, "na": reading["na"] or [], "dates": reading["dates"] or ()}


def _without_password(data: str) -> str:
    """Return the address of a database without its password."""
    return re.sub(r"(?<=://)[^/]*@|\?.*", "", data) if "://" in data else data


def _print_epoch(label: str, report: Any) -> None:
    """Print the loss, the score and epsilon after an epoch, on stderr."""
    parts = [f"{label}: epoch {report.epoch}", f"loss {report.loss:.3f}"]
    if report.score is not None:
        parts.append(f"accuracy {100 * report.score:.1f} %" if 0 <= report.score <= 1 else f"score {report.score:.4g}")
    if report.epsilon != float("inf"):
        parts.append(f"epsilon so far at most {report.epsilon:.3g}")
    echo(", ".join(parts), err=True)


def _print(training: Training) -> None:
    from sfumato.learners.training.runs import surest
    from sfumato.report.model.page import unused_notes

    records = "people" if training.unit == "person" else "records"
    records = "" if training.rows is None else f", {training.rows:,} {records}"
    echo(style(f"{training.model} on {training.data}{records}", bold=True))
    for run in training.runs:
        scores = run.scores
        noisy = scores.how == "noisy"
        good = f"squared error {scores.loss:.4g}" + (f" ± {scores.margin:.2g}" if noisy else "")
        if math.isnan(scores.loss):
            good = f"squared error below its noise of {scores.margin:.2g}"
        if scores.accuracy is not None:
            margin = f" ± {100 * scores.margin:.2g}" if noisy else ""
            good = f"accuracy {100 * scores.accuracy:.2f}{margin} %" + (f", AUC {scores.auc:.3f}" if scores.auc else "")
        if scores.how == "none":
            good = "no scores are released"
        cost = "" if run.epsilon == float("inf") else f", delta {run.facts['delta']:g}"
        mark = "" if run.epsilon == float("inf") or run.facts["private"] else "  NOT PRIVATE: its noise has a seed"
        echo(f"{run.label + cost:<31} {good}  ({run.seconds:.1f} s){mark}")
    for note in unused_notes(training):
        echo(note)
    always = surest(training.runs)
    what = "the most frequent class" if always.accuracy is not None else "the mean"
    base = f"{100 * always.baseline:.2f} %" if always.accuracy is not None else f"{always.baseline:.4g}"
    if not math.isnan(always.baseline):
        echo(f"{'always ' + what:<31} {base}")
    if any(run.scores.how == "noisy" for run in training.runs):
        echo("Scores of private models are noisy, as part of their epsilon; ± is a 95 % interval.")
    if training.together and sum(run.epsilon != float("inf") for run in training.runs) > 1:
        cost, one = training.together["epsilon"], "record" if training.unit == "row" else training.unit
        echo(f"{'the private models together':<31} epsilon {cost:.3g}, add or remove one {one}")
    if training.unit == "person":
        bound = f"at most {training.settings['rows_per_person']} rows of each were used"
        if training.bought_rows:
            bound = f"a tenth of it found how many rows of each are used: {training.bought_rows}"
        echo(f"Epsilon is for people with all of their rows; {bound}.")
