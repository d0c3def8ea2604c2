"""Edge stalks smaller than both latent spaces: the best projections, found from each other's."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from sheafed import Distillation, MapPolicy, SheafFRL, train
from sheafed.errors import HandshakeError, InputError, UndeterminedMapWarning
from sheafed.methods import DualAscent, IdentityMaps
from sheafed.methods.handshake import finish_handshake, hello_messages
from sheafed.methods.shared_solver import solve
from sheafed.methods.sheaf_frl.compressed_endpoints import CompressedEndpoint, compressed_endpoint
from sheafed.seeds import secret_stream
from tests.helpers.rounds import handshake, misalignments
from tests.helpers.small_federations import (
    MessageRecorder,
    agent,
    nodes_of,
    normal,
    pilots,
    run_rounds,
)

frozen = partial(SGD, lr=0.0)
K, LARGE, SMALL = 300, 12, 9


def white(z: Tensor) -> Tensor:
    u, _, wt = torch.linalg.svd(z - z.mean(0), full_matrices=False)
    return u @ wt


@cache
def latents() -> tuple[Tensor, Tensor]:
    """Two noisy views of one thing, white, `(K, d)`."""
    thing = normal(1, K, 20, dtype=torch.float64)
    views = [
        thing @ normal(seed, 20, d, dtype=torch.float64)
        + 2 * normal(seed + 10, K, d, dtype=torch.float64)
        for seed, d in ((2, LARGE), (3, SMALL))
    ]
    return white(views[0]), white(views[1])


def two_ends(edge_dim: int) -> tuple[CompressedEndpoint, CompressedEndpoint]:
    one, other = secret_stream(1), secret_stream(2)
    return (
        compressed_endpoint(LARGE, SMALL, edge_dim, is_head=True, secret=one, solver=solve),
        compressed_endpoint(SMALL, LARGE, edge_dim, is_head=False, secret=other, solver=solve),
    )


def exchange(head: CompressedEndpoint, tail: CompressedEndpoint, fit_number: int) -> float:
    """One exchange; return the trace that both want to be large."""
    a, b = latents()
    to_tail, to_head = head.outgoing(a), tail.outgoing(b)
    head.fit(head.cross(a, to_head), fit_number)
    tail.fit(tail.cross(b, to_tail), fit_number)
    return float((head.outgoing(a) * tail.outgoing(b)).sum())


def truncated(edge_dim: int) -> tuple[float, Tensor]:
    """The largest trace, and the map by which the head then reads the tail, by NumPy."""
    a, b = latents()
    u, s, wt = np.linalg.svd((a.mT @ b).numpy(), full_matrices=False)
    return s[:edge_dim].sum(), torch.from_numpy(u[:, :edge_dim] @ wt[:edge_dim])


@pytest.mark.parametrize("edge_dim", [1, 2, 5, 8])
def test_fits_in_turn_reach_the_truncated_svd(edge_dim: int) -> None:
    head, tail = two_ends(edge_dim)
    traces = [exchange(head, tail, number) for number in range(200)]
    best, reading = truncated(edge_dim)
    assert traces[0] < 0.95 * best
    assert min(np.diff(traces)) > -1e-12
    assert traces[-1] == pytest.approx(best, abs=1e-4)
    torch.testing.assert_close(head.map.mT @ tail.map, reading, atol=3e-2, rtol=0)
    for endpoint in (head, tail):
        torch.testing.assert_close(endpoint.map @ endpoint.map.mT, torch.eye(edge_dim).double())


def test_simultaneous_fits_do_not_converge() -> None:
    head, tail = two_ends(3)
    for endpoint in (head, tail):
        endpoint._turn = "always"
    assert exchange(head, tail, 0) < 0.8 * truncated(3)[0]
    assert all(exchange(head, tail, number) < 0.8 * truncated(3)[0] for number in range(100))


@pytest.mark.parametrize("edge_dim", [SMALL, 50])
def test_a_stalk_of_the_smaller_size_loses_nothing(edge_dim: int) -> None:
    """One fit of each end, and the head reads by the Procrustes map."""
    head, tail = two_ends(edge_dim)
    assert (head.width, tail.width) == (SMALL, SMALL)
    assert (tuple(head.map.shape), tuple(tail.map.shape)) == ((SMALL, LARGE), (SMALL, SMALL))
    exchange(head, tail, 0)
    best, procrustes = truncated(SMALL)
    assert exchange(head, tail, 1) == pytest.approx(best)
    torch.testing.assert_close(head.map.mT @ tail.map, procrustes)


def test_what_arrives_is_read_with_zero_outside_the_stalk() -> None:
    head, _ = two_ends(4)
    a, _ = latents()
    received = normal(5, K, 4, dtype=torch.float64)
    read = head.incoming(received)
    torch.testing.assert_close(head.outgoing(read), received)
    inside = a @ head.map.mT @ head.map
    torch.testing.assert_close(((a - inside) * read).sum(1), torch.zeros(K).double())


# In a network


def best_possible(a: Tensor, b: Tensor, edge_dim: int) -> float:
    """The misalignment of an edge by the truncated SVD of all pilots, by NumPy."""
    a, b = a.double(), b.double()
    u, _, wt = np.linalg.svd((a.mT @ b).numpy(), full_matrices=False)
    read = b @ torch.from_numpy(u[:, :edge_dim] @ wt[:edge_dim]).mT
    return float((a - read).square().sum() / (a.square().sum() + b.square().sum()))


@pytest.mark.parametrize(("edge_dim", "source"), [(2, "running"), (3, "all"), (9, "running")])
def test_programs_reach_the_optimum_of_latents_that_stand_still(edge_dim: int, source: str) -> None:
    agents = [agent(name, d, optimizer=frozen) for name, d in (("a", 5), ("b", 9), ("c", 7))]
    method = SheafFRL(maps=MapPolicy(source=source), pilots_per_round=48, edge_dim=edge_dim)
    nodes = nodes_of(agents, [("a", "b"), ("b", "c")], method)
    run_rounds(nodes, 60)
    found = misalignments(nodes)
    for head, tail in (("b", "a"), ("b", "c")):
        a, b = (nodes[name].white_pilots() for name in (head, tail))
        assert found[head, tail] == pytest.approx(best_possible(a, b, edge_dim), abs=5e-3)


def payload(edge_dim: int | None, **options: object) -> dict[tuple[str, str], int]:
    nodes = nodes_of(
        [agent("a", 5), agent("b", 9)], [("a", "b")], SheafFRL(edge_dim=edge_dim, **options)
    )
    recorder = run_rounds(nodes, 1, MessageRecorder(nodes))
    rows = [row for row in recorder.transport.ledger.rows() if row.kind == "round"]
    return {(row.sender, row.receiver): row.payload_bytes for row in rows}


def test_bytes_are_those_of_the_stalk() -> None:
    assert payload(None, pilots_per_round=32) == {("a", "b"): 32 * 5 * 4, ("b", "a"): 32 * 9 * 4}
    assert payload(3, pilots_per_round=32) == {("a", "b"): 32 * 3 * 4, ("b", "a"): 32 * 3 * 4}
    assert payload(8, pilots_per_round=32) == {("a", "b"): 32 * 5 * 4, ("b", "a"): 32 * 5 * 4}
    both = payload(3, pilots_per_round=32, maps=MapPolicy(source="all"))
    assert both == dict.fromkeys([("a", "b"), ("b", "a")], (32 + 48) * 3 * 4)


def test_the_penalty_compares_in_the_stalk() -> None:
    """Its value from the messages, and its gradient: nothing pulls outside the stalk."""
    agents = [agent("a", 5), agent("b", 9)]
    nodes = nodes_of(agents, [("a", "b")], SheafFRL(penalty=DualAscent(0.0), edge_dim=3))
    recorder = run_rounds(nodes, 3)
    a = nodes["a"]
    messages = list(a.send(3))
    own, other = a._sent.own, next(iter(m for m in nodes["b"].send(3)))
    projection, weight = a.endpoints["b"].map.clone(), a.weights["b"]
    own.retain_grad()
    log = a.receive(3, {"b": other})
    fitted = a.endpoints["b"].map
    assert weight > 0
    assert len(messages) == 1
    assert torch.equal(fitted, projection)  # a is the tail: 3 is the head's turn
    inside = own.detach() @ fitted.mT
    gap = inside - other.tensors["latents"]
    scale = weight / (len(own) * a.agent.dimension) / float(inside.square().mean())
    assert log["penalty"] == pytest.approx(scale / 2 * float(gap.square().sum()), rel=1e-5)
    ratio = gap.square().sum() / inside.square().sum()
    torch.testing.assert_close(own.grad, scale * (gap - ratio * inside) @ fitted)
    seen = gap.square().sum() / (
        (own.detach() @ fitted.mT).square().sum() + other.tensors["latents"].square().sum()
    )
    grown = DualAscent(0.0).update(weight, 3, float(seen))
    assert a.weights["b"] == pytest.approx(grown, rel=1e-5)
    assert len(recorder.of_round(2)) == 2


def test_probabilities_are_learnt_through_the_stalk() -> None:
    nodes = nodes_of(
        [agent("a", 5), agent("b", 9)],
        [("a", "b")],
        SheafFRL(edge_dim=2, distillation=Distillation(confidence=0.1)),
    )
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    log = {}
    for round in range(2):
        for node in nodes.values():
            recorder.transport.send(node.send(round))
        for name, node in nodes.items():
            inbox = recorder.transport.receive(name, round, "round", node.neighbours)
            log[name] = node.receive(round, inbox)
    assert log["a"]["distillation_loss"] > 0
    assert log["b"]["distillation_loss"] > 0


# What cannot be


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_dim": 0}, "edge_dim must be at least 1, got 0"),
        ({"edge_dim": 2.5}, "edge_dim must be an integer, got 2.5"),
        ({"edge_dim": 2, "maps": IdentityMaps()}, "identity maps do not compress"),
    ],
)
def test_stalks_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SheafFRL(**options)


@pytest.mark.parametrize(("one", "other"), [(3, None), (None, 3), (3, 4)])
def test_neighbours_must_agree_on_the_stalk(one: int | None, other: int | None) -> None:
    methods = {"a": SheafFRL(edge_dim=one), "b": SheafFRL(edge_dim=other)}
    nodes = nodes_of([agent("a", 5), agent("b", 9)], [("a", "b")], methods)
    hello = {name: next(hello_messages(node)) for name, node in nodes.items()}
    for name, neighbour in (("a", "b"), ("b", "a")):
        with pytest.raises(HandshakeError, match=r"do not agree on the map policy.*stalks of 3"):
            finish_handshake(nodes[name], {neighbour: hello[neighbour]})


def test_a_sheaf_of_isometries_has_no_small_stalks() -> None:
    agents = [agent("a", 5), agent("b", 9)]
    run = train(agents, [("a", "b")], SheafFRL(edge_dim=3), pilots(), epochs=1)
    with pytest.raises(InputError, match=r"compressed to 3 dimensions between 'b' and 'a'"):
        _ = run.sheaf


def test_only_the_stalk_needs_pilots() -> None:
    agents = [agent("a", 9), agent("b", 9)]
    run_rounds(nodes_of(agents, [("a", "b")], SheafFRL(edge_dim=4), pilots(6)), 0)
    with pytest.warns(UndeterminedMapWarning, match="dimension 1 of 7"):
        run_rounds(nodes_of(agents, [("a", "b")], SheafFRL(edge_dim=7), pilots(6)), 0)
