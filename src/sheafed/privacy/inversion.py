"""Inversion: a decoder learnt from public pilots and their latents, applied to private latents."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sheafed.errors import ShapeError
from sheafed.linalg.checks import check_matrix
from sheafed.seeds import generator

HELD_OUT = 0.2
"""The fraction of pilots by which the best epoch is chosen."""


class Decoder(nn.Module):
    """From latents `(n, d)`, standardised by those it was trained on, to inputs."""

    mean: Tensor
    deviation: Tensor
    average: Tensor

    def __init__(self, latents: Tensor, inputs: Tensor, hidden: int) -> None:
        super().__init__()
        self.register_buffer("mean", latents.mean(0))
        self.register_buffer("deviation", latents.std(0).clamp_min(1e-6))
        self.register_buffer("average", inputs.mean(0))
        self.layers = nn.Sequential(
            nn.Linear(latents.shape[1], hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, inputs[0].numel()),
        )

    def forward(self, latents: Tensor) -> Tensor:
        """Reconstruct inputs `(n, ...)` from latents `(n, d)`."""
        offset: Tensor = self.layers((latents - self.mean) / self.deviation)
        return self.average + offset.reshape(-1, *self.average.shape)


def train_decoder(
    latents: Tensor, inputs: Tensor, *, seed: int = 0, epochs: int = 200, hidden: int = 256
) -> Decoder:
    """Learn to invert an encoder from pairs of transmitted latents and inputs.

    Adam on the squared error; the epoch with the least error on held-out pilots is kept.

    Args:
        latents: `(n, d)`, of pilots, as they were transmitted.
        inputs: `(n, ...)`, the pilots.
        seed: of weights and order.
        epochs: over the pilots.
        hidden: the width of the decoder's two hidden layers.
    """
    check_matrix("latents", latents)
    if len(latents) != len(inputs) or len(inputs) < 10:
        raise ShapeError(
            f"a decoder needs at least 10 inputs and as many latents, got {len(latents)} latents "
            f"and {len(inputs)} inputs"
        )
    stream = generator(seed, "decoder")
    order = torch.randperm(len(inputs), generator=stream)
    cut = round(HELD_OUT * len(order))
    held_out, rest = order[:cut], order[cut:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = Decoder(latents[rest], inputs[rest], hidden).to(latents.dtype)
    optimizer = torch.optim.Adam(decoder.layers.parameters(), lr=1e-3, weight_decay=1e-4)
    best, kept = float("inf"), decoder.state_dict()
    for _ in range(epochs):
        for rows in torch.split(rest[torch.randperm(len(rest), generator=stream)], 64):
            optimizer.zero_grad()
            (decoder(latents[rows]) - inputs[rows]).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            error = float((decoder(latents[held_out]) - inputs[held_out]).square().mean())
        if error < best:
            best, kept = error, copy.deepcopy(decoder.state_dict())
    decoder.load_state_dict(kept)
    return decoder.requires_grad_(False)


def relative_error(reconstructions: Tensor, inputs: Tensor, mean_pilot: Tensor) -> float:
    """Return the squared error of reconstructions relative to that of the mean pilot.

    0 is a perfect reconstruction, 1 is no better than the mean pilot.
    """
    if reconstructions.shape != inputs.shape:
        raise ShapeError(
            f"reconstructions and inputs must have the same shape, got "
            f"{tuple(reconstructions.shape)} and {tuple(inputs.shape)}"
        )
    error = (reconstructions - inputs).square().sum()
    return float(error / (mean_pilot - inputs).square().sum())
