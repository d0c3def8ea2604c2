r"""FedProto (Tan et al., AAAI 2022): latents are pulled towards global class prototypes.

The original has a server; here every agent broadcasts its prototypes to its neighbours and
aggregates what it receives together with its own. On a complete graph, and so for two agents, that
is the server's aggregate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from torch import Tensor

from sheafed.methods.node import NodeContext, latent_dtype
from sheafed.methods.post_hoc_node import PostHocNode, PostHocOptions
from sheafed.methods.prototypes import (
    Prototypes,
    broadcast,
    classes_of,
    labelled_loss,
    merge_received,
)
from sheafed.options import Fraction, NotNegative, options
from sheafed.transport.message import Message


@options
class FedProto(PostHocOptions):
    r"""Objective plus $\lambda$ times the squared distance of latents to their prototypes.

    $\frac{\lambda}{n} \sum_{k:\, y_k\ \mathrm{known}} \|z_k - \bar c_{y_k}\|^2$ on the batch of the
    objective, summed over coordinates and averaged over samples. The original's formula compares
    class means, summed over classes; its published code compares samples, as here, but averages
    over coordinates too, so that one $\lambda$ pulls the less the larger the latents are: its
    $\lambda$ is d times the one here. Samples of classes that no agent has sent add 0 and count in
    n. Prototypes are constants, and come from the latents that training computed anyway. All agents
    need one latent size. Maps are fitted after training, as `PostHocOptions` say.

    Args:
        penalty: $\lambda$.
        aggregation: `"mean"`, the original's: class means over an epoch's batches are sent once
            per epoch and averaged, weighted by class counts; the first epoch has no penalty.
            (The original's formula divides by the number of agents once more, which only shrinks
            prototypes; its published code does not weight. Neither is done here.) `"ema"`, the
            Sheaf-FRL paper's: class means of a batch are sent in the round after it, and each
            prototype is their exponential moving average.
        momentum: what a round leaves of the moving average.
    """

    name: Literal["fedproto"] = field(default="fedproto", kw_only=True, repr=False)
    penalty: NotNegative = 0.1
    aggregation: Literal["mean", "ema"] = "ema"
    momentum: Fraction = 0.9

    @property
    def label(self) -> str:
        return "FedProto" if self.aggregation == "mean" else "FedProto (moving average)"

    def node(self, context: NodeContext) -> FedProtoNode:
        return FedProtoNode(self, context)


def prototype_distance(
    latents: Tensor, targets: Tensor, prototypes: Tensor, known: Tensor
) -> Tensor | None:
    r"""Return $\frac1n \sum_k [y_k\ \mathrm{known}] \|z_k - \bar c_{y_k}\|^2$, if any is."""
    chosen = known[targets]
    if not bool(chosen.any()):
        return None
    errors = latents[chosen] - prototypes[targets[chosen]]
    return errors.square().sum() / len(latents)


class FedProtoNode(PostHocNode):
    def __init__(self, method: FedProto, context: NodeContext) -> None:
        super().__init__(context, method.whitening, method.shrinkage, method.channel)
        self.method = method
        self.classes = classes_of(context.agent)
        mean = method.aggregation == "mean"
        self.prototypes = Prototypes(
            self.classes,
            context.agent.dimension,
            latent_dtype(context.agent),
            period=context.rounds_per_epoch if mean else 1,
            momentum=None if mean else method.momentum,
            device=context.agent.device,
        )

    def shared_settings(self) -> dict[str, str | int]:
        return super().shared_settings() | {
            "latent size": self.agent.dimension,
            "number of classes": self.classes,
            "latent precision": str(latent_dtype(self.agent)),
            "aggregation": self.method.aggregation,
        }

    def send(self, round: int) -> Iterator[Message]:
        """Broadcast own class means and counts: once per epoch, or in every round."""
        return broadcast(self, self.prototypes, round)

    def reuse(self, round: int, message: Message) -> Message:
        return replace(message, round=round)

    def receive(self, round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        """Aggregate, then take one step on objective and distance."""
        merge_received(self, self.prototypes, round, inbox)
        with self.agent.rng_context():
            loss, latents, targets = labelled_loss(self, round, self.classes)
            log = {"loss": float(loss.detach())}
            self.prototypes.add(latents, targets)
            distance = prototype_distance(
                latents, targets, self.prototypes.aggregate, self.prototypes.known
            )
            if distance is not None and self.method.penalty > 0:
                penalty = self.method.penalty * distance
                loss = loss + penalty
                log["penalty"] = float(penalty.detach())
            self.agent.optimizer_step(loss)
        return log

    def state(self) -> dict[str, Any]:
        return super().state() | {"prototypes": self.prototypes.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.prototypes.load_state(state["prototypes"])
