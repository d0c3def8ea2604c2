"""Latents in float32 are mapped as float64 would, up to a bound that does not depend on the map."""

import numpy as np
import pytest
import torch

from sheafed.alignment import AffineMap, affine_map
from sheafed.alignment.products import FEWEST_ROWS, Products
from sheafed.errors import DtypeError, NonFiniteError

ROWS, D = 1000, 96
# What docs/performance.md promises: of the spread of each coordinate, beside the rounding of the
# result itself.
BOUND = {"float32": 1e-5, "float16": 1e-4}


def orthogonal(seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((D, D)))[0]


def case(condition, shift, *, against, kind="float32"):
    """Return a map of some condition and latents whose mean is `shift` times their deviation.

    Args:
        against: whether the map magnifies the directions in which the latents vary least.
    """
    rng = np.random.default_rng(0)
    sizes, turned = np.geomspace(1, 1 / condition, D), orthogonal(1)
    z = rng.standard_normal((ROWS, D))
    z = (z * sizes if against else z) @ turned.T
    z += shift * z.std() * rng.choice([-1, 1], D)
    weight = (orthogonal(2) / sizes if against else orthogonal(2) * sizes) @ turned.T
    z = z.astype(kind)
    parts = weight, z.astype(float).mean(0), rng.standard_normal(D)
    return AffineMap(*map(torch.as_tensor, parts)), z


def exact(found, z):
    """The oracle: extended precision, by definition."""
    w, c, v = (part.numpy().astype(np.longdouble) for part in vars(found).values())
    return np.einsum("nd,rd->nr", z.astype(np.longdouble) - c, w) + v


def error(read, true):
    """Return the largest error of a coordinate in units of its spread, beyond rounding."""
    rounding = np.finfo(read.dtype).eps * np.abs(true)
    beyond = np.maximum(0, np.abs(read.astype(np.longdouble) - true) - rounding)
    return float(np.max(np.sqrt((beyond**2).mean(0)) / true.std(0)))


def in_float32(found, z):
    """Return whether float32 was used, and what it would give."""
    products = Products(**vars(found), most_rows=len(z))
    products.carry("z", torch.from_numpy(z))
    single = products._single
    x = single.centred("z", torch.from_numpy(z))
    return not products.too_coarse, (single.product(x) + single.value).numpy()


@pytest.mark.parametrize("kind", BOUND)
@pytest.mark.parametrize("shift", [0, 1e3])
@pytest.mark.parametrize("condition", [1, 1e3, 1e6])
@pytest.mark.parametrize("against", [False, True])
def test_rounding_is_bounded_by_the_spread(condition, shift, against, kind):
    if kind == "float16" and shift:
        shift = 10  # of larger means float16 keeps no deviation
    found, z = case(condition, shift, against=against, kind=kind)
    assert error(found.transform(z), exact(found, z)) < BOUND[kind]


def test_float32_is_used_where_it_is_enough_and_only_there():
    for condition in (1, 1e6):
        for shift in (0, 1e3):
            found, z = case(condition, shift, against=False)
            used, read = in_float32(found, z)
            assert used
            np.testing.assert_array_equal(found.transform(z), read)
    found, z = case(1e6, 0, against=True)
    used, read = in_float32(found, z)
    assert not used
    assert error(read, exact(found, z)) > 100 * BOUND["float32"]  # the bound would not hold
    wide = found.transform(z.astype(float))
    np.testing.assert_array_equal(found.transform(z), wide.astype(np.float32))


def test_a_mean_far_from_the_centre_is_noticed():
    found, z = case(1, 1e4, against=False)
    found = AffineMap(found.weight, torch.zeros_like(found.centre), found.value)
    assert not in_float32(found, z)[0]
    assert error(found.transform(z), exact(found, z)) < BOUND["float32"]


def test_terms_that_cancel_in_order_are_noticed():
    """Norms would not show it: partial sums grow to d / 2 before the second half cancels them."""
    rng = np.random.default_rng(0)
    z = (100 * rng.standard_normal((ROWS, 1)) + rng.standard_normal((ROWS, D))).astype("float32")
    weight = torch.ones(D, D, dtype=torch.float64)
    weight[:, D // 2 :] = -1
    zero = torch.zeros(D, dtype=torch.float64)
    found = AffineMap(weight, zero, zero)
    assert error(found.transform(z), exact(found, z)) < BOUND["float32"]


def test_after_a_part_that_needs_float64_the_rest_is_in_float64(monkeypatch):
    monkeypatch.setattr(affine_map, "CHUNK", 500)
    found, z = case(1e6, 0, against=True)
    easy = z.copy()
    easy[500:] = case(1, 0, against=False)[1][500:]
    wide = found.transform(easy.astype(float)).astype(np.float32)
    np.testing.assert_array_equal(found.transform(easy), wide)
    alone = found.transform(easy[500:])
    assert not np.array_equal(alone, wide[500:])


def test_few_rows_are_mapped_in_float64():
    found, z = case(1, 0, against=False)
    few = z[: FEWEST_ROWS - 1]
    expected = found.transform(few.astype(float)).astype(np.float32)
    np.testing.assert_array_equal(found.transform(few), expected)


def test_settings_of_pytorch_do_not_make_it_coarser():
    found, z = case(1, 0, against=False)
    expected = found.transform(z)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu"):
            np.testing.assert_array_equal(found.transform(z), expected)
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_map_to_itself_changes_no_bit():
    z = case(1, 0, against=False)[1]
    identity = affine_map.identity_map(D)
    np.testing.assert_array_equal(identity.transform(z), z)
    bfloat = torch.as_tensor(z).bfloat16()
    assert torch.equal(identity.transform(bfloat), bfloat)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(kind, bad):
    found, z = case(1, 0, against=False)
    z = z.astype(kind)
    z[700, 5] = bad
    text = rf"rows 0 to 999 of the latents holds 1 non-finite.*first at \(700, 5\): {bad}"
    with pytest.raises(NonFiniteError, match=text):
        found.transform(z)
    z[701, 5] = -bad  # infinities of both signs
    with pytest.raises(NonFiniteError, match="holds 2 non-finite"):
        found.transform(z)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_scales_beyond_the_squares_of_float32(scale):
    found, z = case(1, 0, against=False)
    z = (scale * z).astype("float32")
    found = AffineMap(found.weight, scale * found.centre, scale * found.value)
    assert error(found.transform(z), exact(found, z)) < BOUND["float32"]


def test_what_the_dtype_cannot_hold_is_refused():
    found, z = case(1, 0, against=False)
    for kind, factor in (("float16", 1e5), ("float32", 1e38), ("float32", 1e60)):
        large = AffineMap(factor * found.weight, found.centre, found.value)
        with pytest.raises(DtypeError, match=f"reach .* torch.{kind} cannot hold"):
            large.transform(z.astype(kind))
