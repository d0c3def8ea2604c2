r"""Consensus distillation: agents learn the pilots' classes from what neighbours agree on.

Beyond the paper. Every agent trains on its own labels, as if it were alone, and by a second head
(`sheafed.methods.consensus_head`) on pilots, with the consensus of its own prediction and its
neighbours' as their label (`sheafed.methods.consensus`). Encoders are trained by it too, so agents
come to represent the same classes, their own among them, and what Procrustes maps then carry is
read well. While training only predictions are exchanged, once an epoch; latents are, once, when
maps are fitted.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from sheafed.methods.consensus import FEWEST
from sheafed.methods.consensus_distillation.node import ConsensusDistillationNode
from sheafed.methods.latent_codec import Quantisation
from sheafed.methods.node import NodeContext
from sheafed.methods.post_hoc_node import PrivateMapOptions
from sheafed.options import Count, Fraction, NotNegative, Positive, Switch, options

Pilots = Annotated[int, Field(ge=FEWEST, strict=True)]


@options
class ConsensusDistillation(PrivateMapOptions):
    r"""Train on own labels and on the pilots' classes that neighbours agree on.

    Once an epoch agents tell their neighbours the class probabilities of pilots. The loss of a
    step is the objective on a batch of own samples and, of a second head, the cross-entropy of
    these and the soft cross-entropy of as many pilots against the consensus, of those about which
    it is confident. Maps are fitted after training, as `PrivateMapOptions` say, and
    with them heads for what neighbours send and for own data.

    Agents must mean the same classes. One without a head of classes trains for itself. One without
    labels learns the consensus by its only head, and does not teach.

    Args:
        confidence: the probability that the consensus of a pilot must exceed to be learnt. With 1
            agents train alone, and all they exchange is what maps and reading heads are fitted to.
        weight: of the soft cross-entropy beside the objective.
        sharpness: by how much confident predictions outweigh others, see
            `sheafed.methods.consensus.consensus`.
        calibrate: divide the head's scores by the temperature at which they predict the agent's
            validation data best. Without such data they are taken as they are.
        exchange_every: rounds from one exchange to the next, by default an epoch, and at least 8.
        pilots_per_round: in a training step, at least 2, by default the agent's batch size.
        pilots_in_batch: let pilots take the place of own samples, by default of half of them. A
            step then costs what it costs alone; with pilots beside a whole batch, the default, it
            costs twice that, and accuracies are higher where models or data are small.
        pilots_per_exchange: how many are drawn, anew for every exchange, for agents to predict; by
            default 64 for each round until the next, at least 1,024, at most all.
        reading_head: read what neighbours send by a head that is fitted to it when the maps are
            (`sheafed.methods.reading_head`). Without, the consensus head reads it as it is.
        sender_offsets: add to the reading head's scores a constant for each class and sender, so
            that it knows which classes a sender has.
        consensus_head: learn the consensus by a second head. Without, the agent's own learns it,
            and classifies own data.
        quantisation: of the pilots' latents that maps are fitted to, `"none"`, `"float16"` or
            `"int8"` (see `sheafed.methods.latent_codec`).
    """

    name: Literal["consensus-distillation"] = field(
        default="consensus-distillation", kw_only=True, repr=False
    )
    confidence: Fraction = 0.3
    weight: Positive = 1.0
    sharpness: NotNegative = 4.0
    calibrate: Switch = True
    exchange_every: Count | None = None
    pilots_per_round: Pilots | None = None
    reading_head: Switch = True
    consensus_head: Switch = True
    sender_offsets: Switch = field(default=True, kw_only=True)
    pilots_per_exchange: Pilots | None = field(default=None, kw_only=True)
    pilots_in_batch: Switch = field(default=False, kw_only=True)
    shrinkage: Fraction | Literal["least"] = field(default=0.9, kw_only=True)
    quantisation: Quantisation = field(default="int8", kw_only=True)

    @property
    def label(self) -> str:
        return "Consensus distillation"

    def node(self, context: NodeContext) -> ConsensusDistillationNode:
        return ConsensusDistillationNode(self, context)
