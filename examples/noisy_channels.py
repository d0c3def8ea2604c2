"""Noisy links: communication accuracy against noise, quantisation and erasures.

Three agents are trained alone, and with the standard and strict protocols of Sheaf-FRL, and then
transmit latents over several kinds of links. Dashed: the pilots crossed the same link in training.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch.optim import Adam

import sheafed
from sheafed import graphs
from sheafed.channels import Channel
from sheafed.evaluation import evaluate_locally
from sheafed.methods import ZCA
from three_agents import TARGETS, build, cnn, mlp

AXES = {
    "snr_db": ("signal-to-noise ratio in dB", (-10, -5, 0, 5, 10, 20), (-5, 0)),
    "bits": ("bits per coordinate", (1, 2, 3, 4, 6, 8), (1,)),
    "erasure": ("fraction of coordinates lost", (0.1, 0.3, 0.5, 0.7, 0.9), ()),
}
"""For each option its label, its values at inference, and those to repeat the training with."""
STANDARD = sheafed.SheafFRL(whitening=ZCA(0.9), distillation=sheafed.Distillation())
METHODS = {  # all with the same shrinkage
    "alone": sheafed.NonCooperative(shrinkage=0.9),
    "standard": STANDARD,
    "strict": replace(STANDARD, privacy="strict"),
}
STYLES = {"alone": ("#0072B2", "o"), "standard": ("#D55E00", "s"), "strict": ("#009E73", "^")}


def train(method, seed, epochs):
    torch.manual_seed(seed)
    encoders = {"ada": cnn(8, 24), "bo": mlp(96, 40), "cy": mlp(64, 32)}
    agents, pilots = build(TARGETS, encoders, seed, optimizer=lambda p: Adam(p, lr=3e-3))
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed, "oracle": False}
    return sheafed.train(agents, graphs.ring(list(TARGETS)), method, pilots, **options)


def accuracy_over(network, channel):
    """Return the communication accuracy on test data over another channel."""
    for node in network.nodes.values():
        node.channel = channel
    return evaluate_locally(network.nodes, oracle=False).summary()["communication_accuracy"]


def measure(method, seed, epochs):
    """Return accuracies by (option, whether training had the noise too, value)."""
    network = train(method, seed, epochs)
    found = {("perfect", False, 0): network.history.last["communication_accuracy"]}
    for axis, (_, values, retrained) in AXES.items():
        for x in values:
            found[axis, False, x] = accuracy_over(network, Channel(**{axis: x}))
        for x in retrained:
            noisy = train(replace(method, channel=Channel(**{axis: x})), seed, epochs)
            found[axis, True, x] = noisy.history.last["communication_accuracy"]
    return found


def draw(found, path):
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for ax, (axis, (title, *_)) in zip(panels, AXES.items(), strict=True):
        for name, (colour, marker) in STYLES.items():
            for trained, style, face in ((False, "-", colour), (True, "--", "white")):
                line = {x: v for (a, t, x), v in found[name].items() if (a, t) == (axis, trained)}
                look = {"color": colour, "marker": marker, "ls": style, "mfc": face}
                label = f"{name}, trained over the same link" if trained else name
                ax.plot(list(line), list(line.values()), label=label, **look)
        ax.set(xlabel=title, ylabel="communication accuracy", ylim=(0, 1))
        ax.label_outer()
    panels[0].legend(frameon=False, fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def main(out=Path("out/noisy_channels"), epochs=12, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    found = {name: measure(method, seed, epochs) for name, method in METHODS.items()}
    title = f"Communication accuracy, {epochs} epochs, seed {seed}"
    table = Table("link", "trained over it", *METHODS, title=title)
    for axis, trained, x in found["alone"]:
        row = (f"{found[name][axis, trained, x]:.3f}" for name in METHODS)
        table.add_row(f"{axis} {x}" if axis in AXES else axis, "yes" if trained else "", *row)
    draw(found, out / "noisy_channels.png")
    Console().print(table, f"picture: {out / 'noisy_channels.png'}", sep="\n")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/noisy_channels"))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
