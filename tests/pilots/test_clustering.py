"""k-means on the shared samples: right, reproducible, and without side effects."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, InputError, NonFiniteError, ShapeError
from sheafed.pilots import PrototypePilots, StratifiedPilots, kmeans
from sheafed.seeds import generator


def blobs() -> tuple[Tensor, Tensor]:
    truth = torch.arange(60) % 4
    noise = torch.randn(60, 3, generator=generator(0))
    corners = torch.tensor([[0.0, 0, 0], [90, 0, 0], [0, 90, 0], [0, 0, 90]])
    return corners[truth] + noise, truth


def test_recovers_separated_groups() -> None:
    features, truth = blobs()
    assignment = kmeans(features, 4, seed=0)
    assert assignment.dtype == torch.int64
    assert assignment.shape == (60,)
    pairs = set(zip(assignment.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == 4
    assert {c for c, _ in pairs} == {0, 1, 2, 3}


def test_is_a_fixed_point_of_lloyds_iteration() -> None:
    features = torch.randn(200, 5, generator=generator(1), dtype=torch.float64)
    assignment = kmeans(features, 6, seed=3)
    centroids = PrototypePilots(assignment, seed=0).select(0).pool(features)
    assert torch.equal(torch.cdist(features, centroids).argmin(1), assignment)


def test_is_deterministic_and_leaves_global_states_alone() -> None:
    features = torch.randn(900, 4, generator=generator(2))
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state(), str(np.random.get_state()), random.getstate()  # noqa: NPY002
    threads = torch.get_num_threads()
    first = kmeans(features, 7, seed=5)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == str(np.random.get_state())  # noqa: NPY002
    assert before[2] == random.getstate()
    assert torch.get_num_threads() == threads
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert torch.equal(first, kmeans(features, 7, seed=5))
    assert torch.equal(first, kmeans(features.double().requires_grad_(), 7, seed=5))


def test_feeds_the_policies() -> None:
    features, truth = blobs()
    assignment = kmeans(features, 4, seed=0)
    drawn = StratifiedPilots(assignment, 3, seed=1).select(6)
    assert Counter(truth[drawn.indices].tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert PrototypePilots(assignment, seed=1).count == 4


def test_one_cluster_and_one_per_sample() -> None:
    features, _ = blobs()
    assert kmeans(features, 1, seed=0).tolist() == [0] * 60
    assert sorted(kmeans(features, 60, seed=0).tolist()) == list(range(60))


def test_bad_input() -> None:
    features, _ = blobs()
    with pytest.raises(InputError, match="clusters must be an int from 1 to 60, got 61"):
        kmeans(features, 61, seed=0)
    with pytest.raises(InputError, match="too few distinct rows for 3 clusters"):
        kmeans(torch.tensor([[0.0], [1.0], [0.0], [1.0]]), 3, seed=0)
    with pytest.raises(ShapeError, match=r"features must have shape \(M, p\)"):
        kmeans(features[None], 2, seed=0)
    with pytest.raises(NonFiniteError, match="features"):
        kmeans(features / 0, 2, seed=0)
    with pytest.raises(EmptyInputError, match="features"):
        kmeans(features[:0], 2, seed=0)
