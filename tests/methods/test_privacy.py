"""Strict privacy: what an eavesdropper sees, what follows from it, and what it costs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from sheafed import Agent, Distillation, MapPolicy, Network, SheafFRL, train
from sheafed.linalg import procrustes
from sheafed.methods.node import Node
from sheafed.transport import LocalTransport, decode
from sheafed.transport.message import Message
from tests.helpers.matrices import misalignment
from tests.helpers.rounds import handshake
from tests.helpers.small_federations import (
    MessageRecorder,
    agent,
    in_double,
    nodes_of,
    normal,
    orthonormal,
    pilots,
    run_rounds,
    turned,
)

EDGES = [("a", "b"), ("b", "c"), ("a", "c")]


@dataclass
class Sent:
    """One transmitted matrix beside the latents that only its sender knows."""

    message: Message
    transmitted: Tensor
    white: Tensor
    raw: Tensor


def eavesdrop(nodes: dict[str, Node], rounds: int) -> list[Sent]:
    """Train, and put every matrix on the wire beside what it was made of."""
    seen: list[bytes] = []
    transport = LocalTransport(list(nodes), tap=seen.append)
    handshake(nodes, transport)
    seen.clear()
    found = []
    for round in range(rounds):
        known = {}
        for name, node in nodes.items():
            indices = node.pilot_policy.select(round).indices
            with torch.no_grad():
                latents = node.pilot_latents()
            transport.send(node.send(round))
            white = {"latents": node._sent.own.detach().clone(), "all": node.white_pilots()}
            raw = {"latents": latents[indices], "all": latents}
            known[name] = (white, raw)
        for message in map(decode, seen):
            white, raw = known[message.sender]
            for tensor in ("latents", "all"):
                if tensor in message.tensors:
                    y = message.tensors[tensor]
                    found.append(Sent(message, y, white[tensor], raw[tensor]))
        seen.clear()
        for name, node in nodes.items():
            node.receive(round, transport.receive(name, round, "round", node.neighbours))
    return found


def padded(a: Tensor, width: int) -> Tensor:
    return torch.cat([a, a.new_zeros(len(a), width - a.shape[1])], dim=1)


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def three(dims: tuple[int, ...]) -> list[Agent]:
    return [agent(name, d) for name, d in zip("abc", dims, strict=True)]


@pytest.mark.parametrize("source", ["running", "all"])
@pytest.mark.parametrize("dims", [(10, 6, 6), (7, 7, 7)], ids=["heterogeneous", "homogeneous"])
def test_the_wire_shows_gram_matrices_and_no_raw_latents(
    dims: tuple[int, ...], source: str
) -> None:
    method = SheafFRL(privacy="strict", maps=MapPolicy(source=source), pilots_per_round=24)
    nodes = nodes_of(three(dims), EDGES, method)
    sent = eavesdrop(nodes, 10)
    assert len(sent) == 10 * 6 * (2 if source == "all" else 1)
    for s in sent:
        width = s.transmitted.shape[1]
        for secret in (s.white, s.raw, s.raw - s.raw.mean(0)):
            assert distance(s.transmitted, padded(secret, width)) > 0.3, str(s.message)
            assert distance(s.transmitted[:, : secret.shape[1]], secret) > 0.3, str(s.message)
        gram, leaked = s.white @ s.white.mT, s.transmitted @ s.transmitted.mT
        assert distance(leaked, gram) < 1e-5, str(s.message)
    # Both ends of every edge have been looked at, and heads are not exempt.
    pairs = {(s.message.sender, s.message.receiver) for s in sent}
    assert pairs == {(x, y) for x in "abc" for y in "abc" if x != y}


def test_the_recorder_would_notice_raw_latents() -> None:
    """The check itself has teeth: under standard privacy every message is raw."""
    nodes = nodes_of(three((10, 6, 6)), EDGES, SheafFRL(pilots_per_round=24))
    assert all(distance(s.transmitted, s.white) < 1e-6 for s in eavesdrop(nodes, 3))


def test_strict_messages_carry_nothing_but_transported_latents() -> None:
    method = SheafFRL(privacy="strict", distillation=Distillation(), pilots_per_round=24)
    nodes = nodes_of(three((10, 6, 6)), EDGES, method)
    recorder = run_rounds(nodes, 3)
    for message in recorder.messages:
        if message.kind == "round":
            assert set(message.tensors) == {"latents", "probabilities"}
            assert set(message.fields) == {"fitted"}
        else:
            assert not message.tensors


# prop:privacy_nonidentifiability


@pytest.mark.parametrize("dims", [(10, 6, 6), (7, 7, 7)], ids=["heterogeneous", "homogeneous"])
def test_worlds_with_turned_latents_write_the_same_transcript(dims: tuple[int, ...]) -> None:
    """For latents Q A_i and maps R Q^T all messages of a whole training are the same."""
    method = SheafFRL(privacy="strict", maps=MapPolicy(source="running"), pilots_per_round=24)
    shared = pilots().double()
    sizes = dict(zip("abc", dims, strict=True))
    qs = {n: orthonormal(d, d, d, torch.float64) for n, d in sizes.items()}
    real = nodes_of([in_double(a) for a in three(dims)], EDGES, method, shared)
    other = nodes_of([turned(in_double(a), qs[a.name]) for a in three(dims)], EDGES, method, shared)
    latents = {}
    transcripts = []
    for nodes in (real, other):
        recorder = MessageRecorder(nodes)
        handshake(nodes, recorder.transport)
        for name, node in nodes.items():
            for endpoint in node.endpoints.values():
                # The secret that turned latents need to look the same.
                endpoint.map = endpoint.map @ qs[name].mT if nodes is other else endpoint.map
                identity = torch.eye(endpoint.map.shape[1], dtype=torch.float64)
                torch.testing.assert_close(
                    endpoint.map.mT @ endpoint.map, identity, atol=1e-6, rtol=0
                )
        for round in range(8):
            for node in nodes.values():
                recorder.transport.send(node.send(round))
            for name, node in nodes.items():
                node.receive(
                    round, recorder.transport.receive(name, round, "round", node.neighbours)
                )
        latents[nodes is other] = {name: node.white_pilots() for name, node in nodes.items()}
        transcripts.append([m for m in recorder.messages if m.kind == "round"])
    assert len(transcripts[0]) == len(transcripts[1]) == 8 * 6
    for one, two in zip(*transcripts, strict=True):
        assert str(one) == str(two)
        assert dict(one.fields) == dict(two.fields)
        for tensor, value in one.tensors.items():
            torch.testing.assert_close(two.tensors[tensor], value, atol=1e-6, rtol=1e-6)
    for name, q in qs.items():  # and yet the latents are others
        real_latents, other_latents = latents[False][name], latents[True][name]
        assert distance(other_latents, real_latents) > 0.3
        torch.testing.assert_close(other_latents, real_latents @ q.mT, atol=1e-5, rtol=0)


def test_the_gram_matrix_determines_latents_up_to_a_rotation_and_no_more() -> None:
    """What leaks leaks: two matrices with the same Gram matrix differ by an isometry."""
    a, t = normal(1, 30, 7, dtype=torch.float64), orthonormal(2, 12, 7, torch.float64)
    y = a @ t.mT
    values, vectors = torch.linalg.eigh(y @ y.mT)
    guess = vectors[:, -7:] * values[-7:].sqrt()  # all that an eavesdropper can do
    assert distance(guess, a) > 0.3
    torch.testing.assert_close(guess @ procrustes(a, guess).mT, a, atol=1e-9, rtol=0)


# What it costs in accuracy: nothing


def digit_agents() -> list[Agent]:
    digits = load_digits()
    x = torch.from_numpy((digits.data / 16).astype(np.float32))
    y = torch.from_numpy(digits.target)
    made = []
    for k, (name, d, hidden) in enumerate([("a", 24, 64), ("b", 16, 48), ("c", 16, 32)]):
        torch.manual_seed(k)
        encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, d))
        rows = torch.arange(k, 1200, 3)
        data = {"train": (x[rows], y[rows]), "test": (x[1400 + k :: 3], y[1400 + k :: 3])}
        optimizer = torch.optim.Adam(
            list(encoder.parameters()) + list((head := nn.Linear(d, 10)).parameters()), lr=5e-3
        )
        made.append(Agent(name, encoder, head, data=data, optimizer=optimizer, batch_size=32))
    return made


@pytest.fixture(scope="module")
def digit_runs() -> dict[tuple[str, str], Network]:
    """By map source and privacy."""
    shared = torch.from_numpy((load_digits().data[1200:1400] / 16).astype(np.float32))
    runs = {}
    with torch.random.fork_rng():
        for source in ("running", "all"):
            for privacy in ("standard", "strict"):
                method = SheafFRL(
                    privacy=privacy, maps=MapPolicy(source=source), pilots_per_round=64
                )
                run = train(digit_agents(), EDGES, method, shared, epochs=6, oracle=False)
                runs[source, privacy] = run
    return runs


@pytest.mark.parametrize("source", ["running", "all"])
def test_strict_privacy_costs_no_accuracy(
    source: str, digit_runs: dict[tuple[str, str], Network]
) -> None:
    standard, strict = (
        digit_runs[source, "standard"].history.last,
        digit_runs[source, "strict"].history.last,
    )
    for metric in ("private_accuracy", "communication_accuracy"):
        assert standard[metric] > 0.75  # of 0.1 by chance
        assert strict[metric] == pytest.approx(standard[metric], abs=0.03)


def test_strict_edges_follow_the_procrustes_optimum_of_moving_latents(
    digit_runs: dict[tuple[str, str], Network],
) -> None:
    """Fitted to all pilots; one step of all agents lies between the fit and this evaluation."""
    run = digit_runs["all", "strict"]
    white = {name: node.white_pilots() for name, node in run.nodes.items()}
    for (head, tail), found in run.history.evaluation.misalignment.items():
        best = misalignment(white[head], white[tail], procrustes(white[head], white[tail]))
        assert float(best) <= found + 1e-6
        assert found <= 1.04 * float(best), (head, tail)
    # From the running cross-covariance maps lag behind, under strict privacy no more than else.
    standard, strict = (
        digit_runs["running", p].history.last["misalignment"] for p in ("standard", "strict")
    )
    assert strict < 1.1 * standard


def test_the_sheaf_of_a_strict_run_glues_like_its_reparameterisation(
    digit_runs: dict[tuple[str, str], Network],
) -> None:
    run = digit_runs["running", "strict"]
    white = {name: node.white_pilots() for name, node in run.nodes.items()}
    variation = run.sheaf.edge_variation(white)
    assert set(run.sheaf.rotations) == set(run.sheaf.edges)
    for edge, value in run.sheaf.reparameterised().edge_variation(white).items():
        assert float(value) == pytest.approx(float(variation[edge]), rel=1e-3)
        energy = sum(float(white[name].square().sum()) for name in edge)
        assert float(value) / energy == pytest.approx(
            run.history.evaluation.misalignment[edge], rel=1e-3
        )
