"""Evaluation by messages: no input, no label and no weight leaves its agent.

The sender asks its neighbours what they make of its test latents, they answer with classes, and
the sender, who knows the labels, counts. The tail of an edge shows its head the white latents of
the pilots, and the head says how far they are apart. `evaluate` measures the same where all
agents share a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from sheafed.domain.messages import Message, TensorSpec
from sheafed.errors import InputError
from sheafed.methods.node import Node, latent_dtype
from sheafed.runtime.evaluation import Split, local_samples, normalised_residual, probes

QUESTION, ANSWER, PILOTS = "question", "answer", "pilots"
"""The kinds of these messages, the first two followed by the name of the split."""


@torch.no_grad()
def ask(node: Node, round: int, split: Split = "test") -> Iterator[Message]:
    """Send the latents of the agent's own samples to all neighbours, as training would."""
    samples = local_samples(node, split)
    if samples is None:
        return
    latents, _ = node.agent.encode_samples(samples)
    for neighbour in node.neighbours:
        sent = {"latents": node.transmit(latents, neighbour)}
        yield Message(f"{QUESTION} {split}", round, node.name, neighbour, sent)


@torch.no_grad()
def answer(
    node: Node, round: int, inbox: Mapping[str, Message], split: Split = "test"
) -> Iterator[Message]:
    """Tell every neighbour that asked what class the own head makes of each latent."""
    if node.agent.head is None:
        return
    expected = {}
    for neighbour, message in inbox.items():
        shape = (_rows(message.tensors.get("latents")), node.ends[neighbour].width)
        expected[neighbour] = {"latents": TensorSpec(latent_dtype(node.agent), shape)}
    asked = node.accepted(round, f"{QUESTION} {split}", inbox, expected)
    for neighbour, message in asked.items():
        with node.agent.inference():
            scores = node.agent.head(node.interpret(message.tensors["latents"], neighbour))
        said = {"classes": scores.argmax(-1)}
        yield Message(f"{ANSWER} {split}", round, node.name, neighbour, said)


def mark(
    node: Node, round: int, inbox: Mapping[str, Message], split: Split = "test"
) -> dict[str, float]:
    """Return how often each neighbour that answered was right about the own samples."""
    samples = local_samples(node, split)
    if samples is None:
        return {}
    targets = samples.batch(torch.arange(len(samples))).targets
    if targets is None:
        raise InputError(
            f"agent {node.name!r}: the data to evaluate on have no labels; "
            "give some, which training does not see, or leave the data out"
        )
    spec = {"classes": TensorSpec(torch.int64, (len(targets),))}
    answers = node.accepted(round, f"{ANSWER} {split}", inbox, dict.fromkeys(inbox, spec))
    return {
        neighbour: float((message.tensors["classes"] == targets).double().mean())
        for neighbour, message in answers.items()
    }


@torch.no_grad()
def show_pilots(node: Node, round: int) -> Iterator[Message]:
    """Send the white latents of the probes to the heads of the own edges, if they may be seen."""
    if not node.shows_pilots:
        return
    white = node.white_pilots(probes(node.setting.pilots.total))
    energy = {"energy": float(white.square().sum())}
    for neighbour in node.neighbours:
        if node.edge(neighbour).tail == node.name:
            sent = {"latents": node.ends[neighbour].outgoing(white)}
            yield Message(PILOTS, round, node.name, neighbour, sent, energy)


@torch.no_grad()
def compare_pilots(node: Node, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
    """Return the misalignment of the edges to those tails that have shown their pilots."""
    chosen, dtype = probes(node.setting.pilots.total), latent_dtype(node.agent)
    expected = {j: {"latents": TensorSpec(dtype, (len(chosen), node.ends[j].width))} for j in inbox}
    shown = node.accepted(round, PILOTS, inbox, expected)
    white = node.white_pilots(chosen) if shown else None
    found = {}
    for neighbour, message in shown.items():
        energy = message.fields.get("energy")
        if white is None or not isinstance(energy, float) or energy < 0:
            node.rejected["fields"] += 1
        else:
            carried = node.ends[neighbour].incoming(message.tensors["latents"])
            residual = normalised_residual(white, carried, energy)
            if residual is not None:
                found[neighbour] = residual
    return found


def _rows(latents: Tensor | None) -> int:
    """Return how many latents a question may hold: as many as it does, if it holds any."""
    return len(latents) if latents is not None and latents.ndim and len(latents) else 1
