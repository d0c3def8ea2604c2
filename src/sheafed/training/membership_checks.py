"""Whether an agent can join or leave a network, and whether the network stays connected."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import networkx as nx

from sheafed.agents.agent import Agent
from sheafed.errors import DisconnectedWarning, GraphError, InputError, UnknownAgentError
from sheafed.methods.dynamic_node import DynamicNode
from sheafed.methods.node import Node
from sheafed.training.single_round import check_same_classes

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


def is_homogeneous(network: Network) -> bool:
    """Whether the network uses the protocol for one latent size; it can only become false."""
    return all(node.context.homogeneous for node in network.nodes.values())


def check_membership(network: Network) -> dict[str, DynamicNode]:
    """Return the nodes; raise unless agents can join and leave now."""
    history = network.history
    elsewhere = sorted(set(network.metadata) - set(network.nodes))
    if elsewhere:
        raise InputError(
            f"agents {elsewhere} are in other processes; resume the run in one process first"
        )
    if history.rounds < history.schedule.total and not history.stopped:
        raise InputError(
            f"the training is in round {history.rounds} of {history.schedule.total}; agents "
            "can join and leave when it has ended"
        )
    return {name: as_dynamic(node, network.method.label) for name, node in network.nodes.items()}


def as_dynamic(node: Node, label: str) -> DynamicNode:
    if not isinstance(node, DynamicNode) or not node.neighbours_may_change:
        raise InputError(
            f"{label}, as trained, cannot let agents join or leave; consensus distillation and "
            "non-cooperative training can, and Sheaf-FRL without noise and edge_dim"
        )
    return node


def check_newcomer(network: Network, agent: Agent, neighbours: Collection[str]) -> None:
    """Raise unless the agent is new and its neighbours are not."""
    if agent.name in network.nodes:
        raise InputError(
            f"there is an agent {agent.name!r} already, among {sorted(network.nodes)}; give "
            "the new agent another name"
        )
    if isinstance(neighbours, str) or not neighbours:
        raise GraphError(
            f"agent {agent.name!r} needs a list of at least one neighbour, got {neighbours!r}; "
            f"choose among {sorted(network.nodes)}"
        )
    unknown = sorted(set(neighbours) - set(network.nodes))
    if unknown:
        raise UnknownAgentError(
            f"agent {agent.name!r} cannot join unknown agents {unknown}; known agents: "
            f"{sorted(network.nodes)}"
        )
    for name in neighbours:
        check_same_classes(agent, network.agents[name])


def check_resumable(network: Network, graph: nx.Graph[str], agents: Collection[Agent]) -> None:
    """Refuse a change after which a resumed run would take another protocol for the old edges."""
    uniform = len({agent.dimension for agent in agents}) == 1
    settings = next(iter(network.nodes.values())).shared_settings()
    two_protocols = "homogeneity" in settings and settings.get("privacy") == "standard"
    changes = bool(graph.edges) and uniform != is_homogeneous(network)
    if network.out is not None and two_protocols and changes:
        then, now = ("several", "one") if uniform else ("one", "several")
        raise InputError(
            f"the agents in {network.out} have {then} latent size{'s' * uniform}, and would have "
            f"{now} now, for which there is another protocol: the run could not be resumed; train "
            "without out, or with privacy='strict', which has one protocol for both"
        )


def warn_if_disconnected(graph: nx.Graph[str], left: str) -> None:
    """Warn if some agents cannot reach the others any more."""
    parts: Iterator[list[str]] = map(sorted, nx.connected_components(graph))
    listed = sorted(parts, key=lambda part: (len(part), part))
    if len(listed) > 1:
        alone = [part[0] for part in listed if len(part) == 1]
        warnings.warn(
            f"without {left!r} the network falls apart into {listed}"
            + (f"; {alone} have no neighbour any more" if alone else "")
            + "; join them to others to go on together",
            DisconnectedWarning,
            stacklevel=4,
        )
