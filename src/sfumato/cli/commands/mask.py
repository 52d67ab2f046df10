"""``sfumato mask``: perturb columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

import sfumato as sf
from sfumato.cli.options import (
    Command,
    Setting,
    check_not_input,
    check_output,
    escape_option,
    file_options,
    force_option,
    is_file,
    names_option,
    print_json,
)
from sfumato.cli.terminal import echo
from sfumato.errors import OptionError

__all__ = ["mask"]


def _bound(text: str) -> float | str:
    """Return a bound as a number, or as the text of a date."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _option(
    flag: str, metavar: str, example: str, text: str, read: Callable[[str], Any] = float
) -> Callable[[Any], Any]:
    kind = Setting(example, read, last=True)
    return click.option(flag, type=kind, metavar=metavar, multiple=True, help=f"{text} Can be repeated.")


@click.command(cls=Command)
@file_options
@_option("--pram", "NAME=P", "sex=0.9", "Keep each value with probability P, or else draw one from the column.")
@_option("--swap", "NAME=PERCENT", "age=5", "Swap values whose ranks differ by at most PERCENT of the rows.")
@_option("--noise", "NAME=SCALE", "age=0.1", "Add noise of SCALE standard deviations of the column.")
@_option("--top", "NAME=VALUE", "age=90", "Replace larger values by VALUE.", _bound)
@_option("--bottom", "NAME=VALUE", "age=18", "Replace smaller values by VALUE.", _bound)
@names_option("--keep", "Columns to release in a folder although they look identifying.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Make it reproducible; keep the seed secret.")
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
    pram: tuple[tuple[str, float], ...],
    swap: tuple[tuple[str, float], ...],
    noise: tuple[tuple[str, float], ...],
    top: tuple[tuple[str, Any], ...],
    bottom: tuple[tuple[str, Any], ...],
    keep: list[str],
    seed: int | None,
    escape_formulas: bool,
    force: bool,
    output: str,
    **options: Any,
) -> None:
    """Perturb columns of a table, without any guarantee: no k, no differential privacy.

    Masks are applied in the order of the options below: bounds come last, so noise does
    not exceed them. Columns that are not named stay unchanged.

    \b
    sfumato mask patients.csv --noise income=0.1 --swap age=5 --top age=90 -o masked.csv
    """
    check_not_input(output, options["data"])
    if not (pram or swap or noise or top or bottom):
        raise OptionError("no mask is given", hint="give --top, --bottom, --noise, --swap or --pram")
    alone = is_file(output)
    check_output(output, force=force, folder=not alone)

    from sfumato.cli.tables import read_table

    lows, highs = dict(bottom), dict(top)
    methods: list[Any] = [
        *(sf.masking.Pram(column, keep=value) for column, value in pram),
        *(sf.masking.RankSwap(column, percent=value) for column, value in swap),
        *(sf.masking.NoiseAddition(column, scale=value) for column, value in noise),
        *(
            sf.masking.TopBottomCode(column, low=lows.get(column), high=highs.get(column))
            for column in {**highs, **lows}
        ),
    ]
    masked = sf.mask(sf.Table.of(read_table(schema=None, **options), keep=keep), methods, seed=seed)
    if alone:
        masked.write(output, escape_formulas=escape_formulas)
    else:
        sf.save(masked, output, escape_formulas=escape_formulas, replace=force)
    if as_json:
        print_json(masked.to_dict())
    else:
        _print(masked)
    echo(f"The masked {'table' if alone else 'release'} is in {output}", err=True)


def _print(masked: sf.Release) -> None:
    for done in (method.to_dict() for method in masked.methods):
        columns = ", ".join(done.pop("columns"))
        settings = ", ".join(f"{name} {value}" for name, value in list(done.items())[1:])
        echo(f"{columns:<26} {done['method']}: {settings}")
    echo()
    echo(masked.note)
