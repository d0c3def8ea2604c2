r"""What one agent does in Sheaf-FRL.

One node for the four protocols (alg:sheaf_frl_1comm, alg:sheaf_frl_hom and their variants under
stringent privacy): they differ only in the endpoints of the edges (`sheafed.methods.endpoints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.methods.consensus import Consensus, agree, count_classes
from sheafed.methods.dynamic_node import DynamicNode
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.methods.latent_codec import OUTPUTS, PROBABILITIES, LatentCodec
from sheafed.methods.node import ROUND, NodeContext, latent_dtype
from sheafed.methods.predictions import check_same_classes
from sheafed.methods.sheaf_frl import together
from sheafed.methods.sheaf_frl.distillation import Distillation, check_same_outputs
from sheafed.methods.sheaf_frl.exchange import Exchange
from sheafed.methods.sheaf_frl.gluing_penalty import gluing_penalty, updated_weights
from sheafed.methods.sheaf_frl.last_exchange import LastExchange
from sheafed.methods.sheaf_frl.make_endpoint import make_endpoint, warn_if_undetermined
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps
from sheafed.methods.sheaf_frl.map_updates import Fit, MapUpdates
from sheafed.methods.sheaf_frl.penalty_weight import as_penalty
from sheafed.methods.sheaf_frl.predicted import check_single_samples, predicted
from sheafed.methods.sheaf_frl.round_messages import (
    IN_FRAME,
    check_probabilities,
    expected_tensors,
    moved_to,
)
from sheafed.methods.sheaf_frl.sent_pilots import SentPilots, release
from sheafed.methods.whitening import Unwhitened
from sheafed.pilots.policies import as_pilot_policy, policy_digest
from sheafed.transport.message import Message, TensorSpec

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl.method import SheafFRL


class SheafFRLNode(DynamicNode):
    optional_sizes = (OUTPUTS,)
    steps_together = True

    def __init__(self, method: SheafFRL, context: NodeContext) -> None:
        self.dtype = latent_dtype(context.agent)
        layer = method.whitening.layer(context.agent.dimension).to(context.agent.device, self.dtype)
        super().__init__(context, layer, method.channel)
        self.method = method
        self.pilot_policy = as_pilot_policy(
            method.pilots_per_round, context.pilots.total, context.seed
        )
        self.codec = LatentCodec(method.quantisation, self.dtype)
        self.classes, self.outputs = predicted(method, self.agent)
        """How many classes, or numbers, the head predicts for its neighbours."""
        self.learnt_classes = self.classes
        """How many classes the head learns from its neighbours."""
        if isinstance(method.distillation, Consensus):
            self.learnt_classes = count_classes(self.agent)
            check_single_samples(self.name, self.pilot_policy)
        self.map_updates = MapUpdates(method.maps, method.exchange_every, context.rounds_per_epoch)
        self.penalty = as_penalty(method.penalty)
        self.weights: dict[str, float] = {}
        """Of the gluing penalty, by neighbour."""
        self.shows_pilots = method.noise is None
        # A newcomer's maps are fitted to exact latents, once at each end.
        self.neighbours_may_change = method.noise is None and method.edge_dim is None
        self.penalised = self.penalty.active and not self.agent.frozen
        self._sent: SentPilots | None = None
        self.encoded: tuple[Tensor, Tensor] | None = None
        """Latents of the next exchange's pilots, raw and white, if they are known already."""
        self._last_exchange = LastExchange()

    # A round

    def send(self, round: int) -> Iterator[Message]:
        """Encode the pilots and send each neighbour what its endpoint makes of them."""
        if self.map_updates.is_exchanged(round):
            self._sent = self._encode_exchange(round, learning=True)
            yield from self._messages(round, self._sent, self.endpoints)

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Refit the maps, then take the gradient step of eq. theta_update_Q.

        Between exchanges what arrived in the last one is still used: the own latents of its
        pilots are pulled to it, and the head learns its predictions.
        """
        if not self.map_updates.is_exchanged(round):
            then = self.compared_round()
            own = None if then is None else self._encode_pilots(then, learning=True)[1]
            return self._step(round, own)
        exchange = self.read_exchange(round, inbox)
        for fit in self.fits(round, exchange):
            fit.solve()
        self.remember(round, exchange)
        log = self._step(round, exchange.sent.own)
        self.update_weights(round, exchange)
        return log

    def read_exchange(self, round: int, inbox: Mapping[str, Message]) -> Exchange:
        """Return what was sent, and what arrived and can be read."""
        sent, self._sent = self._sent_pilots(), None
        return Exchange(sent, self._readable_messages(round, inbox))

    def fits(self, round: int, exchange: Exchange) -> list[Fit]:
        """Return the fits of maps that follow from an exchange."""
        return self._fits(round, exchange.sent, exchange.comparable)

    def remember(self, round: int, exchange: Exchange) -> None:
        """Read what arrived by the maps as they are now, and keep it."""
        self._last_exchange = LastExchange.read(round, exchange.messages, self.endpoints)
        if isinstance(self.method.distillation, Consensus) and self.learnt_classes:
            said = [m.tensors.get(PROBABILITIES) for _, m in sorted(exchange.comparable.items())]
            self._last_exchange.consensus = agree(
                exchange.sent.probabilities,
                [p for p in said if p is not None],
                self.method.distillation.sharpness,
            )

    def update_weights(self, round: int, exchange: Exchange) -> None:
        """Let the weights of the penalty follow how far the edges are misaligned."""
        self.weights = updated_weights(
            self.penalty,
            self.weights,
            round,
            self.endpoints,
            exchange.sent.own.detach(),
            self._last_exchange.targets(),
            {j: message.tensors["latents"] for j, message in exchange.messages.items()},
        )

    def penalty_targets(self) -> list[tuple[Tensor, float]]:
        """Return what own latents are pulled to, each with its weight."""
        targets = self._last_exchange.targets()
        return [(t, self.weights[j]) for j, t in targets.items() if self.weights[j] > 0]

    before_send = staticmethod(together.before_send)
    receive_together = staticmethod(together.receive_together)

    def compared_round(self) -> int | None:
        """Return the round of the pilots that are compared between exchanges, if any are."""
        compared = self.penalised and self._last_exchange.received
        return self._last_exchange.round if compared else None

    def reuse(self, round: int, message: Message) -> Message | None:
        """Use an earlier message as far as it still holds, see `moved_to`."""
        then, now = (self.pilot_policy.select(r).fingerprint() for r in (message.round, round))
        learns_others = isinstance(self.method.distillation, Distillation)
        if then != now and not (learns_others and (self.classes or self.outputs)):
            return None
        expected = self._expected(round)[message.sender]
        return moved_to(round, message, expected, same_pilots=then == now)

    def _sent_pilots(self) -> SentPilots:
        if self._sent is None:
            raise InputError(f"agent {self.name!r}: receive() comes after send() of the same round")
        return self._sent

    def _encode_exchange(self, round: int, *, learning: bool) -> SentPilots:
        raw, own = self._encode_pilots(round, learning=learning)
        own_all = self.white_pilots() if self.map_updates.sends_all(round) else None
        teaches = bool(self.classes or self.outputs)
        return release(
            self.method, self.context, self.whitening, round, raw, own, own_all, teaches=teaches
        )

    def _encode_pilots(self, round: int, *, learning: bool) -> tuple[Tensor, Tensor]:
        """Return the own latents of a round's pilots `(K, d)`, raw and white."""
        if self.encoded is not None:
            encoded, self.encoded = self.encoded, None
            return encoded
        selection = self.pilot_policy.select(round)
        with torch.set_grad_enabled(learning and self.penalised):
            raw = selection.pool(self.pilot_latents(selection.indices, round))
            return raw, self.whitening.train(learning)(raw)

    def _messages(
        self, round: int, sent: SentPilots, neighbours: Iterable[str]
    ) -> Iterator[Message]:
        for j in neighbours:
            latents = self.link_to(j, round, "latents").carry(sent.released)
            latents_all = None
            if sent.released_all is not None:
                latents_all = self.link_to(j, round, "all").carry(sent.released_all)
            tensors = self.codec.pack(
                latents=latents,
                probabilities=sent.probabilities,
                all=latents_all,
                outputs=sent.outputs,
            )
            fields = {IN_FRAME: self.endpoints[j].in_frame}
            yield Message(ROUND, round, self.name, j, tensors, fields)

    def _readable_messages(self, round: int, inbox: Mapping[str, Message]) -> dict[str, Message]:
        check = partial(check_probabilities, self.codec)
        valid = self.valid_messages(round, ROUND, inbox, self._expected(round), check)
        names = ("latents", "all", PROBABILITIES, OUTPUTS)
        return {j: self.codec.unpack(message, *names) for j, message in valid.items()}

    def _expected(self, round: int) -> dict[str, dict[str, TensorSpec]]:
        total = self.context.pilots.total if self.map_updates.sends_all(round) else None
        return {
            j: expected_tensors(
                self.codec,
                endpoint,
                pilots=self.pilot_policy.count,
                all_pilots=total,
                classes=self.peers[j]["classes"],
                outputs=self.peers[j].get(OUTPUTS, 0),
            )
            for j, endpoint in self.endpoints.items()
        }

    def _fits(self, round: int, sent: SentPilots, messages: Mapping[str, Message]) -> list[Fit]:
        own, own_all = sent.own.detach(), sent.own_all
        if not all(isinstance(endpoint, PlainEndpoint) for endpoint in self.endpoints.values()):
            # A map that shapes what leaves must not tell more of the latents than what leaves does.
            own, own_all = sent.released, sent.released_all
        as_sent = self.codec.as_sent
        own_all = None if own_all is None else as_sent(own_all)
        return self.map_updates.fits(round, self.endpoints, messages, as_sent(own), own_all)

    def _step(self, round: int, own: Tensor | None) -> dict[str, float]:
        """Descend on objective, gluing penalty and distillation loss."""
        log: dict[str, float] = {}
        self.agent.zero_grad()
        if not self.agent.learns:
            return log
        penalty = None
        if own is not None:
            targets = self._last_exchange.targets()
            white = not isinstance(self.whitening, Unwhitened)
            penalty = gluing_penalty(own, targets, self.endpoints, self.weights, white=white)
        if penalty is not None:
            penalty.backward()  # type: ignore[no-untyped-call]
            log["penalty"] = float(penalty.detach())
        with self.agent.rng_context():
            loss = self.local_loss(round)
            log["loss"] = float(loss.detach())
            distillation_loss = self.distillation_loss(round)
            if distillation_loss is not None:
                loss = loss + distillation_loss
                log["distillation_loss"] = float(distillation_loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
            self.agent.apply_gradients()
        return log

    def distillation_loss(self, round: int) -> Tensor | None:
        distillation = self.method.distillation
        if isinstance(distillation, Consensus):
            return self._consensus_loss(distillation, round)
        teachers = self._last_exchange.predictions()
        if distillation is None or self.agent.head is None or teachers is None:
            return None
        white, predictions = teachers
        loss = distillation.regression_loss if self.agent.regression else distillation.loss
        return loss(self.agent.apply_head, self.whitening.eval().colour(white), predictions)

    def _consensus_loss(self, consensus: Consensus, round: int) -> Tensor | None:
        """Return the loss of the model on pilots of the last exchange that are agreed on."""
        targets = self._last_exchange.consensus
        if targets is None:
            return None
        moment = (self.context.seed, self.name, round)
        rows = consensus.learnt_pilots(targets, self.agent.batch_size, *moment)
        if not len(rows):
            return None
        indices = self.pilot_policy.select(self._last_exchange.round).indices[rows]
        scores = self.agent.apply_head(self.pilot_latents.in_training(indices, round))
        return consensus.loss(scores, targets[rows.to(targets.device)])

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        method = self.method
        stalks = "" if method.edge_dim is None else f", edge stalks of {method.edge_dim}"
        return super().shared_settings() | {
            "privacy": method.privacy,
            "homogeneity": int(self.context.homogeneous),
            "map policy": f"{method.maps!r}{stalks}",
            "pilots per round": self.pilot_policy.count,
            "pilots of the first rounds": policy_digest(self.pilot_policy),
            "latent precision": f"{self.dtype} {method.quantisation}",
            "rounds between exchanges": method.exchange_every,
            "distillation": "none" if method.distillation is None else method.distillation.kind,
        }

    def announced_sizes(self) -> dict[str, int]:
        """Add the number of classes of the own probabilities, 0 for an agent without a head.

        Heads that predict numbers announce how many.
        """
        outputs = {OUTPUTS: self.outputs} if self.outputs else {}
        return super().announced_sizes() | {"classes": self.classes} | outputs

    def prepare_edge(self, neighbour: str) -> None:
        edge, other = self.edge(neighbour), self.peers[neighbour]
        check_same_classes(self.name, self.learnt_classes, neighbour, other["classes"])
        check_same_outputs(self.name, self.announced_sizes(), neighbour, other)
        self.endpoints[neighbour] = make_endpoint(
            self.method, self.context, neighbour, edge, other["dimension"]
        )
        self.weights[neighbour] = self.penalty.start()
        if edge.head == self.name:  # once per edge
            total = self.context.pilots.total
            needed = min(self.agent.dimension, other["dimension"])
            warn_if_undetermined(self.method, self.pilot_policy, total, edge, needed)

    # Neighbours that come and go

    def remove_neighbour(self, neighbour: str) -> None:
        super().remove_neighbour(neighbour)
        del self.weights[neighbour]
        self._last_exchange.received.pop(neighbour, None)
        self.map_updates.running.pop(neighbour, None)

    def fit_endpoint(self, neighbour: str, own: Tensor, received: Tensor) -> None:
        """Fit an endpoint from all pilots; a running cross-covariance continues from theirs."""
        if not isinstance(self.method.maps, IdentityMaps):
            super().fit_endpoint(neighbour, own, received)
            cross = self.endpoints[neighbour].cross(own, received) / len(own)
            self.map_updates.start_from(neighbour, cross)

    def serve(self, round: int, neighbour: str) -> Iterator[Message]:
        """Send one neighbour the same as in a round; the whitening learns nothing from it."""
        if self.map_updates.is_exchanged(round):
            self._sent = self._encode_exchange(round, learning=False)
            yield from self._messages(round, self._sent, [neighbour])

    def refit(self, round: int, inbox: Mapping[str, Message]) -> None:
        if self.map_updates.is_exchanged(round):
            messages = self._readable_messages(round, inbox)
            for fit in self._fits(round, self._sent_pilots(), messages):
                fit.solve()

    # State

    def state(self) -> dict[str, Any]:
        keeps = self.method.exchange_every > 1  # else every round has an exchange of its own
        return super().state() | {
            "running": dict(self.map_updates.running),
            "weights": dict(self.weights),
            "last_exchange": (self._last_exchange if keeps else LastExchange()).state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.map_updates.running = dict(state["running"])
        self.weights = dict(state["weights"])
        self._last_exchange = LastExchange.from_state(state["last_exchange"])
