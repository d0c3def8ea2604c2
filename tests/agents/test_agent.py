from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.utils.data import TensorDataset

from sheafed.agents.agent import Agent
from sheafed.agents.objectives import cross_entropy
from sheafed.agents.samples import Batch
from sheafed.errors import (
    EmptyInputError,
    InputCastWarning,
    InputError,
    LatentSizeError,
    NonFiniteError,
)

FEATURES, CLASSES = 4, 3


def data(count: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, FEATURES, generator=stream)
    return inputs, torch.randint(CLASSES, (count,), generator=stream)


def agent(
    name: str = "a",
    encoder: nn.Module | None = None,
    head: nn.Module | None = None,
    **options: Any,
) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = encoder or nn.Linear(FEATURES, 2)
        head = head or nn.Linear(2, CLASSES)
    return Agent(name, encoder, head, **{"data": data(), "batch_size": 5, **options})


def step(one: Agent) -> float:
    """Take a step as the methods do."""
    with one.rng_context():
        loss = one.objective(one, one.next_batch())
        one.optimizer_step(loss)
    return float(loss.detach())


def values(one: Agent) -> list[Tensor]:
    return [p.detach().clone() for p in one.parameters]


# Any module


class Encodes(nn.Module):
    """An existing classifier with an `encode` method."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU())
        self.classifier = nn.Linear(6, CLASSES)

    def encode(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.encode(x))


def test_a_head_that_changes_its_input_in_place_leaves_latents_as_they_are() -> None:
    one = agent(head=nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, CLASSES)))
    latents = torch.tensor([[-1.0, 2.0]])
    for head in (None, deepcopy(one.head)):
        one.apply_head(latents, head)
        assert latents.tolist() == [[-1.0, 2.0]]


@pytest.mark.parametrize(
    ("encoder", "dimension"),
    [
        (nn.Linear(FEATURES, 7), 7),
        (nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Dropout()), 5),
        (nn.Sequential(OrderedDict(first=nn.Linear(FEATURES, 3), then=nn.ReLU())), 3),
        (nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2), nn.Flatten()), 2),
        (Encodes(), 6),
    ],
)
def test_the_latent_size_is_found(encoder: nn.Module, dimension: int) -> None:
    one = agent(encoder=encoder, head=nn.Linear(dimension, CLASSES))
    assert one.dimension == dimension
    assert one.encode(data()[0]).shape == (20, dimension)
    assert f"d={dimension}, 20 training samples" in repr(one)


def test_the_probe_leaves_no_trace() -> None:
    encoder = nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Dropout())
    encoder[1].eval()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    head = nn.Linear(5, CLASSES)
    state = torch.get_rng_state()
    Agent("a", encoder, head, data=data())
    assert torch.equal(torch.get_rng_state(), state)
    after = encoder.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert [m.training for m in encoder] == [True, False, True]
    assert all(p.grad is None for p in encoder.parameters())


def test_one_training_sample_is_enough() -> None:
    encoder = nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5))
    one = agent(encoder=encoder, head=nn.Linear(5, CLASSES), data=data(1))
    assert one.dimension == 5
    assert len(one.next_batch().inputs) == 1


def test_the_encoder_may_contain_the_head() -> None:
    def build() -> Agent:
        model = Encodes()
        return Agent("a", model, model.classifier, data=data(), batch_size=5)

    one = build()
    assert len(one.parameters) == 4
    assert {id(p) for p in one.parameters} == {id(p) for p in one.encoder.parameters()}
    before = values(one)
    step(one)
    assert all(not torch.equal(p, q) for p, q in zip(before, values(one), strict=True))
    check_state_restores(one, build)


def test_encoder_and_head_may_share_parameters() -> None:
    def build() -> Agent:
        encoder, head = nn.Linear(3, 3), nn.Linear(3, 3)
        head.weight = encoder.weight
        inputs, targets = data()
        return Agent("a", encoder, head, data=(inputs[:, :3], targets), batch_size=5)

    one = build()
    assert len(one.parameters) == 3
    step(one)
    assert one.head.weight is one.encoder.weight
    check_state_restores(one, build)
    other = build()
    other.load_state(one.state())
    assert other.head.weight is other.encoder.weight


def test_encoder_and_head_may_be_one_module() -> None:
    module = nn.Linear(3, 3)
    inputs, targets = data()
    one = Agent("a", module, module, data=(inputs[:, :3], targets))
    assert len(one.parameters) == 2
    step(one)


def check_state_restores(one: Agent, build: Callable[[], Agent]) -> None:
    """An agent that loads another's state takes the same steps, bit by bit."""
    other = build()
    one.reset_rng(3)
    other.reset_rng(3)
    step(one)
    state = deepcopy(one.state())
    losses = [step(one) for _ in range(4)]
    other.load_state(state)
    assert [step(other) for _ in range(4)] == losses
    assert all(torch.equal(p, q) for p, q in zip(values(one), values(other), strict=True))
    assert (other.steps, other.order.position) == (one.steps, one.order.position)


# What is refused


@pytest.mark.parametrize(
    ("encoder", "shape"),
    [
        (nn.Unflatten(1, (1, 2, 2)), r"\(2, 1, 2, 2\)"),
        (nn.Sequential(nn.Linear(FEATURES, 1), nn.Flatten(0)), r"\(2,\)"),
        (nn.GRU(FEATURES, 2), "tuple"),
        (nn.Unflatten(1, (2, 2)), r"\(2, 2, 2\)"),
    ],
)
def test_encoders_that_give_no_latents(encoder: nn.Module, shape: str) -> None:
    with pytest.raises(LatentSizeError, match=rf"agent 'a': .*gave {shape}; flatten or pool"):
        agent(encoder=encoder)


def test_an_encoder_that_mixes_rows() -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(0, keepdim=True)

    with pytest.raises(LatentSizeError, match=r"\(1, 4\)"):
        agent(encoder=Pooled())


def test_non_finite_latents() -> None:
    inputs, targets = data()
    inputs[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="agent 'a': the encoder gives non-finite latents"):
        agent(data=(inputs, targets))


def test_an_encoder_may_compute_in_half_precision() -> None:
    class Compact(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(FEATURES, 2).bfloat16()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.bfloat16()).float()

    one = agent(encoder=Compact(), frozen=True)
    assert one.dtype == torch.float32
    step(one)


def test_an_encoder_that_changes_its_latent_size() -> None:
    one = agent()
    one.encoder.weight = nn.Parameter(torch.zeros(3, FEATURES))
    one.encoder.bias = None
    with pytest.raises(LatentSizeError, match=r"shape \(7, 3\) for 7 inputs, expected \(7, 2\)"):
        one.encode(torch.zeros(7, FEATURES))


@pytest.mark.parametrize("name", ["", None, 3, b"a"])
def test_names(name: Any) -> None:
    with pytest.raises(InputError, match="name of an agent must be a non-empty string"):
        agent(name)


@pytest.mark.parametrize("size", [0, -1])
def test_batch_sizes(size: int) -> None:
    with pytest.raises(
        InputError, match=f"agent 'a': batch_size must be a whole number of at least 1, got {size}"
    ):
        agent(batch_size=size)


@pytest.mark.parametrize("clip", [0, 0.0, -1.0, float("nan")])
def test_clips(clip: float) -> None:
    with pytest.raises(InputError, match="agent 'a': max_grad_norm must be positive or None"):
        agent(max_grad_norm=clip)


@pytest.mark.parametrize("classes", ["abc", [], [1, 2, 3]])
def test_classes_are_names(classes: Any) -> None:
    with pytest.raises(InputError, match="agent 'a': classes must be a list of names"):
        agent(classes=classes)


def test_no_data() -> None:
    with pytest.raises(EmptyInputError, match="no samples"):
        agent(data=data(0))


# The optimiser


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SGD(p, lr=0.1),
        lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: Adam(p, lr=0.1, amsgrad=True),
        lambda p: AdamW(p, lr=0.1),
        lambda p: RMSprop(p, lr=0.1, momentum=0.5),
    ],
)
def test_any_optimiser_steps_and_resumes(make: Any) -> None:
    one = agent(optimizer=make)
    twin_encoder, twin_head = nn.Linear(FEATURES, 2), nn.Linear(2, CLASSES)
    twin_encoder.load_state_dict(one.encoder.state_dict())
    twin_head.load_state_dict(one.head.state_dict())
    optimiser = make([*twin_encoder.parameters(), *twin_head.parameters()])
    one.reset_rng(5)
    other = agent()
    other.reset_rng(5)
    for _ in range(6):
        step(one)
        inputs, targets = other.next_batch()
        optimiser.zero_grad()
        nn.functional.cross_entropy(twin_head(twin_encoder(inputs)), targets).backward()
        optimiser.step()
    assert torch.equal(one.encoder.weight, twin_encoder.weight)
    assert torch.equal(one.head.bias, twin_head.bias)
    check_state_restores(one, lambda: agent(optimizer=make))


def test_an_optimiser_instance() -> None:
    encoder, head = nn.Linear(FEATURES, 2).requires_grad_(False), nn.Linear(2, CLASSES)
    optimiser = SGD(head.parameters(), lr=0.5)
    one = agent(encoder=encoder, head=head, optimizer=optimiser)
    assert one.optimizer is optimiser
    before = encoder.weight.clone(), head.weight.clone()
    step(one)
    assert torch.equal(encoder.weight, before[0])
    assert not torch.equal(head.weight, before[1])


def test_what_the_optimiser_does_not_own_has_no_stale_gradient() -> None:
    """A gradient that piles up over the steps would make the clip ever tighter."""
    encoder, head = nn.Linear(FEATURES, 2).requires_grad_(False), nn.Linear(2, CLASSES)
    one = agent(
        encoder=encoder,
        head=head,
        optimizer=SGD(head.parameters(), lr=0.0),
        max_grad_norm=1e9,
        data=data(5),
    )
    encoder.requires_grad_(True)  # after the optimiser was checked
    step(one)
    first = encoder.weight.grad.clone()
    step(one)
    assert torch.allclose(encoder.weight.grad, first, atol=1e-6)


# Clipping


def test_clipping_is_torch_s_by_hand() -> None:
    one = agent(max_grad_norm=0.01, optimizer=lambda p: SGD(p, lr=1.0))
    free = agent(optimizer=lambda p: SGD(p, lr=1.0))
    before = values(one)
    step(one)
    step(free)
    gradients = [p.grad for p in free.parameters]
    norm = np.sqrt(sum(float(g.double().square().sum()) for g in gradients))
    assert norm > 0.01
    for p, q, g in zip(one.parameters, before, gradients, strict=True):
        assert torch.allclose(p, q - g * 0.01 / norm, atol=1e-6)


def test_a_wide_clip_changes_nothing() -> None:
    one, free = agent(max_grad_norm=1e6), agent()
    for _ in range(3):
        step(one)
        step(free)
    assert all(torch.equal(p, q) for p, q in zip(values(one), values(free), strict=True))


def test_clipping_is_of_one_agent_only() -> None:
    small, large = agent("small", max_grad_norm=0.01), agent("large")
    step(large)
    gradients = [p.grad.clone() for p in large.parameters]
    step(small)
    assert all(torch.equal(p.grad, g) for p, g in zip(large.parameters, gradients, strict=True))


def test_a_gradient_that_is_not_finite_is_named_and_not_taken() -> None:
    def broken(one: Agent, batch: Batch) -> Tensor:
        return (one.encoder.weight - one.encoder.weight.detach()).square().sum().sqrt()

    one = agent(max_grad_norm=1.0, objective=broken)
    before = values(one)
    with pytest.raises(NonFiniteError, match="agent 'a', step 0: the norm of the gradient is nan"):
        step(one)
    assert all(torch.equal(p, q) for p, q in zip(values(one), before, strict=True))
    assert one.steps == 0


# Random streams


def dropper(name: str) -> Agent:
    return agent(name, nn.Sequential(nn.Linear(FEATURES, 6), nn.Dropout()), nn.Linear(6, CLASSES))


def test_dropout_is_unaffected_by_another_agent() -> None:
    def losses(others: int) -> list[float]:
        torch.manual_seed(others)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            one = dropper("one")
        crowd = [dropper(f"other {k}") for k in range(others)]
        found = []
        for _ in range(4):
            for other in crowd:
                step(other)
            found.append(step(one))
        return found

    assert losses(0) == losses(3)


def test_streams_follow_from_seed_and_name() -> None:
    def drawn(name: str, seed: int) -> tuple[list[float], list[int]]:
        one = agent(name)
        one.reset_rng(seed)
        with one.rng_context():
            noise = torch.rand(3).tolist()
        return noise, one.order.next().tolist()

    assert drawn("a", 0) == drawn("a", 0)
    others = [drawn("a", 1), drawn("b", 0)]
    assert all(drawn("a", 0)[k] != other[k] for k in (0, 1) for other in others)


def test_own_randomness_goes_on_and_restores_what_was_outside() -> None:
    one = agent()
    torch.manual_seed(3)
    outside = torch.get_rng_state()
    with one.rng_context():
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), outside)
    with suppress(KeyError), one.rng_context():
        second = torch.rand(3)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), outside)
    one.reset_rng(0)
    with one.rng_context():
        assert torch.equal(torch.rand(6), torch.cat([first, second]))


def test_random_augmentation_draws_from_the_own_stream() -> None:
    class Noisy(TensorDataset):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            inputs, target = super().__getitem__(index)
            return inputs + torch.randn(FEATURES), target

    def losses(seed: int) -> list[float]:
        one = agent(data=Noisy(*data()))
        torch.manual_seed(seed)
        return [step(one) for _ in range(3)]

    assert losses(0) == losses(1)


# Inference


def test_inference_restores_modes_also_after_an_error() -> None:
    one = dropper("a")
    one.encoder[1].eval()
    with suppress(KeyError), one.inference():
        assert not any(m.training for m in (*one.encoder.modules(), *one.head.modules()))
        raise KeyError
    assert [m.training for m in one.encoder.modules()] == [True, True, False]
    assert one.head.training


def test_encode_samples() -> None:
    one = dropper("a")
    inputs, targets = data(2050, 1)
    latents, found = one.encode_samples(Agent("b", one.encoder, data=(inputs, targets)).data.train)
    assert torch.allclose(latents, one.encoder[0](inputs), atol=1e-6)
    assert torch.equal(found, targets)
    assert not latents.requires_grad
    unlabelled = agent(data=inputs).data.train
    assert one.encode_samples(unlabelled)[1] is None


# Data


@pytest.mark.parametrize(
    "given",
    [
        data(),
        tuple(x.numpy() for x in data()),
        TensorDataset(*data()),
        {"train": data()},
        {"train": TensorDataset(*data()), "test": data(7), "validation": data(3)},
    ],
)
def test_data_in_every_form(given: Any) -> None:
    one, plain = agent(data=given), agent()
    for _ in range(5):
        assert step(one) == step(plain)


def test_data_without_labels_and_an_objective_of_ones_own() -> None:
    def reconstruct(one: Agent, batch: Batch) -> Tensor:
        assert batch.targets is None
        latents = one.encode(batch.inputs)
        return (latents @ one.encoder.weight - batch.inputs).square().mean()

    for given in (data()[0], data()[0].numpy(), TensorDataset(data()[0])):
        one = Agent("a", nn.Linear(FEATURES, 2), data=given, objective=reconstruct, batch_size=20)
        assert one.head is None
        first = step(one)
        losses = [step(one) for _ in range(30)]
        assert losses[-1] < first
        assert one.state()["head"] is None
        one.load_state(one.state())


@pytest.mark.parametrize(
    ("loss", "called"),
    [(nn.MSELoss(), "MSELoss"), (nn.L1Loss, "L1Loss"), (nn.functional.mse_loss, "mse_loss")],
)
def test_a_loss_of_torch_is_no_objective(loss: Any, called: str) -> None:
    expected = (
        rf"agent 'ada': an objective is a function of \(agent, batch\), and torch's {called} "
    )
    with pytest.raises(InputError, match=expected) as caught:
        Agent("ada", nn.Linear(2, 3), nn.Linear(3, 1), data=torch.zeros(4, 2), objective=loss)
    assert "objective=sheafed.agents.objectives.mean_squared_error or" in str(caught.value)


def test_an_agent_without_a_head_needs_an_objective() -> None:
    one = Agent("a", nn.Linear(FEATURES, 2), data=data())
    assert one.objective is cross_entropy
    with pytest.raises(InputError, match="agent 'a' has no head, which cross-entropy needs"):
        step(one)


class Autoencoding(nn.Module):
    """An objective with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(3, 6)

    def forward(self, one: Agent, batch: Batch) -> Tensor:
        return (self.decoder(one.encode(batch.inputs)) - batch.inputs).square().mean()


def test_an_objective_with_parameters_is_trained_clipped_and_kept() -> None:
    def build() -> Agent:
        torch.manual_seed(3)
        inputs = torch.randn(20, 6)
        encoder, objective = nn.Linear(6, 3), Autoencoding()
        return Agent(
            "a", encoder, data=inputs, objective=objective, batch_size=5, max_grad_norm=0.1
        )

    one = build()
    before = one.objective.decoder.weight.detach().clone()
    first = step(one)
    norm = torch.cat([p.grad.flatten() for p in one.parameters]).norm()
    assert float(norm) == pytest.approx(0.1, rel=1e-4)
    assert not torch.equal(one.objective.decoder.weight, before)
    state, other = one.state(), build()
    other.load_state(state)
    assert torch.equal(other.objective.decoder.weight, one.objective.decoder.weight)
    for _ in range(100):
        last = step(one)
    assert last < first


def test_inputs_that_the_encoder_cannot_take_are_named() -> None:
    with pytest.raises(InputError, match=r"'a'.*float32 of shape \(2, 5\)"):
        Agent("a", nn.Linear(6, 3), data=torch.zeros(4, 5))
    with pytest.raises(InputError, match=r"'a'.*uint8 of shape.*ByteSamples\(images, labels\)"):
        Agent("a", nn.Conv2d(1, 3, 2), data=torch.zeros(4, 1, 2, 2, dtype=torch.uint8))


def test_inputs_in_float64_are_cast_once_and_for_all_with_a_warning() -> None:
    inputs, labels = data()
    with pytest.warns(InputCastWarning, match="agent 'a': inputs in float64 are cast"):
        cast = agent(data=(inputs.double().numpy(), labels))
    plain = agent()
    assert [step(cast) for _ in range(5)] == [step(plain) for _ in range(5)]
    assert torch.equal(cast.encode(inputs.double()), plain.encode(inputs))
    assert cast.next_batch().inputs.dtype == torch.float32


def test_inputs_are_not_cast_where_the_encoder_computes_in_their_type() -> None:
    inputs, labels = data()
    double = agent(
        encoder=nn.Linear(FEATURES, 2).double(),
        head=nn.Linear(2, CLASSES).double(),
        data=(inputs.double(), labels),
    )
    assert double.encode(inputs.double()).dtype == torch.float64
    tokens = agent(encoder=nn.EmbeddingBag(9, 2), data=(torch.ones(20, 3).long(), labels))
    assert tokens.next_batch().inputs.dtype == torch.int64


def test_latents_are_recorded_while_the_context_is_open_and_afterwards_not() -> None:
    one, inputs = agent(), data()[0]
    with one.record_latents() as outer:
        first = one.encode(inputs)
        with suppress(ZeroDivisionError), one.record_latents() as inner:
            second = one.encode(inputs[:3])
            raise ZeroDivisionError
    one.encode(inputs)
    assert len(outer) == 2
    assert outer[0] is first
    assert outer[1] is inner[0] is second
