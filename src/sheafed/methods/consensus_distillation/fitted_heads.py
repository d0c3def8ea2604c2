"""The heads that consensus distillation fits when the maps are fitted, after training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sheafed.errors import MessageError
from sheafed.methods.consensus import calibrated_probabilities, count_classes, is_labelled
from sheafed.methods.consensus_head import ConsensusHead, copy_head
from sheafed.methods.latent_codec import PROBABILITIES
from sheafed.methods.node import NodeContext
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

if TYPE_CHECKING:
    from sheafed.methods.consensus_distillation.method import ConsensusDistillation

SENT = torch.uint8
"""How probabilities are sent, see `as_bytes`."""


class FittedHeadsNode(PostHocNode):
    """A node that tells neighbours the classes of pilots, and fits heads to what it is told."""

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

    def _make_consensus_head(self) -> ConsensusHead | None:
        wanted = self.method.consensus_head and self.method.confidence < 1
        head, learns = self.agent.head, self.agent.learns and self.teaches
        if not (wanted and learns) or head is None or not list(head.parameters()):
            return None
        return ConsensusHead(self.agent)

    # The handshake

    def announced_sizes(self) -> dict[str, int]:
        return super().announced_sizes() | {"classes": self.classes, "teaches": int(self.teaches)}

    def prepare_edge(self, neighbour: str) -> None:
        check_same_classes(self.name, self.classes, neighbour, self.peers[neighbour]["classes"])
        super().prepare_edge(neighbour)

    # When maps are fitted

    def beside_latents(self, pilots: Tensor) -> dict[str, dict[str, Tensor]]:
        """Tell neighbours with a head what this agent makes of the pilots, as of its own data."""
        self._fitted_again = None
        listeners = [j for j in self.neighbours if self.peers[j]["classes"]]
        if not (self.method.reading_head and self.teaches and listeners):
            return {}
        probabilities = self.predict(pilots, self._teaching_head())
        return {j: {PROBABILITIES: probabilities} for j in listeners}

    def expected_beside(self, neighbour: str) -> dict[str, TensorSpec]:
        if not (self.method.reading_head and self.classes and self.peers[neighbour]["teaches"]):
            return {}
        return {PROBABILITIES: TensorSpec(SENT, (self.context.pilots.total, self.classes))}

    def check_alignment(self, message: Message) -> None:
        check_probabilities(message)

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

    def predict(self, latents: Tensor, head: nn.Module | None = None) -> Tensor:
        calibrate = self.method.calibrate
        return as_bytes(
            calibrated_probabilities(self.agent, latents, calibrate=calibrate, head=head)
        )

    # State

    def state(self) -> dict[str, Any]:
        return super().state() | {
            "targets": self.targets,
            "refitted_head": None if self._refitted is None else self._refitted.state_dict(),
            "consensus_head": None if self.consensus_head is None else self.consensus_head.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.targets = state["targets"]
        self._refitted = None
        if state.get("refitted_head") is not None:
            self._refitted = copy_head(self.agent).eval().requires_grad_(False)
            self._refitted.load_state_dict(state["refitted_head"])
        self._load_consensus_head(state["consensus_head"])

    def _load_consensus_head(self, state: Mapping[str, Any] | None) -> None:
        """Have the one of the run, if it had one: an agent that is only used may have no labels."""
        if state is None:
            self.consensus_head = None
            return
        if self.consensus_head is None:
            self.consensus_head = ConsensusHead(self.agent)
        self.consensus_head.load_state(state)


def check_probabilities(message: Message) -> None:
    given = message.tensors.get(PROBABILITIES)
    if given is not None and not are_sent_probabilities(given):
        raise MessageError(
            PROBABILITIES, f"{message}: the largest byte of every row of probabilities must be 255"
        )
