"""ZCA whitening against SciPy and scikit-learn; its derivative against finite differences."""

import numpy as np
import pytest
import scipy.linalg
import sklearn.covariance
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sheafed.errors import (
    DtypeError,
    EmptyInputError,
    InputError,
    NonFiniteError,
    ShapeError,
    SingularCovarianceError,
)
from sheafed.linalg import ledoit_wolf, zca
from sheafed.linalg.whitening import inverse_sqrt_and_sqrt, shrunk_covariance
from tests.helpers.matrices import (
    PROPERTY,
    TOLERANCE,
    centred_orthonormal,
    deviation,
    normal,
    orthonormal,
    with_spectrum,
)


def correlated(seed: int, n: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Latents with a mean and a covariance of condition number about 100."""
    return (normal(seed, n, d) @ with_spectrum(seed + 1, d, np.geomspace(3, 0.3, d)) + 2).to(dtype)


def covariance_of(x: Tensor) -> np.ndarray:
    return np.cov(x.double().numpy(), rowvar=False, bias=True).reshape((x.shape[1],) * 2)


# Values


@pytest.mark.parametrize(("n", "d"), [(2, 1), (50, 1), (50, 3), (200, 16)])
def test_white_latents_have_mean_0_and_covariance_1(n: int, d: int, dtype: torch.dtype) -> None:
    x = correlated(1, n, d, dtype)
    white = zca(x).whiten(x)
    assert white.dtype == dtype
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    assert deviation(white.double().mean(0), torch.zeros(d)) < tolerance
    assert deviation(torch.from_numpy(covariance_of(white)), torch.eye(d)) < tolerance


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 1.0])
def test_the_roots_are_scipy_s_powers_of_the_shrunk_covariance(shrinkage: float, dtype) -> None:
    x = correlated(2, 60, 5, dtype)
    covariance = covariance_of(x)
    target = np.trace(covariance) / 5 * np.eye(5)
    shrunk = (1 - shrinkage) * covariance + shrinkage * target
    whitening = zca(x, shrinkage)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    assert deviation(whitening.mean, x.double().numpy().mean(0)) < tolerance
    assert deviation(shrunk_covariance(x, shrinkage)[1], shrunk) < tolerance
    power = scipy.linalg.fractional_matrix_power
    assert deviation(whitening.whitener, power(shrunk, -0.5)) < tolerance
    assert deviation(whitening.colourer, power(shrunk, 0.5)) < tolerance
    for root in (whitening.whitener, whitening.colourer):
        assert deviation(root, root.mT) < TOLERANCE[dtype]


def test_full_shrinkage_only_whitens_the_overall_scale() -> None:
    x = correlated(3, 60, 4)
    scale = np.sqrt(np.trace(covariance_of(x)) / 4)
    assert deviation(zca(x, 1.0).whiten(x), (x - x.mean(0)) / scale) < 1e-12


def test_batches_are_whitened_one_by_one(dtype: torch.dtype) -> None:
    x = torch.stack([correlated(seed, 40, 4, dtype) for seed in range(6)]).reshape(2, 3, 40, 4)
    for shrinkage in (0.1, "auto"):
        whitening = zca(x, shrinkage)
        assert whitening.mean.shape == (2, 3, 4)
        assert whitening.whitener.shape == whitening.colourer.shape == (2, 3, 4, 4)
        white, back = whitening.whiten(x), whitening.colour(whitening.whiten(x))
        assert deviation(back, x) < 100 * TOLERANCE[dtype]
        for i, j in np.ndindex(2, 3):
            alone = zca(x[i, j], shrinkage)
            assert deviation(white[i, j], alone.whiten(x[i, j])) < 100 * TOLERANCE[dtype]


def test_new_latents_use_the_fitted_statistics() -> None:
    x, new = correlated(4, 50, 3), normal(5, 7, 3)
    expected = scipy.linalg.fractional_matrix_power(covariance_of(x), -0.5)
    assert deviation(zca(x).whiten(new), (new - x.mean(0)).numpy() @ expected) < 1e-10
    assert deviation(zca(x).whiten(new[:1]), zca(x).whiten(new)[:1]) < 1e-14


@PROPERTY
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 6),
    offset=st.floats(-100, 100),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    shrinkage=st.one_of(st.floats(0, 1), st.just("auto")),
)
def test_colour_undoes_whiten_and_whiten_colour(seed, d, offset, scale, shrinkage) -> None:
    x = scale * (correlated(seed, 4 * d + 2, d) + offset)
    whitening = zca(x, shrinkage)
    z = scale * normal(seed + 9, 5, d)
    size = scale * (1 + abs(offset))
    assert deviation(whitening.colour(whitening.whiten(z)), z) < 1e-9 * size
    u = normal(seed + 8, 5, d)
    assert deviation(whitening.whiten(whitening.colour(u)), u) < 1e-8


def test_colour_undoes_whiten_in_single_precision() -> None:
    x = correlated(6, 100, 8, torch.float32)
    whitening = zca(x)
    assert deviation(whitening.colour(whitening.whiten(x)), x) < 1e-5


@PROPERTY
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 6),
    scale=st.floats(1e-3, 1e3),
    shrinkage=st.sampled_from([0.0, 0.3, 1.0, "auto"]),
)
def test_whitening_follows_rotations_and_ignores_scale_and_position(
    seed: int, d: int, scale: float, shrinkage: float
) -> None:
    x, q = correlated(seed, 4 * d + 2, d), orthonormal(seed + 5, d, d)
    white = zca(x, shrinkage).whiten(x)
    moved = scale * x @ q + normal(seed + 6, 1, d)
    assert deviation(zca(moved, shrinkage).whiten(moved), white @ q) < 1e-8


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, "auto"])
def test_powers_of_two_do_not_change_a_bit(shrinkage: float, dtype: torch.dtype) -> None:
    x = correlated(28, 40, 6, dtype)
    expected, amount = zca(x, shrinkage), ledoit_wolf(x)
    limit = 100 if dtype == torch.float32 else 1000
    for exponent in (-limit, -3, 4, limit):
        scale = 2.0**exponent
        found = zca(scale * x, shrinkage)
        assert torch.equal(found.mean, scale * expected.mean)
        assert torch.equal(found.whitener, expected.whitener / scale)
        assert torch.equal(found.colourer, scale * expected.colourer)
        assert torch.equal(found.whiten(scale * x), expected.whiten(x))
        assert torch.equal(ledoit_wolf(scale * x), amount)
    # And on ordinary latents the scaling itself changes nothing.
    mean, covariance = shrunk_covariance(x, shrinkage)
    whitener, colourer = inverse_sqrt_and_sqrt(covariance)
    assert torch.equal(expected.mean, mean)
    assert torch.equal(expected.whitener, whitener)
    assert torch.equal(expected.colourer, colourer)


# Ledoit-Wolf


@pytest.mark.parametrize(("n", "d"), [(5, 3), (20, 20), (300, 6), (4, 30), (1000, 2)])
def test_the_amount_is_that_of_scikit_learn(n: int, d: int, dtype: torch.dtype) -> None:
    x = correlated(7, n, d, dtype)
    expected = sklearn.covariance.ledoit_wolf_shrinkage(x.double().numpy())
    assert 0 < expected < 1
    assert float(ledoit_wolf(x)) == pytest.approx(expected, rel=10 * TOLERANCE[dtype])
    assert ledoit_wolf(x).dtype == dtype
    whole, _ = sklearn.covariance.ledoit_wolf(x.double().numpy())
    assert deviation(shrunk_covariance(x, "auto")[1], whole) < 100 * TOLERANCE[dtype]


def test_amounts_of_a_batch(dtype: torch.dtype) -> None:
    x = torch.stack([correlated(seed, 12, 5, dtype) for seed in range(4)]).reshape(2, 2, 12, 5)
    amounts = ledoit_wolf(x)
    assert amounts.shape == (2, 2)
    for i, j in np.ndindex(2, 2):
        expected = sklearn.covariance.ledoit_wolf_shrinkage(x[i, j].double().numpy())
        assert float(amounts[i, j]) == pytest.approx(expected, rel=10 * TOLERANCE[dtype])


def test_noise_is_shrunk_all_the_way_and_never_further() -> None:
    x = normal(8, 6, 40)
    expected = sklearn.covariance.ledoit_wolf_shrinkage(x.numpy())
    assert float(ledoit_wolf(x)) == pytest.approx(expected)
    for seed in range(20):
        x = normal(seed, 30, 3)  # for most of these the optimum would lie beyond 1
        expected = sklearn.covariance.ledoit_wolf_shrinkage(x.numpy())
        assert float(ledoit_wolf(x)) == pytest.approx(expected)
    white = 5 * centred_orthonormal(9, 20, 4)  # its covariance is the target already
    assert float(ledoit_wolf(white)) == 1
    assert deviation(zca(white, "auto").whitener, zca(white).whitener) < 1e-12


def test_one_dimension_has_nothing_to_shrink() -> None:
    x = normal(10, 9, 1)
    assert deviation(zca(x, "auto").whitener, zca(x).whitener) < 1e-14


def test_auto_whitens_fewer_latents_than_dimensions(dtype: torch.dtype) -> None:
    x = normal(11, 6, 20, dtype=dtype)
    whitening = zca(x, "auto")
    assert deviation(whitening.colour(whitening.whiten(x)), x) < 100 * TOLERANCE[dtype]


# Derivative


def whitened(shrinkage: float | str):
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        whitening = zca(x, shrinkage)
        return whitening.whiten(x), whitening.whitener, whitening.colourer

    return function


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
def test_the_derivative_agrees_with_finite_differences(shrinkage: float) -> None:
    x = correlated(12, 9, 3).requires_grad_()
    assert torch.autograd.gradcheck(whitened(shrinkage), (x,))
    batch = torch.stack([correlated(13, 7, 2), correlated(14, 7, 2)]).requires_grad_()
    assert torch.autograd.gradcheck(whitened(shrinkage), (batch,))


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (2.0, 2.0, 0.5)])
def test_the_derivative_survives_repeated_eigenvalues(scales: tuple[float, ...]) -> None:
    x = 3 * centred_orthonormal(15, 9, 3) * torch.tensor(scales, dtype=torch.float64)
    assert deviation(torch.from_numpy(covariance_of(x)), np.diag(np.square(scales))) < 1e-12
    assert torch.autograd.gradcheck(whitened(0.0), (x.requires_grad_(),))


@pytest.mark.parametrize("diagonal", [(1.0, 1.0, 1.0, 1.0), (4.0, 4.0, 4.0, 0.25), (1, 2, 3, 4)])
def test_the_derivative_of_the_roots(diagonal: tuple[float, ...]) -> None:
    q = orthonormal(16, 4, 4)
    m = (q * torch.tensor(diagonal, dtype=torch.float64)) @ q.mT

    def roots(x: Tensor) -> tuple[Tensor, Tensor]:
        return inverse_sqrt_and_sqrt((x + x.mT) / 2)

    assert torch.autograd.gradcheck(roots, (m.requires_grad_(),))
    assert torch.autograd.gradcheck(lambda x: roots(x)[0], (m,))
    assert torch.autograd.gradcheck(lambda x: roots(x)[1], (m,))
    # At a multiple of the identity the derivative is known: f'(t) dM.
    if len(set(diagonal)) == 1:
        weights = normal(17, 4, 4)
        gradient = torch.autograd.grad((roots(m)[0] * (weights + weights.mT)).sum(), m)[0]
        assert deviation(gradient, -0.5 * (weights + weights.mT)) < 1e-12


def test_the_gradient_in_single_precision_is_that_in_double() -> None:
    weights = normal(18, 30, 4)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        x = correlated(19, 30, 4, torch.float32).to(dtype).requires_grad_()
        loss = (zca(x, 0.1).whiten(x) * weights.to(dtype)).sum()
        gradients.append(torch.autograd.grad(loss, x)[0])
    assert gradients[0].dtype == torch.float32
    assert deviation(gradients[0], gradients[1]) < 1e-4


@pytest.mark.parametrize("shrinkage", [0.0, 0.4, "auto"])
def test_no_penalty_on_white_latents_gains_by_scale_or_position(shrinkage: float | str) -> None:
    """With detached statistics the latents would shrink: see DESIGN.md."""
    x, target = correlated(20, 25, 4).requires_grad_(), normal(21, 25, 4)

    def pull(statistics: Tensor) -> tuple[float, float]:
        white = zca(statistics, shrinkage).whiten(x)
        (gradient,) = torch.autograd.grad((white - target).square().sum(), x)
        centred = x.detach() - x.detach().mean(0)
        return float((gradient * centred).sum()), float(gradient.sum(0).abs().max())

    along_scale, along_position = pull(x)
    assert abs(along_scale) < 1e-10
    assert along_position < 1e-10
    along_scale, _ = pull(x.detach())
    assert along_scale > 10  # descent would shrink them


def test_second_derivatives_are_refused() -> None:
    x = correlated(22, 9, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(zca(x).whiten(x).pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


# Refusals


def test_a_singular_covariance_is_refused_with_its_dimension(dtype: torch.dtype) -> None:
    x = normal(23, 30, 5, dtype=dtype)
    x[:, 3] = 0.1
    x[:, 4] = x[:, 0] - x[:, 1]
    with pytest.raises(SingularCovarianceError, match=r"2 of its 5 directions .*shrinkage='auto'"):
        zca(x)
    with pytest.raises(SingularCovarianceError, match="2 of its 5 directions"):
        zca(torch.stack([normal(24, 30, 5, dtype=dtype), x]))
    with pytest.raises(SingularCovarianceError, match="3 of its 6"):
        zca(normal(25, 4, 6, dtype=dtype))
    assert torch.isfinite(zca(x, 0.01).whitener).all()
    assert torch.isfinite(zca(x, "auto").whitener).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-23, 7e5])
@pytest.mark.parametrize("shrinkage", [0.0, 0.5, "auto"])
def test_latents_that_are_alike_are_not_sent_to_shrinkage(value, shrinkage, dtype) -> None:
    """Rounding of the mean makes 0.1 - mean differ from 0."""
    for count in (2, 9, 1000):
        x = torch.full((count, 5), value, dtype=dtype)
        with pytest.raises(SingularCovarianceError, match="none of its 5 directions has") as e:
            zca(x, shrinkage)
        assert "shrinkage='auto'" not in str(e.value)
        assert "check the encoder" in str(e.value)
        with pytest.raises(SingularCovarianceError, match="none of its 5"):
            zca(torch.stack([normal(27, count, 5, dtype=dtype), x]), shrinkage)


def test_where_auto_finds_nothing_to_shrink_a_number_is_asked_for(dtype: torch.dtype) -> None:
    """The squares of two opposed latents have no spread, which Ledoit-Wolf goes by."""
    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], dtype=dtype).repeat(4, 1)
    assert float(ledoit_wolf(x)) == 0
    with pytest.raises(SingularCovarianceError, match=r"1 of its 2 .*if that is given, a number"):
        zca(x, "auto")


def test_little_variance_is_not_none(dtype: torch.dtype) -> None:
    smallest = 1e-5 if dtype == torch.float32 else 1e-12
    covariance = torch.diag(torch.tensor([1.0, 1.0, smallest], dtype=dtype))
    inverse_root, _ = inverse_sqrt_and_sqrt(covariance)
    assert float(inverse_root[2, 2]) == pytest.approx(smallest**-0.5, rel=1e-5)
    with pytest.raises(SingularCovarianceError, match="1 of its 3"):
        inverse_sqrt_and_sqrt(torch.diag(covariance.diagonal() ** 2))


def test_an_indefinite_matrix_has_no_roots() -> None:
    with pytest.raises(SingularCovarianceError, match="1 of its 3"):
        inverse_sqrt_and_sqrt(torch.diag(torch.tensor([1.0, 2.0, -1.0])))


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1, float("nan")])
def test_shrinkage_outside_its_range_is_refused(shrinkage: float) -> None:
    with pytest.raises(InputError, match=f"shrinkage must lie in .*got {shrinkage}"):
        zca(normal(0, 9, 3), shrinkage)


def test_an_unknown_word_for_shrinkage_is_refused() -> None:
    with pytest.raises(InputError, match=r"'auto' or a number in .*got 'oas'"):
        zca(normal(0, 9, 3), "oas")  # type: ignore[arg-type]


def test_unusable_latents_are_refused() -> None:
    whitening = zca(normal(26, 9, 3))
    with pytest.raises(EmptyInputError, match=r"two rows, got x of \(1, 3\)"):
        zca(normal(0, 1, 3))
    with pytest.raises(NonFiniteError, match="x holds 27"):
        zca(normal(0, 9, 3) * torch.nan)
    with pytest.raises(DtypeError, match="x must be float32"):
        ledoit_wolf(torch.ones(4, 4, dtype=torch.int32))
    for method, name in ((whitening.whiten, "latents"), (whitening.colour, "white latents")):
        with pytest.raises(ShapeError, match=rf"size 3, got {name} of shape \(9, 4\)"):
            method(normal(0, 9, 4))
        with pytest.raises(NonFiniteError, match=f"{name} holds 3"):
            method(torch.full((1, 3), torch.inf).double())
        with pytest.raises(DtypeError, match=rf"float64, got {name} of torch\.float32"):
            method(torch.ones(9, 3))


def test_roots_of_a_matrix_that_is_not_square() -> None:
    with pytest.raises(ShapeError, match=r"square, got \(2, 3\)"):
        inverse_sqrt_and_sqrt(torch.ones(2, 3))
