r"""FedMuscle (Setayesh et al., ICLR 2026): representations of the pilots are aligned by contrast.

The original has a server that collects the representations of a public unlabelled data set; here
the pilots are that set, and every agent broadcasts its representations to its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sheafed.errors import InputError
from sheafed.methods.node import ROUND, NodeContext, latent_dtype
from sheafed.methods.post_hoc_node import PostHocNode, PostHocOptions
from sheafed.options import NotNegative, OneOf, Positive, options
from sheafed.pilots.policies import PilotPolicy, as_pilot_policy, policy_digest
from sheafed.transport.message import Message, TensorSpec

Pilots = Annotated[int, Field(ge=2, strict=True)]
"""A contrast needs two."""


@options
class FedMuscle(PostHocOptions):
    r"""Epochs of ordinary training, then one with a contrastive loss on the pilots.

    In each round of an alignment epoch K pilots are drawn and encoded deterministically. With
    cosine similarity s and temperature $\tau$, the loss of agent i towards targets $a$ is InfoNCE,

    $\frac1K \sum_k -\log \frac{\exp(s(z_{ik}, a_k) / \tau)}{\sum_l \exp(s(z_{ik}, a_l) / \tau)}$:

    the same pilot is the positive, the others are negatives; only $z_i$ is differentiated. Without
    a message in a round there is no alignment in it. All agents need one latent size. Maps are
    fitted after training, as `PostHocOptions` say; its channel is that of alignment epochs too.

    Args:
        penalty: the weight $\lambda$ of the contrastive loss. That is a mean over pilots and at
            most $\log K + 2 / \tau$, whatever the size and scale of the latents.
        temperature: $\tau$.
        local_epochs: epochs of ordinary training before each alignment epoch.
        alignment: `"average"`, the Sheaf-FRL paper's: $a_k$ is the mean of the unit
            representations of pilot k, and the loss is added to the objective. It is the
            neighbours' mean, without the own representation: as in the original, what an agent
            agrees with is the others, and a positive that contains the own view would agree
            with it from the start. `"pairwise"`, nearer to the original: the targets are a
            neighbour's representations, and the alignment epoch leaves the objective out. Of
            several neighbours the losses are averaged; the original contrasts tuples of all
            agents' representations instead, which for two agents are such pairs and whose number
            grows as $K^{agents - 1}$.
        pilots_per_round: how many are drawn anew each round, or a policy from `sheafed.pilots`.
    """

    name: Literal["fedmuscle"] = field(default="fedmuscle", kw_only=True, repr=False)
    penalty: NotNegative = 0.1
    temperature: Positive = 0.1
    local_epochs: Annotated[int, Field(ge=0, strict=True)] = 4
    alignment: Literal["average", "pairwise"] = "average"
    pilots_per_round: Annotated[int | PilotPolicy, OneOf(Pilots, PilotPolicy)] = 64

    @property
    def label(self) -> str:
        return "FedMuscle" if self.alignment == "average" else "FedMuscle (pairwise)"

    def node(self, context: NodeContext) -> FedMuscleNode:
        return FedMuscleNode(self, context)


def info_nce(own: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return InfoNCE of own representations `(K, d)` against targets `(K, d)`, row by row."""
    similarities = _unit(own) @ _unit(targets).mT / temperature
    return nn.functional.cross_entropy(similarities, torch.arange(len(own), device=own.device))


def average_direction(representations: Sequence[Tensor]) -> Tensor:
    """Return the mean `(K, d)` of unit representations, so that no agent's scale dominates."""
    return torch.stack([_unit(z) for z in representations]).mean(0)


class FedMuscleNode(PostHocNode):
    def __init__(self, method: FedMuscle, context: NodeContext) -> None:
        super().__init__(context, method.whitening, method.shrinkage, method.channel)
        self.method = method
        self.pilot_policy = as_pilot_policy(
            method.pilots_per_round, context.pilots.total, context.seed
        )
        self._own: Tensor | None = None

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "latent size": self.agent.dimension,
            "latent precision": str(latent_dtype(self.agent)),
            "local epochs": self.method.local_epochs,
            "pilots per round": self.pilot_policy.count,
            "pilots of the first rounds": policy_digest(self.pilot_policy),
        }

    def is_alignment(self, round: int) -> bool:
        """Whether a round belongs to an alignment epoch."""
        epoch = round // self.context.rounds_per_epoch
        return epoch % (self.method.local_epochs + 1) == self.method.local_epochs

    def send(self, round: int) -> Iterator[Message]:
        """Broadcast the representations of this round's pilots in an alignment epoch."""
        self._own = None
        if not self.is_alignment(round):
            return
        selection = self.pilot_policy.select(round)
        with torch.set_grad_enabled(self.method.penalty > 0):
            self._own = selection.pool(self.pilot_latents(selection.indices, round))
        for j in self.neighbours:
            latents = self.link_to(j, round, "latents").carry(self._own.detach())
            yield Message(ROUND, round, self.name, j, {"latents": latents})

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Take one step: on the objective, and in an alignment epoch on the contrastive loss."""
        contrast = self._contrast(round, inbox)
        self._own = None
        log = {}
        self.agent.zero_grad()
        if contrast is not None:
            contrast.backward()  # type: ignore[no-untyped-call]
            log["penalty"] = float(contrast.detach())
        with self.agent.rng_context():
            if contrast is None or self.method.alignment == "average":
                loss = self.local_loss(round)
                loss.backward()  # type: ignore[no-untyped-call]
                log["loss"] = float(loss.detach())
            self.agent.apply_gradients()
        return log

    def _contrast(self, round: int, inbox: Mapping[str, Message]) -> Tensor | None:
        """Return the weighted contrastive loss, if this round has one."""
        if self._own is None:
            if self.is_alignment(round) and self.method.penalty > 0 and self.neighbours:
                raise InputError(f"agent {self.name!r}: receive() comes after send()")
            return None
        expected = {"latents": TensorSpec(self._own.dtype, tuple(self._own.shape))}
        specs = dict.fromkeys(self.neighbours, expected)
        messages = self.valid_messages(round, ROUND, inbox, specs)
        if not messages or not self._own.requires_grad:  # no penalty, or nothing to train by it
            return None
        latents = {j: message.tensors["latents"] for j, message in messages.items()}
        temperature = self.method.temperature
        if self.method.alignment == "average":
            target = average_direction([z for _, z in sorted(latents.items())])
            return self.method.penalty * info_nce(self._own, target, temperature)
        losses = [info_nce(self._own, z, temperature) for z in latents.values()]
        return self.method.penalty * torch.stack(losses).mean()


def _unit(z: Tensor) -> Tensor:
    return nn.functional.normalize(z, dim=-1)
