"""`sheafed run` in several processes, started by torchrun."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sheafed.config import running
from sheafed.config.reading import read_experiment
from sheafed.errors import LostRankError
from sheafed.training import Callback, Cluster
from sheafed.training.torchrun import remember_cluster, was_begun_here

RESULTS = ("metrics.jsonl", "last.safetensors", "best.safetensors")
SHORT = ("--set", "training.epochs=3", "--set", "training.oracle=false")

DOOMED = """
import os
import signal
from pathlib import Path
from sheafed.methods import SheafFRL

class Doomed(SheafFRL):
    def node(self, context):
        node = super().node(context)
        receive, killed = node.receive, Path("killed")
        def doomed(round, inbox):
            before = killed.read_text().split() if killed.exists() else []
            if round in (7, 11) and str(round) not in before:
                with killed.open("a") as file:
                    file.write(f"{round} ")
                os.kill(os.getpid(), signal.SIGKILL)
            return receive(round, inbox)
        if context.agent.name == "cy" and "RANK" in os.environ:
            node.receive = doomed
        return node
"""
"""Sheaf-FRL, but the process of one agent is killed the first time that it reaches two rounds."""

CUSTOM = ("--set", "method.name=custom", "--set", "method.factory=doomed:Doomed")
ALLOWED = ("--allow-code", "doomed.py")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The results of one process, which is not killed."""
    directory = tmp_path_factory.mktemp("single")
    (directory / "doomed.py").write_text(DOOMED)
    overrides = [word for word in (*SHORT, *CUSTOM) if word != "--set"]
    running.run_experiment(
        read_experiment("digits", overrides),
        directory / "out",
        allow_code=[directory / "doomed.py"],
    )
    del sys.modules["doomed"]
    return bytes_of(directory / "out")


@pytest.fixture
def doomed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_modules: Callable[..., None]
) -> None:
    monkeypatch.chdir(tmp_path)
    forget_modules("doomed")
    (tmp_path / "doomed.py").write_text(DOOMED)


def bytes_of(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in RESULTS]


@pytest.mark.usefixtures("doomed")
@pytest.mark.filterwarnings("ignore:Unable to enable fault handler")  # of the captured output
def test_killed_processes_are_named_restarted_and_resumed_by_another(
    expected: list[bytes], tmp_path: Path, run: Callable[..., Any]
) -> None:
    command = ["run", "digits", "--out", "parts", *SHORT, *CUSTOM, *ALLOWED]
    # Real processes: a forked one would be seen to die later than the one that misses it.
    code, _, complaints = run(*command, "--processes", 2, "--max-restarts", 1)
    assert (tmp_path / "killed").read_text() == "7 11 "
    assert code == 2
    assert "error: rank 1 (agents cy, eli) was killed by SIGKILL; continue" in complaints
    code, _, complaint = run(*command, "--processes", 2)
    assert code == 2
    assert complaint == "error: parts already holds a run; give --resume, or another --out\n"
    assert run(*command, "--resume")[0] == 0
    assert bytes_of(tmp_path / "parts") == expected


def test_a_restart_resumes_only_what_its_first_attempt_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    remember_cluster(tmp_path, {"a": 0})
    assert not was_begun_here(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert was_begun_here(tmp_path)
    assert not was_begun_here(tmp_path / "elsewhere")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    assert not was_begun_here(tmp_path)


def test_a_start_that_was_cut_short_can_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise LostRankError("rank 1 was killed")

    class TwoRanks(Cluster):
        def __init__(self) -> None:
            self._ranks = SimpleNamespace(rank=0, size=2, placement={"ada": 0})

        def place(self, costs: Any) -> list[str]:
            return []

    def start(*_: Any, callbacks: Sequence[Callback], group: Any, **__: Any) -> None:
        callbacks[0].on_start(SimpleNamespace(group=group))  # type: ignore[arg-type]

    monkeypatch.setattr(running, "train", start)
    monkeypatch.setattr(running, "plot_label_distribution", lost)
    with pytest.raises(LostRankError):
        running.run_experiment(read_experiment("digits"), tmp_path, cluster=TwoRanks())
    assert (tmp_path / "config.json").exists()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert was_begun_here(tmp_path)
