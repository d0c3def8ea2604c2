"""The latents of an agent without labels, classified by neighbours that have some.

Ada has images alone, so it has no head. It learns by autoencoding, VICReg or SimCLR, and sends
its latents to Bo and Cy, whose heads classify them. Trained jointly, by Sheaf-FRL, it is compared
with itself trained apart and aligned afterwards, and with linear probes on its latents, which are
fitted to its labels: an upper reference for a linear reader.
"""

import argparse
from functools import partial
from itertools import combinations

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import sheafed
from sheafed.agents import objectives, paper_optimizer
from sheafed.datasets import partitions
from sheafed.methods import ZCA
from sheafed.models import decoder, head, mlp

SHAPE, LATENT = (1, 8, 8), 32
OBJECTIVES = {
    "autoencoding": lambda: objectives.Autoencoding(decoder(LATENT, SHAPE)),
    "VICReg": lambda: objectives.VICReg(mlp((128, 128), inputs=(LATENT,))),
    "SimCLR": lambda: objectives.SimCLR(mlp((64, 32), inputs=(LATENT,))),
}
METHODS = {
    "jointly": lambda shrinkage: sheafed.SheafFRL(whitening=ZCA(shrinkage)),
    "post hoc": lambda shrinkage: sheafed.NonCooperative(shrinkage=shrinkage),
}
SHRINKAGES = (0.01, 0.1, 0.5, 0.9)  # validation data choose, for each method


def cnn(width, latent):
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, latent)),
    )


def build(objective, seed):
    """Return the agents, the pilots they share, and the labels that Ada does not have."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float().reshape(-1, *SHAPE)
    generator = torch.Generator().manual_seed(seed)
    pilots, rest = partitions.hold_out(len(images), 0.15, generator)
    data = {}
    for name, rows in partitions.iid(labels[rest], ["ada", "bo", "cy"], generator).items():
        parts = partitions.stratified_split(labels[rest[rows]], (0.5, 0.2, 0.3), generator)
        samples = ((images[rest[rows[p]]], labels[rest[rows[p]]]) for p in parts)
        data[name] = dict(zip(("train", "validation", "test"), samples, strict=True))
    data["ada"]["train"], hidden = data["ada"]["train"]
    torch.manual_seed(seed)
    Agent = partial(sheafed.Agent, optimizer=paper_optimizer)
    agents = [
        Agent("bo", mlp((96, 24), inputs=SHAPE), head(24, (32,), 10), data=data["bo"]),
        Agent("cy", cnn(12, 40), head(40, (32,), 10), data=data["cy"]),
        Agent("ada", cnn(16, LATENT), data=data["ada"], objective=objective()),
    ]
    return agents, images[pilots], hidden


def measure(objective, method, seed, epochs):
    """Return the accuracy of the neighbours, and of a linear probe, on Ada's latents."""
    networks, options = [], {"epochs": epochs, "evaluate_every": epochs, "seed": seed}
    for shrinkage in SHRINKAGES:
        agents, pilots, labels = build(objective, seed)
        edges = combinations(["ada", "bo", "cy"], 2)
        networks.append(sheafed.train(agents, edges, method(shrinkage), pilots, **options))
    network = max(networks, key=lambda n: n.history.last["validation_communication_accuracy"])
    ada, communication = network.agents["ada"], network.history.evaluation.communication
    accuracy = (communication["ada", "bo"] + communication["ada", "cy"]) / 2
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    probe.fit(ada.encode_samples(ada.data.train)[0].numpy(), labels.numpy())
    latents, targets = ada.encode_samples(ada.data.test)
    return accuracy, probe.score(latents.numpy(), targets.numpy())


def main(epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    columns = [f"{reader}, {m}" for reader in ("neighbours", "probe") for m in METHODS]
    title = f"Ada has no labels: accuracy on its test data, seed {seed}"
    table = Table("Ada learns by", *columns, title=title)
    found = {}
    for name, objective in OBJECTIVES.items():
        pairs = [measure(objective, method, seed, epochs) for method in METHODS.values()]
        found[name] = [value for figures in zip(*pairs, strict=True) for value in figures]
        table.add_row(name, *(f"{value:.3f}" for value in found[name]))
    Console().print(table)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
