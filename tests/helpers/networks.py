"""Small networks of real Sheaf-FRL nodes over a real transport, in double precision."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from sheafed import Agent, SheafFRL, graphs
from sheafed.agents.objectives import Objective
from sheafed.agents.samples import Batch
from sheafed.graphs import Edge
from sheafed.methods import NodeContext
from sheafed.methods.sheaf_frl.node import SheafFRLNode
from sheafed.pilots.pilot_set import PilotSet, as_pilot_set
from sheafed.seeds import derive, generator
from sheafed.transport import LocalTransport
from sheafed.transport.message import Message
from tests.helpers.rounds import handshake, one_round

MIXED = {"a": 5, "b": 2, "c": 5, "d": 3}
EQUAL = dict.fromkeys("abcd", 4)
EDGES = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
"""In MIXED: a and c tie, a is head and c both head and tail, b is tail only, d is both."""
INPUTS = 3


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed, "tests"), dtype=torch.float64)


def orthonormal(seed: int, rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(normal(seed, rows, columns))[0]


def nothing(agent: Agent, batch: Batch) -> Tensor:
    """An objective that is 0 everywhere, and knows nothing of the head."""
    return 0 * next(agent.encoder.parameters()).sum()


def curved_encoder(seed: int, inputs: int, dimension: int, hidden: int = 6) -> nn.Module:
    encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, dimension))
    return drawn(encoder, seed)


def drawn(module: nn.Module, seed: int) -> nn.Module:
    """Fill a module with numbers that depend on the seed alone."""
    module = module.double()
    with torch.no_grad():
        for k, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(derive(seed, k), *parameter.shape))
    return module


def plain_sgd(rate: float) -> Callable[[Iterable[nn.Parameter]], SGD]:
    return lambda parameters: SGD(parameters, lr=rate)


def curved_agent(
    name: str,
    dimension: int,
    *,
    classes: int | None = None,
    objective: Objective = nothing,
    rate: float = 1.0,
    **more: Any,
) -> Agent:
    seed = derive(1, name)
    return Agent(
        name,
        curved_encoder(seed, INPUTS, dimension),
        None if classes is None else drawn(nn.Linear(dimension, classes), derive(2, name)),
        data=(normal(seed, 8, INPUTS), torch.zeros(8, dtype=torch.long)),
        objective=objective,
        optimizer=plain_sgd(rate),
        **more,
    )


def curved_agents(dims: Mapping[str, int], **more: Any) -> list[Agent]:
    return [curved_agent(name, dimension, **more) for name, dimension in dims.items()]


def pilots(total: int = 24) -> Tensor:
    return normal(77, total, INPUTS)


@dataclass
class Network:
    nodes: dict[str, SheafFRLNode]
    transport: LocalTransport
    edges: tuple[Edge, ...]
    pilots: PilotSet

    def round(self, number: int) -> dict[str, float]:
        return one_round(self.nodes, self.transport, number)

    def node_round(self, number: int, name: str) -> dict[str, float]:
        """Let all agents send, but only one agent receive."""
        for node in self.nodes.values():
            self.transport.send(node.send(number))
        node = self.nodes[name]
        inbox = self.transport.receive(name, number, "round", node.neighbours)
        return node.receive(number, inbox)

    def dimension(self, name: str) -> int:
        return self.nodes[name].agent.dimension

    def parameters(self) -> dict[str, list[Tensor]]:
        """Return copies of all parameters."""
        return {n: parameters(node.agent.encoder) for n, node in self.nodes.items()}

    def head_parameters(self) -> dict[str, list[Tensor]]:
        heads = {n: node.agent.head for n, node in self.nodes.items()}
        return {n: parameters(head) for n, head in heads.items() if head is not None}


def parameters(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def network(
    agents: Iterable[Agent],
    method: SheafFRL,
    shared: Any = None,
    edges: Iterable[tuple[str, str]] = EDGES,
    *,
    seed: int = 0,
    rounds_per_epoch: int = 1,
    drop: Callable[[Message], bool] | None = None,
) -> Network:
    """Wire agents up as `sheafed.train` does, and shake hands."""
    by_name = {agent.name: agent for agent in agents}
    dims = {name: agent.dimension for name, agent in by_name.items()}
    graph = graphs.from_edges(edges, list(by_name))
    common = as_pilot_set(pilots() if shared is None else shared)
    nodes = {}
    for name, agent in by_name.items():
        agent.reset_rng(seed)
        context = NodeContext(
            agent,
            tuple(sorted(graph.neighbors(name))),
            common,
            seed,
            derive(seed, name, "secret"),
            rounds_per_epoch,
            len(set(dims.values())) == 1,
        )
        nodes[name] = method.node(context)
    transport = LocalTransport(list(nodes), drop=drop)
    handshake(nodes, transport)
    return Network(nodes, transport, graphs.orient(graph, dims), common)
