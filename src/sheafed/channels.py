r"""Noisy links: what arrives of latents that were sent.

A latent `(d,)` is one transmission of d symbols. It is first quantised, then disturbed, and then
some of its symbols are lost. All three act on each latent for itself, so that it does not matter
with which others it is sent.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Literal, get_args

import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.linalg.checks import check_fraction

When = Literal["always", "inference"]
MOST_BITS = 32


@dataclass(frozen=True)
class Channel:
    """A link over which latents are transmitted.

    Args:
        snr_db: the signal-to-noise ratio in decibels of additive white Gaussian noise; None for
            no noise.
        erasure: the probability with which a symbol, one coordinate of a latent, is lost. The
            receiver knows which are, and takes 0 for them: the mean of a white latent.
        bits: into how many each coordinate is quantised; None for as it is.
        when: `"always"`: pilots in training, or those that maps are fitted from after it, and
            whatever is transmitted later; `"inference"`: only the latter.
    """

    snr_db: float | None = None
    erasure: float = 0.0
    bits: int | None = None
    when: When = "always"

    def __post_init__(self) -> None:
        if self.snr_db is not None and not isfinite(self.snr_db):
            raise InputError(f"snr_db must be finite, or None for no noise, got {self.snr_db}")
        check_fraction("erasure", self.erasure)
        if self.bits is not None:
            _check_bits(self.bits)
        if self.when not in get_args(When):
            raise InputError(f"when must be 'always' or 'inference', got {self.when!r}")

    def carry(self, latents: Tensor, stream: torch.Generator) -> Tensor:
        """Return what arrives of latents `(n, d)`; the stream decides noise and losses."""
        if self.bits is not None:
            latents = quantise(latents, self.bits)
        if self.snr_db is not None:
            latents = add_noise(latents, self.snr_db, stream)
        if self.erasure > 0:
            latents = erase(latents, self.erasure, stream)
        return latents


def add_noise(latents: Tensor, snr_db: float, stream: torch.Generator) -> Tensor:
    r"""Add white Gaussian noise of variance $10^{-\mathrm{SNR}/10} \|z\|^2 / d$ to each latent z.

    Its power is relative to that of the latent: a sender that scales every transmission to one
    power, and a receiver that knows the scale.
    """
    power = latents.square().mean(-1, keepdim=True)
    noise = torch.randn(latents.shape, generator=stream, dtype=latents.dtype)
    return latents + noise * (power * 10 ** (-snr_db / 10)).sqrt()


def erase(latents: Tensor, probability: float, stream: torch.Generator) -> Tensor:
    """Put 0 for each coordinate that is lost, independently of all others."""
    draws = torch.rand(latents.shape, generator=stream, dtype=torch.float64)
    return torch.where(draws < probability, torch.zeros_like(latents), latents)


def quantise(latents: Tensor, bits: int) -> Tensor:
    r"""Round each coordinate to the middle of one of $2^b$ equal cells of $[-m, m]$.

    m is the largest magnitude in the latent, which is sent along. An error is at most
    $m\, 2^{-b}$; one bit keeps signs.
    """
    _check_bits(bits)
    cells = 2**bits
    exact = latents.double()
    width = 2 * exact.abs().amax(-1, keepdim=True) / cells
    inside = torch.where(width > 0, width, torch.ones_like(width))  # a latent of zeros stays one
    cell = (exact / inside).floor().clamp(-cells // 2, cells // 2 - 1)
    middle: Tensor = (cell + 0.5) * width
    return middle.to(latents.dtype)


def _check_bits(bits: int) -> None:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"bits must be a whole number from 1 to {MOST_BITS}, got {bits!r}")
