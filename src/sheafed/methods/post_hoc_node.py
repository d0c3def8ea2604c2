"""Nodes whose maps are fitted after training, as the baselines' are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from sheafed.channels import Channel
from sheafed.errors import InputError, SingularCovarianceError
from sheafed.linalg.running_zca import RunningZCA
from sheafed.linalg.whitening import inverse_sqrt_and_sqrt, shrink
from sheafed.methods.dynamic_node import DynamicNode
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.methods.latent_codec import LatentCodec, Quantisation
from sheafed.methods.node import ALIGNMENT, NodeContext, latent_dtype
from sheafed.methods.shared_solver import solve
from sheafed.options import Fraction, options
from sheafed.transport.message import Message, TensorSpec


@options(kw_only=True)
class PostHocOptions:
    """How the maps of a method that learns none are fitted after training.

    Args:
        whitening: fit ZCA to the `"pilots"`, as Sheaf-FRL has it, or to each agent's `"private"`
            training data, as the paper does for its baselines. The latter costs a baseline much
            of its communication accuracy when data are shifted; training is the same, and a run
            measures both when it ends, see `sheafed.training.post_hoc_maps`.
        shrinkage: of the covariance before whitening, or `"least"`: none, and where a direction has
            no variance the smallest power of ten by which it can be whitened at all.
        channel: over which latents are transmitted, see `sheafed.channels`.
    """

    whitening: Literal["pilots", "private"] = "pilots"
    shrinkage: Fraction | Literal["least"] = 0.5
    channel: Channel | None = None


class PostHocNode(DynamicNode):
    """A node whose maps are fitted on all pilots when they are needed, not in training."""

    def __init__(
        self,
        context: NodeContext,
        whitening: Literal["pilots", "private"],
        shrinkage: float | Literal["least"],
        channel: Channel | None = None,
        quantisation: Quantisation = "none",
    ) -> None:
        dtype = latent_dtype(context.agent)
        self.codec = LatentCodec(quantisation, dtype)
        self.zca = RunningZCA(context.agent.dimension).to(context.agent.device, dtype).eval()
        super().__init__(context, self.zca, channel)
        self.source, self.shrinkage = whitening, shrinkage
        self._white: Tensor | None = None

    def prepare_edge(self, neighbour: str) -> None:
        is_head = self.edge(neighbour).head == self.name
        other = self.peers[neighbour]["dimension"]
        endpoint = PlainEndpoint(self.agent.dimension, other, is_head=is_head, solver=solve)
        endpoint.map = endpoint.map.to(self.agent.device, latent_dtype(self.agent))
        self.endpoints[neighbour] = endpoint

    def fit_whitening(self) -> None:
        with torch.no_grad():
            self._fit_whitening(self.pilot_latents())

    @torch.no_grad()
    def alignment_messages(self, round: int) -> Iterator[Message]:
        """Fit the whitening and broadcast the white latents of all pilots."""
        pilots = self.pilot_latents(round=round)
        self._fit_whitening(pilots)
        self._white = self.zca(pilots)
        beside = self.beside_latents(pilots)
        for j in self.neighbours:
            latents = self.link_to(j, round, ALIGNMENT).carry(self._white)
            tensors = self.codec.pack(latents=latents) | beside.get(j, {})
            yield Message(ALIGNMENT, round, self.name, j, tensors)

    def align(
        self, round: int, inbox: Mapping[str, Message], *, newcomer: str | None = None
    ) -> None:
        """Solve (P2a) and (P2b) on all pilots.

        Args:
            round: of the messages.
            inbox: what arrived, by sender.
            newcomer: a neighbour that must change nothing but the map of its own edge.
        """
        if self._white is None:
            raise InputError(f"agent {self.name!r}: align() comes after alignment_messages()")
        codec, total = self.codec, self.context.pilots.total
        specs = {
            j: codec.specs(latents=(total, endpoint.width)) | self.expected_beside(j)
            for j, endpoint in self.endpoints.items()
        }
        valid = self.valid_messages(round, ALIGNMENT, inbox, specs, self.check_alignment)
        messages = {
            j: replace(m, tensors={**m.tensors, **codec.unpack(m, "latents").tensors})
            for j, m in valid.items()
        }
        own = codec.as_sent(self._white)
        for j, message in messages.items():
            endpoint = self.endpoints[j]
            endpoint.fit(endpoint.cross(own, message.tensors["latents"]), round)
        self._white = None
        self.after_alignment({j: m for j, m in messages.items() if j != newcomer})

    def beside_latents(self, pilots: Tensor) -> dict[str, dict[str, Tensor]]:
        """Return what else the alignment messages to neighbours hold.

        Args:
            pilots: the raw latents of all pilots.
        """
        return {}

    def expected_beside(self, neighbour: str) -> dict[str, TensorSpec]:
        """Return what else a neighbour's alignment message must hold."""
        return {}

    def check_alignment(self, message: Message) -> None:
        """Raise `MessageError` if what else an alignment message holds is wrong."""

    def after_alignment(self, messages: Mapping[str, Message]) -> None:
        """Use what alignment messages hold, now that the maps are fitted."""

    def state(self) -> dict[str, Any]:
        return super().state() | {"shrinkage": self.zca.shrinkage}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.zca.shrinkage = state["shrinkage"]

    def _fit_whitening(self, pilots: Tensor) -> None:
        private = self.source == "private"
        self.zca.fit(self.agent.encode_samples(self.agent.data.train)[0] if private else pilots)
        shrinkage = self.shrinkage
        if shrinkage == "least":
            shrinkage = least_shrinkage(self.zca.running_covariance)
        self.zca.shrinkage = shrinkage


def least_shrinkage(covariance: Tensor) -> float:
    """Return 0, or the smallest power of ten by which a covariance `(d, d)` becomes regular."""
    for shrinkage in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        try:
            inverse_sqrt_and_sqrt(shrink(covariance, shrinkage))
        except SingularCovarianceError:
            continue
        return shrinkage
    raise SingularCovarianceError(
        f"the latents of size {len(covariance)} have no variance in any direction, and so cannot "
        "be whitened; train the encoder longer, or lower the penalty"
    )
