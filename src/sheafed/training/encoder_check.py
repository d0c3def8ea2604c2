"""Whether an encoder is the one of a run: its latents of a few pilots tell, its weights may not.

A transformer of scikit-learn has no weights, and an encoder may compute more than its weights say.
Where there are no pilots, and for heads, what torch prints of a module tells which layers it has.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sheafed.agents.agent import Agent
from sheafed.errors import NetworkMismatchError
from sheafed.evaluation.peer_evaluator import evaluation_pilots
from sheafed.methods.node import Node
from sheafed.methods.pilot_encoder import encode_pilots
from sheafed.pilots.pilot_set import PilotSet
from sheafed.tensor_tree import select_rows

CHECKED_PILOTS = 16
"""How many pilots an encoder is recognised by."""
TOLERANCE = 1e-2
"""The relative difference of latents above which an encoder is another one. Devices, libraries and
reduced precision round differently, but not by that much."""


def check_latents(agent: Agent, pilots: PilotSet) -> Tensor:
    """Return an agent's latents `(n, d)` of a few pilots, by which its encoder is recognised."""
    few = select_rows(pilots.of(agent.name), evaluation_pilots(pilots.total, CHECKED_PILOTS))
    with torch.no_grad():
        return encode_pilots(agent, few, None)


def checked_state(node: Node) -> dict[str, Any]:
    """Return the state of an agent, with these latents if its encoder has no weights."""
    agent = node.agent
    stateless = not agent.encoder.state_dict()
    latents = check_latents(agent, node.context.pilots) if stateless else None
    return {**agent.state(), "check latents": latents}


def check_encoder(path: Path, node: Node, was: Tensor | None) -> None:
    """Raise if an encoder gives other latents of the pilots than it did when `path` was written."""
    if was is None:
        return
    was = was.double()
    now = check_latents(node.agent, node.context.pilots).cpu().to(was)
    error = float(torch.linalg.norm(now - was) / torch.linalg.norm(was).clamp_min(1e-30))
    if error > TOLERANCE:
        raise NetworkMismatchError(
            f"agent {node.name!r} encodes the pilots otherwise than in {path}: latents "
            f"differ by {error:.0%}; what its encoder computes beside its weights has changed, "
            "e.g. a transformer of scikit-learn was fitted again: give the one of the run"
        )


def layers_of(agent: Agent) -> dict[str, str | None]:
    """Return what torch prints of an agent's encoder and head."""
    return {"encoder": _printed(agent.encoder), "head": _printed(agent.head)}


def changed_layers(agent: Agent, part: str, was: str | None) -> str | None:
    """Return in what the encoder or the head of an agent is printed otherwise than it was."""
    now = layers_of(agent)[part]
    if was is None or now is None or was == now:
        return None
    lines = zip_longest(was.splitlines(), now.splitlines(), fillvalue="nothing")
    before, after = next((a.strip(), b.strip()) for a, b in lines if a != b)
    return f"{before} in the run, {after} now"


def _printed(module: nn.Module | None) -> str | None:
    """Return a module's `repr` without the addresses that Python shows of functions in it."""
    return None if module is None else re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(module))
