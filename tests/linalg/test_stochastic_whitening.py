"""The whitening layer: what it converges to, what it differentiates and what it remembers."""

import copy

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, NonFiniteError, ShapeError
from sheafed.linalg import StochasticWhitening
from tests.helpers.matrices import PROPERTY, TOLERANCE, deviation, normal, with_spectrum


def trained(
    d: int, steps: int, dtype: torch.dtype = torch.float64, seed: int = 0, **options: float
) -> StochasticWhitening:
    """A layer after some batches of correlated latents with a mean."""
    layer = StochasticWhitening(d, **options).to(dtype)
    mixing = with_spectrum(seed, d, np.geomspace(3, 0.3, d))
    for step in range(steps):
        layer((normal(1000 * seed + step, 32, d) @ mixing + 5).to(dtype))
    return layer


def buffers_of(layer: StochasticWhitening) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in layer.state_dict().items()}


def correlation_of(z: Tensor) -> np.ndarray:
    return np.corrcoef(z.double().numpy(), rowvar=False)


# Convergence


@pytest.mark.parametrize("seed", range(2))
def test_correlated_latents_are_white_after_300_batches(seed: int, dtype: torch.dtype) -> None:
    d = 64
    mixing = with_spectrum(seed, d, np.geomspace(1, 1e3**-0.5, d))
    mean = 3 * normal(seed + 50, d)
    covariance = (mixing.mT @ mixing).numpy()  # of the source, not of a sample
    assert np.linalg.cond(covariance) == pytest.approx(1e3)
    layer = StochasticWhitening(d).to(dtype)
    generator = np.random.default_rng(seed)
    for _ in range(300):
        batch = torch.from_numpy(generator.standard_normal((64, d))) @ mixing + mean
        layer(batch.to(dtype))
    layer.eval()
    # The layer is affine in inference: its matrix and its offset, from its outputs.
    origin = layer(mean[None].to(dtype))
    matrix = (layer((mean + torch.eye(d)).to(dtype)) - origin).double().numpy()
    assert np.linalg.norm(matrix.T @ covariance @ matrix - np.eye(d), 2) < 0.25
    assert float(origin.abs().max()) < 0.1
    untrained = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert np.linalg.norm(untrained - np.eye(d), 2) > 2  # standardising alone is far from it


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 1.0])
def test_one_batch_repeated_ends_at_the_inverse_root_of_its_correlation(
    shrinkage: float, dtype: torch.dtype
) -> None:
    z = (normal(1, 40, 6) @ with_spectrum(2, 6, np.geomspace(3, 0.3, 6)) + 1).to(dtype)
    layer = StochasticWhitening(6, shrinkage=shrinkage, eps=1e-12).to(dtype)
    for _ in range(40):
        white = layer(z)
    shrunk = (1 - shrinkage) * correlation_of(z) + shrinkage * np.eye(6)
    root = scipy.linalg.fractional_matrix_power(shrunk, -0.5)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    assert deviation(layer.decorrelation, root) < tolerance
    wide = z.double().numpy()
    assert deviation(white, (wide - wide.mean(0)) / wide.std(0) @ root) < tolerance
    if shrinkage == 0:
        assert (
            deviation(torch.from_numpy(np.cov(white.double().numpy().T, bias=True)), torch.eye(6))
            < tolerance
        )


@pytest.mark.parametrize("seed", range(3))
def test_fit_whitens_at_once_and_forgets_what_was_before(seed: int) -> None:
    layer = StochasticWhitening(5).double()
    layer(normal(seed, 30, 5))
    z = normal(seed + 10, 40, 5) @ normal(seed + 20, 5, 5) + 3
    layer.fit(z)
    white = layer.eval()(z)
    np.testing.assert_allclose(np.cov(white.numpy(), rowvar=False), np.eye(5), atol=2e-3)
    fresh = StochasticWhitening(5).double()
    fresh.fit(z)
    assert torch.equal(fresh.eval()(z), white)


def test_inference_uses_the_unbiased_running_scale() -> None:
    z = normal(3, 10, 3) + 4
    layer = StochasticWhitening(3, eps=1e-12).double()
    for _ in range(40):
        layer(z)
    wide = z.numpy()
    root = scipy.linalg.fractional_matrix_power(correlation_of(z), -0.5)
    new = normal(4, 5, 3)
    expected = (new.numpy() - wide.mean(0)) / wide.std(0, ddof=1) @ root
    assert deviation(layer.eval()(new), expected) < 1e-9


def test_strong_correlations_do_not_break_the_iteration() -> None:
    """All units nearly alike: the largest eigenvalue is 63, far beyond 3."""
    z = normal(5, 400, 1) + 0.1 * normal(6, 400, 64)
    assert np.linalg.eigvalsh(correlation_of(z))[-1] > 60
    layer = StochasticWhitening(64, eps=1e-12).double()
    for _ in range(60):
        layer(z)
    root = scipy.linalg.fractional_matrix_power(correlation_of(z), -0.5)
    assert deviation(layer.decorrelation, root) < 1e-6


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("kind", ["few rows", "copies"])
def test_singular_latents_do_not_make_it_diverge(scale: float, kind: str, dtype) -> None:
    """Fewer latents than dimensions, or units that repeat each other, batch after batch."""
    layer = StochasticWhitening(32).to(dtype)
    for step in range(150):
        z = normal(7, 16, 32) if kind == "few rows" else normal(step, 64, 8).repeat(1, 4)
        white = layer((scale * z).to(dtype))
    assert torch.isfinite(layer.decorrelation).all()
    assert float(white.abs().max()) < 10
    assert float(layer.eval()((scale * z).to(dtype)).abs().max()) < 10


# What is remembered


@pytest.mark.parametrize("momentum", [0.0, 0.2, 1.0])
def test_running_statistics_follow_numpy(momentum: float, dtype: torch.dtype) -> None:
    """Plain averages until 1 / momentum batches are seen, exponential ones from then on."""
    layer = StochasticWhitening(3, momentum=momentum).to(dtype)
    batches = [normal(i, 6 + i, 3, dtype=dtype) * (i + 1) + i for i in range(9)]
    mean, covariance = np.zeros(3), np.eye(3)
    for count, batch in enumerate(batches, start=1):
        layer(batch)
        weight = max(momentum, 1 / count)
        mean = (1 - weight) * mean + weight * batch.double().numpy().mean(0)
        covariance = (1 - weight) * covariance + weight * np.cov(batch.double().numpy().T)
        assert deviation(layer.running_mean, mean) < 20 * TOLERANCE[dtype]
        assert deviation(layer.running_covariance, covariance) < 200 * TOLERANCE[dtype]
        assert int(layer.batches) == count
    if momentum == 0:
        every = np.mean([batch.double().numpy().mean(0) for batch in batches], axis=0)
        assert deviation(layer.running_mean, every) < 20 * TOLERANCE[dtype]


def test_inference_changes_nothing_and_treats_rows_alone(dtype: torch.dtype) -> None:
    layer = trained(4, 20, dtype).eval()
    before = buffers_of(layer)
    z = normal(8, 6, 4, dtype=dtype)
    white = layer(z)
    layer.colour(white)
    assert deviation(layer(z[2:3]), white[2:3]) < 10 * TOLERANCE[dtype]
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_an_untrained_layer_passes_latents_through() -> None:
    layer = StochasticWhitening(3, eps=1e-12).double().eval()
    z = normal(9, 5, 3)
    assert deviation(layer(z), z) < 1e-10


def test_a_restored_layer_goes_on_where_the_first_one_stopped(dtype: torch.dtype) -> None:
    layer = trained(5, 7, dtype)
    restored = StochasticWhitening(5).to(dtype)
    restored.load_state_dict(copy.deepcopy(layer.state_dict()))
    assert set(layer.state_dict()) == {
        "running_mean",
        "running_covariance",
        "decorrelation",
        "batches",
    }
    for step in range(5):
        z = normal(60 + step, 16, 5, dtype=dtype)
        assert torch.equal(layer(z), restored(z))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, restored.state_dict()[name])
    assert torch.equal(layer.eval()(z), restored.eval()(z))


# Colouring


@PROPERTY
@given(
    seed=st.integers(0, 10**4),
    d=st.integers(1, 6),
    steps=st.integers(0, 12),
    shrinkage=st.floats(0, 1),
)
def test_colour_undoes_whiten(seed: int, d: int, steps: int, shrinkage: float) -> None:
    layer = trained(d, steps, seed=seed, shrinkage=shrinkage).eval()
    z = 10 * normal(seed, 7, d)
    assert deviation(layer.colour(layer(z)), z) < 1e-9
    assert deviation(layer(layer.colour(z)), z) < 1e-9


def test_colour_undoes_whiten_in_single_precision() -> None:
    layer = trained(16, 50, torch.float32).eval()
    z = 5 + normal(10, 7, 16, dtype=torch.float32)
    assert deviation(layer.colour(layer(z)), z) < 1e-4


def test_colouring_is_differentiable() -> None:
    layer = trained(3, 10).eval()
    assert torch.autograd.gradcheck(
        lambda z: layer.colour(layer(z)), (normal(11, 4, 3).requires_grad_(),)
    )


# What is differentiated


def test_nothing_is_learnt_by_gradients() -> None:
    layer = StochasticWhitening(4)
    assert list(layer.parameters()) == []
    white = layer(normal(12, 9, 4, dtype=torch.float32).requires_grad_())
    assert white.requires_grad
    assert not any(buffer.requires_grad for buffer in layer.buffers())


def test_the_training_gradient_is_that_of_the_standardisation_alone() -> None:
    """Finite differences with the decorrelating matrix held still."""
    layer, z = trained(4, 20), normal(13, 8, 4).requires_grad_()
    target = normal(14, 8, 4)
    (gradient,) = torch.autograd.grad((layer(z) - target).square().sum(), z)
    matrix = layer.decorrelation.numpy()

    def penalty(x: np.ndarray) -> float:
        standardised = (x - x.mean(0)) / np.sqrt(x.var(0) + layer.eps * x.var(0).mean())
        return float(((standardised @ matrix.T - target.numpy()) ** 2).sum())

    numerical = np.zeros((8, 4))
    for i, j in np.ndindex(8, 4):
        step = np.zeros((8, 4))
        step[i, j] = 1e-5
        at = z.detach().numpy()
        numerical[i, j] = (penalty(at + step) - penalty(at - step)) / 2e-5
    assert deviation(gradient, numerical) < 1e-6


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_white_latents_do_not_follow_the_scale(scale: float) -> None:
    z = normal(17, 40, 4)
    one, other = (StochasticWhitening(4).double() for _ in range(2))
    torch.testing.assert_close(one(z), other(scale * z))


def test_no_penalty_gains_by_scale_or_position(dtype: torch.dtype) -> None:
    layer, z = trained(4, 20, dtype), normal(15, 30, 4, dtype=dtype).requires_grad_()
    target = normal(16, 30, 4, dtype=dtype)
    (gradient,) = torch.autograd.grad((layer(z) - target).square().sum(), z)
    centred = z.detach() - z.detach().mean(0)
    # Unit by unit the pulls along the scale cancel, up to the order of eps.
    pulls = gradient * centred
    assert float((pulls.sum(0).abs() / pulls.abs().sum(0)).max()) < 5e-5
    assert float(gradient.sum(0).abs().max()) < 1e-4
    one, other = copy.deepcopy(layer), copy.deepcopy(layer)
    one.momentum = other.momentum = 1.0
    assert deviation(one(z), other(1.01 * z + 3)) < 1e-4


def test_batches_of_another_scale_are_standardised_by_themselves() -> None:
    """In training the scale comes from the batch, in inference from the past."""
    layer = trained(3, 200, eps=1e-12)
    z = 100 * normal(17, 500, 3)
    assert float(layer.eval()(z).std()) > 20
    assert float(layer.train()(z).std(0).max()) < 4


def test_two_batches_may_be_whitened_before_one_backward_pass() -> None:
    """Private data and pilots go through the same layer, and one loss joins them."""
    layer = trained(4, 10)
    private, pilots = normal(18, 9, 4).requires_grad_(), normal(19, 7, 4).requires_grad_()
    weights = normal(20, 4)
    alone = copy.deepcopy(layer)
    (alone(private).pow(3) @ weights).sum().backward()
    expected = private.grad.clone()
    private.grad = None
    loss = (layer(private).pow(3) @ weights).sum() + layer(pilots).square().sum()
    layer.eval()
    loss = loss + layer(private.detach()).sum()
    loss.backward()
    assert deviation(private.grad, expected) < 1e-12


# Dead units


def test_dead_units_give_0_and_do_not_disturb_the_others(dtype: torch.dtype) -> None:
    layer, without = StochasticWhitening(4).to(dtype), StochasticWhitening(3).to(dtype)
    live = [0, 1, 3]
    for step in range(60):
        z = normal(step, 32, 4, dtype=dtype) @ with_spectrum(21, 4, [3, 1, 1, 0.5], dtype)
        z[:, 2] = 0.5
        white, expected = layer(z), without(z[:, live])
        assert deviation(white[:, 2], torch.zeros(32)) < 1e-6
        # The bound that damps the iteration sees one row more, nothing else changes.
        assert deviation(white[:, live], expected) < 1e-3
    layer.eval()
    assert float(layer(z)[:, 2].abs().max()) < 1e-3
    assert deviation(layer.colour(layer(z)), z) < 1e-4
    z = z.requires_grad_()
    (gradient,) = torch.autograd.grad(layer.train()(z).pow(3).sum(), z)
    assert torch.isfinite(gradient).all()


def test_constant_batches_stay_finite(dtype: torch.dtype) -> None:
    layer = StochasticWhitening(3).to(dtype)
    for _ in range(50):
        white = layer(torch.full((8, 3), 0.1, dtype=dtype))
    assert float(white.abs().max()) < 1e-5
    assert deviation(layer.decorrelation, torch.eye(3)) < 1e-6


# Refusals


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="dimension must be at least 1, got 0"):
        StochasticWhitening(0)
    with pytest.raises(InputError, match=r"momentum .*got 1\.5"):
        StochasticWhitening(3, momentum=1.5)
    with pytest.raises(InputError, match=r"shrinkage .*got -0\.1"):
        StochasticWhitening(3, shrinkage=-0.1)
    with pytest.raises(InputError, match="eps must be positive, got 0"):
        StochasticWhitening(3, eps=0)


@pytest.mark.parametrize("method", ["forward", "colour"])
def test_unusable_latents_are_refused_and_not_learnt(method: str) -> None:
    layer = trained(3, 5, torch.float32)
    before = buffers_of(layer)
    call = getattr(layer, method)
    with pytest.raises(ShapeError, match=r"\(n, 3\), got .*latents of shape \(5, 4\)"):
        call(torch.ones(5, 4))
    with pytest.raises(ShapeError, match=r"\(n, 3\), got .*latents of shape \(2, 5, 3\)"):
        call(torch.ones(2, 5, 3))
    with pytest.raises(ShapeError, match=r"got \(3,\)"):
        call(torch.ones(3))
    with pytest.raises(DtypeError, match=r"computes in torch.float32, got .*of torch.float64"):
        call(torch.ones(5, 3).double())
    with pytest.raises(NonFiniteError, match="latents holds 15"):
        call(torch.full((5, 3), torch.nan))
    with pytest.raises(EmptyInputError, match=r"\(0, 3\)"):
        call(torch.ones(0, 3))
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_one_row_teaches_nothing() -> None:
    layer = StochasticWhitening(3)
    with pytest.raises(EmptyInputError, match=r"two rows, got \(1, 3\); call eval\(\)"):
        layer(torch.ones(1, 3))
    assert int(layer.batches) == 0
    assert layer.eval()(torch.ones(1, 3)).shape == (1, 3)


def test_it_says_what_it_is() -> None:
    text = repr(StochasticWhitening(7, momentum=0.05, shrinkage=0.1))
    assert text == "StochasticWhitening(7, momentum=0.05, shrinkage=0.1)"
