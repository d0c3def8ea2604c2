"""Class prototypes: collected, aggregated, and taken only from messages that can be true."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent
from sheafed.agents.samples import Batch
from sheafed.errors import HandshakeError, InputError
from sheafed.methods import ComFed, FedProto
from sheafed.methods.prototypes import (
    Prototypes,
    class_gaps,
    class_sums,
    classes_of,
    weighted_mean,
)
from sheafed.transport.message import Message
from tests.helpers.baselines import Training, noisy, quiet
from tests.helpers.small_federations import agent, normal, samples

METHODS = [FedProto(aggregation="mean"), FedProto(aggregation="ema"), ComFed(projection=4)]


def test_class_sums_sample_by_sample() -> None:
    vectors, targets = normal(1, 7, 3), torch.tensor([0, 2, 2, 4, 0, 0, 4])
    sums, counts = class_sums(vectors, targets, 5)
    expected = np.zeros((5, 3))
    for v, y in zip(vectors.numpy(), targets.tolist(), strict=True):
        expected[y] += v
    np.testing.assert_allclose(sums.numpy(), expected, rtol=1e-6)
    assert counts.tolist() == [3, 0, 2, 0, 2]


def test_the_gaps_class_by_class_without_unknown_and_absent_ones() -> None:
    z, prototypes = normal(1, 6, 5), normal(2, 5, 5)
    targets = torch.tensor([0, 1, 2, 0, 1, 1])
    known = torch.tensor([True, False, True, True, True])
    found = class_gaps(z, targets, prototypes, known)
    expected = [
        np.sum((z[targets == c].numpy().mean(0) - prototypes[c].numpy()) ** 2) for c in (0, 2)
    ]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert len(class_gaps(z, targets, prototypes, torch.zeros(5, dtype=torch.bool))) == 0


def test_the_weighted_mean_of_means_is_the_mean_of_all_samples() -> None:
    vectors = [normal(k, n, 4, dtype=torch.float64) for k, n in enumerate((5, 9, 2))]
    labels = [torch.arange(len(v)) % 3 for v in vectors]
    sums, counts = zip(
        *(class_sums(v, y, 4) for v, y in zip(vectors, labels, strict=True)), strict=True
    )
    means = [s / n.clamp(min=1)[:, None] for s, n in zip(sums, counts, strict=True)]
    found, totals = weighted_mean(torch.stack(means), torch.stack(counts))
    everything, classes = torch.cat(vectors).numpy(), torch.cat(labels).numpy()
    for c in range(3):
        np.testing.assert_allclose(found[c].numpy(), everything[classes == c].mean(0), rtol=1e-12)
    assert totals.tolist() == [6, 6, 4, 0]
    assert not found[3].any()


def test_a_moving_average_starts_with_the_first_mean_and_keeps_absent_classes() -> None:
    prototypes = Prototypes(3, 2, torch.float64, period=1, momentum=0.9)
    first, second = normal(1, 2, 2, dtype=torch.float64), normal(2, 1, 2, dtype=torch.float64)
    prototypes.add(first, torch.tensor([0, 1]))
    prototypes.merge("a", {})
    assert prototypes.known.tolist() == [True, True, False]
    torch.testing.assert_close(prototypes.aggregate[:2], first)
    prototypes.add(second, torch.tensor([1]))
    prototypes.merge("a", {})
    torch.testing.assert_close(prototypes.aggregate[0], first[0])
    torch.testing.assert_close(prototypes.aggregate[1], 0.9 * first[1] + 0.1 * second[0])
    assert not prototypes.counts.any()
    assert not prototypes.sums.any()


def test_without_momentum_a_class_that_is_not_sent_any_more_is_forgotten() -> None:
    prototypes = Prototypes(2, 2, torch.float64, period=1, momentum=None)
    for label in (0, 1):
        prototypes.add(normal(label, 1, 2, dtype=torch.float64), torch.tensor([label]))
        prototypes.merge("a", {})
        assert prototypes.known.tolist() == [label == 0, label == 1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("counts", [[-1, 1, 1], [2**62, 1, 1]])
def test_impossible_counts_are_left_out(method: FedProto | ComFed, counts: list[int]) -> None:
    training = Training(quiet({"a": 4, "b": 4}), [("a", "b")], method, rounds_per_epoch=1)
    training.run(1)
    node = training.nodes["a"]
    own = node.prototypes.own()["prototypes"]
    lie = {"prototypes": torch.full_like(own, 1e9), "counts": torch.tensor(counts)}
    list(node.send(1))
    node.receive(1, {"b": Message("round", 1, "b", "a", lie)})
    assert node.rejected == {"counts": 1}
    torch.testing.assert_close(node.prototypes.aggregate, own)


@pytest.mark.parametrize("method", METHODS)
def test_what_was_not_agreed_is_left_out(method: FedProto | ComFed) -> None:
    training = Training(quiet({"a": 4, "b": 4}), [("a", "b")], method, rounds_per_epoch=1)
    training.run(1)
    node = training.nodes["a"]
    own = node.prototypes.own()
    wrong = {
        "shape": own | {"prototypes": own["prototypes"][:, :3]},
        "dtype": own | {"counts": own["counts"].double()},
        "names": {"prototypes": own["prototypes"]},
        "non-finite": own | {"prototypes": own["prototypes"] / 0},
    }
    for tensors in wrong.values():
        node.receive(training.done, {"b": Message("round", 1, "b", "a", tensors)})
    assert node.rejected == dict.fromkeys(wrong, 1)


@pytest.mark.parametrize("method", METHODS)
def test_neighbours_must_have_as_many_classes(method: FedProto | ComFed) -> None:
    agents = [agent("a", 4), agent("b", 4, head=nn.Linear(4, 7))]
    with pytest.raises(HandshakeError, match=r"number of classes: 3 against 7"):
        Training(agents, [("a", "b")], method)


def test_an_agent_without_a_head_has_no_classes() -> None:
    with pytest.raises(InputError, match="'a' has no head"):
        classes_of(agent("a", 4, head=None))


@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        (None, "got None"),
        (torch.zeros(64), "one whole-numbered class label"),
        (torch.zeros(64, 1, dtype=torch.long), "one whole-numbered class label"),
        (torch.full((64,), 3), r"0\.\.2, as its head has it, got 3\.\.3"),
        (torch.full((64,), -1), r"got -1\.\.-1"),
    ],
)
def test_labels_must_be_classes(targets: Tensor | None, problem: str) -> None:
    inputs = samples(1, 64)[0]
    data = inputs if targets is None else (inputs, targets)
    lone = agent("a", 4, data=data, objective=lambda a, batch: a.encode(batch.inputs).mean())
    with pytest.raises(InputError, match=problem):
        Training([lone], [], FedProto()).run(1)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_encoded_once(method: FedProto | ComFed) -> None:
    agents = noisy({"a": 4, "b": 4})
    training = Training(agents, [("a", "b")], method)
    calls = []
    agents[0].encoder.register_forward_hook(lambda *_: calls.append(1))
    training.run(6)
    assert len(calls) == 6


@pytest.mark.parametrize("method", METHODS)
def test_an_objective_with_two_views_is_pulled_too(method: FedProto | ComFed) -> None:
    """Its only latents of the batch are constants for the head; the encoder must be pulled."""

    def two_views(a: Agent, batch: Batch) -> Tensor:
        a.encode(torch.cat([batch.inputs, batch.inputs]))
        with torch.no_grad():
            latents = a.encode(batch.inputs)
        return nn.functional.cross_entropy(a.head(latents), batch.targets)

    agents = [agent(name, 4, objective=two_views) for name in "ab"]
    before = [[p.detach().clone() for p in a.encoder.parameters()] for a in agents]
    training = Training(agents, [("a", "b")], method).run(6)
    assert training.penalties() != []
    for a, old in zip(agents, before, strict=True):
        assert not all(map(torch.equal, a.encoder.parameters(), old))


@pytest.mark.parametrize("method", METHODS)
def test_an_objective_may_encode_by_itself(method: FedProto | ComFed) -> None:
    def bypass(a: Agent, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(a.head(a.encoder(batch.inputs)), batch.targets)

    agents = [agent(name, 4, objective=bypass) for name in "ab"]
    usual = [agent(name, 4) for name in "ab"]
    found = Training(agents, [("a", "b")], method).run(6)
    expected = Training(usual, [("a", "b")], method).run(6)
    # Without dropout or batch norm the latents are the same, so the training is.
    assert found.penalties() == pytest.approx(expected.penalties(), rel=1e-4) != []
