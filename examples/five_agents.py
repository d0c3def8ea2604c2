"""Five heterogeneous agents on scikit-learn's digits: alone, the paper's method, and ours.

The agents, data and graph are those of the preset `digits`, which `sheafed run digits` trains too.
Each agent has its own architecture and latent size, and mostly sees its own few classes. The table
and the picture show how well each agent classifies what another one encoded.
"""

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import sheafed
from sheafed.config import build_federation, read_experiment

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PRESET = read_experiment("digits")
METHODS = {
    # Shrinkage as validation data chose it for each method (docs/results/digits.md).
    "Trained alone": sheafed.NonCooperative(shrinkage=0.9),
    "Sheaf-FRL": replace(PRESET.method, distillation=None, whitening=sheafed.methods.ZCA(0.5)),
    "Consensus distillation": sheafed.ConsensusDistillation(),
}


def train(method, seed, epochs):
    federation = build_federation(read_experiment("digits", seed=seed))
    return sheafed.train(
        federation.agents,
        federation.graph,
        method,
        federation.pilots,
        epochs=epochs,
        rounds_per_epoch=federation.rounds_per_epoch,
        evaluate_every=epochs,
        seed=seed,
    )


def draw(networks, path):
    """Draw communication accuracy, with private accuracy on the diagonal, empty without an edge."""
    figure, axes = plt.subplots(
        1, len(networks), figsize=(4 * len(networks), 4.2), layout="constrained"
    )
    for ax, (title, network) in zip(axes, networks.items(), strict=True):
        names = list(network.agents)
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


def main(out=Path("out/demo"), epochs=PRESET.training.epochs, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    networks = {name: train(method, seed, epochs) for name, method in METHODS.items()}
    table = Table(title=f"The preset digits, label shift 0.7, {epochs} epochs, seed {seed}")
    for heading in ("method", "private", "after communication", "oracle encoder", "MiB sent"):
        table.add_column(heading)
    for name, network in networks.items():
        keys = ("private_accuracy", "communication_accuracy", "oracle_accuracy")
        sent = network.history.ledger.bytes_sent() / 2**20
        table.add_row(name, *(f"{network.history.last[key]:.3f}" for key in keys), f"{sent:.1f}")
    note = "oracle encoder: the receiver encodes the sender's images itself; no upper bound"
    Console().print(table, note, sep="\n")
    draw(networks, out / "who_understands_whom.png")
    print(f"picture: {out / 'who_understands_whom.png'}")
    return networks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--epochs", type=int, default=PRESET.training.epochs)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
