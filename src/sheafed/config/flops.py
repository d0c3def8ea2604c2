"""What a round costs each agent, to share the work among processes."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from sheafed import models
from sheafed.config.experiment import Experiment
from sheafed.config.federation import agent_modalities, agent_specs, input_shape, load


def costs(experiment: Experiment) -> dict[str, float]:
    """Return the multiply-adds of one training step of every agent.

    They are counted in a dry run without memory or arithmetic, so nothing depends on how busy a
    machine is. A step on a batch stands for the round: pilots cost in proportion.
    """
    samples = load(experiment.data.name)
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
