"""Post-hoc alignment of encoders that exist already."""

from sheafed.alignment.alignment import Alignment
from sheafed.alignment.fitting import align
from sheafed.alignment.report import AlignmentReport, EdgeFit

__all__ = ["Alignment", "AlignmentReport", "EdgeFit", "align"]
