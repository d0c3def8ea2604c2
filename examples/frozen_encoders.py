"""A trained encoder that its neighbours, whose encoders are frozen, can read.

PCA and random Fourier features of scikit-learn and a convolutional network that was trained
elsewhere are frozen: only their maps and the heads on top of them are fitted. Ada is the one agent
whose encoder is trained. Sheaf-FRL pulls it towards the three; without, it is aligned after
training.
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
from torch import nn

import sheafed
from sheafed import graphs
from sheafed.agents import paper_optimizer
from sheafed.datasets import partitions
from sheafed.methods import ZCA
from sheafed.models import adapters, mlp
from three_agents import cnn

NAMES = ["ada", "pca", "fourier", "network"]
METHODS = {  # with equal shrinkage: they differ in training alone
    "jointly": sheafed.SheafFRL(whitening=ZCA(0.9)),
    "post hoc": sheafed.NonCooperative(shrinkage=0.9),
}


def train_elsewhere(encoder, head, images, labels, epochs=30):
    """Train a network without any of this, long before it joins the others."""
    model = nn.Sequential(encoder, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return encoder, head


def build(seed):
    """Return the agents and the unlabelled pilots they share."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    generator = torch.Generator().manual_seed(seed)
    pilots, rest = partitions.hold_out(len(images), 0.15, generator)
    data = {}
    for name, rows in partitions.iid(labels[rest], NAMES, generator).items():
        parts = partitions.stratified_split(labels[rest[rows]], (0.5, 0.2, 0.3), generator)
        samples = ((images[rest[rows[p]]], labels[rest[rows[p]]]) for p in parts)
        data[name] = dict(zip(("train", "validation", "test"), samples, strict=True))
    seen = {name: samples["train"][0].numpy() for name, samples in data.items()}
    torch.manual_seed(seed)
    pca = PCA(16, random_state=seed).fit(seen["pca"])
    fourier = RBFSampler(gamma="scale", n_components=48, random_state=seed).fit(seen["fourier"])
    modules = {
        "ada": (mlp((96, 24), inputs=(64,)), nn.Linear(24, 10)),
        "pca": (adapters.ScikitEncoder(pca), nn.Linear(16, 10)),
        "fourier": (adapters.ScikitEncoder(fourier), nn.Linear(48, 10)),
        "network": train_elsewhere(cnn(12, 32), nn.Linear(32, 10), *data["network"]["train"]),
    }
    options = {"batch_size": 32, "optimizer": paper_optimizer}
    agents = [
        sheafed.Agent(n, *modules[n], data=data[n], frozen=n != "ada", **options) for n in NAMES
    ]
    return agents, images[pilots]


def main(epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    networks = {}
    for name, method in METHODS.items():
        agents, pilots = build(seed)
        star = graphs.star(NAMES)
        options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed}
        networks[name] = sheafed.train(agents, star, method, pilots, **options)
    table = Table(title=f"Ada learns, the others are frozen; accuracy on test data, seed {seed}")
    for heading in ("neighbour", "reads its own", "reads Ada", "is read by Ada", "oracle encoder"):
        table.add_column(heading)
    for name, network in networks.items():
        found = network.history.evaluation
        table.add_section()
        for other in NAMES[1:]:
            read = found.communication["ada", other], found.communication[other, "ada"]
            figures = (found.private[other], *read, found.oracle["ada", other])
            table.add_row(f"{other}, {name}", *(f"{figure:.3f}" for figure in figures))
    Console().print(table, "oracle encoder: the neighbour encodes Ada's images itself", sep="\n")
    for name, network in networks.items():
        print(f"Ada's private accuracy {name}: {network.history.evaluation.private['ada']:.3f}")
    return networks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
