"""Five heterogeneous agents on scikit-learn's digits: alone, with Sheaf-FRL, and with distillation.

Each agent has its own architecture and latent size, and mostly sees its own few classes. The same
agents, data and pilots are trained three times; the table and the picture show how well each agent
classifies what another one encoded.
"""

import argparse
import itertools
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import sheafed
from sheafed import graphs
from sheafed.training import ProgressBar
from three_agents import build, cnn, mlp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TARGETS = {
    "ada": [4, 5, 6, 7, 8],
    "bo": [0, 1, 2, 3, 4],
    "cy": [0, 1, 2, 7, 8, 9],
    "dee": [2, 3, 4, 5, 6],
    "eli": [5, 6, 7, 8, 9],
}
METHODS = {
    "Non-cooperative": sheafed.NonCooperative(),
    "Sheaf-FRL": sheafed.SheafFRL(),
    "Sheaf-FRL with distillation": sheafed.SheafFRL(distillation=sheafed.Distillation()),
}


def train(method, seed, epochs):
    torch.manual_seed(seed)
    encoders = (cnn(16, 32), mlp(96, 24), cnn(12, 40), mlp(64, 16), cnn(8, 28))
    agents, pilots = build(TARGETS, dict(zip(TARGETS, encoders, strict=True)), seed)
    return sheafed.train(
        agents,
        graphs.class_overlap(TARGETS, density=0.7),
        method,
        pilots,
        epochs=epochs,
        evaluate_every=20,
        seed=seed,
        callbacks=[ProgressBar()],
    )


def draw(networks, path):
    """Draw communication accuracy, with private accuracy on the diagonal, empty without an edge."""
    names = list(TARGETS)
    figure, axes = plt.subplots(
        1, len(networks), figsize=(4 * len(networks), 4.2), layout="constrained"
    )
    for ax, (title, network) in zip(axes, networks.items(), strict=True):
        known = network.history.evaluation.communication | {
            (n, n): a for n, a in network.history.evaluation.private.items()
        }
        matrix = np.array([[known.get((s, r), np.nan) for r in names] for s in names])
        ax.imshow(matrix, vmin=0, vmax=1, cmap="cividis")
        ax.set_xticks(range(5), names)
        ax.set_yticks(range(5), names)
        ax.set(xlabel="receiver", ylabel="sender", title=title)
        for i, j in itertools.product(range(5), range(5)):
            if not np.isnan(matrix[i, j]):
                colour = "white" if matrix[i, j] < 0.5 else "black"
                ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", color=colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(out=Path("out/demo"), epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    networks = {name: train(method, seed, epochs) for name, method in METHODS.items()}
    table = Table(title=f"Five agents, digits, label shift 0.7, {epochs} epochs, seed {seed}")
    for heading in ("method", "private", "after communication", "oracle", "MiB sent"):
        table.add_column(heading)
    for name, network in networks.items():
        keys = ("private_accuracy", "communication_accuracy", "oracle_accuracy")
        sent = network.history.ledger.bytes_sent() / 2**20
        table.add_row(name, *(f"{network.history.last[key]:.3f}" for key in keys), f"{sent:.1f}")
    Console().print(table, "oracle: the receiver encodes the sender's images itself", sep="\n")
    draw(networks, out / "who_understands_whom.png")
    print(f"picture: {out / 'who_understands_whom.png'}")
    return networks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
