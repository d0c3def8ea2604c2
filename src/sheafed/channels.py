r"""Noisy links: quantisation, additive noise and erasures of transmitted latents.

A latent `(d,)` is one transmission of d symbols. It is first quantised, then noise is added, and
then some of its symbols are erased. Each latent is disturbed independently of the batch.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from sheafed.devices import double
from sheafed.errors import InputError
from sheafed.options import Fraction, options

When = Literal["always", "inference"]
MOST_BITS = 32


@options
class Channel:
    """A link over which latents are transmitted.

    >>> channel = Channel(bits=1)
    >>> channel.carry(torch.tensor([[-4.0, 1.0]]), torch.Generator())
    tensor([[-2.,  2.]])

    Args:
        snr_db: the signal-to-noise ratio in decibels of additive white Gaussian noise; None for
            no noise.
        erasure: the probability that a symbol, one coordinate of a latent, is erased. The receiver
            knows which ones, and replaces them by 0, the mean of a white latent.
        bits: per coordinate; None for no quantisation.
        when: `"always"`: pilots, in training or for fitting maps after it, and latents transmitted
            later; `"inference"`: only the latter.
    """

    snr_db: Annotated[float, Field(ge=-200, allow_inf_nan=False, strict=True)] | None = None
    erasure: Fraction = 0.0
    bits: Annotated[int, Field(ge=1, le=MOST_BITS, strict=True)] | None = None
    when: When = "always"

    def carry(self, latents: Tensor, stream: torch.Generator) -> Tensor:
        """Return the received latents `(n, d)`; noise and erasures are drawn from the stream."""
        if self.bits is not None:
            latents = quantise(latents, self.bits)
        if self.snr_db is not None:
            latents = add_noise(latents, self.snr_db, stream)
        if self.erasure > 0:
            latents = erase(latents, self.erasure, stream)
        return latents


def add_noise(latents: Tensor, snr_db: float, stream: torch.Generator) -> Tensor:
    r"""Add white Gaussian noise of variance $10^{-\mathrm{SNR}/10} \|z\|^2 / d$ to each latent z.

    Its power is relative to that of the latent, as if the sender scaled every transmission to one
    power and the receiver knew the scale.

    >>> sent = torch.ones(2, 1000)
    >>> received = add_noise(sent, snr_db=20, stream=torch.Generator().manual_seed(0))
    >>> bool(0.005 < (received - sent).square().mean() < 0.015)
    True
    """
    power = latents.square().mean(-1, keepdim=True)
    noise = torch.randn(latents.shape, generator=stream, dtype=latents.dtype).to(latents.device)
    return latents + noise * (power * 10 ** (-snr_db / 10)).sqrt()


def erase(latents: Tensor, probability: float, stream: torch.Generator) -> Tensor:
    """Set each coordinate to 0 with the given probability, independently of all others.

    >>> erase(torch.ones(1, 3), probability=1.0, stream=torch.Generator())
    tensor([[0., 0., 0.]])
    """
    draws = torch.rand(latents.shape, generator=stream, dtype=torch.float64)
    return torch.where((draws < probability).to(latents.device), torch.zeros_like(latents), latents)


def quantise(latents: Tensor, bits: int) -> Tensor:
    r"""Round each coordinate to the middle of one of $2^b$ equal cells of $[-m, m]$.

    m is the largest magnitude in the latent, which is sent along. The error of a coordinate is at
    most $m\, 2^{-b}$; one bit keeps signs.

    >>> quantise(torch.tensor([[-4.0, 1.0, 3.0]]), bits=2)
    tensor([[-3.,  1.,  3.]])
    """
    _check_bits(bits)
    cells = 2**bits
    exact = double(latents)
    width = 2 * exact.abs().amax(-1, keepdim=True) / cells
    inside = torch.where(width > 0, width, torch.ones_like(width))  # a latent of zeros stays zero
    cell = (exact / inside).floor().clamp(-cells // 2, cells // 2 - 1)
    middle: Tensor = (cell + 0.5) * width
    return middle.to(latents)


def _check_bits(bits: int) -> None:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"bits must be a whole number from 1 to {MOST_BITS}, got {bits!r}")
