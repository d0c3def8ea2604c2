r"""Class prototypes: what FedProto and ComFed exchange, and how an agent aggregates it.

A prototype is the mean of an agent's vectors of one class. Only the agent sees the vectors
themselves, except where a class had a single sample: its mean is that sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.agents.samples import Batch
from sheafed.devices import CPU
from sheafed.errors import InputError, MessageError
from sheafed.methods.local_loss import loss_and_latents
from sheafed.methods.node import ROUND, Node, count_outputs
from sheafed.transport.message import Message, TensorSpec


def class_sums(vectors: Tensor, targets: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum `(classes, d)` of the vectors `(n, d)` of each class and their number."""
    sums = vectors.new_zeros(classes, vectors.shape[1]).index_add(0, targets, vectors)
    return sums, torch.bincount(targets, minlength=classes)


def class_gaps(vectors: Tensor, targets: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    r"""Return $\|\mu_c - \bar c_c\|^2$ `(C,)` for the C classes c of a batch that are known.

    Args:
        vectors: the batch, `(n, d)`, with the class means $\mu_c$.
        targets: its labels, `(n,)`.
        prototypes: $\bar c$, `(classes, d)`.
        known: which of them there are, `(classes,)`.
    """
    sums, counts = class_sums(vectors, targets, len(known))
    chosen = known & (counts > 0)
    return (sums[chosen] / counts[chosen, None] - prototypes[chosen]).square().sum(1)


def weighted_mean(prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return $\bar c_k = \sum_i \frac{n_{ik}}{N_k} c_{ik}$, `(classes, d)`, and $N_k$.

    Agents stand along the first dimension of `(agents, classes, d)` and `(agents, classes)`. A
    class without samples is 0.
    """
    totals = counts.sum(0)
    # Weights before the sum: a count from a neighbour may be any number, their ratio is at most 1.
    weights = counts.to(prototypes.dtype) / totals.clamp(min=1)
    return (weights[..., None] * prototypes).sum(0), totals


class Prototypes:
    """An agent's own class means since the last exchange, and the aggregate of all agents'.

    Args:
        classes: how many there are.
        width: how many numbers a prototype has.
        period: rounds over which own means are collected before they are exchanged.
        momentum: None to replace the aggregate at every exchange; else what an exchange leaves
            of it. A class enters with its first mean.
    """

    def __init__(
        self,
        classes: int,
        width: int,
        dtype: torch.dtype,
        period: int,
        momentum: float | None,
        device: torch.device = CPU,
    ) -> None:
        self.period, self.momentum = period, momentum
        self.sums = torch.zeros(classes, width, dtype=dtype, device=device)
        self.counts = torch.zeros(classes, dtype=torch.long, device=device)
        self.aggregate = torch.zeros(classes, width, dtype=dtype, device=device)
        self.known = torch.zeros(classes, dtype=torch.bool, device=device)
        """Which classes the aggregate has."""

    def is_exchanged(self, round: int) -> bool:
        """Whether the means of the rounds before are exchanged in this one."""
        return round > 0 and round % self.period == 0

    def own(self) -> dict[str, Tensor]:
        """Return what is broadcast: own means `(classes, width)`, 0 without samples, and counts."""
        means = self.sums / self.counts.clamp(min=1)[:, None]
        return {"prototypes": means, "counts": self.counts.clone()}

    def specs(self) -> dict[str, TensorSpec]:
        return {
            "prototypes": TensorSpec(self.sums.dtype, tuple(self.sums.shape)),
            "counts": TensorSpec(torch.int64, tuple(self.counts.shape)),
        }

    def add(self, vectors: Tensor, targets: Tensor) -> None:
        """Add a batch `(n, width)` to the own means."""
        sums, counts = class_sums(vectors.detach(), targets, len(self.counts))
        self.sums += sums
        self.counts += counts

    def merge(self, name: str, received: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Aggregate own and received means, and start collecting anew.

        In the order of names: agents that receive the same hold the same aggregate to the last bit.
        """
        parts = [tensors for _, tensors in sorted({**received, name: self.own()}.items())]
        means, totals = weighted_mean(
            torch.stack([t["prototypes"] for t in parts]),
            torch.stack([t["counts"] for t in parts]),
        )
        present = totals > 0
        if self.momentum is None:
            self.aggregate, self.known = means, present
        else:
            moved = self.momentum * self.aggregate + (1 - self.momentum) * means
            fresh = torch.where(self.known[:, None], moved, means)
            self.aggregate = torch.where(present[:, None], fresh, self.aggregate)
            self.known = self.known | present
        self.sums = torch.zeros_like(self.sums)
        self.counts = torch.zeros_like(self.counts)

    def state(self) -> dict[str, Tensor]:
        names = ("sums", "counts", "aggregate", "known")
        return {name: getattr(self, name).clone() for name in names}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for name, value in state.items():
            setattr(self, name, value.clone())


def broadcast(node: Node, prototypes: Prototypes, round: int) -> Iterator[Message]:
    """Return the messages with the own prototypes, in the rounds that exchange them."""
    if prototypes.is_exchanged(round):
        tensors = prototypes.own()
        for j in node.neighbours:
            yield Message(ROUND, round, node.name, j, tensors)


def merge_received(
    node: Node, prototypes: Prototypes, round: int, inbox: Mapping[str, Message]
) -> None:
    """Merge the prototypes that arrived, in the rounds that exchange them."""
    if not prototypes.is_exchanged(round):
        return
    specs = dict.fromkeys(node.neighbours, prototypes.specs())
    messages = node.valid_messages(round, ROUND, inbox, specs, check=_check_counts)
    prototypes.merge(node.name, {j: message.tensors for j, message in messages.items()})


def _check_counts(message: Message) -> None:
    counts = message.tensors["counts"]
    # Counts up to here cannot overflow in a sum over any network.
    if int(counts.min()) < 0 or int(counts.max()) >= 2**40:
        raise MessageError(
            "counts",
            f"{message}: class counts must lie in 0..2^40, got "
            f"{int(counts.min())}..{int(counts.max())}",
        )


def labelled_loss(node: Node, round: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the objective on the next batch, the latents `(n, d)` it computed, and the labels."""
    batch = node.agent.next_batch()
    targets = _labels(node.agent, batch, classes)
    loss, latents = loss_and_latents(node.agent, batch, round)
    return loss, latents, targets


def classes_of(agent: Agent) -> int:
    """Return how many classes an agent's head tells apart; it must have one."""
    if agent.head is None:
        raise InputError(
            f"agent {agent.name!r} has no head, so the classes of its prototypes are unknown; "
            "give it a head, or take a method that needs no labels"
        )
    if agent.regression:
        raise InputError(
            f"agent {agent.name!r}: its head predicts numbers, and prototypes are of classes; take "
            "SheafFRL, NonCooperative or another method without prototypes"
        )
    return count_outputs(agent)


def _labels(agent: Agent, batch: Batch, classes: int) -> Tensor:
    targets = batch.targets
    if targets is None or targets.ndim != 1 or targets.is_floating_point():
        found: Any = None if targets is None else (tuple(targets.shape), targets.dtype)
        raise InputError(
            f"agent {agent.name!r}: prototypes need one whole-numbered class label per sample, "
            f"got {found}"
        )
    if int(targets.min()) < 0 or int(targets.max()) >= classes:
        raise InputError(
            f"agent {agent.name!r}: labels must lie in 0..{classes - 1}, as its head has it, got "
            f"{int(targets.min())}..{int(targets.max())}"
        )
    return targets.long()
