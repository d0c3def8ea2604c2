"""Modules as files that run without this library: `torch.export` and ONNX."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from sheafed.agents.agent import Agent
from sheafed.agents.samples import Samples
from sheafed.atomic_io import make_directory, written_atomically
from sheafed.errors import (
    ExportError,
    FixedSizeWarning,
    InputError,
    MissingDependencyError,
    OutputError,
)
from sheafed.tensor_tree import TensorTree, map_tensors, tensors

SUFFIXES = (".onnx", ".pt2")
EXAMPLES = 2
"""Rows of an example: with one, the exporter would take the size of a batch for a constant."""
COMPARED = 64
"""Samples of a split whose sizes are compared."""
METADATA = "sheafed.json"
"""The name of the description within a `.pt2` file."""
LINK_ALONE = (
    "export the link alone, link_only=True or --link-only, and run encoder and head as they are"
)
FAILURES = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What torch raises on modules that it cannot export."""


class Example(NamedTuple):
    """A batch of at least two rows, on the CPU, by which a module is exported."""

    inputs: TensorTree
    varying: list[set[int]]
    """Of each tensor, the dimensions beside the first that have other sizes in other batches."""


def export_module(
    what: str, module: nn.Module, example: Example, out: Path, description: Mapping[str, Any]
) -> None:
    """Write a module for batches of any size.

    Dimensions that vary have any size too, and that of the example, with a warning, if torch cannot
    export the module so.

    Args:
        what: the module, in an error.
        module: with one argument, of the form of the example.
        example: its inputs.
        out: a file whose name ends in `.onnx` or `.pt2`.
        description: JSON, kept as metadata of the file.
    """
    if out.suffix not in SUFFIXES:
        raise InputError(f"the name of the file must end in {' or '.join(SUFFIXES)}, got {out}")
    if out.suffix == ".onnx":
        _check_installed()
    make_directory(out.parent)
    try:
        try:
            _write(module, example, out, description)
        except FAILURES as problem:
            if not any(example.varying):
                raise
            fixed = [set[int]() for _ in example.varying]
            _write(module, example._replace(varying=fixed), out, description)
            warnings.warn(
                f"torch cannot export {what} for inputs of any size ({_reason(problem)}); the file "
                f"takes {_sizes(example)}: pad or cut inputs to that",
                FixedSizeWarning,
                stacklevel=4,  # where the network is exported
            )
    except OSError as problem:
        raise OutputError(
            f"cannot write {out}: {problem.strerror or problem}; choose another file"
        ) from problem
    except FAILURES as problem:
        raise ExportError(
            f"torch cannot export {what} ({_reason(problem)}); {LINK_ALONE}"
        ) from problem


def example_inputs(agent: Agent) -> Example:
    """Return the largest batch among a few small ones of an agent's inputs, and what varies."""
    splits = (agent.data.train, agent.data.validation, agent.data.test)
    found = [inputs for split in splits if split is not None for inputs in _small_batches(split)]
    shapes = [[tensor.shape for _, tensor in tensors(inputs)] for inputs in found]
    varying = [
        {k for k, sizes in enumerate(zip(*part, strict=False)) if k and len(set(sizes)) > 1}
        for part in zip(*shapes, strict=True)
    ]
    largest = max(found, key=lambda inputs: sum(tensor.numel() for _, tensor in tensors(inputs)))
    return Example(map_tensors(lambda tensor: tensor.detach().cpu(), largest), varying)


def _small_batches(samples: Samples) -> Iterator[TensorTree]:
    """Yield the inputs of a few samples, from everywhere: they may be sorted by length."""
    count = len(samples)
    chosen = torch.linspace(0, count - 1, min(COMPARED, count), dtype=torch.float64).long()
    for rows in torch.split(chosen, EXAMPLES):
        yield samples.batch(rows[torch.arange(EXAMPLES) % len(rows)]).inputs


def input_names(example: TensorTree) -> list[str]:
    """Return the names of an example's parts in an ONNX file: `inputs`, or those of its keys.

    >>> input_names({"input_ids": torch.zeros(2, 3), "pair": (torch.zeros(2), torch.zeros(2))})
    ['input_ids', 'pair_0', 'pair_1']
    """
    return [re.sub(r"\W+", "_", path).strip("_") or "inputs" for path, _ in tensors(example)]


def _write(module: nn.Module, example: Example, out: Path, description: Mapping[str, Any]) -> None:
    batch = torch.export.Dim("batch")
    # Not Dim.AUTO, which lets torch fix a size without a word.
    shapes = _shapes(example, batch, lambda name, k: torch.export.Dim.DYNAMIC)
    program = torch.export.export(module, (example.inputs,), dynamic_shapes=(shapes,))
    if out.suffix == ".onnx":
        _save_onnx(program, example, out, description)
        return
    with written_atomically(out) as file:  # torch's own errors do not tell why
        torch.export.save(program, file, extra_files={METADATA: json.dumps(description)})


def _save_onnx(
    program: torch.export.ExportedProgram,
    example: Example,
    out: Path,
    description: Mapping[str, Any],
) -> None:
    with _quiet():
        converted: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            dynamic_shapes=(_shapes(example, "batch", lambda name, k: f"{name}_{k}"),),
            input_names=input_names(example.inputs),
            output_names=["outputs"],
        )
    kept = {k: v if isinstance(v, str) else json.dumps(v) for k, v in description.items()}
    converted.model.metadata_props.update(kept)
    converted.save(str(out))


def _check_installed() -> None:
    try:
        import onnxscript  # noqa: F401
    except ImportError as problem:
        raise MissingDependencyError(
            "the ONNX exporter of torch needs packages that are not installed; get them with: "
            "pip install 'sheafed[export]'"
        ) from problem


def _shapes(example: Example, rows: Any, other: Callable[[str, int], Any]) -> Any:
    """Return the form of the inputs with what names their sizes, as torch takes dynamic shapes."""
    named = zip(input_names(example.inputs), example.varying, strict=True)
    shapes: Any = ({0: rows} | {k: other(name, k) for k in sorted(dims)} for name, dims in named)
    return map_tensors(lambda _: next(shapes), example.inputs)


def _sizes(example: Example) -> str:
    """Return the sizes of the dimensions that vary in words."""
    parts = zip(input_names(example.inputs), tensors(example.inputs), example.varying, strict=True)
    return ", ".join(
        f"{name} with {tensor.shape[k]} in dimension {k}"
        for name, (_, tensor), dims in parts
        for k in sorted(dims)
    )


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what torch's exporter says of itself: its own deprecations, and torchvision."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message="# The axis name")
            yield
    finally:
        logger.setLevel(level)
