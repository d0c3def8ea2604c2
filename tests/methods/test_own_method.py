"""A method of the user's own: what is wrong with what it returns is named, early."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sheafed.errors import InputError, NonFiniteError
from sheafed.methods import ROUND, PostHocNode
from sheafed.training import Network, train
from sheafed.transport import Message
from tests.helpers.federations import pilots, simple_agent


class Own:
    """A method that returns what it is given."""

    label = "Own"

    def __init__(self, log: Any = None, send: Callable[[Any, int], Any] | None = None) -> None:
        self.log, self.sends = log, send

    def node(self, context: Any) -> Any:
        return OwnNode(self, context)


class OwnNode(PostHocNode):
    def __init__(self, method: Own, context: Any) -> None:
        super().__init__(context, whitening="pilots", shrinkage=0.5)
        self.method = method

    def send(self, round: int) -> Any:
        return iter(()) if self.method.sends is None else self.method.sends(self, round)

    def receive(self, round: int, inbox: Any) -> Any:
        with self.agent.rng_context():
            loss = self.local_loss(round)
            self.agent.optimizer_step(loss)
        return self.method.log(loss) if callable(self.method.log) else self.method.log


def run(method: Any, **options: Any) -> Network:
    agents = [simple_agent("a"), simple_agent("b", 4)]
    return train(agents, [("a", "b")], method, pilots(), epochs=1, **options)


# The log


@pytest.mark.parametrize(
    "key",
    [
        *("epoch", "round", "private_accuracy", "validation_score", "oracle_r2"),
        *("misalignment", "bytes_sent", "agents", "joined", 3),
    ],
)
def test_a_log_cannot_pass_for_a_measurement(key: Any, tmp_path: Path) -> None:
    expected = rf"agent 'a', round 0: receive\(...\) of OwnNode returns {key!r} to log"
    with pytest.raises(InputError, match=expected):
        run(Own({"loss": 1.0, key: 99.0}), out=tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").read_text()


def test_a_log_holds_numbers_of_any_kind() -> None:
    def log(loss: torch.Tensor) -> dict[str, Any]:
        mine = {"loss": loss, "one": torch.ones(1), "count": 3, "yes": True, "np": np.float32(0.5)}
        return {**mine, "half": torch.tensor(0.5, dtype=torch.bfloat16)}

    last = run(Own(log)).history.last
    assert last is not None
    assert {key: last[key] for key in ("one", "count", "yes", "np", "half")} == {
        "one": 1.0,
        "count": 3.0,
        "yes": 1.0,
        "np": 0.5,
        "half": 0.5,
    }
    assert type(last["loss"]) is float


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_a_log_is_finite(value: Any) -> None:
    with pytest.raises(NonFiniteError, match=r"agent 'a', round 0: .* not finite: {'own': "):
        run(Own({"own": value}))


@pytest.mark.parametrize(
    ("value", "named"),
    [(torch.ones(3), r"a Tensor of shape \(3,\)"), ("1", "a str"), ([1.0], "a list"), (None, "N")],
)
def test_what_is_no_number_is_not_logged(value: Any, named: str) -> None:
    with pytest.raises(InputError, match=rf"agent 'a', .*'own' to log, which must be .*{named}"):
        run(Own({"own": value}))


def test_a_log_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match=r"receive\(...\) of OwnNode must return .*got None; .*{}"):
        run(Own(None))


# Messages, nodes, labels


@pytest.mark.parametrize(
    ("send", "problem"),
    [
        (lambda node, round: None, "must return messages, got None; yield"),
        (
            lambda node, round: Message(ROUND, round, node.name, "b"),
            "must return messages, got a Message; yield",
        ),
        (lambda node, round: [torch.ones(2)], "must yield messages, got a Tensor"),
        (lambda node, round: iter([None]), "must yield messages, got None"),
    ],
)
def test_what_is_no_message_is_named(send: Any, problem: str) -> None:
    with pytest.raises(InputError, match=rf"agent 'a': send\(...\) of OwnNode {problem}"):
        run(Own({}, send))


def test_alignment_messages_that_are_none_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnNode, "alignment_messages", lambda node, round: None)
    with pytest.raises(InputError, match=r"alignment_messages\(...\) of OwnNode must return"):
        run(Own({}))


def test_a_method_that_returns_no_node_is_named() -> None:
    class NoNode(Own):
        def node(self, context: Any) -> Any:
            return None

    with pytest.raises(InputError, match=r"node\(context\) of the method NoNode must .*got None"):
        run(NoNode({}))


def test_a_method_without_a_label_is_refused_before_training(tmp_path: Path) -> None:
    class NoLabel:
        node = Own({}).node

    with pytest.raises(InputError, match=r"method NoLabel has no label.*label = 'NoLabel'"):
        run(NoLabel(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
