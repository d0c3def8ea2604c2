"""Python's search for garbage among what a network of many agents is made of.

The collector now and then looks through all objects, of which an agent has some 500. With 10,000
agents one search takes seconds, and finds nothing: what a network is made of lives to its end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 100
"""Agents below which a search takes no time worth mentioning."""


@contextmanager
def existing_objects_kept(agents: int) -> Iterator[None]:
    """Leave what exists now out of searches for garbage, for the time of a training.

    Nothing happens if there are few agents, or if the program has done so itself.

    Args:
        agents: how many this process has.
    """
    if agents < MANY or gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
