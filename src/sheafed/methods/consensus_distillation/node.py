"""Consensus distillation from the point of view of one agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sheafed.errors import MessageError
from sheafed.methods.consensus import (
    FEWEST,
    Consensus,
    agree,
    calibrated_probabilities,
    count_classes,
    is_labelled,
)
from sheafed.methods.consensus_distillation.together import take_steps
from sheafed.methods.consensus_head import ConsensusHead, copy_head
from sheafed.methods.divergence import divergence_of
from sheafed.methods.latent_codec import PROBABILITIES
from sheafed.methods.local_loss import loss_and_latents
from sheafed.methods.node import ROUND, NodeContext
from sheafed.methods.own_offset import with_own_offset
from sheafed.methods.post_hoc_node import PostHocNode
from sheafed.methods.predictions import (
    are_sent_probabilities,
    as_bytes,
    check_same_classes,
    from_bytes,
)
from sheafed.methods.reading_head import OffsetHead, ReadingHead
from sheafed.methods.reading_head_fit import fit_reading_head
from sheafed.methods.refitted_head import refit_head, refit_if_better
from sheafed.transport.message import Message, TensorSpec
from sheafed.vectorized import StackedCohort

if TYPE_CHECKING:
    from sheafed.methods.consensus_distillation.method import ConsensusDistillation

SENT = torch.uint8
"""How probabilities are sent, see `as_bytes`."""


class ConsensusDistillationNode(PostHocNode):
    neighbours_may_change = True
    steps_together = True

    def __init__(self, method: ConsensusDistillation, context: NodeContext) -> None:
        super().__init__(
            context,
            method.whitening,
            method.shrinkage,
            method.channel,
            method.quantisation,
            method.privacy,
        )
        self.method = method
        self.consensus = Consensus(
            method.confidence, method.weight, method.sharpness, method.calibrate
        )
        self.every = method.exchange_every or context.rounds_per_epoch
        self.pilots_per_round = method.pilots_per_round or max(FEWEST, self.agent.batch_size)
        self.classes = count_classes(self.agent)
        """How many the head tells apart, 0 if it tells none apart."""
        self.teaches = self.classes > 0 and is_labelled(self.agent)
        """Whether neighbours learn from its predictions: it has a head and labels."""
        self.consensus_head = self._make_consensus_head()
        """Learns the consensus beside the agent's own, if there is one."""
        self.targets: Tensor | None = None
        """The consensus on all pilots `(M, classes)`, if there is one."""
        self._refitted: nn.Module | None = None
        self._fitted_again: nn.Module | None = None
        self._own: Tensor | None = None
        self._predictions: dict[str, Tensor] = {}

    def _make_consensus_head(self) -> ConsensusHead | None:
        wanted = self.method.consensus_head and self.method.confidence < 1
        head, learns = self.agent.head, self.agent.learns and self.teaches
        if not (wanted and learns) or head is None or not list(head.parameters()):
            return None
        return ConsensusHead(self.agent)

    # A round

    def send(self, round: int) -> Iterator[Message]:
        """Tell neighbours with a head the class probabilities of all pilots.

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
            losses = self._losses_on_labels(round)
            distillation_loss = self._distillation_loss(round)
            if distillation_loss is not None:
                losses["distillation_loss"] = distillation_loss
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

    def _losses_on_labels(self, round: int) -> dict[str, Tensor]:
        """Return the objective on the next batch, and what the consensus head loses on it.

        Until there is a consensus the agent trains as if it were alone.
        """
        if self.consensus_head is None or self.targets is None:
            return {"loss": self.local_loss(round)}
        batch = self.agent.next_batch()
        loss, latents = loss_and_latents(self.agent, batch, round)
        label_loss = self.consensus_head.label_loss(latents, batch.targets)
        return {"loss": loss} | ({} if label_loss is None else {"label_loss": label_loss})

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
                yield Message(ROUND, round, self.name, j, tensors)

    @torch.no_grad()
    def predict_pilots(self, round: int) -> Tensor:
        """Return the own class probabilities `(M, classes)` of all pilots, as they are sent.

        They are of the own head, which has learnt own labels only: what neighbours have said is
        not told them again.
        """
        return self._predict(self.pilot_latents(round=round))

    def _predict(self, latents: Tensor, head: nn.Module | None = None) -> Tensor:
        calibrate = self.method.calibrate
        return as_bytes(
            calibrated_probabilities(self.agent, latents, calibrate=calibrate, head=head)
        )

    def _agree(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Form the consensus of own predictions and what neighbours have said last."""
        spec = TensorSpec(SENT, (self.context.pilots.total, self.classes))
        taught = {j for j in self.neighbours if self.classes and self.peers[j]["teaches"]}
        specs = {j: {PROBABILITIES: spec} if j in taught else {} for j in self.neighbours}
        messages = self.valid_messages(round, ROUND, inbox, specs, _check)
        for j in taught & messages.keys():
            self._predictions[j] = messages[j].tensors[PROBABILITIES]
        others = [from_bytes(self._predictions[j]) for j in sorted(self._predictions)]
        own = None if self._own is None else from_bytes(self._own)
        targets = agree(own, others, self.method.sharpness)
        if self.targets is None and targets is not None and self.consensus_head is not None:
            self.consensus_head.start()
        self.targets, self._own = targets, None

    def learnt_rows(self, round: int) -> Tensor:
        """Return the pilots that are learnt in a round; none if too few are agreed on."""
        if self.targets is None:
            return torch.zeros(0, dtype=torch.long)
        moment = (self.context.seed, self.name, round)
        return self.consensus.learnt_pilots(self.targets, self.pilots_per_round, *moment)

    def _distillation_loss(self, round: int) -> Tensor | None:
        """Return the soft cross-entropy on pilots of this round; None if too few are agreed on."""
        rows = self.learnt_rows(round)
        if self.targets is None or not len(rows):
            return None
        head = self.consensus_head or self.agent.apply_head
        scores = head(self.pilot_latents.in_training(rows, round))
        return self.consensus.loss(scores, self.targets[rows.to(self.targets.device)])

    # After training

    def beside_latents(self, pilots: Tensor) -> dict[str, dict[str, Tensor]]:
        """Tell neighbours with a head what this agent makes of the pilots, as of its own data."""
        self._fitted_again = None
        listeners = [j for j in self.neighbours if self.peers[j]["classes"]]
        if not (self.method.reading_head and self.teaches and listeners):
            return {}
        probabilities = self._predict(pilots, self._teaching_head())
        return {j: {PROBABILITIES: probabilities} for j in listeners}

    def expected_beside(self, neighbour: str) -> dict[str, TensorSpec]:
        if not (self.method.reading_head and self.classes and self.peers[neighbour]["teaches"]):
            return {}
        return {PROBABILITIES: TensorSpec(SENT, (self.context.pilots.total, self.classes))}

    def check_alignment(self, message: Message) -> None:
        _check(message)

    def after_alignment(self, messages: Mapping[str, Message]) -> None:
        """Fit the reading head to latents of pilots that neighbours have sent and predicted.

        The label of a latent is what its sender says of it: that one knows best what it sends.
        Without any it is the consensus head as it is, if that has learnt anything; an earlier one
        was fitted to an earlier encoder.
        """
        self.reading_head = None
        received = {
            j: (self.interpret(m.tensors["latents"], j), from_bytes(m.tensors[PROBABILITIES]))
            for j, m in sorted(messages.items())
            if PROBABILITIES in m.tensors
        }
        if received:
            self.reading_head = fit_reading_head(
                self.agent,
                received,
                seed=self.context.seed,
                start=self._second,
                sender_offsets=self.method.sender_offsets,
            )
        elif (spoken := self._spoken_head()) is not None:
            self.reading_head = ReadingHead(spoken.head, {self.name: spoken.offset})
        self._refitted = None
        if (reading := self.own_head) is not None:
            self._refitted = refit_if_better(self.agent, reading, self._refit)
        self._fitted_again = None

    def _refit(self) -> nn.Module | None:
        """Return the own head, fitted again; once while maps are fitted."""
        if self._fitted_again is None:
            self._fitted_again = refit_head(self.agent, self.classes, seed=self.context.seed)
        return self._fitted_again

    @property
    def own_head(self) -> nn.Module | None:
        """What classifies own data once maps are fitted: of two heads, that which validation data
        prefer.

        The reading head for what the agent itself encodes, or the own head, fitted again. None
        without a consensus head that has learnt anything: then it is the agent's own.
        """
        if self._second is None or self.reading_head is None:
            return None
        return self.reading_head.of(self.name) if self._refitted is None else self._refitted

    def _spoken_head(self) -> OffsetHead | None:
        """Return the consensus head, with an offset for the classes that the agent's data have.

        By it the agent tells neighbours what to make of its latents. None if there is none, or it
        has learnt nothing.
        """
        second = self._second
        return None if second is None else with_own_offset(self.agent, second, self.classes)

    def _teaching_head(self) -> nn.Module | None:
        """Return what tells neighbours the classes of pilots when maps are fitted; None: the own.

        It is the consensus head with its offset, or the own head, fitted again, if validation data
        prefer that, as after a short training.
        """
        spoken = self._spoken_head()
        if spoken is None:
            return None
        refitted = refit_if_better(self.agent, spoken, self._refit)
        return spoken if refitted is None else refitted

    @property
    def _second(self) -> nn.Module | None:
        """The consensus head, if there is one and it has learnt anything."""
        if self.consensus_head is None or self.targets is None:
            return None
        return self.consensus_head.module

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "privacy": self.privacy,
            "rounds between exchanges": self.every,
            "reading heads": int(self.method.reading_head),
            "latent precision": f"{self.codec.dtype} {self.codec.quantisation}",
        }

    def announced_sizes(self) -> dict[str, int]:
        return super().announced_sizes() | {"classes": self.classes, "teaches": int(self.teaches)}

    def prepare_edge(self, neighbour: str) -> None:
        check_same_classes(self.name, self.classes, neighbour, self.peers[neighbour]["classes"])
        super().prepare_edge(neighbour)

    # Neighbours that come and go

    def serve(self, round: int, neighbour: str) -> Iterator[Message]:
        return self._messages(round, [neighbour])

    def remove_neighbour(self, neighbour: str) -> None:
        super().remove_neighbour(neighbour)
        self._predictions.pop(neighbour, None)

    # State

    def state(self) -> dict[str, Any]:
        predictions = dict(sorted(self._predictions.items()))  # equal states, equal files
        return super().state() | {
            "targets": self.targets,
            "predictions": predictions,
            "refitted_head": None if self._refitted is None else self._refitted.state_dict(),
            "consensus_head": None if self.consensus_head is None else self.consensus_head.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.targets, self._predictions = state["targets"], dict(state["predictions"])
        self._refitted = None
        if state.get("refitted_head") is not None:
            self._refitted = copy_head(self.agent).eval().requires_grad_(False)
            self._refitted.load_state_dict(state["refitted_head"])
        if self.consensus_head is not None:
            self.consensus_head.load_state(state["consensus_head"])


def _check(message: Message) -> None:
    given = message.tensors.get(PROBABILITIES)
    if given is not None and not are_sent_probabilities(given):
        raise MessageError(
            PROBABILITIES, f"{message}: the largest byte of every row of probabilities must be 255"
        )
