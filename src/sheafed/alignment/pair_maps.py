"""The map of every directed pair of neighbours, chosen by held-out pilots."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

from torch import Tensor

from sheafed.alignment.held_out import deviation, folds, mean
from sheafed.alignment.kinds import Kind
from sheafed.alignment.report import PairFit
from sheafed.alignment.selection import Choice, Fold, Goal, choose, without
from sheafed.alignment.shared_pilots import PilotLatents, SharedPilots, encoded
from sheafed.graphs import Edge
from sheafed.linalg.support import Support

Pair = tuple[str, str]


def choose_maps(
    edges: Sequence[Edge],
    pilots: Mapping[str, Tensor],
    supports: Mapping[str, Support],
    references: Mapping[str, Support] | None,
    kinds: Sequence[Kind],
    goal: Goal,
) -> dict[Pair, Choice[Kind]]:
    """Return the chosen map for both directions of every edge, sorted by sender and receiver.

    Args:
        edges: the pairs of neighbours.
        pilots: for each agent the latents `(K, d)` of the same pilots.
        supports: of the pilots.
        references: the supports on which isometries whiten, where they are not those of the pilots.
        kinds: of map, to choose among.
        goal: see `sheafed.align`.
    """
    held = folds(len(next(iter(pilots.values()))))
    whole = {name: PilotLatents(x, supports[name]) for name, x in pilots.items()}
    fitted = [{name: encoded(without(x, rows)) for name, x in pilots.items()} for rows in held]

    def shared(pair: Pair, latents: Mapping[str, PilotLatents]) -> SharedPilots:
        sender, receiver = pair
        whitened_on = None if references is None else (references[sender], references[receiver])
        return SharedPilots(latents[sender], latents[receiver], whitened_on)

    def both_ways(edge: Edge) -> Iterator[tuple[Pair, Choice[Kind]]]:
        all_pilots, parts = shared(edge, whole), [shared(edge, latents) for latents in fitted]
        for pair in (edge, edge[::-1]):
            x, y = (pilots[name] for name in pair)
            judged = [Fold(part, x[rows], y[rows]) for part, rows in zip(parts, held, strict=True)]
            yield pair, choose(kinds, all_pilots, judged, goal)
            all_pilots, parts = all_pilots.reversed(), [part.reversed() for part in parts]

    return dict(sorted(chain.from_iterable(map(both_ways, edges)), key=itemgetter(0)))


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
