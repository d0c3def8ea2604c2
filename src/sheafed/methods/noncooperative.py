"""Every agent trains for itself; latent spaces are aligned only when they are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

from sheafed.methods.local_loss import check_losses
from sheafed.methods.node import NodeContext
from sheafed.methods.post_hoc_node import PostHocNode, PrivateMapOptions
from sheafed.options import options
from sheafed.transport.message import Message
from sheafed.vectorized import StackedCohort


@options
class NonCooperative(PrivateMapOptions):
    """Independent training and the post-hoc pipeline of the paper's baselines."""

    name: Literal["non-cooperative"] = field(default="non-cooperative", kw_only=True, repr=False)

    @property
    def label(self) -> str:
        return "Non-cooperative"

    def node(self, context: NodeContext) -> NonCooperativeNode:
        return NonCooperativeNode(self, context)


class NonCooperativeNode(PostHocNode):
    neighbours_may_change = True
    steps_together = True

    def __init__(self, method: NonCooperative, context: NodeContext) -> None:
        super().__init__(
            context,
            method.whitening,
            method.shrinkage,
            method.channel,
            privacy=method.privacy,
        )

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {"privacy": self.privacy}

    def send(self, round: int) -> Iterator[Message]:
        return iter(())

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        if not self.agent.learns:
            return {}
        with self.agent.rng_context():
            loss = self.local_loss(round)
            self.agent.optimizer_step(loss)
        return {"loss": float(loss.detach())}

    @staticmethod
    def receive_together(
        nodes: Sequence[NonCooperativeNode],
        round: int,
        inboxes: Mapping[str, Mapping[str, Message]],
        cohort: StackedCohort,
    ) -> dict[str, dict[str, float]]:
        own = cohort.own_pass()
        check_losses(cohort.agents, own, round)
        cohort.train_on(own.losses)
        cohort.take_step()
        losses = own.losses.tolist()
        return {node.name: {"loss": loss} for node, loss in zip(nodes, losses, strict=True)}
