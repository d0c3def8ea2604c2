"""Evaluation by messages gives what direct computation with all tensors at hand gives."""

from collections import Counter

import pytest
import torch

from sheafed.evaluation import PeerEvaluator, Split, evaluate, evaluate_locally
from sheafed.evaluation.peer_evaluator import evaluation_pilots
from sheafed.training import Network
from sheafed.transport import Barrier, LocalTransport
from sheafed.transport.message import Message
from tests.helpers.federations import METHODS, start


@pytest.fixture(scope="module", params=list(METHODS))
def trained(request: pytest.FixtureRequest) -> Network:
    return start(request.param, epochs=2)


@torch.no_grad()
def directly(network: Network, split: Split) -> dict[tuple[str, str], float]:
    """Classify what each sender transmits, and count, with all tensors in one place."""
    found = {}
    for name, node in network.nodes.items():
        for sender in node.neighbours:
            other = network.nodes[sender]
            samples = other.agent.data.test if split == "test" else other.agent.data.validation
            latents, targets = other.agent.encode_samples(samples)
            read = node.interpret(other.transmit(latents, name), sender)
            head = node.reading_head.of(sender) if node.reading_head else node.agent.head
            with node.agent.inference():
                classes = head(read).argmax(-1)
            found[sender, name] = float((classes == targets).double().mean())
    return found


@pytest.mark.parametrize("split", ["test", "validation"])
def test_communication_accuracy_is_that_of_direct_computation(
    trained: Network, split: Split
) -> None:
    found = evaluate_locally(trained.nodes, split)
    assert found.communication == directly(trained, split)
    assert len(found.communication) == 4
    assert list(found.private) == ["ada", "bob", "cyd"]


@torch.no_grad()
def test_misalignment_is_that_of_direct_computation(trained: Network) -> None:
    expected = {}
    for name, node in trained.nodes.items():
        for tail in node.neighbours:
            if node.edge(tail).head == name:
                pilots = evaluation_pilots(node.context.pilots.total)
                own, other = (trained.nodes[j].white_pilots(pilots) for j in (name, tail))
                sent = trained.nodes[tail].endpoints[name].outgoing(other)
                residual = (own - node.endpoints[tail].incoming(sent)).square().sum()
                energy = own.square().sum() + other.square().sum()
                expected[name, tail] = float(residual / energy)
    found = evaluate_locally(trained.nodes, oracle=False).misalignment
    assert found == pytest.approx(expected, rel=1e-5)
    assert len(found) == 2


def test_bad_messages_are_counted_and_left_out() -> None:
    ada, bob = (start("distillation", epochs=1).nodes[name] for name in ("ada", "bob"))
    for shape in ((4, 99), (), (0, 99), (0, 4)):
        wrong = Message("question", 3, "bob", "ada", {"latents": torch.zeros(shape)})
        assert list(PeerEvaluator(ada, 3).answer({"bob": wrong})) == []
    empty = Message("question", 3, "bob", "ada")
    assert list(PeerEvaluator(ada, 3).answer({"bob": empty})) == []
    few = Message("answer", 3, "ada", "bob", {"classes": torch.zeros(2, dtype=torch.int64)})
    assert list(PeerEvaluator(bob, 3).grade({"ada": few})) == []
    assert (ada.rejected, bob.rejected) == ({"shape": 4, "names": 1}, {"shape": 1})


@pytest.mark.parametrize("accuracy", [None, "good", True, -0.1, 1.1])
def test_an_impossible_result_is_counted_and_left_out(accuracy: object) -> None:
    ada = start("distillation", epochs=1).nodes["ada"]
    fields = {} if accuracy is None else {"accuracy": accuracy}
    wrong = Message("result", 3, "bob", "ada", {}, fields)
    assert PeerEvaluator(ada, 3).communication_values({"bob": wrong}) == {}
    assert ada.rejected == {"fields": 1}
    right = Message("result", 3, "bob", "ada", {}, {"accuracy": 0.25})
    found = PeerEvaluator(ada, 3).communication_values({"bob": right})
    assert found == {"bob": ("accuracy", 0.25)}


def test_pilots_without_their_energy_are_left_out() -> None:
    nodes = start("distillation", epochs=1).nodes
    message = next(m for node in nodes.values() for m in PeerEvaluator(node, 3).show_pilots())
    head = nodes[message.receiver]
    for fields in ({}, {"energy": -1.0}):
        bare = Message(message.kind, 3, message.sender, message.receiver, message.tensors, fields)
        assert PeerEvaluator(head, 3).misalignments({message.sender: bare}) == {}
    assert head.rejected == {"fields": 2}
    assert PeerEvaluator(head, 3).misalignments({message.sender: message}) != {}


def test_everything_is_encoded_once() -> None:
    nodes = start("distillation", epochs=1).nodes
    encoded = Counter[str]()
    for name, node in nodes.items():
        node.agent.encoder.register_forward_pre_hook(
            lambda _, inputs, name=name: encoded.update({name: len(inputs[0])})
        )
    evaluate(nodes, Barrier(LocalTransport(list(nodes))), 0)
    for name, node in nodes.items():
        shown = len(evaluation_pilots(node.context.pilots.total))
        assert encoded[name] == len(node.agent.data.test) + shown


def test_only_latents_classes_and_accuracies_are_sent() -> None:
    nodes = start("distillation", epochs=1).nodes
    sent: list[Message] = []
    transport = LocalTransport(list(nodes), drop=lambda message: bool(sent.append(message)))
    evaluate(nodes, Barrier(transport), 0)
    names = {message.kind: set(message.tensors) | set(message.fields) for message in sent}
    assert names == {
        "question": {"latents"},
        "answer": {"classes"},
        "result": {"accuracy"},
        "pilots": {"latents", "energy"},
    }
