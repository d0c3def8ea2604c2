"""One round of all agents in this process, and the handshake before the first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from sheafed.agents.agent import Agent
from sheafed.errors import HandshakeError
from sheafed.evaluation.result import mean
from sheafed.methods.divergence import divergence_of
from sheafed.methods.handshake import finish_handshake, hello_messages
from sheafed.methods.node import HELLO, ROUND, Node
from sheafed.methods.returned import checked_log, checked_messages
from sheafed.pilots.pilot_set import PilotSet
from sheafed.transport import WaitPolicy
from sheafed.vectorized import Grouping

Log = dict[str, float]
Logs = dict[str, Log]
"""Of one round, by agent."""


def handshake(nodes: Mapping[str, Node], policy: WaitPolicy) -> None:
    """Let neighbours check that they have agreed on the same settings."""
    for node in nodes.values():
        for neighbour in node.neighbours:
            if neighbour in nodes:
                check_same_classes(node.agent, nodes[neighbour].agent)
    for node in nodes.values():
        policy.send(hello_messages(node))
    inboxes = policy.collect(0, {HELLO: {name: node.neighbours for name, node in nodes.items()}})
    for name, node in nodes.items():
        finish_handshake(node, inboxes[HELLO][name])


def check_same_classes(one: Agent, other: Agent) -> None:
    """Raise if agents of this process name other classes; hellos only have digests of them."""
    if one.classes is None or other.classes is None or one.classes == other.classes:
        return
    pairs = enumerate(zip(one.classes, other.classes, strict=False))
    found = next((f"class {k} is {a!r} against {b!r}" for k, (a, b) in pairs if a != b), None)
    raise HandshakeError(
        f"agents {one.name!r} and {other.name!r} do not agree on the label set: "
        f"{found or f'{len(one.classes)} classes against {len(other.classes)}'}; give both the "
        "same classes in the same order"
    )


def run_round(
    nodes: Mapping[str, Node], policy: WaitPolicy, round: int, grouping: Grouping | None = None
) -> Logs:
    """Let all agents send, then all receive and take their step; return what they log.

    Args:
        nodes: of this process.
        policy: how messages are sent and waited for.
        round: its number.
        grouping: which agents compute together; none, by default.
    """
    together = (
        nullcontext([([name], None) for name in nodes]) if grouping is None else grouping.round()
    )
    with together as cohorts:
        for members, cohort in cohorts:
            if cohort is not None:
                those = [nodes[name] for name in members]
                type(those[0]).before_send(those, round, cohort)
        for name, node in nodes.items():
            with divergence_of(name, round):
                policy.send(checked_messages(node, "send", node.send(round)))
        neighbours = {name: node.neighbours for name, node in nodes.items()}
        inboxes = policy.collect(round, {ROUND: neighbours})[ROUND]
        rates = {
            name: {"learning_rate": node.agent.optimizer.param_groups[0]["lr"]}
            for name, node in nodes.items()
            if node.agent.scheduler is not None
        }
        logs: Logs = {}
        for members, cohort in cohorts:
            if cohort is not None:
                those = [nodes[name] for name in members]
                logs |= type(those[0]).receive_together(those, round, inboxes, cohort)
                continue
            for name in members:
                with divergence_of(name, round):
                    logs[name] = nodes[name].receive(round, inboxes[name])
    return {
        name: checked_log(node, round, logs[name]) | rates.get(name, {})
        for name, node in nodes.items()
    }


def group_agents(nodes: Mapping[str, Node], pilots: PilotSet) -> Grouping:
    """Return which agents take their rounds together: those of one structure."""
    agents = {name: node.agent for name, node in nodes.items()}
    alone = {
        name: f"method {type(node).__name__.removesuffix('Node')}"
        for name, node in nodes.items()
        if not node.steps_together
    }
    kinds = {name: (type(node), node.together_with) for name, node in nodes.items()}
    return Grouping(agents, pilots, alone, kinds)


def average(logs: Logs) -> Log:
    """Return the mean over agents of each logged value."""
    keys = dict.fromkeys(key for log in logs.values() for key in log)
    return {key: mean(log[key] for log in logs.values() if key in log) or 0.0 for key in keys}
