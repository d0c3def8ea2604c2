"""The cache of latents, with an encoder that counts what it is given."""

import io

import numpy as np
import pytest
import torch

from sheafed.datasets import cache
from sheafed.errors import CorruptedDataError, EmptyInputError, InputError
from sheafed.pretrained import encode_texts, latents, texts
from sheafed.pretrained.texts.latents import chunk_key, texts_are_encoded
from sheafed.pretrained.texts.text_encoder import TextEncoder

TEXTS = [f"text number {k}" for k in range(10)]


@pytest.fixture
def encoded(tmp_path, monkeypatch):
    """What the encoder was given; "stop" in it interrupts the next call."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(latents, "CHUNK", 4)
    seen = []

    def tokenize(texts):
        if "stop" in seen:
            seen.remove("stop")
            raise KeyboardInterrupt
        seen.extend(texts)
        return [[len(text), int(text.split()[-1])] for text in texts]

    def forward(ids, mask):
        return torch.nn.functional.pad(ids.float(), (0, 48))

    def load(name, max_tokens, log):
        return TextEncoder(name, 50, tokenize, forward)

    monkeypatch.setattr(texts.latents, "load_text_encoder", load)
    return seen


def test_every_text_is_encoded_once(encoded):
    said = []
    first = encode_texts("glove-50d", TEXTS[:9], log=said.append)
    assert first.dtype == torch.float32
    assert first[:, :2].tolist() == [[len(t), k] for k, t in enumerate(TEXTS[:9])]
    assert encoded == TEXTS[:9]
    assert said[0] == "glove-50d: encoding 9 samples"
    assert torch.equal(encode_texts("glove-50d", TEXTS[:9]), first)
    more = encode_texts("glove-50d", TEXTS)  # whole chunks of a smaller subset are used again
    assert torch.equal(more[:9], first)
    assert encoded == TEXTS[:9] + TEXTS[8:]
    encode_texts("glove-50d", TEXTS[:4], max_tokens=8)
    assert encoded[11:] == TEXTS[:4]


def test_it_is_known_what_is_encoded_without_encoding(encoded):
    encode_texts("glove-50d", TEXTS[:8])
    encoded.clear()
    assert texts_are_encoded("glove-50d", TEXTS[:8])
    assert not texts_are_encoded("glove-50d", TEXTS)
    assert not texts_are_encoded("glove-50d", TEXTS[:8], max_tokens=8)
    assert encoded == []


def test_an_interrupted_encoding_goes_on(encoded):
    encode_texts("glove-50d", TEXTS[:8])
    encoded[:] = ["stop"]
    with pytest.raises(KeyboardInterrupt):
        encode_texts("glove-50d", TEXTS)
    encode_texts("glove-50d", TEXTS)
    assert encoded == TEXTS[8:]


def test_equal_chunks_are_encoded_once(encoded):
    repeated = encode_texts("glove-50d", TEXTS[:4] * 2)
    assert encoded == TEXTS[:4]
    assert torch.equal(repeated[:4], repeated[4:])


def test_a_damaged_file_is_an_error(encoded, tmp_path):
    encode_texts("glove-50d", TEXTS[:4])
    (path,) = (tmp_path / "latents" / "glove-50d").glob("*.npy")
    short = io.BytesIO()
    np.save(short, np.zeros((3, 50), dtype=np.float32))
    for content, said in [(b"?", "cannot be read"), (short.getvalue(), r"got float32 \(3, 50\)")]:
        path.write_bytes(content)
        with pytest.raises(CorruptedDataError, match=f"{said}.*delete it"):
            encode_texts("glove-50d", TEXTS[:4])


def test_what_cannot_be_encoded():
    with pytest.raises(EmptyInputError, match="at least one"):
        encode_texts("glove-50d", [])
    with pytest.raises(InputError, match="the one text"):
        encode_texts("glove-50d", "text")
    with pytest.raises(InputError, match="unknown text encoder"):
        encode_texts("glove", ["text"])


def test_keys_stay_as_they_are():
    """Another key would throw away hours of encoding."""
    expected = "6b3ee28a9e7da5b57f05eb3309ea9750b7a26e9fd60cb61a0dd5350ed520abb0"
    assert chunk_key("glove-50d", ["a", "é"], 64) == expected
