"""`sheafed run` in several processes, started by torchrun."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sheafed.config import running
from sheafed.config.reading import read_experiment
from sheafed.errors import LostRankError
from sheafed.training import Cluster
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


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The results of one process, which is not killed."""
    directory = tmp_path_factory.mktemp("single")
    (directory / "doomed.py").write_text(DOOMED)
    overrides = [word for word in (*SHORT, *CUSTOM) if word != "--set"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        running.run_experiment(read_experiment("digits", overrides), directory / "out")
    return bytes_of(directory / "out")


@pytest.fixture
def doomed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "doomed.py").write_text(DOOMED)


def sheafed(*arguments: Any) -> tuple[int, str]:
    """Call the command line in a process of its own; return its exit code and its complaints."""
    command = [sys.executable, "-m", "sheafed", *map(str, arguments)]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return ended.returncode, ended.stderr


def bytes_of(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in RESULTS]


@pytest.mark.usefixtures("doomed")
def test_killed_processes_are_named_restarted_and_resumed_by_another(
    expected: list[bytes], tmp_path: Path, run: Callable[..., Any]
) -> None:
    command = ["run", "digits", "--out", "parts", *SHORT, *CUSTOM]
    code, complaints = sheafed(*command, "--processes", 2, "--max-restarts", 1)
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

    monkeypatch.setattr(running, "plot_label_distribution", lost)
    with pytest.raises(LostRankError):
        running.run_experiment(read_experiment("digits"), tmp_path, cluster=TwoRanks())
    assert (tmp_path / "config.json").exists()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert was_begun_here(tmp_path)


def unless_in_ci(reason: str) -> NoReturn:
    """Skip a test that this machine cannot run; where all must run, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two network namespaces with addresses of their own, joined by a cable."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    names = [f"sheafed-{os.getpid()}-{k}" for k in range(2)]
    with ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            ip("link", "add", "sheaf0", "netns", names[0], "type", "veth", "peer", "name", "sheaf1",
               "netns", names[1])  # fmt: skip
            for k, name in enumerate(names):
                ip("-n", name, "addr", "add", f"10.77.0.{k + 1}/24", "dev", f"sheaf{k}")
                for device in ("lo", f"sheaf{k}"):
                    ip("-n", name, "link", "set", device, "up")
        except FileNotFoundError:
            unless_in_ci("network namespaces need the program ip; on Debian: iproute2")
        except subprocess.CalledProcessError as problem:
            if b"not permitted" not in problem.stderr:
                raise
            unless_in_ci("network namespaces need root")
        yield names


@pytest.mark.usefixtures("doomed")
def test_two_hosts_with_addresses_of_their_own(
    hosts: list[str], expected: list[bytes], tmp_path: Path
) -> None:
    Path("killed").write_text("7 11 ")  # restarts are tried on one host
    processes = []
    for k, host in enumerate(hosts):
        torchrun = [
            *("ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes", "2", "--nproc-per-node", "1", "--local-addr", f"10.77.0.{k + 1}"),
            *("--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-endpoint", "10.77.0.1:29400"),
            # torchrun recognises a host by its name, and these two have the same.
            *("--rdzv-conf", f"is_host={1 - k}"),
            *("-m", "sheafed"),
        ]
        command = [*torchrun, "run", "digits", "--out", "hosts", *SHORT, *CUSTOM, "--resume"]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": f"sheaf{k}", "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(command, env=environment))
    assert [process.wait() for process in processes] == [0, 0]
    assert bytes_of(tmp_path / "hosts") == expected
