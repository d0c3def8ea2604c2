"""Many runs of one config: grids, searches, results."""
