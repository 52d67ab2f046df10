"""Whatever is changed in a release, its verification says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.data.certificate import FileFacts

ROWS = pl.DataFrame(
    {
        "age": [20 + number % 20 for number in range(40)],
        "sex": ["f", "m"] * 20,
        "disease": ["flu", "ulcer", "flu", "cancer"] * 10,
        "stay": [1.5 * (number % 7) for number in range(40)],
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFUMATO_HOME", str(folder / "home"))
        ROWS.write_csv(folder / "patients.csv")
        for format in ("csv", "parquet"):
            release = sf.anonymize(folder / "patients.csv", "k=4,l=2", qi=["age", "sex"], sensitive=["disease", "stay"])
            sf.save(release, folder / format, format=format)
        sf.save(sf.anonymize(ROWS, "k=8", qi=["age"], sensitive=["disease"]), folder / "other", format="csv")
    return folder


@pytest.fixture(params=["csv", "parquet"])
def release(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / request.param, tmp_path / "release"))


def certificate(release: Path) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads((release / "certificate.json").read_text())
    return plain


def certify(release: Path, plain: dict[str, Any]) -> None:
    (release / "certificate.json").write_text(json.dumps(plain))


def data(release: Path) -> Path:
    return next(release.glob("table.*"))


def rewrite(release: Path, change: Callable[[pl.DataFrame], pl.DataFrame], *, bind: bool) -> None:
    """Change the data; and, as a forger would, what the certificate says of the file."""
    file = data(release)
    frame = change(sf.read(file).frame)
    frame.write_csv(file) if file.suffix == ".csv" else frame.write_parquet(file)
    if bind:
        plain = certificate(release)
        plain["files"][file.name] = FileFacts.of(file).to_dict()
        certify(release, plain)


def failing(release: Path) -> list[str]:
    verdict = sf.verify(release)
    assert verdict.ok == (not [claim for claim in verdict.claims if not claim.held])
    return [claim.claim for claim in verdict.claims if not claim.held]


def one_cell(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(disease=pl.Series(["rare", *frame["disease"][1:]]))


def one_age(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(age=pl.Series(["[99, 100]", *frame["age"][1:]]))


def a_row_more(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame, frame.head(1)])


def test_an_untouched_release_holds(release: Path) -> None:
    assert failing(release) == []


@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("change", [one_cell, one_age, a_row_more])
def test_a_change_of_the_data_is_caught(
    change: Callable[[pl.DataFrame], pl.DataFrame], bind: bool, release: Path
) -> None:
    rewrite(release, change, bind=bind)
    failed = failing(release)
    assert failed
    assert (f"{data(release).name} is the file that was released" in failed) != bind
    if change is one_age:
        assert "k=4" in failed  # one row alone
    if change is a_row_more:
        assert "rows is 40" in failed


@pytest.mark.parametrize("guarantee", ["k", "l"])
def test_a_raised_guarantee_is_caught(guarantee: str, release: Path) -> None:
    plain = certificate(release)
    for one in plain["guarantees"]:
        one[guarantee] = one.get(guarantee, 0) and 30
    plain["guarantees"] = [{k: v for k, v in one.items() if v} for one in plain["guarantees"]]
    certify(release, plain)
    assert f"{guarantee}=30" in failing(release)


def test_every_raised_number_is_caught(release: Path) -> None:
    claims = certificate(release)["claims"]
    assert {"k", "l", "t", "rows", "entropy_l", "delta_disclosure"} <= set(claims)
    for name, value in claims.items():
        plain = certificate(release)
        plain["claims"][name] = 0.25 if value == "inf" else value + 0.25
        certify(release, plain)
        assert len(failing(release)) == 1, name
        plain["claims"] = claims
        certify(release, plain)


def test_a_claim_that_is_left_out_is_missed(release: Path) -> None:
    plain = certificate(release)
    del plain["claims"]["k"]
    plain["guarantees"] = []
    certify(release, plain)
    assert failing(release) == ["something is guaranteed", "k is claimed"]


def test_a_truncated_file_is_caught(release: Path) -> None:
    for file in list(release.iterdir()):
        if file.name != "certificate.json":
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 2])
            assert f"{file.name} is the file that was released" in failing(release)
            file.write_bytes(whole)
    assert failing(release) == []


def test_a_missing_and_a_foreign_file_are_caught(release: Path) -> None:
    (release / "notes.txt").write_text("mine")
    data(release).unlink()
    failed = failing(release)
    assert "nothing else is in the folder" in failed
    assert "the data can be measured" in failed


def test_data_of_another_format_is_caught(release: Path) -> None:
    file = data(release)
    file.write_bytes(ROWS.write_csv().encode() if file.suffix == ".parquet" else b"PAR1\x00\xff\x00PAR1")
    assert "the data can be measured" in failing(release) or "rows is 40" in failing(release)


def test_the_certificate_of_another_release_is_caught(release: Path, made: Path) -> None:
    shutil.copy(made / "other" / "certificate.json", release)
    assert failing(release)


def test_a_certificate_of_another_version_is_refused(release: Path) -> None:
    certify(release, certificate(release) | {"format": 99})
    with pytest.raises(sf.FileError, match="format 99, and this version of Sfumato reads format 1"):
        sf.verify(release)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "no JSON"), ("[]", "no certificate"), ('{"format": 1}', "'kind' is missing"), ("[" * 100_000, "no JSON")],
)
def test_a_damaged_certificate_is_refused(text: str, message: str, release: Path) -> None:
    (release / "certificate.json").write_text(text)
    with pytest.raises(sf.FileError, match=message):
        sf.verify(release)


def test_every_field_of_a_certificate_is_needed_and_checked(release: Path) -> None:
    whole = certificate(release)
    for name in whole:
        for wrong in (None, 7, []):
            if type(wrong) is type(whole[name]):
                continue
            certify(release, {**whole, name: wrong})
            with pytest.raises(sf.SfumatoError):
                sf.verify(release)


@pytest.mark.parametrize("name", ["../patients.csv", "/etc/passwd", "..", ""])
def test_a_certificate_cannot_point_outside_its_folder(name: str, release: Path) -> None:
    whole = certificate(release)
    for plain in (whole | {"data": name}, whole | {"files": {name: {"bytes": 1, "sha256": "0"}}}):
        certify(release, plain)
        with pytest.raises(sf.FileError, match="outside its folder"):
            sf.verify(release)
    whole["schema"]["columns"]["disease"]["hierarchy"] = "/etc/passwd"
    certify(release, whole)
    with pytest.raises(sf.FileError, match="outside its folder"):
        sf.verify(release)


def test_the_source_is_known_to_its_maker_alone(made: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(made / "home"))
    assert sf.verify(release, source=made / "patients.csv")
    assert not sf.verify(release, source=data(release))
    monkeypatch.setenv("SFUMATO_HOME", str(release.parent / "home"))
    assert not sf.verify(release, source=made / "patients.csv")
    with pytest.raises(sf.OptionError, match="no fingerprint"):
        sf.verify(made / "other", source=made / "patients.csv")


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(sf.FileError, match="is no release"):
            sf.verify(path)
