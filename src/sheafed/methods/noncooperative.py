"""Every agent trains for itself; latent spaces are aligned only when they are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

from torch import nn

from sheafed.methods.consensus import count_classes
from sheafed.methods.local_loss import check_losses
from sheafed.methods.node import NodeContext
from sheafed.methods.post_hoc_node import PostHocNode, PrivateMapOptions
from sheafed.methods.reading_head import ReadingHead
from sheafed.methods.refitted_head import refit_head
from sheafed.options import Switch, options
from sheafed.transport.message import Message
from sheafed.vectorized import StackedCohort


@options
class NonCooperative(PrivateMapOptions):
    """Independent training and the post-hoc pipeline of the paper's baselines.

    Args:
        refit_head: when maps are fitted, fit a copy of the head to own labels once more, to latents
            as the encoder has them in use (`sheafed.methods.refitted_head`). It classifies own data
            and what neighbours send.
    """

    name: Literal["non-cooperative"] = field(default="non-cooperative", kw_only=True, repr=False)
    refit_head: Switch = field(default=False, kw_only=True)

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
        self.refit_head = method.refit_head

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

    def after_alignment(self, messages: Mapping[str, Message]) -> None:
        agent, classes = self.agent, count_classes(self.agent)
        self.reading_head = None
        if agent.head is None or not (self.refit_head and classes):
            return
        refitted = refit_head(agent, classes, seed=self.context.seed)
        if refitted is not None:
            self.reading_head = ReadingHead(refitted, {})

    @property
    def own_head(self) -> nn.Module | None:
        return None if self.reading_head is None else self.reading_head.of(self.name)

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
