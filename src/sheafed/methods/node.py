"""What one agent does: it sees its own model, its own data and its neighbours' messages."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.agents.precision import HALF
from sheafed.channels import Channel
from sheafed.devices import CPU
from sheafed.errors import MessageError
from sheafed.graphs import Edge, orient_pair
from sheafed.methods.divergence import divergence_of
from sheafed.methods.endpoints import EdgeEndpoint, endpoint_state, load_endpoint_state
from sheafed.methods.local_loss import checked_loss, local_loss
from sheafed.methods.pilot_encoder import PilotEncoder
from sheafed.methods.reading_head import ReadingHead
from sheafed.methods.whitening import WhiteningLayer
from sheafed.pilots.pilot_set import PilotSet
from sheafed.seeds import generator
from sheafed.sheaf.latent_link import LatentLink, Stage
from sheafed.transport.message import Message, TensorSpec, check_message
from sheafed.vectorized import StackedCohort

PROTOCOL_VERSION = 1
HELLO = "hello"
"""The kind of the messages of the handshake."""
ROUND = "round"
"""The kind of the messages that a round exchanges."""
ALIGNMENT = "alignment"
"""The kind of the messages for maps that are fitted after training."""
FROM_HEAD, FROM_TAIL = "alignment from head", "alignment from tail"
"""Their kinds where the tail of an edge can speak only when it has heard the head."""

logger = logging.getLogger("sheafed.methods")


@dataclass(frozen=True)
class NodeContext:
    """What an agent knows of the network before its first message.

    Args:
        agent: itself.
        neighbours: their names, sorted.
        pilots: of the network; `pilots.total` is their number, `pilots.of(name)` their inputs.
        seed: shared by all agents: pilots and data order follow from it.
        secret: the agent's own seed, known to no other agent: secret maps and noise follow from it.
        rounds_per_epoch: how many rounds an epoch has.
        homogeneous: whether all latent sizes of the network agree.
    """

    agent: Agent
    neighbours: tuple[str, ...]
    pilots: PilotSet
    seed: int
    secret: int
    rounds_per_epoch: int
    homogeneous: bool


class Method(Protocol):
    """The options of a method; `node` gives every agent its node.

    When a run is resumed or loaded its method is compared with the one that is given by its options
    if it is a class under `@options`, or by its `repr`; of a plain class only the name is compared.
    """

    @property
    def label(self) -> str:
        """What tables call it."""

    def node(self, context: NodeContext) -> Node: ...


class Node(ABC):
    """What one agent does.

    A round is `send`, then `receive` with the messages that arrived; a message that did not is
    absent. A method defines these two, and as far as it needs them:

    - `state` and `load_state`, for everything that changes in training beside the agent itself;
    - `shared_settings` and `announced_sizes`, for the handshake before the first round;
    - `prepare_edge`, which builds the endpoint of an edge;
    - `reuse`, if a message of an earlier round can replace one that did not arrive;
    - `alignment_messages` and `align`, if maps are fitted after training (see `PostHocNode`), with
      `alignment_exchange` and `answer_alignment` if neighbours do not all send at once.

    - `steps_together`, if agents of one structure may compute their steps at once, and
      `receive_together`, if more than that can be computed at once.

    `transmit` and `interpret` are what the training is for: the two halves of sending a latent to
    a neighbour.

    Args:
        context: what the agent knows of the network.
        whitening: of its latents.
        channel: over which own latents reach the neighbours.

    Attributes:
        context (NodeContext): what it was made with: pilots, seeds, rounds per epoch.
        agent (Agent): itself, with encoder, head, data and optimiser.
        name (str): the agent's.
        device (torch.device): the agent's.
        neighbours (tuple[str, ...]): their names.
        peers (dict[str, dict[str, int]]): the sizes that every neighbour has announced, its
            `"dimension"` among them; known from `prepare` on.
        pilot_latents (PilotEncoder): `pilot_latents(indices, round)` are the agent's latents
            `(K, d)` of pilots, all or some, in evaluation mode and differentiable;
            `pilot_latents.in_training(indices, round)` as a training step has them.
        endpoints (dict[str, EdgeEndpoint]): this agent's endpoint of every edge, by neighbour; it
            holds the map. A method that fits none in training leaves them to `PostHocNode`.
        whitening (WhiteningLayer): of its latents.
        channel (Channel | None): over which own latents reach the neighbours.
        rejected (Counter[str]): how many messages failed each check.
        reading_head (ReadingHead | None): reads what neighbours transmit in place of the agent's
            head, if there is one.
        shows_pilots (bool): whether neighbours may see the exact latents of pilots, to measure
            misalignment.
    """

    def __init__(
        self, context: NodeContext, whitening: WhiteningLayer, channel: Channel | None = None
    ) -> None:
        self.context = context
        self.agent = context.agent
        self.name = context.agent.name
        self.device = context.agent.device
        self.neighbours = context.neighbours
        self.whitening = whitening
        self.channel = channel
        self.endpoints: dict[str, EdgeEndpoint] = {}
        self.peers: dict[str, dict[str, int]] = {}
        self.rejected: Counter[str] = Counter()
        self.pilot_latents = PilotEncoder(self.agent, context.pilots)
        self.reading_head: ReadingHead | None = None
        self.shows_pilots = True

    steps_together: ClassVar[bool] = False
    """Whether `receive` changes the agent by one `local_loss` and one `apply_gradients` alone, and
    draws nothing from its random stream before, or `receive_together` is defined; see
    `sheafed.vectorized`."""

    def __init_subclass__(cls, **options: Any) -> None:
        """What is computed for many agents at once stands for the `receive` beside it alone."""
        super().__init_subclass__(**options)
        own = vars(cls)
        if own.keys() & {"send", "receive", "local_loss"} and "receive_together" not in own:
            cls.receive_together = Node.receive_together  # type: ignore[method-assign]
            cls.before_send = Node.before_send  # type: ignore[method-assign]

    # A round

    @abstractmethod
    def send(self, round: int) -> Iterator[Message]:
        """Return the messages to the neighbours."""

    @abstractmethod
    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Update maps and weights; return what to log: finite numbers, by names of one's own.

        Names of what is measured, e.g. `epoch` or `private_accuracy`, are refused.
        """

    @property
    def together_with(self) -> Hashable:
        """What nodes of one class must have in common, if anything, to receive together."""
        return None

    @staticmethod
    def before_send(nodes: Sequence[Any], round: int, cohort: StackedCohort) -> None:
        """Compute at once what `send` of each node needs, if anything."""

    @staticmethod
    def receive_together(
        nodes: Sequence[Any],
        round: int,
        inboxes: Mapping[str, Mapping[str, Message]],
        cohort: StackedCohort,
    ) -> dict[str, dict[str, float]]:
        """Do what `receive` of each node does, and take the steps of all; return what to log.

        Args:
            nodes: of one class, those of the members of the cohort, in their order.
            round: its number.
            inboxes: what arrived, by receiver.
            cohort: computes for the agents at once.
        """
        logs = {}
        for node in nodes:
            with divergence_of(node.name, round):
                logs[node.name] = node.receive(round, inboxes[node.name])
        cohort.take_step()
        return logs

    def reuse(self, round: int, message: Message) -> Message | None:
        """Return a message of an earlier round as one of this round.

        None leaves the edge out of the round.
        """
        return None

    # The handshake

    def shared_settings(self) -> dict[str, str | int]:
        """Return what neighbours must have in common, by the name it has in an error message."""
        return {
            "protocol version": PROTOCOL_VERSION,
            "method": type(self).__name__,
            "pilot set": self.context.pilots.digest(),
            "rounds per epoch": self.context.rounds_per_epoch,
        }

    def announced_sizes(self) -> dict[str, int]:
        """Return the sizes of this agent that neighbours must know and may differ in."""
        return {"dimension": self.agent.dimension}

    optional_sizes: ClassVar[tuple[str, ...]] = ()
    """What neighbours may announce beside that."""

    def prepare(self) -> None:
        """Build what depends on the neighbours' sizes, when all are known."""
        for neighbour in self.neighbours:
            self.prepare_edge(neighbour)

    def prepare_edge(self, neighbour: str) -> None:
        """Build what depends on one neighbour's sizes."""

    def edge(self, neighbour: str) -> Edge:
        """Return the oriented edge to a neighbour."""
        other = self.peers[neighbour]["dimension"]
        return orient_pair((self.name, self.agent.dimension), (neighbour, other))

    # After training

    @property
    def alignment_exchange(self) -> dict[str, Collection[str]]:
        """The neighbours that send messages for the maps, by kind, in the order of the kinds.

        What arrives of the last kind goes to `align`, what arrives of those before it to
        `answer_alignment`. The kinds follow from settings that neighbours have in common.
        """
        return {ALIGNMENT: self.neighbours}

    def alignment_messages(self, round: int) -> Iterator[Message]:
        """Return what neighbours need to fit maps after training."""
        return iter(())

    def answer_alignment(self, round: int, inbox: Mapping[str, Message]) -> Iterator[Message]:
        """Return the replies to alignment messages, as soon as some have arrived."""
        return iter(())

    def align(self, round: int, inbox: Mapping[str, Message]) -> None:
        """Fit the maps after training."""

    # Communication

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
        return LatentLink(
            whiten=lambda z: self.whitening.eval()(z.to(self.device)), stages=tuple(stages)
        )

    def link_from(self, neighbour: str) -> LatentLink:
        """Return the receiving half of the link from a neighbour, whatever its device."""
        endpoint = self.endpoints[neighbour]
        return LatentLink(
            stages=(lambda received: endpoint.incoming(received.to(self.device)),),
            colour=lambda white: self.whitening.eval().colour(white),
        )

    def transmit(self, latents: Tensor, neighbour: str) -> Tensor:
        """Return what a neighbour receives when own latents `(n, d_i)` are sent to it."""
        return self.link_to(neighbour)(latents)

    def interpret(self, received: Tensor, neighbour: str) -> Tensor:
        """Return what a neighbour transmitted as latents `(n, d_i)` of this agent."""
        return self.link_from(neighbour)(received)

    @property
    def own_head(self) -> nn.Module | None:
        """What classifies own latents in place of the agent's head, if anything does."""
        return None

    def head_for(self, sender: str) -> nn.Module | None:
        """Return what reads latents that a sender encoded in place of the agent's head, if any.

        Args:
            sender: this agent itself, or another, from which they came over one edge or several.
        """
        if sender == self.name:
            return self.own_head
        return None if self.reading_head is None else self.reading_head.of(sender)

    @torch.no_grad()
    def read(self, latents: Tensor, sender: str) -> Tensor:
        """Return what the agent makes of latents `(n, d_i)` in its space that a sender encoded."""
        with self.agent.inference():
            return self.agent.apply_head(latents, self.head_for(sender))

    # State

    def state(self) -> dict[str, Any]:
        """Return everything that changes in training, beside the agent's own state.

        Whitening and endpoints are what `send` and `classify` need of a network in a file.
        """
        return {
            "whitening": dict(self.whitening.state_dict()),
            "endpoints": {j: endpoint_state(endpoint) for j, endpoint in self.endpoints.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, after the handshake."""
        self.whitening.load_state_dict(state["whitening"])
        for j, endpoint in self.endpoints.items():
            load_endpoint_state(endpoint, state["endpoints"][j])

    # Helpers

    def valid_messages(
        self,
        round: int,
        kind: str,
        inbox: Mapping[str, Message],
        specs: Mapping[str, Mapping[str, TensorSpec]],
        check: Callable[[Message], None] | None = None,
    ) -> dict[str, Message]:
        """Return the messages that pass all checks, with their tensors on the agent's device.

        The others are counted, logged and left out.

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
                good[neighbour] = self._received(message)
        return good

    def _received(self, message: Message) -> Message:
        if self.device == CPU:
            return message
        tensors = {name: tensor.to(self.device) for name, tensor in message.tensors.items()}
        return replace(message, tensors=tensors)

    def white_pilots(self, indices: Tensor | None = None) -> Tensor:
        """Return the white latents of pilots, all or some, as they are now."""
        with torch.no_grad():
            return self.whitening.eval()(self.pilot_latents(indices))

    def local_loss(self, round: int) -> Tensor:
        """Return the agent's own objective on its next batch."""
        if self.agent.cohort is None:
            return local_loss(self.agent, self.agent.next_batch(), round)
        batch, loss = self.agent.cohort.loss(self.agent)
        return checked_loss(self.agent, batch, loss, round)


def count_outputs(agent: Agent) -> int:
    """Return how many classes an agent's head tells apart, or numbers it predicts.

    0 without a head.
    """
    if agent.head is None:
        return 0
    with agent.inference(), torch.no_grad():
        probe = agent.apply_head(torch.zeros(1, agent.dimension, dtype=latent_dtype(agent)))
    return 1 if probe.ndim == 1 else int(probe.shape[-1])


def latent_dtype(agent: Agent) -> torch.dtype:
    """Return the precision beyond an agent's encoder: that of its weights, if it has any.

    Half precision ends at the encoder.
    """
    found = next((p.dtype for p in agent.parameters), agent.dtype)
    return torch.float32 if found in HALF else found
