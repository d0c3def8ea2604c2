"""Runs that have ended with figures of our choice."""

import json

from sheafed.sweep.results import FIGURES


def finish(trial, out, score, **figures):
    """Pretend that a run has ended with these figures."""
    directory = out / trial.directory
    directory.mkdir(parents=True)
    record = {} if score is None else {"validation_score": score}
    (directory / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    summary = dict.fromkeys(FIGURES, 0.0) | {"edges": [], "agents": {}} | figures
    (directory / "summary.json").write_text(json.dumps(summary))
