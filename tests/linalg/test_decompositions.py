import numpy as np
import pytest
import torch

from sheafed.linalg.decompositions import svd


@pytest.fixture
def without_convergence(monkeypatch):
    """As LAPACK's divide and conquer ends on some matrices; which ones depends on its build."""

    def fail(m, full_matrices):
        raise torch.linalg.LinAlgError("linalg.svd: The algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "svd", fail)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_where_divide_and_conquer_fails_qr_iteration_decomposes(without_convergence, shape, full):
    m = np.random.default_rng(0).standard_normal(shape)
    u, s, wt = svd(torch.as_tensor(m), full=full)
    known = np.linalg.svd(m, full_matrices=full)
    assert [tuple(part.shape) for part in (u, s, wt)] == [part.shape for part in known]
    np.testing.assert_allclose(s, known[1])
    np.testing.assert_allclose(u[:, : len(s)] * s @ wt[: len(s)], m, atol=1e-12)
    np.testing.assert_allclose(u.mT @ u, np.eye(u.shape[1]), atol=1e-12)
    np.testing.assert_allclose(wt @ wt.mT, np.eye(len(wt)), atol=1e-12)


@pytest.mark.parametrize(
    "m",
    [torch.tensor([[torch.nan]]), torch.eye(2).requires_grad_(), torch.eye(2).expand(3, 2, 2)],
)
def test_what_only_divide_and_conquer_can_do_fails_as_it_does(without_convergence, m):
    with pytest.raises(torch.linalg.LinAlgError):
        svd(m)
