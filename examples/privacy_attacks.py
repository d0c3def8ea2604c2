"""What leaks from what agents transmit, and what noise on the pilots does about it.

Three agents train on the digits. Whoever knows the pilots, as every agent does, then learns to turn
ada's latents back into images, and tries to tell which images an agent was trained on.
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
    """Return the run, what was heard of ada's pilots on both edges, and a classifier of images."""
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
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed, "exchange": wire}
    run = sheafed.train(agents, combinations(SIZES, 2), method, images[pilots], **options)
    classifier = LogisticRegression(max_iter=1000).fit(images[spare], labels[spare])
    return run, [spy.pilots(run.nodes["ada"]) for spy in spies], classifier


def probe(run, heard, classifier, noise=None):
    """Return how well agents understand each other, and how well the attacks on them do."""
    ada, bo, labels = run.nodes["ada"], run.nodes["bo"], run.agents["ada"].data.test.targets
    spied = privacy.invert(ada, "bo", heard, noise=noise)
    read = privacy.invert_as_neighbour(ada, bo, noise=noise)
    nodes = run.nodes.values()
    accuracies = [privacy.understood(*pair, noise) for pair in permutations(nodes, 2)]
    by_latents = [privacy.membership_by_latents(n, n.neighbours[0], noise=noise) for n in nodes]
    by_probabilities = [privacy.membership_by_probabilities(node) for node in nodes]
    return {
        "accuracy": np.mean(accuracies),
        "error, spy": spied.error,
        "recognised": classifier.score(spied.guesses, labels),
        "error, bo": read.error,
        "recognised ": classifier.score(read.guesses, labels),
        "AUC, latents": np.mean([m.auc for m in by_latents]),
        "AUC, distillation": np.mean([m.auc for m in by_probabilities]),
        "TPR at 1 %": np.mean([m.tpr for m in by_probabilities]),
    }


def main(epochs=30, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    rows = {}
    for name, method in METHODS.items():
        run, (to_bo, to_cy), classifier = train(method, seed, epochs)
        rows[name] = probe(run, to_bo, classifier)
        if name == "strict":  # whoever cannot pair what is sent to bo with pilots, only to cy
            rows["strict, other edge"] = probe(run, to_cy, classifier)
        if name == "epsilon 64":  # and if private latents were noised like pilots?
            rows["epsilon 64 on all"] = probe(run, to_bo, classifier, method.noise)
        if budget := privacy.spent(run.nodes["ada"], run.rounds):
            print(f"{name}: a pilot {budget.pilot:.0f}, the agent {budget.agent:.0f} in all")
    table = rich.table.Table("", *rows["standard"])
    for name, row in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in row.values()))
    rich.print(table)
    test = run.agents["ada"].data.test
    print(f"recognised in the images themselves: {classifier.score(test.inputs, test.targets):.3f}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
