"""Networks whose inputs are mappings or tuples are those of one tensor, bit for bit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, Distillation, PilotSet, SheafFRL, train
from sheafed.agents.objectives import Autoencoding, PseudoLabels, SimCLROptions
from sheafed.errors import HandshakeError, InputError, ShapeError
from sheafed.training import Network

METHOD = SheafFRL(pilots_per_round=8, distillation=Distillation(confidence=0.3))
DIMS = {"a": 4, "b": 3}


def drawn(seed: int, n: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 6, generator=stream)
    return inputs, (inputs[:, 0] > 0).long()


class Halves(nn.Module):
    """An encoder of two inputs."""

    def __init__(self, latent: int) -> None:
        super().__init__()
        self.linear = nn.Linear(6, latent)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.linear(torch.cat([left, right], dim=1))


class Whole(Halves):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.linear(x)


FORMS: dict[str, Any] = {
    "tensor": lambda x: x,
    "mapping": lambda x: {"right": x[:, 2:], "left": x[:, :2]},
    "tuple": lambda x: (x[:, :2], x[:, 2:]),
}


def agents(form: str, dims: dict[str, int] = DIMS, **options: Any) -> list[Agent]:
    made = []
    for seed, (name, latent) in enumerate(dims.items()):
        torch.manual_seed(seed)
        encoder = Whole(latent) if form == "tensor" else Halves(latent)
        splits = {"train": drawn(seed, 40), "test": drawn(seed + 9, 20)}
        data = {split: (FORMS[form](x), y) for split, (x, y) in splits.items()}
        made.append(Agent(name, encoder, nn.Linear(latent, 2), data=data, batch_size=8, **options))
    return made


def run(form: str, pilots: Any = None, **options: Any) -> Network:
    given = FORMS[form](drawn(99, 24)[0]) if pilots is None else pilots
    return train(agents(form), [("a", "b")], METHOD, given, epochs=2, **options)


def weights(network: Network) -> list[list[float]]:
    return [p.flatten().tolist() for a in network.agents.values() for p in a.parameters]


@pytest.fixture(scope="module")
def plain() -> Network:
    network = run("tensor")
    network.join(agents("tensor", {"c": 5})[0], ["a"], epochs=1)
    return network


@pytest.mark.parametrize("form", ["mapping", "tuple"])
def test_results_are_those_of_one_tensor(plain: Network, form: str) -> None:
    network = run(form)
    assert network.history.last["oracle_accuracy"] is not None  # the same modality
    inputs = FORMS[form](drawn(5, 7)[0])
    expected = network.agents["a"].encode(inputs)
    assert torch.equal(network.encode(inputs, "a"), expected)
    network.join(agents(form, {"c": 5})[0], ["a"], epochs=1)
    assert weights(network) == weights(plain)
    for mine, theirs in zip(network.history.records, plain.history.records, strict=True):
        changing = {"seconds", "bytes"}
        assert {k: v for k, v in mine.items() if k not in changing} == {
            k: v for k, v in theirs.items() if k not in changing
        }


def test_pilots_by_agent_and_shared_ones_are_told_apart(plain: Network) -> None:
    tokens = FORMS["mapping"](drawn(99, 24)[0])
    own = run("mapping", {"a": tokens, "b": dict(tokens)})
    assert not own.pilots.shared
    assert own.history.last["oracle_accuracy"] is not None  # equal, though not shared
    assert run("mapping", PilotSet(tokens, shared=True)).pilots.shared
    own.join(agents("mapping", {"c": 5})[0], ["a"], pilots={"c": tokens}, epochs=1)
    assert weights(own) == weights(plain)


def test_pilots_of_another_structure_are_named() -> None:
    tokens = FORMS["mapping"](drawn(99, 24)[0])
    misspelt = r"agent 'a': its pilots are a mapping of 'A', 'B', its training inputs a mapping of"
    with pytest.raises(ShapeError, match=misspelt):
        run("mapping", {"A": tokens, "B": tokens})
    with pytest.raises(
        ShapeError, match=r"its pilots are one tensor, .*inputs a mapping of 'left'"
    ):
        run("mapping", drawn(99, 24)[0])
    with pytest.raises(ShapeError, match="mapping of 'left', 'right', its training inputs one ten"):
        run("tensor", tokens)


def test_a_newcomer_with_other_shared_pilots_is_refused() -> None:
    network = run("mapping")
    other = FORMS["mapping"](drawn(98, 24)[0])
    with pytest.raises(HandshakeError, match="pilot set"):
        network.join(agents("mapping", {"c": 5})[0], ["a"], pilots=other)


def test_a_run_of_mappings_is_resumed_to_the_same_weights(tmp_path: Any) -> None:
    whole = run("mapping")
    pilots = FORMS["mapping"](drawn(99, 24)[0])
    train(agents("mapping"), [("a", "b")], METHOD, pilots, epochs=1, out=tmp_path)
    assert weights(run("mapping", out=tmp_path, resume=True)) == weights(whole)


def noisy(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part + torch.randn_like(part) for name, part in inputs.items()}


def test_objectives_need_one_tensor_or_an_augmentation_of_your_own() -> None:
    for objective in (SimCLROptions().build(4, (6,)), PseudoLabels()):
        (one,) = agents("mapping", {"a": 4}, objective=objective)
        with pytest.raises(InputError, match="agent 'a': Augmentation is for inputs of one tensor"):
            objective(one, one.next_batch())
    (one,) = agents("mapping", {"a": 4}, objective=Autoencoding(nn.Linear(4, 6)))
    with pytest.raises(InputError, match="agent 'a': autoencoding reconstructs inputs of one ten"):
        one.objective(one, one.next_batch())
    for objective in (
        SimCLROptions(augmentation=noisy).build(4, (6,)),
        PseudoLabels(augmentation=noisy, weak=noisy),
    ):
        (one,) = agents("mapping", {"a": 4}, objective=objective)
        assert bool(torch.isfinite(one.objective(one, one.next_batch())))


def test_non_finite_values_of_a_part_are_counted() -> None:
    pilots = FORMS["mapping"](drawn(99, 24)[0])
    pilots["left"] = pilots["left"].clone()
    pilots["left"][3, 1] = torch.nan
    with pytest.raises(InputError, match=r"agent 'a'.* hold 1 non-finite of 48 values"):
        run("mapping", pilots)
