"""Messages for the tests of codec and transports."""

import torch
from torch import Tensor

from sheafed.transport import Message
from sheafed.transport.header import DTYPES


def tensor_of(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    """Return random bits, which may be NaN, as a tensor."""
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.tensor(shape).prod()) * dtype.itemsize
    top = 2 if dtype is torch.bool else 256
    raw = torch.randint(top, (count,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape)


def every_tensor() -> dict[str, Tensor]:
    """Return a matrix, an empty matrix and a scalar of every dtype."""
    return {
        f"{name} {shape}": tensor_of(dtype, *shape, seed=seed)
        for seed, (name, dtype) in enumerate(DTYPES.items())
        for shape in [(3, 5), (0, 5), ()]
    }


def message(
    round: int = 0, sender: str = "a", receiver: str = "b", kind: str = "latents", seed: int = 0
) -> Message:
    tensors = {"latents": tensor_of(torch.int32, 4, 3, seed=seed)}
    return Message(kind, round, sender, receiver, tensors)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Compare bits: NaN equals itself, 0 and -0 differ."""
    raw = [x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*raw)


def same_message(one: Message, other: Message) -> bool:
    return (
        (one.kind, one.round, one.sender, one.receiver)
        == (other.kind, other.round, other.sender, other.receiver)
        and dict(one.fields) == dict(other.fields)
        and one.tensors.keys() == other.tensors.keys()
        and all(same_bits(tensor, other.tensors[name]) for name, tensor in one.tensors.items())
    )
