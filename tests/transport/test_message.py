from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import torch

from sheafed.errors import MessageError, SheafedError
from sheafed.transport import Message, TensorSpec, check_message
from sheafed.transport.message import Scalar

LATENTS = Message("latents", 3, "a", "b", {"z": torch.zeros(4, 2)}, {"dropout": False})
AGREED: dict[str, Any] = {
    "kind": "latents",
    "round": 3,
    "sender": "a",
    "receiver": "b",
    "tensors": {"z": TensorSpec(torch.float32, (4, 2))},
}


def test_is_immutable() -> None:
    tensors = {"z": torch.zeros(1)}
    message = Message("latents", 0, "a", "b", tensors)
    tensors["y"] = torch.ones(1)
    assert list(message.tensors) == ["z"]
    with pytest.raises(FrozenInstanceError):
        message.round = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        message.tensors["x"] = torch.ones(1)  # type: ignore[index]
    with pytest.raises(TypeError):
        message.fields["x"] = 1  # type: ignore[index]


def test_does_not_copy_tensors_and_can_be_redirected() -> None:
    other = replace(LATENTS, receiver="c")
    assert other.receiver == "c"
    assert other.tensors["z"] is LATENTS.tensors["z"]


def test_fields_are_any_json_scalars() -> None:
    fields: dict[str, Scalar] = {
        "a": "",
        "b": 2**63 - 1,
        "c": -0.5,
        "d": True,
        "e": None,
        "f": np.float64(0.25),
    }
    assert dict(Message("x", 0, "a", "b", fields=fields).fields) == fields


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": ""}, "kind"),
        ({"kind": b"latents"}, "kind"),
        ({"kind": "\ud800"}, "kind"),
        ({"sender": 3}, "sender"),
        ({"receiver": None}, "receiver"),
        ({"round": -1}, "round"),
        ({"round": 2**63}, "round"),
        ({"round": True}, "round"),
        ({"round": 1.0}, "round"),
        ({"tensors": [torch.zeros(1)]}, "tensors"),
        ({"tensors": {"z": [1.0]}}, "tensors"),
        ({"tensors": {"": torch.zeros(1)}}, "names"),
        ({"tensors": {1: torch.zeros(1)}}, "names"),
        ({"fields": None}, "fields"),
        ({"fields": {"": 1}}, "fields"),
        ({"fields": {"x": [1]}}, "fields"),
        ({"fields": {"x": float("nan")}}, "fields"),
        ({"fields": {"x": float("-inf")}}, "fields"),
        ({"fields": {"x": 2**63}}, "fields"),
        ({"fields": {"x": "\udfff"}}, "fields"),
    ],
)
def test_invalid_messages_cannot_be_constructed(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(MessageError) as caught:
        replace(LATENTS, **change)
    assert caught.value.reason == reason
    assert "got" in str(caught.value)


def test_an_agreed_message_passes() -> None:
    check_message(LATENTS, **AGREED)
    integers = Message("labels", 0, "a", "b", {"y": torch.tensor(3), "n": torch.zeros(0).bool()})
    specs = {"n": TensorSpec(torch.bool, (0,)), "y": TensorSpec(torch.int64, ())}
    check_message(integers, kind="labels", round=0, sender="a", receiver="b", tensors=specs)


@pytest.mark.parametrize(
    ("change", "reason", "explanation"),
    [
        ({"kind": "weights"}, "kind", "kind must be 'latents', got 'weights'"),
        ({"round": 2}, "round", "round must be 3, got 2"),
        ({"sender": "c"}, "sender", "sender must be 'a', got 'c'"),
        ({"receiver": "c"}, "receiver", "receiver must be 'b', got 'c'"),
        ({"tensors": {}}, "names", r"tensors must be \['z'\], got \[\]"),
        (
            {"tensors": {"z": torch.zeros(4, 2), "y": torch.zeros(1)}},
            "names",
            r"tensors must be \['z'\], got \['y', 'z'\]",
        ),
        (
            {"tensors": {"z": torch.zeros(4, 2).half()}},
            "dtype",
            "dtype of z must be torch.float32, got torch.float16",
        ),
        (
            {"tensors": {"z": torch.zeros(2, 4)}},
            "shape",
            r"shape of z must be \(4, 2\), got \(2, 4\); both ends must run the same",
        ),
        (
            {"tensors": {"z": torch.tensor([[0.0, 1.0]] * 3 + [[0.0, torch.inf]])}},
            "non-finite",
            r"z holds 1 non-finite of 8 values, the first at \(3, 1\): inf",
        ),
        (
            {"tensors": {"z": torch.tensor([[0.0, 1.0]] * 3 + [[-3e38, 2.0]])}},
            "magnitude",
            r"z holds numbers from -3e\+38 to 2, at most 1e\+12 in size is accepted",
        ),
        (
            {"tensors": {"z": torch.full((4, 2), 1.1e12)}},
            "magnitude",
            "z holds numbers from 1.1e",
        ),
    ],
)
def test_anything_else_is_refused(change: dict[str, Any], reason: str, explanation: str) -> None:
    message = replace(LATENTS, **change)
    where = rf"message '{message.kind}' from '{message.sender}' .* in round {message.round}: "
    with pytest.raises(MessageError, match=where + explanation) as caught:
        check_message(message, **AGREED)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_values_of_every_type_are_found(dtype: torch.dtype, bad: float) -> None:
    message = replace(LATENTS, tensors={"z": torch.tensor(bad, dtype=dtype)})
    with pytest.raises(MessageError) as caught:
        check_message(message, **AGREED | {"tensors": {"z": TensorSpec(dtype, ())}})
    assert caught.value.reason == "non-finite"


def test_errors_are_sheafed_errors_that_read_as_their_explanation() -> None:
    error = MessageError("shape", "too long; cut it")
    assert isinstance(error, SheafedError)
    assert (error.reason, str(error)) == ("shape", "too long; cut it")
