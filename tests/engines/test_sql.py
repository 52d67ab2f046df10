from __future__ import annotations

import datetime as dt
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

import sfumato as sf
from sfumato.data.io.database import Database
from sfumato.engines import Memory, Recoding, Sql, Tuples, reduce
from tests.effort import effort
from tests.postgres import PASSWORD, PostgresServer, execute, running, store, tables

SCHEMA = {
    "text": pl.String(),
    "count": pl.Int64(),
    "weight": pl.Float64(),
    "rows": pl.Boolean(),
    "born": pl.Date(),
    "seen": pl.Datetime("us"),
}
TEXTS = st.one_of(
    st.sampled_from(["a", "A", "ä", "a ", " a", "", "ss", "ß", "é", "e\u0301", "NULL", "1", "01"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3),
)
VALUES = {
    "text": TEXTS,
    "count": st.sampled_from([0, 1, -1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63)]) | st.integers(-3, 3),
    "weight": st.sampled_from([0.0, -0.0, 0.1, 0.1 + 2**-56, 1e300, -5e-324, float("inf"), float("nan")]),
    "rows": st.booleans(),
    "born": st.sampled_from([dt.date(1, 1, 1), dt.date(1999, 12, 31), dt.date(9999, 12, 31)]),
    "seen": st.sampled_from([dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2020, 2, 29)]),
}
FRAMES = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), max_size=12).map(
    lambda rows: pl.DataFrame(rows, schema=SCHEMA, orient="row")
)
same_database = settings(max_examples=effort(12, 100), suppress_health_check=[HealthCheck.function_scoped_fixture])


def as_dict(tuples: Tuples) -> dict[tuple[Any, ...], int]:
    """The tuples of values and how often each occurs."""
    columns = [domain.values.gather(tuples.codes[:, at]).to_list() for at, domain in enumerate(tuples.domains)]
    return dict(zip(zip(*columns, strict=True), tuples.count.tolist(), strict=True))


def assert_same(ours: Tuples, theirs: Tuples) -> None:
    assert ours.codes.tolist() == theirs.codes.tolist()
    assert ours.count.tolist() == theirs.count.tolist()
    assert [domain.column for domain in ours.domains] == [domain.column for domain in theirs.domains]
    for mine, other in zip(ours.domains, theirs.domains, strict=True):
        assert mine.values.to_list() == other.values.to_list()
        assert mine.values.dtype == other.values.dtype or other.values.is_empty()


@same_database
@given(FRAMES)
def test_a_database_counts_like_memory(database_url: str, frame: pl.DataFrame) -> None:
    store(database_url, "people", frame)
    table = sf.Table(Database(database_url, "people"))
    assert_same(Sql().joint_count(table, frame.columns), Memory().joint_count(sf.Table(frame), frame.columns))
    for name in frame.columns:
        assert_same(Sql().count(table, name), Memory().count(sf.Table(frame), name))


@same_database
@given(FRAMES, st.data())
def test_a_database_recodes_like_memory(database_url: str, frame: pl.DataFrame, data: st.DataObject) -> None:
    frame = frame.with_row_index("id").cast({"id": pl.Int64})
    store(database_url, "people", frame)
    execute(database_url, "DROP TABLE IF EXISTS released")
    names = data.draw(st.lists(st.sampled_from(list(SCHEMA)), min_size=1, unique=True))
    table = sf.Table(Database(database_url, "people"))
    tuples = Sql().joint_count(table, names)
    size = len(tuples.count)
    becomes = [
        pl.Series(name, data.draw(st.lists(st.none() | VALUES[name], min_size=size, max_size=size)), SCHEMA[name])
        for name in names[:2]
    ] + [pl.Series(name, [f"tuple {number}" for number in range(size)], pl.String) for name in names[2:3]]
    recoding = Recoding(tuples, becomes)
    ours = Sql().recode(table, recoding, "released")
    theirs = Memory().recode(sf.Table(frame), recoding).frame
    if database_url.startswith("sqlite"):  # SQLite has no NaN
        theirs = theirs.with_columns(pl.col(pl.Float64).fill_nan(None))
    assert ours.frame.sort("id").equals(theirs, null_equal=True)
    assert tables(database_url) == {"people", "released"}
    assert Database(database_url, "people").rows() == len(frame)


def test_reduce_counts_where_the_table_is(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"sex": ["f", "m", "f"]}))
    tuples = reduce(sf.Table(Database(database_url, "people")), ["sex"], engine="sql")
    assert as_dict(tuples) == {("f",): 2, ("m",): 1}


def test_an_assessment_of_a_database_is_that_of_the_frame(database_url: str) -> None:
    frame = pl.DataFrame({"age": [30, 30, 41, 41, 41], "sex": ["f", "f", "m", "m", "m"], "ill": [*"abaab"]})
    store(database_url, "people", frame)
    roles: dict[str, Any] = {"qi": ["age", "sex"], "sensitive": ["ill"]}
    ours = sf.assess(sf.Table(Database(database_url, "people")), **roles).to_dict()
    assert ours == sf.assess(frame, **roles).to_dict()


def test_large_tables_stream_in_several_batches(database_url: str) -> None:
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 70000)"
    execute(database_url, "CREATE TABLE t (x BIGINT)", f"INSERT INTO t {numbers} SELECT x / 2 FROM n")
    shares: list[float] = []
    tuples = Sql().joint_count(sf.Table(Database(database_url, "t")), ["x"], shares.append)
    assert (len(tuples.count), tuples.count.sum(), tuples.count.max()) == (35001, 70000, 2)
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_an_empty_table_is_counted(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame(schema=SCHEMA))
    shares: list[float] = []
    tuples = Sql().joint_count(sf.Table(Database(database_url, "people")), list(SCHEMA), shares.append)
    assert (tuples.codes.shape, shares) == ((0, 6), [1.0])


def test_who_listens_may_stop_the_counting(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"x": [1]}))

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Sql().count(sf.Table(Database(database_url, "people")), "x", stop)


def test_a_collation_that_ignores_case_merges_nothing(tmp_path: Path) -> None:
    database = _sqlite(tmp_path, "CREATE TABLE t (x TEXT COLLATE NOCASE, y COLLATE RTRIM)", "('a', 'b'), ('A', 'b ')")
    table = sf.Table(database)
    tuples = Sql().joint_count(table, ["x", "y"])
    assert as_dict(tuples) == {("a", "b"): 1, ("A", "b "): 1}
    released = Sql().recode(table, Recoding(tuples, [pl.Series("x", ["first", "second"])]), "released")
    assert released.frame.sort("x").rows() == [("first", "b "), ("second", "b")]


def test_postgresql_compares_texts_byte_by_byte(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, "CREATE TABLE t (x char(3))", "INSERT INTO t VALUES ('a'), ('a  '), ('A')")
    table = sf.Table(Database(url, "t"))
    tuples = Sql().count(table, "x")
    assert as_dict(tuples) == {("A",): 1, ("a",): 2}
    released = Sql().recode(table, Recoding(tuples, [pl.Series("x", ["upper", "lower"])]), "released")
    assert sorted(released.frame["x"]) == ["lower", "lower", "upper"]


def test_sqlite_values_of_several_types_are_not_counted(tmp_path: Path) -> None:
    table = sf.Table(_sqlite(tmp_path, "CREATE TABLE t (x, y INTEGER)", "(1, 1), ('a', 2)"))
    with pytest.raises(sf.errors.ColumnError, match="column 'x' holds values of mixed or unknown types"):
        Sql().count(table, "x")
    assert Sql().count(table, "y").count.tolist() == [1, 1]


def test_equal_times_that_are_written_differently_are_not_counted_as_one(tmp_path: Path) -> None:
    values = "('2020-01-01 10:00'), ('2020-01-01T10:00:00'), ('2020-01-02')"
    table = sf.Table(_sqlite(tmp_path, "CREATE TABLE t (x DATETIME)", values))
    for engine in (Sql(), Memory()):
        with pytest.raises(sf.errors.ColumnError, match="column 'x' holds values of mixed or unknown types"):
            engine.count(table, "x")


def test_times_are_recoded_as_they_are_written(tmp_path: Path) -> None:
    values = "('2020-01-01T10:00'), ('2020-01-01T10:00'), ('2020-01-02T00:00')"
    table = sf.Table(_sqlite(tmp_path, "CREATE TABLE t (x DATETIME)", values))
    tuples = Sql().count(table, "x")
    assert tuples.count.tolist() == [2, 1]
    released = Sql().recode(table, Recoding(tuples, [pl.Series("x", ["early", "late"])]), "released")
    assert released.frame["x"].to_list() == ["early", "early", "late"]


def test_columns_that_are_not_recoded_keep_their_types(database_url: str, tmp_path: Path) -> None:
    own = "d DATE, z VARCHAR(5), n NUMERIC(6, 2), b BOOLEAN, t TIMESTAMP"
    own += ", free, blob BLOB" if database_url.startswith("sqlite") else ", p point, j jsonb, a int[]"
    execute(
        database_url,
        f"CREATE TABLE people (age INTEGER, {own})",
        "INSERT INTO people (age, d, z, n, t) VALUES (30, '2020-01-01', '01234', 1.50, '2020-01-01 10:00:00')",
    )
    table = sf.Table(Database(database_url, "people"))
    tuples = Sql().count(table, "age")
    released = Sql().recode(table, Recoding(tuples, [pl.Series("age", ["30-39"])]), "released")
    assert released.source.types() == table.source.types() | {"age": pl.String()}
    kept = ["d", "z", "n", "b", "t"]
    assert released.source.read(kept).equals(table.source.read(kept))


def test_a_tuple_that_came_after_the_counting_becomes_missing(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"age": [30, 50], "sex": ["f", "m"]}))
    table = sf.Table(Database(database_url, "people"))
    recoding = Recoding(Sql().count(table, "age"), [pl.Series("age", ["30-39", "50-59"])])
    execute(database_url, "INSERT INTO people VALUES (41, 'm')")
    released = Sql().recode(table, recoding, "released").frame
    assert sorted(released.rows(), key=str) == [("30-39", "f"), ("50-59", "m"), (None, "m")]


@pytest.mark.parametrize("name", ['the "best" table', "Robert'); DROP TABLE people;--", "50 %s :x", "größe", "a.b"])
def test_any_name_of_a_new_table_works(database_url: str, name: str) -> None:
    store(database_url, "people", pl.DataFrame({name: ["x"]}))
    table = sf.Table(Database(database_url, "people"))
    recoding = Recoding(Sql().count(table, name), [pl.Series(name, ["y"])])
    assert Sql().recode(table, recoding, name).frame[name].to_list() == ["y"]
    assert tables(database_url) == {"people", name}


def test_a_new_table_goes_into_the_schema_that_is_named(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, "CREATE SCHEMA clinic", "CREATE TABLE clinic.people (x int)", "INSERT INTO clinic.people VALUES (1)")
    table = sf.Table(Database(url, "clinic.people"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [2])])
    assert Sql().recode(table, recoding, "clinic.released").frame["x"].to_list() == [2]
    assert execute(url, "SELECT x FROM clinic.released") == [(2,)]


def test_an_existing_table_is_not_replaced(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"x": [1]}))
    store(database_url, "other", pl.DataFrame({"x": [2]}))
    table = sf.Table(Database(database_url, "people"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [3])])
    for name in ("people", "other"):
        with pytest.raises(sf.errors.OptionError, match=f"already has a table '{name}'"):
            Sql().recode(table, recoding, name)
    with pytest.raises(sf.errors.OptionError, match="a table in a database is recoded into a new table"):
        Sql().recode(table, recoding)
    assert Database(database_url, "other").read()["x"].to_list() == [2]
    assert tables(database_url) == {"people", "other"}


def test_a_name_that_would_be_cut_off_is_refused(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"x": [1]}))
    table = sf.Table(Database(database_url, "people"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [3])])
    for name in ("ä" * 5000, "no\0name"):
        with pytest.raises(sf.errors.OptionError, match="the name of a table must have at most"):
            Sql().recode(table, recoding, name)
    assert tables(database_url) == {"people"}


def test_who_may_not_write_is_told(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database("guarded", PASSWORD)
    owner = url.replace(f"guarded:{PASSWORD}", "postgres:")
    execute(owner, "CREATE TABLE t (x int)", "INSERT INTO t VALUES (1)", "GRANT SELECT ON t TO guarded")
    table = sf.Table(Database(url, "t"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [2])])
    with pytest.raises(sf.errors.InputError, match="does not permit this user to do it"):
        Sql().recode(table, recoding, "released")
    assert tables(owner) == {"t"}


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (pl.Series("x", ["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series("x", [None, None]), [None, None]),
        (pl.Series("x", [dt.time(1), dt.time(2)]), [dt.time(1), dt.time(2)]),
        (pl.Series("x", [1, 2], dtype=pl.UInt8), [1, 2]),
        (pl.Series("x", [1.5, None], dtype=pl.Float32), [1.5, None]),
        (pl.Series("x", [Decimal("1.50"), Decimal("2.25")]), [1.5, 2.25]),
    ],
)
def test_new_values_of_any_plain_type_are_stored(database_url: str, values: pl.Series, stored: list[object]) -> None:
    store(database_url, "people", pl.DataFrame({"x": [1, 2]}))
    table = sf.Table(Database(database_url, "people"))
    released = Sql().recode(table, Recoding(Sql().count(table, "x"), [values]), "released")
    assert set(released.frame["x"].to_list()) == set(stored)


def test_a_failure_in_the_last_step_leaves_nothing(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"x": [1, 2], "y": [1, -(2**63)]}))
    execute(database_url, "CREATE VIEW seen AS SELECT x, abs(y) AS y FROM people")  # the absolute value does not fit
    table = sf.Table(Database(database_url, "seen"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [3, 4])])
    before = tables(database_url)
    with pytest.raises(sf.errors.InputError) as error:
        Sql().recode(table, recoding, "released")
    assert "9223372036854775808" not in str(error.value)
    assert tables(database_url) == before


def test_values_that_no_database_holds_are_refused(database_url: str) -> None:
    store(database_url, "people", pl.DataFrame({"x": [1]}))
    table = sf.Table(Database(database_url, "people"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [[1, 2]])])
    with pytest.raises(sf.errors.ColumnError, match=r"the new values of 'x' have type List\(Int64\), which a database"):
        Sql().recode(table, recoding, "released")
    assert tables(database_url) == {"people"}


def test_a_file_or_a_frame_is_not_counted_in_a_database(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1]})
    frame.write_parquet(tmp_path / "x.parquet")
    frame.write_csv(tmp_path / "x.csv")  # a small one is read at once
    for table in (sf.Table(frame), sf.read(tmp_path / "x.parquet"), sf.read(tmp_path / "x.csv")):
        with pytest.raises(sf.errors.OptionError, match="and this table is a file or a frame in memory"):
            Sql().count(table, "x")


class Clinical(SQLiteDialect_pysqlite):
    """A database of another kind, for which nothing is known of how it compares texts: SQLite under another name."""

    name = "clinical"
    supports_statement_cache = True


def test_in_other_databases_texts_are_counted_in_memory(tmp_path: Path) -> None:
    sa.dialects.registry.register("clinical", __name__, "Clinical")
    _sqlite(tmp_path, "CREATE TABLE t (x TEXT, y INTEGER)", "('a', 1), ('A', 1), ('a', 2)")
    table = sf.Table(Database(f"clinical:///{tmp_path / 'x.db'}", "t"))
    with pytest.raises(sf.errors.OptionError) as error:
        reduce(table, ["x", "y"])
    assert str(error.value) == (
        "the sql engine compares texts byte by byte only in postgresql and sqlite, and 'x' holds texts in clinical "
        "(use engine='memory' / --engine memory, which reads the columns)"
    )
    assert as_dict(reduce(table, ["y"])) == {(1,): 2, (2,): 1}
    assert as_dict(reduce(table, ["x", "y"], engine="memory")) == {("a", 1): 1, ("A", 1): 1, ("a", 2): 1}
    assert sf.assess(table, qi=["x"], engine="memory").to_dict() == sf.assess(table.frame, qi=["x"]).to_dict()
    tuples = Memory().count(table, "x")
    recoded = Memory().recode(table, Recoding(tuples, [pl.Series("x", ["upper", "lower"])]))
    assert recoded.frame["x"].to_list() == ["lower", "upper", "lower"]


def test_a_connection_lost_while_counting_is_told(postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    execute(url, "CREATE TABLE t (x int)", "INSERT INTO t VALUES (1)")
    execute(url, "CREATE VIEW slow AS SELECT x FROM t WHERE pg_sleep(600)::text = ''")
    table = sf.Table(Database(url, "slow"))
    with terminated_in_sleep(url), pytest.raises(sf.errors.InputError) as error:
        Sql().count(table, "x")
    assert str(error.value) == (
        f"the database '{table.source.place}' closed the connection while it was read "
        "(run it again, or ask its administrator)"
    )


@pytest.mark.parametrize("statement", ["CREATE TEMPORARY TABLE", "CREATE TABLE"])
def test_a_connection_lost_while_recoding_leaves_nothing(postgres_server: PostgresServer, statement: str) -> None:
    url = postgres_server.fresh_database()
    sleepy = f"pg_sleep(CASE WHEN current_query() ~ '^\\s*{statement} ' THEN 600 ELSE 0 END)::text = ''"
    execute(url, "CREATE TABLE t (x int)", "INSERT INTO t VALUES (1)")
    execute(url, f"CREATE VIEW slow AS SELECT x FROM t WHERE {sleepy.replace(':', chr(92) + ':')}")
    table = sf.Table(Database(url, "slow"))
    recoding = Recoding(Sql().count(table, "x"), [pl.Series("x", [2])])
    with (
        terminated_in_sleep(url),
        pytest.raises(sf.errors.InputError, match="closed the connection while it was written"),
    ):
        Sql().recode(table, recoding, "released")
    assert tables(url) == {"t"}


def test_a_server_that_is_stopped_while_counting_is_told() -> None:
    with running() as server:
        url = server.fresh_database()
        execute(url, "CREATE VIEW slow AS SELECT 1 AS x WHERE pg_sleep(600)::text = ''")
        table = sf.Table(Database(url, "slow"))
        stopping = threading.Thread(target=lambda: (wait_for_sleep(url), server.stop()), daemon=True)
        stopping.start()
        with pytest.raises(sf.errors.InputError, match="closed the connection while it was read"):
            Sql().count(table, "x")
        stopping.join()


def wait_for_sleep(url: str, then: str = "SELECT 1") -> None:
    """Wait until another connection to the database sleeps, and do something."""
    with psycopg.connect(url, autocommit=True) as connection:
        sleeping = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        while not connection.execute(f"SELECT 1 {sleeping}").fetchall():
            time.sleep(0.01)
        connection.execute(f"{then} {sleeping}")


@contextmanager
def terminated_in_sleep(url: str) -> Iterator[None]:
    """Cut the connection of whoever sleeps in this database."""
    thread = threading.Thread(target=wait_for_sleep, args=(url, "SELECT pg_terminate_backend(pid)"), daemon=True)
    thread.start()
    yield
    thread.join()


def _sqlite(folder: Path, create: str, values: str) -> Database:
    with closing(sqlite3.connect(folder / "x.db")) as connection:
        connection.execute(create)
        connection.execute(f"INSERT INTO t VALUES {values}")
        connection.commit()
    return Database(f"sqlite:///{folder / 'x.db'}", "t")
