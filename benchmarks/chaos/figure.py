"""The curves of a soak."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chaos.samples import Sample
from chaos.schedule import KINDS, Fault

MIB = 1 << 20


def draw(
    path: Path,
    samples: Sequence[Sample],
    faults: Sequence[Fault],
    calm: Sequence[Mapping[str, Any]],
    faulty: Sequence[Mapping[str, Any]],
) -> None:
    """Draw what agents used over time, the faults, and the accuracy over rounds."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    panels = figure.subplots(3, 2)
    _over_time(panels[0, 0], samples, "memory of each agent (MiB)", lambda s: s.rss / MIB)
    _over_time(panels[0, 1], samples, "descriptors of each agent", lambda s: s.descriptors)
    _over_time(
        panels[1, 0],
        samples,
        "files without records (MiB)",
        lambda s: (s.directory_bytes - s.metrics_bytes) / MIB,
    )
    _over_time(panels[1, 1], samples, "round", lambda s: s.round)
    kinds = list(KINDS)
    panels[2, 0].scatter(
        [fault.begin / 60 for fault in faults],
        [kinds.index(fault.kind) for fault in faults],
        marker="|",
    )
    panels[2, 0].set_yticks(range(len(kinds)), kinds)
    panels[2, 0].set_title("faults")
    panels[2, 0].set_xlabel("minutes")
    for label, records in (("undisturbed", calm), ("under faults", faulty)):
        for key, style in (("communication_accuracy", "-"), ("private_accuracy", ":")):
            known = [(r["round"], r[key]) for r in records if r.get(key) is not None]
            panels[2, 1].plot(*zip(*known, strict=True), style, label=f"{key[:-9]}, {label}")
    panels[2, 1].set_ylim(bottom=0.5)
    panels[2, 1].legend(fontsize="small")
    panels[2, 1].set_title("accuracy, mean of all agents")
    panels[2, 1].set_xlabel("round")
    figure.savefig(path, dpi=120)


def _over_time(axes: Axes, samples: Sequence[Sample], title: str, value: Any) -> None:
    lives = defaultdict(list)
    for sample in samples:
        lives[sample.agent, sample.life].append(sample)
    colours = {name: f"C{k}" for k, name in enumerate(sorted({s.agent for s in samples}))}
    for (agent, _), life in lives.items():
        axes.plot(
            [s.seconds / 60 for s in life],
            [value(s) for s in life],
            color=colours[agent],
            linewidth=1,
        )
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.set_xlabel("minutes")
