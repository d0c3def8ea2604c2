"""Communication accuracy against bytes: how rarely and how coarsely latents may be exchanged.

    python benchmarks/bytes.py --out out/bytes

Trains every variant on digits and on the MNIST pair, goes on where it was interrupted, and writes a
table and a picture.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sheafed.bench.bytes import CASES
from sheafed.reproduction.figures import save
from sheafed.sweep.results import Row, tabulate, with_deviation
from sheafed.sweep.runner import Runner
from sheafed.sweep.trials import Trial

FULL, BYTE = "method.quantisation=none", "method.quantisation=int8"
VARIANTS = {
    "every round, float32": ("method.exchange_every=1", FULL),
    "every round, bytes": ("method.exchange_every=1", BYTE),
    "every 4th, bytes": ("method.exchange_every=4", BYTE),
    "every 8th, bytes": ("method.exchange_every=8", BYTE),
    "every 16th, bytes": ("method.exchange_every=16", BYTE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="instead of each case's")
    given = parser.parse_args()
    figure = Figure(figsize=(9, 4), layout="constrained")
    lines = ["| data | exchange | communication | private | MiB | fewer |", "|---" * 6 + "|"]
    panels = figure.subplots(1, len(CASES))
    for axes, (name, (config, *settings)) in zip(panels, CASES.items(), strict=True):
        shorter = [f"training.epochs={given.epochs}"] if given.epochs else []
        shorter += ["training.evaluate_every=1000", "training.oracle=false"]  # at the end only
        trials = [Trial(variant, (), seed) for variant in VARIANTS.values() for seed in given.seeds]
        runs = given.out / config
        with Runner(config, (*settings, *shorter), runs, given.jobs) as runner:
            runner.run(trials)
        table = tabulate(trials, runs)
        lines += as_lines(name, table)
        draw(axes, name, table)
    options = {"loc": "outside lower center", "ncols": 5, "fontsize": 8, "frameon": False}
    figure.legend(*panels[0].get_legend_handles_labels(), **options)
    text = "\n".join(lines) + "\n"
    (given.out / "bytes.md").write_text(text)
    save(figure, given.out, "bytes")
    print(text)


def as_lines(name: str, table: Sequence[Row]) -> list[str]:
    everything = table[0].mean["bytes_sent"] or 0
    found = []
    for label, row in zip(VARIANTS, table, strict=True):
        sent = row.mean["bytes_sent"] or 1
        keys = ("communication_accuracy", "private_accuracy")
        cells = [with_deviation(row.mean[key], row.deviation[key]) for key in keys]
        amount = f"{sent / 2**20:.2f} | {everything / sent:.1f} times"
        found.append(f"| {name} | {label} | {' | '.join(cells)} | {amount} |")
    return found


def draw(axes: Axes, name: str, table: Sequence[Row]) -> None:
    key = "communication_accuracy"
    for k, (label, row) in enumerate(zip(VARIANTS, table, strict=True)):
        axes.errorbar(
            (row.mean["bytes_sent"] or 0) / 2**20,
            row.mean[key] or 0.0,
            yerr=row.deviation[key],
            color=("#000000", "#D55E00", "#CC79A7", "#0072B2", "#009E73")[k],
            marker="oD^vP"[k],
            capsize=2,
            linestyle="none",
            label=label,
        )
    axes.set(xscale="log", xlabel="MiB sent", ylabel="communication accuracy", title=name)
    axes.grid(color="#dddddd", lw=0.6)


if __name__ == "__main__":
    main()
