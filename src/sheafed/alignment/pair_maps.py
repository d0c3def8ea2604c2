"""The map of every directed pair of neighbours, chosen by held-out pilots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor

from sheafed.alignment.held_out import deviation, mean
from sheafed.alignment.joint import JointMap, JointPilots, reliable_rank
from sheafed.alignment.kinds import Kind, decided
from sheafed.alignment.pilot_table import PilotTable
from sheafed.alignment.report import PairFit
from sheafed.alignment.selection import (
    Choice,
    Fold,
    Goal,
    best_option,
    judge,
    losses_of,
    settle,
)
from sheafed.alignment.shared_pilots import SharedPilots
from sheafed.errors import MissingPilotsError
from sheafed.graphs import Edge
from sheafed.linalg.support import Support

Pair = tuple[str, str]


@dataclass(frozen=True)
class _Direction:
    """A sender and a receiver, all their common pilots, and the folds that can judge a map."""

    pair: Pair
    whole: SharedPilots
    parts: list[Fold]


def choose_maps(
    edges: Sequence[Edge],
    table: PilotTable,
    references: Mapping[str, Support] | None,
    kinds: Sequence[Kind],
    goal: Goal,
    *,
    joint: bool = False,
) -> dict[Pair, Choice[Kind]]:
    """Return the chosen map for both directions of every edge, sorted by sender and receiver.

    Args:
        edges: the pairs of neighbours.
        table: the pilots of all agents.
        references: the supports on which isometries whiten, where they are not those of the pilots.
        kinds: of pairwise map, to choose among.
        goal: see `sheafed.align`.
        joint: whether joint maps are candidates too.
    """
    held = table.held_out
    if joint:
        table.check_connected()
    whole = _joint_pilots(table, torch.ones(len(table), dtype=torch.bool)) if joint else None
    parts = [_joint_pilots(table, ~rows) if joint else None for rows in held]
    chosen: dict[Pair, Choice[Kind]] = {}
    unjudged: list[_Direction] = []
    joint_losses: dict[JointMap, list[float]] = {}
    for edge in edges:
        for way in _both_ways(edge, table, held, references, whole, parts):
            if not way.parts:
                unjudged.append(way)
                continue
            pairwise = [option for kind in kinds for option in kind.candidates(way.whole)]
            common = JointMap().candidates(way.whole) if joint else []
            options: list[Kind] = [*pairwise, *common]
            judged = judge(options, way.whole, way.parts)
            for option, found in zip(common, judged[len(pairwise) :], strict=True):
                joint_losses.setdefault(option, []).append(mean(losses_of(found, goal)))
            best = best_option(options, judged, goal)
            chosen[way.pair] = settle(options[best], way.whole, judged[best])
    if unjudged:
        if not joint_losses:
            raise MissingPilotsError(
                f"{table.too_few_common(way.pair for way in unjudged)}; encode more of the same "
                "pilots: joint maps need those of some pairs, by which they are judged"
            )
        # What does best where it can be judged, with the sections that agents agree about. Only
        # isometries, which read better here: regressions draw latents towards their mean.
        isometries = [option for option in joint_losses if option.rotation == 1]
        known = min(isometries, key=lambda option: mean(tuple(joint_losses[option])))
        safe = _with_reliable_rank(known, table, parts)
        for way in unjudged:
            (nothing,) = judge([safe], way.whole, way.parts)
            chosen[way.pair] = settle(safe, way.whole, nothing)
    return dict(sorted(chosen.items(), key=itemgetter(0)))


def _both_ways(
    edge: Edge,
    table: PilotTable,
    held: Sequence[Tensor],
    references: Mapping[str, Support] | None,
    whole: JointPilots | None,
    parts: Sequence[JointPilots | None],
) -> list[_Direction]:
    """Return both directions of an edge, which share what they can."""
    head, tail = edge
    whitened_on = None if references is None else (references[head], references[tail])

    def shared(rows: tuple[Tensor, Tensor], joint: JointPilots | None) -> SharedPilots:
        return SharedPilots(
            table.encoded(head, rows[0]),
            table.encoded(tail, rows[1]),
            whitened_on,
            joint=None if joint is None else (joint, head, tail),
        )

    common = table.common(head, tail)
    judges = [(held[fold], parts[fold]) for fold in table.judging_folds(head, tail)]
    if not judges:
        apart = shared((table.present[head], table.present[tail]), whole)
        return [_Direction((head, tail), apart, []), _Direction((tail, head), apart.reversed(), [])]
    together = shared((common, common), whole)
    fitted = [shared((common & ~rows,) * 2, joint) for rows, joint in judges]
    x, y = (table.latents[name] for name in edge)
    there = [
        Fold(part, x[common & rows], y[common & rows])
        for part, (rows, _) in zip(fitted, judges, strict=True)
    ]
    back = [Fold(part.fitted.reversed(), part.y, part.x) for part in there]
    return [
        _Direction((head, tail), together, there),
        _Direction((tail, head), together.reversed(), back),
    ]


def _joint_pilots(table: PilotTable, rows: Tensor) -> JointPilots:
    present = {name: own & rows for name, own in table.present.items()}
    return JointPilots(
        {name: table.encoded(name, own) for name, own in present.items()},
        {name: own[rows] for name, own in present.items()},
    )


def _with_reliable_rank(
    option: JointMap, table: PilotTable, parts: Sequence[JointPilots | None]
) -> JointMap:
    agreements = []
    for rows, joint in zip(table.held_out, parts, strict=True):
        if joint is not None:
            held = {name: own & rows for name, own in table.present.items()}
            latents = {name: table.latents[name][own] for name, own in held.items()}
            present = {name: own[rows] for name, own in held.items()}
            agreements.append(
                joint.agreement(latents, present, decided("shrinkage", option.shrinkage))
            )
    return replace(option, rank=min(int(decided("rank", option.rank)), reliable_rank(agreements)))


def pair_fit(pair: Pair, choice: Choice[Kind], pilots: int) -> PairFit:
    found = choice.held_out
    judged = bool(found.residuals)
    return PairFit(
        sender=pair[0],
        receiver=pair[1],
        kind=choice.kind.name,
        strength=choice.kind.strength(),
        pilots=pilots,
        residual=mean(found.residuals) if judged else None,
        residual_spread=deviation(found.residuals) if judged else None,
        top1=mean(found.top1) if judged else None,
        reciprocal_rank=mean(found.reciprocal_ranks) if judged else None,
        first_of_ten=mean(found.first_of_ten) if judged else None,
        neighbour_reciprocal_rank=mean(found.neighbour_reciprocal_ranks) if judged else None,
        fold_size=pilots // len(found.residuals) if judged else 0,
        d_receiver=len(choice.map.value),
    )
