import itertools
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sheafed import graphs
from sheafed.errors import (
    DisconnectedGraphError,
    EmptyInputError,
    GraphError,
    InputError,
    UnknownAgentError,
)
from sheafed.graphs import Edge

fixed = settings(derandomize=True, deadline=None, max_examples=30)

ZOO = {  # tab:agent_zoo: target classes and stalk dimension
    "0": ({4, 5, 6, 7, 8}, 128),
    "1": ({0, 1, 2, 3, 4}, 224),
    "2": ({0, 1, 2, 3, 4, 5}, 64),
    "3": ({4, 5, 6, 7, 8, 9}, 128),
    "4": ({0, 1, 2, 7, 8, 9}, 192),
    "5": ({2, 3, 4, 5, 6}, 96),
    "6": ({1, 2, 3, 4, 5, 6}, 256),
    "7": ({3, 4, 5, 6, 7}, 144),
    "8": ({0, 2, 4, 6, 8}, 160),
    "9": ({5, 6, 7, 8, 9}, 80),
    "10": ({1, 2, 3, 4, 5}, 120),
    "11": ({0, 1, 2, 8, 9}, 240),
    "12": ({3, 4, 5, 6, 7, 8}, 80),
    "13": ({1, 4, 6, 8, 9}, 96),
    "14": ({0, 1, 2, 3, 7}, 160),
}
TARGETS = {name: classes for name, (classes, _) in ZOO.items()}
DIMS = {name: d for name, (_, d) in ZOO.items()}


def edge_set(graph):
    return {frozenset(pair) for pair in graph.edges}


def overlap(targets, pair):
    a, b = pair
    return len(set(targets[a]) & set(targets[b]))


def heaviest_tree_by_enumeration(targets):
    """The weight of the best spanning tree, over all sets of N - 1 pairs."""
    names = list(targets)
    best = -1
    for pairs in itertools.combinations(itertools.combinations(names, 2), len(names) - 1):
        candidate = nx.Graph()
        candidate.add_nodes_from(names)
        candidate.add_edges_from(pairs)
        if nx.is_connected(candidate):
            best = max(best, sum(overlap(targets, pair) for pair in pairs))
    return best


def small_targets(size=5):
    classes = st.sets(st.integers(0, 5), min_size=1)
    return st.dictionaries(st.sampled_from("abcdefg"), classes, min_size=2, max_size=size)


class TestClassOverlap:
    def test_the_paper_graph_has_42_edges(self):
        graph = graphs.class_overlap(TARGETS)
        assert graph.number_of_edges() == 42
        assert set(graph) == set(TARGETS)
        assert nx.is_connected(graph)

    def test_the_paper_graph_keeps_the_heaviest_edges(self):
        graph = graphs.class_overlap(TARGETS)
        complete = nx.complete_graph(list(TARGETS))
        nx.set_edge_attributes(complete, {e: overlap(TARGETS, e) for e in complete.edges}, "weight")
        tree_weight = nx.maximum_spanning_tree(complete).size("weight")

        inside = nx.Graph((a, b, {"weight": overlap(TARGETS, (a, b))}) for a, b in graph.edges)
        assert nx.maximum_spanning_tree(inside).size("weight") == tree_weight
        outside = {frozenset(pair) for pair in complete.edges} - edge_set(graph)
        heaviest_outside = max(overlap(TARGETS, pair) for pair in outside)
        lighter_inside = [pair for pair in graph.edges if overlap(TARGETS, pair) < heaviest_outside]
        # what is lighter than a rejected pair is there for connectivity alone
        graph.remove_edges_from(lighter_inside)
        assert nx.number_connected_components(graph) == 1 + len(lighter_inside)

    @fixed
    @given(small_targets())
    def test_density_zero_is_a_maximum_spanning_tree(self, targets):
        tree = graphs.class_overlap(targets, density=0.0)
        assert nx.is_tree(tree)
        weight = sum(overlap(targets, pair) for pair in tree.edges)
        assert weight == heaviest_tree_by_enumeration(targets)

    @fixed
    @given(small_targets(7), st.floats(0, 1))
    def test_the_tree_is_extended_by_the_heaviest_pairs(self, targets, density):
        tree = edge_set(graphs.class_overlap(targets, density=0.0))
        edges = edge_set(graphs.class_overlap(targets, density))
        pairs = len(targets) * (len(targets) - 1) / 2
        assert tree <= edges
        assert len(edges) == max(round(density * pairs), len(targets) - 1)
        added = edges - tree
        rejected = {frozenset(p) for p in itertools.combinations(targets, 2)} - edges
        if added and rejected:
            lightest, heaviest = (
                min(overlap(targets, pair) for pair in added),
                max(overlap(targets, pair) for pair in rejected),
            )
            assert lightest >= heaviest

    @fixed
    @given(small_targets(7), st.randoms(use_true_random=False))
    def test_order_does_not_matter(self, targets, shuffler):
        items = list(targets.items())
        shuffler.shuffle(items)
        assert edge_set(graphs.class_overlap(dict(items))) == edge_set(
            graphs.class_overlap(targets)
        )

    def test_ties_go_to_the_names_that_sort_first(self):
        targets = {name: {1} for name in "dbca"}
        assert edge_set(graphs.class_overlap(targets, 0.0)) == {
            frozenset("ab"),
            frozenset("ac"),
            frozenset("ad"),
        }
        assert edge_set(graphs.class_overlap(targets, 4 / 6)) == {
            frozenset("ab"),
            frozenset("ac"),
            frozenset("ad"),
            frozenset("bc"),
        }

    def test_disjoint_classes_are_still_connected(self):
        assert nx.is_tree(graphs.class_overlap({"a": {1}, "b": {2}, "c": {3}}, 0.0))

    def test_one_agent(self):
        assert list(graphs.class_overlap({"a": {1}})) == ["a"]

    def test_repeated_classes_count_once(self):
        targets = {"a": [1, 1, 1], "b": [1, 1, 1], "c": [1, 2], "d": [1, 2]}
        assert frozenset("cd") in edge_set(graphs.class_overlap(targets, 0.0))

    def test_bad_input(self):
        with pytest.raises(EmptyInputError, match="no agents"):
            graphs.class_overlap({})
        with pytest.raises(EmptyInputError, match=r"\['b'\] have no target classes"):
            graphs.class_overlap({"a": {1}, "b": set()})
        with pytest.raises(InputError, match=r"density must lie in \[0, 1\], got 40"):
            graphs.class_overlap({"a": {1}}, density=40)


class TestShapes:
    names = ("d", "b", "a", "c")

    def test_ring(self):
        expected = {frozenset("db"), frozenset("ba"), frozenset("ac"), frozenset("cd")}
        assert edge_set(graphs.ring(self.names)) == expected

    def test_line(self):
        expected = {frozenset("db"), frozenset("ba"), frozenset("ac")}
        assert edge_set(graphs.line(self.names)) == expected

    def test_star(self):
        expected = {frozenset("db"), frozenset("da"), frozenset("dc")}
        assert edge_set(graphs.star(self.names)) == expected

    def test_complete(self):
        expected = {frozenset(pair) for pair in itertools.combinations(self.names, 2)}
        assert edge_set(graphs.complete(self.names)) == expected

    @pytest.mark.parametrize("build", [graphs.line, graphs.star, graphs.complete])
    def test_one_agent_is_a_graph(self, build):
        graph = graphs.check_graph(build(["a"]))
        assert list(graph) == ["a"]
        assert graph.number_of_edges() == 0

    def test_two_agents_are_no_ring(self):
        with pytest.raises(GraphError, match=r"at least 3 agents, got \['a', 'b'\].*line"):
            graphs.ring(["a", "b"])

    @pytest.mark.parametrize(
        "build",
        [
            graphs.ring,
            graphs.line,
            graphs.star,
            graphs.complete,
            lambda names: graphs.erdos_renyi(names, 0.5, 0),
        ],
    )
    def test_bad_names(self, build):
        with pytest.raises(EmptyInputError, match="no agents"):
            build([])
        with pytest.raises(GraphError, match=r"more than once: \['a'\]"):
            build(["a", "b", "a"])
        with pytest.raises(GraphError, match=r"string names, got \[0, 1\]"):
            build([0, 1])
        with pytest.raises(GraphError, match="single string 'abc'"):
            build("abc")


class TestErdosRenyi:
    names = tuple("abcdefghij")

    def test_is_a_function_of_seed_and_names_only(self):
        expected = edge_set(graphs.erdos_renyi(self.names, 0.3, seed=1))
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        before = random.getstate()
        assert edge_set(graphs.erdos_renyi(self.names[::-1], 0.3, seed=1)) == expected
        assert random.getstate() == before
        assert edge_set(graphs.erdos_renyi(self.names, 0.3, seed=2)) != expected

    @fixed
    @given(st.integers(0, 1000), st.floats(0, 1))
    def test_is_connected(self, seed, probability):
        graphs.check_graph(graphs.erdos_renyi(self.names, probability, seed), self.names)

    def test_extremes(self):
        assert edge_set(graphs.erdos_renyi(self.names[::-1], 0.0, 0)) == edge_set(
            graphs.line(self.names)
        )
        assert graphs.erdos_renyi(self.names, 1.0, 0).number_of_edges() == 45

    @fixed
    @given(st.integers(0, 100))
    def test_joins_components_by_their_first_names(self, seed):
        # one number per pair: what is drawn at a low probability is drawn at a higher one, so a
        # pair that the higher one lacks was added to connect the components
        edges = edge_set(graphs.erdos_renyi(self.names, 0.1, seed))
        added = edges - edge_set(graphs.erdos_renyi(self.names, 0.6, seed))
        rest = nx.Graph()
        rest.add_nodes_from(self.names)
        rest.add_edges_from(edges - added)
        for a, b in map(sorted, added):
            assert b == min(nx.node_connected_component(rest, b))
            assert not nx.has_path(rest, a, b)

    def test_frequency_of_edges(self):
        count = sum(
            graphs.erdos_renyi(self.names, 0.6, seed).number_of_edges() for seed in range(100)
        )
        assert count / 4500 == pytest.approx(0.6, abs=0.03)

    def test_bad_probability(self):
        with pytest.raises(InputError, match=r"probability must lie in \[0, 1\], got 1.5"):
            graphs.erdos_renyi(self.names, 1.5, 0)

    def test_bad_seed(self):
        with pytest.raises(InputError, match="seed must be int, got None"):
            graphs.erdos_renyi(self.names, 0.5, None)


class TestFromEdges:
    def test_builds_the_graph(self):
        graph = graphs.from_edges([("a", "b"), ("c", "b")])
        assert edge_set(graph) == {frozenset("ab"), frozenset("bc")}
        assert edge_set(graphs.from_edges(iter([("a", "b")]), names={"a", "b"})) == {
            frozenset("ab")
        }
        assert list(graphs.from_edges([], names=["a"])) == ["a"]

    def test_bad_edges(self):
        with pytest.raises(GraphError, match="pair of names, got 'ab'"):
            graphs.from_edges(["ab"])
        with pytest.raises(GraphError, match=r"pair of names, got \('a', 'b', 'c'\)"):
            graphs.from_edges([("a", "b", "c")])
        with pytest.raises(GraphError, match=r"pair of names, got \(1, 2\)"):
            graphs.from_edges([(1, 2)])
        with pytest.raises(GraphError, match=r"more than once: \[\['a', 'b'\]\]"):
            graphs.from_edges([("a", "b"), ("b", "a")])
        with pytest.raises(GraphError, match=r"\['a'\] are joined to themselves"):
            graphs.from_edges([("a", "a")])

    def test_edges_are_held_against_the_names(self):
        with pytest.raises(UnknownAgentError, match=r"\['z'\] that are not among \['a', 'b'\]"):
            graphs.from_edges([("a", "z")], names=["b", "a"])
        with pytest.raises(DisconnectedGraphError, match=r"2 comp.*: \[\['a', 'b'\], \['c'\]\]"):
            graphs.from_edges([("b", "a")], names=["a", "b", "c"])
        with pytest.raises(EmptyInputError):
            graphs.from_edges([])


class TestCheckGraph:
    def test_returns_the_graph(self):
        graph = graphs.line(["a", "b"])
        assert graphs.check_graph(graph) is graph
        assert graphs.check_graph(graph, {"b": 1, "a": 2}) is graph

    @pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
    def test_kind(self, kind):
        with pytest.raises(GraphError, match=f"got {kind.__name__};.*networkx.Graph"):
            graphs.check_graph(kind([("a", "b")]))

    def test_not_a_graph(self):
        with pytest.raises(GraphError, match="got dict"):
            graphs.check_graph({"a": ["b"]})

    def test_empty_and_unnamed(self):
        with pytest.raises(EmptyInputError):
            graphs.check_graph(nx.Graph())
        with pytest.raises(GraphError, match=r"string names, got \[0, 1, 2\]"):
            graphs.check_graph(nx.path_graph(3))

    def test_disconnected_lists_the_components(self):
        graph = nx.Graph([("d", "c"), ("b", "a")])
        with pytest.raises(DisconnectedGraphError, match=r"\[\['a', 'b'\], \['c', 'd'\]\]"):
            graphs.check_graph(graph)

    def test_missing_and_extra_names(self):
        graph = graphs.line(["a", "b", "c"])
        with pytest.raises(UnknownAgentError, match=r"agents \['b', 'c'\] that are not among"):
            graphs.check_graph(graph, ["a"])
        with pytest.raises(GraphError, match=r"agents \['y', 'z'\] are not in the graph"):
            graphs.check_graph(graph, ["a", "b", "c", "z", "y"])


class TestOrientation:
    def test_the_head_is_larger_and_ties_sort(self):
        graph = graphs.complete(["c", "b", "a", "d"])
        assert graphs.orient(graph, {"a": 2, "b": 5, "c": 2, "d": 9}) == (
            Edge("a", "c"),
            Edge("b", "a"),
            Edge("b", "c"),
            Edge("d", "a"),
            Edge("d", "b"),
            Edge("d", "c"),
        )

    @fixed
    @given(st.integers(0, 100), st.randoms(use_true_random=False))
    def test_order_does_not_matter(self, seed, shuffler):
        names = list(DIMS)
        graph = graphs.erdos_renyi(names, 0.4, seed)
        pairs = [pair if shuffler.random() < 0.5 else pair[::-1] for pair in graph.edges]
        shuffler.shuffle(pairs)
        shuffler.shuffle(names)
        edges = graphs.orient(graph, DIMS)
        assert graphs.orient(nx.Graph(pairs), {name: DIMS[name] for name in names}) == edges
        assert list(edges) == sorted(edges)
        assert {frozenset(edge) for edge in edges} == edge_set(graph)
        for head, tail in edges:
            assert (-DIMS[head], head) < (-DIMS[tail], tail)

    def test_neighbourhoods(self):
        edges = graphs.orient(graphs.complete(list("abcd")), {"a": 2, "b": 5, "c": 2, "d": 9})
        assert graphs.incoming(edges, "b") == ("a", "c")
        assert graphs.outgoing(edges, "b") == ("d",)
        assert graphs.incoming(edges, "a") == ("c",)
        assert graphs.outgoing(edges, "a") == ("b", "d")
        assert graphs.incoming(edges, "c") == ()
        assert graphs.outgoing(edges, "d") == ()

    @fixed
    @given(st.integers(0, 100))
    def test_every_neighbour_is_on_one_side(self, seed):
        graph = graphs.erdos_renyi(list(DIMS), 0.4, seed)
        edges = graphs.orient(graph, DIMS)
        for name in graph:
            below, above = graphs.incoming(edges, name), graphs.outgoing(edges, name)
            assert sorted([*below, *above]) == sorted(graph[name])
            assert all(DIMS[other] <= DIMS[name] for other in below)
            assert all(DIMS[other] >= DIMS[name] for other in above)

    def test_bad_dimensions(self):
        graph = graphs.line(["a", "b"])
        for bad in (0, -1, 2.0, True, "3"):
            with pytest.raises(InputError, match=f"'b' must be a positive int, got {bad!r}"):
                graphs.orient(graph, {"a": 1, "b": bad})
        with pytest.raises(UnknownAgentError, match=r"\['b'\] that are not among \['a'\]"):
            graphs.orient(graph, {"a": 1})
        with pytest.raises(GraphError, match=r"\['c'\] are not in the graph"):
            graphs.orient(graph, {"a": 1, "b": 1, "c": 1})
