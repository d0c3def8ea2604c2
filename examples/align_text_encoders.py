"""Three pretrained text encoders read each other, without training: the README's snippet on them.

    pip install '.[text]'
    python examples/align_text_encoders.py

Paris, Oslo and Turin use WordLlama, MiniLM and Universal Sentence Encoder. They have encoded the
same 500 newsgroup posts, which nobody has labelled, and each has a classifier of its own latents.
The first run downloads 142 MB of encoders and encodes 2,600 posts with each, a CPU minute in all.
"""

import argparse
from itertools import permutations
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import sheafed
from sheafed.datasets import load_texts, subset
from sheafed.pretrained import encode_texts

ENCODERS = {"paris": "wordllama-256", "oslo": "minilm-l6", "turin": "use-multilingual"}
PILOTS, TRAIN, TEST = 500, 1500, 600


def main(out):
    newsgroups = load_texts("20newsgroups")
    rows = subset(newsgroups.labels, PILOTS + TRAIN + TEST)
    texts, labels = [newsgroups.texts[row] for row in rows], newsgroups.labels[rows].numpy()
    latents = {name: encode_texts(encoder, texts).numpy() for name, encoder in ENCODERS.items()}
    pilots, train, test = np.split(np.arange(len(texts)), [PILOTS, PILOTS + TRAIN])
    heads = {
        name: LogisticRegression(max_iter=1000).fit(z[train], labels[train])
        for name, z in latents.items()
    }

    a, b, c = (latents[name][pilots] for name in ("paris", "oslo", "turin"))
    z_oslo = latents["oslo"][test]

    alignment = sheafed.align({"paris": a, "oslo": b, "turin": c})  # (K, 256), (K, 384), (K, 512)
    received = alignment.send(z_oslo, "oslo", "turin")  # (n, 384) -> (n, 512)
    print(alignment.report())  # held-out figures and a verdict for each direction
    alignment.save(out / "alignment")  # JSON and safetensors

    own = heads["turin"].score(latents["turin"][test], labels[test])
    print(f"turin's head: {heads['turin'].score(received, labels[test]):.3f} on what oslo sent,")
    print(f"{own:.3f} on what turin encoded itself; 20 newsgroups, {TEST} posts. All directions:")
    accuracy = {}
    for sender, receiver in permutations(latents, 2):
        received = alignment.send(latents[sender][test], sender, receiver)
        accuracy[sender, receiver] = heads[receiver].score(received, labels[test])
        print(f"{sender} -> {receiver}: {accuracy[sender, receiver]:.3f}")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/text_alignment"))
    main(parser.parse_args().out)
