import numpy as np
import pytest
import torch

import sheafed
from sheafed.alignment.fingerprint import fingerprint, similarity
from sheafed.errors import EncoderMismatchError, ShapeError
from sheafed.linalg.support import support


def encoder(seed, d=64):
    """Latents with a mean of their own and unequal variances, of inputs (n, 80)."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((80, d)) / np.arange(1, 81)[:, None]
    mean = rng.standard_normal(d)
    return lambda inputs: inputs @ weights + mean


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    return rng.standard_normal((400, 80)), 1.2 * rng.standard_normal((400, 80)) + rng.uniform(
        -1, 1, 80
    )


@pytest.fixture(scope="module")
def alignment(inputs):
    pilots, _ = inputs
    return sheafed.align({"a": encoder(1)(pilots), "b": encoder(2)(pilots)}, maps="ridge")


def test_other_data_of_the_same_encoder_are_sent(alignment, inputs):
    pilots, other = inputs
    for z in (pilots, other, other[:40], other[other[:, 0] > 0.5]):
        assert alignment.send(encoder(1)(z), "a", "b").shape == (len(z), 64)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda z: 3 * z, "times"),
        (lambda z: z / 3, "times"),
        (lambda z: z[:, np.random.default_rng(3).permutation(64)], "correlation"),
        (lambda z: z @ np.linalg.qr(np.random.default_rng(4).standard_normal((64, 64)))[0], "corr"),
    ],
)
def test_latents_of_another_version_are_refused(alignment, inputs, tmp_path, change, text):
    z = change(encoder(1)(inputs[1] / 1.2))
    with pytest.raises(EncoderMismatchError, match=f"'a'.*{text}.*check=False"):
        alignment.send(z, "a", "b")
    np.testing.assert_array_equal(
        alignment.send(z, "a", "b", check=False), alignment.link("a", "b").transform(z)
    )
    # A few rows could be anything.
    alignment.send(z[:31], "a", "b")
    loaded = sheafed.Alignment.load(alignment.save(tmp_path))
    with pytest.raises(EncoderMismatchError):
        loaded.send(torch.as_tensor(z), "a", "b")


def test_pilots_without_structure_or_too_few_judge_lengths_only(inputs):
    white = torch.as_tensor(np.random.default_rng(5).standard_normal((400, 64)))
    assert not fingerprint(white, support(white)).structured
    z = torch.as_tensor(encoder(1)(inputs[0]))
    assert fingerprint(z, support(z)).structured
    few = fingerprint(z[:299], support(z[:299]))
    assert not few.structured
    few.check("a", z[:, torch.randperm(64, generator=torch.Generator().manual_seed(0))])
    with pytest.raises(EncoderMismatchError, match="times"):
        few.check("a", 10 * z)


def test_similarity_by_hand(inputs):
    x, z = (encoder(1)(inputs[k]) for k in (0, 1))
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    along = np.diag(vectors.T @ np.cov(z.T, bias=True) @ vectors)
    expected = max(
        np.corrcoef(x.mean(0), z.mean(0))[0, 1], np.corrcoef(np.log(values), np.log(along))[0, 1]
    )
    given = (x.mean(0), vectors, values, z)
    assert similarity(*map(torch.as_tensor, given)) == pytest.approx(expected, abs=1e-6)


def test_other_faults_keep_their_errors(alignment):
    with pytest.raises(ShapeError):
        alignment.send(np.ones((50, 7)), "a", "b")


def test_pilots_of_which_half_are_alike_are_judged_by_length_only():
    rng = np.random.default_rng(0)
    x = np.ones((400, 3))
    x[1::2] = rng.standard_normal((200, 3))
    known = sheafed.align({"x": x, "y": rng.standard_normal((400, 3))}).fingerprints["x"]
    assert not known.structured
