"""What neighbours have said of pilots, of some of them in every exchange."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from sheafed.seeds import permutation


class PilotPredictions:
    """Class probabilities of pilots, by neighbour, as they were sent.

    Every exchange is about pilots that are drawn anew, the same for all agents. Of each pilot the
    last that a neighbour has said counts: one whose message is missing is represented by what it
    said before, and where it has said nothing there are zeros.

    Args:
        total: how many pilots there are.
        count: how many an exchange is about.
        seed: of the network.

    >>> import torch
    >>> predictions = PilotPredictions(total=4, count=2, seed=0)
    >>> predictions.keep("bo", torch.tensor([[255, 9], [30, 255]], dtype=torch.uint8), drawn=0)
    >>> predictions.of(round=0)
    [tensor([[255,   9],
            [ 30, 255]], dtype=torch.uint8)]
    """

    def __init__(self, total: int, count: int, seed: int) -> None:
        self.total, self.count, self._seed = total, count, seed
        self._said: dict[str, Tensor] = {}

    def rows(self, round: int) -> Tensor | None:
        """Return the pilots of the exchange of a round; None if it is about all."""
        if self.count == self.total:
            return None
        return permutation(self.total, self._seed, "exchanged pilots", round)[: self.count]

    def keep(self, neighbour: str, said: Tensor, drawn: int) -> None:
        """Keep what a neighbour says, beside what it has said of other pilots.

        Args:
            neighbour: its name.
            said: `(count, classes)`.
            drawn: the round for whose exchange the pilots were drawn.
        """
        before = self._said.get(neighbour)
        self._said[neighbour] = self.among_all(said, drawn, before)

    def of(self, round: int) -> list[Tensor]:
        """Return what each neighbour has said of the pilots of an exchange, `(count, classes)`."""
        rows = self.rows(round)
        said = [self._said[neighbour] for neighbour in sorted(self._said)]
        return said if rows is None else [each[rows] for each in said]

    def among_all(self, some: Tensor, round: int, others: Tensor | None = None) -> Tensor:
        """Return numbers `(total, classes)` of all pilots, given those of an exchange.

        Args:
            some: `(count, classes)`.
            round: of the exchange.
            others: those of all pilots, for the rest; by default 0.
        """
        rows = self.rows(round)
        if rows is None:
            return some
        if others is None:
            others = some.new_zeros(self.total, some.shape[-1])
        return others.index_copy(0, rows.to(some.device), some)

    def forget(self, neighbour: str) -> None:
        self._said.pop(neighbour, None)

    def state(self) -> dict[str, Tensor]:
        return dict(sorted(self._said.items()))  # equal states, equal files

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._said = dict(state)
