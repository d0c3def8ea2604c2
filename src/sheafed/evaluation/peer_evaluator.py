"""Evaluation by messages: no input, no label and no weight leaves its agent.

The sender of latents asks its neighbours to classify them, they answer with classes, and the
sender, which has the labels, tells each how accurate it was. The tail of an edge sends its head the
white latents of the evaluation pilots, and the head measures their misalignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from sheafed.agents.samples import Samples
from sheafed.errors import InputError
from sheafed.linalg.procrustes import misalignment
from sheafed.methods.node import Node, latent_dtype
from sheafed.transport.message import Message, TensorSpec

Split = Literal["validation", "test"]

QUESTION, ANSWER, RESULT, PILOTS = "question", "answer", "result", "pilots"
"""The kinds of messages of an evaluation."""

EVALUATION_PILOTS = 256
"""How many pilots the misalignment is measured on: all would cost far more than all the rest."""


class PeerEvaluator:
    """One agent in one evaluation. It encodes its samples and pilots at most once.

    Args:
        node: the agent's node, after the handshake, with its maps fitted.
        round: the round of the messages.
        split: the data of the agent that its neighbours classify.
    """

    def __init__(self, node: Node, round: int, split: Split = "test") -> None:
        self._node = node
        self._round = round
        self._split = split

    @torch.no_grad()
    def ask(self) -> Iterator[Message]:
        """Send the latents of the agent's own samples to all neighbours, as training would."""
        if self._encoded is None:
            return
        latents, _ = self._encoded
        for neighbour in self._node.neighbours:
            sent = {"latents": self._node.transmit(latents, neighbour)}
            yield self._message(QUESTION, neighbour, sent)

    @torch.no_grad()
    def answer(self, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Return to each neighbour the classes that the own head gives its latents."""
        node = self._node
        if node.agent.head is None:
            return
        expected = {}
        for neighbour, message in inbox.items():
            shape = (_rows(message.tensors.get("latents")), node.endpoints[neighbour].width)
            expected[neighbour] = {"latents": TensorSpec(latent_dtype(node.agent), shape)}
        asked = node.valid_messages(self._round, QUESTION, inbox, expected)
        for neighbour, message in asked.items():
            latents = node.interpret(message.tensors["latents"], neighbour)
            yield self._message(ANSWER, neighbour, {"classes": _classify(node, latents)})

    def grade(self, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Tell each neighbour that answered how accurate it was on the own samples."""
        if self._encoded is None:
            return
        _, targets = self._encoded
        if targets is None:
            raise _no_labels(self._node.name)
        spec = {"classes": TensorSpec(torch.int64, (len(targets),))}
        expected = dict.fromkeys(inbox, spec)
        answers = self._node.valid_messages(self._round, ANSWER, inbox, expected)
        for neighbour, message in answers.items():
            accuracy = _accuracy(message.tensors["classes"], targets)
            yield self._message(RESULT, neighbour, {}, {"accuracy": accuracy})

    def communication_accuracies(self, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Return the agent's accuracy on each neighbour's latents, as the neighbours report it."""
        expected: dict[str, dict[str, TensorSpec]] = {neighbour: {} for neighbour in inbox}
        results = self._node.valid_messages(self._round, RESULT, inbox, expected)
        found = {}
        for neighbour, message in results.items():
            accuracy = message.fields.get("accuracy")
            if isinstance(accuracy, float) and 0 <= accuracy <= 1:
                found[neighbour] = accuracy
            else:
                self._node.rejected["fields"] += 1
        return found

    @torch.no_grad()
    def show_pilots(self) -> Iterator[Message]:
        """Send white pilot latents to each neighbour that is the head of its edge.

        Agents that add noise to their latents send none.
        """
        node = self._node
        if not node.shows_pilots:
            return
        energy = {"energy": float(self._white.square().sum())}
        for neighbour in node.neighbours:
            if node.edge(neighbour).tail == node.name:
                sent = {"latents": node.endpoints[neighbour].outgoing(self._white)}
                yield self._message(PILOTS, neighbour, sent, energy)

    @torch.no_grad()
    def misalignments(self, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Return the misalignment of the edges to those tails that have sent their pilots."""
        node, dtype = self._node, latent_dtype(self._node.agent)
        count = len(evaluation_pilots(node.context.pilots.total))
        expected = {
            j: {"latents": TensorSpec(dtype, (count, node.endpoints[j].width))} for j in inbox
        }
        found = {}
        for neighbour, message in node.valid_messages(self._round, PILOTS, inbox, expected).items():
            energy = message.fields.get("energy")
            if not isinstance(energy, float) or energy < 0:
                node.rejected["fields"] += 1
                continue
            carried = node.endpoints[neighbour].incoming(message.tensors["latents"])
            residual = misalignment(self._white, carried, energy)
            if residual is not None:
                found[neighbour] = residual
        return found

    @torch.no_grad()
    def private_accuracy(self) -> float | None:
        """Return the accuracy on the own samples; None without samples or a head."""
        if self._encoded is None or self._node.agent.head is None:
            return None
        latents, targets = self._encoded
        if targets is None:
            raise _no_labels(self._node.name)
        return _accuracy(_classify(self._node, latents), targets)

    @cached_property
    @torch.no_grad()
    def _encoded(self) -> tuple[Tensor, Tensor | None] | None:
        samples = local_samples(self._node, self._split)
        return None if samples is None else self._node.agent.encode_samples(samples)

    @cached_property
    @torch.no_grad()
    def _white(self) -> Tensor:
        return self._node.white_pilots(evaluation_pilots(self._node.context.pilots.total))

    def _message(
        self,
        kind: str,
        receiver: str,
        tensors: Mapping[str, Tensor],
        fields: Mapping[str, float] | None = None,
    ) -> Message:
        return Message(kind, self._round, self._node.name, receiver, tensors, fields or {})


def accuracy(node: Node, latents: Tensor, targets: Tensor | None, *, of: str) -> float:
    """Return the share of latents `(n, d)` in the space of an agent that its head classifies.

    Args:
        node: the agent with the head.
        latents: in its own space.
        targets: their classes.
        of: the agent whose data they are, for the error message.
    """
    if targets is None:
        raise _no_labels(of)
    if node.agent.head is None:
        raise InputError(f"agent {node.name!r} has no head to evaluate")
    return _accuracy(_classify(node, latents), targets)


def evaluation_pilots(total: int) -> Tensor:
    """Return the indices of the pilots to measure on, evenly spread over all."""
    count = min(total, EVALUATION_PILOTS)
    return torch.linspace(0, total - 1, count, dtype=torch.float64).round().long()


def local_samples(node: Node, split: Split) -> Samples | None:
    return node.agent.data.test if split == "test" else node.agent.data.validation


def _classify(node: Node, latents: Tensor) -> Tensor:
    head = node.agent.head
    if head is None:
        raise InputError(f"agent {node.name!r} has no head to evaluate")
    with node.agent.inference(), torch.no_grad():
        classes: Tensor = head(latents).argmax(-1)
    return classes


def _accuracy(classes: Tensor, targets: Tensor) -> float:
    return float((classes == targets).double().mean())


def _no_labels(name: str) -> InputError:
    return InputError(
        f"agent {name!r}: the data to evaluate on have no labels; give labels, which training does "
        "not use, or leave the data out"
    )


def _rows(latents: Tensor | None) -> int:
    """Return how many latents a question may hold: as many as it does, if it holds any."""
    return len(latents) if latents is not None and latents.ndim and len(latents) else 1
