"""Runs trials in processes of their own, some at a time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TypeVar

from sheafed.atomic_io import make_directory, write_atomically
from sheafed.checkpointing.run_directory import CONFIG, LOCK
from sheafed.config.custom_method import CustomMethod
from sheafed.config.experiment import Experiment
from sheafed.config.reading import read_experiment
from sheafed.config.running import read_config
from sheafed.errors import ConfigError, SheafedError, SweepError
from sheafed.file_locks import INHERITED, open_locked
from sheafed.sweep.processes import CAN_FORK, ForkedProcesses, NewProcesses, Processes
from sheafed.sweep.results import is_finished
from sheafed.sweep.trials import Trial

FAILURE = "failure.txt"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner:
    """Runs trials of one config, each in a process of its own.

    On Linux the processes are forked from one that has loaded the libraries, as loading takes
    longer than a small trial; with a limit on memory or on a GPU each is a new one. An interruption
    stops the processes; the next runner continues from their checkpoints. A lock, which the
    processes inherit (not on Windows), keeps a second runner out of the same directory, even if the
    first was killed and its processes are still running. The error message of a failed trial is
    kept in its directory as `failure.txt` until the trial is run again.

    Args:
        config: a preset or a file.
        overrides: `table.key=value` of all trials.
        out: contains the directories of the trials.
        jobs: how many trials run at a time.
        memory: an upper limit for a trial's address space, in bytes; only on Linux.
        allow_code: modules, or files `NAME.py`, that the config may run, see `CustomMethod`.
    """

    def __init__(
        self,
        config: str,
        overrides: Sequence[str],
        out: Path,
        jobs: int,
        memory: int | None = None,
        allow_code: Sequence[str] = (),
    ) -> None:
        self.config, self.overrides, self.out, self.jobs = config, tuple(overrides), out, jobs
        if memory is not None and sys.platform != "linux":
            raise SweepError("memory can be limited on Linux only; leave the limit out")
        self.memory, self.allow_code = memory, tuple(allow_code)
        self._idle: dict[bool, list[Processes]] = {True: [], False: []}
        self._busy: set[Processes] = set()
        self._guard = Lock()
        self._stopped = False
        self._progress = _Progress(0)

    def __enter__(self) -> Runner:
        make_directory(self.out, private=True)
        lock = open_locked(self.out / LOCK)
        if lock is None:
            raise SweepError(
                f"{self.out} is in use by another command, or by runs that one left behind; "
                "wait for them to end, or choose another --out"
            )
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        for idle in self._idle.values():
            while idle:  # a runner that is entered again starts others, which inherit its lock
                idle.pop().close()
        os.close(self._lock)

    def experiment(self, overrides: Sequence[str]) -> Experiment:
        """Return the experiment with these further overrides."""
        return read_experiment(self.config, (*self.overrides, *overrides))

    def checked(self, overrides: Sequence[str]) -> Experiment:
        """Return the experiment; raise if a method of your own does not take its options."""
        experiment = self.experiment(overrides)
        if isinstance(experiment.method, CustomMethod):
            experiment.method.load(self.allow_code)
        return experiment

    def check(self, trials: Iterable[Trial]) -> None:
        """Raise on an invalid trial, and on one whose directory has a run of another config."""
        for trial in trials:
            experiment = self.checked(trial.overrides)
            directory = self.out / trial.directory
            if (directory / CONFIG).exists() and read_config(directory) != experiment:
                raise ConfigError(
                    f"{directory} was run with another config; repeat the command with the same "
                    "config, or choose another --out"
                )

    def run(self, trials: Iterable[Trial], title: str = "") -> None:
        """Run the trials that have not finished."""
        trials = list(dict.fromkeys(trials))
        missing = [trial for trial in trials if not is_finished(trial, self.out)]
        counts = f"{len(trials)} runs, {len(trials) - len(missing)} done, {len(missing)} to go"
        print(f"{title}: {counts}" if title else counts, flush=True)
        self.expect(len(missing))
        self.map(self.ensure, missing)

    def expect(self, number: int) -> None:
        """Show progress for this many trials from now on."""
        self._progress = _Progress(number)

    def ensure(self, trial: Trial) -> bool:
        """Run a trial unless it has finished; return whether it finished."""
        if is_finished(trial, self.out):
            return True
        finished = self._run(trial)
        if not self._stopped:
            self._progress.show(trial, finished)
        return finished

    def _run(self, trial: Trial) -> bool:
        """Run a trial, from its checkpoint if it has one; return whether it finished."""
        directory = self.out / trial.directory
        make_directory(directory, private=True)
        arguments = ["run", self.config, "--resume", "--out", str(directory)]
        for override in (*self.overrides, *trial.overrides):
            arguments += ["--set", override]
        for allowed in self.allow_code:
            arguments += ["--allow-code", allowed]
        forks = self._can_fork(trial)
        with self._guard:
            if self._stopped:
                return False
            processes = self._idle[forks].pop() if self._idle[forks] else self._processes(forks)
            processes.start(arguments)
            self._busy.add(processes)
        ended = processes.wait()
        with self._guard:
            self._busy.remove(processes)
            self._idle[forks].append(processes)
        if ended.code == 0:
            (directory / FAILURE).unlink(missing_ok=True)
        elif not self._stopped:
            reason = ended.errors.strip()[-2000:] or f"ended with code {ended.code}"
            write_atomically(directory / FAILURE, reason.encode())
        return ended.code == 0

    def _can_fork(self, trial: Trial) -> bool:
        """Whether a trial may be forked: its memory is its own to use, and it needs no GPU.

        A process that has looked for GPUs, as loading does, cannot use them in its forks.
        """
        if not CAN_FORK or self.memory is not None:
            return False
        try:
            return self.experiment(trial.overrides).training.device == "cpu"
        except SheafedError:  # which the command says
            return False

    def _processes(self, forks: bool) -> Processes:
        inherited = (self._lock,) if INHERITED else ()
        return ForkedProcesses(inherited) if forks else NewProcesses(inherited, self.memory)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Apply a function that runs trials to all items, `jobs` at a time."""
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                return list(pool.map(function, items))
            except BaseException:
                self._stop()
                raise

    def _stop(self) -> None:
        with self._guard:
            self._stopped = True
            for processes in self._busy:
                processes.terminate()


def read_failure(trial: Trial, out: Path) -> str | None:
    """Return the error message of a trial whose last run failed."""
    path = out / trial.directory / FAILURE
    return path.read_text(encoding="utf-8") if path.exists() else None


class _Progress:
    """Prints a line per trial, with the time that has passed."""

    def __init__(self, total: int) -> None:
        self.total, self.ended, self.began, self._guard = total, 0, time.monotonic(), Lock()

    def show(self, trial: Trial, finished: bool) -> None:
        with self._guard:
            self.ended += 1
            state = "done" if finished else "failed"
            passed = time.monotonic() - self.began
            overrides = " ".join(trial.overrides)
            print(
                f"{state} {self.ended}/{self.total} after {passed:.0f} s: {overrides}", flush=True
            )
