"""Edge stalks smaller than the latents: communication accuracy against bytes.

Three agents with latents of 24, 40 and 32 numbers train with Sheaf-FRL, as in the paper and with
distillation. Over each edge only projections to `edge_dim` dimensions are sent; the last rows
are the paper's stalks, as large as the larger latents.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import sheafed
from noisy_channels import train

EDGE_DIMS = (2, 4, 8, 16, 24)
STYLES = {"Sheaf-FRL": ("#0072B2", "o"), "with distillation": ("#D55E00", "s")}


def choices(distillation):
    compressed = {e: sheafed.SheafFRL(distillation=distillation, edge_dim=e) for e in EDGE_DIMS}
    strict = sheafed.SheafFRL(distillation=distillation, privacy="strict")
    return compressed | {"standard": sheafed.SheafFRL(distillation=distillation), "strict": strict}


def bytes_per_round(network):
    return (
        sum(row.payload_bytes for row in network.history.ledger.rows() if row.kind == "round")
        / network.history.rounds
    )


def draw(networks, path):
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for name, (colour, marker) in STYLES.items():
        heights = [accuracy(networks[name, e]) for e in EDGE_DIMS]
        sent = [bytes_per_round(networks[name, e]) / 1024 for e in EDGE_DIMS]
        for ax, places in zip(panels, (EDGE_DIMS, sent), strict=True):
            ax.plot(places, heights, color=colour, marker=marker, label=name)
        for protocol, style in (("standard", "-"), ("strict", ":")):
            label = {"label": f"{name}, {protocol}"}
            panels[0].axhline(accuracy(networks[name, protocol]), color=colour, ls=style, lw=0.9)
            point = (
                bytes_per_round(networks[name, protocol]) / 1024,
                accuracy(networks[name, protocol]),
            )
            face = colour if protocol == "standard" else "white"
            panels[1].plot(*point, marker="D", ls="", color=colour, mfc=face, **label)
    panels[0].set(xlabel="dimension of the edge stalks", ylabel="communication accuracy")
    panels[1].set(xlabel="KiB sent in a round (latents and distillation)")
    for ax in panels:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#dddddd", lw=0.6)
    panels[1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def accuracy(network):
    return network.history.last["communication_accuracy"]


def main(out=Path("out/edge_stalks"), epochs=12, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    headings = ("method", "edge stalk", "bytes a round", "private", "communication")
    table = Table(*headings, title=f"Edge stalks, {epochs} epochs, seed {seed}")
    networks = {}
    for name, distillation in zip(STYLES, (None, sheafed.Distillation()), strict=True):
        for stalk, method in choices(distillation).items():
            network = networks[name, stalk] = train(method, seed, epochs)
            figures = (
                f"{network.history.last['private_accuracy']:.3f}",
                f"{accuracy(network):.3f}",
            )
            table.add_row(name, str(stalk), f"{bytes_per_round(network):.0f}", *figures)
    draw(networks, out / "edge_stalks.png")
    Console().print(table, f"picture: {out / 'edge_stalks.png'}", sep="\n")
    return networks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/edge_stalks"))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
