"""``sfumato train``: train a model at several epsilons."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sfumato.budget.accounting.accountant import check_delta
from sfumato.cli.commands.budget import ledger_option
from sfumato.cli.options import (
    READING,
    Command,
    Names,
    declared,
    force_option,
    keep_input,
    keep_output,
    names_option,
    print_json,
    public_options,
    read_table,
    reading_options,
    say_if_repeated,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, style
from sfumato.data import datasets
from sfumato.data.io.files import refuse_unwritable
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.table import Table
from sfumato.errors import OptionError, did_you_mean
from sfumato.learners.options import SCORES, Privacy, Split, grouped
from sfumato.learners.training.catalogue import IMAGE_MODELS, TABLE_MODELS, best_model
from sfumato.learners.training.runs import Training, surest
from sfumato.learners.training.sweep import epsilons_of
from sfumato.learners.training.sweep import train as train_models
from sfumato.releases.save import owner_file, save
from sfumato.report.model.page import unused_notes

__all__ = ["train"]

_MODELS = sorted({*TABLE_MODELS, *IMAGE_MODELS})
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
            self.fail(f"numbers separated by commas are needed, got '{value}'", param, ctx)


class _Samples(click.ParamType[float]):
    """A number of records, or a share of them."""

    name = "N|SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return int(str(value)) if str(value).isdecimal() else float(value)
        except ValueError:
            self.fail(f"a number of records or a share of them is needed, got '{value}'", param, ctx)


_SAMPLES = _Samples()


@click.command(cls=Command)
@click.argument("data", metavar="DATA", required=False)
@click.option(
    "--model",
    type=click.Choice(_MODELS),
    metavar="NAME",
    help=f"One of {', '.join(_MODELS)}.  [default: additive for tables, scattering-linear for mnist]",
)
@click.option("--epsilon", metavar="E,E", help="One or several, 'none' for no privacy: 1,5,10,none.  [default: 1]")
@click.option("--delta", type=float, help="The chance that the promise fails; below 1 / rows.  [default: 1e-5]")
@click.option("--target", metavar="NAME", help="The column of a table that is predicted; built-in tables know theirs.")
@names_option("--identifiers", "Columns that name a person alone: they are left out.")
@click.option("--regression", is_flag=True, default=None, help="The target is a number, not a class.")
@click.option("--test", metavar="FILE", help="Other rows to test on; by default a part of the table is held out.")
@click.option(
    "--holdout", type=float, metavar="SHARE", help="Without --test: each row's chance to be held out.  [default: 0.2]"
)
@click.option("--scores", type=click.Choice(SCORES), help="What is released of private test rows.  [default: noisy]")
@click.option("--full", is_flag=True, default=None, help="All 60,000 and 10,000 images of mnist, not 10,000 and 2,000.")
@click.option("--root", metavar="FOLDER", help="Where the files of the full mnist are.")
@click.option("--samples", type=_SAMPLES, help="Train on a share of the records, as 0.1; of built-in data also on N.")
@click.option("--test-samples", type=_SAMPLES, help="The same for records to test on.")
@click.option("--rows", type=int, metavar="N", help="The number of rows, if it is public; else networks buy it.")
@click.option("--classes", metavar="A,B", help="The classes of the target, which are public; else they are bought.")
@click.option("--epochs", type=float, metavar="N", help="Networks: how often each record is taken, on average.")
@click.option("--batch-size", type=int, metavar="N", help="Networks: records in a step, on average.")
@click.option("--clip", type=float, metavar="C", help="Networks: the largest norm of a record's gradient.")
@click.option("--learning-rate", type=float, metavar="R", help="Networks: the length of a step.")
@click.option("--momentum", type=float, metavar="M", help="Networks: how much of the last step is kept.")
@click.option("--noise-multiplier", type=_Noise(), help="Networks: fix the noise, whatever epsilon it gives.")
@click.option("--device", metavar="NAME", help="Networks: cpu or cuda.")
@click.option("--seed", type=int, help="Of first weights, not of noise nor of who is held out.  [default: 0]")
@click.option("--insecure-seed", type=int, help="Makes the noise reproducible: the model is then not private.")
@ledger_option
@click.option("--recipe", metavar="FILE", help="Options in TOML; or epsilon-sweep, private-cnn: two published studies.")
@click.option("-o", "--output", metavar="OUT", help="A new folder.  [default: DATA-MODEL]")
@force_option
@public_options
@reading_options
def train(
    as_json: bool, output: str | None, force: bool, recipe: str | None, ledger: str | None, **options: Any
) -> None:
    """Train a model that cannot tell who it was trained on.

    DATA is a table with a --target, or mnist, adult or nursery, which are built in.
    Columns that name people (--identifiers) are left out.
    A model is trained for each epsilon: the smaller, the less it can tell of anybody.
    What the schema does not declare of the columns (domains of categories, bounds of
    numbers) is bought with a part of epsilon. Which columns of a text file hold numbers
    and which categories has to be declared: there, one cell could change it.

    OUT is a folder with each model, its certificate, which 'sfumato verify' checks, and
    one report of what privacy cost. A training that was stopped goes on when the same
    command is given again. Scores in OUT are noisy, as part of epsilon, unless the data
    is built in and so public; exact ones are in OUT.owner.json, which is for you alone.

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
    if model is None:
        model = best_model((28, 28) if data == "mnist" else None)
        echo(f"Training '{model}', the best we know for such data; --model takes another", err=True)
    asked["epsilon"] = _epsilons(asked)
    if asked.get("delta") is not None:
        check_delta(asked["delta"])
    shown = _without_password(data)
    out = output or f"{Path(shown).stem}-{model}"
    keep_input(out, data, recipe, ledger)
    keep_output(out, force=force, instead="name a new folder", folder=True)
    refuse_unwritable(owner_file(out))
    unfinished = Path(f"{out}.unfinished")
    if isinstance(asked.get("classes"), str):
        asked["classes"] = Names().convert(asked["classes"], None, None)
    published = asked.pop("published", None)
    stated = {"data": shown, "model": model, **asked}
    reading = {name: asked.pop(name, None) for name in READING}
    identifiers = asked.pop("identifiers", [])
    if unfinished.exists():
        echo(f"Going on with what is in {unfinished}", err=True)
    try:
        with progress_bar("Training") as progress:
            table = _table(data, reading, public, schema, identifiers)
            if isinstance(table, Table):
                say_if_repeated(table)
            if "test" in asked:
                asked["test"] = read_table(asked["test"], None, inferred=False, **{**_read(reading), "table": None})
            chosen = grouped(asked, split=Split, privacy=Privacy)
            chosen |= {"folder": unfinished, "watch": _print_report, "progress": progress, "ledger": ledger}
            training = train_models(table, model, **chosen)
    except KeyboardInterrupt:
        if unfinished.exists():
            echo(err=True)
            echo(f"The training so far is in {unfinished}: give the same command again to go on.", err=True)
        raise
    training = replace(training, options=stated, published=published)
    save(training, out, replace=force)
    shutil.rmtree(unfinished, ignore_errors=True)
    if as_json:
        print_json(training.to_dict())
    else:
        _print(training)
    if training.charged:
        named = f" --ledger {ledger}" if ledger else ""
        echo(f"The ledger of this data was charged: see 'sfumato budget show{named}'.", err=True)
    elif training.together:
        echo("This data has no ledger: nothing was charged.", err=True)
    echo(f"The models and the report are in {out}", err=True)
    if not training.is_public:
        own = Path(out).with_name(owner_file(out).name)
        echo(f"Exact scores and losses are in {own}: they are for you alone, do not publish them", err=True)


def _merged(options: dict[str, Any], recipe: str | None) -> tuple[dict[str, Any], Schema]:
    """Merge the given options over those of the recipe; return them and the schema of the recipe."""
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if source(name) is not ParameterSource.DEFAULT}
    stored, schema = dict[str, Any](), Schema([])
    if recipe is not None:
        found = Recipe.load(_recipe(recipe))
        if found.command != "train":
            raise OptionError(f"the recipe '{recipe}' is not for train", hint="'sfumato train' writes one")
        stored, schema = dict(found.options), found.schema
        known = {*options, *_IN_RECIPES}
        for name, value in stored.items():
            if name not in known:
                raise OptionError(
                    f"the recipe '{recipe}' has an unknown option '{name}'", hint=did_you_mean(name, known)
                )
            if not _fits(name, value):
                raise OptionError(f"the option '{name}' of the recipe '{recipe}' is of another type, got {value!r}")
        if given.keys() & {"epsilon", "noise_multiplier"}:  # together they determine the models
            stored = {name: value for name, value in stored.items() if name not in ("epsilon", "noise_multiplier")}
    return {**stored, **given}, schema


def _fits(name: str, value: Any) -> bool:
    """Return whether an option of a recipe has the type of the command's option."""
    if name in ("epsilon", "noise_multiplier", "scale", "schedule", "classes"):
        return True  # they have several forms, and are checked when they are parsed
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
    return isinstance(value, int | float if option.type is click.FLOAT else int if option.type is click.INT else str)


def _is_published(epochs: Any, notes: Any, title: Any = "", **others: Any) -> bool:
    """Return whether these are published results that the report can show beside ours."""
    rows = isinstance(epochs, list) and all(isinstance(one, dict) and type(one.get("epoch")) is int for one in epochs)
    texts = isinstance(notes, list) and all(isinstance(one, str) for one in (*notes, title))
    return rows and texts and not others


def _recipe(name: str) -> Path:
    """Return the file of a recipe, which may be the name of a built-in one."""
    built_in = Path(str(files("sfumato").joinpath(_STUDIES, f"{name}.toml")))
    return built_in if built_in.is_file() and not Path(name).exists() else Path(name)


def _epsilons(asked: dict[str, Any]) -> Any:
    """Return the epsilons, checked before any data is read."""
    if "epsilon" not in asked:
        return None if asked.get("noise_multiplier") else "1"
    epsilons_of(asked["epsilon"])
    return asked["epsilon"]


def _table(data: str, reading: dict[str, Any], public: dict[str, Any], held: Schema, identifiers: list[str]) -> Any:
    """Return the table that the options describe, or the name of a data set that is built in."""
    if data in datasets.BUILT_IN and not Path(data).exists():
        if any((*reading.values(), *public.values(), identifiers)):
            raise OptionError(f"'{data}' is built in: how to read it and what is public of it are known")
        return data
    if not Path(data).exists() and (close := did_you_mean(data, datasets.BUILT_IN)).startswith("did you mean"):
        raise OptionError(f"there is no file '{data}'", hint=close)
    table, schema = declared(data, **_read(reading), **public)
    known = {} if public["schema_file"] else {column.name: column for column in held.columns}
    columns = {one.name: known.get(one.name, one) if one == Column(name=one.name) else one for one in schema.columns}
    for name in identifiers:
        columns[name] = replace(columns[schema[name].name], role=Role.IDENTIFIER)
    return Table(table.source, Schema(columns.values()), origin=table.origin)


def _without_password(data: str) -> str:
    """Return the address of a database without user, password and options."""
    return re.sub(r"(?<=://)[^/]*@|\?.*", "", data) if "://" in data else data


def _read(reading: dict[str, Any]) -> dict[str, Any]:
    """Return the options for reading a table, with defaults."""
    return {**reading, "na": reading["na"] or [], "dates": reading["dates"] or ()}


def _print_report(label: str, report: Any) -> None:
    """Print the report of an epoch on stderr."""
    parts = [f"{label}: epoch {report.epoch}", f"loss {report.loss:.3f}"]
    if report.score is not None:
        parts.append(f"accuracy {100 * report.score:.1f} %" if 0 <= report.score <= 1 else f"score {report.score:.4g}")
    if report.epsilon != float("inf"):
        parts.append(f"epsilon so far at most {report.epsilon:.3g}")
    echo(", ".join(parts), err=True)


def _print(training: Training) -> None:
    records = "" if training.rows is None else f", {training.rows:,} records"
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
        echo("Scores of private models are noisy, which is part of their epsilon; ± holds for 95 %.")
    if training.together and sum(run.epsilon != float("inf") for run in training.runs) > 1:
        echo(
            f"{'the private models together':<31} epsilon {training.together['epsilon']:.3g}, add or remove one record"
        )
