"""What one agent can know of how well it does: by its own data, and by its neighbours' answers."""

from __future__ import annotations

import time

from sheafed.evaluation.evaluation import mean
from sheafed.evaluation.peer_evaluator import ANSWER, PILOTS, QUESTION, PeerEvaluator
from sheafed.methods.node import ALIGNMENT
from sheafed.network.neighbourhood import ANSWERS, ASKS, SHOWS, Neighbourhood
from sheafed.training.run import Record
from sheafed.transport.message import Message


def evaluate_here(
    neighbourhood: Neighbourhood, round: int, deadline: float, patience: float = 0.0
) -> Record:
    """Fit maps where the method does so after training, ask the neighbours, answer them.

    Args:
        neighbourhood: who is there.
        round: the last one.
        deadline: seconds to wait for neighbours that are there.
        patience: seconds in which the absent are waited for too, to give them time to return.
    """
    node, says = neighbourhood.node, neighbourhood.says
    began = time.monotonic()
    told = neighbourhood.say(node.alignment_messages(round))
    if told:
        aligned = neighbourhood.hear(round, {ALIGNMENT: told}, deadline, patience)
        node.align(round, aligned[ALIGNMENT])
    examinee = PeerEvaluator(node, round)
    asked = neighbourhood.say(examinee.ask())
    neighbourhood.say(examinee.show_pilots())
    everybody = frozenset(node.neighbours)
    question, reply = f"{QUESTION} test", f"{ANSWER} test"
    expected = {
        question: frozenset(j for j in everybody if says(j, ASKS) is not False),
        reply: frozenset(j for j in asked if says(j, ANSWERS) is not False),
        PILOTS: frozenset(
            j for j in everybody if node.edge(j).head == node.name and says(j, SHOWS) is not False
        ),
    }

    def answer_at_once(kind: str, inbox: dict[str, Message]) -> None:
        if kind == question:
            neighbourhood.say(examinee.answer(inbox))

    left = max(0.0, patience - (time.monotonic() - began))
    heard = neighbourhood.hear(round, expected, deadline, left, answer_at_once)
    understood = examinee.mark(heard[reply])
    misalignment = examinee.compare_pilots(heard[PILOTS])
    return {
        "private_accuracy": examinee.private_accuracy(),
        "validation_private_accuracy": PeerEvaluator(node, round, "validation").private_accuracy(),
        "communication_accuracy": mean(understood.values()),
        "misalignment": mean(misalignment.values()),
        "understood_by": understood,
        "misaligned_with": misalignment,
    }
