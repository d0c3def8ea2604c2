"""Eight agents on a ladder talk to those that are not their neighbours, along paths of maps.

Each agent has its own latent size and a share of scikit-learn's digits; bo, in the middle, has room
for 4 numbers only. After training, every agent sends its latents of the same test images to every
other one along every path there is: what do hops cost, what predicts it, and which way is best?
"""

import argparse
import itertools
from functools import partial

import networkx as nx
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import pearsonr, spearmanr
from sklearn.datasets import load_digits

import sheafed
from sheafed.domain.paths import path_loss
from sheafed.runtime.evaluation import misalignments
from sheafed.runtime.strangers import mismatches, path_holonomy, route
from three_agents import cnn, head, mlp

SIZES = {"ada": 24, "bo": 4, "cy": 32, "dee": 20, "eli": 28, "fay": 36, "gus": 16, "hal": 24}
BOTTLENECK = "bo"
LADDER = nx.relabel_nodes(nx.ladder_graph(4), dict(enumerate(SIZES)))


def train(seed, epochs):
    torch.manual_seed(seed)
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    order = torch.randperm(len(images))
    pilots, test, *shares = order.split([270, 327, *[150] * len(SIZES)])
    agents = []
    for k, ((name, latent), mine) in enumerate(zip(SIZES.items(), shares, strict=True)):
        encoder = cnn(8, latent) if k % 2 else mlp(96, latent)
        data = {
            part: (images[rows], labels[rows]) for part, rows in (("train", mine), ("test", test))
        }
        options = {"batch_size": 16, "optimizer": partial(torch.optim.Adam, lr=3e-3)}
        agents.append(sheafed.Agent(name, encoder, head(latent), data=data, **options))
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed, "ceiling": False}
    return sheafed.train(agents, LADDER, sheafed.SheafFRL(), images[pilots], **options)


def try_all_paths(run):
    """Return for every path between any two agents: hops, accuracy lost, and its predictors."""
    dims, mismatch, private = SIZES, mismatches(run.nodes), run.evaluation.private
    tried = {}
    for sender, receiver in itertools.permutations(SIZES, 2):
        latents, labels = run.agents[sender].encode_samples(run.agents[sender].data.test)
        for path in map(tuple, nx.all_simple_paths(LADDER, sender, receiver)):
            reader = run.agents[receiver]
            with reader.inference():
                scores = reader.head(run.send(latents, sender, receiver, path))
            accuracy = float((scores.argmax(-1) == labels).double().mean())
            lost = private[receiver] - accuracy
            holonomy = path_holonomy(run.nodes, path).deviation
            tried[path] = (accuracy, lost, holonomy, path_loss(path, dims, mismatch), len(path) - 1)
    return tried


def routings(run, tried):
    """Return for every way to choose a path the mean accuracy over all pairs of strangers."""
    residuals = nx.Graph()
    residuals.add_weighted_edges_from((*e, r) for e, r in misalignments(run.nodes).items())
    found = {}
    for s, r in (p for p in itertools.permutations(SIZES, 2) if not LADDER.has_edge(*p)):
        short = [tried[tuple(p)][0] for p in nx.all_shortest_paths(LADDER, s, r)]
        ways = {
            "a random one of the fewest hops": np.mean(short),
            "the first one of the fewest hops": short[0],
            "least residual": tried[tuple(nx.dijkstra_path(residuals, s, r))][0],
            "least expected loss": tried[tuple(route(run.nodes, s, r))][0],
            "the best of all, in hindsight": max(
                t[0] for p, t in tried.items() if p[:: len(p) - 1] == (s, r)
            ),
        }
        for way, accuracy in ways.items():
            found.setdefault(way, []).append(accuracy)
    return {way: float(np.mean(values)) for way, values in found.items()}


def main(epochs=30, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    run = train(seed, epochs)
    tried = try_all_paths(run)
    lengths = Table("hops", "paths", "accuracy round bo", "accuracy through bo")
    for hops in range(1, 8):
        paths = [p for p in tried if len(p) == hops + 1]
        parts = (
            [tried[p][0] for p in paths if (BOTTLENECK in p[1:-1]) == t] for t in (False, True)
        )
        lengths.add_row(
            str(hops), str(len(paths)), *(f"{np.mean(a):.3f}" if a else "" for a in parts)
        )
    strangers = np.array([t for p, t in tried.items() if not LADDER.has_edge(p[0], p[-1])])
    correlations = Table("predictor of accuracy lost", "Pearson", "Spearman", "paths")
    for column, name in ((2, "holonomy"), (3, "expected loss"), (4, "hops")):
        both = (f(strangers[:, column], strangers[:, 1])[0] for f in (pearsonr, spearmanr))
        correlations.add_row(name, *(f"{c:.2f}" for c in both), str(len(strangers)))
    routed = routings(run, tried)
    ways = Table("way of routing", "accuracy of strangers")
    for way, accuracy in routed.items():
        ways.add_row(way, f"{accuracy:.3f}")
    Console().print(lengths, correlations, ways, sep="\n")
    return run, tried, routed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
