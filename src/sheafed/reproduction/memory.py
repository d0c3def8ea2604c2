r"""fig:gamma_memory: memory of Sheaf-FMTL's restriction maps, dense and in rank-one form.

Every map is $d_{ij} \times n_i$ with $d_{ij} = \max(1, \lfloor \gamma \min(n_i, n_j) \rfloor)$. The
paper stores them densely in half precision; here a map is its seeded start and one rank-one term
per exchange (`sheafed.methods.sheaf_fmtl.low_rank_maps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.config.experiment import Experiment
from sheafed.config.federation import Federation, build_federation
from sheafed.config.reading import read_experiment
from sheafed.errors import InputError
from sheafed.methods.sheaf_fmtl.method import edge_size
from sheafed.reproduction.captions import percent
from sheafed.reproduction.figures import write_files
from sheafed.sweep.results import is_finished, read_summary
from sheafed.sweep.runner import Runner, read_failure
from sheafed.sweep.tables import csv_table, markdown_table
from sheafed.sweep.trials import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GIB = 2**30
HALF, SINGLE, INDEX, SIGN = 2, 4, 8, 1
"""Bytes of a number: stored in the paper, in training, of a chosen row, of a column's sign."""
SHARE = 0.6
"""The share of the available memory that a run may take."""
OUT_OF_MEMORY = ("MemoryError", "allocate memory", "bad_alloc", "failed to map segment")

Edges = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class MemoryPlan:
    """The values of gamma to measure, and the settings of their runs."""

    scale: str
    config: str
    settings: tuple[str, ...]
    gammas: tuple[str, ...]
    seed: int
    bound: int | None = None
    """Bytes that a run may take; `SHARE` of the available memory by default."""

    def trials(self) -> list[Trial]:
        """Return one run per gamma."""
        return [Trial((f"method.gamma={gamma}",), (), self.seed) for gamma in self.gammas]

    def experiment(self, overrides: Sequence[str] = ()) -> Experiment:
        """Return the experiment with these overrides."""
        return read_experiment(self.config, (*self.settings, *overrides))


@dataclass(frozen=True)
class MemoryPoint:
    """Bytes at one gamma."""

    gamma: float
    dense: int
    """By `dense_bytes`."""
    rank_one: int
    """By `rank_one_bytes`."""
    measured: int | None
    """The peak resident memory of the run, if it finished."""
    stopped: bool
    """Whether the run exceeded its bound."""
    failure: str | None


def quick(seeds: Sequence[int]) -> MemoryPlan:
    """A few values of gamma and a part of the data, on which memory hardly depends."""
    settings = ("data.train_fraction=0.1", "data.pilot_fraction=0.02")
    gammas = ("1e-4", "1e-3", "1e-2")
    return MemoryPlan("quick", "fifteen", (*_METHOD, *settings), gammas, seeds[0])


def paper(seeds: Sequence[int]) -> MemoryPlan:
    """An epoch on all data, as in app:exp_details."""
    gammas = ("1e-5", "1e-4", "3e-4", "1e-3", "3e-3", "1e-2", "3e-2", "1e-1")
    return MemoryPlan("paper", "fifteen", _METHOD, gammas, seeds[0])


_METHOD = (
    "method.name=sheaf-fmtl",
    "method.every=1",
    "training.epochs=1",
    "training.oracle=false",
)


def reproduce(plan: MemoryPlan, out: Path) -> str:
    """Measure what is missing, one run at a time; write figure, tables and description."""
    runs, trials = out / "runs", plan.trials()
    available = available_memory()
    bound = plan.bound or int(SHARE * available)
    runner = Runner(plan.config, plan.settings, runs, jobs=1, memory=bound)
    runner.check(trials)
    with runner:
        runner.run(trials)
    federation = build_federation(plan.experiment(trials[0].overrides))
    sizes, edges = parameter_counts(federation), list(federation.graph.edges)
    summaries = [read_summary(trial, runs) for trial in trials if is_finished(trial, runs)]
    exchanges = max((summary["rounds"] for summary in summaries), default=0)
    points = [
        _point(trial, gamma, sizes, edges, exchanges, runs)
        for trial, gamma in zip(trials, plan.gammas, strict=True)
    ]
    figure = _draw(plan, points, sizes, edges, exchanges, available)
    text = _description(plan, federation, sizes, exchanges, available, bound)
    write_files(out, "memory", figure, _as_csv(points), _as_markdown(points), text)
    return text


def parameter_counts(federation: Federation) -> dict[str, int]:
    """Return n_i, the trainable parameters of every agent."""
    return {
        agent.name: sum(p.numel() for p in agent.parameters if p.requires_grad)
        for agent in federation.agents
    }


def dense_bytes(sizes: Mapping[str, int], edges: Edges, gamma: float) -> int:
    """Return the storage of dense half-precision maps and single-precision parameters."""
    entries = sum(edge_size(gamma, sizes[i], sizes[j]) * (sizes[i] + sizes[j]) for i, j in edges)
    return HALF * entries + SINGLE * sum(sizes.values())


def rank_one_bytes(sizes: Mapping[str, int], edges: Edges, gamma: float, exchanges: int) -> int:
    """Return the storage of the maps as seeded start and rank-one terms, and of the parameters.

    An agent whose terms would take as much as its dense maps stores the dense maps instead.
    """
    listed = list(edges)
    total = SINGLE * sum(sizes.values())
    for name, n in sizes.items():
        endpoints = [i if j == name else j for i, j in listed if name in (i, j)]
        rows = sum(edge_size(gamma, n, sizes[other]) for other in endpoints)
        total += SIGN * len(endpoints) * n + INDEX * rows
        terms = exchanges * (n + rows) if exchanges < rows else n * rows
        total += SINGLE * terms
    return total


def available_memory() -> int:
    """Return how many bytes new processes can use without swapping."""
    path = Path("/proc/meminfo")
    if not path.exists():
        raise InputError("the available memory is read from /proc/meminfo; run this on Linux")
    fields = dict(line.split(":") for line in path.read_text(encoding="utf-8").splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def _point(
    trial: Trial,
    gamma: str,
    sizes: Mapping[str, int],
    edges: list[tuple[str, str]],
    exchanges: int,
    runs: Path,
) -> MemoryPoint:
    finished = is_finished(trial, runs)
    error = None if finished else read_failure(trial, runs)
    return MemoryPoint(
        gamma=float(gamma),
        dense=dense_bytes(sizes, edges, float(gamma)),
        rank_one=rank_one_bytes(sizes, edges, float(gamma), exchanges),
        measured=read_summary(trial, runs)["peak_memory_bytes"] if finished else None,
        stopped=error is not None and any(sign in error for sign in OUT_OF_MEMORY),
        failure=error,
    )


def _draw(
    plan: MemoryPlan,
    points: Sequence[MemoryPoint],
    sizes: Mapping[str, int],
    edges: list[tuple[str, str]],
    exchanges: int,
    available: int,
) -> Figure:
    from matplotlib.figure import Figure  # lazily: slow to import

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    low, high = points[0].gamma, points[-1].gamma
    steps = 60
    grid = [low * (high / low) ** (k / steps) for k in range(steps + 1)]
    dense = [dense_bytes(sizes, edges, gamma) / GIB for gamma in grid]
    rank_one = [rank_one_bytes(sizes, edges, gamma, exchanges) / GIB for gamma in grid]
    axes.plot(grid, dense, color="#0072B2", lw=2, label="dense maps, half precision (formula)")
    label = f"rank-one form after {exchanges} exchanges (formula)"
    axes.plot(grid, rank_one, color="#E69F00", lw=2, ls="-.", label=label)
    axes.axhline(available / GIB, color="#555555", ls="--", label="available memory")
    measured = [(p.gamma, p.measured / GIB) for p in points if p.measured is not None]
    if measured:
        label = "rank-one form, peak of a whole run (measured)"
        axes.plot(*zip(*measured, strict=True), "o", color="#009E73", ms=8, label=label)
    stopped = [p.gamma for p in points if p.stopped]
    if stopped:
        top = [available / GIB] * len(stopped)
        axes.plot(stopped, top, "x", color="#D55E00", ms=10, mew=2, label="exceeded its bound")
    axes.set(xscale="log", yscale="log", xlabel="gamma", ylabel="GiB")
    axes.set_title(_subtitle(plan, sizes, exchanges), fontsize=10)
    axes.grid(color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _subtitle(plan: MemoryPlan, sizes: Mapping[str, int], exchanges: int) -> str:
    data = plan.experiment().data
    return (
        f"{plan.scale}: {len(sizes)} agents, {percent(data.train_fraction)} of the training data "
        f"of {data.name}, {exchanges} rounds, 1 seed"
    )


def _as_markdown(points: Sequence[MemoryPoint]) -> str:
    headings = ("dense, half precision (GiB)", "rank-one form (GiB)", "measured peak (GiB)")
    rows = []
    for p in points:
        error = "exceeded its bound" if p.stopped else f"failed: {(p.failure or '?').strip()}"
        peak = error.splitlines()[-1] if p.measured is None else f"{p.measured / GIB:.2f}"
        rows.append([f"{p.gamma:g}", f"{p.dense / GIB:.3f}", f"{p.rank_one / GIB:.3f}", peak])
    return markdown_table(["gamma", *headings], rows)


def _as_csv(points: Sequence[MemoryPoint]) -> str:
    return csv_table(
        ["gamma", "dense_bytes", "rank_one_bytes", "measured_peak_bytes", "stopped"],
        ([f"{p.gamma:g}", p.dense, p.rank_one, p.measured, str(p.stopped).lower()] for p in points),
    )


def _description(
    plan: MemoryPlan,
    federation: Federation,
    sizes: Mapping[str, int],
    exchanges: int,
    available: int,
    bound: int,
) -> str:
    experiment = plan.experiment()
    data, training = experiment.data, experiment.training
    return (
        f"fig:gamma_memory at scale {plan.scale}. {len(sizes)} agents with "
        f"{sum(sizes.values()):,} parameters and {federation.graph.number_of_edges()} edges. "
        "Formulas: dense maps in half precision (2 bytes per number), and the rank-one form after "
        f"{exchanges} exchanges (4 bytes per number of a term; for the start a byte per column and "
        "neighbour and 8 bytes per row), both with the parameters in single precision. Measured: "
        "the peak resident memory of a whole process, including libraries, data, training, "
        f"evaluation and checkpoint, that trains Sheaf-FMTL in the rank-one form for "
        f"{training.epochs} epoch(s) of {exchanges} rounds on {percent(data.train_fraction)} of "
        f"the training data of {data.name}, with an exchange in every round; one run per gamma "
        f"({', '.join(plan.gammas)}), one at a time, seed {plan.seed}, {training.threads} torch "
        f"thread(s). Available memory when drawn: {available / GIB:.1f} GiB; a run was stopped "
        "when its address space, which is larger than its resident memory, reached "
        f"{bound / GIB:.1f} GiB.\n"
    )
