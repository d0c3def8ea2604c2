import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, Distillation, NonCooperative, SheafFRL, train
from sheafed.agents.objectives import cross_entropy
from sheafed.agents.precision import half_dtype
from sheafed.agents.samples import Batch
from sheafed.config import build_federation, read_experiment
from sheafed.errors import DtypeError, InputError
from tests.helpers.federations import CLASSES, FEATURES, pilots, samples, seeded, simple_agent

BF16, FP16 = torch.bfloat16, torch.float16


def encoder(dimension: int = 4, dtype: torch.dtype = torch.float32) -> nn.Module:
    return seeded(3, lambda: nn.Linear(FEATURES, dimension)).to(dtype)


def head(dimension: int = 4, dtype: torch.dtype = torch.float32) -> nn.Module:
    return seeded(4, lambda: nn.Linear(dimension, CLASSES)).to(dtype)


# Weights in half precision


@pytest.mark.parametrize("half", [BF16, FP16])
def test_latents_of_an_encoder_in_half_precision_are_float32(half: torch.dtype) -> None:
    x, _ = data = samples(8, seed=1)
    agent = Agent("ada", encoder(dtype=half), head(), data=data, frozen=True)
    assert agent.dtype == torch.float32
    assert torch.equal(agent.encode(x), agent.encoder(x.to(half)).float())
    tokens = Agent(
        "bob", nn.EmbeddingBag(9, 3, dtype=half), data=torch.arange(8)[:, None], frozen=True
    )
    assert tokens.encode(torch.tensor([[2]])).dtype == torch.float32


@pytest.mark.parametrize("half", [BF16, FP16])
def test_a_head_in_half_precision_gets_inputs_of_its_dtype(half: torch.dtype) -> None:
    own = head(dtype=half).requires_grad_(half == BF16)
    agent = Agent("ada", encoder(), own, data=samples(8, seed=1))
    latents = torch.randn(5, 4)
    assert torch.equal(agent.apply_head(latents), own(latents.to(half)).float())
    assert cross_entropy(agent, Batch(*samples(6, seed=2))).dtype == torch.float32


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((BF16, BF16), BF16),
        ((torch.int64, FP16), FP16),
        ((torch.float32, torch.float32), None),
        ((BF16, torch.float32), None),
        ((BF16, FP16), None),
        ((torch.int64,), None),
        ((), None),
    ],
)
def test_a_module_is_in_half_precision_if_all_its_weights_are(
    dtypes: tuple[torch.dtype, ...], expected: torch.dtype | None
) -> None:
    weights = [nn.Parameter(torch.ones(2, dtype=t), requires_grad=False) for t in dtypes]
    assert half_dtype(nn.ParameterList(weights)) == expected
    assert half_dtype(None) is None


def test_weights_in_float16_are_not_trained() -> None:
    for modules in ((encoder(dtype=FP16), head()), (encoder(), head(dtype=FP16))):
        with pytest.raises(DtypeError, match=r"'ada' would train weights in float16.*bf16"):
            Agent("ada", *modules, data=samples(8, seed=1))


@pytest.mark.parametrize(
    "method", [SheafFRL(distillation=Distillation(confidence=0.3)), NonCooperative()]
)
@pytest.mark.parametrize("frozen", [True, False])
def test_neighbours_in_different_precisions(method: SheafFRL, frozen: bool) -> None:
    splits = {"train": samples(20, 1), "test": samples(10, 2)}
    agents = [
        Agent("ada", encoder(dtype=BF16), head(dtype=BF16), data=splits, frozen=frozen),
        simple_agent("bob", dimension=3),
    ]
    network = train(agents, [("ada", "bob")], method, pilots(), epochs=1)
    assert network.nodes["ada"].endpoints["bob"].map.dtype == torch.float32
    sent = network.send(torch.randn(2, 4, dtype=BF16), "ada", "bob")
    assert (sent.dtype, sent.shape) == (BF16, (2, 3))
    assert network.history.last["communication_accuracy"] > 0


# Autocast


class Watched(nn.Module):
    """A layer that remembers the dtypes of what it gave."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.dtypes = layer, set()

    def forward(self, x: Tensor) -> Tensor:
        result = self.layer(x)
        self.dtypes.add(result.dtype)
        return result


def test_bf16_is_for_encoder_and_head_alone() -> None:
    def network(precision: str) -> tuple[list[Watched], dict[str, Tensor], float]:
        watched = [Watched(encoder()), Watched(head())]
        ada = Agent("ada", *watched, data=samples(40, 1), batch_size=10, precision=precision)
        agents = [ada, simple_agent("bob")]
        found = train(agents, [("ada", "bob")], SheafFRL(), pilots(), epochs=2)
        node = found.nodes["ada"]
        state = {k: v for k, v in node.whitening.state_dict().items() if v.is_floating_point()}
        state |= {"map": node.endpoints["bob"].map, "weight": ada.encoder.layer.weight.detach()}
        return watched, state, found.history.last["loss"]

    watched, state, loss = network("bf16")
    assert all(layer.dtypes == {BF16} for layer in watched)
    assert {value.dtype for value in state.values()} == {torch.float32}
    exact, expected, exact_loss = network("full")
    assert all(layer.dtypes == {torch.float32} for layer in exact)
    for key, value in state.items():
        assert not torch.equal(value, expected[key])
        torch.testing.assert_close(value, expected[key], atol=0.1, rtol=0.1)
    assert loss == pytest.approx(exact_loss, rel=0.02)


def test_precision_by_an_unknown_name() -> None:
    with pytest.raises(InputError, match=r"agent 'ada': precision must be one of .*'bf16'.*'int4'"):
        Agent("ada", encoder(), data=samples(8, seed=1), precision="int4")


def test_a_config_chooses_device_and_precision() -> None:
    agents = build_federation(
        read_experiment("digits", ["training.device=auto", "training.precision=bf16"])
    ).agents
    assert {agent.precision for agent in agents} == {"bf16"}
    with pytest.raises(InputError, match=r"training\.precision must be 'full' or 'bf16'"):
        read_experiment("digits", ["training.precision=fp8"])
    with pytest.raises(InputError, match="device 'tpu' cannot be used"):
        build_federation(read_experiment("digits", ["training.device=tpu"]))


# Single and double precision


def test_a_head_in_another_precision_than_its_encoder_is_named() -> None:
    double = torch.float64
    for parts in ((encoder(4, double), head(4)), (encoder(4), head(4, double))):
        inputs, labels = samples(9, 0)
        inputs = inputs.to(next(parts[0].parameters()).dtype)
        team = [Agent("a", *parts, data=(inputs, labels)), simple_agent("b")]
        with pytest.raises(InputError, match=r"agent 'a': its head .*latents in .*one precis"):
            train(team, [("a", "b")], NonCooperative(), {"a": inputs, "b": inputs}, epochs=1)


def test_pilots_in_another_precision_than_inputs_are_named() -> None:
    inputs, labels = samples(9, 0)
    one = Agent("a", encoder(4).double(), head(4).double(), data=(inputs.double(), labels))
    with pytest.raises(
        InputError, match=r"agent 'a': .* on its pilots, .*convert x: .*torch\.float64"
    ):
        train([one, simple_agent("b")], [("a", "b")], NonCooperative(), pilots(), epochs=1)
