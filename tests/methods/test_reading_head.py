"""The reading head: what it learns, what it reads, and what it leaves as it was."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import sheafed
from sheafed import Agent, ConsensusDistillation, train
from sheafed.agents.objectives import UNLABELLED, Augmentation, PseudoLabels
from sheafed.errors import HandshakeError
from sheafed.methods.node import Node
from sheafed.methods.reading_head import ReadingHead
from sheafed.methods.reading_head_fit import fit_reading_head
from sheafed.privacy.attacks import communication_accuracy
from sheafed.training import Network
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, LocalTransport
from sheafed.transport.message import Message
from tests.helpers.baselines import PAIR, TRIANGLE, Training, noisy
from tests.helpers.federations import agents, normal_latents, results, start
from tests.helpers.federations import pilots as shared_pilots
from tests.helpers.rounds import handshake
from tests.helpers.small_federations import (
    agent,
    nodes_of,
    normal,
    pilots,
    same_weights,
    samples,
)

THREE = {"a": 5, "b": 4, "c": 3}
PATH = [("a", "b"), ("b", "c")]
METHOD = ConsensusDistillation(confidence=0.4)
STILL = Augmentation(shift=0, rotation=0, erasing=0, noise=0.1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def trained(directory: Path) -> Network:
    """Ada, Bob and Cyd on a line; their heads have batch norm, dropout and neither."""
    network = start("consensus", directory, epochs=2)
    assert all(node.reading_head is not None for node in network.nodes.values())
    return network


def spread(one: Agent, batch: Any) -> Tensor:
    return one.encode(batch.inputs).square().mean()


def state_of(node: Node) -> dict[str, Tensor] | None:
    return None if node.reading_head is None else flat(node.reading_head)


def flat(head: ReadingHead) -> dict[str, Tensor]:
    state = head.state()
    return {f"{part} {key}": value.clone() for part in state for key, value in state[part].items()}


def fit(one: Agent, latents: Tensor, targets: Tensor, seed: int = 0) -> ReadingHead | None:
    return fit_reading_head(one, {"b": (latents, targets)}, seed=seed)


def same_heads(one: dict[str, Tensor] | None, other: dict[str, Tensor] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def align(nodes: dict[str, Node], drop: Callable[[Message], bool] | None = None) -> list[Message]:
    """Fit the maps of a network under way; return what was sent."""
    sent: list[Message] = []
    transport = LocalTransport(
        list(nodes), tap=lambda data: sent.append(sheafed.transport.decode(data)), drop=drop
    )
    fit_post_hoc_maps(nodes, Barrier(transport), 0)
    return sent


# What it learns


def shifted(offset: tuple[float, float], seed: int, count: int = 200) -> tuple[Tensor, Tensor]:
    """Two classes on a line, moved."""
    labels = torch.arange(count) % 2
    centres = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    return centres[labels] + torch.tensor(offset) + 0.2 * normal(seed, count, 2), labels


def planar(head: nn.Module, data: Any) -> Agent:
    """An agent whose latents are its inputs."""
    identity = nn.Linear(2, 2, bias=False)
    identity.weight.data.copy_(torch.eye(2))
    return Agent("a", identity, head, data=data, batch_size=8)


def plain_head() -> nn.Linear:
    head = nn.Linear(2, 2)
    head.weight.data.copy_(torch.tensor([[-0.1, 0.0], [0.1, 0.0]]))
    head.bias.data.zero_()
    return head


def right(head: nn.Module, given: tuple[Tensor, Tensor]) -> float:
    with torch.no_grad():
        return float((head(given[0]).argmax(-1) == given[1]).float().mean())


def test_it_reads_latents_that_the_head_takes_for_another_class() -> None:
    """What arrives is shifted across the boundary; a line that tells all four clusters exists."""
    one = planar(plain_head(), shifted((0, 0), 1))
    arrived, labels = shifted((3.0, 4.0), 2)
    read = fit(one, arrived, nn.functional.one_hot(labels, 2).float())
    assert right(one.head, shifted((3.0, 4.0), 3)) == 0.5
    assert right(read.of("b"), shifted((3.0, 4.0), 3)) > 0.95
    assert right(read.of("a"), shifted((0.0, 0.0), 4)) > 0.95  # own latents are learnt too
    assert torch.equal(one.head.weight, plain_head().weight)


def test_it_learns_the_targets_not_the_heads_opinion() -> None:
    """Without own labels, what neighbours say is all that counts: here, the other way round."""
    inputs, labels = shifted((0, 0), 1)
    one = planar(plain_head(), inputs)
    swapped = nn.functional.one_hot(1 - labels, 2).float()
    read = fit(one, inputs, swapped)
    assert right(one.head, (inputs, labels)) > 0.95
    assert right(read.of("b"), (inputs, labels)) < 0.05


def test_an_offset_is_how_often_a_sender_has_a_class() -> None:
    """Where latents tell nothing, what is read is each sender's share of the classes."""
    shares = {"b": torch.tensor([0.9, 0.1]), "c": torch.tensor([0.3, 0.7])}
    blank = torch.zeros(256, 2)
    received = {j: (blank, share.expand(256, 2)) for j, share in shares.items()}
    one = planar(plain_head(), blank)
    read = fit_reading_head(one, received, seed=0, steps=400)
    for sender, share in shares.items():
        found = torch.softmax(read.of(sender)(blank[:1]), dim=-1)[0]
        torch.testing.assert_close(found, share, atol=0.01, rtol=0)
    assert set(read.offsets) == {"b", "c"}  # the agent itself has no labels
    unknown = read.of("somebody")(blank[:1])
    torch.testing.assert_close(unknown, read.head(blank[:1]))


def test_the_same_latents_are_read_by_whom_they_came_from() -> None:
    """Two senders say the opposite of the same latents, and one head cannot be right for both."""
    latents, labels = shifted((0, 0), 1)
    always = {
        j: nn.functional.one_hot(torch.full_like(labels, c), 2) for j, c in {"b": 0, "c": 1}.items()
    }
    received = {j: (latents, wanted.float()) for j, wanted in always.items()}
    read = fit_reading_head(planar(plain_head(), latents), received, seed=0)
    assert right(read.of("b"), (latents, torch.zeros_like(labels))) > 0.95
    assert right(read.of("c"), (latents, torch.ones_like(labels))) > 0.95
    one_for_all = fit_reading_head(
        planar(plain_head(), latents), received, seed=0, sender_offsets=False
    )
    assert not one_for_all.offsets
    found = torch.softmax(one_for_all.of("b")(latents), dim=-1)
    assert float((found - 0.5).abs().mean()) < 0.2


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: torch.where(torch.arange(len(y)) < 50, y, UNLABELLED),
        lambda y: nn.functional.one_hot(y, 2).double(),
    ],
    ids=["few", "soft"],
)
def test_own_labels_of_any_kind_count(labels: Callable[[Tensor], Tensor]) -> None:
    x, y = shifted((0, 0), 1)
    arrived, swapped = x, nn.functional.one_hot(1 - y, 2).float()
    one = planar(plain_head(), x)
    without = fit(one, arrived, swapped)
    one = Agent("a", one.encoder, one.head, data=(x, labels(y)), objective=spread, batch_size=8)
    one.regression = False
    read = fit(one, arrived, swapped)
    (low, high), (plain_low, plain_high) = (head.head(torch.eye(2))[0] for head in (read, without))
    assert high - low > plain_high - plain_low  # own labels hold against what neighbours say


def test_where_no_sample_has_a_label_none_is_used() -> None:
    x, _ = shifted((0, 0), 1)
    hidden = (x, torch.full((len(x),), UNLABELLED))
    targets = torch.full((len(x), 2), 0.5)
    read = [flat(fit(planar(plain_head(), data), x, targets)) for data in (x, hidden)]
    assert same_heads(*read)
    assert not any("offsets a" in key for key in read[0])


def test_pseudo_labels() -> None:
    x, y = samples(3, 64)
    data = (x, torch.where(torch.arange(64) < 9, y, UNLABELLED))
    one = agent("a", 5, data=data, objective=PseudoLabels(augmentation=STILL, weak=STILL))
    network = train([one, agent("b", 4)], PAIR, METHOD, pilots(), epochs=1, oracle=False)
    assert network.nodes["a"].reading_head is not None


@pytest.mark.parametrize(
    ("head", "rows"), [(nn.Flatten(), 9), (nn.Linear(2, 2), 1)], ids=["no weights", "one latent"]
)
def test_where_there_is_nothing_to_fit_there_is_none(head: nn.Module, rows: int) -> None:
    one = planar(head, shifted((0, 0), 1))
    assert fit(one, torch.ones(rows, 2), torch.ones(rows, 2) / 2) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_heads_in_any_precision(dtype: torch.dtype) -> None:
    one = planar(plain_head().to(dtype), shifted((0, 0), 1))
    if dtype == torch.float64:
        x, y = shifted((0, 0), 1)
        one = Agent("a", one.encoder.double(), one.head, data=(x.double(), y), batch_size=8)
    arrived, labels = shifted((3.0, 4.0), 2)
    arrived = arrived.to(one.dtype)
    read = fit(one, arrived, nn.functional.one_hot(labels, 2).float())
    assert one.head.weight.dtype == dtype
    assert read.head.weight.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
    found = one.apply_head(arrived, read.of("b"))
    assert float((found.argmax(-1) == labels).float().mean()) > 0.95


class Jittered(Dataset[tuple[Tensor, Tensor]]):
    """Data that are drawn anew whenever they are read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, k: int) -> tuple[Tensor, Tensor]:
        return torch.randn(2) + k % 2, torch.tensor(k % 2)


def test_it_is_the_same_in_every_bit_and_draws_from_no_other_stream() -> None:
    one = planar(nn.Sequential(nn.Dropout(0.4), plain_head()), Jittered())
    arrived, labels = shifted((3.0, 4.0), 2)
    given = {"latents": arrived, "targets": nn.functional.one_hot(labels, 2).float()}
    outside, own = torch.get_rng_state(), one.state()
    first = fit(one, **given, seed=3)
    assert torch.equal(torch.get_rng_state(), outside)
    assert torch.equal(one.state()["rng_state"], own["rng_state"])
    assert one.state()["position"] == own["position"]
    torch.randn(7)
    again = fit(one, **given, seed=3)
    assert same_heads(flat(first), flat(again))
    other = fit(one, **given, seed=4)
    assert not same_heads(flat(first), flat(other))
    assert not first.head.training
    assert not any(p.requires_grad for p in first.of("b").parameters())


# What it leaves as it was


def test_own_data_and_training_are_the_same_with_and_without() -> None:
    runs = []
    for wanted in (True, False):
        method = dataclasses.replace(METHOD, reading_head=wanted, consensus_head=False)
        options = {"epochs": 2, "evaluate_every": 1}
        runs.append(train(noisy(THREE), PATH, method, pilots(), **options))
    read, plain = runs
    assert same_weights(read.agents.values(), plain.agents.values())
    for name, one in read.agents.items():
        assert torch.equal(one.state()["rng_state"], plain.agents[name].state()["rng_state"])
        assert plain.nodes[name].reading_head is None
        latents = normal_latents(one.dimension)
        own = [network.outputs(latents, name, name) for network in runs]
        assert torch.equal(*own)
    for ours, theirs in zip(read.history.records, plain.history.records, strict=True):
        assert ours.keys() == theirs.keys()
        differing = {key for key in ours if ours[key] != theirs[key]}
        assert differing >= {"bytes_sent", "communication_accuracy"}
        assert all("communication" in key or "bytes" in key for key in differing - {"agents"})
    assert read.history.evaluation.private == plain.history.evaluation.private
    assert read.history.evaluation.oracle == plain.history.evaluation.oracle


def test_without_it_the_consensus_head_reads() -> None:
    method = dataclasses.replace(METHOD, reading_head=False)
    training = Training(noisy(THREE), PATH, method).run(2)
    align(training.nodes)
    node = training.nodes["b"]
    with torch.no_grad():
        expected = node.consensus_head.module.eval()(latents := normal_latents(4))
    torch.testing.assert_close(node.read(latents, "a"), expected)
    assert not torch.allclose(expected, node.agent.head(latents), atol=1e-3)


def test_neighbours_must_agree_on_it() -> None:
    methods = {"a": METHOD, "b": dataclasses.replace(METHOD, reading_head=False)}
    nodes = nodes_of([agent("a", 5), agent("b", 4)], PAIR, methods)
    with pytest.raises(HandshakeError, match=r"do not agree on the reading heads: 1 against 0"):
        handshake(nodes, LocalTransport("ab"))


# What it reads


@pytest.mark.parametrize("path", [["ada", "bob"], ["ada", "bob", "cyd"]])
def test_what_is_sent_is_read_by_it(trained: Network, path: list[str], tmp_path: Path) -> None:
    sender, receiver = path[0], path[-1]
    latents = normal_latents(trained.agents[sender].dimension)
    node = trained.nodes[receiver]
    with torch.no_grad(), node.agent.inference():
        arrived = trained.send(latents, sender, receiver, path)
        expected, plain = node.reading_head.of(sender)(arrived), node.agent.head(arrived)
    assert not torch.allclose(expected, plain, atol=1e-2)
    assert torch.equal(trained.outputs(latents, sender, receiver, path), expected)
    assert torch.equal(trained.classify(latents, sender, receiver, path), expected.argmax(-1))
    inputs = trained.agents[sender].data.test.inputs
    encoded = trained.encode(inputs, sender)
    scores = trained.outputs(encoded, sender, receiver, path)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(trained.pipeline(sender, receiver, path)(inputs), scores, **close)
    if len(path) == 2:
        trained.export(sender, receiver, tmp_path / "pipeline.pt2")
        program = torch.export.load(tmp_path / "pipeline.pt2").module()
        torch.testing.assert_close(program(inputs), scores, **close)


def test_own_latents_are_read_by_it_too(trained: Network) -> None:
    """With the offset that own labels have; without, it would read some otherwise."""
    latents, node = normal_latents(4), trained.nodes["bob"]
    head = node.reading_head.of("bob")

    def read(z: Tensor) -> Tensor:
        with torch.no_grad(), node.agent.inference():
            return head(z)

    torch.testing.assert_close(trained.outputs(latents, "bob", "bob", ["bob"]), read(latents))
    assert not torch.allclose(read(latents), node.reading_head.head(latents), atol=1e-3)
    inputs = node.agent.data.test.inputs
    with node.agent.inference():
        expected = read(node.agent.encoder(inputs))
    torch.testing.assert_close(trained.pipeline("bob", "bob", ["bob"])(inputs), expected)
    right = float((expected.argmax(-1) == node.agent.data.test.targets).float().mean())
    assert trained.history.evaluation.private["bob"] == pytest.approx(right)


def test_communication_is_measured_with_it(trained: Network) -> None:
    found = trained.history.evaluation.communication
    without = copy.copy(trained.nodes["bob"])
    without.reading_head = None
    ada, bob = trained.nodes["ada"], trained.nodes["bob"]
    assert communication_accuracy(ada, bob) == pytest.approx(found["ada", "bob"])
    plain = [communication_accuracy(trained.nodes[j], without) for j in ("ada", "cyd")]
    assert plain != [pytest.approx(found[j, "bob"]) for j in ("ada", "cyd")]


# Which agents have one, and faults


def test_agents_without_a_head_and_without_labels() -> None:
    """An agent without a head is told no probabilities, and one without labels tells none."""
    team = [
        agent("a", 5),
        agent("b", 4),
        agent("bare", 3, head=None, objective=spread),
        agent("u", 4, data=samples(5, 64)[0], objective=spread),
        agent("apart", 3),
    ]
    edges = [("a", "b"), ("a", "bare"), ("a", "u"), ("bare", "u")]
    training = Training(team, edges, METHOD).run(1)
    sent = {(m.sender, m.receiver): set(m.tensors) for m in align(training.nodes)}
    latents = {"latents", "scale of latents"}
    both = {*latents, "probabilities"}
    assert sent == {
        ("a", "b"): both,
        ("b", "a"): both,
        ("a", "bare"): latents,
        ("bare", "a"): latents,
        ("a", "u"): both,
        ("u", "a"): latents,
        ("bare", "u"): latents,
        ("u", "bare"): latents,
    }
    heads = {name: node.reading_head is not None for name, node in training.nodes.items()}
    assert heads == {"a": True, "b": True, "u": True, "bare": False, "apart": False}
    assert not any(node.rejected for node in training.nodes.values())


def test_a_neighbour_that_does_not_teach_gives_none() -> None:
    team = [agent("a", 5), agent("u", 4, data=samples(5, 64)[0], objective=spread)]
    training = Training(team, [("a", "u")], METHOD).run(1)
    align(training.nodes)
    assert training.nodes["a"].reading_head is None
    assert training.nodes["u"].reading_head is not None


SPOILS: dict[str, Callable[[Tensor], Tensor]] = {
    "probabilities": lambda p: p // 2,
    "shape": lambda p: p[1:],
    "dtype": lambda p: p.float(),
}
"""What may be wrong with predictions, by the reason for which they are left out."""


def test_damaged_messages_are_left_out_and_missing_ones_missed() -> None:
    training = Training([agent(n, d) for n, d in THREE.items()], TRIANGLE, METHOD).run(1)
    node = training.nodes["a"]
    align(training.nodes, drop=lambda m: (m.sender, m.receiver) == ("b", "a"))
    missing, untouched = state_of(node), node.endpoints["b"].map.clone()
    inbox = {
        name: message
        for name in "bc"
        for message in training.nodes[name].alignment_messages(0)
        if message.receiver == "a"
    }
    tensors = inbox["b"].tensors
    for reason, spoil in SPOILS.items():
        spoilt = {**tensors, "probabilities": spoil(tensors["probabilities"])}
        list(node.alignment_messages(0))
        node.align(0, inbox | {"b": dataclasses.replace(inbox["b"], tensors=spoilt)})
        assert node.rejected.pop(reason) == 1
        assert same_heads(state_of(node), missing)
        assert torch.equal(node.endpoints["b"].map, untouched)
    assert not node.rejected
    list(node.alignment_messages(0))
    node.align(0, inbox)
    assert not same_heads(state_of(node), missing)
    list(node.alignment_messages(0))
    node.align(0, {})  # none that was fitted to an earlier encoder
    assert set(node.reading_head.offsets) == {"a"}
    weights = dict(node.consensus_head.module.state_dict())
    assert same_heads(dict(node.reading_head.head.state_dict()), weights)


# State, other maps, newcomers


def test_a_network_in_a_file(trained: Network, directory: Path) -> None:
    loaded = sheafed.load(directory, agents(), pilots=shared_pilots())
    for name, node in trained.nodes.items():
        assert same_heads(state_of(node), state_of(loaded.nodes[name]))
        head = loaded.nodes[name].reading_head.head
        assert not head.training
        assert not any(p.requires_grad for p in head.parameters())
    assert loaded.evaluate() == trained.history.evaluation
    latents = normal_latents(5)
    assert torch.equal(
        loaded.outputs(latents, "ada", "bob"), trained.outputs(latents, "ada", "bob")
    )


def test_a_run_resumes_to_the_byte(
    trained: Network, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sheafed.training.post_hoc_maps.SHRINKAGES", ())  # faster, not compared
    start("consensus", tmp_path, epochs=1)
    start("consensus", tmp_path, epochs=2, resume=True)
    assert results(tmp_path) == results(directory)


def test_other_whitenings_leave_it_as_it_was(trained: Network) -> None:
    """The run has measured them, and fitted reading heads for each."""
    fair, paper = (trained.history.whitenings[c] for c in ("fair", "as-in-paper"))
    assert fair["misalignment"] != paper["misalignment"]
    kept = {name: state_of(node) for name, node in trained.nodes.items()}
    assert trained.evaluate() == trained.history.evaluation
    align(trained.nodes)
    assert all(same_heads(kept[name], state_of(node)) for name, node in trained.nodes.items())


def test_newcomers_and_leavers(trained: Network, directory: Path) -> None:
    network = sheafed.load(directory, agents(), pilots=shared_pilots())
    before = {name: state_of(node) for name, node in network.nodes.items()}
    network.join(agent("new", 3), ["bob"])
    assert network.nodes["new"].reading_head is None
    assert all(same_heads(before[n], state_of(network.nodes[n])) for n in before)
    network.leave("new")
    network.join(agent("next", 4), ["bob", "cyd"], epochs=1, others="training")
    assert network.nodes["next"].reading_head is not None
    assert not same_heads(before["bob"], state_of(network.nodes["bob"]))
    kept = state_of(network.nodes["bob"])
    network.leave("next")
    del kept["offsets next"]  # another agent may come under this name
    assert same_heads(kept, state_of(network.nodes["bob"]))
