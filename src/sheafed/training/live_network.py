"""The live network that training returns: agents that can send, join, leave and be evaluated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.alignment.arrays import ArrayT
from sheafed.errors import InputError
from sheafed.evaluation import Evaluation, Split, evaluate, oracle_values
from sheafed.evaluation.peer_evaluator import check_split
from sheafed.evaluation.result import merge
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.methods.node import Method, Node
from sheafed.methods.sheaf_frl.compressed_endpoints import CompressedEndpoint
from sheafed.pilots.pilot_set import PilotSet
from sheafed.sheaf.network_sheaf import NetworkSheaf
from sheafed.training import deployment, inference, membership
from sheafed.training.callbacks import Callback
from sheafed.training.further_training import train_on
from sheafed.training.history import RunHistory
from sheafed.training.metadata import AgentMetadata
from sheafed.training.network_file import write_results
from sheafed.training.other_data import judged_on
from sheafed.training.overview import network_as_html, network_as_text
from sheafed.training.process_group import ProcessGroup
from sheafed.training.run_lock import run_lock
from sheafed.training.run_to_end import check_new_directory
from sheafed.transport import Barrier, Transport, WaitPolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Network:
    """Agents on a graph with the maps between them, during training and after it.

    Its `repr`, and what a notebook shows of it, is a table of the agents with the latest values.
    """

    nodes: dict[str, Node]
    """The nodes of the agents in this process."""
    metadata: dict[str, AgentMetadata]
    """All agents of the network, in any process."""
    graph: nx.Graph[str]
    pilots: PilotSet
    method: Method
    history: RunHistory
    group: ProcessGroup
    out: Path | None = None
    """The run directory; None for a network that was loaded, so that nothing there changes."""
    difference: str | None = None
    """In what the agents of a loaded network differ from the run's, so that it cannot train on."""

    @property
    def agents(self) -> dict[str, Agent]:
        """The agents in this process, by name."""
        return {name: node.agent for name, node in self.nodes.items()}

    @property
    def sheaf(self) -> NetworkSheaf:
        """The network sheaf with the maps that the agents hold now.

        Where a noisy channel has led the two ends of an edge to different maps, it is the head's,
        by which the head reads the tail.
        """
        self._check_all_nodes_here()
        dims = {name: node.agent.dimension for name, node in self.nodes.items()}
        maps, rotations = {}, {}
        for name, node in self.nodes.items():
            for neighbour, endpoint in node.endpoints.items():
                edge = node.edge(neighbour)
                if isinstance(endpoint, CompressedEndpoint):
                    raise InputError(
                        f"the edge stalks are compressed to {endpoint.width} dimensions between "
                        f"{edge.head!r} and {edge.tail!r}, and a NetworkSheaf has isometries; "
                        "read the projections from network.nodes[...].endpoints, or train with "
                        "edge_dim=None"
                    )
                if name == (edge.head if isinstance(endpoint, PlainEndpoint) else edge.tail):
                    maps[edge] = endpoint.map.cpu()
                elif name == edge.head:
                    rotations[edge] = endpoint.map.cpu()
        if rotations:  # an edge that came later may be plain where older ones are not
            for edge, v in maps.items():
                rotations.setdefault(edge, torch.eye(len(v)).to(v))
        return NetworkSheaf(self.graph, dims, maps, rotations or None)

    def encode(self, inputs: Any, agent: str) -> Any:
        """Return an agent's latents `(n, d)` of inputs, in evaluation mode.

        Inputs are an array, a mapping or tuple of arrays, without targets, or rows as in the data
        of the agent, which its `collate_fn` reads; latents of a NumPy array are a NumPy array.
        """
        return inference.encode(self.nodes, inputs, agent)

    def send(
        self, latents: ArrayT, sender: str, receiver: str, path: Sequence[str] | None = None
    ) -> ArrayT:
        """Return the sender's latents `(n, d)` as the receiver's head reads them, `(n, d')`.

        Neighbours communicate directly, other agents along the path of least expected loss (see
        `sheafed.sheaf.routing`), and all along a path that is given. The result is of the kind,
        NumPy or torch, and precision of the latents, which may be on any device, and on that of
        the receiver.
        """
        return inference.send(self.nodes, latents, self._path(sender, receiver, path))

    def outputs(
        self, latents: ArrayT, sender: str, receiver: str, path: Sequence[str] | None = None
    ) -> ArrayT:
        """Return what the receiver's head makes of the sender's latents, e.g. `(n, classes)`.

        A receiver that has a reading head reads by it what others have sent.
        """
        return inference.outputs(self.nodes, latents, self._path(sender, receiver, path))

    def classify(
        self, latents: ArrayT, sender: str, receiver: str, path: Sequence[str] | None = None
    ) -> Tensor | NDArray[np.int64]:
        """Return the classes `(n,)` that the receiver gives the sender's latents.

        They are the numbers of the largest outputs, and `network.agents[receiver].classes` has
        their names, if they were given. An agent may classify its own latents.

        A head of several outputs that predicts numbers, or several labels per sample, is refused
        where the receiver's metric or its training targets tell. An agent that was loaded with
        other data and a metric without a `task` tells neither: take `outputs` there.
        """
        return inference.classify(self.nodes, latents, self._path(sender, receiver, path))

    def link(self, sender: str, receiver: str, path: Sequence[str] | None = None) -> nn.Linear:
        """Return what `send` does as one layer, from the sender's latents to the receiver's.

        Whitening, maps and colouring are affine; they are folded in double precision. A noisy
        channel is left out: where the layer is deployed, the link has its own.
        """
        return deployment.link_layer(self.nodes, self._path(sender, receiver, path))

    def pipeline(self, sender: str, receiver: str, path: Sequence[str] | None = None) -> nn.Module:
        """Return the sender's encoder, the link and the receiver's head as one module.

        A receiver that has a reading head reads by it.
        It has copies on the CPU, in evaluation mode and without gradients; what cannot be copied
        is an `ExportError`.
        """
        return deployment.pipeline(self.nodes, self._path(sender, receiver, path))

    def export(
        self,
        sender: str,
        receiver: str,
        out: str | Path,
        *,
        link_only: bool = False,
        path: Sequence[str] | None = None,
    ) -> None:
        """Write the pipeline, or the link alone, as a file that runs without this library.

        Batches may have any size, and so may other dimensions that differ between batches of the
        sender's data, such as the length of texts; all others have that of the data. Where torch
        cannot export an encoder so, a `FixedSizeWarning` names the sizes that the file takes.
        Names of agents and classes are metadata of the file.

        Args:
            sender: the agent that encodes.
            receiver: the agent that classifies.
            out: `NAME.onnx` for ONNX (`sheafed[export]`), `NAME.pt2` for `torch.export.load`.
            link_only: leave out encoder and head, e.g. if the encoder is no torch code.
            path: the agents on the way; as in `send` by default.
        """
        deployment.export(self.nodes, self._path(sender, receiver, path), Path(out), link_only)

    def evaluate(
        self, split: Split = "test", oracle: bool = True, *, data: Any = None
    ) -> Evaluation:
        """Evaluate all agents on their own and their neighbours' data.

        In a cluster all processes must call it.

        Args:
            split: which data of the agents, `"validation"` or `"test"`.
            oracle: also let every receiver encode its neighbours' inputs itself, which needs the
                inputs of all agents in one process.
            data: labelled data in place of the agents' test data, e.g. (inputs, targets) for all
                agents, or a mapping from agents to theirs. Each agent reads them by its `target`
                and `collate_fn`, as its own.
        """
        check_split(split)
        if oracle:
            self._check_all_nodes_here()
        if data is not None:
            with judged_on(self.agents, data):
                return self.evaluate("test", oracle)
        return self.measure(Barrier(self.new_transport(), self.new_transport), split, oracle)

    def measure(self, policy: WaitPolicy, split: Split, oracle: bool) -> Evaluation:
        """Evaluate with a wait policy of the training; see `evaluate`."""
        local = evaluate(self.nodes, policy.for_evaluation(), self._last_round, split)
        whole = merge(self.group.gather(local.rows()))
        return replace(whole, oracle=oracle_values(self.nodes, split)) if oracle else whole

    @contextmanager
    def training_context(self) -> Iterator[None]:
        """Forget encodings, and on exit end the processes that read training data ahead."""
        for agent in self.agents.values():  # anything may have changed since the last training
            agent.forget_encodings()
        try:
            yield
        finally:
            for agent in self.agents.values():
                agent.stop_workers()

    def new_transport(self) -> Transport:
        """Return a transport between the agents, with a ledger of its own."""
        return self.group.transport(self._placement, self.graph)

    def train(
        self,
        *,
        epochs: int,
        out: str | Path | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        evaluate_every: int = 1,
        checkpoint_every: int | None = None,
        oracle: bool = True,
        vectorize: bool = True,
    ) -> None:
        """Train on for some more epochs, with the weights, optimisers and maps of now.

        Weights, optimisers and maps are those of one longer training, to the bit. So is the rest
        where that training would have been evaluated when this one had ended.

        Args:
            epochs: how many more.
            out: a new directory for the run from here on. By default the network's own; a network
                that was loaded has none, and then nothing is written.
            callbacks: see `sheafed.training.Callback`.
            progress: show a progress bar, in terminals and notebooks.
            evaluate_every: epochs between evaluations; the last epoch is always evaluated.
            checkpoint_every: rounds between checkpoints, an epoch by default.
            oracle: also measure oracle accuracy.
            vectorize: as in `sheafed.train`.
        """
        self._check_all_nodes_here()
        train_on(
            self,
            epochs=epochs,
            out=out,
            callbacks=callbacks,
            progress=progress,
            evaluate_every=evaluate_every,
            checkpoint_every=checkpoint_every,
            oracle=oracle,
            vectorize=vectorize,
        )

    def save(self, out: str | Path) -> None:
        """Write the network to a new directory, from which `sheafed.load` reads it."""
        self._check_all_nodes_here()
        kinds = {type(e).__name__ for node in self.nodes.values() for e in node.endpoints.values()}
        if len(kinds) > 1:
            raise InputError(
                f"edges of two protocols ({', '.join(sorted(kinds))}) cannot be written: an agent "
                "of another latent size has joined; train all agents together, or with "
                "privacy='strict', which has one protocol for both"
            )
        with run_lock(Path(out)):
            check_new_directory(Path(out), self.group)
            write_results(self, Path(out))

    def join(
        self,
        agent: Agent,
        neighbours: Collection[str],
        *,
        pilots: Any = None,
        epochs: int = 0,
        others: membership.Others = "resting",
        oracle: bool = True,
    ) -> None:
        """Add an agent after training; its neighbours can read its latents at once.

        No agent trains for that. The new agent whitens by the pilots, each of its edges exchanges
        the latents of all pilots, once, and gets its maps from them. The history has a record of
        it, and a second one if there are epochs.

        Args:
            agent: the new agent, trained or not. Its random streams start anew, from the seed of
                the run.
            neighbours: the agents that it is joined to.
            pilots: its pilots, where agents have pilots of their own: row by row, or a
                `PilotSet` with ids, by which they are paired with the others'.
            epochs: how long it trains on with its neighbours.
            others: what they do meanwhile: `"resting"`, they answer and refit the maps of the new
                edges, and not a bit of anything else changes; `"undisturbed"`, they train on as
                if the agent had not come; `"training"`, all train together.
            oracle: also measure oracle accuracy.
        """
        with run_lock(self.out):
            membership.join(
                self, agent, neighbours, pilots=pilots, epochs=epochs, others=others, oracle=oracle
            )

    def leave(self, name: str) -> Agent:
        """Remove an agent after training, and return it.

        The others keep their maps. A `DisconnectedWarning` names the parts into which the network
        falls, if it does.
        """
        with run_lock(self.out):
            return membership.leave(self, name)

    def plot(self) -> Figure:
        """Return a matplotlib figure; see `RunHistory.plot`."""
        return self.history.plot()

    def __repr__(self) -> str:
        return network_as_text(self)

    def _repr_html_(self) -> str:
        return network_as_html(self)

    @property
    def _placement(self) -> dict[str, int]:
        """The rank of every agent."""
        return {name: known.rank for name, known in self.metadata.items()}

    @property
    def _last_round(self) -> int:
        return max(0, self.history.rounds - 1)

    def _path(self, sender: str, receiver: str, given: Sequence[str] | None) -> list[str]:
        self._check_all_nodes_here()
        return inference.choose_path(self.nodes, sender, receiver, given)

    def _check_all_nodes_here(self) -> None:
        elsewhere = sorted(set(self.metadata) - set(self.nodes))
        if elsewhere:
            raise InputError(
                f"agents {elsewhere} are in other processes; resume the run in one process"
            )
