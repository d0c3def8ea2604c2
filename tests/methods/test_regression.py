"""Heads that predict numbers: the objective, distillation, and what needs classes instead."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from sheafed.agents import Agent, objectives
from sheafed.agents.samples import Batch
from sheafed.errors import DtypeError, HandshakeError, InputError, ShapeError
from sheafed.methods import (
    ComFed,
    Consensus,
    ConsensusDistillation,
    Distillation,
    FedProto,
    NonCooperative,
    SheafFRL,
)
from sheafed.metrics import Metric
from sheafed.training import Network, train
from sheafed.transport import LocalTransport, Message
from tests.helpers.federations import (
    FEATURES,
    pilots,
    regression_samples,
    regressor,
    same,
    seeded,
    simple_agent,
    weights,
)

PAIR = [("a", "b")]
DATA = regression_samples(6, 0)


def distilled(agents: list[Agent], **options: Any) -> Network:
    kept = {key: options.pop(key) for key in ("out", "resume", "transport") if key in options}
    epochs = options.pop("epochs", 1)
    method = SheafFRL(pilots_per_round=8, distillation=Distillation(), **options)
    return train(agents, PAIR, method, pilots(), epochs=epochs, **kept)


# The objective


def test_mean_squared_error_of_either_shape() -> None:
    agent = regressor("a")
    inputs, targets = DATA
    expected = sum(
        (agent.head(agent.encode(x[None])).item() - y.item()) ** 2
        for x, y in zip(inputs, targets, strict=True)
    )
    for given in (targets, targets[:, None], targets.double()):
        loss = objectives.mean_squared_error(agent, Batch(inputs, given))
        assert loss.item() == pytest.approx(expected / 6, rel=1e-5)
        assert loss.requires_grad
    flat = regressor("a", head=nn.Sequential(agent.head, nn.Flatten(0)))
    loss = objectives.mean_squared_error(flat, Batch(inputs, targets[:, None]))
    assert loss.item() == pytest.approx(expected / 6, rel=1e-5)
    whole = objectives.mean_squared_error(agent, Batch(inputs, torch.zeros(6).long()))
    expected = agent.head(agent.encode(inputs)).square().mean()
    assert whole.item() == pytest.approx(expected.item())


def test_mean_squared_error_of_several_outputs() -> None:
    agent = regressor("a", head=nn.Linear(4, 3))
    targets = torch.randn(6, 3)
    loss = objectives.mean_squared_error(agent, Batch(DATA[0], targets))
    difference = agent.head(agent.encode(DATA[0])) - targets
    assert loss.item() == pytest.approx(difference.square().sum().item() / 18, rel=1e-5)
    with pytest.raises(ShapeError, match=r"agent 'a': the head gives \(6, 3\) for targets \(6,\)"):
        objectives.mean_squared_error(agent, Batch(*DATA))
    with pytest.raises(InputError, match="agent 'a' has no labels, which the mean squared error"):
        objectives.mean_squared_error(agent, Batch(DATA[0], None))


# Distillation


def test_the_loss_is_the_squared_error_to_the_teachers() -> None:
    head, latents, outputs = nn.Linear(4, 2), torch.randn(5, 4), torch.randn(5, 2)
    loss = Distillation(confidence=1.0, weight=3.0).regression_loss(head, latents, outputs)
    by_hand = sum(
        (head(latents)[n, k].item() - outputs[n, k].item()) ** 2 for n in range(5) for k in (0, 1)
    )
    assert loss.item() == pytest.approx(3 * by_hand / 10, rel=1e-5)
    assert Distillation().regression_loss(head, latents[:1], outputs[:1]) is None
    flat = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    loss = Distillation().regression_loss(flat, latents, outputs[:, :1])
    expected = (flat(latents) - outputs[:, 0]).square().mean()
    assert loss.item() == pytest.approx(expected.item())


def test_outputs_are_sent_and_learnt() -> None:
    sent: list[Message] = []
    transport = LocalTransport(["a", "b"], drop=lambda message: bool(sent.append(message)))
    team = [
        regressor("a", 3),
        regressor("b", 4, head=nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))),
    ]
    run = distilled(team, transport=transport)
    rounds = [message for message in sent if message.kind == "round"]
    assert {tuple(message.tensors) for message in rounds} == {("latents", "outputs")}
    assert {tuple(message.tensors["outputs"].shape) for message in rounds} == {(8, 1)}
    hello = next(message for message in sent if message.kind == "hello")
    assert (hello.fields["classes"], hello.fields["outputs"]) == (0, 1)
    assert run.history.last["distillation_loss"] > 0
    assert not any(node.rejected for node in run.nodes.values())
    # The last message holds what the sender's head, as it was then, said of the round's pilots.
    node = run.nodes["a"]
    before = {k: v.clone() for k, v in node.agent.head.state_dict().items()}
    message = next(m for m in node.send(run.history.rounds) if m.receiver == "b")
    indices = node.pilot_policy.select(run.history.rounds).indices
    with torch.no_grad(), node.agent.inference():
        expected = node.agent.head(node.agent.encode(pilots().inputs[indices]))
    assert torch.allclose(message.tensors["outputs"], expected, atol=1e-6)
    assert all(torch.equal(before[k], v) for k, v in node.agent.head.state_dict().items())


def test_only_the_head_learns_from_outputs() -> None:
    """With nothing but distillation in its loss a head moves to that of a fixed teacher."""
    gaps = []
    for epochs in (1, 8):
        teacher, pupil = (
            regressor(
                *(name, 3, ord(name)),
                frozen=True,
                objective=_nothing,
                metric="r2",
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05),
            )
            for name in "ab"
        )
        teacher.head.requires_grad_(False)
        run = distilled([teacher, pupil], epochs=epochs)
        gaps.append(run.history.last["distillation_loss"])
    assert gaps[1] < gaps[0] / 2


def _nothing(agent: Agent, batch: Batch) -> Any:
    return 0 * agent.head(agent.encode(batch.inputs)).sum()


def test_a_resumed_run_has_the_same_outputs(tmp_path: Any) -> None:
    def team() -> list[Agent]:
        return [regressor("a", 3), regressor("b", 4)]

    options = {"exchange_every": 3, "quantisation": "int8"}
    whole = distilled(team(), epochs=2, **options)
    distilled(team(), out=tmp_path, **options)
    resumed = distilled(team(), out=tmp_path, resume=True, epochs=2, **options)
    assert resumed.history.records == whole.history.records


def test_an_agent_without_a_head_is_between() -> None:
    headless = Agent(
        "b",
        seeded(0, lambda: nn.Linear(FEATURES, 4)),
        data=regression_samples(40, 0)[0],
        batch_size=8,
        objective=lambda agent, batch: agent.encode(batch.inputs).square().mean(),
    )
    run = distilled([regressor("a"), headless])
    assert not any(node.rejected for node in run.nodes.values())


def test_heads_that_cannot_teach_each_other_are_named() -> None:
    two = regressor("b", head=nn.Linear(4, 2), metric="mse", objective=_nothing)
    expected = "'a' and 'b' cannot learn from each other: their heads predict 1 and 2 numbers"
    with pytest.raises(HandshakeError, match=expected):
        distilled([regressor("a"), two])
    for names in ("ab", "ba"):
        with pytest.raises(HandshakeError, match="one predicts numbers and that of the other"):
            distilled([simple_agent(names[0]), regressor(names[1])])


# Several labels per sample


HIT = Metric("hit", lambda scores, y: ((scores > 0) == (y > 0)).float().mean(), True)


def labeller(name: str, kind: torch.dtype, seed: int, **options: Any) -> Agent:
    """Return an agent whose samples have each of three labels or not, in some type."""

    def draw(count: int, offset: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = regression_samples(count, seed + offset)[0]
        return inputs, (inputs[:, :3] > 0).to(kind)

    def objective(agent: Agent, batch: Batch) -> torch.Tensor:
        scores = agent.apply_head(agent.encode(batch.inputs))
        return nn.functional.binary_cross_entropy_with_logits(scores, batch.targets.float())

    data = {"train": draw(40, 0), "validation": draw(20, 1), "test": draw(20, 2)}
    head = seeded(seed, lambda: nn.Linear(4, 3))
    given = {"head": head, "data": data, "objective": objective, "metric": HIT}
    return regressor(name, 4, seed, **(given | options))


@pytest.mark.parametrize(
    "method",
    [
        *(SheafFRL(distillation=learnt) for learnt in (Distillation(), Consensus())),
        *(ConsensusDistillation(), NonCooperative(refit_head=True)),
    ],
)
def test_the_type_of_several_labels_does_not_change_what_is_learnt(method: Any) -> None:
    kinds = (torch.float32, torch.int64, torch.bool)
    runs = [
        train([labeller(n, kind, ord(n)) for n in "ab"], PAIR, method, pilots(), epochs=2)
        for kind in kinds
    ]
    assert all(agent.regression for run in runs for agent in run.agents.values())
    assert all(run.history.records == runs[0].history.records for run in runs)
    assert all(same(weights(run), weights(runs[0])) for run in runs)


@pytest.mark.usefixtures("short_reading_heads")
def test_a_label_that_is_true_or_false_is_one_of_two_classes() -> None:
    def one_label(agent: Agent, batch: Batch) -> torch.Tensor:
        scores = agent.apply_head(agent.encode(batch.inputs))
        return nn.functional.cross_entropy(scores, batch.targets.long())

    def of(kind: torch.dtype, name: str) -> Agent:
        agent = labeller(name, kind, ord(name))
        parts = {"train": agent.data.train, "validation": agent.data.validation}
        data = {key: (part.inputs, part.targets[:, 0]) for key, part in parts.items()}
        head = seeded(ord(name), lambda: nn.Linear(4, 2))
        return labeller(
            name, kind, ord(name), data=data, objective=one_label, head=head, metric=right
        )

    right = Metric("right", lambda scores, y: (scores.argmax(-1) == y).float().mean(), True)
    method = ConsensusDistillation(confidence=0.1)
    whole, truth = (
        train([of(kind, n) for n in "ab"], PAIR, method, pilots(), epochs=3)
        for kind in (torch.int64, torch.bool)
    )
    assert whole.history.last["distillation_loss"] > 0
    assert same(weights(whole), weights(truth))


def test_several_labels_as_classes_are_refused_with_what_to_do() -> None:
    """By the objective of classes, and by a metric that says it is of them."""
    of_classes = replace(HIT, task="classification")
    for options in ({"objective": objectives.cross_entropy}, {"metric": of_classes}):
        team = [labeller(n, torch.int64, ord(n), **options) for n in "ab"]
        with pytest.raises(ShapeError, match=r"agent 'a': .*several labels per sample need an obj"):
            train(team, PAIR, ConsensusDistillation(), pilots(), epochs=1)
    team = [labeller(n, torch.bool, ord(n), metric=of_classes) for n in "ab"]
    with pytest.raises(ShapeError, match="a Metric of your own without a task"):
        train(team, PAIR, ConsensusDistillation(), pilots(), epochs=1)


# What needs classes


@pytest.mark.parametrize("method", [FedProto(), ComFed()])
def test_prototypes_need_classes(method: Any) -> None:
    team = [regressor("a"), regressor("b")]
    with pytest.raises(InputError, match="agent 'a': its head predicts numbers, and prototypes"):
        train(team, PAIR, method, pilots(), epochs=1)


def test_objectives_of_classes_name_the_one_for_numbers() -> None:
    agent = regressor("a", objective=objectives.cross_entropy, metric="r2")
    for objective in (objectives.cross_entropy, objectives.PseudoLabels()):
        with pytest.raises(DtypeError, match=r"agent 'a': .*take the objective mean_squared_error"):
            objective(agent, Batch(*DATA))
