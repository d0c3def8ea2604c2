"""Networks of real processes with certificates on loopback, whole and under faults."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.cli.network import status, watch
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.network.launcher import CERTIFICATES, LOG, START, LocalLauncher
from sheafed.network.peer_summary import gather
from sheafed.network.status import Status, read_statuses
from sheafed.training import Network, train
from tests.helpers.certificates import UNKNOWN
from tests.helpers.network_attacks import under_attack
from tests.helpers.preloaded_launcher import ForkedProcess, PreloadedLauncher
from tests.helpers.tcp_proxy import TcpProxy

NAMES = ("a", "b", "c", "d")
CONFIG = """
[data]
name = "digits"
partition = "iid"
pilot_fraction = 0.2
split = [0.5, 0.1, 0.4]

{agents}

[graph]
kind = "{graph}"

[method]
{method}

[training]
epochs = {epochs}
batch_size = 16
learning_rate = 0.05
evaluate_every = {evaluate_every}
checkpoint_every = 5
oracle = false
"""
WITHOUT_HEAD = 'objective = "vicreg"\nlabels = false'
AGENT = '[[model.agents]]\nname = "{}"\nencoder = "mlp"\nwidths = [{}]\nhead = [16]\ndropout = 0.1'
PACED = Path(__file__).parents[2] / "benchmarks" / "chaos" / "paced_sheaf_frl.py"
# Unpaced, an agent that has no neighbour left trains to the end while the test still waits.
PACED_METHOD = """name = "custom"
factory = "paced_sheaf_frl:PacedSheafFRL"
options = { pause = 0.02, exchange_every = 1 }"""
WriteConfig = Callable[..., Path]


@pytest.fixture(autouse=True)
def _this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes import the source that is tested, with one thread each."""
    path = [str(Path(sys.modules["sheafed"].__file__ or "").parents[1]), os.getenv("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def write_config(tmp_path: Path, certificates: Path) -> WriteConfig:
    (tmp_path / CERTIFICATES).symlink_to(certificates)

    def write(
        names: tuple[str, ...] = NAMES,
        *,
        graph: str = "line",
        method: str = 'name = "sheaf-frl"\ndistillation = {}\nexchange_every = 1',
        epochs: int = 2,
        evaluate_every: int = 1,
        last: str = "",
    ) -> Path:
        """Write a config, perhaps with more keys for the last agent."""
        agents = "\n".join(AGENT.format(n, f"32, {12 + 4 * k}") for k, n in enumerate(names))
        values = {"agents": f"{agents}\n{last}", "graph": graph, "method": method}
        values |= {"epochs": epochs, "evaluate_every": evaluate_every}
        path = tmp_path / "config.toml"
        path.write_text(CONFIG.format(**values))
        return path

    return write


def launcher_of(config: Path, *options: str, code: Path | None = None) -> LocalLauncher:
    allowed = [] if code is None else [code]
    graph = build_federation(read_experiment(config), only=[], allow_code=allowed).graph
    words = [*options, *(f"--allow-code={path}" for path in allowed)]
    return PreloadedLauncher(str(config), graph, config.parent, words)


def in_process(config: Path) -> Network:
    experiment = read_experiment(config)
    built, table = build_federation(experiment), experiment.training
    return train(
        built.agents,
        built.graph,
        built.method,
        built.pilots,
        epochs=table.epochs,
        seed=experiment.seed,
        evaluate_every=table.evaluate_every,
        oracle=False,
    )


def wait_until(out: Path, condition: Callable[[dict[str, Status]], bool]) -> None:
    end = time.monotonic() + 120
    while not condition(read_statuses(out)):
        assert time.monotonic() < end, logs(out)
        time.sleep(0.02)


def reached(out: Path, round: int, *names: str) -> None:
    """Wait until these agents have finished a number of rounds."""
    wait_until(out, lambda s: all(n in s and s[n].round >= round for n in names))


def log(out: Path, name: str) -> str:
    return (out / name / LOG).read_text()


def logs(out: Path) -> str:
    """Return the ends of all logs, for the message of a failed assertion."""
    return "\n".join(path.read_text()[-2000:] for path in sorted(out.glob(f"*/{LOG}")))


def summaries(launcher: LocalLauncher) -> dict[str, dict[str, Any]]:
    """Wait for all agents and return their summaries."""
    codes, out = launcher.wait(200), launcher.out
    assert set(codes.values()) == {0}, logs(out)
    assert not [name for name in codes if "Traceback" in log(out, name)], logs(out)
    return {n: json.loads((out / n / "summary.json").read_text()) for n in codes}


@pytest.mark.parametrize(
    ("graph", "names", "method", "last", "attacked"),
    [
        (
            "ring",
            NAMES[:3],
            'name = "sheaf-frl"\ndistillation = {}\nexchange_every = 3',
            WITHOUT_HEAD,
            True,
        ),
        ("line", NAMES[:2], 'name = "non-cooperative"', "", False),
    ],
)
def test_without_faults_results_equal_those_of_one_process_even_under_attack(
    write_config: WriteConfig,
    certificates: Path,
    foreign_certificates: Path,
    graph: str,
    names: tuple[str, ...],
    method: str,
    last: str,
    attacked: bool,
) -> None:
    config = write_config(names, graph=graph, method=method, last=last)
    out = config.parent
    with launcher_of(config, "--deadline", "100") as launcher, ExitStack() as attack:
        launcher.start("b")
        expected = in_process(config)
        if attacked:
            attack.enter_context(
                under_attack(launcher, "b", "a", certificates, foreign_certificates)
            )
        launcher.start(*(name for name in names if name != "b"))
        summaries(launcher)
    if attacked:
        b = launcher.statuses()["b"]
        assert {"size", "magic", "header", "sender", "receiver", "channel"} <= b.rejected.keys()
        assert sum(b.rejected.values()) > 100
        assert b.unknown_peers.keys() == {UNKNOWN}
        # Zenoh's warning about the certificate of the other authority.
        assert any(
            "WARN" in line and "zenoh_link_tls" in line for line in log(out, "b").split("\n")
        )
        assert "\x1b" not in log(out, "b")  # colours are for terminals
    for name in names:
        weights = load_checkpoint(out / name / "last.safetensors")
        agent = expected.agents[name]
        assert (agent.head is None) == (last == WITHOUT_HEAD and name == names[-1])
        for part, module in (("encoder", agent.encoder), ("head", agent.head)):
            if module is None:
                assert weights[part] is None
                continue
            own = module.state_dict()
            assert weights[part].keys() == own.keys()
            assert all(torch.equal(weights[part][key], own[key]) for key in own)
    lines = {
        name: list(map(json.loads, (out / name / "metrics.jsonl").read_text().splitlines()))
        for name in names
    }
    for k, record in enumerate(expected.history.records):
        for name in names:
            own = lines[name][k]
            assert own["private_accuracy"] == record["agents"][name]["private_accuracy"]
            assert own["agents"] == {name: record["agents"][name]}
    evaluation = expected.history.evaluation
    assert evaluation is not None
    summary = gather(out)
    found = {(e["sender"], e["receiver"]): e["communication_accuracy"] for e in summary["edges"]}
    assert {pair: v for pair, v in found.items() if v is not None} == evaluation.communication
    misalignment = {
        (e["receiver"], e["sender"]): e["misalignment"]
        for e in summary["edges"]
        if e["misalignment"] is not None
    }
    assert misalignment == pytest.approx(evaluation.misalignment, rel=1e-12)
    for key, value in evaluation.summary().items():
        assert summary[key] == (None if key == "oracle_accuracy" else pytest.approx(value))


@pytest.fixture
def proxies() -> Iterator[list[TcpProxy]]:
    opened: list[TcpProxy] = []
    yield opened
    for proxy in opened:
        proxy.close()


def test_killed_frozen_and_cut_off_agents_return_and_all_agents_learn(
    write_config: WriteConfig, proxies: list[TcpProxy]
) -> None:
    config = write_config(method=PACED_METHOD, epochs=50, evaluate_every=50)
    out, launcher = (
        config.parent,
        launcher_of(config, "--deadline", "1", "--lease", "1", code=PACED),
    )
    proxies.append(link := TcpProxy(launcher.endpoints["b"]))
    command = launcher.commands["c"]
    command[command.index(launcher.endpoints["b"])] = link.endpoint
    with launcher:
        launcher.start()
        reached(out, 20, *NAMES)
        link.cut()  # between a, b and c, d
        wait_until(out, lambda s: "c" in s["b"].absent and "b" in s["c"].absent)
        reached(out, max(s.round for s in launcher.statuses().values()) + 20, *NAMES)
        launcher.send_signal(signal.SIGKILL, "a")
        launcher.processes["a"].wait()
        kept = load_checkpoint(out / "a" / "checkpoint.safetensors")
        launcher.start("a")
        launcher.send_signal(signal.SIGSTOP, "d")
        wait_until(out, lambda s: "d" in s["c"].absent)  # its lease has ended
        now = launcher.statuses()
        reached(out, now["b"].round + 10, "b")  # although they have no neighbour now
        reached(out, now["c"].round + 10, "c")
        link.restore()
        launcher.send_signal(signal.SIGCONT, "d")
        found = summaries(launcher)
    assert kept["rounds"] >= 35
    # It continued from there: nothing checkpointed was repeated, or lost.
    assert f"a was away in rounds {kept['rounds']} to " in log(out, "a")
    assert found["a"]["missed_rounds"] > 0
    assert found["d"]["missed_rounds"] > 0
    assert found["b"]["left_out"]["c"] >= 15
    assert all(found[name]["rounds"] == s.rounds for name, s in launcher.statuses().items())
    summary = gather(out)
    assert len(summary["edges"]) == 6  # all agents were evaluated at the end
    # Without faults it is 0.92. How many rounds a killed agent misses depends on how long processes
    # take to start, and the test sets are small: this tells learning from not learning,
    # `benchmarks/network_faults.py` measures the difference.
    assert summary["communication_accuracy"] > 0.65


def processes_of(out: Path) -> list[int]:
    """Return the processes of agents that write below a directory."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if f"--out\0{out}/" in command.read_text(errors="replace"):
                found.append(int(command.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_network_up_stops_agents_that_are_still_starting(write_config: WriteConfig) -> None:
    """By closing the terminal, which is handled as Ctrl-C is."""
    config = write_config(NAMES[:2])
    out, output = config.parent / "up", config.parent / "output"
    command = [sys.executable, "-m", "sheafed", "network", "up", str(config), "--out", str(out)]
    up = ForkedProcess(command, output)
    try:
        wait_until(out, lambda _: len(processes_of(out)) == 2)
        up.send_signal(signal.SIGHUP)
        code = up.wait(60)
        left = processes_of(out)
    finally:
        up.kill()
        up.wait()
        for process in processes_of(out):
            os.kill(process, signal.SIGKILL)
    assert (code, left) == (130, [])
    assert "continue with the same command and --resume" in output.read_text()
    assert "stopping all agents after their current round" in output.read_text()
    assert not re.search("Traceback|rror", output.read_text() + logs(out))


def test_agents_in_training_stop_cleanly(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    names = NAMES[:2]
    config = write_config(names, epochs=100_000, evaluate_every=100_000)
    out = config.parent
    with launcher_of(config) as launcher:
        launcher.start()
        reached(out, 3, *names)
        status(out)
        assert capsys.readouterr().out.count("training") == 2
        launcher.send_signal(signal.SIGINT, *names)
        assert launcher.wait(60) == dict.fromkeys(names, 0)
    assert "Traceback" not in logs(out)
    for name, found in read_statuses(out).items():
        assert found.state == "stopped"
        saved = load_checkpoint(out / name / "checkpoint.safetensors")
        assert saved["rounds"] == found.round >= 3


SLOW_TO_END = """
import signal, time

requested = []
signal.signal(signal.SIGINT, lambda *_: requested.append(True))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
print("ready", flush=True)
while not requested:
    time.sleep(0.01)
time.sleep(0.5)
"""


def test_starts_and_ends_are_lines_where_there_is_no_terminal(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(NAMES[:3])
    graph, out = build_federation(read_experiment(config), only=[]).graph, config.parent
    launcher = LocalLauncher(str(config), graph, out)
    ends = {"a": "pass", "b": "raise SystemExit(2)", "c": "import os; os.kill(os.getpid(), 9)"}
    for name, code in ends.items():
        launcher.commands[name] = [sys.executable, "-S", "-c", code]
    monkeypatch.setattr("sheafed.cli.network.POLL_SECONDS", 0.01)
    console = Console(file=StringIO(), width=40)
    with launcher:
        launcher.start()
        watch(launcher, console)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[:3] == [
        f"started {name}, process {process.pid}, output in {out}/{name}/{LOG}"
        for name, process in launcher.processes.items()
    ]
    assert sorted(lines[3:]) == [
        "a has ended",
        f"b failed with exit code 2; start it again by: sh {out}/b/{START}",
        f"c was killed by SIGKILL; start it again by: sh {out}/c/{START}",
    ]


def test_the_command_of_an_agent_is_kept_to_start_it_again(write_config: WriteConfig) -> None:
    config = write_config(NAMES[:2])
    graph, out = build_federation(read_experiment(config), only=[]).graph, config.parent
    launcher = LocalLauncher(str(config), graph, out)
    command = launcher.commands["a"]
    assert command[command.index("--listen") + 1] == launcher.endpoints["a"]
    launcher.commands["a"] = [
        sys.executable,
        "-S",
        "-c",
        "print('it''s', __import__('os').getcwd())",
    ]
    with launcher:
        launcher.start("a")
        launcher.wait()
    started = subprocess.check_output(["sh", str(out / "a" / START)], text=True, cwd="/")
    assert started == log(out, "a") == f"its {Path.cwd()}\n"


@pytest.mark.parametrize(("grace", "code"), [(30.0, 0), (0.0, -signal.SIGKILL)])
def test_agents_have_a_grace_period(write_config: WriteConfig, grace: float, code: int) -> None:
    config = write_config(NAMES[:2])
    graph, out = build_federation(read_experiment(config), only=[]).graph, config.parent
    launcher = LocalLauncher(str(config), graph, out, grace=grace)
    launcher.commands["a"] = [sys.executable, "-c", SLOW_TO_END]
    launcher.commands["b"] = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
    with launcher:
        launcher.start()
        wait_until(out, lambda _: "ready" in logs(out) and "b" in launcher.ended())
    assert launcher.wait() == {"a": code, "b": -signal.SIGKILL}
    assert launcher.killed == (["a"] if code else [])  # b had ended before
