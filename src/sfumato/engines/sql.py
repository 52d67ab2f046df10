"""Count and recode inside a database: only distinct tuples leave it.

The database groups the rows, and the tuples stream into the same `Counter` as those of a file. Recoding also stays in
the database: it numbers the distinct tuples, Sfumato looks up the new values of each, and the database creates the new
table with a join on the numbers. Values are compared only inside the database, so none is changed by a round trip
through Python.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from sfumato.data.io.database import Database, Reflected, fetch, place_of
from sfumato.data.io.files import FORMATS
from sfumato.data.table import Table
from sfumato.engines.code_expressions import PostgresDialect, SqlDialect, SqliteDialect, levels, number_of
from sfumato.engines.contingency import CodeCounter, Coded
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Progress, Recoding
from sfumato.engines.memory import Memory
from sfumato.engines.tuples import Tuples
from sfumato.errors import ColumnError, OptionError

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["Sql"]

_BYTE_BY_BYTE = {"postgresql": "C", "sqlite": "BINARY"}
_INSERTED = 2**14
_DIALECTS: dict[str, type[SqlDialect]] = {"postgresql": PostgresDialect, "sqlite": SqliteDialect}


@dataclass(frozen=True)
class Sql(CodeCounter):
    """Counts inside a database. Texts are compared byte by byte, whatever their collation.

    Examples
    --------
    >>> import sqlite3
    >>> import sfumato as sf
    >>> clinic = sqlite3.connect("clinic.db")
    >>> _ = clinic.execute("CREATE TABLE patients (sex TEXT, age INTEGER)")
    >>> _ = clinic.execute("INSERT INTO patients VALUES ('f', 30), ('m', 41), ('f', 30)")
    >>> clinic.commit()
    >>> clinic.close()
    >>> table = sf.Table(Database("sqlite:///clinic.db", "patients"))
    >>> tuples = Sql().joint_count(table, ["sex", "age"])
    >>> tuples.codes.tolist(), tuples.count.tolist()
    ([[0, 0], [1, 1]], [2, 1])
    >>> decades = Recoding(tuples, [pl.Series("age", ["30-39", "40-49"])])
    >>> sorted(Sql().recode(table, decades, "released").frame["age"])
    ['30-39', '30-39', '40-49']
    """

    name: ClassVar[str] = "sql"
    counts: ClassVar[str] = "a table of a database that is named by its URL"

    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        import sqlalchemy as sa

        database = self._database(table)
        counter = Counter([table.schema[name] for name in names])
        if not names:
            return counter.tuples()
        count = sa.func.count()
        counted = [("count", pl.Int64())]
        with database.connect() as connection:
            rows = Reflected.find(database, connection)
            columns = [rows.resolve(name, connection) for name in names]
            keys = [_key(rows, *column) for column in columns]
            query = sa.select(*keys, count).select_from(rows.table).group_by(*keys)
            if progress:  # the total comes with every tuple, which avoids a second pass over the rows
                query = query.add_columns(sa.cast(sa.func.sum(count).over(), sa.BigInteger))
                counted.append(("all", pl.Int64()))
            done = 0
            with closing(fetch(connection, query, [*columns, *counted])) as batches:
                for batch in batches:
                    of_tuple = batch[len(columns)].to_numpy().astype(np.int64)
                    counter.add(batch[: len(columns)], of_tuple)
                    done += int(of_tuple.sum())
                    if progress and len(of_tuple):
                        progress(done / batch[-1][0])
        if progress and not done:
            progress(1.0)
        return counter.tuples()

    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values, in a new table of the same database.

        Other columns stay unchanged. Everything happens in one transaction, which leaves nothing
        behind if it fails or the connection is lost.
        """
        import sqlalchemy as sa

        database = self._database(table)
        if not to:
            raise OptionError("a table in a database is recoded into a new table", hint="name the new table with to")
        with database.connect(writing=True) as connection:
            rows = Reflected.find(database, connection)
            schema, name = _new_name(connection, database, str(to))
            columns = [rows.resolve(column, connection) for column in recoding.names]
            keys = [_key(rows, *column) for column in columns]
            tuples = _number_tuples(connection, rows, keys)
            becomes = _recoding_table(connection, tuples, columns, recoding)
            new = dict(zip((series.name for series in recoding.values), list(becomes.c)[1:], strict=True))
            same = sa.and_(*(_equal(rows, key, known) for key, known in zip(keys, list(tuples.c)[1:], strict=True)))
            kept = [column for column in rows.types if column not in recoding.without]
            recoded = sa.select(*(new.get(column, rows.table.c[column]).label(column) for column in kept))
            joined = rows.table.outerjoin(tuples, same).outerjoin(becomes, becomes.c.number == tuples.c.number)
            types = {column: new[column].type if column in new else rows.sql_types[column] for column in kept}
            query = recoded.select_from(joined)
            if recoding.shuffle:  # by the random numbers of the database, which are not cryptographic
                query = query.order_by(sa.func.random())
            _create(connection, rows, types, query, name, schema)
            becomes.drop(connection)
            tuples.drop(connection)
        return Table(Database(database.url, str(to)))

    def types(self, table: Table) -> dict[str, pl.DataType]:
        """Return the declared types of all columns."""
        return self._database(table).types()

    def _count_groups(
        self,
        table: Table,
        columns: Sequence[Coded],
        types: dict[str, pl.DataType],
        sets: Sequence[tuple[int, ...]],
        weight: Coded | None,
    ) -> list[pl.Series]:
        """Count groups by grouping sets; in SQLite, by a union of group-bys of the coded rows, which are kept."""
        import sqlalchemy as sa

        database = self._database(table)
        with database.connect() as connection:
            rows = Reflected.find(database, connection)
            if rows.dialect.name not in _DIALECTS:
                raise OptionError(
                    f"codes are counted in {' and '.join(_DIALECTS)}, and this database is {rows.dialect.name}",
                    hint="export the table to a Parquet file",
                )
            dialect = _DIALECTS[rows.dialect.name]()
            quote = connection.dialect.identifier_preparer
            every = [*columns] if weight is None else [*columns, weight]
            names = [quote.quote(one.name).replace(":", r"\:") for one in every]
            query = quote.format_table(sa.Table(rows.table.name, sa.MetaData(), schema=rows.table.schema))
            query, parts = query.replace(":", r"\:"), list[Any]()
            for level in levels(dialect, every, names, types):
                chosen = ", ".join(f"{expression} AS {alias}" for expression, alias in level)
                query = f"(SELECT {chosen} FROM {query}) AS coded"  # noqa: S608
            for some in dialect.counted(len(columns), sets, number_of(len(columns), weight)):
                text = sa.text(f"WITH coded AS {dialect.kept} (SELECT * FROM {query}) {some}")  # noqa: S608
                parts += connection.execute(text, dialect.parameters).all()
        return list(
            pl.DataFrame(parts, [f"{at}" for at in range(len(columns) + 1)], orient="row", infer_schema_length=None)
        )

    def _database(self, table: Table) -> Database:
        if isinstance(table.source, Database):
            return table.source
        raise self.refusal(table)

    def names_a_table(self, to: str | Path | None) -> bool:
        """Say whether ``to`` is a new table of the database: a name without a suffix of a file."""
        return to is not None and Path(to).suffix not in FORMATS


def _new_name(connection: sa.Connection, database: Database, name: str) -> tuple[str | None, str]:
    """Return the schema and the name of a new table; refuse an existing name."""
    import sqlalchemy as sa

    inspector = sa.inspect(connection)
    schema, table = place_of(inspector, name)
    longest = connection.dialect.max_identifier_length
    if "\0" in name or len(table.encode()) > longest:  # PostgreSQL would truncate it silently
        raise OptionError(
            f"the name of a table must have at most {longest} bytes and no NUL, got {len(table.encode())}"
        )
    if inspector.has_table(table, schema=schema) or inspector.has_table(name):
        raise OptionError(f"the database '{database.place}' already has a table '{name}'", hint="choose another name")
    return schema, table


def _key(rows: Reflected, name: str, dtype: pl.DataType) -> sa.ColumnElement[Any]:
    """Return the SQL expression that distinguishes the values of a column."""
    import sqlalchemy as sa

    value, dialect = rows.value(name, dtype), rows.dialect.name
    if dialect != "sqlite" and dtype != pl.String:  # in SQLite any column may have a collation
        return value
    if dialect not in _BYTE_BY_BYTE:
        raise OptionError(
            f"the sql engine compares texts byte by byte only in {' and '.join(_BYTE_BY_BYTE)}, "
            f"and '{name}' holds texts in {dialect}",
            hint="use engine='memory' / --engine memory, which reads the columns",
        )
    return sa.collate(value, _BYTE_BY_BYTE[dialect])


def _equal(rows: Reflected, left: sa.ColumnElement[Any], right: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that two values are equal or both missing."""
    from sqlalchemy.dialects.postgresql import array

    if rows.dialect.name == "postgresql":
        # PostgreSQL compares every pair for IS NOT DISTINCT FROM, but can hash arrays of one element.
        return array([left]) == array([right])
    return left.is_not_distinct_from(right)


def _number_tuples(connection: sa.Connection, rows: Reflected, keys: Sequence[sa.ColumnElement[Any]]) -> sa.Table:
    """Create a temporary table of the numbered distinct tuples."""
    import sqlalchemy as sa

    number = sa.func.row_number(type_=sa.BigInteger).over().label("number")
    named = [key.label(f"key{position}") for position, key in enumerate(keys)]
    tuples = sa.select(number, *named).select_from(rows.table).group_by(*keys).into(_name(), temporary=True)
    connection.execute(tuples)
    return tuples.table


def _recoding_table(
    connection: sa.Connection, tuples: sa.Table, columns: Sequence[tuple[str, pl.DataType]], recoding: Recoding
) -> sa.Table:
    """Create a temporary table of the new values of each numbered tuple."""
    import sqlalchemy as sa

    batches = fetch(connection, sa.select(tuples), [("", pl.Int64()), *columns])
    numbers, *values = (pl.concat(parts) for parts in zip(*batches, strict=True))
    recoded = Memory().recode(Table(pl.LazyFrame(values)), recoding).frame.collect()
    new = [_storable(recoded[series.name], connection.dialect) for series in recoding.values]
    table = sa.Table(
        _name(),
        sa.MetaData(),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(f"new{position}", _sql_type(series)) for position, series in enumerate(new)),
        prefixes=["TEMPORARY"],
    )
    table.create(connection)
    for start in range(0, len(numbers), _INSERTED):
        _insert(connection, table, [series.slice(start, _INSERTED).to_list() for series in (numbers, *new)])
    return table


def _insert(connection: sa.Connection, table: sa.Table, columns: Sequence[list[Any]]) -> None:
    """Insert values, given by column, into a table."""
    import sqlalchemy as sa

    if connection.dialect.name == "postgresql":  # three times faster than row by row
        arrays = [
            sa.bindparam(None, values, sa.ARRAY(column.type)) for values, column in zip(columns, table.c, strict=True)
        ]
        connection.execute(table.insert().from_select(table.c.keys(), sa.select(*map(sa.func.unnest, arrays))))
    else:
        rows = zip(*columns, strict=True)
        connection.execute(table.insert(), [dict(zip(table.c.keys(), row, strict=True)) for row in rows])


def _create(
    connection: sa.Connection,
    rows: Reflected,
    types: dict[str, sa.types.TypeEngine[Any]],
    query: sa.Select[Any],
    name: str,
    schema: str | None,
) -> None:
    """Create the new table from a query."""
    import sqlalchemy as sa

    if rows.dialect.name == "postgresql":  # its planner underrates the hash join: sorting took seven times as long
        connection.execute(sa.select(sa.func.set_config("enable_mergejoin", "off", True)))
    if rows.dialect.name != "sqlite":
        connection.execute(query.into(name, schema=schema))
        return
    # CREATE TABLE AS would lose the declared dates of SQLite; for a column without a type, BLOB changes no value.
    table = sa.Table(
        name,
        sa.MetaData(),
        *(
            sa.Column(column, sa.BLOB if isinstance(kind, sa.types.NullType) else kind)
            for column, kind in types.items()
        ),
        schema=schema,
    )
    table.create(connection)
    connection.execute(table.insert().from_select(list(types), query))


def _name() -> str:
    """Return a random, unused table name."""
    return f"sfumato_{secrets.token_hex(8)}"


def _storable(series: pl.Series, dialect: sa.Dialect) -> pl.Series:
    """Convert values to types that a database can store."""
    if isinstance(series.dtype, pl.Categorical | pl.Enum | pl.Null):
        return series.cast(pl.String)
    if isinstance(series.dtype, pl.Decimal) and dialect.name == "sqlite":
        return series.cast(pl.Float64)
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone and dialect.name == "sqlite":
        return series.cast(pl.String)  # SQLite would lose the time zone
    return series


def _sql_type(series: pl.Series) -> sa.types.TypeEngine[Any]:
    """Return the SQL type for values of a Polars type."""
    import sqlalchemy as sa

    dtype = series.dtype
    if isinstance(dtype, pl.Decimal):
        return sa.Numeric(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Datetime):
        return sa.DateTime(timezone=dtype.time_zone is not None)
    if dtype.is_integer():
        return sa.BigInteger()
    if dtype.is_float():
        return sa.Double()
    plain: dict[pl.DataType, sa.types.TypeEngine[Any]] = {
        pl.String(): sa.Text(),
        pl.Boolean(): sa.Boolean(),
        pl.Date(): sa.Date(),
        pl.Time(): sa.Time(),
    }
    if dtype not in plain:
        raise ColumnError(f"the new values of '{series.name}' have type {dtype}, which a database cannot store")
    return plain[dtype]
