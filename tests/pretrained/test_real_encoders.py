"""The encoders themselves, where their files are in the cache and their libraries installed.

Where all tests must run, files are fetched and a missing library is a failure.
"""

import os
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from sheafed.datasets import cache
from sheafed.pretrained import load_image_encoder, load_text_encoder
from sheafed.pretrained.images.catalog import IMAGE_ENCODERS
from sheafed.pretrained.texts.catalog import TEXT_ENCODERS

TEXT = "This is an example sentence"
# The first coordinates of its latent, computed without this package: by transformers with the
# recipe of the model cards, by the pooled output that the ONNX graph has itself, by the packages of
# WordLlama and of the Universal Sentence Encoder, and as the mean of five rows of GloVe.
EXPECTED = {
    "glove-50d": [0.31075, 0.48425, -0.38853],
    "wordllama-256": [-0.07816, 0.27895, -0.22502],
    "use-multilingual": [0.03496, -0.02354, 0.01691],
    "paraphrase-minilm-l3": [0.32079, 0.13724, 0.25986],
    "minilm-l6": [0.06766, 0.06350, 0.04871],
    "mpnet-base": [0.02250, -0.07829, -0.02303],
}


# Of the image below, by the package efficientnet_lite_pytorch 0.1.0, and by MobileNetV2 of
# transformers with the same weights: the first coordinates, and the mean of all.
EXPECTED_OF_IMAGES = {
    "efficientnet-lite0": ([1.72031, 0.0, 4.15266, 3.31993], 0.7581),
    "efficientnet-lite1": ([0.0, 0.0, 5.83044, 0.0], 0.7444),
    "efficientnet-lite2": ([0.0, 1.95211, 5.04178, 0.09951], 0.7139),
    "mobilenet-v2": ([0.50456, 1.4815, 1.71076, 0.0], 0.6917),
}


LARGEST = 100_000_000
"""Bytes of an encoder that is fetched for its test; one is larger."""


def have_files_of(info):
    if not cache.missing_files(info.remote):
        return
    if os.environ.get("CI") and sum(file.size for file in info.remote.files) <= LARGEST:
        cache.fetch(info.remote)
    else:
        pytest.skip(f"not in the cache; run `{info.remote.fetch_command}`")


def have_libraries_of(info):
    absent = [module for module in info.needs if find_spec(module) is None]
    if absent and os.environ.get("CI"):
        pytest.fail(f"{', '.join(absent)} are not installed; the extra text has them")
    if absent:
        pytest.skip(f"{', '.join(absent)} are not installed")


@pytest.mark.parametrize("name", TEXT_ENCODERS)
@pytest.mark.filterwarnings("default")  # libraries that are no part of the tests otherwise
def test_latents_are_those_of_the_original(name):
    info = TEXT_ENCODERS[name]
    have_libraries_of(info)
    have_files_of(info)
    encoder = load_text_encoder(name, max_tokens=8)
    alone = encoder.encode([TEXT])
    assert alone.shape == (1, info.dim)
    np.testing.assert_allclose(alone[0, :3], EXPECTED[name], atol=2e-5)
    longer = " ".join([TEXT] * 3)
    np.testing.assert_allclose(encoder.encode([longer, TEXT])[1], alone[0], atol=1e-5)


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_latents_of_an_image_are_those_of_the_original(name):
    have_files_of(IMAGE_ENCODERS[name])
    t = torch.arange(64.0)
    waves = ((t.sin(), t.cos()), (t / 64, t / 64), (t.cos(), t.cos()))
    image = torch.stack([torch.outer(*pair) for pair in waves]).abs()[None]
    latent = load_image_encoder(name, resolution=64).encode(image)[0]
    first, mean = EXPECTED_OF_IMAGES[name]
    np.testing.assert_allclose(latent[:4], first, atol=2e-4)
    assert latent.mean() == pytest.approx(mean, abs=1e-4)
