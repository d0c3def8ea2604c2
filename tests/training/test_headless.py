"""Senders only: an agent without labels or head, and a frozen one, through a whole run."""

import json
from pathlib import Path

import pytest
from sklearn.decomposition import PCA
from torch import nn
from torch.optim import SGD

from sheafed import Distillation, SheafFRL
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import Augmentation, VICReg, VICRegOptions
from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.evaluation import evaluate_locally
from sheafed.models import mlp
from sheafed.models.adapters import ScikitEncoder
from sheafed.report import page, read_run
from sheafed.training import Network, train
from sheafed.training.metadata import agent_metadata
from tests.helpers.federations import (
    CLASSES,
    EDGES,
    FEATURES,
    METHODS,
    PILOTS,
    agents,
    pilots,
    results,
    samples,
    seeded,
    splits,
)


def team(cyd: str = "pca") -> list[Agent]:
    """Ada has no labels; Bob has; Cyd is frozen, as PCA without a head or as a network with one."""
    noise = Augmentation(shift=0, rotation=0, erasing=0, noise=0.3)
    ada = Agent(
        "ada",
        seeded(1, lambda: nn.Linear(FEATURES, 5)),
        data=splits(50, 10) | {"train": samples(50, 10)[0]},
        objective=seeded(
            2, lambda: VICReg(mlp((8, 8), inputs=(5,)), VICRegOptions(augmentation=noise))
        ),
        batch_size=8,
    )
    data = splits(7, 30)  # fewer than a batch: who has nothing to train decides no epoch
    if cyd == "pca":
        encoder = ScikitEncoder(PCA(3, random_state=0).fit(samples(40, 5)[0].numpy()))
        return [ada, agents()[1], Agent("cyd", encoder, data=data, batch_size=8)]
    encoder = seeded(5, lambda: nn.Sequential(nn.Linear(FEATURES, 3), nn.BatchNorm1d(3)))
    head = seeded(6, lambda: nn.Linear(3, CLASSES))
    return [
        ada,
        agents()[1],
        Agent("cyd", encoder, head, data=splits(40, 30), batch_size=20, frozen=True),
    ]


def start(case: str, cyd: str, out: Path | None = None, epochs: int = 4, **options) -> Network:
    options = {"checkpoint_every": 3, "seed": 7, **options}
    return train(team(cyd), EDGES, METHODS[case](), pilots(), epochs=epochs, out=out, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    start("distillation", "pca", out)
    return out


def test_agents_without_a_head_send_and_cannot_read(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    known = {(e["sender"], e["receiver"]): e["communication_accuracy"] for e in summary["edges"]}
    assert {edge for edge, accuracy in known.items() if accuracy is not None} == {
        ("ada", "bob"),
        ("cyd", "bob"),
    }
    assert [name for name, a in summary["agents"].items() if a["private_accuracy"] is None] == [
        "ada",
        "cyd",
    ]
    assert summary["rounds"] == 4 * 6  # the mean of 6 and 5 batches
    assert all(e["misalignment"] is not None for e in summary["edges"])


def test_the_report_shows_them(whole: Path) -> None:
    content = page([read_run(whole)])
    for words in ("VICReg, no head", "cross_entropy", "nothing, it is frozen"):
        assert f"objective {words}" in content


def test_weights_on_disk(whole: Path) -> None:
    saved = load_checkpoint(whole / "last.safetensors")["agents"]
    assert saved["ada"]["agent"]["head"] is None
    assert saved["cyd"]["agent"]["encoder"] == {}
    assert saved["cyd"]["agent"]["head"] is None


@pytest.mark.parametrize(
    ("case", "cyd"), [("distillation", "pca"), ("consensus", "network"), ("alone", "network")]
)
@pytest.mark.usefixtures("short_reading_heads")
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path: Path, case: str, cyd: str) -> None:
    start(case, cyd, tmp_path / "whole")
    start(case, cyd, tmp_path / "parts", epochs=2)
    start(case, cyd, tmp_path / "parts", resume=True)
    assert results(tmp_path / "whole") == results(tmp_path / "parts")


@pytest.mark.parametrize(("case", "cyd"), [("distillation", "pca"), ("strict", "network")])
def test_an_agent_without_a_head_sends_and_does_not_read(case: str, cyd: str) -> None:
    here = evaluate_locally(start(case, cyd, epochs=1).nodes, oracle=False)
    assert ("ada", "bob") in here.communication
    assert not any(receiver == "ada" for _, receiver in here.communication)


def test_a_head_without_labels_learns_by_distillation() -> None:
    def accuracy(distillation: Distillation | None) -> float:
        ada, bob, cyd = team("network")
        head = seeded(8, lambda: nn.Linear(5, CLASSES))
        options = {"optimizer": lambda p: SGD(p, lr=0.05, momentum=0.9), "batch_size": 8}
        ada = Agent("ada", ada.encoder, head, data=ada.data, objective=ada.objective, **options)
        method = SheafFRL(pilots_per_round=PILOTS, distillation=distillation)
        options = {"epochs": 25, "evaluate_every": 25, "seed": 7, "oracle": False}
        options |= {"rounds_per_epoch": 1}
        run = train([ada, bob, cyd], EDGES, method, pilots(), **options)
        return run.history.evaluation.private["ada"]

    assert accuracy(Distillation(confidence=0.6)) > accuracy(None) + 0.2


def test_metadata_says_which_agents_learn() -> None:
    learning = {a.name: agent_metadata(a, 0).learns for a in [*team("pca"), *team("network")[:1]]}
    assert learning == {"ada": True, "bob": True, "cyd": False}
    last = agent_metadata(team("network")[2], 0)
    assert last.learns
    assert last.objective == "cross_entropy, encoder frozen"
