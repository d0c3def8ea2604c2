"""Attacks on what agents transmit, and the effect of noise on the pilots.

Three agents train on digits. An attacker that knows the pilots, as every agent does, then learns to
turn Ada's latents back into images, and infers which images an agent was trained on.
"""

import argparse
from itertools import combinations, permutations

import numpy as np
import rich.table
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import sheafed
from sheafed import privacy
from sheafed.methods import GaussianNoise, MapPolicy
from sheafed.transport import LocalTransport
from three_agents import cnn, head, mlp

SIZES = {"ada": 24, "bo": 16, "cy": 20}
METHODS = {"standard": sheafed.SheafFRL(), "strict": sheafed.SheafFRL(privacy="strict")}
for e in (64, 16, 4):  # noise averages out over rounds, so maps should remember many of them
    METHODS[f"epsilon {e}"] = sheafed.SheafFRL(noise=GaussianNoise(e), maps=MapPolicy(decay=0.99))


def train(method, seed, epochs):
    """Return the network, ada's pilots as observed on both edges, and a classifier of images."""
    torch.manual_seed(seed)
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    pilots, spare, *shares = torch.randperm(len(images)).split([270, 177, *[450] * 3])
    agents = []
    for (name, latent), mine in zip(SIZES.items(), shares, strict=True):
        encoder = cnn(8, latent) if name == "ada" else mlp(96, latent)
        parts = (("train", mine[:150]), ("test", mine[150:]))
        data = {part: (images[rows], labels[rows]) for part, rows in parts}
        options = {"batch_size": 16, "optimizer": lambda p: torch.optim.Adam(p, lr=3e-3)}
        agents.append(sheafed.Agent(name, encoder, head(latent), data=data, **options))
    spies = [privacy.Eavesdropper("ada", j) for j in ("bo", "cy")]
    wire = LocalTransport(list(SIZES), tap=lambda data: [spy(data) for spy in spies])
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed, "transport": wire}
    network = sheafed.train(agents, combinations(SIZES, 2), method, images[pilots], **options)
    classifier = LogisticRegression(max_iter=1000).fit(images[spare], labels[spare])
    return network, [spy.pilot_latents(network.nodes["ada"]) for spy in spies], classifier


def attack(network, observed, classifier, noise=None):
    """Return the communication accuracy, and the success of the attacks."""
    ada, bo, labels = (
        network.nodes["ada"],
        network.nodes["bo"],
        network.agents["ada"].data.test.targets,
    )
    spied = privacy.invert_as_eavesdropper(ada, "bo", observed, noise=noise)
    read = privacy.invert_as_neighbour(ada, bo, noise=noise)
    nodes = network.nodes.values()
    accuracies = [privacy.communication_accuracy(*pair, noise) for pair in permutations(nodes, 2)]
    by_latents = [privacy.membership_from_latents(n, n.neighbours[0], noise=noise) for n in nodes]
    by_probabilities = [privacy.membership_from_probabilities(node) for node in nodes]
    return {
        "accuracy": np.mean(accuracies),
        "error, spy": spied.error,
        "recognised": classifier.score(spied.reconstructions, labels),
        "error, bo": read.error,
        "recognised ": classifier.score(read.reconstructions, labels),
        "AUC, latents": np.mean([m.auc for m in by_latents]),
        "AUC, probabilities": np.mean([m.auc for m in by_probabilities]),
        "TPR at 1 %": np.mean([m.tpr for m in by_probabilities]),
    }


def main(epochs=30, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    rows = {}
    for name, method in METHODS.items():
        network, (to_bo, to_cy), classifier = train(method, seed, epochs)
        rows[name] = attack(network, to_bo, classifier)
        if name == "strict":  # the attacker observes the edge to cy, not the one to bo
            rows["strict, other edge"] = attack(network, to_cy, classifier)
        if name == "epsilon 64":  # and if private latents were noised like pilots?
            rows["epsilon 64 on all"] = attack(network, to_bo, classifier, method.noise)
        if loss := privacy.privacy_loss(network.nodes["ada"], network.history.rounds):
            print(f"{name}: a pilot {loss.pilot:.0f}, the agent {loss.agent:.0f} in all")
    table = rich.table.Table("", *rows["standard"])
    for name, row in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in row.values()))
    rich.print(table)
    test = network.agents["ada"].data.test
    print(f"recognised in the images themselves: {classifier.score(test.inputs, test.targets):.3f}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
