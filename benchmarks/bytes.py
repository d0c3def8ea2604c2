"""Communication accuracy against bytes: how rarely and how coarsely latents may be exchanged.

    python benchmarks/bytes.py --out out/bytes

Trains every variant on digits and on the MNIST pair and writes a table and a figure. An interrupted
command continues where it stopped.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sheafed.bench.bytes import CASES
from sheafed.reproduction.figures import save_figure
from sheafed.sweep import Row, Runner, Trial, markdown_table, tabulate, with_deviation

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
    rows = []
    panels = figure.subplots(1, len(CASES))
    for axes, (name, (config, *settings)) in zip(panels, CASES.items(), strict=True):
        shorter = [f"training.epochs={given.epochs}"] if given.epochs else []
        shorter += ["training.evaluate_every=1000", "training.oracle=false"]  # at the end only
        trials = [Trial(variant, (), seed) for variant in VARIANTS.values() for seed in given.seeds]
        runs = given.out / config
        with Runner(config, (*settings, *shorter), runs, given.jobs) as runner:
            runner.run(trials)
        table = tabulate(trials, runs)
        rows += as_rows(name, table)
        draw(axes, name, table)
    options = {"loc": "outside lower center", "ncols": 5, "fontsize": 8, "frameon": False}
    figure.legend(*panels[0].get_legend_handles_labels(), **options)
    headings = ["data", "exchange", "communication", "private", "MiB", "fewer"]
    text = markdown_table(headings, rows)
    (given.out / "bytes.md").write_text(text)
    save_figure(figure, given.out, "bytes")
    print(text)


def as_rows(name: str, table: Sequence[Row]) -> list[list[str]]:
    most = table[0].mean["bytes_sent"] or 0
    rows = []
    for label, row in zip(VARIANTS, table, strict=True):
        sent = row.mean["bytes_sent"] or 1
        keys = ("communication_accuracy", "private_accuracy")
        cells = [with_deviation(row.mean[key], row.deviation[key]) for key in keys]
        rows.append([name, label, *cells, f"{sent / 2**20:.2f}", f"{most / sent:.1f} times"])
    return rows


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
