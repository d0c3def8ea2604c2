"""Powers of two against `math.frexp`, and what makes them exact."""

import math

import pytest
import torch

from sheafed.linalg.scaling import is_in_range, power_of_two, scaled
from tests.helpers.matrices import normal

EXTREMES = {torch.float32: [1e-44, 1e-38, 1e-23, 1e18, 3.4e38], torch.float64: [5e-324, 1.7e308]}


def test_the_power_is_that_of_the_largest_entry(dtype: torch.dtype) -> None:
    for size in [*EXTREMES[dtype], 0.3, 0.5, 1.0, 1.99, 2.0, 1e4]:
        x = torch.tensor([[0.0, size / 3], [-size, size / 2]], dtype=dtype)
        _, exponent = math.frexp(float(-x[1, 0]))
        assert float(power_of_two(x)) == math.ldexp(1.0, exponent - 1)
        assert 1 <= float(scaled(x).abs().max()) < 2


def test_scaling_is_exact_and_by_matrix(dtype: torch.dtype) -> None:
    x = (
        normal(0, 2, 3, 7, 5, dtype=dtype)
        * torch.tensor([1e-9, 1.0, 1e9], dtype=dtype)[:, None, None]
    )
    assert power_of_two(x).shape == (2, 3, 1, 1)
    assert torch.equal(scaled(x) * power_of_two(x), x)
    assert torch.equal(scaled(x)[1, 2], scaled(x[1, 2]))


def test_zeros_stay_zeros() -> None:
    assert torch.equal(scaled(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_the_power_is_a_constant_to_autograd() -> None:
    x = torch.tensor([[3.0, 5.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(scaled(x).sum(), x)
    assert torch.equal(gradient, torch.full((1, 2), 0.25))


@pytest.mark.parametrize(
    ("size", "fits"),
    [(1.0, True), (1e-10, True), (1e10, True)]
    + [(size, False) for size in (0.0, 1e-30, 1e30, torch.inf, torch.nan)],
)
def test_products_near_the_ends_of_the_range_are_noticed(size: float, fits: bool) -> None:
    product = torch.ones(2, 3, 3)
    product[1] *= size
    assert is_in_range(product) == fits
