"""Post-hoc alignment of encoders that exist already."""

from sheafed.alignment.alignment import Alignment, AlignmentReport, EdgeFit, align

__all__ = ["Alignment", "AlignmentReport", "EdgeFit", "align"]
