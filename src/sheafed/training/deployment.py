"""What leaves a network for deployment: links and pipelines as torch modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from sheafed.agents.casting import is_in_float32
from sheafed.agents.encoder_call import call_encoder
from sheafed.agents.precision import half_dtype
from sheafed.alignment.affine_map import AffineMap
from sheafed.devices import CPU
from sheafed.errors import ExportError, InputError
from sheafed.methods.node import Node, latent_dtype
from sheafed.methods.whitening import WhiteningLayer
from sheafed.tensor_tree import TensorTree, map_tensors
from sheafed.training.export import (
    EXAMPLES,
    FAILURES,
    LINK_ALONE,
    Example,
    example_inputs,
    export_module,
)
from sheafed.training.multi_hop import path_link


class Pipeline(nn.Module):
    """The sender's encoder, the link and the receiver's head in one module, for inference.

    It has copies on the CPU, of modules in half precision in float32: what happens to the agents
    later does not change it. Inputs are cast to float32 if the encoder is in float32, as
    `Network.encode` does with float64.

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
        outputs: Tensor = self.head(self.link(call_encoder(encode, self.cast(inputs))))
        return outputs

    def cast(self, inputs: TensorTree) -> TensorTree:
        """Return inputs in the precision that the encoder computes in."""
        if not is_in_float32(self.encoder):
            return inputs
        return map_tensors(lambda x: x.float() if x.is_floating_point() else x, inputs)


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
    head, link = receiver.head if other is None else other, link_layer(nodes, path)
    try:
        return Pipeline(sender.encoder, link, head)
    except FAILURES as problem:
        raise ExportError(
            f"the encoder of agent {sender.name!r} or the head of agent {receiver.name!r} cannot "
            f"be copied ({type(problem).__name__}: {problem}); {LINK_ALONE}"
        ) from problem


def export(nodes: Mapping[str, Node], path: Sequence[str], out: Path, link_only: bool) -> None:
    """Write a link or a pipeline to a file; see `Network.export`."""
    sender, receiver = (nodes[name].agent for name in (path[0], path[-1]))
    module: nn.Module
    if link_only:
        module = link_layer(nodes, path)
        zeros = torch.zeros(EXAMPLES, sender.dimension, dtype=latent_dtype(sender))
        example = Example(zeros, [set()])
    else:
        module, example = pipeline(nodes, path), example_inputs(sender)
        example = example._replace(inputs=module.cast(example.inputs))
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
