"""Four agents that sense the same digits differently: pixels, frequencies, profiles and slopes.

Their inputs have different shapes, so they have different encoders, and none could read another's
inputs. They share 270 pilots, sensed by each in its modality and paired by their ids. The table
compares each agent alone with sending its latents to the best informed neighbour: the one with the
best accuracy on its own validation data.
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table

import sheafed
from sheafed import graphs
from sheafed.agents import paper_optimizer
from sheafed.datasets import load, modalities, partitions
from sheafed.evaluation import evaluate_locally
from sheafed.methods import ZCA
from sheafed.models import cnn, head, mlp

SENSES = {
    "eye": (modalities.pixels, cnn, (16, 32)),
    "ear": (modalities.fourier, mlp, (96, 28)),
    "scale": (modalities.profiles, mlp, (64, 16)),
    "hand": (modalities.gradients, mlp, (64, 24)),
}
WHITENING = ZCA(0.9)  # as strongly shrunk as for non-cooperative agents
METHODS = {
    "Non-cooperative": sheafed.NonCooperative(shrinkage=0.9),
    "Sheaf-FRL": sheafed.SheafFRL(whitening=WHITENING),
    "Sheaf-FRL with distillation": sheafed.SheafFRL(
        whitening=WHITENING, distillation=sheafed.Distillation()
    ),
}


def build(seed):
    """Return agents with a quarter of the digits each, and the pilots as each of them sees them."""
    digits = load("digits")
    generator = torch.Generator().manual_seed(seed)
    pilots, rest = partitions.hold_out(len(digits), 0.15, generator)
    shares = partitions.iid(digits.labels[rest], list(SENSES), generator)
    agents = []
    for name, (view, encoder, widths) in SENSES.items():
        mine = rest[shares[name]]
        parts = partitions.stratified_split(digits.labels[mine], (0.6, 0.2, 0.2), generator)
        seen = ((view(digits.inputs[mine[p]]), digits.labels[mine[p]]) for p in parts)
        data = dict(zip(("train", "validation", "test"), seen, strict=True))
        model = encoder(widths, inputs=data["train"][0].shape[1:])
        classify = head(widths[-1], (32,), 10, dropout=0.1)
        options = {"batch_size": 32, "optimizer": paper_optimizer}
        agents.append(sheafed.Agent(name, model, classify, data=data, **options))
    seen = {name: view(digits.inputs[pilots]) for name, (view, *_) in SENSES.items()}
    return agents, sheafed.PilotSet(seen, ids=[str(p) for p in pilots.tolist()])


def train(method, seed, epochs):
    torch.manual_seed(seed)
    agents, pilots = build(seed)
    return sheafed.train(
        agents,
        graphs.complete(list(SENSES)),
        method,
        pilots,
        epochs=epochs,
        evaluate_every=epochs,
        seed=seed,
    )


def best_informed(network):
    """Return for each agent its best neighbour, by validation data alone."""
    private = evaluate_locally(network.nodes, "validation").private
    return {name: max(node.neighbours, key=private.get) for name, node in network.nodes.items()}


def main(epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    networks = {name: train(method, seed, epochs) for name, method in METHODS.items()}
    table = Table(title=f"Accuracy on an agent's own test digits, {epochs} epochs, seed {seed}")
    for heading in ("method", "sender", "alone", "best-informed", "which classifies"):
        table.add_column(heading)
    for method, network in networks.items():
        for sender, receiver in best_informed(network).items():
            received = network.history.evaluation.communication[sender, receiver]
            alone = network.history.evaluation.private[sender]
            table.add_row(method, sender, f"{alone:.3f}", receiver, f"{received:.3f}")
    Console().print(table)
    return networks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
