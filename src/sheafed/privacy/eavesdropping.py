"""An eavesdropper that knows the pilots, as every agent does."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError
from sheafed.methods.node import ROUND
from sheafed.methods.sheaf_frl.node import SheafFRLNode
from sheafed.transport import decode
from sheafed.transport.message import Message


class Eavesdropper:
    """Remembers what crossed one edge lately: `LocalTransport(names, tap=eavesdropper)`.

    Args:
        sender: whose messages.
        receiver: to whom.
        last: how many messages are remembered. Encoders move little late in training, so the more
            releases of a pilot are averaged, the less of their noise is left.
    """

    def __init__(self, sender: str, receiver: str, last: int = 50) -> None:
        self._edge = (sender, receiver)
        self._heard: deque[Message] = deque(maxlen=last)

    def __call__(self, data: bytes) -> None:
        """Take note of a message."""
        message = decode(data)
        if message.kind == ROUND and (message.sender, message.receiver) == self._edge:
            self._heard.append(message)

    def pilots(self, node: SheafFRLNode) -> tuple[Tensor, Tensor]:
        """Return which pilots were heard of, `(n,)`, and the mean of what was, `(n, width)`.

        Args:
            node: the sender's program. Only what all agents know of it is read: how pilots are
                selected and how numbers are packed.
        """
        if not self._heard:
            raise EmptyInputError(f"nothing was heard from {self._edge[0]!r} to {self._edge[1]!r}")
        total = node.context.pilots.total
        sums = torch.zeros(total, self._heard[0].tensors["latents"].shape[1], dtype=node.dtype)
        counts = torch.zeros(total, 1, dtype=node.dtype)
        for message in self._heard:
            selection = node.policy.select(message.round)
            if selection.groups is not None:
                raise InputError("prototype pilots are means of inputs: there is none to pair with")
            tensors = node.codec.unpack(message, "latents", "all").tensors
            sums[selection.indices] += tensors["latents"]
            counts[selection.indices] += 1
            if "all" in tensors:
                sums += tensors["all"]
                counts += 1
        known = counts[:, 0].nonzero()[:, 0]
        return known, sums[known] / counts[known]
