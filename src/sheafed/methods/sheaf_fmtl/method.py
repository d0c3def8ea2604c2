r"""Sheaf-FMTL (Ben Issaid, Vepakomma and Bennis 2025): a sheaf over the agents' parameters.

Agent i has parameters $\theta_i \in \mathbb R^{n_i}$ and for every neighbour j a map
$P_{ij} \in \mathbb R^{d_{ij} \times n_i}$, $d_{ij} = \max(1, \lfloor \gamma \min(n_i, n_j)
\rfloor)$. Models and maps descend on

$\sum_i f_i(\theta_i) + \frac\lambda2 \sum_{(i,j)} \|P_{ij} \theta_i - P_{ji} \theta_j\|^2$,

and only the $d_{ij}$ numbers $P_{ij} \theta_i$ cross an edge.

Dense maps of the paper's fifteen agents need 10.8 GiB at $\gamma = 10^{-3}$ (float32). Here each is
kept as its seeded start and the rank-one terms added since, which is the same map in another form
(see `low_rank_maps`). Beside models and messages that takes $n_i$ numbers per agent and exchange,
whatever $\gamma$: 13.6 MB per exchange for the fifteen, 1.4 GB after 100, and as much again in
every checkpoint and in `last` and `best`. Peak resident memory of those agents, checkpoint
included, is 1.2 GiB after 5 exchanges for $\gamma$ from 1e-4 to 3e-3, and 4.6 GiB after 100;
`sheafed reproduce memory` measures it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import floor
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from sheafed.errors import InputError, NonFiniteError
from sheafed.methods.node import ROUND, NodeContext, latent_dtype
from sheafed.methods.post_hoc_node import PostHocNode, PostHocOptions
from sheafed.methods.sheaf_fmtl.low_rank_maps import HadamardStart, StackedMaps
from sheafed.options import Count, NotNegative, Positive, options
from sheafed.seeds import generator
from sheafed.transport.message import MAX_MAGNITUDE, Message, TensorSpec


@options
class SheafFMTL(PostHocOptions):
    r"""Objective plus $\frac\lambda2$ times the squared disagreement of projected parameters.

    With $r_{ij} = P_{ij} \theta_i - P_{ji} \theta_j$, an exchange takes two steps at once:

    - $\lambda \sum_j P_{ij}^\top r_{ij}$ is added to the gradient of the objective on that round's
      batch, and the agent's optimiser takes both (with its momentum and clipping, if any);
    - $P_{ij} \leftarrow P_{ij} - \eta \lambda\, r_{ij} \theta_i^\top$, with the same $\theta_i$.

    The published code moves the maps after the models, by their new parameters; that would take a
    second exchange. Between exchanges agents follow their objectives alone, as there: neighbours'
    projections would be stale, and the pull would grow with the rounds in an epoch. A message that
    is lost leaves its edge out of that exchange at its receiver. Maps for communication are fitted
    after training, as `PostHocOptions` say.

    Rates that are too large make the projections grow without bound, which ends in an error. The
    maps of an edge are stable for $\eta \lambda (\|\theta_i\|^2 + \|\theta_j\|^2) < 2$; the models,
    by plain gradient steps of rate $\alpha$, for $\alpha \lambda c^2 n_i < 2$ with the scale c.

    Args:
        penalty: $\lambda$ of the formula, which is the original's: summed over the coordinates and
            edges of an agent, and not divided by their number. With 0 nothing is exchanged.
        gamma: the size of an edge's space relative to the smaller model's, in (0, 1].
        map_rate: $\eta$.
        every: how many rounds lie between exchanges, or `"epoch"`: the last round of each. The
            paper's code exchanges in every round (1); see above for what that does to memory.
        scale: the maps start with entries of plus or minus this. 0.01 is the deviation of the
            normal numbers in the published code, and the bound of the uniform ones in the paper's.
            `"isometric"` is $1 / \sqrt{d_{ij}}$, by which maps keep lengths on average: then less
            penalty has an effect, and less is stable.
    """

    name: Literal["sheaf-fmtl"] = field(default="sheaf-fmtl", kw_only=True, repr=False)
    penalty: NotNegative = 1e-3
    gamma: Annotated[float, Field(gt=0, le=1, strict=True)] = 1e-3
    map_rate: NotNegative = 1e-2
    every: Count | Literal["epoch"] = "epoch"
    scale: Positive | Literal["isometric"] = 0.01

    @property
    def label(self) -> str:
        return "Sheaf-FMTL"

    def node(self, context: NodeContext) -> SheafFMTLNode:
        return SheafFMTLNode(self, context)


def edge_size(gamma: float, one: int, other: int) -> int:
    r"""Return $d_{ij} = \max(1, \lfloor \gamma \min(n_i, n_j) \rfloor)$."""
    return max(1, floor(gamma * min(one, other)))


class SheafFMTLNode(PostHocNode):
    maps: StackedMaps
    """The maps to all neighbours, one above the other in the order of `widths`."""

    def __init__(self, method: SheafFMTL, context: NodeContext) -> None:
        super().__init__(context, method.whitening, method.shrinkage, method.channel)
        self.method = method
        self.trained = [p for p in self.agent.parameters if p.requires_grad]
        self.size = sum(p.numel() for p in self.trained)
        if not self.size:
            raise InputError(
                f"agent {self.name!r} has no trainable parameters, which Sheaf-FMTL couples; "
                "unfreeze some, or take NonCooperative"
            )
        every = method.every
        self.period = context.rounds_per_epoch if every == "epoch" else every
        self.widths: dict[str, int] = {}
        """d_ij by neighbour."""
        self._theta: Tensor | None = None
        self._projected: Tensor | None = None

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "parameter precision": str(latent_dtype(self.agent)),
            "rounds between exchanges": self.period,
            "gamma": repr(self.method.gamma),
            "penalty": repr(self.method.penalty),
            "map rate": repr(self.method.map_rate),
        }

    def announced_sizes(self) -> dict[str, int]:
        """Add the number of parameters, on which the size of an edge depends."""
        return super().announced_sizes() | {"number of parameters": self.size}

    def prepare(self) -> None:
        """Draw this agent's map of every edge."""
        super().prepare()
        dtype, starts = latent_dtype(self.agent), []
        for j in self.neighbours:
            width = edge_size(self.method.gamma, self.size, self.peers[j]["number of parameters"])
            stream = generator(self.context.seed, self.name, j, "restriction map")
            scale = width**-0.5 if self.method.scale == "isometric" else self.method.scale
            starts.append(HadamardStart(width, self.size, scale, stream, dtype, self.agent.device))
            self.widths[j] = width
        self.maps = StackedMaps(starts)

    def is_exchanged(self, round: int) -> bool:
        coupled = self.method.penalty > 0 and bool(self.neighbours)
        return coupled and (round + 1) % self.period == 0

    def parameters(self) -> Tensor:
        """Return a copy of all trainable parameters as one vector, in the agent's order."""
        dtype = latent_dtype(self.agent)
        return torch.cat([p.detach().reshape(-1).to(dtype) for p in self.trained])

    def send(self, round: int) -> Iterator[Message]:
        """Send every neighbour the own parameters, projected by the edge's map."""
        self._theta = self._projected = None
        if not self.is_exchanged(round):
            return
        self._theta = self.parameters()
        self._projected = self.maps.project(self._theta)
        self._check_size("projected parameters", self._projected, round, MAX_MAGNITUDE)
        parts = torch.split(self._projected, list(self.widths.values()))
        for j, part in zip(self.widths, parts, strict=True):
            yield Message(ROUND, round, self.name, j, {"projection": part.clone()})

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Take one step on objective and disagreement, and in an exchange one of the maps."""
        residual = self._residual(round, inbox)
        self.agent.zero_grad()
        with self.agent.rng_context():
            loss = self.local_loss(round)
            loss.backward()  # type: ignore[no-untyped-call]
            log = {"loss": float(loss.detach())}
            if residual is not None:
                self._add_gradient(self.method.penalty * self.maps.pull_back(residual), round)
                log["penalty"] = self.method.penalty / 2 * float(residual.square().sum())
            self.agent.apply_gradients()
        if residual is not None and self._theta is not None and self.method.map_rate > 0:
            self.maps.move(self.method.map_rate * self.method.penalty * residual, self._theta)
        self._theta = self._projected = None
        return log

    def reuse(self, round: int, message: Message) -> Message:
        return replace(message, round=round)

    def _residual(self, round: int, inbox: Mapping[str, Message]) -> Tensor | None:
        """Return all r_ij, concatenated and 0 where no message arrived; None if none did."""
        if not self.is_exchanged(round):
            return None
        if self._projected is None:
            raise InputError(f"agent {self.name!r}: receive() comes after send()")
        dtype = self._projected.dtype
        specs = {j: {"projection": TensorSpec(dtype, (d,))} for j, d in self.widths.items()}
        received = self.valid_messages(round, ROUND, inbox, specs)
        if not received:
            return None
        parts = torch.split(self._projected, list(self.widths.values()))
        return torch.cat(
            [
                own - received[j].tensors["projection"] if j in received else torch.zeros_like(own)
                for j, own in zip(self.widths, parts, strict=True)
            ]
        )

    def _add_gradient(self, gradient: Tensor, round: int) -> None:
        self._check_size("gradient of the disagreement", gradient, round)
        parts = torch.split(gradient, [p.numel() for p in self.trained])
        for parameter, part in zip(self.trained, parts, strict=True):
            shaped = part.view(parameter.shape).to(parameter.dtype)
            if parameter.grad is None:
                parameter.grad = shaped.clone()
            else:
                parameter.grad.add_(shaped)

    def _check_size(
        self, what: str, values: Tensor, round: int, largest: float = float("inf")
    ) -> None:
        """Raise if own numbers are not finite, or so large that neighbours would reject them."""
        size = values.abs()
        good = torch.isfinite(size) & (size <= largest)
        if not bool(good.all()):
            limits = "not finite" if largest == float("inf") else f"not finite or above {largest:g}"
            raise NonFiniteError(
                f"agent {self.name!r}, round {round}: {int((~good).sum())} of {values.numel()} "
                f"values of the {what} are {limits}; lower the penalty, the map_rate or the scale"
            )

    def state(self) -> dict[str, Any]:
        """Add the updates of the maps; their starts follow from the seed."""
        return super().state() | {"maps": self.maps.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.maps.load_state(state["maps"])
