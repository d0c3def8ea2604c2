import json
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from sheafed.atomic_io import UNFINISHED
from sheafed.checkpointing import checkpoint
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.errors import CheckpointError, TreeError
from tests.helpers import pickling, warm_processes
from tests.helpers.killed_writers import generation, kill_writers


def small_tree() -> dict[str, Any]:
    return {
        "round": 7,
        "rate": float("inf"),
        "betas": (0.9, 0.999),
        "state": {0: {"exp_avg": torch.tensor([1.5, -0.0])}},
        "mask": torch.tensor(True),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "last.safetensors", small_tree())
    return tmp_path / "last.safetensors"


def test_round_trip(path: Path) -> None:
    tree = load_checkpoint(path)
    state, mask = tree.pop("state"), tree.pop("mask")
    assert tree == {"round": 7, "rate": float("inf"), "betas": (0.9, 0.999)}
    assert mask.dtype == torch.bool
    assert mask.shape == ()
    exp_avg = state[0]["exp_avg"]
    assert exp_avg.tolist() == [1.5, 0.0]
    assert exp_avg.signbit().tolist() == [False, True]
    exp_avg.add_(1)  # what was loaded can be trained on


def test_tied_and_awkward_tensors(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    tree = {
        "tied": [weight, weight.T, weight[1:], weight],
        "none": torch.empty(0),
        "odd": 1j * weight,
    }
    save_checkpoint(tmp_path / "c", tree)
    restored = load_checkpoint(tmp_path / "c")
    torch.testing.assert_close(restored, tree, rtol=0, atol=0)
    restored["tied"][0].zero_()
    assert torch.equal(restored["tied"][3], weight)


def test_a_tree_without_tensors_and_an_empty_one(tmp_path: Path) -> None:
    for tree in ({"epoch": 3}, {}):
        save_checkpoint(tmp_path / "c", tree)
        assert load_checkpoint(tmp_path / "c") == tree


def test_text_that_looks_like_the_seal(tmp_path: Path) -> None:
    lookalike = '{"sha256":"' + "0" * 64
    tree = {lookalike: lookalike, lookalike.replace('"', '\\"'): 1, "t": {lookalike: torch.ones(1)}}
    save_checkpoint(str(tmp_path / "c"), tree)
    assert load_checkpoint(str(tmp_path / "c")) == tree


def test_any_safetensors_reader_finds_the_tensors(path: Path) -> None:
    tensors = safetensors.torch.load_file(path)
    assert sorted(tensors) == ["tree['mask']", "tree['state'][0]['exp_avg']"]


def test_equal_states_give_equal_bytes(path: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "again", load_checkpoint(path))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_directories_are_made_and_nothing_else(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a" / "b" / "c", small_tree())
    assert os.listdir(tmp_path / "a" / "b") == ["c"]


def test_what_cannot_be_stored_leaves_the_old_one(path: Path) -> None:
    with pytest.raises(TreeError, match=r"tree\['hook'\]"):
        save_checkpoint(path, {"hook": print})
    assert load_checkpoint(path)["round"] == 7


def test_what_cannot_be_written_leaves_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*make room") as caught:
        save_checkpoint(path, {"round": 8})
    assert str(path) in str(caught.value)
    assert load_checkpoint(path)["round"] == 7


# What is not a whole checkpoint


def refuses(path: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "start anew" in str(caught.value)


def test_every_flipped_bit_is_detected(path: Path) -> None:
    whole = path.read_bytes()
    for place, bit in product(range(len(whole)), range(8)):
        content = bytearray(whole)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        refuses(path, "damaged|of version")


def test_every_truncation_and_extension_is_detected(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        refuses(path, "damaged")
    path.write_bytes(whole + b"\0")
    refuses(path, "damaged")


def test_missing_file_and_directory(tmp_path: Path) -> None:
    refuses(tmp_path / "none", "No such file")
    refuses(tmp_path, "Is a directory")


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    torch.save({"a": torch.ones(1)}, path)
    refuses(path, "no checkpoint of sheafed")
    safetensors.torch.save_file({"a": torch.ones(1)}, path)
    refuses(path, "no checkpoint of sheafed")
    for document in ("3", "{}", "[", "[" * 100_000):
        safetensors.torch.save_file({"a": torch.ones(1)}, path, {"sheafed": document})
        refuses(path, "no checkpoint of sheafed")


def test_another_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    refuses(path, "of version 1, this sheafed reads version 2; resume with the release")


@pytest.mark.parametrize(
    "skeleton",
    [{"tensor": "gone"}, {"complex": "a"}, {"float": "xyz"}, {"int": "xyz"}, {"set": []}, [1]],
)
def test_a_sealed_file_that_makes_no_sense(tmp_path: Path, skeleton: object) -> None:
    document = {"sha256": "0" * 64, "version": 1, "tree": skeleton}
    metadata = {"sheafed": json.dumps(document, separators=(",", ":"))}
    content = safetensors.torch.save({"a": torch.ones(3)}, metadata)
    (tmp_path / "c").write_bytes(checkpoint._seal(content))
    refuses(tmp_path / "c", "no checkpoint of sheafed")


def test_nothing_is_unpickled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickling.forbid(monkeypatch.setattr)
    assert load_checkpoint(path)["round"] == 7


# A run that is interrupted


class Training:
    """Two optimisers, two schedules, batch norm, dropout by hand, and a random stream."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.head = nn.Linear(8, 2, dtype=torch.float64)
        for parameter in [*self.body.parameters(), *self.head.parameters()]:
            nn.init.normal_(parameter, generator=self.random)
        self.sgd = torch.optim.SGD(self.body.parameters(), 0.1, momentum=0.9, nesterov=True)
        self.adam = torch.optim.Adam(self.head.parameters(), 0.01, amsgrad=True)
        self.steps = torch.optim.lr_scheduler.MultiStepLR(self.sgd, [2, 5, 5])
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.adam, patience=1)
        self.done = 0

    def parts(self) -> dict[str, Any]:
        names = ("body", "head", "sgd", "adam", "steps", "plateau")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Any]:
        states = {name: part.state_dict() for name, part in self.parts().items()}
        return {**states, "random": self.random.get_state(), "done": self.done}

    def restore(self, state: dict[str, Any]) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.random.set_state(state["random"])
        self.done = state["done"]

    def step(self) -> None:
        x = torch.randn(16, 5, generator=self.random)
        kept = torch.rand(16, 8, generator=self.random) > 0.2
        loss = (self.head((self.body(x) * kept).double()) - x[:, :2]).square().mean()
        self.sgd.zero_grad()
        self.adam.zero_grad()
        loss.backward()
        self.sgd.step()
        self.adam.step()
        self.steps.step()
        self.plateau.step(loss.item())
        self.done += 1


def test_continuing_equals_never_stopping(tmp_path: Path) -> None:
    straight = Training(seed=1)
    for _ in range(9):
        straight.step()

    for stop in (0, 1, 4):
        first, second = Training(seed=1), Training(seed=2)
        for _ in range(stop):
            first.step()
        save_checkpoint(tmp_path / "c", first.state())
        second.restore(load_checkpoint(tmp_path / "c"))
        for _ in range(9 - stop):
            second.step()
        save_checkpoint(tmp_path / "resumed", second.state())
        save_checkpoint(tmp_path / "straight", straight.state())
        resumed = (tmp_path / "resumed").read_bytes()
        assert resumed == (tmp_path / "straight").read_bytes(), f"stopped after {stop}"


# A writer that is killed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_sigkill_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    kills = warm_processes.call(kill_writers, path, 20)
    assert kills[-1]["saved"] > 0, "no writer lived long enough to save"
    for kill in kills:
        assert kill["saved"] in (kill["reported"], kill["reported"] + 1)
        assert kill["values"] == [kill["saved"]]
        assert set(kill["left"]) <= {path.name, path.name + UNFINISHED}
    save_checkpoint(path, generation(0))
    assert os.listdir(tmp_path) == [path.name]


def test_an_unfinished_file_is_no_checkpoint(path: Path) -> None:
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.write_bytes(path.read_bytes()[:-1])
    refuses(unfinished, "damaged")
    assert load_checkpoint(path)["round"] == 7
