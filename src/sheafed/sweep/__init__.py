"""Many runs of one config: grids, searches, tables of results."""

from sheafed.sweep.results import COLUMNS, Row, is_finished, read_summary, tabulate
from sheafed.sweep.runner import Runner
from sheafed.sweep.search import Range, parse_range, search_all
from sheafed.sweep.tables import csv_table, markdown_table, with_deviation
from sheafed.sweep.trials import Overrides, Trial, expand_variants, make_trials, parse_seeds

__all__ = [
    "COLUMNS",
    "Overrides",
    "Range",
    "Row",
    "Runner",
    "Trial",
    "csv_table",
    "expand_variants",
    "is_finished",
    "make_trials",
    "markdown_table",
    "parse_range",
    "parse_seeds",
    "read_summary",
    "search_all",
    "tabulate",
    "with_deviation",
]
