"""Consensus distillation: a step by hand, what is sent and when, which agents take part, faults."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import Tensor, nn
from torch.optim import SGD

import sheafed
from sheafed import Agent, ConsensusDistillation, NonCooperative, train
from sheafed.agents.objectives import UNLABELLED, cross_entropy, mean_squared_error
from sheafed.agents.samples import Batch
from sheafed.errors import HandshakeError, InputError
from sheafed.methods.consensus import Consensus, consensus, fit_temperature
from sheafed.methods.consensus_distillation.node import ConsensusDistillationNode
from sheafed.methods.predictions import as_bytes, from_bytes
from sheafed.metrics import Metric
from sheafed.transport import LocalTransport
from sheafed.transport.message import Message
from tests.helpers.baselines import (
    PAIR,
    TRIANGLE,
    Training,
    assert_resumes,
    before_last,
    noisy,
    nothing,
    quiet,
    receive_one,
)
from tests.helpers.federations import seeded
from tests.helpers.rounds import handshake
from tests.helpers.small_federations import (
    CLASSES,
    agent,
    linear_head,
    nodes_of,
    pilots,
    same_weights,
    samples,
    weights_of,
)

SIZES = {"a": 5, "b": 4}
THREE = {"a": 5, "b": 4, "c": 3}
M = len(pilots())
EAGER = ConsensusDistillation(confidence=0.4, exchange_every=1, pilots_per_exchange=M)


def targets_by_hand(agents: dict[str, Agent], inputs: Tensor, sharpness: float) -> np.ndarray:
    """The consensus of agents without validation data, as they send it."""
    rows = []
    for one in agents.values():
        with torch.no_grad():
            scores = one.head(one.encoder(inputs)).numpy()
        single = softmax(scores, axis=-1)
        sent = np.round(255 * np.sqrt(single / single.max(-1, keepdims=True))) ** 2
        rows.append(sent / sent.sum(-1, keepdims=True))
    weights = np.stack([row.max(-1) for row in rows])[..., None] ** sharpness
    return (weights * np.stack(rows)).sum(0) / weights.sum(0)


def agreed(*sent: Tensor) -> Tensor:
    """The consensus of predictions as they were sent."""
    return consensus([from_bytes(p) for p in sent], EAGER.sharpness)


def spread(one: Agent, batch: Batch) -> Tensor:
    """An objective without labels."""
    return one.encode(batch.inputs).square().mean()


def unlabelled(name: str, d: int, **options: Any) -> Agent:
    given = {"data": samples(5, 64)[0], "objective": spread}
    return agent(name, d, **(given | options))


def node_of(training: Training, name: str) -> ConsensusDistillationNode:
    node = training.nodes[name]
    assert isinstance(node, ConsensusDistillationNode)
    return node


# The step


@pytest.mark.parametrize("sizes", [SIZES, THREE])
def test_one_step_by_hand(sizes: dict[str, int]) -> None:
    rate, weight, sharpness = 0.5, 0.7, 3.0
    shared = pilots().double()
    agents = {a.name: a for a in quiet(sizes, rate)}
    targets = targets_by_hand(agents, shared, sharpness)
    confidence = float(np.median(targets.max(-1)))
    sure = targets.max(-1) > confidence
    assert sure.sum() == M // 2
    method = ConsensusDistillation(
        confidence, weight, sharpness, pilots_per_round=M, consensus_head=False
    )
    edges = PAIR if len(sizes) == 2 else TRIANGLE
    training = Training(agents.values(), edges, method, shared)
    one = agents["a"]
    hidden, w, b = before_last(one, shared[torch.as_tensor(sure)])
    v, c = (p.detach().numpy().copy() for p in (one.head.weight, one.head.bias))
    latents = hidden @ w.T + b
    scores = latents @ v.T + c
    expected = -(targets[sure] * log_softmax(scores, axis=-1)).sum(-1).mean()
    slope = weight * (softmax(scores, axis=-1) - targets[sure]) / sure.sum()

    log = receive_one(training, "a")
    assert log["distillation_loss"] == pytest.approx(weight * expected, rel=1e-6)
    assert log["loss"] == 0
    last, close = one.encoder[-1], {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(one.head.weight.detach(), v - rate * slope.T @ latents, **close)
    np.testing.assert_allclose(one.head.bias.detach(), c - rate * slope.sum(0), **close)
    np.testing.assert_allclose(last.weight.detach(), w - rate * (slope @ v).T @ hidden, **close)
    np.testing.assert_allclose(last.bias.detach(), b - rate * (slope @ v).sum(0), **close)


def test_the_objective_stays_beside_it() -> None:
    """The gradient is the sum of that of the objective and that of the pilots."""
    rate = 0.3
    training = Training(
        quiet(SIZES, rate, cross_entropy),
        PAIR,
        ConsensusDistillation(0.0, pilots_per_round=M, consensus_head=False),
        pilots().double(),
    )
    one = training.agents[0]
    before = [p.detach().clone() for p in one.parameters]
    twin = copy.deepcopy(one)
    twin.optimizer_step(own := twin.objective(twin, twin.next_batch()))
    log = receive_one(training, "a")
    assert log["loss"] == float(own.detach())
    node = node_of(training, "a")
    other = copy.deepcopy(training.agents[0])
    for p, old in zip(other.parameters, before, strict=True):
        p.data.copy_(old)
    scores = other.apply_head(other.encode(pilots().double()))
    pull = torch.autograd.grad(
        -(node.targets * scores.log_softmax(-1)).sum(-1).mean(), other.parameters
    )
    for p, q, g in zip(one.parameters, twin.parameters, pull, strict=True):
        torch.testing.assert_close(p.detach(), (q - rate * g).detach())


@pytest.mark.parametrize("in_batch", [False, True])
def test_only_confident_pilots_are_learnt_and_at_most_so_many_in_a_round(in_batch: bool) -> None:
    """In the batch they take the place of own samples, of half of them by default."""
    encoded: list[int] = []

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            encoded.append(len(x))
            return super().forward(x)

    def rows(confidence: float, most: int | None) -> int:
        one = agent("a", 4, encoder=seeded(3, lambda: Counted(6, 4)))
        method = ConsensusDistillation(confidence, pilots_per_round=most, pilots_in_batch=in_batch)
        training = Training([one, agent("b", 5)], PAIR, method).run(1)
        assert one.batch_size == 16
        sure = int((node_of(training, "a").targets.amax(-1) > confidence).sum())
        encoded.clear()
        training.run(1)  # no exchange in this one
        if sure < 2:
            assert encoded == [16]
        else:
            learnt = min(sure, most or (8 if in_batch else 16))
            assert encoded == [max(2, 16 - learnt) if in_batch else 16, learnt]
        return sure

    assert rows(0.0, None) == M
    assert 2 <= rows(0.5, M) < M
    assert rows(0.5, 3) > 3
    assert 2 <= rows(0.53, 12) < 12
    assert rows(0.0, 15) == M  # of own samples there are at least two
    assert rows(0.999, None) < 2


def test_in_a_batch_of_few_samples_pilots_take_the_place_of_half_of_them() -> None:
    few = agent("a", 4, data=samples(5, 10))
    method = ConsensusDistillation(0.0, pilots_in_batch=True)
    node = node_of(Training([few, agent("b", 5)], PAIR, method).run(1), "a")
    rows = node.learnt_rows(1)
    assert (few.batch_size, len(rows), node.own_samples(rows)) == (16, 5, 5)


def test_pilots_are_drawn_anew_in_every_round_and_for_every_agent() -> None:
    method = ConsensusDistillation(0.0, pilots_per_round=8)
    training = Training([agent(n, d) for n, d in SIZES.items()], PAIR, method)
    seen: dict[str, list[Tensor]] = {"a": [], "b": []}
    for name in seen:
        node = node_of(training, name)
        plain = node.pilot_latents.in_training

        def record(rows: Tensor, round: int, name: str = name, plain: Any = plain) -> Tensor:
            seen[name].append(rows)
            return plain(rows, round)

        node.pilot_latents.in_training = record
    training.run(3)
    draws = [set(rows.tolist()) for drawn in seen.values() for rows in drawn]
    assert len(draws) == 6
    assert all(len(draw) == 8 for draw in draws)
    assert len({frozenset(draw) for draw in draws}) == 6


# What is sent, and when


@pytest.mark.parametrize(("epoch", "every"), [(9, 9), (3, 8)])
def test_predictions_are_sent_once_an_epoch_and_not_in_every_few_rounds(
    epoch: int, every: int
) -> None:
    method = ConsensusDistillation(confidence=0.4)
    training = Training(noisy(SIZES), PAIR, method, rounds_per_epoch=epoch)
    for round in range(2 * every + 1):
        node = node_of(training, "a")
        with torch.no_grad(), node.agent.inference():
            expected = torch.softmax(node.agent.head(node.agent.encoder(pilots())), dim=-1)
        training.run(1)
        sent = training.recorder.of_round(round)
        assert set(sent) == ({("a", "b"), ("b", "a")} if round % every == 0 else set())
        if sent:
            message = sent["a", "b"]
            assert set(message.tensors) == {"probabilities"}
            assert message.fields == {"drawn": round}
            assert message.tensors["probabilities"].dtype == torch.uint8
            torch.testing.assert_close(message.tensors["probabilities"], as_bytes(expected))
    assert training.recorder.transport.ledger.payload_bytes() == 3 * 2 * M * CLASSES
    assert all("distillation_loss" in log for log in training.logs)


def test_the_rounds_between_exchanges_can_be_chosen_and_must_agree() -> None:
    method = ConsensusDistillation(exchange_every=2)
    training = Training(noisy(SIZES), PAIR, method, rounds_per_epoch=3).run(5)
    assert sorted({m.round for m in training.sent()}) == [0, 2, 4]
    for other, expected in (
        (ConsensusDistillation(), "rounds between exchanges: 2 against 8"),
        (ConsensusDistillation(exchange_every=2, pilots_per_exchange=9), "exchange: 48 against 9"),
    ):
        nodes = nodes_of(noisy(SIZES), PAIR, {"a": method, "b": other})
        with pytest.raises(HandshakeError, match=expected):
            handshake(nodes, LocalTransport("ab"))


def test_every_exchange_is_about_other_pilots_the_same_for_all() -> None:
    """They alone are predicted, sent, agreed on and learnt until the next."""
    few, every = 20, 3
    method = ConsensusDistillation(0.0, exchange_every=every, pilots_per_exchange=few)
    training = Training([agent(n, d) for n, d in THREE.items()], TRIANGLE, method)
    drawn = []
    for round in range(3 * every):
        nodes = {name: node_of(training, name) for name in THREE}
        before = {
            name: torch.softmax(one.agent.head(one.agent.encoder(pilots())), dim=-1)
            for name, one in nodes.items()
        }
        training.run(1)
        rows = {name: set(one.learnt_rows(round).tolist()) for name, one in nodes.items()}
        if round % every == 0:
            agreed_on = {n: one.targets.sum(-1).nonzero()[:, 0] for n, one in nodes.items()}
            assert len({tuple(each.tolist()) for each in agreed_on.values()}) == 1
            chosen = agreed_on["a"]
            assert len(chosen) == few
            drawn.append(set(chosen.tolist()))
            for (sender, _), message in training.recorder.of_round(round).items():
                said = message.tensors["probabilities"]
                where = nodes[sender].predictions.rows(round)
                assert set(where.tolist()) == drawn[-1]
                torch.testing.assert_close(said, as_bytes(before[sender][where].detach()))
            expected = agreed(*(as_bytes(p[chosen].detach()) for p in before.values()))
            torch.testing.assert_close(nodes["a"].targets[chosen], expected)
        assert all(own <= drawn[-1] for own in rows.values())
    assert len({frozenset(each) for each in drawn}) == 3


def test_a_silent_neighbour_counts_where_it_has_said_something() -> None:
    few = 30
    method = ConsensusDistillation(0.0, exchange_every=1, pilots_per_exchange=few)
    training = Training(
        noisy(SIZES), PAIR, method, drop=lambda m: m.kind == "round" and m.round > 0
    ).run(2)
    node = node_of(training, "a")
    first, second = (node.predictions.rows(r) for r in (0, 1))
    heard = training.recorder.of_round(0)["b", "a"].tensors["probabilities"]
    own = training.recorder.of_round(1)["a", "b"].tensors["probabilities"]
    said = {row: heard[k] for k, row in enumerate(first.tolist())}
    known = [row in said for row in second.tolist()]
    assert 0 < sum(known) < few
    for k, row in enumerate(second.tolist()):
        parts = [own[k], said[row]] if known[k] else [own[k]]
        torch.testing.assert_close(node.targets[row], agreed(*(p[None] for p in parts))[0])


def test_where_nobody_has_said_anything_nothing_is_learnt() -> None:
    """An agent without labels says nothing itself, and its neighbour was heard once."""
    method = ConsensusDistillation(0.0, exchange_every=1, pilots_per_exchange=30)
    training = Training(
        [unlabelled("u", 5), agent("b", 4)],
        [("b", "u")],
        method,
        drop=lambda m: m.kind == "round" and m.round > 0,
    ).run(2)
    node = node_of(training, "u")
    first, second = (set(node.predictions.rows(r).tolist()) for r in (0, 1))
    assert second - first
    assert set(node.targets.sum(-1).nonzero()[:, 0].tolist()) == first & second
    assert torch.isfinite(node.targets).all()
    seen = {row for round in range(9) for row in node.learnt_rows(round).tolist()}
    assert seen == first & second


def calibrated(labels: Tensor | None, **options: Any) -> tuple[Tensor, Tensor]:
    """Return what an agent with validation data would send, and its plain scores."""
    inputs = samples(11, 40)[0]
    given = samples(12, 64)
    validation = inputs if labels is None else (inputs, labels)
    one = agent("a", 4, data={"train": given, "validation": validation})
    training = Training([one, agent("b", 5)], PAIR, ConsensusDistillation(**options))
    with torch.no_grad():
        scores = one.head(one.encoder(pilots()))
    return node_of(training, "a").predict_pilots(0), scores


def test_with_a_confidence_of_1_agents_train_alone_and_exchange_when_maps_are_fitted() -> None:
    methods = (ConsensusDistillation(confidence=1.0), NonCooperative())
    runs = [Training([agent(n, d) for n, d in SIZES.items()], PAIR, m).run(4) for m in methods]
    assert same_weights(*(training.agents for training in runs))
    assert runs[0].recorder.transport.ledger.payload_bytes() == 0


def test_confidence_is_calibrated_by_validation_data() -> None:
    inputs, labels = samples(11, 40)
    found, scores = calibrated(labels)
    one = agent("a", 4)
    with torch.no_grad():
        temperature = fit_temperature(one.head(one.encoder(inputs)), labels)
    assert not 0.9 < temperature < 1.1
    torch.testing.assert_close(found, as_bytes(torch.softmax(scores / temperature, dim=-1)))
    # Without labels or if it is not wanted scores are taken as they are.
    plain = as_bytes(torch.softmax(scores, dim=-1))
    torch.testing.assert_close(calibrated(None)[0], plain)
    torch.testing.assert_close(calibrated(labels, calibrate=False)[0], plain)


def test_calibration_takes_samples_from_all_over_the_validation_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sheafed.methods.consensus.CALIBRATION_SAMPLES", 10)
    inputs, labels = samples(11, 19)
    order = labels.argsort(stable=True)  # sorted, as files often are
    one = agent(
        "a", 4, data={"train": samples(12, 64), "validation": (inputs[order], labels[order])}
    )
    asked: list[Tensor] = []
    plain = one.encode_samples

    def record(given: Any, rows: Tensor | None = None) -> Any:
        asked.append(rows)
        return plain(given, rows)

    monkeypatch.setattr(one, "encode_samples", record)
    training = Training([one, agent("b", 5)], PAIR, ConsensusDistillation())
    node_of(training, "a").predict_pilots(0)
    assert len(asked[0].unique()) == 10
    assert set(labels[order][asked[0]].tolist()) == {0, 1, 2}


def test_some_samples_are_encoded_as_they_are_among_all() -> None:
    one = agent("a", 4, 0, nn.BatchNorm1d(16), nn.Dropout(0.3))
    latents, targets = one.encode_samples(one.data.train)
    rows = torch.tensor([9, 2, 40])
    some, chosen = one.encode_samples(one.data.train, rows)
    torch.testing.assert_close(some, latents[rows])
    assert torch.equal(chosen, targets[rows])


# Which agents take part


def test_agents_without_a_head_of_classes_train_for_themselves() -> None:
    """Without a head, with a head of numbers, with a single score: none is told anything."""

    def binary(one: Agent, batch: Batch) -> Tensor:
        score = one.apply_head(one.encode(batch.inputs)).squeeze(-1)
        target = (batch.targets == 0).to(score)
        return nn.functional.binary_cross_entropy_with_logits(score, target)

    x, y = samples(3, 64)
    numbers = {"data": (x, y.float()[:, None]), "objective": mean_squared_error}
    agents = [
        agent("bare", 4, head=None, objective=spread),
        agent("numbers", 4, head=nn.Linear(4, 1), **numbers),
        agent("many", 4, head=nn.Linear(4, 7), **(numbers | {"data": (x, x.repeat(1, 2)[:, :7])})),
        agent("single", 4, head=nn.Linear(4, 1), objective=binary),
        agent("flat", 4, head=nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), objective=binary),
        agent("b", 5),
        agent("c", 3),
    ]
    names = [a.name for a in agents]
    edges = [(n, "b") for n in names if n != "b"] + [("bare", "numbers")]
    alone = Training(copy.deepcopy(agents), edges, NonCooperative()).run(5)
    training = Training(agents, edges, EAGER).run(5)
    assert {(m.sender, m.receiver) for m in training.sent()} == {("b", "c"), ("c", "b")}
    assert {n for n in names if node_of(training, n).targets is not None} == {"b", "c"}
    assert same_weights(training.agents[:5], alone.agents[:5])
    assert not same_weights(training.agents[5:], alone.agents[5:])
    assert not any(node.rejected for node in training.nodes.values())


def test_an_agent_without_labels_learns_and_does_not_teach() -> None:
    training = Training(
        [unlabelled("u", 5), agent("b", 4), agent("c", 3)], [("u", "b"), ("u", "c")], EAGER
    )
    before = copy.deepcopy(training.agents[0].head.weight)
    training.run(1)
    sent = training.recorder.of_round(0)
    assert {edge: set(m.tensors) for edge, m in sent.items()} == {
        ("b", "u"): {"probabilities"},
        ("c", "u"): {"probabilities"},
        ("u", "b"): set(),  # so that b and u wait for each other
        ("u", "c"): set(),
    }
    said = [sent[j, "u"].tensors["probabilities"] for j in "bc"]
    torch.testing.assert_close(node_of(training, "u").targets, agreed(*said))
    assert node_of(training, "b").targets is None
    assert not torch.equal(training.agents[0].head.weight, before)  # its objective has no head
    assert not any(node.rejected for node in training.nodes.values())


def test_an_agent_whose_samples_all_lack_a_label_does_not_teach() -> None:
    blank = (samples(5, 64)[0], torch.full((64,), UNLABELLED))
    one = agent("u", 5, data=blank, objective=spread)
    training = Training([one, agent("b", 4)], [("u", "b")], EAGER).run(1)
    assert not node_of(training, "u").teaches
    assert training.recorder.of_round(0)["u", "b"].tensors == {}


def test_neighbours_send_to_each_other_or_not_at_all() -> None:
    """A peer waits for those that it has sent to."""
    agents = [
        agent("a", 4),
        agent("b", 5),
        unlabelled("u", 4),
        unlabelled("v", 3),
        agent("bare", 4, head=None, objective=spread),
    ]
    names = [a.name for a in agents]
    edges = [(i, j) for i in names for j in names if i < j]
    sent = set(Training(agents, edges, EAGER).run(1).recorder.of_round(0))
    assert sent == {(j, i) for i, j in sent}
    pairs = {frozenset(pair) for pair in sent}
    assert pairs == {frozenset(pair) for pair in ("ab", "au", "av", "bu", "bv")}


def test_frozen_encoders_are_encoded_once_and_their_heads_learn() -> None:
    calls: list[int] = []

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    def dull(one: Agent, batch: Batch) -> Tensor:
        return 0 * one.head.weight.sum()

    one = agent("a", 4, encoder=seeded(3, lambda: Counted(6, 4)), frozen=True, objective=dull)
    method = ConsensusDistillation(0.0, consensus_head=False)
    training = Training([one, agent("b", 5)], PAIR, method)
    calls.clear()
    before = weights_of([one])["a"]
    training.run(6)
    assert calls == [M]
    after = weights_of([one])["a"]
    assert {k for k in before if not torch.equal(before[k], after[k])} == {
        "head weight",
        "head bias",
    }


def test_an_agent_with_nothing_to_train_teaches() -> None:
    head = linear_head(4, 7).requires_grad_(False)
    one = agent("a", 4, frozen=True, head=head)
    training = Training([one, agent("b", 5)], PAIR, EAGER).run(3)
    assert one.steps == 0
    assert ("a", "b") in training.recorder.of_round(0)
    assert "distillation_loss" in training.logs[0]


def test_an_agent_without_neighbours_trains_alone() -> None:
    one, twin = agent("a", 4), agent("a", 4)
    Training([one], [], EAGER).run(5)
    Training([twin], [], NonCooperative()).run(5)
    assert same_weights([one], [twin])


def test_different_numbers_of_classes_are_refused_by_name() -> None:
    other = agent("b", 5, head=linear_head(5, 1, classes=4))
    nodes = nodes_of([agent("a", 8), other], PAIR, EAGER)
    expected = r"agents 'a' and 'b' cannot exchange class probabilities: .* 3 and 4 classes"
    with pytest.raises(HandshakeError, match=expected):
        handshake(nodes, LocalTransport("ab"))


def test_soft_labels_calibrate_too() -> None:
    x, y = samples(3, 64)
    soft = 0.8 * nn.functional.one_hot(y, CLASSES).float() + 0.2 / CLASSES
    data = {"train": (x, soft), "validation": (x, soft)}

    def agreement(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.argmax(-1) == targets.argmax(-1)).float().mean())

    one = agent("a", 4, data=data, metric=Metric("agreement", agreement, greater_is_better=True))
    training = Training([one, agent("b", 5)], PAIR, EAGER)
    with torch.no_grad():
        temperature = fit_temperature(one.head(one.encoder(x)), soft)
        expected = torch.softmax(one.head(one.encoder(pilots())) / temperature, dim=-1)
    torch.testing.assert_close(node_of(training, "a").predict_pilots(0), as_bytes(expected))


# Faults


def test_of_a_silent_neighbour_the_last_prediction_goes_on_being_used() -> None:
    training = Training(
        noisy(THREE),
        TRIANGLE,
        EAGER,
        rounds_per_epoch=1,
        drop=lambda m: m.kind == "round" and m.sender == "b" and m.round > 0,
    ).run(2)
    first, second = (training.recorder.of_round(r) for r in (0, 1))
    said = [
        second["a", "c"].tensors["probabilities"],
        first["b", "a"].tensors["probabilities"],
        second["c", "a"].tensors["probabilities"],
    ]
    torch.testing.assert_close(node_of(training, "a").targets, agreed(*said))


def test_without_any_message_it_is_independent_training() -> None:
    training = Training(noisy(THREE), TRIANGLE, EAGER, drop=lambda m: m.kind == "round").run(6)
    alone = Training(noisy(THREE), TRIANGLE, NonCooperative()).run(6)
    assert same_weights(training.agents, alone.agents)
    assert training.logs == alone.logs


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: p.clamp(max=254), "probabilities"),
        (torch.zeros_like, "probabilities"),
        (lambda p: p[:, :2], "shape"),
        (lambda p: p[1:], "shape"),
        (lambda p: p.float(), "dtype"),
    ],
)
def test_damaged_predictions_are_left_out(spoil: Any, reason: str) -> None:
    training = Training(noisy(THREE), TRIANGLE, EAGER, rounds_per_epoch=1).run(1)
    before = node_of(training, "a").predictions.state()["b"]
    inbox = {}
    for name in "abc":
        for message in training.nodes[name].send(1):
            if message.receiver == "a":
                inbox[name] = message
    whole = inbox["b"].tensors["probabilities"]
    inbox["b"] = dataclasses.replace(inbox["b"], tensors={"probabilities": spoil(whole)})
    node = node_of(training, "a")
    node.receive(1, inbox)
    assert dict(node.rejected) == {reason: 1}
    said = node.predictions.state()
    assert torch.equal(said["b"], before)
    assert torch.equal(said["c"], inbox["c"].tensors["probabilities"])


def test_what_was_not_agreed_is_left_out() -> None:
    """Predictions from one that does not teach, none from one that does, and to no head."""
    agents = [agent("a", 4), unlabelled("u", 5), agent("bare", 3, head=None, objective=spread)]
    training = Training(agents, [("a", "u"), ("a", "bare")], EAGER)
    probabilities = as_bytes(torch.full((M, CLASSES), 1 / CLASSES))

    def from_one(sender: str, receiver: str, tensors: dict[str, Tensor]) -> dict[str, int]:
        node = training.nodes[receiver]
        node.rejected.clear()
        node.receive(0, {sender: Message("round", 0, sender, receiver, tensors, {"drawn": 0})})
        return dict(node.rejected)

    full = {"probabilities": probabilities}
    assert from_one("u", "a", full) == {"names": 1}
    assert from_one("a", "u", {}) == {"names": 1}
    assert from_one("a", "u", full | {"more": probabilities}) == {"names": 1}
    assert from_one("a", "bare", full) == {"names": 1}
    assert from_one("a", "u", full) == {}
    assert node_of(training, "a").targets is None


def test_a_late_message_is_one_of_its_round() -> None:
    """And of the pilots that were drawn for it."""
    method = ConsensusDistillation(0.4, exchange_every=2, pilots_per_exchange=30)
    training = Training(noisy(SIZES), PAIR, method)
    node = node_of(training, "a")
    (message,) = training.nodes["b"].send(0)
    late = node.reuse(4, message)
    assert late.round == 4
    node.receive(4, {"b": late})
    assert not node.rejected
    said, rows = node.predictions.state()["b"], node.predictions.rows(0)
    assert torch.equal(said[rows], message.tensors["probabilities"])
    assert int((said.sum(-1) > 0).sum()) == 30


@pytest.mark.parametrize("drawn", [None, "0", True, -2, 3, 6])
def test_a_message_about_unknown_pilots_is_left_out(drawn: Any) -> None:
    """The round of no exchange, or of one to come."""
    training = Training(noisy(SIZES), PAIR, ConsensusDistillation(0.4, exchange_every=2))
    node = node_of(training, "a")
    (message,) = training.nodes["b"].send(4)
    fields = {} if drawn is None else {"drawn": drawn}
    node.receive(4, {"b": dataclasses.replace(message, fields=fields)})
    assert dict(node.rejected) == {"drawn": 1}
    assert node.targets is None


def test_one_pilot_is_too_few_for_batch_norm() -> None:
    small = {**THREE}
    agents = [agent(n, d, 0, nn.BatchNorm1d(16), batch_size=2) for n, d in small.items()]
    agents[0].batch_size = 1
    training = Training(agents, TRIANGLE, ConsensusDistillation(0.0))
    assert node_of(training, "a").pilots_per_round == 2
    node = node_of(training, "b")
    targets = torch.full((M, CLASSES), 1 / CLASSES)
    targets[3] = torch.tensor([1.0, 0.0, 0.0])
    node.targets = targets
    node.consensus = Consensus(0.9)
    assert "distillation_loss" not in node.receive(1, {})


# Neighbours that leave, state, files


def test_what_a_neighbour_said_is_forgotten_when_it_has_left() -> None:
    training = Training(noisy(THREE), TRIANGLE, EAGER, rounds_per_epoch=1).run(1)
    node = node_of(training, "a")
    assert node.targets is not None
    node.remove_neighbour("b")
    inbox = {m.sender: m for m in training.nodes["c"].send(1) if m.receiver == "a"}
    own = {m.receiver: m for m in node.send(1)}
    assert own.keys() == {"c"}
    node.receive(1, inbox)
    said = [own["c"].tensors["probabilities"], inbox["c"].tensors["probabilities"]]
    torch.testing.assert_close(node.targets, agreed(*said))
    node.remove_neighbour("c")
    assert list(node.send(2)) == []
    assert "distillation_loss" not in node.receive(2, {})
    assert node.targets is None


def test_another_agent_under_the_name_of_one_that_left_is_read_without_its_offset() -> None:
    network = train([agent("a", 5), agent("b", 4)], PAIR, EAGER, pilots(), epochs=1)
    node, z = network.nodes["a"], torch.ones(1, 5)
    assert not torch.equal(node.read(z, "b"), node.reading_head.head(z))
    network.leave("b")
    network.join(agent("b", 3), ["a"])
    assert torch.equal(node.read(z, "b"), node.reading_head.head(z))


@pytest.mark.parametrize("rounds", [0, 3, 6])
def test_it_resumes(rounds: int, tmp_path: Path) -> None:
    """Before the first exchange, when there is no consensus yet, and between two."""
    method = ConsensusDistillation(0.4, exchange_every=4)
    assert_resumes(
        lambda: Training(noisy(THREE), TRIANGLE, method),
        rounds,
        5,
        tmp_path / "state",
        "distillation_loss",
    )


def test_a_network_in_a_file(tmp_path: Path) -> None:
    """One agent has a consensus, the other is told nothing and has none."""

    def team() -> list[Agent]:
        return [agent("a", 4), agent("b", 5), agent("bare", 3, head=None, objective=spread)]

    options = {"epochs": 2, "out": tmp_path}
    trained = train(team(), [("a", "b"), ("b", "bare")], EAGER, pilots(), **options)
    assert trained.history.last["distillation_loss"] > 0
    loaded = sheafed.load(tmp_path, team(), pilots=pilots())
    assert loaded.method == EAGER
    assert loaded.evaluate() == trained.history.evaluation
    assert torch.equal(loaded.nodes["a"].targets, trained.nodes["a"].targets)
    assert loaded.nodes["bare"].targets is None
    for network in (trained, loaded):
        network.train(epochs=1)
    assert same_weights(trained.agents.values(), loaded.agents.values())
    sums = ("bytes_sent", "payload_bytes")  # a loaded network counts anew
    trained_on, loaded_on = (
        {k: v for k, v in network.history.last.items() if k not in sums}
        for network in (trained, loaded)
    )
    assert trained_on == loaded_on


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_trained_and_understood(whitening: str) -> None:
    method = ConsensusDistillation(0.4, whitening=whitening)
    run = train(noisy(SIZES), PAIR, method, pilots(), epochs=2)
    assert run.history.evaluation is not None
    assert set(run.history.evaluation.communication) == {("a", "b"), ("b", "a")}
    kinds = {row.kind for row in run.history.ledger.rows()}
    assert kinds == {"hello", "round", "alignment"}


def test_what_is_taught_is_right() -> None:
    """The head of an agent without any label learns the classes from its neighbour."""

    def accuracy(method: Any) -> float:
        data = {"train": samples(5, 64)[0], "test": samples(50, 120)}
        options = {"optimizer": lambda p: SGD(p, lr=0.1)}
        agents = [
            unlabelled("a", 4, data=data, objective=nothing, **options),
            agent("b", 5, data={"train": samples(6, 64), "validation": samples(7, 30)}, **options),
        ]
        run = train(agents, PAIR, method, pilots(), epochs=12, evaluate_every=12, oracle=False)
        return run.history.evaluation.private["a"]

    assert accuracy(NonCooperative()) < 0.6
    assert accuracy(ConsensusDistillation()) > 0.9


@pytest.mark.parametrize(
    "options",
    [
        {"confidence": 1.1},
        {"weight": 0.0},
        {"sharpness": -1.0},
        {"sharpness": float("inf")},
        {"calibrate": 1},
        {"exchange_every": 0},
        {"pilots_per_round": 1},
        {"pilots_per_exchange": 1},
        {"pilots_in_batch": 0.5},
        {"whitening": "none"},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ConsensusDistillation(**options)
