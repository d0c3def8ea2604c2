"""What is known of pilots that are not at hand."""

from __future__ import annotations

from typing import Never

from sheafed.errors import InputError
from sheafed.pilots.pilot_set import PilotSet


class AbsentPilots(PilotSet):
    """Stands for the pilots of a network that was loaded without them.

    Latents can be sent and classified, since maps and whitening are in the file. What needs the
    pilots themselves raises an error that says so.

    Args:
        total: how many there were.
        digest: theirs.
        shared: whether all agents had the same inputs.
    """

    def __init__(self, total: int, digest: str, *, shared: bool) -> None:
        for name, value in (("_total", total), ("_digest", digest), ("shared", shared)):
            object.__setattr__(self, name, value)  # a PilotSet is frozen

    _total: int
    _digest: str

    @property
    def total(self) -> int:
        return self._total

    @property
    def inputs(self) -> Never:
        self._refuse()

    def of(self, name: str) -> Never:
        self._refuse()

    def _refuse(self) -> Never:
        raise InputError(
            f"the {self.total} pilots of this network were not given; give pilots= to "
            "sheafed.load: training, joining, misalignment and the choice of a path need them"
        )

    def digest(self) -> str:
        return self._digest
