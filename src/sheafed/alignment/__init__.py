"""Post-hoc alignment of encoders that exist already."""

from sheafed.alignment.affine_map import AffineMap
from sheafed.alignment.alignment import Alignment
from sheafed.alignment.fitting import align
from sheafed.alignment.held_out import HeldOut
from sheafed.alignment.kinds import (
    CanonicalMap,
    LeastSquaresMap,
    LowRankMap,
    ProcrustesMap,
    RescaledRidgeMap,
    RidgeMap,
    fit_map,
)
from sheafed.alignment.report import AlignmentReport, EdgeFit, PairFit
from sheafed.alignment.selection import Choice

__all__ = [
    "AffineMap",
    "Alignment",
    "AlignmentReport",
    "CanonicalMap",
    "Choice",
    "EdgeFit",
    "HeldOut",
    "LeastSquaresMap",
    "LowRankMap",
    "PairFit",
    "ProcrustesMap",
    "RescaledRidgeMap",
    "RidgeMap",
    "align",
    "fit_map",
]
