"""``sfumato mask``: perturb columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from sfumato.cli.options import (
    Command,
    escape_option,
    file_options,
    force_option,
    is_file,
    keep_input,
    keep_output,
    print_json,
    read_table,
)
from sfumato.cli.terminal import echo
from sfumato.data.release import Release
from sfumato.errors import OptionError
from sfumato.masking.masking import Mask, NoiseAddition, Pram, RankSwap, TopBottomCode
from sfumato.masking.masking import mask as mask_table
from sfumato.releases.save import save

__all__ = ["mask"]


class _Setting(click.ParamType[tuple[str, str]]):
    """The name of a column and a value, with an equals sign between them; the last one counts."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split the text at its last equals sign."""
        column, equals, setting = str(value).rpartition("=")
        if not equals or not column or not setting:
            self.fail(f"a column and a value are needed, such as age=90, got '{value}'", param, ctx)
        return column, setting.strip()


def _setting(flag: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(flag, type=_Setting(), metavar=metavar, multiple=True, help=f"{text} Can be repeated.")


@click.command(cls=Command)
@file_options
@_setting("--pram", "NAME=P", "Keep a value with this probability, else draw one from the column.")
@_setting("--swap", "NAME=PERCENT", "Swap values that are this near in rank, in percent of the rows.")
@_setting("--noise", "NAME=SCALE", "Add noise of this many standard deviations of the column.")
@_setting("--top", "NAME=VALUE", "Replace what is above by this value.")
@_setting("--bottom", "NAME=VALUE", "Replace what is below by this value.")
@click.option("--seed", type=click.IntRange(min=0), help="Make it reproducible; keep the seed secret.")
@escape_option
@force_option
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    required=True,
    help="A file (.csv, .tsv, .jsonl, .parquet, .arrow, .xlsx, - for stdout), or a new folder with a certificate.",
)
def mask(
    as_json: bool,
    pram: tuple[tuple[str, str], ...],
    swap: tuple[tuple[str, str], ...],
    noise: tuple[tuple[str, str], ...],
    top: tuple[tuple[str, str], ...],
    bottom: tuple[tuple[str, str], ...],
    seed: int | None,
    escape_formulas: bool,
    force: bool,
    output: str,
    **options: Any,
) -> None:
    """Perturb columns of a table. Nothing is guaranteed: no k, no differential privacy.

    The order is that of the options below: bounds come last, so that noise does not
    exceed them. Columns that are not named stay as they are.

    \b
    sfumato mask patients.csv --noise income=0.1 --swap age=5 --top age=90 -o masked.csv
    """
    keep_input(output, options["data"])
    alone = is_file(output)
    keep_output(output, force=force, folder=not alone)
    methods: list[Mask] = [
        *(Pram(column, keep=_number(value, "--pram")) for column, value in pram),
        *(RankSwap(column, percent=_number(value, "--swap")) for column, value in swap),
        *(NoiseAddition(column, scale=_number(value, "--noise")) for column, value in noise),
        *(
            TopBottomCode(column, low=_bound(dict(bottom).get(column)), high=_bound(dict(top).get(column)))
            for column in dict([*top, *bottom])
        ),
    ]
    if not methods:
        raise OptionError("nothing is to be done", hint="give --top, --bottom, --noise, --swap or --pram")
    masked = mask_table(read_table(schema=None, **options), methods, seed=seed)
    if alone:
        masked.write(output, escape_formulas=escape_formulas)
    else:
        save(masked, output, escape_formulas=escape_formulas, replace=force)
    if as_json:
        print_json(masked.to_dict())
    else:
        _print(masked)
    echo(f"The masked {'table' if alone else 'release'} is in {output}", err=True)


def _number(text: str, flag: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"{flag} needs a number, got '{text}'") from None


def _bound(text: str | None) -> float | str | None:
    """Return a bound as a number if it reads as one; else it may be a date."""
    for kind in (int, float):
        with suppress(TypeError, ValueError):
            return kind(text)  # type: ignore[arg-type]
    return text


def _print(masked: Release) -> None:
    for done in (method.to_dict() for method in masked.methods):
        columns = ", ".join(done.pop("columns"))
        settings = ", ".join(f"{name} {value}" for name, value in list(done.items())[1:])
        echo(f"{columns:<26} {done['method']}: {settings}")
    echo()
    echo(masked.note)
