"""Checkpoints and the files of a run directory."""
