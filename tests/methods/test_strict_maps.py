"""Strict privacy where maps are fitted after training: what leaves, what is fitted, and faults."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from sheafed import Agent, ConsensusDistillation, NonCooperative, PilotSet, train
from sheafed.channels import Channel
from sheafed.errors import HandshakeError
from sheafed.evaluation import evaluate, evaluate_locally
from sheafed.methods.node import FROM_HEAD, FROM_TAIL, Method, Node, NodeContext
from sheafed.methods.reading_head_fit import fit_reading_head
from sheafed.seeds import generator
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, LocalTransport, Message, decode
from tests.helpers.baselines import PAIR, TRIANGLE
from tests.helpers.federations import results, start
from tests.helpers.rounds import handshake, one_round
from tests.helpers.small_federations import (
    MessageRecorder,
    agent,
    in_double,
    nodes_of,
    orthonormal,
    pilots,
    run_rounds,
    same_weights,
    samples,
    turned,
)

MIXED, EQUAL = {"a": 8, "b": 5, "c": 6}, dict.fromkeys("abc", 5)
METHODS: dict[str, Method] = {
    "consensus": ConsensusDistillation(confidence=0.4, privacy="strict", quantisation="none"),
    "alone": NonCooperative(privacy="strict"),
}
STRICT = METHODS["consensus"]
every_size = pytest.mark.parametrize("sizes", [MIXED, EQUAL], ids=["mixed", "equal"])
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
Drop = Callable[[Message], bool]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reading heads be fitted, but not far: nothing here depends on that."""
    few = partial(fit_reading_head, steps=5)
    monkeypatch.setattr("sheafed.methods.consensus_distillation.fitted_heads.fit_reading_head", few)


def team(sizes: dict[str, int]) -> list[Agent]:
    return [in_double(agent(name, d)) for name, d in sizes.items()]


def aligned(
    method: Method,
    sizes: dict[str, int],
    drop: Drop | None = None,
    agents: list[Agent] | None = None,
) -> tuple[dict[str, Node], MessageRecorder]:
    """Train for two rounds and fit maps; return what was sent too."""
    nodes = nodes_of(agents or team(sizes), TRIANGLE, method, pilots().double())
    recorder = run_rounds(nodes, 2, MessageRecorder(nodes, drop))
    fit_post_hoc_maps(nodes, Barrier(recorder.transport), 1)
    return nodes, recorder


def edges_of(nodes: dict[str, Node]) -> list[tuple[str, str]]:
    """Heads and tails."""
    return sorted({node.edge(j) for node in nodes.values() for j in node.neighbours})


def of_kind(messages: list[Message], kind: str) -> dict[tuple[str, str], Message]:
    return {(m.sender, m.receiver): m for m in messages if m.kind == kind}


def latents_of(node: Node, inputs: Tensor) -> Tensor:
    with torch.no_grad(), node.agent.inference():
        return node.agent.encoder(inputs)


def white_by_hand(node: Node, shrinkage: float) -> np.ndarray:
    own = latents_of(node, pilots().double()).numpy()
    covariance = np.cov(own, rowvar=False)
    d = len(covariance)
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    return (own - own.mean(0)) @ np.linalg.inv(scipy.linalg.sqrtm(covariance))


# What is fitted


@every_size
@every_method
def test_the_two_ends_compose_to_the_procrustes_map(method: Any, sizes: dict[str, int]) -> None:
    strict, _ = aligned(method, sizes)
    standard, _ = aligned(replace(method, privacy="standard"), sizes)
    assert len(edges_of(strict)) == 3
    for head, tail in edges_of(strict):
        o, v = strict[head].endpoints[tail].map, strict[tail].endpoints[head].map
        assert o.shape == (sizes[head], sizes[head])
        assert v.shape == (sizes[head], sizes[tail])
        for isometry in (o, v):
            torch.testing.assert_close(
                isometry.mT @ isometry, torch.eye(isometry.shape[1], dtype=torch.float64)
            )
        a, b = (white_by_hand(strict[name], method.shrinkage) for name in (head, tail))
        u, _, w = scipy.linalg.svd(a.T @ b, full_matrices=False)
        np.testing.assert_allclose((o.mT @ v).numpy(), u @ w, atol=1e-9)
        torch.testing.assert_close(o.mT @ v, standard[head].endpoints[tail].map)
        if sizes[head] == sizes[tail]:
            rotation, _ = scipy.linalg.orthogonal_procrustes(b, a)
            np.testing.assert_allclose((o.mT @ v).numpy(), rotation.T, atol=1e-9)


@pytest.mark.parametrize("quantisation", ["none", "int8"])
def test_agents_read_each_other_as_with_standard_privacy(quantisation: Any) -> None:
    """And nothing of the training knows which privacy maps will have."""
    networks = {
        privacy: train(
            team(MIXED),
            TRIANGLE,
            replace(STRICT, privacy=privacy, quantisation=quantisation),
            pilots().double(),
            epochs=1,
        )
        for privacy in ("standard", "strict")
    }
    standard, strict = networks.values()
    assert same_weights(standard.agents.values(), strict.agents.values())
    # A byte is off by 1/254 of a latent's largest number, wherever it is rounded.
    close = {"atol": 1e-6 if quantisation == "none" else 0.05, "rtol": 0}
    for sender in MIXED:
        z = latents_of(strict.nodes[sender], samples(5, 40)[0].double())
        for receiver in MIXED:
            sent = [network.outputs(z, sender, receiver) for network in networks.values()]
            torch.testing.assert_close(*sent, **close)
    for key in ("private_accuracy", "communication_accuracy", "misalignment"):
        expected = standard.history.last[key]
        one_sample = 1 / 60 if quantisation == "int8" else 1e-9
        assert strict.history.last[key] == pytest.approx(expected, abs=one_sample)


# What leaves


def tapped(method: Any, sizes: dict[str, int]) -> list[tuple[Message, Tensor, Tensor]]:
    """Train, fit maps and evaluate on one wire; return latents beside what they are sent as."""
    nodes, recorder = aligned(method, sizes)
    evaluate(nodes, Barrier(recorder.transport), 1, "test")
    found = []
    for message in recorder.messages:
        if "latents" in message.tensors:
            node = nodes[message.sender]
            inputs = node.agent.data.test.inputs if message.kind == "question" else None
            raw = latents_of(node, pilots().double() if inputs is None else inputs)
            found.append((message, raw, node.whitening.eval()(raw)))
        else:
            allowed = {"probabilities", "classes"}
            assert set(message.tensors) <= allowed, str(message)
    return found


def is_shown(message: Message, raw: Tensor, white: Tensor) -> bool:
    """Whether a message holds latents in their own coordinates, or nearly."""
    sent = message.tensors["latents"][:, : raw.shape[1]]
    return any(
        float((sent - own).norm() / own.norm()) < 0.3 for own in (raw, raw - raw.mean(0), white)
    )


@every_size
@every_method
def test_the_wire_shows_gram_matrices_and_no_raw_latents(
    method: Any, sizes: dict[str, int]
) -> None:
    found = tapped(method, sizes)
    kinds = [message.kind for message, _, _ in found]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        FROM_HEAD: 3,
        FROM_TAIL: 3,
        "question": 6,
        "pilots": 3,
    }
    for message, raw, white in found:
        assert not is_shown(message, raw, white), str(message)
        sent = message.tensors["latents"]
        assert sent.shape[1] == max(sizes[message.sender], sizes[message.receiver])
        torch.testing.assert_close(sent @ sent.mT, white @ white.mT)


@every_size
def test_the_check_would_notice_raw_latents(sizes: dict[str, int]) -> None:
    found = tapped(replace(STRICT, privacy="standard"), sizes)
    assert len(found) == 15
    assert all(is_shown(*sent) for sent in found)


def test_newcomers_send_and_are_sent_nothing_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    network = train(team(MIXED), TRIANGLE, METHODS["alone"], pilots().double(), epochs=1)
    seen: list[Message] = []
    tap = partial(LocalTransport, tap=lambda data: seen.append(decode(data)))
    monkeypatch.setattr("sheafed.training.membership.LocalTransport", tap)
    network.join(in_double(agent("n", 5)), ["a", "b"])
    sent = [m for m in seen if "latents" in m.tensors]
    assert {(m.sender, m.receiver) for m in sent} == {
        ("a", "n"),
        ("n", "a"),
        ("b", "n"),
        ("n", "b"),
    }
    for message in sent:
        node = network.nodes[message.sender]
        raw = latents_of(node, pilots().double())
        assert not is_shown(message, raw, node.white_pilots()), str(message)
    assert network.send(torch.zeros(2, 5).double(), "n", "c").shape == (2, 6)


@every_size
@every_method
def test_worlds_with_turned_latents_write_the_same_transcript(
    method: Any, sizes: dict[str, int]
) -> None:
    """prop:privacy_nonidentifiability, with Q A_i for A_i and O Q^T for O."""
    q = {name: orthonormal(3 * d, d, d, torch.float64) for name, d in sizes.items()}
    worlds = [team(sizes), [turned(one, q[one.name]) for one in team(sizes)]]
    transcripts, latents = [], []
    for agents in worlds:
        nodes = nodes_of(agents, TRIANGLE, method, pilots().double())
        recorder = MessageRecorder(nodes)
        handshake(nodes, recorder.transport)
        if transcripts:
            for name, node in nodes.items():
                for endpoint in node.endpoints.values():
                    endpoint.map = endpoint.map @ q[name].mT
        for round in range(2):  # maps of one network are fitted again and again
            one_round(nodes, recorder.transport, round)
            fit_post_hoc_maps(nodes, Barrier(recorder.transport), round)
            evaluate(nodes, Barrier(LocalTransport(list(nodes))), round, "test")
        latents.append({name: node.white_pilots() for name, node in nodes.items()})
        transcripts.append(recorder.messages)
    assert [str(m) for m in transcripts[0]] == [str(m) for m in transcripts[1]]
    for one, other in zip(*transcripts, strict=True):
        assert one.tensors.keys() == other.tensors.keys()
        for name, tensor in one.tensors.items():
            torch.testing.assert_close(tensor, other.tensors[name], atol=1e-7, rtol=1e-6)
    for name in sizes:
        assert not torch.allclose(latents[0][name], latents[1][name], atol=0.1)


def test_maps_follow_from_the_secret_and_differ_from_edge_to_edge() -> None:
    def frames(secret: int) -> list[Tensor]:
        context = NodeContext(agent("a", 5), ("b", "c"), PilotSet(pilots()), 0, secret, 4, True)
        node = STRICT.node(context)
        for j in "bc":
            node.peers[j] = {"dimension": 5, "classes": 3, "teaches": 1}
            node.prepare_edge(j)
        return [node.endpoints[j].map for j in "bc"]

    one, again, other = frames(1), frames(1), frames(2)
    assert all(map(torch.equal, one, again))
    assert not torch.allclose(*one, atol=0.1)
    assert not any(torch.allclose(x, y, atol=0.1) for x, y in zip(one, other, strict=True))


# How it leaves


def test_what_is_rounded_and_disturbed_is_what_is_sent() -> None:
    channel = Channel(snr_db=20)
    method = replace(STRICT, quantisation="int8", channel=channel)
    nodes, recorder = aligned(method, MIXED)
    for kind in (FROM_HEAD, FROM_TAIL):
        for (sender, receiver), message in of_kind(recorder.messages, kind).items():
            node = nodes[sender]
            turned_ = node.white_pilots() @ node.endpoints[receiver].map.mT
            noise = generator(0, sender, receiver, 1, "alignment", "channel")
            expected = channel.carry(turned_, noise)
            scale = message.tensors["scale of latents"][:, None]
            assert message.tensors["latents"].dtype == torch.int8
            torch.testing.assert_close(scale[:, 0] * 127, expected.abs().amax(-1))
            error = (message.tensors["latents"] * scale - expected).abs() / scale
            assert float(error.max()) <= 0.5 + 1e-9


def test_agents_without_a_head_or_labels_are_mapped_too() -> None:
    def spread(one: Agent, batch: Any) -> Tensor:
        return one.encode(batch.inputs).square().mean()

    agents = [
        agent("a", 5),
        agent("bare", 6, head=None, objective=spread),
        agent("still", 5, frozen=True),
        agent("u", 4, data=samples(5, 64)[0], objective=spread),
    ]
    edges = [("a", "bare"), ("a", "still"), ("a", "u"), ("bare", "u")]
    nodes = nodes_of(agents, edges, STRICT)
    recorder = run_rounds(nodes, 1)
    fit_post_hoc_maps(nodes, Barrier(recorder.transport), 0)
    sent = [
        {edge: set(m.tensors) for edge, m in of_kind(recorder.messages, kind).items()}
        for kind in (FROM_HEAD, FROM_TAIL)
    ]
    plain, both = {"latents"}, {"latents", "probabilities"}
    assert sent == [
        {("bare", "a"): plain, ("a", "still"): both, ("a", "u"): both, ("bare", "u"): plain},
        {("a", "bare"): plain, ("still", "a"): both, ("u", "a"): plain, ("u", "bare"): plain},
    ]
    heads = {name: node.reading_head is not None for name, node in nodes.items()}
    assert heads == {"a": True, "bare": False, "still": True, "u": True}
    assert not any(node.rejected for node in nodes.values())
    assert all(end.fitted for node in nodes.values() for end in node.endpoints.values())


def test_training_together_does_not_change_the_maps() -> None:
    """Of 32 agents of one structure, whose weights are equal up to rounding only."""
    options = {"epochs": 1, "federation": "alike", "rounds_per_epoch": 2, "oracle": False}
    together, apart = (start("strict maps", **options, vectorize=v) for v in (True, False))
    assert together.history.vectorized["together"] == 32
    assert together.history.last["misalignment"] == pytest.approx(
        apart.history.last["misalignment"], rel=1e-4
    )


# Neighbours, faults and interruptions


@every_method
@pytest.mark.parametrize("strict", ["a", "b"])
def test_neighbours_must_agree_on_it(method: Any, strict: str) -> None:
    methods = {n: replace(method, privacy="strict" if n == strict else "standard") for n in "ab"}
    nodes = nodes_of([agent("a", 5), agent("b", 4)], PAIR, methods)
    mine, theirs = (methods[name].privacy for name in "ab")
    with pytest.raises(HandshakeError, match=f"on the privacy: '{mine}' against '{theirs}'"):
        handshake(nodes, LocalTransport("ab"))


def maps_of(nodes: dict[str, Node]) -> dict[tuple[str, str], Tensor]:
    return {
        (i, j): end.map.clone() for i, node in nodes.items() for j, end in node.endpoints.items()
    }


@pytest.mark.parametrize("kind", [FROM_HEAD, FROM_TAIL])
def test_a_lost_message_leaves_its_edge_as_it_was(kind: str) -> None:
    """The edge of head a and tail b, when maps have been fitted before."""
    lost = {FROM_HEAD: ("a", "b"), FROM_TAIL: ("b", "a")}[kind]
    nodes, recorder = aligned(STRICT, MIXED)
    before = maps_of(nodes)
    one_round(nodes, recorder.transport, 2)
    faulty = MessageRecorder(nodes, lambda m: m.kind == kind and (m.sender, m.receiver) == lost)
    fit_post_hoc_maps(nodes, Barrier(faulty.transport), 2)
    after = maps_of(nodes)
    refitted = {edge for edge, was in before.items() if not torch.equal(was, after[edge])}
    assert refitted == {("b", "c"), ("c", "a")} | ({("b", "a")} if kind == FROM_TAIL else set())
    answered = ("b", "a") in of_kind(faulty.messages, FROM_TAIL)
    assert answered == (kind == FROM_TAIL)
    heard = {name: {*node.reading_head.offsets} - {name} for name, node in nodes.items()}
    by_b = {"c"} if kind == FROM_HEAD else {"a", "c"}
    assert heard == {"a": {"c"}, "b": by_b, "c": {"a", "b"}}
    found = evaluate_locally(nodes)  # the old frame still serves
    assert found.misalignment["a", "b"] < 1


def test_a_tail_that_has_never_heard_its_head_is_evaluated_as_it_is() -> None:
    nodes, recorder = aligned(STRICT, MIXED, lambda m: m.kind == FROM_HEAD and m.receiver == "b")
    assert not any(end.fitted for end in nodes["b"].endpoints.values())
    assert nodes["c"].endpoints["a"].fitted
    assert set(of_kind(recorder.messages, FROM_TAIL)) == {("c", "a")}
    found = evaluate(nodes, Barrier(recorder.transport), 1, "test")
    assert set(found.communication) == {(i, j) for i in "abc" for j in "abc" if i != j}


@pytest.mark.parametrize("kind", [FROM_HEAD, FROM_TAIL])
def test_a_damaged_message_is_counted_once_and_left_out(kind: str) -> None:
    """As if it had been lost; tails answer heads in a frame of the wider of the two sizes."""

    class Spoiling(LocalTransport):
        def send(self, messages: Iterable[Message]) -> None:
            super().send(map(spoilt, messages))

    def spoilt(m: Message) -> Message:
        if m.kind != kind or {m.sender, m.receiver} != {"a", "b"}:
            return m
        return replace(m, tensors={**m.tensors, "latents": m.tensors["latents"][:, 1:]})

    def lost(m: Message) -> bool:
        return spoilt(m) is not m

    found = []
    for transport in (Spoiling("abc"), LocalTransport("abc", drop=lost)):
        nodes, _ = aligned(STRICT, MIXED)
        fit_post_hoc_maps(nodes, Barrier(transport), 2)
        found.append(nodes)
    damaged, missing = found
    victim = {FROM_HEAD: "b", FROM_TAIL: "a"}[kind]
    counts = {name: dict(node.rejected) for name, node in damaged.items()}
    assert counts == {name: {"shape": 1} if name == victim else {} for name in "abc"}
    for edge, one in maps_of(damaged).items():
        assert torch.equal(one, maps_of(missing)[edge])
    heads = [{n: set(node.reading_head.offsets) for n, node in nodes.items()} for nodes in found]
    assert heads[0] == heads[1]


def test_a_run_resumes_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sheafed.training.post_hoc_maps.SHRINKAGES", ())  # faster, not compared
    for out, lengths in (("whole", (2,)), ("resumed", (1, 2))):
        for epochs in lengths:
            start("strict consensus", tmp_path / out, epochs=epochs, resume=epochs > lengths[0])
    assert results(tmp_path / "resumed") == results(tmp_path / "whole")
