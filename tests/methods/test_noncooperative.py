"""Independent training, and maps that are fitted afterwards."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

import sheafed
from sheafed import Agent, NonCooperative, train
from sheafed.errors import HandshakeError, InputError, NonFiniteError
from sheafed.evaluation import evaluate_locally
from sheafed.linalg.procrustes import procrustes
from sheafed.linalg.whitening import zca
from sheafed.methods.node import Node
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, LocalTransport, Message
from tests.helpers.rounds import handshake
from tests.helpers.small_federations import (
    MessageRecorder,
    agent,
    in_double,
    nodes_of,
    pilots,
    run_rounds,
    same_weights,
    samples,
)

EDGES = [("a", "b"), ("b", "c")]
SHRINKAGE = 0.1


def network(
    whitening: str, sizes: tuple[int, ...] = (64, 64, 64)
) -> tuple[dict[str, Node], LocalTransport]:
    agents = [
        agent(name, d, data={"train": samples(50 + d, n), "test": samples(60 + d, 45)})
        for name, d, n in zip("abc", (8, 5, 6), sizes, strict=True)
    ]
    nodes = nodes_of(agents, EDGES, NonCooperative(whitening=whitening, shrinkage=SHRINKAGE))
    recorder = run_rounds(nodes, 4)
    fit_post_hoc_maps(nodes, Barrier(recorder.transport), 3)
    return nodes, recorder.transport


def latents(node: Node, inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), node.agent.inference():
        return node.agent.encoder(inputs)


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_what_is_understood_is_what_align_sends(whitening: str) -> None:
    nodes, _ = network(whitening)
    own = {name: latents(node, pilots()) for name, node in nodes.items()}
    private = {n: latents(node, node.agent.data.train.inputs) for n, node in nodes.items()}
    alignment = sheafed.align(
        own,
        EDGES,
        whitening=whitening,
        shrinkage=SHRINKAGE,
        private=private if whitening == "private" else None,
        maps="procrustes",
    )
    for sender, receiver in [*EDGES, *((y, x) for x, y in EDGES)]:
        z = latents(nodes[sender], nodes[sender].agent.data.test.inputs)
        found = nodes[receiver].interpret(nodes[sender].transmit(z, receiver), sender)
        expected = alignment.send(z, sender, receiver)
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-3)
    fits = {(f.head, f.tail): f.misalignment for f in alignment.report().edges}
    assert evaluate_locally(nodes).misalignment == pytest.approx(fits, rel=1e-3)


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_whitening_and_maps_by_hand(whitening: str) -> None:
    nodes, _ = network(whitening, sizes=(64, 48, 80))
    white = {}
    for name, node in nodes.items():
        own = latents(node, pilots()).double()
        reference = latents(node, node.agent.data.train.inputs).double()
        reference = own if whitening == "pilots" else reference
        covariance = np.cov(reference.numpy(), rowvar=False)
        d = len(covariance)
        covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.trace(covariance) / d * np.eye(d)
        values, vectors = np.linalg.eigh(covariance)
        root = torch.from_numpy(vectors @ np.diag(values**-0.5) @ vectors.T)
        white[name] = (own - reference.mean(0)) @ root
        found = node.white_pilots().double()
        torch.testing.assert_close(found, white[name], atol=2e-3, rtol=1e-3)
        # The library's own ZCA divides by n where this divides by n - 1.
        n = len(reference)
        other = zca(reference, SHRINKAGE).whiten(own) * ((n - 1) / n) ** 0.5
        torch.testing.assert_close(other, white[name], atol=1e-8, rtol=1e-8)
    for head, tail in [("a", "b"), ("c", "b")]:
        v = procrustes(white[head], white[tail])
        for one, two in ((head, tail), (tail, head)):
            found = nodes[one].endpoints[two].map.double()
            torch.testing.assert_close(found, v, atol=5e-3, rtol=0)
        assert torch.equal(nodes[head].endpoints[tail].map, nodes[tail].endpoints[head].map)


def test_the_two_whitenings_differ() -> None:
    pilots_, _ = network("pilots")
    private, _ = network("private")
    assert same_weights((n.agent for n in pilots_.values()), (n.agent for n in private.values()))
    difference = pilots_["a"].white_pilots() - private["a"].white_pilots()
    assert float(difference.abs().max()) > 0.05


def test_training_sends_nothing_and_alignment_is_booked_as_such() -> None:
    run = train(
        [agent("a", 8), agent("b", 5), agent("c", 6)],
        EDGES,
        NonCooperative(),
        pilots(48),
        epochs=3,
        rounds_per_epoch=2,
    )
    rows = list(run.history.ledger.rows())
    assert {row.kind for row in rows} == {"hello", "alignment"}
    assert {row.round for row in rows if row.kind == "alignment"} == {1, 3, 5}
    assert (
        run.history.ledger.payload_bytes("hello") == run.history.ledger.payload_bytes("round") == 0
    )
    floats = 48 * (1 * 8 + 2 * 5 + 1 * 6)  # M × the degree × d of every agent
    assert run.history.ledger.payload_bytes("alignment") == 3 * 4 * floats
    assert run.history.last["payload_bytes"] == run.history.ledger.payload_bytes()


def test_it_is_plain_training_of_each_agent_by_itself() -> None:
    alone = agent("a", 8)
    together = [agent("a", 8), agent("b", 5)]
    run_rounds(nodes_of(together, [("a", "b")], NonCooperative(), seed=3), 6)
    alone.reset_rng(3)
    for _ in range(6):
        batch = alone.data.train.batch(alone.order.next())
        loss = torch.nn.functional.cross_entropy(
            alone.head(alone.encoder(batch.inputs)), batch.targets
        )
        alone.optimizer.zero_grad()
        loss.backward()
        alone.optimizer.step()
    assert same_weights([alone], together[:1])


def test_evaluation_does_not_touch_training() -> None:
    found = []
    for every in (1, 4):
        agents = [agent("a", 8), agent("b", 5)]
        options = {"epochs": 4, "rounds_per_epoch": 2, "evaluate_every": every}
        train(agents, [("a", "b")], NonCooperative(whitening="private"), pilots(), **options)
        found.append(agents)
    assert same_weights(*found)


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_agents_in_double_precision_are_aligned_too(whitening: str) -> None:
    agents = [in_double(agent("a", 8)), in_double(agent("b", 5))]
    run = train(
        agents,
        [("a", "b")],
        NonCooperative(whitening=whitening),
        pilots().double(),
        epochs=1,
        seed=1,
    )
    assert run.nodes["a"].endpoints["b"].map.dtype == torch.float64
    assert run.history.last["communication_accuracy"] is not None


def test_a_lost_alignment_message_leaves_its_map_and_stops_no_agent() -> None:
    def lost(message: Message) -> bool:
        return (message.kind, message.sender, message.receiver) == ("alignment", "a", "b")

    for make in (lambda a: a, in_double):
        agents = [make(agent("a", 8)), make(agent("b", 5)), make(agent("c", 6))]
        shared = pilots().to(agents[0].parameters[0].dtype)
        nodes = nodes_of(agents, EDGES, NonCooperative(), shared)
        recorder = run_rounds(nodes, 2, MessageRecorder(nodes, drop=lost))
        fit_post_hoc_maps(nodes, Barrier(recorder.transport), 1)
        assert torch.equal(nodes["b"].endpoints["a"].map.float(), torch.eye(8, 5))
        assert torch.equal(nodes["b"].endpoints["c"].map, nodes["c"].endpoints["b"].map)
        evaluate_locally(nodes)


@pytest.mark.parametrize(
    ("spoil", "reason"), [(lambda z: z[:7], "shape"), (lambda z: 3e38 * z.sign(), "magnitude")]
)
def test_a_bad_alignment_message_is_counted_and_left_out(
    spoil: Callable[[torch.Tensor], torch.Tensor], reason: str
) -> None:
    nodes = nodes_of([agent("a", 8), agent("b", 5)], [("a", "b")], NonCooperative())
    recorder = run_rounds(nodes, 1)
    for node in nodes.values():
        for message in node.alignment_messages(0):
            tensors = {"latents": spoil(message.tensors["latents"])}
            bad = Message("alignment", 0, message.sender, message.receiver, tensors)
            recorder.transport.send([bad if node.name == "a" else message])
    for name, node in nodes.items():
        node.align(0, recorder.transport.receive(name, 0, "alignment", node.neighbours))
    assert dict(nodes["b"].rejected) == {reason: 1}
    assert not nodes["a"].rejected


def test_align_needs_messages_first() -> None:
    nodes = nodes_of([agent("a", 8), agent("b", 5)], [("a", "b")], NonCooperative())
    with pytest.raises(InputError, match=r"agent 'a': align\(\) comes after"):
        nodes["a"].align(0, {})


def test_bad_pilots_name_agent_and_round() -> None:
    shared = pilots()
    shared[5, 2] = float("nan")
    nodes = nodes_of([agent("a", 8), agent("b", 5)], [("a", "b")], NonCooperative(), shared)
    recorder = run_rounds(nodes, 3)  # training does not need them
    with pytest.raises(NonFiniteError, match=r"agent 'a', round 2: .* 1 non-finite of .* clean"):
        fit_post_hoc_maps(nodes, Barrier(recorder.transport), 2)


def test_different_methods_do_not_shake_hands() -> None:
    methods = {"a": NonCooperative(), "b": sheafed.SheafFRL()}
    nodes = nodes_of([agent("a", 8), agent("b", 5)], [("a", "b")], methods)
    with pytest.raises(HandshakeError, match="do not agree on the method"):
        handshake(nodes, LocalTransport("ab"))


def test_an_unknown_whitening_is_refused() -> None:
    with pytest.raises(InputError, match=r"whitening must be 'pilots' or 'private', got 'test'"):
        NonCooperative(whitening="test")


def test_agents_without_head_or_test_data_are_not_evaluated_but_aligned() -> None:
    def spread(a: Agent, batch: object) -> torch.Tensor:
        return a.encode(batch.inputs).square().mean()

    headless = agent("a", 8, head=None, objective=spread)
    untested = agent("b", 5, data=samples(4, 64))
    before = copy.deepcopy(untested.head.weight)
    nodes = nodes_of([headless, untested, agent("c", 6)], EDGES, NonCooperative())
    recorder = run_rounds(nodes, 2)
    fit_post_hoc_maps(nodes, Barrier(recorder.transport), 1)
    found = evaluate_locally(nodes)
    assert set(found.private) == {"c"}
    assert set(found.communication) == {("a", "b"), ("c", "b")}
    assert set(found.misalignment) == {("a", "b"), ("c", "b")}
    assert not torch.equal(before, untested.head.weight)
