"""How much of what consensus distillation gains is a head that is fitted again after training?

    python benchmarks/refitted_head.py --only pair-64 pair-16

Consensus distillation classifies own data by a head that was fitted, after training, to latents as
the encoder has them in inference mode. Agents that train alone could have that too. Here they do:
the runs of the row "Alone" in the quick grid, then a copy of each head is fitted to own training
samples by the steps, batches and learning rate of a reading head. Private accuracy on test data.
"""

import argparse
from statistics import fmean, stdev

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from sheafed.agents.objectives import soft_cross_entropy
from sheafed.bench.networks import BenchNetwork
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.methods.consensus import count_classes
from sheafed.methods.consensus_head import copy_head
from sheafed.methods.own_offset import own_latents
from sheafed.methods.reading_head_fit import BATCH_SIZE, LEARNING_RATE, STEPS
from sheafed.reproduction.grid import grid_plan
from sheafed.reproduction.grid.plan import ALONE
from sheafed.seeds import generator
from sheafed.sweep import markdown_table


def refitted(agent, seed):
    """Return a copy of an agent's head, fitted to own training samples in inference mode."""
    head = copy_head(agent).requires_grad_(True).train()
    (latents, labels) = own_latents(agent, count_classes(agent))[0]
    order = generator(seed, agent.name, "refitted head")
    optimizer = AdamW(head.parameters(), lr=LEARNING_RATE)
    schedule = CosineAnnealingLR(optimizer, STEPS)
    torch.manual_seed(seed)  # of dropout
    for _ in range(STEPS):
        rows = torch.randperm(len(latents), generator=order)[:BATCH_SIZE]
        optimizer.zero_grad()
        soft_cross_entropy(head(latents[rows]), labels[rows]).backward()
        optimizer.step()
        schedule.step()
    return head.eval()


@torch.no_grad()
def accuracy(agent, head: nn.Module) -> float:
    latents, labels = agent.encode_samples(agent.data.test)
    return float((head(latents).argmax(-1) == labels).float().mean())


def measure(trial, model):
    """Train alone; return the mean private accuracy with the trained and with refitted heads."""
    experiment = read_experiment(model.config, (*model.settings, *trial.overrides))
    network = BenchNetwork.of(build_federation(experiment))
    for _ in range(experiment.training.epochs * experiment.training.rounds_per_epoch):
        network.step()
    agents = [node.agent for node in network.nodes.values()]
    before = fmean(accuracy(agent, agent.head.eval()) for agent in agents)
    return before, fmean(accuracy(agent, refitted(agent, trial.seed)) for agent in agents)


def main() -> None:
    torch.set_num_threads(1)
    plan = grid_plan("quick")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [model.name for model in plan.models]
    parser.add_argument("--only", nargs="+", choices=names, default=["digits", "pair-64"])
    given = parser.parse_args()
    rows = []
    for cell in (cell for cell in plan.cells() if cell.model.name in given.only):
        found = [measure(trial, cell.model) for trial in plan.trials_of(cell, ALONE)]
        gains = [after - before for before, after in found]
        rows.append(
            [
                cell.name,
                *(f"{fmean(each):.3f}" for each in zip(*found, strict=True)),
                f"{100 * fmean(gains):+.1f} ± {100 * stdev(gains):.1f}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    print(markdown_table(["cell", "alone", "alone, heads fitted again", "points"], rows))


if __name__ == "__main__":
    main()
