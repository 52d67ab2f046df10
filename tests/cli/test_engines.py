"""The command line counts tables wherever they are, with the engine that is asked for, and shows progress."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import sfumato as sf
from tests.postgres import PASSWORD, PostgresServer, execute, store

Run = Callable[..., Any]

PEOPLE = pl.DataFrame({"age": [30, 30, 41, 41], "sex": ["f", "f", "m", "m"], "disease": ["flu", "ulcer", "flu", "flu"]})
OPTIONS = ("--qi", "age,sex", "--sensitive", "disease", "--json")


@pytest.mark.parametrize("engine", ["auto", "memory", "duckdb"])
@pytest.mark.parametrize("ending", ["csv", "parquet", "duckdb"])
def test_a_file_is_counted_where_its_rows_are_or_here(sfumato: Run, engine: str, ending: str) -> None:
    if ending == "duckdb":
        with duckdb.connect("t.duckdb") as connection:
            connection.register("rows", PEOPLE.to_arrow())
            connection.execute("CREATE TABLE people AS SELECT * FROM rows")
    else:
        sf.write(PEOPLE, f"t.{ending}")
    ran = sfumato("assess", f"t.{ending}", *OPTIONS, "--engine", engine)
    if engine == "duckdb" and ending != "duckdb":
        assert (ran.code, ran.out) == (2, "")
        assert "the engine duckdb counts a DuckDB relation or a .duckdb file, and this table is a file" in ran.err
        return
    assert (ran.code, ran.json["k"], ran.json["l"]) == (0, 2, 1)


def test_a_database_is_named_by_its_address(sfumato: Run, postgres_server: PostgresServer) -> None:
    url = postgres_server.fresh_database()
    store(url, 'the "patients"; --', PEOPLE)
    execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guarded")
    url = url.replace("postgres:@", f"guarded:{PASSWORD}@")
    ran = sfumato("assess", url, "--table", 'the "patients"; --', *OPTIONS, "--report", "page.html")
    assert (ran.code, ran.json["k"], ran.json["l"]) == (0, 2, 1)
    assert PASSWORD not in ran.out + ran.err + Path("page.html").read_text()
    assert "the &#34;patients&#34;; --" in Path("page.html").read_text()
    ran = sfumato("schema", url, "--table", 'the "patients"; --', "--json")
    assert list(ran.json["columns"]) == PEOPLE.columns


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["t.csv", "--engine", "sql"], "the engine sql counts a table of a database that is named by its URL"),
        (["t.csv", "--engine", "hadoop"], "'hadoop' is not one of 'auto', 'memory', 'duckdb', 'sql'"),
        (["t.csv", "--table", "people"], "a table can be named only for a database, and 't.csv' is a file"),
        (["adult", "--table", "people"], "'adult' is built in"),
        (["sqlite:///absent.db", "--table", "people"], "there is no file 'absent.db'"),
        (["sqlite:///some.db"], "no table of the database is named (give its name with table / --table)"),
        (["sqlite:///some.db", "--table", "people", "--na", "?"], "apply to files, not to databases"),
        (["oracel://host/db", "--table", "people"], "begins with 'oracel', which is not a known kind"),
    ],
)
def test_a_wrong_place_or_engine_is_one_sentence(sfumato: Run, arguments: list[str], said: str) -> None:
    PEOPLE.write_csv("t.csv")
    Path("some.db").touch()
    ran = sfumato("assess", *arguments, "--qi", "age")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("command", [("assess", "--qi", "age", "--report"), ("schema", "-o")])
def test_a_database_that_is_read_is_not_written_over(sfumato: Run, command: tuple[str, ...]) -> None:
    Path("clinic.db").touch()
    store("sqlite:///clinic.db", "people", PEOPLE)
    before = Path("clinic.db").read_bytes()
    ran = sfumato(command[0], "sqlite:///clinic.db", "--table", "people", *command[1:], "clinic.db")
    assert (ran.code, Path("clinic.db").read_bytes()) == (2, before)
    assert "'clinic.db' is read and cannot be written too" in ran.err
    ran = sfumato("assess", "clinic.db", "--table", "people", "--qi", "age")
    assert "give an SQLite file as sqlite:///clinic.db" in ran.err


def test_the_population_may_be_in_a_database(sfumato: Run) -> None:
    PEOPLE.write_csv("t.csv")
    Path("clinic.db").touch()
    store("sqlite:///clinic.db", "everyone", pl.concat([PEOPLE, PEOPLE]))
    arguments = ("assess", "t.csv", "--qi", "age,sex", "--json", "--population", "sqlite:///clinic.db")
    assert "give --population-table" in sfumato(*arguments).err
    ran = sfumato(*arguments, "--population-table", "everyone")
    assert ran.json["risk"]["journalist"]["k_map"] == 4


def test_the_schema_of_a_large_text_file_has_its_kinds(sfumato: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.data import table

    PEOPLE.write_csv("t.csv")
    expected = sfumato("schema", "t.csv", "--json").json
    monkeypatch.setattr(table, "_AT_ONCE", 0)
    assert sfumato("schema", "t.csv", "--json").json == expected
    assert sfumato("assess", "t.csv", *OPTIONS).json["k"] == 2


def test_long_work_shows_a_bar_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PEOPLE.write_csv(tmp_path / "t.csv")
    program = (
        "from sfumato.cli import progress; progress._MOMENT = 0.0\n"
        "from sfumato.cli.main import main; main(['assess', 't.csv', '--qi', 'age', '--json'])"
    )
    monkeypatch.chdir(tmp_path)
    here, there = pty.openpty()
    with os.fdopen(os.open("out.json", os.O_WRONLY | os.O_CREAT), "w") as out:
        process = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", program],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, there, 2)],
        )
        os.close(there)
        shown = b""
        while part := _read(here):
            shown += part
        os.close(here)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert b"Counting" in shown
    assert b"100 %" in shown
    assert Path("out.json").read_text().startswith('{"rows": 4')


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1024)
    except OSError:  # how a terminal says that the other side has gone
        return b""
