"""Maps between pretrained encoders: ours beside those of other packages, on the same pilots.

    pip install '.[text]' isotrieve==0.4.0 latentis==0.0.8
    python benchmarks/map_comparison.py --out out/maps
    python benchmarks/map_comparison.py --data cifar10 --pilots 100,300,1000 --out out/image-maps

Each line of `results.jsonl` is one directed pair of encoders, number of pilots, method and seed,
which draws pilots, corpus and test samples. Lines that are there are not computed again. Seed 0
was used to design the maps, so it is not reported. Packages that are not installed are left out.
Maps for our three goals are chosen among the same candidates, so they are fitted together, and have
the CPU seconds and memory of that: the growth of the resident set while fitting (Linux).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import permutations, product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cross_decomposition import CCA
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sheafed.alignment.kinds import kinds_of
from sheafed.alignment.selection import Goal, choose_each
from sheafed.datasets import load, load_texts, subset
from sheafed.pretrained import encode_images, encode_texts
from sheafed.training.summary import peak_memory

Rows = NDArray[np.float32]
Map = Callable[[Rows], Rows]
Fit = Callable[[Rows, Rows], tuple[Map, ...]]

ENCODERS = {
    "20newsgroups": ("wordllama-256", "minilm-l6", "use-multilingual", "mpnet-base"),
    "cifar10": ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "mobilenet-v2"),
}
GOALS: tuple[Goal, ...] = ("read", "match", "search")
SAMPLES = 6000
PACKAGES = {"latentis": "latentis==0.0.8", "isotrieve": "isotrieve==0.4.0"}
KEYS = ("seed", "sender", "receiver", "pilots", "method")
HEADS, CORPUS, TEST = 1500, 2400, 600  # heads are trained on the first samples of the corpus
NEIGHBOURS = 10
COLUMNS = ("read", "read, standardised", "top-1", "recall@10", "seconds", "MiB")


def ours(x: Rows, y: Rows) -> tuple[Map, ...]:
    """Return the maps for all goals, whose candidates are judged once."""
    found = choose_each(kinds_of("auto"), x, y, GOALS)
    return tuple(choice.map.transform for choice in found.values())


def alone(fit: Callable[[Rows, Rows], Map]) -> Fit:
    return lambda x, y: (fit(x, y),)


def sklearn_ridge(x: Rows, y: Rows) -> Map:
    return RidgeCV(np.logspace(-4, 3, 15)).fit(x, y).predict


def sklearn_cca(x: Rows, y: Rows) -> Map:
    components = min(64, *x.shape, *y.shape)
    return CCA(components, max_iter=200).fit(x, y).predict


def latentis_procrustes(x: Rows, y: Rows) -> Map:
    from latentis.transform.translate.aligner import Procrustes

    return _latentis(Procrustes(), x, y)


def latentis_affine(x: Rows, y: Rows) -> Map:
    from latentis.transform.base import StandardScaling
    from latentis.transform.translate.aligner import SGDAffineAligner, Translator

    aligner = SGDAffineAligner(num_steps=300, lr=1e-3, random_seed=0)
    translator = Translator(aligner, x_transform=StandardScaling(), y_transform=StandardScaling())
    return _latentis(translator, x, y)


def latentis_least_squares(x: Rows, y: Rows) -> Map:
    from latentis.transform.base import StandardScaling
    from latentis.transform.translate.aligner import MatrixAligner, Translator
    from latentis.transform.translate.functional import lstsq_align_state

    aligner = MatrixAligner("lstsq", lstsq_align_state)
    translator = Translator(aligner, x_transform=StandardScaling(), y_transform=StandardScaling())
    return _latentis(translator, x, y)


def _latentis(translator: Any, x: Rows, y: Rows) -> Map:
    translator.fit(torch.from_numpy(x), torch.from_numpy(y))

    def transform(z: Rows) -> Rows:
        with torch.no_grad():
            return translator.transform(torch.from_numpy(z))[0].numpy()

    return transform


def isotrieve(name: str) -> Fit:
    @alone
    def fit(x: Rows, y: Rows) -> Map:
        from isotrieve import mapping

        of_unit_length = bool(np.allclose(np.linalg.norm(y, axis=1), 1, atol=1e-3))
        return getattr(mapping, name)(normalize_output=of_unit_length).fit(x, y).transform

    return fit


FITS: dict[tuple[str, ...], Fit] = {
    tuple(f"sheafed, goal {goal}" for goal in GOALS): ours,
    ("scikit-learn RidgeCV",): alone(sklearn_ridge),
    ("scikit-learn CCA",): alone(sklearn_cca),
    ("latentis Procrustes",): alone(latentis_procrustes),
    ("latentis affine (SGD)",): alone(latentis_affine),
    ("latentis least squares",): alone(latentis_least_squares),
    ("isotrieve ridge",): isotrieve("RidgeMapping"),
    ("isotrieve low-rank",): isotrieve("LowRankAffineMapping"),
    ("isotrieve MLP",): isotrieve("ResidualMLPMapping"),
}
METHODS = [method for methods in FITS for method in methods]


@dataclass(frozen=True)
class Samples:
    """Texts or images in the latents of a sender and of a receiver, drawn by a seed."""

    sender: Rows
    receiver: Rows
    labels: NDArray[Any]
    seed: int

    @cached_property
    def order(self) -> NDArray[Any]:
        return np.random.default_rng(self.seed).permutation(len(self.labels))

    def pilots(self, number: int) -> tuple[Rows, Rows]:
        if number + CORPUS + TEST > len(self.labels):
            raise SystemExit(f"{len(self.labels)} samples are too few for {number} pilots")
        return self._rows(self.order[:number])

    @cached_property
    def corpus(self) -> tuple[Rows, Rows]:
        return self._rows(self.order[-CORPUS - TEST : -TEST])

    @cached_property
    def test(self) -> tuple[Rows, Rows]:
        return self._rows(self.order[-TEST:])

    @property
    def test_labels(self) -> NDArray[Any]:
        return self.labels[self.order[-TEST:]]

    def heads(self) -> dict[str, Any]:
        """Return the receiver's classifiers, which do not depend on the sender."""
        known = self.order[-CORPUS - TEST :][:HEADS]
        made = {
            "read": LogisticRegression(max_iter=1000),
            "read, standardised": make_pipeline(
                StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)
            ),
        }
        return {name: h.fit(self.receiver[known], self.labels[known]) for name, h in made.items()}

    def _rows(self, numbers: NDArray[Any]) -> tuple[Rows, Rows]:
        return self.sender[numbers], self.receiver[numbers]


def measure(
    fit: Fit, samples: Samples, heads: Mapping[str, Any], pilots: int
) -> list[dict[str, float]]:
    """Fit maps to pilots and judge each by samples that it was not fitted to."""
    x, y = samples.pilots(pilots)
    resident = forget_peak()
    start = time.process_time()
    maps = fit(x, y)
    cost = {"seconds": time.process_time() - start}
    cost["MiB"] = ((peak_memory() or 0) - resident) / 2**20
    return [judge(transform, samples, heads, y.mean(0)) | cost for transform in maps]


def judge(
    transform: Map, samples: Samples, heads: Mapping[str, Any], centre: Rows
) -> dict[str, float]:
    received = np.asarray(transform(samples.test[0]))
    index = np.asarray(transform(samples.corpus[0]))
    return {
        **{name: head.score(received, samples.test_labels) for name, head in heads.items()},
        "top-1": top1(received, samples.test[1], centre),
        "recall@10": recall(index, samples.corpus[1], samples.test[1]),
    }


def forget_peak() -> int:
    """Return free memory to the system and let the peak begin anew; return the resident bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_memory() or 0


def top1(received: Rows, own: Rows, centre: Rows) -> float:
    """How often the nearest of the receiver's own latents is that of the same sample."""
    similarity = unit(received - centre) @ unit(own - centre).T
    return float(np.mean(similarity.argmax(1) == np.arange(len(own))))


def recall(index: Rows, native: Rows, queries: Rows) -> float:
    """Which share of the samples nearest in a native index is found in a mapped one."""
    q = unit(queries)
    nearest, found = (
        np.argsort(-(q @ unit(rows).T), axis=1)[:, :NEIGHBOURS] for rows in (native, index)
    )
    hits = [len(set(a) & set(b)) for a, b in zip(nearest, found, strict=True)]
    return float(np.mean(hits)) / NEIGHBOURS


def unit(rows: Rows) -> Rows:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12)


def latents(data: str, encoders: Sequence[str]) -> tuple[dict[str, Rows], NDArray[Any]]:
    """Return 6,000 samples in the latents of every encoder, and their labels."""
    if data == "cifar10":
        images = load(data)
        rows = subset(images.labels, SAMPLES)
        inputs, labels = images.inputs[rows], images.labels[rows].numpy()
        return {e: encode_images(e, inputs).numpy() for e in encoders}, labels
    texts = load_texts(data)
    rows = subset(texts.labels, SAMPLES)
    chosen = [texts.texts[k] for k in rows]
    return {e: encode_texts(e, chosen).numpy() for e in encoders}, texts.labels[rows].numpy()


def installed() -> dict[tuple[str, ...], Fit]:
    """Return the methods whose packages are here, and name the others."""
    absent = [package for package in PACKAGES if find_spec(package) is None]
    for package in absent:
        print(f"{package} is not installed and is left out; pip install {PACKAGES[package]}")
    return {names: fit for names, fit in FITS.items() if names[0].split()[0] not in absent}


def table(results: Sequence[dict[str, Any]], pilots: int) -> str:
    """Return the table of one number of pilots: means over pairs and seeds."""
    lines = [f"| {pilots} pilots | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for method in METHODS:
        own = [r for r in results if r["method"] == method and r["pilots"] == pilots]
        if own:
            cells = [mean(r[column] for r in own) for column in COLUMNS]
            shown = [
                f"{v:.2f}" if c == "seconds" else f"{v:.0f}" if c == "MiB" else f"{v:.3f}"
                for c, v in zip(COLUMNS, cells, strict=True)
            ]
            lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of results.jsonl")
    parser.add_argument("--data", choices=ENCODERS, default="20newsgroups")
    parser.add_argument("--pilots", default="100,300,1000,3000")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--encoders", help="by commas, by default four")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    numbers, seeds = ([int(n) for n in text.split(",")] for text in (options.pilots, options.seeds))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # other packages' convergence and deprecations
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.jsonl"
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {tuple(r[key] for key in KEYS) for r in results}
    encoders = options.encoders.split(",") if options.encoders else ENCODERS[options.data]
    rows, labels = latents(options.data, encoders)
    fits = installed()
    heads: dict[tuple[int, str], dict[str, Any]] = {}
    for seed, (sender, receiver) in product(seeds, permutations(rows, 2)):
        samples = Samples(rows[sender], rows[receiver], labels, seed)
        for pilots, (methods, fit) in product(numbers, fits.items()):
            keys = [(seed, sender, receiver, pilots, method) for method in methods]
            if done.issuperset(keys) or not set(methods) & set(options.methods):
                continue
            if (seed, receiver) not in heads:
                heads[seed, receiver] = samples.heads()
            for key, figures in zip(
                keys, measure(fit, samples, heads[seed, receiver], pilots), strict=True
            ):
                if key not in done:
                    found = dict(zip(KEYS, key, strict=True)) | figures
                    results.append(found)
                    with path.open("a") as file:
                        file.write(json.dumps(found) + "\n")
    for pilots in numbers:
        print(table(results, pilots), end="\n\n")


if __name__ == "__main__":
    main()
