"""Which agent has encoded which pilots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import networkx as nx
import torch
from torch import Tensor

from sheafed.alignment.arrays import Array, as_partial_pilots
from sheafed.alignment.held_out import FEWEST_PILOTS, folds
from sheafed.alignment.repeated_pilots import distinct, merged, warn_repeated
from sheafed.alignment.shared_pilots import PilotLatents, encoded
from sheafed.errors import MissingPilotsError, ShapeError

# Matching needs an alternative, and a deviation a second fold.
FEWEST_HELD_OUT = FEWEST_FOLDS = FEWEST_FITTED = 2


@dataclass(frozen=True, eq=False)
class PilotTable:
    """The latents of K pilots by every agent, of which each may lack some.

    Supports are computed once for each agent and set of rows.
    """

    latents: Mapping[str, Tensor]
    """`(K, d)` each, in the dtype that they were given in; a missing row is NaN."""
    present: Mapping[str, Tensor]
    """`(K,)` each, of bools."""
    _encoded: dict[tuple[str, bytes], PilotLatents] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.latents.values())))

    def common(self, one: str, other: str) -> Tensor:
        """Return which pilots both agents have, `(K,)`."""
        return self.present[one] & self.present[other]

    def own(self, name: str) -> Tensor:
        """Return an agent's latents of the pilots that it has."""
        return self.latents[name][self.present[name]]

    def encoded(self, name: str, rows: Tensor) -> PilotLatents:
        """Return an agent's latents of some of its pilots, `(K,)` bools, with their support."""
        key = (name, _bytes(rows))
        if key in self._encoded:
            return self._encoded[key]
        found = encoded(self.latents[name][rows])
        # Those of one pair only, where pilots are missing, would fill the memory.
        if key in self._whole_agents:
            self._encoded[key] = found
        return found

    @cached_property
    def _whole_agents(self) -> frozenset[tuple[str, bytes]]:
        """All pilots of an agent, and those outside each fold."""
        nowhere = torch.zeros(len(self), dtype=torch.bool)
        return frozenset(
            (name, _bytes(own & ~rows))
            for name, own in self.present.items()
            for rows in (nowhere, *self.held_out)
        )

    @cached_property
    def held_out(self) -> list[Tensor]:
        """Which pilots are held out in each fold, `(K,)` bools.

        Pilots that the same agents have are dealt to the folds evenly, so that every pair has
        common pilots in all folds as far as they go.
        """
        patterns = torch.stack([self.present[name] for name in sorted(self.present)], dim=1)
        _, groups = torch.unique(patterns, dim=0, return_inverse=True)
        masks = []
        for held in folds(len(self), groups):
            mask = torch.zeros(len(self), dtype=torch.bool)
            mask[held] = True
            masks.append(mask)
        return masks

    def judging_folds(self, one: str, other: str) -> list[int]:
        """Return the folds that can judge a map between two agents, none if they are too few."""
        common = self.common(one, other)
        found = [
            fold
            for fold, rows in enumerate(self.held_out)
            if int((common & rows).sum()) >= FEWEST_HELD_OUT
            and int((common & ~rows).sum()) >= FEWEST_FITTED
        ]
        return found if len(found) >= FEWEST_FOLDS else []

    def too_few_common(self, pairs: Iterable[tuple[str, str]]) -> str:
        """Say which pairs these are, and how many pilots they have in common."""
        named = (
            f"{one} and {other} ({int(self.common(one, other).sum())})"
            for one, other in sorted({(min(pair), max(pair)) for pair in pairs})
        )
        return f"too few common pilots to fit and judge a map: {', '.join(named)}"

    def check_connected(self) -> None:
        """Raise unless chains of agents that share pilots join all of them."""
        network: nx.Graph[str] = nx.Graph()
        network.add_nodes_from(self.present)
        names = sorted(self.present)
        for number, one in enumerate(names):
            for other in names[number + 1 :]:
                if int(self.common(one, other).sum()) >= FEWEST_PILOTS:
                    network.add_edge(one, other)
        parts = sorted(sorted(part) for part in nx.connected_components(network))
        if len(parts) > 1:
            raise MissingPilotsError(
                f"the agents {parts} share fewer than {FEWEST_PILOTS} pilots with each other, so "
                "nothing relates their latents; encode some of the same pilots in both"
            )


def _bytes(rows: Tensor) -> bytes:
    return rows.numpy().tobytes()


def pilot_table(latents: Mapping[str, Array]) -> PilotTable:
    """Check the latents of all agents. Pilots that no agent has are left out, and so are repeats.

    Warnings name the caller of the caller.
    """
    given = {
        name: as_partial_pilots(f"the pilot latents of {name!r}", x) for name, x in latents.items()
    }
    counts = {name: len(x) for name, (x, _) in given.items()}
    if len(set(counts.values())) > 1:
        raise ShapeError(
            f"every agent must encode the same pilots in the same order, got {counts} rows; a row "
            "of NaN stands for a pilot that an agent has not encoded"
        )
    somewhere = torch.stack([rows for _, rows in given.values()]).any(0)
    found = {name: (x[somewhere], rows[somewhere]) for name, (x, rows) in given.items()}
    kept, repeated = distinct(*zip(*found.values(), strict=True))
    warn_repeated(kept, stacklevel=4)
    found = {name: merged(*own, kept, repeated) for name, own in found.items()}
    return PilotTable(
        {name: x for name, (x, _) in found.items()},
        {name: rows for name, (_, rows) in found.items()},
    )
