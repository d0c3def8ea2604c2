"""The names of the experiments in `toml/`."""

PRESETS = ("digits", "newsgroups", "reuters", "cifar10", "pair", "fifteen")
