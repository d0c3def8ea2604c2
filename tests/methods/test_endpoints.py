"""The ends of edges: what leaves, how it is read, when and from what maps are fitted."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from sheafed import MapPolicy, SheafFRL
from sheafed.errors import InputError
from sheafed.linalg import procrustes
from sheafed.methods import IdentityMaps, NoWhitening
from sheafed.methods.endpoints import (
    EdgeEndpoint,
    PlainEndpoint,
    TransportEndpoint,
    endpoint_state,
    homogeneous_endpoint,
    load_endpoint_state,
    plain_endpoint,
    strict_endpoint,
)
from sheafed.methods.node import Node
from sheafed.methods.shared_solver import SharedSolver, solve
from sheafed.seeds import secret_stream
from sheafed.transport import decode, encode
from sheafed.transport.message import Message
from tests.helpers.matrices import misalignment, residual
from tests.helpers.rounds import handshake, misalignments, one_round
from tests.helpers.small_federations import (
    CountingSolver,
    MessageRecorder,
    agent,
    nodes_of,
    normal,
    orthonormal,
    run_rounds,
)

frozen = partial(SGD, lr=0.0)


def by_numpy(m: Tensor) -> Tensor:
    u, _, wt = np.linalg.svd(m.double().numpy(), full_matrices=False)
    return torch.from_numpy(u @ wt).to(m.dtype)


def over_the_wire(latents: Tensor) -> Tensor:
    message = Message("round", 0, "a", "b", {"latents": latents})
    return decode(encode(message).data).tensors["latents"]


def exchange(
    head: EdgeEndpoint, tail: EdgeEndpoint, a_head: Tensor, a_tail: Tensor, fit_number: int
) -> None:
    """One exchange: both send, then both fit to what they received."""
    to_tail, to_head = head.outgoing(a_head), tail.outgoing(a_tail)
    head.fit(head.cross(a_head, to_head), fit_number)
    tail.fit(tail.cross(a_tail, to_tail), fit_number)


# Plain ends


def test_plain_ends_by_hand() -> None:
    a_head, a_tail = normal(1, 40, 12), normal(2, 40, 7)
    head = plain_endpoint(12, 7, is_head=True, solver=solve)
    tail = plain_endpoint(7, 12, is_head=False, solver=solve)
    assert (head.width, tail.width) == (7, 12)
    assert torch.equal(head.outgoing(a_head), a_head)
    assert torch.equal(tail.outgoing(a_tail), a_tail)
    exchange(head, tail, a_head, a_tail, 0)
    v = by_numpy(a_head.mT @ a_tail)
    assert v.shape == (12, 7)
    torch.testing.assert_close(head.map, v, atol=1e-5, rtol=0)
    torch.testing.assert_close(head.incoming(a_tail), (v @ a_tail.mT).mT, atol=1e-4, rtol=0)
    torch.testing.assert_close(tail.incoming(a_head), (v.mT @ a_head.mT).mT, atol=1e-4, rtol=0)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_both_plain_ends_have_bitwise_the_same_map_from_the_same_messages(layout: str) -> None:
    random = np.random.default_rng(0)
    for trial in range(60):
        pilots = int(random.choice([2, 7, 33, 64, 128]))
        small, large = sorted(random.integers(1, 60, 2).tolist())
        a_head, a_tail = normal(trial, pilots, large), normal(1000 + trial, pilots, small)
        if layout == "transposed":
            a_head, a_tail = (x.mT.contiguous().mT for x in (a_head, a_tail))
        head = plain_endpoint(large, small, is_head=True, solver=solve)
        tail = plain_endpoint(small, large, is_head=False, solver=solve)
        at_head = head.cross(a_head, over_the_wire(tail.outgoing(a_tail)))
        at_tail = tail.cross(a_tail, over_the_wire(head.outgoing(a_head)))
        assert torch.equal(at_head, at_tail), (pilots, large, small)
        head.fit(at_head, 0)
        tail.fit(at_tail, 0)
        assert torch.equal(head.map, tail.map), (pilots, large, small)


@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_both_ends_of_a_trained_edge_hold_bitwise_the_same_map(source: str) -> None:
    agents = [agent("a", 5), agent("b", 9), agent("c", 5)]
    method = SheafFRL(maps=MapPolicy(source=source), pilots_per_round=20)
    nodes = nodes_of(agents, [("a", "b"), ("b", "c"), ("a", "c")], method)
    run_rounds(nodes, 6)
    for name, node in nodes.items():
        for j, endpoint in node.endpoints.items():
            assert isinstance(endpoint, PlainEndpoint)
            assert torch.equal(endpoint.map, nodes[j].endpoints[name].map)


class Transposing(torch.nn.Module):
    """Gives latents that are a transposed view, as e.g. `x[:, :, 0].T` does."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mT.contiguous().mT


def test_views_as_latents_do_not_tear_the_ends_apart() -> None:
    agents = [agent("a", 33), agent("b", 17)]
    for a in agents:
        a.encoder.append(Transposing())
    nodes = nodes_of(agents, [("a", "b")], SheafFRL(whitening=NoWhitening(), pilots_per_round=33))
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for round in range(8):
        one_round(nodes, recorder.transport, round)
        assert torch.equal(nodes["a"].endpoints["b"].map, nodes["b"].endpoints["a"].map)


def test_the_head_is_the_larger_and_on_ties_the_first_by_name() -> None:
    agents = [agent("z", 9), agent("m", 5), agent("a", 5)]
    nodes = nodes_of(agents, [("z", "m"), ("m", "a"), ("a", "z")])
    run_rounds(nodes, 1)
    assert tuple(nodes["z"].edge("a")) == tuple(nodes["a"].edge("z")) == ("z", "a")
    assert tuple(nodes["m"].edge("a")) == tuple(nodes["a"].edge("m")) == ("a", "m")
    # On a tie the map carries the tail into the head's space, at both ends.
    nodes = nodes_of([agent("z", 9), agent("m", 5), agent("a", 5)], [("z", "m"), ("m", "a")])
    recorder = run_rounds(nodes, 1)
    sent = recorder.of_round(0)
    a_a, a_m = sent["a", "m"].tensors["latents"], sent["m", "a"].tensors["latents"]
    v = by_numpy(a_a.mT @ a_m)
    torch.testing.assert_close(nodes["a"].endpoints["m"].map, v, atol=1e-4, rtol=0)
    torch.testing.assert_close(nodes["m"].endpoints["a"].incoming(a_a), a_a @ v, atol=1e-3, rtol=0)
    torch.testing.assert_close(
        nodes["a"].endpoints["m"].incoming(a_m), a_m @ v.mT, atol=1e-3, rtol=0
    )


# Transporting ends


def test_transporting_ends_by_hand() -> None:
    r, own = orthonormal(3, 12, 7), normal(4, 20, 7)
    received = normal(5, 20, 12)
    endpoint = TransportEndpoint(r, turn="always", fitted=False, solver=solve)
    assert endpoint.width == 12
    torch.testing.assert_close(endpoint.outgoing(own), (r @ own.mT).mT)
    torch.testing.assert_close(endpoint.incoming(received), (r.mT @ received.mT).mT)
    torch.testing.assert_close(endpoint.incoming(endpoint.outgoing(own)), own)
    m = endpoint.cross(own, received)
    torch.testing.assert_close(m, received.mT @ own)
    endpoint.fit(m, 5)
    assert endpoint.fitted
    torch.testing.assert_close(endpoint.map, by_numpy(received.mT @ own), atol=1e-5, rtol=0)


def test_homogeneous_ends_glue_in_one_fit_and_only_the_tail_fits() -> None:
    a_head, a_tail = normal(1, 40, 7), normal(2, 40, 7)
    counting = CountingSolver()
    head = homogeneous_endpoint(7, is_head=True, solver=counting)
    tail = homogeneous_endpoint(7, is_head=False, solver=counting)
    assert (head.in_frame, tail.in_frame) == (True, False)
    for fit_number in range(3):
        exchange(head, tail, a_head, a_tail, fit_number)
        assert torch.equal(head.map, torch.eye(7))
        torch.testing.assert_close(tail.map, procrustes(a_head, a_tail), atol=1e-5, rtol=0)
    assert counting.shapes == 3 * [(7, 7)]
    assert tail.in_frame
    carried = head.incoming(tail.outgoing(a_tail))
    optimum = residual(a_head, a_tail, procrustes(a_head, a_tail))
    torch.testing.assert_close((a_head - carried).square().sum(), optimum)


def test_secret_maps_are_isometries_and_differ_from_secret_to_secret() -> None:
    maps = []
    for seed in range(4):
        stream = secret_stream(seed)
        endpoint = strict_endpoint(7, 12, is_head=False, secret=stream, solver=solve)
        assert endpoint.map.shape == (12, 7)
        gram = (endpoint.map.mT @ endpoint.map).float()
        torch.testing.assert_close(gram, torch.eye(7), atol=1e-6, rtol=0)
        maps.append(endpoint.map)
        stream = secret_stream(seed)
        square = strict_endpoint(12, 7, is_head=True, secret=stream, solver=solve)
        assert square.map.shape == (12, 12)
        maps.append(square.map[:, :7])
    distances = [float((x - y).norm()) for k, x in enumerate(maps) for y in maps[:k]]
    assert min(distances) > 0.5
    assert min(float((x - torch.eye(12, 7)).norm()) for x in maps) > 0.5


def test_secret_maps_are_uniform_in_sign() -> None:
    """QR as LAPACK has it gives the 1 x 1 matrix 1, always, and one sign of determinant."""
    signs = {1: [], 4: []}
    for seed in range(60):
        for d, found in signs.items():
            stream = secret_stream(seed)
            endpoint = strict_endpoint(d, d, is_head=True, secret=stream, solver=solve)
            found.append(float(torch.linalg.det(endpoint.map)))
    for found in signs.values():
        assert sorted({round(x, 5) for x in found}) == [-1.0, 1.0]
        assert 15 <= sum(x > 0 for x in found) <= 45


def test_strict_maps_of_one_agent_differ_from_neighbour_to_neighbour() -> None:
    nodes = nodes_of(
        [agent("a", 6), agent("b", 5), agent("c", 4)],
        [("a", "b"), ("a", "c")],
        SheafFRL(privacy="strict"),
    )
    handshake(nodes, MessageRecorder(nodes).transport)
    assert float((nodes["a"].endpoints["b"].map - nodes["a"].endpoints["c"].map).norm()) > 0.5


def test_the_state_of_an_end_goes_there_and_back() -> None:
    def make(seed: int) -> EdgeEndpoint:
        stream = secret_stream(seed)
        return strict_endpoint(7, 12, is_head=False, secret=stream, solver=solve)

    endpoint, other = make(0), make(1)
    endpoint.fit(normal(6, 12, 7), 0)
    load_endpoint_state(other, endpoint_state(endpoint))
    assert torch.equal(endpoint.map, other.map)
    assert (other.fitted, other.in_frame) == (True, True)


def strict_residuals(
    a_head: Tensor, a_tail: Tensor, head_turn: str, tail_turn: str, fits: int
) -> list[float]:
    """The residual of an edge after each fit, on latents that do not change."""
    large, small = a_head.shape[1], a_tail.shape[1]
    head = TransportEndpoint(
        orthonormal(11, large, large), turn=head_turn, fitted=True, solver=solve
    )
    tail = TransportEndpoint(
        orthonormal(12, large, small), turn=tail_turn, fitted=False, solver=solve
    )
    found = []
    for fit_number in range(fits):
        exchange(head, tail, a_head, a_tail, fit_number)
        glued = head.outgoing(a_head) - tail.outgoing(a_tail)
        found.append(float(glued.square().sum()))
    return found


@pytest.mark.parametrize(("large", "small"), [(12, 7), (9, 9)])
def test_strict_fits_do_not_converge_as_printed_and_do_at_once_in_turn(
    large: int, small: int
) -> None:
    """Why this library departs from alg:sheaf_frl_1comm_stringent_privacy.

    As printed, both ends refit at once, each to the other's PREVIOUS message, so that the two
    maps swap for ever. One after the other, the first fit is already optimal.
    """
    shared = normal(21, 200, large)
    a_head = shared @ orthonormal(22, large, large) + 0.3 * normal(23, 200, large)
    a_tail = (shared @ orthonormal(24, large, large))[:, :small]
    optimum = float(residual(a_head, a_tail, procrustes(a_head, a_tail)))

    printed = strict_residuals(a_head, a_tail, "always", "always", fits=50)
    assert min(printed) > 2 * optimum
    assert printed[-1] > 0.9 * printed[1]  # no progress either

    in_turn = strict_residuals(a_head, a_tail, "odd", "even", fits=50)
    assert in_turn == pytest.approx([optimum] * 50, rel=1e-4)


# When


@pytest.mark.parametrize("rounds_per_epoch", [1, 4, 7])
@pytest.mark.parametrize("every", [1, 2, 3, 5, "epoch"])
def test_fit_numbers_count_the_fits(every: int | str, rounds_per_epoch: int) -> None:
    policy = MapPolicy(every=every)
    period = rounds_per_epoch if every == "epoch" else every
    number = 0
    for round in range(40):
        found = policy.fit_number(round, rounds_per_epoch)
        if round == 0 or (round + 1) % period == 0:
            assert found == number, round
            number += 1
        else:
            assert found is None, round


def test_an_epochs_last_round_fits() -> None:
    policy = MapPolicy(every="epoch")
    assert [r for r in range(15) if policy.fit_number(r, 5) is not None] == [0, 4, 9, 14]


@pytest.mark.parametrize("every", [0, -1, 1.5, "round", None])
def test_a_bad_cadence_is_refused(every: object) -> None:
    with pytest.raises(InputError, match=r"every must be .* or 'epoch'"):
        MapPolicy(every=every)


def test_bad_sources_and_decays_are_refused() -> None:
    with pytest.raises(InputError, match=r"source must be .* got 'pilots'"):
        MapPolicy(source="pilots")
    with pytest.raises(InputError, match=r"decay must be at most 1, got 1.5"):
        MapPolicy(decay=1.5)


# From what


def pair(method: SheafFRL) -> dict[str, Node]:
    return nodes_of([agent("a", 9), agent("b", 5)], [("a", "b")], method)


def recorded_maps(nodes: dict[str, Node], rounds: int) -> tuple[MessageRecorder, list[Tensor]]:
    recorder, maps = MessageRecorder(nodes), []
    handshake(nodes, recorder.transport)
    for round in range(rounds):
        one_round(nodes, recorder.transport, round)
        maps.append(nodes["a"].endpoints["b"].map)
        assert torch.equal(maps[-1], nodes["b"].endpoints["a"].map)
    return recorder, maps


def crosses(recorder: MessageRecorder, rounds: int, tensor: str) -> list[Tensor | None]:
    """What the messages of each round say of the cross-covariance."""
    found: list[Tensor | None] = []
    for round in range(rounds):
        sent = recorder.of_round(round)
        head, tail = sent["a", "b"].tensors, sent["b", "a"].tensors
        known = tensor in head and tensor in tail
        found.append(head[tensor].double().mT @ tail[tensor].double() if known else None)
    return found


@pytest.mark.parametrize("every", [1, 3, "epoch"])
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_maps_come_from_their_source_at_their_time(source: str, every: int | str) -> None:
    policy, rounds = MapPolicy(every=every, source=source, decay=0.7), 9
    nodes = pair(SheafFRL(maps=policy, pilots_per_round=24))
    recorder, maps = recorded_maps(nodes, rounds)
    ms = crosses(recorder, rounds, "all" if source == "all" else "latents")
    if source == "running":  # the decayed sum, by hand
        ms = [sum(0.7 ** (t - s) * ms[s] / 24 for s in range(t + 1)) for t in range(rounds)]
    previous = None
    for round, (m, found) in enumerate(zip(ms, maps, strict=True)):
        if policy.fit_number(round, 4) is None:
            assert found is previous
            assert source != "all" or m is None  # the whole pilot set is sent at fits only
        else:
            assert m is not None
            expected = by_numpy(m).to(found.dtype)
            torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)
        previous = found
    if source == "running":
        torch.testing.assert_close(
            nodes["a"].map_updates.running["b"].double(), ms[-1], atol=1e-4, rtol=1e-4
        )


def test_all_pilots_are_those_of_the_inference_mode() -> None:
    nodes = pair(SheafFRL(maps=MapPolicy(source="all"), pilots_per_round=24))
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    messages = list(nodes["a"].send(0))
    assert messages[0].tensors["all"].shape == (48, 9)
    assert torch.equal(messages[0].tensors["all"], nodes["a"].white_pilots())


def test_a_running_sum_skips_lost_rounds() -> None:
    nodes = pair(SheafFRL(maps=MapPolicy(decay=0.5), pilots_per_round=24))
    recorder = run_rounds(
        nodes, 3, MessageRecorder(nodes, drop=lambda m: m.round == 1 and m.kind == "round")
    )
    first, _, last = crosses(recorder, 3, "latents")
    expected = (0.5 * first + last) / 24
    torch.testing.assert_close(
        nodes["b"].map_updates.running["a"].double(), expected, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("dims", [(5, 5), (9, 5)])
def test_identity_maps_are_never_fitted(dims: tuple[int, int]) -> None:
    counting = CountingSolver()
    agents = [agent(name, d) for name, d in zip("ab", dims, strict=True)]
    nodes = nodes_of(agents, [("a", "b")], SheafFRL(maps=IdentityMaps(), solver=counting))
    recorder = run_rounds(nodes, 5)
    assert counting.shapes == []
    for node in nodes.values():
        (endpoint,) = node.endpoints.values()
        assert torch.equal(endpoint.map, torch.eye(*endpoint.map.shape))
    sent = recorder.of_round(4)["b", "a"].tensors["latents"]
    padded = torch.zeros(len(sent), dims[0])
    padded[:, : dims[1]] = sent
    assert torch.equal(nodes["a"].endpoints["b"].incoming(sent), padded)


def test_identity_maps_are_no_privacy() -> None:
    with pytest.raises(InputError, match="under strict privacy they would send the raw latents"):
        SheafFRL(privacy="strict", maps=IdentityMaps())


# Solving once


def test_the_shared_solver_gives_what_solve_gives_and_solves_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting = CountingSolver()
    monkeypatch.setattr("sheafed.methods.shared_solver.solve", counting)
    shared, previous = SharedSolver(), torch.eye(9, 5)
    problems = [normal(seed, 9, 5) for seed in range(6)]
    for m in problems:
        assert torch.equal(shared(m, previous), solve(m, previous))
    assert len(counting.shapes) == 6
    for m in reversed(problems):  # the other ends, in another order
        assert torch.equal(shared(m, previous), solve(m, previous))
    assert len(counting.shapes) == 6
    shared(problems[0], previous)  # a third time is a new problem of a new edge
    assert len(counting.shapes) == 7


def test_the_shared_solver_heeds_the_previous_map() -> None:
    shared = SharedSolver()
    m = torch.zeros(4, 3)
    m[0, 0] = 1.0  # of rank 1: the rest follows the previous map
    for previous in (torch.eye(4, 3), orthonormal(1, 4, 3), orthonormal(2, 4, 3)):
        assert torch.equal(shared(m, previous), solve(m, previous))


def test_the_shared_solver_forgets() -> None:
    problems = [normal(seed, 5, 2) for seed in range(20)]
    shared, previous = SharedSolver(remembered=3 * 3 * problems[0].nbytes), torch.eye(5, 2)
    for m in problems:
        shared(m, previous)
        assert len(shared._waiting) <= 3
    assert len(shared._waiting) == 3


def test_the_shared_solver_keeps_one_problem_of_an_edge_whose_other_end_is_elsewhere() -> None:
    """As in a network of peers, where it would remember every round until its bytes are used up."""
    shared, maps = SharedSolver(), [torch.eye(5, 2), torch.eye(6, 3)]
    for round in range(50):
        for edge, (d, e) in enumerate(((5, 2), (6, 3))):
            maps[edge] = shared(normal(100 * round + edge, d, e), maps[edge])
    assert len(shared._waiting) == len(shared._problems) == 2
    assert shared._bytes == 3 * (5 * 2 + 6 * 3) * torch.eye(1).nbytes


def test_the_shared_solver_does_not_mistake_one_problem_for_another() -> None:
    shared, previous = SharedSolver(), torch.eye(5, 2)
    m = normal(1, 5, 2)
    swapped = m.flip(0)  # the same sum, another problem
    for problem in (m, swapped, m, swapped):
        assert torch.equal(shared(problem, previous), solve(problem, previous))


@pytest.mark.parametrize("privacy", ["standard", "strict"])
@pytest.mark.parametrize("dims", [(9, 5, 6), (6, 6, 6)])
def test_sharing_changes_nothing_and_keeps_nothing(
    dims: tuple[int, ...], privacy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingSolver()
    monkeypatch.setattr("sheafed.methods.shared_solver.solve", counting)
    found = []
    for solver in (SharedSolver(), solve):
        agents = [agent(name, d) for name, d in zip("abc", dims, strict=True)]
        method = SheafFRL(privacy=privacy, solver=solver)
        nodes = nodes_of(agents, [("a", "b"), ("b", "c"), ("a", "c")], method)
        run_rounds(nodes, 4)
        found.append(
            {
                (n, j): endpoint.map
                for n, node in nodes.items()
                for j, endpoint in node.endpoints.items()
            }
        )
        if isinstance(solver, SharedSolver):
            assert not solver._waiting
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
    if privacy == "standard" and len(set(dims)) > 1:
        assert len(counting.shapes) == 3 * 4  # once per edge and round, for two ends


# The strict protocol in the round loop


@pytest.mark.parametrize("dims", [(9, 5), (6, 6)])
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_strict_maps_are_as_good_as_standard_ones_on_fixed_latents(
    source: str, dims: tuple[int, int]
) -> None:
    """Above all: nothing may remember what arrived in the frame of an unfitted end."""
    found = {}
    for privacy in ("standard", "strict"):
        agents = [agent(n, d, optimizer=frozen) for n, d in zip("ab", dims, strict=True)]
        method = SheafFRL(privacy=privacy, maps=MapPolicy(source=source), pilots_per_round=32)
        nodes = nodes_of(agents, [("a", "b")], method)
        recorder, found[privacy], best = MessageRecorder(nodes), [], []
        handshake(nodes, recorder.transport)
        for round in range(12):
            one_round(nodes, recorder.transport, round)
            found[privacy].append(misalignments(nodes)["a", "b"])
            head, tail = (nodes[name].white_pilots() for name in "ab")
            best.append(float(misalignment(head, tail, procrustes(head, tail))))
    if source == "all":
        assert found["strict"] == pytest.approx(best, rel=1e-3)
    if source != "running":
        assert found["strict"] == pytest.approx(found["standard"], rel=1e-3)
    assert all(x < 1.25 * y for x, y in zip(found["strict"], best, strict=True))


def test_strict_ends_fit_in_turn_tail_first() -> None:
    solvers = {"a": CountingSolver(), "b": CountingSolver()}
    methods = {n: SheafFRL(privacy="strict", solver=s) for n, s in solvers.items()}
    nodes = nodes_of([agent("a", 9), agent("b", 5)], [("a", "b")], methods)
    recorder, counts = MessageRecorder(nodes), []
    handshake(nodes, recorder.transport)
    for round in range(6):
        one_round(nodes, recorder.transport, round)
        counts.append((len(solvers["a"].shapes), len(solvers["b"].shapes)))
    assert counts == [(0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)]
    assert set(solvers["a"].shapes) == {(9, 9)}
    assert set(solvers["b"].shapes) == {(9, 5)}
