"""The head for own data that is fitted again, and who decides whether it is used."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor, nn

import sheafed
from sheafed import Agent, ConsensusDistillation, NonCooperative, train
from sheafed.agents.objectives import UNLABELLED
from sheafed.methods import refitted_head
from sheafed.methods.consensus import TEMPERATURES, calibrated_probabilities
from sheafed.methods.consensus_distillation import fitted_heads
from sheafed.methods.consensus_distillation.node import ConsensusDistillationNode
from sheafed.methods.latent_codec import PROBABILITIES
from sheafed.methods.node import Node
from sheafed.methods.predictions import as_bytes
from sheafed.methods.refitted_head import refit_head, refit_if_better
from sheafed.metrics import Metric
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, LocalTransport
from tests.helpers.federations import normal_latents
from tests.helpers.small_federations import (
    CLASSES,
    agent,
    linear_head,
    normal,
    pilots,
    same_weights,
    samples,
)

SIZES = {"a": 5, "b": 4}
EDGE = [("a", "b")]


def blank(name: str = "a", **options: Any) -> Agent:
    """An agent whose head says nothing."""
    head = linear_head(SIZES[name], 0)
    head.weight.data.zero_()
    return agent(name, SIZES[name], **({"head": head} | options))


def with_validation(name: str) -> Agent:
    parts = {"train": samples(1, 64), "validation": samples(2, 60), "test": samples(3, 60)}
    return agent(name, SIZES[name], data=parts)


def accuracy(one: Agent, head: nn.Module) -> float:
    latents, labels = one.encode_samples(one.data.train)
    with torch.no_grad():
        return float((head(latents).argmax(-1) == labels).float().mean())


# The fit


def test_it_learns_own_labels_and_leaves_the_agent_as_it_was() -> None:
    one = blank()
    before = copy.deepcopy(one.state())
    head = refit_head(one, CLASSES, seed=0)
    assert accuracy(one, head) > 0.7 > 0.5 > accuracy(one, one.head)
    assert not head.training
    assert not any(p.requires_grad for p in head.parameters())
    assert torch.equal(one.head.weight, torch.zeros(CLASSES, SIZES["a"]))
    assert torch.equal(one.state()["rng_state"], before["rng_state"])


def test_latents_are_those_of_inference() -> None:
    """With dropout of nearly everything a step in training mode would see next to nothing."""
    plain, dropping = blank(), blank(encoder=nn.Sequential(blank().encoder, nn.Dropout(0.98)))
    heads = [refit_head(one, CLASSES, seed=0) for one in (plain, dropping)]
    assert torch.equal(heads[0].weight, heads[1].weight)


def test_it_is_the_same_in_every_bit_and_draws_from_no_other_stream() -> None:
    one = blank(head=nn.Sequential(nn.Dropout(0.4), linear_head(5, 0)))
    outside = torch.get_rng_state()
    first = refit_head(one, CLASSES, seed=3)
    assert torch.equal(torch.get_rng_state(), outside)
    torch.randn(7)
    again, other = refit_head(one, CLASSES, seed=3), refit_head(one, CLASSES, seed=4)
    assert torch.equal(first[1].weight, again[1].weight)
    assert not torch.equal(first[1].weight, other[1].weight)


@pytest.mark.parametrize(
    "options",
    [
        {"data": samples(1, 20)[0]},
        {"data": (samples(1, 20)[0], torch.full((20,), UNLABELLED))},
        {"encoder": nn.Linear(6, 3), "head": nn.Identity()},
    ],
    ids=["no labels", "all unlabelled", "no weights"],
)
def test_where_there_is_nothing_to_fit_there_is_none(options: dict[str, Any]) -> None:
    assert refit_head(agent("a", 5, **options), CLASSES, seed=0) is None


# The choice


def if_better(one: Agent, head: nn.Module) -> nn.Module | None:
    return refit_if_better(one, head, lambda: refit_head(one, CLASSES, seed=0))


def losses(scores: Tensor, labels: Tensor) -> np.ndarray:
    """The cross-entropy of each sample at the temperature of least loss, by SciPy."""
    s, rows = scores.double().numpy(), np.arange(len(labels))

    def each(beta: float) -> np.ndarray:
        return -log_softmax(beta * s, axis=1)[rows, labels.numpy()]

    bounds = (1 / TEMPERATURES[1], 1 / TEMPERATURES[0])
    best = minimize_scalar(lambda beta: each(beta).mean(), bounds=bounds, method="bounded")
    return each(best.x)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6, 1.0, 3.0])
def test_it_is_used_if_validation_losses_fall_beyond_two_standard_errors(noise: float) -> None:
    """Against itself with disturbed weights: by little, and by much."""
    one = with_validation("a")
    refitted = refit_head(one, CLASSES, seed=0)
    other = copy.deepcopy(refitted)
    other.weight.data.add_(noise * normal(3, CLASSES, 5))
    latents, labels = one.encode_samples(one.data.validation)
    with torch.no_grad():
        gain = losses(other(latents), labels) - losses(refitted(latents), labels)
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    found = if_better(one, other)
    assert (found is not None) == (gain.mean() > 2 * error)
    if found is not None:
        assert torch.equal(found.weight, refitted.weight)


def test_both_outcomes_are_among_them() -> None:
    one = with_validation("a")
    refitted = refit_head(one, CLASSES, seed=0)
    silent = copy.deepcopy(refitted)
    silent.weight.data.zero_()
    assert if_better(one, refitted) is None
    assert if_better(one, silent) is not None


def test_overconfidence_alone_decides_nothing() -> None:
    one = with_validation("a")
    loud = copy.deepcopy(refit_head(one, CLASSES, seed=0))
    for p in loud.parameters():
        p.data.mul_(4)
    assert if_better(one, loud) is None


def test_soft_labels() -> None:
    def agreement(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.argmax(-1) == targets.argmax(-1)).float().mean())

    inputs, labels = samples(2, 60)
    soft = 0.9 * nn.functional.one_hot(labels, CLASSES).float() + 0.1 / CLASSES
    metric = Metric("agreement", agreement, greater_is_better=True)
    one = agent("a", 5, data={"train": (inputs, soft), "validation": (inputs, soft)}, metric=metric)
    good, bad = refit_head(one, CLASSES, seed=0), linear_head(5, 1)
    assert if_better(one, bad) is not None
    assert if_better(one, good) is None


def test_without_validation_data_nothing_is_fitted() -> None:
    assert if_better(agent("a", 5), linear_head(5, 0)) is None


# In consensus distillation


def prefer(monkeypatch: pytest.MonkeyPatch, refitted: bool) -> None:
    errors = -float("inf") if refitted else float("inf")
    monkeypatch.setattr(refitted_head, "STANDARD_ERRORS", errors)


def run(method: Any, **options: Any) -> sheafed.training.Network:
    given = {"epochs": 2, "oracle": False, "progress": False} | options
    return train([with_validation(name) for name in SIZES], EDGE, method, pilots(), **given)


def private(node: Node, head: nn.Module) -> float:
    latents, labels = node.agent.encode_samples(node.agent.data.test)
    return float((head(latents).argmax(-1) == labels).float().mean())


@pytest.mark.parametrize("refitted", [False, True])
def test_own_data_are_classified_by_the_head_that_validation_data_prefer(
    refitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, refitted)
    network = run(ConsensusDistillation(confidence=0.4))
    for name, node in network.nodes.items():
        latents = normal_latents(node.agent.dimension)
        reading = node.reading_head.of(name)
        again = refit_head(node.agent, CLASSES, seed=0)
        expected, other = (again, reading) if refitted else (reading, again)
        assert torch.equal(network.outputs(latents, name, name), expected(latents))
        assert not torch.allclose(expected(latents), other(latents), atol=1e-3)
        assert network.history.evaluation.private[name] == pytest.approx(private(node, expected))


@pytest.mark.parametrize("refitted", [False, True])
def test_pilots_are_taught_by_the_head_that_validation_data_prefer(
    refitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, refitted)
    sent = {}
    monkeypatch.setattr(
        ConsensusDistillationNode,
        "check_alignment",
        lambda _, message: sent.update({message.sender: message.tensors[PROBABILITIES]}),
    )
    network = run(ConsensusDistillation(confidence=0.4))
    for name, node in network.nodes.items():
        spoken, again = node._spoken_head(), refit_head(node.agent, CLASSES, seed=0)
        latents, one = node.pilot_latents(), node.agent
        expected, other = (
            as_bytes(calibrated_probabilities(one, latents, head=head))
            for head in ((again, spoken) if refitted else (spoken, again))
        )
        assert torch.equal(sent[name], expected)
        assert not torch.equal(sent[name], other)


def test_training_does_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for refitted in (False, True):
        prefer(monkeypatch, refitted)
        found.append(run(ConsensusDistillation(confidence=0.4)))
    first, second = found
    assert same_weights(first.agents.values(), second.agents.values())
    for name, one in first.agents.items():
        assert torch.equal(one.state()["rng_state"], second.agents[name].state()["rng_state"])


def test_it_is_fitted_once_when_maps_are(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, True)
    monkeypatch.setattr("sheafed.training.post_hoc_maps.SHRINKAGES", ())
    network = run(ConsensusDistillation(confidence=0.4), epochs=1)
    fitted = []
    monkeypatch.setattr(
        fitted_heads, "refit_head", lambda one, *_, **__: fitted.append(one.name) or one.head
    )
    fit_post_hoc_maps(network.nodes, Barrier(LocalTransport(list(SIZES))), 9)
    assert sorted(fitted) == sorted(SIZES)


def test_a_network_in_a_file_and_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, True)
    method = ConsensusDistillation(confidence=0.4)
    whole = run(method, out=tmp_path / "whole")
    run(method, out=tmp_path / "parts", epochs=1)
    run(method, out=tmp_path / "parts", resume=True)
    for directory in ("whole", "parts"):
        agents = [with_validation(name) for name in SIZES]
        loaded = sheafed.load(tmp_path / directory, agents, pilots=pilots())
        for name, d in SIZES.items():
            latents = normal_latents(d)
            expected = whole.outputs(latents, name, name)
            assert torch.equal(loaded.outputs(latents, name, name), expected)
            assert not torch.equal(loaded.nodes[name].reading_head.of(name)(latents), expected)


# In non-cooperative training


def test_agents_that_train_alone_can_have_one_too() -> None:
    plain, refitted = run(NonCooperative()), run(NonCooperative(refit_head=True))
    assert same_weights(plain.agents.values(), refitted.agents.values())
    for name, node in refitted.nodes.items():
        again = refit_head(node.agent, CLASSES, seed=0)
        latents = normal(1, 9, node.agent.dimension)
        for sender in SIZES:
            torch.testing.assert_close(node.read(latents, sender), again(latents))
        assert refitted.history.evaluation.private[name] == pytest.approx(private(node, again))
        assert plain.nodes[name].own_head is None


def test_without_a_head_of_classes_there_is_none() -> None:
    one = agent(
        "a", 5, head=None, objective=lambda a, batch: a.encode(batch.inputs).square().mean()
    )
    method = NonCooperative(refit_head=True)
    network = train([one, with_validation("b")], EDGE, method, pilots(), epochs=1)
    assert network.nodes["a"].own_head is None


def test_it_is_in_the_file(tmp_path: Path) -> None:
    network = run(NonCooperative(refit_head=True), out=tmp_path / "run")
    agents = [with_validation(name) for name in SIZES]
    loaded = sheafed.load(tmp_path / "run", agents, pilots=pilots())
    for name, d in SIZES.items():
        latents = normal_latents(d)
        assert torch.equal(
            loaded.outputs(latents, name, name), network.outputs(latents, name, name)
        )
