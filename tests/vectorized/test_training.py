"""`train` lets agents of one structure step together, says so, and resumes to the same bytes."""

import json
from pathlib import Path

import pytest
import torch

from sheafed import Agent, NonCooperative, train
from sheafed.checkpointing.run_directory import LAST
from sheafed.training import Callback, Network
from tests.helpers.small_federations import agent, pilots

NAMES = [f"agent-{k:02}" for k in range(16)]
RING = list(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))


class Interrupt(Callback):
    def on_round(self, network: Network, log: object) -> None:
        if network.history.rounds == 3:
            raise KeyError


def agents() -> list[Agent]:
    return [agent(name, 4) for name in NAMES] + [agent("other", 5)]


def run(out: Path, **options: object) -> Network:
    edges = [*RING, ("other", NAMES[0])]
    return train(
        agents(), edges, NonCooperative(), pilots(), epochs=1, out=out, oracle=False, **options
    )


def test_training_together_is_announced_and_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    with pytest.raises(KeyError):
        run(tmp_path / "cut", callbacks=[Interrupt()], checkpoint_every=1)
    run(tmp_path / "cut", resume=True, checkpoint_every=1)
    one, other = ((tmp_path / out / LAST).read_bytes() for out in ("whole", "cut"))
    assert one == other
    alone = {"fewer than 16 agents of its structure": 1}
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["vectorized"] == {"together": 16, "alone": alone}
    assert whole.history.vectorized == summary["vectorized"]


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    together, apart = run(tmp_path / "on"), run(tmp_path / "off", vectorize=False)
    assert apart.history.vectorized is None
    assert "vectorized" not in json.loads((tmp_path / "off" / "summary.json").read_text())
    for name, one in together.agents.items():
        for weight, other in zip(one.parameters, apart.agents[name].parameters, strict=True):
            torch.testing.assert_close(weight, other, rtol=1e-4, atol=1e-5)
    assert apart.history.conditions["vectorize"] is False
