import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from sheafed.agents.objectives.augmentations import Augmentation, erase, warp
from sheafed.errors import InputError, ShapeError


def images(n: int = 3, c: int = 2, h: int = 7, w: int = 9) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.rand(n, c, h, w, generator=stream, dtype=torch.float64)


def test_whole_shifts_move_pixels() -> None:
    x = images()
    offsets = torch.tensor([[1, -2], [0, 3], [-2, 0]])
    moved = warp(x, torch.zeros(3), offsets.double())
    for k, (down, right) in enumerate(offsets.tolist()):
        for channel in range(2):
            expected = ndimage.shift(x[k, channel].numpy(), (down, right), order=0)
            np.testing.assert_allclose(moved[k, channel], expected, atol=1e-6)


def test_rotations_and_shifts_against_scipy() -> None:
    x = images()
    angles = torch.tensor([0.3, -0.7, math.pi / 2])
    offsets = torch.tensor([[1.5, -0.5], [0.0, 0.0], [0.25, 2.0]])
    moved = warp(x, angles, offsets)
    centre = np.array([3.0, 4.0])
    for k, (angle, offset) in enumerate(zip(angles.tolist(), offsets.numpy(), strict=True)):
        # Clockwise with rows counted downwards: right goes to down.
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        back = turn.T
        start = centre - back @ (centre + offset)
        for channel in range(2):
            expected = ndimage.affine_transform(
                x[k, channel].numpy(), back, start, order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(moved[k, channel], expected, atol=1e-5)


def test_erasing_blanks_one_rectangle() -> None:
    x = images() + 1
    blanked = erase(x, torch.tensor([[0, 0], [4, 5], [2, 8]]), torch.tensor([3, 2]))
    expected = x.clone()
    expected[0, :, 0:3, 0:2] = 0
    expected[1, :, 4:7, 5:7] = 0
    expected[2, :, 2:5, 8:] = 0
    assert torch.equal(blanked, expected)


def test_every_choice_does_something_of_its_own() -> None:
    x = torch.zeros(400, 1, 8, 8)
    x[:, :, 3:5, 3:5] = 1
    off = {"shift": 0, "rotation": 0, "erasing": 0, "noise": 0}
    torch.manual_seed(0)
    assert torch.equal(Augmentation(**off)(x), x)
    shifted = Augmentation(**off | {"shift": 0.25})(x)
    rows = torch.arange(8.0)
    centres = (shifted.sum((1, 3)) @ rows) / shifted.sum((1, 2, 3)) - 3.5
    steps, counts = centres.round(decimals=3).unique(return_counts=True)
    assert steps.tolist() == [-2, -1, 0, 1, 2]
    assert int(counts.min()) > 50  # each is as likely as the others
    noisy = Augmentation(**off | {"noise": 0.1})(x)
    assert float((noisy - x).std()) == pytest.approx(0.1, rel=0.02)
    erased = Augmentation(**off | {"erasing": 0.25})(torch.ones(400, 1, 8, 8))
    assert (erased == 0).sum((1, 2, 3)).tolist() == [4] * 400
    assert bool((erased == 0).any(0).all())  # everywhere
    turned = Augmentation(**off | {"rotation": 30})(x)
    assert not torch.equal(turned, x)
    torch.testing.assert_close(turned.sum((1, 2, 3)), x.sum((1, 2, 3)), rtol=0.15, atol=0)


def test_the_same_stream_gives_the_same_images() -> None:
    x = images(c=1, h=8, w=8)
    torch.manual_seed(4)
    first, second = Augmentation()(x), Augmentation()(x)
    torch.manual_seed(4)
    assert torch.equal(Augmentation()(x), first)
    assert not torch.equal(first, second)
    assert first.dtype == x.dtype


def test_vectors_take_noise_alone() -> None:
    x = torch.zeros(3, 5)
    assert Augmentation(shift=0, rotation=0, erasing=0)(x).shape == (3, 5)
    with pytest.raises(ShapeError, match=r"only images .* got inputs of shape \(3, 5\)"):
        Augmentation()(x)


@pytest.mark.parametrize(
    ("option", "value"), [("shift", -0.1), ("rotation", 181), ("erasing", 2), ("noise", math.nan)]
)
def test_what_is_refused(option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{option} must be .*, got {value}"):
        Augmentation(**{option: value})
