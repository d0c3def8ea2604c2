import json
import random
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sheafed.errors import MessageError
from sheafed.transport import Message, decode, encode
from sheafed.transport.header import DTYPES, MAX_JSON_BYTES
from tests.helpers.messages import every_tensor, message, same_bits, same_message, tensor_of

quick = settings(derandomize=True, deadline=None, max_examples=100)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
tensors = st.builds(
    lambda dtype, shape, seed: tensor_of(dtype, *shape, seed=seed),
    st.sampled_from(list(DTYPES.values())),
    st.lists(st.integers(0, 4), max_size=8),
    st.integers(0, 99),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
messages = st.builds(
    Message,
    kind=names,
    round=st.integers(0, 2**63 - 1),
    sender=names,
    receiver=names,
    tensors=st.dictionaries(names, tensors, max_size=4),
    fields=st.dictionaries(names, scalars, max_size=4),
)
HEADER: dict[str, Any] = {
    "fields": {"scale": 0.5},
    "kind": "latents",
    "receiver": "b",
    "round": 7,
    "sender": "a",
    "tensors": [["x", "float64", [2]], ["y", "int16", [1, 3]]],
}


def framed(text: str | bytes, payload: bytes = b"", version: int = 1) -> bytes:
    """Write the documented format without the library's help."""
    raw = text if isinstance(text, bytes) else text.encode()
    raw += b" " * (-(9 + len(raw)) % 8)
    return b"SHFD" + bytes([version]) + struct.pack("<I", len(raw)) + raw + payload


def forged(payload: bytes = bytes(22), **change: object) -> bytes:
    header = json.dumps(HEADER | change, separators=(",", ":"), sort_keys=True)
    return framed(header, payload)


def reason_of(data: bytes, **options: int) -> str:
    with pytest.raises(MessageError) as caught:
        decode(data, **options)
    assert len(str(caught.value)) < 500
    return caught.value.reason


@quick
@given(messages)
def test_decode_inverts_encode(sent: Message) -> None:
    encoded = encode(sent)
    received = decode(encoded.data)
    assert same_message(received, sent)
    assert encode(received) == encoded
    assert encoded.header_bytes % 8 == 0
    assert encoded.payload_bytes == sum(t.numel() * t.itemsize for t in sent.tensors.values())


def test_the_format_is_the_documented_one() -> None:
    x, y = torch.tensor([1.0, -2.0]).double(), torch.tensor([[1, 2, 258]]).short()
    sent = Message("latents", 7, "a", "b", {"y": y, "x": x}, {"scale": 0.5})
    payload = struct.pack("<2d", 1.0, -2.0) + bytes([1, 0, 2, 0, 2, 1])
    assert encode(sent).data == forged(payload)
    assert same_message(decode(forged(payload)), sent)


def test_text_is_utf_8() -> None:
    data = encode(Message("größe", 0, "ζ", "b")).data
    assert "größe".encode() in data
    assert decode(data).sender == "ζ"


def test_every_tensor_is_aligned_in_the_message_and_in_memory() -> None:
    encoded = encode(Message("x", 0, "a", "b", every_tensor()))
    offset = encoded.header_bytes
    for tensor in decode(encoded.data).tensors.values():
        assert offset % tensor.itemsize == 0
        assert tensor.data_ptr() % 64 == 0, "as torch has it, for products with the same bits"
        offset += tensor.nbytes
    assert offset == len(encoded.data)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).view(3, 4).mT,
        torch.arange(12.0)[::3],
        torch.arange(3.0).expand(4, 3),
        torch.nn.Parameter(torch.ones(2)),
        torch.imag(torch.full((2,), 1 + 2j).conj()),
    ],
    ids=["transposed", "strided", "expanded", "parameter", "negative bit"],
)
def test_any_view_is_sent_as_its_values(tensor: torch.Tensor) -> None:
    received = decode(encode(Message("x", 0, "a", "b", {"z": tensor})).data).tensors["z"]
    assert torch.equal(received, tensor)
    assert received.is_contiguous()
    assert not received.requires_grad


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decoded_tensors_have_memory_of_their_own(kind: Callable[[bytes], bytes]) -> None:
    data = encode(message()).data
    buffer = kind(data)
    decode(buffer).tensors["latents"].zero_()
    assert bytes(buffer) == data
    assert same_message(decode(buffer), message())


def test_a_big_endian_machine_writes_and_reads_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = every_tensor()
    swapped = {
        name: (t.reshape(-1).view(torch.uint8).view(-1, t.itemsize).flip(1).reshape(-1))
        .view(t.dtype)
        .view(t.shape)
        for name, t in values.items()
    }
    expected = encode(Message("x", 0, "a", "b", values)).data
    monkeypatch.setattr(sys, "byteorder", "big")
    # The memory of a big-endian machine that holds the same values.
    assert encode(Message("x", 0, "a", "b", swapped)).data == expected
    received = decode(expected).tensors
    assert all(same_bits(received[name], swapped[name]) for name in values)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(2, dtype=torch.complex64), "dtype"),
        (torch.zeros(2).to(torch.float8_e4m3fn), "dtype"),
        (torch.eye(2).to_sparse(), "layout"),
        (torch.zeros(2, device="meta"), "layout"),
        (torch.zeros([1] * 9), "shape"),
        (torch.zeros(0, 2**40), "shape"),
        (torch.zeros(()).expand(2**30), "shape"),
    ],
    ids=["complex", "float8", "sparse", "meta", "nine dimensions", "empty but vast", "vast"],
)
def test_encode_refuses_what_decode_would_refuse(tensor: torch.Tensor, reason: str) -> None:
    with pytest.raises(MessageError, match=r"'z'.*got") as caught:
        encode(Message("x", 0, "a", "b", {"z": tensor}))
    assert caught.value.reason == reason


def test_size_limits_hold_at_both_ends() -> None:
    encoded = encode(message())
    size = len(encoded.data)
    assert encode(message(), limit=size) == encoded
    assert same_message(decode(encoded.data, limit=size), message())
    assert reason_of(encoded.data, limit=size - 1) == "size"
    with pytest.raises(MessageError, match=f"may have {size - 1} bytes, got {size}"):
        encode(message(), limit=size - 1)
    long = Message("x", 0, "a", "b", fields={"text": "x" * MAX_JSON_BYTES})
    with pytest.raises(MessageError, match="JSON of a message may have 65536 bytes"):
        encode(long)
    assert reason_of(framed(" " * (MAX_JSON_BYTES + 1))) == "header"


def test_size_is_checked_before_anything_is_read() -> None:
    class Vast(bytes):
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, _: object) -> Any:
            raise AssertionError("it was read")

    assert reason_of(Vast()) == "size"


GOOD = encode(message()).data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "size"),
        (GOOD[:8], "size"),
        (GOOD[:40], "size"),
        (GOOD[:-1], "size"),
        (GOOD + b"\0", "size"),
        (b"shfd" + GOOD[4:], "magic"),
        (b"\x80\x04K\x01.     ", "magic"),
        (framed("{}", version=2), "version"),
        (framed(b"\xff\xfe"), "header"),
        (framed("not JSON"), "header"),
        (framed("[" * 60_000), "header"),
        (framed("1" * 5000), "header"),
        (framed('{"kind":NaN}'), "header"),
        (framed('"\\ud800"'), "header"),
        (framed("[]"), "header"),
        (framed("{}"), "header"),
        (forged(extra=1), "header"),
        (framed(json.dumps(HEADER), bytes(22)), "header"),
        (framed(json.dumps(HEADER, separators=(",", ":")).replace("7", "7.0e0")), "header"),
        (forged().replace(b'"kind"', b'"kind":"x","kind"'), "header"),
        (forged(tensors={}), "header"),
        (forged(tensors=[["x", "float64"]]), "header"),
        (forged(tensors=[["x", "float64", 2]]), "header"),
        (forged(tensors=[["x", "float64", [2.0]]]), "header"),
        (forged(tensors=[["x", "float64", [True]]]), "header"),
        (forged(tensors=[[1, "float64", [2]]]), "header"),
        (forged(tensors=[["x", "object", [2]]]), "dtype"),
        (forged(tensors=[["x", "complex64", [2]]]), "dtype"),
        (forged(tensors=[["x", "float64", [-2]]]), "shape"),
        (forged(tensors=[["x", "float64", [-1, -2]]]), "shape"),
        (forged(tensors=[["x", "float64", [1] * 9]]), "shape"),
        (forged(tensors=[["x", "float64", [2**32, 2**32]]]), "shape"),
        (forged(tensors=[["x", "float64", [0, 2**63]]]), "shape"),
        (forged(tensors=[["x", "float64", [10**4000]]]), "shape"),
        (forged(tensors=[["x", "float64", [3]]]), "size"),
        (forged(tensors=[["x", "float64", [0]]]), "size"),
        (forged(bytes(10), tensors=[["y", "int16", [1]], ["x", "float64", [1]]]), "names"),
        (forged(bytes(16), tensors=[["x", "float64", [1]], ["x", "float64", [1]]]), "names"),
        (forged(bytes(10), tensors=[["x", "float64", [1]], ["x", "int16", [1]]]), "names"),
        (forged(bytes(8), tensors=[["", "float64", [1]]]), "names"),
        (forged(b"\x02", tensors=[["x", "bool", [1]]]), "payload"),
        (forged(kind=""), "kind"),
        (forged(kind=None), "kind"),
        (forged(sender=["a"]), "sender"),
        (forged(receiver=1), "receiver"),
        (forged(round=-1), "round"),
        (forged(round=True), "round"),
        (forged(round=2**63), "round"),
        (forged(fields=[]), "fields"),
        (forged(fields={"": 1}), "fields"),
        (forged(fields={"x": {}}), "fields"),
    ],
)
def test_decode_refuses_everything_else_with_a_reason(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


def test_the_unchanged_forgery_is_valid() -> None:
    assert decode(forged()).round == 7


def survives(data: bytes) -> bool:
    """Whether the bytes are a message; any exception but MessageError fails the test."""
    try:
        received = decode(data)
    except MessageError:
        return False
    assert encode(received).data == data
    return True


@quick
@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    assert not survives(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@quick
@given(st.sampled_from(sorted(HEADER)), json_values, st.binary(max_size=40))
def test_arbitrary_values_in_the_header(key: str, value: object, payload: bytes) -> None:
    options: dict[str, Any] = {"separators": (",", ":"), "sort_keys": True, "ensure_ascii": False}
    text = json.dumps(HEADER | {key: value}, **options)
    survives(framed(text.encode("utf-8", "surrogatepass"), payload))


@quick
@given(st.lists(st.tuples(names, st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 3)))))
def test_arbitrary_lists_of_tensors(tensors: list[tuple[str, str, list[int]]]) -> None:
    survives(forged(bytes(8), tensors=tensors))


def test_ten_thousand_mutations() -> None:
    draw = random.Random(0)
    everything = Message("x", 1, "a", "b", every_tensor(), {"f": 0.5, "t": "text"})
    sources = [encode(message()).data, encode(everything).data, forged()]
    valid_messages = 0
    for _ in range(10_000):
        data = bytearray(draw.choice(sources))
        for _ in range(draw.randint(1, 3)):
            where = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[where] ^= 1 << draw.randrange(8)
                case 1:
                    data[where] = draw.choice(b'0129-"[]{},: \x00\xff')
                case 2:
                    del data[where : where + draw.randint(1, 9)]
                case _:
                    data[where:where] = draw.randbytes(draw.randint(1, 9))
        valid_messages += survives(bytes(data))
    assert 0 < valid_messages < 5000  # mutations of payload bytes alone are messages
