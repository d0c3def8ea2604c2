"""Worker processes change nothing but the time, and end with the training."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from sheafed import Agent, NonCooperative, train
from sheafed.errors import InputError, ShapeError

PILOTS = torch.randn(12, 4, generator=torch.Generator().manual_seed(3))


class Squares(Dataset[Any]):
    """Rows that are computed when they are read, with noise if asked for."""

    def __init__(self, noise: float = 0.0, ragged: bool = False) -> None:
        self.noise, self.ragged = noise, ragged

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row = torch.arange(4.0 + (self.ragged and index == 29)) * index / 30
        return row + (self.noise * torch.randn(4) if self.noise else 0), index % 2


def agent(workers: int, name: str = "a", **options: Any) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(len(name))
        encoder, head = nn.Linear(4, 3), nn.Linear(3, 2)
    data = {"train": Squares(**options), "test": Squares()}
    return Agent(name, encoder, head, data=data, batch_size=8, num_workers=workers)


def read(one: Agent, count: int) -> list[list[float]]:
    return [one.next_batch().inputs.flatten().tolist() for _ in range(count)]


def test_batches_position_and_global_stream_are_those_without_workers() -> None:
    plain, ahead = agent(0), agent(2)
    before = torch.get_rng_state()
    assert read(ahead, 7) == read(plain, 7)
    assert ahead.order.position == plain.order.position
    assert torch.equal(torch.get_rng_state(), before)
    assert len(multiprocessing.active_children()) == 2
    ahead.load_state(plain.state())  # in the middle of what was read ahead
    assert multiprocessing.active_children() == []
    assert read(ahead, 2) == read(plain, 2)
    ahead.reset_rng(1)
    plain.reset_rng(1)
    assert read(ahead, 2) == read(plain, 2)
    ahead.stop_workers()
    latents = [one.encode_samples(one.data.test)[0] for one in (plain, ahead)]
    assert torch.equal(*latents)
    assert multiprocessing.active_children() == []


def test_what_reading_draws_follows_from_the_position() -> None:
    one, two = agent(1, noise=1.0), agent(2, noise=1.0)
    expected = read(one, 5)
    one.stop_workers()
    two.order.seek((0, 16))
    assert read(two, 3) == expected[2:]
    two.stop_workers()
    assert len({tuple(batch) for batch in expected}) == 5


def trained(workers: int, epochs: int = 2, **options: Any) -> list[list[float]]:
    agents = [agent(workers, name) for name in ("a", "bb")]
    network = train(
        agents, [("a", "bb")], NonCooperative(), PILOTS, epochs=epochs, oracle=False, **options
    )
    assert multiprocessing.active_children() == []
    return [p.tolist() for one in network.agents.values() for p in one.parameters]


def test_training_and_resuming_with_workers_end_with_the_same_weights(tmp_path: Path) -> None:
    expected = trained(0)
    trained(1, epochs=1, out=tmp_path)
    assert trained(2, out=tmp_path, resume=True) == expected


def test_errors_of_workers_name_the_agent_and_leave_no_process() -> None:
    one = agent(1, ragged=True)
    with pytest.raises(ShapeError, match=r"(?s)agent 'a': .*rows cannot be stacked"):
        read(one, 4)
    one.stop_workers()
    assert multiprocessing.active_children() == []
    with pytest.raises(InputError, match="agent 'a': num_workers must not be negative, got -1"):
        agent(-1)
