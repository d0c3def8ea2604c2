"""The encoders themselves, where their files are in the cache and their libraries installed."""

from importlib.util import find_spec

import numpy as np
import pytest

from sheafed.datasets import cache
from sheafed.text_encoders import load_text_encoder
from sheafed.text_encoders.catalog import TEXT_ENCODERS

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


@pytest.mark.parametrize("name", TEXT_ENCODERS)
@pytest.mark.filterwarnings("default")  # libraries that are no part of the tests otherwise
def test_latents_are_those_of_the_original(name):
    info = TEXT_ENCODERS[name]
    if cache.missing_files(info.remote):
        pytest.skip(f"not in the cache; run `{info.remote.fetch_command}`")
    for module in info.needs:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    encoder = load_text_encoder(name, max_tokens=8)
    alone = encoder.encode([TEXT])
    assert alone.shape == (1, info.dim)
    np.testing.assert_allclose(alone[0, :3], EXPECTED[name], atol=2e-5)
    longer = " ".join([TEXT] * 3)
    np.testing.assert_allclose(encoder.encode([longer, TEXT])[1], alone[0], atol=1e-5)
