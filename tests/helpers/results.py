"""Runs that have finished with results of our choice."""

import json

from sheafed.sweep.results import COLUMNS


def finish(trial, out, score, **results):
    """Write the directory of a run that has finished with these results."""
    directory = out / trial.directory
    directory.mkdir(parents=True)
    record = {} if score is None else {"validation_score": score}
    (directory / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    summary = dict.fromkeys(COLUMNS, 0.0) | {"edges": [], "agents": {}} | results
    (directory / "summary.json").write_text(json.dumps(summary))
