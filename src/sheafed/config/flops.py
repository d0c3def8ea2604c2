"""The floating-point operations of a training step, by which agents are placed on processes."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from sheafed import models
from sheafed.config.agents import agent_modalities, agent_specs, input_shape
from sheafed.config.experiment import Experiment
from sheafed.config.federation import load_dataset


def step_flops(experiment: Experiment) -> dict[str, float]:
    """Return the multiply-adds of one training step of every agent.

    Counted on the meta device, so nothing is computed and the result does not depend on the
    machine. Encoding pilots costs in proportion.
    """
    samples = load_dataset(experiment.data.name)
    classes = len(samples.classes)
    counted = {}
    specs = agent_specs(experiment, classes)
    modalities = agent_modalities(experiment, samples, specs)
    for name, spec in specs.items():
        shape = input_shape(samples, modalities[name])
        with torch.device("meta"):
            encoder = models.build_encoder(spec, shape)
            head = models.build_head(spec, classes)
            inputs = torch.empty(experiment.training.batch_size, *shape)
        with FlopCounterMode(display=False) as counter:
            head(encoder(inputs)).sum().backward()
        counted[name] = float(counter.get_total_flops())
    return counted
