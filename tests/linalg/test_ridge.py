import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from sheafed.linalg.ridge import best_penalty, ranked_directions
from sheafed.linalg.ridge import ridge as ridge_from_products
from sheafed.linalg.support import support


def problem(n=40, d=7, q=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 2
    y = x[:, :3] @ rng.standard_normal((3, q)) + rng.standard_normal((n, q))
    return x, y


def orthogonal(x):
    found = support(torch.as_tensor(x))
    return found.coordinates(torch.as_tensor(x)), found


def ridge(x, y, penalty):
    return ridge_from_products(x.square().sum(0), x.mT @ y, penalty)


def reduced_rank_ridge(x, y, penalty, rank):
    leading = ranked_directions(x.square().sum(0), x.mT @ y, penalty)[:rank]
    return ridge(x, y, penalty) @ leading.mT @ leading


def centred(y):
    return torch.as_tensor(y - y.mean(0))


@pytest.mark.parametrize("d", [7, 60])
@pytest.mark.parametrize("penalty", [0.3, 30.0])
def test_ridge_is_that_of_scikit_learn(d, penalty):
    x, y = problem(d=d)
    z, found = orthogonal(x)
    expected = Ridge(alpha=penalty, solver="svd").fit(x, y).coef_
    np.testing.assert_allclose(
        (found.basis @ ridge(z, centred(y), penalty)).mT, expected, rtol=1e-7, atol=1e-9
    )
    kernel = KernelRidge(alpha=penalty, kernel="linear").fit(x - x.mean(0), y - y.mean(0))
    np.testing.assert_allclose(
        z @ ridge(z, centred(y), penalty), kernel.predict(x - x.mean(0)), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("d", [7, 60])
def test_without_a_penalty_it_is_least_squares_of_minimum_norm(d):
    x, y = problem(d=d)
    z, found = orthogonal(x)
    expected = np.linalg.pinv(x - x.mean(0), rcond=1e-10) @ (y - y.mean(0))
    np.testing.assert_allclose(found.basis @ ridge(z, centred(y), 0.0), expected, atol=1e-9)


@pytest.mark.parametrize("d", [7, 60])
@pytest.mark.parametrize("penalty", [0.3, 30.0])
def test_leaving_one_out_is_exact(d, penalty):
    x, y = problem(d=d)
    left_out = cross_val_predict(Ridge(alpha=penalty, solver="svd"), x, y, cv=LeaveOneOut())
    z, _ = orthogonal(x)
    _, found = best_penalty(z, centred(y), [penalty])
    assert found == pytest.approx(((left_out - y) ** 2).mean(), rel=1e-8)


@pytest.mark.parametrize("noise", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("d", [7, 30, 60])
def test_it_chooses_the_penalty_that_scikit_learn_chooses(d, noise):
    x, y = problem(d=d)
    y = x[:, :5] + noise * y
    penalties = [10.0**k for k in range(-3, 5)]
    z, _ = orthogonal(x)
    found, error = best_penalty(z, centred(y), penalties)
    assert found == RidgeCV(alphas=penalties).fit(x, y).alpha_
    errors = [best_penalty(z, centred(y), [penalty])[1] for penalty in penalties]
    assert error == pytest.approx(min(errors), rel=1e-6)


def test_reduced_rank_ridge_minimises_over_weights_of_its_rank():
    x, y = problem(q=6)
    z, _ = orthogonal(x)
    found = reduced_rank_ridge(z, centred(y), 5.0, rank=2)
    assert torch.linalg.matrix_rank(found) == 2

    def objective(weights):
        return float((centred(y) - z @ weights).square().sum() + 5.0 * weights.square().sum())

    # Alternating least squares from several starts: another way to the same minimum.
    reached = []
    for seed in range(5):
        right = torch.randn(
            6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        for _ in range(300):
            right, _ = torch.linalg.qr(right)
            left = ridge(z, centred(y) @ right, 5.0)
            fitted = torch.vstack([z @ left, 5.0**0.5 * left])
            target = torch.vstack([centred(y), torch.zeros(len(left), 6, dtype=torch.float64)])
            right = torch.linalg.lstsq(fitted, target).solution.mT
        right, _ = torch.linalg.qr(right)
        reached.append(objective(ridge(z, centred(y) @ right, 5.0) @ right.mT))
    assert objective(found) == pytest.approx(min(reached), rel=1e-9)
    full = reduced_rank_ridge(z, centred(y), 0.0, rank=6)
    expected = LinearRegression().fit(x, y).predict(x) - y.mean(0)
    np.testing.assert_allclose(z @ full, expected, atol=1e-9)
