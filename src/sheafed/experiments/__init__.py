"""Experiments: a TOML file in, a run directory out."""
