"""Measure what Sheaf-FMTL needs to train the paper's fifteen agents, beside dense maps.

python benchmarks/sheaf_fmtl_memory.py --gammas 1e-4 1e-3 3e-3 --exchanges 5

Every gamma trains in a child process of its own, with an exchange in every round, then evaluates
and writes a checkpoint. Images are random, of MNIST's shape: memory does not depend on them.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time

import torch
from rich.console import Console
from rich.table import Table

from sheafed import train
from sheafed.domain import graphs
from sheafed.domain.agent import Agent
from sheafed.experiments.families import family
from sheafed.methods import SheafFMTL
from sheafed.methods.sheaf_fmtl import edge_size
from sheafed.models import build_encoder, build_head

GIB = 2**30
BATCH = 64


def zoo(samples: int) -> tuple[list[Agent], list[tuple[str, str]]]:
    """Build the fifteen agents on random images, and the edges of the class-overlap graph."""
    specs = family("network", 0)
    torch.manual_seed(0)
    agents = []
    for name, spec in specs.items():
        data = {
            "train": (torch.rand(samples, 1, 28, 28), torch.randint(0, 10, (samples,))),
            "test": (torch.rand(samples, 1, 28, 28), torch.randint(0, 10, (samples,))),
        }
        encoder, head = build_encoder(spec, (1, 28, 28)), build_head(spec, 10)
        agents.append(Agent(name, encoder, head, data=data, batch_size=BATCH, clip=1.0))
    graph = graphs.class_overlap({name: spec.targets for name, spec in specs.items()}, 0.4)
    return agents, list(graph.edges)


def dense_entries(sizes: dict[str, int], edges: list[tuple[str, str]], gamma: float) -> int:
    """Return how many numbers all dense maps have."""
    return sum(edge_size(gamma, sizes[i], sizes[j]) * (sizes[i] + sizes[j]) for i, j in edges)


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Train with one gamma and return what it took."""
    torch.set_num_threads(1)
    agents, edges = zoo(samples=2 * BATCH)
    sizes = {agent.name: sum(p.numel() for p in agent.parameters) for agent in agents}
    gamma = arguments.gammas[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        run = train(
            agents,
            edges,
            SheafFMTL(penalty=arguments.penalty, gamma=gamma, every=arguments.every),
            torch.rand(arguments.pilots, 1, 28, 28),
            epochs=1,
            rounds_per_epoch=arguments.exchanges * arguments.every,
            out=out if arguments.checkpoint else None,
        )
        seconds = time.perf_counter() - start
    return {
        "gamma": gamma,
        "dense": dense_entries(sizes, edges, gamma),
        "before": before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "seconds": seconds,
        "wire": run.ledger.payload_bytes("round") / arguments.exchanges,
        "history": sum(len(node.maps) * sizes[name] for name, node in run.nodes.items()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gammas", type=float, nargs="+", default=[1e-4, 1e-3, 3e-3])
    parser.add_argument("--exchanges", type=int, default=5)
    parser.add_argument("--every", type=int, default=1, help="rounds between exchanges")
    parser.add_argument("--pilots", type=int, default=512, help="the paper has 7000")
    parser.add_argument("--penalty", type=float, default=1e-3)
    parser.add_argument("--checkpoint", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.exchanges < 1 or arguments.every < 1:
        parser.error("--exchanges and --every must be at least 1")
    if arguments.child:
        print(json.dumps(measure(arguments)))
        return

    checkpoint = "a checkpoint" if arguments.checkpoint else "no checkpoint"
    table = Table(
        title=f"Sheaf-FMTL, fifteen agents, {arguments.exchanges} exchanges, one thread, GiB",
        caption=f"peak: resident memory of training, evaluation and {checkpoint}; "
        "history: the rank-one terms at the end",
    )
    for heading in ("gamma", "dense float32", "float16", "peak", "history", "KiB sent", "s"):
        table.add_column(heading, justify="right")
    for gamma in arguments.gammas:
        options = [f"--exchanges={arguments.exchanges}", f"--every={arguments.every}"]
        options += [f"--pilots={arguments.pilots}"]
        options += [f"--penalty={arguments.penalty}", f"--gammas={gamma}", "--child"]
        options += [] if arguments.checkpoint else ["--no-checkpoint"]
        child = subprocess.run(
            [sys.executable, __file__, *options], check=True, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(child.stdout)
        table.add_row(
            f"{gamma:g}",
            f"{4 * found['dense'] / GIB:.2f}",
            f"{2 * found['dense'] / GIB:.2f}",
            f"{found['peak'] / GIB:.2f}",
            f"{4 * found['history'] / GIB:.2f}",
            f"{found['wire'] / 1024:.0f}",
            f"{found['seconds']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
