"""The training step of consensus distillation, for many agents of one architecture at once.

It is what `ConsensusDistillationNode` does agent by agent: the objective on own samples, the
consensus head's loss on them, and the distillation loss on pilots, each in a pass of the stacked
models. Members that learn different numbers of pilots, and so of own samples, go through passes of
their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from sheafed.methods.consensus import FEWEST
from sheafed.methods.local_loss import check_losses
from sheafed.methods.tied_optimizer import step_together
from sheafed.vectorized import OwnPass, Stacked, StackedCohort, StackedLayers
from sheafed.vectorized.objectives import label_losses, soft_label_losses

if TYPE_CHECKING:
    from sheafed.methods.consensus_distillation.node import ConsensusDistillationNode


class Part(NamedTuple):
    """One term of the losses of some members."""

    name: str
    members: list[int]
    """By position."""
    values: Tensor
    """`(members,)`"""


def take_steps(
    nodes: Sequence[ConsensusDistillationNode], round: int, cohort: StackedCohort
) -> dict[str, dict[str, float]]:
    """Take the steps of all members; return what each logs."""
    heads = [node.consensus_head for node in nodes if node.consensus_head is not None]
    second = None  # all members have a consensus head, or none has
    if heads:
        same = cohort.same.beside("consensus head", lambda: [head.module for head in heads])
        second = StackedLayers(same)
    rows = [node.learnt_rows(round) for node in nodes]
    passes = cohort.own_passes([n.own_samples(r) for n, r in zip(nodes, rows, strict=True)])
    for own in passes:
        check_losses([cohort.agents[k] for k in own.members], own, round)
    beside: list[Part] = []
    if second is not None:
        learning = {k for k, node in enumerate(nodes) if node.targets is not None}
        for own in passes:
            beside += _label_losses(cohort, second, own, learning)
    beside += _distillation_losses(nodes, cohort, second, rows, round)
    losses = [Part("loss", own.members, own.losses) for own in passes]
    totals = losses[0].values.new_zeros(len(nodes))
    for _, members, values in (*losses, *beside):
        totals = totals.index_add(0, torch.tensor(members, device=totals.device), values)
    learners = sorted({k for part in beside for k in part.members}) if heads else []
    rates = {k: heads[k].optimizer.rate for k in learners}
    cohort.train_on(totals)
    cohort.take_step()
    if second is not None:
        step_together(cohort.agents, [head.optimizer for head in heads], second, rates)
    logs: dict[str, dict[str, float]] = {node.name: {} for node in nodes}
    for name, members, values in (*losses, *beside):
        for k, value in zip(members, values.tolist(), strict=True):
            logs[nodes[k].name][name] = value
    return logs


def _label_losses(
    cohort: StackedCohort, second: StackedLayers, own: OwnPass, learning: Collection[int]
) -> Iterator[Part]:
    """Yield what the consensus heads of some members of a pass lose on own samples."""
    inputs, targets = own.batch
    places = [place for place, k in enumerate(own.members) if k in learning]
    if not places or targets is None or targets.shape[1] < FEWEST:
        return
    latents, members = own.latents, [own.members[place] for place in places]
    agents = [cohort.agents[k] for k in members]
    if not latents.value.requires_grad and not agents[0].frozen:
        latents = cohort.model.encode(inputs, own.members)  # as `loss_and_latents` has them
    example = cohort.model.example_of_latents(inputs) if second.of.drops else None
    chosen = Stacked(latents.apart()[places], len(places))
    scores = second.apply_in_training(chosen, example, members)
    second.write_statistics()
    values = label_losses(agents, scores.apart(), targets[places])
    yield Part("label_loss", members, values)


def _distillation_losses(
    nodes: Sequence[ConsensusDistillationNode],
    cohort: StackedCohort,
    second: StackedLayers | None,
    rows: Sequence[Tensor],
    round: int,
) -> Iterator[Part]:
    """Yield the soft cross-entropy on pilots, for members that learn the same number of them."""
    heads = cohort.model.heads if second is None else second
    for count in sorted({len(r) for r in rows} - {0}):
        members = [k for k, r in enumerate(rows) if len(r) == count]
        latents, example = _pilot_latents(nodes, cohort, rows, members, round)
        scores = heads.apply_in_training(latents, example, members).apart()
        targets = [cast(Tensor, nodes[k].targets) for k in members]
        said = torch.stack([t[rows[k].to(t.device)] for k, t in zip(members, targets, strict=True)])
        weights = [nodes[k].consensus.weight for k in members]
        values = soft_label_losses(scores, said)
        yield Part("distillation_loss", members, values * values.new_tensor(weights))
    cohort.model.encoders.write_statistics()
    heads.write_statistics()


def _pilot_latents(
    nodes: Sequence[ConsensusDistillationNode],
    cohort: StackedCohort,
    rows: Sequence[Tensor],
    members: list[int],
    round: int,
) -> tuple[Stacked, Tensor]:
    """Return latents of pilots as a training step has them, and an example of one agent's."""
    if cohort.agents[0].frozen:  # they are encoded only once
        latents = [nodes[k].pilot_latents(rows[k], round) for k in members]
        return Stacked.of(latents), latents[0]
    inputs = cohort.pilot_inputs([rows[k] for k in members], members)
    encoded = cohort.model.encode_in_training(inputs, members)
    drops = cohort.model.heads.of.drops
    return encoded, cohort.model.example_of_latents(inputs) if drops else encoded.apart()[0]
