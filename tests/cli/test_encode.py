from hashlib import sha256

import numpy as np
import pytest
import torch

from sheafed import datasets
from sheafed.datasets import cache, texts
from sheafed.datasets.sources import DataFile
from sheafed.pretrained import ImageEncoder, images
from sheafed.pretrained.texts import catalog
from sheafed.pretrained.texts.tokenizers import word_tokenizer
from sheafed.pretrained.texts.word_vectors import mean_of_vectors


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Twelve texts, and an encoder without files."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    rows = "".join(f"{'ab'[k % 2]}\tword{k}\n" for k in range(12))
    content = f"Category\tText\nd\tstring\nclass\t\n\n{rows}".encode()
    file = DataFile("tiny.tab", len(content), sha256(content).hexdigest())
    remote = cache.RemoteFiles("tiny", (file,), ())
    remote.directory.mkdir(parents=True)
    (remote.directory / file.name).write_bytes(content)
    known = texts.TextInfo(12, ("a", "b"), "here", "public domain", remote)
    monkeypatch.setitem(texts.TEXTS, "tiny", known)

    def build(_, max_tokens):
        words = word_tokenizer({f"word{k}": k for k in range(12)}, max_tokens)
        return words, mean_of_vectors(torch.eye(12))

    files = cache.RemoteFiles("one-hot", (), (), "encoders")
    info = catalog.TextEncoderInfo(12, "a stand-in", "none", (), files, build)
    monkeypatch.setitem(catalog.TEXT_ENCODERS, "one-hot", info)


@pytest.mark.usefixtures("tiny")
def test_latents_and_labels_are_written(run):
    command = ("encode", "tiny", "--encoder", "one-hot", "--samples", 8)
    code, said, _ = run(*command, "--out", "z.npy", "--labels", "y.npy")
    assert code == 0
    assert "wrote latents (8, 12) of one-hot to z.npy" in said
    latents, labels = np.load("z.npy"), np.load("y.npy")
    assert np.array_equal(latents.argmax(1) % 2, labels)
    assert latents.sum() == 8
    assert np.bincount(labels).tolist() == [4, 4]
    code, said, _ = run("encode", "tiny", "--encoder", "one-hot", "--out", "all.npy")
    assert np.array_equal(np.load("all.npy")[:8], latents)


def test_images_are_encoded_at_a_resolution(run, tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))

    def load(name, resolution, log):
        def trunk(x):
            return x.mean((1, 2, 3))[:, None] + torch.full((1280,), float(x.shape[-1]))

        return ImageEncoder(name, 1280, trunk, resolution, (0.0,) * 3, (1.0,) * 3)

    monkeypatch.setattr(images.latents, "load_image_encoder", load)
    command = ("encode", "digits", "--encoder", "mobilenet-v2", "--samples", 6)
    code, said, _ = run(*command, "--resolution", 40, "--out", "z.npy", "--labels", "y.npy")
    assert code == 0
    assert "wrote latents (6, 1280) of mobilenet-v2" in said
    digits = datasets.load("digits")
    rows = datasets.subset(digits.labels, 6)
    assert np.array_equal(np.load("y.npy"), digits.labels[rows].numpy())
    means = digits.inputs[rows].mean((1, 2, 3)).numpy()
    np.testing.assert_allclose(np.load("z.npy")[:, 0] - 40, means, atol=0.01)


@pytest.mark.usefixtures("tiny")
def test_encoders_and_texts_are_listed(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, said, _ = run("encoders", "list")
    assert all(f" efficientnet-lite{k} " in said for k in range(3))
    monkeypatch.setenv("COLUMNS", "200")
    code, said, _ = run("encoders", "list")
    assert code == 0
    rows = {line.split("│")[1].strip(): line for line in said.splitlines() if "│" in line}
    assert all(part in rows["minilm-l6"] for part in ("384", "91", "not fetched"))
    assert " cached" in rows["one-hot"]
    assert "not fetched" in rows["mobilenet-v2"]
    code, said, _ = run("data", "list")
    assert "public domain" in said
    code, _, error = run("encoders", "fetch", "minilm")
    assert code == 2
    assert "choose one of glove-50d" in error
    code, said, _ = run("data", "fetch", "tiny")
    assert code == 0
    assert "tiny is complete" in said
