"""The files of a run directory."""

CONFIG = "config.json"
"""The experiment, if the run was started from a config."""
CHECKPOINT = "checkpoint.safetensors"
METRICS, SUMMARY = "metrics.jsonl", "summary.json"
LAST, BEST = "last.safetensors", "best.safetensors"
"""The agents' weights at the end, and at the best validation score."""
