"""Networks to measure: the paper's fifteen agents, and many small ones.

Their images are scikit-learn's digits, enlarged where necessary: they need no download, and their
latents are as correlated as those of real images, which determines the time of map updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import networkx as nx
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.optim import SGD

from sheafed import datasets, graphs
from sheafed.agents.agent import Agent
from sheafed.agents.samples import ByteSamples, LocalData
from sheafed.config.federation import Federation
from sheafed.datasets.labelled_dataset import LabelledDataset
from sheafed.methods import Method, Node
from sheafed.methods.build_node import build_node
from sheafed.models import AGENT_ZOO, AgentSpec, build_encoder, build_head
from sheafed.pilots.pilot_set import PilotSet
from sheafed.seeds import derive
from sheafed.training.single_round import handshake, run_round
from sheafed.transport import Barrier, LocalTransport

CLASSES, BATCH = 10, 64
SMALL = AgentSpec((8, 16), (16,))
"""Small enough for a thousand agents on one machine."""


@dataclass
class BenchNetwork:
    """Nodes after their handshake, and the number of the next round."""

    nodes: Mapping[str, Node]
    transport: LocalTransport
    graph: nx.Graph[str]
    round: int = 0

    @property
    def pilots(self) -> PilotSet:
        """Those that all agents share."""
        return next(iter(self.nodes.values())).context.pilots

    @classmethod
    def of(cls, federation: Federation) -> BenchNetwork:
        """Return the network of a config."""
        nodes = {agent.name: federation.build_node(agent.name) for agent in federation.agents}
        return _with_handshake(nodes, federation.graph)

    def step(self, multiple: int = 1) -> None:
        """Run the next round, or the next whose number is a multiple of `multiple`."""
        self.round += -self.round % multiple
        run_round(self.nodes, Barrier(self.transport), self.round)
        self.round += 1


def zoo(
    method: Method, *, train: int = 512, test: int = 430, pilots: int = 1024, seed: int = 0
) -> BenchNetwork:
    """Return the fifteen agents and 42 edges of the paper.

    Args:
        method: that of all agents.
        train: samples of each agent; on MNIST 3,106 to 3,740, which makes no difference to a round.
        test: samples of each agent, about as many as on MNIST.
        pilots: in total; a round draws 64.
        seed: of weights and data.
    """
    specs = {f"agent-{k:02}": spec for k, spec in enumerate(AGENT_ZOO)}
    graph = graphs.class_overlap({name: spec.target_classes for name, spec in specs.items()}, 0.4)
    agents = [
        _agent(name, spec, 28, train, test, seed, max_grad_norm=1.0) for name, spec in specs.items()
    ]
    return _network(agents, graph, method, _digits(pilots, 28, seed)[0] / 255)


def ring_of_small_agents(count: int, method: Method, seed: int = 0) -> BenchNetwork:
    """Return small agents with four neighbours each, on a ring."""
    names = [f"agent-{k:04}" for k in range(count)]
    ring = [(names[k], names[(k + step) % count]) for k in range(count) for step in (1, 2)]
    return small_agents(names, ring, method, seed)


def small_agents(
    names: Sequence[str], edges: Sequence[tuple[str, str]], method: Method, seed: int = 0
) -> BenchNetwork:
    """Return agents of one small architecture on a graph."""
    graph = graphs.from_edges(edges, names)
    agents = [small_agent(name, seed) for name in names]
    return _network(agents, graph, method, small_pilots(seed))


def small_agent(name: str, seed: int = 0) -> Agent:
    """Return one of them."""
    return _agent(name, SMALL, 8, 128, 32, seed)


def small_pilots(seed: int = 0) -> Tensor:
    """Return the inputs that they share."""
    return _digits(256, 8, seed)[0] / 255


def _agent(
    name: str, spec: AgentSpec, size: int, train: int, test: int, seed: int, **options: Any
) -> Agent:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, name, "weights"))
        encoder: nn.Module = build_encoder(spec, (1, size, size))
        head = build_head(spec, CLASSES)
    return Agent(
        name,
        encoder,
        head,
        data=LocalData(
            train=ByteSamples(*_digits(train, size, derive(seed, name, "train"))),
            test=ByteSamples(*_digits(test, size, derive(seed, name, "test"))),
        ),
        optimizer=lambda p: SGD(p, lr=1e-2, momentum=0.9, weight_decay=5e-4),
        batch_size=BATCH,
        **options,
    )


def _digits(count: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images `(n, 1, size, size)` as bytes, drawn with replacement, and their labels."""
    samples = _all_digits(size)
    stream = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(samples.labels), (count,), generator=stream)
    return samples.inputs[chosen], samples.labels[chosen]


@cache
def _all_digits(size: int) -> LabelledDataset:
    digits = datasets.load("digits")
    images = interpolate(digits.float_inputs(), (size, size), mode="bilinear")
    return replace(digits, inputs=(255 * images).round().byte())


def _network(
    agents: Sequence[Agent], graph: nx.Graph[str], method: Method, pilots: Tensor
) -> BenchNetwork:
    shared = PilotSet(pilots)
    homogeneous = len({agent.dimension for agent in agents}) == 1
    nodes = {
        agent.name: build_node(
            method,
            agent,
            graph.neighbors(agent.name),
            shared,
            seed=0,
            rounds_per_epoch=48,
            homogeneous=homogeneous,
        )
        for agent in agents
    }
    return _with_handshake(nodes, graph)


def _with_handshake(nodes: Mapping[str, Node], graph: nx.Graph[str]) -> BenchNetwork:
    transport = LocalTransport(list(nodes))
    handshake(nodes, Barrier(transport))
    return BenchNetwork(nodes, transport, graph)
