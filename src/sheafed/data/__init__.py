"""Data sets and the ways to divide them among agents."""
