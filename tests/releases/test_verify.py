"""Whatever is changed in a release, its verification says so."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sfumato as sf
from sfumato.data.certificate import FileFacts
from tests.forgery import bind, change_json, change_text, unchecked

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
    assert verdict.ok == (not [claim for claim in verdict.claims if claim.held is False])
    return [claim.claim for claim in verdict.claims if claim.held is False]


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
    assert failing(release) == ["the recipe says the same", "something is guaranteed", "k is claimed"]


def test_a_number_that_nothing_measures_is_no_claim_that_holds(release: Path) -> None:
    plain = certificate(release)
    plain["claims"]["privacy"] = None
    certify(release, plain)
    assert failing(release) == ["privacy is not measured"]


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
    with pytest.raises(sf.errors.FileError, match="format 99, and this version of Sfumato reads format 1"):
        sf.verify(release)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a certificate"),
        ('{"format": 1}', "'kind' is missing"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_damaged_certificate_is_refused(text: str, message: str, release: Path) -> None:
    (release / "certificate.json").write_text(text)
    with pytest.raises(sf.errors.FileError, match=message):
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


@pytest.mark.parametrize("old", ['"claims": {', '"disease": {'])
def test_what_stands_twice_in_a_certificate_is_refused(old: str, release: Path) -> None:
    """A person reads the first, a program the last."""
    path = release / "certificate.json"
    path.write_text(path.read_text().replace(old, f'{old}"k": 1, "k": 2, ', 1))
    with pytest.raises(sf.errors.FileError, match="duplicate keys"):
        sf.verify(release)


@pytest.mark.parametrize("number", [10**400, 1e308 * 10, float("nan"), True])
def test_a_number_that_no_file_and_no_table_has_is_no_claim_that_holds(number: Any, release: Path) -> None:
    for place in ("claims", "files", "guarantees", "bounds"):
        plain = certificate(release)
        if place == "claims":
            plain["claims"]["k"] = number
        elif place == "files":
            plain["files"][data(release).name]["bytes"] = number
        elif place == "guarantees":
            plain["guarantees"][0]["k"] = number
        else:
            plain["schema"]["columns"]["stay"]["bounds"] = [number, 0]
        certify(release, plain)
        try:
            assert not sf.verify(release).ok
        except sf.SfumatoError:
            continue


def named(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(name=pl.Series([f"person {number}" for number in range(len(frame))]))


def test_a_column_that_the_certificate_hides_is_caught(release: Path) -> None:
    rewrite(release, named, bind=True)
    assert failing(release) == ["the certificate names all columns"]
    plain = certificate(release)
    plain["schema"]["columns"]["name"] = {"role": "identifier", "kind": "auto"}
    certify(release, plain)
    assert failing(release) == ["the recipe says the same", "no identifier is released"]


def test_a_promise_that_was_lowered_in_the_certificate_alone_is_caught(release: Path) -> None:
    whole = certificate(release)
    certify(release, whole | {"guarantees": whole["guarantees"][:1]})
    assert failing(release) == ["the recipe says the same"]
    certify(release, whole | {"method": "lattice"})
    assert failing(release) == ["the recipe says the same"]
    whole["schema"]["columns"]["stay"]["role"] = "other"
    certify(release, whole)
    assert "the recipe says the same" in failing(release)


def test_a_recipe_of_a_release_reads_no_other_file(release: Path) -> None:
    plain, recipe = certificate(release), release / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('kind = "category"', 'hierarchy = "/etc/passwd"', 1))
    plain["files"]["recipe.toml"] = FileFacts.of(recipe).to_dict()
    certify(release, plain)
    claim = next(claim for claim in sf.verify(release).claims if claim.held is False)
    assert "must be a list" in str(claim.measured)


def test_a_guarantee_of_some_values_is_told_from_one_of_all(tmp_path: Path) -> None:
    asked = [sf.KAnonymity(4), sf.measures.AlphaK(0.9, k=2, values=("flu",)), sf.TCloseness(0.9, distance="equal")]
    sf.save(sf.anonymize(ROWS, asked, qi=["age"], sensitive=["disease"]), tmp_path / "release")
    told = [claim.claim for claim in sf.verify(tmp_path / "release").claims]
    assert {"k=4", "alpha=0.9,k=2 (values: flu)", "t=0.9 (distance: equal)"} <= set(told)


@pytest.mark.skipif(os.name != "posix", reason="links and pipes are of POSIX systems")
@pytest.mark.parametrize("name", ["table", "recipe", "report", "certificate"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_of_the_folder_is_not_read(name: str, kind: str, release: Path, tmp_path: Path) -> None:
    file = next(release.glob(f"{name}.*"))
    file.rename(tmp_path / "elsewhere")
    if kind == "link":
        file.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    if name == "certificate":
        with pytest.raises(sf.errors.FileError, match="is not a release"):
            sf.verify(release)
    else:
        assert f"{file.name} is the file that was released" in failing(release)


@pytest.mark.parametrize("name", ["../patients.csv", "/etc/passwd", "..", "", "a\0b", "a\nb", "a" * 300])
def test_a_certificate_cannot_point_outside_its_folder(name: str, release: Path) -> None:
    whole = certificate(release)
    for plain in (whole | {"data": name}, whole | {"files": {name: {"bytes": 1, "sha256": "0"}}}):
        certify(release, plain)
        with pytest.raises(sf.errors.FileError, match="outside its folder"):
            sf.verify(release)
    whole["schema"]["columns"]["disease"]["hierarchy"] = "/etc/passwd"
    certify(release, whole)
    with pytest.raises(sf.errors.FileError, match="outside its folder"):
        sf.verify(release)


def test_the_source_is_known_to_its_maker_alone(made: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(made / "home"))
    assert sf.verify(release, source=made / "patients.csv")
    assert not sf.verify(release, source=data(release))
    monkeypatch.setenv("SFUMATO_HOME", str(release.parent / "home"))
    assert not sf.verify(release, source=made / "patients.csv")
    with pytest.raises(sf.errors.OptionError, match="no fingerprint"):
        sf.verify(made / "other", source=made / "patients.csv")


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(sf.errors.FileError, match="is not a release"):
            sf.verify(path)


# --- forgeries: each changes what is easily changed, and keeps every hash true ---


def test_a_hierarchy_that_the_recipe_does_not_declare_lowers_no_t(tmp_path: Path) -> None:
    frame = pl.DataFrame({"age": [20] * 10 + [50] * 10, "disease": ["flu"] * 10 + ["asthma"] * 10})
    sf.save(sf.anonymize(frame, "k=2,t=0.9", qi=["age"], sensitive=["disease"]), tmp_path / "release", format="csv")
    rows = [["flu", "lung", "all"], ["asthma", "lung", "all"], ["ulcer", "stomach", "all"]]
    plain = certificate(tmp_path / "release")
    honest = plain["claims"]["t"]
    plain["schema"]["columns"]["disease"]["hierarchy"] = {"kind": "tree", "rows": rows}
    table = sf.Table(sf.read(tmp_path / "release" / "table.csv").source, sf.Schema.from_dict(plain["schema"]))
    plain["claims"]["t"] = sf.assess(table).t
    certify(tmp_path / "release", plain)
    assert (honest, plain["claims"]["t"]) == (0.5, 0.25)
    assert failing(tmp_path / "release") == ["the recipe says the same"]


@pytest.mark.parametrize(
    "change",
    [{"bounds": [0, 1e9]}, {"domain": [1.5, 3.0]}, {"kind": "category"}, {"kind": "ordinal", "domain": [0.0, 1.5]}],
    ids=str,
)
def test_a_sensitive_column_is_what_the_recipe_declares(change: dict[str, Any], release: Path) -> None:
    plain = certificate(release)
    plain["schema"]["columns"]["stay"].update(change)
    certify(release, plain)
    assert "the recipe says the same" in failing(release)


def test_a_table_has_a_recipe(release: Path) -> None:
    """Without it, guarantees could be lowered to whatever the table still keeps."""
    (release / "recipe.toml").unlink()
    plain = certificate(release)
    del plain["files"]["recipe.toml"]
    plain["guarantees"] = [{"guarantee": "KAnonymity", "k": 2}]
    certify(release, plain)
    assert failing(release) == ["the certificate binds recipe.toml", "the recipe says the same"]


@pytest.mark.parametrize("name", ["raw.csv", "table.tsv", "model.json", "notes"])
def test_a_folder_holds_the_files_of_its_kind_even_if_others_are_listed(name: str, release: Path) -> None:
    (release / name).write_text(ROWS.write_csv())
    bind(release, name)
    assert failing(release) == ["nothing else is in the folder"]


def test_a_second_table_is_found(release: Path) -> None:
    other = "table.parquet" if data(release).suffix == ".csv" else "table.csv"
    ROWS.write_csv(release / other)
    bind(release, other)
    assert failing(release) == ["nothing else is in the folder"]


@pytest.mark.parametrize("kind", ["model", "generator", "\x1b[2J"])
def test_a_false_kind_is_found(kind: str, release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain.update(kind=kind))
    assert failing(release)


def test_parameters_are_those_of_the_recipe(release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["parameters"].update(strict=False))
    assert failing(release) == ["the recipe says the same"]


@pytest.mark.parametrize("rows", [39, 41, 40_000, None, True, "40", 40.5])
def test_the_rows_of_the_original_are_those_of_the_release(rows: Any, release: Path) -> None:
    change_json(release, "certificate.json", lambda plain: plain["source"].update(rows=rows))
    assert len(failing(release)) == 1


def test_losses_are_derived_where_the_release_alone_tells_them(release: Path) -> None:
    loss = certificate(release)["loss"]
    for name in ("discernibility", "average_class", "suppressed", "gcp"):
        change_json(release, "certificate.json", lambda plain, name=name: plain["loss"].update({name: 0.125}))
        assert len(failing(release)) == 1, name
        change_json(release, "certificate.json", lambda plain: plain.update(loss=loss))
    assert {"loss.entropy", "loss.kl", "loss.by_column"} <= set(unchecked(release))


def test_suppressed_rows_count_as_rows_of_the_original(tmp_path: Path) -> None:
    method = sf.Lattice(suppress=0.5)
    frame = pl.DataFrame({"age": [20] * 6 + [50, 60], "zip": ["a"] * 6 + ["b", "c"]})
    sf.save(sf.anonymize(frame, "k=5", method=method, qi=["age", "zip"]), tmp_path / "release")
    plain = certificate(tmp_path / "release")
    assert plain["source"]["rows"] == 8
    assert sf.verify(tmp_path / "release").ok


def test_an_order_that_came_from_a_type_holds_and_is_listed_where_a_file_forgets_it(tmp_path: Path) -> None:
    stages = pl.Enum(["early", "late", "last"])
    frame = pl.DataFrame({"age": [20, 30] * 6, "stage": pl.Series(["early", "late", "last"] * 4, dtype=stages)})
    for format in ("csv", "parquet"):
        sf.save(sf.anonymize(frame, "k=4", qi=["age"], sensitive=["stage"]), tmp_path / format, format=format)
        assert sf.verify(tmp_path / format).ok
        assert any("the order of the values of stage" in name for name in unchecked(tmp_path / format))


def test_a_recipe_larger_than_any_of_ours_is_not_read(release: Path) -> None:
    with (release / "recipe.toml").open("a") as file:
        file.write("#" * (4 * 2**20 + 1))
    bind(release, "recipe.toml")
    assert failing(release) == ["the recipe says the same"]


def test_a_certificate_larger_than_any_of_ours_is_not_read(release: Path) -> None:
    with (release / "certificate.json").open("a") as file:
        file.write(" " * 16 * 2**20)
    with pytest.raises(sf.errors.FileError, match="at most 16,777,216 are read"):
        sf.verify(release)


def test_a_recipe_of_another_command_is_found(release: Path) -> None:
    change_text(release, "recipe.toml", 'command = "anonymize"', 'command = "mask"')
    assert failing(release) == ["the recipe says the same"]
