"""How much of what consensus distillation gains is a head that is fitted again after training?

    python benchmarks/refitted_head.py --only pair-64 pair-16
    python benchmarks/refitted_head.py --scale full --only pair-64 pair-16 --shares 0.02

Consensus distillation classifies own data by a head that was fitted, after training, to latents as
the encoder has them in use. Agents that train alone can have that too (`refit_head`). In cells of
the grid, with its rounds and seeds: training alone, the same with heads fitted again, and consensus
distillation; private / communication accuracy on test data. The last column is by how much the
private accuracy of consensus distillation exceeds that of refitted heads, with the 95 % interval of
differences paired by seed.
"""

import argparse
from statistics import fmean

import torch

from sheafed.bench.networks import BenchNetwork
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.evaluation import evaluate_locally
from sheafed.reproduction.grid import grid_plan
from sheafed.reproduction.grid.paired import paired_difference
from sheafed.reproduction.grid.plan import ALONE, RECOMMENDED, REFITTED
from sheafed.reproduction.grid.verdict import as_points
from sheafed.sweep import markdown_table
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier


def trained(model, trial, *more):
    """Train a run of the grid; return its nodes, with maps."""
    experiment = read_experiment(model.config, (*model.settings, *trial.overrides, *more))
    network = BenchNetwork.of(build_federation(experiment))
    for _ in range(experiment.training.epochs * experiment.training.rounds_per_epoch):
        network.step()
    fit_post_hoc_maps(network.nodes, Barrier(network.transport), network.round - 1)
    return network.nodes


def accuracies(nodes):
    """Return mean private and communication accuracy."""
    found = evaluate_locally(nodes, "test", oracle=False).summary()
    return found["private_accuracy"], found["communication_accuracy"]


def measure(plan, cell):
    """Return the accuracies of each row, by seed."""
    found = {ALONE: {}, REFITTED: {}, RECOMMENDED: {}}
    for trial in plan.trials_of(cell, ALONE):
        nodes = trained(cell.model, trial, "method.refit_head=true")
        found[REFITTED][trial.seed] = accuracies(nodes)
        for node in nodes.values():
            node.reading_head = None
        found[ALONE][trial.seed] = accuracies(nodes)
    for trial in plan.trials_of(cell, RECOMMENDED):
        found[RECOMMENDED][trial.seed] = accuracies(trained(cell.model, trial))
    return found


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=("quick", "full"), default="quick")
    parser.add_argument("--only", nargs="+", default=["digits", "pair-64", "pair-16"])
    parser.add_argument("--shares", nargs="+", type=float, help="of the data, by default all")
    given = parser.parse_args()
    plan, rows = grid_plan(given.scale), []
    for cell in plan.cells():
        if cell.model.name not in given.only or cell.share.fraction not in (
            given.shares or [cell.share.fraction]
        ):
            continue
        found = measure(plan, cell)
        private = {
            row: {s: values[0] for s, values in seeds.items()} for row, seeds in found.items()
        }
        means = [
            " / ".join(f"{fmean(each):.3f}" for each in zip(*seeds.values(), strict=True))
            for seeds in found.values()
        ]
        gain = paired_difference(private[RECOMMENDED], private[REFITTED])
        rows.append([cell.name, *means, as_points(gain)])
        print(" | ".join(rows[-1]), flush=True)
    print(markdown_table(["cell", ALONE, REFITTED, RECOMMENDED, "private, points"], rows))


if __name__ == "__main__":
    main()
