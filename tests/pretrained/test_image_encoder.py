"""Trunks against layers that are not folded, and images on their way into one."""

import io
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, pad, relu6

from sheafed.errors import DataFormatError, EmptyInputError, InputError, ShapeError
from sheafed.pretrained import (
    ImageEncoder,
    encode_images,
    images,
    latents,
    load_image_encoder,
)
from sheafed.pretrained.images.trunk import Architecture, build_trunk, load_trunk

WIDTHS = (3, 2, 4, 4, 3, 3, 5)  # of the seven stages
REPEATS = (1, 1, 2, 1, 1, 1, 1)
KERNELS = (3, 3, 5, 3, 5, 5, 3)
STRIDES = (1, 2, 2, 2, 1, 2, 1)
EPS = 1e-3


def layers():
    """The convolutions of a small trunk: out, in, kernel, stride, depthwise, activated."""
    yield (4, 3, 3, 2, False, True)
    width = 4
    for stage, out in enumerate(WIDTHS):
        for k in range(REPEATS[stage]):
            wide = width * 3 if stage else width
            if stage:
                yield (wide, width, 1, 1, False, True)
            yield (wide, wide, KERNELS[stage], 1 if k else STRIDES[stage], True, True)
            yield (out, wide, 1, 1, False, False)
            width = out
    yield (6, width, 1, 1, False, True)


@pytest.fixture(scope="module")
def state():
    generator = torch.Generator().manual_seed(0)
    found = {}
    for k, (out, width, kernel, _, depthwise, _) in enumerate(layers()):
        shape = (out, 1 if depthwise else width, kernel, kernel)
        found[f"{k}.conv.weight"] = torch.randn(shape, generator=generator)
        found[f"{k}.bn.weight"] = torch.rand(out, generator=generator) + 0.5
        found[f"{k}.bn.bias"] = torch.randn(out, generator=generator)
        found[f"{k}.bn.running_mean"] = torch.randn(out, generator=generator)
        found[f"{k}.bn.running_var"] = 4 * torch.rand(out, generator=generator) + 0.5
        found[f"{k}.bn.num_batches_tracked"] = torch.tensor(7)
    return found | {"fc.weight": torch.zeros(9, 6), "fc.bias": torch.zeros(9)}


def reference(state, x, same_padding):
    """Layer by layer, with a batch normalisation of its own."""
    inputs = None
    for k, (out, _, kernel, stride, depthwise, activated) in enumerate(layers()):
        if k and kernel == 1 and activated:
            inputs = x  # expanded
        if k == 1:
            inputs = x  # the first block does not expand
        around = [kernel // 2] * 4
        if same_padding and stride == 2:  # as TensorFlow pads: less before than after, if even
            around = [
                side
                for n in reversed(x.shape[2:])
                for side in ((kernel - 1) // 2 - (n % 2 == 0), kernel // 2)
            ]
        y = conv2d(
            pad(x, around), state[f"{k}.conv.weight"], stride=stride, groups=out if depthwise else 1
        )
        norm = nn.BatchNorm2d(out, EPS).eval()
        norm.load_state_dict(
            {name: state[f"{k}.bn.{name}"] for name in norm.state_dict()}, strict=True
        )
        y = norm(y)
        x = relu6(y) if activated else y
        if not activated and x.shape == inputs.shape:
            x = x + inputs
    return x.mean((2, 3))


@pytest.mark.parametrize("same_padding", [True, False])
@pytest.mark.parametrize("size", [(64, 64), (45, 38)])
def test_a_trunk_is_its_layers(state, same_padding, size):
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    trunk = build_trunk(state, Architecture(REPEATS, EPS, same_padding))
    with torch.no_grad():
        expected = reference(state, images, same_padding)
        assert expected.std() > 0.1
        torch.testing.assert_close(trunk(images), expected, atol=1e-4, rtol=1e-4)


def test_weights_of_another_architecture_are_refused(state):
    with pytest.raises(DataFormatError, match="fewer convolutions than the 10 blocks"):
        build_trunk(state, Architecture((1, 2, 2, 1, 1, 1, 2), EPS, True))
    with pytest.raises(DataFormatError, match="3 convolutions are left over"):
        build_trunk(state, Architecture((1, 1, 1, 1, 1, 1, 1), EPS, True))
    with pytest.raises(DataFormatError, match=r"0\.bn follows no convolution"):
        build_trunk(
            {k: v for k, v in state.items() if not k.startswith("0.conv")},
            Architecture(REPEATS, EPS, True),
        )


def encoder(trunk=None, resolution=32):
    return ImageEncoder("tiny", 3, trunk or Means(), resolution, (0.5, 0.25, 0.0), (1.0, 0.5, 2.0))


class Means(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def test_images_are_resized_and_normalised():
    colours = torch.tensor([[0, 51, 255], [255, 102, 0]], dtype=torch.uint8)
    sheets = colours[:, :, None, None].expand(2, 3, 20, 20)
    expected = [[-0.5, -0.1, 0.5], [0.5, 0.3, 0.0]]
    found = encoder().encode(sheets, batch_size=1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(encoder().encode(sheets / 255), expected, atol=1e-6)
    grey = torch.full((1, 1, 8, 8), 0.5)
    np.testing.assert_allclose(encoder().encode(grey), [[0, 0.5, 0.25]], atol=1e-6)
    assert encoder(resolution=40).prepare(sheets).shape == (2, 3, 40, 40)
    ramp = torch.linspace(0, 1, 8).expand(1, 3, 8, 8)
    assert encoder().prepare(ramp)[0, 0].diff(dim=1).min() >= 0  # nothing overshoots [0, 1]
    assert encoder().encode(sheets[:0]).shape == (0, 3)
    with pytest.raises(ShapeError, match=r"got \(2, 4, 8, 8\)"):
        encoder().encode(torch.zeros(2, 4, 8, 8))


def test_a_checkpoint_is_read_without_pickle(state):
    file = io.BytesIO()
    torch.save(state, file)
    trunk = load_trunk(file.getvalue(), Architecture(REPEATS, EPS, True))
    with torch.no_grad():
        assert trunk(torch.zeros(1, 3, 32, 32)).shape == (1, 6)
    file = io.BytesIO()
    torch.save({"module": nn.Linear(2, 2)}, file)
    with pytest.raises(UnpicklingError, match="Weights only load failed"):
        load_trunk(file.getvalue(), Architecture(REPEATS, EPS, True))


def test_every_image_is_encoded_once(tmp_path, monkeypatch):
    seen = []

    def load(name, resolution, log):
        def encode(chunk):
            seen.extend(chunk[:, 0, 0, 0].tolist())
            return np.full((len(chunk), 1280), resolution, dtype=np.float32)

        return type("Stub", (), {"encode": staticmethod(encode)})

    monkeypatch.setenv("SHEAFED_DATA", str(tmp_path))
    monkeypatch.setattr(latents, "CHUNK", 4)
    monkeypatch.setattr(images.latents, "load_image_encoder", load)
    pictures = torch.arange(10, dtype=torch.uint8)[:, None, None, None].expand(10, 3, 8, 8)
    assert encode_images("mobilenet-v2", pictures[:8], 64).unique().tolist() == [64]
    assert torch.equal(encode_images("mobilenet-v2", pictures, 64)[:, 0], torch.full((10,), 64.0))
    assert seen == list(range(10))
    assert images.latents.images_are_encoded("mobilenet-v2", pictures, 64)
    assert not images.latents.images_are_encoded("mobilenet-v2", pictures)
    assert seen == list(range(10))
    encode_images("mobilenet-v2", pictures[:4].float())
    assert seen[10:] == list(range(4))  # other pixels, another resolution
    with pytest.raises(EmptyInputError, match="at least one"):
        encode_images("mobilenet-v2", pictures[:0])
    with pytest.raises(ShapeError, match="images must have"):
        encode_images("mobilenet-v2", pictures[0])


def test_bad_requests_say_what_to_do():
    with pytest.raises(InputError, match=r"unknown image encoder 'resnet'.*mobilenet-v2"):
        load_image_encoder("resnet")
    with pytest.raises(InputError, match="at least 32 pixels, got 16"):
        load_image_encoder("mobilenet-v2", 16)
