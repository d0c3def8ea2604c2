"""A subset that keeps the mixture of classes, and of which smaller ones are the beginning."""

import torch
from torch import Tensor

from sheafed.datasets.labels import Labels, as_labels
from sheafed.errors import InputError
from sheafed.seeds import generator


def subset(labels: Labels, n: int) -> Tensor:
    """Return the indices `(n,)` of n samples in a fixed random order, stratified by class.

    Subsets are nested: those of n samples are the first n of every larger one. They depend on
    nothing but the labels, so that experiments with different seeds use the same samples.

    Sample k of the m of its class, in random order, is put at random into the k-th of m equal
    parts of [0, 1); the n samples that come first are taken. Of every class that is its share of
    n, to less than two samples.

    >>> labels = torch.tensor([0] * 80 + [1] * 20)
    >>> labels[subset(labels, 10)].bincount()
    tensor([8, 2])
    >>> torch.equal(subset(labels, 10), subset(labels, 50)[:10])
    True
    """
    labels = as_labels(labels)
    if not 1 <= n <= len(labels):
        raise InputError(f"n must be from 1 to {len(labels)}, the number of samples, got {n}")
    stream = generator(0, "subset")
    places = torch.empty(len(labels), dtype=torch.float64)
    for y in torch.unique(labels).tolist():
        members = (labels == y).nonzero()[:, 0]
        m = len(members)
        offsets = torch.rand(m, generator=stream, dtype=torch.float64)
        places[members] = (torch.randperm(m, generator=stream) + offsets) / m
    return places.argsort(stable=True)[:n]
