r"""Canonical correlations: $\tilde X^\top \tilde Y / n = P\,\mathrm{diag}(\rho)\,Q^\top$.

Of white latents, the isometry $P Q^\top$ carries each canonical direction of the sender to its mate
at full length; $P\,\mathrm{diag}(\rho)\,Q^\top$ is the regression of one on the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sheafed.linalg.decompositions import svd
from sheafed.linalg.procrustes import rank_tolerance


@dataclass(frozen=True)
class CanonicalDirections:
    sender: Tensor
    """P, `(r_x, k)`"""
    correlations: Tensor
    r"""$\rho$, `(k,)`, descending; of shrunk latents, less than their correlations."""
    receiver: Tensor
    """Q transposed, `(k, r_y)`"""

    def weighted(self, power: float) -> tuple[Tensor, Tensor]:
        r"""Return two factors of $P\,\mathrm{diag}(\rho^p)\,Q^\top$.

        Their product for power 0 is the isometry, for 1 the regression.
        """
        return self.sender, self.correlations.clamp_min(0.0)[:, None] ** power * self.receiver

    def reversed(self) -> CanonicalDirections:
        """Return those from the receiver to the sender."""
        return CanonicalDirections(self.receiver.mT, self.correlations, self.sender.mT)


def canonical_directions(m: Tensor) -> CanonicalDirections:
    r"""Return the canonical directions of white latents from $\tilde X^\top \tilde Y / n$.

    Only those that the latents determine: a pair of directions without any correlation is an
    arbitrary choice.

    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    >>> canonical_directions(x.mT @ x[:, :1] / 4).correlations
    tensor([1.])

    Args:
        m: `(r_x, r_y)`
    """
    p, rho, qt = svd(m)
    kept = rho > rank_tolerance(rho, m.shape, m.dtype) if rho.numel() else rho > 0
    return CanonicalDirections(p[:, kept], rho[kept], qt[kept])
