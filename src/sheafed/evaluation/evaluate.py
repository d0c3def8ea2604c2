r"""Private and communicated metrics (eq. monitored_metrics) by one protocol; the oracle encoder.

The same messages are exchanged whether the agents share a process, are spread over a cluster or
are peers on a network. Evaluation does not touch training: models are in inference mode, and no
random number is drawn but those of a noisy channel, whose stream is its own. Communication goes
through that channel; misalignment does not, as it is about encoders and maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from sheafed.agents.samples import Samples
from sheafed.evaluation.peer_evaluator import (
    ANSWER,
    PILOTS,
    QUESTION,
    RESULT,
    PeerEvaluator,
    Split,
    judge,
    labelled_samples,
)
from sheafed.evaluation.result import Evaluation, merge
from sheafed.methods.node import Node
from sheafed.pilots.absent_pilots import AbsentPilots
from sheafed.tensor_tree import same_tensors
from sheafed.transport import Barrier, LocalTransport, Message, WaitPolicy


def evaluate(
    nodes: Mapping[str, Node], policy: WaitPolicy, round: int, split: Split = "test"
) -> Evaluation:
    """Evaluate the agents of this process on their own and their neighbours' data.

    Args:
        nodes: the nodes, after the handshake, with their maps fitted.
        policy: carries the messages; neighbours in other processes must evaluate too.
        round: the round of the messages.
        split: which data of the agents.
    """
    evaluators = {name: PeerEvaluator(node, round, split) for name, node in nodes.items()}

    def reply(receiver: str, kind: str, inbox: Mapping[str, Message]) -> Iterable[Message]:
        if kind == QUESTION:
            return evaluators[receiver].answer(inbox)
        return evaluators[receiver].grade(inbox) if kind == ANSWER else ()

    for evaluator in evaluators.values():
        policy.send(evaluator.ask())
    expected = {
        QUESTION: {name: node.neighbours for name, node in nodes.items()},
        ANSWER: {
            name: _neighbours_if(labelled_samples(node, split), node)
            for name, node in nodes.items()
        },
        RESULT: {name: _neighbours_if(node.agent.head, node) for name, node in nodes.items()},
    }
    if split == "test":  # the misalignment is the same whatever the split
        for evaluator in evaluators.values():
            policy.send(evaluator.show_pilots())
        expected[PILOTS] = {name: _tails(node) for name, node in nodes.items()}
    collected = policy.collect(round, expected, reply)
    found = Evaluation(metrics={name: node.agent.metric.name for name, node in nodes.items()})
    for name, evaluator in evaluators.items():
        private = evaluator.private_value()
        if private is not None:
            found.private[name] = private
        results = evaluator.communication_values(collected[RESULT][name])
        for sender, (metric, value) in results.items():
            found.communication[sender, name] = value
            found.metrics.setdefault(sender, metric)
        shown = collected[PILOTS][name] if PILOTS in collected else {}
        residuals = evaluator.misalignments(shown)
        found.misalignment.update({(name, tail): value for tail, value in residuals.items()})
    return found


def evaluate_locally(
    nodes: Mapping[str, Node], split: Split = "test", oracle: bool = True
) -> Evaluation:
    """Evaluate agents that are all in this process; see `evaluate` and `oracle_values`."""
    found = merge([evaluate(nodes, Barrier(LocalTransport(list(nodes))), 0, split).rows()])
    return replace(found, oracle=oracle_values(nodes, split)) if oracle else found


@torch.no_grad()
def oracle_values(nodes: Mapping[str, Node], split: Split = "test") -> dict[tuple[str, str], float]:
    """Return the senders' metrics of each receiver that encodes its neighbours' inputs itself.

    The *oracle encoder* tells what the receiver's head would say had the receiver seen the input.
    Communication may be better: a sender can encode its own samples better, and distillation
    trains heads on transported latents.

    It needs the inputs of all agents in this process, so it is a measurement and not part of any
    protocol. Agents of different modalities cannot encode each other's inputs, unless the data know
    how another agent sees them (`LocalData.seen_by`).
    """
    found = {}
    for name, node in nodes.items():
        for sender in node.neighbours:
            samples = _as_seen_by(node, nodes[sender], split)
            if node.agent.head is None or samples is None or not _same_task(node, nodes[sender]):
                continue
            latents, targets = node.agent.encode_samples(samples)
            outputs = node.read(latents, node.name)
            value = None
            if targets is not None:
                value = judge(nodes[sender], outputs, targets, reader=name)
            if value is not None:
                found[sender, name] = value
    return found


def _same_task(receiver: Node, sender: Node) -> bool:
    """Whether the receiver's head gives classes, if the sender's metric needs them."""
    return not (receiver.agent.regression and sender.agent.metric.task == "classification")


def _neighbours_if(there: object, node: Node) -> tuple[str, ...]:
    return () if there is None else node.neighbours


def _tails(node: Node) -> tuple[str, ...]:
    """Return the neighbours that are the tail of their edge to this agent."""
    return tuple(j for j in node.neighbours if node.edge(j).head == node.name)


def _as_seen_by(receiver: Node, sender: Node, split: Split) -> Samples | None:
    """Return the sender's samples as the receiver sees them, if that is known."""
    samples, seen_by = labelled_samples(sender, split), sender.agent.data.seen_by
    if samples is None or _same_modality(receiver, sender):
        return samples
    return None if seen_by is None else seen_by(split, receiver.name)


def _same_modality(one: Node, other: Node) -> bool:
    """Return whether the pilots of two agents are the same inputs, as far as that is known."""
    pilots = one.context.pilots
    if isinstance(pilots, AbsentPilots):
        return bool(pilots.shared)
    return same_tensors(*(node.context.pilots.of(node.name) for node in (one, other)))
