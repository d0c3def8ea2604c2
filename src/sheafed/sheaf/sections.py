r"""Global sections: the kernel of the sheaf Laplacian (eq. global-sec-conditions)."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from sheafed.errors import InputError

SHIFT = 1e-3
"""Makes $L + \\mathrm{SHIFT} \\cdot I$ invertible. It is small against the spectrum of $L$, whose
scale the isometric maps fix, yet large enough that solving with it loses only three digits."""

Matrix = NDArray[np.float64]


def kernel(laplacian: sparse.csr_array, largest: int, tolerance: float) -> Matrix:
    r"""Return an orthonormal basis `(n, k)` of $\ker L$, for a sparse $L \succeq 0$ `(n, n)`.

    Lanczos finds the largest eigenvalues of $(L + \mathrm{SHIFT} \cdot I)^{-1}$. From one start
    vector it may see a repeated eigenvalue too few times, so it is repeated on the complement of
    what was found, $P (L + \mathrm{SHIFT} \cdot I)^{-1} P$ with $P = I - QQ^\top$, until the
    complement holds no more. Start vectors are fixed, so that equal input gives equal output.

    Args:
        laplacian: $L$.
        largest: an upper bound on the dimension of the kernel, here $\min_i d_i$.
        tolerance: the largest eigenvalue of $L$ that counts as zero.
    """
    if not 0 < tolerance < np.inf:
        raise InputError(f"tolerance must be positive and finite, got {tolerance}; try 1e-8")
    n = laplacian.shape[0]
    if largest + 1 >= n - 1:  # too small for Lanczos
        values, vectors = scipy.linalg.eigh(laplacian.toarray())
        return _check_size(vectors[:, values <= tolerance], largest, tolerance)

    solve = splu(
        (laplacian + SHIFT * sparse.identity(n)).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,  # positive definite: no pivoting, so the sparse order is kept
        options={"SymmetricMode": True},
    ).solve
    start = np.random.default_rng(0)
    basis = np.empty((n, 0))
    while True:

        def complement(x: Matrix, basis: Matrix = basis) -> Matrix:
            return x - basis @ (basis.T @ x)

        _, vectors = eigsh(
            LinearOperator((n, n), lambda x: complement(solve(complement(x))), dtype=np.float64),
            k=max(largest + 1 - basis.shape[1], 1),
            which="LA",
            v0=complement(start.standard_normal(n)),
        )
        ritz_basis, _ = np.linalg.qr(complement(vectors))
        values, rotation = np.linalg.eigh(ritz_basis.T @ (laplacian @ ritz_basis))
        found = (ritz_basis @ rotation)[:, values <= tolerance]
        if found.shape[1] == 0:
            return basis
        basis, _ = np.linalg.qr(np.hstack([basis, found]))
        _check_size(basis, largest, tolerance)


def _check_size(basis: Matrix, largest: int, tolerance: float) -> Matrix:
    if basis.shape[1] > largest:
        raise InputError(
            f"tolerance {tolerance} is too coarse: at least {basis.shape[1]} eigenvalues lie below "
            f"it, but the kernel has at most {largest} dimensions; give a smaller one"
        )
    return basis


def triangular_at(basis: Matrix, rows: slice) -> Matrix:
    r"""Rotate the columns of `basis` `(n, k)` so that `basis[rows]` is lower triangular.

    A kernel fixes its basis up to a rotation, which the eigensolver chooses. With a positive
    diagonal this choice is unique wherever the first k of the `rows` are independent.
    """
    q, r = np.linalg.qr(basis[rows].T)
    signs = np.where(np.diagonal(r) < 0, -1.0, 1.0)
    rotated: Matrix = basis @ (q * signs)
    return rotated
