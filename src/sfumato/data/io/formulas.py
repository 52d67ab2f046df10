"""Escape the cells of text files that a spreadsheet would evaluate as formulas.

A CSV file has no types: a spreadsheet evaluates every cell that begins with ``=``, ``+``, ``-`` or ``@``, even after a
tab or a line break. A person who typed ``=HYPERLINK(...)`` into a form could thus run code on the reader's machine. A
leading apostrophe makes such a cell a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import polars.selectors as cs

from sfumato.errors import ColumnError, OptionError

__all__ = ["escape_cells", "refuse_typed", "unescaped"]

_FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"
_ESCAPED = r"^'+[=+\-@\t\r\n＝＋－＠]"
_NUMBER = r"^[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?$"


def escape_cells(lazy: pl.LazyFrame) -> pl.LazyFrame:
    """Put an apostrophe before every text that a spreadsheet would evaluate as a formula; leave numbers unchanged.

    A text that already has apostrophes before such a sign gets one more, so different texts stay different.

    Examples
    --------
    >>> frame = pl.DataFrame({"note": ["=1+1", "'=1+1", "-5", "well", None]})
    >>> escape_cells(frame.lazy()).collect()["note"].to_list()
    ["'=1+1", "''=1+1", '-5', 'well', None]
    """
    schema = lazy.collect_schema()
    _refuse_names(schema.names())
    texts = cs.string() | cs.categorical() | cs.enum()
    text = texts.cast(pl.String)
    formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    return lazy.with_columns(pl.when(formula).then(pl.lit("'") + text).otherwise(text).name.keep())


def unescaped(texts: pl.Series) -> pl.Series:
    """Return texts without the apostrophe that `escape_cells` puts before a formula.

    Examples
    --------
    >>> unescaped(pl.Series(["'=1+1", "''=1+1", "-5", "'t Hooft", None])).to_list()
    ['=1+1', "'=1+1", '-5', "'t Hooft", None]
    """
    return texts.str.slice(1).zip_with(texts.str.contains(_ESCAPED), texts)


def refuse_typed(path: str | Path, kind: str) -> None:
    """Refuse to escape formulas in a file with typed cells, which has no formulas."""
    if kind not in ("csv", "tsv"):
        raise OptionError(
            f"formulas are escaped only in text files, and '{Path(path).name}' is a {kind} file",
            hint="omit escape_formulas / --escape-formulas, or write .csv or .tsv",
        )


def _refuse_names(names: Sequence[str]) -> None:
    """Refuse column names that are formulas; escaping them would break references by name."""
    number = pl.Series(names, dtype=pl.String).str.contains(_FORMULA).sum()
    if number:
        raise ColumnError(
            f"the names of {number} column(s) begin like a formula, and names are not escaped",
            hint="rename the columns",
        )
