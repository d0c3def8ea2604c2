import itertools
import math

import numpy as np
import pytest
import torch

import sheafed
from sheafed.alignment.routing import best_path
from sheafed.errors import GraphError, UnknownAgentError
from sheafed.linalg import misalignment


def test_the_best_path_by_brute_force():
    rng = np.random.default_rng(0)
    names = tuple("abcdef")
    for _ in range(20):
        pairs = [p for p in itertools.permutations(names, 2) if set(p) != {"a", "f"}]
        quality = {p: float(rng.uniform()) for p in pairs}
        paths = [
            ("a", *inner, "f") for n in range(1, 5) for inner in itertools.permutations("bcde", n)
        ]
        kept = {p: math.prod(quality[hop] for hop in itertools.pairwise(p)) for p in paths}
        assert tuple(best_path("a", "f", names, quality)) == max(kept, key=kept.get)


def test_a_hop_that_keeps_nothing_is_taken_where_there_is_no_other():
    assert best_path("a", "c", ("a", "b", "c"), {("a", "b"): 0.0, ("b", "c"): 1.0}) == list("abc")


def test_no_way():
    with pytest.raises(GraphError, match="disconnected"):
        best_path("a", "c", ("a", "b", "c"), {("a", "b"): 1.0})
    with pytest.raises(UnknownAgentError, match="'d'"):
        best_path("a", "d", ("a", "b"), {("a", "b"): 1.0})


def test_a_path_that_only_fits_the_pilots_is_not_taken():
    """With hardly more pilots than dimensions an isometry fits noise; held-out pilots tell."""
    rng = np.random.default_rng(3)
    source = rng.standard_normal((40, 4))
    noise = rng.standard_normal((40, 36))
    latents = {"a": source, "z": source @ rng.standard_normal((4, 4))}
    latents["noise"] = np.hstack([noise[:, :32], 0.4 * source + noise[:, 32:]])
    latents["clear"] = source + 0.5 * rng.standard_normal(source.shape)
    diamond = [("a", "noise"), ("noise", "z"), ("a", "clear"), ("clear", "z")]
    alignment = sheafed.align(latents, diamond, shrinkage=0.0, maps="procrustes")
    white = {n: alignment.whitenings[n].whiten(torch.as_tensor(x)) for n, x in latents.items()}
    through = dict.fromkeys(("noise", "clear"), 0.0)
    for (head, tail), isometry in alignment.sheaf.maps.items():
        between = head if head in through else tail
        through[between] += misalignment(white[tail], white[head] @ isometry)
    assert through["noise"] < through["clear"]
    assert alignment.path("a", "z") == ["a", "clear", "z"]


def test_a_path_composes_the_maps_of_its_hops():
    rng = np.random.default_rng(1)
    latents = {name: rng.standard_normal((50, d)) for name, d in {"a": 3, "b": 5, "c": 4}.items()}
    alignment = sheafed.align(latents, [("a", "b"), ("b", "c")])
    # What b receives is smaller than what its encoder makes.
    by_hand = alignment.send(alignment.send(latents["a"], "a", "b"), "b", "c", check=False)
    np.testing.assert_allclose(alignment.send(latents["a"], "a", "c"), by_hand)
    layer = alignment.link("a", "c").as_linear()
    assert (layer.in_features, layer.out_features) == (3, 4)
    np.testing.assert_array_equal(alignment.send(latents["a"], "a", "a"), latents["a"])
