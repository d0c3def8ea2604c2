"""What the training of one agent among others has produced so far, and its checkpoint."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.methods.node import Method, Node
from sheafed.training.identity import agent_identity, check_identity, describe, load_states
from sheafed.training.metadata import profile
from sheafed.training.run import Record, peak_memory
from sheafed.transport.ledger import Ledger


@dataclass
class PeerRun:
    """The training of one agent, finished or under way."""

    node: Node
    recipe: Method
    """Whose program the node is."""
    ledger: Ledger
    epochs: int
    rounds: int = 0
    """Rounds behind it, taken part in or missed."""
    missed: int = 0
    """Rounds that the network went on while this agent was away."""
    left_out: Counter[str] = field(default_factory=Counter)
    """In how many rounds nothing of a neighbour could be used."""
    reused: Counter[str] = field(default_factory=Counter)
    """In how many rounds an earlier message of a neighbour stood in."""
    totals: dict[str, list[float]] = field(default_factory=dict)
    """What was logged since the last evaluation."""
    metrics: list[Record] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def method(self) -> str:
        """What tables call the method."""
        return self.recipe.label

    @property
    def rounds_per_epoch(self) -> int:
        """As all agents have agreed."""
        return self.node.context.rounds_per_epoch

    @property
    def total(self) -> int:
        """The rounds of the whole training."""
        return self.epochs * self.rounds_per_epoch

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.rounds // self.rounds_per_epoch

    @property
    def last(self) -> Record | None:
        """The latest record."""
        return self.metrics[-1] if self.metrics else None

    def save(self, path: Path) -> None:
        """Write everything that the rest of the training depends on."""
        save_checkpoint(
            path,
            {
                "identity": self._identity(),
                "rounds": self.rounds,
                "missed": self.missed,
                "left_out": dict(self.left_out),
                "reused": dict(self.reused),
                "totals": self.totals,
                "metrics": self.metrics,
                "seconds": self.seconds,
                "ledger": dict(self.ledger.state()),
                "peers": self.node.peers,
                "agent": self.node.agent.state(),
                "node": self.node.state(),
            },
        )

    def restore(self, path: Path) -> None:
        """Go on from what `save` wrote; neighbours are known from then."""
        state = load_checkpoint(path)
        check_identity(path, state, self._identity())
        node = self.node
        node.peers = state["peers"]
        node.prepare()
        load_states(path, node, state["agent"], state["node"])
        self.rounds, self.missed = state["rounds"], state["missed"]
        self.left_out, self.reused = Counter(state["left_out"]), Counter(state["reused"])
        self.totals, self.metrics = state["totals"], state["metrics"]
        self.seconds = state["seconds"]
        self.ledger.restore(state["ledger"])

    def summary(self) -> Record:
        """Return the figures of this agent, the latest evaluation among them."""
        context = self.node.context
        return {
            "agent": self.node.name,
            "method": self.method,
            "seed": context.seed,
            "epochs": self.epoch,
            "rounds": self.rounds,
            "missed_rounds": self.missed,
            "left_out": dict(self.left_out),
            "reused": dict(self.reused),
            "dimension": self.node.agent.dimension,
            "neighbours": list(self.node.neighbours),
            "training_samples": len(self.node.agent.data.train),
            "last": self.last,
            "bytes_sent": self.ledger.bytes_sent(),
            "payload_bytes": self.ledger.payload_bytes(),
            "seconds": self.seconds,
            "peak_memory_bytes": peak_memory(),
        }

    def _identity(self) -> dict[str, Any]:
        node = self.node
        return {
            **node.shared_settings(),
            "method": describe(self.recipe),
            "name": node.name,
            "seed": node.context.seed,
            "neighbours": list(node.neighbours),
            **agent_identity(profile(node.agent, home=0)),
        }
