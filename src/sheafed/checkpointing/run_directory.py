"""The files of a run directory."""

CHECKPOINT = "checkpoint.safetensors"
METRICS, SUMMARY = "metrics.jsonl", "summary.json"
LAST, BEST = "last.safetensors", "best.safetensors"
"""The agents' weights at the end, and at the best validation score."""
