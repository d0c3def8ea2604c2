r"""Private and communication accuracy (eq. monitored_metrics), and what they are measured against.

Nothing here touches training: models are in inference mode, no random number is drawn but those
of a noisy channel, whose stream is its own. Communication goes through that channel; misalignment
does not: it is about encoders and maps, so pilots are compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from sheafed.agents.samples import Samples
from sheafed.errors import InputError
from sheafed.methods.node import Node

Split = Literal["validation", "test"]

EVALUATION_PILOTS = 256
"""How many pilots the misalignment is measured on: all would cost far more than all the rest."""


@dataclass(frozen=True)
class Evaluation:
    """Accuracies by agent, and by (sender, receiver) for everybody who is a neighbour."""

    private: dict[str, float] = field(default_factory=dict)
    communication: dict[tuple[str, str], float] = field(default_factory=dict)
    oracle: dict[tuple[str, str], float] = field(default_factory=dict)
    """The receiver's accuracy when it encodes the sender's test inputs itself."""
    misalignment: dict[tuple[str, str], float] = field(default_factory=dict)
    """By (head, tail): the normalised residual of the edge on the probes."""

    def communication_of(self, receiver: str) -> float | None:
        r"""Return $A_i^{comm}$: the mean over the agent's neighbours as senders."""
        return mean(v for (_, r), v in self.communication.items() if r == receiver)

    def without(self, name: str) -> Evaluation:
        """Return what was measured of the other agents."""
        return Evaluation(
            {agent: v for agent, v in self.private.items() if agent != name},
            *(
                {pair: v for pair, v in found.items() if name not in pair}
                for found in (self.communication, self.oracle, self.misalignment)
            ),
        )

    def summary(self) -> dict[str, float | None]:
        """Return the averages that are reported.

        The plain communication accuracy averages agents; the degree-weighted one, which the
        paper reports, averages directed edges.
        """
        receivers = sorted({r for _, r in self.communication})
        return {
            "private_accuracy": mean(self.private.values()),
            "communication_accuracy": mean(self.communication_of(r) or 0.0 for r in receivers),
            "communication_accuracy_degree_weighted": mean(self.communication.values()),
            "oracle_accuracy": mean(
                mean(v for (_, to), v in self.oracle.items() if to == r) or 0.0
                for r in sorted({r for _, r in self.oracle})
            ),
            "misalignment": mean(self.misalignment.values()),
        }


@torch.no_grad()
def evaluate(nodes: Mapping[str, Node], split: Split = "test", oracle: bool = True) -> Evaluation:
    """Evaluate all agents on each other's data; every set is encoded once per encoder.

    Args:
        nodes: the programs, after a handshake, with their maps fitted.
        split: which data of the agents.
        ceiling: also let every receiver encode its neighbours' inputs itself. That needs those
            inputs in this process, so it is a measurement and not part of any protocol. Between
            agents of different modalities there is none: they cannot encode each other's.
    """
    result = Evaluation()
    data = {
        name: s for name, node in nodes.items() if (s := local_samples(node, split)) is not None
    }
    encoded = {name: nodes[name].agent.encode_samples(samples) for name, samples in data.items()}
    for name, node in nodes.items():
        if node.agent.head is None:
            continue
        if name in encoded:
            result.private[name] = accuracy(node, *encoded[name], of=name)
        for sender in node.neighbours:
            if sender not in encoded:
                continue
            latents, targets = encoded[sender]
            understood = node.interpret(nodes[sender].transmit(latents, name), sender)
            result.communication[sender, name] = accuracy(node, understood, targets, of=sender)
            if oracle and _see_alike(node, nodes[sender]):
                own, _ = node.agent.encode_samples(data[sender])
                result.oracle[sender, name] = accuracy(node, own, targets, of=sender)
    if split == "test":  # it is the same whatever the split
        result.misalignment.update(misalignments(nodes))
    return result


@torch.no_grad()
def misalignments(nodes: Mapping[str, Node]) -> dict[tuple[str, str], float]:
    r"""Return $\|A_i - V_{ij} A_j\|^2 / (\|A_i\|^2 + \|A_j\|^2)$ of every edge on the probes.

    An edge whose latents are all zero has none, nor one whose tail does not show its pilots.
    """
    white = white_evaluation_pilots(nodes)
    found = {}
    for name, node in nodes.items():
        for neighbour in node.neighbours:
            edge = node.edge(neighbour)
            if edge.head != name or not nodes[neighbour].shows_pilots:
                continue
            sent = nodes[neighbour].endpoints[name].outgoing(white[neighbour])
            carried = node.endpoints[neighbour].incoming(sent)
            energy = float(white[neighbour].square().sum())
            residual = normalised_residual(white[name], carried, energy)
            if residual is not None:
                found[edge.head, edge.tail] = residual
    return found


def white_evaluation_pilots(nodes: Mapping[str, Node]) -> dict[str, Tensor]:
    """Return every agent's white latents of the pilots to measure on."""
    return {
        name: node.white_pilots(evaluation_pilots(node.context.pilots.total))
        for name, node in nodes.items()
    }


def evaluation_pilots(total: int) -> Tensor:
    """Return the indices of the pilots to measure on, evenly spread over all."""
    return (
        torch.linspace(0, total - 1, min(total, EVALUATION_PILOTS), dtype=torch.float64)
        .round()
        .long()
    )


def normalised_residual(own: Tensor, carried: Tensor, energy: float) -> float | None:
    """Return the residual of an edge at its head, given what its map made of the tail's latents.

    Args:
        own: the head's white latents.
        carried: the tail's, as the head reads them.
        energy: the squared norm of the tail's as they were.
    """
    total = float(own.square().sum()) + energy
    return float((own - carried).square().sum()) / total if total > 0 else None


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of some numbers, or None of none."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def local_samples(node: Node, split: Split) -> Samples | None:
    """Return an agent's test or validation data, if it has any."""
    return node.agent.data.test if split == "test" else node.agent.data.validation


def _see_alike(one: Node, other: Node) -> bool:
    """Whether two agents are of one modality: the pilots look the same to both."""
    mine, theirs = (node.context.pilots.of(node.name) for node in (one, other))
    return mine is theirs or (mine.dtype == theirs.dtype and torch.equal(mine, theirs))


def accuracy(node: Node, latents: Tensor, targets: Tensor | None, *, of: str) -> float:
    """Return how many latents `(n, d)`, encoded by or for an agent, its head classifies.

    Args:
        node: whose head.
        latents: in its own space.
        targets: their classes.
        of: whose data they are.
    """
    if targets is None:
        raise InputError(
            f"agent {of!r}: the data to evaluate on have no labels; "
            "give some, which training does not see, or leave the data out"
        )
    if node.agent.head is None:
        raise InputError(f"agent {node.name!r} has no head to evaluate")
    with node.agent.inference():
        return float((node.agent.head(latents).argmax(-1) == targets).double().mean())
