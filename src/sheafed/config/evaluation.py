"""A finished run of a config, judged on other data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sheafed.agents.agent import Agent
from sheafed.agents.samples import Samples
from sheafed.config.agents import agent_forms, agent_specs, local_samples
from sheafed.config.custom_method import AllowCode
from sheafed.config.dataset import viewed_images
from sheafed.config.experiment import Experiment
from sheafed.config.federation import build_federation
from sheafed.config.loading import run_config
from sheafed.datasets import LabelledDataset, from_arrays, from_folder
from sheafed.datasets.texts import TEXTS
from sheafed.errors import DataFormatError, InputError, ShapeError
from sheafed.evaluation import Evaluation, Split
from sheafed.training import load_network
from sheafed.training.loading import Which


def evaluate_run(
    run: Path,
    *,
    which: Which = "last",
    split: Split = "test",
    data: Path | None = None,
    oracle: bool = True,
    device: str | None = None,
    allow_code: AllowCode = (),
) -> Evaluation:
    """Evaluate the network of a run directory, which is only read.

    Args:
        run: written from a config.
        which: the network at the end, or at its best validation score.
        split: of the data of the run.
        data: other data in place of them, the same for every agent: a folder with one subfolder of
            images per class, or an `.npz` file with `x` and `y`, and `classes` if `y` has other
            numbers for them.
        oracle: also let receivers encode their neighbours' inputs.
        device: where agents compute, if not where they were trained.
        allow_code: see `build_federation`.
    """
    experiment = run_config(run, device)
    torch.set_num_threads(experiment.training.threads)  # as in training, to the bit
    found = build_federation(experiment, allow_code=allow_code)
    if data is not None:
        _replace_test_data(experiment, found.agents, read_labelled(data), data)
    network = load_network(run, found.agents, which=which, method=found.method, pilots=found.pilots)
    return network.evaluate(split if data is None else "test", oracle)


def read_labelled(path: Path) -> LabelledDataset:
    """Read a folder of images or an `.npz` file as a data set."""
    if path.is_dir():
        return from_folder(path)
    if path.suffix != ".npz" or not path.exists():
        raise InputError(
            f"{path} is neither a folder, with a subfolder of images per class, nor an .npz file "
            "with x and y"
        )
    with np.load(path, allow_pickle=False) as arrays:
        if not {"x", "y"} <= set(arrays):
            raise DataFormatError(f"{path} needs the arrays x and y, it holds {sorted(arrays)}")
        classes = [str(name) for name in arrays["classes"]] if "classes" in arrays else None
        return from_arrays(arrays["x"], arrays["y"], name=path.name, classes=classes)


def _replace_test_data(
    experiment: Experiment, agents: list[Agent], given: LabelledDataset, path: Path
) -> None:
    if experiment.data.name in TEXTS:
        raise InputError(
            f"the samples of this run are texts, and {path} cannot be: load the run in Python, and "
            "give network.evaluate(data=...) the latents of your texts"
        )
    classes = agents[0].classes or ()
    labels = _labels(given, classes, named=path.is_dir() or given.classes != _numbers(given))
    specs = agent_specs(experiment, classes=len(classes))
    viewed = viewed_images(given)
    forms = agent_forms(experiment, viewed, specs)
    everything = torch.arange(len(given))

    def seen_by(_: str, name: str) -> Samples:
        return local_samples(viewed, everything, labels, forms[name])

    for agent in agents:
        test = seen_by("test", agent.name)
        one = torch.zeros(1, dtype=torch.long)
        expected, found = (s.batch(one).inputs.shape[1:] for s in (agent.data.train, test))
        if found != expected:
            raise ShapeError(
                f"agent {agent.name!r} was trained with inputs of shape {tuple(expected)}, those "
                f"of {path} have {tuple(found)}; resize them"
            )
        agent.data = replace(agent.data, test=test, seen_by=seen_by)


def _labels(given: LabelledDataset, classes: tuple[str, ...], *, named: bool) -> Tensor:
    """Return the labels of data in the order of the run's classes."""
    if named:
        if unknown := sorted(set(given.classes) - set(classes)):
            raise InputError(
                f"{given.name} has classes {unknown} that the run does not know; its classes: "
                f"{', '.join(classes)}"
            )
        return torch.tensor([classes.index(name) for name in given.classes])[given.labels]
    if len(given.classes) > len(classes):
        raise InputError(
            f"{given.name} has labels up to {len(given.classes) - 1}, the run has "
            f"{len(classes)} classes, 0 to {len(classes) - 1}: {', '.join(classes)}"
        )
    return given.labels


def _numbers(given: LabelledDataset) -> tuple[str, ...]:
    return tuple(str(k) for k in range(len(given.classes)))
