"""One round of all agents in this process, and the handshake before the first."""

from __future__ import annotations

from collections.abc import Mapping

from sheafed.evaluation.result import mean
from sheafed.methods.divergence import divergence_of
from sheafed.methods.handshake import finish_handshake, hello_messages
from sheafed.methods.node import HELLO, ROUND, Node
from sheafed.transport import WaitPolicy

Log = dict[str, float]
Logs = dict[str, Log]
"""Of one round, by agent."""


def handshake(nodes: Mapping[str, Node], policy: WaitPolicy) -> None:
    """Let neighbours check that they have agreed on the same settings."""
    for node in nodes.values():
        policy.send(hello_messages(node))
    inboxes = policy.collect(0, {HELLO: {name: node.neighbours for name, node in nodes.items()}})
    for name, node in nodes.items():
        finish_handshake(node, inboxes[HELLO][name])


def run_round(nodes: Mapping[str, Node], policy: WaitPolicy, round: int) -> Logs:
    """Let all agents send, then all receive and take their step; return what they log."""
    for name, node in nodes.items():
        with divergence_of(name, round):
            policy.send(node.send(round))
    neighbours = {name: node.neighbours for name, node in nodes.items()}
    inboxes = policy.collect(round, {ROUND: neighbours})[ROUND]
    logs = {}
    for name, node in nodes.items():
        with divergence_of(name, round):
            rate = node.agent.optimizer.param_groups[0]["lr"]
            logs[name] = node.receive(round, inboxes[name])
            if node.agent.scheduler is not None:
                logs[name]["learning_rate"] = rate
    return logs


def average(logs: Logs) -> Log:
    """Return the mean over agents of each logged value."""
    keys = dict.fromkeys(key for log in logs.values() for key in log)
    return {key: mean(log[key] for log in logs.values() if key in log) or 0.0 for key in keys}
