"""Every method runs where the data lives: count there, decide here, recode there by a join; the release is the same."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.data.io.database import Database
from sfumato.data.io.source import File
from sfumato.engines import Recoding, recode, reduce

duckdb = pytest.importorskip("duckdb")

DRAW = np.random.default_rng(1)
ROWS = pl.DataFrame(
    {
        "age": DRAW.integers(20, 65, 300),
        "sex": DRAW.choice(["f", "m"], 300),
        "zip": DRAW.choice(["10", "11", "12", "13"], 300),
        "disease": DRAW.choice(["flu", "ulcer", "cancer"], 300),
        "visit": DRAW.integers(0, 50, 300),
    }
)
ROLES: dict[str, Any] = {"qi": ["age", "sex", "zip"], "sensitive": ["disease"]}
METHODS = {
    "mondrian": lambda: sf.Mondrian(),
    "relaxed": lambda: sf.Mondrian(strict=False),
    "hilbert": lambda: sf.Hilbert(),
    "rplus": lambda: sf.RPlus(),
    "lattice": lambda: sf.Lattice(suppress=0.1),
    "microaggregate": lambda: sf.Microaggregate(),
    "suppress": lambda: sf.LocalSuppression(),
    "guided": lambda: sf.Guided(labels="visit"),
}
STAY = [name for name in METHODS if name not in ("relaxed", "guided")]


@pytest.fixture
def relation() -> Iterator[Any]:
    connection = duckdb.connect()
    connection.register("rows", ROWS.to_arrow())
    connection.execute("CREATE TABLE patients AS SELECT * FROM rows")
    yield connection.table("patients")
    connection.close()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    with sqlite3.connect(tmp_path / "clinic.db") as clinic:
        clinic.execute("CREATE TABLE patients (age INTEGER, sex TEXT, zip TEXT, disease TEXT, visit INTEGER)")
        clinic.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?)", ROWS.rows())
    clinic.close()
    return Database(f"sqlite:///{tmp_path / 'clinic.db'}", "patients")


def rows_of(release: sf.Release) -> Counter[tuple[str, ...]]:
    frame = release.table.to_polars() if release.table.is_lazy else release.table.frame
    return Counter(tuple(map(str, row)) for row in pl.DataFrame(frame).select(ROWS.columns).rows())


def here(name: str) -> sf.Release:
    return sf.anonymize(ROWS, "k=5", method=METHODS[name](), **ROLES)


@pytest.mark.parametrize("name", METHODS)
def test_a_duckdb_relation_gives_the_same_release(name: str, relation: Any) -> None:
    release = sf.anonymize(relation, "k=5", method=METHODS[name](), **ROLES)
    assert release.assessment.k >= 5
    assert release.table.is_lazy == (name in STAY)
    assert rows_of(release) == rows_of(here(name))
    assert release.loss.gcp == pytest.approx(here(name).loss.gcp)


@pytest.mark.parametrize("name", METHODS)
def test_a_duckdb_file_gives_the_same_release(name: str, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as clinic:
        clinic.register("rows", ROWS.to_arrow())
        clinic.execute("CREATE TABLE patients AS SELECT * FROM rows")
    release = sf.anonymize(tmp_path / "clinic.duckdb", "k=5", method=METHODS[name](), **ROLES)
    assert release.table.is_lazy == (name in STAY)
    assert rows_of(release) == rows_of(here(name))


def test_a_duckdb_file_gets_no_new_table(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as clinic:
        clinic.register("rows", ROWS.to_arrow())
        clinic.execute("CREATE TABLE patients AS SELECT * FROM rows")
        with pytest.raises(sf.errors.FileError, match="this process has it open already"):
            sf.read(tmp_path / "clinic.duckdb")
    with pytest.raises(sf.errors.OptionError, match=r"is opened for reading.*duckdb\.connect"):
        sf.anonymize(tmp_path / "clinic.duckdb", "k=5", to="released", **ROLES)
    sf.anonymize(tmp_path / "clinic.duckdb", "k=5", to=tmp_path / "released.parquet", **ROLES)
    assert sf.assess(tmp_path / "released.parquet", **ROLES).k >= 5


@pytest.mark.parametrize("name", STAY)
def test_a_database_gets_a_new_table_with_the_same_release(name: str, database: Database, tmp_path: Path) -> None:
    release = sf.anonymize(sf.Table(database), "k=5", method=METHODS[name](), to="released", **ROLES)
    assert isinstance(release.table.source, Database)
    assert release.assessment.k >= 5
    assert rows_of(release) == rows_of(here(name))
    with sqlite3.connect(tmp_path / "clinic.db") as clinic:
        assert {row[0] for row in clinic.execute("SELECT name FROM sqlite_master")} == {"patients", "released"}
    clinic.close()


def test_a_new_table_of_duckdb_can_be_named(relation: Any) -> None:
    release = sf.anonymize(relation, "k=5", to="released", **ROLES)
    assert rows_of(release) == rows_of(here("mondrian"))
    assert relation.query("r", "SELECT count(*) FROM released").fetchall() == [(300,)]


def test_the_release_does_not_change_with_its_source(relation: Any) -> None:
    release = sf.anonymize(relation, "k=5", **ROLES)
    before = rows_of(release)
    relation.query("r", "DELETE FROM patients WHERE sex = 'f'")
    assert rows_of(release) == before


@pytest.mark.parametrize("keep", [True, False])
def test_rows_are_shuffled_there_unless_their_order_is_kept(keep: bool, relation: Any) -> None:
    """By chance, 300 rows with 50 different visits stay in their order once in more than 10^400 times."""
    release = sf.anonymize(relation, "k=5", keep_order=keep, **ROLES)
    assert (pl.DataFrame(release.table.to_polars())["visit"].to_list() == ROWS["visit"].to_list()) == keep


def test_identifiers_are_left_out_and_unused_categories_do_not_leave(relation: Any) -> None:
    relation.query("r", "CREATE TYPE sexes AS ENUM ('f', 'm', 'Beeblebrox')")
    relation.query(
        "r", "CREATE TABLE typed AS SELECT age, CAST(sex AS sexes) AS sex, zip, disease, visit FROM patients"
    )
    typed = relation.query("r", "SELECT * FROM typed")
    release = sf.anonymize(typed, "k=5", qi=["age", "zip"], identifiers=["visit"])
    assert release.table.schema.names == ("age", "sex", "zip", "disease")
    assert "Beeblebrox" not in str(release.table.source.types)
    assert "Beeblebrox" not in str(release.table.schema.to_dict())


def test_a_release_that_lives_elsewhere_is_saved_and_verified(
    relation: Any, database: Database, tmp_path: Path
) -> None:
    for name, release in {
        "duckdb": sf.anonymize(relation, "k=5", **ROLES),
        "sqlite": sf.anonymize(sf.Table(database), "k=5", to="released", **ROLES),
    }.items():
        sf.save(release, tmp_path / name)
        assert sf.verify(tmp_path / name).ok


ELSEWHERE = {
    "duckdb": "a DuckDB relation or a .duckdb file",
    "sql": "a table of a database that is named by its URL",
    "spark": "a Spark frame",
}


@pytest.mark.parametrize("engine", ELSEWHERE)
@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "lazy", "pandas", "relation", "database"])
def test_no_engine_takes_rows_from_elsewhere(
    engine: str, kind: str, relation: Any, database: Database, tmp_path: Path
) -> None:
    if (engine, kind) in (("duckdb", "relation"), ("sql", "database")):
        return
    for ending in ("csv", "parquet"):
        sf.write(ROWS, tmp_path / f"t.{ending}")
    tables = {
        "csv": File(tmp_path / "t.csv"),
        "parquet": File(tmp_path / "t.parquet"),
        "polars": ROWS,
        "lazy": ROWS.lazy(),
        "pandas": ROWS.to_pandas(),
        "relation": relation,
        "database": database,
    }
    table = sf.Table(tables[kind])
    others = {"relation": "a DuckDB relation", "database": "a table of a database"}
    found = others.get(kind, "a file or a frame in memory")
    said = re.escape(
        f"the engine {engine} counts {ELSEWHERE[engine]}, and this table is {found} "
        f"(pass {ELSEWHERE[engine]}, or omit the engine: rows are counted where they are)"
    )
    with pytest.raises(sf.errors.OptionError, match=f"^{said}$"):
        sf.assess(table, qi=["age"], engine=engine)
    with pytest.raises(sf.errors.OptionError, match=f"^{said}$"):
        recode(table, Recoding(reduce(table, ["age"]), []), "released", engine=engine)
    assert sf.assess(table, qi=["age"]).rows == sf.assess(table, qi=["age"], engine="memory").rows == 300


def test_methods_run_in_spark(spark: Any) -> None:
    rows = spark.createDataFrame(ROWS.to_arrow())
    for name in ("hilbert", "lattice", "microaggregate"):
        release = sf.anonymize(rows, "k=5", method=METHODS[name](), **ROLES)
        assert type(release.table.frame).__module__.startswith("pyspark."), name
        assert release.assessment.k >= 5
        assert rows_of(release) == rows_of(here(name)), name
