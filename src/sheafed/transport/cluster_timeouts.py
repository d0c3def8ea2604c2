"""How long the processes of a cluster wait for each other, in seconds."""

START_TIMEOUT = 900.0
"""For other ranks at first: they may still be starting or loading their data."""
TIMEOUT = 300.0
"""A killed rank is noticed at once; this is for one that is frozen or cut off, and must be longer
than any rank may be behind the others, e.g. in an evaluation."""
