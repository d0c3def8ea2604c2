"""A method of your own to start from. Use it with:

    [method]
    name = "custom"
    factory = "THIS_MODULE:MyMethod"
    options = { strength = 0.1 }

and allow it on the command line: `--allow-code THIS_MODULE.py`.

Agents send their neighbours their latest loss, and an agent whose loss is above its neighbours'
average takes a larger step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sheafed.methods import ROUND, Node, NodeContext, PostHocNode
from sheafed.options import NotNegative, options
from sheafed.transport import Message, TensorSpec


@options
class MyMethod:
    """The options of the method, which are checked; more checks go into `__post_init__`.

    Args:
        strength: by how much a step is larger.
    """

    strength: NotNegative = 0.1

    @property
    def label(self) -> str:
        """What tables call it."""
        return "My method"

    def node(self, context: NodeContext) -> Node:
        return MyNode(self, context)


class MyNode(PostHocNode):
    """What one agent does; maps are fitted on the pilots when it is evaluated."""

    def __init__(self, method: MyMethod, context: NodeContext) -> None:
        super().__init__(context, whitening="pilots", shrinkage=0.5)
        self.method = method
        self.latest = 0.0

    def send(self, round: int) -> Iterator[Message]:
        """Send messages to the neighbours: named tensors, and scalars in `fields`."""
        for neighbour in self.neighbours:
            tensors = {"loss": torch.tensor([self.latest])}
            yield Message(ROUND, round, self.name, neighbour, tensors)

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Use the messages that arrived, take a step, and return what to log."""
        expected = {"loss": TensorSpec(torch.float32, (1,))}
        messages = self.valid_messages(
            round, ROUND, inbox, dict.fromkeys(self.neighbours, expected)
        )
        losses = [float(message.tensors["loss"]) for message in messages.values()]
        behind = bool(losses) and self.latest > sum(losses) / len(losses)
        with self.agent.rng_context():
            loss = self.local_loss(round)
            self.agent.optimizer_step(loss * (1 + self.method.strength * behind))
        self.latest = float(loss.detach())
        return {"loss": self.latest, "behind": float(behind)}

    def state(self) -> dict[str, Any]:
        """Return everything that changes in training, so that a run resumes exactly."""
        return super().state() | {"latest": self.latest}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().load_state(state)
        self.latest = state["latest"]
