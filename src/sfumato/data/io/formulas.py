"""Cells of text files that a spreadsheet would take for formulas.

A CSV file has no types: a spreadsheet that opens it computes every cell that begins with ``=``, ``+``, ``-`` or
``@``, also after a tab or a line break. So a person who typed ``=HYPERLINK(...)`` into a form runs code where the
release is read. An apostrophe in front makes such a cell a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import polars.selectors as cs

from sfumato.errors import ColumnError, OptionError

__all__ = ["escaped", "refuse_typed"]

_FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"
_NUMBER = r"^[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?$"


def escaped(lazy: pl.LazyFrame) -> pl.LazyFrame:
    """Put an apostrophe before every text that a spreadsheet would take for a formula; numbers stay as they are.

    A text of apostrophes before such a sign gets one more, so that different texts stay different.

    Examples
    --------
    >>> frame = pl.DataFrame({"note": ["=1+1", "'=1+1", "-5", "well", None]})
    >>> escaped(frame.lazy()).collect()["note"].to_list()
    ["'=1+1", "''=1+1", '-5', 'well', None]
    """
    schema = lazy.collect_schema()
    _refuse_names(schema.names())
    texts = cs.string() | cs.categorical() | cs.enum()
    text = texts.cast(pl.String)
    formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    return lazy.with_columns(pl.when(formula).then(pl.lit("'") + text).otherwise(text).name.keep())


def refuse_typed(path: str | Path, kind: str) -> None:
    """Refuse to escape formulas in a file whose cells have types: there is no formula in it."""
    if kind not in ("csv", "tsv"):
        raise OptionError(
            f"formulas are escaped in text files, and '{Path(path).name}' is a {kind} file",
            hint="leave escape_formulas / --escape-formulas out, or write .csv or .tsv",
        )


def _refuse_names(names: Sequence[str]) -> None:
    """Refuse a column whose name is a formula: readers and the certificate know the column by its name."""
    number = pl.Series(names, dtype=pl.String).str.contains(_FORMULA).sum()
    if number:
        raise ColumnError(
            f"the names of {number} column(s) begin with a sign of a formula, and names are not escaped",
            hint="rename the columns",
        )
