"""FedProto: prototypes and the pull towards them by hand, what is sent, and faults."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sheafed import train
from sheafed.errors import HandshakeError, InputError
from sheafed.methods import FedProto, NonCooperative
from sheafed.methods.fedproto import prototype_distance
from tests.helpers.baselines import (
    PAIR,
    TRIANGLE,
    Training,
    assert_resumes,
    batch_of,
    before_last,
    class_means,
    latents_by_hand,
    noisy,
    quiet,
    receive_one,
    trained_apart,
)
from tests.helpers.small_federations import CLASSES, normal, pilots, same_weights

EQUAL = {"a": 5, "b": 5}
THREE = {"a": 5, "b": 5, "c": 5}
BOTH = [FedProto(0.7, aggregation="mean"), FedProto(0.7, aggregation="ema")]
EPOCH = 4  # rounds: 64 samples in batches of 16, so that an epoch is one pass


def test_the_distance_sample_by_sample_without_unknown_classes() -> None:
    z, prototypes = normal(1, 6, 4), normal(2, 3, 4)
    targets, known = torch.tensor([0, 1, 2, 0, 1, 1]), torch.tensor([True, False, True])
    found = prototype_distance(z, targets, prototypes, known)
    total = 0.0
    for k, c in enumerate(targets.tolist()):
        if known[c]:
            total += sum((float(z[k, m]) - float(prototypes[c, m])) ** 2 for m in range(4))
    assert float(found) == pytest.approx(total / 6, rel=1e-6)
    assert prototype_distance(z, targets, prototypes, torch.zeros(3, dtype=torch.bool)) is None


def test_prototypes_are_the_class_means_over_the_epoch() -> None:
    training = Training(quiet(EQUAL), PAIR, FedProto(aggregation="mean")).run(EPOCH)
    assert training.sent() == []
    assert training.penalties() == []
    for node in training.nodes.values():
        training.recorder.transport.send(node.send(EPOCH))
    sent = training.recorder.of_round(EPOCH)
    for (sender, _), message in sent.items():
        own = training.nodes[sender].agent
        data = own.data.train
        expected = class_means(latents_by_hand(own, data.inputs), data.targets.numpy())
        np.testing.assert_allclose(message.tensors["prototypes"].numpy(), expected, rtol=1e-12)
        assert message.tensors["counts"].tolist() == torch.bincount(data.targets).tolist()


def test_one_step_by_hand() -> None:
    rate, weight = 0.5, 0.7
    training = Training(quiet(EQUAL, rate), PAIR, FedProto(weight, aggregation="mean")).run(EPOCH)
    node = training.nodes["a"]
    every = [n.agent.data.train for n in training.nodes.values()]
    latents = [latents_by_hand(n.agent, n.agent.data.train.inputs) for n in training.nodes.values()]
    labels = np.concatenate([data.targets.numpy() for data in every])
    server = class_means(np.concatenate(latents), labels)
    inputs, targets = batch_of(node)
    hidden, w, b = before_last(node.agent, inputs)
    z = hidden @ w.T + b
    error = z - server[targets.numpy()]
    log = receive_one(training, "a")
    assert log["penalty"] == pytest.approx(weight * np.sum(error**2) / len(z), rel=1e-12)
    gradient = 2 * weight * error / len(z)
    last = node.agent.encoder[-1]
    np.testing.assert_allclose(last.weight.detach(), w - rate * gradient.T @ hidden, rtol=1e-10)
    np.testing.assert_allclose(last.bias.detach(), b - rate * gradient.sum(0), rtol=1e-10)


def test_the_moving_average_by_hand() -> None:
    training = Training(quiet(EQUAL), PAIR, FedProto(0.0, "ema", momentum=0.8))
    expected = np.full((CLASSES, 5), np.nan)
    for round in range(5):
        latents, labels = [], []
        for node in training.nodes.values():
            inputs, targets = batch_of(node)
            latents.append(latents_by_hand(node.agent, inputs))
            labels.append(targets.numpy())
        training.run(1)
        for node in training.nodes.values():
            known = node.prototypes.known.numpy()
            assert (known == ~np.isnan(expected[:, 0])).all()
            np.testing.assert_allclose(
                node.prototypes.aggregate.numpy()[known], expected[known], rtol=1e-10
            )
        fresh = class_means(np.concatenate(latents), np.concatenate(labels))
        assert not np.isnan(fresh).any()
        expected = fresh if round == 0 else 0.8 * expected + 0.2 * fresh


@pytest.mark.parametrize("method", BOTH)
def test_on_a_complete_graph_every_agent_has_the_servers_prototypes(method: FedProto) -> None:
    training = Training(noisy(THREE), TRIANGLE, method).run(EPOCH + 1)
    held = [node.prototypes.aggregate for node in training.nodes.values()]
    assert all(torch.equal(held[0], other) for other in held[1:])
    if method.aggregation == "mean":
        by_sender = {m.sender: m.tensors for m in training.sent()}
        counts = np.stack([t["counts"].numpy() for t in by_sender.values()])[..., None]
        means = np.stack([t["prototypes"].numpy() for t in by_sender.values()])
        server = (counts * means).sum(0) / counts.sum(0)
        np.testing.assert_allclose(held[0].numpy(), server, rtol=1e-5)


@pytest.mark.parametrize("aggregation", ["mean", "ema"])
def test_without_a_penalty_it_is_independent_training(aggregation: str) -> None:
    one = Training(noisy(THREE), TRIANGLE, FedProto(0.0, aggregation)).run(11)
    other = Training(noisy(THREE), TRIANGLE, NonCooperative()).run(11)
    assert same_weights(one.agents, other.agents)
    assert one.logs == other.logs


@pytest.mark.parametrize("aggregation", ["mean", "ema"])
def test_the_distance_decreases(aggregation: str) -> None:
    agents, shared = trained_apart(a=16, b=16)
    method = FedProto(0.1, aggregation)
    training = Training(agents, PAIR, method, shared, rounds_per_epoch=20).run(100)
    penalties = training.penalties()
    assert penalties[0] > 0
    assert np.mean(penalties[-20:]) < 0.3 * np.mean(penalties[:5])


@pytest.mark.parametrize("method", BOTH)
def test_only_class_means_and_counts_cross_the_wire(method: FedProto) -> None:
    training = Training(noisy(EQUAL), PAIR, method).run(9)
    times = 2 if method.aggregation == "mean" else 8  # rounds 4 and 8, or all but the first
    sent = training.sent()
    assert len(sent) == 2 * times
    for message in sent:
        shapes = {name: tuple(t.shape) for name, t in message.tensors.items()}
        assert shapes == {"prototypes": (CLASSES, 5), "counts": (CLASSES,)}
        assert message.fields == {}
        assert not message.tensors["prototypes"].requires_grad
    assert training.recorder.transport.ledger.payload_bytes() == len(sent) * CLASSES * (5 * 4 + 8)


@pytest.mark.parametrize("method", BOTH)
def test_lost_messages_are_left_out(method: FedProto) -> None:
    training = Training(
        noisy(EQUAL),
        PAIR,
        method,
        drop=lambda m: m.kind == "round" and m.sender == "b" and m.round != 8,
    )
    training.run(7)
    own = training.nodes["a"].prototypes
    if method.aggregation == "mean":
        sent = training.recorder.of_round(4)["a", "b"].tensors
        assert torch.equal(own.aggregate[own.known], sent["prototypes"][own.known])
    training.run(5)
    assert np.isfinite([log["loss"] for log in training.logs]).all()
    assert training.penalties()


@pytest.mark.parametrize("method", BOTH)
def test_it_resumes(method: FedProto, tmp_path: Path) -> None:
    assert_resumes(lambda: Training(noisy(THREE), TRIANGLE, method), 6, 7, tmp_path / "state")


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_trained_and_understood(whitening: str) -> None:
    run = train(noisy(EQUAL), PAIR, FedProto(0.1, whitening=whitening), pilots(), epochs=3)
    assert run.history.evaluation is not None
    assert set(run.history.evaluation.communication) == {("a", "b"), ("b", "a")}
    assert 0 < run.history.evaluation.misalignment["a", "b"] < 1


def test_latent_sizes_must_agree() -> None:
    with pytest.raises(HandshakeError, match=r"latent size: 5 against 4"):
        Training(noisy({"a": 5, "b": 4}), PAIR, FedProto())


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": -1.0},
        {"penalty": float("nan")},
        {"aggregation": "median"},
        {"momentum": 1.1},
        {"whitening": "none"},
    ],
)
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        FedProto(**options)
