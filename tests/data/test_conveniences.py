"""What people try first works, and wrong types get our own errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf

ROWS = pl.DataFrame({"age": [1, 2, 3, 4] * 5, "ill": ["a", "b"] * 10})
ROLES: dict[str, Any] = {"qi": ["age"], "sensitive": ["ill"]}


def test_guarantees_by_name_as_a_mapping_and_as_a_text_are_the_same() -> None:
    asked = [
        sf.anonymize(ROWS, "k=2,l=2", **ROLES),
        sf.anonymize(ROWS, {"k": 2, "l": 2}, **ROLES),
        sf.anonymize(ROWS, k=2, l=2, **ROLES),
        sf.anonymize(ROWS, "k=2", l=2, **ROLES),
    ]
    assert {release.guarantees for release in asked} == {(sf.KAnonymity(2), sf.LDiversity(2))}
    assert sf.assess(ROWS, **ROLES, require={"k": 2}).satisfied


def test_a_schema_can_be_a_mapping() -> None:
    expected = sf.Schema([sf.Column(name="age", role="quasi"), sf.Column(name="ill", domain=["a", "b"])])
    for given in ({"age": "quasi", "ill": {"domain": ["a", "b"]}}, expected.to_dict(), list(expected.columns)):
        assert sf.Schema.of(given) == expected
    assert sf.anonymize(ROWS, k=2, schema={"age": "quasi"}).k >= 2


def test_a_ledger_that_is_open_can_be_given(tmp_path: Path) -> None:
    with sf.Ledger.grant(ROWS, epsilon=2, path=tmp_path / "a.ledger") as ledger:
        sf.query(ROWS, "count", epsilon=1, ledger=ledger)
        assert ledger.spent.epsilon == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sf.anonymize(ROWS, 5, **ROLES),
        lambda: sf.anonymize(ROWS, **ROLES),
        lambda: sf.anonymize(ROWS, "k=2", k=3, **ROLES),
        lambda: sf.anonymize(ROWS, k="many", **ROLES),
        lambda: sf.anonymize(5, k=5),
        lambda: sf.assess(ROWS, qi=5),
        lambda: sf.assess(ROWS, qi=[5]),
        lambda: sf.assess(ROWS, **ROLES, require=5),
        lambda: sf.assess(ROWS, schema=5),
        lambda: sf.Schema([5]),
        lambda: sf.Schema.of({"age": 5}),
        lambda: sf.query(ROWS, "count", epsilon=1, ledger=5),
    ],
)
def test_a_wrong_type_gets_our_error(call: Callable[[], Any]) -> None:
    with pytest.raises(sf.errors.InputError):
        call()


def test_a_report_can_be_written_of_an_assessment_and_of_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sf.write_report(sf.assess(ROWS, **ROLES), "assessment.html")
    sf.write_report(sf.anonymize(ROWS, k=2, **ROLES))
    pages = [Path(name).read_text("utf-8") for name in ("assessment.html", "report.html")]
    assert "Anonymity assessment" in pages[0]
    assert "before and after" in pages[1]
    with pytest.raises(
        sf.errors.OptionError,
        match="a report needs an assessment, a release, an evaluation, a frontier or attacks, got DataFrame",
    ):
        sf.write_report(ROWS)
