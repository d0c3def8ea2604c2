"""Which part of a map the pilots determine (app:identifiability)."""

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafed.errors import DtypeError, ShapeError
from sheafed.linalg import identifiability, procrustes
from sheafed.linalg.identifiability import numerical_rank
from tests.helpers.matrices import (
    PROPERTY,
    TOLERANCE,
    deviation,
    normal,
    orthonormal,
    pilots_of,
    residual,
    rng,
    with_spectrum,
)


@pytest.mark.parametrize(("large", "small"), [(6, 6), (9, 4), (3, 1)])
def test_enough_pilots_determine_the_map(large: int, small: int, dtype: torch.dtype) -> None:
    a, b = normal(1, 30, large, dtype=dtype), normal(2, 30, small, dtype=dtype)
    found = identifiability(a, b)
    assert found.determined
    assert found.undetermined_dimension == 0
    assert (found.pilots, found.rank_a, found.rank_b) == (30, large, small)
    assert (found.rank_cross, found.dimension) == (small, small)
    assert found.subspace.shape == (small, small)
    assert found.subspace.dtype == dtype
    assert str(found).startswith("determined by 30 pilots (gap ")
    s = np.linalg.svd(a.double().numpy().T @ b.double().numpy(), compute_uv=False)
    assert found.smallest == pytest.approx(s[-1], rel=1e-9)
    assert found.gap == pytest.approx(s[-1] / s[0], rel=1e-9)


def test_fewer_pilots_than_dimensions_do_not(dtype: torch.dtype) -> None:
    found = identifiability(normal(3, 4, 9, dtype=dtype), normal(4, 4, 7, dtype=dtype))
    assert not found.determined
    assert found.undetermined_dimension == 3
    assert str(found) == (
        "undetermined on a subspace of dimension 3 of 7: 4 pilots give a cross-covariance of rank 4"
    )


def test_ranks_in_single_precision_survive_offsets_and_scales(dtype: torch.dtype) -> None:
    for seed in range(30):
        d, extra = int(rng(seed).integers(3, 65)), int(rng(seed + 1).integers(0, 30))
        count = int(rng(seed + 2).integers(1, d))
        a = normal(seed, count, d + extra, dtype=dtype) + 5 * (seed % 2)
        b = 10.0 ** (seed % 7 - 3) * normal(seed + 3, count, d, dtype=dtype)
        for found in (identifiability(a, b), identifiability(b, a)):
            assert found.rank_cross == count
            assert found.dimension == d
            assert not found.determined
        assert (found.rank_b, found.rank_a) == (count, count)


def test_the_two_sides_keep_their_names(dtype: torch.dtype) -> None:
    a, b = normal(5, 20, 4, dtype=dtype), normal(6, 20, 7, dtype=dtype)
    b[:, 5:] = b[:, :2]
    found = identifiability(a, b)
    assert (found.rank_a, found.rank_b, found.rank_cross, found.dimension) == (4, 5, 4, 4)
    found = identifiability(b, a)
    assert (found.rank_a, found.rank_b, found.rank_cross, found.dimension) == (5, 4, 4, 4)
    assert found.determined  # the larger side need not have full rank


def test_pilots_of_full_rank_that_are_uncorrelated_determine_nothing(dtype: torch.dtype) -> None:
    """Contrary to the paper's 'in particular': the ranks of the pilots do not suffice."""
    basis = orthonormal(7, 12, 5, dtype)
    a, b = basis[:, [0, 1, 2]], basis[:, [0, 3, 4]]
    found = identifiability(a, b)
    assert (found.rank_a, found.rank_b) == (3, 3)
    assert found.rank_cross == 1
    assert "dimension 2 of 3" in str(found)
    assert deviation(found.subspace.abs(), torch.tensor([[1.0], [0], [0]])) < TOLERANCE[dtype]


def test_the_gap_and_the_smallest_singular_value(dtype: torch.dtype) -> None:
    a, b = pilots_of(with_spectrum(8, 6, [8.0, 4.0, 2.0, 0.0], dtype), 10)
    found = identifiability(a, b)
    assert found.rank_cross == 3
    assert found.gap == pytest.approx(2 / 8, abs=1e-5)
    assert found.smallest == pytest.approx(0, abs=1e-5)
    found = identifiability(*pilots_of(with_spectrum(8, 6, [8.0, 4.0, 2.0, 1.0], dtype), 10))
    assert found.gap == pytest.approx(1 / 8, abs=1e-5)
    assert found.smallest == pytest.approx(1, abs=1e-4)


def test_latents_that_are_zero_determine_nothing(dtype: torch.dtype) -> None:
    found = identifiability(torch.zeros(5, 4, dtype=dtype), normal(9, 5, 3, dtype=dtype))
    assert (found.rank_a, found.rank_cross, found.undetermined_dimension) == (0, 0, 3)
    assert found.gap == 0.0
    assert found.subspace.shape == (3, 0)


@PROPERTY
@given(
    seed=st.integers(0, 10**6),
    small=st.integers(2, 7),
    extra=st.integers(0, 4),
    missing=st.integers(1, 6),
)
def test_all_minimisers_agree_on_the_subspace_and_only_there(
    seed: int, small: int, extra: int, missing: int
) -> None:
    count = max(1, small - missing)
    a, b = normal(seed, count, small + extra), normal(seed + 1, count, small)
    found = identifiability(a, b)
    basis = found.subspace
    assert deviation(basis.mT @ basis, torch.eye(found.rank_cross)) < 1e-10
    # Each of these starts from another previous map, and all are equally good.
    one, other, third = (
        procrustes(a, b, previous=orthonormal(seed + 2 + i, small + extra, small)) for i in range(3)
    )
    for v in (other, third):
        assert float(residual(a, b, v)) == pytest.approx(float(residual(a, b, one)), abs=1e-7)
    assert deviation(one @ basis, other @ basis) < 1e-7
    assert deviation(one @ basis, third @ basis) < 1e-7
    # Off the subspace no direction is common to all three.
    _, _, rows = np.linalg.svd(basis.mT.numpy())
    off = torch.from_numpy(rows[found.rank_cross :]).mT
    assert off.shape[1] == found.undetermined_dimension > 0
    if small + extra - found.rank_cross > 1:  # on a line there are two signs only
        difference = torch.cat([(one - other) @ off, (one - third) @ off])
        assert float(difference.norm()) > 1e-6


def test_repeated_singular_values_do_not_make_the_map_ambiguous(dtype: torch.dtype) -> None:
    """The paper asks for simple singular values; full rank is enough."""
    planted = orthonormal(10, 6, 4, dtype)
    a, b = pilots_of(3 * planted, 9)  # all four singular values are 3
    found = identifiability(a, b)
    assert found.determined
    assert deviation(procrustes(a, b), planted) < TOLERANCE[dtype]
    expected, _ = scipy.linalg.polar(3 * planted.double().numpy())
    assert deviation(planted, expected) < TOLERANCE[dtype]
    # The choice of singular vectors is free, their product is not: small changes stay small,
    for seed in range(10):
        near = a + 1e-5 * normal(20 + seed, *a.shape, dtype=dtype)
        assert deviation(procrustes(near, b), planted) < 1e-4
    # and every other isometry is worse.
    best = float(residual(a, b, planted))
    for seed in range(20):
        turn = torch.linalg.matrix_exp(0.1 * (lambda x: x - x.mT)(normal(40 + seed, 4, 4)))
        assert float(residual(a, b, planted @ turn.to(dtype))) > best + 1e-3


def test_a_missing_rank_does(dtype: torch.dtype) -> None:
    """The contrast: without full rank a small change of the pilots moves the map anywhere."""
    m = with_spectrum(11, 6, [3.0, 3.0, 3.0, 0.0])
    a, b = pilots_of(m, 9)
    maps = [procrustes(a + 1e-5 * normal(60 + i, *a.shape), b) for i in range(5)]
    assert max(deviation(maps[0], v) for v in maps[1:]) > 0.1
    found = identifiability(a.to(dtype), b.to(dtype))
    assert found.undetermined_dimension == 1
    basis = found.subspace.double()
    assert max(deviation(maps[0] @ basis, v @ basis) for v in maps[1:]) < 1e-3


def test_latents_of_any_scale_are_judged_alike(dtype: torch.dtype) -> None:
    a, b = normal(12, 20, 6, dtype=dtype), normal(13, 20, 4, dtype=dtype)
    a[:, 5] = a[:, 0]
    expected = identifiability(a, b)
    limit = 50 if dtype == torch.float32 else 500
    for i, j in [(-limit, -limit), (limit, limit), (2 * limit, -2 * limit), (4, 0)]:
        found = identifiability(2.0**i * a, 2.0**j * b)
        assert (found.rank_a, found.rank_b, found.rank_cross) == (5, 4, 4)
        assert found.gap == expected.gap
        assert found.smallest == expected.smallest * 2.0 ** (i + j)


# The rank of rounded latents

HALF = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("given", [torch.float64, torch.float32, *HALF])
@pytest.mark.parametrize(("rows", "columns", "rank"), [(100, 10, 5), (40, 64, 5), (500, 32, 20)])
def test_the_rank_of_a_product_is_found_in_its_precision(rows, columns, rank, given) -> None:
    for seed in range(5):
        a, b = normal(seed, rows, rank, dtype=given), normal(seed + 50, rank, columns, dtype=given)
        for x in (a @ b, 3 * (a @ b)):
            assert numerical_rank(x) == rank
            assert numerical_rank(x, torch.zeros(columns)) == rank
        if given != torch.float64:  # the oracle: in float64 the rounding passes for data
            assert np.linalg.matrix_rank((a @ b).double().numpy()) == min(rows, columns)


@pytest.mark.parametrize("given", [torch.float64, torch.float32])
def test_the_rank_about_the_mean_knows_the_rounding_of_the_offset(given: torch.dtype) -> None:
    for seed in range(5):
        a, b = normal(seed, 100, 5, dtype=given), normal(seed + 50, 5, 10, dtype=given)
        for offset in (1.0, 100.0, 1e4):
            x = a @ b + offset
            assert numerical_rank(x, x.double().mean(0)) == 5
            full = normal(seed, 100, 10, dtype=given) + offset
            assert numerical_rank(full, full.double().mean(0)) == 10
    few = normal(7, 6, 10, dtype=given)
    assert numerical_rank(few) == 6
    assert numerical_rank(few, few.double().mean(0)) == 5


def test_sums_of_many_terms_round_more_often() -> None:
    for seed in range(5):
        weight = normal(seed, 512, 5) @ normal(seed + 50, 5, 64)
        assert (
            numerical_rank(normal(seed + 90, 300, 512, dtype=torch.float32) @ weight.float()) == 5
        )


def test_little_is_not_nothing() -> None:
    """Directions of a thousandth of the largest are data in float32, however many pilots."""
    for rows in (100, 5000):
        x = normal(14, rows, 10) * torch.logspace(0, -3, 10, dtype=torch.float64)
        assert numerical_rank(x.float()) == 10


def test_white_latents_are_judged_by_what_they_were_made_of() -> None:
    a, b = normal(15, 30, 6), normal(16, 30, 4)
    found = identifiability(a, b, ranks=(6, 3), precision=torch.float32)
    assert (found.rank_a, found.rank_b, found.rank_cross) == (6, 3, 3)
    s = np.linalg.svd((a.mT @ b).numpy(), compute_uv=False)
    assert found.gap == pytest.approx((s[2] - s[3]) / s[0])
    a, b = pilots_of(with_spectrum(17, 6, [1.0, 1.0, 1e-8]), 20)
    assert identifiability(a, b).rank_cross == 3
    assert identifiability(a, b, precision=torch.float32).rank_cross == 2


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"single .*\(2, 5, 3\)"):
        identifiability(normal(0, 2, 5, 3), normal(1, 2, 5, 3))
    with pytest.raises(ShapeError, match=r"\(5, 3\) and \(6, 3\)"):
        identifiability(normal(0, 5, 3), normal(1, 6, 3))
    with pytest.raises(DtypeError, match=r"float64 and torch.float32"):
        identifiability(normal(0, 5, 3), normal(1, 5, 3).float())
