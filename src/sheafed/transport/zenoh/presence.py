"""Which neighbours of an agent are there: the live processes of their names."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable
from threading import Lock

MAX_INSTANCES = 8
"""Of one neighbour that are kept: it announces them itself."""


class Presence:
    """Keeps the processes that are live, and the neighbours that return in a moment. Thread-safe.

    Args:
        neighbours: their names.
    """

    def __init__(self, neighbours: Collection[str]) -> None:
        self._instances: dict[str, set[str]] = {j: set() for j in neighbours}
        self._expected: dict[str, float] = {}  # until when
        self._appearances: Counter[str] = Counter()
        self._lock = Lock()

    @property
    def names(self) -> frozenset[str]:
        """The neighbours that are live, or expected back."""
        with self._lock:
            now = time.monotonic()
            return self._linked() | {j for j, until in self._expected.items() if now < until}

    @property
    def appearances(self) -> Counter[str]:
        """How often each neighbour has appeared, for the first time or again."""
        with self._lock:
            return Counter(self._appearances)

    def instances(self, neighbour: str) -> frozenset[str]:
        """Return the live processes of a neighbour's name."""
        with self._lock:
            return frozenset(self._instances[neighbour])

    def appear(self, neighbour: str, instance: str) -> bool:
        """Note a process; return whether its neighbour was absent before."""
        with self._lock:
            found = self._instances[neighbour]
            absent = not found
            if len(found) < MAX_INSTANCES and instance not in found:
                found.add(instance)
                self._appearances[neighbour] += 1
            return absent

    def disappear(self, neighbour: str, instance: str) -> bool:
        """Note the end of a process; return whether its neighbour is absent now."""
        with self._lock:
            found = self._instances[neighbour]
            before = bool(found)
            found.discard(instance)
            return before and not found

    def expect(self, neighbours: Iterable[str], seconds: float) -> None:
        """Let neighbours count as present for some seconds.

        Also if they appear in between: where both ends open their links anew, they may be gone once
        more before they stay.
        """
        with self._lock:
            self._expected |= dict.fromkeys(neighbours, time.monotonic() + seconds)

    def forget(self, seconds: float, refused: Collection[str]) -> None:
        """Forget all processes, as links are closed; neighbours are expected back.

        Args:
            seconds: for how long.
            refused: neighbours that are not expected.
        """
        with self._lock:
            until = time.monotonic() + seconds
            expected = dict.fromkeys(self._linked(), until) | self._expected
            self._expected = {j: then for j, then in expected.items() if j not in refused}
            for found in self._instances.values():
                found.clear()

    def _linked(self) -> frozenset[str]:
        return frozenset(j for j, found in self._instances.items() if found)
