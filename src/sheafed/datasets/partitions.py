"""Partitions of a labelled data set among agents: pure functions of labels and a generator.

Every partition returns, for each agent, the indices of its samples: disjoint, and in random order.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError
from sheafed.linalg.checks import check_fraction

Indices = dict[str, Tensor]


def label_shift(
    labels: Tensor,
    targets: Mapping[str, Collection[int]],
    shift: float,
    generator: torch.Generator,
) -> Indices:
    r"""Divide each class among the agents in proportion to their label distributions.

    $P_i(y) = s\,\mathrm{Unif}\{\mathcal C_i\} + (1-s)\,\mathrm{Unif}\{\mathcal Y\}$
    (eq. local-distribution-shift).

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    >>> generator = torch.Generator().manual_seed(0)
    >>> held = label_shift(labels, {"ada": [0], "bo": [1]}, 0.5, generator)
    >>> {name: labels[indices].sort().values.tolist() for name, indices in held.items()}
    {'ada': [0, 0, 0, 1], 'bo': [0, 1, 1, 1]}

    Args:
        labels: `(n,)`, the classes $\mathcal Y$ are those that occur.
        targets: the target classes $\mathcal C_i$ of every agent.
        shift: s, from 0 (all alike) to 1 (target classes only).
        generator: of the order within each class.
    """
    check_fraction("shift", shift)
    classes = _classes(labels)
    for name, wanted in targets.items():
        if not wanted or set(wanted) - set(classes):
            raise InputError(
                f"agent {name!r} must have target classes among {classes}, got {sorted(wanted)}"
            )
    shares = {
        y: [shift * (y in c) / len(set(c)) + (1 - shift) / len(classes) for c in targets.values()]
        for y in classes
    }
    return _divide(labels, list(targets), shares, generator)


def iid(labels: Tensor, names: Sequence[str], generator: torch.Generator) -> Indices:
    """Divide all samples evenly and at random.

    >>> held = iid(torch.zeros(10, dtype=torch.long), ["ada", "bo"], torch.Generator())
    >>> [len(indices) for indices in held.values()]
    [5, 5]
    """
    order = torch.randperm(len(checked_labels(labels)), generator=generator)
    return dict(zip(names, torch.tensor_split(order, len(_named(names))), strict=True))


def dirichlet(
    labels: Tensor, names: Sequence[str], concentration: float, generator: torch.Generator
) -> Indices:
    r"""Divide each class by proportions drawn from $\mathrm{Dir}(\alpha, \dots, \alpha)$.

    Small concentrations give each class to few agents, large ones divide it evenly.

    >>> labels = torch.arange(100) % 10
    >>> held = dirichlet(labels, ["ada", "bo"], 0.3, torch.Generator().manual_seed(0))
    >>> sum(len(indices) for indices in held.values())
    100
    """
    if not 0 < concentration < float("inf"):
        raise InputError(f"concentration must be positive and finite, got {concentration}")
    alpha = torch.full((len(_named(names)),), concentration, dtype=torch.float64)
    shares = {}
    for y in _classes(labels):
        # torch's Dirichlet takes no generator; normalised gamma variables are the same thing.
        gamma = torch._standard_gamma(alpha, generator=generator)
        shares[y] = (gamma / gamma.sum()).tolist()
    return _divide(labels, list(names), shares, generator)


def pathological(
    labels: Tensor, names: Sequence[str], classes_per_agent: int, generator: torch.Generator
) -> Indices:
    """Give every agent samples of a few classes only, dealt out in turn so that all are used.

    >>> labels = torch.arange(100) % 10
    >>> held = pathological(labels, ["ada", "bo"], 2, torch.Generator().manual_seed(0))
    >>> [len(labels[indices].unique()) for indices in held.values()]
    [2, 2]
    """
    classes = _classes(labels)
    if not 1 <= classes_per_agent <= len(classes):
        raise InputError(
            f"classes_per_agent must be from 1 to {len(classes)}, the number of classes, got "
            f"{classes_per_agent}"
        )
    deck: list[int] = []
    hands: dict[str, set[int]] = {}
    for name in _named(names):
        hand: set[int] = set()
        while len(hand) < classes_per_agent:
            fresh = [y for y in deck if y not in hand]
            if not fresh:
                order = torch.randperm(len(classes), generator=generator)
                deck.extend(classes[k] for k in order.tolist())
                continue
            hand.add(fresh[0])
            deck.remove(fresh[0])
        hands[name] = hand
    shares = {y: [float(y in hands[name]) for name in names] for y in classes}
    return _divide(labels, list(names), shares, generator)


def shards(
    labels: Tensor, names: Sequence[str], shards_per_agent: int, generator: torch.Generator
) -> Indices:
    """Sort the samples by label, cut them into equal shards, and deal those out at random.

    >>> held = shards(torch.arange(100) % 10, ["ada", "bo"], 2, torch.Generator().manual_seed(0))
    >>> [len(indices) for indices in held.values()]
    [50, 50]
    """
    count = shards_per_agent * len(_named(names))
    if shards_per_agent < 1 or count > len(checked_labels(labels)):
        raise InputError(
            f"shards_per_agent must be at least 1 and give no more shards than the {len(labels)} "
            f"samples, got {shards_per_agent} for {len(names)} agents"
        )
    shuffled = torch.randperm(len(labels), generator=generator)
    by_label = shuffled[torch.argsort(labels[shuffled], stable=True)]
    pieces = torch.tensor_split(by_label, count)
    dealt = torch.randperm(count, generator=generator).reshape(len(names), shards_per_agent)
    return {
        name: torch.cat([pieces[k] for k in row])
        for name, row in zip(names, dealt.tolist(), strict=True)
    }


def hold_out(total: int, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a uniform subset, e.g. the pilots; return its indices and those of the rest, sorted.

    >>> pilots, rest = hold_out(10, 0.3, torch.Generator().manual_seed(0))
    >>> len(pilots), len(rest)
    (3, 7)
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie between 0 and 1, got {fraction}")
    order = torch.randperm(total, generator=generator)
    count = round(fraction * total)
    return order[:count].sort().values, order[count:].sort().values


def stratified_split(
    labels: Tensor, fractions: Sequence[float], generator: torch.Generator
) -> list[Tensor]:
    """Split samples, e.g. 80/10/10, so that every part keeps the mixture of labels.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> train, test = stratified_split(labels, (0.5, 0.5), torch.Generator().manual_seed(0))
    >>> labels[train].sort().values, labels[test].sort().values
    (tensor([0, 0, 1]), tensor([0, 0, 1]))
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) <= 0:
        raise InputError(f"fractions must be positive and sum to 1, got {list(fractions)}")
    parts = [str(k) for k in range(len(fractions))]
    shares = {y: list(fractions) for y in _classes(labels)}
    return list(_divide(labels, parts, shares, generator).values())


def common_classes(labels: Tensor, partition: Indices) -> list[int]:
    """Return the classes that all agents have samples of.

    >>> labels = torch.tensor([0, 1, 1, 2])
    >>> common_classes(labels, {"ada": torch.tensor([0, 1]), "bo": torch.tensor([2, 3])})
    [1]
    """
    held = [set(labels[indices].tolist()) for indices in partition.values()]
    return sorted(set.intersection(*held))


def _divide(
    labels: Tensor,
    names: Sequence[str],
    shares: Mapping[int, Sequence[float]],
    generator: torch.Generator,
) -> Indices:
    """Cut every class, in random order, at the rounded cumulated shares."""
    held: dict[str, list[Tensor]] = {name: [] for name in _named(names)}
    for y, weights in shares.items():
        members = (labels == y).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        total = sum(weights)
        if total == 0:  # no agent has this class
            continue
        cumulated = torch.tensor(weights, dtype=torch.float64).cumsum(0) / total
        cuts = (cumulated * len(members)).round().long()[:-1].tolist()
        for name, piece in zip(names, torch.tensor_split(members, cuts), strict=True):
            held[name].append(piece)
    mixed = {name: torch.cat(pieces) for name, pieces in held.items()}
    return {n: i[torch.randperm(len(i), generator=generator)] for n, i in mixed.items()}


def _classes(labels: Tensor) -> list[int]:
    return [int(y) for y in torch.unique(checked_labels(labels))]


def checked_labels(labels: Tensor) -> Tensor:
    if labels.ndim != 1 or labels.is_floating_point():
        raise InputError(
            f"labels must be whole numbers of shape (n,), got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    if not len(labels):
        raise EmptyInputError("no labels to divide; give at least one sample")
    return labels


def _named(names: Sequence[str]) -> Sequence[str]:
    if not names or len(set(names)) != len(names):
        raise InputError(f"agents must have different names, got {list(names)}")
    return names
