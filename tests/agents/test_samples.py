from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from sheafed.agents.data_forms import as_local_data, as_samples
from sheafed.agents.samples import (
    Batch,
    ByteSamples,
    DataOrder,
    DatasetSamples,
    LocalData,
    Samples,
    TensorSamples,
)
from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError

INPUTS, TARGETS = torch.arange(12.0).view(6, 2), torch.arange(6)


class Items(Dataset[Any]):
    """A dataset of anything."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Own:
    """Samples of a user's own, made when they are asked for."""

    def __len__(self) -> int:
        return 6

    def batch(self, indices: Tensor) -> Batch:
        return Batch(INPUTS[indices], TARGETS[indices])


@pytest.mark.parametrize(
    "form",
    [
        (INPUTS, TARGETS),
        (INPUTS.numpy(), TARGETS.numpy()),
        (INPUTS, TARGETS.numpy()),
        TensorDataset(INPUTS, TARGETS),
        Items([(x, y) for x, y in zip(INPUTS, TARGETS.tolist(), strict=True)]),
        Items([(x.numpy(), int(y)) for x, y in zip(INPUTS, TARGETS, strict=True)]),
        TensorSamples(INPUTS, TARGETS),
        Own(),
    ],
)
def test_labelled_samples_in_every_form(form: Any) -> None:
    samples = as_samples(form)
    assert isinstance(samples, Samples)
    assert len(samples) == 6
    inputs, targets = samples.batch(torch.tensor([4, 1, 1]))
    assert torch.equal(inputs, INPUTS[[4, 1, 1]])
    assert targets is not None
    assert targets.tolist() == [4, 1, 1]


@pytest.mark.parametrize(
    "form", [INPUTS, INPUTS.numpy(), TensorDataset(INPUTS), Items(list(INPUTS))]
)
def test_unlabelled_samples_in_every_form(form: Any) -> None:
    samples = as_samples(form)
    inputs, targets = samples.batch(torch.tensor([5, 0]))
    assert torch.equal(inputs, INPUTS[[5, 0]])
    assert targets is None


@pytest.mark.parametrize(
    ("items", "found"),
    [([(INPUTS[0], 1, 2)], "batches of type list of 3"), (["x"], "str")],
)
def test_datasets_of_something_else(items: list[Any], found: str) -> None:
    with pytest.raises(InputError, match=f"got .*{found}"):
        DatasetSamples(Items(items)).batch(torch.tensor([0]))


@pytest.mark.parametrize("form", [[1, 2], "data", None, 3, (INPUTS,), (INPUTS, TARGETS, TARGETS)])
def test_what_are_no_samples(form: Any) -> None:
    with pytest.raises(InputError, match=f"data must be an array.*got {type(form).__name__}"):
        as_samples(form)


@pytest.mark.parametrize(
    "form", [INPUTS[:0], (INPUTS[:0], TARGETS[:0]), Items([]), np.zeros((0, 2))]
)
def test_no_samples(form: Any) -> None:
    with pytest.raises(EmptyInputError, match="no samples"):
        as_samples(form)


@pytest.mark.filterwarnings("error")
def test_arrays_that_torch_does_not_take_as_they_are() -> None:
    inputs, targets = INPUTS.numpy()[::-1].astype(">f4"), TARGETS.numpy()[::-1]
    targets.flags.writeable = False
    samples = as_samples((inputs, targets))
    assert torch.equal(samples.batch(torch.arange(6)).inputs, INPUTS.flip(0))
    assert torch.equal(samples.batch(torch.arange(6)).targets, TARGETS.flip(0))


def test_one_target_for_every_input() -> None:
    with pytest.raises(ShapeError, match="got 6 inputs and 5 targets"):
        as_samples((INPUTS, TARGETS[:5]))


def test_local_data() -> None:
    alone = as_local_data((INPUTS, TARGETS))
    assert (len(alone.train), alone.validation, alone.test) == (6, None, None)
    full = as_local_data({"test": INPUTS[:1], "train": INPUTS, "validation": INPUTS[:2]})
    assert [len(s) for s in (full.train, full.validation, full.test) if s] == [6, 2, 1]
    assert as_local_data(full) is full
    assert isinstance(full, LocalData)


@pytest.mark.parametrize("given", [{"test": INPUTS}, {"train": INPUTS, "valid": INPUTS}, {}])
def test_local_data_of_other_names(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must have 'train' and may have 'validation' and 'test'"):
        as_local_data(given)


# The order


@given(total=st.integers(1, 40), size=st.integers(1, 50), passes=st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_each_pass_is_a_permutation_in_whole_batches(total: int, size: int, passes: int) -> None:
    order = DataOrder(total, size, 3, "a")
    effective = min(size, total)
    per_pass = total // effective
    for number in range(passes):
        batches = [order.next() for _ in range(per_pass)]
        assert all(len(batch) == effective for batch in batches)
        assert order.position[0] == number
        seen = torch.cat(batches).tolist()
        assert len(set(seen)) == len(seen) == per_pass * effective
        assert set(seen) <= set(range(total))


@given(total=st.integers(1, 30), size=st.integers(1, 35), steps=st.integers(0, 40))
@settings(deadline=None, max_examples=60)
def test_seek_restores(total: int, size: int, steps: int) -> None:
    order = DataOrder(total, size, 3, "a")
    for _ in range(steps):
        order.next()
    position = order.position
    expected = [order.next().tolist() for _ in range(5)]
    other = DataOrder(total, size, 3, "a")
    other.seek(position)
    assert other.position == position
    assert [other.next().tolist() for _ in range(5)] == expected


def test_passes_differ_and_meet_everything() -> None:
    order = DataOrder(10, 4, 0, "a")
    seen = [order.next().tolist() for _ in range(60)]
    assert len({tuple(batch) for batch in seen}) > 50  # two of 60 may coincide by chance
    assert {index for batch in seen for index in batch} == set(range(10))


def test_orders_follow_from_seed_and_name() -> None:
    def first(seed: int, name: str) -> list[int]:
        return DataOrder(100, 50, seed, name).next().tolist()

    assert first(0, "a") == first(0, "a")
    assert first(0, "a") != first(1, "a")
    assert first(0, "a") != first(0, "b")


def test_the_order_ignores_the_global_random_state() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one = DataOrder(100, 7, 0, "a")
    batches = [one.next().tolist() for _ in range(20)]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    other = DataOrder(100, 7, 0, "a")
    assert [other.next().tolist() for _ in range(20)] == batches


def test_bytes_are_seen_as_fractions() -> None:
    images = torch.arange(6 * 4, dtype=torch.uint8).view(6, 1, 2, 2) * 10
    kept = ByteSamples(images, TARGETS)
    batch = kept.batch(torch.tensor([4, 1]))
    assert batch.inputs.dtype == torch.float32
    assert torch.equal(batch.inputs, images[[4, 1]].float() / 255)
    assert batch.targets.tolist() == [4, 1]
    assert as_samples(kept) is kept
    with pytest.raises(DtypeError, match=r"must be torch.uint8, got torch.float32"):
        ByteSamples(INPUTS)


WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.int64]


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_numbers_are_labels_whatever_their_size(kind: torch.dtype) -> None:
    labels = TARGETS.to(kind)
    images = ByteSamples(torch.zeros(6, 1, 2, 2, dtype=torch.uint8), labels)
    pairs = Items([(x, y.numpy()) for x, y in zip(INPUTS, labels, strict=True)])
    for given_form in ((INPUTS, labels), (INPUTS.numpy(), labels.numpy()), images, pairs):
        found = as_samples(given_form).batch(torch.tensor([4, 1])).targets
        assert found is not None
        assert found.dtype == torch.int64
        assert found.tolist() == [4, 1]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bool])
def test_other_targets_are_left_alone(kind: torch.dtype) -> None:
    found = as_samples((INPUTS, TARGETS.to(kind))).batch(torch.tensor([4, 1])).targets
    assert found is not None
    assert found.dtype == kind


def test_the_first_samples_of_a_batch() -> None:
    inputs = {"a": torch.arange(8).reshape(4, 2), "b": torch.arange(4)}
    batch = Batch(inputs, torch.arange(4))
    first = batch.first(3)
    assert torch.equal(first.inputs["a"], inputs["a"][:3])
    assert torch.equal(first.inputs["b"], torch.arange(3))
    assert torch.equal(first.targets, torch.arange(3))
    assert batch.first(4) is batch.first(9) is batch
    assert Batch(torch.zeros(4, 2), None).first(1).targets is None
