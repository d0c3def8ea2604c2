"""The map of every directed pair of neighbours, chosen by held-out pilots."""

from collections.abc import Mapping, Sequence
from itertools import chain

from torch import Tensor

from sheafed.alignment.held_out import deviation, folds, mean
from sheafed.alignment.kinds import Kind
from sheafed.alignment.report import PairFit
from sheafed.alignment.selection import Choice, Fold, Goal, choose, varying_support, without
from sheafed.alignment.shared_pilots import SharedPilots
from sheafed.graphs import Edge
from sheafed.linalg.support import Support, support

Pair = tuple[str, str]


def choose_maps(
    edges: Sequence[Edge],
    pilots: Mapping[str, Tensor],
    references: Mapping[str, Support] | None,
    kinds: Sequence[Kind],
    goal: Goal,
) -> dict[Pair, Choice[Kind]]:
    """Return the chosen map for both directions of every edge, sorted by sender and receiver.

    Args:
        edges: the pairs of neighbours.
        pilots: for each agent the latents `(K, d)` of the same pilots.
        references: the supports on which isometries whiten, where they are not those of the pilots.
        kinds: of map, to choose among.
        goal: see `sheafed.align`.
    """
    pairs = sorted(chain.from_iterable(((e.head, e.tail), (e.tail, e.head)) for e in edges))
    held = folds(len(next(iter(pilots.values()))))
    fitted = [{name: without(x, rows) for name, x in pilots.items()} for rows in held]
    whole = {name: varying_support(name, x) for name, x in pilots.items()}
    supports = [{name: support(x) for name, x in part.items()} for part in fitted]

    def shared(
        pair: Pair, latents: Mapping[str, Tensor], spaces: Mapping[str, Support]
    ) -> SharedPilots:
        sender, receiver = pair
        own = (spaces[sender], spaces[receiver])
        whitened_on = own if references is None else (references[sender], references[receiver])
        return SharedPilots(latents[sender], latents[receiver], own, whitened_on)

    def choice(pair: Pair) -> Choice[Kind]:
        parts = [
            Fold(shared(pair, part, spaces), pilots[pair[0]][rows], pilots[pair[1]][rows])
            for part, spaces, rows in zip(fitted, supports, held, strict=True)
        ]
        return choose(kinds, shared(pair, pilots, whole), parts, goal)

    return {pair: choice(pair) for pair in pairs}


def pair_fit(pair: Pair, choice: Choice[Kind], pilots: int) -> PairFit:
    found = choice.held_out
    return PairFit(
        sender=pair[0],
        receiver=pair[1],
        kind=choice.kind.name,
        strength=choice.kind.strength(),
        residual=mean(found.residuals),
        residual_spread=deviation(found.residuals),
        top1=mean(found.top1),
        reciprocal_rank=mean(found.reciprocal_ranks),
        fold_size=pilots // len(found.residuals),
    )
