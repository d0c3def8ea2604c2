"""FedMuscle: the contrastive step by hand, the schedule, what is sent, and faults."""

import copy
from math import exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim import SGD

from sheafed import train
from sheafed.errors import HandshakeError, InputError
from sheafed.methods import FedMuscle, NonCooperative
from sheafed.methods.fedmuscle import average_direction, info_nce
from tests.helpers.baselines import (
    PAIR,
    TRIANGLE,
    Training,
    assert_resumes,
    before_last,
    latents_by_hand,
    noisy,
    quiet,
    receive_one,
    trained_apart,
)
from tests.helpers.small_federations import normal, pilots, same_weights

EQUAL = {"a": 5, "b": 5}
THREE = {"a": 5, "b": 5, "c": 5}
K = 9
KINDS = ["average", "pairwise"]


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y) / sqrt(float(x @ x) * float(y @ y))


def contrast(own: np.ndarray, targets: np.ndarray, temperature: float) -> float:
    """InfoNCE, pilot by pilot."""
    total = 0.0
    for k, z in enumerate(own):
        scores = [exp(cosine(z, a) / temperature) for a in targets]
        total -= log(scores[k] / sum(scores))
    return total / len(own)


def contrast_gradient(own: np.ndarray, targets: np.ndarray, temperature: float) -> np.ndarray:
    """Its gradient in the own representations."""
    gradient = np.zeros_like(own)
    for k, z in enumerate(own):
        scores = np.array([exp(cosine(z, a) / temperature) for a in targets])
        shares = scores / scores.sum()
        shares[k] -= 1
        length = np.linalg.norm(z)
        for share, a in zip(shares, targets, strict=True):
            direction = a / np.linalg.norm(a)
            across = direction - (direction @ z) * z / length**2
            gradient[k] += share * across / (length * temperature * len(own))
    return gradient


def units(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def in_double_pilots() -> torch.Tensor:
    return pilots().double()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_loss_pilot_by_pilot(temperature: float) -> None:
    own, targets = (normal(k, 7, 4, dtype=torch.float64) for k in (1, 2))
    found = info_nce(own, targets, temperature)
    assert float(found) == pytest.approx(
        contrast(own.numpy(), targets.numpy(), temperature), rel=1e-12
    )
    # Scale does not matter, and agreement is worth more than disagreement.
    torch.testing.assert_close(info_nce(3 * own, 0.1 * targets, temperature), found)
    assert info_nce(targets, targets, temperature) < found


def test_the_average_is_of_directions() -> None:
    one, other = (normal(k, 7, 4, dtype=torch.float64) for k in (1, 2))
    expected = (units(one.numpy()) + units(other.numpy())) / 2
    np.testing.assert_allclose(average_direction([one, 50 * other]), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [EQUAL, THREE])
def test_one_step_by_hand(kind: str, sizes: dict[str, int]) -> None:
    rate, weight = 0.5, 0.7
    method = FedMuscle(weight, temperature=0.2, local_epochs=0, alignment=kind, pilots_per_round=K)
    edges = PAIR if len(sizes) == 2 else TRIANGLE
    training = Training(quiet(sizes, rate), edges, method, in_double_pilots())
    agents = {a.name: a for a in training.agents}
    chosen = in_double_pilots()[training.nodes["a"].pilot_policy.select(0).indices]
    z = {name: latents_by_hand(a, chosen) for name, a in agents.items()}
    hidden, w, b = before_last(agents["a"], chosen)
    others = [z[j] for j in sizes if j != "a"]
    average = sum(units(v) for v in others) / len(others)
    targets = [average] if kind == "average" else others
    expected = np.mean([contrast(z["a"], t, 0.2) for t in targets])
    gradient = weight * np.mean([contrast_gradient(z["a"], t, 0.2) for t in targets], axis=0)
    found = receive_one(training, "a")
    assert found["penalty"] == pytest.approx(weight * expected, rel=1e-12)
    last = agents["a"].encoder[-1]
    np.testing.assert_allclose(last.weight.detach(), w - rate * gradient.T @ hidden, rtol=1e-9)
    np.testing.assert_allclose(last.bias.detach(), b - rate * gradient.sum(0), rtol=1e-9)


def test_the_objective_stays_beside_the_average_and_not_beside_pairs() -> None:
    for kind in KINDS:
        method = FedMuscle(local_epochs=1, alignment=kind, pilots_per_round=K)
        training = Training(noisy(EQUAL), PAIR, method, rounds_per_epoch=1).run(4)
        keys = [set(log) for log in training.logs]
        aligned = {"loss", "penalty"} if kind == "average" else {"penalty"}
        assert keys == [{"loss"}, aligned, {"loss"}, aligned]


def test_representations_are_sent_in_alignment_epochs_only() -> None:
    method = FedMuscle(local_epochs=2, pilots_per_round=K)
    training = Training(noisy(EQUAL), PAIR, method, rounds_per_epoch=2)
    for round in range(14):
        node = training.nodes["a"]
        with torch.no_grad(), node.agent.inference():
            chosen = pilots()[node.pilot_policy.select(round).indices]
            expected = node.agent.encoder(chosen)
        training.run(1)
        sent = training.recorder.of_round(round)
        assert bool(sent) == (round in (4, 5, 10, 11))
        if sent:
            assert set(sent["a", "b"].tensors) == {"latents"}
            assert sent["a", "b"].fields == {}
            torch.testing.assert_close(sent["a", "b"].tensors["latents"], expected)
    assert training.recorder.transport.ledger.payload_bytes() == 4 * 2 * K * 5 * 4


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_penalty_it_is_independent_training(kind: str) -> None:
    method = FedMuscle(0.0, local_epochs=1, alignment=kind, pilots_per_round=K)
    one = Training(noisy(THREE), TRIANGLE, method).run(11)
    other = Training(noisy(THREE), TRIANGLE, NonCooperative()).run(11)
    assert same_weights(one.agents, other.agents)
    assert one.logs == other.logs


def test_batch_norm_in_the_objective_does_not_change_the_contrast() -> None:
    """Its running statistics move between the pilots' pass and the step."""
    weight, rate = 0.7, 0.5
    agents = noisy(EQUAL)
    for one in agents:
        one.optimizer = SGD(one.parameters, lr=rate)
    method = FedMuscle(weight, local_epochs=0, pilots_per_round=K)
    training = Training(agents, PAIR, method)
    training.run(2)
    with_objective, alone = copy.deepcopy((agents[0], agents[0]))
    chosen = pilots()[training.nodes["a"].pilot_policy.select(2).indices]
    encoded = []
    for one in agents:
        with one.inference():
            encoded.append(one.encode(chosen))
    target = average_direction([encoded[1].detach()])
    contrast = weight * info_nce(encoded[0], target, method.temperature)
    pull = torch.autograd.grad(contrast, list(agents[0].encoder.parameters()))
    with with_objective.rng_context():
        with_objective.optimizer_step(with_objective.objective(with_objective, alone.next_batch()))
    receive_one(training, "a")
    for p, q, g in zip(
        agents[0].encoder.parameters(), with_objective.encoder.parameters(), pull, strict=True
    ):
        torch.testing.assert_close(p.detach(), (q - rate * g).detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_contrast_decreases(kind: str) -> None:
    agents, shared = trained_apart(a=16, b=16)
    method = FedMuscle(1.0, local_epochs=1, alignment=kind)
    training = Training(agents, PAIR, method, shared, rounds_per_epoch=20).run(120)
    penalties = training.penalties()
    assert len(penalties) == 60
    assert np.mean(penalties[-10:]) < 0.75 * np.mean(penalties[:5])


@pytest.mark.parametrize("kind", KINDS)
def test_lost_messages_are_left_out(kind: str) -> None:
    method = FedMuscle(local_epochs=0, alignment=kind, pilots_per_round=K)
    training = Training(
        noisy(THREE), TRIANGLE, method, drop=lambda m: m.kind == "round" and m.sender != "a"
    ).run(3)
    alone = Training(noisy(THREE), TRIANGLE, NonCooperative()).run(3)
    # Nobody tells a anything, so it trains alone; the others are pulled towards a.
    agents = list(zip(training.agents, alone.agents, strict=True))
    assert same_weights(*([agent] for agent in agents[0]))
    assert not same_weights(*([agent] for agent in agents[1]))


@pytest.mark.parametrize("kind", KINDS)
def test_it_resumes(kind: str, tmp_path: Path) -> None:
    method = FedMuscle(local_epochs=1, alignment=kind, pilots_per_round=K)
    assert_resumes(lambda: Training(noisy(THREE), TRIANGLE, method), 6, 9, tmp_path / "state")


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_trained_and_understood(whitening: str) -> None:
    method = FedMuscle(0.1, local_epochs=1, pilots_per_round=K, whitening=whitening)
    run = train(noisy(EQUAL), PAIR, method, pilots(), epochs=3)
    assert run.history.evaluation is not None
    assert set(run.history.evaluation.communication) == {("a", "b"), ("b", "a")}
    assert 0 < run.history.evaluation.misalignment["a", "b"] < 1


def test_latent_sizes_must_agree() -> None:
    with pytest.raises(HandshakeError, match=r"latent size: 5 against 4"):
        Training(noisy({"a": 5, "b": 4}), PAIR, FedMuscle())


def test_receive_comes_after_send() -> None:
    training = Training(noisy(EQUAL), PAIR, FedMuscle(local_epochs=0))
    with pytest.raises(InputError, match=r"after send\(\)"):
        training.nodes["a"].receive(0, {})


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": -1.0},
        {"temperature": 0.0},
        {"local_epochs": -1},
        {"local_epochs": 1.5},
        {"alignment": "tuple"},
        {"pilots_per_round": 1},
        {"whitening": "none"},
    ],
)
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        FedMuscle(**options)
