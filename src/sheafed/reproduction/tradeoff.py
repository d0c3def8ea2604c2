"""tab:tradeoff: bytes and map updates of both privacy levels, measured and by the formulas."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sheafed.atomic_io import write_atomically
from sheafed.config.agents import agent_specs
from sheafed.config.experiment import Experiment
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.errors import ConfigError
from sheafed.graphs import incoming, orient, outgoing
from sheafed.methods import SheafFRL
from sheafed.methods.node import ROUND, Node, NodeContext
from sheafed.methods.shared_solver import solve
from sheafed.options import tag_of
from sheafed.reproduction import tradeoff_tables
from sheafed.reproduction.figures import write_files
from sheafed.reproduction.shift import SMALL
from sheafed.reproduction.tradeoff_tables import PRIVACIES, SIZES, Measurements, Privacy
from sheafed.training import train

FLOAT = 4
Shape = tuple[int, int]


@dataclass(frozen=True)
class TradeoffPlan:
    """The agents to measure, and for how many rounds."""

    scale: str
    config: str
    settings: tuple[str, ...]
    rounds: int
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.rounds % 2:
            raise ConfigError(
                f"rounds must be even, as strict endpoints update in turn, got {self.rounds}"
            )

    def experiment(self, sizes: str, privacy: Privacy, seed: int) -> Experiment:
        """Return the experiment of a cell of the table.

        Homogeneous agents all have the architecture whose latent size is nearest to the mean, so
        that both rows are of the same order; target classes, and with them the graph, stay.
        """
        paper = ("method.name=sheaf-frl", "method.exchange_every=1", "method.quantisation=none")
        overrides = (*paper, *self.settings, f"method.privacy={privacy}")
        experiment = read_experiment(self.config, (*overrides, f"seed={seed}"))
        if sizes == "heterogeneous":
            return experiment
        specs = agent_specs(experiment, classes=10)
        mean = statistics.fmean(spec.latent for spec in specs.values())
        one = min(specs.values(), key=lambda spec: abs(spec.latent - mean))
        agents = [
            {
                "name": name,
                "encoder": one.kind,
                "widths": one.encoder,
                "head": one.head,
                "dropout": one.dropout,
                "target_classes": spec.target_classes,
            }
            for name, spec in specs.items()
        ]
        content = experiment.model_dump() | {"model": {"agents": agents}}
        return Experiment.model_validate(content)


def quick(seeds: Sequence[int]) -> TradeoffPlan:
    """Five of the fifteen agents, a few rounds."""
    members = ", ".join(f'"{name}"' for name in SMALL)
    settings = (
        f"model.members=[{members}]",
        "data.train_fraction=0.05",
        "data.pilot_fraction=0.02",
    )
    return TradeoffPlan("quick", "fifteen", settings, rounds=10, seeds=tuple(seeds))


def paper(seeds: Sequence[int]) -> TradeoffPlan:
    """The fifteen agents for an epoch."""
    return TradeoffPlan("paper", "fifteen", (), rounds=48, seeds=tuple(seeds))


@dataclass
class TimedSolver:
    """Solves Procrustes problems; records their shapes and the CPU seconds of this thread."""

    shapes: list[Shape] = field(default_factory=list)
    seconds: float = 0.0

    def __call__(self, m: Tensor, previous: Tensor) -> Tensor:
        began = time.thread_time()
        solution = solve(m, previous)
        self.seconds += time.thread_time() - began
        self.shapes.append((m.shape[0], m.shape[1]))
        return solution


class TimedSheafFRL:
    """Sheaf-FRL with a `TimedSolver` per agent."""

    def __init__(self, method: SheafFRL) -> None:
        self.method = method
        self.solvers: dict[str, TimedSolver] = {}

    @property
    def label(self) -> str:
        return self.method.label

    def node(self, context: NodeContext) -> Node:
        own = self.solvers.setdefault(context.agent.name, TimedSolver())
        return replace(self.method, solver=own).node(context)


def floats_sent(
    privacy: Privacy, d: int, below: Sequence[int], above: Sequence[int], K: int
) -> int:
    r"""Return how many numbers agent i sends in a round (tab:tradeoff, communication).

    Args:
        privacy: the protocol.
        d: d_i.
        below: the latent sizes of N(i)^-, not larger than d_i.
        above: the latent sizes of N(i)^+.
        K: pilots in a round.
    """
    if privacy == "standard":
        return (len(below) + len(above)) * d * K
    return len(below) * d * K + K * sum(above)


def decompositions(
    privacy: Privacy, homogeneous: bool, d: int, below: Sequence[int], above: Sequence[int]
) -> list[Shape]:
    """Return the shapes of the problems that agent i solves to fit each of its maps once.

    With standard privacy that takes a round; with strict privacy two, as endpoints take turns.
    """
    if privacy == "strict":
        return [(d, d)] * len(below) + [(other, d) for other in above]
    if homogeneous:
        return [(d, d)] * len(above)
    return [(d, other) for other in below] + [(other, d) for other in above]


def svd_operations(shapes: Sequence[Shape]) -> int:
    r"""Return $\sum d_\text{large} d_\text{small}^2$, the order of the operations of the SVDs."""
    return sum(rows * columns**2 for rows, columns in shapes)


def measure(experiment: Experiment, rounds: int) -> dict[str, dict[str, float]]:
    """Train for some rounds; return by agent what was measured and what the formulas give.

    Bytes are those of tensors per round, without headers; decompositions, their operations and
    seconds are per update of all maps of the agent.
    """
    federation = build_federation(experiment)
    method = experiment.method
    if not isinstance(method, SheafFRL) or not isinstance(method.pilots_per_round, int):
        raise ConfigError(
            f"tab:tradeoff needs method.name=sheaf-frl, got method.name={tag_of(method)}"
        )
    whole = method.quantisation == "none" and method.edge_dim is None
    if method.distillation or method.exchange_every != 1 or not whole:
        raise ConfigError(
            "the formulas of tab:tradeoff hold for whole latents in every round; leave out "
            "method.distillation, method.exchange_every, method.quantisation and method.edge_dim"
        )
    timed = TimedSheafFRL(method)
    with _one_thread():
        run = train(
            federation.agents,
            federation.graph,
            timed,
            federation.pilots,
            epochs=1,
            rounds_per_epoch=rounds,
            seed=experiment.seed,
            oracle=False,
            progress=False,
        )
    dims = {agent.name: agent.dimension for agent in federation.agents}
    edges = orient(federation.graph, dims)
    homogeneous = len(set(dims.values())) == 1
    pilots = min(method.pilots_per_round, federation.pilots.total)
    updates = rounds if method.privacy == "standard" else rounds // 2
    found = {}
    for name, d in dims.items():
        below = [dims[j] for j in incoming(edges, name)]
        above = [dims[j] for j in outgoing(edges, name)]
        sent = sum(
            row.payload_bytes
            for row in run.history.ledger.rows()
            if row.kind == ROUND and row.sender == name
        )
        own = timed.solvers[name]
        expected = decompositions(method.privacy, homogeneous, d, below, above)
        found[name] = {
            "dimension": d,
            "bytes": sent / rounds,
            "bytes_formula": FLOAT * floats_sent(method.privacy, d, below, above, pilots),
            "decompositions": len(own.shapes) / updates,
            "decompositions_formula": len(expected),
            "operations": svd_operations(own.shapes) / updates,
            "operations_formula": svd_operations(expected),
            "seconds": own.seconds / updates,
        }
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def reproduce(plan: TradeoffPlan, out: Path) -> str:
    """Measure what is missing, one cell at a time; write figure, tables and description."""
    found = {
        (sizes, privacy, seed): _measured(plan, out, sizes, privacy, seed)
        for sizes in SIZES
        for privacy in PRIVACIES
        for seed in plan.seeds
    }
    agents = len(next(iter(found.values())))
    subtitle = f"{plan.scale}: {agents} agents, {plan.rounds} rounds, {len(plan.seeds)} seeds"
    figure = tradeoff_tables.draw(found, subtitle)
    csv, markdown = tradeoff_tables.as_csv(found), tradeoff_tables.as_markdown(found)
    text = _description(plan, found, agents)
    write_files(out, "tradeoff", figure, csv, markdown, text)
    return text


def _measured(
    plan: TradeoffPlan, out: Path, sizes: str, privacy: Privacy, seed: int
) -> dict[str, Any]:
    """Return the measurements of a cell, from its file if it has been measured."""
    experiment = plan.experiment(sizes, privacy, seed)
    path = out / "runs" / f"{sizes}-{privacy}-seed-{seed}.json"
    made_of = {"rounds": plan.rounds, "experiment": experiment.model_dump(mode="json")}
    if path.exists():
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["made_of"] != made_of:
            raise ConfigError(f"{path} was measured with another config; choose another --out")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"made_of": made_of, "agents": measure(experiment, plan.rounds)}
        write_atomically(path, json.dumps(content, indent=2).encode())
        print(f"done: {path.stem}", flush=True)
    agents: dict[str, Any] = content["agents"]
    return agents


def _description(plan: TradeoffPlan, found: Measurements, agents: int) -> str:
    def dims(sizes: str) -> str:
        cell = found[sizes, "standard", plan.seeds[0]]
        return ", ".join(str(d) for d in sorted({int(a["dimension"]) for a in cell.values()}))

    experiment = plan.experiment("heterogeneous", "standard", plan.seeds[0])
    return (
        f"tab:tradeoff at scale {plan.scale}. {agents} agents of {plan.config} on "
        f"{experiment.data.name} train with Sheaf-FRL for {plan.rounds} rounds, with seeds "
        f"{', '.join(map(str, plan.seeds))}, one cell at a time, on one torch thread. "
        f"Heterogeneous latent sizes: {dims('heterogeneous')}; homogeneous: {dims('homogeneous')}, "
        "all agents with the architecture whose latent size is nearest to the mean, on the same "
        "graph. Bytes are those of the tensors in the ledger, without headers. In an update all "
        "maps of an agent are fitted once: it takes a round with standard privacy, two with strict "
        "privacy, where the endpoints of an edge take turns. The operations of a decomposition are "
        "the larger times the square of the smaller latent size. Every agent solves its own "
        "problems, as on separate machines; milliseconds are CPU time. Values are means over "
        "agents, ± the standard deviation over seeds.\n"
    )
