"""Latents as real encoders have them: dead, nearly dead, duplicated and constant coordinates,
heavy tails, unit norms, fewer pilots than dimensions."""

import numpy as np
import pytest
import scipy.stats

import sheafed
from sheafed.alignment import ProcrustesMap, fit_map

KINDS = ("procrustes", "ridge", "affine", "low-rank", "canonical", "auto")
pytestmark = pytest.mark.filterwarnings("ignore::sheafed.errors.UndeterminedMapWarning")


def views(n, d_x, d_y, rank=10, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.standard_normal((n, rank)) / np.sqrt(np.arange(1, rank + 1))
    return tuple(
        source @ rng.standard_normal((rank, d)) + noise * rng.standard_normal((n, d))
        for d in (d_x, d_y)
    )


@pytest.mark.parametrize("maps", ["procrustes", "affine", "auto"])
def test_an_isometric_copy_of_deficient_rank_is_recovered_both_ways(maps):
    rng = np.random.default_rng(0)
    small = rng.standard_normal((200, 20)) * np.linspace(0.2, 3, 20) + 1
    large = small @ scipy.stats.ortho_group.rvs(33, random_state=0)[:20] - 4
    alignment = sheafed.align({"small": small, "large": large}, shrinkage=0.0, maps=maps)
    np.testing.assert_allclose(alignment.send(small, "small", "large"), large, atol=1e-3)
    np.testing.assert_allclose(alignment.send(large, "large", "small"), small, atol=1e-3)
    assert max(pair.residual for pair in alignment.pairs) < 1e-6


@pytest.mark.parametrize("maps", KINDS)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_nothing_is_written_into_constant_coordinates(maps, kind):
    x, y = (z.astype(kind) for z in views(120, 16, 12))
    y[:, [2, 7]] = kind(0.3), 0.0
    x[:, 5] = 2.0
    options = {"shrinkage": 0.5} if maps == "procrustes" else {}
    read = sheafed.align({"x": x, "y": y}, maps=maps, **options).send(x, "x", "y")
    np.testing.assert_array_equal(read[:, 2], kind(0.3))
    np.testing.assert_array_equal(read[:, 7], 0.0)


@pytest.mark.parametrize("maps", KINDS)
def test_what_a_constant_coordinate_of_the_sender_says_later_is_ignored(maps):
    x, y = views(120, 16, 12)
    x[:, 5] = 2.0
    found = fit_map(x, y, maps).map
    expected = found.transform(x)
    x[:, 5] = 1e6
    np.testing.assert_array_equal(found.transform(x), expected)


def test_a_nearly_dead_coordinate_is_not_drowned_in_noise():
    """A layer norm whose gain is nearly 0 there: a standardising head magnifies what is written."""
    x, y = views(700, 16, 12)
    y[:, 4] = 1e-4 * np.random.default_rng(5).standard_normal(700)
    read = fit_map(x[:200], y[:200]).map.transform(x[200:])
    assert read[:, 4].std() <= y[:200, 4].std()
    isometry = ProcrustesMap(shrinkage=0.5).fit(x[:200], y[:200])
    assert isometry.transform(x[200:])[:, 4].std() > 100 * y[:200, 4].std()


@pytest.mark.parametrize("maps", KINDS)
def test_duplicated_coordinates_are_written_alike(maps):
    x, y = views(120, 8, 6)
    read = fit_map(np.hstack([x, x]), np.hstack([y, y]), maps).map.transform(np.hstack([x, x]))
    np.testing.assert_allclose(read[:, :6], read[:, 6:], atol=1e-9)


@pytest.mark.parametrize("maps", KINDS)
def test_heavy_tails_and_unit_norms(maps):
    rng = np.random.default_rng(1)
    source = rng.standard_t(2.5, (600, 10))
    x, y = source @ rng.standard_normal((10, 30)), source @ rng.standard_normal((10, 24))
    x, y = (z + 0.1 * rng.standard_normal(z.shape) for z in (x, y))
    for a, b in ((x, y), (unit(x), unit(y))):
        choice = fit_map(a[:200], b[:200], maps)
        assert np.isfinite(choice.map.transform(a[200:])).all()
        assert np.mean(choice.held_out.top1) > 0.6


def unit(z):
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@pytest.mark.parametrize(("pilots", "d_x", "d_y"), [(40, 50, 300), (60, 1024, 50), (30, 4096, 64)])
def test_fewer_pilots_than_dimensions(pilots, d_x, d_y):
    x, y = views(pilots + 200, d_x, d_y, rank=5)
    choice = fit_map(x[:pilots], y[:pilots])
    errors = (choice.map.transform(x[pilots:]) - y[pilots:]) / y[:pilots].std(0)
    assert (errors**2).mean() < 0.25
    assert np.mean(choice.held_out.residuals) == pytest.approx((errors**2).mean(), abs=0.1)


def test_an_encoder_that_is_constant_on_a_fold_is_no_error():
    x, y = views(40, 6, 5)
    y[2:] = y[1]
    for maps in KINDS:
        assert np.isfinite(fit_map(x, y, maps).map.transform(x)).all()
        assert np.isfinite(fit_map(y, x, maps).map.transform(y)).all()
