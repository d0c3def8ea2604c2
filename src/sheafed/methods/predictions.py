"""Class probabilities that agents tell each other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sheafed.errors import HandshakeError

LEVELS = 255
"""The largest byte."""
Head = Callable[[Tensor], Tensor]
"""From latents `(n, d)` to outputs `(n, ...)`."""


def check_same_classes(name: str, classes: int, neighbour: str, others: int) -> None:
    """Raise if two heads that exchange probabilities tell apart different numbers of classes."""
    if classes and others and classes != others:
        raise HandshakeError(
            f"agents {name!r} and {neighbour!r} cannot exchange class probabilities: their heads "
            f"tell apart {classes} and {others} classes; give both the same label set"
        )


def are_probabilities(probabilities: Tensor) -> bool:
    """Whether every row `(n, classes)` is not negative and sums to 1."""
    off = (probabilities.sum(-1) - 1).abs().max()
    return bool(probabilities.min() >= 0) and float(off) < 1e-3


def as_bytes(probabilities: Tensor) -> Tensor:
    r"""Return class probabilities `(n, classes)` as bytes, $\mathrm{round}(255 \sqrt{p / \max p})$.

    Square roots keep what many small probabilities amount to: of 1,000 classes, those that have
    $10^{-3}$ of the largest are off by a tenth, where equal steps would take them for 0.

    >>> as_bytes(torch.tensor([[0.5, 0.4, 0.1, 0.0]]))
    tensor([[255, 228, 114,   0]], dtype=torch.uint8)
    """
    relative = probabilities / probabilities.amax(-1, keepdim=True)
    return (LEVELS * relative.sqrt()).round().to(torch.uint8)


def from_bytes(sent: Tensor) -> Tensor:
    """Return the probabilities `(n, classes)` that were sent as bytes.

    Rows sum to 1, but for those of zeros, which stay.

    >>> from_bytes(as_bytes(torch.tensor([[0.5, 0.4, 0.1, 0.0]])))
    tensor([[0.5002, 0.3999, 0.1000, 0.0000]])
    """
    squares = sent.float().square()
    return squares / squares.sum(-1, keepdim=True).clamp_min(1)


def are_sent_probabilities(sent: Tensor) -> bool:
    """Whether bytes `(n, classes)` are class probabilities: the largest of a row is `LEVELS`."""
    return bool((sent.amax(-1) == LEVELS).all())


@torch.no_grad()
def predict_proba(head: Head, latents: Tensor) -> Tensor:
    """Return the class probabilities `(n, classes)` that a head, in inference mode, gives."""
    return torch.softmax(head(latents), dim=-1)
