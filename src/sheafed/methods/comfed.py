r"""ComFed (CoMFed, Badi et al. 2026): learnt projections into a space of aligned class prototypes.

Every agent learns an unconstrained $P_i \in \mathbb R^{r \times d_i}$ along with its model. The
prototypes of its classes in the shared space are broadcast to the neighbours, and each agent
aggregates what it receives together with its own. On a complete graph, and so for two agents, that
is the aggregate of a server.

Nothing but the alignment trains $P_i$, so agents can read each other only where $\lambda$ is large
enough for it: five agents on digits (the preset with `method.name=comfed`: r = 64, 60 epochs; seeds
0, 1, 2) reach a communication accuracy of .24, .52, .55, .41 and .25 at $\lambda$ = 0.01, 0.1, 0.3,
1 and 3, with a private accuracy of .94, .94, .92, .92 and .75.

$P_i = 0$ satisfies the alignment too. Here targets are constants that include the own prototypes,
so agents meet near the mean of where they are; $P_i$ starts orthonormal; weight decay leaves it
alone. The shared prototypes still shrink: a batch's class means are noisy, so the best $P_i$ is a
little smaller, and the next targets with it. Reading by $P_i^+$ undoes that, and longer training
helps: at $\lambda = 0.3$ the five agents reach .75 after 180 epochs, with .95 on their own data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sheafed.errors import InputError
from sheafed.linalg.decompositions import pinv
from sheafed.methods.node import Node, NodeContext, latent_dtype
from sheafed.methods.prototypes import (
    Prototypes,
    broadcast,
    class_gaps,
    classes_of,
    labelled_loss,
    merge_received,
)
from sheafed.methods.tied_optimizer import TiedOptimizer
from sheafed.methods.whitening import NoWhitening
from sheafed.options import NotNegative, Width, options
from sheafed.seeds import generator
from sheafed.transport.message import Message


@options
class ComFed:
    r"""Objective plus $\lambda$ times the squared distance of projected class prototypes.

    $\frac{\lambda}{C} \sum_c \|P_i \mu_{ic} - \bar c_c\|^2$ over the C classes c of the objective's
    batch that an agent has sent, with the batch's class means $\mu_{ic}$ and the aggregate
    $\bar c_c$, a constant. Both the encoder and $P_i$ follow its gradient: $P_i$ by an optimiser of
    the kind and with the settings of the agent's own, without weight decay.

    The Sheaf-FRL paper gives an interval for $\lambda$ and no formula. The distance is summed over
    the r coordinates, so that one $\lambda$ pulls equally whatever r is, and averaged over classes,
    so that it does not depend on how many of them a batch happens to have.

    Latents are transmitted as $P_j z_j$, r numbers, and read as $P_i^+ P_j z_j$; no map is fitted
    after training and nothing is whitened. Misalignment is that of the raw latents of the pilots.

    Args:
        penalty: $\lambda$.
        projection: r, one for all agents. The paper takes 64, or d where all have one d.
        every: `"epoch"` sends the class means over an epoch's batches once per epoch, the first of
            which has no penalty; `"round"` those of a batch in the round after it, which aligns
            sooner and shrinks the prototypes sooner.
        start: of $P_i$: `"orthonormal"` rows, or columns if they are fewer, or `"xavier"`, the
            usual start of a layer. At $\lambda = 0.3$ the five agents
            reach .546 ± .025 with the first and .524 ± .038 with the second.
    """

    name: Literal["comfed"] = field(default="comfed", kw_only=True, repr=False)
    penalty: NotNegative = 0.1
    projection: Width = 64
    every: Literal["epoch", "round"] = "epoch"
    start: Literal["orthonormal", "xavier"] = "orthonormal"

    @property
    def label(self) -> str:
        return "ComFed"

    def node(self, context: NodeContext) -> ComFedNode:
        return ComFedNode(self, context)


class ProjectionEndpoint:
    """The endpoint of every edge of an agent: one projection P into the space that all share."""

    in_frame = fitted = True

    def __init__(self, projection: Tensor) -> None:
        self.map = projection
        self.width = len(projection)

    def outgoing(self, own: Tensor) -> Tensor:
        r"""Return $P z$."""
        return own @ self.map.mT

    def incoming(self, received: Tensor) -> Tensor:
        r"""Return $P^+$ of what arrived."""
        return received @ pinv(self.map).mT

    def cross(self, own: Tensor, received: Tensor) -> Tensor:
        raise InputError("a projection is learnt, not fitted to a cross-covariance")

    def fit(self, m: Tensor, fit_number: int) -> None:
        raise InputError("a projection is learnt, not fitted to a cross-covariance")


class ComFedNode(Node):
    def __init__(self, method: ComFed, context: NodeContext) -> None:
        agent, dtype = context.agent, latent_dtype(context.agent)
        super().__init__(context, NoWhitening().layer(agent.dimension))
        self.method = method
        self.classes = classes_of(agent)
        stream = generator(context.seed, self.name, "projection")
        start = STARTS[method.start](method.projection, agent.dimension, stream)
        self.projection = nn.Parameter(start.to(agent.device, dtype))
        self.optimizer = TiedOptimizer(agent, [self.projection], "projection", weight_decay=False)
        period = context.rounds_per_epoch if method.every == "epoch" else 1
        self.prototypes = Prototypes(
            self.classes, method.projection, dtype, period, momentum=None, device=agent.device
        )

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "projection dimension": self.method.projection,
            "number of classes": self.classes,
            "latent precision": str(latent_dtype(self.agent)),
            "rounds between exchanges": self.prototypes.period,
        }

    def prepare(self) -> None:
        """Give every edge the same endpoint; its map shares memory with the projection."""
        self.endpoints = dict.fromkeys(
            self.neighbours, ProjectionEndpoint(self.projection.detach())
        )

    def send(self, round: int) -> Iterator[Message]:
        """Broadcast own projected class means and counts."""
        return broadcast(self, self.prototypes, round)

    def reuse(self, round: int, message: Message) -> Message:
        return replace(message, round=round)

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Aggregate, then take one step of model and projection."""
        merge_received(self, self.prototypes, round, inbox)
        with self.agent.rng_context():
            loss, latents, targets = labelled_loss(self, round, self.classes)
            log = {"loss": float(loss.detach())}
            projected = latents @ self.projection.mT
            self.prototypes.add(projected, targets)
            gaps = class_gaps(projected, targets, self.prototypes.aggregate, self.prototypes.known)
            if len(gaps) and self.method.penalty > 0:
                penalty = self.method.penalty * gaps.mean()
                loss = loss + penalty
                log["penalty"] = float(penalty.detach())
            self.optimizer.optimizer_step(loss)
        return log

    def state(self) -> dict[str, Any]:
        return {  # of whitening and endpoints there is nothing but the projection
            "projection": self.projection.detach().clone(),
            "optimizer": self.optimizer.state_dict(),
            "prototypes": self.prototypes.state(),
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        self.projection.copy_(state["projection"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.prototypes.load_state(state["prototypes"])


def orthonormal(rows: int, columns: int, stream: torch.Generator) -> Tensor:
    """Return a random matrix whose rows, or columns if they are fewer, are orthonormal."""
    size = (max(rows, columns), min(rows, columns))
    q: Tensor = torch.linalg.qr(torch.randn(size, generator=stream, dtype=torch.float64))[0]
    return q if rows >= columns else q.mT.contiguous()


def xavier(rows: int, columns: int, stream: torch.Generator) -> Tensor:
    r"""Return uniform numbers up to $\sqrt{6 / (r + d)}$, as Glorot and Bengio start a layer."""
    return nn.init.xavier_uniform_(
        torch.empty(rows, columns, dtype=torch.float64), generator=stream
    )


STARTS = {"orthonormal": orthonormal, "xavier": xavier}
