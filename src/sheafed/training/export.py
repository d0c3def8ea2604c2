"""Modules as files that run without this library: `torch.export` and ONNX."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sheafed.agents.agent import Agent
from sheafed.atomic_io import make_directory, written_atomically
from sheafed.errors import ExportError, InputError, MissingDependencyError, OutputError
from sheafed.tensor_tree import TensorTree, map_tensors, tensors

SUFFIXES = (".onnx", ".pt2")
EXAMPLES = 2
"""Rows of an example: with one, the exporter would take the size of a batch for a constant."""
METADATA = "sheafed.json"
"""The name of the description within a `.pt2` file."""

_FAILURES = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)


def export_module(
    what: str, module: nn.Module, example: TensorTree, out: Path, description: Mapping[str, Any]
) -> None:
    """Write a module for batches of any size.

    Args:
        what: the module, in an error.
        module: with one argument, of the form of the example.
        example: a batch of at least two rows, on the CPU.
        out: a file whose name ends in `.onnx` or `.pt2`.
        description: JSON, kept as metadata of the file.
    """
    if out.suffix not in SUFFIXES:
        raise InputError(f"the name of the file must end in {' or '.join(SUFFIXES)}, got {out}")
    if out.suffix == ".onnx":
        _check_installed()
    make_directory(out.parent)
    batch = torch.export.Dim("batch")
    try:
        shapes = (_rows(example, batch),)
        program = torch.export.export(module, (example,), dynamic_shapes=shapes)
        if out.suffix == ".onnx":
            _save_onnx(program, example, out, description)
        else:
            with written_atomically(out) as file:  # torch's own errors do not tell why
                torch.export.save(program, file, extra_files={METADATA: json.dumps(description)})
    except OSError as problem:
        raise OutputError(
            f"cannot write {out}: {problem.strerror or problem}; choose another file"
        ) from problem
    except _FAILURES as problem:
        reason = " ".join(str(problem).split())[:300]
        raise ExportError(
            f"torch cannot export {what} ({type(problem).__name__}: {reason}); export the link "
            "alone, link_only=True or --link-only, and run encoder and head as they are"
        ) from problem


def example_inputs(agent: Agent) -> TensorTree:
    """Return a small batch of an agent's training inputs, on the CPU."""
    rows = torch.arange(EXAMPLES) % len(agent.data.train)
    inputs = agent.data.train.batch(rows).inputs
    return map_tensors(lambda tensor: tensor.detach().cpu(), inputs)


def input_names(example: TensorTree) -> list[str]:
    """Return the names of an example's parts in an ONNX file: `inputs`, or those of its keys.

    >>> input_names({"input_ids": torch.zeros(2, 3), "pair": (torch.zeros(2), torch.zeros(2))})
    ['input_ids', 'pair_0', 'pair_1']
    """
    return [re.sub(r"\W+", "_", path).strip("_") or "inputs" for path, _ in tensors(example)]


def _save_onnx(
    program: torch.export.ExportedProgram,
    example: TensorTree,
    out: Path,
    description: Mapping[str, Any],
) -> None:
    with _quiet():
        converted: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            dynamic_shapes=(_rows(example, "batch"),),
            input_names=input_names(example),
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


def _rows(example: TensorTree, name: Any) -> Any:
    """Return the form of the example with its rows named, as torch describes dynamic shapes."""
    rows: Any = lambda tensor: {0: name}  # noqa: E731
    return map_tensors(rows, example)


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
