"""Evaluation by messages: no input, no label and no weight leaves its agent.

The sender asks its neighbours what they make of its test latents, they answer with classes, and
the sender, who knows the labels, counts. The tail of an edge shows its head the white latents of
the pilots, and the head says how far they are apart. `evaluate` measures the same where all
agents share a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.evaluation.evaluation import (
    Split,
    accuracy,
    evaluation_pilots,
    local_samples,
    normalised_residual,
)
from sheafed.methods.node import Node, latent_dtype
from sheafed.transport.message import Message, TensorSpec

QUESTION, ANSWER, PILOTS = "question", "answer", "pilots"
"""The kinds of these messages, the first two followed by the name of the split."""


class PeerEvaluator:
    """An agent in one evaluation. What it encodes, it encodes once.

    Args:
        node: its program.
        round: which the messages belong to.
        split: which of its data to ask about.
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
            yield self._message(f"{QUESTION} {self._split}", neighbour, sent)

    @torch.no_grad()
    def answer(self, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Tell every neighbour that asked what class the own head makes of each latent."""
        node = self._node
        if node.agent.head is None:
            return
        expected = {}
        for neighbour, message in inbox.items():
            shape = (_rows(message.tensors.get("latents")), node.endpoints[neighbour].width)
            expected[neighbour] = {"latents": TensorSpec(latent_dtype(node.agent), shape)}
        asked = node.valid_messages(self._round, f"{QUESTION} {self._split}", inbox, expected)
        for neighbour, message in asked.items():
            with node.agent.inference():
                scores = node.agent.head(node.interpret(message.tensors["latents"], neighbour))
            said = {"classes": scores.argmax(-1)}
            yield self._message(f"{ANSWER} {self._split}", neighbour, said)

    def mark(self, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Return how often each neighbour that answered was right about the own samples."""
        if self._encoded is None:
            return {}
        node, (_, targets) = self._node, self._encoded
        if targets is None:
            raise InputError(
                f"agent {node.name!r}: the data to evaluate on have no labels; "
                "give some, which training does not see, or leave the data out"
            )
        spec = {"classes": TensorSpec(torch.int64, (len(targets),))}
        expected = dict.fromkeys(inbox, spec)
        answers = node.valid_messages(self._round, f"{ANSWER} {self._split}", inbox, expected)
        return {
            neighbour: float((message.tensors["classes"] == targets).double().mean())
            for neighbour, message in answers.items()
        }

    @torch.no_grad()
    def show_pilots(self) -> Iterator[Message]:
        """Send the white latents of the probes to the heads of the own edges, if they may see."""
        node = self._node
        if not node.shows_pilots:
            return
        energy = {"energy": float(self._white.square().sum())}
        for neighbour in node.neighbours:
            if node.edge(neighbour).tail == node.name:
                sent = {"latents": node.endpoints[neighbour].outgoing(self._white)}
                yield self._message(PILOTS, neighbour, sent, energy)

    @torch.no_grad()
    def compare_pilots(self, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Return the misalignment of the edges to those tails that have shown their pilots."""
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
            residual = normalised_residual(self._white, carried, energy)
            if residual is not None:
                found[neighbour] = residual
        return found

    @torch.no_grad()
    def private_accuracy(self) -> float | None:
        """Return the accuracy on the own data, if there are some, with labels, and a head."""
        if self._encoded is None or self._node.agent.head is None:
            return None
        latents, targets = self._encoded
        if targets is None:
            return None
        return accuracy(self._node, latents, targets, of=self._node.name)

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


def _rows(latents: Tensor | None) -> int:
    """Return how many latents a question may hold: as many as it does, if it holds any."""
    return len(latents) if latents is not None and latents.ndim and len(latents) else 1
