"""Agents, sheaves, graphs, pilots and alignments: the objects of the paper."""
