r"""Edge stalks smaller than both latent spaces: each end sends only a projection.

The end of agent i holds $P_i \in \mathbb R^{e \times d_i}$ with orthonormal rows, sends
$Y_i = P_i A_i$ and reads what arrives by $P_i^\top$; the component outside the stalk is
unknown and set to 0, the mean of a white latent. The gluing penalty compares in the stalk,
$\|P_i A_i - Y_j\|_F^2$. For white latents $\|P_i A_i\|$ does not depend on $P_i$, so the best pair
maximises

$$\mathrm{tr}(P_i C P_j^\top), \qquad C = A_i A_j^\top = U \Sigma W^\top.$$

The maximum is $\sigma_1 + \dots + \sigma_e$ (von Neumann), attained by
$P_i = Q U_e^\top,\ P_j = Q W_e^\top$ for every rotation Q of the stalk: the truncated SVD, or for
exactly white latents the first e canonical correlations. $P_i^\top P_j$, by which i reads j, does
not depend on Q.

Neither end knows C. It sees the other's projections, hence $C P_j^\top = A_i Y_j^\top$. Given
$P_j$ the best $P_i^\top$ is the polar factor of that. So the ends take turns, and

- every fit raises the trace on fixed latents, since it maximises it over one of its arguments;
- a pair of fits is a step of subspace iteration, $\mathrm{span} P_i^\top \leftarrow
  C C^\top \mathrm{span} P_i^\top$, which converges to the first e singular vectors by a factor of
  $(\sigma_{e+1} / \sigma_e)^2$ from almost every start;
- there the polar factor of $W_e \Sigma_e Q^\top$ is $W_e Q^\top$: the two ends share one Q.

Fitting both ends at once would run two such iterations side by side, each with a Q of its own.
With e the smaller of the two sizes nothing is truncated: $P_i^\top P_j$ is the Procrustes map as
soon as both ends have fitted once.
"""

from typing import Literal

import numpy as np
from torch import Tensor

from sheafed.methods.endpoints import EdgeEndpoint, TransportEndpoint, random_isometry
from sheafed.methods.shared_solver import Solver


class CompressedEndpoint(TransportEndpoint):
    """Only projected latents are exchanged; the map `(width, d_i)`, a projection, stays here."""


def compressed_endpoint(
    dimension: int,
    other: int,
    edge_dim: int,
    *,
    is_head: bool,
    secret: np.random.Generator,
    solver: Solver,
) -> CompressedEndpoint:
    """Return an endpoint with a secret random projection; fits come in turn, the tail's first.

    The stalk is at most as large as the smaller latent space.
    """
    width = min(edge_dim, dimension, other)
    initial = random_isometry(dimension, width, secret).mT.contiguous()
    turn: Literal["odd", "even"] = "odd" if is_head else "even"

    def project(m: Tensor, previous: Tensor) -> Tensor:
        return solver(m.mT, previous.mT).mT.contiguous()

    return CompressedEndpoint(initial, turn=turn, fitted=is_head, solver=project)


def in_stalk(endpoint: EdgeEndpoint, latents: Tensor) -> Tensor:
    """Return own white latents as the penalty compares them: projected, if the stalk is smaller."""
    return endpoint.outgoing(latents) if isinstance(endpoint, CompressedEndpoint) else latents
