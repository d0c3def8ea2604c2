"""Post-hoc alignment: encoders that were trained apart can read each other's latents.

A latent is sent by whitening it, carrying it along the maps of a path of edges, and colouring it
for the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sheafed.alignment import files
from sheafed.alignment.report import AlignmentReport, EdgeFit
from sheafed.errors import DtypeError
from sheafed.graphs import Edge
from sheafed.linalg.whitening import Whitening
from sheafed.sheaf.latent_link import LatentLink
from sheafed.sheaf.network_sheaf import NetworkSheaf
from sheafed.sheaf.routing import lowest_loss_path

Array = NDArray[np.float16] | NDArray[np.float32] | NDArray[np.float64] | Tensor
ArrayT = TypeVar("ArrayT", NDArray[np.float16], NDArray[np.float32], NDArray[np.float64], Tensor)


@dataclass(frozen=True)
class Alignment:
    """White latent spaces joined by isometries along the edges of a graph.

    >>> from sheafed import align
    >>> latents = {"ada": torch.randn(50, 4), "bo": torch.randn(50, 3)}
    >>> alignment = align(latents)
    >>> alignment.send(latents["ada"], "ada", "bo").shape
    torch.Size([50, 3])
    >>> [(fit.tail, fit.head, fit.rank) for fit in alignment.report().edges]
    [('bo', 'ada', 3)]
    """

    sheaf: NetworkSheaf
    whitenings: Mapping[str, Whitening]
    fits: tuple[EdgeFit, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.whitenings))

    def send(self, z: ArrayT, sender: str, receiver: str) -> ArrayT:
        """Return the sender's latents `(n, d_sender)` as the receiver would have them.

        The result `(n, d_receiver)` is of the kind and precision of `z`, ready for the receiver's
        head. A single latent `(d_sender,)` works too. Between agents that are not neighbours the
        latents take the path of least expected loss (`sheafed.sheaf.path_loss`).
        """
        link = self.link(sender, receiver)
        given = as_tensor(f"the latents of {sender!r}", z)
        rows = given[None] if given.ndim == 1 else given
        read = link(rows.double())
        result = read.reshape(*given.shape[:-1], read.shape[-1]).to(given.dtype)
        return result if isinstance(z, Tensor) else result.numpy()

    def link(self, sender: str, receiver: str) -> LatentLink:
        """Return the way that `send` takes, in float64."""
        path = self.path(sender, receiver)
        return LatentLink(
            self.whitenings[sender].whiten,
            (lambda white: self.sheaf.transport_along(white, path),),
            self.whitenings[receiver].colour,
        )

    def path(self, sender: str, receiver: str) -> list[str]:
        """Return the edge between neighbours, else the path of least expected loss."""
        mismatch = {Edge(fit.head, fit.tail): fit.mismatch for fit in self.fits}
        return lowest_loss_path(sender, receiver, self.sheaf.dims, mismatch)

    def report(self) -> AlignmentReport:
        return AlignmentReport(
            edges=self.fits,
            cycles=tuple(self.sheaf.holonomy(cycle) for cycle in self.sheaf.cycles()),
        )

    def save(self, directory: str | Path) -> Path:
        """Write `alignment.json` and `alignment.safetensors` to a directory, and return it."""
        return files.save(directory, self.sheaf, self.whitenings, self.fits)

    @classmethod
    def load(cls, directory: str | Path) -> Alignment:
        """Read an alignment that `save` wrote. Nothing is unpickled."""
        return cls(*files.load(directory))


def as_tensor(name: str, x: Array) -> Tensor:
    tensor = torch.as_tensor(x)
    if not tensor.is_floating_point():
        raise DtypeError(f"{name} must be floating-point, got {tensor.dtype}; convert them")
    return tensor.detach()
