"""Runs agents under a schedule of faults, starts those that end, and measures all of them."""

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from chaos import samples
from chaos.faults import Faults
from chaos.launcher import MachineLauncher
from chaos.machines import Machines
from chaos.schedule import Fault
from sheafed.network.status import Status

TICK = 0.1
JOIN_SECONDS = 600.0
RESTART_SECONDS = 5.0
EVENTS, SAMPLES = "events.jsonl", "samples.csv"


class Supervisor:
    """What an operator and a service manager do.

    Args:
        launcher: of the agents.
        machines: that they run on.
        names: of the agents.
        out: for the events and the samples.
        sample_every: seconds.
    """

    def __init__(
        self,
        launcher: MachineLauncher,
        machines: Machines,
        names: Sequence[str],
        out: Path,
        sample_every: float,
    ) -> None:
        self.faults = Faults(launcher, machines, list(names))
        self._launcher, self._machines = launcher, machines
        self._names, self._out, self._sample_every = names, out, sample_every
        self._lives: dict[str, tuple[int, int, float]] = {}  # pid, number and begin of each life
        self._began = time.monotonic()
        self._restarts: dict[str, float] = {}

    @property
    def now(self) -> float:
        """Seconds since the begin of the soak."""
        return time.monotonic() - self._began

    def await_training(self) -> None:
        """Wait until all agents train; the clock of the soak begins then."""
        end = time.monotonic() + JOIN_SECONDS
        while not self._all_train():
            if time.monotonic() > end or self._dead():
                raise SystemExit(
                    f"not all agents train after {JOIN_SECONDS} s; ended: {self._dead()}"
                )
            time.sleep(TICK)
        self._began = time.monotonic()

    def run(self, faults: Sequence[Fault], seconds: float) -> None:
        """Let the faults strike, and end all of them, for so many seconds."""
        waiting, under_way = sorted(faults, key=lambda f: f.begin), list[Fault]()
        next_sample = 0.0
        while self.now < seconds or waiting or under_way:
            for fault in [f for f in under_way if f.end <= self.now]:
                under_way.remove(fault)
                self._note(fault, "end")
                self.faults.end(fault)
            while waiting and waiting[0].begin <= self.now:
                fault = waiting.pop(0)
                self._note(fault, "begin")
                self.faults.begin(fault, self.now)
                under_way.append(fault)
            self._restart_dead()
            if self.now >= next_sample:
                next_sample += self._sample_every
                self.sample()
            time.sleep(TICK)
        self.sample()

    def stop(self, seconds: float) -> None:
        """Let all agents write a checkpoint and end."""
        self._launcher.send_signal(signal.SIGINT)
        self.faults.problems += unsuccessful(self._launcher, seconds)

    def sample(self) -> None:
        statuses, found = self._launcher.statuses(), []
        for name in self._names:
            process, known = self._launcher.processes[name], statuses.get(name)
            if process.poll() is None:
                number, age = self._life(name, process.pid)
                found.append(
                    samples.take(
                        *(self.now, name, number, age, process.pid),
                        self._machines.disk(name),
                        # Not that of an earlier process, which may be of a round before its end.
                        known if known is not None and known.pid == process.pid else Status(name),
                    )
                )
        samples.append(self._out / SAMPLES, [sample for sample in found if sample is not None])

    def _life(self, name: str, pid: int) -> tuple[int, float]:
        """Return which life of an agent a process is, and how long it has lasted."""
        if name not in self._lives or self._lives[name][0] != pid:
            number = self._lives[name][1] + 1 if name in self._lives else 0
            self._lives[name] = pid, number, self.now
        _, number, began = self._lives[name]
        return number, self.now - began

    def _all_train(self) -> bool:
        statuses = self._launcher.statuses()
        return all(n in statuses and statuses[n].state == "training" for n in self._names)

    def _dead(self) -> list[str]:
        return [
            name
            for name, process in self._launcher.processes.items()
            if name not in self.faults.down and process.poll() is not None
        ]

    def _restart_dead(self) -> None:
        """Start agents that have ended by themselves, some time later."""
        for name in self._dead():
            if name not in self._restarts:
                code = self._launcher.processes[name].returncode
                lines = self._launcher.log(name).read_text(errors="replace").strip().splitlines()
                text = f"{name} ended at {self.now:.0f} s with {code}: {' | '.join(lines[-3:])}"
                self.faults.problems.append(text)
                print(text, flush=True)
                self._restarts[name] = self.now + RESTART_SECONDS
            elif self.now >= self._restarts[name]:
                del self._restarts[name]
                self._launcher.start(name)

    def _note(self, fault: Fault, what: str) -> None:
        event = {"at": round(self.now, 1), "what": what, **asdict(fault)}
        with (self._out / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
        detail = f" {fault.detail}" if fault.detail else ""
        print(
            f"{self.now:7.1f} s: {what} {fault.kind} {' '.join(fault.agents)}{detail}", flush=True
        )


def unsuccessful(launcher: MachineLauncher, seconds: float) -> list[str]:
    """Wait for all agents to end; return which did not, or failed."""
    with suppress(subprocess.TimeoutExpired):
        launcher.wait(seconds)
    codes = {name: process.poll() for name, process in launcher.processes.items()}
    return [f"{name} ended with {code}" for name, code in codes.items() if code != 0]
