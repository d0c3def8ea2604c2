"""The evaluation of agents that do not share a process, in the phases of `questions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sheafed.evaluation.evaluation import Evaluation, Split
from sheafed.evaluation.peer_evaluator import ANSWER, PILOTS, QUESTION, PeerEvaluator
from sheafed.methods.node import Node
from sheafed.transport import Transport
from sheafed.transport.message import Message


def survey(nodes: Mapping[str, Node], transport: Transport, split: Split) -> dict[str, list[Any]]:
    """Return what the agents here have learnt about themselves, for `merge`.

    The exchange is one that has carried nothing yet.
    """
    examinees = {name: PeerEvaluator(node, 0, split) for name, node in nodes.items()}

    def received(name: str, kind: str) -> dict[str, Message]:
        return transport.receive(name, 0, kind, nodes[name].neighbours)

    for examinee in examinees.values():
        transport.send(examinee.ask())
    transport.barrier(0, f"{QUESTION} {split}")
    for name, examinee in examinees.items():
        transport.send(examinee.answer(received(name, f"{QUESTION} {split}")))
    transport.barrier(0, f"{ANSWER} {split}")
    whole = _nothing_measured()
    for name, examinee in examinees.items():
        marks = examinee.mark(received(name, f"{ANSWER} {split}"))
        whole["communication"] += [[other, name, accuracy] for other, accuracy in marks.items()]
        private = examinee.private_accuracy()
        whole["private"] += [] if private is None else [[name, private]]
    if split == "test":  # the misalignment is the same whatever the split
        for examinee in examinees.values():
            transport.send(examinee.show_pilots())
        transport.barrier(0, PILOTS)
        for name, examinee in examinees.items():
            residuals = examinee.compare_pilots(received(name, PILOTS))
            whole["misalignment"] += [[name, tail, value] for tail, value in residuals.items()]
    return whole


def _nothing_measured() -> dict[str, list[Any]]:
    """Return an empty part of a survey."""
    return {"private": [], "communication": [], "misalignment": []}


def merge(parts: Iterable[Mapping[str, list[Any]]]) -> Evaluation:
    """Return the evaluation of all agents, in the order in which `evaluate` meets them.

    The order decides the last digit of means.
    """
    whole = _nothing_measured()
    for part in parts:
        for what, rows in whole.items():
            rows += part[what]
    return Evaluation(
        private=dict(sorted(whole["private"])),
        communication={(s, r): accuracy for r, s, accuracy in sorted(whole["communication"])},
        misalignment={(head, tail): value for head, tail, value in sorted(whole["misalignment"])},
    )
