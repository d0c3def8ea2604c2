"""What leaves a network for deployment: links and pipelines as torch modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from sheafed.agents.encoder_call import call_encoder
from sheafed.agents.precision import half_dtype
from sheafed.alignment.affine_map import AffineMap
from sheafed.devices import CPU
from sheafed.errors import InputError
from sheafed.methods.node import Node, latent_dtype
from sheafed.methods.whitening import WhiteningLayer
from sheafed.training.export import EXAMPLES, example_inputs, export_module
from sheafed.training.multi_hop import path_link


class Pipeline(nn.Module):
    """The sender's encoder, the link and the receiver's head in one module, for inference.

    It has copies on the CPU, of modules in half precision in float32: what happens to the agents
    later does not change it.

    Args:
        encoder: the sender's; its `encode` method is used if it has one.
        link: from the sender's latents to those that the head reads.
        head: the receiver's.
    """

    def __init__(self, encoder: nn.Module, link: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.link, self.head = (_on_cpu(m) for m in (encoder, link, head))
        self.eval().requires_grad_(False)

    def forward(self, inputs: Any) -> Tensor:
        """Return what the receiver's head says of the sender's inputs `(n, ...)`."""
        encode = getattr(self.encoder, "encode", self.encoder)
        outputs: Tensor = self.head(self.link(call_encoder(encode, inputs)))
        return outputs


def _on_cpu(module: nn.Module) -> nn.Module:
    copied = deepcopy(module).cpu()
    return copied if half_dtype(module) is None else copied.float()


def link_layer(nodes: Mapping[str, Node], path: Sequence[str]) -> nn.Linear:
    """Return the link along a path as one layer; see `Network.link`.

    Whitening, maps and colouring are affine, so the layer follows from what they do to zero and to
    the basis vectors, in double precision.
    """
    doubles = {name: _in_double(nodes[name]) for name in path}
    link, sender = path_link(doubles, path, channel=False), nodes[path[0]].agent
    zero = torch.zeros(sender.dimension, dtype=torch.float64)
    with torch.no_grad():
        value = link(zero[None])[0]
        weight = (link(torch.eye(sender.dimension, dtype=torch.float64)) - value).mT
    layer = AffineMap(weight, centre=zero, value=value).as_linear(latent_dtype(sender))
    return layer.eval().requires_grad_(False)


def pipeline(nodes: Mapping[str, Node], path: Sequence[str]) -> Pipeline:
    """Return the whole way along a path as one module; see `Network.pipeline`."""
    sender, receiver = (nodes[name].agent for name in (path[0], path[-1]))
    if receiver.head is None:
        raise InputError(
            f"agent {receiver.name!r} has no head to end a pipeline with; take the link alone"
        )
    other = nodes[path[-1]].head_for(path[0])
    head = receiver.head if other is None else other
    return Pipeline(sender.encoder, link_layer(nodes, path), head)


def export(nodes: Mapping[str, Node], path: Sequence[str], out: Path, link_only: bool) -> None:
    """Write a link or a pipeline to a file; see `Network.export`."""
    sender, receiver = (nodes[name].agent for name in (path[0], path[-1]))
    module: nn.Module
    if link_only:
        module = link_layer(nodes, path)
        example: Any = torch.zeros(EXAMPLES, sender.dimension, dtype=latent_dtype(sender))
    else:
        module, example = pipeline(nodes, path), example_inputs(sender)
    description = {"sender": sender.name, "receiver": receiver.name, "path": list(path)}
    named = {} if receiver.classes is None else {"classes": list(receiver.classes)}
    what = f"the {'link' if link_only else 'pipeline'} from {sender.name!r} to {receiver.name!r}"
    export_module(what, module, example, out, {**description, **named})


def _in_double(node: Node) -> Node:
    """Return a copy of a node whose whitening and maps are in double precision, on the CPU."""
    double = copy(node)
    double.device = CPU
    layer = deepcopy(cast(nn.Module, node.whitening)).cpu().double()
    double.whitening = cast(WhiteningLayer, layer)
    double.endpoints = {j: copy(endpoint) for j, endpoint in node.endpoints.items()}
    for endpoint in double.endpoints.values():
        endpoint.map = endpoint.map.detach().cpu().double()
    return double
