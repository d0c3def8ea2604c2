"""Post-hoc alignment: encoders that were trained apart can read each other's latents.

A latent is sent by the map of a pair of neighbours, or by the maps along a path of them. Beside the
maps stands the sheaf of isometries between white latents, which the round trips are measured on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path

from sheafed.alignment import files
from sheafed.alignment.affine_map import AffineMap, identity_map
from sheafed.alignment.arrays import ArrayT, as_array
from sheafed.alignment.report import AlignmentReport
from sheafed.alignment.routing import best_path


@dataclass(frozen=True, repr=False)
class Alignment(files.AlignmentContent):
    """Latent spaces joined by maps along the edges of a graph, one for each direction.

    >>> import torch
    >>> from sheafed import align
    >>> latents = {"ada": torch.randn(50, 4), "bo": torch.randn(50, 3)}
    >>> alignment = align(latents)
    >>> alignment.send(latents["ada"], "ada", "bo").shape
    torch.Size([50, 3])
    >>> [(fit.tail, fit.head, fit.rank) for fit in alignment.report().edges]
    [('bo', 'ada', 3)]
    >>> [(pair.sender, pair.receiver) for pair in alignment.report().pairs]
    [('ada', 'bo'), ('bo', 'ada')]
    """

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name!r}: {self.sheaf.dims[name]}" for name in self.names)
        return f"Alignment({{{sizes}}}, {len(self.maps)} maps, goal={self.goal!r})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.whitenings))

    def send(self, z: ArrayT, sender: str, receiver: str, *, check: bool = True) -> ArrayT:
        """Return the sender's latents `(n, d_sender)` as the receiver would have them.

        The result `(n, d_receiver)` is of the kind and precision of `z`, ready for the receiver's
        head. A single latent `(d_sender,)` works too. Between agents that are not neighbours the
        latents take the path that keeps most by the held-out quality of its hops.

        32 rows or more are refused (`EncoderMismatchError`) if statistics show that they come from
        another encoder than the pilots' latents; `check=False` sends them all the same.
        """
        z = as_array("the latents", z)
        link = self.link(sender, receiver)
        if check:
            self.fingerprints[sender].check(sender, z)
        return link.transform(z)

    def link(self, sender: str, receiver: str) -> AffineMap:
        """Return the map that `send` applies, composed of those of its hops.

        `link(...).as_linear()` is a layer to put between the sender's encoder and the receiver's
        head.
        """
        hops = [self.maps[hop] for hop in pairwise(self.path(sender, receiver))]
        return reduce(AffineMap.then, hops) if hops else identity_map(self.sheaf.dims[sender])

    def path(self, sender: str, receiver: str) -> list[str]:
        """Return the edge between neighbours, else the path that keeps most.

        A map that nothing judged is used only where there is no other way.
        """
        quality = {(pair.sender, pair.receiver): pair.quality(self.goal) for pair in self.pairs}
        return best_path(sender, receiver, self.names, quality)

    def report(self) -> AlignmentReport:
        return AlignmentReport(
            goal=self.goal,
            pairs=self.pairs,
            edges=self.fits,
            cycles=tuple(self.sheaf.holonomy(cycle) for cycle in self.sheaf.cycles()),
        )

    def save(self, directory: str | Path) -> Path:
        """Write `alignment.json` and `alignment.safetensors` to a directory, and return it."""
        return files.save(directory, self)

    @classmethod
    def load(cls, directory: str | Path) -> Alignment:
        """Read an alignment that `save` wrote. Nothing is unpickled."""
        return cls(**vars(files.load(directory)))
