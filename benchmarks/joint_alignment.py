"""Pairwise and joint alignment of pretrained text encoders, over the number of pilots.

    python benchmarks/joint_alignment.py --latents DIR

DIR has `labels.npy` and one `<encoder>.npy` per encoder with latents (6000, d) of the same texts
(`sheafed encode 20newsgroups --samples 6000`). Heads are logistic regressions, plain and behind a
`StandardScaler`, fitted to rows 3000 to 4500 by each encoder; pilots are drawn from the first 3000
rows, without labels; figures are means over directed pairs on the last 600 texts and over seeds.
Three tables: all encoders have all pilots; each has a random half of them; two share none.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sheafed
from sheafed.errors import MissingPilotsError

DEFAULT = ("minilm-l6", "paraphrase-minilm-l3", "use-multilingual", "wordllama-256")
METHODS = {
    "pairwise": {},
    "pairwise or joint": {"joint": True},
    "joint only": {"maps": "joint"},
}
TEST = slice(-600, None)


def heads(latents, labels):
    rows = slice(3000, 4500)
    found = {}
    for name, z in latents.items():
        plain = LogisticRegression(max_iter=300)
        scaled = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        found[name] = [head.fit(z[rows], labels[rows]) for head in (plain, scaled)]
    return found


def figures(alignment, latents, labels, judges, pairs):
    """Return the accuracy of both heads and how often a text is found among 600."""
    found = []
    for sender, receiver in pairs:
        read = alignment.send(latents[sender][TEST], sender, receiver)
        own = latents[receiver][TEST]
        centre = latents[receiver][:3000].mean(0)
        a, b = (
            (z - centre) / np.linalg.norm(z - centre, axis=1, keepdims=True) for z in (read, own)
        )
        top1 = ((a @ b.T).argmax(1) == np.arange(len(own))).mean()
        scores = [head.score(read, labels[TEST]) for head in judges[receiver]]
        found.append((*scores, top1))
    return np.mean(found, axis=0)


def all_pilots(latents, rows, rng):
    return {name: z[rows] for name, z in latents.items()}


def half_of_them(latents, rows, rng):
    found = {}
    for name, z in latents.items():
        found[name] = z[rows].copy()
        found[name][rng.permutation(len(rows))[: len(rows) // 2]] = np.nan
    return found


def two_halves(latents, rows, rng):
    found = {name: z[rows].copy() for name, z in latents.items()}
    first, second = list(found)[:2]
    found[first][: len(rows) // 2] = np.nan
    found[second][len(rows) // 2 :] = np.nan
    return found


def table(title, case, latents, labels, judges, numbers, seeds, pairs):
    print(f"\n{title}\n\n| pilots | map | logistic head | behind a scaler | top-1 | s |")
    print("|---|---|---|---|---|---|")
    for pilots in numbers:
        for method, options in METHODS.items():
            scores, seconds = [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                given = case(latents, rng.permutation(3000)[:pilots], rng)
                graph = None
                if case is two_halves and method == "pairwise":
                    # Through the encoders that share pilots with both.
                    names = list(latents)
                    edges = itertools.combinations(names, 2)
                    graph = [edge for edge in edges if edge != (names[0], names[1])]
                start = time.process_time()
                try:
                    alignment = sheafed.align(given, graph, **options)
                except MissingPilotsError:
                    continue
                seconds.append(time.process_time() - start)
                scores.append(figures(alignment, latents, labels, judges, pairs))
            if scores:
                mean, spread = (
                    np.mean(scores, 0),
                    np.std(scores, 0, ddof=1 if len(scores) > 1 else 0),
                )
                shown = " | ".join(f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, spread, strict=True))
            else:
                shown = "too few common pilots | |"
            print(f"| {pilots} | {method} | {shown} | {np.mean(seconds):.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latents", type=Path, required=True)
    parser.add_argument("--encoders", nargs="+", default=DEFAULT)
    parser.add_argument("--pilots", nargs="+", type=int, default=(30, 100, 300))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=("all", "half", "apart"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", sheafed.errors.UndeterminedMapWarning)
    latents = {n: np.load(arguments.latents / f"{n}.npy") for n in arguments.encoders}
    labels = np.load(arguments.latents / "labels.npy")
    judges = heads(latents, labels)
    pairs = list(itertools.permutations(latents, 2))
    own = {n: [head.score(z[TEST], labels[TEST]) for head in judges[n]] for n, z in latents.items()}
    print(f"own latents: {np.mean(list(own.values()), axis=0).round(3)}; {list(latents)}")
    apart = [tuple(latents)[:2], tuple(latents)[1::-1]]
    cases = {
        "all": ("All encoders have all pilots", all_pilots, pairs),
        "half": ("Each encoder has a random half of the pilots", half_of_them, pairs),
        "apart": ("The two encoders shown share no pilots", two_halves, apart),
    }
    for name in arguments.cases:
        title, case, shown = cases[name]
        table(title, case, latents, labels, judges, arguments.pilots, arguments.seeds, shown)


if __name__ == "__main__":
    main()
