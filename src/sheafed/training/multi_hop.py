"""Links between agents that are not neighbours, over the endpoints of the agents on a path.

An agent on the path reads what arrives by its endpoint of the one edge and passes it on by its
endpoint of the next. Colouring there and whitening again would cancel, so neither is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError
from sheafed.evaluation.peer_evaluator import evaluation_pilots
from sheafed.graphs import Edge
from sheafed.linalg.procrustes import misalignment, procrustes
from sheafed.methods.node import Node, latent_dtype
from sheafed.pilots.absent_pilots import AbsentPilots
from sheafed.sheaf.holonomy import Holonomy, compose
from sheafed.sheaf.latent_link import LatentLink
from sheafed.sheaf.routing import check_agents, check_path, lowest_loss_path


def path_link(
    nodes: Mapping[str, Node], path: Sequence[str], *, channel: bool = True
) -> LatentLink:
    """Return the link from the encoder of `path[0]` to the head of `path[-1]`.

    Args:
        nodes: the live nodes.
        path: agents, each a neighbour of the next; a path of one agent changes nothing.
        channel: False leaves noisy channels out.
    """
    check_agents(path, nodes)
    check_path(path, {node.edge(j): None for node in nodes.values() for j in node.neighbours})
    hops = [_hop(nodes, a, b, channel) for a, b in pairwise(path)]
    return reduce(LatentLink.then, hops) if hops else LatentLink()


def _hop(nodes: Mapping[str, Node], sender: str, receiver: str, channel: bool) -> LatentLink:
    sending = nodes[sender].link_to(receiver, channel=channel)
    return sending.then(nodes[receiver].link_from(sender))


def find_path(nodes: Mapping[str, Node], sender: str, receiver: str) -> list[str]:
    """Return the edge between neighbours, else the path of least expected loss.

    That of an agent to itself has no hop. See `sheafed.sheaf.routing`; the noise that channels add
    at every hop is not considered.
    """
    check_agents((sender, receiver), nodes)
    if sender == receiver:
        return [sender]
    if receiver in nodes[sender].neighbours:
        return [sender, receiver]
    dims = {name: node.agent.dimension for name, node in nodes.items()}
    return lowest_loss_path(sender, receiver, dims, mismatches(nodes))


@torch.no_grad()
def mismatches(nodes: Mapping[str, Node]) -> dict[Edge, float]:
    r"""Return $\|A_j - V^\top A_i\|^2 / (\|A_j\|^2 + \|V^\top A_i\|^2)$ of every edge's pilots.

    This is the misalignment in the space of the tail $j$, where both ends contribute: the tail's
    own latents, and what it reads of the head's. It is 1 if all latents are zero.
    """
    if any(isinstance(node.context.pilots, AbsentPilots) for node in nodes.values()):
        raise InputError(
            "this network was loaded without its pilots, by which a path of several hops is "
            "chosen; give pilots= to sheafed.load, or a path"
        )
    hidden = sorted(name for name, node in nodes.items() if not node.shows_pilots)
    if hidden:
        raise InputError(
            f"agents {hidden} add noise to their pilots; the loss of a hop cannot be measured: "
            "give a path"
        )
    white = {
        name: node.white_pilots(evaluation_pilots(node.context.pilots.total))
        for name, node in nodes.items()
    }
    found = {}
    for edge in sorted({node.edge(j) for node in nodes.values() for j in node.neighbours}):
        read = _hop(nodes, *edge, channel=False).carry(white[edge.head])
        value = misalignment(white[edge.tail], read)
        found[edge] = 1.0 if value is None else value
    return found


@torch.no_grad()
def composed_map(nodes: Mapping[str, Node], path: Sequence[str]) -> Tensor:
    """Return what a path does to white latents, `(d_receiver, d_sender)`."""
    link = path_link(nodes, path, channel=False)
    first = nodes[path[0]].agent
    return link.carry(torch.eye(first.dimension, dtype=latent_dtype(first), device=first.device)).mT


def direct_map(sender: Tensor, receiver: Tensor, composed: Tensor) -> Tensor:
    """Return the map `(d_receiver, d_sender)` that two agents would have as neighbours.

    It is the Procrustes map of their white pilots; where these leave it undetermined, it follows
    the composed map. Agents that are not neighbours cannot compute it: they have not compared
    pilots.
    """
    if len(composed) >= composed.shape[1]:
        return procrustes(receiver, sender, previous=composed)
    return procrustes(sender, receiver, previous=composed.mT).mT


def path_holonomy(path: Sequence[str], composed: Tensor, direct: Tensor) -> Holonomy:
    """Return the holonomy of the cycle that a path makes with the direct map between its ends.

    Like every cycle it starts at the smaller end.
    """
    if len(path) < 2:
        raise EmptyInputError(f"the path {list(path)} has no hop, so nothing can be lost on it")
    if len(composed) >= composed.shape[1]:
        return compose(tuple(path), (composed, direct.mT), composed.shape[1])
    return compose((path[-1], *path[:-1]), (direct.mT, composed), len(composed))
