import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sheafed import Agent
from sheafed.errors import InputError
from sheafed.models.adapters import ScikitEncoder

X = np.random.default_rng(0).normal(size=(40, 12)).astype(np.float32)


def test_latents_are_those_of_the_transformer() -> None:
    pca = PCA(5, random_state=0).fit(X)
    encoder = ScikitEncoder(pca)
    latents = encoder(torch.as_tensor(X).reshape(40, 3, 2, 2))
    by_hand = (X - X.mean(0)) @ pca.components_.T
    np.testing.assert_allclose(latents.numpy(), by_hand, atol=1e-5)
    assert latents.dtype == torch.float32
    assert not latents.requires_grad
    assert encoder(torch.as_tensor(X).double()).dtype == torch.float64


@pytest.mark.parametrize(
    "transformer",
    [RBFSampler(n_components=7, random_state=0), make_pipeline(StandardScaler(), PCA(7))],
    ids=["random Fourier features", "pipeline"],
)
def test_any_transformer_is_a_frozen_agent(transformer) -> None:
    one = Agent("a", ScikitEncoder(transformer.fit(X)), data=X)
    assert (one.dimension, one.frozen, one.learns) == (7, True, False)
    assert torch.equal(one.encode(torch.as_tensor(X)), one.encode(torch.as_tensor(X)))
    assert one.encoder.state_dict() == {}
    assert type(transformer).__name__ in repr(one.encoder)


def test_sparse_latents_become_dense() -> None:
    encoder = ScikitEncoder(FunctionTransformer(sparse.csr_matrix, check_inverse=False).fit(X))
    np.testing.assert_array_equal(encoder(torch.as_tensor(X)).numpy(), X)


def test_whole_numbers_become_fractions() -> None:
    encoder = ScikitEncoder(StandardScaler().fit(X))
    assert encoder(torch.ones(2, 12, dtype=torch.uint8)).dtype == torch.float32


def test_it_says_that_it_has_no_gradient() -> None:
    encoder = ScikitEncoder(PCA(2).fit(X))
    inputs = torch.as_tensor(X).requires_grad_()
    with pytest.raises(InputError, match="a PCA of scikit-learn cannot be differentiated"):
        encoder(inputs)
    with torch.no_grad():
        assert encoder(inputs).shape == (40, 2)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="this PCA has not been fitted"):
        ScikitEncoder(PCA(2))
    with pytest.raises(InputError, match=r"a LinearRegression has no transform\(\)"):
        ScikitEncoder(LinearRegression().fit(X, X[:, 0]))
    with pytest.raises(InputError, match="agent 'a': the encoder fails on its training inputs"):
        Agent("a", ScikitEncoder(PCA(2).fit(X)), data=X[:, :5])
