"""Expected losses of hops and paths, and routing against brute force."""

import itertools
import random

import networkx as nx
import numpy as np
import pytest

from sheafed import graphs
from sheafed.errors import EmptyInputError, GraphError, UnknownAgentError
from sheafed.graphs import Edge
from sheafed.sheaf.routing import check_path, lowest_loss_path, path_loss


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("ab", 1.0),
        ("ac", 1.0),
        ("acb", 1.0),  # what the larger stalk added is not the latent's
        ("ad", 0.5),
        ("ade", 0.25),
        ("acde", 0.25),
        ("adce", 0.25),  # what was lost in d is not in c to be lost again
        ("dce", 0.5),
        ("eda", 1.0),
        ("a", 1.0),
    ],
)
def test_a_path_keeps_what_is_undisputed_and_what_its_narrowest_stalk_has_room_for(path, room):
    dims = {"a": 8, "b": 8, "c": 20, "d": 4, "e": 2}
    pairs = itertools.combinations(dims, 2)
    mismatch = dict.fromkeys(graphs.orient(graphs.from_edges(list(pairs)), dims), 0.1)
    assert path_loss(path, dims, mismatch) == pytest.approx(1 - room * 0.9 ** (len(path) - 1))


def test_the_shares_that_hops_keep_multiply():
    dims = {"a": 8, "b": 4, "c": 6, "d": 2}
    mismatch = {Edge("a", "b"): 0.1, Edge("c", "b"): 0.2, Edge("c", "d"): 0.4}
    assert path_loss("abcd", dims, mismatch) == pytest.approx(1 - 0.9 * 0.8 * 0.6 * 2 / 8)
    assert path_loss("dcba", dims, mismatch) == pytest.approx(1 - 0.9 * 0.8 * 0.6)
    opposed = mismatch | {Edge("c", "b"): 1.7}  # two of these do not make up for each other
    assert path_loss("abcb", dims, opposed) == 1


def test_the_loss_is_that_of_a_signal_that_every_agent_sees_through_its_own_noise():
    """The mismatch of two latents of correlation r is 1 - r, and correlations compose."""
    rng = np.random.default_rng(0)
    chain = [rng.standard_normal(200_000)]
    for correlation in (0.9, 0.7, 0.8):
        noise = rng.standard_normal(200_000)
        chain.append(correlation * chain[-1] + (1 - correlation**2) ** 0.5 * noise)

    def mismatch(x, y):
        return float(((x - y) ** 2).sum() / ((x**2).sum() + (y**2).sum()))

    names, dims = "abcd", dict.fromkeys("abcd", 1)
    hops = {Edge(names[k], names[k + 1]): mismatch(chain[k], chain[k + 1]) for k in range(3)}
    assert path_loss(names, dims, hops) == pytest.approx(mismatch(chain[0], chain[3]), abs=0.01)


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
        if graph.has_edge(sender, receiver):
            assert found == [sender, receiver]
            continue
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


def test_neighbours_need_no_detour_however_clear_it_is():
    dims = dict.fromkeys("abc", 4)
    mismatch = {Edge("a", "b"): 0.9, Edge("a", "c"): 0.01, Edge("b", "c"): 0.01}
    assert path_loss("acb", dims, mismatch) < path_loss("ab", dims, mismatch)
    assert lowest_loss_path("a", "b", dims, mismatch) == ["a", "b"]
    assert lowest_loss_path("b", "a", dims, mismatch) == ["b", "a"]


def test_a_bottleneck_is_avoided_by_any_number_of_bad_hops_that_keep_more():
    """Added up, losses of 3 x 0.35 would exceed those of 2 x 0.1 and 0.75 for the stalk."""
    dims = {"s": 8, "narrow": 2, "r": 8, "x": 8, "y": 8}
    pairs = [("s", "x"), ("x", "y"), ("y", "r"), ("s", "narrow"), ("narrow", "r")]
    edges = graphs.orient(graphs.from_edges(pairs), dims)
    mismatch = {edge: 0.1 if edge.tail == "narrow" else 0.35 for edge in edges}
    assert lowest_loss_path("s", "r", dims, mismatch) == ["s", "x", "y", "r"]


def test_edges_that_keep_nothing_are_still_edges():
    dims = dict.fromkeys("abc", 3)
    mismatch = {Edge("a", "b"): 1.0, Edge("b", "c"): 2.0}
    assert lowest_loss_path("a", "c", dims, mismatch) == ["a", "b", "c"]


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
