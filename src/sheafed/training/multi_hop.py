"""Talking to strangers: agents that are not neighbours, over the maps of those in between.

An agent on the way reads what arrived by its own end of the one edge and passes it on by its end of
the other. Colouring it there and whitening it again would change nothing, so nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError
from sheafed.evaluation.evaluation import normalised_residual, white_evaluation_pilots
from sheafed.graphs import Edge
from sheafed.linalg.procrustes import procrustes
from sheafed.methods.node import Node, latent_dtype
from sheafed.sheaf.holonomy import Holonomy, compose
from sheafed.sheaf.routing import check_agents, check_path, lowest_loss_path


@torch.no_grad()
def relay(nodes: Mapping[str, Node], latents: Tensor, path: Sequence[str]) -> Tensor:
    """Return latents of `path[0]`, `(n, d)`, as the head of `path[-1]` reads them at the end.

    Every agent does its own step and sees only what its neighbour sent it: standard, homogeneous
    and strict ends alike.
    """
    _check(nodes, path)
    if len(path) == 1:
        return latents
    sent = nodes[path[0]].transmit(latents, path[1])
    for before, here, after in zip(path, path[1:], path[2:], strict=False):
        sent = nodes[here].forward(sent, before, after)
    return nodes[path[-1]].interpret(sent, path[-2])


@torch.no_grad()
def mismatches(nodes: Mapping[str, Node]) -> dict[Edge, float]:
    r"""Return $\|A_j - V^\top A_i\|^2 / (\|A_j\|^2 + \|V^\top A_i\|^2)$ of every edge's probes.

    The residual where both ends have a say, in the space of the tail $j$, which has all of it: its
    own latents, and what it reads of the head's. 0: agreed; 1: unrelated, as are latents of zeros.
    """
    hidden = sorted(name for name, node in nodes.items() if not node.shows_pilots)
    if hidden:
        raise InputError(
            f"agents {hidden} do not show their pilots (they add noise), so nobody knows what a "
            "hop loses; give a path"
        )
    white = white_evaluation_pilots(nodes)
    found = {}
    for name, node in nodes.items():
        for neighbour in node.neighbours:
            edge = node.edge(neighbour)
            if edge.tail == name:
                sent = nodes[neighbour].endpoints[name].outgoing(white[neighbour])
                read = node.endpoints[neighbour].incoming(sent)
                residual = normalised_residual(white[name], read, float(read.square().sum()))
                found[edge] = 1.0 if residual is None else residual
    return found


def route(nodes: Mapping[str, Node], sender: str, receiver: str) -> list[str]:
    """Return the way between two agents: the edge of neighbours, else a path of strangers.

    It is that of least expected loss (see `sheafed.sheaf.routing`). What a noisy channel adds at
    every hop is not in it.
    """
    check_agents((sender, receiver), nodes)
    if receiver in nodes[sender].neighbours:
        return [sender, receiver]
    dims = {name: node.agent.dimension for name, node in nodes.items()}
    return lowest_loss_path(sender, receiver, dims, mismatches(nodes))


@torch.no_grad()
def composed_map(nodes: Mapping[str, Node], path: Sequence[str]) -> Tensor:
    """Return what a path does to white latents, `(d_receiver, d_sender)`."""
    _check(nodes, path)
    first = nodes[path[0]].agent
    rows = torch.eye(first.dimension, dtype=latent_dtype(first))
    for a, b in pairwise(path):
        rows = nodes[b].endpoints[a].incoming(nodes[a].endpoints[b].outgoing(rows))
    return rows.mT


def direct_map(sender: Tensor, receiver: Tensor, composed: Tensor) -> Tensor:
    """Return the map `(d_receiver, d_sender)` that two agents would have as neighbours.

    The Procrustes map of their white pilots; where these leave it open, it is as the composed one.
    A measurement: strangers have not compared their pilots.
    """
    if len(composed) >= composed.shape[1]:
        return procrustes(receiver, sender, previous=composed)
    return procrustes(sender, receiver, previous=composed.mT).mT


def path_holonomy(path: Sequence[str], composed: Tensor, direct: Tensor) -> Holonomy:
    """Return the holonomy of the cycle that a path makes with the direct map between its ends.

    Like every cycle it starts at the smaller end. It needs a direct map; `route` does not.
    """
    if len(path) < 2:
        raise EmptyInputError(f"the path {list(path)} has no hop, so nothing can be lost on it")
    if len(composed) >= composed.shape[1]:
        return compose(tuple(path), (composed, direct.mT), composed.shape[1])
    return compose((path[-1], *path[:-1]), (direct.mT, composed), len(composed))


def _check(nodes: Mapping[str, Node], path: Sequence[str]) -> None:
    check_agents(path, nodes)
    edges = {node.edge(j): None for node in nodes.values() for j in node.neighbours}
    check_path(path, edges)
