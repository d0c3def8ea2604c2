"""Distillation: what is sent, what is learnt from, and which agents take part."""

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, Distillation, MapPolicy, SheafFRL
from sheafed.errors import HandshakeError, InputError
from sheafed.evaluation import evaluate_locally
from sheafed.methods import NonCooperative
from sheafed.methods.node import Node
from sheafed.transport import LocalTransport, encode
from tests.helpers.rounds import handshake, one_round
from tests.helpers.small_federations import (
    CLASSES,
    MessageRecorder,
    agent,
    linear_head,
    nodes_of,
    pilots,
    run_rounds,
    samples,
)

EDGES = [("a", "b"), ("a", "c")]


def network(method: SheafFRL, **options: object) -> dict[str, Node]:
    agents = [agent("a", 8, **options), agent("b", 5, **options), agent("c", 5, **options)]
    return nodes_of(agents, EDGES, method)


def logs_of(
    nodes: dict[str, Node], rounds: int
) -> tuple[MessageRecorder, list[dict[str, dict[str, float]]]]:
    recorder, logs = MessageRecorder(nodes), []
    handshake(nodes, recorder.transport)
    for round in range(rounds):
        for node in nodes.values():
            recorder.transport.send(node.send(round))
        logs.append(
            {
                name: node.receive(
                    round, recorder.transport.receive(name, round, "round", node.neighbours)
                )
                for name, node in nodes.items()
            }
        )
    return recorder, logs


def test_what_is_sent_are_the_heads_probabilities_of_this_rounds_pilots() -> None:
    nodes = network(SheafFRL(distillation=Distillation(), pilots_per_round=20))
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for name, node in nodes.items():
        chosen = pilots()[node.pilot_policy.select(0).indices]
        with torch.no_grad():
            expected = torch.softmax(node.agent.head(node.agent.encoder(chosen)), dim=1)
        for message in node.send(0):
            found = message.tensors["probabilities"]
            assert found.shape == (20, CLASSES)
            torch.testing.assert_close(found, expected)
            assert not found.requires_grad, name


@torch.no_grad()
def by_hand(
    head: nn.Module, latents: list[Tensor], distillation: list[Tensor], confidence: float
) -> float | None:
    """The soft cross-entropy, pilot by pilot."""
    total, used = 0.0, 0
    for z, b in zip(torch.cat(latents), torch.cat(distillation), strict=True):
        if float(b.max()) > confidence:
            logits = head(z)
            total += sum(
                -float(b[c]) * float(logits[c] - torch.logsumexp(logits, 0)) for c in range(len(b))
            )
            used += 1
    return total / used if used > 1 else None


@pytest.mark.parametrize("privacy", ["standard", "strict"])
@pytest.mark.parametrize("confidence", [0.0, 0.4, 0.5, 0.999])
def test_the_loss_by_hand_and_only_of_confident_pilots(confidence: float, privacy: str) -> None:
    method = SheafFRL(
        penalty=0.05,
        privacy=privacy,
        distillation=Distillation(confidence=confidence, weight=0.7),
        pilots_per_round=20,
    )
    nodes = network(method)
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    one_round(nodes, recorder.transport, 0)
    for node in nodes.values():
        recorder.transport.send(node.send(1))
    sent, heads = (
        recorder.of_round(1),
        {n: copy.deepcopy(node.agent.head) for n, node in nodes.items()},
    )
    some = 0
    for name, node in nodes.items():
        log = node.receive(1, recorder.transport.receive(name, 1, "round", node.neighbours))
        tensors = [sent[j, name].tensors for j in node.neighbours]
        # Maps and whitening do not change any more after the fit of this round.
        latents = [
            node.interpret(t["latents"], j) for t, j in zip(tensors, node.neighbours, strict=True)
        ]
        expected = by_hand(heads[name], latents, [t["probabilities"] for t in tensors], confidence)
        if expected is None:
            assert "distillation_loss" not in log
        else:
            assert log["distillation_loss"] == pytest.approx(0.7 * expected, rel=1e-4)
            some += 1
    assert some == (0 if confidence == 0.999 else 3)


def test_between_exchanges_the_last_probabilities_are_learnt_on() -> None:
    method = SheafFRL(
        distillation=Distillation(confidence=0.4), pilots_per_round=20, exchange_every=3
    )
    nodes = network(method)
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    one_round(nodes, recorder.transport, 0)
    sent = recorder.of_round(0)
    for round in (1, 2):
        for name, node in nodes.items():
            head = copy.deepcopy(node.agent.head)
            log = node.receive(round, {})
            tensors = {j: sent[j, name].tensors for j in node.neighbours}
            latents = [node.interpret(t["latents"], j) for j, t in tensors.items()]
            distillation = [t["probabilities"] for t in tensors.values()]
            expected = by_hand(head, latents, distillation, 0.4)
            assert log["distillation_loss"] == pytest.approx(expected, rel=1e-4)
    nodes["a"].remove_neighbour("b")
    nodes["b"].remove_neighbour("a")
    assert "distillation_loss" in nodes["a"].receive(2, {})  # c's
    assert "distillation_loss" not in nodes["b"].receive(2, {})


def test_only_the_head_learns_from_probabilities() -> None:
    """With an objective that is constant, nothing but the head moves, and only its own."""

    def constant(a: Agent, batch: object) -> Tensor:
        return sum(p.sum() * 0 for p in a.parameters)

    plain = {"objective": constant, "optimizer": lambda p: torch.optim.SGD(p, lr=0.1)}
    nodes = network(SheafFRL(penalty=0.0, distillation=Distillation(confidence=0.0)), **plain)
    before = {n: copy.deepcopy((node.agent.encoder, node.agent.head)) for n, node in nodes.items()}
    run_rounds(nodes, 2)
    for name, node in nodes.items():
        encoder, head = before[name]
        for old, new in zip(encoder.parameters(), node.agent.encoder.parameters(), strict=True):
            assert torch.equal(old, new)
        assert not torch.equal(head.weight, node.agent.head.weight)


def test_the_step_is_that_of_the_loss_by_hand() -> None:
    def constant(a: Agent, batch: object) -> Tensor:
        return sum(p.sum() * 0 for p in a.parameters)

    plain = {"objective": constant, "optimizer": lambda p: torch.optim.SGD(p, lr=0.1)}
    distillation = Distillation(confidence=0.45, weight=0.5)
    nodes = network(SheafFRL(penalty=0.0, distillation=distillation, pilots_per_round=20), **plain)
    head = copy.deepcopy(nodes["a"].agent.head)
    recorder = run_rounds(nodes, 1)
    node, sent = nodes["a"], recorder.of_round(0)
    z = torch.cat([node.interpret(sent[j, "a"].tensors["latents"], j) for j in "bc"])
    b = torch.cat([sent[j, "a"].tensors["probabilities"] for j in "bc"])
    sure = b.amax(1) > 0.45
    assert 2 < int(sure.sum()) < len(b)
    loss = -(b[sure] * head(z[sure]).log_softmax(1)).sum(1).mean()
    gradient = torch.autograd.grad(0.5 * loss, head.weight)[0]
    torch.testing.assert_close(node.agent.head.weight, head.weight - 0.1 * gradient)


def test_one_confident_pilot_is_too_few_for_batch_norm_and_is_left() -> None:
    nodes = network(SheafFRL(distillation=Distillation(confidence=0.9), pilots_per_round=20))
    for name in "bc":
        nodes[name].agent.head.weight.data.zero_()
        nodes[name].agent.head.bias.data.zero_()
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for node in nodes.values():
        for message in node.send(0):
            if (message.sender, message.receiver) == ("b", "a"):
                message.tensors["probabilities"][3] = torch.tensor([1.0, 0.0, 0.0])
            recorder.transport.send([message])
    log = nodes["a"].receive(0, recorder.transport.receive("a", 0, "round", "bc"))
    assert "distillation_loss" not in log
    assert log["penalty"] > 0


def test_agents_without_a_head_take_part() -> None:
    def spread(a: Agent, batch: object) -> Tensor:
        return a.encode(batch.inputs).square().mean()

    agents = [agent("a", 8, head=None, objective=spread), agent("b", 5), agent("c", 5)]
    method = SheafFRL(distillation=Distillation(confidence=0.0), pilots_per_round=20)
    nodes = nodes_of(agents, [("a", "b"), ("b", "c")], method)
    recorder, logs = logs_of(nodes, 3)
    sent = recorder.of_round(2)
    assert set(sent["a", "b"].tensors) == {"latents"}
    assert set(sent["b", "a"].tensors) == {"latents", "probabilities"}
    assert "distillation_loss" not in logs[2]["a"]
    assert logs[2]["a"]["penalty"] > 0
    assert logs[2]["b"]["distillation_loss"] > 0  # from c alone
    assert not any(node.rejected for node in nodes.values())
    found = evaluate_locally(nodes)
    assert set(found.private) == {"b", "c"}
    assert set(found.communication) == {("a", "b"), ("b", "c"), ("c", "b")}


def test_a_network_without_any_head_trains() -> None:
    def spread(a: Agent, batch: object) -> Tensor:
        return a.encode(batch.inputs).square().mean()

    agents = [agent(n, d, head=None, objective=spread) for n, d in (("a", 8), ("b", 5))]
    _, logs = logs_of(
        nodes_of(agents, [("a", "b")], SheafFRL(distillation=Distillation(), pilots_per_round=20)),
        2,
    )
    assert all(set(log) == {"loss", "penalty"} for log in logs[1].values())


def test_different_label_sets_are_refused_by_name() -> None:
    other = agent("b", 5, head=linear_head(5, 1, classes=4))
    nodes = nodes_of([agent("a", 8), other], [("a", "b")], SheafFRL(distillation=Distillation()))
    expected = r"agents 'a' and 'b' cannot exchange class probabilities: .* 3 and 4 classes"
    with pytest.raises(HandshakeError, match=expected):
        handshake(nodes, LocalTransport("ab"))


def test_different_label_sets_are_fine_without_probabilities() -> None:
    other = agent("b", 5, head=linear_head(5, 1, classes=4), data=samples(3, 64, classes=4))
    run_rounds(nodes_of([agent("a", 8), other], [("a", "b")], SheafFRL()), 2)


def test_neighbours_must_agree_on_probabilities() -> None:
    methods = {"a": SheafFRL(distillation=Distillation()), "b": SheafFRL()}
    nodes = nodes_of([agent("a", 8), agent("b", 5)], [("a", "b")], methods)
    expected = "do not agree on the distillation: 'heads' against 'none'"
    with pytest.raises(HandshakeError, match=expected):
        handshake(nodes, LocalTransport("ab"))


def test_probabilities_of_the_wrong_width_are_left_out() -> None:
    nodes = network(SheafFRL(distillation=Distillation(), pilots_per_round=20))
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for node in nodes.values():
        for message in node.send(0):
            tensors = dict(message.tensors)
            if message.sender == "b":
                tensors["probabilities"] = torch.full((20, CLASSES + 1), 0.25)
            forged = type(message)("round", 0, message.sender, message.receiver, tensors)
            recorder.transport.deliver(message.receiver, encode(forged).data)
    nodes["a"].receive(0, recorder.transport.receive("a", 0, "round", "bc"))
    assert dict(nodes["a"].rejected) == {"shape": 1}


def test_without_probabilities_the_papers_method_is_unchanged() -> None:
    """A weight so small that it rounds away gives the weights of no distillation at all."""
    found = []
    for distillation in (None, Distillation(confidence=0.0, weight=1e-30)):
        nodes = network(SheafFRL(distillation=distillation, maps=MapPolicy(source="round")))
        run_rounds(nodes, 4)
        found.append([p.clone() for n in nodes.values() for p in n.agent.parameters])
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_bad_confidences_are_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence must be"):
        Distillation(confidence=confidence)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_weights_are_refused(weight: float) -> None:
    with pytest.raises(InputError, match="weight must be"):
        Distillation(weight=weight)


def test_the_names_tell_methods_apart() -> None:
    names = {SheafFRL().label, SheafFRL(distillation=Distillation()).label, NonCooperative().label}
    assert len(names) == 3


@pytest.mark.parametrize("spoil", [lambda b: b * 2, lambda b: b - 0.5, torch.zeros_like])
def test_probabilities_that_are_no_probabilities_leave_the_edge_out(spoil) -> None:
    nodes = network(SheafFRL(distillation=Distillation(), pilots_per_round=20))
    transport = LocalTransport(list(nodes))
    handshake(nodes, transport)
    for name, node in nodes.items():
        for message in node.send(0):
            if name == "b":
                tensors = {
                    **message.tensors,
                    "probabilities": spoil(message.tensors["probabilities"]),
                }
                message = dataclasses.replace(message, tensors=tensors)
            transport.send([message])
    before = nodes["a"].endpoints["b"].map.clone()
    for name, node in nodes.items():
        node.receive(0, transport.receive(name, 0, "round", node.neighbours))
    assert dict(nodes["a"].rejected) == {"probabilities": 1}
    assert torch.equal(nodes["a"].endpoints["b"].map, before)
    assert nodes["a"].endpoints["c"].fitted
