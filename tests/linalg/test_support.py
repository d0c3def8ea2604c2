import numpy as np
import pytest
import torch
from scipy import linalg

from sheafed.errors import EmptyInputError
from sheafed.linalg.support import support, whitening_on, whole_space
from sheafed.linalg.whitening import zca


def latents(n=80, d=12, rank=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) + rng.uniform(-3, 3, d)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_support_has_the_rank_of_what_was_rounded(kind):
    x = torch.as_tensor(latents()).to(kind)
    found = support(x)
    assert found.rank == 5
    identity = np.eye(5)
    np.testing.assert_allclose(found.basis.mT @ found.basis, identity, atol=1e-12)


def test_deviations_are_the_roots_of_the_eigenvalues_of_the_covariance():
    x = latents(rank=12)
    found = support(torch.as_tensor(x))
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    np.testing.assert_allclose(found.deviations, values**0.5, rtol=1e-9)
    np.testing.assert_allclose(found.spread, x.std(0), rtol=1e-12)
    shrunk = 0.7 * np.cov(x.T, bias=True) + 0.3 * np.trace(np.cov(x.T)) * (79 / 80) / 12 * np.eye(
        12
    )
    np.testing.assert_allclose(
        found.shrunk_deviations(0.3).square(), np.linalg.eigvalsh(shrunk)[::-1], rtol=1e-9
    )


def test_constant_coordinates_have_no_part_in_it():
    x = latents(rank=12).astype(np.float32)
    x[:, 3] = 0.1
    x[:, 7] = np.float32(1000) * (1 + np.float32(1.2e-7) * (np.arange(80) % 2))
    found = support(torch.as_tensor(x))
    assert found.rank == 10
    for coordinate in (3, 7):
        assert not found.basis[coordinate].any()
        assert found.spread[coordinate] == 0
    assert found.mean[3] == np.float32(0.1)


def test_a_coordinate_that_varies_less_than_the_rounding_of_the_whole_has_no_part_in_it():
    """The gain of a layer norm that has all but vanished, as pretrained encoders have it."""
    x = latents(rank=12).astype(np.float32)
    x[:, 4] *= 1e-30
    found = support(torch.as_tensor(x))
    assert found.rank == 11
    assert not found.basis[4].any()
    assert found.spread[4] == 0


@pytest.mark.parametrize(
    ("kind", "size"), [(torch.float16, 3000), (torch.bfloat16, 3000), (torch.float32, 1e5)]
)
def test_a_large_coordinate_does_not_hide_the_others(kind, size):
    rng = np.random.default_rng(0)
    x = np.c_[rng.standard_normal((400, 20)), size + size / 50 * rng.standard_normal(400)]
    found = support(torch.as_tensor(x).to(kind))
    assert found.rank == 21
    assert (found.spread > 0).all()


@pytest.mark.parametrize(("kind", "offset"), [(torch.float16, 200), (torch.float32, 1e6)])
def test_an_offset_hides_no_more_than_its_rounding(kind, offset):
    z = torch.as_tensor(np.random.default_rng(0).standard_normal((400, 20)) + offset).to(kind)
    assert support(z).rank == 20
    # A flat set that is rounded there stays flat, and one that rounding erases is constant.
    flat = torch.as_tensor(latents(400, 20)).to(kind) + offset
    assert support(flat).rank == 5
    ulp = offset * torch.finfo(kind).eps
    assert support((0.3 * ulp * (z - offset).double() + offset).to(kind)).rank == 0


def test_a_constant_has_an_empty_support():
    assert support(torch.full((9, 4), 0.1)).rank == 0
    with pytest.raises(EmptyInputError, match="two rows"):
        support(torch.ones(1, 4))


@pytest.mark.parametrize("shrinkage", [0.0, 0.4, "auto"])
def test_on_a_full_support_whitening_is_zca(shrinkage):
    x = torch.as_tensor(latents(rank=12))
    found, expected = whitening_on(support(x), shrinkage, x), zca(x, shrinkage)
    torch.testing.assert_close(found.whitener, expected.whitener)
    torch.testing.assert_close(found.colourer, expected.colourer)
    torch.testing.assert_close(found.mean, expected.mean)


def test_beside_the_support_whitening_is_the_pseudo_inverse():
    x = latents()
    found = whitening_on(support(torch.as_tensor(x)), 0.0, torch.as_tensor(x))
    root = linalg.sqrtm(np.cov(x.T, bias=True)).real
    np.testing.assert_allclose(found.colourer, root, atol=1e-6)
    np.testing.assert_allclose(found.whitener, np.linalg.pinv(root, rcond=1e-5), atol=1e-5)


def test_the_whole_space_leaves_latents_alone():
    x = torch.as_tensor(latents())
    torch.testing.assert_close(whitening_on(whole_space(12), 0.0, x).whiten(x), x)
