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

    >>> pilots = PilotSet({"eye": torch.zeros(2, 1, 8, 8), "ear": torch.zeros(2, 40)}, ["a", "b"])
    >>> pilots.total, pilots.of("ear").shape
    (2, torch.Size([2, 40]))

    Args:
        inputs: `(M, ...)`, the same for all agents; or, where agents sense different modalities,
            one tensor per agent whose rows belong to the same M events.
        ids: names of the M events, if the agents have agreed on some.
    """

    inputs: Tensor | Mapping[str, Tensor]
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        given = self.inputs if isinstance(self.inputs, Mapping) else {"all agents": self.inputs}
        counts = {name: len(inputs) for name, inputs in given.items()}
        if len(set(counts.values())) > 1:
            raise ShapeError(f"every agent needs the same pilots in the same order, got {counts}")
        if not counts or not self.total:
            raise EmptyInputError("no pilots; alignment needs at least one")
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
                f"no pilots for agent {name!r}, only for {sorted(self.inputs)}; add its inputs of "
                "the same events"
            )
        return self.inputs[name]

    @classmethod
    def paired(cls, inputs: Mapping[str, tuple[Sequence[str], Tensor]]) -> "PilotSet":
        """Pair the inputs of agents by the ids of the events, whatever order each has.

        >>> eye, ear = torch.tensor([[1.0], [2.0]]), torch.tensor([[20.0], [30.0]])
        >>> pilots = PilotSet.paired({"eye": (["a", "b"], eye), "ear": (["b", "c"], ear)})
        >>> pilots.ids, pilots.of("eye"), pilots.of("ear")
        (['b'], tensor([[2.]]), tensor([[20.]]))

        Args:
            inputs: for each agent, the ids of its rows and the rows. Events that an agent lacks are
                left out; the others are sorted by id.
        """
        for name, (ids, _) in inputs.items():
            if len(set(ids)) != len(ids):
                raise InputError(f"agent {name!r} has pilots with the same id; give each its own")
        known = [set(ids) for ids, _ in inputs.values()]
        common = sorted(set.intersection(*known)) if known else []
        if not common:
            raise EmptyInputError(
                f"the agents {sorted(inputs)} have no pilot id in common; they cannot be aligned"
            )
        return cls({name: _in_order(given, common) for name, given in inputs.items()}, common)

    def with_inputs(
        self, name: str, inputs: Tensor, ids: Sequence[str] | None = None
    ) -> "PilotSet":
        """Return the set with the inputs of one more agent.

        Args:
            name: of the agent.
            inputs: `(M, ...)`, of the same events.
            ids: of its rows, by which they are paired with those of the others; needed if these
                have ids.
        """
        if not isinstance(self.inputs, Mapping):
            raise InputError(
                f"these pilots are the same for all agents, so agent {name!r} cannot have its own; "
                "make the PilotSet of a mapping by agent instead"
            )
        if self.ids is not None:
            if ids is None:
                raise InputError(
                    f"these pilots have ids, those of agent {name!r} have none, so rows cannot be "
                    "paired; give PilotSet({name: rows}, ids)"
                )
            missing = sorted(set(self.ids) - set(ids))
            if missing:
                raise InputError(
                    f"agent {name!r} lacks {len(missing)} of the {self.total} pilots, "
                    f"{missing[0]!r} among them; give its inputs of all"
                )
            inputs = _in_order((ids, inputs), self.ids)
        return PilotSet({**self.inputs, name: inputs}, self.ids)

    def digest(self) -> str:
        """Return a digest by which agents check that they have the same pilots in the same order.

        Shared inputs and ids enter it. Without ids, of different modalities only the number of
        pilots is compared.
        """
        content = blake2b(str(self.total).encode(), digest_size=16)
        for identifier in self.ids or ():
            content.update(f"{len(identifier)}:{identifier}".encode())
        if not isinstance(self.inputs, Mapping):
            content.update(np.ascontiguousarray(self.inputs.detach().cpu().numpy()).tobytes())
        return content.hexdigest()


def _in_order(inputs: tuple[Sequence[str], Tensor], ids: Sequence[str]) -> Tensor:
    own, rows = inputs
    if len(own) != len(rows):
        raise ShapeError(f"{len(rows)} pilots need as many ids, got {len(own)}")
    place = {identifier: row for row, identifier in enumerate(own)}
    return rows[torch.tensor([place[identifier] for identifier in ids])]


def as_pilot_set(given: Any) -> PilotSet:
    """Turn a tensor, an array or a mapping of them into a `PilotSet`."""
    if isinstance(given, PilotSet):
        return given
    if isinstance(given, Mapping):
        return PilotSet({name: torch.as_tensor(inputs) for name, inputs in given.items()})
    if isinstance(given, Tensor | np.ndarray):
        return PilotSet(torch.as_tensor(given))
    raise InputError(
        f"pilots must be an array, a mapping of arrays by agent or a PilotSet, got "
        f"{type(given).__name__}"
    )
