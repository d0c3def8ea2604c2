r"""Edge endpoints: what leaves an agent, how it reads what arrives, how its map is fitted.

Four protocols need two kinds of endpoints.

*Plain* endpoints (alg:sheaf_frl_1comm) send raw latents. Both solve the same Procrustes problem and
end up with the same $V_{ij}$.

*Transporting* endpoints send $R A_i$ with a map $R$ of their own, $R^\top R = I$, and read what
arrives by $R^\top$. The homogeneous protocol (alg:sheaf_frl_hom) keeps the head's $R = I$ and lets
the tail fit $O_{ji}$. Under strict privacy both ends hold a secret: $O_{ji}$ at the head, fitted by
(P2c), and $V_{ji}$ at the tail, fitted by (P2d).
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from sheafed.methods.shared_solver import Solver

Turn = Literal["even", "odd", "always", "never"]
"""The fits, by number, in which an end refits its map."""


class EdgeEndpoint(Protocol):
    """One end of an edge, at agent i."""

    width: int
    """The number of columns of the latents that arrive."""
    map: Tensor
    fitted: bool
    """Whether the map can be read by; an initial map cannot."""

    @property
    def in_frame(self) -> bool:
        """Whether what leaves is in the frame that the other end will read it in."""

    def outgoing(self, own: Tensor) -> Tensor:
        """Return what leaves for own white latents `(n, d_i)`."""

    def incoming(self, received: Tensor) -> Tensor:
        """Return what arrived, `(n, width)`, in the own white space, `(n, d_i)`."""

    def cross(self, own: Tensor, received: Tensor) -> Tensor:
        """Return the cross-covariance that determines the map."""

    def fit(self, m: Tensor, fit_number: int) -> None:
        """Refit the map to a cross-covariance, if it is this end's turn."""


class PlainEndpoint:
    """Raw latents are exchanged; both ends know $V$, `(d_head, d_tail)`."""

    in_frame = True

    def __init__(self, dimension: int, other: int, *, is_head: bool, solver: Solver) -> None:
        self.width = other
        self.map = torch.eye(max(dimension, other), min(dimension, other))
        self.fitted = False
        self._is_head = is_head
        self.solver = solver

    def outgoing(self, own: Tensor) -> Tensor:
        return own

    def incoming(self, received: Tensor) -> Tensor:
        r"""Return $V_{ij} A_j$ at the head and $V_{ji}^\top A_j$ at the tail."""
        return received @ (self.map.mT if self._is_head else self.map)

    def cross(self, own: Tensor, received: Tensor) -> Tensor:
        r"""Return $A_{head} A_{tail}^\top$, with the same bits at both ends."""
        # What arrives is contiguous; another layout would let BLAS round otherwise at one end.
        own = own.contiguous()
        return own.mT @ received if self._is_head else received.mT @ own

    def is_due(self, fit_number: int) -> bool:
        """Whether it is this end's turn to refit its map."""
        return True

    def fit(self, m: Tensor, fit_number: int) -> None:
        """Solve (P2a) at the head and (P2b) at the tail: the same problem."""
        self.map = self.solver(m, self.map)
        self.fitted = True


class TransportEndpoint:
    """Only transported latents are exchanged; the map `(width, d_i)` stays here."""

    def __init__(
        self,
        initial: Tensor,
        *,
        turn: Turn,
        fitted: bool,
        solver: Solver,
    ) -> None:
        self.map = initial
        self.width = initial.shape[0]
        self.fitted = fitted
        self._turn = turn
        self.solver = solver

    @property
    def in_frame(self) -> bool:
        """The frame of the edge is the head's; the tail sends in it once it is fitted."""
        return self.fitted

    def outgoing(self, own: Tensor) -> Tensor:
        r"""Return $R A_i$."""
        return own @ self.map.mT

    def incoming(self, received: Tensor) -> Tensor:
        r"""Return $R^\top$ of what arrived."""
        return received @ self.map

    def cross(self, own: Tensor, received: Tensor) -> Tensor:
        r"""Return $Y_j A_i^\top$ for what arrived, $Y_j$."""
        return received.mT @ own

    def is_due(self, fit_number: int) -> bool:
        """Whether it is this end's turn to refit its map."""
        mine = {"even": fit_number % 2 == 0, "odd": fit_number % 2 == 1, "always": True}
        return mine.get(self._turn, False)

    def fit(self, m: Tensor, fit_number: int) -> None:
        """Solve (P2c), (P2d), or the homogeneous problem, when it is this end's turn."""
        if self.is_due(fit_number):
            self.map = self.solver(m, self.map)
            self.fitted = True


def plain_endpoint(dimension: int, other: int, *, is_head: bool, solver: Solver) -> EdgeEndpoint:
    """Return an endpoint of the standard protocol, alg:sheaf_frl_1comm."""
    return PlainEndpoint(dimension, other, is_head=is_head, solver=solver)


def homogeneous_endpoint(dimension: int, *, is_head: bool, solver: Solver) -> EdgeEndpoint:
    """Return an endpoint of alg:sheaf_frl_hom: the tail fits, the head keeps the identity."""
    turn: Literal["never", "always"] = "never" if is_head else "always"
    return TransportEndpoint(torch.eye(dimension), turn=turn, fitted=is_head, solver=solver)


def strict_endpoint(
    dimension: int,
    other: int,
    *,
    is_head: bool,
    secret: np.random.Generator,
    solver: Solver,
    in_turn: bool = True,
) -> EdgeEndpoint:
    """Return an endpoint of the strict protocols: a secret random map, then fits in turn.

    As printed, both ends refit at once, each to the other's previous message; the two maps then
    swap forever. In turn, tail first, the residual is optimal from the first fit on.

    Args:
        dimension: of own latents.
        other: that of the neighbour's.
        is_head: whether this is the head's end.
        secret: the stream of the random map.
        solver: of the Procrustes problem.
        in_turn: False lets the tail alone fit, whenever it has heard the head; the head keeps its
            map. One such fit is optimal, and a tail that missed one can still be read.
    """
    width = max(dimension, other)
    initial = random_isometry(width, dimension, secret)
    turns: tuple[Turn, Turn] = ("odd", "even") if in_turn else ("never", "always")
    turn = turns[0] if is_head else turns[1]
    return TransportEndpoint(initial, turn=turn, fitted=is_head, solver=solver)


def random_isometry(rows: int, columns: int, secret: np.random.Generator) -> Tensor:
    """Return a uniformly random matrix with orthonormal columns, in double precision."""
    q, r = torch.linalg.qr(torch.from_numpy(secret.standard_normal((rows, columns))))
    isometry: Tensor = q * r.diagonal().sign()  # Q alone is always 1 for d = 1, i.e. no secret
    # LAPACK's layout would be another after a checkpoint, and BLAS would round otherwise.
    return isometry.contiguous()


def endpoint_state(endpoint: EdgeEndpoint) -> dict[str, Any]:
    return {"map": endpoint.map, "fitted": endpoint.fitted}


def load_endpoint_state(endpoint: EdgeEndpoint, state: Mapping[str, Any]) -> None:
    endpoint.map = state["map"]
    endpoint.fitted = state["fitted"]
