"""What messages measure is what `evaluate` measures in one process."""

import pytest
import torch
from worlds import METHODS, start

from sheafed.domain.messages import Message
from sheafed.exchange import LocalExchange
from sheafed.methods.node import Node
from sheafed.runtime import Run
from sheafed.runtime.evaluation import Split, evaluate
from sheafed.runtime.questions import answer, ask, compare_pilots, mark, show_pilots

ROUND = 1_000


@pytest.fixture(scope="module", params=list(METHODS))
def trained(request: pytest.FixtureRequest) -> Run:
    return start(request.param, epochs=2)


def exchanged(nodes: dict[str, Node], exchange: LocalExchange, kind: str) -> dict[str, dict]:
    return {n: exchange.receive(n, ROUND, kind, node.neighbours) for n, node in nodes.items()}


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_accuracies_are_those_of_one_process(trained: Run, split: Split) -> None:
    nodes, exchange = trained.nodes, LocalExchange(list(trained.nodes))
    for node in nodes.values():
        exchange.send(ask(node, ROUND, split))
    for name, inbox in exchanged(nodes, exchange, f"question {split}").items():
        exchange.send(answer(nodes[name], ROUND, inbox, split))
    marks = {
        (name, receiver): accuracy
        for name, inbox in exchanged(nodes, exchange, f"answer {split}").items()
        for receiver, accuracy in mark(nodes[name], ROUND, inbox, split).items()
    }
    assert marks == evaluate(nodes, split, ceiling=False).communication
    assert len(marks) == 4


def test_the_misalignments_are_those_of_one_process(trained: Run) -> None:
    nodes, exchange = trained.nodes, LocalExchange(list(trained.nodes))
    for node in nodes.values():
        exchange.send(show_pilots(node, ROUND))
    found = {
        (name, tail): residual
        for name, inbox in exchanged(nodes, exchange, "pilots").items()
        for tail, residual in compare_pilots(nodes[name], ROUND, inbox).items()
    }
    assert found == evaluate(nodes, ceiling=False).misalignment
    assert len(found) == 2


def test_a_bad_question_or_answer_is_counted_and_left_out() -> None:
    ada, bob = (start("beliefs", epochs=1).nodes[name] for name in ("ada", "bob"))
    wide = Message("question test", 3, "bob", "ada", {"latents": torch.zeros(4, 99)})
    assert list(answer(ada, 3, {"bob": wide})) == []
    for shape in ((), (0, 99), (0, 4)):
        flat = Message("question test", 3, "bob", "ada", {"latents": torch.zeros(shape)})
        assert list(answer(ada, 3, {"bob": flat})) == []
    empty = Message("question test", 3, "bob", "ada")
    assert list(answer(ada, 3, {"bob": empty})) == []
    few = Message("answer test", 3, "ada", "bob", {"classes": torch.zeros(2, dtype=torch.int64)})
    assert mark(bob, 3, {"ada": few}) == {}
    assert (ada.rejected, bob.rejected) == ({"shape": 4, "names": 1}, {"shape": 1})


def test_pilots_without_their_energy_are_left_out() -> None:
    nodes = start("beliefs", epochs=1).nodes
    message = next(m for node in nodes.values() for m in show_pilots(node, 3))
    bare = Message(message.kind, 3, message.sender, message.receiver, message.tensors)
    head = nodes[message.receiver]
    assert compare_pilots(head, 3, {message.sender: bare}) == {}
    below = Message(
        message.kind, 3, message.sender, message.receiver, message.tensors, {"energy": -1.0}
    )
    assert compare_pilots(head, 3, {message.sender: below}) == {}
    assert head.rejected == {"fields": 2}
    assert compare_pilots(head, 3, {message.sender: message}) != {}
