"""One self-contained, interactive HTML page about some runs."""

from sheafed.report.page import page, write_report
from sheafed.report.run_reader import RunFiles, read_run, read_runs

__all__ = ["RunFiles", "page", "read_run", "read_runs", "write_report"]
