"""The shared pilot inputs, as every agent sees them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError, ShapeError, UnknownAgentError
from sheafed.tensor_tree import TensorTree, as_tensor_tree, select_rows, tree_length, update_digest

Ids = Any
"""Names of events: strings or whole numbers, in a sequence, a NumPy array or a tensor."""


@dataclass(frozen=True)
class PilotSet:
    """Inputs whose correspondence across agents is known (app:pilots).

    >>> pilots = PilotSet({"eye": torch.zeros(2, 1, 8, 8), "ear": torch.zeros(2, 40)}, ["a", "b"])
    >>> pilots.total, pilots.of("ear").shape
    (2, torch.Size([2, 40]))

    Inputs of several tensors, e.g. token ids and their mask, are mappings or tuples. A mapping is
    one of agents unless `shared=True` says that it is one input of all agents:

    >>> tokens = {"input_ids": torch.zeros(2, 7), "attention_mask": torch.ones(2, 7)}
    >>> PilotSet(tokens, shared=True).of("reader").keys()
    dict_keys(['input_ids', 'attention_mask'])
    >>> PilotSet({"reader": tokens, "ear": torch.zeros(2, 40)}).of("ear").shape
    torch.Size([2, 40])

    Args:
        inputs: `(M, ...)`, the same for all agents; or, where agents sense different modalities,
            a mapping from agents to inputs whose rows belong to the same M events.
        ids: names of the M events, if the agents have agreed on some. Whole numbers are names too,
            kept as text; a NumPy array or a tensor of them will do.
        shared: whether the inputs are the same for all agents; by default all but mappings are.
    """

    inputs: TensorTree
    ids: Ids | None = None
    shared: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", as_tensor_tree(self.inputs))
        if self.ids is not None:
            object.__setattr__(self, "ids", _as_names(self.ids))
        if self.shared is None:
            object.__setattr__(self, "shared", not isinstance(self.inputs, Mapping))
        if not self.shared and not isinstance(self.inputs, Mapping):
            raise InputError(
                "pilots that are not shared must be a mapping from agents to inputs, got "
                f"{type(self.inputs).__name__}"
            )
        given = {"all agents": self.inputs} if self.shared else self.inputs
        counts = {name: tree_length(inputs) for name, inputs in given.items()}
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
        return tree_length(self.inputs if self.shared else next(iter(self.inputs.values())))

    def of(self, name: str) -> TensorTree:
        """Return the pilots as the agent `name` sees them."""
        if self.shared:
            return self.inputs
        if name not in self.inputs:
            raise UnknownAgentError(
                f"no pilots for agent {name!r}, only for {sorted(self.inputs)}; add its inputs of "
                "the same events"
            )
        return self.inputs[name]

    @classmethod
    def paired(cls, inputs: Mapping[str, tuple[Ids, TensorTree]]) -> "PilotSet":
        """Pair the inputs of agents by the ids of the events, whatever order each has.

        >>> eye, ear = torch.tensor([[1.0], [2.0]]), torch.tensor([[20.0], [30.0]])
        >>> pilots = PilotSet.paired({"eye": (["a", "b"], eye), "ear": (["b", "c"], ear)})
        >>> pilots.ids, pilots.of("eye"), pilots.of("ear")
        (['b'], tensor([[2.]]), tensor([[20.]]))

        Args:
            inputs: for each agent, the ids of its rows and the rows. Events that an agent lacks are
                left out; the others are sorted by id.
        """
        named = {name: (_as_names(ids, name), rows) for name, (ids, rows) in inputs.items()}
        for name, (ids, _) in named.items():
            if len(set(ids)) != len(ids):
                raise InputError(f"agent {name!r} has pilots with the same id; give each its own")
        known = [set(ids) for ids, _ in named.values()]
        common = sorted(set.intersection(*known)) if known else []
        if not common:
            raise EmptyInputError(
                f"the agents {sorted(inputs)} have no pilot id in common; they cannot be aligned"
            )
        in_order = {name: _in_order(given, common) for name, given in named.items()}
        return cls(in_order, common, shared=False)

    def with_inputs(self, name: str, inputs: TensorTree, ids: Ids | None = None) -> "PilotSet":
        """Return the set with the inputs of one more agent.

        Args:
            name: of the agent.
            inputs: `(M, ...)`, of the same events.
            ids: of its rows, by which they are paired with those of the others; needed if these
                have ids.
        """
        if self.shared:
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
            own = _as_names(ids, name)
            missing = sorted(set(self.ids) - set(own))
            if missing:
                raise InputError(
                    f"agent {name!r} lacks {len(missing)} of the {self.total} pilots, "
                    f"{missing[0]!r} among them; give its inputs of all"
                )
            inputs = _in_order((own, inputs), self.ids)
        return PilotSet({**self.inputs, name: inputs}, self.ids, shared=False)

    def digest(self) -> str:
        """Return a digest by which agents check that they have the same pilots in the same order.

        Shared inputs, with the names of their parts, and ids enter it. Without ids, of different
        modalities only the number of pilots is compared. It is computed once.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        content = blake2b(str(self.total).encode(), digest_size=16)
        for identifier in self.ids or ():
            content.update(f"{len(identifier)}:{identifier}".encode())
        if self.shared:
            update_digest(content, self.inputs)
        return content.hexdigest()


def _as_names(ids: Ids, agent: str | None = None) -> list[str]:
    """Return ids as text, so that equal ones are equal whatever held them."""
    listed = [
        entry.item() if isinstance(entry, Tensor | np.generic) and entry.ndim == 0 else entry
        for entry in (ids.tolist() if isinstance(ids, Tensor | np.ndarray) else ids)
    ]
    for entry in listed:
        if isinstance(entry, bool) or not isinstance(entry, str | int):
            whose = "" if agent is None else f" of agent {agent!r}"
            raise InputError(
                f"the ids of pilots{whose} must be strings or whole numbers, got {entry!r} "
                f"({type(entry).__name__}); convert them, e.g. by map(str, ids)"
            )
    return [str(entry) for entry in listed]


def _in_order(inputs: tuple[Sequence[str], TensorTree], ids: Sequence[str]) -> TensorTree:
    own, rows = inputs[0], as_tensor_tree(inputs[1])
    if len(own) != tree_length(rows):
        raise ShapeError(f"{tree_length(rows)} pilots need as many ids, got {len(own)}")
    place = {identifier: row for row, identifier in enumerate(own)}
    return select_rows(rows, torch.tensor([place[identifier] for identifier in ids]))


def as_pilot_set(given: Any, agents: Collection[str] = ()) -> PilotSet:
    """Turn a tensor, an array, or a mapping or tuple of them into a `PilotSet`.

    Args:
        given: a mapping is one by agent if any of its keys is an agent's name, or no agents are
            given; else it is one input of several parts, the same for all agents.
        agents: the names of all agents.
    """
    if isinstance(given, PilotSet):
        return given
    if isinstance(given, Mapping):
        return PilotSet(given, shared=bool(agents) and not set(given) & set(agents))
    if isinstance(given, Tensor | np.ndarray | tuple):
        return PilotSet(given)
    raise InputError(
        f"pilots must be an array, a mapping or tuple of arrays or a PilotSet, got "
        f"{type(given).__name__}"
    )
