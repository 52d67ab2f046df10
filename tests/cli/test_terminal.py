"""Nothing of a stranger's file steers the terminal, whatever command prints it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from sfumato.cli.terminal import printable
from sfumato.data.io.source import File
from tests.conftest import Ran

Run = Callable[..., Ran]
EVIL = "\x1b]0;owned\x07\x9b31m\u202e\nAll claims hold.\x7f"
AGE, SEX, FREE = f"age{EVIL[:18]}", f"sex{EVIL[:18]}", f"free{EVIL}"
ROWS = {
    "a": [1] * 32,  # more commas than semicolons, so that the separator is found
    "b": [1] * 32,
    "c": [1] * 32,
    AGE: [20, 20, 21, 21, 60, 60, 61, 61] * 4,
    SEX: [f"f{EVIL}", "m"] * 16,
    FREE: [f"{row}{EVIL}" for row in range(32)],
}


def is_plain(text: str) -> bool:
    """Say whether a text holds nothing that a terminal obeys, apart from the ends of lines."""
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture(params=["t.csv", "t.parquet", "t.xlsx"])
def table(request: pytest.FixtureRequest, sfumato: Run) -> str:
    frame = pl.DataFrame(ROWS)
    if request.param.endswith(".csv"):
        frame.write_csv(request.param)
    elif request.param.endswith(".parquet"):
        frame.write_parquet(request.param)
    else:
        import openpyxl

        def cell(text: object) -> object:  # a sheet holds no other control characters
            return re.sub("[\x00-\x08\x0e-\x1f\x7f]", "", text) if isinstance(text, str) else text

        book = openpyxl.Workbook()
        for row in (frame.columns, *frame.rows()):
            book.active.append([cell(one) for one in row])
        book.save(request.param)
    return str(request.param)


def test_no_command_prints_what_a_terminal_obeys(table: str, sfumato: Run) -> None:
    *_, age, sex, free = File(Path(table)).read().columns
    qi = ["--qi", f'"{age}"', "--sensitive", f'"{sex}"']
    sfumato("key", "new", "key")
    commands = [
        ["assess", table, *qi, "--detail", "--report", "page.html"],
        ["assess", table, *qi, "--preset", "hipaa"],
        ["assess", table, "--qi", "aeg"],
        ["assess", table, "--qi", f'"{free}"', "--sensitive", f'"{free}"'],
        ["assess", f"no{EVIL}.csv", "--qi", "a"],
        ["schema", table],
        ["anonymize", table, *qi, "--k", "2", "-o", "release"],
        ["anonymize", table, *qi, "--k", "2", "--method", "lattice", "-o", "lattice"],
        ["anonymize", table, *qi, "--k", "100", "-o", "refused"],
        ["verify", "release"],
        ["mask", table, "--noise", f"{age}=1", "-o", "masked.csv"],
        ["pseudonymize", table, "--columns", f'"{free}"', "--key", "key", "-o", "tokens.csv"],
        ["perturb", table, "--columns", f'"{sex}"', "--domain", f"{sex}=f{EVIL},m", "--epsilon", "1", "-o", "p.csv"],
        ["train", table, "--target", sex, "--model", "naive-bayes", "--epsilon", "none", "-o", "models"],
        ["train", table, "--target", "sxe", "--model", "naive-bayes", "--epsilon", "1", "-o", "models"],
        ["budget", "grant", table, "--epsilon", "100", "--delta", "1e-5"],
        ["budget", "history", table],
        ["query", table, f'count by "{sex}"', "--domain", f"{sex}=f,m{EVIL}", "--epsilon", "1"],
    ]
    for command in commands:
        for more in ([], ["--json"], ["--debug"]):
            ran = sfumato(*command, *more)
            assert is_plain(ran.out), (command, more)
            assert is_plain(ran.err), (command, more)
            assert "--debug" in more or "\nAll claims hold." not in ran.out + ran.err, (command, more)
            for output in ("release", "lattice"):  # to be made anew
                if more != ["--debug"] and Path(output).exists() and command[-1] == output:
                    Path(output).rename(f"{output} {len(list(Path().iterdir()))}")


def test_what_is_not_plain_text_is_shown_as_its_escape() -> None:
    assert printable(EVIL) == r"\x1b]0;owned\x07\x9b31m\u202e\nAll claims hold.\x7f"
    assert printable("Größe, 身長 \N{NO-BREAK SPACE}😀") == "Größe, 身長 \N{NO-BREAK SPACE}😀"


def test_commands_print_through_one_place() -> None:
    import sfumato.cli

    for module in Path(sfumato.cli.__file__).parent.rglob("*.py"):
        prints = re.findall(r"(?:click\.s?echo|click\.style|(?<![\w.])print)\([^\n]*", module.read_text())
        allowed = ("click.echo(ctx.get_help())", "click.echo(json.dumps(")
        assert module.name == "terminal.py" or all(one.startswith(allowed) for one in prints), module.name
