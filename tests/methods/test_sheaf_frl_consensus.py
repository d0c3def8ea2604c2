"""Sheaf-FRL with the consensus: what is agreed on and learnt, beside penalty and protocols."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import Tensor, nn

from sheafed import Agent, Consensus, Distillation, SheafFRL
from sheafed.agents.objectives import mean_squared_error
from sheafed.config import parse_experiment
from sheafed.errors import HandshakeError, InputError
from sheafed.methods import GaussianNoise
from sheafed.methods.consensus import agree, fit_temperature
from sheafed.methods.sheaf_frl.node import SheafFRLNode
from sheafed.pilots import PrototypePilots
from sheafed.transport import LocalTransport
from sheafed.transport.message import Message
from tests.helpers.baselines import PAIR, TRIANGLE, Training, assert_resumes, noisy, quiet
from tests.helpers.rounds import handshake
from tests.helpers.small_federations import (
    CLASSES,
    agent,
    linear_head,
    nodes_of,
    pilots,
    samples,
    weights_of,
)

THREE = {"a": 5, "b": 4, "c": 3}
K = 12
"""Pilots of a round: fewer than a batch, so all that are agreed on are learnt."""


def sheaf(**options: Any) -> SheafFRL:
    given = {"pilots_per_round": K, "distillation": Consensus(confidence=0.4)}
    return SheafFRL(**(given | options))


def node_of(training: Training, name: str) -> SheafFRLNode:
    node = training.nodes[name]
    assert isinstance(node, SheafFRLNode)
    return node


def spread(one: Agent, batch: Any) -> Tensor:
    return one.encode(batch.inputs).square().mean()


def unlabelled(name: str, d: int, **options: Any) -> Agent:
    return agent(name, d, **({"data": samples(5, 64)[0], "objective": spread} | options))


def scores_of(one: Agent, inputs: Tensor) -> np.ndarray:
    with torch.no_grad():
        return one.head(one.encoder(inputs)).double().numpy()


def deliver(training: Training, round: int, *names: str) -> dict[str, dict[str, float]]:
    """Let all agents send and some receive; return what these log."""
    transport = training.recorder.transport
    for node in training.nodes.values():
        transport.send(node.send(round))
    nodes = {name: training.nodes[name] for name in names}
    return {
        name: node.receive(round, transport.receive(name, round, "round", node.neighbours))
        for name, node in nodes.items()
    }


# One exchange by hand


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_targets_and_loss_by_hand(privacy: str) -> None:
    """From the first exchange on, when under strict privacy no latent can be read yet."""
    weight, sharpness, shared = 0.7, 3.0, pilots().double()
    agents = {one.name: one for one in quiet(THREE, rate=0.5)}
    training = Training(agents.values(), TRIANGLE, sheaf(penalty=0.0), shared)
    chosen = shared[node_of(training, "a").pilot_policy.select(0).indices]
    scores = {name: scores_of(one, chosen) for name, one in agents.items()}
    rows = np.stack([softmax(s, axis=-1) for s in scores.values()])
    weights = rows.max(-1)[..., None] ** sharpness
    targets = (weights * rows).sum(0) / weights.sum(0)
    confidence = float(np.median(targets.max(-1)))
    sure = targets.max(-1) > confidence
    assert 2 <= sure.sum() < K

    consensus = Consensus(confidence, weight, sharpness)
    method = sheaf(penalty=0.0, privacy=privacy, distillation=consensus)
    training = Training(agents.values(), TRIANGLE, method, shared)
    before = weights_of(agents.values())["a"]
    log = deliver(training, 0, "a")["a"]
    np.testing.assert_allclose(node_of(training, "a")._last_exchange.consensus, targets, rtol=1e-5)
    expected = -(targets * log_softmax(scores["a"], axis=-1))[sure].sum(-1).mean()
    assert log["distillation_loss"] == pytest.approx(weight * expected, rel=1e-5)
    after = weights_of(agents.values())["a"]
    assert all(not torch.equal(before[key], after[key]) for key in before)  # encoder and head
    slope = weight * (softmax(scores["a"], axis=-1) - targets)[sure] / sure.sum()
    step = before["head bias"].numpy() - 0.5 * slope.sum(0)
    np.testing.assert_allclose(after["head bias"].numpy(), step, rtol=1e-5)


def test_penalty_and_objective_stay_beside_it() -> None:
    """The three losses of a step are those of networks that have only one of them more."""
    team = {name: d for name, d in THREE.items() if name != "c"}
    plain, agreed = (
        deliver(Training(noisy(team), PAIR, sheaf(distillation=wanted)), 0, "a")["a"]
        for wanted in (None, Consensus(0.0))
    )
    assert set(agreed) == {"loss", "penalty", "distillation_loss"}
    assert plain == {key: agreed[key] for key in ("loss", "penalty")}


def test_between_exchanges_the_last_consensus_is_learnt_of_its_own_pilots() -> None:
    agents = quiet({"a": 5, "b": 4})
    method = sheaf(penalty=0.0, exchange_every=3, distillation=Consensus(0.0))
    training = Training(agents, PAIR, method, pilots().double()).run(1)
    node = node_of(training, "a")
    targets = node._last_exchange.consensus.double().numpy()
    chosen = pilots().double()[node.pilot_policy.select(0).indices]
    for round in (1, 2):
        expected = -(targets * log_softmax(scores_of(agents[0], chosen), axis=-1)).sum(-1).mean()
        log = node.receive(round, {})
        assert log["distillation_loss"] == pytest.approx(expected, rel=1e-5)


def test_probabilities_that_were_rounded_sum_to_one_again() -> None:
    training = Training(noisy(THREE), TRIANGLE, sheaf(quantisation="int8")).run(1)
    sent = training.recorder.of_round(0)["b", "a"].tensors["probabilities"]
    assert sent.dtype == torch.float16
    total = node_of(training, "a")._last_exchange.consensus.sum(-1)
    torch.testing.assert_close(total, torch.ones(K), rtol=0, atol=1e-6)
    assert agree(sent, [], 4.0) is None


# What is sent


def sent_by(method: SheafFRL) -> tuple[SheafFRLNode, Message]:
    """What an agent with validation data sends first."""
    data = {"train": samples(12, 64), "validation": samples(11, 40)}
    training = Training([agent("a", 4, data=data), agent("b", 5)], PAIR, method)
    node = node_of(training, "a")
    (message,) = node.send(0)
    return node, message


def test_confidence_is_calibrated_by_validation_data() -> None:
    node, message = sent_by(sheaf())
    scores = torch.as_tensor(
        scores_of(node.agent, pilots()[node.pilot_policy.select(0).indices]), dtype=torch.float32
    )
    inputs, labels = samples(11, 40)
    temperature = fit_temperature(torch.as_tensor(scores_of(node.agent, inputs)), labels)
    assert not 0.9 < temperature < 1.1
    found = message.tensors["probabilities"]
    torch.testing.assert_close(found, torch.softmax(scores / temperature, dim=-1))
    plain = sent_by(sheaf(distillation=Consensus(calibrate=False)))[1].tensors["probabilities"]
    torch.testing.assert_close(plain, torch.softmax(scores, dim=-1))


def test_with_noise_predictions_follow_from_what_leaves_alone() -> None:
    """A temperature would tell of private data, beyond the privacy of the released latents."""
    node, message = sent_by(sheaf(noise=GaussianNoise(epsilon=8)))
    with torch.no_grad():
        leaving = node.whitening.eval().colour(message.tensors["latents"])
        expected = torch.softmax(node.agent.head(leaving), dim=-1)
    torch.testing.assert_close(message.tensors["probabilities"], expected)


# Which agents take part


def test_an_agent_without_labels_learns_and_does_not_teach() -> None:
    team = [unlabelled("u", 5), agent("b", 4), agent("c", 3)]
    training = Training(team, [("u", "b"), ("u", "c")], sheaf())
    head = team[0].head.weight.clone()
    logs = deliver(training, 0, "u", "b")
    sent = training.recorder.of_round(0)
    assert {edge for edge, m in sent.items() if "probabilities" in m.tensors} == {
        ("b", "u"),
        ("c", "u"),
    }
    said = [sent[j, "u"].tensors["probabilities"] for j in "bc"]
    assert torch.equal(node_of(training, "u")._last_exchange.consensus, agree(None, said, 4.0))
    assert not torch.equal(team[0].head.weight, head)  # its objective has no head
    assert "distillation_loss" not in logs["b"]
    assert not any(node.rejected for node in training.nodes.values())


def test_heads_of_numbers_and_no_heads_take_no_part() -> None:
    x, y = samples(3, 64)
    team = [
        agent("n", 4, data=(x, y.float()[:, None]), head=nn.Linear(4, 1), **NUMBERS),
        agent("bare", 4, head=None, objective=spread),
        agent("b", 5),
        agent("c", 3),
    ]
    training = Training(team, [("n", "b"), ("bare", "b"), ("b", "c")], sheaf())
    logs = deliver(training, 0, "n", "bare", "b")
    assert ["distillation_loss" in logs[name] for name in ("n", "bare", "b")] == [0, 0, 1]
    teaching = {m.sender for m in training.sent() if "probabilities" in m.tensors}
    assert teaching == {"b", "c"}
    assert not any("outputs" in m.tensors for m in training.sent())
    assert not any(node.rejected for node in training.nodes.values())


NUMBERS = {"objective": mean_squared_error}


def test_a_frozen_encoder_has_a_head_that_learns() -> None:
    one = agent("a", 4, frozen=True)
    training = Training([one, agent("b", 5)], PAIR, sheaf())
    before = weights_of([one])["a"]
    training.run(2)
    after = weights_of([one])["a"]
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert moved == {"head weight", "head bias"}
    assert all("distillation_loss" in log for log in training.logs)


@pytest.mark.parametrize("build", [agent, unlabelled])
def test_different_numbers_of_classes_are_refused_by_name(build: Any) -> None:
    other = build("b", 5, head=linear_head(5, 1, classes=4))
    nodes = nodes_of([agent("a", 8), other], PAIR, sheaf())
    expected = r"cannot exchange class probabilities: .* \d and \d classes"
    with pytest.raises(HandshakeError, match=expected):
        handshake(nodes, LocalTransport("ab"))


def test_different_kinds_of_distillation_are_refused_by_name() -> None:
    methods: Mapping[str, SheafFRL] = {"a": sheaf(), "b": sheaf(distillation=Distillation())}
    nodes = nodes_of([agent("a", 5), agent("b", 4)], PAIR, methods)
    expected = "do not agree on the distillation: 'consensus' against 'heads'"
    with pytest.raises(HandshakeError, match=expected):
        handshake(nodes, LocalTransport("ab"))


def test_pilots_that_are_means_of_samples_are_refused() -> None:
    policy = PrototypePilots(torch.arange(48) % CLASSES, seed=0)
    with pytest.raises(InputError, match=r"agent 'a': PrototypePilots has means of samples"):
        nodes_of([agent("a", 5), agent("b", 4)], PAIR, sheaf(pilots_per_round=policy))
    nodes_of(
        [agent("a", 5), agent("b", 4)],
        PAIR,
        sheaf(pilots_per_round=policy, distillation=Distillation()),
    )


# Faults, state, configuration


def test_late_and_damaged_predictions_are_left_out() -> None:
    training = Training(noisy(THREE), TRIANGLE, sheaf())
    node = node_of(training, "a")
    early = {j: m for j in "bc" for m in training.nodes[j].send(0) if m.receiver == "a"}
    assert node.reuse(1, early["b"]) is None  # of other pilots
    (own, _) = node.send(0)
    spoilt = {**early["b"].tensors, "probabilities": 2 * early["b"].tensors["probabilities"]}
    node.receive(0, early | {"b": dataclasses.replace(early["b"], tensors=spoilt)})
    assert dict(node.rejected) == {"probabilities": 1}
    said = (tensors["probabilities"] for tensors in (own.tensors, early["c"].tensors))
    expected = agree(next(said), [*said], 4.0)
    assert torch.equal(node._last_exchange.consensus, expected)
    list(node.send(1))
    assert "distillation_loss" not in node.receive(1, {})


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_it_resumes_between_exchanges(privacy: str, tmp_path: Path) -> None:
    """In the two rounds after it, nothing but the state knows the consensus."""
    method = sheaf(privacy=privacy, exchange_every=4, distillation=Consensus(0.0))
    assert_resumes(
        lambda: Training(noisy(THREE), TRIANGLE, method),
        2,
        2,
        tmp_path / "state",
        "distillation_loss",
    )


def test_tables_of_a_config() -> None:
    def made(distillation: Any) -> Any:
        return parse_experiment({"method": {"distillation": distillation}}).method.distillation

    assert made({"kind": "consensus"}) == made("consensus") == Consensus()
    assert made({"kind": "consensus", "sharpness": 2}) == Consensus(sharpness=2)
    assert made({"confidence": 0.5}) == made({"kind": "heads", "confidence": 0.5})
    assert made({}) == made("heads") == Distillation()
    with pytest.raises(InputError, match="sharpness"):
        made({"kind": "heads", "sharpness": 2})


def test_its_label() -> None:
    found = [sheaf(distillation=kind).label for kind in (None, Distillation(), Consensus())]
    assert found == ["Sheaf-FRL", "Sheaf-FRL with distillation", "Sheaf-FRL with consensus"]
