"""One agent among scripted neighbours: real links and certificates, known words."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import PseudoLabels
from sheafed.agents.samples import Batch
from sheafed.atomic_io import write_atomically
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT, METRICS
from sheafed.errors import CheckpointError, HandshakeError, InputError, RunExistsError
from sheafed.evaluation import evaluate_locally
from sheafed.methods import ConsensusDistillation, NonCooperative, SheafFRL
from sheafed.methods.handshake import check_hello, finish_handshake, hello_messages
from sheafed.methods.node import Method, Node, NodeContext
from sheafed.methods.sheaf_frl.gaussian_noise import GaussianNoise
from sheafed.network.deadline_policy import Timeouts
from sheafed.network.identities import INSTANCE
from sheafed.network.neighbourhood import ANSWERS, ASKS, FINISHED, MET, Neighbourhood
from sheafed.network.peer_agent import PeerAgent
from sheafed.network.peer_checkpoint import restore, save
from sheafed.network.peer_summary import gather
from sheafed.network.status import read_statuses
from sheafed.pilots.pilot_set import PilotSet
from sheafed.training import Network
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, LocalTransport
from sheafed.transport.message import Message
from sheafed.transport.zenoh.transport import ZenohTransport
from tests.helpers.federations import (
    CLASSES,
    METHODS,
    agents,
    pilots,
    regressors,
    samples,
    simple_agent,
)
from tests.helpers.messages import same_message
from tests.helpers.rounds import handshake, one_round
from tests.helpers.small_federations import same_weights as same_agents
from tests.helpers.zenoh_peers import await_that, connected

ROUNDS, EPOCHS = 4, 2
TOTAL = ROUNDS * EPOCHS
NOISED = SheafFRL(pilots_per_round=8, noise=GaussianNoise(epsilon=9.0))
QUICK = Timeouts(deadline=0.3, staleness=2, join=20, final=0)
Script = tuple[list[Message], list[Message]]


def node(
    name: str, neighbour: str, case: str = "distillation", pilot_set: PilotSet | None = None
) -> Node:
    agent = next(agent for agent in agents() if agent.name == name)
    shared = pilots() if pilot_set is None else pilot_set
    return METHODS[case]().node(NodeContext(agent, (neighbour,), shared, 7, 3, ROUNDS, False))


class Scripted:
    """A neighbour that says what the test tells it to."""

    def __init__(self, transport: ZenohTransport, build_node: Node) -> None:
        self.transport, self.node = transport, build_node

    def greet(self, *said: str, round: int = 0, **changes: Any) -> None:
        flags = {what: what in said for what in (MET, FINISHED, ASKS, ANSWERS)}
        for hello in hello_messages(self.node):
            instance = {INSTANCE: self.transport.instance}
            fields = {**hello.fields, **flags, **instance, **changes}
            self.transport.announce([replace(hello, round=round, fields=fields)])

    def finish_handshake(self, other: Node) -> None:
        finish_handshake(
            self.node, {m.sender: m for m in hello_messages(other) if m.receiver == self.node.name}
        )

    def words(self, round: int) -> Message:
        (message,) = self.node.send(round)
        return message

    def speak(self, *rounds: int) -> None:
        for round in rounds:
            self.transport.send([self.words(round)])


@pytest.fixture
def links(certificates: Path) -> Iterator[dict[str, ZenohTransport]]:
    peers = connected(certificates, ["ada", "bob"], staleness=QUICK.staleness)
    yield peers
    for peer in peers.values():
        peer.close()


def peer_agent(
    links: dict[str, ZenohTransport],
    out: Path,
    timeouts: Timeouts = QUICK,
    case: str = "distillation",
    epochs: int = EPOCHS,
) -> PeerAgent:
    build_node, method = node("ada", "bob", case), METHODS[case]()
    return PeerAgent(
        build_node, links["ada"], method=method, epochs=epochs, out=out, timeouts=timeouts
    )


class Stage:
    """Ada as she is, in a thread, and a scripted Bob."""

    def __init__(
        self,
        links: dict[str, ZenohTransport],
        out: Path,
        timeouts: Timeouts = QUICK,
        case: str = "distillation",
    ) -> None:
        self.ada = peer_agent(links, out, timeouts, case)
        self.bob = Scripted(links["bob"], node("bob", "ada", case))
        self.bob.finish_handshake(node("ada", "bob", case))
        self.bob.greet(MET, FINISHED)
        self._pool = ThreadPoolExecutor(1)

    def start(self, **options: Any) -> "Future[Network]":
        return self._pool.submit(self.ada.train, **options)


@pytest.fixture
def stage(links: dict[str, ZenohTransport], tmp_path: Path) -> Stage:
    return Stage(links, tmp_path / "ada")


def test_a_neighbour_that_falls_silent_is_replaced_then_left_out(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    going = stage.start()
    stage.bob.speak(0, 1)
    await_that(lambda: stage.ada.network.history.rounds == TOTAL)
    run = going.result(30)
    assert (run.history.rounds, stage.ada.policy.missed) == (TOTAL, 0)
    assert stage.ada.policy.reused == {"bob": 2}
    assert stage.ada.policy.left_out == {"bob": TOTAL - 4}
    assert sum("bob is present but has sent nothing" in text for text in caplog.messages) == 1
    assert run.history.last is not None
    assert run.history.last["communication_accuracy"] is None
    assert 0 <= run.history.last["private_accuracy"] <= 1


def test_nothing_is_left_out_of_a_conversation(stage: Stage) -> None:
    going = stage.start()
    stage.bob.speak(*range(TOTAL))
    going.result(30)
    assert not stage.ada.policy.left_out
    assert not stage.ada.policy.reused
    assert not stage.ada.status().rejected


def test_a_neighbour_that_has_finished_is_not_absent(
    stage: Stage, links: dict[str, ZenohTransport]
) -> None:
    hood = stage.ada._hood
    await_that(lambda: links["ada"].arrivals["bob"] == 1)
    hood.process_hellos()
    links["bob"].close()
    await_that(lambda: not links["ada"].present)
    assert hood.announces("bob", FINISHED)
    assert (stage.ada.status().present, stage.ada.status().absent) == ([], [])
    hood.met["bob"] = replace(hood.met["bob"], fields={})
    assert stage.ada.status().absent == ["bob"]


def test_bad_content_is_counted_and_left_out(stage: Stage) -> None:
    going = stage.start()
    good = [stage.bob.words(round) for round in range(TOTAL)]
    latents = good[1].tensors["latents"].clone()
    latents[0, 0] = torch.nan
    probabilities = good[2].tensors["probabilities"] + 5
    wide = torch.zeros(len(latents), latents.shape[1] + 1)
    words = {
        1: {"latents": latents},
        2: {"probabilities": probabilities},
        3: {"latents": wide},
        4: {"latents": torch.zeros_like(latents, dtype=torch.float64)},
        5: {"latents": 3e38 * good[5].tensors["latents"].sign()},
    }
    for round, message in enumerate(good):
        tensors = {**message.tensors, **words.get(round, {})}
        stage.bob.transport.send([replace(message, tensors=tensors)])
    going.result(30)
    expected = {"non-finite": 1, "probabilities": 1, "shape": 1, "dtype": 1, "magnitude": 1}
    assert stage.ada.node.rejected == expected
    assert stage.ada.status().rejected == expected
    weights = stage.ada.node.agent.encoder.state_dict().values()
    assert all(bool(torch.isfinite(w).all()) for w in weights)


def spoken(certificates: Path, out: Path, script: Callable[[list[Message]], Script]) -> Stage:
    """Let Bob say what a script makes of his words, the rest after round 0; return what came."""
    peers = connected(certificates, ["ada", "bob"], staleness=QUICK.staleness)
    try:
        stage = Stage(peers, out, replace(QUICK, staleness=0))
        going = stage.start()
        first, rest = script([stage.bob.words(round) for round in range(TOTAL)])
        stage.bob.transport.send(first)
        await_that(lambda: stage.ada.network.history.rounds == 1)
        stage.bob.transport.send(rest)
        going.result(30)
    finally:
        for peer in peers.values():
            peer.close()
    return stage


def same_weights(one: Stage, other: Stage) -> bool:
    found = [load_checkpoint(stage.ada.out / "last.safetensors") for stage in (one, other)]
    pairs = [(found[0][part], found[1][part]) for part in ("encoder", "head")]
    return all(torch.equal(own[key], theirs[key]) for own, theirs in pairs for key in own)


def test_a_replayed_round_is_counted_and_changes_nothing(
    certificates: Path, tmp_path: Path
) -> None:
    once = spoken(certificates, tmp_path / "once", lambda words: (words[:1], words[1:]))
    again = spoken(certificates, tmp_path / "again", lambda words: (words[:1], words))
    assert not again.ada.policy.left_out
    assert again.ada.status().rejected == {"duplicate": 1}
    assert once.ada.status().rejected == {}
    assert same_weights(once, again)


def test_what_is_not_finite_is_counted_and_trains_like_silence(
    certificates: Path, tmp_path: Path
) -> None:
    def spoilt(words: list[Message]) -> Script:
        latents = words[3].tensors["latents"].clone()
        latents[0, 0] = torch.nan
        words[3] = replace(words[3], tensors={**words[3].tensors, "latents": latents})
        return words[:1], words[1:]

    bad = spoken(certificates, tmp_path / "bad", spoilt)
    silent = spoken(
        certificates, tmp_path / "silent", lambda words: (words[:1], words[1:3] + words[4:])
    )
    whole = spoken(certificates, tmp_path / "whole", lambda words: (words[:1], words[1:]))
    assert bad.ada.status().rejected == {"non-finite": 1}
    assert silent.ada.policy.left_out == {"bob": 1}
    assert same_weights(bad, silent)
    assert not same_weights(bad, whole)


def test_an_agent_that_is_behind_joins_the_round_of_its_neighbour(stage: Stage) -> None:
    stage.bob.greet(MET, FINISHED, round=5)
    await_that(lambda: stage.ada.policy.transport.arrivals["bob"] == 2)
    going = stage.start()
    stage.bob.speak(5, 6, 7)
    run = going.result(30)
    assert (run.history.rounds, stage.ada.policy.missed, stage.ada.node.agent.steps) == (
        TOTAL,
        5,
        3,
    )
    assert not stage.ada.policy.left_out


def test_an_agent_that_sends_nothing_skips_no_round_for_being_slow(
    links: dict[str, ZenohTransport], tmp_path: Path
) -> None:
    stage = Stage(links, tmp_path / "ada", case="alone")
    receive = stage.ada.node.receive

    def greeted_meanwhile(round: int, inbox: Mapping[str, Message]) -> dict[str, float]:
        if round == 1:
            stage.bob.greet(MET, FINISHED, round=5)
            await_that(lambda: links["ada"].arrivals["bob"] == 2)
        return receive(round, inbox)

    stage.ada.node.receive = greeted_meanwhile  # type: ignore[method-assign]
    stage.start().result(30)
    assert (stage.ada.policy.missed, stage.ada.node.agent.steps) == (0, TOTAL)


def test_a_neighbour_met_within_a_round_receives_the_messages_of_that_round(
    links: dict[str, ZenohTransport],
) -> None:
    ada, bob = node("ada", "bob"), Scripted(links["bob"], node("bob", "ada"))
    bob.finish_handshake(ada)
    finish_handshake(ada, {"bob": next(hello_messages(bob.node))})
    neighbourhood = Neighbourhood(ada, links["ada"], TOTAL)
    neighbourhood.begin(0)
    neighbourhood.process_hellos()
    (said,) = ada.send(0)
    neighbourhood.send([said])
    bob.greet(MET)
    await_that(lambda: links["ada"].arrivals["bob"] == 1)
    assert links["bob"].receive("bob", 0, "round", ["ada"]) == {}
    neighbourhood.process_hellos()
    await_that(lambda: links["bob"].arrivals.total() == 2)  # a hello, and this
    received = links["bob"].receive("bob", 0, "round", ["ada"])
    assert same_message(received["ada"], said)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pilot set": "another"}, "do not agree on the pilot set: .* against 'another'"),
        ({"protocol version": 99}, "do not agree on the protocol version: 1 against 99"),
        ({"dimension": "wide"}, "announces 'wide' as its dimension"),
        ({"dimension": True}, "announces True as its dimension"),
        ({"dimension": 0}, "announces 0 as its dimension, expected an integer from 1 to 65536"),
        ({"dimension": 2**62}, "announces 4611686018427387904 as its dimension, expected"),
        ({"classes": False}, "announces False as its classes, expected an integer from 0"),
        ({"round": TOTAL + 1}, f"is in round {TOTAL + 1}, of {TOTAL} here"),
    ],
)
def test_a_mismatch_is_refused_by_name(
    links: dict[str, ZenohTransport], tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    stage = Stage(links, tmp_path / "ada", Timeouts(join=0.3))
    stage.bob.greet(MET, **changes)
    await_that(lambda: links["ada"].arrivals["bob"] == 2)
    with pytest.raises(HandshakeError, match=text):
        stage.start().result(30)
    assert list(stage.ada.status().refused) == ["bob"]
    assert json.loads((tmp_path / "ada" / "status.json").read_text())["state"] == "failed"


def test_other_pilots_have_another_digest() -> None:
    other = node("bob", "ada", pilot_set=PilotSet(samples(24, 78)[0]))
    (hello,) = hello_messages(other)
    with pytest.raises(HandshakeError, match="pilot set"):
        check_hello(node("ada", "bob"), hello)


def test_label_sets_are_compared_where_both_are_known() -> None:
    def of(name: str, other: str, *classes: str) -> Node:
        agent = simple_agent(name, classes=classes or None)
        return SheafFRL().node(NodeContext(agent, (other,), pilots(), 7, 3, ROUNDS, False))

    ada = of("ada", "bob", "cat", "dog", "eel")
    for same in (of("bob", "ada", "cat", "dog", "eel"), of("bob", "ada")):
        check_hello(ada, next(hello_messages(same)))
        check_hello(same, next(hello_messages(ada)))
    for other in (("dog", "cat", "eel"), ("cat", "dog", "eel", "fox"), ("catd", "og", "eel")):
        with pytest.raises(HandshakeError, match=r"do not agree on the label set: '.*' against '"):
            check_hello(ada, next(hello_messages(of("bob", "ada", *other))))


def test_a_neighbour_that_returns_with_another_model_is_not_heard(stage: Stage) -> None:
    going = stage.start()
    stage.bob.speak(0)
    await_that(lambda: stage.ada.network.history.rounds == 1)
    stage.bob.greet(MET, dimension=99)
    stage.bob.speak(*range(1, TOTAL))
    run = going.result(30)
    assert run.history.rounds == TOTAL
    assert "the dimension of agent 'bob' was 4 and is 99" in stage.ada.status().refused["bob"]
    assert stage.ada.policy.left_out["bob"] > 0


def test_missing_neighbours_are_named_when_patience_ends(
    links: dict[str, ZenohTransport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lonely = peer_agent(links, tmp_path, Timeouts(join=0.1))
    monkeypatch.setattr("sheafed.network.peer_agent.TELL_SECONDS", 0.0)
    monkeypatch.setattr(ZenohTransport, "link_problems", lambda _: ["tls/bob:1: refused"])
    monkeypatch.setattr(ZenohTransport, "failed_connections", Counter({"127.0.0.1": 3}))
    with pytest.raises(HandshakeError, match=r"no hello from its neighbours \['bob'\]") as error:
        lonely.train()
    assert "or refuse each other's certificates" in str(error.value)
    assert "(tls/bob:1: refused; 3 connections to 'ada' came to nothing)" in str(error.value)
    told = [text for text in caplog.messages if "has no link to" in text]
    assert told == ["ada has no link to tls/bob:1: refused"]  # once


@pytest.mark.parametrize("patience", [600, -1], ids=["passing", "persistent"])
def test_training_goes_on_while_a_checkpoint_cannot_be_written_for_some_time(
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    patience: float,
) -> None:
    written: list[int] = []

    def write(path: Path, content: bytes, private: bool) -> None:
        written.append(stage.ada.network.history.rounds)
        if path.name == CHECKPOINT and written[-1] == ROUNDS:
            raise OSError(24, "Too many open files")
        write_atomically(path, content, private=private)

    monkeypatch.setattr("sheafed.checkpointing.checkpoint.write_atomically", write)
    monkeypatch.setattr("sheafed.network.peer_agent.SAVE_PATIENCE", patience)
    going = stage.start()
    stage.bob.speak(*range(TOTAL))
    if patience < 0:
        with pytest.raises(CheckpointError, match="Too many open files"):
            going.result(30)
        assert stage.ada.state == "failed"
    else:
        assert going.result(30).history.rounds == TOTAL
        assert load_checkpoint(tmp_path / "ada" / CHECKPOINT)["rounds"] == TOTAL
        assert any("ada trains on although it cannot write" in text for text in caplog.messages)
    assert {0, ROUNDS} <= set(written)


def test_training_goes_on_while_metrics_cannot_be_written(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, at the moment of the first evaluation."""
    path = tmp_path / "ada" / METRICS
    found = []

    def sync(descriptor: int) -> None:
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            found.append(path.stat().st_size)
            if len(found) == 1:
                raise OSError(28, "No space left on device")

    monkeypatch.setattr("sheafed.training.callbacks.metrics_log.os.fsync", sync)
    going = stage.start()
    stage.bob.speak(*range(TOTAL))
    run = going.result(30)
    assert len(run.history.records) == EPOCHS
    assert [json.loads(line) for line in path.read_text().splitlines()] == run.history.records
    assert [text for text in caplog.messages if "the metrics cannot be written" in text] == [
        f"the metrics cannot be written for now: cannot write {path}: No space left on device; "
        "make room, or choose another place"
    ]


def test_stopped_after_a_whole_round_and_resumed_from_there(
    stage: Stage,
    links: dict[str, ZenohTransport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    going = stage.start()
    stage.bob.speak(0, 1)
    await_that(lambda: stage.ada.network.history.rounds == 2)
    stage.ada.stop()
    stopped = going.result(30)
    saved = load_checkpoint(tmp_path / "ada" / "checkpoint.safetensors")
    assert saved["rounds"] == stopped.history.rounds in (2, 3)
    assert saved["peers"] == {"bob": {"dimension": 4, "classes": 3}}
    again = peer_agent(links, tmp_path / "ada")
    with pytest.raises(RunExistsError, match="already holds a run"):
        again.train()
    shown, join = [], again._join

    def note(fresh: bool) -> None:
        shown.append(read_statuses(tmp_path)["ada"].round)
        join(fresh)

    monkeypatch.setattr(again, "_join", note)
    resumed = again.train(resume=True)  # the exchange is still interrupted: waits for nobody
    assert shown == [saved["rounds"]]
    assert resumed.history.rounds == TOTAL
    assert again.node.agent.steps == TOTAL
    shorter = peer_agent(links, tmp_path / "ada", epochs=1)
    with pytest.raises(InputError, match=f"{EPOCHS} epochs of this run are done, 1 were asked for"):
        shorter.train(resume=True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"method": NonCooperative()}, "its method is 'sheaf-frl', this one's 'non-coop"),
        ({"method": SheafFRL(pilots_per_round=8)}, "it has no option noise of the method, this"),
        ({"objective": PseudoLabels()}, "its objective is 'cross_entropy', this one's"),
        ({"frozen": True}, "its objective is 'cross_entropy', this one's .*encoder frozen"),
        ({"head": nn.Sequential(nn.Linear(3, CLASSES))}, "its head is 'Linear'"),
        ({"head": nn.Linear(3, CLASSES, bias=False)}, "agent 'ada' has other weights there"),
    ],
)
def test_an_agent_does_not_go_on_as_another(
    links: dict[str, ZenohTransport], tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    def peer(method: Method = NOISED, **options: Any) -> PeerAgent:
        context = NodeContext(simple_agent("ada", **options), (), pilots(), 7, 3, ROUNDS, False)
        node = method.node(context)
        return PeerAgent(node, links["ada"], method=method, epochs=EPOCHS, out=tmp_path)

    path = tmp_path / "checkpoint.safetensors"
    save(path, peer().network, peer().policy, {})
    restore(path, peer().network, peer().policy)
    with pytest.raises(CheckpointError, match=f"(?s){named}"):
        restore(path, peer(**change).network, peer().policy)


@pytest.mark.parametrize("part", ["agent", "node"])
def test_a_checkpoint_without_a_part_says_so(
    links: dict[str, ZenohTransport], tmp_path: Path, part: str
) -> None:
    context = NodeContext(simple_agent("ada"), (), pilots(), 7, 3, ROUNDS, False)
    peer = PeerAgent(NOISED.node(context), links["ada"], method=NOISED, epochs=EPOCHS, out=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    save(path, peer.network, peer.policy, {})
    for spoilt in ({}, None):
        save_checkpoint(path, load_checkpoint(path) | {part: spoilt})
        with pytest.raises(CheckpointError, match="or damaged: agent 'ada' has other weights"):
            restore(path, peer.network, peer.policy)


def test_latents_with_noise_are_not_evaluated_and_not_waited_for(
    links: dict[str, ZenohTransport], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timeouts = Timeouts(deadline=10, join=20, final=0)
    both = [
        PeerAgent(
            NOISED.node(NodeContext(agent, (other,), pilots(), 7, 3, ROUNDS, False)),
            links[agent.name],
            method=NOISED,
            epochs=1,
            out=tmp_path / agent.name,
            timeouts=timeouts,
        )
        for agent, other in zip(agents(), ("bob", "ada"), strict=False)
    ]
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(PeerAgent.train, both))
    for run, other in zip(runs, ("bob", "ada"), strict=True):
        assert run.history.last is not None
        (name,) = run.nodes
        assert list(run.history.evaluation.communication) == [(other, name)]
        assert run.history.evaluation.misalignment == {}
    assert not any("has sent nothing" in text for text in caplog.messages)


def test_a_stop_without_notice_is_noticed_soon(
    links: dict[str, ZenohTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler cannot wake up the thread it runs in, between its look and its wait."""
    waited: list[float] = []
    ada = links["ada"]
    monkeypatch.setattr(ada._news, "wait", waited.append)
    ada.wait(600.0, since=ada.events)
    ada.wait(0.25, since=ada.events)
    assert waited == [1.0, 0.25]


def test_timeouts_are_checked() -> None:
    with pytest.raises(InputError, match=r"deadline must be a number of at least 0, got -1"):
        Timeouts(deadline=-1)


# What of an earlier message is still true


def pair(method: SheafFRL) -> tuple[Node, Node]:
    nodes = {}
    for name, other in (("ada", "bob"), ("bob", "ada")):
        agent = next(agent for agent in agents() if agent.name == name)
        nodes[name] = method.node(NodeContext(agent, (other,), pilots(), 7, 3, ROUNDS, False))
    for name, other in (("ada", "bob"), ("bob", "ada")):
        (hello,) = hello_messages(nodes[other])
        finish_handshake(nodes[name], {other: hello})
    return nodes["ada"], nodes["bob"]


def test_with_the_same_pilots_an_earlier_message_serves_in_full() -> None:
    ada, bob = pair(SheafFRL(pilots_per_round=24))
    (old,) = bob.send(0)
    served = ada.reuse(3, old)
    assert served is not None
    list(ada.send(3))
    assert "penalty" in ada.receive(3, {"bob": served})
    assert not ada.rejected
    assert ada.endpoints["bob"].fitted


def test_with_other_pilots_only_probabilities_remain() -> None:
    method = METHODS["distillation"]()
    assert isinstance(method, SheafFRL)
    ada, bob = pair(method)
    (first,) = bob.send(0)
    list(ada.send(0))
    ada.receive(0, {"bob": first})
    before = ada.endpoints["bob"].map.clone()
    served = ada.reuse(1, first)
    assert served is not None
    list(ada.send(1))
    log = ada.receive(1, {"bob": served})
    assert "distillation_loss" in log
    assert "penalty" not in log
    assert torch.equal(ada.endpoints["bob"].map, before)
    assert not ada.rejected


def test_without_probabilities_another_round_s_pilots_say_nothing() -> None:
    ada, bob = pair(SheafFRL(pilots_per_round=8))
    (old,) = bob.send(0)
    assert ada.reuse(1, old) is None


def test_peers_exchange_the_values_of_their_metrics(
    links: dict[str, ZenohTransport], tmp_path: Path
) -> None:
    """Both are real; the values are those that one process finds with the same weights."""
    method, patient = SheafFRL(pilots_per_round=8), Timeouts(deadline=20, join=20, final=0)
    team = regressors()[:2]
    peers = {}
    for agent, other in zip(team, ("bob", "ada"), strict=True):
        context = NodeContext(agent, (other,), pilots(), 7, 3, 2, False)
        peers[agent.name] = PeerAgent(
            method.node(context),
            links[agent.name],
            method=method,
            epochs=1,
            out=tmp_path / agent.name,
            timeouts=patient,
        )
    with ThreadPoolExecutor(2) as pool:
        runs = dict(zip(peers, pool.map(lambda peer: peer.train(), peers.values()), strict=True))
    expected = evaluate_locally({name: peer.node for name, peer in peers.items()}, oracle=False)
    ada, bob = (runs[name].history.last for name in ("ada", "bob"))
    assert ada["private_mse"] == expected.private["ada"]
    assert ada["communication_r2"] == expected.communication["bob", "ada"]
    assert bob["communication_mse"] == expected.communication["ada", "bob"]
    assert bob["validation_private_r2"] is not None
    status = peers["ada"].status()
    assert (status.metric, status.private) == ("mse", ada["private_mse"])
    summary = gather(tmp_path)
    assert summary["private_r2"] == bob["private_r2"]
    assert summary["communication_mse"] == bob["communication_mse"]
    assert summary["communication_r2"] == ada["communication_r2"]


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_peers_of_which_one_teaches_wait_for_each_other(
    links: dict[str, ZenohTransport], tmp_path: Path, privacy: Any
) -> None:
    """Bob, who has no labels, learns from Ada what he learns in one process, to the bit.

    When maps are fitted, Bob is the head: under strict privacy Ada waits for him, then he for her.
    """
    method = ConsensusDistillation(confidence=0.4, privacy=privacy)
    patient = Timeouts(20, join=20, final=0)

    def nodes() -> dict[str, Node]:
        ada = simple_agent("ada", 3, 1)
        bob = simple_agent("bob", 4, 2, data=samples(20, 2)[0], objective=small_latents)
        team = {"ada": (ada, ("bob",)), "bob": (bob, ("ada",))}
        contexts = (NodeContext(a, others, pilots(), 7, 3, 2, False) for a, others in team.values())
        return {context.agent.name: method.node(context) for context in contexts}

    here, there = nodes(), nodes()
    transport = LocalTransport(list(here))
    handshake(here, transport)
    for round in range(4):
        one_round(here, transport, round)
    fit_post_hoc_maps(here, Barrier(transport), 3)
    peers = {
        name: PeerAgent(
            own, links[name], method=method, epochs=2, out=tmp_path / name, timeouts=patient
        )
        for name, own in there.items()
    }
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda peer: peer.train(), peers.values()))
    for peer in peers.values():
        assert not peer.policy.left_out
        assert not peer.status().rejected
    assert same_agents(*([node.agent for node in network.values()] for network in (here, there)))
    for name, other in (("ada", "bob"), ("bob", "ada")):
        maps = [network[name].endpoints[other].map for network in (here, there)]
        torch.testing.assert_close(*maps, atol=1e-5, rtol=0)
    assert "ada" in there["bob"].reading_head.offsets  # he has had her latents, and read them


def small_latents(agent: Agent, batch: Batch) -> torch.Tensor:
    return agent.encode(batch.inputs).square().mean()
