"""The round loop, evaluation, checkpoints, callbacks: what turns node programs into a run."""
