r"""The gluing penalty as one agent sees it: how far its latents are from what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sheafed.methods.endpoints import EdgeEndpoint
from sheafed.methods.sheaf_frl.compressed_endpoints import in_stalk
from sheafed.methods.sheaf_frl.penalty_weight import Constant, PenaltyWeight, WarmUp


def gluing_penalty(
    own: Tensor,
    targets: Mapping[str, Tensor],
    endpoints: Mapping[str, EdgeEndpoint],
    weights: Mapping[str, float],
    *,
    white: bool,
) -> Tensor | None:
    r"""Return a function of the own latents with the gradient of eq. gradient_gluing_penalty.

    $\frac{\lambda_i}{2K} \sum_j \|A_i - T_{ij} A_j\|_F^2$ in the agent's own space: at the tail the
    component that $V$ cannot reach is constant, so its gradient is the same. Where edge stalks are
    compressed, the difference is projected into the stalk. None if it would be 0, as where the
    encoder is not trained.

    White latents have a mean square of 1. Shrunk whitening leaves less, and the less, the fewer
    directions hold the variance, so this penalty would be reduced by a representation that
    collapses. Hence it is divided by the mean square: where neighbours have nothing in common it
    is then $\frac{\lambda}{2}(1 + \|A_j\|^2 / \|A_i\|^2)$, least where all directions are white.

    Args:
        own: $A_i$, `(K, d)`.
        targets: $T_{ij} A_j$ of the neighbours to compare with.
        endpoints: of the edges to them.
        weights: $\lambda$ of the edges; $\lambda_i = \lambda / d$.
        white: whether latents are whitened.
    """
    total: Tensor | None = None
    for j, target in targets.items():
        if own.requires_grad and weights[j] > 0:
            latents = in_stalk(endpoints[j], own)
            difference = (latents - in_stalk(endpoints[j], target)).square().sum()
            term = difference * (weights[j] / (2 * len(own) * own.shape[-1]))
            if white:
                term = term / latents.square().mean()
            total = term if total is None else total + term
    return total


def gluing_penalties(own: Tensor, targets: Sequence[Sequence[tuple[Tensor, float]]]) -> Tensor:
    r"""Return `gluing_penalty` of several agents, `(agents,)`, whose latents are whitened.

    Args:
        own: $A_i$ of all agents, `(agents, K, d)`.
        targets: of every agent, $T_{ij} A_j$ and $\lambda > 0$ of its neighbours.
    """
    places = [k for k, of_one in enumerate(targets) for _ in of_one]
    if not places:
        return own.new_zeros(len(own))
    at = torch.tensor(places, device=own.device)
    others = torch.stack([target for of_one in targets for target, _ in of_one])
    weights = own.new_tensor([weight for of_one in targets for _, weight in of_one])
    differences = (own.index_select(0, at) - others).square().sum((-2, -1))
    terms = differences * (weights / (2 * own.shape[-2] * own.shape[-1]))
    terms = terms / own.square().mean((-2, -1)).index_select(0, at)
    return own.new_zeros(len(own)).index_add(0, at, terms)


def misalignment_at(endpoint: EdgeEndpoint, own: Tensor, target: Tensor, received: Tensor) -> float:
    r"""Return $\|A_i - V A_j\|^2 / (\|A_i\|^2 + \|A_j\|^2)$ as either end of the edge can see it.

    The tail has no latents of the larger space, so the numerator is taken apart: isometries keep
    norms, so $\|A_j\|$ is that of what arrived, whatever the protocol, and the inner product is
    the same in both spaces. Two ends with one map see the same number. It is 0 if all latents are.
    """
    own, target = in_stalk(endpoint, own), in_stalk(endpoint, target)
    energy = float(own.square().sum() + received.square().sum())
    return 1 - 2 * float((own * target).sum()) / energy if energy else 0.0


def updated_weights(
    schedule: PenaltyWeight,
    weights: Mapping[str, float],
    round: int,
    endpoints: Mapping[str, EdgeEndpoint],
    own: Tensor,
    targets: Mapping[str, Tensor],
    received: Mapping[str, Tensor],
) -> dict[str, float]:
    r"""Return $\lambda$ of every edge after a round, by the misalignment of each.

    Args:
        schedule: how the weight of one edge develops.
        weights: $\lambda$ of every edge before.
        round: the round that was.
        endpoints: of all edges.
        own: $A_i$, detached.
        targets: $T_{ij} A_j$ of the neighbours that can be compared with.
        received: what arrived from them.
    """
    updated = {}
    for j, weight in weights.items():
        seen = None
        if j in targets and not isinstance(schedule, Constant | WarmUp):  # these ask for none
            seen = misalignment_at(endpoints[j], own, targets[j], received[j])
        updated[j] = schedule.update(weight, round, seen)
    return updated
