"""Experiments as data: the schema, the presets, and the federation that a config describes."""
