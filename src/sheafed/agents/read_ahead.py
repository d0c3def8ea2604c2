"""Batches that worker processes read while the agent computes, in the agent's own order."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sheafed.agents.samples import Batch, DataOrder, DatasetSamples, Samples
from sheafed.seeds import derive

Request = tuple[int, Tensor]
"""The seed for what reading draws at random, and the indices of the samples."""


class BatchStream:
    """The batches of some samples in an order without end.

    Args:
        samples: read by their worker processes, if they have any.
        order: advances by one batch at a time, however far the workers are ahead.
        seed: of the random numbers that reading draws in worker processes.
        name: the agent's, likewise.
    """

    def __init__(self, samples: Samples, order: DataOrder, seed: int, name: str) -> None:
        self._samples, self._order, self._purpose = samples, order, (seed, name)
        self._workers: Iterator[Batch] | None = None

    def next(self) -> Batch:
        if not workers_of(self._samples):
            return self._samples.batch(self._order.next())
        if self._workers is None:
            requests = _requests(copy(self._order), *self._purpose)
            self._workers = read_ahead(self._samples, requests)
        self._order.next()
        return next(self._workers)

    def close(self) -> None:
        """End the worker processes; the next batch starts others at the order's position."""
        if self._workers is not None:
            end_workers(self._workers)
            self._workers = None


def _requests(order: DataOrder, seed: int, name: str) -> Iterator[Request]:
    """Yield what comes in an order; not a method, since workers end when nothing refers to them."""
    while True:
        indices = order.next()
        yield derive(seed, name, "reading", *order.position), indices


def batches(samples: Samples, parts: Iterable[Tensor]) -> Generator[Batch, None, None]:
    """Yield the batches of some indices, read ahead if the samples have worker processes.

    The workers end when the generator is closed.
    """
    if not workers_of(samples):
        yield from map(samples.batch, parts)
        return
    workers = read_ahead(samples, ((derive(0, int(part[0])), part) for part in parts))
    try:
        yield from workers
    finally:
        end_workers(workers)


def workers_of(samples: Samples) -> int:
    return samples.num_workers if isinstance(samples, DatasetSamples) else 0


def read_ahead(samples: Samples, requests: Iterable[Request]) -> Iterator[Batch]:
    """Start worker processes that read the requested batches; yield these in order."""
    loader: DataLoader[Batch] = DataLoader(
        _Reader(samples),
        batch_size=None,
        sampler=requests,
        collate_fn=_as_it_is,
        num_workers=workers_of(samples),
        generator=torch.Generator(),  # else it would draw from the global stream
    )
    return iter(loader)


def end_workers(batches: Any) -> None:
    """End the processes of `read_ahead` at once.

    They would end with the iterator, but an exception that is being handled keeps that alive.
    """
    batches._shutdown_workers()


class _Reader(Dataset[Batch]):
    """Reads whole batches, each after seeding every stream that a Dataset may draw from."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __getitem__(self, request: Request) -> Batch:
        seed, indices = request
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        return self._samples.batch(indices)


def _as_it_is(batch: Any) -> Any:
    return batch
