"""Parseval normalisation against the polar decomposition of SciPy."""

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafed.errors import NonFiniteError, RankError, ShapeError
from sheafed.linalg import parseval
from tests.helpers.matrices import (
    PROPERTY,
    TOLERANCE,
    deviation,
    normal,
    orthonormal,
    with_spectrum,
)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (4, 9), (5, 5)])
def test_it_is_the_polar_factor_of_the_pilots(shape: tuple[int, int], dtype: torch.dtype) -> None:
    a = normal(3, *shape, dtype=dtype)
    columns = a.double().numpy().T  # the paper's A, pilots in columns
    polar, _ = scipy.linalg.polar(columns)
    formula = columns @ scipy.linalg.fractional_matrix_power(columns.T @ columns, -0.5)
    frame = parseval(a)
    assert frame.dtype == dtype
    assert frame.shape == a.shape
    assert deviation(frame, polar.T) < 20 * TOLERANCE[dtype]
    assert deviation(frame, formula.T) < 20 * TOLERANCE[dtype]


def test_batches_are_normalised_one_by_one(dtype: torch.dtype) -> None:
    a = normal(4, 2, 3, 4, 7, dtype=dtype)
    frames = parseval(a)
    for i in range(2):
        for j in range(3):
            assert deviation(frames[i, j], parseval(a[i, j])) < TOLERANCE[dtype]


@PROPERTY
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 6), extra=st.integers(0, 5))
def test_rows_are_orthonormal_and_span_the_pilots(seed: int, rows: int, extra: int) -> None:
    a = with_spectrum(seed, rows + extra, np.geomspace(1, 1e3, rows)).mT
    frame = parseval(a)
    assert deviation(frame @ frame.mT, torch.eye(rows)) < 1e-10
    projector = frame.mT @ frame
    assert deviation(a @ projector, a) < 1e-9
    assert deviation(parseval(frame), frame) < 1e-10


def test_it_commutes_with_isometries_and_ignores_scale() -> None:
    a, v = normal(5, 4, 6), orthonormal(6, 9, 6)
    assert deviation(parseval(a @ v.mT), parseval(a) @ v.mT) < 1e-12
    assert deviation(parseval(1e-6 * a), parseval(a)) < 1e-12


def test_more_pilots_than_dimensions_are_refused() -> None:
    with pytest.raises(ShapeError, match="5 pilots of size 4"):
        parseval(normal(0, 5, 4))


def test_dependent_pilots_are_refused_with_their_rank(dtype: torch.dtype) -> None:
    a = normal(1, 5, 8, dtype=dtype)
    a[3] = a[0]
    a[4] = 2 * a[1] - a[2]
    with pytest.raises(RankError, match="the 5 pilots span only 3 dimensions"):
        parseval(a)
    with pytest.raises(RankError, match="the 5 pilots span only 3 dimensions"):
        parseval(torch.stack([normal(2, 5, 8, dtype=dtype), a]))
    with pytest.raises(RankError, match="the 2 pilots span only 0"):
        parseval(torch.zeros(2, 3, dtype=dtype))


def test_non_finite_pilots_are_refused() -> None:
    with pytest.raises(NonFiniteError, match="a holds 1"):
        parseval(torch.tensor([[1.0, torch.nan]]))
