"""Encoders and heads: a small vocabulary, and the paper's zoo."""

from sheafed.models.builders import cnn, decoder, head, mlp
from sheafed.models.zoo import (
    AGENT_ZOO,
    BOTTLENECKS,
    AgentSpec,
    bottleneck_pair,
    build_encoder,
    build_head,
)

__all__ = [
    "AGENT_ZOO",
    "BOTTLENECKS",
    "AgentSpec",
    "bottleneck_pair",
    "build_encoder",
    "build_head",
    "cnn",
    "decoder",
    "head",
    "mlp",
]
