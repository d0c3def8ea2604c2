"""Views of images against NumPy and explicit loops."""

import math

import numpy as np
import pytest
import torch

from sheafed.datasets import load
from sheafed.datasets.modalities import MODALITIES, fourier, gradients, pixels, profiles
from sheafed.errors import DtypeError, InputError, ShapeError


def images(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


SHAPES = [(3, 1, 8, 8), (2, 3, 7, 5), (1, 1, 2, 2)]


def test_pixels_are_the_images() -> None:
    given = images(2, 1, 4, 4)
    assert pixels(given) is given


@pytest.mark.parametrize("shape", SHAPES)
def test_fourier_against_numpy(shape: tuple[int, ...]) -> None:
    given = images(*shape)
    whole = np.abs(np.fft.fft2(given.double().numpy())) / math.sqrt(shape[-2] * shape[-1])
    found = fourier(given)
    np.testing.assert_allclose(found, whole[..., : shape[-1] // 2 + 1], atol=1e-5)


def test_fourier_does_not_see_where() -> None:
    given = images(2, 1, 8, 8)
    shifted = given.roll((3, 2), dims=(-2, -1))
    assert torch.allclose(fourier(given), fourier(shifted), atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_profiles_by_loops(shape: tuple[int, ...]) -> None:
    given, (n, c, h, w) = images(*shape), shape
    found = profiles(given)
    assert found.shape == (n, c, h + w)
    for s in range(n):
        for k in range(c):
            rows = [sum(given[s, k, y, x].item() for x in range(w)) / w for y in range(h)]
            columns = [sum(given[s, k, y, x].item() for y in range(h)) / h for x in range(w)]
            assert found[s, k].tolist() == pytest.approx(rows + columns, abs=1e-6)


def histogram(image: np.ndarray, bins: int, cells: int) -> np.ndarray:
    """One channel's histograms `(bins, cells, cells)`, pixel by pixel."""
    height, width = image.shape
    down, right = np.gradient(image.astype(np.float64))
    found = np.zeros((bins, cells, cells))
    for i in range(cells):
        for j in range(cells):
            rows = range(i * height // cells, math.ceil((i + 1) * height / cells))
            columns = range(j * width // cells, math.ceil((j + 1) * width / cells))
            for y in rows:
                for x in columns:
                    angle = math.atan2(down[y, x], right[y, x])
                    nearest = min(
                        range(bins),
                        key=lambda b: -math.cos(angle - 2 * math.pi * b / bins),
                    )
                    length = math.hypot(down[y, x], right[y, x])
                    found[nearest, i, j] += length / (len(rows) * len(columns))
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("bins", "cells"), [(8, 2), (5, 1), (4, 3)])
def test_gradients_by_loops(shape: tuple[int, ...], bins: int, cells: int) -> None:
    given = images(*shape)
    found = gradients(given, bins, cells)
    assert found.shape == (*shape[:2], bins, cells, cells)
    for s in range(shape[0]):
        for k in range(shape[1]):
            expected = histogram(given[s, k].numpy(), bins, cells)
            np.testing.assert_allclose(found[s, k], expected, atol=1e-5)


def test_gradients_of_digits_whose_slopes_are_often_straight_or_diagonal() -> None:
    given = load("digits").inputs[:5]
    expected = np.stack([histogram(image[0].numpy(), 8, 2) for image in given])
    np.testing.assert_allclose(gradients(given)[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("name", list(MODALITIES))
def test_a_view_is_one_of_each_sample_by_itself(name: str) -> None:
    given, order = images(6, 2, 8, 8), torch.tensor([4, 0, 5])
    assert torch.equal(MODALITIES[name](given)[order], MODALITIES[name](given[order]))
    assert MODALITIES[name](given).dtype == torch.float32


@pytest.mark.parametrize("view", [fourier, profiles, gradients])
def test_what_is_no_image_is_refused(view) -> None:
    with pytest.raises(ShapeError, match=r"\(5, 64\)"):
        view(images(5, 64))
    with pytest.raises(DtypeError, match=r"torch\.uint8"):
        view(torch.zeros(2, 1, 4, 4, dtype=torch.uint8))


def test_bad_histograms_are_refused() -> None:
    with pytest.raises(InputError, match="got 0 and 2"):
        gradients(images(1, 1, 4, 4), bins=0)
    with pytest.raises(ShapeError, match="two pixels"):
        gradients(images(1, 1, 1, 4))
