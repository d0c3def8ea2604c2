"""The paper's adaptive pilots, those of largest mismatch (app:pilots), against uniform ones.

Every few rounds the pilots are ranked by their mismatch, summed over both ends of all edges, and
the K largest are used until the next ranking. To rank them, neighbours would have to exchange the
latents of all M pilots; here they are compared in one process, and these bytes are added.
"""

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sheafed import Network, SheafFRL, train
from sheafed.config import build_federation, read_experiment
from sheafed.pilots import Selection
from sheafed.training import Callback

REFRESH = 8
"""Rounds from one ranking to the next."""


class LargestMismatch(Callback):
    """A policy of all agents, which a callback keeps up to date."""

    def __init__(self, total: int, count: int) -> None:
        self.total, self.count = total, count
        self.indices = torch.arange(count)
        self.ranking_bytes = 0

    def select(self, round: int) -> Selection:
        return Selection(self.indices)

    def on_round(self, network: Network, log: Mapping[str, float]) -> None:
        if network.history.rounds % REFRESH:
            return
        white = {name: node.white_pilots() for name, node in network.nodes.items()}
        mismatch = torch.zeros(self.total)
        for name, node in network.nodes.items():
            for neighbour in node.neighbours:
                arrived = node.endpoints[neighbour].incoming(white[neighbour])
                mismatch += (white[name] - arrived).square().sum(dim=1)
                self.ranking_bytes += white[neighbour].nbytes
        self.indices = _largest(mismatch, self.count)


def _largest(mismatch: Tensor, count: int) -> Tensor:
    return mismatch.argsort(descending=True, stable=True)[:count].sort().values


def run(penalty: float, count: int, seed: int, *, adaptive: bool) -> tuple[float, float, float]:
    """Return private and communication accuracy, and MiB with those of the rankings."""
    experiment = read_experiment("digits", [f"seed={seed}"])
    federation = build_federation(experiment)
    policy = LargestMismatch(federation.pilots.total, count)
    method = SheafFRL(penalty, pilots_per_round=policy if adaptive else count)
    federation = replace(federation, method=method)
    network = train(
        federation.agents,
        federation.graph,
        method,
        federation.pilots,
        epochs=experiment.training.epochs,
        seed=seed,
        rounds_per_epoch=federation.rounds_per_epoch,
        evaluate_every=experiment.training.epochs,
        callbacks=[policy] if adaptive else [],
        oracle=False,
        progress=False,
    )
    last = network.history.records[-1]
    sent = (last["bytes_sent"] + policy.ranking_bytes) / 2**20
    return last["private_accuracy"], last["communication_accuracy"], sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--penalties", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--pilots", type=int, nargs="+", default=[32, 64])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| penalty | pilots | selection | private | communication | MiB |")
    print("|---|---|---|---|---|---|")
    for penalty in arguments.penalties:
        for count in arguments.pilots:
            for adaptive in (False, True):
                found = [
                    run(penalty, count, seed, adaptive=adaptive) for seed in range(arguments.seeds)
                ]
                private, communication, sent = zip(*found, strict=True)
                cells = [
                    f"{statistics.fmean(values):.3f} ± {statistics.pstdev(values):.3f}"
                    for values in (private, communication)
                ]
                name = "largest mismatch" if adaptive else "uniform"
                mib = f"{statistics.fmean(sent):.1f}"
                print(f"| {penalty} | {count} | {name} | {' | '.join(cells)} | {mib} |", flush=True)


if __name__ == "__main__":
    main()
