"""Many agents of one architecture in one process: their passes and steps, computed together."""

from sheafed.vectorized.cohort import OwnPass, StackedCohort
from sheafed.vectorized.grouping import FEWEST, Grouping, Summary, merge_summaries
from sheafed.vectorized.stacked import Stacked
from sheafed.vectorized.stacked_layers import StackedLayers

__all__ = [
    "FEWEST",
    "Grouping",
    "OwnPass",
    "Stacked",
    "StackedCohort",
    "StackedLayers",
    "Summary",
    "merge_summaries",
]
