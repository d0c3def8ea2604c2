"""One self-contained, interactive HTML page about one or more runs."""

from sheafed.report.page import page, write_report
from sheafed.report.run_reader import RunDirectory, read_run, read_runs

__all__ = ["RunDirectory", "page", "read_run", "read_runs", "write_report"]
