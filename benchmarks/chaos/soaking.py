"""A soak from its config to its report."""

import json
import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import networkx as nx

from chaos import checks, samples
from chaos.experiment import METHOD, ROUNDS_PER_EPOCH, edges_of, write_config
from chaos.faults import Kept, read_kept
from chaos.figure import draw
from chaos.launcher import MachineLauncher
from chaos.machines import Machines
from chaos.plan import Plan
from chaos.schedule import Fault, schedule
from chaos.supervision import SAMPLES, Supervisor, unsuccessful
from chaos.trends import TRENDS, slope
from sheafed.config.reading import read_experiment
from sheafed.config.running import run_experiment
from sheafed.network.launcher import CERTIFICATES
from sheafed.network.peer_summary import gather
from sheafed.transport.zenoh.certificates import make_certificates

STOP_SECONDS, FINISH_SECONDS = 120.0, 900.0
CALM_EPOCHS = 20
"""After the last fault, in which agents that returned learn what they missed."""
DISK_BYTES = 48 << 20
SPARED = 4
"""One agent of so many is never killed: what grows over hours is seen in it."""
OPTIONS = ["--deadline", "3", "--lease", "4", "--allow-code", str(METHOD)]
REPORT, FIGURE = "report.json", "soak.png"


class Soak:
    """A soak; `run` does all of it.

    Args:
        plan: what it is to be.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.names, self.out = plan, plan.names, plan.out
        self.edges = edges_of(self.names)
        self.config, self.disks, self.agents = (
            self.out / name for name in ("config.toml", "machines", "agents")
        )
        self.faults: list[Fault] = schedule(
            *(self.names, self.edges),
            seconds=plan.seconds,
            every=plan.every,
            longest=plan.longest,
            spared=self.names[len(self.names) - len(self.names) // SPARED :],
            seed=plan.seed,
        )
        self.problems: list[str] = []
        self.kept: list[Kept] = []
        """The checkpoints of killed agents, and those of all agents after the last fault."""

    def run(self) -> dict[str, Any]:
        """Return, and write, what was measured and which checks failed."""
        began = time.monotonic()
        self.disks.mkdir(parents=True)
        write_config(self.config, self.names, seed=self.plan.seed, pause=self.plan.pause)
        machines = Machines(self.names, self.disks, self.out, DISK_BYTES)
        make_certificates(self.disks / CERTIFICATES, self.names, list(machines.addresses.values()))
        try:
            self._disturb(machines)
            epochs = self._finish(machines)
        finally:  # what agents wrote, from disks that end with this program
            for name in self.names:
                machines.free_disk(name)
                shutil.copytree(machines.disk(name), self.agents / name)
        calm = self._undisturbed(epochs)
        report = self._report(epochs, calm)
        report["wall_seconds"] = round(time.monotonic() - began)
        (self.out / REPORT).write_text(json.dumps(report, indent=2), encoding="utf-8")
        return report

    def _disturb(self, machines: Machines) -> None:
        """Train under faults, then let all agents end."""
        with self._launcher(machines) as launcher:
            supervisor = Supervisor(
                launcher, machines, self.names, self.out, self.plan.sample_every
            )
            self.problems, self.kept = supervisor.faults.problems, supervisor.faults.kept
            launcher.start()
            supervisor.await_training()
            supervisor.run(self.faults, self.plan.seconds)
            supervisor.stop(STOP_SECONDS)
        if left := set(samples.processes()) - {1, os.getpid()}:
            self.problems.append(f"processes are left over: {sorted(left)}")
        for name in self.names:
            self.kept += read_kept(machines.disk(name), name, supervisor.now)

    def _finish(self, machines: Machines) -> int:
        """Resume all agents without faults, for some epochs; return the epochs of the training."""
        epochs = max(each.rounds for each in self.kept) // ROUNDS_PER_EPOCH + CALM_EPOCHS
        with self._launcher(machines, "--set", f"training.epochs={epochs}") as launcher:
            launcher.start()
            self.problems += unsuccessful(launcher, FINISH_SECONDS)
        return epochs

    def _undisturbed(self, epochs: int) -> list[dict[str, Any]]:
        """Train the same network in this process, without pauses; return its records.

        That its messages cross no network changes no figure (`tests/network/test_launcher.py`).
        """
        overrides = [f"training.epochs={epochs}", "method.options.pause=0"]
        network = run_experiment(
            read_experiment(self.config, overrides),
            self.out / "undisturbed",
            progress=False,
            allow_code=[METHOD],
        )
        return network.history.records

    def _report(self, epochs: int, calm: list[dict[str, Any]]) -> dict[str, Any]:
        found, faulty = samples.read(self.out / SAMPLES), gather(self.agents)
        slopes = {trend.name: slope(found, trend) for trend in TRENDS}
        records = mean_records(self.agents, self.names)
        accuracies = {
            "undisturbed": checks.late_means(calm),
            "under_faults": checks.late_means(records),
        }
        draw(self.out / FIGURE, found, self.faults, calm, records)
        problems = [
            *self.problems,
            *checks.unfinished(self.agents, self.names, epochs * ROUNDS_PER_EPOCH),
            *checks.lost_records(self.agents, self.kept),
            *checks.unordered(self.agents, self.names, self.kept),
            *checks.went_back(found, self.kept),
            *checks.unevaluated(faulty, self.edges),
            *checks.differences(*accuracies.values(), self.plan.difference),
            *checks.growth(slopes),
        ]
        return {
            "plan": {key: str(value) for key, value in asdict(self.plan).items()},
            "faults": dict(Counter(fault.kind for fault in self.faults)),
            "rounds": epochs * ROUNDS_PER_EPOCH,
            "missed_rounds": {
                name: known["missed_rounds"] for name, known in faulty["agents"].items()
            },
            **accuracies,
            "growth_per_hour": slopes,
            "allowed_growth_per_hour": {trend.name: trend.most_per_hour for trend in TRENDS},
            "problems": problems,
        }

    def _launcher(self, machines: Machines, *options: str) -> MachineLauncher:
        graph = nx.Graph(self.edges)
        return MachineLauncher(machines, self.config, graph, self.disks, [*OPTIONS, *options])


def mean_records(agents: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the means over agents of what each has measured, by round."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name in names:
        for record in checks.records(agents / name):
            for key in checks.ACCURACIES:
                if record[key] is not None:
                    found[record["round"]][key].append(record[key])
    return [
        {"round": round, **{key: fmean(values) for key, values in of.items()}}
        for round, of in sorted(found.items())
    ]
