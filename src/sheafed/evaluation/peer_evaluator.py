"""Evaluation by messages: no input, no label and no weight leaves its agent.

The sender of latents asks its neighbours to read them. They answer with classes if its metric is
accuracy, else with the outputs of their heads, and the sender, which has the targets, tells each
the value of its metric. A head whose outputs the metric cannot judge, e.g. one of another task, has
no value. The tail of an edge sends its head the white latents of the evaluation pilots, and the
head measures their misalignment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from reprlib import repr as short
from typing import Literal, get_args

import torch
from torch import Tensor

from sheafed.agents.samples import Samples
from sheafed.errors import InputError
from sheafed.linalg.procrustes import misalignment
from sheafed.methods.node import Node, latent_dtype
from sheafed.metrics.functional import class_accuracy
from sheafed.metrics.metric import ACCURACY, NAME
from sheafed.transport.message import Message, TensorSpec

Split = Literal["validation", "test"]

QUESTION, ANSWER, RESULT, PILOTS = "question", "answer", "result", "pilots"
"""The kinds of messages of an evaluation."""
CLASSES, OUTPUTS = "classes", "outputs"
"""What an answer holds; nothing, if the head has none of what is wanted."""
WANTED = "wanted"
"""The field of a question with what the answer is to hold, classes by default."""

EVALUATION_PILOTS = 256
"""How many pilots the misalignment is measured on: all would cost far more than all the rest."""

logger = logging.getLogger("sheafed.evaluation")


class PeerEvaluator:
    """One agent in one evaluation. It encodes its samples and pilots at most once.

    Args:
        node: the agent's node, after the handshake, with its maps fitted.
        round: the round of the messages.
        split: the data of the agent that its neighbours read.
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
        fields = {} if self._node.agent.metric == ACCURACY else {WANTED: OUTPUTS}
        for neighbour in self._node.neighbours:
            sent = {"latents": self._node.transmit(latents, neighbour)}
            yield self._message(QUESTION, neighbour, sent, fields)

    @torch.no_grad()
    def answer(self, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Return to each neighbour the classes or outputs that the own head gives its latents."""
        node = self._node
        if node.agent.head is None:
            return
        expected = {}
        for neighbour, message in inbox.items():
            shape = (_rows(message.tensors.get("latents")), node.endpoints[neighbour].width)
            expected[neighbour] = {"latents": TensorSpec(latent_dtype(node.agent), shape)}
        asked = node.valid_messages(self._round, QUESTION, inbox, expected)
        for neighbour, message in asked.items():
            wanted = message.fields.get(WANTED, CLASSES)
            if wanted not in (CLASSES, OUTPUTS):
                node.rejected["fields"] += 1
                continue
            outputs = node.read(node.interpret(message.tensors["latents"], neighbour), neighbour)
            if wanted == OUTPUTS:
                answer = {OUTPUTS: outputs.to(latent_dtype(node.agent))}
            else:
                answer = {} if node.agent.regression else {CLASSES: outputs.argmax(-1)}
            yield self._message(ANSWER, neighbour, answer)

    def grade(self, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Tell each neighbour that answered the value of the own metric; None if it has none."""
        if self._encoded is None:
            return
        _, targets = self._encoded
        expected = {j: self._expected_answer(message, targets) for j, message in inbox.items()}
        answers = self._node.valid_messages(self._round, ANSWER, inbox, expected)
        for neighbour, message in answers.items():
            value = None
            if CLASSES in message.tensors:
                value = class_accuracy(message.tensors[CLASSES].cpu(), targets)
            elif OUTPUTS in message.tensors:
                value = judge(self._node, message.tensors[OUTPUTS], targets, reader=neighbour)
            yield self._message(RESULT, neighbour, {}, {self._node.agent.metric.name: value})

    def _expected_answer(self, message: Message, targets: Tensor) -> dict[str, TensorSpec]:
        """Return what an answer must hold. The width of a neighbour's head is not known here."""
        if not message.tensors:
            return {}
        if self._node.agent.metric == ACCURACY:
            return {CLASSES: TensorSpec(torch.int64, (len(targets),))}
        given = message.tensors.get(OUTPUTS)
        width = () if given is None else tuple(given.shape[1:])
        return {OUTPUTS: TensorSpec(latent_dtype(self._node.agent), (len(targets), *width))}

    def communication_values(self, inbox: Mapping[str, Message]) -> dict[str, tuple[str, float]]:
        """Return each neighbour's metric, by name, and its value of what the own head read."""
        expected: dict[str, dict[str, TensorSpec]] = {neighbour: {} for neighbour in inbox}
        results = self._node.valid_messages(self._round, RESULT, inbox, expected)
        found = {}
        for neighbour, message in results.items():
            metric, value = next(iter(message.fields.items()), ("", None))
            if not _is_result(message.fields):
                self._node.rejected["fields"] += 1
            elif isinstance(value, float):
                found[neighbour] = metric, value
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
    def private_value(self) -> float | None:
        """Return the metric on the own samples; None without labelled samples or a head."""
        if self._encoded is None or self._node.agent.head is None:
            return None
        latents, targets = self._encoded
        outputs = self._node.read(latents, self._node.name)
        try:
            return self._node.agent.metric(outputs, targets)
        except InputError as problem:
            raise InputError(f"agent {self._node.name!r}: {problem}") from problem

    @cached_property
    @torch.no_grad()
    def _encoded(self) -> tuple[Tensor, Tensor] | None:
        samples = labelled_samples(self._node, self._split)
        if samples is None:
            return None
        latents, targets = self._node.agent.encode_samples(samples)
        return None if targets is None else (latents, targets)

    @cached_property
    @torch.no_grad()
    def _white(self) -> Tensor:
        return self._node.white_pilots(evaluation_pilots(self._node.context.pilots.total))

    def _message(
        self,
        kind: str,
        receiver: str,
        tensors: Mapping[str, Tensor],
        fields: Mapping[str, float | str | None] | None = None,
    ) -> Message:
        return Message(kind, self._round, self._node.name, receiver, tensors, fields or {})


def judge(sender: Node, outputs: Tensor, targets: Tensor, *, reader: str) -> float | None:
    """Return the sender's metric of another agent's outputs; None where it does not apply.

    Args:
        sender: the agent whose samples were read.
        outputs: of the reader's head.
        targets: the sender's.
        reader: for the log.
    """
    try:
        return sender.agent.metric(outputs, targets)
    except InputError as problem:
        sender.rejected["metric"] += 1
        logger.warning("agent %s cannot judge what %s reads: %s", sender.name, reader, problem)
        return None


def evaluation_pilots(total: int, most: int = EVALUATION_PILOTS) -> Tensor:
    """Return the indices of the pilots to measure on, evenly spread over all."""
    count = min(total, most)
    return torch.linspace(0, total - 1, count, dtype=torch.float64).round().long()


def check_split(split: object) -> None:
    """Raise unless agents can be evaluated on a split; training data are not among them."""
    if not isinstance(split, str) or split not in get_args(Split):
        raise InputError(
            f"agents are evaluated on the split {' or '.join(map(repr, get_args(Split)))}, got "
            f"{short(split)}; to evaluate on other data give them as data="
        )


def labelled_samples(node: Node, split: Split) -> Samples | None:
    """Return the samples of a split; None if there are none, or if they have no targets."""
    check_split(split)
    data = node.agent.data
    samples = data.test if split == "test" else data.validation
    if samples is None or samples.batch(torch.arange(1)).targets is None:
        return None
    return samples


def _is_result(fields: Mapping[str, object]) -> bool:
    """Whether the fields of a result are one metric and its value."""
    if len(fields) != 1:
        return False
    ((metric, value),) = fields.items()
    if metric == ACCURACY.name and isinstance(value, float) and not 0 <= value <= 1:
        return False
    return bool(NAME.fullmatch(metric)) and (value is None or isinstance(value, float))


def _rows(latents: Tensor | None) -> int:
    """Return how many latents a question may hold: as many as it does, if it holds any."""
    return len(latents) if latents is not None and latents.ndim and len(latents) else 1
