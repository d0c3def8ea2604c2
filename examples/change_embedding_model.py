"""Change the embedding model of an index without embedding its texts again.

    pip install '.[text]' faiss-cpu
    python examples/change_embedding_model.py

5,000 newsgroup posts are indexed in the latents of an old model. A few hundred of them are encoded
with the new model, too; a map fitted to these carries the whole index over. New queries are encoded
with the new model only.
"""

import argparse

import faiss
import numpy as np

import sheafed
from sheafed.datasets import load_texts, subset
from sheafed.pretrained import encode_texts

DOCUMENTS, QUERIES, NEIGHBOURS = 5000, 1000, 10


def build_index(latents):
    """Return an exact index by the cosine."""
    rows = latents / np.linalg.norm(latents, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(np.ascontiguousarray(rows, dtype=np.float32))
    return index


def main(old="wordllama-256", new="minilm-l6", pilots=500, goal="search", gate=0.3, seed=0):
    data = load_texts("20newsgroups")
    rows = subset(data.labels, DOCUMENTS + QUERIES)
    texts, labels = [data.texts[k] for k in rows], data.labels[rows].numpy()
    z_old, z_new = (encode_texts(name, texts).numpy() for name in (old, new))
    documents, queries = np.split(np.arange(len(texts)), [DOCUMENTS])

    shared = np.random.default_rng(seed).choice(documents, pilots, replace=False)
    alignment = sheafed.align({"old": z_old[shared], "new": z_new[shared]}, goal=goal)
    (pair,) = (p for p in alignment.report().pairs if p.sender == "old")
    quality = pair.quality(goal)
    print(f"quality on held-out pilots: {quality:.3f}")
    if quality < gate:
        raise SystemExit(f"the map is below the gate of {gate}: the index stays as it is")

    mapped = alignment.send(z_old[documents], "old", "new")
    mapped[shared] = z_new[shared]  # these have been encoded anyway
    found = {
        f"old index, queries by {old}": build_index(z_old[documents]).search(
            z_old[queries], NEIGHBOURS
        )[1],
        f"mapped index, queries by {new}": build_index(mapped).search(z_new[queries], NEIGHBOURS)[
            1
        ],
        f"native index, queries by {new}": build_index(z_new[documents]).search(
            z_new[queries], NEIGHBOURS
        )[1],
    }
    *_, native = found.values()
    figures = {}
    for name, nearest in found.items():
        recall = (
            np.mean([len(set(a) & set(b)) for a, b in zip(nearest, native, strict=True)])
            / NEIGHBOURS
        )
        precision = np.mean(labels[documents][nearest] == labels[queries][:, None])
        figures[name] = recall, precision
        print(f"{name}: recall@10 of the native index {recall:.3f}, same newsgroup {precision:.3f}")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--old", default="wordllama-256", help="a name that `sheafed encoders list` shows"
    )
    parser.add_argument("--new", default="minilm-l6")
    parser.add_argument("--pilots", type=int, default=500, help="texts that both models encode")
    parser.add_argument("--goal", choices=("search", "match"), default="search")
    parser.add_argument(
        "--gate",
        type=float,
        default=0.3,
        help="the least quality on held-out pilots; to search: the mean of 1 / rank of a query's "
        "nearest neighbour",
    )
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
