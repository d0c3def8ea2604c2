"""Consensus distillation from the point of view of one agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sheafed.agents.objectives import OnlineProbe
from sheafed.agents.samples import Batch
from sheafed.errors import MessageError
from sheafed.methods.consensus import FEWEST, Consensus, agree
from sheafed.methods.consensus_distillation.fitted_heads import (
    SENT,
    FittedHeadsNode,
    check_probabilities,
)
from sheafed.methods.consensus_distillation.pilot_predictions import PilotPredictions
from sheafed.methods.consensus_distillation.together import take_steps
from sheafed.methods.divergence import divergence_of
from sheafed.methods.latent_codec import PROBABILITIES
from sheafed.methods.local_loss import encode_beside, local_loss, loss_and_own_latents
from sheafed.methods.node import ROUND, NodeContext
from sheafed.methods.predictions import from_bytes
from sheafed.transport.message import Message, TensorSpec
from sheafed.vectorized import StackedCohort

if TYPE_CHECKING:
    from sheafed.methods.consensus_distillation.method import ConsensusDistillation

ROUNDS_APART = 8
"""The fewest rounds between two exchanges, by default: a prediction costs as much as a step."""
EXCHANGED_PER_ROUND = 64
"""How many pilots are exchanged for each round until the next exchange, by default."""
FEWEST_EXCHANGED = 1024
"""How many are exchanged at least, by default: to predict so few costs little."""
DRAWN = "drawn"
"""The round for which the pilots of a message were drawn: one that comes late keeps its own."""


class ConsensusDistillationNode(FittedHeadsNode):
    neighbours_may_change = True
    steps_together = True

    def __init__(self, method: ConsensusDistillation, context: NodeContext) -> None:
        super().__init__(method, context)
        self.consensus = Consensus(
            method.confidence, method.weight, method.sharpness, method.calibrate
        )
        self.every = method.exchange_every or max(ROUNDS_APART, context.rounds_per_epoch)
        usual = self.agent.batch_size
        if method.pilots_in_batch:
            usual = self.agent.order.batch_size // 2  # what a batch has, if there are few samples
        self.pilots_per_round = method.pilots_per_round or max(FEWEST, usual)
        total = context.pilots.total
        usual = max(FEWEST_EXCHANGED, EXCHANGED_PER_ROUND * self.every)
        count = min(method.pilots_per_exchange or usual, total)
        self.predictions = PilotPredictions(total, count, context.seed)
        """What neighbours have said of pilots."""
        self._own: Tensor | None = None

    # A round

    def send(self, round: int) -> Iterator[Message]:
        """Tell neighbours with a head the class probabilities of the pilots of an exchange.

        A neighbour that teaches is sent a message in any case, if an empty one: neighbours wait
        for each other only if both send.
        """
        return self._messages(round, self.neighbours)

    def reuse(self, round: int, message: Message) -> Message:
        return replace(message, round=round)

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Form the consensus, if it is time, and take one step."""
        if self.is_exchanged(round):
            self._agree(round, inbox)
        if not self.agent.learns:
            return {}
        with self.agent.rng_context():
            losses = self._losses(round)
            learner = self.consensus_head or self.agent
            learner.optimizer_step(torch.stack(list(losses.values())).sum())
        return {name: float(loss.detach()) for name, loss in losses.items()}

    @property
    def together_with(self) -> bool:
        return self.consensus_head is not None

    @staticmethod
    def receive_together(
        nodes: Sequence[ConsensusDistillationNode],
        round: int,
        inboxes: Mapping[str, Mapping[str, Message]],
        cohort: StackedCohort,
    ) -> dict[str, dict[str, float]]:
        for node in nodes:
            if node.is_exchanged(round):
                with divergence_of(node.name, round):
                    node._agree(round, inboxes[node.name])
        return take_steps(nodes, round, cohort)

    def own_samples(self, rows: Tensor) -> int:
        """Return how many own samples a step has that learns these pilots."""
        replaced = len(rows) if self.method.pilots_in_batch else 0
        return max(FEWEST, self.agent.order.batch_size - replaced)

    def _losses(self, round: int) -> dict[str, Tensor]:
        """Return the objective on own samples, and what is lost on their labels and on pilots.

        Until there is a consensus the agent trains as if it were alone.
        """
        rows = self.learnt_rows(round)
        batch = self.agent.next_batch().first(self.own_samples(rows))
        if self.consensus_head is None or self.targets is None:
            losses: dict[str, Tensor | None] = {"loss": local_loss(self.agent, batch, round)}
            losses["distillation_loss"] = self._distillation_loss(rows, round)
        else:
            loss, latents = loss_and_own_latents(self.agent, batch, round)
            trained = any(p.requires_grad for p in self.agent.encoder.parameters())
            if latents is None and not trained:
                latents = encode_beside(self.agent, batch)
            label_loss = None if latents is None else self._label_loss(latents, batch)
            distillation_loss = self._distillation_loss(rows, round)
            if latents is None:  # last: no pass in training mode may follow before it goes backward
                label_loss = self._label_loss(encode_beside(self.agent, batch), batch)
            losses = {"loss": loss, "label_loss": label_loss}
            losses["distillation_loss"] = distillation_loss
        return {name: loss for name, loss in losses.items() if loss is not None}

    def _label_loss(self, latents: Tensor, batch: Batch) -> Tensor | None:
        """Return what the consensus head loses on own labels, if there is one."""
        if self.consensus_head is None:
            return None
        if isinstance(self.agent.objective, OnlineProbe):  # by which no label trains the encoder
            latents = latents.detach()
        return self.consensus_head.label_loss(latents, batch.targets)

    def is_exchanged(self, round: int) -> bool:
        """Whether predictions are exchanged in a round; never, if none could be learnt."""
        return self.method.confidence < 1 and round % self.every == 0

    def _messages(self, round: int, neighbours: Iterable[str]) -> Iterator[Message]:
        listeners = [j for j in neighbours if self.classes and self.peers[j]["classes"]]
        if not self.is_exchanged(round) or not listeners:
            return
        self._own = self.predict_pilots(round) if self.teaches else None
        tensors = {} if self._own is None else {PROBABILITIES: self._own}
        for j in listeners:
            if self.teaches or self.peers[j]["teaches"]:
                yield Message(ROUND, round, self.name, j, tensors, {DRAWN: round})

    @torch.no_grad()
    def predict_pilots(self, round: int) -> Tensor:
        """Return the own class probabilities `(n, classes)` of an exchange's pilots, as sent.

        They are of the own head, which has learnt own labels only: what neighbours have said is
        not told them again.
        """
        return self.predict(self.pilot_latents(self.predictions.rows(round), round))

    def _agree(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Form the consensus of own predictions and what neighbours have said last."""
        spec = TensorSpec(SENT, (self.predictions.count, self.classes))
        taught = {j for j in self.neighbours if self.classes and self.peers[j]["teaches"]}
        specs = {j: {PROBABILITIES: spec} if j in taught else {} for j in self.neighbours}
        messages = self.valid_messages(round, ROUND, inbox, specs, self._check)
        for j in taught & messages.keys():
            said = messages[j].tensors[PROBABILITIES]
            self.predictions.keep(j, said, drawn_for(messages[j]))
        others = [from_bytes(said) for said in self.predictions.of(round)]
        own = None if self._own is None else from_bytes(self._own)
        targets = agree(own, others, self.method.sharpness)
        if targets is not None:
            targets = self.predictions.among_all(targets, round)
        if self.targets is None and targets is not None and self.consensus_head is not None:
            self.consensus_head.start()
        self.targets, self._own = targets, None

    def _check(self, message: Message) -> None:
        check_probabilities(message)
        drawn = drawn_for(message)
        if not (0 <= drawn <= message.round and self.is_exchanged(drawn)):
            raise MessageError(
                DRAWN,
                f"{message}: its field {DRAWN!r} must be the round of an exchange, a multiple of "
                f"{self.every} and not later than its own, got {drawn}",
            )

    def learnt_rows(self, round: int) -> Tensor:
        """Return the pilots that are learnt in a round; none if too few are agreed on."""
        if self.targets is None:
            return torch.zeros(0, dtype=torch.long)
        moment = (self.context.seed, self.name, round)
        return self.consensus.learnt_pilots(self.targets, self.pilots_per_round, *moment)

    def _distillation_loss(self, rows: Tensor, round: int) -> Tensor | None:
        """Return the soft cross-entropy on these pilots; None without any."""
        if self.targets is None or not len(rows):
            return None
        head = self.consensus_head or self.agent.apply_head
        scores = head(self.pilot_latents.in_training(rows, round))
        return self.consensus.loss(scores, self.targets[rows.to(self.targets.device)])

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "privacy": self.privacy,
            "rounds between exchanges": self.every,
            "pilots per exchange": self.predictions.count,
            "reading heads": int(self.method.reading_head),
            "latent precision": f"{self.codec.dtype} {self.codec.quantisation}",
        }

    # Neighbours that come and go

    def serve(self, round: int, neighbour: str) -> Iterator[Message]:
        return self._messages(round, [neighbour])

    def remove_neighbour(self, neighbour: str) -> None:
        super().remove_neighbour(neighbour)
        self.predictions.forget(neighbour)
        if self.reading_head is not None:
            self.reading_head.offsets.pop(neighbour, None)  # another may join under its name

    # State

    def state(self) -> dict[str, Any]:
        return super().state() | {"predictions": self.predictions.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.predictions.load_state(state["predictions"])


def drawn_for(message: Message) -> int:
    """Return the round for whose exchange the pilots of a message were drawn."""
    drawn = message.fields.get(DRAWN)
    if not isinstance(drawn, int) or isinstance(drawn, bool):
        raise MessageError(
            DRAWN, f"{message}: its field {DRAWN!r} must be a round, a whole number, got {drawn!r}"
        )
    return drawn
