"""Expected losses of hops and paths, and routing against brute force."""

import itertools
import random

import networkx as nx
import pytest

from sheafed import graphs
from sheafed.errors import EmptyInputError, GraphError, UnknownAgentError
from sheafed.graphs import Edge
from sheafed.sheaf.routing import check_path, lowest_loss_path, path_loss


@pytest.mark.parametrize(
    ("path", "no_room"),
    [
        ("ab", 0.0),
        ("ac", 0.0),
        ("acb", 0.0),  # what the larger stalk added is not the latent's
        ("ad", 0.5),
        ("ade", 0.75),
        ("acde", 0.75),
        ("adce", 0.75),  # what was lost in d is not in c to be lost again
        ("dce", 0.5),
        ("eda", 0.0),
        ("a", 0.0),
    ],
)
def test_a_path_loses_what_is_disputed_and_what_its_narrowest_stalk_has_no_room_for(path, no_room):
    dims = {"a": 8, "b": 8, "c": 20, "d": 4, "e": 2}
    pairs = itertools.combinations(dims, 2)
    mismatch = dict.fromkeys(graphs.orient(graphs.from_edges(list(pairs)), dims), 0.1)
    assert path_loss(path, dims, mismatch) == pytest.approx(0.1 * (len(path) - 1) + no_room)


def test_a_path_adds_up_its_mismatches():
    dims = {"a": 8, "b": 4, "c": 6, "d": 2}
    mismatch = {Edge("a", "b"): 0.1, Edge("c", "b"): 0.2, Edge("c", "d"): 0.4}
    assert path_loss("abcd", dims, mismatch) == pytest.approx(0.7 + 6 / 8)
    assert path_loss("dcba", dims, mismatch) == pytest.approx(0.7)


def random_network(seed):
    rng = random.Random(seed)
    names = [f"n{k}" for k in range(7)]
    dims = {name: rng.randint(2, 9) for name in names}
    graph = graphs.erdos_renyi(names, 0.4, seed)
    return graph, dims, {edge: rng.random() for edge in graphs.orient(graph, dims)}


@pytest.mark.parametrize("seed", range(12))
def test_the_route_is_the_best_of_all_simple_paths(seed):
    graph, dims, mismatch = random_network(seed)
    for sender, receiver in itertools.permutations(graph, 2):
        found = lowest_loss_path(sender, receiver, dims, mismatch)
        every = nx.all_simple_paths(graph, sender, receiver)
        best = min(path_loss(path, dims, mismatch) for path in every)
        assert path_loss(found, dims, mismatch) == pytest.approx(best)
        assert (found[0], found[-1]) == (sender, receiver)


def test_the_route_goes_round_a_bottleneck_unless_the_latent_fits_through():
    dims = {"big": 8, "far": 8, "narrow": 2, "r1": 8, "r2": 8, "small": 2}
    pairs = [("big", "narrow"), ("narrow", "far"), ("small", "big")]
    pairs += [("big", "r1"), ("r1", "r2"), ("r2", "far")]
    mismatch = dict.fromkeys(graphs.orient(graphs.from_edges(pairs), dims), 0.1)
    assert lowest_loss_path("big", "far", dims, mismatch) == ["big", "r1", "r2", "far"]
    assert lowest_loss_path("small", "far", dims, mismatch) == ["small", "big", "narrow", "far"]
    assert lowest_loss_path("big", "big", dims, mismatch) == ["big"]


def test_what_is_no_path_is_named():
    edges = {Edge("a", "b"): 0.0, Edge("b", "c"): 0.0}
    check_path(["c", "b", "a"], edges)
    with pytest.raises(GraphError, match="'a' to 'c', which are not neighbours"):
        check_path(["a", "c"], edges)
    with pytest.raises(EmptyInputError, match="path is empty"):
        check_path([], edges)
    with pytest.raises(UnknownAgentError, match="'z'"):
        lowest_loss_path("a", "z", {"a": 1, "b": 1, "c": 1}, edges)
    with pytest.raises(GraphError, match="no path from 'a' to 'z'"):
        lowest_loss_path("a", "z", {"a": 1, "b": 1, "c": 1, "z": 1}, edges)
