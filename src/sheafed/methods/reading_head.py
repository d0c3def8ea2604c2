r"""A head for what neighbours send, beside the one for own latents.

Its scores of what sender j encoded are $h(z) + b_j$: a head for all senders, and for each an offset
of the scores. Senders see different shares of the classes, and the offset is where that goes: for
latents that tell two classes apart equally well, how likely a class is beforehand is a term
$\log P_j(y)$ of its score, which depends on the sender alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sheafed.errors import InputError


class OffsetHead(nn.Module):
    """A head with a constant added to its scores.

    Args:
        head: from latents to scores `(n, classes)`.
        offset: `(classes,)`.
    """

    offset: Tensor

    def __init__(self, head: nn.Module, offset: Tensor) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("offset", offset)

    def forward(self, latents: Tensor) -> Tensor:
        scores: Tensor = self.head(latents)
        return scores + self.offset


class ReadingHead:
    """A head, and what is added to its scores for each sender; nothing for one it does not know.

    Args:
        head: from latents to scores `(n, classes)`, in evaluation mode.
        offsets: `(classes,)`, by sender. The agent itself may be one of them.
    """

    def __init__(self, head: nn.Module, offsets: Mapping[str, Tensor]) -> None:
        self.head = head.eval().requires_grad_(False)
        self.offsets = dict(offsets)

    def of(self, sender: str) -> nn.Module:
        """Return the head for what a sender encoded."""
        if sender not in self.offsets:
            return self.head
        return OffsetHead(self.head, self.offsets[sender]).eval()

    def state(self) -> dict[str, Any]:
        return {"weights": dict(self.head.state_dict()), "offsets": dict(self.offsets)}

    @classmethod
    def from_state(cls, head: nn.Module, state: Mapping[str, Any]) -> ReadingHead:
        """Return the reading head whose state this is.

        Args:
            head: of the same structure; its weights are replaced.
            state: as `state` returned it.
        """
        head.load_state_dict(state["weights"])
        wrong = {j: tuple(b.shape) for j, b in state["offsets"].items() if b.ndim != 1}
        if wrong:
            raise InputError(f"offsets of a reading head must have the shape (classes,): {wrong}")
        return cls(head, state["offsets"])
