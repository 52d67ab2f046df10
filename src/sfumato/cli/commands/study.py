"""``sfumato synthesize --recipe``: run a published study again, and put our figures beside it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import sfumato as sf
from sfumato.cli.options import check_not_input, check_output, print_json, recipe_file
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, style
from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from sfumato.synthesizers.images.study import Study

__all__ = ["synthesize_by_recipe"]

_STUDIES = "synthesizers/studies"
_STUDY = "auto-encoder"
_OPTIONS = {
    "epsilons": "epsilon",
    "delta": "delta",
    "method": "methods",
    "epochs": "epochs",
    "full": "full",
    "seed": "seed",
    "insecure_seed": "insecure_seed",
}
"""What the options of the command are called in the study."""
_OWN = ("recipe", "output", "force", "as_json", "quiet", "debug", "help")


def synthesize_by_recipe(recipe: str, output: str | None, *, force: bool, as_json: bool) -> None:
    """Run the study of a recipe, with the options that are given on the command line; print it and write its page."""
    given = _given(click.get_current_context())
    from sfumato.data.io.files import atomic_path
    from sfumato.report.study import render_study
    from sfumato.synthesizers.images.study import run_study

    out = output or f"{Path(recipe).stem}.html"
    check_not_input(out, recipe)
    check_output(out, force=force, instead="name a page, such as study.html", ending=".html")
    loaded = sf.data.Recipe.load(recipe_file(recipe, _STUDIES))
    stated = dict(loaded.options)
    if loaded.command != "synthesize" or stated.pop("study", None) != _STUDY:
        raise OptionError(
            f"the recipe '{recipe}' is not a study of synthetic images",
            hint="private-auto-encoder is built in; in Python, sf.run runs the recipe of a release",
        )
    known = inspect.signature(run_study).parameters.keys() - {"progress", "watch"}
    for name in stated:
        if name not in known:
            close = did_you_mean(name, known)
            raise OptionError(f"the recipe '{recipe}' has an unknown option '{name[:40]}'", hint=close)
    with progress_bar("The study") as progress:
        study = run_study(**{**stated, **given}, progress=progress)
    with atomic_path(out) as temporary:
        temporary.write_text(render_study(study), encoding="utf-8")
    if as_json:
        print_json(study.to_dict())
    else:
        _print(study)
    echo(f"The page with the images is {out}", err=True)


def _given(ctx: click.Context) -> dict[str, Any]:
    """Return the options of the command line that the study has too, and refuse others."""
    found: dict[str, Any] = {}
    for one in ctx.command.params:
        if ctx.get_parameter_source(str(one.name)) is ParameterSource.DEFAULT or one.name in _OWN:
            continue
        if one.name not in _OPTIONS:
            shown = "DATA" if isinstance(one, click.Argument) else max(one.opts, key=len)
            raise OptionError(f"{shown} cannot be given with --recipe", hint="leave it out")
        found[_OPTIONS[one.name]] = ctx.params[one.name]
    return found


def _print(study: Study) -> None:
    from sfumato.report.study import lines_of

    names = {"trained_on": "trained on", "tested_on": "tested on", "epsilon": "epsilon", "accuracy": "accuracy"}
    lines = [{**names, "published": "published"}, *lines_of(study)]
    widths = {name: max(len(one[name]) for one in lines) for name in names}
    if study.title:
        echo(style(study.title, bold=True))
    for one in lines:
        echo("  ".join([*(f"{one[name]:<{widths[name]}}" for name in names), one["published"]]).rstrip())
    for name, value in study.settings.items():
        echo(f"{name}: {value}")
    for note in study.notes:
        echo(note)
