"""``sfumato key`` and ``sfumato pseudonymize``: files of the same people go together, all or nothing."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from tests.conftest import Ran, refused

Run = Callable[..., Ran]
PATIENTS = "patient_id,sex\n7,f\n8,m\n,f\n"
VISITS = "patient_id,day,cost\n8,2020-01-31,1.5\nX9,2020-02-01,2.0\n7,2020-02-02,3.0\n"
ID = ["--columns", "patient_id"]


@pytest.fixture
def pseudonymize(sfumato: Run) -> Run:
    Path("patients.csv").write_text(PATIENTS)
    Path("visits.csv").write_text(VISITS)
    sf.Key.new("k.key")
    return lambda *arguments: sfumato("pseudonymize", *arguments)


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


# key


def test_a_new_key(sfumato: Run) -> None:
    ran = sfumato("key", "new", "k.key", "--json")
    assert (ran.code, ran.json) == (0, {"file": "k.key"})
    assert stat.S_IMODE(Path("k.key").stat().st_mode) == 0o600
    content = Path("k.key").read_text()
    assert content.splitlines()[1] not in ran.out + ran.err
    refused(sfumato("key", "new", "k.key"), "'k.key' exists, and a key is never overwritten")
    assert Path("k.key").read_text() == content
    refused(sfumato("key", "new", "no/folder/k.key"), "cannot be written")
    refused(sfumato("key", "new"), "FILE")
    refused(sfumato("key", "nwe"), "'nwe'")
    assert "new" in sfumato("key").out


# pseudonymize


@pytest.mark.parametrize("method", ["keyed", "random", "encrypted"])
def test_several_files_get_the_same_tokens_in_a_folder(pseudonymize: Run, method: str) -> None:
    mapping = ["--mapping", "m.mapping"] if method == "random" else []
    options = [*ID, "--method", method, "--key", "k.key", *mapping]
    ran = pseudonymize("patients.csv", "visits.csv", *options, "-o", "out", "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert [one["encoding"] for one in found.pop("read")] == ["utf-8", "utf-8"]
    assert found == {
        "files": [
            {"file": "patients.csv", "rows": 3, "columns": {"patient_id": {"distinct": 2}}},
            {"file": "visits.csv", "rows": 3, "columns": {"patient_id": {"distinct": 3}}},
        ],
        "method": method,
    }
    patients, visits = pl.read_csv("out/patients.csv"), pl.read_csv("out/visits.csv")
    assert patients["patient_id"].to_list() == [visits["patient_id"][2], visits["patient_id"][0], None]
    assert visits.drop("patient_id").equals(pl.read_csv("visits.csv").drop("patient_id"))
    assert not any(path.name.endswith(".tmp") for path in Path().iterdir())
    again = pseudonymize("patients.csv", *options, "-o", "again.csv")
    assert again.code == 0
    assert Path("again.csv").read_text() == Path("out/patients.csv").read_text()
    if method != "keyed":
        back = pseudonymize("out/patients.csv", "out/visits.csv", *options, "--reverse", "-o", "back")
        assert back.code == 0, back.err
        assert Path("back/patients.csv").read_text() == PATIENTS
        assert Path("back/visits.csv").read_text() == VISITS


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow"])
def test_one_file_of_any_format(pseudonymize: Run, ending: str) -> None:
    sf.write(pl.read_csv("visits.csv"), f"v.{ending}")
    assert pseudonymize(f"v.{ending}", *ID, "--key", "k.key", "-o", f"o.{ending}").code == 0
    done = sf.read(f"o.{ending}").frame
    assert done["cost"].to_list() == [1.5, 2.0, 3.0]
    want = sf.pseudonymize(pl.read_csv("visits.csv"), sf.pseudonyms.KeyedTokens("k.key"), columns=["patient_id"])
    assert done["patient_id"].to_list() == want["patient_id"].to_list()


def test_a_person_can_read_what_was_done(pseudonymize: Run) -> None:
    ran = pseudonymize("patients.csv", *ID, "--key", "k.key", "-o", "o.csv")
    assert ran.out == "patients.csv: 2 different identifiers replaced in column 'patient_id', 3 rows\n"
    assert ran.err == "The tokens are in o.csv\n"


def test_the_length_and_the_space_are_as_asked(pseudonymize: Run) -> None:
    assert pseudonymize("patients.csv", *ID, "--key", "k.key", "--length", "30", "-o", "o.csv").code == 0
    assert pl.read_csv("o.csv")["patient_id"].drop_nulls().str.len_chars().to_list() == [30, 30]
    Path("p.csv").write_text("who,by\n7,8\n8,\n")
    assert pseudonymize("p.csv", "--columns", "who,by", "--space", "person", "--key", "k.key", "-o", "p2.csv").code == 0
    done = pl.read_csv("p2.csv")
    assert done["who"][1] == done["by"][0]


def test_a_passphrase_is_read_from_the_input(pseudonymize: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["patients.csv", *ID, "--method", "random", "--mapping", "m", "--passphrase"]
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    assert pseudonymize(*options, "-o", "a.csv").code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    assert pseudonymize(*options, "-o", "b.csv").code == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong horse battery\n"))
    ran = pseudonymize(*options, "-o", "c.csv")
    refused(ran, "this passphrase does not open the mapping 'm'")
    assert "horse" not in ran.err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    refused(pseudonymize(*options, "-o", "c.csv"), "at least 12 characters")


def test_a_file_is_replaced_and_a_folder_never_is(pseudonymize: Run) -> None:
    Path("o.csv").write_text("the old one")
    wrong = ["--columns", "nobody", "--key", "k.key", "--force", "-o", "o.csv"]
    refused(pseudonymize("patients.csv", *wrong), "no column 'nobody'")
    assert Path("o.csv").read_text() == "the old one"
    assert pseudonymize("patients.csv", *ID, "--key", "k.key", "--force", "-o", "o.csv").code == 0
    assert Path("o.csv").read_text() != "the old one"
    Path("out").mkdir()
    Path("out/mine").touch()
    for taken in ("out", "o.csv"):
        refused(
            pseudonymize("patients.csv", "visits.csv", *ID, "--key", "k.key", "-o", taken),
            f"'{taken}' exists already",
        )
    assert [path.name for path in Path("out").iterdir()] == ["mine"]
    Path("empty").mkdir()
    assert pseudonymize("patients.csv", "visits.csv", *ID, "--key", "k.key", "-o", "empty/").code == 0
    assert len(list(Path("empty").iterdir())) == 2


def test_several_files_are_all_written_or_none(pseudonymize: Run) -> None:
    Path("bad.csv").write_text("patient_id\n7.5\n8\n")
    before = names()
    ran = pseudonymize("patients.csv", "bad.csv", *ID, "--key", "k.key", "-o", "out")
    refused(ran, "column 'patient_id' holds 1 different number(s) that are not whole", "in 'bad.csv'")
    assert "7.5" not in ran.err
    assert names() == before
    refused(
        pseudonymize("patients.csv", "visits.csv", *ID, "--key", "k.key", "-o", "no/such/out"),
        "'no/such/out' cannot be created",
    )
    assert names() == before


def test_what_is_read_is_never_written_over(pseudonymize: Run) -> None:
    key = Path("k.key").read_text()
    for output in ("patients.csv", "./patients.csv", "k.key"):
        refused(pseudonymize("patients.csv", *ID, "--key", "k.key", "-o", output), "is read and cannot be written too")
    random = [*ID, "--key", "k.key", "--method", "random"]
    refused(pseudonymize("patients.csv", *random, "--mapping", "k.key", "-o", "o.csv"), "'k.key' is read")
    refused(pseudonymize("patients.csv", *random, "--mapping", "patients.csv", "-o", "o.csv"), "'patients.csv' is read")
    refused(pseudonymize("patients.csv", *random, "--mapping", "m", "-o", "m"), "'m' is read")
    assert Path("k.key").read_text() == key
    assert Path("patients.csv").read_text() == PATIENTS
    assert names() == ["k.key", "patients.csv", "visits.csv"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ([], ["no identifier column is named", "--columns"]),
        (["--columns", "patientid", "--key", "k.key"], ["there is no column 'patientid'", "did you mean 'patient_id'"]),
        (ID, ["--key is missing", "sfumato key new"]),
        ([*ID, "--key", "nowhere.key"], ["the key 'nowhere.key' cannot be read"]),
        ([*ID, "--key", "visits.csv"], ["visits.csv"]),
        ([*ID, "--key", "k.key", "--mapping", "m"], ["--mapping is for random tokens"]),
        ([*ID, "--key", "k.key", "--passphrase"], ["--passphrase is for random tokens"]),
        ([*ID, "--key", "k.key", "--method", "random"], ["--mapping is missing"]),
        ([*ID, "--method", "random", "--mapping", "m"], ["give --key or --passphrase"]),
        ([*ID, "--method", "random", "--mapping", "m", "--key", "k.key", "--passphrase"], ["--key or --passphrase"]),
        ([*ID, "--key", "k.key", "--method", "encrypted", "--length", "9"], ["--length is for keyed and random"]),
        ([*ID, "--key", "k.key", "--length", "3"], ["from 4 to 51, got 3"]),
        ([*ID, "--key", "k.key", "--reverse"], ["keyed tokens are irreversible"]),
        ([*ID, "--key", "k.key", "--reverse", "--method", "encrypted"], ["2 of 2 tokens", "are unknown"]),
        ([*ID, "--key", "k.key", "--reverse", "--method", "random", "--mapping", "m"], ["mapping 'm' cannot be read"]),
        ([*ID, "--key", "k.key", "--method", "magic"], ["'--method'", "'magic'"]),
        ([*ID, "--key", "k.key", "-o", "o.xls"], ["Sfumato reads .xls files but does not write them"]),
        ([*ID, "--key", "k.key", "-o", "o.sas"], ["the format of 'o.sas' is unknown"]),
        ([*ID, "--key", "k.key", "--space", ""], ["a space must be a text"]),
    ],
)
def test_bad_input_gets_one_sentence(pseudonymize: Run, options: list[str], parts: list[str]) -> None:
    out = [] if "-o" in options else ["-o", "o.csv"]
    refused(pseudonymize("patients.csv", *options, *out), *parts)
    assert names() == ["k.key", "patients.csv", "visits.csv"]


def test_files_that_cannot_go_together(pseudonymize: Run) -> None:
    Path("sub").mkdir()
    Path("sub/patients.csv").write_text(PATIENTS)
    common = [*ID, "--key", "k.key", "-o", "out"]
    refused(pseudonymize("patients.csv", "sub/patients.csv", *common), "two files are called 'patients.csv'")
    refused(pseudonymize("patients.csv", "patients.csv", *common), "two files are called 'patients.csv'")
    refused(pseudonymize("patients.csv", "nowhere.csv", *common), "there is no file 'nowhere.csv'")
    refused(pseudonymize("patients.csv", "t.xls", *common), "Sfumato reads .xls files")
    refused(pseudonymize("patients.csv", "sqlite:///x.db", *common), "several tables must be files")
    refused(pseudonymize(*common), "FILE")
    refused(pseudonymize("patients.csv", "visits.csv", "--columns", "sex", "--key", "k.key", "-o", "out"), "visits.csv")


def test_a_key_that_is_open_to_others(pseudonymize: Run) -> None:
    Path("k.key").chmod(0o640)
    refused(
        pseudonymize("patients.csv", *ID, "--key", "k.key", "-o", "o.csv"),
        "accessible to other users (chmod 600 k.key)",
    )


def test_too_short_tokens_are_refused(pseudonymize: Run) -> None:
    Path("many.csv").write_text("patient_id\n" + "\n".join(map(str, range(20_000))))
    ran = pseudonymize("many.csv", *ID, "--key", "k.key", "--length", "4", "-o", "o.csv")
    refused(ran, "would share a token with another one", "--length 12")


def test_a_damaged_mapping_is_refused_and_kept(pseudonymize: Run) -> None:
    options = ["patients.csv", *ID, "--key", "k.key", "--method", "random", "--mapping", "m", "-o", "o.csv", "--force"]
    assert pseudonymize(*options).code == 0
    Path("m").write_bytes(Path("m").read_bytes()[:-1])
    damaged = Path("m").read_bytes()
    refused(pseudonymize(*options), "the mapping 'm' is damaged")
    assert Path("m").read_bytes() == damaged
    sf.Key.new("other.key")
    options[options.index("k.key")] = "other.key"
    refused(pseudonymize(*options), "this key does not open the mapping 'm'")


def test_no_secret_and_no_identifier_is_shown_even_with_debug(pseudonymize: Run) -> None:
    secret = Path("k.key").read_text().splitlines()[1]
    back = [*ID, "--key", "k.key", "--method", "encrypted", "--reverse"]
    ran = pseudonymize("visits.csv", *back, "-o", "o.csv", "--debug")
    assert ran.code == 2
    assert "3 of 3 tokens in column 'patient_id' are unknown" in ran.err
    assert secret not in ran.err
    assert "X9" not in ran.err
