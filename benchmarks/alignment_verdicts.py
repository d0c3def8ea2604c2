"""What the verdict on a map says about reading: the share of its accuracy that a head keeps.

    python benchmarks/alignment_verdicts.py

Four text encoders, every directed pair, two data sets and draws, 50 to 600 pilots. A logistic head
is trained on 1,500 texts in the receiver's latents and reads 600 others, its own and received.
"""

from collections import defaultdict
from itertools import permutations
from statistics import mean

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from sheafed import align
from sheafed.datasets import load_texts, subset
from sheafed.pretrained import encode_texts

ENCODERS = ("glove-50d", "wordllama-256", "minilm-l6", "use-multilingual")
DATA = {"20newsgroups": 6000, "reuters-r8": 3000}
TEST, HEADS, PILOTS, DRAWS = 600, 1500, (50, 150, 600), (0, 1)


def main() -> None:
    torch.set_num_threads(1)
    kept = defaultdict(list)
    for name, samples in DATA.items():
        data = load_texts(name)
        rows = subset(data.labels, samples)
        texts, labels = [data.texts[k] for k in rows], data.labels[rows].numpy()
        latents = {encoder: encode_texts(encoder, texts).numpy() for encoder in ENCODERS}
        for draw in DRAWS:
            order = np.random.default_rng(draw).permutation(samples)
            test, known, shared = np.split(order, [TEST, TEST + HEADS])
            heads = {
                encoder: LogisticRegression(max_iter=1000).fit(z[known], labels[known])
                for encoder, z in latents.items()
            }
            for pilots in PILOTS:
                fitted = align({e: z[shared[:pilots]] for e, z in latents.items()})
                verdicts = {(p.sender, p.receiver): p.verdict for p in fitted.report().pairs}
                for sender, receiver in permutations(ENCODERS, 2):
                    received = fitted.send(latents[sender][test], sender, receiver)
                    head = heads[receiver]
                    share = head.score(received, labels[test]) / head.score(
                        latents[receiver][test], labels[test]
                    )
                    kept[verdicts[sender, receiver], name].append(share)
    print("| verdict |" + "".join(f" {name} |" for name in DATA))
    print("|---|" + "---|" * len(DATA))
    for verdict in ("good", "usable", "poor"):
        cells = [kept[verdict, name] for name in DATA]
        shown = [f"{mean(c):.0%}, worst {min(c):.0%} of {len(c)}" if c else "-" for c in cells]
        print(f"| {verdict} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
