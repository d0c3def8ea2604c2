"""`sheafed align` and `sheafed send`: post-hoc alignment of latents in files."""

from __future__ import annotations

import math
import sys
import warnings
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from sheafed.atomic_io import make_directory, written_atomically
from sheafed.errors import (
    AlignmentQualityError,
    InputError,
    MissingPilotsWarning,
    RepeatedPilotsWarning,
    UndeterminedMapWarning,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sheafed.alignment import AffineMap, AlignmentReport
    from sheafed.alignment.fitting import WhiteningSource
    from sheafed.alignment.kinds import Maps
    from sheafed.alignment.selection import Goal
    from sheafed.linalg.whitening import Shrinkage


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
        typer.Option(
            help="kind of map: auto (by held-out pilots), procrustes, ridge, rescaled-ridge, "
            "affine, low-rank, canonical, joint"
        ),
    ] = "auto",
    goal: Annotated[
        str,
        typer.Option(
            help="what maps are chosen for: read (by heads), match (with the receiver's own "
            "latents, by the cosine) or search (an index of mapped latents)"
        ),
    ] = "read",
    joint: Annotated[
        bool,
        typer.Option("--joint", help="let maps through the common space of all agents compete"),
    ] = False,
    gate: Annotated[
        float | None,
        typer.Option(
            help="fail, and write nothing, if the held-out quality of a pair (read: how often the "
            "right pilot is the nearest of ten; match: mean reciprocal rank of the right pilot; "
            "search: that of a query's nearest neighbour) is below this number in [0, 1]"
        ),
    ] = None,
) -> None:
    """Align encoders that were trained separately, from the latents of shared pilots."""
    from sheafed import alignment
    from sheafed.alignment.report_tables import cycles_table, edges_table
    from sheafed.linalg.checks import check_fraction

    if gate is not None:
        check_fraction("--gate", gate)
    with warnings.catch_warnings(record=True) as caught:
        for named in (MissingPilotsWarning, RepeatedPilotsWarning, UndeterminedMapWarning):
            warnings.simplefilter("always", named)
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
    console = Console()
    console.print(report, edges_table(report))
    if report.cycles:
        console.print(cycles_table(report))
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    if gate is not None:
        _check_gate(report, gate)
    fitted.save(out)
    following = f"next: sheafed send --alignment {out} --from A --to B z.npy --out out.npy"
    print(f"wrote {out}; {report.doubt or following}")


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
    from sheafed.alignment import Alignment

    if out.exists() and latents.exists() and out.samefile(latents):
        raise InputError(
            f"--out {out} is the file of the latents themselves, which would be lost; give another"
        )
    fitted = Alignment.load(alignment_directory)
    given = _read_array(latents, mapped=True)
    link = fitted.link(sender, receiver)
    if not no_check:
        fitted.fingerprints[sender].check(sender, given)
    make_directory(out.parent)
    received = _send_file(link, given, out)
    print(f"{' -> '.join(fitted.path(sender, receiver))}: wrote {received} to {out}")


def _send_file(link: AffineMap, given: NDArray[Any], path: Path) -> tuple[int, ...]:
    """Write what a map makes of an array, part by part, and return the shape."""
    import numpy as np
    from rich.progress import Progress

    shape = (*given.shape[:-1], len(link.value))
    parts = link.chunks(given)
    first = next(parts)  # input that cannot be mapped raises before anything is written
    console = Console(stderr=True)
    header = {"descr": np.lib.format.dtype_to_descr(first[1].dtype), "fortran_order": False}
    with (
        written_atomically(path) as file,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        # Not a mapped file: on a full disk, writing to one ends the process.
        np.lib.format.write_array_header_1_0(file, {**header, "shape": shape})
        task = progress.add_task("sending", total=math.prod(shape[:-1]))
        for numbers, part in chain([first], parts):
            file.write(part.data)
            progress.update(task, completed=numbers.stop)
    return shape


def _check_gate(report: AlignmentReport, gate: float) -> None:
    poor = report.below(gate)
    if poor:
        named = ", ".join(
            f"{pair.sender} -> {pair.receiver} {_shown(pair.quality(report.goal), gate)}"
            for pair in poor
        )
        raise AlignmentQualityError(
            f"the held-out quality of {len(poor)} of {len(report.pairs)} pairs is below --gate "
            f"{gate}: {named}; nothing was written; use more pilots, or other encoders"
        )


def _shown(quality: float | None, gate: float) -> str:
    """Return a quality below the gate in as many digits as show that."""
    if quality is None:
        return "not judged"
    texts = (f"{quality:.{digits}f}" for digits in range(3, 17))
    return next((text for text in texts if float(text) < gate), str(quality))


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
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError, OverflowError, MemoryError) as problem:
        # What is no array, NumPy takes for a pickle, and advises to trust it.
        reason = "it is no .npy file of numbers" if "pickle" in str(problem) else problem
        raise InputError(
            f"cannot read {path} as a NumPy array ({reason}); write one with numpy.save"
        ) from problem
    if not isinstance(array, np.ndarray):
        names = array.files
        array.close()
        raise InputError(
            f"{path} is an archive of arrays, {names}; write one of them with numpy.save, and give "
            "that .npy file"
        )
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
