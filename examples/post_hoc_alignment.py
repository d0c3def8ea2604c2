"""Three classifiers that were trained apart, on different data, read each other's latents.

A convolutional network, a fully connected one and a scikit-learn pipeline have latents of 32, 24
and 16 numbers. Nothing is trained after that: `sheafed.align` fits maps to their latents of 300
shared, unlabelled pilot images, and then each can classify what another one encoded.
"""

import argparse
import itertools
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch import nn

import sheafed

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def train(encoder, head, x, y, epochs):
    """Train a network in plain PyTorch, and return encoder and head as NumPy functions."""
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    model = nn.Sequential(encoder, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    model.eval().requires_grad_(False)
    return (
        lambda x: encoder(torch.as_tensor(x)).numpy(),
        lambda z: head(torch.as_tensor(z)).argmax(1).numpy(),
    )


def build_agents(shares, epochs):
    torch.manual_seed(0)
    first = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 24, 3, padding=1), nn.GELU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(24, 32, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    dense = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 24), nn.Tanh())
    pca = PCA(16, random_state=0).fit(shares[2][0])
    logistic = LogisticRegression(max_iter=1000).fit(pca.transform(shares[2][0]), shares[2][1])
    return {
        "cnn": train(nn.Sequential(*first, *second), nn.Linear(32, 10), *shares[0], epochs),
        "mlp": train(dense, nn.Linear(24, 10), *shares[1], epochs),
        "pca": (lambda x: pca.transform(x).astype(np.float32), logistic.predict),
    }


def draw(accuracy, names, path):
    figure, axes = plt.subplots(figsize=(4.6, 4), layout="constrained")
    axes.imshow(accuracy, vmin=0, vmax=1, cmap="cividis")
    axes.set(xlabel="receiver", ylabel="sender", title="Who understands whom")
    axes.set(xticks=range(3), xticklabels=names, yticks=range(3), yticklabels=names)
    for i, j in np.ndindex(3, 3):
        axes.text(j, i, f"{accuracy[i, j]:.2f}", ha="center", va="center")
    figure.savefig(path, dpi=150)


def main(out, epochs=50):
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    pilots, test, *parts = np.split(order, [300, 700, 1066, 1432])
    agents = build_agents([(images[p], labels[p]) for p in parts], epochs)
    names = list(agents)

    alignment = sheafed.align({n: encode(images[pilots]) for n, (encode, _) in agents.items()})

    accuracy = np.zeros((3, 3))
    for i, j in np.ndindex(3, 3):
        latents = alignment.send(agents[names[i]][0](images[test]), names[i], names[j])
        accuracy[i, j] = (agents[names[j]][1](latents) == labels[test]).mean()
    table = Table(title="Accuracy on 400 test digits, agents trained apart")
    for heading in ("sender", "its private", "receiver", "after communication", "oracle encoder"):
        table.add_column(heading)
    for i, j in itertools.permutations(range(3), 2):
        private, received, oracle = (f"{accuracy[k]:.3f}" for k in ((i, i), (i, j), (j, j)))
        table.add_row(names[i], private, names[j], received, oracle)
    Console().print(table, "oracle encoder: the receiver encodes the images itself", sep="\n")
    alignment.save(out / "alignment")
    draw(accuracy, names, out / "who_understands_whom.png")
    print(f"picture: {out / 'who_understands_whom.png'}; alignment: {out / 'alignment'}")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/post_hoc"))
    main(parser.parse_args().out)
