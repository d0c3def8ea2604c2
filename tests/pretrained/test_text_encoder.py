"""Tokenizers and forward passes against explicit loops over single texts."""

import io
import itertools
import json

import numpy as np
import pytest
import torch

from sheafed.errors import InputError, MissingDependencyError
from sheafed.pretrained import TextEncoder, load_text_encoder
from sheafed.pretrained.texts.optional import required
from sheafed.pretrained.texts.tokenizers import json_tokenizer, word_tokenizer
from sheafed.pretrained.texts.universal_sentence_encoder import universal_sentence_encoder
from sheafed.pretrained.texts.word_vectors import mean_of_vectors

VOCABULARY = ["a", "sheaf", "assigns", "stalks", "to", "cells", ",", "and", "maps", "."]
WORDS = {word: k for k, word in enumerate(VOCABULARY)}
TEXTS = [
    "A sheaf assigns stalks to cells, and maps.",
    "maps",
    "",
    "unknown words of a sheaf",
    "cells and cells and cells",
]


def test_the_mean_of_known_words():
    table = torch.randn(len(WORDS), 5, generator=torch.Generator().manual_seed(0))
    encoder = TextEncoder("tiny", 5, word_tokenizer(WORDS, 6), mean_of_vectors(table))
    expected = np.zeros((len(TEXTS), 5))
    for row, text in enumerate(TEXTS):
        spaced = text.lower().replace(",", " ,").replace(".", " .").split()
        known = [table[WORDS[word]].numpy() for word in spaced if word in WORDS][:6]
        for vector in known:
            expected[row] += vector / len(known)
    latents = encoder.encode(TEXTS)
    assert latents.dtype == np.float32
    np.testing.assert_allclose(latents, expected, atol=1e-6)
    for size in (1, 2):
        np.testing.assert_allclose(encoder.encode(TEXTS, batch_size=size), latents, atol=1e-6)
    for order in itertools.permutations(range(len(TEXTS)), 3):
        some = encoder.encode([TEXTS[k] for k in order])
        np.testing.assert_allclose(some, latents[list(order)], atol=1e-6)
    assert encoder.encode([]).shape == (0, 5)
    with pytest.raises(InputError, match="got the one text 'maps'"):
        encoder.encode("maps")


def test_json_tokenizers_are_cut_and_not_padded():
    """A file's own padding and truncation are those of its training."""
    content = json.dumps(
        {
            "version": "1.0",
            "truncation": {
                "max_length": 4,
                "strategy": "LongestFirst",
                "stride": 0,
                "direction": "Right",
            },
            "padding": {
                "strategy": {"Fixed": 9},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "a",
            },
            "added_tokens": [],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {
                "type": "BertProcessing",
                "sep": [".", WORDS["."]],
                "cls": [",", WORDS[","]],
            },
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "a"},
        }
    ).encode()
    begin, end = WORDS[","], WORDS["."]
    texts = ["maps", "cells and cells and cells and cells"]
    tokens = json_tokenizer(content, 6)(texts)
    assert tokens == [[begin, 8, end], [begin, 5, 7, 5, 7, end]]
    assert json_tokenizer(content, 6, special=False)(texts) == [[8], [5, 7, 5, 7, 5, 7]]


def test_the_universal_sentence_encoder():
    rng = np.random.default_rng(0)
    e, c, out = 6, 4, 5  # sizes of embeddings, convolutions and latents

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32) / 2

    w = {f"q{k + 1}": rng.integers(0, 256, (2, e), dtype=np.uint8) for k in range(17)}
    w |= {"scale": np.full(17, 0.01, np.float32), "lo": normal(17), "eps": np.float64(1e-6)}
    for n in (2, 3, 5):
        w |= {f"proj{n}": normal(e, c), f"w1_{n}": normal(n * c, c), f"w2_{n}": normal(n * c, c)}
        w |= {f"{name}{n}": normal(c) for name in ("proj_b", "ln_g", "ln_b", "b1_", "b2_")}
    w |= {"ln_g": normal(e + 3 * c), "ln_b": normal(e + 3 * c)}
    w |= {"cnn_W": normal(e + 3 * c, out), "cnn_b": normal(out)}
    w |= {"d0": normal(out, 3), "d1": normal(3, 3), "p1": normal(out, 3)}
    w |= {"d2": normal(3, 4), "d3": normal(4, out), "p3": normal(3, out)}

    def layer_norm(x, scale, shift):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * scale + shift

    def convolved(rows, n, left, kernel, bias):
        zero = np.zeros(c)
        result = []
        for t in range(len(rows)):
            around = range(t - left, t - left + n)
            window = [rows[s] if 0 <= s < len(rows) else zero for s in around]
            result.append(rows[t] + np.maximum(np.concatenate(window) @ kernel + bias, 0))
        return result

    def latent(ids):
        embedded = [w[f"q{k % 17 + 1}"][k // 17] * w["scale"][0] + w["lo"][k % 17] for k in ids]
        branches = [embedded]
        scale, shift = (np.concatenate([w[f"{p}{n}"] for n in (2, 3, 5)]) for p in ("ln_g", "ln_b"))
        projected = [
            layer_norm(
                np.concatenate([x @ w[f"proj{n}"] + w[f"proj_b{n}"] for n in (2, 3, 5)]),
                scale,
                shift,
            )
            for x in embedded
        ]
        for k, (n, left) in enumerate([(2, 0), (3, 1), (5, 2)]):
            rows = [x[k * c : (k + 1) * c] for x in projected]
            rows = convolved(rows, n, left, w[f"w1_{n}"], w[f"b1_{n}"])
            branches.append(convolved(rows, n, left, w[f"w2_{n}"], w[f"b2_{n}"]))
        tokens = [
            layer_norm(np.concatenate(parts), w["ln_g"], w["ln_b"]) @ w["cnn_W"] + w["cnn_b"]
            for parts in zip(*branches, strict=True)
        ]
        x = sum(tokens) / np.sqrt(len(tokens))
        x = np.maximum(x @ w["p1"] + np.maximum(x @ w["d0"], 0) @ w["d1"], 0)
        x = np.tanh(x @ w["p3"] + np.maximum(x @ w["d2"], 0) @ w["d3"])
        return x / np.linalg.norm(x)

    file = io.BytesIO()
    np.savez(file, **w)
    texts = {"a": [3], "b": [1, 20, 33, 0, 17, 5, 5], "c": [2, 16, 30]}
    encoder = TextEncoder(
        "tiny",
        out,
        lambda given: [texts[t] for t in given],
        universal_sentence_encoder(file.getvalue()),
    )
    expected = np.stack([latent(ids) for ids in texts.values()])
    np.testing.assert_allclose(encoder.encode(list(texts)), expected, atol=1e-5)


def test_bad_requests_say_what_to_do():
    with pytest.raises(InputError, match="choose one of glove-50d, wordllama-256"):
        load_text_encoder("minilm")
    with pytest.raises(InputError, match="max_tokens must be more than the 2 special tokens"):
        load_text_encoder("minilm-l6", max_tokens=2)
    with pytest.raises(MissingDependencyError, match=r"needs absent_library.*sheafed\[text\]"):
        required("absent_library.part")
