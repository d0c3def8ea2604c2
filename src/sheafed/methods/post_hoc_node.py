"""Nodes whose maps are fitted after training, as the baselines' are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from sheafed.channels import Channel
from sheafed.errors import InputError, SingularCovarianceError
from sheafed.linalg.running_zca import RunningZCA
from sheafed.linalg.whitening import inverse_sqrt_and_sqrt, shrink
from sheafed.methods.consensus_head import copy_head
from sheafed.methods.dynamic_node import DynamicNode
from sheafed.methods.endpoints import plain_endpoint, strict_endpoint
from sheafed.methods.latent_codec import LatentCodec, Quantisation
from sheafed.methods.node import ALIGNMENT, FROM_HEAD, FROM_TAIL, NodeContext, latent_dtype
from sheafed.methods.reading_head import ReadingHead
from sheafed.methods.shared_solver import solve
from sheafed.methods.undetermined_maps import warn_if_rank_is_low
from sheafed.options import Fraction, options
from sheafed.seeds import secret_stream
from sheafed.transport.message import Message, TensorSpec

Privacy = Literal["standard", "strict"]


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


@options(kw_only=True)
class PrivateMapOptions(PostHocOptions):
    """Those of a method that sends neither latents nor means of them while it trains.

    Args:
        privacy: `"standard"` sends white latents as they are when maps are fitted and in use,
            `"strict"` only what a secret isometry of the edge makes of them.
    """

    privacy: Privacy = "standard"


class PostHocNode(DynamicNode):
    r"""A node whose maps are fitted on all pilots when they are needed, not in training.

    With standard privacy all send their white latents at once, and the two ends of an edge solve
    the same Procrustes problem. With strict privacy the head of an edge sends $O A_i$ with a secret
    random $O$. The tail fits $V$ to it by (P2d) and answers $V A_j$. $O^\top V$ is the map of the
    standard protocol, wherever the pilots determine it, and neither end knows it.
    """

    def __init__(
        self,
        context: NodeContext,
        whitening: Literal["pilots", "private"],
        shrinkage: float | Literal["least"],
        channel: Channel | None = None,
        quantisation: Quantisation = "none",
        privacy: Privacy = "standard",
    ) -> None:
        dtype = latent_dtype(context.agent)
        self.codec = LatentCodec(quantisation, dtype)
        self.zca = RunningZCA(context.agent.dimension).to(context.agent.device, dtype).eval()
        super().__init__(context, self.zca, channel)
        self.source, self.shrinkage = whitening, shrinkage
        self.privacy = privacy
        self._white: Tensor | None = None
        self._beside: dict[str, dict[str, Tensor]] = {}
        self._answered: dict[str, Message] = {}

    def prepare_edge(self, neighbour: str) -> None:
        edge = self.edge(neighbour)
        is_head = edge.head == self.name
        sizes = (self.agent.dimension, self.peers[neighbour]["dimension"])
        if self.privacy == "strict":
            secret = secret_stream(self.context.secret, self.name, "map", neighbour)
            endpoint = strict_endpoint(
                *sizes, is_head=is_head, secret=secret, solver=solve, in_turn=False
            )
        else:
            endpoint = plain_endpoint(*sizes, is_head=is_head, solver=solve)
        endpoint.map = endpoint.map.to(self.agent.device, latent_dtype(self.agent))
        self.endpoints[neighbour] = endpoint
        if is_head:  # once per edge
            total = self.context.pilots.total
            # Whitening by the pilots centres them, which costs them one direction.
            rank = total - (self.source == "pilots")
            warn_if_rank_is_low(edge, total, rank, min(sizes), "use more pilots")

    def fit_whitening(self) -> None:
        with torch.no_grad():
            self._fit_whitening(self.pilot_latents())

    @property
    def alignment_exchange(self) -> dict[str, Collection[str]]:
        if self.privacy == "standard":
            return {ALIGNMENT: self.neighbours}
        heads = [j for j in self.neighbours if self.edge(j).head == j]
        return {FROM_HEAD: heads, FROM_TAIL: sorted({*self.neighbours} - {*heads})}

    @torch.no_grad()
    def alignment_messages(self, round: int) -> Iterator[Message]:
        """Fit the whitening and send latents of all pilots, to all neighbours or to the tails."""
        pilots = self.pilot_latents(round=round)
        self._fit_whitening(pilots)
        self._white = self.zca(pilots)
        self._beside, self._answered = self.beside_latents(pilots), {}
        kind, heads = next(iter(self.alignment_exchange.items()))
        for j in self.neighbours:
            if self.privacy == "standard" or j not in heads:
                yield self._alignment_message(kind, round, j)

    @torch.no_grad()
    def answer_alignment(self, round: int, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Solve (P2d) on all pilots for each head that was heard, and answer in its frame.

        A head that was not heard gets no answer: the edge stays as it was.
        """
        messages = self._readable(FROM_HEAD, round, inbox)
        self._fit(round, messages)
        self._answered |= messages
        for j in messages:
            yield self._alignment_message(FROM_TAIL, round, j)

    def align(
        self, round: int, inbox: Mapping[str, Message], *, newcomer: str | None = None
    ) -> None:
        """Solve (P2a) and (P2b) on all pilots, or read what tails have answered.

        Args:
            round: of the messages.
            inbox: what arrived, by sender.
            newcomer: a neighbour that must change nothing but the map of its own edge.
        """
        *_, kind = self.alignment_exchange
        messages = self._readable(kind, round, inbox)
        if kind == ALIGNMENT:
            self._fit(round, messages)
        messages |= self._answered
        self._white, self._beside, self._answered = None, {}, {}
        self.after_alignment({j: m for j, m in messages.items() if j != newcomer})

    def _alignment_message(self, kind: str, round: int, neighbour: str) -> Message:
        latents = self.link_to(neighbour, round, ALIGNMENT).carry(self._own_white())
        tensors = self.codec.pack(latents=latents) | self._beside.get(neighbour, {})
        return Message(kind, round, self.name, neighbour, tensors)

    def _readable(self, kind: str, round: int, inbox: Mapping[str, Message]) -> dict[str, Message]:
        """Return the valid messages, with latents as numbers."""
        codec, total = self.codec, len(self._own_white())
        specs = {
            j: codec.specs(latents=(total, endpoint.width)) | self.expected_beside(j)
            for j, endpoint in self.endpoints.items()
        }
        valid = self.valid_messages(round, kind, inbox, specs, self.check_alignment)
        return {
            j: replace(m, tensors={**m.tensors, **codec.unpack(m, "latents").tensors})
            for j, m in valid.items()
        }

    def _fit(self, round: int, messages: Mapping[str, Message]) -> None:
        own = self._own_white()
        if self.privacy == "standard":
            own = self.codec.as_sent(own)  # both ends solve one problem
        for j, message in messages.items():
            endpoint = self.endpoints[j]
            endpoint.fit(endpoint.cross(own, message.tensors["latents"]), round)

    def _own_white(self) -> Tensor:
        if self._white is None:
            raise InputError(f"agent {self.name!r}: align() comes after alignment_messages()")
        return self._white

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
        head = self.reading_head
        return super().state() | {
            "shrinkage": self.zca.shrinkage,
            "reading_head": None if head is None else head.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.zca.shrinkage = state["shrinkage"]
        self.reading_head = None
        if state.get("reading_head") is not None:
            self.reading_head = ReadingHead.from_state(copy_head(self.agent), state["reading_head"])

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
