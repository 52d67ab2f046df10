"""``sfumato reproduce``: published experiments again, what was printed beside what we measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sfumato.cli.options import Command, check_output, print_json
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, echo_wrapped, style
from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from sfumato.reproductions import Experiment, Reproduction

__all__ = ["reproduce"]

_LIST = "list"
_INDENT = "    "


@click.command(cls=Command)
@click.argument("name", metavar="NAME", required=False)
@click.option("--quick", is_flag=True, help="A smaller run on the data in the package, in about a minute.")
@click.option("-o", "--output", metavar="OUT", help="The page with all figures.  [default: NAME.html]")
@click.option("--force", is_flag=True, help="Replace the page if it exists.")
def reproduce(as_json: bool, name: str | None, quick: bool, output: str | None, force: bool) -> None:
    """Run a published experiment again, and print its figures beside ours.

    'sfumato reproduce list' shows the experiments. Each figure gets a verdict:
    reproduced, better, differs, refuted, built, or not judged in a small run. A
    full run may take hours and need data beside the package, in the folder that
    SFUMATO_DATA names.

    \b
    sfumato reproduce list
    sfumato reproduce private-cnn --quick
    """
    from sfumato.reproductions.catalogue import EXPERIMENTS, experiments

    if name is None or name == _LIST:
        _list(experiments(), as_json=as_json)
        return
    if name not in EXPERIMENTS:
        raise OptionError(
            f"there is no experiment '{name}'", hint=did_you_mean(name, EXPERIMENTS) or "see sfumato reproduce list"
        )
    out = output or f"{name}.html"
    check_output(out, force=force, instead="name a page, such as study.html", ending=".html")
    from sfumato.report.page import write_report
    from sfumato.reproductions.catalogue import reproduce as run

    with progress_bar("The experiment") as progress:
        found = run(name, quick=quick, progress=progress)
    write_report(found, out)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    echo(f"The page with the figures is {out}", err=True)


def _list(every: tuple[Experiment, ...], *, as_json: bool) -> None:
    if as_json:
        shown = ("name", "title", "source", "needs", "extra")
        print_json({"experiments": [{one: getattr(each, one) for one in shown} for each in every]})
        return
    for each in every:
        echo(style(f"{each.name}  {each.title}", bold=True))
        echo_wrapped(f"{_INDENT}{each.source}; {len(each.facts)} figures and statements", _INDENT)
        if each.extra:
            echo(f"{_INDENT}It needs the extra {each.extra}: pip install 'sfumato[{each.extra}]'")
        if each.needs:
            echo_wrapped(f"{_INDENT}A full run needs {each.needs}.", _INDENT)


def _print(found: Reproduction) -> None:
    from sfumato.reproductions.values import NOT_RUN, shown

    echo(style(found.title, bold=True))
    echo_wrapped(found.source)
    lines = [("", "printed", "ours", "verdict")]
    lines += [(one.what, one.target, shown(one.ours), one.verdict) for one in found.rows if one.note != NOT_RUN]
    widths = [min(44, max(len(line[at]) for line in lines)) for at in range(3)]
    for line in lines:
        echo("  ".join([*(f"{text:<{wide}}" for text, wide in zip(line, widths, strict=False)), line[3]]).rstrip())
    for note in dict.fromkeys(one.note for one in found.rows if one.note and one.note != NOT_RUN):
        names = [one.what for one in found.rows if one.note == note]
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        echo_wrapped(f"- {names[0]}{others}: {note}")
    left = sum(one.note == NOT_RUN for one in found.rows)
    if left:
        echo_wrapped(f"{left} figures are not part of this form of the run{'; leave --quick out' * found.quick}.")
    echo_wrapped(", ".join(f"{name}: {count}" for name, count in found.verdicts.items()))
