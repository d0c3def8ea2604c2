import numpy as np
import scipy.linalg
import torch
from sklearn.cross_decomposition import CCA

from sheafed.linalg.canonical import canonical_directions as from_products
from sheafed.linalg.procrustes import procrustes


def white_pair(n=90, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5)) @ rng.standard_normal((5, 5))
    y = x[:, :3] @ rng.standard_normal((3, 3)) + 2 * rng.standard_normal((n, 3))
    white = []
    for z in (x, y):
        z = z - z.mean(0)
        root = scipy.linalg.fractional_matrix_power(np.cov(z.T, bias=True), -0.5)
        white.append(torch.as_tensor(z @ root))
    return x, y, *white


def canonical_directions(x, y):
    return from_products(x.mT @ y / len(x))


def weighted(found, power):
    left, right = found.weighted(power)
    return left @ right


def test_correlations_are_those_of_scikit_learn():
    x, y, white_x, white_y = white_pair()
    found = canonical_directions(white_x, white_y)
    a, b = CCA(3, max_iter=20_000, tol=1e-14).fit_transform(x, y)
    expected = [np.corrcoef(a[:, k], b[:, k])[0, 1] for k in range(3)]
    np.testing.assert_allclose(found.correlations, expected, atol=1e-6)


def test_unweighted_they_are_the_isometry_and_weighted_the_regression():
    _, _, x, y = white_pair()
    found = canonical_directions(x, y)
    torch.testing.assert_close(weighted(found, 0.0), procrustes(x, y))
    regression = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(weighted(found, 1.0), regression, atol=1e-10)
    back = canonical_directions(y, x)
    torch.testing.assert_close(weighted(found.reversed(), 0.5), weighted(back, 0.5))


def test_directions_that_nothing_determines_are_left_out():
    x = torch.eye(4, dtype=torch.float64)
    y = torch.zeros(4, 3, dtype=torch.float64)
    y[0, 1] = 1.0
    found = canonical_directions(x, y)
    assert len(found.correlations) == 1
    assert float(weighted(found, 0.0).abs().sum()) == 1.0
    empty = canonical_directions(x, torch.zeros(4, 0, dtype=x.dtype))
    assert weighted(empty, 0.0).shape == (4, 0)
