"""What the verdict on a map says about reading: the share of its accuracy that a head keeps.

    python benchmarks/alignment_verdicts.py
    python benchmarks/alignment_verdicts.py --data cifar10

Four encoders, every directed pair, two draws, 50 to 600 pilots by default. A logistic head is
trained on 1,500 samples in the receiver's latents and reads 600 others, its own and received. The
limits of the verdicts were set on the texts; CIFAR-10 by image encoders had no part in them.
"""

import argparse
from collections import defaultdict
from itertools import permutations
from statistics import mean

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from sheafed import align
from sheafed.datasets import load, load_texts, subset
from sheafed.pretrained import encode_images, encode_texts

TEXT_ENCODERS = ("glove-50d", "wordllama-256", "minilm-l6", "use-multilingual")
IMAGE_ENCODERS = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "mobilenet-v2")
SAMPLES = {"20newsgroups": 6000, "reuters-r8": 3000, "cifar10": 4096}
TEST, HEADS = 600, 1500


def encoded(name):
    """Return the latents of a data set by every encoder, and its labels."""
    if name == "cifar10":
        images = load(name)
        rows = subset(images.labels, SAMPLES[name])
        latents = {e: encode_images(e, images.inputs[rows]).numpy() for e in IMAGE_ENCODERS}
        return latents, images.labels[rows].numpy()
    data = load_texts(name)
    rows = subset(data.labels, SAMPLES[name])
    texts = [data.texts[k] for k in rows]
    return {e: encode_texts(e, texts).numpy() for e in TEXT_ENCODERS}, data.labels[rows].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", nargs="+", choices=SAMPLES, default=["20newsgroups", "reuters-r8"]
    )
    parser.add_argument("--pilots", nargs="+", type=int, default=[50, 150, 600])
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1])
    given = parser.parse_args()
    chosen = given.data
    torch.set_num_threads(1)
    kept = defaultdict(list)
    for name in chosen:
        latents, labels = encoded(name)
        for draw in given.draws:
            order = np.random.default_rng(draw).permutation(len(labels))
            test, known, shared = np.split(order, [TEST, TEST + HEADS])
            heads = {
                encoder: LogisticRegression(max_iter=1000).fit(z[known], labels[known])
                for encoder, z in latents.items()
            }
            for pilots in given.pilots:
                fitted = align({e: z[shared[:pilots]] for e, z in latents.items()})
                verdicts = {(p.sender, p.receiver): p.verdict for p in fitted.report().pairs}
                for sender, receiver in permutations(latents, 2):
                    received = fitted.send(latents[sender][test], sender, receiver)
                    head = heads[receiver]
                    share = head.score(received, labels[test]) / head.score(
                        latents[receiver][test], labels[test]
                    )
                    kept[verdicts[sender, receiver], name].append(share)
    print("| verdict |" + "".join(f" {name} |" for name in chosen))
    print("|---|" + "---|" * len(chosen))
    for verdict in ("good", "usable", "poor"):
        cells = [kept[verdict, name] for name in chosen]
        shown = [f"{mean(c):.0%}, worst {min(c):.0%} of {len(c)}" if c else "-" for c in cells]
        print(f"| {verdict} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
