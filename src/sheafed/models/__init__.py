"""Encoders, heads and decoders, the paper's zoo, and `adapters` of pretrained models."""

from sheafed.models.builders import cnn, decoder, head, linear, mlp
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
    "linear",
    "mlp",
]
