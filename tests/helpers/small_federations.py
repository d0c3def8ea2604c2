"""Small networks of agents, built by hand, for the tests of the protocols."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence

import networkx as nx
import torch
from torch import Tensor, nn

from sheafed import Agent, PilotSet, SheafFRL
from sheafed.agents import paper_optimizer
from sheafed.methods.node import Method, Node, NodeContext
from sheafed.methods.shared_solver import solve
from sheafed.seeds import derive
from sheafed.transport import LocalTransport, decode
from sheafed.transport.message import Message
from tests.helpers.rounds import handshake, one_round

INPUTS, CLASSES = 6, 3


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=stream, dtype=torch.float64).to(dtype)


def orthonormal(seed: int, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linalg.qr(normal(seed, rows, columns, dtype=torch.float64))[0].to(dtype)


def samples(seed: int, count: int, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Blobs around one centre per class."""
    centres = 2 * normal(99, classes, INPUTS)
    targets = torch.arange(count) % classes
    return centres[targets] + normal(seed, count, INPUTS), targets


def pilots(count: int = 48, seed: int = 7) -> Tensor:
    return samples(seed, count)[0]


def encoder(d: int, seed: int, *layers: nn.Module) -> nn.Sequential:
    """A small network to `d` latents, with other layers before the last one."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(INPUTS, 16), nn.Tanh(), *layers, nn.Linear(16, d))


def linear_head(d: int, seed: int, classes: int = CLASSES) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(d, classes)


def agent(name: str, d: int, seed: int = 0, *layers: nn.Module, **options: object) -> Agent:
    """An agent whose weights and data follow from its name and the seed."""
    own = derive(seed, name) % 2**31
    given = {
        "encoder": encoder(d, own, *layers),
        "head": linear_head(d, own + 1),
        "data": {"train": samples(own + 2, 64), "test": samples(own + 3, 60)},
        "batch_size": 16,
        "optimizer": paper_optimizer,
    }
    return Agent(name, **(given | options))


class Turn(nn.Module):
    """A fixed rotation of rows."""

    def __init__(self, q: Tensor) -> None:
        super().__init__()
        self.register_buffer("q", q)

    def forward(self, z: Tensor) -> Tensor:
        return z @ self.q.mT


def turned(a: Agent, q: Tensor) -> Agent:
    """The same agent in a latent space that is turned by q."""
    encoder = nn.Sequential(*copy.deepcopy(list(a.encoder)), Turn(q))
    head = nn.Sequential(Turn(q.mT), copy.deepcopy(a.head))
    options = {"batch_size": a.batch_size, "optimizer": paper_optimizer}
    return Agent(a.name, encoder, head, data=a.data, **options)


def in_double(a: Agent) -> Agent:
    (x, y), (tx, ty) = ((s.inputs, s.targets) for s in (a.data.train, a.data.test))
    data = {"train": (x.double(), y), "test": (tx.double(), ty)}
    options = {"batch_size": a.batch_size, "optimizer": paper_optimizer}
    return Agent(a.name, a.encoder.double(), a.head.double(), data=data, **options)


def nodes_of(
    agents: Iterable[Agent],
    edges: nx.Graph | Sequence[tuple[str, str]],
    method: Method | Mapping[str, Method] | None = None,
    shared: Tensor | PilotSet | Mapping[str, PilotSet] | None = None,
    *,
    seed: int = 0,
    seeds: Mapping[str, int] | None = None,
    rounds_per_epoch: int = 4,
) -> dict[str, Node]:
    """The nodes of some agents; method, pilots and seed may differ from agent to agent."""
    agents = list(agents)
    graph = nx.Graph(edges)
    graph.add_nodes_from(a.name for a in agents)
    homogeneous = len({a.dimension for a in agents}) == 1
    shared = pilots() if shared is None else shared
    nodes = {}
    for a in agents:
        own = method[a.name] if isinstance(method, Mapping) else method or SheafFRL()
        mine = shared[a.name] if isinstance(shared, Mapping) else shared
        mine = mine if isinstance(mine, PilotSet) else PilotSet(mine)
        known = (seeds or {}).get(a.name, seed)
        a.reset_rng(known)
        neighbours = tuple(sorted(graph.neighbors(a.name)))
        secret = derive(seed, a.name, "secret")
        context = NodeContext(a, neighbours, mine, known, secret, rounds_per_epoch, homogeneous)
        nodes[a.name] = own.node(context)
    return nodes


class MessageRecorder:
    """An in-process transport, and every message that it carried."""

    def __init__(self, names: Iterable[str], drop: Callable[[Message], bool] | None = None) -> None:
        self.messages: list[Message] = []
        self.transport = LocalTransport(
            list(names), tap=lambda data: self.messages.append(decode(data)), drop=drop
        )

    def of_round(self, round: int) -> dict[tuple[str, str], Message]:
        """The messages of one round, by (sender, receiver)."""
        return {
            (m.sender, m.receiver): m
            for m in self.messages
            if m.kind == "round" and m.round == round
        }


def run_rounds(
    nodes: Mapping[str, Node], rounds: int, recorder: MessageRecorder | None = None
) -> MessageRecorder:
    """Shake hands and train for some rounds."""
    recorder = recorder or MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for round in range(rounds):
        one_round(nodes, recorder.transport, round)
    return recorder


class CountingSolver:
    """Solves Procrustes problems and remembers their shapes."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, m: Tensor, previous: Tensor) -> Tensor:
        rows, columns = m.shape
        self.shapes.append((rows, columns))
        return solve(m, previous)

    @property
    def cost(self) -> int:
        """The sum of rows × columns², what the paper counts for a thin SVD."""
        return sum(rows * columns**2 for rows, columns in self.shapes)


def weights_of(agents: Iterable[Agent]) -> dict[str, dict[str, Tensor]]:
    """A copy of all parameters and buffers."""
    return {
        a.name: {
            f"{part} {key}": value.clone()
            for part, module in (("encoder", a.encoder), ("head", a.head))
            if module is not None
            for key, value in module.state_dict().items()
        }
        for a in agents
    }


def same_weights(one: Iterable[Agent], other: Iterable[Agent]) -> bool:
    """Whether two networks agree in every bit."""
    left, right = weights_of(one), weights_of(other)
    return left.keys() == right.keys() and all(
        left[name].keys() == right[name].keys()
        and all(torch.equal(value, right[name][key]) for key, value in left[name].items())
        for name in left
    )
