"""What messages measure is what `evaluate` measures in one process."""

from collections import Counter

import pytest
import torch

from sheafed.evaluation.evaluation import Split, evaluate, evaluation_pilots
from sheafed.evaluation.peer_evaluator import PeerEvaluator
from sheafed.evaluation.survey import survey
from sheafed.methods.node import Node
from sheafed.training import Run
from sheafed.transport import LocalTransport
from sheafed.transport.message import Message
from tests.helpers.federations import METHODS, start

ROUND = 1_000


@pytest.fixture(scope="module", params=list(METHODS))
def trained(request: pytest.FixtureRequest) -> Run:
    return start(request.param, epochs=2)


def exchanged(nodes: dict[str, Node], transport: LocalTransport, kind: str) -> dict[str, dict]:
    return {n: transport.receive(n, ROUND, kind, node.neighbours) for n, node in nodes.items()}


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_accuracies_are_those_of_one_process(trained: Run, split: Split) -> None:
    nodes, transport = trained.nodes, LocalTransport(list(trained.nodes))
    examinees = {name: PeerEvaluator(node, ROUND, split) for name, node in nodes.items()}
    for examinee in examinees.values():
        transport.send(examinee.ask())
    for name, inbox in exchanged(nodes, transport, f"question {split}").items():
        transport.send(examinees[name].answer(inbox))
    marks = {
        (name, receiver): accuracy
        for name, inbox in exchanged(nodes, transport, f"answer {split}").items()
        for receiver, accuracy in examinees[name].mark(inbox).items()
    }
    expected = evaluate(nodes, split, oracle=False)
    assert marks == expected.communication
    assert len(marks) == 4
    private = {name: examinee.private_accuracy() for name, examinee in examinees.items()}
    assert private == expected.private


def test_the_misalignments_are_those_of_one_process(trained: Run) -> None:
    nodes, transport = trained.nodes, LocalTransport(list(trained.nodes))
    examinees = {name: PeerEvaluator(node, ROUND) for name, node in nodes.items()}
    for examinee in examinees.values():
        transport.send(examinee.show_pilots())
    found = {
        (name, tail): residual
        for name, inbox in exchanged(nodes, transport, "pilots").items()
        for tail, residual in examinees[name].compare_pilots(inbox).items()
    }
    assert found == evaluate(nodes, oracle=False).misalignment
    assert len(found) == 2


def test_a_bad_question_or_answer_is_counted_and_left_out() -> None:
    ada, bob = (start("distillation", epochs=1).nodes[name] for name in ("ada", "bob"))
    wide = Message("question test", 3, "bob", "ada", {"latents": torch.zeros(4, 99)})
    assert list(PeerEvaluator(ada, 3).answer({"bob": wide})) == []
    for shape in ((), (0, 99), (0, 4)):
        flat = Message("question test", 3, "bob", "ada", {"latents": torch.zeros(shape)})
        assert list(PeerEvaluator(ada, 3).answer({"bob": flat})) == []
    empty = Message("question test", 3, "bob", "ada")
    assert list(PeerEvaluator(ada, 3).answer({"bob": empty})) == []
    few = Message("answer test", 3, "ada", "bob", {"classes": torch.zeros(2, dtype=torch.int64)})
    assert PeerEvaluator(bob, 3).mark({"ada": few}) == {}
    assert (ada.rejected, bob.rejected) == ({"shape": 4, "names": 1}, {"shape": 1})


def test_pilots_without_their_energy_are_left_out() -> None:
    nodes = start("distillation", epochs=1).nodes
    message = next(m for node in nodes.values() for m in PeerEvaluator(node, 3).show_pilots())
    bare = Message(message.kind, 3, message.sender, message.receiver, message.tensors)
    head = nodes[message.receiver]
    assert PeerEvaluator(head, 3).compare_pilots({message.sender: bare}) == {}
    below = Message(
        message.kind, 3, message.sender, message.receiver, message.tensors, {"energy": -1.0}
    )
    assert PeerEvaluator(head, 3).compare_pilots({message.sender: below}) == {}
    assert head.rejected == {"fields": 2}
    assert PeerEvaluator(head, 3).compare_pilots({message.sender: message}) != {}


def test_everything_is_encoded_once() -> None:
    nodes = start("distillation", epochs=1).nodes
    encoded = Counter[str]()
    for name, node in nodes.items():
        node.agent.encoder.register_forward_pre_hook(
            lambda _, inputs, name=name: encoded.update({name: len(inputs[0])})
        )
    survey(nodes, LocalTransport(list(nodes)), "test")
    for name, node in nodes.items():
        shown = len(evaluation_pilots(node.context.pilots.total))
        assert encoded[name] == len(node.agent.data.test) + shown
