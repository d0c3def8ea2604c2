"""Oracles: the coboundary written out densely in NumPy, SciPy's null space, and hand arithmetic."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sheafed import graphs
from sheafed.errors import (
    DisconnectedGraphError,
    DtypeError,
    EmptyInputError,
    GraphError,
    InputError,
    ManifoldError,
    NonFiniteError,
    ShapeError,
    UnknownAgentError,
)
from sheafed.graphs import Edge
from sheafed.sheaf import sections
from sheafed.sheaf.network_sheaf import NetworkSheaf

fixed = settings(derandomize=True, deadline=None, max_examples=30)
seeds = st.integers(0, 10_000)


def isometry(rng, rows, columns):
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return torch.from_numpy(q * np.sign(np.diag(r)))


def random_sheaf(seed, *, rotations=True, consistent=False, agents=(1, 6), dims=(1, 6)):
    """A random sheaf; if consistent, its sections have the largest dimension, min d."""
    rng = np.random.default_rng(seed)
    names = [f"a{k}" for k in range(rng.integers(*agents, endpoint=True))]
    sizes = {name: int(rng.integers(*dims, endpoint=True)) for name in names}
    graph = graphs.erdos_renyi(names, 0.4, seed)
    smallest = min(sizes.values())
    frames = {name: isometry(rng, sizes[name], sizes[name]) for name in names}
    maps, turns = {}, {}
    for edge in graphs.orient(graph, sizes):
        rows, columns = sizes[edge.head], sizes[edge.tail]
        v = isometry(rng, rows, columns)
        if consistent:  # in the frames of its ends the map is the identity on the first `smallest`
            v = torch.zeros(rows, columns, dtype=torch.float64)
            v[:smallest, :smallest] = torch.eye(smallest)
            if columns > smallest:
                v[smallest:, smallest:] = isometry(rng, rows - smallest, columns - smallest)
            v = frames[edge.head] @ v @ frames[edge.tail].T
        turns[edge] = isometry(rng, rows, rows)
        maps[edge] = turns[edge] @ v if rotations else v
    return NetworkSheaf(graph, sizes, maps, turns if rotations else None)


def random_cochain(sheaf, seed, rows=None):
    generator = torch.Generator().manual_seed(seed)
    shape = () if rows is None else (rows,)
    return {
        name: torch.randn(*shape, d, generator=generator, dtype=torch.float64)
        for name, d in sheaf.dims.items()
    }


def dense_coboundary(sheaf):
    """Eq. coboundary, one row of blocks after the other."""
    names = sorted(sheaf.dims)
    start = {name: sum(sheaf.dims[other] for other in names if other < name) for name in names}
    delta = np.zeros((0, sum(sheaf.dims.values())))
    for edge in sorted(sheaf.maps):
        head, tail = edge
        d = sheaf.dims[head]
        block = np.zeros((d, delta.shape[1]))
        o = np.eye(d) if sheaf.rotations is None else sheaf.rotations[edge].numpy()
        block[:, start[head] : start[head] + d] = o
        block[:, start[tail] : start[tail] + sheaf.dims[tail]] -= sheaf.maps[edge].numpy()
        delta = np.vstack([delta, block])
    return delta


def stacked(sheaf, z):
    """`(n, sum d)`: the cochain with agents side by side in the order of their names."""
    return np.hstack([np.atleast_2d(z[name].numpy()) for name in sorted(sheaf.dims)])


def quadratic_form(sheaf, z):
    x, delta = stacked(sheaf, z), dense_coboundary(sheaf)
    return np.trace(x @ (delta.T @ delta) @ x.T)


def line_sheaf(seed, dims):
    names = [f"a{k}" for k in range(len(dims))]
    sizes = dict(zip(names, dims, strict=True))
    graph = graphs.line(names)
    rng = np.random.default_rng(seed)
    maps = {e: isometry(rng, sizes[e.head], sizes[e.tail]) for e in graphs.orient(graph, sizes)}
    return NetworkSheaf(graph, sizes, maps)


def count_sections(sheaf):
    return next(iter(sheaf.global_sections().values())).shape[0]


def rotation(d, angle):
    """Turn the second and third axes, fix the others."""
    turn = torch.eye(d, dtype=torch.float64)
    turn[1, 1] = turn[2, 2] = math.cos(angle)
    turn[2, 1] = math.sin(angle)
    turn[1, 2] = -math.sin(angle)
    return turn


def triangle(holonomy):
    """Three agents a, b, c in a ring whose transport a -> b -> c -> a is `holonomy`."""
    d = len(holonomy)
    rng = np.random.default_rng(d)
    ab, ac = isometry(rng, d, d), isometry(rng, d, d)
    # heads sort first: a is the head of (a, b) and (a, c), b of (b, c)
    bc = (ac.T @ holonomy @ ab).T  # from T_ac T_cb T_ba = H with T_ac = V_ac, T_ba = V_ab^T
    maps = {Edge("a", "b"): ab, Edge("a", "c"): ac, Edge("b", "c"): bc}
    return NetworkSheaf(graphs.ring(["a", "b", "c"]), dict.fromkeys("abc", d), maps)


class TestByHand:
    """Stalks of 2 and 1 dimensions: b embeds into a along the second axis."""

    sheaf = NetworkSheaf(
        graphs.line(["a", "b"]), {"a": 2, "b": 1}, {Edge("a", "b"): torch.tensor([[0.0], [1.0]])}
    )

    def test_operators(self):
        assert self.sheaf.coboundary().toarray().tolist() == [[1, 0, 0], [0, 1, -1]]
        assert self.sheaf.laplacian().toarray().tolist() == [[1, 0, 0], [0, 1, -1], [0, -1, 1]]

    def test_total_variation(self):
        z = {"a": torch.tensor([3.0, 5.0]), "b": torch.tensor([1.0])}
        assert self.sheaf.total_variation(z) == 9 + 16
        assert self.sheaf.total_variation_at(z, "a") == 12.5
        assert self.sheaf.edge_variation(z) == {Edge("a", "b"): 25}

    def test_transport(self):
        up = self.sheaf.transport(torch.tensor([7.0]), "b", "a")
        assert up.tolist() == [0, 7]
        assert self.sheaf.transport(torch.tensor([3.0, 5.0]), "a", "b").tolist() == [5]

    def test_sections(self):
        basis = self.sheaf.global_sections()
        torch.testing.assert_close(basis["a"], torch.tensor([[0, 0.5**0.5]], dtype=torch.float64))
        torch.testing.assert_close(basis["b"], torch.tensor([[0.5**0.5]], dtype=torch.float64))

    def test_repr(self):
        assert repr(self.sheaf) == "NetworkSheaf(2 agents, 1 edges, stalks of 1 to 2 dimensions)"


class TestOperators:
    @fixed
    @given(seeds, st.booleans())
    def test_coboundary_and_laplacian(self, seed, rotations):
        sheaf = random_sheaf(seed, rotations=rotations)
        delta = dense_coboundary(sheaf)
        for sparse, dense in ((sheaf.coboundary(), delta), (sheaf.laplacian(), delta.T @ delta)):
            assert sparse.format == "csr"
            assert sparse.dtype == np.float64
            np.testing.assert_allclose(sparse.toarray(), dense, atol=1e-14)

    def test_float32_maps_give_float64_operators(self):
        sheaf = TestByHand.sheaf
        assert sheaf.maps[Edge("a", "b")].dtype == torch.float32
        assert sheaf.coboundary().dtype == sheaf.laplacian().dtype == np.float64

    def test_identity_blocks_are_stored_sparsely(self):
        sheaf = line_sheaf(0, [5, 3])
        assert sheaf.coboundary().nnz == 5 + 15

    def test_one_agent(self):
        sheaf = NetworkSheaf(graphs.line(["a"]), {"a": 3}, {})
        assert sheaf.coboundary().shape == (0, 3)
        assert not sheaf.laplacian().toarray().any()
        assert sheaf.total_variation({"a": torch.ones(3)}) == 0
        assert sheaf.total_variation_at({"a": torch.ones(3)}, "a") == 0
        assert count_sections(sheaf) == 3
        assert sheaf.cycles() == ()


class TestTotalVariation:
    @fixed
    @given(seeds, st.booleans(), st.sampled_from([None, 1, 4]))
    def test_all_forms_agree(self, seed, rotations, rows):
        sheaf = random_sheaf(seed, rotations=rotations)
        z = random_cochain(sheaf, seed, rows)
        expected = quadratic_form(sheaf, z)
        assert sheaf.total_variation(z).shape == ()
        assert sheaf.total_variation(z).item() == pytest.approx(expected, abs=1e-12)
        by_agents = sum(sheaf.total_variation_at(z, name).item() for name in sheaf.names)
        assert by_agents == pytest.approx(expected, abs=1e-12)
        oriented = sheaf.reparameterised()
        assert oriented.total_variation(z).item() == pytest.approx(expected, abs=1e-12)
        assert sum(sheaf.edge_variation(z).values()) == pytest.approx(expected, abs=1e-12)
        x = stacked(sheaf, z)
        assert np.trace(x @ (sheaf.laplacian() @ x.T)) == pytest.approx(expected, abs=1e-12)

    @fixed
    @given(seeds)
    def test_at_an_agent_is_half_of_its_edges(self, seed):
        sheaf = random_sheaf(seed, agents=(2, 6))
        z = random_cochain(sheaf, seed, 3)
        for name in sheaf.names:
            y = dense_coboundary(sheaf) @ stacked(sheaf, z).T
            sizes = [sheaf.dims[edge.head] for edge in sheaf.edges]
            rows = np.repeat([name in edge for edge in sheaf.edges], sizes)
            expected = np.square(y[rows]).sum() / 2
            assert sheaf.total_variation_at(z, name).item() == pytest.approx(expected, abs=1e-12)

    def test_at_an_agent_reads_only_its_neighbours(self):
        sheaf = line_sheaf(0, [2, 3, 4, 3])
        z = random_cochain(sheaf, 0)
        local = {name: z[name] for name in ("a0", "a1", "a2")}
        assert sheaf.total_variation_at(local, "a1") == sheaf.total_variation_at(z, "a1")
        z["a3"] = torch.full((3,), math.nan, dtype=torch.float64)
        assert sheaf.total_variation_at(z, "a1") == sheaf.total_variation_at(local, "a1")

    @fixed
    @given(seeds)
    def test_gradient_is_twice_the_laplacian(self, seed):
        sheaf = random_sheaf(seed, agents=(2, 6))
        z = random_cochain(sheaf, seed)
        for value in z.values():
            value.requires_grad_()
        sheaf.total_variation(z).backward()
        gradient = np.concatenate([z[name].grad.numpy() for name in sheaf.names])
        values = stacked(sheaf, {name: value.detach() for name, value in z.items()})[0]
        delta = dense_coboundary(sheaf)
        np.testing.assert_allclose(gradient, 2 * delta.T @ delta @ values, atol=1e-12)

    @fixed
    @given(seeds)
    def test_reparameterisation_changes_nothing(self, seed):
        sheaf = random_sheaf(seed)
        other = sheaf.reparameterised()
        assert other.rotations is None
        for edge in sheaf.edges:
            expected = sheaf.rotations[edge].T @ sheaf.maps[edge]
            torch.testing.assert_close(other.maps[edge], expected)
        z = random_cochain(sheaf, seed, 2)
        torch.testing.assert_close(other.total_variation(z), sheaf.total_variation(z))
        np.testing.assert_allclose(
            other.laplacian().toarray(), sheaf.laplacian().toarray(), atol=1e-13
        )
        for head, tail in sheaf.edges:
            for ends in ((head, tail), (tail, head)):
                torch.testing.assert_close(other.transport_map(*ends), sheaf.transport_map(*ends))

    @fixed
    @given(seeds, st.randoms(use_true_random=False))
    def test_insertion_order_changes_nothing(self, seed, shuffler):
        sheaf = random_sheaf(seed, agents=(2, 6))
        z = random_cochain(sheaf, seed, 2)

        def shuffled(mapping):
            items = list(mapping.items())
            shuffler.shuffle(items)
            return dict(items)

        graph = nx.Graph()
        graph.add_nodes_from(shuffled(sheaf.dims))
        graph.add_edges_from(edge[::-1] for edge in shuffled(sheaf.maps))
        other = NetworkSheaf(
            graph, shuffled(sheaf.dims), shuffled(sheaf.maps), shuffled(sheaf.rotations)
        )
        assert other.names == sheaf.names
        assert other.edges == sheaf.edges
        assert other.cycles() == sheaf.cycles()
        assert torch.equal(other.total_variation(shuffled(z)), sheaf.total_variation(z))
        assert np.array_equal(other.coboundary().toarray(), sheaf.coboundary().toarray())
        found = other.global_sections()
        for name, basis in sheaf.global_sections().items():
            assert torch.equal(found[name], basis)

    def test_keeps_the_dtype_of_the_latents(self):
        sheaf = line_sheaf(0, [2, 3])
        z = {name: value.float() for name, value in random_cochain(sheaf, 0).items()}
        assert sheaf.total_variation(z).dtype == torch.float32
        assert sheaf.total_variation_at(z, "a0").dtype == torch.float32


class TestTransport:
    @fixed
    @given(seeds, st.booleans())
    def test_up_is_an_isometry_and_down_its_left_inverse(self, seed, rotations):
        sheaf = random_sheaf(seed, rotations=rotations)
        for head, tail in sheaf.edges:
            z = random_cochain(sheaf, seed, 4)[tail]
            up = sheaf.transport(z, tail, head)
            assert up.shape == (4, sheaf.dims[head])
            torch.testing.assert_close(up @ up.T, z @ z.T)
            torch.testing.assert_close(sheaf.transport(up, head, tail), z)

    @fixed
    @given(seeds, st.booleans())
    def test_satisfies_the_gluing_condition(self, seed, rotations):
        """O_ji T z = V_ij z for what goes up; what comes down is the closest point of the tail."""
        sheaf = random_sheaf(seed, rotations=rotations)
        for edge in sheaf.edges:
            z = random_cochain(sheaf, seed)
            o = sheaf.rotations[edge] if rotations else torch.eye(sheaf.dims[edge.head]).double()
            up = sheaf.transport(z[edge.tail], edge.tail, edge.head)
            torch.testing.assert_close(o @ up, sheaf.maps[edge] @ z[edge.tail])
            down = sheaf.transport(z[edge.head], edge.head, edge.tail)
            closest = torch.linalg.lstsq(sheaf.maps[edge], (o @ z[edge.head])[:, None]).solution
            torch.testing.assert_close(down, closest[:, 0])

    def test_keeps_batch_dimensions_and_dtype(self):
        sheaf = line_sheaf(0, [2, 3])
        z = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
        up = sheaf.transport(z, "a0", "a1")
        assert up.dtype == torch.float32
        assert up.shape == (4, 5, 3)
        torch.testing.assert_close(up[1, 2], sheaf.transport(z[1, 2], "a0", "a1"))

    def test_along_a_path_composes(self):
        sheaf = line_sheaf(1, [3, 5, 2, 4])
        z = random_cochain(sheaf, 0, 6)["a0"]
        v10, v12, v32 = (sheaf.maps[e] for e in [("a1", "a0"), ("a1", "a2"), ("a3", "a2")])
        expected = (v32 @ v12.T @ v10 @ z.T).T
        torch.testing.assert_close(sheaf.transport_along(z, ["a0", "a1", "a2", "a3"]), expected)
        assert torch.equal(sheaf.transport_along(z, ["a0"]), z)

    def test_is_differentiable(self):
        sheaf = line_sheaf(0, [2, 3])
        z = torch.ones(2, dtype=torch.float64, requires_grad=True)
        sheaf.transport(z, "a0", "a1").sum().backward()
        torch.testing.assert_close(z.grad, sheaf.maps[Edge("a1", "a0")].sum(0))

    def test_bad_input(self):
        sheaf = line_sheaf(0, [2, 3, 4])
        z = torch.ones(5, 2)
        with pytest.raises(GraphError, match=r"not neighbours.*along\(z, \['a0', 'a1', 'a2'\]\)"):
            sheaf.transport(z, "a0", "a2")
        with pytest.raises(GraphError, match="not neighbours"):
            sheaf.transport_along(z, ["a0", "a2"])
        with pytest.raises(ShapeError, match=r"'a0' must have 2 columns.*got shape \(5, 3\)"):
            sheaf.transport(torch.ones(5, 3), "a0", "a1")
        with pytest.raises(ShapeError, match="'a0' must have 2 columns"):
            sheaf.transport_along(torch.ones(5, 3), ["a0"])
        with pytest.raises(ShapeError, match=r"got \(\)"):
            sheaf.transport(torch.tensor(1.0), "a0", "a1")
        with pytest.raises(DtypeError, match="'a0' must be float32 or float64"):
            sheaf.transport(torch.ones(2, dtype=torch.long), "a0", "a1")
        with pytest.raises(DtypeError, match="must be a torch tensor, got list"):
            sheaf.transport([1.0, 2.0], "a0", "a1")
        with pytest.raises(NonFiniteError, match="agent 'a0' holds 1 non-finite"):
            sheaf.transport(torch.tensor([1.0, math.inf]), "a0", "a1")
        with pytest.raises(EmptyInputError, match="'a0' is empty"):
            sheaf.transport(torch.ones(0, 2), "a0", "a1")
        with pytest.raises(EmptyInputError, match="path is empty"):
            sheaf.transport_along(z, [])
        with pytest.raises(UnknownAgentError, match=r"unknown agents \['z'\]; the sheaf has"):
            sheaf.transport(z, "a0", "z")
        with pytest.raises(UnknownAgentError, match=r"unknown agents \['y', 'z'\]"):
            sheaf.transport_along(z, ["z", "y"])


class TestGlobalSections:
    @fixed
    @given(seeds, st.booleans(), st.booleans(), st.booleans())
    def test_spans_the_dense_null_space(self, seed, consistent, rotations, homogeneous):
        sheaf = random_sheaf(
            seed,
            consistent=consistent,
            rotations=rotations,
            agents=(1, 8),
            dims=(6, 6) if homogeneous else (1, 8),
        )
        basis = sheaf.global_sections()
        assert {name: tuple(b.shape[1:]) for name, b in basis.items()} == {
            name: (d,) for name, d in sheaf.dims.items()
        }
        found = stacked(sheaf, basis)
        delta = dense_coboundary(sheaf)
        expected = (
            scipy.linalg.null_space(delta, rcond=1e-8).T if len(delta) else np.eye(delta.shape[1])
        )
        assert found.shape == expected.shape
        np.testing.assert_allclose(found @ found.T, np.eye(len(found)), atol=1e-12)
        np.testing.assert_allclose(found.T @ found, expected.T @ expected, atol=1e-10)
        assert not consistent or len(found) == min(sheaf.dims.values())
        if len(found):
            assert sheaf.total_variation(basis).item() < 1e-20

    @pytest.mark.parametrize(
        ("sheaf", "dimension"),
        [
            pytest.param(line_sheaf(0, [4, 4, 4, 4]), 4, id="homogeneous line"),
            pytest.param(line_sheaf(0, [3, 5, 3]), 1, id="two planes of 3 meet in 5"),
            pytest.param(line_sheaf(0, [2, 5, 2]), 0, id="two planes of 2 miss in 5"),
            pytest.param(line_sheaf(0, [5, 3, 5]), 3, id="the smallest in the middle"),
            pytest.param(line_sheaf(0, [1, 1]), 1, id="two numbers"),
            pytest.param(line_sheaf(0, [7]), 7, id="one agent"),
        ],
    )
    def test_known_dimensions(self, sheaf, dimension):
        assert count_sections(sheaf) == dimension

    @fixed
    @given(seeds, st.integers(1, 6), st.integers(1, 8))
    def test_a_homogeneous_tree_has_d_sections(self, seed, d, agents):
        rng = np.random.default_rng(seed)
        names = [str(k) for k in range(agents)]
        pairs = [(names[k], names[rng.integers(k)]) for k in range(1, agents)]
        graph, dims = graphs.from_edges(pairs, names), dict.fromkeys(names, d)
        maps = {edge: isometry(rng, d, d) for edge in graphs.orient(graph, dims)}
        assert count_sections(NetworkSheaf(graph, dims, maps)) == d

    @fixed
    @given(seeds, st.integers(1, 4), st.lists(st.integers(4, 7), min_size=1, max_size=5))
    def test_a_star_around_the_smallest_has_min_d_sections(self, seed, centre, leaves):
        rng = np.random.default_rng(seed)
        dims = {"centre": centre} | {f"leaf{k}": d for k, d in enumerate(leaves)}
        graph = graphs.star(list(dims))
        maps = {e: isometry(rng, dims[e.head], dims[e.tail]) for e in graphs.orient(graph, dims)}
        assert count_sections(NetworkSheaf(graph, dims, maps)) == centre

    def test_a_kernel_of_high_multiplicity(self):
        sheaf = random_sheaf(3, consistent=True, agents=(10, 10), dims=(40, 60))
        basis = sheaf.global_sections()
        found = stacked(sheaf, basis)
        assert len(found) == min(sheaf.dims.values())
        assert sheaf.total_variation(basis).item() < 1e-20

    def test_repeats_until_nothing_is_left_and_does_not_depend_on_the_solver(self, monkeypatch):
        sheaf = random_sheaf(5, consistent=True, agents=(6, 6), dims=(5, 9))
        expected = sheaf.global_sections()
        eigsh, calls = sections.eigsh, []

        def one_at_a_time(operator, k, which, v0):
            calls.append(k)
            return eigsh(operator, k=1, which=which, v0=v0[::-1].copy())

        monkeypatch.setattr(sections, "eigsh", one_at_a_time)
        actual = sheaf.global_sections()
        smallest = min(sheaf.dims.values())
        assert calls == [*range(smallest + 1, 0, -1)]
        for name, basis in expected.items():
            torch.testing.assert_close(actual[name], basis, atol=1e-9, rtol=0)

    def test_is_lower_triangular_at_the_smallest_stalk(self):
        sheaf = random_sheaf(5, consistent=True, agents=(6, 6), dims=(5, 9))
        smallest = min(sheaf.names, key=lambda name: (sheaf.dims[name], name))
        values = sheaf.global_sections()[smallest].T
        assert (values.diagonal() > 0).all()
        torch.testing.assert_close(values, values.tril(), atol=1e-12, rtol=0)

    def test_near_sections_are_told_apart_by_the_tolerance(self):
        angle = 1e-3  # around the triangle: eigenvalues about (angle / 3)^2
        sheaf = triangle(rotation(5, angle))
        assert next(iter(sheaf.global_sections(1e-8).values())).shape[0] == 3
        assert next(iter(sheaf.global_sections(1e-6).values())).shape[0] == 5

    def test_float32_maps_have_sections(self):
        sheaf = random_sheaf(5, rotations=False, consistent=True, agents=(6, 6), dims=(5, 9))
        maps = {edge: v.float() for edge, v in sheaf.maps.items()}
        rounded = NetworkSheaf(sheaf.graph, sheaf.dims, maps)
        assert count_sections(rounded) == min(sheaf.dims.values())

    @pytest.mark.parametrize("dims", [[3, 3], [3, 3, 3, 3]], ids=["dense", "sparse"])
    def test_bad_tolerance(self, dims):
        sheaf = line_sheaf(0, dims)
        for bad in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(InputError, match="tolerance must be positive and finite"):
                sheaf.global_sections(bad)
        with pytest.raises(InputError, match=r"tolerance 4.0 is too coarse.*at most 3 dimensions"):
            sheaf.global_sections(4.0)

    def test_the_dense_route_checks_the_size_too(self):
        with pytest.raises(InputError, match=r"at least 2 eigenvalues.*at most 1 dimensions"):
            line_sheaf(0, [1, 1]).global_sections(5.0)


class TestHolonomy:
    def test_of_a_known_rotation(self):
        angle = 0.7
        turn = rotation(4, angle)
        sheaf = triangle(turn)
        holonomy = sheaf.holonomy(["a", "b", "c"])
        assert holonomy.cycle == ("a", "b", "c")
        torch.testing.assert_close(holonomy.matrix, turn)
        assert holonomy.deviation == pytest.approx(2 * abs(math.sin(angle / 2)) * 2**0.5 / 2)
        assert count_sections(sheaf) == 2  # the axes it fixes

    def test_of_the_identity(self):
        sheaf = triangle(torch.eye(4, dtype=torch.float64))
        assert sheaf.holonomy(["b", "c", "a"]).deviation < 1e-14
        assert count_sections(sheaf) == 4

    def test_of_minus_the_identity(self):
        sheaf = triangle(-torch.eye(3, dtype=torch.float64))
        assert sheaf.holonomy(["a", "b", "c"]).deviation == pytest.approx(2)
        assert count_sections(sheaf) == 0

    def test_backwards_is_the_transpose_and_closing_changes_nothing(self):
        sheaf = triangle(isometry(np.random.default_rng(0), 4, 4))
        there = sheaf.holonomy(["a", "b", "c"])
        back = sheaf.holonomy(["a", "c", "b"])
        torch.testing.assert_close(back.matrix, there.matrix.T)
        closed = sheaf.holonomy(["a", "b", "c", "a"])
        assert closed.cycle == there.cycle
        assert torch.equal(closed.matrix, there.matrix)

    def test_is_float64_for_float32_maps(self):
        sheaf = triangle(torch.eye(3, dtype=torch.float64))
        maps = {edge: v.float() for edge, v in sheaf.maps.items()}
        holonomy = NetworkSheaf(sheaf.graph, sheaf.dims, maps).holonomy(["a", "b", "c"])
        assert holonomy.matrix.dtype == torch.float64
        assert holonomy.deviation < 1e-6

    @fixed
    @given(seeds, st.booleans())
    def test_fixed_vectors_are_the_sections_of_a_ring(self, seed, consistent):
        rng = np.random.default_rng(seed)
        names = [f"a{k}" for k in range(rng.integers(3, 6))]
        dims = {name: int(d) for name, d in zip(names, rng.integers(3, 6, len(names)), strict=True)}
        graph = graphs.ring(names)
        maps = {}
        for head, tail in graphs.orient(graph, dims):
            v = isometry(rng, dims[head], dims[tail])
            if consistent:  # all maps share the first two axes
                v = torch.zeros(dims[head], dims[tail], dtype=torch.float64)
                v[:2, :2] = torch.eye(2)
                v[2:, 2:] = isometry(rng, dims[head] - 2, dims[tail] - 2)
            maps[Edge(head, tail)] = v
        sheaf = NetworkSheaf(graph, dims, maps)
        (cycle,) = sheaf.cycles()
        matrix = sheaf.holonomy(cycle).matrix.numpy()
        singular = np.linalg.svd(matrix - np.eye(len(matrix)), compute_uv=False)
        assert count_sections(sheaf) == np.count_nonzero(singular < 1e-7)

    @fixed
    @given(seeds)
    def test_is_what_transport_does(self, seed):
        sheaf = random_sheaf(seed, agents=(4, 7))
        for cycle in sheaf.cycles():
            z = random_cochain(sheaf, seed, 3)[cycle[0]]
            around = sheaf.transport_along(z, [*cycle, cycle[0]])
            holonomy = sheaf.holonomy(cycle)
            torch.testing.assert_close(around, z @ holonomy.matrix.T)
            d = sheaf.dims[cycle[0]]
            deviation = np.linalg.norm(holonomy.matrix.numpy() - np.eye(d)) / math.sqrt(d)
            assert holonomy.deviation == pytest.approx(deviation)

    @fixed
    @given(seeds)
    def test_cycles_are_a_basis(self, seed):
        sheaf = random_sheaf(seed, agents=(3, 8), dims=(1, 3))
        cycles = sheaf.cycles()
        assert len(cycles) == len(sheaf.edges) - len(sheaf.names) + 1
        assert list(cycles) == sorted(cycles)
        vectors = np.zeros((len(cycles), len(sheaf.edges)))
        undirected = [frozenset(edge) for edge in sheaf.edges]
        for row, cycle in enumerate(cycles):
            assert cycle[0] == min(cycle, key=lambda name: (sheaf.dims[name], name))
            assert cycle[1] < cycle[-1]
            assert len(set(cycle)) == len(cycle) >= 3
            for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
                vectors[row, undirected.index(frozenset(pair))] = 1
        if cycles:  # each closes an edge that no other one uses
            assert np.all(vectors[:, vectors.sum(0) == 1].any(axis=1))

    def test_cycles_of_a_known_graph(self):
        graph = graphs.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "d")])
        dims = {"a": 3, "b": 4, "c": 2, "d": 3}
        maps = {e: torch.eye(dims[e.head], dims[e.tail]) for e in graphs.orient(graph, dims)}
        sheaf = NetworkSheaf(graph, dims, maps)
        assert sheaf.cycles() == (("a", "b", "d"), ("c", "b", "a", "d"))

    def test_bad_cycles(self):
        sheaf = random_sheaf(0, agents=(4, 4))
        with pytest.raises(GraphError, match="at least 3 agents, got"):
            sheaf.holonomy(["a0", "a1"])
        with pytest.raises(GraphError, match="at least 3 agents"):
            sheaf.holonomy(["a0", "a1", "a0"])
        with pytest.raises(GraphError, match=r"at least 3 agents, got \[\]"):
            sheaf.holonomy([])
        with pytest.raises(GraphError, match=r"visits \['a1'\] again"):
            sheaf.holonomy(["a0", "a1", "a2", "a1"])
        with pytest.raises(UnknownAgentError, match=r"unknown agents \['x'\]"):
            sheaf.holonomy(["a0", "a1", "x"])
        with pytest.raises(GraphError, match="not neighbours"):
            line_sheaf(0, [2, 2, 2]).holonomy(["a0", "a1", "a2"])


class TestConstruction:
    dims = {"a": 3, "b": 2, "c": 2}  # noqa: RUF012
    graph = graphs.line(["a", "b", "c"])

    def maps(self, **changes):
        maps = {("a", "b"): torch.eye(3, 2), ("b", "c"): torch.eye(2)}
        return maps | {tuple(edge): v for edge, v in changes.items()}

    def test_is_sorted_and_read_only(self):
        sheaf = NetworkSheaf(graphs.line(["c", "b", "a"]), self.dims, self.maps())
        assert sheaf.names == ("a", "b", "c")
        assert sheaf.edges == (Edge("a", "b"), Edge("b", "c"))
        with pytest.raises(AttributeError):
            sheaf.dims = {}
        with pytest.raises(TypeError):
            sheaf.dims["a"] = 1
        with pytest.raises(TypeError):
            sheaf.maps[Edge("a", "b")] = torch.eye(3, 2)
        with pytest.raises(nx.NetworkXError):
            sheaf.graph.add_edge("a", "c")

    def test_copies_what_it_is_given(self):
        maps, graph, dims = self.maps(), graphs.line(["a", "b", "c"]), dict(self.dims)
        maps["a", "b"].requires_grad_()
        sheaf = NetworkSheaf(graph, dims, maps)
        with torch.no_grad():
            maps["a", "b"].zero_()
        graph.add_edge("a", "c")
        dims["a"] = 7
        assert torch.equal(sheaf.maps[Edge("a", "b")], torch.eye(3, 2))
        assert not sheaf.maps[Edge("a", "b")].requires_grad
        assert sheaf.graph.number_of_edges() == 2
        assert sheaf.dims == self.dims

    def test_bad_graph_or_dims(self):
        apart = nx.Graph([("a", "b")])
        apart.add_node("c")
        with pytest.raises(DisconnectedGraphError, match=r"\[\['a', 'b'\], \['c'\]\]"):
            NetworkSheaf(apart, self.dims, self.maps())
        with pytest.raises(UnknownAgentError, match=r"\['c'\] that are not among \['a', 'b'\]"):
            NetworkSheaf(self.graph, {"a": 3, "b": 2}, self.maps())
        with pytest.raises(InputError, match="'b' must be a positive int, got 0"):
            NetworkSheaf(self.graph, self.dims | {"b": 0}, self.maps())

    def test_maps_and_edges_must_match(self):
        maps = self.maps()
        del maps["b", "c"]
        with pytest.raises(GraphError, match=r"edges \[\('b', 'c'\)\] have no map"):
            NetworkSheaf(self.graph, self.dims, maps)
        with pytest.raises(GraphError, match=r"map of edge \(b, a\) runs against.*\(a, b\)"):
            NetworkSheaf(self.graph, self.dims, self.maps(ba=torch.eye(2, 3)))
        with pytest.raises(GraphError, match=r"\(a, c\), which is not an edge"):
            NetworkSheaf(self.graph, self.dims, self.maps(ac=torch.eye(3, 2)))
        with pytest.raises(UnknownAgentError, match=r"\['z'\] are not among the agents"):
            NetworkSheaf(self.graph, self.dims, self.maps(az=torch.eye(3, 2)))
        with pytest.raises(GraphError, match=r"edges \[\('b', 'c'\)\] have no rotation"):
            NetworkSheaf(self.graph, self.dims, self.maps(), {("a", "b"): torch.eye(3)})

    def test_maps_must_lie_on_their_manifolds(self):
        with pytest.raises(ShapeError, match=r"\(a, b\) must have shape \(3, 2\), got \(2, 3\)"):
            NetworkSheaf(self.graph, self.dims, self.maps(ab=torch.eye(2, 3)))
        with pytest.raises(ManifoldError, match=r"edge \(a, b\) is off.* by 3.00e\+00"):
            NetworkSheaf(self.graph, self.dims, self.maps(ab=2 * torch.eye(3, 2)))
        with pytest.raises(NonFiniteError, match=r"map of edge \(a, b\) holds 6 non-finite"):
            NetworkSheaf(self.graph, self.dims, self.maps(ab=torch.full((3, 2), math.nan)))
        with pytest.raises(DtypeError, match=r"map of edge \(b, c\) must be float32 or float64"):
            NetworkSheaf(self.graph, self.dims, self.maps(bc=torch.eye(2, dtype=torch.long)))

    def test_the_tolerance_suits_the_dtype(self):
        off = torch.eye(3, 2, dtype=torch.float64) * (1 + 1e-6)
        NetworkSheaf(self.graph, self.dims, self.maps(ab=off.float()))
        with pytest.raises(ManifoldError, match=r"edge \(a, b\)"):
            NetworkSheaf(self.graph, self.dims, self.maps(ab=off))

    def test_rotations_must_be_orthogonal(self):
        rotations = {("a", "b"): torch.eye(3), ("b", "c"): torch.eye(2)}
        NetworkSheaf(self.graph, self.dims, self.maps(), rotations)
        with pytest.raises(ManifoldError, match=r"rotation of edge \(b, c\)"):
            NetworkSheaf(
                self.graph, self.dims, self.maps(), rotations | {("b", "c"): torch.ones(2, 2)}
            )
        with pytest.raises(ShapeError, match=r"rotation of edge \(a, b\).*shape \(3, 3\)"):
            NetworkSheaf(
                self.graph, self.dims, self.maps(), rotations | {("a", "b"): torch.eye(3, 2)}
            )
        with pytest.raises(DtypeError, match=r"edge \(b, c\) must have one dtype"):
            NetworkSheaf(
                self.graph, self.dims, self.maps(), rotations | {("b", "c"): torch.eye(2).double()}
            )

    def test_bad_cochains(self):
        sheaf = NetworkSheaf(self.graph, self.dims, self.maps())
        z = {"a": torch.ones(4, 3), "b": torch.ones(4, 2), "c": torch.ones(4, 2)}
        sheaf.total_variation(z)
        for method in (
            sheaf.edge_variation,
            sheaf.total_variation,
            lambda z: sheaf.total_variation_at(z, "b"),
        ):
            with pytest.raises(InputError, match=r"no latents of agents \['a', 'c'\]"):
                method({"b": z["b"]})
            with pytest.raises(UnknownAgentError, match=r"unknown agents \['z'\]"):
                method(z | {"z": z["a"]})
            with pytest.raises(ShapeError, match="'b' must have 2 columns"):
                method(z | {"b": torch.ones(4, 3)})
            with pytest.raises(ShapeError, match=r"shapes \{.*'a': \(5, 3\)"):
                method(z | {"a": torch.ones(5, 3)})
            with pytest.raises(ShapeError, match=r"shapes \{.*'a': \(3,\)"):
                method(z | {"a": torch.ones(3)})
            with pytest.raises(ShapeError, match=r"shapes \{.*'a': \(2, 4, 3\)"):
                method({name: value.expand(2, *value.shape) for name, value in z.items()})
            with pytest.raises(DtypeError, match="one dtype"):
                method(z | {"a": z["a"].double()})
            with pytest.raises(NonFiniteError, match="'c' holds 8 non-finite"):
                method(z | {"c": torch.full((4, 2), math.nan)})
        with pytest.raises(UnknownAgentError, match=r"unknown agents \['x'\]"):
            sheaf.total_variation_at(z, "x")
