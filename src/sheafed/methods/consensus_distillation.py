r"""Consensus distillation: agents learn the pilots' classes from what neighbours agree on.

Beyond the paper. Every agent trains on its own labels, as if it were alone, and by a second head
(`sheafed.methods.consensus_head`) on pilots, with the consensus of its own prediction and its
neighbours' as their label (`sheafed.methods.consensus`). Encoders are trained by it too, so agents
come to represent the same classes, their own among them, and what Procrustes maps then carry is
read well. While training only predictions are exchanged, once an epoch; latents are, once, when
maps are fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
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
from sheafed.methods.consensus_head import ConsensusHead, mean_head
from sheafed.methods.local_loss import loss_and_latents
from sheafed.methods.node import ROUND, NodeContext
from sheafed.methods.post_hoc_node import PostHocNode, PostHocOptions
from sheafed.methods.predictions import are_probabilities, check_same_classes
from sheafed.methods.reading_head import as_reading_head, fit_reading_head
from sheafed.options import Count, Fraction, NotNegative, Positive, Switch, options
from sheafed.transport.message import Message, TensorSpec

PROBABILITIES = "probabilities"
PRECISION = torch.float16
"""Of probabilities in messages: off by at most $2^{-11}$ of themselves."""
Pilots = Annotated[int, Field(ge=FEWEST, strict=True)]


@options
class ConsensusDistillation(PostHocOptions):
    r"""Train on own labels and on the pilots' classes that neighbours agree on.

    Every epoch agents tell their neighbours the class probabilities of all pilots. The loss of a
    step is the objective on a batch of own samples and, of a second head, the cross-entropy of
    these and the soft cross-entropy of as many pilots against the consensus, of those about which
    it is confident. Own data are classified by the mean of both heads. Maps are fitted after
    training, as `PostHocOptions` say.

    Agents must mean the same classes. One without a head of classes trains for itself. One without
    labels learns the consensus by its only head, and does not teach.

    Args:
        confidence: the probability that the consensus of a pilot must exceed to be learnt. With 1
            agents train alone, and all they exchange is what maps and reading heads are fitted to.
        weight: of the soft cross-entropy beside the objective.
        sharpness: by how much confident predictions outweigh others, see
            `sheafed.methods.consensus.consensus`.
        calibrate: divide the head's scores by the temperature at which they predict the agent's
            validation data best. Without such data they are taken as they are.
        exchange_every: rounds from one exchange to the next, by default an epoch.
        pilots_per_round: in a training step, at least 2, by default the agent's batch size.
        reading_head: read what neighbours send by a head that is fitted to it when the maps are
            (`sheafed.methods.reading_head`). Without, the consensus head reads it as it is.
        consensus_head: learn the consensus by a second head. Without, the agent's own learns it,
            and classifies own data.
    """

    name: Literal["consensus-distillation"] = field(
        default="consensus-distillation", kw_only=True, repr=False
    )
    confidence: Fraction = 0.3
    weight: Positive = 1.0
    sharpness: NotNegative = 4.0
    calibrate: Switch = True
    exchange_every: Count | None = None
    pilots_per_round: Pilots | None = None
    reading_head: Switch = True
    consensus_head: Switch = True
    shrinkage: Fraction | Literal["least"] = field(default=0.9, kw_only=True)

    @property
    def label(self) -> str:
        return "Consensus distillation"

    def node(self, context: NodeContext) -> ConsensusDistillationNode:
        return ConsensusDistillationNode(self, context)


class ConsensusDistillationNode(PostHocNode):
    neighbours_may_change = True

    def __init__(self, method: ConsensusDistillation, context: NodeContext) -> None:
        super().__init__(context, method.whitening, method.shrinkage, method.channel)
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
        return calibrated_probabilities(self.agent, latents, calibrate=calibrate, head=head).to(
            PRECISION
        )

    def _agree(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Form the consensus of own predictions and what neighbours have said last."""
        spec = TensorSpec(PRECISION, (self.context.pilots.total, self.classes))
        taught = {j for j in self.neighbours if self.classes and self.peers[j]["teaches"]}
        specs = {j: {PROBABILITIES: spec} if j in taught else {} for j in self.neighbours}
        messages = self.valid_messages(round, ROUND, inbox, specs, _check)
        for j in taught & messages.keys():
            self._predictions[j] = messages[j].tensors[PROBABILITIES]
        others = [self._predictions[j] for j in sorted(self._predictions)]
        targets = agree(self._own, others, self.method.sharpness)
        if self.targets is None and targets is not None and self.consensus_head is not None:
            self.consensus_head.start()
        self.targets, self._own = targets, None

    def _distillation_loss(self, round: int) -> Tensor | None:
        """Return the soft cross-entropy on pilots of this round; None if too few are agreed on."""
        if self.targets is None:
            return None
        moment = (self.context.seed, self.name, round)
        rows = self.consensus.learnt_pilots(self.targets, self.pilots_per_round, *moment)
        if not len(rows):
            return None
        head = self.consensus_head or self.agent.apply_head
        scores = head(self.pilot_latents.in_training(rows, round))
        return self.consensus.loss(scores, self.targets[rows.to(self.targets.device)])

    # After training

    def beside_latents(self, pilots: Tensor) -> dict[str, dict[str, Tensor]]:
        """Tell neighbours with a head what this agent makes of the pilots, by both its heads."""
        listeners = [j for j in self.neighbours if self.peers[j]["classes"]]
        if not (self.method.reading_head and self.teaches and listeners):
            return {}
        second = self._second
        head = None if second is None else mean_head(self.agent, second)
        probabilities = self._predict(pilots, head)
        return {j: {PROBABILITIES: probabilities} for j in listeners}

    def expected_beside(self, neighbour: str) -> dict[str, TensorSpec]:
        if not (self.method.reading_head and self.classes and self.peers[neighbour]["teaches"]):
            return {}
        return {PROBABILITIES: TensorSpec(PRECISION, (self.context.pilots.total, self.classes))}

    def check_alignment(self, message: Message) -> None:
        _check(message)

    def after_alignment(self, messages: Mapping[str, Message]) -> None:
        """Fit the reading head to latents of pilots that neighbours have sent and predicted.

        The label of a latent is what its sender says of it: that one knows best what it sends.
        Without any it is the consensus head as it is, if that has learnt anything; an earlier one
        was fitted to an earlier encoder.
        """
        second = self._second
        self.reading_head = second and deepcopy(second).eval().requires_grad_(False)
        taught = {j: m.tensors for j, m in sorted(messages.items()) if PROBABILITIES in m.tensors}
        if taught:
            said = torch.cat([tensors[PROBABILITIES].float() for tensors in taught.values()])
            latents = [self.interpret(tensors["latents"], j) for j, tensors in taught.items()]
            self.reading_head = fit_reading_head(
                self.agent,
                torch.cat(latents),
                said / said.sum(-1, keepdim=True),
                seed=self.context.seed,
                start=second,
            )

    @property
    def own_head(self) -> nn.Module | None:
        """The mean of the agent's head and, once it is fitted, the reading head.

        None without a consensus head, or one that has learnt anything: then it is the agent's own.
        """
        second = self._second
        return None if second is None else mean_head(self.agent, self.reading_head or second)

    @property
    def _second(self) -> nn.Module | None:
        """The consensus head, if there is one and it has learnt anything."""
        if self.consensus_head is None or self.targets is None:
            return None
        return self.consensus_head.module

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "rounds between exchanges": self.every,
            "reading heads": int(self.method.reading_head),
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
        head = self.reading_head
        return super().state() | {
            "targets": self.targets,
            "predictions": predictions,
            "reading_head": None if head is None else dict(head.state_dict()),
            "consensus_head": None if self.consensus_head is None else self.consensus_head.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.targets, self._predictions = state["targets"], dict(state["predictions"])
        self.reading_head = None
        if state["reading_head"] is not None:
            self.reading_head = as_reading_head(self.agent, state["reading_head"])
        if self.consensus_head is not None:
            self.consensus_head.load_state(state["consensus_head"])


def _check(message: Message) -> None:
    given = message.tensors.get(PROBABILITIES)
    if given is not None and not are_probabilities(given.float()):
        raise MessageError(
            PROBABILITIES, f"{message}: rows of probabilities must be at least 0 and sum to 1"
        )
