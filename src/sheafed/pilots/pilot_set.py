"""The shared pilot inputs, as every agent sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError, ShapeError, UnknownAgentError


@dataclass(frozen=True)
class PilotSet:
    """Inputs whose correspondence across agents is known (app:pilots).

    Args:
        inputs: `(M, ...)`, the same for everybody; or, where agents sense different modalities,
            one tensor per agent whose rows belong to the same M events.
        ids: what the rows are called, if the agents have agreed on names.
    """

    inputs: Tensor | Mapping[str, Tensor]
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        views = self.inputs if isinstance(self.inputs, Mapping) else {"everybody": self.inputs}
        counts = {name: len(view) for name, view in views.items()}
        if len(set(counts.values())) > 1:
            raise ShapeError(f"every agent needs the same pilots in the same order, got {counts}")
        if not counts or not self.total:
            raise EmptyInputError("there are no pilots; agents cannot be aligned without any")
        if self.ids is not None and not len(self.ids) == len(set(self.ids)) == self.total:
            raise ShapeError(
                f"{self.total} pilots need as many different ids, got {len(self.ids)} of which "
                f"{len(set(self.ids))} differ"
            )

    @property
    def total(self) -> int:
        """M, the number of pilots."""
        if isinstance(self.inputs, Mapping):
            return len(next(iter(self.inputs.values()), ()))
        return len(self.inputs)

    def of(self, name: str) -> Tensor:
        """Return the pilots as the agent `name` sees them."""
        if not isinstance(self.inputs, Mapping):
            return self.inputs
        if name not in self.inputs:
            raise UnknownAgentError(
                f"there are no pilots for agent {name!r}, only for {sorted(self.inputs)}"
            )
        return self.inputs[name]

    @classmethod
    def paired(cls, views: Mapping[str, tuple[Sequence[str], Tensor]]) -> "PilotSet":
        """Pair what agents have sensed by the ids of the events, whatever order each has.

        Args:
            views: of each agent, the ids of its rows and the rows. Events that somebody has not
                sensed are left out; the others are put in the order of their ids.
        """
        for name, (ids, _) in views.items():
            if len(set(ids)) != len(ids):
                raise InputError(f"agent {name!r} has pilots with the same id; give each its own")
        known = [set(ids) for ids, _ in views.values()]
        common = sorted(set.intersection(*known)) if known else []
        if not common:
            raise EmptyInputError(
                f"the agents {sorted(views)} have no pilot id in common; they cannot be aligned"
            )
        return cls({name: _in_order(view, common) for name, view in views.items()}, common)

    def with_view(self, name: str, view: Tensor, ids: Sequence[str] | None = None) -> "PilotSet":
        """Return the set with one more agent's view of it.

        Args:
            name: of the agent.
            view: what it has sensed.
            ids: of its rows, by which they are paired with those of the others; needed if these
                have ids.
        """
        if not isinstance(self.inputs, Mapping):
            raise InputError(
                f"these pilots are the same for all; agent {name!r} cannot have a view of its "
                "own, give a mapping by agent from the start"
            )
        if self.ids is not None:
            if ids is None:
                raise InputError(
                    f"these pilots have ids, the view of agent {name!r} has none, so nobody knows "
                    "which row belongs to which; give PilotSet({name: rows}, ids)"
                )
            missing = sorted(set(self.ids) - set(ids))
            if missing:
                raise InputError(
                    f"agent {name!r} has not sensed {len(missing)} of the {self.total} pilots, "
                    f"{missing[0]!r} among them; give its view of all"
                )
            view = _in_order((ids, view), self.ids)
        return PilotSet({**self.inputs, name: view}, self.ids)

    def digest(self) -> str:
        """Return what agents compare to know that they mean the same pilots in the same order.

        Shared inputs and ids enter it. Without ids, views of different modalities can only be
        compared by their number.
        """
        content = blake2b(str(self.total).encode(), digest_size=16)
        for identifier in self.ids or ():
            content.update(f"{len(identifier)}:{identifier}".encode())
        if not isinstance(self.inputs, Mapping):
            content.update(np.ascontiguousarray(self.inputs.detach().cpu().numpy()).tobytes())
        return content.hexdigest()


def _in_order(view: tuple[Sequence[str], Tensor], ids: Sequence[str]) -> Tensor:
    """Return the rows with these ids."""
    own, rows = view
    if len(own) != len(rows):
        raise ShapeError(f"{len(rows)} pilots need as many ids, got {len(own)}")
    place = {identifier: row for row, identifier in enumerate(own)}
    return rows[torch.tensor([place[identifier] for identifier in ids])]


def as_pilot_set(given: Any) -> PilotSet:
    """Turn a tensor, an array or a mapping of them into a `PilotSet`."""
    if isinstance(given, PilotSet):
        return given
    if isinstance(given, Mapping):
        return PilotSet({name: torch.as_tensor(view) for name, view in given.items()})
    if isinstance(given, Tensor | np.ndarray):
        return PilotSet(torch.as_tensor(given))
    raise InputError(
        f"pilots must be an array, a mapping of arrays by agent or a PilotSet, got "
        f"{type(given).__name__}"
    )
