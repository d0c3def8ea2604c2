"""Agents that are not neighbours, against the sheaf's own transports and a direct computation."""

import itertools

import pytest
import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, GraphError, InputError, UnknownAgentError
from sheafed.graphs import Edge
from sheafed.methods import IdentityMaps, MapPolicy, NonCooperative, NoWhitening, SheafFRL
from sheafed.sheaf.holonomy import Holonomy
from sheafed.training import Network, train
from sheafed.training.multi_hop import (
    composed_map,
    direct_map,
    find_path,
    mismatches,
    path_holonomy,
    path_link,
)
from tests.helpers.federations import EDGES, METHODS, agents, pilots, simple_agent, start

LINE = [("a", "b"), ("b", "c"), ("c", "d")]
ALL = MapPolicy(source="all")
ENDS = {
    "standard": (SheafFRL(pilots_per_round=12), (5, 2, 4, 5)),
    "homogeneous": (SheafFRL(pilots_per_round=12), (4, 4, 4, 4)),
    "strict": (SheafFRL(pilots_per_round=12, privacy="strict"), (5, 2, 4, 5)),
    "strict, equal": (SheafFRL(pilots_per_round=12, privacy="strict"), (4, 4, 4, 4)),
    "post hoc": (NonCooperative(), (3, 5, 4, 2)),
    "post hoc, strict": (NonCooperative(privacy="strict"), (3, 5, 4, 4)),
}


def run_of(method, dims: tuple[int, ...], edges=LINE) -> Network:
    team = [simple_agent(n, d, seed) for seed, (n, d) in enumerate(zip("abcd", dims, strict=True))]
    return train(team, edges, method, pilots(), epochs=2, oracle=False)


@pytest.fixture(scope="module", params=ENDS)
def run(request: pytest.FixtureRequest) -> Network:
    return run_of(*ENDS[request.param])


def latents(run: Network, name: str) -> Tensor:
    d = run.agents[name].dimension
    return torch.randn(6, d, generator=torch.Generator().manual_seed(3))


def test_a_message_is_whitened_carried_along_the_sheaf_and_coloured(run: Network) -> None:
    for sender, receiver in itertools.permutations("abcd", 2):
        step = 1 if sender < receiver else -1
        path = [chr(c) for c in range(ord(sender), ord(receiver) + step, step)]
        z = latents(run, sender)
        white = run.nodes[sender].whitening.eval()(z)
        expected = (
            run.nodes[receiver].whitening.eval().colour(run.sheaf.transport_along(white, path))
        )
        found = run.send(z, sender, receiver)  # on a line there is one path
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(run.send(z, sender, receiver, path), found)
        carried = run.sheaf.transport_along(torch.eye(z.shape[1]), path)
        torch.testing.assert_close(composed_map(run.nodes, path), carried.mT, atol=1e-4, rtol=0)


def test_neighbours_talk_as_in_the_evaluation(run: Network) -> None:
    z = latents(run, "b")
    sent = run.nodes["b"].transmit(z, "c")
    assert torch.equal(run.send(z, "b", "c"), run.nodes["c"].interpret(sent, "b"))
    assert torch.equal(run.send(z, "b", "b"), z)


def test_neighbours_talk_directly_even_if_a_detour_promises_more() -> None:
    run = run_of(
        SheafFRL(pilots_per_round=12, maps=ALL), (5, 5, 5, 5), [*LINE, ("a", "c"), ("b", "d")]
    )
    worst = max(mismatches(run.nodes), key=mismatches(run.nodes).get)
    # A map that is wrong on purpose: any detour has less mismatch.
    run.nodes[worst.tail].endpoints[worst.head].map = (
        -run.nodes[worst.tail].endpoints[worst.head].map
    )
    assert find_path(run.nodes, *worst) == list(worst)
    z = latents(run, worst.head)
    sent = run.nodes[worst.head].transmit(z, worst.tail)
    assert torch.equal(run.send(z, *worst), run.nodes[worst.tail].interpret(sent, worst.head))
    with pytest.raises(UnknownAgentError, match="'z'"):
        find_path(run.nodes, "z", "a")


def test_the_mismatch_is_the_residual_in_the_smaller_space(run: Network) -> None:
    found = mismatches(run.nodes)
    assert set(found) == set(run.sheaf.edges)
    white = {name: node.white_pilots() for name, node in run.nodes.items()}
    for edge, value in found.items():
        own, read = white[edge.tail], run.sheaf.transport(white[edge.head], *edge)
        expected = (own - read).square().sum() / (own.square().sum() + read.square().sum())
        assert value == pytest.approx(float(expected), rel=1e-3)


def test_a_message_can_be_forwarded_by_methods_with_other_ends() -> None:
    run = start("projections", epochs=1, oracle=False)
    ada, bob, cyd = (run.nodes[name] for name in ("ada", "bob", "cyd"))
    z = latents(run, "ada")
    sent = z @ ada.projection.mT
    passed_on = sent @ torch.linalg.pinv(bob.projection).mT @ bob.projection.mT
    expected = passed_on @ torch.linalg.pinv(cyd.projection).mT
    torch.testing.assert_close(run.send(z, "ada", "cyd"), expected, atol=1e-4, rtol=1e-3)


# Routing

DIAMOND = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")]


def test_the_route_avoids_the_smaller_stalk() -> None:
    run = run_of(SheafFRL(pilots_per_round=24, maps=ALL), (6, 1, 6, 6), DIAMOND)
    assert find_path(run.nodes, "a", "d") == ["a", "c", "d"]
    z = latents(run, "a")
    assert torch.equal(run.send(z, "a", "d"), path_link(run.nodes, ["a", "c", "d"])(z))
    assert not torch.allclose(run.send(z, "a", "d"), run.send(z, "a", "d", ["a", "b", "d"]))


def test_edges_of_zeros_count_as_lost() -> None:
    run = run_of(SheafFRL(maps=IdentityMaps(), whitening=NoWhitening()), (3, 3, 3, 3), DIAMOND)
    for parameter in run.agents["b"].encoder.parameters():
        torch.nn.init.zeros_(parameter)
    for parameter in run.agents["a"].encoder.parameters():
        torch.nn.init.zeros_(parameter)
    assert mismatches(run.nodes)[Edge("a", "b")] == 1.0


# Holonomy


def holonomy_of(run: Network, path: str) -> Holonomy:
    composed = composed_map(run.nodes, path)
    white = (run.nodes[name].white_pilots() for name in (path[0], path[-1]))
    return path_holonomy(path, composed, direct_map(*white, composed))


def test_holonomy_is_nothing_where_the_path_is_the_direct_map() -> None:
    """Fitted after training on all pilots, an edge's map is the direct map."""
    run = run_of(NonCooperative(), (3, 5, 4, 2))
    for path in ("ab", "ba", "bc", "dc"):
        found = holonomy_of(run, path)
        assert found.deviation == pytest.approx(0, abs=1e-3)
        assert len(found.matrix) == min(run.agents[name].dimension for name in path)


def test_holonomy_is_that_of_the_closed_cycle(run: Network) -> None:
    """An edge between the two ends, fitted on the same pilots, closes a cycle of the sheaf."""
    for path in ("abcd", "dcba", "bcd", "cba"):
        white = [run.nodes[name].white_pilots().double() for name in (path[0], path[-1])]
        smaller, larger = sorted(white, key=lambda w: w.shape[1])
        u, _, vt = torch.linalg.svd(larger.mT @ smaller, full_matrices=False)
        composed = composed_map(run.nodes, path).double()
        is_up = white[1].shape[1] >= white[0].shape[1]
        matrix = (u @ vt).mT @ composed if is_up else composed @ (u @ vt)
        if white[0].shape == white[1].shape:
            u, _, vt = torch.linalg.svd(white[1].mT @ white[0], full_matrices=False)
            matrix = (u @ vt).mT @ composed
        found = holonomy_of(run, path)
        torch.testing.assert_close(found.matrix, matrix, atol=1e-3, rtol=0)
        gap = torch.linalg.matrix_norm(matrix - torch.eye(len(matrix))) / len(matrix) ** 0.5
        assert found.deviation == pytest.approx(float(gap), abs=1e-3)


def test_a_bottleneck_shows_in_the_holonomy() -> None:
    run = run_of(SheafFRL(pilots_per_round=24, maps=ALL), (6, 1, 6, 6), DIAMOND)
    through, round_it = (holonomy_of(run, f"a{by}d") for by in "bc")
    assert through.deviation > (5 / 6) ** 0.5 - 1e-6  # five of six directions are gone
    assert round_it.deviation < through.deviation


# What cannot be


def test_what_is_asked_wrongly_is_named(run: Network) -> None:
    z = latents(run, "a")
    with pytest.raises(GraphError, match="'a' to 'c', which are not neighbours"):
        run.send(z, "a", "c", ["a", "c"])
    with pytest.raises(InputError, match="from 'a' to 'c' cannot be"):
        run.send(z, "a", "c", ["a", "b"])
    with pytest.raises(UnknownAgentError, match="'nobody'"):
        run.send(z, "a", "nobody")
    with pytest.raises(EmptyInputError, match="no hop"):
        holonomy_of(run, "a")


def test_a_run_of_several_processes_names_whose_maps_are_missing() -> None:
    run = train(agents(), EDGES, METHODS["alone"](), pilots(), epochs=1, oracle=False)
    del run.nodes["cyd"]
    with pytest.raises(InputError, match="'cyd'"):
        run.send(torch.zeros(1, 5), "ada", "bob")
