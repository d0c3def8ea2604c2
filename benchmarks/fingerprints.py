"""How often `send` refuses latents: of other data, of other encoders, of rotated coordinates.

    python benchmarks/fingerprints.py --latents DIR

DIR has `20newsgroups` and `reuters-r8`, each with `labels.npy` and one `<encoder>.npy` per encoder
(`sheafed encode`). Pilots are drawn from the first 3,000 rows of 20 Newsgroups, latents to send
from the others, from one class of them, or from Reuters. The last two rows are sibling encoders of
one size; in the second, lengths are made equal.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from sheafed.alignment.fingerprint import fingerprint
from sheafed.errors import EncoderMismatchError
from sheafed.linalg.support import support

SIBLINGS = {"minilm-l6": "paraphrase-minilm-l3", "paraphrase-minilm-l3": "minilm-l6"}


def cases(name, news, reuters, labels, topics, rows, rng):
    """Yield what is sent to the fingerprint of an encoder."""

    def some(z):
        return z[rng.permutation(len(z))[:rows]]

    own, other = news[name][3000:], reuters[name]
    d = own.shape[1]
    yield "same data", some(own)
    yield "one class", some(own[labels[3000:] == rng.integers(labels.max() + 1)])
    yield "other data", some(other)
    yield "one class of other data", some(other[topics == rng.choice(np.unique(topics))])
    yield "PERMUTED coordinates", some(own)[:, rng.permutation(d)]
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    yield "ROTATED", some(own) @ rotation
    if name in SIBLINGS:
        sibling = some(news[SIBLINGS[name]][3000:])
        yield "SIBLING encoder", sibling
        size = np.linalg.norm(news[name][:3000], axis=1).mean()
        yield (
            "SIBLING of equal length",
            (sibling * size / np.linalg.norm(sibling, axis=1, keepdims=True)),
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latents", type=Path, required=True)
    parser.add_argument("--pilots", nargs="+", type=int, default=(300, 1000))
    parser.add_argument("--rows", nargs="+", type=int, default=(32, 128))
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sets = [arguments.latents / name for name in ("20newsgroups", "reuters-r8")]
    names = sorted(p.stem for p in sets[0].glob("*.npy") if p.stem != "labels")
    news, reuters = ({n: np.load(folder / f"{n}.npy") for n in names} for folder in sets)
    labels, topics = (np.load(folder / "labels.npy") for folder in sets)
    rng = np.random.default_rng(0)
    counts = {}
    for pilots in arguments.pilots:
        for name in names:
            for _ in range(arguments.draws):
                x = torch.as_tensor(news[name][rng.permutation(3000)[:pilots]])
                known = fingerprint(x, support(x))
                for rows in arguments.rows:
                    for case, z in cases(name, news, reuters, labels, topics, rows, rng):
                        found = counts.setdefault((case, pilots, rows), [0, 0])
                        try:
                            known.check(name, z)
                        except EncoderMismatchError:
                            found[0] += 1
                        found[1] += len(z) >= min(arguments.rows)
    columns = [(p, r) for p in arguments.pilots for r in arguments.rows]
    print(f"{names}\n\n| | " + " | ".join(f"{p} pilots, {r} rows" for p, r in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for case in dict.fromkeys(key[0] for key in counts):
        shown = (counts.get((case, *column), (0, 0)) for column in columns)
        print(f"| {case} | " + " | ".join(f"{a} of {b}" for a, b in shown) + " |", flush=True)


if __name__ == "__main__":
    main()
