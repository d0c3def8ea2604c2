"""A method as a node program: what one agent does, seeing only itself and its messages."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.channels import Channel
from sheafed.errors import HandshakeError, MessageError
from sheafed.graphs import Edge, orient_pair
from sheafed.methods.endpoints import EdgeEndpoint
from sheafed.methods.handshake import check_agreement, label_set, read_introduction
from sheafed.methods.local_loss import local_loss
from sheafed.methods.pilot_encoder import PilotEncoder
from sheafed.methods.whitening import WhiteningLayer
from sheafed.pilots.pilot_set import PilotSet
from sheafed.seeds import generator
from sheafed.sheaf.latent_link import LatentLink, Stage
from sheafed.transport.message import Message, TensorSpec, check_message

PROTOCOL_VERSION = 1
HELLO = "hello"
"""The kind of the messages of the handshake."""
ROUND = "round"
"""The kind of the messages that a round exchanges."""
ALIGNMENT = "alignment"
"""The kind of the messages for maps that are fitted after training."""

logger = logging.getLogger("sheafed.methods")


@dataclass(frozen=True)
class NodeContext:
    """What an agent knows of the network before its first message."""

    agent: Agent
    neighbours: tuple[str, ...]
    pilots: PilotSet
    seed: int
    """Shared by all agents: pilots and data order follow from it."""
    secret: int
    """The agent's own seed, which nobody else may know: secret maps follow from it."""
    rounds_per_epoch: int
    homogeneous: bool
    """Whether all latent sizes of the network agree."""


class Method(Protocol):
    """A recipe that gives every agent its node program."""

    @property
    def label(self) -> str:
        """What tables call it."""

    def node(self, context: NodeContext) -> Node:
        """Return the program of one agent."""


class Node(ABC):
    """The program of one agent.

    A round is `send`, then `receive` with whatever has arrived: a message that did not is absent.
    Before the first round the neighbours shake hands (`hello`, `finish_handshake`). `transmit` and
    `interpret` are what the training is for: the two sides of sending a latent to a neighbour.
    """

    neighbours_may_change: bool = False
    """Whether an edge can come or go by itself: `gain`, `lose` and what is with them suffice."""

    def __init__(
        self, context: NodeContext, whitening: WhiteningLayer, channel: Channel | None = None
    ) -> None:
        self.context = context
        self.whitening = whitening
        self.channel = channel
        """Over which own latents reach the neighbours; another one may take its place."""
        self.endpoints: dict[str, EdgeEndpoint] = {}
        self.agent = context.agent
        self.name = context.agent.name
        self.neighbours = context.neighbours
        self.peers: dict[str, dict[str, int]] = {}
        self.rejected: Counter[str] = Counter()
        self.pilot_latents = PilotEncoder(self.agent, context.pilots.of(self.name))
        self.shows_pilots = True
        """Whether neighbours may see the exact latents of pilots, to measure misalignment."""

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        """Return what neighbours must have in common, by the name it has in a refusal."""
        return {
            "protocol version": PROTOCOL_VERSION,
            "method": type(self).__name__,
            "pilot set": self.context.pilots.digest(),
            "rounds per epoch": self.context.rounds_per_epoch,
        }

    def own_settings(self) -> dict[str, int]:
        """Return what neighbours must know of this agent and may differ in."""
        return {"dimension": self.agent.dimension}

    def hello(self) -> Iterator[Message]:
        """Introduce this agent to its neighbours."""
        return (self.hello_to(neighbour) for neighbour in self.neighbours)

    def hello_to(self, neighbour: str) -> Message:
        """Introduce this agent to somebody who is, or is about to be, a neighbour."""
        fields = {**self.shared_settings(), **self.own_settings(), **label_set(self.agent.classes)}
        return Message(HELLO, 0, self.name, neighbour, fields=fields)

    def finish_handshake(self, inbox: Mapping[str, Message]) -> None:
        """Learn who the neighbours are; refuse those that have agreed to something else."""
        missing = sorted(set(self.neighbours) - set(inbox))
        if missing:
            raise HandshakeError(
                f"agent {self.name!r} has not heard from its neighbours {missing}; start them, or "
                "leave them out of the graph"
            )
        for neighbour, message in inbox.items():
            self.peers[neighbour] = self.check_hello(message)
        self.prepare()

    def check_hello(self, hello_message: Message) -> dict[str, int]:
        """Return what a neighbour says of itself; refuse one that has agreed to something else."""
        labels = label_set(self.agent.classes)
        check_agreement(self.name, self.shared_settings(), labels, hello_message)
        return read_introduction(self.own_settings(), hello_message)

    def prepare(self) -> None:
        """Build what depends on the neighbours' introductions."""
        for neighbour in self.neighbours:
            self.prepare_edge(neighbour)

    def prepare_edge(self, neighbour: str) -> None:
        """Build what depends on one neighbour's introduction."""

    def edge(self, neighbour: str) -> Edge:
        """Return the oriented edge to a neighbour."""
        other = self.peers[neighbour]["dimension"]
        return orient_pair((self.name, self.agent.dimension), (neighbour, other))

    # A round

    @abstractmethod
    def send(self, round: int) -> Iterator[Message]:
        """Return what this agent tells its neighbours."""

    @abstractmethod
    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Update maps and weights; return what is worth logging."""

    def reuse(self, round: int, message: Message) -> Message | None:
        """Return what a neighbour said in an earlier round as it can serve in this one.

        None, as for a method that says nothing else, leaves the edge out of the round.
        """
        return None

    # Neighbours that come and go

    def add_neighbour(self, neighbour: str, hello_message: Message) -> None:
        """Meet a neighbour that has come later; the other edges stay as they are."""
        self.peers[neighbour] = self.check_hello(hello_message)
        self.neighbours = tuple(sorted({*self.neighbours, neighbour}))
        self.prepare_edge(neighbour)

    def remove_neighbour(self, neighbour: str) -> None:
        """Forget a neighbour; the other edges stay as they are."""
        self.neighbours = tuple(j for j in self.neighbours if j != neighbour)
        del self.peers[neighbour], self.endpoints[neighbour]

    @torch.no_grad()
    def fit_whitening(self) -> None:
        """Whiten by the pilots alone, as an agent does that has not trained with the others."""
        self.whitening.fit(self.pilot_latents())

    def fit_endpoint(self, neighbour: str, own: Tensor, received: Tensor) -> None:
        """Fit this end of an edge from all pilots: own white latents, and what has arrived."""
        endpoint = self.endpoints[neighbour]
        endpoint.fit(endpoint.cross(own, received), 0)

    def serve(self, round: int, neighbour: str) -> Iterator[Message]:
        """Say what `send` says, to one neighbour that trains while this agent rests."""
        return iter(())

    def refit(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Refit the maps of the edges to these neighbours, and let them change nothing else."""

    # Communication

    def alignment_messages(self, round: int) -> Iterator[Message]:
        """Return what neighbours need to fit maps after training; nothing for most methods."""
        return iter(())

    def align(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Fit maps after training; nothing for methods that learn them."""

    def link_to(self, neighbour: str, *moment: int | str, channel: bool = True) -> LatentLink:
        """Return the sending half of the link to a neighbour.

        Args:
            neighbour: the receiver.
            moment: the round and the name of what is sent, which decide the noise of the channel.
                Without one, as at inference, the noise is always the same: it follows from the
                run's seed and the two names.
            channel: False leaves the channel out.
        """
        stages: list[Stage] = [self.endpoints[neighbour].outgoing]
        noisy = self.channel if channel else None
        if noisy is not None and not (moment and noisy.when == "inference"):
            purpose = (self.name, neighbour, *moment, "channel")
            stages.append(lambda sent: noisy.carry(sent, generator(self.context.seed, *purpose)))
        return LatentLink(whiten=lambda z: self.whitening.eval()(z), stages=tuple(stages))

    def link_from(self, neighbour: str) -> LatentLink:
        """Return the receiving half of the link from a neighbour."""
        return LatentLink(
            stages=(self.endpoints[neighbour].incoming,),
            colour=lambda white: self.whitening.eval().colour(white),
        )

    def transmit(self, latents: Tensor, neighbour: str) -> Tensor:
        """Return what a neighbour receives when own latents `(n, d_i)` are sent to it."""
        return self.link_to(neighbour)(latents)

    def interpret(self, received: Tensor, neighbour: str) -> Tensor:
        """Return what a neighbour transmitted as latents `(n, d_i)` for the own head."""
        return self.link_from(neighbour)(received)

    def white_pilots(self, indices: Tensor | None = None) -> Tensor:
        """Return the white latents of pilots, all or some, as they are now."""
        with torch.no_grad():
            return self.whitening.eval()(self.pilot_latents(indices))

    # State

    def state(self) -> dict[str, Any]:
        """Return everything of the program, beside the agent, that changes in training."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state` returned."""

    # Shared steps

    def valid_messages(
        self,
        round: int,
        kind: str,
        inbox: Mapping[str, Message],
        specs: Mapping[str, Mapping[str, TensorSpec]],
        check: Callable[[Message], None] | None = None,
    ) -> dict[str, Message]:
        """Return the messages that pass all checks; count, log and leave out the others.

        Args:
            round: the round that the messages must be of.
            kind: the kind that they must have.
            inbox: what arrived, by sender.
            specs: by sender, the tensors that a message must hold.
            check: a further check, which raises `MessageError`.
        """
        good = {}
        for neighbour, message in inbox.items():
            try:
                check_message(
                    message,
                    kind=kind,
                    round=round,
                    sender=neighbour,
                    receiver=self.name,
                    tensors=specs[neighbour],
                )
                if check is not None:
                    check(message)
            except MessageError as problem:
                self.rejected[problem.reason] += 1
                logger.warning("agent %s left out a message: %s", self.name, problem)
            else:
                good[neighbour] = message
        return good

    def local_loss(self, round: int) -> Tensor:
        """Return the agent's own objective on its next batch."""
        return local_loss(self.agent, self.agent.next_batch(), round)


def count_classes(agent: Agent) -> int:
    """Return how many classes an agent's head tells apart; 0 without a head."""
    if agent.head is None:
        return 0
    with agent.inference(), torch.no_grad():
        probe = agent.head(torch.zeros(1, agent.dimension, dtype=latent_dtype(agent)))
    return int(probe.shape[-1])


def latent_dtype(agent: Agent) -> torch.dtype:
    """Return the precision in which an agent computes: that of its weights, if it has any."""
    return next((p.dtype for p in agent.parameters), agent.dtype)
