"""Rows as people's data sets have them: columns, token lists, DataLoaders."""

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from sheafed import Agent
from sheafed.agents.data_forms import as_local_data, as_samples
from sheafed.agents.samples import DatasetSamples, LocalData, TensorSamples
from sheafed.errors import EmptyInputError, InputError, LatentSizeError, ShapeError

ROWS = [{"input_ids": [k, k + 1, 9], "mask": [1, 1, 0], "label": k % 2} for k in range(6)]
RAGGED = [([1] * (1 + k % 4), k % 2) for k in range(300)]


class LikeDatasets:
    """The interface of a data set of Hugging Face, with a method `batch` of its own."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.column_names = rows, list(rows[0])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self.rows[index] for index in indices]

    def batch(self, batch_size: int) -> None:
        raise AssertionError("this groups rows, and gives no batch of indices")


class Bag(nn.Module):
    """A mean of token embeddings that knows padding from the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 3)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        summed = (self.embedding(input_ids) * mask[..., None]).sum(1)
        return summed / mask.sum(1, keepdim=True)


def pad(rows: list[tuple[list[int], int]]) -> tuple[dict[str, Tensor], Tensor]:
    tokens = [torch.tensor(ids) for ids, _ in rows]
    mask = pad_sequence([torch.ones(len(ids)) for ids in tokens], batch_first=True)
    padded = pad_sequence(tokens, batch_first=True)
    return {"input_ids": padded, "mask": mask}, torch.tensor([y for _, y in rows])


def agent(data: Any, **options: Any) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Agent("a", Bag(), nn.Linear(3, 2), data=data, **options)


COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.mark.parametrize(
    "given",
    [
        LikeDatasets(ROWS),
        ROWS,
        [UserDict(row) for row in ROWS],
        {"train": COLUMNS}["train"],
        ({k: v for k, v in COLUMNS.items() if k != "label"}, COLUMNS["label"]),
        [({k: torch.tensor(row[k]) for k in ("input_ids", "mask")}, row["label"]) for row in ROWS],
        DataLoader(LikeDatasets(ROWS), batch_size=2),  # type: ignore[arg-type]
    ],
    ids=["Hugging Face", "list", "mappings", "columns", "pair", "(dict, y)", "DataLoader"],
)
def test_columns_in_every_form(given: Any) -> None:
    inputs, targets = as_samples(given).batch(torch.tensor([4, 1]))
    assert {name: part.tolist() for name, part in inputs.items()} == {
        "input_ids": [[4, 5, 9], [1, 2, 9]],
        "mask": [[1, 1, 0], [1, 1, 0]],
    }
    assert targets is not None
    assert targets.tolist() == [0, 1]
    assert targets.dtype == torch.int64
    one = agent({"train": given})
    assert one.encode(inputs).shape == (2, 3)
    assert bool(torch.isfinite(one.objective(one, one.next_batch())))


def test_the_target_is_a_known_or_a_named_column() -> None:
    rows = [{"x": torch.ones(2), "mood": 1, "labels": 0}]
    first = torch.tensor([0])
    for target, expected, rest in ((None, 0, "mood"), ("mood", 1, "labels")):
        inputs, found = as_samples(rows, target=target).batch(first)
        assert found is not None
        assert (found.tolist(), sorted(inputs)) == ([expected], sorted(["x", rest]))
    with pytest.raises(InputError, match=r"looked for \['y'\], the columns are \['x', 'mood', 'la"):
        as_samples(rows, target="y").batch(first)
    both = [{"x": torch.ones(2), "label": 1, "labels": 0}]
    with pytest.raises(InputError, match=r"\['labels', 'label'\].*name the column by target="):
        as_samples(both).batch(first)
    with pytest.raises(InputError, match=r"no inputs: the columns are \['label'\]"):
        as_samples([{"label": 1}]).batch(first)
    with pytest.raises(InputError, match="target='y' names a column, but the rows have no columns"):
        as_samples([(torch.ones(2), 1)], target="y").batch(first)


def test_errors_about_columns_name_the_agent() -> None:
    with pytest.raises(InputError, match=r"agent 'a': column 'text' holds no tensors \(.*got str"):
        agent([{"text": "good", "input_ids": [1], "mask": [1], "label": 1}])
    unlabelled = agent([{"input_ids": [1], "mask": [1]}] * 2)
    with pytest.raises(
        InputError, match=r"'a' has no labels.*columns \['input_ids', 'mask'\] by t"
    ):
        unlabelled.objective(unlabelled, unlabelled.next_batch())
    with pytest.raises(InputError, match=r"agent 'a': the encoder fails.*\['mood'\] torch.int64"):
        agent([{"input_ids": [1], "mask": [1], "mood": 1}])
    with pytest.raises(ShapeError, match=r"agent 'a': rows cannot be stacked.*give collate_fn"):
        agent([{"input_ids": [1] * n, "mask": [1] * n, "label": 1} for n in (1, 2)])


# Padding


@pytest.mark.parametrize("given", [RAGGED, tuple(map(list, zip(*RAGGED, strict=True)))])
def test_rows_of_different_lengths_are_padded_batch_by_batch(given: Any) -> None:
    one = agent({"train": given, "test": given}, collate_fn=pad, batch_size=16)
    assert one.next_batch().inputs["mask"].shape == (16, 4)
    latents, targets = one.encode_samples(one.data.test)
    assert targets is not None
    assert targets.tolist() == [y for _, y in RAGGED]
    alone = torch.cat([one.encode(pad([row])[0]) for row in RAGGED])  # nothing is padded
    torch.testing.assert_close(latents, alone)
    widths = {one.data.test.batch(torch.tensor([k])).inputs["mask"].shape[1] for k in range(4)}
    assert widths == {1, 2, 3, 4}


def test_columns_in_memory_are_rows_for_a_collate_fn() -> None:
    columns = {"input_ids": [[1], [2, 3]], "label": [0, 1]}
    seen: list[Any] = []
    samples = as_samples(columns, collate_fn=lambda rows: seen.extend(rows) or pad([([1], 0)]))
    samples.batch(torch.tensor([1, 0]))
    assert seen == [{"input_ids": [2, 3], "label": 1}, {"input_ids": [1], "label": 0}]


def test_samples_of_your_own_are_batches_already() -> None:
    own = TensorSamples(torch.ones(2, 3))
    with pytest.raises(InputError, match="TensorSamples gives whole batches"):
        as_samples(own, collate_fn=pad)
    with pytest.raises(InputError, match="LocalData holds samples that were made before"):
        agent(LocalData(own), num_workers=1)


# Other data of an agent


def test_other_data_are_read_as_the_own() -> None:
    renamed = [{**row, "kind": row["label"]} for row in ROWS]
    for row in renamed:
        del row["label"]
    one = agent(renamed, target="kind")
    columns = {name: [row[name] for row in renamed] for name in renamed[0]}
    for given in (renamed, columns, LikeDatasets(renamed), DataLoader(LikeDatasets(renamed))):  # type: ignore[arg-type]
        batch = one.samples_of(given).batch(torch.tensor([1, 4]))
        assert sorted(batch.inputs) == ["input_ids", "mask"]
        assert batch.targets is not None
        assert batch.targets.tolist() == [1, 0]
    assert agent({"train": columns}, target="kind").samples_of(renamed).batch(
        torch.tensor([1])
    ).targets == torch.tensor([1])
    padded = agent(RAGGED, collate_fn=pad).samples_of(RAGGED[:4]).batch(torch.arange(4))
    assert padded.inputs["input_ids"].shape == (4, 4)
    loaded = agent(DataLoader(RAGGED, collate_fn=pad))  # type: ignore[arg-type]
    assert loaded.samples_of(RAGGED[:4]).batch(torch.arange(4)).targets.tolist() == [0, 1, 0, 1]  # type: ignore[union-attr]


def test_other_data_need_not_have_the_column_of_the_targets() -> None:
    renamed = [{"input_ids": [1], "mask": [1], "kind": 1}]
    one = agent(renamed, target="kind")
    bare = [{"input_ids": [1], "mask": [1]}]
    assert one.samples_of(bare).batch(torch.tensor([0])).targets is None
    usual = one.samples_of(ROWS).batch(torch.tensor([1]))
    assert sorted(usual.inputs) == ["input_ids", "mask"]
    assert usual.targets == torch.tensor([1])
    pairs = one.samples_of([({"input_ids": [1], "mask": [1]}, 1)]).batch(torch.tensor([0]))
    assert pairs.targets == torch.tensor([1])


def test_whole_batches_and_a_collate_fn_of_a_loader_are_taken_as_they_are() -> None:
    one = agent(RAGGED, collate_fn=pad)
    whole = TensorSamples(*pad(RAGGED[:5]))
    assert one.samples_of(whole) is whole

    def longer(rows: list[Any]) -> Any:
        return pad([*rows, ([1] * 9, 0)])

    loader: DataLoader[Any] = DataLoader(RAGGED, collate_fn=longer)  # type: ignore[arg-type]
    assert one.samples_of(loader).batch(torch.tensor([0])).inputs["mask"].shape == (2, 9)


def test_rows_that_the_own_collate_fn_does_not_take_are_refused_with_what_to_do() -> None:
    one = agent(RAGGED, collate_fn=pad)
    with pytest.raises(InputError, match=r"agent 'a': .*collate_fn: .*TensorSamples\(inputs, lab"):
        one.samples_of([ids for ids, _ in RAGGED])


# DataLoaders


def test_of_a_data_loader_all_but_the_order_is_used() -> None:
    loader: DataLoader[Any] = DataLoader(RAGGED, batch_size=7, collate_fn=pad, shuffle=True)  # type: ignore[arg-type]
    one = agent({"train": loader, "test": loader})
    plain = agent({"train": RAGGED}, collate_fn=pad, batch_size=7)
    for _ in range(3):
        mine, theirs = one.next_batch(), plain.next_batch()
        assert torch.equal(mine.inputs["input_ids"], theirs.inputs["input_ids"])
    assert agent(loader, batch_size=3).batch_size == 3
    assert agent(RAGGED, collate_fn=pad).batch_size == 64
    workers = DataLoader(TensorDataset(torch.ones(3)), num_workers=2)
    assert as_samples(workers) == DatasetSamples(workers.dataset, None, None, 2, 1)
    assert as_samples(workers, num_workers=0).num_workers == 0  # type: ignore[attr-defined]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(RAGGED)


@pytest.mark.parametrize("given", [Endless(), DataLoader(Endless())])
def test_streams_without_a_length_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"data must be|Endless has no length"):
        as_samples(given)


def test_mappings_of_columns_and_of_splits() -> None:
    with pytest.raises(InputError, match=r"given as \{'train': columns\}"):
        as_local_data(COLUMNS)
    with pytest.raises(EmptyInputError, match="agent 'a': the data has no samples"):
        agent(ROWS[:0])


# Models of Hugging Face


class Output:
    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden


class Unpooled(Bag):
    def forward(self, input_ids: Tensor, mask: Tensor) -> Any:
        return Output(self.embedding(input_ids))


def test_an_encoder_without_pooling_is_told_what_wraps_it() -> None:
    with pytest.raises(LatentSizeError, match=r"it gave Output; .*adapters\.HuggingFaceEncoder"):
        Agent("a", Unpooled(), data=ROWS)
