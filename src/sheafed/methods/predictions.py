"""Class probabilities that agents tell each other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sheafed.errors import HandshakeError

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


@torch.no_grad()
def predict_proba(head: Head, latents: Tensor) -> Tensor:
    """Return the class probabilities `(n, classes)` that a head, in inference mode, gives."""
    return torch.softmax(head(latents), dim=-1)
