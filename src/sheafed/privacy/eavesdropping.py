"""An eavesdropper on one edge that knows the pilots, as every agent does."""

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
    """Records the latest messages of a directed edge: `LocalTransport(names, tap=eavesdropper)`.

    Args:
        sender: of the edge.
        receiver: of the edge.
        last: the number of messages kept. Encoders change little late in training, so averaging
            more releases of a pilot leaves less of their noise.
    """

    def __init__(self, sender: str, receiver: str, last: int = 50) -> None:
        self._edge = (sender, receiver)
        self._messages: deque[Message] = deque(maxlen=last)

    def __call__(self, data: bytes) -> None:
        """Record an encoded message if it is of this edge and of a round."""
        message = decode(data)
        if message.kind == ROUND and (message.sender, message.receiver) == self._edge:
            self._messages.append(message)

    def pilot_latents(self, node: SheafFRLNode) -> tuple[Tensor, Tensor]:
        """Return the indices of observed pilots `(n,)` and their mean latents `(n, width)`.

        Args:
            node: the sender's node. Only public parts are used: how pilots are selected and how
                latents are encoded.
        """
        if not self._messages:
            raise EmptyInputError(
                f"no message was recorded from {self._edge[0]!r} to {self._edge[1]!r}"
            )
        total = node.context.pilots.total
        sums = torch.zeros(total, self._messages[0].tensors["latents"].shape[1], dtype=node.dtype)
        counts = torch.zeros(total, 1, dtype=node.dtype)
        for message in self._messages:
            selection = node.pilot_policy.select(message.round)
            if selection.groups is not None:
                raise InputError(
                    "prototype pilots cannot be inverted: their latents are means over inputs"
                )
            tensors = node.codec.unpack(message, "latents", "all").tensors
            sums[selection.indices] += tensors["latents"]
            counts[selection.indices] += 1
            if "all" in tensors:
                sums += tensors["all"]
                counts += 1
        known = counts[:, 0].nonzero()[:, 0]
        return known, sums[known] / counts[known]
