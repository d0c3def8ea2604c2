"""One self-contained, interactive HTML page about some runs."""

from sheafed.report.page import page, write_report
from sheafed.report.rundata import RunData, read_run, read_runs

__all__ = ["RunData", "page", "read_run", "read_runs", "write_report"]
