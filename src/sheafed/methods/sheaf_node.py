r"""Sheaf-FRL as one agent runs it.

One program for the four protocols (alg:sheaf_frl_1comm, alg:sheaf_frl_hom and their variants under
stringent privacy): they differ in the ends of the edges only (`sheafed.methods.maps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from sheafed.domain.messages import Message, TensorSpec
from sheafed.domain.pilots import PilotPolicy, Uniform, describe, selection_digest
from sheafed.errors import HandshakeError, InputError
from sheafed.methods.beliefs import are_probabilities, believe
from sheafed.methods.maps import end_state, load_end_state
from sheafed.methods.node import ROUND, Node, Setting, count_classes, latent_dtype, logger
from sheafed.methods.noise import noise_stream
from sheafed.methods.penalty import as_penalty
from sheafed.methods.precision import BELIEFS, Wire
from sheafed.methods.sheaf_ends import make_end, warn_if_undetermined

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl import SheafFRL


Sent = TypeVar("Sent")

OTHER_PILOTS = "other pilots"
"""The field that marks an earlier round's message whose pilots were not those of this one."""


class SheafNode(Node):
    """Sheaf-FRL from the point of view of one agent."""

    def __init__(self, method: SheafFRL, setting: Setting) -> None:
        self.dtype = latent_dtype(setting.agent)
        layer = method.whitening.layer(setting.agent.dimension).to(self.dtype)
        super().__init__(setting, layer)
        self.method = method
        self.penalty = as_penalty(method.penalty)
        self.policy: PilotPolicy = (
            Uniform(setting.pilots.total, min(method.pilots, setting.pilots.total), setting.seed)
            if isinstance(method.pilots, int)
            else method.pilots
        )
        self.wire = Wire(method.precision, self.dtype)
        self.classes = 0 if method.beliefs is None else count_classes(self.agent)
        self.weights = {j: self.penalty.start() for j in self.neighbours}
        self.running: dict[str, Tensor] = {}
        self.shows_pilots = method.noise is None
        self._own: Tensor | None = None
        self._fitted_to: tuple[Tensor, Tensor | None] | None = None

    # The handshake

    def agreement(self) -> dict[str, str | int]:
        """Add what Sheaf-FRL must have in common."""
        return super().agreement() | {
            "privacy": self.method.privacy,
            "homogeneity": int(self.setting.homogeneous),
            "map policy": repr(self.method.maps),
            "pilots per round": self.policy.count,
            "pilots of the first rounds": selection_digest(self.policy),
            "latent precision": f"{self.dtype} {self.method.precision}",
            "rounds between exchanges": self.method.exchange_every,
            "beliefs": int(self.method.beliefs is not None),
        }

    def introduction(self) -> dict[str, int]:
        """Add the number of classes of the own beliefs, 0 for an agent without a head."""
        return super().introduction() | {"classes": self.classes}

    def prepare(self) -> None:
        """Build this agent's end of every edge."""
        for j in self.neighbours:
            edge, other = self.edge(j), self.peers[j]["dimension"]
            self._check_classes(j)
            self.ends[j] = make_end(self.method, self.setting, j, edge, other)
            if edge.head == self.name:  # the tail is told nothing new
                total, needed = self.setting.pilots.total, min(self.agent.dimension, other)
                warn_if_undetermined(self.method, self.policy, total, edge, needed)

    # A round

    def send(self, round: int) -> Iterator[Message]:
        """Encode the pilots and tell every neighbour, as its protocol has it."""
        if not self._is_exchanged(round):
            return
        selection = self.policy.select(round)
        with torch.set_grad_enabled(self.penalty.active):
            raw = selection.pool(self.pilot_latents(selection.indices, round))
            self._own = self.whitening.train()(raw)
        own = self._own.detach()
        everything = self.white_pilots() if self.sends_all(round) else None
        released = self._release(own, round, "latents")
        released_all = None if everything is None else self._release(everything, round, "all")
        # A map that shapes what leaves must not tell more of the latents than what leaves does.
        maps_leave = self.method.privacy == "strict" or self.setting.homogeneous
        self._fitted_to = (released, released_all) if maps_leave else (own, everything)
        beliefs = None
        if self.classes and self.agent.head is not None:
            noised = self.method.noise is not None
            believed = self.whitening.eval().colour(released) if noised else raw.detach()
            with self.agent.inference():
                beliefs = believe(self.agent.head, believed)
        for j, end in self.ends.items():
            latents = end.outgoing(released)
            of_all = None if released_all is None else end.outgoing(released_all)
            tensors = self.wire.pack(latents=latents, beliefs=beliefs, all=of_all)
            yield Message(ROUND, round, self.name, j, tensors, {"fitted": end.in_frame})

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Refit the maps, then take the gradient step of eq. theta_update_Q."""
        if not self._is_exchanged(round):
            return self._descend(round, {}, {})
        messages = self._read(self.accepted(round, ROUND, inbox, self._specs(round)))
        self._fit_maps(round, _comparable(messages))
        targets = {
            j: self.ends[j].incoming(message.tensors["latents"])
            for j, message in messages.items()
            if self.ends[j].fitted and _in_frame(message)
        }
        log = self._descend(round, messages, targets)
        self._own = self._fitted_to = None
        return log

    def reuse(self, round: int, message: Message) -> Message | None:
        """Let an earlier message stand in, as far as it is still true.

        Its latents are those of the earlier round's pilots. Unless this round has the same, they
        cannot be compared with the own ones, so neither map nor penalty sees them; the sender's
        beliefs about them remain.
        """
        expected = self._specs(round)[message.sender]
        then, now = (describe(self.policy.select(r)) for r in (message.round, round))
        same = then == now
        if not expected.keys() <= message.tensors.keys() or not (same or self.classes):
            return None
        tensors = {name: message.tensors[name] for name in expected}
        fields = {**message.fields, OTHER_PILOTS: not same}
        return replace(message, round=round, tensors=tensors, fields=fields)

    def _fit_maps(self, round: int, messages: Mapping[str, Message]) -> None:
        policy = self.method.maps
        fit_number = self._fit_number(round)
        compared, compared_all = self._since_sending(self._fitted_to)
        own = self.wire.as_sent(compared)
        everything = None if compared_all is None else self.wire.as_sent(compared_all)
        for j, message in messages.items():
            end, received = self.ends[j], message.tensors["latents"]
            if policy.source == "running" and _in_frame(message):
                fresh = end.cross(own, received) / len(own)
                before = self.running.get(j)
                self.running[j] = fresh if before is None else policy.decay * before + fresh
            if fit_number is None:
                continue
            if j in self.running:
                end.fit(self.running[j], fit_number)
            elif everything is not None:
                end.fit(end.cross(everything, message.tensors["all"]), fit_number)
            else:
                end.fit(end.cross(own, received), fit_number)

    def _descend(
        self, round: int, messages: Mapping[str, Message], targets: Mapping[str, Tensor]
    ) -> dict[str, float]:
        log = {}
        self.agent.begin_step()
        penalty = None
        if self._is_exchanged(round):
            penalty = self._gluing_penalty(round, _comparable(messages), targets)
        if penalty is not None:
            penalty.backward()  # type: ignore[no-untyped-call]
            log["penalty"] = float(penalty.detach())
        with self.agent.own_randomness():
            loss = self.local_loss(round)
            log["loss"] = float(loss.detach())
            belief_loss = self._belief_loss(messages, targets)
            if belief_loss is not None:
                loss = loss + belief_loss
                log["belief_loss"] = float(belief_loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
            self.agent.finish_step()
        return log

    def _gluing_penalty(
        self, round: int, messages: Mapping[str, Message], targets: Mapping[str, Tensor]
    ) -> Tensor | None:
        r"""Return a function with the gradient of eq. gradient_gluing_penalty.

        $\frac{\lambda_i}{2K} \sum_j \|A_i - T_{ij} A_j\|_F^2$ in the agent's own space: at the tail
        the component that $V$ cannot reach is constant, so its gradient is the same.
        """
        own = self._since_sending(self._own)
        total: Tensor | None = None
        for j, target in targets.items():
            if j in messages and self.weights[j] > 0:
                term = (own - target).square().sum() * (
                    self.weights[j] / (2 * len(own) * self.agent.dimension)
                )
                total = term if total is None else total + term
        for j, weight in self.weights.items():
            seen = None
            if j in targets and j in messages:
                received = messages[j].tensors["latents"]
                seen = _misalignment(own.detach(), targets[j], received)
            self.weights[j] = self.penalty.update(weight, round, seen)
        return total

    def _read(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Return the messages with what their tensors stand for.

        Those whose beliefs are no probabilities are left out.
        """
        good = {}
        for j, message in messages.items():
            read = self.wire.unpack(message, "latents", "all", BELIEFS)
            if BELIEFS in read.tensors and not are_probabilities(read.tensors[BELIEFS]):
                self.rejected[BELIEFS] += 1
                logger.warning("agent %s left out %s: no probabilities", self.name, message)
                continue
            good[j] = read
        return good

    def _belief_loss(
        self, messages: Mapping[str, Message], targets: Mapping[str, Tensor]
    ) -> Tensor | None:
        r"""Return the head's soft cross-entropy on (coloured $T_{ij} A_j$, belief of j)."""
        believers = [j for j in targets if self.peers[j]["classes"]]
        if self.method.beliefs is None or self.agent.head is None or not believers:
            return None
        whitening = self.whitening.eval()
        latents = torch.cat([whitening.colour(targets[j]) for j in believers])
        beliefs = torch.cat([messages[j].tensors[BELIEFS] for j in believers])
        return self.method.beliefs.loss(self.agent.head, latents, beliefs)

    # State

    def state(self) -> dict[str, Any]:
        """Return whitening, maps, running cross-covariances and penalty weights."""
        return {
            "whitening": dict(self.whitening.state_dict()),
            "ends": {j: end_state(end) for j, end in self.ends.items()},
            "running": dict(self.running),
            "weights": dict(self.weights),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state, after the handshake."""
        self.whitening.load_state_dict(state["whitening"])
        for j, end in self.ends.items():
            load_end_state(end, state["ends"][j])
        self.running = dict(state["running"])
        self.weights = dict(state["weights"])

    # Helpers

    def _release(self, white: Tensor, round: int, what: str) -> Tensor:
        """Return own white latents as they may leave; all neighbours get the same ones."""
        noise = self.method.noise
        if noise is None:
            return white
        return noise.release(
            white, noise_stream(self.setting.secret, self.name, what, round, white)
        )

    def _since_sending(self, value: Sent | None) -> Sent:
        if value is None:
            raise InputError(f"agent {self.name!r}: receive() comes after send() of the same round")
        return value

    def _is_exchanged(self, round: int) -> bool:
        return round % self.method.exchange_every == 0

    def _fit_number(self, round: int) -> int | None:
        """Return how many fits came before this round's, if it has one; policies see exchanges."""
        every = self.method.exchange_every
        per_epoch = max(1, self.setting.rounds_per_epoch // every)
        return self.method.maps.fit_number(round // every, per_epoch)

    def sends_all(self, round: int) -> bool:
        """Whether all pilots are sent in this round, beside its own."""
        return self.method.maps.source == "all" and self._fit_number(round) is not None

    def _specs(self, round: int) -> dict[str, dict[str, TensorSpec]]:
        """Return what the neighbours' messages must hold."""
        count, total, specs = self.policy.count, self.setting.pilots.total, {}
        for j, end in self.ends.items():
            classes = self.peers[j]["classes"]
            specs[j] = self.wire.specs(
                latents=(count, end.width),
                beliefs=(count, classes) if classes else None,
                all=(total, end.width) if self.sends_all(round) else None,
            )
        return specs

    def _check_classes(self, j: str) -> None:
        theirs = self.peers[j]["classes"]
        if self.classes and theirs and theirs != self.classes:
            raise HandshakeError(
                f"agents {self.name!r} and {j!r} cannot exchange beliefs: their heads tell apart "
                f"{self.classes} and {theirs} classes; give both the same label set"
            )


def _in_frame(message: Message) -> bool:
    return message.fields.get("fitted") is True


def _comparable(messages: Mapping[str, Message]) -> dict[str, Message]:
    """Leave out those with the latents of another round's pilots."""
    return {j: m for j, m in messages.items() if m.fields.get(OTHER_PILOTS) is not True}


def _misalignment(own: Tensor, target: Tensor, received: Tensor) -> float:
    r"""Return $\|A_i - V A_j\|^2 / (\|A_i\|^2 + \|A_j\|^2)$, by the map that this end reads with.

    Isometries keep norms, so $\|A_j\|$ is that of what arrived, whatever the protocol, and the
    inner product can be taken in the own space: two ends with one map see the same number. Latents
    that are all zero have nothing to glue.
    """
    energy = float(own.square().sum() + received.square().sum())
    return 1 - 2 * float((own * target).sum()) / energy if energy else 0.0
