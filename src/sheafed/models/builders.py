"""Encoders, heads and decoders from their layer widths, as in tab:agent_zoo and in configs."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from sheafed.errors import InputError


def cnn(
    widths: Sequence[int],
    *,
    inputs: Sequence[int] = (1, 28, 28),
    dropout: float = 0.0,
    batch_norm: bool = True,
) -> nn.Sequential:
    """Return a convolutional encoder of images `(n, c, h, w)` into latents `(n, widths[-1])`.

    One block per width: convolution 3x3 with bias and padding 1, batch norm, ReLU, max-pooling
    by 2, dropout. The last feature map is averaged over its pixels. A feature map one pixel high or
    wide is not pooled, so any number of blocks fits any image.

    >>> encoder = cnn((8, 16), inputs=(1, 8, 8))
    >>> encoder(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 16])

    Args:
        widths: output channels of the blocks.
        inputs: `(c, h, w)` of one image.
        dropout: probability after each block. The appendix does not say where dropout is: with it
            here as well as in the head, agent 0 of the pair at d = 16 learns about as much as in
            the reference, else far more.
        batch_norm: whether blocks have batch norm.
    """
    _check_widths("widths", widths, least=1)
    _check_widths("inputs (c, h, w)", inputs, least=3, most=3)
    _check_dropout(dropout)
    channels, height, width = inputs
    layers: list[nn.Module] = []
    for out in widths:
        layers.append(nn.Conv2d(channels, out, kernel_size=3, padding=1))
        layers.extend([nn.BatchNorm2d(out)] if batch_norm else [])
        layers.append(nn.ReLU())
        if min(height, width) > 1:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers.extend([nn.Dropout(dropout)] if dropout else [])
        channels = out
    encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    # About 1.3 times faster on a CPU than the default layout; values differ by rounding alone.
    return encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def mlp(
    widths: Sequence[int],
    *,
    inputs: Sequence[int],
    dropout: float = 0.0,
    batch_norm: bool = True,
) -> nn.Sequential:
    """Return a fully connected encoder of inputs `(n, *inputs)` into latents `(n, widths[-1])`.

    Inputs are flattened. Hidden layers are linear, batch norm, ReLU, dropout; the last layer is
    linear alone, so no latent coordinate can die.

    >>> encoder = mlp((32, 16), inputs=(1, 8, 8))
    >>> encoder(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 16])

    Args:
        widths: of the hidden layers, then the latent size.
        inputs: the shape of one input, e.g. `(1, 8, 8)` or `(64,)`.
        dropout: probability after each hidden layer.
        batch_norm: whether hidden layers have batch norm.
    """
    _check_widths("widths", widths, least=1)
    _check_widths("inputs", inputs, least=1)
    *hidden, latent = widths
    return nn.Sequential(
        nn.Flatten(), *_perceptron(math.prod(inputs), hidden, latent, dropout, batch_norm)
    )


def linear(
    widths: Sequence[int],
    *,
    inputs: Sequence[int],
    dropout: float = 0.0,
    batch_norm: bool = True,
) -> nn.Sequential:
    """Return an adapter of features `(n, *inputs)`: one linear layer and tanh, `(n, widths[0])`.

    For the latents of a frozen pretrained encoder. It has no hidden layer, so neither dropout nor
    batch norm.

    >>> linear((16,), inputs=(384,))(torch.zeros(2, 384)).shape
    torch.Size([2, 16])

    Args:
        widths: the latent size alone.
        inputs: the shape of one input, e.g. `(384,)`.
        dropout: for hidden layers, of which there is none.
        batch_norm: for hidden layers, of which there is none.
    """
    _check_widths("widths", widths, least=1, most=1)
    _check_widths("inputs", inputs, least=1)
    return nn.Sequential(*mlp(widths, inputs=inputs, dropout=dropout), nn.Tanh())


def head(
    latent: int,
    widths: Sequence[int],
    classes: int,
    dropout: float = 0.0,
    batch_norm: bool = True,
) -> nn.Sequential:
    """Return a classifier of latents `(n, latent)` into scores `(n, classes)`.

    Hidden layers are linear, batch norm, ReLU, dropout; without any the head is linear.

    >>> head(latent=16, widths=(32,), classes=10)(torch.zeros(2, 16)).shape
    torch.Size([2, 10])

    Args:
        latent: the latent size.
        widths: of the hidden layers.
        classes: their number.
        dropout: probability after each hidden layer.
        batch_norm: whether hidden layers have batch norm.
    """
    _check_widths("latent and classes", (latent, classes), least=2)
    _check_widths("widths", widths, least=0)
    return nn.Sequential(*_perceptron(latent, widths, classes, dropout, batch_norm))


def decoder(
    latent: int, inputs: Sequence[int], widths: Sequence[int] = (64,), batch_norm: bool = True
) -> nn.Sequential:
    """Return a network from latents `(n, latent)` back to inputs `(n, *inputs)`.

    Hidden layers are linear, batch norm, ReLU; the output is not bounded.

    >>> decoder(latent=16, inputs=(1, 8, 8))(torch.zeros(2, 16)).shape
    torch.Size([2, 1, 8, 8])

    Args:
        latent: the latent size.
        inputs: the shape of one input, e.g. `(1, 8, 8)`.
        widths: of the hidden layers.
        batch_norm: whether hidden layers have batch norm.
    """
    _check_widths("latent", (latent,), least=1)
    _check_widths("inputs", inputs, least=1)
    _check_widths("widths", widths, least=0)
    layers = _perceptron(latent, widths, math.prod(inputs), 0.0, batch_norm)
    return nn.Sequential(*layers, nn.Unflatten(1, tuple(inputs)))


def _perceptron(
    inputs: int, hidden: Sequence[int], outputs: int, dropout: float, batch_norm: bool
) -> list[nn.Module]:
    _check_dropout(dropout)
    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(inputs, width))
        layers.extend([nn.BatchNorm1d(width)] if batch_norm else [])
        layers.append(nn.ReLU())
        layers.extend([nn.Dropout(dropout)] if dropout else [])
        inputs = width
    return [*layers, nn.Linear(inputs, outputs)]


def _check_widths(name: str, given: Sequence[int], *, least: int, most: float = math.inf) -> None:
    whole = all(isinstance(w, int) and not isinstance(w, bool) and w > 0 for w in given)
    if not whole or not least <= len(given) <= most:
        count = f"{least}" if least == most else f"at least {least}"
        raise InputError(f"{name} must be {count} positive whole numbers, got {list(given)}")


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must lie in [0, 1), got {dropout}")
