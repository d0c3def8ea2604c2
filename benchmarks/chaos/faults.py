"""What each kind of fault does to a network of machines, and how it is undone."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import strangers
from chaos.launcher import MachineLauncher
from chaos.machines import PORT, Machines
from chaos.schedule import Fault
from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT
from sheafed.errors import CheckpointError
from sheafed.network.launcher import CERTIFICATES
from sheafed.transport import Ledger
from sheafed.transport.zenoh.certificates import renew_certificates, replace_authority

EXPIRY_SECONDS = 2.0
"""For which a certificate that is to expire is valid."""
ATTACK_RATES = {"idle": (float("inf"), 600), "hold": (100.0, 100)}
"""Connections per second, and at a time; the others come at 100 a second without end."""


@dataclass(frozen=True)
class Kept:
    """What a killed agent had in its checkpoint: all of it has to be there in the end."""

    agent: str
    seconds: float
    rounds: int
    missed: int
    bytes_sent: int
    records: list[dict[str, Any]]


class Faults:
    """Begins and ends faults.

    Args:
        launcher: of the agents.
        machines: that they run on.
        names: of all agents.
    """

    def __init__(self, launcher: MachineLauncher, machines: Machines, names: list[str]) -> None:
        self.kept: list[Kept] = []
        """The checkpoints of killed agents."""
        self.down: set[str] = set()
        """Agents that were killed and not started yet."""
        self.problems: list[str] = []
        """What should not have happened."""
        self._launcher, self._machines, self._names = launcher, machines, names
        self._attacks: dict[Fault, subprocess.Popen[bytes]] = {}

    @property
    def certificates(self) -> Path:
        return self._launcher.out / CERTIFICATES

    def begin(self, fault: Fault, now: float) -> None:
        name, machines = fault.agents[0], self._machines
        actions: dict[str, Callable[[], object]] = {
            "kill": lambda: self._kill(name, now),
            "freeze": lambda: self._launcher.send_signal(signal.SIGSTOP, name),
            "cut": lambda: machines.cut(*fault.agents),
            "isolate": lambda: machines.isolate(name),
            "full disk": lambda: machines.fill_disk(name),
            "clock": lambda: machines.set_clock(name, int(fault.detail)),
            "renew": lambda: renew_certificates(self.certificates, [name]),
            "expire": lambda: renew_certificates(
                self.certificates, [name], days=EXPIRY_SECONDS / 86400
            ),
            "authority": lambda: replace_authority(self.certificates, self._names),
            "attack": lambda: self._attack(fault),
        }
        actions[fault.kind]()

    def end(self, fault: Fault) -> None:
        name, machines = fault.agents[0], self._machines
        actions: dict[str, Callable[[], object]] = {
            "kill": lambda: self._start(name),
            "freeze": lambda: self._launcher.send_signal(signal.SIGCONT, name),
            "cut": lambda: machines.cut(*fault.agents, restore=True),
            "isolate": lambda: machines.isolate(name, restore=True),
            "full disk": lambda: machines.free_disk(name),
            "clock": lambda: machines.set_clock(name, 0),
            "expire": lambda: renew_certificates(self.certificates, [name]),
            "attack": lambda: self._end_attack(fault),
        }
        actions.get(fault.kind, lambda: None)()

    def _kill(self, name: str, now: float) -> None:
        self.down.add(name)
        self._launcher.send_signal(signal.SIGKILL, name)
        self._launcher.processes[name].wait()
        try:
            self.kept += read_kept(self._machines.disk(name), name, now)
        except CheckpointError as problem:
            self.problems.append(f"{name} was killed at {now:.0f} s: {problem}")

    def _start(self, name: str) -> None:
        self._launcher.start(name)
        self.down.discard(name)

    def _attack(self, fault: Fault) -> None:
        rate, count = ATTACK_RATES.get(str(fault.detail), (100.0, 10**9))
        where = (self._machines.addresses[fault.agents[0]], str(PORT))
        how = ("--rate", str(rate), "--count", str(count))
        self._attacks[fault] = subprocess.Popen(
            [sys.executable, strangers.__file__, *where, str(fault.detail), *how]
        )

    def _end_attack(self, fault: Fault) -> None:
        attack = self._attacks.pop(fault)
        if attack.poll() is not None:
            self.problems.append(f"the strangers of {fault} gave up with {attack.returncode}")
        attack.kill()
        attack.wait()


def read_kept(directory: Path, name: str, now: float) -> list[Kept]:
    """Return what an agent has in its checkpoint; nothing if it has none yet."""
    path = directory / CHECKPOINT
    if not path.exists():
        return []
    state = load_checkpoint(path)
    sent = Ledger.from_state(state["ledger"]).bytes_sent()
    return [Kept(name, now, state["rounds"], state["missed"], sent, state["metrics"])]
