"""Whether an agent can join or leave a network, and whether the network holds together then."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator

import networkx as nx

from sheafed.agents.agent import Agent
from sheafed.errors import DisconnectedWarning, GraphError, InputError, UnknownAgentError
from sheafed.training.run import Run


def is_homogeneous(run: Run) -> bool:
    """Whether the network follows the protocol for one latent size. It can cease to, not begin."""
    return all(node.context.homogeneous for node in run.nodes.values())


def check_membership(run: Run) -> None:
    """Raise unless agents can come and go now."""
    elsewhere = sorted(set(run.profiles) - set(run.nodes))
    if elsewhere:
        raise InputError(
            f"agents {elsewhere} live in other processes; resume the run in one to let agents come "
            "and go"
        )
    if run.rounds < run.epochs * run.rounds_per_epoch and not run.stopped:
        raise InputError(
            f"the training is in round {run.rounds} of {run.epochs * run.rounds_per_epoch}; agents "
            "can come and go when it has ended"
        )
    if not all(node.neighbours_may_change for node in run.nodes.values()):
        raise InputError(
            f"{run.method}, as it was trained, has no way to let agents come and go; Sheaf-FRL "
            "without noise and edge_dim has, and non-cooperative training"
        )


def check_newcomer(run: Run, agent: Agent, neighbours: Collection[str]) -> None:
    """Raise unless the agent is new and its neighbours are not."""
    if agent.name in run.nodes:
        raise InputError(
            f"there is an agent {agent.name!r} already, beside {sorted(run.nodes)}; give the "
            "newcomer another name"
        )
    if isinstance(neighbours, str) or not neighbours:
        raise GraphError(
            f"agent {agent.name!r} needs a list of at least one neighbour, got {neighbours!r}; "
            f"choose among {sorted(run.nodes)}"
        )
    unknown = sorted(set(neighbours) - set(run.nodes))
    if unknown:
        raise UnknownAgentError(
            f"agent {agent.name!r} cannot join {unknown}, who are not among {sorted(run.nodes)}"
        )


def check_resumable(run: Run, graph: nx.Graph[str], agents: Collection[Agent]) -> None:
    """Refuse a change after which a resumed run would take another protocol for the old edges."""
    uniform = len({agent.dimension for agent in agents}) == 1
    standard = next(iter(run.nodes.values())).shared_settings().get("privacy") == "standard"
    if run.out is not None and standard and graph.edges and uniform != is_homogeneous(run):
        then, now = ("several", "one") if uniform else ("one", "several")
        raise InputError(
            f"the agents in {run.out} have {then} latent size{'s' * uniform}, and would have {now} "
            "now, for which there is another protocol: the run could not be resumed; train "
            "without out, or take privacy='strict', which has one for both"
        )


def warn_if_apart(graph: nx.Graph[str], left: str) -> None:
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
