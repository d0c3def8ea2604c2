"""Networks of real processes with certificates on loopback, whole and under faults."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import torch

from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.cli.network import status
from sheafed.config.experiment import read
from sheafed.config.federation import build
from sheafed.network.launcher import CERTIFICATES, LOG, LocalLauncher
from sheafed.network.status import Status
from sheafed.network.summary import gather
from sheafed.training import Network, train
from sheafed.transport.zenoh.certificates import make_certificates
from tests.helpers.network_attacks import STRANGER, under_attack

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
checkpoint_every = {checkpoint_every}
oracle = false
"""
SENDER = 'objective = "vicreg"\nlabels = false'
AGENT = '[[model.agents]]\nname = "{}"\nencoder = "mlp"\nwidths = [{}]\nhead = [16]\ndropout = 0.1'


@pytest.fixture(autouse=True)
def _this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents import what is tested here, with one thread each."""
    path = [str(Path(sys.modules["sheafed"].__file__ or "").parents[1]), os.getenv("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def federation(
    out: Path,
    names: tuple[str, ...] = NAMES,
    *,
    graph: str = "ring",
    method: str = 'name = "sheaf-frl"\ndistillation = {}\nexchange_every = 1',
    epochs: int = 2,
    evaluate_every: int = 1,
    checkpoint_every: int = 5,
    last: str = "",
) -> Path:
    """Write a config, perhaps with more keys for the last agent, and the agents' certificates."""
    agents = "\n".join(AGENT.format(n, f"32, {12 + 4 * k}") for k, n in enumerate(names))
    agents = f"{agents}\n{last}"
    values = {"graph": graph, "method": method, "epochs": epochs, "agents": agents}
    values |= {"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every}
    config = out / "config.toml"
    config.write_text(CONFIG.format(**values))
    make_certificates(out / CERTIFICATES, [*names, STRANGER])
    return config


def network(config: Path, *options: str) -> LocalLauncher:
    return LocalLauncher(str(config), build(read(config)).graph, config.parent, options)


def in_process(config: Path) -> Network:
    experiment = read(config)
    built, table = build(experiment), experiment.training
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


def wait_until(agents: LocalLauncher, condition: Callable[[dict[str, Status]], bool]) -> None:
    end = time.monotonic() + 120
    while not condition(dict(agents.statuses())):
        assert time.monotonic() < end, logs(agents)
        assert all(agent.poll() in (None, 0, -9) for agent in agents.running.values()), logs(agents)
        time.sleep(0.02)


def reached(agents: LocalLauncher, round: int, *names: str) -> None:
    """Wait until these agents have a number of rounds behind them."""
    wait_until(agents, lambda s: all(n in s and s[n].round >= round for n in names))


def log(agents: LocalLauncher, name: str) -> str:
    return (agents.out / name / LOG).read_text()


def logs(agents: LocalLauncher) -> str:
    """Return the ends of all logs, to be shown."""
    return "\n".join(path.read_text()[-2000:] for path in sorted(agents.out.glob(f"*/{LOG}")))


def finished(agents: LocalLauncher) -> dict[str, dict]:
    """Wait for all; return their summaries."""
    codes = agents.wait(200)
    assert set(codes.values()) == {0}, logs(agents)
    assert not [name for name in codes if "Traceback" in log(agents, name)], logs(agents)
    return {n: json.loads((agents.out / n / "summary.json").read_text()) for n in codes}


@pytest.mark.parametrize(
    ("graph", "names", "method", "last", "attacked"),
    [
        (
            "ring",
            NAMES[:3],
            'name = "sheaf-frl"\ndistillation = {}\nexchange_every = 3',
            SENDER,
            True,
        ),
        ("line", NAMES[:2], 'name = "non-cooperative"', "", False),
    ],
)
def test_without_faults_and_under_attack_all_is_bit_for_bit_as_in_one_process(
    tmp_path: Path, graph: str, names: tuple[str, ...], method: str, last: str, attacked: bool
) -> None:
    config = federation(tmp_path, names, graph=graph, method=method, last=last)
    with network(config, "--deadline", "100") as agents, ExitStack() as attack:
        agents.start("b")
        expected = in_process(config)
        if attacked:
            attack.enter_context(under_attack(agents, "b", "a", tmp_path / "another authority"))
        agents.start(*(name for name in names if name != "b"))
        finished(agents)
    if attacked:
        b = agents.statuses()["b"]
        assert {"size", "magic", "header", "sender", "receiver", "channel"} <= b.rejected.keys()
        assert sum(b.rejected.values()) > 100
        assert b.unknown_peers.keys() == {STRANGER}
        assert "WARN" in log(agents, "b")  # of Zenoh, about the certificate of another authority
        assert "zenoh_link_tls" in log(agents, "b")
    for name in names:
        weights = load_checkpoint(tmp_path / name / "last.safetensors")
        agent = expected.agents[name]
        assert (agent.head is None) == (last == SENDER and name == names[-1])
        for part, module in (("encoder", agent.encoder), ("head", agent.head)):
            if module is None:
                assert weights[part] is None
                continue
            own = module.state_dict()
            assert weights[part].keys() == own.keys()
            assert all(torch.equal(weights[part][key], own[key]) for key in own)
    lines = {
        name: list(map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines()))
        for name in names
    }
    for k, record in enumerate(expected.history.records):
        for name in names:
            own = lines[name][k]
            assert own["private_accuracy"] == record["agents"][name]["private_accuracy"]
            assert own["agents"] == {name: record["agents"][name]}
    evaluation = expected.history.evaluation
    assert evaluation is not None
    summary = gather(tmp_path)
    found = {(e["sender"], e["receiver"]): e["communication_accuracy"] for e in summary["edges"]}
    assert {pair: v for pair, v in found.items() if v is not None} == evaluation.communication
    apart = {
        (e["receiver"], e["sender"]): e["misalignment"]
        for e in summary["edges"]
        if e["misalignment"] is not None
    }
    assert apart == pytest.approx(evaluation.misalignment, rel=1e-12)
    for key, value in evaluation.summary().items():
        assert summary[key] == (None if key == "oracle_accuracy" else pytest.approx(value))


class Cable:
    """Carries the bytes of a link, until it is cut, and again when it is mended."""

    def __init__(self, to: str) -> None:
        self._to = ("127.0.0.1", int(to.rpartition(":")[2]))
        self._plugs: list[socket.socket] = []
        self._cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tls/127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut = True
        for plug in self._plugs:
            with suppress(OSError):
                plug.shutdown(socket.SHUT_RDWR)
        self._plugs.clear()

    def mend(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    if self._cut:
                        raise ConnectionRefusedError
                    far = socket.create_connection(self._to)
                except ConnectionRefusedError:
                    near.close()
                    continue
                self._plugs += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(1 << 16):
                other.sendall(data)


@pytest.fixture
def cables() -> Iterator[list[Cable]]:
    laid: list[Cable] = []
    yield laid
    for cable in laid:
        cable.close()


def test_killed_frozen_and_cut_off_agents_return_and_all_learn_as_much(
    tmp_path: Path, cables: list[Cable]
) -> None:
    config = federation(tmp_path, graph="line", epochs=80, evaluate_every=80)
    agents = network(config, "--deadline", "1", "--lease", "2")
    cables.append(cable := Cable(agents.endpoints["b"]))
    command = agents.commands["c"]
    command[command.index(agents.endpoints["b"])] = cable.endpoint
    with agents:
        agents.start()
        reached(agents, 20, *NAMES)
        cable.cut()  # a and b here, c and d there
        wait_until(agents, lambda s: "c" in s["b"].absent and "b" in s["c"].absent)
        reached(agents, max(s.round for s in agents.statuses().values()) + 20, *NAMES)
        agents.send_signal(signal.SIGKILL, "a")
        agents.running["a"].wait()
        kept = load_checkpoint(tmp_path / "a" / "checkpoint.safetensors")
        agents.start("a")
        agents.send_signal(signal.SIGSTOP, "d")
        wait_until(agents, lambda s: "d" in s["c"].absent)  # its lease has ended
        at = agents.statuses()
        reached(agents, at["b"].round + 10, "b")  # although they are alone now
        reached(agents, at["c"].round + 10, "c")
        cable.mend()
        agents.send_signal(signal.SIGCONT, "d")
        expected = in_process(config)
        summaries = finished(agents)
    assert kept["rounds"] >= 35
    # It went on from there: nothing checkpointed was done again, or lost.
    assert f"a was away in rounds {kept['rounds']} to " in log(agents, "a")
    assert summaries["a"]["missed_rounds"] > 0
    assert summaries["d"]["missed_rounds"] > 0
    assert summaries["b"]["left_out"]["c"] >= 15
    assert {s["rounds"] for s in summaries.values()} == {expected.history.rounds}
    summary = gather(tmp_path)
    assert len(summary["edges"]) == 6  # everybody was there at the end, and understood
    accuracy = expected.history.records[-1]["communication_accuracy"]
    # How many rounds the killed miss depends on how long processes take to start, and the test sets
    # are small: this tells learning from not learning. benchmarks/network_faults.py measures.
    assert summary["communication_accuracy"] > accuracy - 0.15


def test_network_up_shows_its_agents_and_ends_them_cleanly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = federation(tmp_path, NAMES[:2], graph="line", epochs=100_000, evaluate_every=100_000)
    out = tmp_path / "up"
    command = [sys.executable, "-m", "sheafed", "network", "up", str(config), "--out", str(out)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        agents = network(config)
        agents.out = out
        reached(agents, 3, *NAMES[:2])
        status(out)
        shown = capsys.readouterr().out
        started.send_signal(signal.SIGINT)
        said, _ = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 0
    assert "ending all agents after their current round" in said
    assert shown.count("training") == 2
    for name, found in agents.statuses().items():
        assert found.state == "stopped"
        saved = load_checkpoint(out / name / "checkpoint.safetensors")
        assert saved["rounds"] == found.round >= 3
        with pytest.raises(ProcessLookupError):
            os.kill(found.pid, 0)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize(("number", "begun"), [(signal.SIGINT, 0), (signal.SIGHUP, 3)])
def test_network_up_leaves_nobody_behind(tmp_path: Path, number: int, begun: int) -> None:
    """Neither while agents are still starting, nor when its terminal is closed."""
    config = federation(tmp_path, NAMES[:2], graph="line", epochs=100_000, evaluate_every=100_000)
    out = tmp_path / "up"
    command = [sys.executable, "-m", "sheafed", "network", "up", str(config), "--out", str(out)]
    complaints = tmp_path / "complaints"
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    with complaints.open("w") as file:
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    signal.signal(signal.SIGHUP, hang_up)
    agents = network(config)
    agents.out = out

    def theirs() -> list[int]:
        found = []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has just ended
                if f"--out\0{out}/" in command.read_text(errors="replace"):
                    found.append(int(command.parent.name))
        return found

    try:
        if begun:
            reached(agents, begun, *NAMES[:2])
        else:
            wait_until(agents, lambda _: len(theirs()) == 2)
        started.send_signal(number)
        started.wait(60)
        left = theirs()
    finally:
        started.kill()
        started.wait()
        for process in theirs():
            os.kill(process, signal.SIGKILL)
    assert (started.returncode, complaints.read_text(), left) == (0, "", [])
    assert "Traceback" not in logs(agents)


@pytest.mark.parametrize(("grace", "code"), [(30.0, 0), (0.0, -signal.SIGKILL)])
def test_agents_have_a_time_of_grace(tmp_path: Path, grace: float, code: int) -> None:
    slow = """
import time
from sheafed.network.graceful_shutdown import GracefulShutdown
with GracefulShutdown(lambda: None) as ending:
    print("ready", flush=True)
    while not ending.asked:
        time.sleep(0.01)
    time.sleep(0.5)
"""
    config = federation(tmp_path, NAMES[:2], graph="line")
    agents = LocalLauncher(str(config), build(read(config)).graph, tmp_path, grace=grace)
    agents.commands["a"] = [sys.executable, "-c", slow]
    with agents:
        agents.start("a")
        wait_until(agents, lambda _: "ready" in logs(agents))
    assert agents.wait() == {"a": code}
