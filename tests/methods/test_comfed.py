"""ComFed: one step of model and projection by hand, communication, faults, and shrinking."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim import Adam

from sheafed import train
from sheafed.agents.lr_schedules import follow
from sheafed.errors import HandshakeError, InputError
from sheafed.evaluation import evaluate_locally
from sheafed.methods import ComFed, NonCooperative
from sheafed.methods.prototypes import class_sums
from tests.helpers.baselines import (
    PAIR,
    TRIANGLE,
    Training,
    assert_resumes,
    batch_of,
    before_last,
    class_means,
    digit_agents,
    latents_by_hand,
    noisy,
    quiet,
    receive_one,
    trained_apart,
)
from tests.helpers.small_federations import CLASSES, agent, normal, pilots, same_weights

MIXED = {"a": 6, "b": 4}
THREE = {"a": 6, "b": 4, "c": 5}
R = 5
BOTH = [ComFed(0.7, R), ComFed(0.7, R, every="round")]


def test_one_step_by_hand() -> None:
    rate, weight = 0.5, 0.7
    training = Training(quiet(MIXED, rate), PAIR, ComFed(weight, R)).run(4)
    node = training.nodes["a"]
    p = node.projection.detach().numpy().copy()
    projected, labels = [], []
    for other in training.nodes.values():
        data = other.agent.data.train
        z = latents_by_hand(other.agent, data.inputs)
        projected.append(z @ other.projection.detach().numpy().T)
        labels.append(data.targets.numpy())
    server = class_means(np.concatenate(projected), np.concatenate(labels))
    inputs, targets = batch_of(node)
    hidden, w, b = before_last(node.agent, inputs)
    z = hidden @ w.T + b
    means = class_means(z, targets.numpy())
    error = means @ p.T - server
    log = receive_one(training, "a")
    assert log["penalty"] == pytest.approx(weight * np.sum(error**2) / CLASSES, rel=1e-10)
    slope = 2 * weight * error / CLASSES
    np.testing.assert_allclose(node.projection.detach(), p - rate * slope.T @ means, rtol=1e-9)
    sizes = np.bincount(targets.numpy(), minlength=CLASSES)
    gradient = (slope @ p)[targets.numpy()] / sizes[targets.numpy(), None]
    last = node.agent.encoder[-1]
    np.testing.assert_allclose(last.weight.detach(), w - rate * gradient.T @ hidden, rtol=1e-9)
    np.testing.assert_allclose(last.bias.detach(), b - rate * gradient.sum(0), rtol=1e-9)


@pytest.mark.parametrize("method", BOTH)
def test_on_a_complete_graph_every_agent_has_the_servers_prototypes(method: ComFed) -> None:
    training = Training(noisy(THREE), TRIANGLE, method).run(5)
    held = [node.prototypes.aggregate for node in training.nodes.values()]
    assert all(torch.equal(held[0], other) for other in held[1:])
    latest = {m.sender: m.tensors for m in training.sent()}
    counts = np.stack([t["counts"].numpy() for t in latest.values()])[..., None]
    means = np.stack([t["prototypes"].numpy() for t in latest.values()])
    np.testing.assert_allclose(
        held[0].numpy(), (counts * means).sum(0) / counts.sum(0), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("r", [3, 5, 9])
def test_communication_is_projection_and_pseudo_inverse(r: int) -> None:
    training = Training(noisy(MIXED), PAIR, ComFed(0.7, r)).run(7)
    a, b = training.nodes["a"], training.nodes["b"]
    p, q = (node.projection.detach().numpy() for node in (a, b))
    z = normal(3, 8, 6)
    sent = a.transmit(z, "b")
    assert sent.shape == (8, r)
    np.testing.assert_allclose(sent, z.numpy() @ p.T, rtol=1e-4, atol=1e-6)
    expected = sent.numpy() @ np.linalg.pinv(q).T
    np.testing.assert_allclose(b.interpret(sent, "a"), expected, rtol=1e-3, atol=1e-5)
    # To itself an agent reads what it projected: the part of it that r numbers can hold.
    back = a.interpret(sent, "b").numpy()
    np.testing.assert_allclose(back, z.numpy() @ p.T @ np.linalg.pinv(p).T, rtol=1e-3, atol=1e-5)
    found = evaluate_locally(training.nodes)
    raw = {n: node.pilot_latents().detach().numpy() for n, node in training.nodes.items()}
    carried = raw["b"] @ q.T @ np.linalg.pinv(p).T
    energy = sum(np.sum(v**2) for v in raw.values())
    expected_gap = np.sum((raw["a"] - carried) ** 2) / energy
    assert found.misalignment["a", "b"] == pytest.approx(expected_gap, rel=1e-3)


@pytest.mark.parametrize("method", [ComFed(0.0, R), ComFed(0.0, R, every="round")])
def test_without_a_penalty_it_is_independent_training(method: ComFed) -> None:
    one = Training(noisy(THREE), TRIANGLE, method).run(11)
    other = Training(noisy(THREE), TRIANGLE, NonCooperative()).run(11)
    assert same_weights(one.agents, other.agents)
    assert one.logs == other.logs
    fresh = Training(noisy(THREE), TRIANGLE, method)
    for name, node in one.nodes.items():
        assert torch.equal(node.projection, fresh.nodes[name].projection)


@pytest.mark.parametrize("every", ["epoch", "round"])
def test_the_gap_decreases(every: str) -> None:
    agents, shared = trained_apart(a=16, b=16)
    method = ComFed(0.1, 16, every)
    training = Training(agents, PAIR, method, shared, rounds_per_epoch=20).run(100)
    penalties = training.penalties()
    assert penalties[0] > 0
    assert np.mean(penalties[-20:]) < 0.2 * np.mean(penalties[:5])


def spread(prototypes: torch.Tensor) -> float:
    return float((prototypes - prototypes.mean(0)).square().sum(1).mean().sqrt())


def relative_spread(training: Training) -> float:
    """The spread of the shared prototypes over that of the latents' class means."""
    own = []
    for node in training.nodes.values():
        sums, counts = class_sums(*node.agent.encode_samples(node.agent.data.train), 10)
        own.append(spread(sums / counts[:, None]))
    return spread(training.nodes["a"].prototypes.aggregate) / float(np.mean(own))


def test_prototypes_stay_apart_in_a_short_run_and_shrink_in_a_long_one() -> None:
    agents, shared = digit_agents({"a": 16, "b": 16})
    training = Training(agents, PAIR, ComFed(0.2, 16), shared, rounds_per_epoch=20).run(160)
    assert relative_spread(training) > 0.3
    training.run(440)
    assert relative_spread(training) < 0.15


@pytest.mark.parametrize("method", BOTH)
def test_only_projected_class_means_and_counts_cross_the_wire(method: ComFed) -> None:
    training = Training(noisy(MIXED), PAIR, method).run(9)
    times = 2 if method.every == "epoch" else 8
    sent = training.sent()
    assert len(sent) == 2 * times
    for message in sent:
        shapes = {name: tuple(t.shape) for name, t in message.tensors.items()}
        assert shapes == {"prototypes": (CLASSES, R), "counts": (CLASSES,)}
        assert message.fields == {}
    assert training.recorder.transport.ledger.payload_bytes() == len(sent) * CLASSES * (R * 4 + 8)


@pytest.mark.parametrize("method", BOTH)
def test_lost_messages_are_left_out(method: ComFed) -> None:
    training = Training(
        noisy(MIXED), PAIR, method, drop=lambda m: m.kind == "round" and m.sender == "b"
    ).run(7)
    own = training.nodes["a"].prototypes
    last = training.recorder.of_round(4 if method.every == "epoch" else 6)["a", "b"].tensors
    assert torch.equal(own.aggregate[own.known], last["prototypes"][own.known])
    training.run(5)
    assert np.isfinite([log["loss"] for log in training.logs]).all()
    assert training.penalties()


@pytest.mark.parametrize("method", BOTH)
def test_it_resumes(method: ComFed, tmp_path: Path) -> None:
    assert_resumes(lambda: Training(noisy(THREE), TRIANGLE, method), 6, 7, tmp_path / "state")


def test_the_projection_moves_as_its_agent_does() -> None:
    def moved(clip: float | None) -> list[float]:
        agents = [
            agent(
                name,
                4,
                optimizer=lambda p: Adam(p, lr=1.0),
                scheduler=follow(lambda step: 0.1 / (1 + step)),
                max_grad_norm=clip,
            )
            for name in "ab"
        ]
        training = Training(agents, PAIR, ComFed(1.0, R), rounds_per_epoch=1)
        node, steps = training.nodes["a"], []
        for _ in range(3):
            before = node.projection.detach().clone()
            training.run(1)
            steps.append(float((node.projection.detach() - before).abs().max()))
        return steps

    none, *steps = moved(None)
    assert none == 0.0
    # A first step of Adam has the length of its rate, which the schedule says is now 0.1 / 2.
    assert steps[0] == pytest.approx(0.05, rel=1e-3)
    assert moved(1e-9)[1] < 0.9 * 0.05  # below Adam's epsilon


@pytest.mark.parametrize(("r", "d"), [(9, 6), (6, 6), (3, 6)])
def test_a_projection_starts_orthonormal_and_is_ones_own(r: int, d: int) -> None:
    training = Training(noisy({"a": d, "b": d}), PAIR, ComFed(projection=r))
    p, q = (node.projection.detach() for node in training.nodes.values())
    product = p.mT @ p if r >= d else p @ p.mT
    torch.testing.assert_close(product, torch.eye(min(r, d)), atol=1e-6, rtol=0)
    assert not torch.allclose(p, q)


def test_a_projection_may_start_as_a_layer_does() -> None:
    method = ComFed(projection=40, start="xavier")
    node = Training(noisy({"a": 60, "b": 6}), PAIR, method).nodes["a"]
    bound = np.sqrt(6 / (40 + 60))
    found = node.projection.detach().numpy()
    assert bound * 0.99 < np.abs(found).max() <= bound
    # Of a uniform distribution; 2400 numbers.
    assert found.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)


def test_trained_and_understood_without_maps_fitted_afterwards() -> None:
    run = train(noisy(MIXED), PAIR, ComFed(0.1, R), pilots(), epochs=3)
    assert run.history.evaluation is not None
    assert set(run.history.evaluation.communication) == {("a", "b"), ("b", "a")}
    assert np.isfinite(run.history.evaluation.misalignment["a", "b"])


def test_projection_dimensions_must_agree() -> None:
    agents = noisy(MIXED)
    with pytest.raises(HandshakeError, match=r"projection dimension: 5 against 6"):
        Training(agents, PAIR, {"a": ComFed(projection=5), "b": ComFed(projection=6)})


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": -1.0},
        {"projection": 0},
        {"projection": 1.5},
        {"every": "year"},
        {"start": "zero"},
    ],
)
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ComFed(**options)


def test_a_projection_has_the_bound_of_a_layer() -> None:
    assert ComFed(projection=2**20).projection == 2**20
    with pytest.raises(InputError, match="projection must be at most 1048576, got 1048577"):
        ComFed(projection=2**20 + 1)
