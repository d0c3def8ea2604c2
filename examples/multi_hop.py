"""Eight agents on a ladder send latents to agents that are not neighbours, along paths of maps.

Each has its own latent size and a share of the digits; bo, in the middle, has a latent size of 4.
Every path between every two agents is tried: what does a hop cost, what predicts it, how to route?
"""

import argparse
from collections import defaultdict

import networkx as nx
import numpy as np
import torch
from rich import print
from rich.table import Table
from scipy.stats import pearsonr, spearmanr
from sklearn.datasets import load_digits

import sheafed
from sheafed.sheaf import lowest_loss_path, path_loss
from sheafed.training import multi_hop
from three_agents import cnn, head, mlp

SIZES = {"ada": 24, "bo": 4, "cy": 32, "dee": 20, "eli": 28, "fay": 36, "gus": 16, "hal": 24}
LADDER = nx.relabel_nodes(nx.ladder_graph(4), dict(enumerate(SIZES)))
DISTANT = list(nx.complement(LADDER).to_directed().edges)


def train(seed, epochs):
    torch.manual_seed(seed)
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    pilots, test, *shares = torch.randperm(len(images)).split([270, 327, *[150] * len(SIZES)])
    agents = []
    for k, ((name, latent), mine) in enumerate(zip(SIZES.items(), shares, strict=True)):
        encoder = cnn(8, latent) if k % 2 else mlp(96, latent)
        data = {part: (images[r], labels[r]) for part, r in (("train", mine), ("test", test))}
        options = {"batch_size": 16, "optimizer": lambda p: torch.optim.Adam(p, lr=3e-3)}
        agents.append(sheafed.Agent(name, encoder, head(latent), data=data, **options))
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed, "oracle": False}
    return sheafed.train(agents, LADDER, sheafed.SheafFRL(), images[pilots], **options)


def try_all_paths(network):
    """Return for every path its accuracy, the gain of a direct map, and possible predictors."""
    mismatch, tried = multi_hop.mismatches(network.nodes), {}
    pilots = {name: node.white_pilots() for name, node in network.nodes.items()}
    for s, r in nx.complete_graph(SIZES).to_directed().edges:
        sender, receiver = network.nodes[s], network.nodes[r]
        latents, labels = sender.agent.encode_samples(sender.agent.data.test)
        for path in map(tuple, nx.all_simple_paths(LADDER, s, r)):
            composed = multi_hop.composed_map(network.nodes, path)
            direct = multi_hop.direct_map(pilots[s], pilots[r], composed)
            best = receiver.whitening.colour(sender.whitening(latents) @ direct.mT)
            with receiver.agent.inference():
                heads = [receiver.agent.head(z) for z in (network.send(latents, s, r, path), best)]
            got, most = (float((h.argmax(-1) == labels).double().mean()) for h in heads)
            cycle = multi_hop.path_holonomy(path, composed, direct).deviation
            found = path_loss(path, SIZES, mismatch), len(path) - 1, "bo" in path[1:-1]
            tried[path] = got, most - got, cycle, *found
    return tried


def routings(network, tried):
    """Return for every rule of routing the mean accuracy over all pairs that are not neighbours."""
    graph, mismatch, found = nx.Graph(), multi_hop.mismatches(network.nodes), defaultdict(list)
    found_on_edges = network.history.evaluation.misalignment
    graph.add_weighted_edges_from((*edge, value) for edge, value in found_on_edges.items())
    for s, r in DISTANT:
        every, short = (f(LADDER, s, r) for f in (nx.all_simple_paths, nx.all_shortest_paths))
        found["fewest hops, a random path"].append(np.mean([tried[tuple(p)][0] for p in short]))
        found["least misalignment"].append(tried[tuple(nx.dijkstra_path(graph, s, r))][0])
        chosen = lowest_loss_path(s, r, SIZES, mismatch)
        found["least expected loss"].append(tried[tuple(chosen)][0])
        found["the best of all, in hindsight"].append(max(tried[tuple(p)][0] for p in every))
    return {rule: float(np.mean(values)) for rule, values in found.items()}


def main(epochs=30, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    tried = try_all_paths(network := train(seed, epochs))
    lengths = Table("hops", "paths", "accuracy", "below a direct map, avoiding bo", "through bo")
    for hops in range(1, 8):
        rows = np.array([t for t in tried.values() if t[4] == hops])
        columns = rows[:, 0], rows[rows[:, 5] == 0, 1], rows[rows[:, 5] == 1, 1]
        lengths.add_row(str(hops), str(len(rows)), *(f"{c.mean():.3f}" for c in columns if len(c)))
    rows = np.array([t for p, t in tried.items() if (p[0], p[-1]) in DISTANT])
    both = rows, rows[rows[:, 5] == 0]
    headings = (f"{f}, {len(t)} paths" for t in both for f in ("Pearson", "Spearman"))
    predictors = Table("predictor of the loss, all and avoiding bo", *headings)
    for c, name in ((2, "holonomy"), (3, "expected loss"), (4, "hops")):
        found = (f(t[:, c], t[:, 1])[0] for t in both for f in (pearsonr, spearmanr))
        predictors.add_row(name, *(f"{value:.2f}" for value in found))
    rules = Table("routing", f"accuracy of {len(DISTANT)} pairs that are not neighbours")
    for rule, value in (routed := routings(network, tried)).items():
        rules.add_row(rule, f"{value:.3f}")
    print(lengths, predictors, rules, sep="\n")
    return tried, routed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
