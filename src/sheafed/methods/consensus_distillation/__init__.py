"""Consensus distillation, the recommended method."""

from sheafed.methods.consensus_distillation.method import ConsensusDistillation

__all__ = ["ConsensusDistillation"]
