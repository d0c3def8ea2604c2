"""Every example runs as a user would run it, and does what it promises."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 120, path


def test_post_hoc_alignment(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        understood = load("post_hoc_alignment").main(tmp_path)
    private = np.diag(understood)
    assert private.min() > 0.85
    losses = private[None] - understood
    assert losses.max() < 0.15
    assert (tmp_path / "who_understands_whom.png").stat().st_size > 5_000
    assert (tmp_path / "alignment" / "alignment.json").exists()
