"""Keys and ciphertexts of strangers are compared with our own before SEAL reads them, and cannot grow in memory."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import ProtocolError
from sfumato.federation.secure.forms import form_of, from_bytes, galois_form
from sfumato.federation.secure.seal import CkksParameters, seal, to_bytes

PARAMETERS = CkksParameters.for_depth(1)
HEADER = 16


def packed(plain, header, mode=0):
    """Return the content as SEAL writes it: in the clear, by zlib or by zstd."""
    data = {0: lambda: plain, 1: lambda: zlib.compress(plain), 2: lambda: pa.compress(plain, "zstd", asbytes=True)}
    content = data[mode]()
    return header[:5] + bytes([mode, 0, 0]) + (HEADER + len(content)).to_bytes(8, "little") + content


def galois(*steps):
    keys = seal().KeyGenerator(PARAMETERS.context)
    return to_bytes(keys.create_galois_keys([PARAMETERS.element(step) for step in steps]))


@pytest.fixture(scope="module")
def own():
    """One message of every role, as SEAL writes it."""
    library, context = seal(), PARAMETERS.context
    keys, plain = library.KeyGenerator(context), library.Plaintext()
    library.CKKSEncoder(context).encode([0.5], 2.0**40, plain)
    public, vector = library.PublicKey(), library.Ciphertext()
    keys.create_public_key(public)
    library.Encryptor(context, public).encrypt(plain, vector)
    record = library.Encryptor(context, keys.secret_key()).encrypt_symmetric(plain)
    made = {"record": record, "vector": vector, "public": public, "secret": keys.secret_key()}
    made["relin"] = keys.create_relin_keys()
    return {role: to_bytes(one) for role, one in made.items()}


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("role", ["record", "vector", "public", "secret", "relin"])
def test_what_seal_writes_is_accepted_however_it_is_compressed(own, role, mode):
    form = form_of(PARAMETERS, role)
    plain = form.checked(own[role])[HEADER:]
    again = to_bytes(from_bytes(form, PARAMETERS, packed(plain, own[role], mode)))
    if role in ("vector", "public", "secret"):  # the others have their seeds replaced by what follows from them
        assert form.checked(again)[HEADER:] == plain


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_keys_of_any_rotations_are_accepted_and_those_of_others_refused(depth):
    parameters = CkksParameters.for_depth(depth)
    made = to_bytes(
        seal().KeyGenerator(parameters.context).create_galois_keys([parameters.element(one) for one in (1, 2, 64)])
    )
    found = from_bytes(galois_form(parameters, (1, 2, 64)), parameters, made)
    assert found.has_key(parameters.element(64))
    for steps in ((1, 2), (1, 2, 63), (1, 2, 63, 64)):
        with pytest.raises(ProtocolError, match="GaloisKeys"):
            from_bytes(galois_form(parameters, steps), parameters, made)


def test_keys_that_nobody_asked_for_are_refused_though_seal_would_take_them():
    plain = galois_form(PARAMETERS, (1,)).checked(galois(1))[HEADER:]
    # After the one key come 8,190 places without one; put copies of it there, which compress to almost nothing.
    one = plain[48 : len(plain) - 8 * 8190]
    bomb = plain[: 48 + len(one)] + one * 10 + bytes(8 * 8180)
    sent = packed(bomb, galois(1), mode=1)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "keys").write_bytes(sent)
        seal().GaloisKeys().load(PARAMETERS.context, str(Path(folder, "keys")))
    with pytest.raises(ProtocolError):
        from_bytes(galois_form(PARAMETERS, (1,)), PARAMETERS, sent)


@pytest.mark.parametrize("mode", [1, 2])
def test_a_message_that_expands_is_not_expanded_beyond_its_length(own, mode):
    bomb = packed(bytes(1 << 27), own["relin"], mode)
    form = form_of(PARAMETERS, "relin")
    assert len(bomb) < form.length
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="damaged"):
        from_bytes(form, PARAMETERS, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 23


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_changed_byte_is_refused_unless_it_is_of_a_coefficient_or_a_seed(own, data):
    role = data.draw(st.sampled_from(sorted(own)))
    form = form_of(PARAMETERS, role)
    plain = bytearray(form.checked(own[role])[HEADER:])
    fixed, at = [], 0
    for one in form.pieces:
        fixed += range(at, at + len(one)) if isinstance(one, bytes) else []
        at += one if isinstance(one, int) else len(one)
    place = data.draw(st.sampled_from(fixed) | st.integers(0, len(plain) - 1))
    plain[place] ^= data.draw(st.integers(1, 255))
    sent = packed(bytes(plain), own[role], data.draw(st.integers(0, 2)))
    if place in {*fixed}:
        with pytest.raises(ProtocolError):
            from_bytes(form, PARAMETERS, sent)
    else:
        with contextlib.suppress(ProtocolError):
            from_bytes(form, PARAMETERS, sent)


def test_a_coefficient_beyond_its_prime_is_refused(own):
    for role in own:
        form = form_of(PARAMETERS, role)
        plain = bytearray(form.checked(own[role])[HEADER:])
        start = len(form.pieces[0])
        plain[start : start + 8] = b"\xff" * 8
        with pytest.raises(ProtocolError, match="damaged"):
            from_bytes(form, PARAMETERS, packed(bytes(plain), own[role]))
