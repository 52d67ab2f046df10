"""Tokens: alike in all tables and frames, turned back by their maker alone, and never silently merged."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.pseudonyms.tokens import Tokens, decode_base32, encode_base32

KEY = sf.Key(bytes(range(32)))
OTHER = sf.Key(bytes(range(1, 33)))
IDENTIFIERS = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20)


@pytest.fixture(params=["keyed", "random", "encrypted"])
def method(request: pytest.FixtureRequest, tmp_path: Path) -> Tokens:
    return {
        "keyed": lambda: sf.pseudonyms.KeyedTokens(KEY),
        "random": lambda: sf.pseudonyms.RandomTokens(tmp_path / "m.mapping", KEY),
        "encrypted": lambda: sf.pseudonyms.EncryptedTokens(KEY),
    }[request.param]()


def tokens(values: Any, method: Tokens, name: str = "id", **options: Any) -> list[Any]:
    frame = pl.DataFrame({name: values}, strict=False)
    return list(sf.pseudonymize(frame, method, columns=[name], **options)[name])


# What tokens are


def hkdf(secret: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869 without a salt, written out."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    block, derived, number = b"", b"", 0
    while len(derived) < length:
        number += 1
        block = hmac.digest(extracted, block + info + bytes([number]), "sha256")
        derived += block
    return derived[:length]


def test_a_keyed_token_is_the_hmac_of_its_identifier() -> None:
    derived = hkdf(bytes(range(32)), b"sfumato keyed tokens: id", 32)
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in derived.ljust(64, b"\0")) + "Zoë".encode()).digest()
    digest = hashlib.sha256(bytes(byte ^ 0x5C for byte in derived.ljust(64, b"\0")) + inner).digest()
    spelt = base64.b32encode(digest).decode().lower()
    assert tokens(["Zoë"], sf.pseudonyms.KeyedTokens(KEY)) == [spelt[:20]]
    assert tokens(["Zoë"], sf.pseudonyms.KeyedTokens(KEY, length=51)) == [spelt[:51]]


def test_an_encrypted_token_is_aes_siv_of_its_identifier() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    cipher = AESSIV(hkdf(bytes(range(32)), b"sfumato encrypted tokens", 64))
    sealed = base64.b32encode(cipher.encrypt("Zoë".encode(), [b"id"])).decode()
    assert tokens(["Zoë"], sf.pseudonyms.EncryptedTokens(KEY)) == [sealed.rstrip("=").lower()]


def test_the_cipher_is_that_of_rfc_5297() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    key = bytes.fromhex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")  # its A.1
    data = bytes.fromhex("101112131415161718191a1b1c1d1e1f2021222324252627")
    plain = bytes.fromhex("112233445566778899aabbccddee")
    expected = "85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c"
    assert AESSIV(key).encrypt(plain, [data]).hex() == expected
    assert AESSIV(key).decrypt(bytes.fromhex(expected), [data]) == plain


def test_hmac_is_that_of_rfc_4231() -> None:
    started = hmac.new(b"Jefe", digestmod="sha256")  # its test case 2, by the way that tokens take
    code = started.copy()
    code.update(b"what do ya want for nothing?")
    assert code.hexdigest() == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


def test_keys_are_derived_as_in_rfc_5869() -> None:
    assert KEY.derive("anything", 64) == hkdf(bytes(range(32)), b"sfumato anything", 64)


def test_tokens_stay_what_they_are_in_later_versions() -> None:
    assert tokens([7], sf.pseudonyms.KeyedTokens(KEY)) == ["tzvetguqxkjko6jasrjf"]
    assert tokens([7], sf.pseudonyms.EncryptedTokens(KEY)) == ["pjwwhaqjssefxolbds4vlavxrgia"]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_base32_is_that_of_the_standard_library(blobs: list[bytes]) -> None:
    texts = encode_base32(blobs)
    assert texts == [base64.b32encode(blob).decode().rstrip("=").lower() for blob in blobs]
    assert decode_base32(texts) == blobs


@given(st.lists(st.text("abz27A18é=", max_size=10), max_size=20))
def test_base32_reads_only_what_it_writes(texts: list[str]) -> None:
    for text, blob in zip(texts, decode_base32(texts), strict=True):
        assert blob is None or encode_base32([blob]) == [text]


# One person, one token


def test_equal_identifiers_have_equal_tokens_in_every_table(method: Tokens) -> None:
    patients = pl.DataFrame({"id": ["7", "8", "9"], "sex": ["f", "m", "f"]})
    visits = pl.DataFrame({"id": [9, 7, 7, None], "cost": [1, 2, 3, 4]})
    people, stays = sf.pseudonymize([patients, visits], method, columns=["id"])
    joined = people.join(stays, on="id")
    assert sorted(joined["sex", "cost"].rows()) == [("f", 1), ("f", 2), ("f", 3)]
    assert stays["id"].null_count() == 1
    assert sf.pseudonymize(visits, method, columns=["id"])["id"].to_list() == stays["id"].to_list()  # and later
    assert not set(people["id"]) & {"7", "8", "9"}


def test_every_kind_of_frame_gets_the_same_tokens_and_stays_of_its_kind(
    as_frame: Callable[[pl.DataFrame], Any], method: Tokens
) -> None:
    frame = pl.DataFrame({"id": ["a", "b", None, "a"], "x": [1.5, None, 2.0, 3.0], "n": [4, 3, 2, 1]})
    given_ = as_frame(frame)
    done = sf.pseudonymize(given_, method, columns=["id"])
    assert type(done) is type(given_)
    rows = sf.Table(done)
    columns = {name: rows.column(name).to_list() for name in rows.schema.names}
    ordered = dict(zip(columns["n"], columns["id"], strict=True))
    a, b = tokens(["a", "b"], method)
    assert ordered == {4: a, 3: b, 2: None, 1: a}
    assert list(columns) == ["id", "x", "n"]
    before, after = nw.from_native(given_).collect_schema(), nw.from_native(done).collect_schema()
    assert [after[name] for name in ("x", "n")] == [before[name] for name in ("x", "n")]


def test_a_lazy_frame_stays_lazy(method: Tokens) -> None:
    done = sf.pseudonymize(pl.LazyFrame({"id": ["a", "b"]}), method, columns=["id"])
    assert isinstance(done, pl.LazyFrame)
    assert done.collect()["id"].to_list() == tokens(["a", "b"], method)


def test_the_types_of_pandas_are_kept_and_its_index_is_not(method: Tokens) -> None:
    frame = pd.DataFrame(
        {"id": [7.0, float("nan"), 8.0], "c": pd.Categorical(["x", "y", "x"]), "n": np.array([1, 2, 3], dtype="int8")},
        index=[30, 10, 20],
    )
    before = frame.copy()
    done = sf.pseudonymize(frame, method, columns=["id"])
    assert list(done.index) == [0, 1, 2]
    assert (done["c"].dtype, done["n"].dtype) == (frame["c"].dtype, frame["n"].dtype)
    assert done["id"].isna().tolist() == [False, True, False]
    assert done["id"].dropna().tolist() == tokens(["7", "8"], method)
    pd.testing.assert_frame_equal(frame, before)


def test_several_tables_come_back_as_they_were_given(method: Tokens, tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": ["a"]})
    sf.write(frame, tmp_path / "t.csv")
    schema = sf.Schema([sf.Column(name="id", role="identifier", kind="category", domain=["a"])])
    given_ = {"frame": frame, "pandas": frame.to_pandas(), "file": tmp_path / "t.csv", "table": sf.Table(frame, schema)}
    done = sf.pseudonymize(given_, method, columns=["id"])
    assert list(done) == list(given_)
    assert isinstance(done["file"], pl.DataFrame)
    assert isinstance(done["pandas"], pd.DataFrame)
    assert isinstance(done["table"], sf.Table)
    assert done["table"].schema.identifiers == ("id",)
    assert done["table"].schema["id"].domain is None, "the domain is that of the identifiers"
    (token,) = tokens(["a"], method)
    assert done["file"]["id"][0] == done["frame"]["id"][0] == done["table"].frame["id"][0] == token
    assert isinstance(sf.pseudonymize((frame,), method, columns=["id"]), list)


def test_a_parquet_file_is_read_and_not_left_lazy(method: Tokens, tmp_path: Path) -> None:
    sf.write(pl.DataFrame({"id": ["a", "b"]}), tmp_path / "t.parquet")
    done = sf.pseudonymize(tmp_path / "t.parquet", method, columns=["id"])
    assert done["id"].to_list() == tokens(["a", "b"], method)


def test_identifiers_of_the_schema_are_the_default(method: Tokens) -> None:
    frame = pl.DataFrame({"id": ["a"], "name": ["b"], "x": ["c"]})
    done = sf.pseudonymize(sf.Table.of(frame, identifiers=["id", "name"]), method).frame
    assert done["x"].to_list() == ["c"]
    assert done["id"].to_list() == tokens(["a"], method, "id")
    assert done["name"].to_list() == tokens(["b"], method, "name")


def test_a_space_joins_columns_of_different_names_and_keeps_others_apart(method: Tokens) -> None:
    frame = pl.DataFrame({"patient": ["7", "8"], "referred_by": ["8", None]})
    apart = sf.pseudonymize(frame, method, columns=["patient", "referred_by"])
    assert apart["patient"][1] != apart["referred_by"][0]
    joined = sf.pseudonymize(frame, method, columns=["patient", "referred_by"], space="person")
    assert joined["patient"][1] == joined["referred_by"][0]
    assert tokens(["8"], method, "anything", space="person") == [joined["patient"][1]]


# What an identifier is


@pytest.mark.parametrize(
    "same",
    [
        pl.Series([7], dtype=pl.Int8),
        pl.Series([7], dtype=pl.UInt64),
        pl.Series([7], dtype=pl.Int128),
        pl.Series([7.0]),
        pl.Series([7.0], dtype=pl.Float32),
        pl.Series([Decimal("7.00")]),
        pl.Series(["7"]),
        pl.Series(["7"], dtype=pl.Categorical),
        pl.Series(["7"], dtype=pl.Enum(["8", "7"])),
    ],
    ids=lambda series: str(series.dtype),
)
def test_seven_is_seven_whatever_its_type(same: pl.Series) -> None:
    assert tokens(same, sf.pseudonyms.KeyedTokens(KEY)) == tokens(["7"], sf.pseudonyms.KeyedTokens(KEY))


def test_texts_are_taken_as_they_are() -> None:
    different = ["7", "07", "007", " 7", "7 ", "7.0", "+7", "a", "A", "\u00e9", "e\u0301"]
    assert len(set(tokens(different, sf.pseudonyms.KeyedTokens(KEY)))) == len(different)


def test_a_file_and_a_frame_agree(tmp_path: Path) -> None:
    method = sf.pseudonyms.KeyedTokens(KEY)
    for name, content, values in [
        ("numbers", "id,x\n7,1\n8,2\n", [7, 8]),
        ("codes", "id,x\n007,1\n8,2\n", ["007", "8"]),
        ("pandas", "id,x\n7.0,1\n,2\n", [7, None]),
        ("days", "id,x\n2020-01-31,1\n", [datetime.date(2020, 1, 31)]),
        ("exponents", "id,x\n12E3,1\n12000,2\n", ["12E3", "12000"]),
    ]:
        (tmp_path / f"{name}.csv").write_text(content)
        done = sf.pseudonymize(tmp_path / f"{name}.csv", method, columns=["id"])
        assert done["id"].to_list() == tokens(values, method), name
    assert tokens([datetime.date(2020, 1, 31)], method) == tokens(["2020-01-31"], method)


def test_missing_stays_missing(method: Tokens) -> None:
    assert tokens([None, None], method) == [None, None]
    assert tokens([float("nan"), None], method) == [None, None]
    assert tokens(["", "a"], method)[0] is None, "an empty text is missing, as in a file"
    assert tokens([], method) == []


@pytest.mark.parametrize(
    "values",
    [
        [7.5, 8.0],
        [math.inf],
        [2.0**53 + 2],
        [Decimal("7.5")],
        [True],
        [datetime.datetime(2020, 1, 1)],
        [b"x"],
        [["a"]],
    ],
    ids=str,
)
def test_what_is_no_identifier_is_refused_without_showing_it(values: list[Any]) -> None:
    with pytest.raises(sf.errors.ColumnError, match=r"column 'id' holds .*(whole|texts)") as raised:
        tokens(values, sf.pseudonyms.KeyedTokens(KEY))
    assert "7.5" not in str(raised.value)


# There and back


@given(IDENTIFIERS)
def test_encrypted_tokens_are_turned_back(identifiers: list[str]) -> None:
    method = sf.pseudonyms.EncryptedTokens(KEY)
    frame = pl.DataFrame({"id": [*identifiers, None]})
    hidden = sf.pseudonymize(frame, method, columns=["id"])
    assert sf.reidentify(hidden, method, columns=["id"]).equals(frame)
    assert hidden["id"].n_unique() == frame["id"].n_unique()


@settings(max_examples=30)
@given(before=IDENTIFIERS, later=IDENTIFIERS)
def test_random_tokens_are_turned_back_and_stay(tmp_path_factory: Any, before: list[str], later: list[str]) -> None:
    path = tmp_path_factory.mktemp("m") / "m.mapping"
    frames = [pl.DataFrame({"id": before}), pl.DataFrame({"id": later})]
    hidden = [sf.pseudonymize(one, sf.pseudonyms.RandomTokens(path, KEY), columns=["id"]) for one in frames]
    assert hidden[0].equals(sf.pseudonymize(frames[0], sf.pseudonyms.RandomTokens(path, KEY), columns=["id"]))
    back = sf.reidentify(hidden, sf.pseudonyms.RandomTokens(path, KEY), columns=["id"])
    assert [one.equals(frame) for one, frame in zip(back, frames, strict=True)] == [True, True]


def test_random_tokens_have_nothing_to_do_with_the_key(tmp_path: Path) -> None:
    one, two = (tokens(["a"], sf.pseudonyms.RandomTokens(tmp_path / name, KEY)) for name in ("1", "2"))
    assert one != two


def test_numbers_come_back_as_texts(method: Tokens) -> None:
    if method.name != "keyed":
        hidden = sf.pseudonymize(pl.DataFrame({"id": [7, 8]}), method, columns=["id"])
        assert sf.reidentify(hidden, method, columns=["id"])["id"].to_list() == ["7", "8"]


def test_keyed_tokens_cannot_be_turned_back() -> None:
    with pytest.raises(sf.errors.OptionError, match="keyed tokens are irreversible"):
        sf.reidentify(pl.DataFrame({"id": ["a"]}), sf.pseudonyms.KeyedTokens(KEY), columns=["id"])


@pytest.mark.parametrize("damage", [str.upper, lambda token: token[:-1], lambda token: token + "a", lambda _: "SECRET"])
def test_unknown_tokens_are_counted_and_not_shown(method: Tokens, damage: Callable[[str], str]) -> None:
    if method.name == "keyed":
        return
    good = tokens(["a", "b", "c"], method)
    bad = pl.DataFrame({"id": [good[0], damage(good[1]), damage(good[1]), good[2]]})
    with pytest.raises(sf.errors.InputError, match="1 of 3 tokens in column 'id' are unknown") as raised:
        sf.reidentify(bad, method, columns=["id"])
    assert good[1][:-1] not in str(raised.value)
    assert "SECRET" not in str(raised.value)


def test_one_changed_character_anywhere_is_noticed() -> None:
    method = sf.pseudonyms.EncryptedTokens(KEY)
    (token,) = tokens(["P7"], method)
    changed = [
        token[:at] + other + token[at + 1 :] for at in range(len(token)) for other in "aq27" if other != token[at]
    ]
    assert method.find({"id": changed}) == {"id": [None] * len(changed)}
    short = [token[:length] for length in range(1, len(token))]
    assert method.find({"id": short}) == {"id": [None] * len(short)}


def test_another_key_or_another_space_makes_other_tokens_and_opens_none() -> None:
    for kind in (sf.pseudonyms.KeyedTokens, sf.pseudonyms.EncryptedTokens):
        assert tokens(["a"], kind(KEY)) != tokens(["a"], kind(OTHER))
        assert tokens(["a"], kind(KEY)) != tokens(["a"], kind(KEY), space="other")
    hidden = pl.DataFrame({"id": tokens(["a", "b"], sf.pseudonyms.EncryptedTokens(KEY))})
    with pytest.raises(sf.errors.InputError, match="2 of 2 tokens"):
        sf.reidentify(hidden, sf.pseudonyms.EncryptedTokens(OTHER), columns=["id"])
    with pytest.raises(sf.errors.InputError, match="another key, mapping or space"):
        sf.reidentify(hidden, sf.pseudonyms.EncryptedTokens(KEY), columns=["id"], space="other")


# Collisions


def test_two_identifiers_with_one_token_are_refused() -> None:
    many = pl.DataFrame({"id": range(20_000)})
    with pytest.raises(
        sf.errors.OptionError, match="of 20,000 identifiers of 'id' would share a token with another"
    ) as raised:
        sf.pseudonymize(many, sf.pseudonyms.KeyedTokens(KEY, length=4), columns=["id"])
    assert "length=12" in raised.value.hint
    assert sf.pseudonymize(many, sf.pseudonyms.KeyedTokens(KEY, length=12), columns=["id"])["id"].n_unique() == 20_000


def test_collisions_between_tables_are_refused_too() -> None:
    method = sf.pseudonyms.KeyedTokens(KEY, length=4)
    halves = [pl.DataFrame({"id": range(start, start + 100)}) for start in range(0, 4000, 100)]
    fitting = [half for half in halves if _fits(half, method)]
    assert len(fitting) > 30, "alone, most of them fit"
    with pytest.raises(sf.errors.OptionError, match="identifiers of 'id' would share a token with another one"):
        sf.pseudonymize(fitting, method, columns=["id"])


def _fits(frame: pl.DataFrame, method: Tokens) -> bool:
    try:
        sf.pseudonymize(frame, method, columns=["id"])
    except sf.errors.OptionError:
        return False
    return True


def test_random_tokens_never_collide(tmp_path: Path) -> None:
    made = tokens(range(20_000), sf.pseudonyms.RandomTokens(tmp_path / "m", KEY, length=4))
    assert len(set(made)) == 20_000
    assert {len(token) for token in made} == {4}


def test_more_random_tokens_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.OptionError, match="600,000 identifiers need tokens of more than 4 characters"):
        tokens(range(600_000), sf.pseudonyms.RandomTokens(tmp_path / "m", KEY, length=4))
    assert not (tmp_path / "m").exists()


def test_the_stated_probability_is_that_of_birthdays() -> None:
    method = sf.pseudonyms.KeyedTokens(KEY, length=4)
    exact = 1 - math.prod(1 - taken / 2**20 for taken in range(1000))
    assert method.collision_probability(1000) == pytest.approx(exact, rel=1e-3)
    assert method.collision_probability(1) == 0
    assert sf.pseudonyms.KeyedTokens(KEY).collision_probability(10**9) < 1e-12


# Mistakes


def test_mistakes_get_one_sentence(method: Tokens) -> None:
    frame = pl.DataFrame({"patient_id": ["a"], "x": [1]})
    for arguments, sentence in [
        ({"columns": ["patientid"]}, r"there is no column 'patientid' \(did you mean 'patient_id'\?\)"),
        ({}, "no identifier column is named"),
        ({"columns": "patient_id"}, "a list of names, got the text 'patient_id'"),
        ({"columns": ["patient_id"], "space": ""}, "a space must be a text"),
    ]:
        with pytest.raises(sf.errors.InputError, match=sentence):
            sf.pseudonymize(frame, method, **arguments)
    with pytest.raises(sf.errors.ColumnError, match="there is no column 'x' in table 'visits'"):
        sf.pseudonymize({"a": frame, "visits": frame.drop("x")}, method, columns=["x"])
    with pytest.raises(sf.errors.ColumnError, match="there is no column 'x' in table 2"):
        sf.pseudonymize([frame, frame.drop("x")], method, columns=["x"])
    with pytest.raises(sf.errors.OptionError, match="no table is given"):
        sf.pseudonymize([], method, columns=["x"])
    with pytest.raises(sf.errors.OptionError, match="must be such as KeyedTokens"):
        sf.pseudonymize(frame, sf.pseudonyms.KeyedTokens, columns=["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [3, 52, 20.0, True, "20"])
def test_a_length_outside_its_range_is_refused(length: Any, tmp_path: Path) -> None:
    for make in (
        lambda: sf.pseudonyms.KeyedTokens(KEY, length),
        lambda: sf.pseudonyms.RandomTokens(tmp_path / "m", KEY, length=length),
    ):
        with pytest.raises(sf.errors.OptionError, match="from 4 to 51"):
            make()


def test_a_failed_table_extends_no_mapping(tmp_path: Path) -> None:
    frames = [pl.DataFrame({"id": ["a"]}), pl.DataFrame({"id": [1.5]})]
    with pytest.raises(sf.errors.ColumnError):
        sf.pseudonymize(frames, sf.pseudonyms.RandomTokens(tmp_path / "m", KEY), columns=["id"])
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    secret, words = bytes(range(32)), "correct horse battery"
    methods = [
        sf.pseudonyms.KeyedTokens(KEY),
        sf.pseudonyms.EncryptedTokens(KEY),
        sf.pseudonyms.RandomTokens(tmp_path / "m", KEY),
        sf.pseudonyms.RandomTokens(tmp_path / "m", passphrase=words),
    ]
    for one in [KEY, *methods]:
        for text in (repr(one), str(one), f"{one}", repr(vars(one)) if hasattr(one, "__dict__") else ""):
            assert secret.hex() not in text
            assert repr(secret) not in text
            assert words not in text
        with pytest.raises(TypeError):
            json.dumps(one)
