"""What one agent can know of how well it does: by its own data, and by its neighbours' answers."""

from __future__ import annotations

import time

import torch

from sheafed.domain.messages import Message
from sheafed.methods.node import ALIGNMENT, Node
from sheafed.runtime.evaluation import Split, local_samples, mean
from sheafed.runtime.neighbourhood import ANSWERS, ASKS, Neighbourhood
from sheafed.runtime.questions import (
    ANSWER,
    PILOTS,
    QUESTION,
    answer,
    ask,
    compare_pilots,
    mark,
    show_pilots,
)
from sheafed.runtime.run import Record


def evaluate_here(
    neighbourhood: Neighbourhood, round: int, deadline: float, patient: float = 0.0
) -> Record:
    """Fit maps where the method does so after training, ask the neighbours, answer them.

    Args:
        neighbourhood: who is there.
        round: the last one.
        deadline: seconds to wait for each kind of message.
        patient: seconds in which even the absent are waited for, to give them time to return.
    """
    node, end = neighbourhood.node, time.monotonic() + patient
    told = neighbourhood.say(node.alignment_messages(round))

    def hear(kind: str, senders: set[str]) -> dict[str, Message]:
        left = max(0.0, end - time.monotonic())
        return neighbourhood.hear(round, kind, senders, deadline, left)

    if told:
        node.align(round, hear(ALIGNMENT, set(told)))
    knows, everybody = neighbourhood.knows, set(node.neighbours)
    asked = neighbourhood.say(ask(node, round))
    questions = hear(f"{QUESTION} test", {j for j in everybody if knows(j, ASKS)})
    neighbourhood.say(answer(node, round, questions))
    answers = hear(f"{ANSWER} test", {j for j in asked if knows(j, ANSWERS)})
    neighbourhood.say(show_pilots(node, round))
    tails = {j for j in everybody if node.edge(j).head == node.name}
    understood = mark(node, round, answers)
    misalignment = compare_pilots(node, round, hear(PILOTS, tails))
    return {
        "private_accuracy": private_accuracy(node, "test"),
        "validation_private_accuracy": private_accuracy(node, "validation"),
        "communication_accuracy": mean(understood.values()),
        "misalignment": mean(misalignment.values()),
        "understood_by": understood,
        "misaligned_with": misalignment,
    }


@torch.no_grad()
def private_accuracy(node: Node, split: Split) -> float | None:
    """Return the accuracy on the own data, if there are any with labels and there is a head."""
    samples = local_samples(node, split)
    if samples is None or node.agent.head is None:
        return None
    latents, targets = node.agent.encode_samples(samples)
    if targets is None:
        return None
    with node.agent.inference():
        return float((node.agent.head(latents).argmax(-1) == targets).double().mean())
