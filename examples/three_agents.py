"""Three agents that differ in data, architecture and latent size read each other's latents.

A small and a larger convolutional network and a fully connected one, each with its own share of
scikit-learn's digits, train with Sheaf-FRL. Any torch module, optimiser
or objective can be used instead.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

import sheafed
from sheafed import graphs
from sheafed.datasets import partitions
from sheafed.training import summarise

TARGETS = {"ada": [0, 1, 2, 3, 4], "bo": [3, 4, 5, 6, 7], "cy": [6, 7, 8, 9, 0]}


def cnn(width, latent):
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        *(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, latent)),
    )


def head(latent):
    return nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


def mlp(hidden, latent):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, latent))


def build(targets, encoders, seed, shift=0.7, **options):
    """Return the agents and the unlabelled pilots they share."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    generator = torch.Generator().manual_seed(seed)
    pilots, rest = partitions.hold_out(len(images), 0.15, generator)
    shares = partitions.label_shift(labels[rest], targets, shift, generator)
    agents = []
    for name, encoder in encoders.items():
        mine = rest[shares[name]]
        parts = partitions.stratified_split(labels[mine], (0.6, 0.2, 0.2), generator)
        samples = ((images[mine[rows]], labels[mine[rows]]) for rows in parts)
        data = dict(zip(("train", "validation", "test"), samples, strict=True))
        latent = encoder[-1].out_features
        agents.append(
            sheafed.Agent(name, encoder, head(latent), data=data, batch_size=32, **options)
        )
    return agents, images[pilots]


def main(out=None, epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    torch.manual_seed(seed)
    encoders = {"ada": cnn(8, 24), "bo": cnn(16, 40), "cy": mlp(96, 32)}
    agents, pilots = build(TARGETS, encoders, seed)
    network = sheafed.train(
        agents,
        graphs.ring(list(TARGETS)),
        sheafed.SheafFRL(distillation=sheafed.Distillation()),
        pilots,
        epochs=epochs,
        evaluate_every=10,
        seed=seed,
        out=out,
    )
    table = Table(title="Accuracy on the agents' own test data")
    for heading in ("sender", "receiver", "after communication", "oracle encoder", "misalignment"):
        table.add_column(heading)
    for edge in summarise(network)["edges"]:
        figures = ("communication_accuracy", "oracle_accuracy", "misalignment")
        table.add_row(edge["sender"], edge["receiver"], *(f"{edge[f]:.3f}" for f in figures))
    Console().print(table)
    for name, accuracy in network.history.evaluation.private.items():
        print(f"{name}: private accuracy {accuracy:.3f}")
    sent = network.history.ledger.bytes_sent() / 2**20
    print(f"{sent:.1f} MiB sent: latents and class probabilities of pilots, nothing else")
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="directory for metrics, checkpoints and weights")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
