from __future__ import annotations

import datetime as dt
import sqlite3
import traceback
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import polars as pl
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.io.database import Database
from sfumato.data.io.sql_values import Reader
from tests.postgres import PASSWORD, PostgresServer, execute, running, store

PATIENTS = pl.DataFrame(
    {
        "sex": ["f", "m", None],
        "age": [30, None, -(2**62)],
        "weight": [61.5, -0.0, None],
        "smokes": [True, None, False],
        "born": [dt.date(1990, 2, 28), None, dt.date(1, 1, 1)],
        "seen": [dt.datetime(2020, 1, 1, 10, 30, 0, 250000), None, dt.datetime(1969, 12, 31)],
        "rises": [dt.time(6, 30), None, dt.time(23, 59, 59)],
    }
)
NAMES = [
    "patients",
    'the "best" table',
    "Robert'); DROP TABLE students;--",
    "UPPER lower",
    "größe µ 患者",
    "50 %s %(x)s :x",
    "a.b",
    "select",
]


def message(error: pytest.ExceptionInfo[sf.SfumatoError]) -> str:
    """What the user reads; the password must not be in it, nor in what a traceback would show of its causes."""
    told = "".join(line for line in traceback.format_exception(error.value) if not line.startswith("  File "))
    assert PASSWORD not in told
    return str(error.value)


def test_a_table_is_read_as_it_was_written(database_url: str) -> None:
    store(database_url, "patients", PATIENTS)
    database = Database(database_url, "patients")
    assert database.types() == dict(PATIENTS.schema)
    assert database.rows() == 3
    assert database.read().equals(PATIENTS)
    assert database.read(["age", "sex"]).equals(PATIENTS.select("age", "sex"))


def test_an_empty_table_has_its_columns(database_url: str) -> None:
    store(database_url, "patients", PATIENTS.clear())
    database = Database(database_url, "patients")
    assert database.rows() == 0
    assert database.read().equals(PATIENTS.clear())


def test_kinds_are_known_before_a_row_is_read(database_url: str) -> None:
    store(database_url, "patients", PATIENTS)
    kinds = [column.kind.value for column in sf.Table(Database(database_url, "patients")).schema.columns]
    assert kinds == ["category", "number", "number", "category", "date", "date", "category"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_table_and_of_a_column_works(database_url: str, name: str) -> None:
    frame = pl.DataFrame({name: ["x"], "other": [1]})
    store(database_url, "students", frame)
    store(database_url, name, frame)
    assert Database(database_url, name).read([name])[name].to_list() == ["x"]
    assert Database(database_url, "students").rows() == 1


def test_a_view_is_a_table(database_url: str) -> None:
    store(database_url, "patients", PATIENTS)
    execute(database_url, "CREATE VIEW women AS SELECT age FROM patients WHERE sex = 'f'")
    assert Database(database_url, "women").read()["age"].to_list() == [30]


def test_a_schema_may_stand_before_the_name(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, 'CREATE SCHEMA "the.clinic"', 'CREATE TABLE "the.clinic"."a.b" (x int)')
    assert list(Database(url, "the.clinic.a.b").types()) == ["x"]
    execute(url, 'CREATE TABLE "the.clinic.a.b" (y int)')  # a table of the whole name comes first
    assert list(Database(url, "the.clinic.a.b").types()) == ["y"]


def test_an_unknown_table_is_named_with_its_neighbours(database_url: str) -> None:
    store(database_url, "patients", PATIENTS)
    with pytest.raises(sf.errors.InputError) as error:
        Database(database_url, "patient").types()
    assert message(error).endswith("has no table 'patient' (did you mean 'patients'?)")
    for name in ("", "no\0name", "no.table"):
        with pytest.raises(sf.errors.InputError, match="has no table"):
            Database(database_url, name).rows()


def test_an_unknown_column_is_named(database_url: str) -> None:
    store(database_url, "patients", PATIENTS)
    with pytest.raises(sf.errors.ColumnError, match=r"has no column 'sexx' \(did you mean 'sex'\?\)"):
        Database(database_url, "patients").read(["sexx"])


def test_the_types_of_postgresql_keep_their_values_apart(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(
        url,
        "CREATE TYPE mood AS ENUM ('well', 'ill')",
        "CREATE DOMAIN zip AS varchar(5)",
        """CREATE TABLE t (tiny smallint, padded char(4), mood mood, zip zip, person uuid, short real,
           exact numeric(20, 3), free numeric, seen timestamptz, shift timetz)""",
        """INSERT INTO t VALUES (1, 'a', 'ill', '01234', '6ecd8c99-4036-403d-bf84-cf8400f67836', 0.1,
           12345678901234567.001, 1.50, '2020-01-01 10:00+02', '10:00+02'),
           (2, NULL, NULL, NULL, NULL, 'NaN', 'NaN', 'NaN', NULL, NULL)""",
    )
    postgres_server.execute(f"ALTER DATABASE {url.split('/')[3].split('?')[0]} SET timezone = 'America/New_York'")
    database = Database(url, "t")
    assert database.types() == {
        "tiny": pl.Int64,
        "padded": pl.String,
        "mood": pl.String,
        "zip": pl.String,
        "person": pl.String,
        "short": pl.Float64,
        "exact": pl.Decimal(20, 3),
        "free": pl.Float64,
        "seen": pl.Datetime("us", "UTC"),
        "shift": pl.String,
    }
    assert database.read().row(0) == (
        1,
        "a",
        "ill",
        "01234",
        "6ecd8c99-4036-403d-bf84-cf8400f67836",
        0.1,
        Decimal("12345678901234567.001"),
        1.5,
        dt.datetime(2020, 1, 1, 8, tzinfo=dt.UTC),
        "10:00:00+02",
    )


def test_digits_that_a_float_cannot_hold_are_refused_not_merged(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, "CREATE TABLE t (x numeric)", "INSERT INTO t VALUES (0.10000000000000001), (0.1)")
    with pytest.raises(
        sf.errors.ColumnError, match="column 'x' holds numbers with more digits than a float can represent"
    ):
        Database(url, "t").read()


def test_columns_that_cannot_be_counted_do_not_hinder_the_others(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, "CREATE TABLE t (x int, j jsonb, a int[], b bytea, p point)", "INSERT INTO t VALUES (7)")
    database = Database(url, "t")
    assert sf.Table(database).column("x").to_list() == [7]
    for name, kind in {
        "j": "the type JSONB",
        "a": "the type ARRAY",
        "b": "the type BYTEA",
        "p": "an unknown type",
    }.items():
        with pytest.raises(
            sf.errors.ColumnError, match=f"column '{name}' is of {kind}, but only numbers, texts, dates"
        ):
            database.read([name])


def test_a_date_that_no_calendar_has_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, "CREATE TABLE t (x date)", "INSERT INTO t VALUES ('infinity')")
    with pytest.raises(sf.errors.ColumnError, match="out of range, such as an infinite date"):
        Database(url, "t").read()


@pytest.mark.parametrize(
    ("declared", "values", "read"),
    [
        ("", "('a'), ('b')", ["a", "b"]),
        ("", "(1), (NULL)", [1, None]),
        ("", "(1), (1.5)", [1.0, 1.5]),
        ("", "(NULL)", [None]),
        ("BOOLEAN", "(0), (1), (NULL)", [False, True, None]),
        ("DECIMAL(5, 2)", "(1), (2.25)", [1.0, 2.25]),
        ("DATE", "('2020-02-29')", [dt.date(2020, 2, 29)]),
        ("DATETIME", "('2020-02-29 10:00:00'), (NULL)", [dt.datetime(2020, 2, 29, 10), None]),
        ("DATETIME", "('2020-02-29')", [dt.datetime(2020, 2, 29)]),
        ("DATETIME", "('2020-02-29T10:00:00.250')", [dt.datetime(2020, 2, 29, 10, 0, 0, 250000)]),
        (  # as Python writes them
            "TIMESTAMP",
            "('2020-02-29 10:00:00'), ('2020-02-29 10:00:00.250000')",
            [dt.datetime(2020, 2, 29, 10), dt.datetime(2020, 2, 29, 10, 0, 0, 250000)],
        ),
        ("TIME", "('10:00')", [dt.time(10)]),
        ("VARCHAR(2)", "('äöü'), ('')", ["äöü", ""]),
    ],
)
def test_sqlite_values_are_what_their_column_declares(
    tmp_path: Path, declared: str, values: str, read: list[object]
) -> None:
    database = _sqlite(tmp_path, declared, values)
    assert database.read()["x"].to_list() == read


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("", "(1), ('a')"),
        ("INTEGER", "(1), ('a')"),
        ("INTEGER", "(1), (1.5)"),
        ("TEXT", "('a'), (x'00')"),
        ("REAL", "(1.5), ('a')"),
        ("DATE", "('2020-01-01'), ('yesterday')"),
        ("DATE", "(18000)"),
        ("DATE", "('2020-01-01'), ('2020-W01-3')"),
        ("DATE", "('2020-01-01'), ('20200101')"),
        ("DATETIME", "('2020-01-01 10:00'), ('2020-01-01 10:00+01:00')"),
        ("BOOLEAN", "(1), (2)"),
    ],
)
def test_sqlite_values_of_several_types_are_refused(tmp_path: Path, declared: str, values: str) -> None:
    with pytest.raises(sf.errors.ColumnError, match="column 'x' holds values of mixed or unknown types"):
        _sqlite(tmp_path, declared, values).read()


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("TIMESTAMP", ["2020-01-01 10:00:00.1234567", "2020-01-01 10:00:00.1234568"]),
        ("TIME", ["10:00:00.1234567", "10:00:00.1234568"]),
        ("TIME", ["10:00:00", "10:00:00.000000"]),
        ("TIME", ["10:00:00.5", "10:00:00.50"]),
        ("DATETIME", ["2020-01-01", "2020-01-01 00:00:00"]),
        ("DATETIME", ["2020-01-01 00:00", "2020-01-01T00:00"]),
        ("DATETIME", ["2020-01-01 00:00:00", "2020-01-01 00:00:00,000000"]),
    ],
)
def test_times_that_would_become_one_are_refused(tmp_path: Path, declared: str, values: list[str]) -> None:
    database = _sqlite(tmp_path, declared, ", ".join(f"('{value}')" for value in values))
    with pytest.raises(sf.errors.ColumnError, match="column 'x' holds values of mixed") as error:
        database.read()
    assert (
        error.value.hint == "write all of them like 2020-01-31 or 2020-01-31 10:30:00, or cast them to text in a view"
    )
    execute(database.url, "CREATE VIEW v AS SELECT CAST(x AS TEXT) AS x FROM t")
    assert Database(database.url, "v").read()["x"].to_list() == values


@given(st.data())
def test_two_texts_are_never_read_as_one_time(data: st.DataObject) -> None:
    moment = data.draw(st.datetimes())
    texts = st.builds(
        lambda sep, spec, more: moment.isoformat(sep, spec) + more,
        st.sampled_from(" T"),
        st.sampled_from(["hours", "minutes", "seconds", "milliseconds", "microseconds"]),
        st.sampled_from(["", "0", "1"]),
    ) | st.just(moment.date().isoformat())
    written = data.draw(st.lists(texts, min_size=1, max_size=3))
    reader = Reader("x", pl.Datetime("us"))
    try:
        read = pl.concat([reader.series([text]) for text in written])  # each in a batch of its own
    except sf.errors.ColumnError:
        return
    assert read.n_unique() == len(set(written))


def test_a_form_is_remembered_from_one_batch_to_the_next(tmp_path: Path) -> None:
    database = _sqlite(tmp_path, "DATETIME", "('2020-01-01 00:00:00')")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)"
    execute(
        database.url,
        f"INSERT INTO t {numbers} SELECT '2020-01-01 00:00:00' FROM n",
        "INSERT INTO t VALUES ('2020-01-01T00:00:00')",
    )
    with pytest.raises(sf.errors.ColumnError, match="column 'x' holds values of mixed or unknown types"):
        database.read()


def test_a_text_that_is_not_utf8_is_told_and_not_shown(tmp_path: Path) -> None:
    database = _sqlite(tmp_path, "TEXT", "('a'), (CAST(x'4d616465ff' AS TEXT))")
    with pytest.raises(sf.errors.ColumnError) as error:
        database.read()
    place = database.place
    assert message(error) == (
        f"the database '{place}' holds a text that is not valid UTF-8 (leave the column out, or correct it in a view)"
    )
    assert "Made" not in "".join(traceback.format_exception(error.value))


def test_a_database_without_an_encoding_is_read_as_utf8(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE DATABASE unknowing ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    url = f"postgresql://postgres@/unknowing?host={postgres_server.folder}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(r"CREATE TABLE t AS SELECT E'\xc3\xa4' AS x")
        connection.execute(r"CREATE TABLE u AS SELECT E'Made\xff' AS x")
    assert Database(url, "t").read()["x"].to_list() == ["ä"]
    with pytest.raises(sf.errors.ColumnError, match="holds a text that is not valid UTF-8") as error:
        Database(url, "u").read()
    assert "Made" not in "".join(traceback.format_exception(error.value))


def test_sqlite_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.ColumnError, match="column 'x' is of the type BLOB, but only numbers"):
        _sqlite(tmp_path, "BLOB", "(x'00')").read()


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="there is no file"):
        Database(f"sqlite:///{tmp_path / 'clinic.db'}", "patients")
    assert not list(tmp_path.iterdir())
    store(f"sqlite:///{tmp_path / 'clinic.db'}", "patients", PATIENTS)
    database = Database(f"sqlite:///{tmp_path / 'clinic.db'}", "patients")
    (tmp_path / "clinic.db").unlink()
    with pytest.raises(sf.errors.InputError, match="cannot be opened"):
        database.rows()
    assert not list(tmp_path.iterdir())


def test_a_file_with_an_odd_name_is_opened(tmp_path: Path) -> None:
    odd = tmp_path / "my #1 clinic 50%.db"
    with closing(sqlite3.connect(odd)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
    assert Database(f"sqlite:///{odd}", "t").rows() == 0


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("name,age\n" * 200)
    with pytest.raises(sf.errors.InputError, match="is not an SQLite file"):
        Database(f"sqlite:///{tmp_path / 'x.db'}", "t").rows()


def test_a_file_that_another_program_writes_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sf.errors.InputError, match="is being written by another program"):
            Database(f"sqlite:///{file}?timeout=0", "t").rows()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "the address of the database cannot be understood"),
        (f"postgresql://me:{PASSWORD}@host:port/db", "the address of the database cannot be understood"),
        (f"oracel://me:{PASSWORD}@host/db", "begins with 'oracel', which is not a known kind of database"),
        ("https://host/d.csv", "begins with 'https', which is not a known kind of database"),
        ("file:///d.csv", "begins with 'file', which is not a known kind of database"),
        (
            f"postgresql+nodriver://me:{PASSWORD}@host/db",
            "begins with 'postgresql+nodriver', which is not a known kind",
        ),
        (f"mysql://me:{PASSWORD}@host/db", "needs MySQLdb, which is not installed"),
        (f"postgresql://me:{PASSWORD}@127.0.0.1:1/db", "the database '127.0.0.1/db' cannot be opened"),
        (f"postgres://me@127.0.0.1:1/db?password={PASSWORD}", "the database '127.0.0.1/db' cannot be opened"),
        (f"sqlite://me:{PASSWORD}@host/x.db", "the address of the SQLite database names no file"),
        ("sqlite://", "the address of the SQLite database names no file"),
    ],
)
def test_an_address_that_leads_nowhere_is_told_in_one_sentence(url: str, told: str) -> None:
    with pytest.raises(sf.SfumatoError) as error:
        Database(url, "patients").rows()
    assert told in message(error)


@pytest.mark.parametrize("url", ["https://host/d.csv", "file:///d.csv", "oracel://host/db"])
def test_the_kind_of_database_is_checked_before_a_table_is_named(url: str) -> None:
    with pytest.raises(sf.errors.InputError, match=r"not a known kind of database .*for a file, give its path"):
        Database(url, "")


def test_a_wrong_password_is_told_and_never_shown(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database("guarded", PASSWORD)
    assert Database(url, "pg_catalog.pg_class").rows() > 0
    with pytest.raises(sf.errors.InputError) as error:
        Database(url, "patients").rows()
    assert "has no table 'patients'" in message(error)
    wrong = Database(url.replace(PASSWORD, PASSWORD[::-1]), "patients")
    with pytest.raises(sf.errors.InputError) as error:
        wrong.rows()
    assert "cannot be opened (check that it is running, and its name, the user and the password)" in message(error)
    assert PASSWORD[::-1] not in message(error)


def test_the_password_is_in_nothing_that_is_shown() -> None:
    database = Database(f"postgresql://me:{PASSWORD}@host/db?password={PASSWORD}&sslpassword={PASSWORD}", "patients")
    assert repr(database) == str(database) == "Database('host/db', 'patients')"


def test_without_permission_it_says_so(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database("guarded", PASSWORD)
    owner = url.replace(f"guarded:{PASSWORD}", "postgres:")
    execute(owner, "CREATE TABLE secrets (x int)")
    with pytest.raises(sf.errors.InputError) as error:
        Database(url, "secrets").rows()
    assert message(error).endswith("does not permit this user to do it")


def test_a_cancelled_query_is_told(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    name = url.split("/")[3].split("?")[0]
    postgres_server.execute(f"ALTER DATABASE {name} SET statement_timeout = 200")
    execute(url, "CREATE VIEW slow AS SELECT 1 AS x WHERE pg_sleep(600)::text = ''")
    with pytest.raises(sf.errors.InputError, match=f"the database 'localhost/{name}' cancelled the query"):
        Database(url, "slow").read()


def test_reading_cannot_write(database_url: str) -> None:
    database = Database(database_url, "patients")
    store(database_url, "patients", PATIENTS)
    with pytest.raises(sf.errors.InputError, match="does not permit writing"), database.connect() as connection:
        connection.exec_driver_sql("DELETE FROM patients")
    assert database.rows() == 3


def test_a_view_that_writes_cannot(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(
        url,
        "CREATE TABLE log (x int)",
        "CREATE FUNCTION noted() RETURNS int LANGUAGE sql AS 'INSERT INTO log VALUES (1) RETURNING x'",
        "CREATE VIEW noting AS SELECT noted() AS x",
    )
    with pytest.raises(sf.errors.InputError, match="does not permit writing"):
        Database(url, "noting").read()
    assert Database(url, "log").rows() == 0


def test_a_server_that_is_stopped_is_told() -> None:
    with running() as server:
        database = Database(server.fresh_database(), "pg_catalog.pg_class")
        told = f"the database '{database.place}' closed the connection while it was read"
        with pytest.raises(sf.errors.InputError, match=told), database.connect() as connection:  # noqa: PT012
            server.stop()
            connection.exec_driver_sql("SELECT 1")
        with pytest.raises(sf.errors.InputError, match=f"the database '{database.place}' cannot be opened"):
            database.rows()


def _sqlite(folder: Path, declared: str, values: str) -> Database:
    with closing(sqlite3.connect(folder / "x.db")) as connection:
        connection.execute(f"CREATE TABLE t (x {declared})")
        connection.execute(f"INSERT INTO t VALUES {values}")
        connection.commit()
    return Database(f"sqlite:///{folder / 'x.db'}", "t")
