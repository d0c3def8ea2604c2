"""The frozen trunk of MobileNetV2 and EfficientNet-Lite: inverted residual blocks, then the mean.

M. Sandler et al., *MobileNetV2: inverted residuals and linear bottlenecks*, CVPR 2018. M. Tan,
Q. Le, *EfficientNet*, ICML 2019; its Lite variants have neither squeeze-and-excitation nor swish.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

from sheafed.errors import DataFormatError

STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage, after a stem of stride 2
BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Architecture:
    """What the shapes of the weights do not tell.

    Args:
        repeats: the number of blocks of each of the seven stages.
        eps: of batch normalisation.
        same_padding: pad as TensorFlow does, more at the end where it cannot be even.
    """

    repeats: tuple[int, int, int, int, int, int, int]
    eps: float
    same_padding: bool


MOBILENET_V2 = Architecture((1, 2, 3, 4, 3, 3, 1), eps=1e-5, same_padding=False)
EFFICIENTNET_LITE0 = Architecture((1, 2, 2, 3, 3, 4, 1), eps=1e-3, same_padding=True)
EFFICIENTNET_LITE1 = Architecture((1, 3, 3, 4, 4, 5, 1), eps=1e-3, same_padding=True)
EFFICIENTNET_LITE2 = EFFICIENTNET_LITE1  # wider, which its weights tell


class Convolution(nn.Module):
    """A convolution with its batch normalisation folded in, and ReLU6 unless it is linear."""

    weight: Tensor
    bias: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor, stride: int, same_padding: bool, linear: bool
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", bias)
        self.stride, self.same_padding, self.linear = stride, same_padding, linear
        self.groups = len(weight) if weight.shape[1] == 1 else 1  # depthwise or full

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.shape[-1]
        if self.same_padding:
            rows, columns = (same_padding(n, kernel, self.stride) for n in x.shape[-2:])
            y = conv2d(
                pad(x, (*columns, *rows)), self.weight, self.bias, self.stride, groups=self.groups
            )
        else:
            y = conv2d(x, self.weight, self.bias, self.stride, kernel // 2, groups=self.groups)
        return y if self.linear else relu6(y)


class InvertedResidual(nn.Sequential):
    """Expand, convolve each channel, project; added to the input where the shapes agree."""

    def forward(self, x: Tensor) -> Tensor:
        y = _applied(self, x)
        return x + y if x.shape == y.shape else y


class Trunk(nn.Sequential):
    """From normalised images `(b, 3, h, w)` to latents `(b, d)`, the mean of the last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return _applied(self, x.contiguous(memory_format=torch.channels_last)).mean((2, 3))


def _applied(layers: nn.Sequential, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def load_trunk(content: bytes, architecture: Architecture) -> Trunk:
    """Return the trunk with the weights of a checkpoint; its classifier is left out."""
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return build_trunk(state, architecture)


def build_trunk(state: Mapping[str, Tensor], architecture: Architecture) -> Trunk:
    """Return the trunk whose convolutions a state dict lists in the order in which they are used.

    Args:
        state: by any names, every convolution is followed by its batch normalisation.
        architecture: see there.
    """
    folded, same = folded_convolutions(state, architecture.eps), architecture.same_padding
    try:
        blocks: list[nn.Module] = [Convolution(*next(folded), 2, same, linear=False)]
        for stage, repeats in enumerate(architecture.repeats):
            for k in range(repeats):
                layers = []
                if stage:  # the first stage does not expand
                    layers.append(Convolution(*next(folded), 1, same, linear=False))
                stride = 1 if k else STRIDES[stage]
                layers.append(Convolution(*next(folded), stride, same, linear=False))
                layers.append(Convolution(*next(folded), 1, same, linear=True))
                blocks.append(InvertedResidual(*layers))
        blocks.append(Convolution(*next(folded), 1, same, linear=False))
    except StopIteration:
        raise DataFormatError(
            f"the weights have fewer convolutions than the {sum(architecture.repeats)} blocks; "
            "they are those of another architecture"
        ) from None
    if (left := sum(1 for _ in folded)) > 0:
        raise DataFormatError(
            f"{left} convolutions are left over; the weights are those of another architecture"
        )
    return Trunk(*blocks)


def folded_convolutions(state: Mapping[str, Tensor], eps: float) -> Iterator[tuple[Tensor, Tensor]]:
    r"""Yield weight and bias of every convolution after its batch normalisation.

    $$\gamma \, (w * x - \mu) / \sqrt{\sigma^2 + \varepsilon} + \beta$$
    """
    weight = None
    for key, value in state.items():
        if value.ndim == 4:
            weight = value
        elif key.endswith(".running_mean"):
            layer = key.removesuffix(".running_mean")
            gamma, beta, mean, variance = (state[f"{layer}.{name}"] for name in BATCH_NORM)
            if weight is None or len(weight) != len(mean):
                raise DataFormatError(f"{layer} follows no convolution of its {len(mean)} channels")
            scale = gamma / (variance + eps).sqrt()
            yield weight * scale[:, None, None, None], beta - mean * scale
            weight = None


def same_padding(n: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many zeros precede and follow n values, so that ceil(n / stride) come out.

    >>> same_padding(8, 3, 1), same_padding(8, 3, 2), same_padding(7, 5, 2)
    ((1, 1), (0, 1), (2, 2))
    """
    total = max((-(-n // stride) - 1) * stride + kernel - n, 0)
    return total // 2, total - total // 2
