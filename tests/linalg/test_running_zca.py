"""RunningZCA: whitening in closed form that follows the latents."""

import numpy as np
import pytest
import scipy.linalg
import torch

from sheafed.errors import (
    DtypeError,
    EmptyInputError,
    InputError,
    ShapeError,
    SingularCovarianceError,
)
from sheafed.linalg import RunningZCA
from tests.helpers.matrices import normal


def covariances(z):
    return np.cov(z.detach().numpy().T)


def whitener(covariance, shrinkage):
    d = len(covariance)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    return scipy.linalg.fractional_matrix_power(shrunk, -0.5).real


def test_inference_follows_the_running_moments():
    layer = RunningZCA(3, momentum=0.4, shrinkage=0.2).double()
    mean, covariance = np.zeros(3), np.eye(3)
    for count in range(1, 7):
        z = normal(count, 9, 3) * count + count
        layer(z)
        weight = max(0.4, 1 / count)
        mean = (1 - weight) * mean + weight * z.numpy().mean(0)
        covariance = (1 - weight) * covariance + weight * covariances(z)
    z = normal(99, 5, 3)
    expected = (z.numpy() - mean) @ whitener(covariance, 0.2)
    np.testing.assert_allclose(layer.eval()(z), expected, atol=1e-10)
    np.testing.assert_allclose(layer.colour(layer(z)), z, atol=1e-10)


def test_training_standardises_the_batch_along_the_running_directions():
    layer = RunningZCA(3, momentum=0.1, shrinkage=0.3).double()
    for seed in range(4):
        layer(normal(seed, 20, 3) * torch.tensor([3.0, 2.0, 1.0]).double())
    z, weights = normal(7, 12, 3), normal(8, 12, 3)
    point = z.clone().requires_grad_()
    white = layer(point)
    (white * weights).sum().backward()
    _, directions = np.linalg.eigh(layer.running_covariance.numpy())

    def whiten(x):
        along = (x - x.mean(0)) @ directions
        variances = along.var(0)
        return along / np.sqrt(0.7 * variances + 0.3 * variances.mean()) @ directions.T

    np.testing.assert_allclose(white.detach(), whiten(z.numpy()), atol=1e-10)
    step = 1e-5
    numerical = np.zeros((12, 3))
    for index in np.ndindex(12, 3):
        up, down = z.numpy().copy(), z.numpy().copy()
        up[index] += step
        down[index] -= step
        numerical[index] = ((whiten(up) - whiten(down)) * weights.numpy()).sum() / (2 * step)
    np.testing.assert_allclose(point.grad, numerical, atol=1e-6)


def test_it_commutes_with_rotations():
    q = torch.from_numpy(scipy.stats.ortho_group.rvs(4, random_state=0))
    plain, turned = RunningZCA(4).double(), RunningZCA(4).double()
    for seed in range(3):
        z = normal(seed, 30, 4) @ torch.diag(torch.tensor([4.0, 2.0, 1.0, 0.5]).double())
        white, white_turned = plain(z), turned(z @ q)
        np.testing.assert_allclose(white_turned, white @ q, atol=1e-10)
    np.testing.assert_allclose(turned.eval()(z @ q), plain.eval()(z) @ q, atol=1e-10)
    np.testing.assert_allclose(turned.colour(white @ q), plain.colour(white) @ q, atol=1e-10)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_penalty_cannot_gain_by_shrinking_any_direction(scale):
    layer = RunningZCA(3, shrinkage=0.0).double()
    z = scale * normal(0, 50, 3) @ normal(1, 3, 3)
    layer(z)
    point = z.clone().requires_grad_()
    (layer(point) - normal(2, 50, 3)).square().sum().backward()
    _, directions = torch.linalg.eigh(layer.running_covariance)
    pulls = (point.grad @ directions) * ((z - z.mean(0)) @ directions)
    assert float((pulls.sum(0).abs() / pulls.abs().sum(0)).max()) < 1e-10


def test_fewer_rows_than_dimensions_do_not_blow_up():
    layer = RunningZCA(40, shrinkage=0.1)
    for seed in range(30):
        white = layer(normal(seed, 16, 40, dtype=torch.float32))
        assert float(white.abs().max()) < 20


def test_fit_forgets_what_was_before():
    layer = RunningZCA(3, shrinkage=0.0).double().eval()
    layer(normal(0, 8, 3))
    z = normal(1, 40, 3) * 5 + 2
    layer.fit(z)
    np.testing.assert_allclose(covariances(layer(z)), np.eye(3), atol=1e-10)


@pytest.mark.parametrize(("momentum", "weight"), [(0.3, 0.3), (0.25, 0.25), (0.0, 1 / 41)])
def test_what_is_fitted_counts_as_settled(momentum, weight):
    layer = RunningZCA(3, momentum=momentum).double()
    z, batch = normal(1, 40, 3) * 5 + 2, normal(2, 8, 3)
    layer.fit(z)
    layer(batch)
    expected = (1 - weight) * z.mean(0) + weight * batch.mean(0)
    np.testing.assert_allclose(layer.running_mean, expected, atol=1e-12)


def test_other_moments_are_noticed_however_they_come():
    layer = RunningZCA(3).eval()
    z = normal(0, 8, 3, dtype=torch.float32)
    before = layer(z)
    other = RunningZCA(3)
    other.fit(5 * z)
    state = other.state_dict() | {"batches": layer.batches.clone()}
    layer.load_state_dict(state)
    assert float((layer(z) - before).abs().max()) > 0.1
    np.testing.assert_allclose(layer.double()(z.double()), other.double().eval()(z.double()))


def test_bad_input():
    with pytest.raises(InputError, match=r"1\.5"):
        RunningZCA(3, shrinkage=1.5)
    with pytest.raises(InputError, match="at least 1"):
        RunningZCA(0)
    layer = RunningZCA(3, shrinkage=0.0)
    with pytest.raises(ShapeError, match=r"\(4, 2\)"):
        layer(torch.zeros(4, 2))
    with pytest.raises(DtypeError, match="float64"):
        layer(torch.zeros(4, 3).double())
    with pytest.raises(EmptyInputError, match="two rows"):
        layer(torch.zeros(1, 3))
    with pytest.raises(SingularCovarianceError, match="shrinkage"):
        layer(torch.ones(4, 3))
