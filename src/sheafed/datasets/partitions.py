"""Partitions of a labelled data set among agents: pure functions of labels and a generator.

Every partition returns, for each agent, the indices of its samples: disjoint, and in random order.
Labels are whole numbers `(n,)` in a tensor, an array or a list. `generator` is that of torch, or an
int that seeds a new one. Indices are tensors; index an array by their `.numpy()`.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from sheafed import seeds
from sheafed.datasets.labels import Labels, as_labels
from sheafed.errors import EmptyInputError, InputError, UnusedSamplesWarning
from sheafed.linalg.checks import as_int, check_fraction

Indices = dict[str, Tensor]
Randomness = torch.Generator | int


def label_shift(
    labels: Labels,
    targets: Mapping[str, Collection[int]],
    shift: float,
    generator: Randomness,
) -> Indices:
    r"""Divide each class among the agents in proportion to their label distributions.

    $P_i(y) = s\,\mathrm{Unif}\{\mathcal C_i\} + (1-s)\,\mathrm{Unif}\{\mathcal Y\}$
    (eq. local-distribution-shift). At s = 1 a class that nobody targets goes to no agent, of which
    an `UnusedSamplesWarning` tells.

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
    labels = as_labels(labels)
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
    return _divide(labels, list(targets), shares, _stream(generator, "label_shift"))


def iid(labels: Labels, names: Sequence[str], generator: Randomness) -> Indices:
    """Divide all samples evenly and at random.

    >>> held = iid(torch.zeros(10, dtype=torch.long), ["ada", "bo"], torch.Generator())
    >>> [len(indices) for indices in held.values()]
    [5, 5]
    """
    order = torch.randperm(len(as_labels(labels)), generator=_stream(generator, "iid"))
    return _served(dict(zip(names, torch.tensor_split(order, len(_named(names))), strict=True)))


def dirichlet(
    labels: Labels, names: Sequence[str], concentration: float, generator: Randomness
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
    labels, stream = as_labels(labels), _stream(generator, "dirichlet")
    alpha = torch.full((len(_named(names)),), concentration, dtype=torch.float64)
    shares = {}
    for y in _classes(labels):
        # torch's Dirichlet takes no generator; normalised gamma variables are the same thing.
        gamma = torch._standard_gamma(alpha, generator=stream)
        if gamma.max() <= torch.finfo(gamma.dtype).tiny:  # none of them is a double: one has all
            gamma[torch.randint(len(gamma), (1,), generator=stream)] = 1.0
        shares[y] = (gamma / gamma.sum()).tolist()
    return _divide(labels, list(names), shares, stream)


def pathological(
    labels: Labels, names: Sequence[str], classes_per_agent: int, generator: Randomness
) -> Indices:
    """Give every agent samples of a few classes only, dealt out in turn so that all are used.

    Classes that are left over, as there are too few agents, are named by an `UnusedSamplesWarning`.

    >>> labels = torch.arange(100) % 10
    >>> held = pathological(labels, ["ada", "bo"], 5, torch.Generator().manual_seed(0))
    >>> [len(labels[indices].unique()) for indices in held.values()]
    [5, 5]
    """
    labels, stream = as_labels(labels), _stream(generator, "pathological")
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
                order = torch.randperm(len(classes), generator=stream)
                deck.extend(classes[k] for k in order.tolist())
                continue
            hand.add(fresh[0])
            deck.remove(fresh[0])
        hands[name] = hand
    shares = {y: [float(y in hands[name]) for name in names] for y in classes}
    return _divide(labels, list(names), shares, stream)


def shards(
    labels: Labels, names: Sequence[str], shards_per_agent: int, generator: Randomness
) -> Indices:
    """Sort the samples by label, cut them into equal shards, and deal those out at random.

    >>> held = shards(torch.arange(100) % 10, ["ada", "bo"], 2, torch.Generator().manual_seed(0))
    >>> [len(indices) for indices in held.values()]
    [50, 50]
    """
    labels, stream = as_labels(labels), _stream(generator, "shards")
    count = shards_per_agent * len(_named(names))
    if shards_per_agent < 1 or count > len(labels):
        raise InputError(
            f"shards_per_agent must be at least 1 and give no more shards than the {len(labels)} "
            f"samples, got {shards_per_agent} for {len(names)} agents"
        )
    shuffled = torch.randperm(len(labels), generator=stream)
    by_label = shuffled[torch.argsort(labels[shuffled], stable=True)]
    pieces = torch.tensor_split(by_label, count)
    dealt = torch.randperm(count, generator=stream).reshape(len(names), shards_per_agent)
    return {
        name: torch.cat([pieces[k] for k in row])
        for name, row in zip(names, dealt.tolist(), strict=True)
    }


def hold_out(total: int, fraction: float, generator: Randomness) -> tuple[Tensor, Tensor]:
    """Draw a uniform subset, e.g. the pilots; return its indices and those of the rest, sorted.

    >>> pilots, rest = hold_out(10, 0.3, torch.Generator().manual_seed(0))
    >>> len(pilots), len(rest)
    (3, 7)
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie between 0 and 1, got {fraction}")
    count = round(fraction * total)
    if not 0 < count < total:
        raise EmptyInputError(
            f"a fraction of {fraction} of {total} samples is {count}, which leaves none "
            f"{'for the rest' if count else 'to hold out'}; give a "
            f"{'smaller' if count else 'larger'} fraction, or more samples"
        )
    order = torch.randperm(total, generator=_stream(generator, "hold_out"))
    return order[:count].sort().values, order[count:].sort().values


def stratified_split(
    labels: Labels, fractions: Sequence[float], generator: Randomness
) -> list[Tensor]:
    """Split samples, e.g. 80/10/10, so that every part keeps the mixture of labels.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> train, test = stratified_split(labels, (0.5, 0.5), torch.Generator().manual_seed(0))
    >>> labels[train].sort().values, labels[test].sort().values
    (tensor([0, 0, 1]), tensor([0, 0, 1]))
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) <= 0:
        raise InputError(f"fractions must be positive and sum to 1, got {list(fractions)}")
    labels, stream = as_labels(labels), _stream(generator, "stratified_split")
    shares = {y: list(fractions) for y in _classes(labels)}
    parts = _cut(labels, len(fractions), shares, stream)
    if not all(map(len, parts)):
        raise EmptyInputError(
            f"{len(labels)} samples of {len(shares)} classes, split {list(fractions)} within each "
            f"class, make parts of {[len(part) for part in parts]} samples; give more samples, or "
            "larger fractions for the empty parts"
        )
    return parts


def common_classes(labels: Labels, partition: Indices) -> list[int]:
    """Return the classes that all agents have samples of.

    >>> labels = torch.tensor([0, 1, 1, 2])
    >>> common_classes(labels, {"ada": torch.tensor([0, 1]), "bo": torch.tensor([2, 3])})
    [1]
    """
    labels = as_labels(labels)
    held = [set(labels[indices].tolist()) for indices in partition.values()]
    return sorted(set.intersection(*held))


def _divide(
    labels: Tensor,
    names: Sequence[str],
    shares: Mapping[int, Sequence[float]],
    stream: torch.Generator,
) -> Indices:
    parts = _cut(labels, len(_named(names)), shares, stream)
    if unused := [y for y, weights in shares.items() if sum(weights) == 0]:
        count = sum(int((labels == y).sum()) for y in unused)
        warnings.warn(
            f"{count} of {len(labels)} samples go to no agent: none has a share of the classes "
            f"{unused}; give these to an agent, or leave their samples out",
            UnusedSamplesWarning,
            stacklevel=3,
        )
    return _served(dict(zip(names, parts, strict=True)))


def _cut(
    labels: Tensor, parts: int, shares: Mapping[int, Sequence[float]], stream: torch.Generator
) -> list[Tensor]:
    """Cut every class, in random order, at the rounded cumulated shares."""
    held: list[list[Tensor]] = [[] for _ in range(parts)]
    for y, weights in shares.items():
        members = (labels == y).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=stream)]
        total = sum(weights)
        if total == 0:  # no part has this class
            continue
        cumulated = torch.tensor(weights, dtype=torch.float64).cumsum(0) / total
        cuts = (cumulated * len(members)).round().long()[:-1].tolist()
        for pieces, piece in zip(held, torch.tensor_split(members, cuts), strict=True):
            pieces.append(piece)
    mixed = [torch.cat(pieces) for pieces in held]
    return [i[torch.randperm(len(i), generator=stream)] for i in mixed]


def _served(partition: Indices) -> Indices:
    """Return the partition if every agent has samples."""
    if starved := [name for name, indices in partition.items() if not len(indices)]:
        raise EmptyInputError(
            f"{len(starved)} of {len(partition)} agents get no sample: {', '.join(starved)}; give "
            "fewer agents or more samples, divide them more evenly, or draw again"
        )
    return partition


def _classes(labels: Tensor) -> list[int]:
    return [int(y) for y in torch.unique(labels)]


def _named(names: Sequence[str]) -> Sequence[str]:
    if not names or len(set(names)) != len(names):
        raise InputError(f"agents must have different names, got {list(names)}")
    return names


def _stream(given: Randomness, purpose: str) -> torch.Generator:
    """Return the generator, or the one of this purpose that an int seeds."""
    if isinstance(given, torch.Generator):
        return given
    seed = as_int(given)
    if seed is None:
        raise InputError(
            "generator must be a torch.Generator, or an int that seeds one, got "
            f"{type(given).__name__}"
        )
    return seeds.generator(seed, purpose)
