"""Using the agents of a network: encode, send, classify; NumPy arrays or torch tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sheafed.agents.data_forms import as_samples
from sheafed.agents.samples import Samples, TensorSamples
from sheafed.alignment.arrays import Array, ArrayT, as_array, as_tensor
from sheafed.errors import InputError, ShapeError
from sheafed.methods.node import Node, latent_dtype
from sheafed.sheaf.routing import check_agents
from sheafed.tensor_tree import as_tensor_tree
from sheafed.training.multi_hop import find_path, path_link


def encode(nodes: Mapping[str, Node], inputs: Any, name: str) -> Any:
    """Return the latents `(n, d)` of inputs; see `Network.encode`."""
    check_agents([name], nodes)
    agent = nodes[name].agent
    if isinstance(inputs, Mapping | tuple):  # whose parts are no targets here
        samples: Samples = TensorSamples(as_tensor_tree(inputs))
    else:
        arrays = isinstance(inputs, Tensor | np.ndarray)  # what the encoder takes, not rows
        samples = as_samples(inputs) if arrays else agent.samples_of(inputs)
    latents, _ = agent.encode_samples(samples)
    return latents.cpu().numpy() if isinstance(inputs, np.ndarray) else latents


def send(nodes: Mapping[str, Node], latents: ArrayT, way: Sequence[str]) -> ArrayT:
    """Return latents as the last agent of a path has them; see `Network.send`."""
    given = as_array("latents", latents)
    return _like(given, _carry(nodes, given, way))


def outputs(nodes: Mapping[str, Node], latents: ArrayT, way: Sequence[str]) -> ArrayT:
    """Return what the last agent's head makes of them; see `Network.outputs`."""
    given = as_array("latents", latents)
    return _like(given, _read(nodes, given, way))


def classify(
    nodes: Mapping[str, Node], latents: ArrayT, way: Sequence[str]
) -> Tensor | NDArray[np.int64]:
    """Return the last agent's classes of them; see `Network.classify`."""
    agent = nodes[way[-1]].agent
    if agent.head is not None and agent.regression:
        raise ShapeError(
            f"the head of agent {agent.name!r} predicts numbers, or several labels per sample, not "
            "classes; take network.outputs for what it gives"
        )
    given = as_array("latents", latents)
    scores = _read(nodes, given, way)
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ShapeError(
            f"the head of agent {way[-1]!r} gives no scores (n, classes), but "
            f"{tuple(scores.shape)}; take network.outputs for what it gives"
        )
    labels = scores.argmax(-1)
    return labels.cpu().numpy() if isinstance(given, np.ndarray) else labels


def choose_path(
    nodes: Mapping[str, Node], sender: str, receiver: str, given: Sequence[str] | None
) -> list[str]:
    """Return a path that was given, else the one of least expected loss."""
    check_agents((sender, receiver), nodes)
    way = list(find_path(nodes, sender, receiver) if given is None else given)
    if not way or (way[0], way[-1]) != (sender, receiver):
        raise InputError(f"a path from {sender!r} to {receiver!r} cannot be {way}")
    return way


@torch.no_grad()
def _carry(nodes: Mapping[str, Node], latents: Array, way: Sequence[str]) -> Tensor:
    agent = nodes[way[0]].agent
    given = as_tensor(f"the latents of agent {agent.name!r}", latents)
    if given.ndim != 2 or given.shape[1] != agent.dimension:
        raise ShapeError(
            f"latents of agent {agent.name!r} must have the shape (n, {agent.dimension}), got "
            f"{tuple(given.shape)}"
        )
    carried = path_link(nodes, way)(given.to(latent_dtype(agent)))
    return carried.to(nodes[way[-1]].agent.device)


def _read(nodes: Mapping[str, Node], latents: Array, way: Sequence[str]) -> Tensor:
    agent = nodes[way[-1]].agent
    if agent.head is None:
        raise InputError(
            f"agent {agent.name!r} has no head to classify with; send to an agent that has one"
        )
    received = _carry(nodes, latents, way)
    return nodes[way[-1]].read(received, way[0])


def _like(given: ArrayT, result: Tensor) -> ArrayT:
    """Return a result in the kind and precision of what was given."""
    if isinstance(given, Tensor):
        return result.to(given.dtype)
    return result.cpu().numpy().astype(given.dtype)
