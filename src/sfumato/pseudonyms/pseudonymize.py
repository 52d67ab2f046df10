"""Replace identifiers by tokens consistently across tables, and back.

The engine finds the distinct identifiers of each table, the method makes a token for each, and the engine
applies the tokens to the rows, so each identifier is processed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from sfumato._repr import Discreet
from sfumato.data.io.dialect import Fields, encode_like
from sfumato.data.io.files import format_of, write_bytes
from sfumato.data.io.source import DataSource, File
from sfumato.data.sanitize import sanitize
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table, write
from sfumato.engines.dispatch import recode, reduce
from sfumato.engines.engine import Recoding
from sfumato.engines.released_schema import restrict_domains
from sfumato.engines.tuples import Tuples
from sfumato.errors import ColumnError, InputError, OptionError
from sfumato.pseudonyms.tokens import Found, Spaces, Tokens

__all__ = ["Replaced", "canonical", "pseudonymize", "reidentify", "replace_identifiers"]

_EXACT = {"Float16": 2**11, "Float32": 2**24, "Float64": 2**53}  # beyond it, not every whole number is a float


def pseudonymize(data: Any, method: Tokens, *, columns: Sequence[str] = (), space: str | None = None) -> Any:
    """Replace the identifiers of one table, or of several related tables, by tokens.

    Equal identifiers get equal tokens, in every table and at any later time, so tables can still be joined.
    Identifiers are compared as text: the numbers 7 and 7.0 and the text "7" are the same, "007" is different.
    Missing values and empty texts become missing. All other columns and the order of the rows are unchanged, so
    tokens can be turned back row by row. The index of a pandas frame and unused categories are dropped; make
    the index a column first if it matters.

    Pseudonymized data is still personal data (GDPR, Article 4(5) and Recital 26): anyone who has the key, or
    recognizes a person by the other columns, can identify the rows. The result is therefore not a `Release`: anonymize
    it before it is published.

    Parameters
    ----------
    data : Table, frame or path; or a mapping or a sequence of them
        The tables whose identifiers are replaced.
    method : KeyedTokens, RandomTokens or EncryptedTokens
        How tokens are made.
    columns : sequence of str
        The columns to replace, which every table must have; by default the identifiers of its schema.
    space : str, optional
        The name of the set of identified things; by default the name of each column. Give one if columns with
        different names contain identifiers of the same people.

    Returns
    -------
    A frame of the same type, a Polars frame for a file, or a table for a table; a dict for a mapping, a
    list for a sequence.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> patients = pl.DataFrame({"patient_id": ["7", "8"], "sex": ["f", "m"]})
    >>> visits = pl.DataFrame({"patient_id": [8, 8, 7, None], "cost": [10, 20, 30, 40]})
    >>> method = sf.pseudonyms.KeyedTokens(sf.Key.new("pseudonyms.key"))
    >>> patients, visits = sf.pseudonymize([patients, visits], method, columns=["patient_id"])
    >>> patients.join(visits, on="patient_id")["sex", "cost"].sort("cost").rows()
    [('m', 10), ('m', 20), ('f', 30)]
    """
    return _each(data, lambda tables: replace_identifiers(tables, method, columns, space))


def reidentify(data: Any, method: Tokens, *, columns: Sequence[str] = (), space: str | None = None) -> Any:
    """Turn tokens back into identifiers, with the method that made them.

    The identifiers are returned as texts. A token that the method did not make in this space is an error.

    Parameters
    ----------
    data, columns, space
        As for `pseudonymize`.
    method : RandomTokens or EncryptedTokens
        Keyed tokens are irreversible.

    Examples
    --------
    >>> import sfumato as sf
    >>> method = sf.pseudonyms.EncryptedTokens(sf.Key.new("clinic.key"))
    >>> tokens = sf.pseudonymize(pl.DataFrame({"id": [7, 8]}), method, columns=["id"])
    >>> sf.reidentify(tokens, method, columns=["id"])["id"].to_list()
    ['7', '8']
    """
    return _each(data, lambda tables: replace_identifiers(tables, method, columns, space, back=True))


@dataclass(frozen=True, eq=False, repr=False)
class Replaced(Discreet):
    """A table with replaced identifiers, and the number of distinct identifiers in each column."""

    _repr_fields: ClassVar[tuple[str, ...]] = ("table",)

    table: Table
    distinct: dict[str, int]
    became: dict[str, dict[str, str]]
    """The replacement of each identifier, by column."""
    types: dict[str, pl.DataType]
    """The original type of each of these columns."""
    file: File | None = None

    def write(self, path: str | Path, *, escape_formulas: bool = False) -> None:
        """Write the table; from text file to text file, all bytes other than identifiers are unchanged."""
        file = self.file
        if file is None or not file.is_text or escape_formulas or format_of(Path(path)) != file.format:
            write(self.table, path, escape_formulas=escape_formulas)
            return
        with file.reading():
            content = Fields.of(file.text).replace({name: partial(self._field, name) for name in self.became})
            content = encode_like(content, file.text)
        write_bytes(content, path)

    def _field(self, column: str, text: str) -> str:
        """Return the replacement of a field; blanks around a number or a token are preserved."""
        assert self.file is not None
        dtype, became = self.types[column], self.became[column]
        if dtype == pl.String and text in became:
            return became[text]
        bare = text.strip()
        if not bare or text in self.file.na:
            return text
        known = bare
        if dtype.is_numeric():  # which may be written as +7 or 7.0
            number = float(bare)
            known = bare if number != number else str(int(bare if dtype.is_integer() else number))
        before, _, after = text.partition(bare)
        return before + became.get(known, bare) + after


def replace_identifiers(
    tables: Sequence[tuple[str, Any]],
    method: Tokens,
    columns: Sequence[str],
    space: str | None = None,
    *,
    back: bool = False,
) -> list[Replaced]:
    """Replace identifiers by tokens, or tokens by identifiers, in tables that are named for messages."""
    if not isinstance(method, Tokens):
        raise OptionError(
            f"the method must be such as KeyedTokens(key), got {getattr(method, '__name__', type(method).__name__)}"
        )
    if isinstance(columns, str):
        raise OptionError(f"the columns must be a list of names, got the text '{columns}'")
    if space is not None and (not isinstance(space, str) or not space):
        raise OptionError(f"a space must be a text of at least one character, got {space!r}")
    parts = [_Part.of(_opened(data, name), columns, name, back=back) for name, data in tables]
    spaces: dict[str, pl.Series] = {}
    for part in parts:
        for column, values in part.values.items():
            known = spaces.get(space or column, pl.Series(dtype=pl.String))
            spaces[space or column] = pl.concat([known, values.drop_nulls().rename("")]).unique(maintain_order=True)
    asked: Spaces = {name: values.to_list() for name, values in spaces.items()}
    became: Found = method.find(asked) if back else method.make(asked)
    look_up = {
        name: pl.DataFrame({"is": spaces[name], "becomes": pl.Series(became[name], dtype=pl.String)}) for name in asked
    }
    return [part.replaced({column: look_up[space or column] for column in part.values}) for part in parts]


@dataclass(frozen=True, eq=False)
class _Part:
    """A table with the distinct identifiers of each column."""

    table: Table
    tuples: dict[str, Tuples]
    values: dict[str, pl.Series]

    @classmethod
    def of(cls, table: Table, columns: Sequence[str], name: str, *, back: bool = False) -> _Part:
        chosen = list(dict.fromkeys(columns)) or list(table.schema.identifiers)
        if not chosen:
            raise OptionError(
                f"no identifier column is named{_of(name)}",
                hint="name the columns that identify a person, with columns / --columns",
            )
        tuples, values = {}, {}
        table = _as_written(table, [column for column in chosen if column in table.schema.names])
        plain = Table(table.frame)  # without the schema
        for column in chosen:
            try:
                table.schema[column]
                tuples[column] = reduce(plain, [column])
                texts = canonical(tuples[column].domains[0].values, column)
                values[column] = texts.str.strip_chars() if back else texts
            except ColumnError as error:
                raise ColumnError(error.message + _of(name), hint=error.hint) from error
        return cls(table, tuples, values)

    def replaced(self, look_up: dict[str, pl.DataFrame]) -> Replaced:
        rows = Table(self.table.frame)
        for column, values in self.values.items():
            new = values.rename("is").to_frame().join(look_up[column], on="is", how="left", maintain_order="left")
            unknown = int((new["becomes"].is_null() & values.is_not_null()).sum())
            if unknown:
                raise InputError(
                    f"{unknown:,} of {values.drop_nulls().n_unique():,} tokens in column '{column}' are unknown",
                    hint="they are damaged, or belong to another key, mapping or space",
                )
            tuples = self.tuples[column]
            rows = recode(rows, Recoding(tuples, [new["becomes"].gather(tuples.codes[:, 0]).alias(column)]))
        columns = (
            Column(name=column.name, role=column.role) if column.name in self.values else column
            for column in self.table.schema.columns
        )
        distinct = {name: values.drop_nulls().n_unique() for name, values in self.values.items()}
        became = {name: dict(look_up[name].drop_nulls().iter_rows()) for name in self.values}
        types = {name: self.tuples[name].domains[0].values.dtype for name in self.values}
        frame = rows.frame if rows.is_lazy else sanitize(rows.frame)  # rows outside this process stay there
        file = self.table.file
        table = Table(frame, restrict_domains(Schema(columns), self.table, frame), layout=file)
        return Replaced(table, distinct, became, types, file)


def _as_written(table: Table, columns: Sequence[str]) -> Table:
    """Return a table with the identifiers of a text file as written, even if they look like 31.12.1980 or 1.234.567."""
    file = table.file
    if file is None or not file.is_text or not isinstance(table.frame, pl.DataFrame):
        return table
    found = file.text.cells
    other = [name for name in columns if name in found and not found[name].is_plain]
    if not other:
        return table
    plain = replace(file, inferred=False, encoding=file.text.encoding, decimal=None, dates=())
    return Table(table.frame.with_columns(plain.read(other).get_columns()), table.schema, origin=file)


def canonical(values: pl.Series, name: str) -> pl.Series:
    """Return identifiers as texts, or raise a `ColumnError` if values cannot be identifiers.

    Examples
    --------
    >>> canonical(pl.Series([7.0, None, float("nan")]), "id").to_list()
    ['7', None, None]
    >>> canonical(pl.Series(["7", "007", " 7", ""]), "id").to_list()
    ['7', '007', ' 7', None]
    """
    dtype = values.dtype
    if dtype.is_float():
        values = values.fill_nan(None)
        wrong = int((~(values.abs() <= _EXACT[str(dtype)]) | (values != values.floor())).sum())
        _refuse_fractions(wrong, name)
        values = values.cast(pl.Int64)
    elif isinstance(dtype, pl.Decimal):
        values = values.cast(pl.String).str.replace(r"\.0*$", "")
        _refuse_fractions(int(values.str.contains(".", literal=True).sum()), name)
    elif not (dtype.is_integer() or isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Date | pl.Null)):
        raise ColumnError(
            f"column '{name}' holds {str(dtype).split('(')[0].lower()} values, "
            "but an identifier is a text, a whole number or a date",
            hint="convert them to texts",
        )
    texts = values.cast(pl.String)
    return texts.set(texts == "", None)


def _refuse_fractions(wrong: int, name: str) -> None:
    if wrong:
        raise ColumnError(
            f"column '{name}' holds {wrong:,} different number(s) that are not whole, or too large to be exact",
            hint="an identifier is a text, a whole number or a date; convert them to texts",
        )


def _opened(data: Any, name: str) -> Table:
    try:
        table = Table.of(data)
    except ColumnError as error:
        raise ColumnError(error.message + _of(name), hint=error.hint) from error
    return Table(table.frame, table.schema, origin=table.file) if isinstance(table.source, DataSource) else table


def _of(name: str) -> str:
    return f" in {name}" if name else ""


def _each(data: Any, replace: Callable[[list[tuple[str, Any]]], list[Replaced]]) -> Any:
    """Apply a replacement to one or several tables, and return the same structure."""
    if isinstance(data, Mapping):
        named = [(f"table '{name}'", one) for name, one in data.items()]
    elif isinstance(data, Sequence) and not isinstance(data, str):
        named = [(f"table {number}", one) for number, one in enumerate(data, start=1)]
    else:
        named = [("", data)]
    if not named:
        raise OptionError("no table is given")
    tables = [one.table for one in replace(named)]
    done = [table if isinstance(given, Table) else table.frame for table, (_, given) in zip(tables, named, strict=True)]
    if isinstance(data, Mapping):
        return dict(zip(data, done, strict=True))
    return done if named[0][0] else done[0]
