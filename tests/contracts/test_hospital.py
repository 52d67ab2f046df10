"""A hospital's first day: one command per step, from an extract as people have it to a release that tells nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato as sf
from tests.conftest import Ran
from tests.hospital import LANGUAGES, Extract, extract

Run = Callable[..., Ran]


def _saved(language: str) -> Extract:
    """Save an extract as a hospital's program would in this country."""
    made = extract(language, people=200)
    separator, encoding = (",", "utf-8") if language == "en" else (";", "cp1252")
    Path("extract.csv").write_bytes(made.text(separator).encode(encoding))
    return made


def _none_found(folder: Path, planted: tuple[str, ...]) -> None:
    for file in folder.iterdir() if folder.is_dir() else [folder]:
        text = file.read_bytes().decode("utf-8", "replace")
        found = [secret for secret in planted if secret in text]
        assert not found, f"{file.name} holds {len(found)} planted values, such as {found[0]!r}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_extract_becomes_a_release_in_which_nobody_is_found(sfumato: Run, language: str) -> None:
    made = _saved(language)
    assert sfumato("schema", "extract.csv", "-o", "schema.toml").code == 0
    schema = sf.Schema.load("schema.toml")
    hidden = [made.column(name) for name in ("patient_id", "name", "email", "phone", "note")]
    assert set(hidden) <= set(schema.identifiers)
    assert sfumato("assess", "extract.csv", "--schema", "schema.toml", "--report", "page.html").code == 0
    _none_found(Path("page.html"), made.planted)
    ran = sfumato("anonymize", "extract.csv", "--schema", "schema.toml", "--k", "5", "-o", "release")
    assert ran.code == 0, ran.err
    assert "order of the rows          shuffled" in ran.out
    assert sfumato("verify", "release").code == 0
    _none_found(Path("release"), made.planted)
    page = Path("release", "report.html").read_text(encoding="utf-8")
    for name in ("hba1c", "creatinine"):  # what is released as it is
        assert made.column(name) in page


def test_identifiers_become_tokens_and_come_back_byte_for_byte(sfumato: Run) -> None:
    made = _saved("de")
    hidden = ",".join(made.column(name) for name in ("patient_id", "name"))
    assert sfumato("key", "new", "a.key").code == 0
    method = ["--columns", hidden, "--method", "encrypted", "--key", "a.key"]
    assert sfumato("pseudonymize", "extract.csv", *method, "-o", "tokens.csv").code == 0
    tokens = Path("tokens.csv").read_bytes().decode("cp1252")
    at = [made.header.index(made.column(name)) for name in ("patient_id",)]
    assert not [row for row in made.rows if any(row[one] in tokens for one in at)]
    assert sfumato("pseudonymize", "tokens.csv", *method, "--reverse", "-o", "back.csv").code == 0
    assert Path("back.csv").read_bytes() == Path("extract.csv").read_bytes()
