"""Procrustes, whitening, frames and spectra: pure functions of tensors."""

from sheafed.linalg.identifiability import Identifiability, identifiability
from sheafed.linalg.parseval import parseval
from sheafed.linalg.procrustes import (
    check_isometry,
    cross_covariance,
    misalignment,
    polar_factor,
    procrustes,
    residual,
)
from sheafed.linalg.running_zca import RunningZCA
from sheafed.linalg.spectra import canonical_correlations, effective_rank
from sheafed.linalg.stochastic_whitening import StochasticWhitening
from sheafed.linalg.whitening import Whitening, ledoit_wolf, zca

__all__ = [
    "Identifiability",
    "RunningZCA",
    "StochasticWhitening",
    "Whitening",
    "canonical_correlations",
    "check_isometry",
    "cross_covariance",
    "effective_rank",
    "identifiability",
    "ledoit_wolf",
    "misalignment",
    "parseval",
    "polar_factor",
    "procrustes",
    "residual",
    "zca",
]
