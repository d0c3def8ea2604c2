"""The floating-point operations of a training step, by which agents are placed on processes."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from sheafed import models
from sheafed.config.agents import agent_forms, agent_specs, check_agents
from sheafed.config.dataset import load_dataset
from sheafed.config.experiment import Experiment


def step_flops(experiment: Experiment) -> dict[str, float]:
    """Return the multiply-adds of one training step of every agent.

    Counted on the meta device, so nothing is computed and the result does not depend on the
    machine. Encoding pilots costs in proportion.
    """
    samples = load_dataset(experiment.data)
    classes = len(samples.classes)
    counted = {}
    specs = agent_specs(experiment, classes)
    forms = agent_forms(experiment, samples, specs)
    check_agents(experiment, samples, specs, forms)
    for name, spec in specs.items():
        shape = samples.shape_of(forms[name])
        with torch.device("meta"):
            encoder = models.build_encoder(spec, shape)
            head = models.build_head(spec, classes)
            inputs = torch.empty(experiment.training.batch_size, *shape)
        with FlopCounterMode(display=False) as counter:
            head(encoder(inputs)).sum().backward()
        counted[name] = float(counter.get_total_flops())
    return counted
