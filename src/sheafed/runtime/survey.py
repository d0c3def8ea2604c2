"""The evaluation of agents that do not share a process, in the phases of `questions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sheafed.exchange import Exchange
from sheafed.methods.node import Node
from sheafed.runtime.evaluation import Evaluation, Split, private_accuracy
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


def survey(nodes: Mapping[str, Node], exchange: Exchange, split: Split) -> dict[str, list[Any]]:
    """Return what the agents here have learnt about themselves, for `merge`.

    The exchange is one that has carried nothing yet.
    """
    for node in nodes.values():
        exchange.send(ask(node, 0, split))
    exchange.settle(0, f"{QUESTION} {split}")
    for name, node in nodes.items():
        asked = exchange.receive(name, 0, f"{QUESTION} {split}", node.neighbours)
        exchange.send(answer(node, 0, asked, split))
    exchange.settle(0, f"{ANSWER} {split}")
    communication = []
    for name, node in nodes.items():
        answers = exchange.receive(name, 0, f"{ANSWER} {split}", node.neighbours)
        marks = mark(node, 0, answers, split)
        communication += [[receiver, name, accuracy] for receiver, accuracy in marks.items()]
    misalignment = _compare_all(nodes, exchange) if split == "test" else []
    private = [
        [name, accuracy]
        for name, node in nodes.items()
        if (accuracy := private_accuracy(node, split)) is not None
    ]
    return {"private": private, "communication": communication, "misalignment": misalignment}


def _compare_all(nodes: Mapping[str, Node], exchange: Exchange) -> list[list[Any]]:
    for node in nodes.values():
        exchange.send(show_pilots(node, 0))
    exchange.settle(0, PILOTS)
    found: list[list[Any]] = []
    for name, node in nodes.items():
        shown = exchange.receive(name, 0, PILOTS, node.neighbours)
        residuals = compare_pilots(node, 0, shown)
        found += [[name, tail, residual] for tail, residual in residuals.items()]
    return found


def merge(parts: Iterable[Mapping[str, list[Any]]]) -> Evaluation:
    """Return the evaluation of all agents, in the order in which `evaluate` meets them.

    The order decides the last digit of means.
    """
    whole: dict[str, list[Any]] = {"private": [], "communication": [], "misalignment": []}
    for part in parts:
        for what, rows in whole.items():
            rows += part[what]
    return Evaluation(
        private=dict(sorted(whole["private"])),
        communication={(s, r): accuracy for r, s, accuracy in sorted(whole["communication"])},
        misalignment={(head, tail): value for head, tail, value in sorted(whole["misalignment"])},
    )
