"""`sheafed align` and `sheafed send`: post-hoc alignment of latents in files."""

import math
import sys
import warnings
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sheafed import alignment
from sheafed.alignment.fitting import WhiteningSource
from sheafed.alignment.kinds import KINDS, Maps
from sheafed.alignment.selection import Goal
from sheafed.atomic_io import written_atomically
from sheafed.errors import AlignmentQualityError, InputError, UndeterminedMapWarning
from sheafed.linalg.checks import check_fraction
from sheafed.linalg.whitening import Shrinkage

SHOWN_CYCLES = 10


def align(
    latents: Annotated[
        list[str],
        typer.Argument(
            help="NAME=FILE.npy, one per agent: latents (K, d) of the pilots, with rows of NaN "
            "where an agent lacks a pilot"
        ),
    ],
    out: Annotated[Path, typer.Option(help="directory for the alignment")],
    edge: Annotated[
        list[str] | None, typer.Option(help="A:B, repeatable; all pairs by default")
    ] = None,
    whitening: Annotated[
        str, typer.Option(help="data to fit the whitening on: pilots, private or none")
    ] = "pilots",
    private: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE.npy, repeatable: latents of private data"),
    ] = None,
    shrinkage: Annotated[
        str, typer.Option(help="of the covariance before whitening: auto, or a number in [0, 1]")
    ] = "auto",
    maps: Annotated[
        str,
        typer.Option(help=f"kind of map: auto (by held-out pilots), {', '.join(KINDS)}, joint"),
    ] = "auto",
    goal: Annotated[
        str, typer.Option(help="what maps are chosen for: read (by heads) or match (by the cosine)")
    ] = "read",
    joint: Annotated[
        bool,
        typer.Option("--joint", help="let maps through the common space of all agents compete"),
    ] = False,
    gate: Annotated[
        float | None,
        typer.Option(
            help="fail, and write nothing, if the held-out quality of a pair (read: how often the "
            "right pilot is the nearest of ten; match: mean reciprocal rank) is below this number "
            "in [0, 1]"
        ),
    ] = None,
) -> None:
    """Align encoders that were trained separately, from the latents of shared pilots."""
    if gate is not None:
        check_fraction("--gate", gate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UndeterminedMapWarning)
        fitted = alignment.align(
            _read_named(latents),
            graph=None if edge is None else [_parse_edge(e) for e in edge],
            whitening=_parse_whitening(whitening),
            shrinkage=_parse_shrinkage(shrinkage),
            private=None if private is None else _read_named(private),
            maps=cast("Maps", maps),  # checked there, as every name is
            goal=cast("Goal", goal),
            joint=joint,
        )
    report = fitted.report()
    _print_report(report, Console())
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    if gate is not None:
        _check_gate(report, gate)
    fitted.save(out)
    print(f"wrote {out}; next: sheafed send --alignment {out} --from A --to B z.npy --out out.npy")


def send(
    latents: Annotated[Path, typer.Argument(help="the sender's latents (n, d), a .npy file")],
    alignment_directory: Annotated[
        Path, typer.Option("--alignment", help="directory that `sheafed align` wrote")
    ],
    sender: Annotated[str, typer.Option("--from", help="name of the sender")],
    receiver: Annotated[str, typer.Option("--to", help="name of the receiver")],
    out: Annotated[Path, typer.Option(help="the .npy file to write")],
    no_check: Annotated[
        bool,
        typer.Option(
            "--no-check", help="send latents that statistics show to be of another encoder"
        ),
    ] = False,
) -> None:
    """Map one agent's latents into another agent's latent space; the file may exceed memory."""
    fitted = alignment.Alignment.load(alignment_directory)
    given = _read_array(latents, mapped=True)
    link = fitted.link(sender, receiver)
    if not no_check:
        fitted.fingerprints[sender].check(sender, given)
    received = _send_file(link, given, out)
    print(f"{' -> '.join(fitted.path(sender, receiver))}: wrote {received} to {out}")


def _send_file(link: alignment.AffineMap, given: NDArray[Any], path: Path) -> tuple[int, ...]:
    """Write what a map makes of an array, part by part, and return the shape."""
    shape = (*given.shape[:-1], len(link.value))
    parts = link.chunks(given)
    first = next(parts)  # input that cannot be mapped raises before anything is written
    console = Console(stderr=True)
    header = {"descr": np.lib.format.dtype_to_descr(given.dtype), "fortran_order": False}
    with (
        written_atomically(path) as file,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        # Not a mapped file: on a full disk, writing to one ends the process.
        np.lib.format.write_array_header_1_0(file, {**header, "shape": shape})
        task = progress.add_task("sending", total=math.prod(shape[:-1]))
        for numbers, part in chain([first], parts):
            file.write(part.tobytes())
            progress.update(task, completed=numbers.stop)
    return shape


def _check_gate(report: alignment.AlignmentReport, gate: float) -> None:
    poor = report.below(gate)
    if poor:
        named = ", ".join(
            f"{p.sender} -> {p.receiver} {_shown(p.quality(report.goal))}" for p in poor
        )
        raise AlignmentQualityError(
            f"the held-out quality of {len(poor)} of {len(report.pairs)} pairs is below --gate "
            f"{gate}: {named}; nothing was written; use more pilots, or other encoders"
        )


def _print_report(report: alignment.AlignmentReport, console: Console) -> None:
    console.print(_pairs_table(report))
    _print_sheaf(report, console)


def _pairs_table(report: alignment.AlignmentReport) -> Table:
    sizes = sorted({pair.fold_size for pair in report.pairs if pair.fold_size})
    among = " to ".join(dict.fromkeys((str(sizes[0]), str(sizes[-1]))))
    pairs = _table(
        f"Maps on held-out pilots (matching: among {among}), for goal {report.goal}",
        ("from", "to", "map"),
        ("residual", "top-1", "reciprocal rank", "first of ten", "verdict"),
    )
    for pair in report.pairs:
        pairs.add_row(
            pair.sender,
            pair.receiver,
            " ".join([pair.kind, *(f"{key} {value:.3g}" for key, value in pair.strength.items())]),
            _shown(pair.residual, 4)
            + ("" if pair.residual_spread is None else f" ± {pair.residual_spread:.4f}"),
            _shown(pair.top1),
            _shown(pair.reciprocal_rank),
            _shown(pair.first_of_ten),
            pair.verdict,
        )
    return pairs


def _shown(figure: float | None, digits: int = 3) -> str:
    return "not judged" if figure is None else f"{figure:.{digits}f}"


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title)
    for heading in texts:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _print_sheaf(report: alignment.AlignmentReport, console: Console) -> None:
    edges = _table(
        "Edges (misalignment of the fitted pilots: 0 aligned, 1 unrelated)",
        ("from", "to", "sizes"),
        ("misalignment", "rank", "gap", "undetermined"),
    )
    for fit in report.edges:
        edges.add_row(
            fit.tail,
            fit.head,
            f"{fit.d_tail} -> {fit.d_head}",
            _shown(fit.misalignment, 4),
            f"{fit.rank}/{fit.d_tail}",
            f"{fit.gap:.1e}",
            str(fit.undetermined_dimension or "-"),
        )
    console.print(edges)
    if not report.cycles:
        return
    worst = sorted(report.cycles, key=lambda h: -h.deviation)[:SHOWN_CYCLES]
    title = f"Round trips, {len(worst)} worst of {len(report.cycles)}"
    cycles = _table(title, ("cycle",), ("holonomy",))
    for holonomy in worst:
        round_trip = (*holonomy.cycle, holonomy.cycle[0])
        cycles.add_row(" -> ".join(round_trip), f"{holonomy.deviation:.4f}")
    console.print(cycles)


def _read_named(arguments: list[str]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for argument in arguments:
        name, separator, file = argument.partition("=")
        if not (name and separator and file):
            raise InputError(f"expected NAME=FILE.npy, got {argument!r}")
        if name in arrays:
            raise InputError(f"agent {name!r} is given twice; give every agent one file")
        arrays[name] = _read_array(Path(file))
    return arrays


def _read_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise InputError(
            f"cannot read {path} as a NumPy array ({problem}); write one with numpy.save"
        ) from problem
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} contains several arrays; give a .npy file with one")
    return array


def _parse_edge(text: str) -> tuple[str, str]:
    one, separator, other = text.partition(":")
    if not (one and separator and other):
        raise InputError(f"expected --edge A:B, got {text!r}")
    return one, other


def _parse_whitening(text: str) -> WhiteningSource | None:
    match text:
        case "pilots" | "private":
            return text
        case "none":
            return None
    raise InputError(f"--whitening must be pilots, private or none, got {text!r}")


def _parse_shrinkage(text: str) -> Shrinkage:
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError as problem:
        raise InputError(
            f"--shrinkage must be auto or a number in [0, 1], got {text!r}"
        ) from problem
