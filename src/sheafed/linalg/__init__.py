"""Procrustes maps, whitening and identifiability: functions and layers over tensors."""

from sheafed.linalg.identifiability import Identifiability, identifiability
from sheafed.linalg.parseval import parseval
from sheafed.linalg.procrustes import (
    check_isometry,
    cross_covariance,
    misalignment,
    polar_factor,
    procrustes,
)
from sheafed.linalg.running_zca import RunningZCA
from sheafed.linalg.stochastic_whitening import StochasticWhitening
from sheafed.linalg.whitening import Whitening, ledoit_wolf, zca

__all__ = [
    "Identifiability",
    "RunningZCA",
    "StochasticWhitening",
    "Whitening",
    "check_isometry",
    "cross_covariance",
    "identifiability",
    "ledoit_wolf",
    "misalignment",
    "parseval",
    "polar_factor",
    "procrustes",
    "zca",
]
