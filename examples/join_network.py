"""A fourth agent joins three that have trained together: readable at once, better after a while.

It has trained alone, on its own digits, and then joins by its latents of the pilots, without any
training. Then it trains on, half as long as before, while not a bit of the others changes; or all
four train on. The table shows how well the neighbours read what the new agent sends, how well it
reads what they send, its own accuracy, and that of the others on their own and each other's digits.
"""

import argparse
import copy
from statistics import fmean as mean

import torch
from rich.console import Console
from rich.table import Table

import sheafed
from sheafed import graphs
from sheafed.agents import paper_optimizer
from sheafed.methods import ZCA
from three_agents import build, cnn, mlp

TARGETS = {
    "ada": [0, 1, 2, 3, 4],
    "bo": [3, 4, 5, 6, 7],
    "cy": [6, 7, 8, 9, 0],
    "dee": [1, 3, 5, 7, 9],
}
WHITENING = ZCA(0.9)  # as strongly shrunk as for non-cooperative agents
METHODS = {
    "Non-cooperative": sheafed.NonCooperative(shrinkage=0.9),
    "Sheaf-FRL": sheafed.SheafFRL(whitening=WHITENING),
    "Sheaf-FRL with distillation": sheafed.SheafFRL(
        whitening=WHITENING, distillation=sheafed.Distillation()
    ),
}
STAGES = {
    "joined": lambda epochs: {},
    "trained on": lambda epochs: {"epochs": (epochs + 1) // 2},
    "all trained on": lambda epochs: {"epochs": (epochs + 1) // 2, "others": "training"},
}


def train(agents, edges, method, pilots, epochs, seed):
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed}
    options |= {"rounds_per_epoch": "smallest"}
    return sheafed.train(agents, edges, method, pilots, **options)


def figures(evaluation):
    """Return how well the new agent is read, how well it reads, and how the others do."""
    received = evaluation.communication
    others = evaluation.without("dee")
    return {
        "is read": mean(v for (sender, _), v in received.items() if sender == "dee"),
        "reads": mean(v for (_, receiver), v in received.items() if receiver == "dee"),
        "private": evaluation.private["dee"],
        "others": mean([*others.communication.values(), *others.private.values()]),
    }


def let_join(method, seed, epochs):
    """Return the figures after joining, after the new agent trained on, and after all did."""
    torch.manual_seed(seed)
    encoders = {"ada": cnn(8, 24), "bo": cnn(16, 40), "cy": mlp(96, 32), "dee": mlp(64, 28)}
    (*three, dee), pilots = build(TARGETS, encoders, seed, optimizer=paper_optimizer)
    network = train(three, graphs.ring(["ada", "bo", "cy"]), method, pilots, epochs, seed)
    train([dee], [], sheafed.NonCooperative(), pilots, epochs, seed)
    found = {}
    for stage, options in STAGES.items():
        here, new_agent = copy.deepcopy((network, dee))  # each stage starts from the same
        here.join(new_agent, list(network.nodes), **options(epochs))
        found[stage] = figures(here.history.evaluation)
    return found


def main(epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    found = {name: let_join(method, seed, epochs) for name, method in METHODS.items()}
    table = Table(title=f"A new agent joins three, digits, {epochs} epochs, seed {seed}")
    for heading in ("method", "the new agent", "is read", "reads", "private", "others"):
        table.add_column(heading)
    for name, stages in found.items():
        for stage, values in stages.items():
            table.add_row(name, stage, *(f"{value:.3f}" for value in values.values()))
    Console().print(table)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
