"""Sheaf-FMTL: its maps against dense ones, one step by hand, what is sent, and faults."""

import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import hadamard
from torch import Tensor

from sheafed import Agent, train
from sheafed.agents.objectives import cross_entropy
from sheafed.errors import HandshakeError, InputError, NonFiniteError
from sheafed.methods import NonCooperative, SheafFMTL
from sheafed.methods.sheaf_fmtl.low_rank_maps import HadamardStart, StackedMaps, walsh_hadamard
from sheafed.methods.sheaf_fmtl.method import edge_size
from sheafed.transport.message import Message
from tests.helpers.baselines import (
    PAIR,
    TRIANGLE,
    Training,
    assert_resumes,
    digit_agents,
    noisy,
    quiet,
    receive_one,
)
from tests.helpers.small_federations import normal, pilots, same_weights

SIZES = {"a": 5, "b": 4, "c": 7}


def start(seed: int, rows: int, columns: int, scale: float = 1.0) -> HadamardStart:
    return HadamardStart(
        rows, columns, scale, torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def double(seed: int, *shape: int) -> Tensor:
    return normal(seed, *shape, dtype=torch.float64)


def plain(rate: float) -> list[Agent]:
    """Three agents in double precision, with an objective, by plain gradient steps."""
    return quiet(SIZES, rate, cross_entropy)


class Dense:
    """Sheaf-FMTL as it is written down: dense maps, gradients by autograd, all agents at once."""

    def __init__(self, training: Training, rate: float) -> None:
        self.rate = rate
        self.agents = copy.deepcopy(training.agents)
        self.method = next(iter(training.nodes.values())).method
        self.maps = {}
        for name, node in training.nodes.items():
            blocks = torch.split(node.maps.dense(), list(node.widths.values()))
            for j, block in zip(node.widths, blocks, strict=True):
                self.maps[name, j] = block.numpy().copy()

    def theta(self) -> dict[str, np.ndarray]:
        return {a.name: vector(a) for a in self.agents}

    def round(self, transport: bool) -> None:
        before = self.theta()
        weight, eta = self.method.penalty, self.method.map_rate
        residuals = {
            (i, j): self.maps[i, j] @ before[i] - self.maps[j, i] @ before[j] for i, j in self.maps
        }
        for a in self.agents:
            batch = a.next_batch()
            loss = a.objective(a, batch)
            grads = torch.autograd.grad(loss, a.parameters)
            step = np.concatenate([g.numpy().ravel() for g in grads])
            if transport:
                for (i, j), r in residuals.items():
                    if i == a.name:
                        step = step + weight * self.maps[i, j].T @ r
            write(a, before[a.name] - self.rate * step)
        if transport:
            for (i, j), r in residuals.items():
                self.maps[i, j] = self.maps[i, j] - eta * weight * np.outer(r, before[i])


def vector(a: Agent) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in a.parameters])


@torch.no_grad()
def write(a: Agent, theta: np.ndarray) -> None:
    position = 0
    for p in a.parameters:
        p.copy_(torch.from_numpy(theta[position : position + p.numel()]).view(p.shape))
        position += p.numel()


# The maps


@pytest.mark.parametrize("order", [1, 2, 8, 128, 256, 2048])
def test_the_transform_is_hadamards_matrix(order: int) -> None:
    x = double(order, order)
    np.testing.assert_allclose(walsh_hadamard(x), hadamard(order) @ x.numpy(), atol=1e-10)


def test_the_transform_of_many_axes_is_its_own_inverse() -> None:
    x = double(0, 2**16)
    np.testing.assert_allclose(walsh_hadamard(walsh_hadamard(x)) / 2**16, x, atol=1e-12)


def test_the_transform_needs_a_power_of_two() -> None:
    with pytest.raises(InputError, match="power of two, got 12"):
        walsh_hadamard(torch.zeros(12))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 100), (7, 64), (20, 20), (5, 300)])
def test_a_start_is_the_matrix_that_it_materialises(rows: int, columns: int) -> None:
    made = start(1, rows, columns, 0.3)
    matrix = made.dense().numpy()
    assert matrix.shape == (rows, columns)
    np.testing.assert_allclose(np.abs(matrix), 0.3)
    x, r = double(2, columns), double(3, rows)
    np.testing.assert_allclose(made.project(x), matrix @ x.numpy(), atol=1e-11)
    np.testing.assert_allclose(made.pull_back(r), matrix.T @ r.numpy(), atol=1e-11)


def test_rows_of_a_start_are_different_rows_of_hadamards_matrix_with_signs() -> None:
    matrix = start(4, 16, 64).dense().numpy()
    signs = matrix[0] * hadamard(64)  # the signs of the columns, if row k is the one chosen
    fits = [set(map(tuple, matrix * s)) <= set(map(tuple, hadamard(64))) for s in signs]
    assert any(fits)
    np.testing.assert_array_equal(matrix @ matrix.T, 64 * np.eye(16))


def test_starts_keep_lengths_on_average_and_no_direction_is_preferred() -> None:
    rows, columns, count = 6, 50, 2000
    x = double(5, columns).numpy()
    lengths, gram = [], np.zeros((columns, columns))
    for seed in range(count):
        matrix = start(seed, rows, columns, rows**-0.5).dense().numpy()
        lengths.append(np.sum((matrix @ x) ** 2) / np.sum(x**2))
        gram += matrix.T @ matrix / count
    # Of random signs the variance of a length is at most 2 / rows.
    assert np.mean(lengths) == pytest.approx(1, abs=4 * np.sqrt(2 / rows / count))
    assert np.var(lengths) == pytest.approx(2 / rows, rel=0.25)
    off = gram - np.diag(np.diag(gram))
    np.testing.assert_allclose(np.diag(gram), 1)
    assert np.abs(off).max() < 6 / np.sqrt(rows * count)


def test_starts_differ_and_repeat() -> None:
    one, same, other = start(1, 4, 40), start(1, 4, 40), start(2, 4, 40)
    assert torch.equal(one.dense(), same.dense())
    assert not torch.equal(one.dense(), other.dense())


def test_a_start_has_no_more_rows_than_columns() -> None:
    with pytest.raises(InputError, match="from 1 to the 4 columns, got 5"):
        start(0, 5, 4)


@pytest.mark.parametrize("moves", [0, 1, 6, 7, 8, 30])
def test_maps_with_a_history_are_the_dense_ones(moves: int) -> None:
    maps = StackedMaps([start(1, 3, 90), start(2, 4, 90)])
    expected = np.vstack([s.dense().numpy() for s in maps.starts])
    for k in range(moves):
        m, theta = double(10 + k, 7), double(100 + k, 90)
        maps.move(m, theta)
        expected = expected - np.outer(m, theta)
    assert maps.is_dense == (moves >= 7)
    assert len(maps) == (0 if maps.is_dense else moves)
    x, r = double(7, 90), double(8, 7)
    np.testing.assert_allclose(maps.dense(), expected, atol=1e-12)
    np.testing.assert_allclose(maps.project(x), expected @ x.numpy(), atol=1e-11)
    np.testing.assert_allclose(maps.pull_back(r), expected.T @ r.numpy(), atol=1e-11)


def test_a_matrix_takes_the_place_of_the_history_block_by_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sheafed.methods.sheaf_fmtl.low_rank_maps.COLUMNS", 32)
    test_maps_with_a_history_are_the_dense_ones(7)


# The method


@pytest.mark.parametrize(
    ("gamma", "sizes", "expected"),
    [(1e-3, (380290, 720890), 380), (1e-3, (999, 5000), 1), (0.5, (7, 9), 3), (1.0, (8, 5), 5)],
)
def test_the_size_of_an_edge(gamma: float, sizes: tuple[int, int], expected: int) -> None:
    assert edge_size(gamma, *sizes) == edge_size(gamma, *sizes[::-1]) == expected


def test_one_step_by_hand() -> None:
    rate, weight, eta = 0.05, 0.7, 0.01
    method = SheafFMTL(weight, gamma=0.05, map_rate=eta, every=1, scale="isometric")
    training = Training(quiet({"a": 5, "b": 4}, rate), PAIR, method)
    a, b = training.nodes.values()
    theta, other = vector(a.agent), vector(b.agent)
    p, q = (node.maps.dense().numpy() for node in (a, b))
    assert p.shape == (9, 215)  # 5% of the 195 of b
    residual = p @ theta - q @ other
    log = receive_one(training, "a")
    assert log["penalty"] == pytest.approx(weight / 2 * np.sum(residual**2), rel=1e-12)
    moved = theta - rate * weight * p.T @ residual
    assert np.abs(moved - theta).max() > 1e-3
    np.testing.assert_allclose(vector(a.agent), moved, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        a.maps.dense(), p - eta * weight * np.outer(residual, theta), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(
    ("method", "rounds", "exchanges"),
    [
        (SheafFMTL(0.02, gamma=0.1, every=1), 30, 30),
        (SheafFMTL(0.02, gamma=0.02, every=1), 30, 30),  # dense after a few
        (SheafFMTL(0.02, gamma=0.1, scale=0.01), 44, 11),
        (SheafFMTL(0.02, gamma=0.1, every=3), 44, 14),
    ],
)
def test_many_exchanges_as_with_dense_maps(method: SheafFMTL, rounds: int, exchanges: int) -> None:
    rate = 0.02
    training = Training(plain(rate), TRIANGLE, method)
    dense = Dense(training, rate)
    begin = dense.theta()
    starts = {edge: p.copy() for edge, p in dense.maps.items()}
    period = 4 if method.every == "epoch" else method.every
    for round in range(rounds):
        training.run(1)
        dense.round((round + 1) % period == 0)
    assert len(training.penalties()) == exchanges
    assert {node.maps.is_dense for node in training.nodes.values()} == {method.gamma == 0.02}
    for name, theta in dense.theta().items():
        assert np.abs(theta - begin[name]).max() > 1e-2
        np.testing.assert_allclose(vector(training.nodes[name].agent), theta, atol=1e-10)
    for name, node in training.nodes.items():
        expected = np.vstack([dense.maps[name, j] for j in node.widths])
        assert np.abs(expected - np.vstack([starts[name, j] for j in node.widths])).max() > 1e-5
        np.testing.assert_allclose(node.maps.dense(), expected, atol=1e-10)


def test_in_single_precision_the_maps_are_as_exact_as_dense_ones() -> None:
    training = Training(noisy(SIZES), TRIANGLE, SheafFMTL(0.01, gamma=0.1)).run(40)
    for node in training.nodes.values():
        assert len(node.maps) == 10
        theta = node.parameters()
        exact = node.maps.dense().double() @ theta.double()
        bound = 1e-5 * float(theta.norm()) * float(node.maps.dense().norm(dim=1).max())
        np.testing.assert_allclose(node.maps.project(theta), exact, atol=bound)


def test_both_ends_see_one_disagreement_with_opposite_signs() -> None:
    training = Training(noisy({"a": 5, "b": 4}), PAIR, SheafFMTL(0.1, gamma=0.1)).run(4)
    a, b = (node.maps.state()["moves"][0] for node in training.nodes.values())
    assert torch.equal(a, -b)
    assert bool(a.any())


def test_without_a_penalty_it_is_independent_training() -> None:
    one = Training(noisy(SIZES), TRIANGLE, SheafFMTL(0.0, every=1)).run(11)
    other = Training(noisy(SIZES), TRIANGLE, NonCooperative()).run(11)
    assert same_weights(one.agents, other.agents)
    assert one.logs == other.logs
    assert one.sent() == []


@pytest.mark.parametrize("eta", [0.0, 0.01])
def test_the_disagreement_decreases(eta: float) -> None:
    method = SheafFMTL(0.02, gamma=0.1, map_rate=eta, every=1, scale="isometric")
    penalties = Training(noisy(SIZES), TRIANGLE, method).run(60).penalties()
    assert penalties[0] > 0
    assert np.mean(penalties[-5:]) < 0.3 * penalties[0]


def test_models_and_maps_each_lower_the_objective() -> None:
    # Nothing else moves them, so every exchange must, at rates well below the bounds.
    for rate, eta in [(1e-3, 0.0), (0.0, 1e-3), (1e-3, 1e-3)]:
        method = SheafFMTL(0.1, gamma=0.05, map_rate=eta, every=1)
        penalties = Training(quiet(SIZES, rate), TRIANGLE, method).run(25).penalties()
        assert all(after < before for before, after in itertools.pairwise(penalties))


def test_only_projections_cross_the_wire() -> None:
    training = Training(noisy(SIZES), TRIANGLE, SheafFMTL(0.01, gamma=0.05)).run(9)
    n = {a.name: sum(p.numel() for p in a.parameters) for a in training.agents}
    assert n == {"a": 247, "b": 227, "c": 287}
    sent = training.sent()
    assert [m.round for m in sent] == [3] * 6 + [7] * 6
    for message in sent:
        width = int(0.05 * min(n[message.sender], n[message.receiver]))
        assert {k: tuple(t.shape) for k, t in message.tensors.items()} == {"projection": (width,)}
        assert message.fields == {}
        assert not message.tensors["projection"].requires_grad
    per_edge = {(m.sender, m.receiver): 0 for m in sent}
    for row in training.recorder.transport.ledger.rows():
        if row.kind == "round":
            per_edge[row.sender, row.receiver] += row.payload_bytes
    assert per_edge == {(i, j): 2 * 4 * int(0.05 * min(n[i], n[j])) for i in n for j in n if i != j}


def test_lost_messages_leave_their_edge_out_at_the_receiver() -> None:
    method = SheafFMTL(0.02, gamma=0.1, every=1)
    training = Training(
        noisy(SIZES), TRIANGLE, method, drop=lambda m: m.kind == "round" and m.sender == "b"
    )
    before = {name: node.maps.dense() for name, node in training.nodes.items()}
    training.run(1)
    for name, node in training.nodes.items():
        moved = (node.maps.dense() - before[name]).abs().sum(1)
        for j, part in zip(
            node.widths, torch.split(moved, list(node.widths.values())), strict=True
        ):
            assert bool(part.any()) == (j != "b")
    alone = Training(noisy(SIZES), TRIANGLE, method, drop=lambda m: m.kind == "round").run(5)
    other = Training(noisy(SIZES), TRIANGLE, NonCooperative()).run(5)
    assert same_weights(alone.agents, other.agents)
    assert all(len(node.maps) == 0 for node in alone.nodes.values())


def test_a_message_of_another_size_is_left_out() -> None:
    training = Training(noisy({"a": 5, "b": 4}), PAIR, SheafFMTL(0.1, gamma=0.1, every=1))
    node = training.nodes["a"]
    list(node.send(0))
    log = node.receive(0, {"b": Message("round", 0, "b", "a", {"projection": torch.zeros(3)})})
    assert set(log) == {"loss"}
    assert sum(node.rejected.values()) == 1
    assert len(node.maps) == 0


@pytest.mark.parametrize(
    "method",
    [
        SheafFMTL(0.02, gamma=0.1),
        SheafFMTL(0.02, gamma=0.1, every=1),
        SheafFMTL(0.02, 0.01, every=1),
    ],
)
def test_it_resumes(method: SheafFMTL, tmp_path: Path) -> None:
    assert_resumes(lambda: Training(noisy(SIZES), TRIANGLE, method), 6, 7, tmp_path / "state")


def test_a_whole_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    method = SheafFMTL(0.02, gamma=0.1, every=2)
    whole, parts = noisy(SIZES), noisy(SIZES)
    train(whole, TRIANGLE, method, pilots(), epochs=4, oracle=False)
    train(parts, TRIANGLE, method, pilots(), epochs=2, out=tmp_path, oracle=False)
    parts = noisy(SIZES)
    train(parts, TRIANGLE, method, pilots(), epochs=4, out=tmp_path, resume=True, oracle=False)
    assert same_weights(whole, parts)


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_trained_and_understood(whitening: str) -> None:
    method = SheafFMTL(0.01, whitening=whitening)
    run = train(noisy(SIZES), TRIANGLE, method, pilots(), epochs=2)
    assert run.history.evaluation is not None
    assert ("c", "a") in run.history.evaluation.communication
    assert 0 < run.history.evaluation.misalignment["a", "b"] < 1


def test_frozen_parameters_stay_out() -> None:
    agents = noisy({"a": 5, "b": 4})
    for p in agents[0].encoder.parameters():
        p.requires_grad_(False)
    training = Training(agents, PAIR, SheafFMTL(0.1, gamma=1.0, every=1)).run(3)
    assert training.nodes["a"].size == 5 * 3 + 3
    assert all(p.grad is None for p in agents[0].encoder.parameters())
    for p in agents[0].head.parameters():
        p.requires_grad_(False)
    with pytest.raises(InputError, match="'a' has no trainable parameters"):
        Training(agents, PAIR, SheafFMTL())


def test_parameters_that_the_objective_leaves_out_are_pulled_too() -> None:
    training = Training(quiet({"a": 5, "b": 4}), PAIR, SheafFMTL(0.01, gamma=0.1, every=1))
    before = training.agents[0].head.weight.detach().clone()
    training.run(1)
    assert not torch.equal(training.agents[0].head.weight, before)


def test_rates_that_are_too_large_are_named() -> None:
    method = SheafFMTL(1.0, gamma=0.05, map_rate=1e6, every=1)
    training = Training(quiet(SIZES, 0.0), TRIANGLE, method)
    with pytest.raises(NonFiniteError, match=r"agent '.', round \d+: .* lower the penalty"):
        training.run(200)


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_the_default_start_bears_the_penalties_of_the_papers_grid(penalty: float) -> None:
    agents, shared = digit_agents({"a": 16, "b": 16})
    method = SheafFMTL(penalty, gamma=0.01)
    training = Training(agents, PAIR, method, shared, rounds_per_epoch=20).run(300)
    assert training.logs[-1]["loss"] < 0.8 * training.logs[0]["loss"]


def test_an_isometric_start_does_not_bear_the_largest() -> None:
    agents, shared = digit_agents({"a": 16, "b": 16})
    method = SheafFMTL(1.0, gamma=0.01, scale="isometric")
    training = Training(agents, PAIR, method, shared, rounds_per_epoch=20)
    with pytest.raises(NonFiniteError):
        training.run(300)


def test_receive_comes_after_send() -> None:
    training = Training(noisy({"a": 5, "b": 4}), PAIR, SheafFMTL(every=1))
    with pytest.raises(InputError, match=r"receive\(\) comes after send\(\)"):
        training.nodes["a"].receive(0, {})


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (SheafFMTL(gamma=0.5), "gamma"),
        (SheafFMTL(penalty=0.5), "penalty"),
        (SheafFMTL(every=3), "rounds between exchanges"),
        (SheafFMTL(map_rate=0.5), "map rate"),
    ],
)
def test_neighbours_must_agree(other: SheafFMTL, what: str) -> None:
    with pytest.raises(HandshakeError, match=what):
        Training(noisy({"a": 5, "b": 4}), PAIR, {"a": SheafFMTL(), "b": other})


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": -1.0},
        {"penalty": float("nan")},
        {"gamma": 0.0},
        {"gamma": 1.5},
        {"map_rate": -0.1},
        {"map_rate": float("inf")},
        {"every": 0},
        {"every": 1.5},
        {"every": True},
        {"every": "round"},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"scale": "large"},
        {"whitening": "none"},
    ],
)
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        SheafFMTL(**options)
