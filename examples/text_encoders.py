"""Six organisations, each with another pretrained text encoder, read each other's latents.

Every agent sees texts of 20 Newsgroups by its own frozen encoder, and trains a linear adapter and a
head on about 330 labelled texts, mostly of eight topics of its own; 1,000 unlabelled texts are the
pilots. The first run downloads the encoders and encodes 6,000 texts with each, 20 CPU minutes in
all; latents are then cached. The settings are those of the preset `newsgroups`.
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import sheafed
from sheafed import graphs
from sheafed.datasets import load_texts, partitions, subset
from sheafed.pretrained import encode_texts

# By encoder: the agent's latent size and the first of its eight topics, of twenty in a circle.
ENCODERS = {
    "glove-50d": (48, 0),
    "minilm-l6": (72, 3),
    "mpnet-base": (80, 7),
    "paraphrase-minilm-l3": (60, 10),
    "use-multilingual": (64, 13),
    "wordllama-256": (56, 17),
}
TOPICS = {name: [(first + k) % 20 for k in range(8)] for name, (_, first) in ENCODERS.items()}
DISTILLED = {"penalty": 1.0, "distillation": sheafed.Distillation(confidence=0.1, weight=3.0)}
FEW_BYTES = {"pilots_per_round": 256, "exchange_every": 8, "quantisation": "int8"}
METHODS = {
    "alone": sheafed.NonCooperative(shrinkage=0.9),
    "recommended": sheafed.SheafFRL(whitening=sheafed.methods.ZCA(0.9), **DISTILLED, **FEW_BYTES),
}


def build(seed):
    """Return the agents, and the pilots as each of them sees them."""
    newsgroups = load_texts("20newsgroups")
    rows = subset(newsgroups.labels, 6000)
    texts, labels = [newsgroups.texts[row] for row in rows], newsgroups.labels[rows]
    generator = torch.Generator().manual_seed(seed)
    shared, rest = partitions.hold_out(len(texts), 1 / 6, generator)
    held = partitions.label_shift(labels[rest], TOPICS, 0.7, generator)
    torch.manual_seed(seed)
    agents, pilots = [], {}
    for name, (d, _) in ENCODERS.items():
        latents, own = encode_texts(name, texts), rest[held[name]]
        parts = partitions.stratified_split(labels[own], (0.4, 0.2, 0.4), generator)
        splits = zip(("train", "validation", "test"), (own[part] for part in parts), strict=True)
        data = {split: (latents[indices], labels[indices]) for split, indices in splits}
        adapter, head = nn.Sequential(nn.Linear(latents.shape[1], d), nn.Tanh()), nn.Linear(d, 20)
        optimizer = torch.optim.AdamW([*adapter.parameters(), *head.parameters()], lr=0.01)
        agents.append(sheafed.Agent(name, adapter, head, data=data, optimizer=optimizer))
        pilots[name] = latents[shared]
    return agents, pilots


def main(epochs=30, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    graph, networks = graphs.class_overlap(TOPICS, 0.4), {}
    for title, method in METHODS.items():
        agents, pilots = build(seed)
        options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed}
        options |= {"rounds_per_epoch": "smallest"}
        networks[title] = sheafed.train(agents, graph, method, pilots, **options)
        found = networks[title].history.evaluation
        known = found.communication | {(n, n): a for n, a in found.private.items()}
        short = [name.partition("-")[0] for name in ENCODERS]
        table = Table("sender", *short, title=f"{title}: accuracy by sender and receiver")
        for sender in ENCODERS:
            cells = (known.get((sender, receiver)) for receiver in ENCODERS)
            table.add_row(sender, *("" if a is None else f"{a:.3f}" for a in cells))
        Console().print(table)
    alone, recommended = (network.history.last for network in networks.values())
    for key in ("private_accuracy", "communication_accuracy"):
        gain = recommended[key] - alone[key]
        print(f"{key}: {alone[key]:.3f} alone, {recommended[key]:.3f} recommended ({gain:+.3f})")
    return networks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
