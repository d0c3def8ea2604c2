r"""Sheaf-FRL as one agent runs it.

One program for the four protocols (alg:sheaf_frl_1comm, alg:sheaf_frl_hom and their variants under
stringent privacy): they differ in the ends of the edges only (`sheafed.methods.endpoints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from sheafed.errors import HandshakeError, InputError
from sheafed.methods.endpoints import PlainEndpoint, endpoint_state, load_endpoint_state
from sheafed.methods.node import ROUND, Node, NodeContext, count_classes, latent_dtype, logger
from sheafed.methods.sheaf_frl.distillation import are_probabilities, predict_proba
from sheafed.methods.sheaf_frl.endpoints import make_endpoint, warn_if_undetermined
from sheafed.methods.sheaf_frl.gaussian_noise import noise_stream
from sheafed.methods.sheaf_frl.gluing_penalty import gluing_penalty, misalignment
from sheafed.methods.sheaf_frl.last_exchange import LastExchange, Received
from sheafed.methods.sheaf_frl.latent_codec import PROBABILITIES, LatentCodec
from sheafed.methods.sheaf_frl.map_policy import IdentityMaps
from sheafed.methods.sheaf_frl.map_updates import IN_FRAME, MapFits, in_frame
from sheafed.methods.sheaf_frl.penalty_weight import as_penalty
from sheafed.pilots.policies import PilotPolicy, UniformPilots, policy_digest
from sheafed.transport.message import Message, TensorSpec

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl.method import SheafFRL


Sent = TypeVar("Sent")

OTHER_PILOTS = "other pilots"
"""The field that marks an earlier round's message whose pilots were not those of this one."""


class SheafFRLNode(Node):
    """Sheaf-FRL from the point of view of one agent."""

    def __init__(self, method: SheafFRL, context: NodeContext) -> None:
        self.dtype = latent_dtype(context.agent)
        layer = method.whitening.layer(context.agent.dimension).to(self.dtype)
        super().__init__(context, layer, method.channel)
        self.method = method
        self.penalty = as_penalty(method.penalty)
        self.policy: PilotPolicy = (
            UniformPilots(
                context.pilots.total,
                min(method.pilots_per_round, context.pilots.total),
                context.seed,
            )
            if isinstance(method.pilots_per_round, int)
            else method.pilots_per_round
        )
        self.codec = LatentCodec(method.quantisation, self.dtype)
        self.classes = 0 if method.distillation is None else count_classes(self.agent)
        self.weights: dict[str, float] = {}
        self.fits = MapFits(method.maps, method.exchange_every, context.rounds_per_epoch)
        self.shows_pilots = method.noise is None
        # A newcomer's maps are fitted to exact latents, once at each end.
        self.neighbours_may_change = method.noise is None and method.edge_dim is None
        self._last_exchange = LastExchange()
        self._own: Tensor | None = None
        self._fitted_to: tuple[Tensor, Tensor | None] | None = None

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        """Add what Sheaf-FRL must have in common."""
        return super().shared_settings() | {
            "privacy": self.method.privacy,
            "homogeneity": int(self.context.homogeneous),
            "map policy": self._map_policy(),
            "pilots per round": self.policy.count,
            "pilots of the first rounds": policy_digest(self.policy),
            "latent precision": f"{self.dtype} {self.method.quantisation}",
            "rounds between exchanges": self.method.exchange_every,
            "distillation": int(self.method.distillation is not None),
        }

    def own_settings(self) -> dict[str, int]:
        """Add the number of classes of the own probabilities, 0 for an agent without a head."""
        return super().own_settings() | {"classes": self.classes}

    def prepare_edge(self, neighbour: str) -> None:
        """Build this agent's end of an edge."""
        edge, other = self.edge(neighbour), self.peers[neighbour]["dimension"]
        self._check_classes(neighbour)
        self.endpoints[neighbour] = make_endpoint(self.method, self.context, neighbour, edge, other)
        self.weights[neighbour] = self.penalty.start()
        if edge.head == self.name:  # the tail is told nothing new
            total, needed = self.context.pilots.total, min(self.agent.dimension, other)
            warn_if_undetermined(self.method, self.policy, total, edge, needed)

    # Neighbours that come and go

    def remove_neighbour(self, neighbour: str) -> None:
        """Forget also what was gathered on the edge."""
        super().remove_neighbour(neighbour)
        del self.weights[neighbour]
        self._last_exchange.heard.pop(neighbour, None)
        self.fits.running.pop(neighbour, None)

    def fit_endpoint(self, neighbour: str, own: Tensor, received: Tensor) -> None:
        """Fit an end from all pilots; a running cross-covariance goes on from theirs."""
        if not isinstance(self.method.maps, IdentityMaps):
            super().fit_endpoint(neighbour, own, received)
            cross = self.endpoints[neighbour].cross(own, received) / len(own)
            self.fits.start_from(neighbour, cross)

    def serve(self, round: int, neighbour: str) -> Iterator[Message]:
        """Tell one neighbour the same as in a round; the whitening learns nothing from it."""
        return self._tell(round, [neighbour], learning=False)

    def refit(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Refit the maps of those edges, as in a round, and nothing else."""
        if self.fits.is_exchanged(round):
            self._fit_maps(round, self._heard(round, inbox))

    # A round

    def send(self, round: int) -> Iterator[Message]:
        """Encode the pilots and tell every neighbour, as its protocol has it."""
        return self._tell(round, self.endpoints, learning=True)

    def _tell(self, round: int, neighbours: Iterable[str], *, learning: bool) -> Iterator[Message]:
        if not self.fits.is_exchanged(round):
            return
        raw, self._own = self._encode(round, learning=learning)
        own = self._own.detach()
        everything = self.white_pilots() if self.fits.sends_all(round) else None
        released = self._release(own, round, "latents")
        released_all = None if everything is None else self._release(everything, round, "all")
        # A map that shapes what leaves must not tell more of the latents than what leaves does.
        maps_leave = any(
            not isinstance(endpoint, PlainEndpoint) for endpoint in self.endpoints.values()
        )
        self._fitted_to = (released, released_all) if maps_leave else (own, everything)
        probabilities = None
        if self.classes and self.agent.head is not None:
            noised = self.method.noise is not None
            read = self.whitening.eval().colour(released) if noised else raw.detach()
            with self.agent.inference():
                probabilities = predict_proba(self.agent.head, read)
        for j in neighbours:
            latents = self.link_to(j, round, "latents").carry(released)
            of_all = None
            if released_all is not None:
                of_all = self.link_to(j, round, "all").carry(released_all)
            tensors = self.codec.pack(latents=latents, probabilities=probabilities, all=of_all)
            fields = {IN_FRAME: self.endpoints[j].in_frame}
            yield Message(ROUND, round, self.name, j, tensors, fields)

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Refit the maps, then take the gradient step of eq. theta_update_Q.

        Between exchanges what was heard in the last one stands: the own latents of its pilots are
        pulled to it, and its probabilities are learnt.
        """
        if self.fits.is_exchanged(round):
            messages = self._heard(round, inbox)
            self._fit_maps(round, _comparable(messages))
            readable = (j for j, m in messages.items() if self.endpoints[j].fitted and in_frame(m))
            self._last_exchange = LastExchange(
                round, {j: self._read(messages[j]) for j in readable}
            )
            log = self._descend(round)
            self._develop_weights(round, messages)
        else:
            if self._glues and self._last_exchange.heard:
                _, self._own = self._encode(self._last_exchange.round)
            log = self._descend(round)
        self._own = self._fitted_to = None
        return log

    def reuse(self, round: int, message: Message) -> Message | None:
        """Let an earlier message stand in, as far as it is still true.

        Its latents are those of the earlier round's pilots. Unless this round has the same, they
        cannot be compared with the own ones, so neither map nor penalty sees them; the sender's
        probabilities about them remain.
        """
        expected = self._specs(round)[message.sender]
        then, now = (self.policy.select(r).fingerprint() for r in (message.round, round))
        same = then == now
        if not expected.keys() <= message.tensors.keys() or not (same or self.classes):
            return None
        tensors = {name: message.tensors[name] for name in expected}
        fields = {**message.fields, OTHER_PILOTS: not same}
        return replace(message, round=round, tensors=tensors, fields=fields)

    def _fit_maps(self, round: int, messages: Mapping[str, Message]) -> None:
        compared, compared_all = self._since_sending(self._fitted_to)
        everything = None if compared_all is None else self.codec.as_sent(compared_all)
        self.fits.fit(round, self.endpoints, messages, self.codec.as_sent(compared), everything)

    def _encode(self, round: int, *, learning: bool = True) -> tuple[Tensor, Tensor]:
        """Return the own latents of a round's pilots `(K, d)`, raw and white."""
        selection = self.policy.select(round)
        with torch.set_grad_enabled(learning and self._glues):
            raw = selection.pool(self.pilot_latents(selection.indices, round))
            return raw, self.whitening.train(learning)(raw)

    @property
    def _glues(self) -> bool:
        return self.penalty.active and not self.agent.frozen

    def _descend(self, round: int) -> dict[str, float]:
        log: dict[str, float] = {}
        self.agent.zero_grad()
        if not self.agent.learns:
            return log
        penalty = None
        if self._own is not None:
            targets = self._last_exchange.targets()
            penalty = gluing_penalty(self._own, targets, self.endpoints, self.weights)
        if penalty is not None:
            penalty.backward()  # type: ignore[no-untyped-call]
            log["penalty"] = float(penalty.detach())
        with self.agent.rng_context():
            loss = self.local_loss(round)
            log["loss"] = float(loss.detach())
            distillation_loss = self._distillation_loss()
            if distillation_loss is not None:
                loss = loss + distillation_loss
                log["distillation_loss"] = float(distillation_loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
            self.agent.apply_gradients()
        return log

    def _develop_weights(self, round: int, messages: Mapping[str, Message]) -> None:
        own, targets = self._since_sending(self._own).detach(), self._last_exchange.targets()
        for j, weight in self.weights.items():
            seen = None
            if j in targets:
                received = messages[j].tensors["latents"]
                seen = misalignment(self.endpoints[j], own, targets[j], received)
            self.weights[j] = self.penalty.update(weight, round, seen)

    def _read(self, message: Message) -> Received:
        latents = self.endpoints[message.sender].incoming(message.tensors["latents"])
        comparable = message.fields.get(OTHER_PILOTS) is not True
        return Received(latents, comparable, message.tensors.get(PROBABILITIES))

    def _heard(self, round: int, inbox: Mapping[str, Message]) -> dict[str, Message]:
        """Return what has arrived and is what was agreed, with what its tensors stand for.

        Messages whose probabilities are no probabilities are left out.
        """
        good = {}
        for j, message in self.valid_messages(round, ROUND, inbox, self._specs(round)).items():
            read = self.codec.unpack(message, "latents", "all", PROBABILITIES)
            if PROBABILITIES in read.tensors and not are_probabilities(read.tensors[PROBABILITIES]):
                self.rejected[PROBABILITIES] += 1
                logger.warning("agent %s left out %s: no probabilities", self.name, message)
                continue
            good[j] = read
        return good

    def _distillation_loss(self) -> Tensor | None:
        r"""Return the soft cross-entropy of the own head on coloured $T_{ij} A_j$."""
        said = self._last_exchange.probabilities()
        if self.method.distillation is None or self.agent.head is None or said is None:
            return None
        white, probabilities = said
        latents = self.whitening.eval().colour(white)
        return self.method.distillation.loss(self.agent.head, latents, probabilities)

    # State

    def state(self) -> dict[str, Any]:
        """Return whitening, maps, running cross-covariances, penalty weights, and what stands."""
        lasting = self.method.exchange_every > 1  # else every round hears anew
        return {
            "whitening": dict(self.whitening.state_dict()),
            "ends": {j: endpoint_state(endpoint) for j, endpoint in self.endpoints.items()},
            "running": dict(self.fits.running),
            "weights": dict(self.weights),
            "standing": (self._last_exchange if lasting else LastExchange()).state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state, after the handshake."""
        self.whitening.load_state_dict(state["whitening"])
        for j, endpoint in self.endpoints.items():
            load_endpoint_state(endpoint, state["ends"][j])
        self.fits.running = dict(state["running"])
        self.weights = dict(state["weights"])
        self._last_exchange = LastExchange.from_state(state["standing"])

    # Helpers

    def _map_policy(self) -> str:
        policy, edge_dim = repr(self.method.maps), self.method.edge_dim
        return policy if edge_dim is None else f"{policy}, edge stalks of {edge_dim}"

    def _release(self, white: Tensor, round: int, what: str) -> Tensor:
        """Return own white latents as they may leave; all neighbours get the same ones."""
        noise = self.method.noise
        if noise is None:
            return white
        return noise.release(
            white, noise_stream(self.context.secret, self.name, what, round, white)
        )

    def _since_sending(self, value: Sent | None) -> Sent:
        if value is None:
            raise InputError(f"agent {self.name!r}: receive() comes after send() of the same round")
        return value

    def _specs(self, round: int) -> dict[str, dict[str, TensorSpec]]:
        """Return what the neighbours' messages must hold."""
        count, total, specs = self.policy.count, self.context.pilots.total, {}
        for j, endpoint in self.endpoints.items():
            classes = self.peers[j]["classes"]
            specs[j] = self.codec.specs(
                latents=(count, endpoint.width),
                probabilities=(count, classes) if classes else None,
                all=(total, endpoint.width) if self.fits.sends_all(round) else None,
            )
        return specs

    def _check_classes(self, j: str) -> None:
        theirs = self.peers[j]["classes"]
        if self.classes and theirs and theirs != self.classes:
            raise HandshakeError(
                f"agents {self.name!r} and {j!r} cannot exchange class probabilities: their heads "
                f"tell apart {self.classes} and {theirs} classes; give both the same label set"
            )


def _comparable(messages: Mapping[str, Message]) -> dict[str, Message]:
    """Leave out those with the latents of another round's pilots."""
    return {j: m for j, m in messages.items() if m.fields.get(OTHER_PILOTS) is not True}
