"""Many agents of one architecture in one process: their passes and steps, computed together."""

from sheafed.vectorized.cohort import StackedCohort
from sheafed.vectorized.grouping import FEWEST, Grouping, Summary, merge_summaries

__all__ = ["FEWEST", "Grouping", "StackedCohort", "Summary", "merge_summaries"]
