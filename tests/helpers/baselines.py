"""Agents on scikit-learn's digits, and small networks in double precision, for the baselines."""

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim import SGD

from sheafed import Agent
from sheafed.agents import paper_optimizer
from sheafed.agents.objectives import Objective
from sheafed.agents.samples import Batch
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.methods import NonCooperative
from sheafed.methods.node import Method, Node
from sheafed.transport.message import Message
from tests.helpers.rounds import handshake, one_round
from tests.helpers.small_federations import (
    CLASSES,
    MessageRecorder,
    agent,
    in_double,
    nodes_of,
    same_weights,
)

PAIR = [("a", "b")]
TRIANGLE = [("a", "b"), ("a", "c"), ("b", "c")]


def digits() -> tuple[Tensor, Tensor]:
    """All 1797, shuffled, with inputs in [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.as_tensor(images / 16, dtype=torch.float32)[order], torch.as_tensor(labels)[order]


def digit_agents(sizes: Mapping[str, int], hidden: int = 32) -> tuple[list[Agent], Tensor]:
    """Agents with equal shares of the digits and different weights, and 297 pilots."""
    inputs, labels = digits()
    share = 1500 // len(sizes)
    agents = []
    for k, (name, d) in enumerate(sizes.items()):
        own = slice(297 + k * share, 297 + (k + 1) * share)
        x, y = inputs[own], labels[own]
        with torch.random.fork_rng():
            torch.manual_seed(k)
            encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, d))
            head = nn.Sequential(nn.ReLU(), nn.Linear(d, 10))
        data = {"train": (x[: share - 100], y[: share - 100]), "test": (x[-100:], y[-100:])}
        options = {"batch_size": 32, "optimizer": paper_optimizer}
        agents.append(Agent(name, encoder, head, data=data, **options))
    return agents, inputs[:297]


def nothing(agent: Agent, batch: Batch) -> Tensor:
    """An objective that is 0 everywhere, but encodes the batch as others do."""
    return 0 * agent.encode(batch.inputs).sum()


def quiet(
    sizes: Mapping[str, int], rate: float = 0.5, objective: Objective = nothing
) -> list[Agent]:
    """Agents in double precision that a coupling term alone moves, by plain gradient steps."""
    agents = []
    for name, d in sizes.items():
        born = in_double(agent(name, d))
        agents.append(
            Agent(
                name,
                born.encoder,
                born.head,
                data=born.data,
                batch_size=16,
                objective=objective,
                optimizer=lambda parameters: SGD(parameters, lr=rate),
            )
        )
    return agents


def before_last(a: Agent, inputs: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the last layer of an encoder sees, its weights and its bias, as NumPy has them."""
    first, last = a.encoder[0], a.encoder[-1]
    w, b = first.weight.detach().numpy(), first.bias.detach().numpy()
    hidden = np.tanh(inputs.numpy() @ w.T + b)
    return hidden, last.weight.detach().numpy().copy(), last.bias.detach().numpy().copy()


def latents_by_hand(a: Agent, inputs: Tensor) -> np.ndarray:
    hidden, w, b = before_last(a, inputs)
    return hidden @ w.T + b


def class_means(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean of each class, sample by sample; NaN where there are none."""
    means = np.full((CLASSES, vectors.shape[1]), np.nan)
    for c in range(CLASSES):
        members = [v for v, y in zip(vectors, labels, strict=True) if y == c]
        if members:
            means[c] = sum(members) / len(members)
    return means


def noisy(sizes: Mapping[str, int]) -> list[Agent]:
    """Small agents with batch norm and dropout."""
    return [agent(name, d, 0, nn.BatchNorm1d(16), nn.Dropout(0.3)) for name, d in sizes.items()]


class Training:
    """A network under way, round by round, and what it has logged."""

    def __init__(
        self,
        agents: Iterable[Agent],
        edges: list[tuple[str, str]],
        method: Method,
        pilots: Tensor | None = None,
        *,
        rounds_per_epoch: int = 4,
        drop: Callable[[Message], bool] | None = None,
    ) -> None:
        self.agents = list(agents)
        self.nodes: dict[str, Node] = nodes_of(
            self.agents, edges, method, pilots, rounds_per_epoch=rounds_per_epoch
        )
        self.recorder = MessageRecorder(self.nodes, drop)
        handshake(self.nodes, self.recorder.transport)
        self.done = 0
        self.logs: list[dict[str, float]] = []

    def run(self, rounds: int) -> "Training":
        for _ in range(rounds):
            self.logs.append(one_round(self.nodes, self.recorder.transport, self.done))
            self.done += 1
        return self

    def sent(self) -> list[Message]:
        """What crossed the wire after the handshake."""
        return [m for m in self.recorder.messages if m.kind != "hello"]

    def penalties(self) -> list[float]:
        return [log["penalty"] for log in self.logs if "penalty" in log]


def batch_of(node: Node) -> tuple[Tensor, Tensor]:
    """The batch that a node will meet next."""
    position = node.agent.order.position
    batch = node.agent.next_batch()
    node.agent.order.seek(position)
    assert batch.targets is not None
    return batch.inputs, batch.targets


def receive_one(training: Training, name: str) -> dict[str, float]:
    """Let all agents send, but only one agent receive; return what it logs."""
    round, transport = training.done, training.recorder.transport
    for node in training.nodes.values():
        transport.send(node.send(round))
    node = training.nodes[name]
    return node.receive(round, transport.receive(name, round, "round", node.neighbours))


def trained_apart(**sizes: int) -> tuple[list[Agent], Tensor]:
    """Agents that know the digits, and nothing of each other."""
    agents, pilots = copy.deepcopy(_trained_apart(tuple(sizes.items())))
    return agents, pilots


@cache
def _trained_apart(sizes: tuple[tuple[str, int], ...]) -> tuple[list[Agent], Tensor]:
    agents, pilots = digit_agents(dict(sizes))
    Training(agents, [], NonCooperative(), pilots).run(500)
    return agents, pilots


def assert_resumes(
    make: Callable[[], Training], before: int, after: int, path: Path, coupling: str = "penalty"
) -> None:
    """Check that a training goes on from a checkpoint in another network as if nothing was."""
    whole, resumed = make().run(before), make()
    for name, node in whole.nodes.items():
        save_checkpoint(path, {"agent": node.agent.state(), "node": node.state()})
        state = load_checkpoint(path)
        resumed.nodes[name].agent.load_state(state["agent"])
        resumed.nodes[name].load_state(state["node"])
    resumed.done = before
    whole.run(after)
    resumed.run(after)
    assert same_weights(whole.agents, resumed.agents)
    assert whole.logs[before:] == resumed.logs
    assert any(coupling in log for log in resumed.logs)
