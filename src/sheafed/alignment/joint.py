r"""Joint alignment: all agents are mapped through the common space of their sections.

The sections G are those of generalised canonical correlation (`sheafed.linalg.maxvar`) of shrunk
white latents. A sender estimates them from its latents, a receiver reads its own latents in them;
each of the two maps is fitted to all pilots that its agent has, whichever other agents have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from sheafed.alignment.kinds import Auto, Kind, KindName, check_shrinkage, decided
from sheafed.alignment.shared_pilots import PilotLatents, SharedPilots, SupportMap
from sheafed.errors import InputError
from sheafed.linalg.checks import check_int
from sheafed.linalg.decompositions import svd
from sheafed.linalg.maxvar import consensus, intraclass_correlation, maxvar
from sheafed.linalg.whitening import Shrinkage

SHRINKAGES = (0.1, 0.5, 0.9)
RANKS = (16, 32, 64, 128, 256)

# Of agents about a section, on the pilots that it was found on and on held-out ones.
LEAST_AGREEMENT, LEAST_HELD_OUT_AGREEMENT = 0.1, 0.3
WINDOW = 8

# On rows where some agents are missing, sections are neither white nor independent.
READING_PENALTY = 0.01


@dataclass(frozen=True, eq=False)
class JointPilots:
    """The pilots of all agents, and the sections that they have in common.

    Args:
        pilots: for each agent its latents of the pilots that it has.
        present: for each agent which of the K pilots these are.
    """

    pilots: Mapping[str, PilotLatents]
    present: Mapping[str, Tensor]
    _sections: dict[float, Tensor] = field(default_factory=dict)
    _ends: dict[tuple[str, float, int, bool], tuple[Tensor, Tensor, Tensor]] = field(
        default_factory=dict
    )

    @property
    def most_sections(self) -> int:
        """What two agents could have in common."""
        pilots = len(next(iter(self.present.values())))
        _, second, *_ = sorted((own.support.rank for own in self.pilots.values()), reverse=True)
        return max(1, min(pilots - 1, second))

    def sections(self, shrinkage: float) -> Tensor:
        """Return the sections `(K, k)` of latents whitened by shrunk covariances."""
        if shrinkage not in self._sections:
            names = sorted(self.pilots)
            white = [self._white(name, shrinkage) for name in names]
            present = [self.present[name] for name in names]
            sections, _ = maxvar(white, present)
            found, agreement = consensus(sections[:, : RANKS[-1]], white, present)
            # What two agents have in rows of their own only, and would read as something else.
            kept = agreement > min(LEAST_AGREEMENT, float(agreement.max()) / 2)
            self._sections[shrinkage] = found[:, kept]
        return self._sections[shrinkage]

    def _white(self, name: str, shrinkage: float) -> Tensor:
        own = self.pilots[name]
        return own.coordinates / own.support.shrunk_deviations(shrinkage)

    def ends(
        self, name: str, shrinkage: float, rank: int, *, isometric: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return how an agent estimates sections, how it reads them, and their mean on its pilots.

        `(r, k)` from coordinates on its support, `(k, r)` back, and `(k,)`.
        """
        key = (name, shrinkage, rank, isometric)
        if key not in self._ends:
            own = self.pilots[name]
            deviations = own.support.shrunk_deviations(shrinkage)
            sections = self.sections(shrinkage)[self.present[name], :rank]
            mean = sections.mean(0)
            sections = sections - mean
            cross = self._white(name, shrinkage).mT @ sections / len(sections)
            if isometric:
                u, _, wt = svd(cross)
                rotation = u @ wt
                estimate, read = rotation / deviations[:, None], rotation.mT * deviations
            else:
                # The ridge regression whose penalty the shrinkage amounts to.
                estimate = (1 - shrinkage) * cross / deviations[:, None]
                gram = sections.mT @ sections / len(sections)
                gram.diagonal().add_(READING_PENALTY)
                read = torch.linalg.solve(gram, cross.mT * deviations)
            self._ends[key] = (estimate, read, mean)
        return self._ends[key]

    def agreement(
        self, held: Mapping[str, Tensor], present: Mapping[str, Tensor], shrinkage: float
    ) -> Tensor:
        """Return how far agents agree about each section on held-out pilots, `(k,)`.

        Args:
            held: for each agent its latents of the held-out pilots that it has.
            present: for each agent which of the held-out pilots these are.
            shrinkage: of the sections.
        """
        names = sorted(held)
        seen = []
        for name in names:
            estimate, _, mean = self.ends(name, shrinkage, RANKS[-1], isometric=False)
            seen.append(self.pilots[name].support.coordinates(held[name]) @ estimate + mean)
        return intraclass_correlation(seen, [present[name] for name in names])[1]

    def link(
        self, sender: str, receiver: str, shrinkage: float, rank: int, *, isometric: bool
    ) -> SupportMap:
        """Return the map from a sender through the sections to a receiver."""
        estimate, _, sent_mean = self.ends(sender, shrinkage, rank, isometric=isometric)
        _, read, read_mean = self.ends(receiver, shrinkage, rank, isometric=isometric)
        space = self.pilots[receiver].support
        offset = (sent_mean - read_mean) @ read @ space.basis.mT
        return SupportMap(
            self.pilots[sender].support,
            (estimate, read),
            replace(space, mean=space.mean + offset),
        )


def reliable_rank(agreements: Sequence[Tensor]) -> int:
    """Return up to which section agents agree on held-out pilots.

    Beyond, a section may mean one thing in the pilots of one agent and another in those of the
    next, which harms no pair that has pilots in common, but the others.

    Args:
        agreements: of each fold, `(k,)`; sections are counted, since they differ between folds.
    """
    most = min(len(fold) for fold in agreements)
    profile = torch.stack([fold[:most] for fold in agreements]).mean(0)
    for rank in range(most):
        if float(profile[rank : rank + WINDOW].mean()) < LEAST_HELD_OUT_AGREEMENT:
            return max(1, rank)
    return most


@dataclass(frozen=True)
class JointMap(Kind):
    """From the sender to the sections of all agents, and from there to the receiver.

    Args:
        shrinkage: of the covariances, from 0 to 1.
        rank: how many sections are used.
        rotation: 1 for isometries between white latents and sections, 0 for regressions.
    """

    shrinkage: Shrinkage = "auto"
    rank: int | Auto = "auto"
    rotation: int | Auto = "auto"
    name: ClassVar[KindName] = "joint"

    def __post_init__(self) -> None:
        check_shrinkage(self.shrinkage)
        if self.rank != "auto":
            check_int("rank", self.rank, 1)
        if self.rotation != "auto":
            check_int("rotation", self.rotation, 0, 1)

    def candidates(self, pilots: SharedPilots) -> Sequence[Self]:
        most = _joint(pilots)[0].most_sections
        ranks = sorted({min(rank, most) for rank in RANKS}) if self.rank == "auto" else [self.rank]
        return [
            replace(self, shrinkage=shrinkage, rank=rank, rotation=rotation)
            for shrinkage in (SHRINKAGES if self.shrinkage == "auto" else (self.shrinkage,))
            for rank in ranks
            for rotation in ((0, 1) if self.rotation == "auto" else (self.rotation,))
        ]

    def solve(self, pilots: SharedPilots) -> SupportMap:
        joint, sender, receiver = _joint(pilots)
        return joint.link(
            sender,
            receiver,
            decided("shrinkage", self.shrinkage),
            int(decided("rank", self.rank)),
            isometric=bool(decided("rotation", self.rotation)),
        )


def _joint(pilots: SharedPilots) -> tuple[JointPilots, str, str]:
    if pilots.joint is None:
        raise InputError("a joint map needs the pilots of all agents; use align(joint=True)")
    return pilots.joint
