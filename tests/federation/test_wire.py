"""Messages survive the wire, and whatever is damaged is refused with one error."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import ProtocolError
from sfumato.federation.wire import decode, encode

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda name: name != "$"), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text().filter(lambda name: name != "$"), PLAIN))
def test_plain_messages_come_back_as_they_were(message):
    assert decode(encode(message)) == message


@pytest.mark.parametrize("kind", ["?", "<i4", ">i8", "<u4", "<u8", "<f4", ">f8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_come_back_as_they_were(kind, shape):
    given = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    found = decode(encode({"deep": [{"array": given}]}))["deep"][0]["array"]
    assert found.shape == shape
    assert found.dtype == np.dtype(kind).newbyteorder("<")
    assert (found == given).all()


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), float("inf"), {"$": 1}, np.array([object()]), {1}])
def test_anything_else_is_not_sent(value):
    with pytest.raises(ProtocolError):
        encode({"value": value})


SENT = encode({"a": np.arange(5), "b": b"xyz", "c": [1, {"d": "text"}]})


@given(st.integers(0, len(SENT) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_a_message_or_the_one_error(at, byte):
    data = bytearray(SENT)
    data[at] = byte
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode(bytes(data)), dict)


@given(st.integers(0, len(SENT) - 1))
def test_a_cut_message_is_refused(length):
    with pytest.raises(ProtocolError):
        decode(SENT[:length])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(ProtocolError):
        decode(data)


@pytest.mark.parametrize(
    "header",
    [
        '{"message": {"a": {"$": -1}}, "blocks": [["bytes", [0]]]}',
        '{"message": {"a": {"$": 7}}, "blocks": []}',
        '{"message": [], "blocks": []}',
        '{"message": {}, "blocks": [["|O", [1]]]}',
        '{"message": {}, "blocks": [["<f8", [4000000000, 4000000000]]]}',
        '{"message": {}, "blocks": [["<f8", [-1]]]}',
        "[" * 100_000,
    ],
)
def test_forged_headers_are_refused(header):
    with pytest.raises(ProtocolError):
        decode(b"sfumato1" + len(header).to_bytes(8) + header.encode())
