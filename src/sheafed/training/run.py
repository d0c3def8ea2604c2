"""What a training has produced so far: metrics, agents, the sheaf, and what it has cost."""

from __future__ import annotations

import resource
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.errors import InputError
from sheafed.evaluation.evaluation import Evaluation
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.methods.node import Method, Node
from sheafed.methods.sheaf_frl.compressed_endpoints import CompressedEndpoint
from sheafed.pilots.pilot_set import PilotSet
from sheafed.sheaf.network_sheaf import NetworkSheaf
from sheafed.training.metadata import AgentMetadata
from sheafed.training.multi_hop import find_path, path_link
from sheafed.transport.ledger import Ledger

Record = dict[str, Any]


@dataclass
class Run:
    """A training, finished or under way."""

    nodes: dict[str, Node]
    """The programs of the agents in this process."""
    profiles: dict[str, AgentMetadata]
    """All agents of the network, wherever they live."""
    graph: nx.Graph[str]
    pilots: PilotSet
    recipe: Method
    ledger: Ledger
    seed: int
    epochs: int
    rounds_per_epoch: int
    out: Path | None = None
    rounds: int = 0
    """Rounds done."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether a callback ended the training early."""
    metrics: list[Record] = field(default_factory=list)
    """One record per evaluated epoch; free of times, so equal runs have equal records."""
    evaluation: Evaluation | None = None
    """The latest, in detail."""
    whitenings: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """At the end: what `compare_whitenings` measured of a method that is aligned afterwards."""

    @property
    def agents(self) -> dict[str, Agent]:
        """The agents in this process, by name."""
        return {name: node.agent for name, node in self.nodes.items()}

    @property
    def method(self) -> str:
        """What tables call the method."""
        return self.recipe.label

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.rounds // self.rounds_per_epoch

    @property
    def last(self) -> Record | None:
        """The latest record."""
        return self.metrics[-1] if self.metrics else None

    @property
    def best(self) -> Record | None:
        """The record with the best validation score; None if agents have no validation data."""
        scored = [record for record in self.metrics if record.get("validation_score") is not None]
        return max(scored, key=lambda record: record["validation_score"], default=None)

    @property
    def sheaf(self) -> NetworkSheaf:
        """The network sheaf with the maps that the agents hold now.

        Where a noisy channel has led the two ends of an edge to different maps, it is the head's,
        by which the head reads the tail.
        """
        self._need_all_maps()
        dims = {name: node.agent.dimension for name, node in self.nodes.items()}
        maps, rotations = {}, {}
        for name, node in self.nodes.items():
            for neighbour, endpoint in node.endpoints.items():
                edge = node.edge(neighbour)
                if isinstance(endpoint, CompressedEndpoint):
                    raise InputError(
                        f"the edge stalks are compressed to {endpoint.width} dimensions between "
                        f"{edge.head!r} and {edge.tail!r}, and a NetworkSheaf has isometries; "
                        "read the projections from run.nodes[...].ends, or train with "
                        "edge_dim=None"
                    )
                if name == (edge.head if isinstance(endpoint, PlainEndpoint) else edge.tail):
                    maps[edge] = endpoint.map
                elif name == edge.head:
                    rotations[edge] = endpoint.map
        if rotations:  # an edge that came later may be plain where older ones are not
            for edge, v in maps.items():
                rotations.setdefault(edge, torch.eye(len(v)).to(v))
        return NetworkSheaf(self.graph, dims, maps, rotations or None)

    @torch.no_grad()
    def send(
        self, latents: Tensor, sender: str, receiver: str, path: Sequence[str] | None = None
    ) -> Tensor:
        """Return the sender's latents `(n, d)` as the receiver's head reads them, `(n, d')`.

        Neighbours talk directly, others along the path of least expected loss (see
        `sheafed.training.multi_hop`), and all along a path that is given.
        """
        self._need_all_maps()
        way = list(find_path(self.nodes, sender, receiver) if path is None else path)
        if not way or (way[0], way[-1]) != (sender, receiver):
            raise InputError(f"a path from {sender!r} to {receiver!r} cannot be {way}")
        return path_link(self.nodes, way)(latents)

    def _need_all_maps(self) -> None:
        elsewhere = sorted(set(self.profiles) - set(self.nodes))
        if elsewhere:
            raise InputError(
                f"the maps of agents {elsewhere} are in other processes; resume the run in one"
            )

    def join(
        self,
        agent: Agent,
        neighbours: Collection[str],
        *,
        pilots: Any = None,
        epochs: int = 0,
        others: Literal["resting", "undisturbed", "training"] = "resting",
        oracle: bool = True,
    ) -> None:
        """Let an agent join when training has ended: it is understood by its neighbours at once.

        Nobody trains for that. The newcomer whitens by the pilots, each of its edges exchanges
        the latents of all pilots, once, and gets its maps from them. `metrics` has a record of
        it, and a second one if there are epochs.

        Args:
            agent: the newcomer, trained or not. Its random streams start anew, from the run's seed.
            neighbours: whom it talks to.
            pilots: its view of the pilots, where agents have views of their own: row by row, or
                a `PilotSet` with ids, by which it is paired with theirs.
            epochs: how long it trains on with them.
            others: what they do then: `"resting"`, they answer and refit the maps of the new
                edges, and not a bit of anything else changes; `"undisturbed"`, they train on and
                do just that beside it, as if nobody had come; `"training"`, all train together.
            ceiling: also measure what perfect maps would give (see `evaluate`).
        """
        from sheafed.training import membership  # which needs this class

        membership.join(
            self, agent, neighbours, pilots=pilots, epochs=epochs, others=others, oracle=oracle
        )

    def leave(self, name: str) -> Agent:
        """Let an agent leave when training has ended, and return it.

        The others keep their maps. A `DisconnectedWarning` names those who are left alone.
        """
        from sheafed.training import membership  # which needs this class

        return membership.leave(self, name)

    def summary(self) -> Record:
        """Return the figures of the run, the latest evaluation in detail."""
        latest = self.evaluation or Evaluation()
        traffic = self.ledger.per_edge()
        return {
            "method": self.method,
            "seed": self.seed,
            "epochs": self.epoch,
            **latest.summary(),
            "whitenings": self.whitenings,
            "best": self.best,
            "bytes_sent": self.ledger.bytes_sent(),
            "payload_bytes": self.ledger.payload_bytes(),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "peak_memory_bytes": peak_memory(),
            "agents": {
                name: {
                    "dimension": profile.dimension,
                    "neighbours": sorted(self.graph.neighbors(name)),
                    "training_samples": profile.training_samples,
                    "objective": profile.objective,
                    "private_accuracy": latest.private.get(name),
                    "communication_accuracy": latest.communication_of(name),
                }
                for name, profile in self.profiles.items()
            },
            "edges": [
                {
                    "sender": sender,
                    "receiver": receiver,
                    "communication_accuracy": latest.communication.get((sender, receiver)),
                    "oracle_accuracy": latest.oracle.get((sender, receiver)),
                    "misalignment": latest.misalignment.get(
                        (sender, receiver), latest.misalignment.get((receiver, sender))
                    ),
                    "bytes_sent": sum(traffic[sender, receiver][1:])
                    if (sender, receiver) in traffic
                    else 0,
                }
                for receiver in self.profiles
                for sender in sorted(self.graph.neighbors(receiver))
            ],
        }


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux `ru_maxrss` may be that of the process that started this one
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
