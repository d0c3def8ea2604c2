"""Every agent trains for itself; latent spaces are aligned only when they are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sheafed.channels import Channel
from sheafed.errors import InputError
from sheafed.methods.node import NodeContext
from sheafed.methods.post_hoc import PostHocNode
from sheafed.transport.message import Message


@dataclass(frozen=True)
class NonCooperative:
    """Independent training and the post-hoc pipeline of the paper's baselines.

    Args:
        whitening: fit ZCA to the `"pilots"`, as Sheaf-FRL has it, or to each agent's `"private"`
            training data, as the paper does for its baselines. The latter costs a baseline much
            of its communication accuracy when data are shifted; training is the same, and a run
            measures both when it ends.
        shrinkage: of the covariance before whitening.
        channel: over which latents are transmitted, see `sheafed.channels`.
    """

    whitening: Literal["pilots", "private"] = "pilots"
    shrinkage: float = 0.1
    channel: Channel | None = None

    def __post_init__(self) -> None:
        if self.whitening not in ("pilots", "private"):
            raise InputError(f"whitening must be 'pilots' or 'private', got {self.whitening!r}")

    @property
    def label(self) -> str:
        """What tables call it."""
        return "Non-cooperative"

    def node(self, context: NodeContext) -> NonCooperativeNode:
        """Return the program of one agent."""
        return NonCooperativeNode(self, context)


class NonCooperativeNode(PostHocNode):
    """Sends nothing and learns alone."""

    neighbours_may_change = True

    def __init__(self, method: NonCooperative, context: NodeContext) -> None:
        super().__init__(context, method.whitening, method.shrinkage, method.channel)

    def send(self, round: int) -> Iterator[Message]:
        """Send nothing."""
        return iter(())

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Take one step on the own objective, if there is anything to train."""
        if not self.agent.learns:
            return {}
        with self.agent.rng_context():
            loss = self.local_loss(round)
            self.agent.optimizer_step(loss)
        return {"loss": float(loss.detach())}
