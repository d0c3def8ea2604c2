r"""Which shared samples are pilots: the strategies of app:pilots, "Pilot Selection Strategies".

The agents have agreed on M shared samples, numbered 0..M-1. A policy chooses the pilots of each
round from them: samples $\mathcal A \subset \{0, ..., M-1\}$, or groups of samples whose means are
the pilots. Every choice is a function of (seed, round) and of data agreed on once, so all agents
make the same one without a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sheafed.errors import InputError
from sheafed.linalg.checks import check_int
from sheafed.pilots.selection import Selection, check_labels
from sheafed.seeds import permutation


@runtime_checkable
class PilotPolicy(Protocol):
    """A pure function from the round to its pilots."""

    @property
    def count(self) -> int:
        """The number K of pilots, the same in every round."""

    def select(self, round: int) -> Selection:
        """Return the selection of that round."""


class _Policy:
    def __post_init__(self: PilotPolicy) -> None:
        # Selecting once makes a bad policy fail where it is made, and gives K.
        object.__setattr__(self, "count", self.select(0).count)


@dataclass(frozen=True)
class AllPilots(_Policy):
    r"""All M = `total` samples in every round: evaluates the penalty exactly.

    >>> AllPilots(3).select(round=0).indices
    tensor([0, 1, 2])
    """

    total: int
    count: int = field(init=False)  # K = M

    def select(self, round: int) -> Selection:
        check_int("total", self.total, 1)
        check_int("round", round, 0)
        return Selection(torch.arange(self.total, device="cpu"))


@dataclass(frozen=True)
class UniformPilots(_Policy):
    """K = `count` of M = `total` samples, drawn uniformly without replacement in every round.

    M/K times a sum over them is an unbiased Monte Carlo estimate of the sum over all M.

    >>> policy = UniformPilots(total=100, count=10, seed=0)
    >>> len(policy.select(round=0).indices)
    10
    """

    total: int
    count: int
    seed: int

    def select(self, round: int) -> Selection:
        check_int("total", self.total, 1)
        check_int("count", self.count, 1, self.total)
        check_int("round", round, 0)
        drawn = permutation(self.total, self.seed, "pilots", round)[: self.count]
        return Selection(drawn.sort().values)


@dataclass(frozen=True, eq=False)
class StratifiedPilots(_Policy):
    """`per_stratum` samples of each class or cluster, drawn uniformly in every round.

    >>> labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    >>> chosen = StratifiedPilots(labels, per_stratum=2, seed=0).select(round=0)
    >>> labels[chosen.indices]
    tensor([0, 0, 1, 1])

    Args:
        strata: `(M,)` int64: the class of each sample, or its cluster (see `kmeans`).
        per_stratum: K is this times the number of strata.
        seed: shared by all agents.
    """

    strata: Tensor
    per_stratum: int
    seed: int
    count: int = field(init=False)

    def select(self, round: int) -> Selection:
        strata = check_labels("strata", self.strata)
        check_int("per_stratum", self.per_stratum, 1)
        check_int("round", round, 0)
        present, groups, sizes = torch.unique(strata, return_inverse=True, return_counts=True)
        smallest = int(sizes.argmin())
        if int(sizes[smallest]) < self.per_stratum:
            raise InputError(
                f"stratum {int(present[smallest])} has {int(sizes[smallest])} of the {len(strata)} "
                f"shared samples, expected at least per_stratum = {self.per_stratum}; ask for "
                "fewer, or share more of it"
            )
        return Selection(_draw_per_group(groups, self.per_stratum, self.seed, round))


@dataclass(frozen=True, eq=False)
class PrototypePilots(_Policy):
    r"""One pilot per class or cluster: the centroid of its members.

    With `subset`, the centroid over $S_c$ is estimated, without bias, by the mean over a random
    $S_c' \subset S_c$ of that many members, drawn anew in every round; a smaller group uses all of
    its members. Pilot c is the c-th label in sorted order.

    >>> policy = PrototypePilots(torch.tensor([7, 3, 7, 3]), seed=0)
    >>> policy.count
    2
    >>> policy.select(round=0).pool(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    tensor([[3.],
            [2.]])

    Args:
        strata: `(M,)` int64: the class of each sample, or its cluster (see `kmeans`).
        seed: shared by all agents.
        subset: how many members estimate a centroid; all by default.
    """

    strata: Tensor
    seed: int
    subset: int | None = None
    count: int = field(init=False)  # K = the number of strata

    def select(self, round: int) -> Selection:
        strata = check_labels("strata", self.strata)
        size = len(strata) if self.subset is None else check_int("subset", self.subset, 1)
        check_int("round", round, 0)
        _, groups = torch.unique(strata, return_inverse=True)
        indices = _draw_per_group(groups, size, self.seed, round)
        return Selection(indices, groups[indices])


@dataclass(frozen=True)
class DynamicPilots(_Policy):
    """`persistent` samples that stay for ever, and others renewed every `every` rounds.

    The persistent ones depend on the seed only (stable maps). The `count` - `persistent` others
    are drawn uniformly from the `total` - `persistent` remaining samples (coverage).

    >>> policy = DynamicPilots(total=100, count=10, persistent=4, seed=0)
    >>> chosen = [set(policy.select(round).indices.tolist()) for round in range(50)]
    >>> len(set.intersection(*chosen))
    4
    """

    total: int
    count: int
    persistent: int
    seed: int
    every: int = 1

    def select(self, round: int) -> Selection:
        check_int("total", self.total, 1)
        check_int("count", self.count, 1, self.total)
        check_int("persistent", self.persistent, 0, self.count)
        check_int("every", self.every, 1)
        check_int("round", round, 0)
        order = permutation(self.total, self.seed, "pilots", "persistent")
        kept, rest = order[: self.persistent], order[self.persistent :]
        period = round // self.every
        renewed = rest[permutation(len(rest), self.seed, "pilots", "renewed", period)]
        chosen = torch.cat([kept, renewed[: self.count - self.persistent]])
        return Selection(chosen.sort().values)


def as_pilot_policy(given: int | PilotPolicy, total: int, seed: int) -> PilotPolicy:
    """Turn a number of pilots per round into `UniformPilots`; all, if there are fewer."""
    return UniformPilots(total, min(given, total), seed) if isinstance(given, int) else given


def policy_digest(policy: PilotPolicy) -> str:
    """Return a digest of the first rounds' pilots, by which agents check that theirs agree."""
    content = blake2b(digest_size=16)
    for round in range(4):
        content.update(policy.select(round).fingerprint().encode())
    return content.hexdigest()


def _draw_per_group(groups: Tensor, size: int, seed: int, round: int) -> Tensor:
    """Draw at most `size` members of each of the `groups` `(M,)`, in 0..K-1; ascending."""
    shuffled = permutation(len(groups), seed, "pilots", round)
    by_group = shuffled[torch.argsort(groups[shuffled], stable=True)]
    members = torch.split(by_group, torch.bincount(groups).tolist())
    return torch.cat([group[:size] for group in members]).sort().values
