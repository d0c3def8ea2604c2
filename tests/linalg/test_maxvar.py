import numpy as np
import pytest
import scipy.linalg
import torch

from sheafed.errors import EmptyInputError, ShapeError
from sheafed.linalg.canonical import canonical_directions
from sheafed.linalg.maxvar import consensus, maxvar


def blocks(pilots, sizes=(4, 3, 5), missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.standard_normal((pilots, 3))
    found, present = [], []
    for d in sizes:
        rows = rng.random(pilots) >= missing
        x = source @ rng.standard_normal((3, d)) + rng.standard_normal((pilots, d))
        found.append(torch.as_tensor((x - x.mean(0))[rows]))
        present.append(torch.as_tensor(rows))
    return found, present


@pytest.mark.parametrize(("pilots", "missing"), [(40, 0.0), (40, 0.3), (8, 0.0), (9, 0.2)])
def test_sections_solve_the_generalised_eigenproblem(pilots, missing):
    found, present = blocks(pilots, missing=missing)
    sections, values = maxvar(found, present)
    scattered = np.zeros((pilots, pilots))
    for x, rows in zip(found, present, strict=True):
        scattered[np.ix_(rows, rows)] += (x @ x.mT).numpy()
    expected, vectors = scipy.linalg.eigh(scattered)
    np.testing.assert_allclose(values, expected[::-1][: len(values)], rtol=1e-9)
    for number in range(3):
        one, other = sections[:, number].numpy(), vectors[:, -1 - number]
        assert abs(one @ other) == pytest.approx(np.linalg.norm(one) * np.linalg.norm(other))
    np.testing.assert_allclose(sections.mT @ sections / pilots, np.eye(len(values)), atol=1e-7)


def test_they_are_the_projections_of_the_primal_problem():
    """With weights w_i of each agent: the covariance of all against that of each alone."""
    found, present = blocks(60)
    white = [torch.linalg.solve_ex(torch.linalg.cholesky(x.mT @ x), x.mT)[0].mT for x in found]
    sections, values = maxvar(white, present)
    everything = np.hstack(found)
    alone = scipy.linalg.block_diag(*((x.mT @ x).numpy() for x in found))
    expected, weights = scipy.linalg.eigh(everything.T @ everything, alone)
    np.testing.assert_allclose(values, expected[::-1], rtol=1e-9)
    projected = everything @ weights[:, -1]
    assert abs(np.corrcoef(projected, sections[:, 0])[0, 1]) == pytest.approx(1.0)


def test_of_two_white_blocks_they_are_the_canonical_variates():
    (x, y), present = blocks(60, sizes=(4, 3))
    x, y = (torch.linalg.qr(z)[0] * 60**0.5 for z in (x, y))
    _, values = maxvar([x, y], present)
    found = canonical_directions(x.mT @ y / 60)
    np.testing.assert_allclose(values[:3], 60 * (1 + found.correlations), rtol=1e-9)


def test_consensus_is_the_mean_of_what_agents_see_and_tells_what_they_share():
    found, present = blocks(200, sizes=(6, 6))
    same, _ = consensus(maxvar(found, present)[0], found, present)
    np.testing.assert_allclose(same, maxvar(found, present)[0], atol=1e-9)
    rng = np.random.default_rng(1)
    shared, own = rng.standard_normal((2, 200))
    views = [np.stack([shared, own], 1), shared[:, None], shared[:, None]]
    rows = [np.arange(200) < 120, np.arange(200) >= 80, np.ones(200, dtype=bool)]
    white = [torch.as_tensor(v[r]) for v, r in zip(views, rows, strict=True)]
    _, agreement = consensus(
        torch.as_tensor(np.stack([shared, own, shared * np.where(rows[0], 1, -1)], 1)),
        white,
        [torch.as_tensor(r) for r in rows],
    )
    assert agreement[0] > 0.9
    assert abs(agreement[1]) < 0.2
    assert agreement[2] < 0.2


def test_bad_rows():
    (x, y), present = blocks(10, sizes=(2, 2))
    with pytest.raises(ShapeError, match="9 rows and 10 pilots"):
        maxvar([x[:9], y], present)
    with pytest.raises(EmptyInputError, match="nowhere"):
        maxvar([x[:9]], [torch.arange(10) < 9])
