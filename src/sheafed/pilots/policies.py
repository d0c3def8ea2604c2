r"""Which shared samples are pilots: the strategies of the appendix "Pilot Selection Strategies".

The agents have agreed on M shared samples, numbered 0..M-1. A strategy chooses the pilot set
𝒜 ⊂ {0, ..., M-1}, or groups of samples whose means are the pilots. Every choice is a function of
(seed, round) and of data agreed on once, so all agents make the same one without a message.
"""

import warnings
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Protocol

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.linalg.checks import check_finite, check_matrix
from sheafed.seeds import derive, permutation


@dataclass(frozen=True, eq=False)
class Selection:
    """The samples an agent encodes this round, and how they are pooled into K pilots.

    `indices` `(n,)`, strictly ascending: row r of the latents encodes sample `indices[r]`.
    `groups` `(n,)`: row r belongs to pilot `groups[r]` in 0..K-1; None means that the rows are
    the pilots (original pilots, K = n). `count` is K. The strategies make both on the CPU.
    """

    indices: Tensor
    groups: Tensor | None
    count: int

    def __post_init__(self) -> None:
        indices = _check_integers("indices", self.indices)
        if int(indices[0]) < 0 or bool((indices.diff() <= 0).any()):
            raise InputError(f"indices must be strictly ascending from 0 on, got {indices}; sort")
        each = range(len(indices))
        groups = each if self.groups is None else _check_integers("groups", self.groups).tolist()
        if len(groups) != len(indices) or set(groups) != set(range(self.count)):
            raise InputError(
                f"{len(indices)} indices need one group each, every pilot 0..{self.count - 1} a "
                f"member, got {len(groups)} groups {sorted(set(groups))}; number them without gaps"
            )

    def pool(self, latents: Tensor) -> Tensor:
        r"""Return the pilots `(K, d)` of the latents `(n, d)`; differentiable.

        Original pilots are the latents themselves; prototype pilots are the centroids
        \bar f_{i,c} = 1/|S_c| Σ_{k∈S_c} f_{φ_i}(x_i^k),  c = 0..K-1.
        """
        check_matrix("latents", latents)
        if latents.ndim != 2 or len(latents) != len(self.indices):
            raise ShapeError(
                f"latents must have shape ({len(self.indices)}, d), one row per selected sample, "
                f"got {tuple(latents.shape)}; encode the samples selection.indices in that order"
            )
        if self.groups is None:
            return latents
        groups = self.groups.to(latents.device)
        sums = latents.new_zeros(self.count, latents.shape[1]).index_add(0, groups, latents)
        return sums / torch.bincount(groups, minlength=self.count).to(latents.dtype)[:, None]


def uniform(total: int, count: int, seed: int, round: int = 0) -> Selection:
    """Draw K = `count` of M = `total` samples uniformly without replacement, ascending.

    M/K times a sum over them is an unbiased Monte Carlo estimate of the sum over all M.
    """
    _check_whole(total=(total, 1, inf), count=(count, 1, total), round=(round, 0, inf))
    return _original(permutation(total, seed, "pilots", round)[:count])


def per_class(labels: Tensor, per_class: int, seed: int, round: int = 0) -> Selection:
    """Draw `per_class` samples of every class in `labels` `(M,)`, uniformly in each; ascending."""
    return _stratified(labels, "class", per_class, seed, round)


def per_cluster(assignment: Tensor, per_cluster: int, seed: int, round: int = 0) -> Selection:
    """Draw `per_cluster` samples of every cluster of `assignment` `(M,)`; ascending."""
    return _stratified(assignment, "cluster", per_cluster, seed, round)


def clusters(features: Tensor, count: int, seed: int) -> Tensor:
    """Return the k-means assignment `(M,)`, in 0..`count`-1, of `features` `(M, p)`.

    One agent computes it and broadcasts it once; all reuse it. It is reproducible on one
    machine, but machines that round differently may disagree on a sample between two clusters.
    """
    check_matrix("features", features)
    if features.ndim != 2:
        raise ShapeError(f"features must have shape (M, p), got {tuple(features.shape)}; reshape")
    _check_whole(count=(count, 1, len(features)))
    random_state = derive(seed, "pilots", "clusters") % 2**32  # NumPy takes no larger seed
    from sklearn.cluster import KMeans  # here, as it takes a second to load
    from sklearn.exceptions import ConvergenceWarning

    kmeans = KMeans(count, n_init=4, random_state=random_state)
    # Several threads would add their partial sums in the order in which they happen to finish.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            assignment = kmeans.fit_predict(features.detach().cpu().double().numpy())
        except ConvergenceWarning as warning:
            raise InputError(
                f"features have too few distinct rows for count = {count}, ask for fewer: {warning}"
            ) from warning
    return torch.from_numpy(assignment).long()


def prototypes(
    assignment: Tensor, seed: int, round: int = 0, subset: int | None = None
) -> Selection:
    """Make one pilot per group of `assignment` `(M,)` (classes or clusters): its centroid.

    With `subset`, the centroid of S_c is estimated, without bias, by the mean over a random
    S_c' ⊂ S_c of `subset` members; a smaller group uses all of its members. Pilot c is the
    c-th label in sorted order; the indices are ascending over all groups together.
    """
    labels = _check_integers("assignment", assignment)
    size = len(labels) if subset is None else subset
    _check_whole(subset=(size, 1, inf), round=(round, 0, inf))
    present, groups = torch.unique(labels, return_inverse=True)
    indices = _draw_per_group(groups, size, seed, round)
    return Selection(indices, groups[indices], len(present))


def largest_mismatch(mismatch: Tensor, count: int) -> Selection:
    """Take the `count` samples of largest current `mismatch` `(M,)`, the lower index on a tie.

    Ascending indices. Agents choose alike only if all rank the same values: exchange them first.
    """
    _check_vector("mismatch", mismatch)
    check_finite("mismatch", mismatch)
    _check_whole(count=(count, 1, len(mismatch)))
    return _original(torch.argsort(mismatch.cpu(), descending=True, stable=True)[:count])


def dynamic(
    total: int, count: int, persistent: int, seed: int, round: int, every: int = 1
) -> Selection:
    """Keep `persistent` samples for ever and renew the other ones every `every` rounds; ascending.

    The persistent ones depend on the seed only (stable maps). The `count` - `persistent` others
    are drawn uniformly from the `total` - `persistent` remaining samples (coverage).
    """
    _check_whole(total=(total, 1, inf), count=(count, 1, total), persistent=(persistent, 0, count))
    _check_whole(round=(round, 0, inf), every=(every, 1, inf))
    order = permutation(total, seed, "pilots", "persistent")
    kept, rest = order[:persistent], order[persistent:]
    renewed = rest[permutation(len(rest), seed, "pilots", "renewed", round // every)]
    return _original(torch.cat([kept, renewed[: count - persistent]]))


def _original(chosen: Tensor) -> Selection:
    return Selection(chosen.sort().values, None, len(chosen))


def _stratified(strata: Tensor, kind: str, size: int, seed: int, round: int) -> Selection:
    labels = _check_integers(f"the {kind} of each sample", strata)
    _check_whole(**{f"per_{kind}": (size, 1, inf), "round": (round, 0, inf)})
    present, groups, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    smallest = int(sizes.argmin())
    label, members = int(present[smallest]), int(sizes[smallest])
    if members < size:
        raise InputError(
            f"{kind} {label} has {members} of the {len(labels)} shared samples, expected at least "
            f"per_{kind} = {size}; ask for at most {members} or share more of {kind} {label}"
        )
    return _original(_draw_per_group(groups, size, seed, round))


def _draw_per_group(groups: Tensor, size: int, seed: int, round: int) -> Tensor:
    """Draw at most `size` members of each of the `groups` `(M,)`, in 0..K-1; ascending."""
    shuffled = permutation(len(groups), seed, "pilots", round)
    by_group = shuffled[torch.argsort(groups[shuffled], stable=True)]
    members = torch.split(by_group, torch.bincount(groups).tolist())
    return torch.cat([group[:size] for group in members]).sort().values


def _check_whole(**named: tuple[int, int, float]) -> None:
    for name, (value, least, most) in named.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not least <= value <= most:
            raise InputError(f"{name} must be an int from {least} to {most}, got {value!r}")


def _check_vector(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise DtypeError(f"{name} must be a tensor, got {type(x).__name__}; use torch.as_tensor")
    if x.ndim != 1:
        raise ShapeError(f"{name} must have shape (M,), got {tuple(x.shape)}; flatten it")
    if len(x) == 0:
        raise EmptyInputError(f"{name} is empty; expected one value per shared sample")


def _check_integers(name: str, x: Tensor) -> Tensor:
    _check_vector(name, x)
    if x.dtype != torch.int64:
        raise DtypeError(f"{name} must be int64, got {x.dtype}; convert it with .long()")
    return x.cpu()


class PilotPolicy(Protocol):
    """What a method holds to know its pilots: a pure function of the round."""

    @property
    def count(self) -> int:
        """The number K of pilots, the same in every round."""

    def select(self, round: int) -> Selection:
        """Return the selection of that round."""


class _Policy:
    def __post_init__(self: PilotPolicy) -> None:
        # Selecting once makes a bad policy fail where it is made, and tells K.
        object.__setattr__(self, "count", self.select(0).count)


@dataclass(frozen=True)
class EveryPilot(_Policy):
    """𝒜 = {0, ..., M-1}: evaluates the penalty exactly."""

    total: int
    count: int = field(init=False)  # K = M

    def select(self, round: int) -> Selection:
        """Return all samples: a draw of M from M, whatever the seed and the round."""
        return uniform(self.total, self.total, seed=0, round=round)


@dataclass(frozen=True)
class Uniform(_Policy):
    """See `uniform`; a new draw every round."""

    total: int
    count: int
    seed: int

    def select(self, round: int) -> Selection:
        """Return the draw of that round."""
        return uniform(self.total, self.count, self.seed, round)


@dataclass(frozen=True, eq=False)
class PerClass(_Policy):
    """See `per_class`; a new draw every round."""

    labels: Tensor
    per_class: int
    seed: int
    count: int = field(init=False)  # K = per_class × the number of classes

    def select(self, round: int) -> Selection:
        """Return the draw of that round."""
        return per_class(self.labels, self.per_class, self.seed, round)


@dataclass(frozen=True, eq=False)
class PerCluster(_Policy):
    """See `per_cluster`; a new draw every round from the assignment agreed on once."""

    assignment: Tensor
    per_cluster: int
    seed: int
    count: int = field(init=False)  # K = per_cluster × the number of clusters

    def select(self, round: int) -> Selection:
        """Return the draw of that round."""
        return per_cluster(self.assignment, self.per_cluster, self.seed, round)


@dataclass(frozen=True, eq=False)
class Prototypes(_Policy):
    """See `prototypes`; with `subset`, new members stand for their group every round."""

    assignment: Tensor
    seed: int
    subset: int | None = None
    count: int = field(init=False)  # K = the number of groups

    def select(self, round: int) -> Selection:
        """Return the members that stand for their group in that round."""
        return prototypes(self.assignment, self.seed, round, self.subset)


@dataclass(frozen=True)
class Dynamic(_Policy):
    """See `dynamic`."""

    total: int
    count: int
    persistent: int
    seed: int
    every: int = 1

    def select(self, round: int) -> Selection:
        """Return the persistent samples and those of the round's period."""
        return dynamic(self.total, self.count, self.persistent, self.seed, round, self.every)


def selection_digest(policy: PilotPolicy) -> str:
    """Return what tells apart policies, or seeds, that choose other pilots."""
    content = blake2b(digest_size=16)
    for selection in map(policy.select, range(4)):
        content.update(describe(selection).encode())
    return content.hexdigest()


def describe(selection: Selection) -> str:
    """Return the same text for the same pilots, and another for others."""
    groups = None if selection.groups is None else selection.groups.tolist()
    return f"{selection.indices.tolist()} {groups}"
