"""A message inside one process is a copy, as its bytes would give it, and counted as these are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sheafed.errors import MessageError
from sheafed.transport import LocalTransport, Message, decode, encode
from sheafed.transport.codec import hand_over
from sheafed.transport.header import DTYPES
from tests.helpers.messages import same_message

TENSORS = {
    "plain": torch.arange(12.0).reshape(3, 4),
    "turned": torch.arange(12.0).reshape(3, 4).mT,
    "learnt": torch.ones(2, 3, requires_grad=True) * 2,
    "spread": torch.ones(1, 3).expand(4, 3),
    "negated": torch.arange(4.0, dtype=torch.float32).to(torch.complex64).conj().imag,
    "empty": torch.zeros(0, 5),
    "scalar": torch.tensor(2.5),
    "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "special": torch.tensor([torch.nan, torch.inf, -0.0]),
}
FIELDS = {"z": 1, "a": 0.5, "whole": 2.0, "yes": True, "nothing": None, "text": "ä", "big": 2**62}


def make(tensors: dict[str, Tensor], fields: dict[str, object] | None = None) -> Message:
    return Message("latents", 3, "ada", "bo", tensors, fields or {})


@pytest.mark.parametrize("name", TENSORS)
def test_it_arrives_as_its_bytes_would(name: str) -> None:
    message = make({name: TENSORS[name], "ä": torch.ones(2, dtype=torch.int8)}, FIELDS)
    encoded, handed = encode(message), hand_over(message)
    expected = decode(encoded.data)
    assert same_message(handed.message, expected)
    assert handed[1:] == (encoded.header_bytes, encoded.payload_bytes)
    for key, tensor in expected.tensors.items():
        received = handed.message.tensors[key]
        assert (received.stride(), received.requires_grad) == (tensor.stride(), False)
        bits = (x.reshape(-1).contiguous().view(torch.uint8) for x in (received, tensor))
        assert torch.equal(*bits)
    assert list(handed.message.tensors) == list(expected.tensors)
    assert list(handed.message.fields.items()) == list(expected.fields.items())


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_every_dtype_arrives(dtype: torch.dtype) -> None:
    message = make({"x": torch.tensor([[0, 1, 1]]).to(dtype)})
    assert same_message(hand_over(message).message, decode(encode(message).data))


def test_fields_have_the_types_that_json_has() -> None:
    message = make({}, {"number": np.float64(0.5), "text": np.str_("x")})
    received, expected = hand_over(message).message, decode(encode(message).data)
    assert received.fields == expected.fields
    assert [type(v) for v in received.fields.values()] == [float, str]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.zeros(2, device="meta"),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros([1] * 9),
        torch.zeros(1).expand(1 << 30),
    ],
    ids=["sparse", "without values", "dtype", "dimensions", "size"],
)
def test_it_refuses_what_encode_refuses(tensor: Tensor) -> None:
    with pytest.raises(MessageError) as of_encode:
        encode(make({"x": tensor}))
    with pytest.raises(MessageError) as of_hand_over:
        hand_over(make({"x": tensor}))
    assert str(of_encode.value) == str(of_hand_over.value)
    assert of_encode.value.reason == of_hand_over.value.reason


def test_long_fields_are_refused() -> None:
    with pytest.raises(MessageError, match="the JSON of a message"):
        hand_over(make({}, {"text": "x" * 70_000}))


def test_no_agent_can_change_what_another_has() -> None:
    """One tensor is sent to two agents; the sender and both receivers change theirs."""
    transport, sent = LocalTransport(["ada", "bo", "cy"]), torch.zeros(4)
    transport.send(Message("latents", 0, "ada", to, {"z": sent}) for to in ("bo", "cy"))
    sent += 1
    received = [transport.receive(to, 0, "latents", ["ada"])["ada"] for to in ("bo", "cy")]
    received[0].tensors["z"].add_(2)
    assert sent.tolist() == [1.0] * 4
    assert received[0].tensors["z"].tolist() == [2.0] * 4
    assert received[1].tensors["z"].tolist() == [0.0] * 4


def test_a_tap_changes_neither_what_arrives_nor_what_is_counted() -> None:
    message, seen = make({"z": TENSORS["turned"]}, FIELDS), []
    transports = [LocalTransport(["ada", "bo"], tap=tap) for tap in (None, seen.append)]
    arrived = []
    for transport in transports:
        transport.send([message, message])  # the second is a duplicate
        arrived.append(transport.receive("bo", 3, "latents", ["ada"])["ada"])
    assert len(seen) == 2
    assert same_message(*arrived)
    assert transports[0].ledger.per_edge() == transports[1].ledger.per_edge()
    assert transports[0].rejected == transports[1].rejected == {"duplicate": 1}
