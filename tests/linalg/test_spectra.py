"""Effective rank from known spectra; canonical correlations against SciPy."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafed.errors import NonFiniteError, RankError, ShapeError
from sheafed.linalg import canonical_correlations, effective_rank
from tests.helpers.matrices import (
    PROPERTY,
    TOLERANCE,
    centred_orthonormal,
    deviation,
    normal,
    orthonormal,
    with_spectrum,
)


@pytest.mark.parametrize(
    ("spectrum", "expected"),
    [
        ([1, 1, 1, 1], 4.0),
        ([5, 0, 0], 1.0),
        ([2, 2, 0, 0], 2.0),
        ([3, 1], 4 / 3**0.75),  # exp of the entropy of (3/4, 1/4)
        ([0.5, 0.25, 0.25], np.exp(1.5 * np.log(2))),
    ],
)
def test_effective_rank_of_known_spectra(
    spectrum: list[float], expected: float, dtype: torch.dtype
) -> None:
    x = with_spectrum(1, 9, spectrum, dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    assert float(effective_rank(x)) == pytest.approx(expected, rel=tolerance)
    assert float(effective_rank(x.mT)) == pytest.approx(expected, rel=tolerance)
    assert float(effective_rank(1e-3 * x)) == pytest.approx(expected, rel=tolerance)
    assert effective_rank(x).dtype == dtype


def test_effective_rank_is_the_exponential_of_scipy_s_entropy(dtype: torch.dtype) -> None:
    x = normal(2, 3, 2, 10, 6, dtype=dtype)
    s = np.linalg.svd(x.double().numpy(), compute_uv=False)
    assert effective_rank(x).shape == (3, 2)
    assert deviation(effective_rank(x), np.exp(scipy.stats.entropy(s, axis=-1))) < (
        1e-4 if dtype == torch.float32 else 1e-12
    )


def test_effective_rank_looks_at_position_unless_centred() -> None:
    x = normal(3, 200, 4) + 1e4
    assert effective_rank(x) < 1.01
    assert effective_rank(x - x.mean(0)) > 3.9


def test_nothing_has_no_effective_rank() -> None:
    with pytest.raises(RankError, match=r"\(3, 2\) is zero"):
        effective_rank(torch.zeros(3, 2))
    with pytest.raises(RankError, match="zero"):
        effective_rank(torch.stack([torch.eye(2), torch.zeros(2, 2)]))
    with pytest.raises(NonFiniteError, match="x holds 1"):
        effective_rank(torch.tensor([[torch.inf, 1.0]]))


def generalised_eigenvalues(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The correlations as eigenvalues: [0 Sab; Sba 0] w = rho [Saa 0; 0 Sbb] w."""
    a, b = a - a.mean(0), b - b.mean(0)
    cross = a.T @ b
    left = np.block([[np.zeros((a.shape[1],) * 2), cross], [cross.T, np.zeros((b.shape[1],) * 2)]])
    values = scipy.linalg.eigh(left, scipy.linalg.block_diag(a.T @ a, b.T @ b), eigvals_only=True)
    return values[::-1][: min(a.shape[1], b.shape[1])]


@pytest.mark.parametrize(("d_a", "d_b"), [(4, 4), (6, 3), (2, 5), (1, 1)])
def test_correlations_solve_the_generalised_eigenproblem(
    d_a: int, d_b: int, dtype: torch.dtype
) -> None:
    shared = normal(4, 80, 2)
    a = (normal(5, 80, d_a) + shared @ normal(6, 2, d_a) + 3).to(dtype)
    b = (normal(7, 80, d_b) + shared @ normal(8, 2, d_b) - 1).to(dtype)
    found = canonical_correlations(a, b)
    wide_a, wide_b = a.double().numpy(), b.double().numpy()
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert found.dtype == dtype
    assert deviation(found, generalised_eigenvalues(wide_a, wide_b)) < tolerance
    angles = scipy.linalg.subspace_angles(wide_a - wide_a.mean(0), wide_b - wide_b.mean(0))
    assert deviation(found, np.cos(angles)[::-1]) < tolerance


def test_planted_correlations_are_found(dtype: torch.dtype) -> None:
    planted = torch.tensor([1.0, 0.9, 0.5, 0.1, 0.0], dtype=torch.float64)
    basis = centred_orthonormal(9, 60, 10)
    one, other = basis[:, :5], basis[:, 5:]
    b = one * planted + other * (1 - planted.square()).sqrt()
    a = one @ normal(10, 5, 5) + 7
    b = b @ normal(11, 5, 5) - 2
    found = canonical_correlations(a.to(dtype), b.to(dtype))
    assert deviation(found, planted) < (1e-9 if dtype == torch.float64 else 1e-4)
    assert bool((found[:-1] >= found[1:]).all())
    assert float(found.max()) <= 1


@PROPERTY
@given(seed=st.integers(0, 10**6), d_a=st.integers(1, 5), d_b=st.integers(1, 5))
def test_correlations_do_not_see_invertible_affine_maps(seed: int, d_a: int, d_b: int) -> None:
    a, b = normal(seed, 30, d_a), normal(seed + 1, 30, d_b)
    b[:, 0] += a[:, 0]
    turned = a @ with_spectrum(seed, d_a, np.geomspace(1, 100, d_a)) + 5
    found = canonical_correlations(a, b)
    assert deviation(canonical_correlations(turned, b), found) < 1e-9
    assert deviation(canonical_correlations(b, a), found) < 1e-9


def test_directions_without_variance_are_left_out(dtype: torch.dtype) -> None:
    a, b = normal(12, 50, 3, dtype=dtype), normal(13, 50, 4, dtype=dtype)
    b = b + a @ normal(14, 3, 4, dtype=dtype)
    dependent = torch.cat([a, a[:, :1], torch.full((50, 1), 0.1, dtype=dtype)], 1)
    found = canonical_correlations(dependent, b)
    assert len(found) == 3
    assert deviation(found, canonical_correlations(a, b)) < 50 * TOLERANCE[dtype]


def test_few_rows_say_nothing(dtype: torch.dtype) -> None:
    found = canonical_correlations(normal(0, 5, 8, dtype=dtype), normal(1, 5, 6, dtype=dtype))
    assert len(found) == 4  # centring takes one row away
    assert deviation(found, torch.ones(4)) < 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("rows", [2, 7, 1000])
def test_constants_correlate_with_nothing(value: float, rows: int, dtype: torch.dtype) -> None:
    """Their mean is rounded, so that centring leaves something: it must not count."""
    constant, other = torch.full((rows, 3), value, dtype=dtype), normal(2, rows, 2, dtype=dtype)
    with pytest.raises(RankError, match=rf"b of shape \({rows}, 3\) is constant"):
        canonical_correlations(other, constant)
    with pytest.raises(RankError, match=rf"a of shape \({rows}, 3\) is constant"):
        canonical_correlations(constant, other)


def test_a_large_mean_is_no_constant(dtype: torch.dtype) -> None:
    a = orthonormal(3, 40, 3)
    found = canonical_correlations((a + 100).to(dtype), (a @ normal(4, 3, 3)).to(dtype))
    assert deviation(found, torch.ones(3)) < (1e-2 if dtype == torch.float32 else 1e-9)


def test_batches_and_unequal_rows_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"single .*\(2, 9, 3\)"):
        canonical_correlations(normal(0, 2, 9, 3), normal(1, 2, 9, 3))
    with pytest.raises(ShapeError, match=r"\(9, 3\) and \(8, 3\)"):
        canonical_correlations(normal(0, 9, 3), normal(1, 8, 3))
