"""One self-contained, interactive HTML page about one or more runs."""

from sheafed.optional import require_extra
from sheafed.report.run_reader import RunDirectory, read_run, read_runs

try:
    from sheafed.report.page import page, write_report
except ImportError:
    require_extra("report", "the page", "plotly", "jinja2")
    raise

__all__ = ["RunDirectory", "page", "read_run", "read_runs", "write_report"]
